"""Statistics of a comparison: a studentised max-t test over blocks, quantiles and their intervals.

A row is one series above one cut. What is tested is not that shares are the same, which of no two captures is quite so,
but that they differ by no more than the row's `least` (a minimum-effect test: Murphy and Myors 1999; Wellek 2010).
Labels of blocks are exchanged for all rows at once, so that what devices have in common stays in the null distribution,
and the largest statistic of all rows is what each is held against (Westfall and Young 1993): the chance of any false
alarm in a whole comparison is ALPHA. Studentised, it bears unequal variances (Janssen 1997; Chung and Romano 2013).
Pure numbers.

An interval is Woodruff's (1952): that of the share below, turned into latencies; the ratio's is MOVER (Zou and Donner
2008), from the two intervals on the scale of logarithms.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from random import Random
from statistics import NormalDist

from latmon.diff.blocks import ALIKE, correlation, join
from latmon.model.histogram import Histogram, bucket_bounds

ALPHA = 0.05
RESAMPLES = 599
PARTS = 6
"""Of each stretch, that must be more alike than the two stretches are: what wanders within wanders between."""
_IN_PART = 20
"""Slow I/Os that a part takes, so that it isn't chance that is seen; with less there are fewer parts, 2 at least."""
_ALL_UP_TO = 1000
_CHUNK = 8
_MOST_ALIKE = 0.95
_ALLOWED = 0.25
"""Standard errors of a likeness that are added to it: no more, because what matters is more than nothing anyway."""


@dataclass(frozen=True, slots=True)
class Row:
    """Exceedances of one cut in the blocks of A and of B, and all I/Os of those blocks."""

    above_a: Sequence[int]
    above_b: Sequence[int]
    sizes_a: Sequence[int]
    sizes_b: Sequence[int]
    least: float = 0.0
    """The difference of shares that is none yet."""
    factor: float = 1.0
    """Where `least` grows with the smaller share: the factor between the two that is no difference yet."""

    @property
    def shares(self) -> tuple[float, float]:
        """Of the I/Os of A and of B that are above the cut."""
        return sum(self.above_a) / sum(self.sizes_a), sum(self.above_b) / sum(self.sizes_b)


@dataclass(frozen=True, slots=True)
class Found:
    """What the test says of one row."""

    t: float
    """Of the shares' difference, B less A, beyond the least that matters; 0 within it."""
    error: float
    """Its standard error, by blocks."""
    p: float
    """Adjusted for all rows of the comparison."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of all rows, in their order. `critical`: the |t| that a row must have."""

    found: tuple[Found, ...]
    critical: float


def residuals(row: Row) -> tuple[list[float], list[float]]:
    """Per block how much its exceedances are above what the pooled share makes of its I/Os, for an average block's.

    Their means differ by exactly the difference of the shares.
    """
    size_a, size_b = sum(row.sizes_a), sum(row.sizes_b)
    share = (sum(row.above_a) + sum(row.above_b)) / (size_a + size_b)
    mean_a, mean_b = size_a / len(row.sizes_a), size_b / len(row.sizes_b)
    one = [(x - share * n) / mean_a for x, n in zip(row.above_a, row.sizes_a, strict=True)]
    other = [(x - share * n) / mean_b for x, n in zip(row.above_b, row.sizes_b, strict=True)]
    return one, other


def own_residuals(row: Row) -> tuple[list[float], list[float]]:
    """The same against each stretch's own share: where the two differ, a rate that wanders makes no noise of it."""
    return _around(row.above_a, row.sizes_a), _around(row.above_b, row.sizes_b)


def _around(above: Sequence[int], sizes: Sequence[int]) -> list[float]:
    size = sum(sizes)
    share, mean = sum(above) / size, size / len(sizes)
    return [(x - share * n) / mean for x, n in zip(above, sizes, strict=True)]


def weigh(rows: Sequence[Row], alike: float = 0.0, families: int = 1) -> Evidence:
    """All rows must have the same blocks. `alike`: what neighbours have in common; `families`: such tests in all."""
    if not rows:
        return Evidence((), math.inf)
    in_a, in_b = len(rows[0].above_a), len(rows[0].above_b)
    picked = _relabelled(in_a, in_b)
    chunks = [bytes(mask >> at & 255 for mask in picked) for at in range(0, in_a + in_b, _CHUNK)]
    most = [0.0] * len(picked)
    seen: list[tuple[float, float]] = []
    for row in rows:
        one, other = residuals(row)
        least = least_variance(row)
        seen.append(_observed(row, least, alike))
        most = list(map(max, most, _permuted([*one, *other], in_a, chunks, least)))
    ranked = sorted(most)
    at = math.ceil((1 - ALPHA / families) * (len(ranked) + 1)) - 1
    critical = ranked[at] if at < len(ranked) else math.inf
    made = tuple(Found(t, error, min(families * _p(ranked, abs(t)), 1.0)) for t, error in seen)
    return Evidence(made, critical)


def _p(ranked: Sequence[float], t: float) -> float:
    return (1 + len(ranked) - bisect_left(ranked, t)) / (len(ranked) + 1)


def _observed(row: Row, least: float, alike: float) -> tuple[float, float]:
    """The row's t and its standard error, which grows where blocks resemble their neighbours, these or those of all.

    A row's own few blocks may happen to show nothing of what all of them have in common.
    """
    one, other = own_residuals(row)
    alike = max(correlation(one, other), alike)
    share_a, share_b = row.shares
    gap = share_b - share_a
    # the least that matters is a multiple of the smaller share, and as uncertain
    a, b = (row.factor, 1.0) if gap > 0 else (1.0, row.factor)
    variance = max(a * a * _variance(one) / len(one) + b * b * _variance(other) / len(other), least)
    error = math.sqrt(variance * inflation(alike, min(len(one), len(other))))
    beyond = math.copysign(max(abs(gap) - row.least, 0.0), gap)
    return (beyond / error if error else 0.0), error


def wandered(row: Row) -> float:
    """The largest difference of shares between the parts of either stretch, one after the other."""
    return max(_range(row.above_a, row.sizes_a), _range(row.above_b, row.sizes_b))


def _range(above: Sequence[int], sizes: Sequence[int]) -> float:
    count = max(2, min(PARTS, len(above), sum(above) // _IN_PART))
    parts = [x / n for x, n in zip(join(above, count), join(sizes, count), strict=True) if n]
    return max(parts) - min(parts)


def inflation(alike: float, count: int) -> float:
    """By how much the variance of a mean grows where `count` blocks resemble their neighbours.

    (1 + r) / (1 - r) of a first-order process. Where there is some r it is known by a few blocks only: a quarter of its
    own standard error is added to it, and the blocks that it leaves worth counting add to the variance what Student's t
    of so few has beyond one of all.
    """
    if alike > ALIKE:
        alike += _ALLOWED / math.sqrt(2 * count)
    alike = min(max(alike, 0.0), _MOST_ALIKE)
    grown = (1 + alike) / (1 - alike)
    worth = count / grown
    return grown * (1 + (grown - 1) / (grown * worth))


def error_of(above: Sequence[int], sizes: Sequence[int], alike: float = 0.0) -> float:
    """Standard error of the share of I/Os above a cut, by the blocks of one stretch."""
    size, share = sum(sizes), sum(above) / sum(sizes)
    parts = _around(above, sizes)
    variance = max(_variance(parts) / len(parts), share * (1 - share) / size)
    return math.sqrt(variance * inflation(max(correlation(parts), alike), len(parts)))


def error_of_mean(values: Sequence[float]) -> float:
    """Standard error of the mean of blocks."""
    return math.sqrt(_variance(values) / len(values) * inflation(correlation(values), len(values)))


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def least_variance(row: Row) -> float:
    """I/Os that nothing ties together: no block that happens to be even makes a difference surer than that."""
    size_a, size_b = sum(row.sizes_a), sum(row.sizes_b)
    share = (sum(row.above_a) + sum(row.above_b)) / (size_a + size_b)
    return share * (1 - share) * (1 / size_a + 1 / size_b)


def _relabelled(in_a: int, in_b: int) -> list[int]:
    """Which blocks are called A, as bits: all ways where they are few, else at random, the same ones each time."""
    size = in_a + in_b
    if math.comb(size, in_a) <= _ALL_UP_TO:
        return [sum(1 << i for i in some) for some in combinations(range(size), in_a)][1:]
    rng = Random(1)  # noqa: S311  no secret: the same files must give the same answer
    return [sum(1 << i for i in rng.sample(range(size), in_a)) for _ in range(RESAMPLES)]


def _permuted(values: Sequence[float], in_a: int, chunks: Sequence[bytes], least: float) -> list[float]:
    """|t| of each relabelling. Sums of values and squares come from tables of all subsets of eight blocks."""
    tables = [_subsets(values[at : at + _CHUNK]) for at in range(0, len(values), _CHUNK)]
    sums = [0j] * len(chunks[0])
    for table, chunk in zip(tables, chunks, strict=True):
        sums = [s + table[byte] for s, byte in zip(sums, chunk, strict=True)]
    whole, squares = sum(values), sum(v * v for v in values)
    in_b = len(values) - in_a
    made: list[float] = []
    # a row of many: written out, because it runs a million times
    over_a, over_b = 1 / (in_a * (in_a - 1)), 1 / (in_b * (in_b - 1))
    for one in sums:
        a, b = one.real, whole - one.real
        variance = (one.imag - a * a / in_a) * over_a + (squares - one.imag - b * b / in_b) * over_b
        variance = variance if variance > least else least  # noqa: FURB136  max() takes twice as long
        made.append(abs(a / in_a - b / in_b) / math.sqrt(variance) if variance > 0 else 0.0)
    return made


def _subsets(values: Sequence[float]) -> list[complex]:
    """Sum and sum of squares (the imaginary part) of each subset, by its bits."""
    sums = [0j]
    for value in values:
        one = complex(value, value * value)
        sums += [s + one for s in sums]
    return sums


_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Survival:
    """The share of I/Os at or above any latency, by a histogram; even in the logarithm within a bucket."""

    histogram: Histogram

    @cached_property
    def _edges(self) -> tuple[tuple[float, float, float], ...]:
        """(low, high, share above low) of each bucket that has I/Os, ascending."""
        left, made = self.histogram.count, []
        for index, n in self.histogram.buckets:
            low, high = bucket_bounds(index, self.histogram.bits)
            made.append((max(low, 0.5), float(self.histogram.cap(high)), left / self.histogram.count))
            left -= n
        return tuple((low, max(high, low * 1.000001), share) for low, high, share in made)

    @cached_property
    def _lows(self) -> list[float]:
        return [low for low, _, _ in self._edges]

    def above(self, us: float) -> float:
        """The share at or above a latency."""
        edges, at = self._edges, bisect_left(self._lows, us)
        behind = edges[at][2] if at < len(edges) else 0.0
        if at and us < edges[at - 1][1]:
            low, high, share = edges[at - 1]
            return share + (behind - share) * math.log(us / low) / math.log(high / low)
        return behind

    def latency(self, share: float) -> float:
        """The latency in us that this share of I/Os is above."""
        edges = self._edges
        for number, (low, high, begin) in enumerate(edges):
            behind = edges[number + 1][2] if number + 1 < len(edges) else 0.0
            if share >= behind:
                part = min(max((begin - share) / (begin - behind), 0.0), 1.0)
                return float(low * (high / low) ** part)
        return edges[-1][1]


@dataclass(frozen=True, slots=True)
class Interval:
    """A quantile in us and its 95 % interval."""

    us: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """B's quantile for A's, and its 95 % interval."""

    value: float
    low: float
    high: float


def interval(survival: Survival, share: float, error: float, freedom: int) -> Interval:
    """Of the latency that `share` is above; `error` is the standard error of that share, by `freedom` + 1 blocks."""
    reach = student(freedom) * error
    most = 1 / survival.histogram.count
    return Interval(
        survival.latency(share),
        survival.latency(min(share + reach, 1 - most)),
        survival.latency(max(share - reach, 0.0)),
    )


def ratio(a: Interval, b: Interval) -> Ratio:
    """B for A."""
    value = math.log(b.us / a.us)
    below = math.hypot(math.log(b.us / b.low), math.log(a.high / a.us))
    above = math.hypot(math.log(b.high / b.us), math.log(a.us / a.low))
    return Ratio(math.exp(value), math.exp(value - below), math.exp(value + above))


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t, by its expansion (Abramowitz and Stegun 26.7.5): to 1 % from 4 on."""
    z, v = _Z, max(freedom, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3
