"""The demo's outstanding I/O agrees with its own rates and times, with its limits and with its gauge."""

from __future__ import annotations

from itertools import pairwise

import pytest
from depth_sums import merge_depths

from latmon.aggregate.request_age import Waiting
from latmon.analysis.limits import ceiling
from latmon.model.frame import Frame
from latmon.model.inflight import PROBE, SYSFS
from latmon_backends.demo.host_window import CROWDED, DEVICES, STARVED
from latmon_backends.demo.inflight import MOMENTS, apportioned, in_service_shares, line

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def frames(period) -> list[Frame]:
    return period[:16]


def mean(counts):
    return sum(depth * n for depth, n in counts.items()) / sum(counts.values())


@pytest.mark.parametrize("device", [d.name for d in DEVICES if d.timed and d.name != STARVED])
def test_depths_are_what_littles_law_makes_of_rate_and_time(frames, device):
    """Outstanding = I/Os a second x time of each, below and above the driver alike."""
    depths = merge_depths(f.depths[device] for f in frames)
    assert sum(depths.in_driver.values()) == sum(depths.queued.values()) == MOMENTS * len(frames)
    for stage, counts in (("hba", depths.in_driver), ("queue", depths.queued)):
        reported = [h for f in frames for s, h in f.histograms.items() if (s.device, s.stage) == (device, stage)]
        assert mean(counts) == pytest.approx(sum(h.sum for h in reported) / 1e6 / len(frames), rel=0.03, abs=0.003)
    totals = [h for f in frames for s, h in f.histograms.items() if (s.device, s.stage) == (device, "total")]
    assert sum(depths.at_issue.values()) == sum(h.count for h in totals)
    assert sum(took.ios for took in depths.latency.values()) == sum(h.count for h in totals)
    assert sum(took.time_us for took in depths.latency.values()) == sum(h.sum for h in totals)


def test_one_device_is_at_its_limit_with_a_queue_above_it(frames):
    limit = ceiling(next(d for d in DEVICES if d.name == CROWDED).limits)
    assert (limit.name, limit.value) == ("queue_depth", 3)
    depths = merge_depths(f.depths[CROWDED] for f in frames)
    assert (depths.highest, depths.source) == (3, PROBE)
    assert max(depths.in_driver, key=depths.in_driver.get) == max(depths.at_issue, key=depths.at_issue.get) == 3
    assert mean(depths.queued) > 3
    assert all(f.outstanding[CROWDED].in_driver <= 3 for f in frames)


def test_a_request_that_never_completes_is_in_flight_and_in_the_gauge(frames):
    (held,) = frames[-1].in_flight.oldest
    assert (held.device, held.issued) == (STARVED, True)
    assert [f.mono_us - f.in_flight.oldest[0].began_us for f in frames[-2:]] == [10_000_000, 11_000_000]
    assert frames[-1].in_flight.older == {1: 1, 10: 1, 60: 0}
    assert 0 < frames[-2].in_flight.oldest[0].overtaken_by < held.overtaken_by
    waiting = Waiting()
    for frame in frames:
        waiting.add(frame)
    assert set(waiting.ages.unknown) <= {"dm-0"}, "no script follows its bios"
    assert frames[0].in_flight.oldest == ()
    assert all(f.outstanding[STARVED].in_driver >= 1 for f in frames[6:])
    assert min(frames[-1].depths[STARVED].in_driver) == 1


def test_issues_are_sorted_and_a_volume_is_only_sampled(frames):
    sectors = [one.sector for one in frames[0].issues[STARVED]]
    assert sum(later < one for one, later in pairwise(sectors)) <= 1
    assert frames[0].depths["dm-0"].source == SYSFS
    assert not frames[0].depths["dm-0"].at_issue


def test_shares_lose_nothing():
    assert sum(apportioned({1: 0.1, 2: 0.333, 9: 5.0}, 1000).values()) == 1000
    assert apportioned({}, 5) == {}
    for cap, wanted in ((3, 2.9), (3, 0.1), (64, 1.0)):
        actual_in_service_shares = in_service_shares(wanted, cap)
        assert max(actual_in_service_shares) <= cap
        assert sum(depth * share for depth, share in actual_in_service_shares.items()) == pytest.approx(
            wanted, rel=0.01
        )
    assert sum(line(11, 0.8).values()) == pytest.approx(1, abs=0.01)
