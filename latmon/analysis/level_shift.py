"""The test of a lasting change: whether the I/Os after a time are slower than those before it, by more than chance.

Both sides are units of time with counts by bucket, as in a diff of two captures, and are tested as there: blocks of
units are exchanged at cuts through the body of both. A change that is no larger than what each side varies within
itself, or that drifts, is none.

A change may also be of a part of the I/Os only: one of four heads of a disk that needs retries leaves the median as it
was. Then the share of I/Os is tested that take far longer than all but a hundredth did before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from latmon.analysis import statistics
from latmon.analysis.cuts import (
    DRIFT,
    PARTS,
    BlockCounts,
    Cut,
    SeriesCuts,
    count_above,
    least_difference,
    length,
    quantile_ratios,
    series_cuts,
)
from latmon.analysis.statistics import Ratio, Survival
from latmon.model.frame import Series
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index

CHANCE = 0.01
"""Largest probability that an exchange of blocks gives as large a difference."""
FEWEST_IOS = 40
"""I/Os that each side needs."""
FEWEST_UNITS = 8
"""Units with I/Os that each side needs: correlation and power of fewer are unknown."""
_SERIES = Series("", "", "total")
Unit = Mapping[int, int]
"""Bucket index -> I/Os."""


ALL_BUT = 0.01
"""Share of the I/Os before that may be as slow as the slow part's fastest."""
_APART, _TIMES = 2.0, 3.0
"""The slow part's fastest I/O, and its median, in multiples of what all but ALL_BUT took before."""
_AS_BEFORE = 1.5
"""Factor on the p50 from which on all I/Os became slower, not only a part."""
_LEAST_SHARE = 0.04
"""Share of the I/Os below which a slow part is not tested."""


class SlowPart(NamedTuple):
    """I/Os that take far longer than all but a hundredth did before."""

    from_us: int
    """The fastest one's latency, by its bucket."""
    us: int
    """Their median: the middle of its bucket. A few I/Os between both parts move the mean by far more."""
    share: float
    """Share of the I/Os."""
    before_us: int
    """What all but a hundredth of the I/Os took before, at most."""


class LevelShift(NamedTuple):
    """A change that passed the test. `ratio` is the factor on the p50, with its interval where the p50 changed."""

    before: Histogram
    after: Histogram
    ratio: Ratio
    p: float
    slow: SlowPart | None = None
    """The part of the I/Os that became slower, where the p50 is as before."""


def shift_between(
    before: Sequence[Unit], after: Sequence[Unit], *, fewest_units: int | None = None
) -> LevelShift | None:
    """Return the change to slower I/Os between two runs of units; None where none is found, or there are too few."""
    sides = [[unit for unit in units if unit] for units in (before, after)]
    totals = [total_of(units) for units in sides]
    if _are_too_few(sides, totals, fewest_units):
        return None
    # of equal weight: cuts at quantiles of both together would all lie within the side with far more I/Os
    count = max(total.count for total in totals)
    weighed = [total.scaled(max(1, round(count / total.count))) for total in totals]
    cuts = series_cuts(_SERIES, weighed, lambda side, wanted: count_above(sides[side], wanted))
    how = length([cuts], "body", len(sides[0]), len(sides[1]))
    p = _chance(cuts, how, cuts.of("body"))
    if p is None:
        return None
    ratio = quantile_ratios(cuts, (weighed[0], weighed[1]), dict.fromkeys(PARTS, how)).get("p50")
    return None if ratio is None else LevelShift(totals[0], totals[1], ratio, p)


def slow_part_between(
    before: Sequence[Unit], after: Sequence[Unit], *, fewest_units: int | None = None
) -> LevelShift | None:
    """Return the change of a part of the I/Os to far slower ones; None where there is none, or all became slower."""
    sides = [[unit for unit in units if unit] for units in (before, after)]
    totals = [total_of(units) for units in sides]
    if _are_too_few(sides, totals, fewest_units):
        return None
    was, now = (max(total.quantile(0.5) or 1, 1) for total in totals)
    slow = slow_part(totals[1], _most_us(totals[0]))
    if slow is None or now >= _AS_BEFORE * was:
        return None
    cut = Cut(bucket_index(slow.from_us), "tail")
    counts = [count_above(units, [cut.bucket]) for units in sides]
    least = {cut.bucket: least_difference(cut, [Survival(total) for total in totals], BITS)}
    cuts = SeriesCuts(_SERIES, (cut,), counts[0], counts[1], least)
    how = length([cuts], "tail", len(sides[0]), len(sides[1]))
    p = _chance(cuts, how, [cut])
    return None if p is None else LevelShift(totals[0], totals[1], Ratio(now / was, now / was, now / was), p, slow)


def slow_part(latencies: Histogram, before_us: int) -> SlowPart | None:
    """Return the I/Os that take far longer than `before_us`; None where they are few, or hardly slower."""
    first = bucket_index(round(_APART * before_us), latencies.bits) + 1
    slow = {index: ios for index, ios in latencies.buckets if index >= first}
    share = sum(slow.values()) / latencies.count if latencies.count else 0.0
    if share < _LEAST_SHARE:
        return None
    half = sum(slow.values()) / 2
    passed = accumulate(slow.values())
    median_bucket = next(index for index, ios in zip(slow, passed, strict=True) if ios >= half)
    us = sum(bucket_bounds(median_bucket, latencies.bits)) // 2
    if us < _TIMES * before_us:
        return None
    return SlowPart(bucket_bounds(first, latencies.bits)[0], us, share, before_us)


def _most_us(latencies: Histogram) -> int:
    """Return what all but ALL_BUT of the I/Os took at most."""
    highest = latencies.buckets[-1][0]
    return max(latencies.quantile(1 - ALL_BUT) or latencies.cap(bucket_bounds(highest, latencies.bits)[1]), 1)


def _are_too_few(sides: Sequence[Sequence[Unit]], totals: Sequence[Histogram], fewest_units: int | None) -> bool:
    return min(map(len, sides)) < (fewest_units or FEWEST_UNITS) or min(total.count for total in totals) < FEWEST_IOS


def _chance(cuts: SeriesCuts, how: BlockCounts, tested: Sequence[Cut]) -> float | None:
    """Return the least chance of one of these cuts' rises; None where none is larger than chance and drift."""
    if not tested or how.correlation > DRIFT:
        return None
    rows = cuts.rows(how, tested)
    results = statistics.weigh(rows, how.correlation).found
    significant = [
        result.p
        for row, result in zip(rows, results, strict=True)
        if result.t > 0 and row.shares[1] - row.shares[0] > statistics.internal_difference(row)
    ]
    least = min(significant, default=1.0)
    return None if least > CHANCE else least


def best_split(slow_shares: Sequence[float | None]) -> int:
    """Return how many of the units come before the change: with the fewest slow I/Os before and quick ones after.

    `slow_shares`: of each unit the share of slow I/Os; None without I/Os.
    """
    known = [0.5 if share is None else share for share in slow_shares]
    wrong = sum(1 - share for share in known)
    best, least = 0, wrong
    for number, share in enumerate(known, 1):
        wrong += 2 * share - 1
        if wrong < least - 1e-9:
            best, least = number, wrong
    return best


def total_of(units: Sequence[Unit]) -> Histogram:
    """Return the counts of all units."""
    counts = Counter[int]()
    for unit in units:
        counts.update(unit)
    return Histogram.of(counts)
