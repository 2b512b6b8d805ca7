"""302 of 377,506: both published tables to the I/O, and the I/Os in flight meanwhile."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

import pytest
from depth_sums import merge_depths

from latmon.analysis.issue_order import lba_order
from latmon.model.histogram import bucket_bounds, merge
from latmon.model.measurements import ABOVE
from latmon_backends.demo import bubbles
from latmon_backends.demo.bubbles import (
    BUBBLES,
    BUBBLES_HEALTHY,
    DISK,
    SORTED,
    THRESHOLD_US,
    THROTTLE,
    UNSORTED,
    WINDOWS,
    by_window,
    latencies,
)
from latmon_backends.demo.scenario import histogram

FEW = 14
SORTED_WHOLE, UNSORTED_WHOLE = 377_506, 543_956


def rows(found):
    """Return the counts of DTrace's quantize() of milliseconds."""
    reported = Counter()
    for index, n in found.buckets:
        low, high = bucket_bounds(index)
        row = 0 if high <= 1_000 else 1 << (low // 1_000).bit_length() - 1
        assert high <= max(1, 2 * row) * 1_000 or row == 524_288
        reported[row] += n
    return reported


@pytest.fixture(scope="module")
def sick():
    return list(islice(BUBBLES.frames(Random(1)), FEW))


@pytest.fixture(scope="module")
def healthy():
    return list(islice(BUBBLES_HEALTHY.frames(Random(1)), FEW))


def whole(frames):
    return merge(h for f in frames for s, h in f.histograms.items() if s[::2] == (DISK, "total"))


@pytest.mark.parametrize("seed", [1, 7])
@pytest.mark.parametrize(("table", "last", "mean_us"), [(SORTED, 0.5, 198_000), (UNSORTED, 1.0, 462_000)])
def test_the_tables_hold_whatever_the_seed(seed, table, last, mean_us):
    rng = Random(seed)
    spread = by_window(rng, table, last)
    assert len(spread) == WINDOWS
    assert sum((Counter(one) for one in spread), Counter()) == table
    some = [one for one in spread[:3] for one in latencies(rng, one, mean_us, 22_000)]
    assert rows(histogram(some)) == sum((Counter(one) for one in spread[:3]), Counter())


def test_both_tables_are_those_of_the_text():
    assert sum(SORTED.values()) + 302 == SORTED_WHOLE
    assert sum(UNSORTED.values()) == UNSORTED_WHOLE


@pytest.mark.parametrize("seed", [1, 7])
def test_two_wait_for_more_than_8_minutes_and_300_for_more_than_9(seed):
    reported = Counter(disksorted_io.total_us // 60_000_000 for disksorted_io in bubbles.drawn(Random(seed)))
    assert reported == {8: 2, 9: 300}
    assert all(disksorted_io.total_us >= 524_288_000 for disksorted_io in bubbles.drawn(Random(seed)))


def test_those_that_wait_are_in_flight_and_in_no_latency(sick):
    assert not any(f.in_flight for f in sick), "no script follows them one by one"
    assert sick[-1].outstanding[DISK].queued > 300
    in_flight = sum(
        d * ms for counts in (sick[-1].depths[DISK].in_driver, sick[-1].depths[DISK].queued) for d, ms in counts.items()
    )
    assert in_flight / 1_000 - whole(sick[-1:]).sum / 1e6 == pytest.approx(300, rel=0.1)


def test_sorting_is_seen_in_the_order_of_issue(sick, healthy):
    assert all(lba_order(f.issues[DISK]).is_sorted for f in sick)
    orders = [lba_order(f.issues[DISK]) for f in healthy]
    assert not any(order.is_sorted or order.reordered for order in orders)


def test_the_throttle_is_full_and_no_wall_of_few(sick):
    depths = merge_depths(f.depths[DISK] for f in sick)
    assert depths.highest == THROTTLE
    moving = whole(sick).sum / 1e6 / FEW
    assert moving == pytest.approx(120, rel=0.05)


def test_health_is_slower_and_bounded(sick, healthy):
    assert whole(healthy).quantile(0.5) > 2 * whole(sick).quantile(0.5)
    assert max(rows(whole(healthy))) == 512
    assert not any(f[ABOVE] for f in (*sick, *healthy))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 7])
def test_the_whole_test_has_both_tables(seed):
    frames = list(BUBBLES.frames(Random(seed)))
    assert len(frames) == WINDOWS
    assert rows(whole(frames)) == {**SORTED, 524_288: 302}
    assert whole(frames[:-1]).max_bound < THRESHOLD_US
    last = frames[-1]
    assert sum(last[ABOVE].values()) == 302 == len(last.outliers) + last.health.suppressed
    assert all(sum(outlier.stages_us.values()) == outlier.total_us for outlier in last.outliers)
    assert last.outstanding[DISK].known == 0
    assert frames[-2].outstanding[DISK].queued > 302
    assert rows(whole(BUBBLES_HEALTHY.frames(Random(seed)))) == UNSORTED
