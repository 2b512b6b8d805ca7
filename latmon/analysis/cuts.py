"""Latencies above which the I/Os of two spans are counted, block by block, and the largest difference that is none.

Cuts are edges of buckets near quantiles of both spans together. Body and tail are tested apart.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from latmon.analysis import neighbours, statistics
from latmon.analysis.neighbours import halvings, join
from latmon.analysis.statistics import CutRow, Ratio, Survival
from latmon.model.frame import Series
from latmon.model.histogram import Histogram, bucket_bounds, merge

PARTS = ("body", "tail")
BODY = (0.25, 0.5, 0.75)
TAIL = (0.9, 0.99, 0.999, 0.9997, 0.9999)
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BODY_WITHIN = (0.15, 0.85)
"""Shares above a cut that belong to the body; smaller ones belong to the tail."""
DRIFT = 0.6
"""Correlation of the longest blocks above which a part is not tested: they are not independent."""
FEWEST = 20
"""I/Os of both spans that a cut needs above it, and below it."""
BODY_MOVE = 1.125
"""A body that moved by a smaller factor, or by less than a bucket, did not change."""
TAIL_FACTOR = 1.25
"""A share of slow I/Os that grew by a smaller factor did not change."""
_TUNED_BY = 300
"""Series, those with most I/Os, that determine the length of blocks."""


@dataclass(frozen=True, slots=True)
class Exceedances:
    """I/Os of a series in each unit of a span: all of them, and for each cut those in its bucket and above."""

    sizes: tuple[int, ...]
    above: Mapping[int, tuple[int, ...]]


def count_above(units: Iterable[Mapping[int, int]], cuts: Sequence[int]) -> Exceedances:
    """Count the I/Os above the cuts in each unit, whose counts are by bucket index."""
    wanted = sorted(set(cuts))
    sizes: list[int] = []
    above: list[list[int]] = [[] for _ in wanted]
    for counts in units:
        classes = [0] * (len(wanted) + 1)
        for index, n in counts.items():
            classes[bisect_right(wanted, index)] += n
        left = sum(classes)
        sizes.append(left)
        for number, n in enumerate(classes[:-1]):
            left -= n
            above[number].append(left)
    return Exceedances(tuple(sizes), {cut: tuple(counts) for cut, counts in zip(wanted, above, strict=True)})


class Cut(NamedTuple):
    """A latency, by its bucket, with the part that it tests: body or tail."""

    bucket: int
    part: str


class BlockCounts(NamedTuple):
    """Numbers of blocks of A and of B in the test of a part, and the correlation of neighbours."""

    in_a: int = 0
    in_b: int = 0
    correlation: float = 0.0


@dataclass(frozen=True, slots=True)
class SeriesCuts:
    """A series with its cuts, and the I/Os above each cut in the units of both spans."""

    series: Series
    cuts: tuple[Cut, ...]
    a: Exceedances
    b: Exceedances
    least: Mapping[int, float]
    """By cut: the largest difference of shares that doesn't matter."""

    def of(self, part: str) -> list[Cut]:
        return [cut for cut in self.cuts if cut.part == part]

    def rows(self, length: BlockCounts, cuts: Sequence[Cut]) -> list[CutRow]:
        """Return the cuts' exceedances, by blocks."""
        sizes = join(self.a.sizes, length.in_a), join(self.b.sizes, length.in_b)
        return [
            CutRow(
                join(self.a.above[cut.bucket], length.in_a),
                join(self.b.above[cut.bucket], length.in_b),
                *sizes,
                self.least[cut.bucket],
                TAIL_FACTOR if cut.part == "tail" else 1.0,
            )
            for cut in cuts
        ]


def series_cuts(
    series: Series, totals: Sequence[Histogram], count: Callable[[int, Sequence[int]], Exceedances]
) -> SeriesCuts:
    """Return the series' cuts and counts, also at each span's own quantiles, for their intervals.

    `count` returns the exceedances of a span, by its number: 0 or 1.
    """
    cuts = cuts_between(totals)
    wanted = [cut.bucket for cut in cuts]
    a, b = (count(side, wanted + [index for _, index in own(total)]) for side, total in enumerate(totals))
    both = [Survival(total) for total in totals]
    least = {cut.bucket: least_difference(cut, both, totals[0].bits) for cut in cuts}
    return SeriesCuts(series, cuts, a, b, least)


def cuts_between(totals: Sequence[Histogram]) -> tuple[Cut, ...]:
    """Return the bucket edges nearest to the wanted quantiles of both spans together, each once."""
    pooled = merge(totals)
    count, left = pooled.count, pooled.count
    edges = []
    for index, n in pooled.buckets:
        if left < count:
            edges.append((index, left))
        left -= n
    usable = [(i, n) for i, n in edges if n >= FEWEST and count - n >= FEWEST]
    cuts: dict[int, Cut] = {}
    for q in (*BODY, *TAIL):
        near = min(usable, key=lambda edge: abs(math.log(edge[1] / (count * (1 - q)))), default=None)
        if near is not None:
            share = near[1] / count
            part = "body" if BODY_WITHIN[0] <= share <= BODY_WITHIN[1] else "tail" if share < BODY_WITHIN[0] else ""
            if part:
                cuts[near[0]] = Cut(near[0], part)
    return tuple(cuts.values())


def least_difference(cut: Cut, both: Sequence[Survival], bits: int) -> float:
    """Return by how much the faster span's share above the cut grows if it is slower by the least that matters.

    A bucket is the resolution: all I/Os of the one below the cut may lie at its end.
    """
    edge = bucket_bounds(cut.bucket, bits)[0]
    below = min(edge / BODY_MOVE, bucket_bounds(cut.bucket - 1, bits)[0])
    faster = min(both, key=lambda survival: survival.above(edge))
    share = faster.above(edge)
    moved = faster.above(below) - share
    return max(moved, (TAIL_FACTOR - 1) * share) if cut.part == "tail" else moved


def length(series: Sequence[SeriesCuts], part: str, units_a: int, units_b: int) -> BlockCounts:
    """Return the most blocks whose neighbours don't correlate more than by chance."""
    all_cuts = [series_cuts for series_cuts in series if series_cuts.of(part)]
    all_cuts = sorted(all_cuts, key=lambda all_cut: -min(sum(all_cut.a.sizes), sum(all_cut.b.sizes)))[:_TUNED_BY]
    tried_a, tried_b = halvings(units_a), halvings(units_b)
    block_counts = BlockCounts()
    for number in range(max(len(tried_a), len(tried_b)) if all_cuts else 0):
        in_a, in_b = (tried[min(number, len(tried) - 1)] for tried in (tried_a, tried_b))
        block_counts = BlockCounts(in_a, in_b)
        rows = [all_cut.rows(block_counts, [_typical(all_cut.of(part))])[0] for all_cut in all_cuts]
        correlation = median(neighbours.correlation(*statistics.own_residuals(row)) for row in rows)
        # with few series the median is uncertain, so it is reduced
        block_counts = BlockCounts(in_a, in_b, max(correlation, 0.0) * len(rows) / (len(rows) + 1))
        if correlation <= neighbours.MAX_CORRELATION + 1 / math.sqrt((in_a + in_b) * len(rows)):
            break
    return block_counts


def _typical(cuts: Sequence[Cut]) -> Cut:
    """Return the middle cut of the body, or the second of the tail, which has enough I/Os above it."""
    return cuts[min(1, len(cuts) - 1)]


def own(total: Histogram) -> list[tuple[str, int]]:
    """Return for each quantile the bucket after the one that contains it, to count the I/Os that are slower."""
    owns = []
    for name, q in QUANTILES.items():
        if total.quantile(q) is not None:
            left = total.count
            for index, n in total.buckets:
                if left - n <= total.count * (1 - q) + 1e-9:
                    owns.append((name, index))
                    break
                left -= n
    return owns


def quantile_ratios(
    cuts: SeriesCuts, pair: tuple[Histogram, Histogram], lengths: Mapping[str, BlockCounts]
) -> Mapping[str, Ratio]:
    """Return the ratio of each quantile that both sides have."""
    sides = []
    for at, (total, counted) in enumerate(zip(pair, (cuts.a, cuts.b), strict=True)):
        survival, intervals = Survival(total), {}
        for name, index in own(total):
            how = lengths["body" if name == "p50" else "tail"]
            count = (how.in_a, how.in_b)[at] or min(len(counted.sizes), neighbours.MOST)
            error = statistics.error_of(join(counted.above[index], count), join(counted.sizes, count), how.correlation)
            intervals[name] = statistics.interval(survival, 1 - QUANTILES[name], error, count - 1)
        sides.append(intervals)
    return {name: statistics.ratio(sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]}
