"""The test of a lasting change: whether the I/Os after a time are slower than those before it, by more than chance.

Both sides are units of time with counts by bucket, as in a diff of two captures, and are tested as there: blocks of
units are exchanged at cuts through the body of both. A change that is no larger than what each side varies within
itself, or that drifts, is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from latmon.analysis import statistics
from latmon.analysis.cuts import DRIFT, PARTS, count_above, length, quantile_ratios, series_cuts
from latmon.analysis.statistics import Ratio
from latmon.model.frame import Series
from latmon.model.histogram import Histogram

CHANCE = 0.01
"""Largest probability that an exchange of blocks gives as large a difference."""
FEWEST_IOS = 40
"""I/Os that each side needs."""
FEWEST_UNITS = 8
"""Units with I/Os that each side needs: correlation and power of fewer are unknown."""
_SERIES = Series("", "", "total")
Unit = Mapping[int, int]
"""Bucket index -> I/Os."""


class LevelShift(NamedTuple):
    """A change that passed the test. `ratio` is the factor on the p50, with its interval."""

    before: Histogram
    after: Histogram
    ratio: Ratio
    p: float


def shift_between(
    before: Sequence[Unit], after: Sequence[Unit], *, fewest_units: int | None = None
) -> LevelShift | None:
    """Return the change to slower I/Os between two runs of units; None where none is found, or there are too few."""
    sides = [[unit for unit in units if unit] for units in (before, after)]
    totals = [_total(units) for units in sides]
    if min(map(len, sides)) < (fewest_units or FEWEST_UNITS) or min(total.count for total in totals) < FEWEST_IOS:
        return None
    # of equal weight: cuts at quantiles of both together would all lie within the side with far more I/Os
    most = max(total.count for total in totals)
    weighed = [total.scaled(max(1, round(most / total.count))) for total in totals]
    cuts = series_cuts(_SERIES, weighed, lambda side, wanted: count_above(sides[side], wanted))
    body = cuts.of("body")
    how = length([cuts], "body", len(sides[0]), len(sides[1]))
    if not body or how.correlation > DRIFT:
        return None
    rows = cuts.rows(how, body)
    results = statistics.weigh(rows, how.correlation).found
    significant = [
        result.p
        for row, result in zip(rows, results, strict=True)
        if result.t > 0 and row.shares[1] - row.shares[0] > statistics.internal_difference(row)
    ]
    ratio = quantile_ratios(cuts, (weighed[0], weighed[1]), dict.fromkeys(PARTS, how)).get("p50")
    if ratio is None or min(significant, default=1.0) > CHANCE:
        return None
    return LevelShift(totals[0], totals[1], ratio, min(significant))


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


def _total(units: Sequence[Unit]) -> Histogram:
    counts = Counter[int]()
    for unit in units:
        counts.update(unit)
    return Histogram.of(counts)
