"""Statistics of a comparison: a studentised max-t test over blocks, quantiles and their intervals.

A row is one series above one cut. The null hypothesis is that shares differ by no more than the row's `least` (a
minimum-effect test: Murphy and Myors 1999; Wellek 2010), because no two captures have exactly the same shares. Labels
of blocks are exchanged for all rows at once, which keeps the correlation between devices in the null distribution. Each
row is compared with the largest statistic of all rows (Westfall and Young 1993), so the chance of any false alarm in a
comparison is ALPHA. Studentising allows unequal variances (Janssen 1997; Chung and Romano 2013).

Intervals of quantiles are Woodruff's (1952): the interval of the share, converted to latencies. The interval of a ratio
is MOVER (Zou and Donner 2008), from both intervals as logarithms.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from random import Random
from statistics import NormalDist

from latmon.analysis.neighbours import MAX_CORRELATION, correlation, join
from latmon.model.histogram import Histogram, bucket_bounds

ALPHA = 0.05
RESAMPLES = 599
PARTS = 6
"""Parts of each span; if their shares differ more than the spans do, the difference of the spans isn't reported."""
_IN_PART = 20
"""Slow I/Os that a part needs; with fewer I/Os there are fewer parts, at least 2."""
_ALL_UP_TO = 1000
_CHUNK = 8
_CORRELATION_CAP = 0.95
_ALLOWED = 0.25
"""Standard errors added to a correlation; a small number suffices because `least` is a margin already."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class CutRow:
    """Exceedances of one cut in the blocks of A and of B, and all I/Os of those blocks."""

    above_a: Sequence[int]
    above_b: Sequence[int]
    sizes_a: Sequence[int]
    sizes_b: Sequence[int]
    least: float = 0.0
    """The largest difference of shares that doesn't matter."""
    factor: float = 1.0
    """The largest factor between the shares that doesn't matter, if `least` grows with the smaller share."""

    @property
    def shares(self) -> tuple[float, float]:
        """Return the shares of the I/Os of A and of B that are above the cut."""
        return sum(self.above_a) / sum(self.sizes_a), sum(self.above_b) / sum(self.sizes_b)


@dataclass(frozen=True, slots=True)
class RowResult:
    """Test result of one row."""

    t: float
    """t of the shares' difference, B minus A, beyond `least`; 0 within it."""
    error: float
    """Its standard error, by blocks."""
    p: float
    """Adjusted for all rows of the comparison."""


@dataclass(frozen=True, slots=True)
class TestResults:
    """Test results of all rows, in their order. `critical`: the |t| that a row must have."""

    found: tuple[RowResult, ...]
    critical: float


def residuals(row: CutRow) -> tuple[list[float], list[float]]:
    """Return per block the exceedances above those expected from the pooled share, relative to a mean block's I/Os.

    The means of the two lists differ by the difference of the shares.
    """
    size_a, size_b = sum(row.sizes_a), sum(row.sizes_b)
    share = (sum(row.above_a) + sum(row.above_b)) / (size_a + size_b)
    mean_a, mean_b = size_a / len(row.sizes_a), size_b / len(row.sizes_b)
    own_residuals = [(x - share * n) / mean_a for x, n in zip(row.above_a, row.sizes_a, strict=True)]
    other = [(x - share * n) / mean_b for x, n in zip(row.above_b, row.sizes_b, strict=True)]
    return own_residuals, other


def own_residuals(row: CutRow) -> tuple[list[float], list[float]]:
    """Return residuals against each span's own share, so that a difference of the spans is no noise of the blocks."""
    return _around(row.above_a, row.sizes_a), _around(row.above_b, row.sizes_b)


def _around(above: Sequence[int], sizes: Sequence[int]) -> list[float]:
    size = sum(sizes)
    share, mean = sum(above) / size, size / len(sizes)
    return [(x - share * n) / mean for x, n in zip(above, sizes, strict=True)]


def weigh(rows: Sequence[CutRow], r: float = 0.0, families: int = 1) -> TestResults:
    """Test all rows, which have the same blocks. `r`: neighbours' correlation; `families`: number of tests."""
    if not rows:
        return TestResults((), math.inf)
    in_a, in_b = len(rows[0].above_a), len(rows[0].above_b)
    picked = _relabelled(in_a, in_b)
    chunks = [bytes(mask >> at & 255 for mask in picked) for at in range(0, in_a + in_b, _CHUNK)]
    most = [0.0] * len(picked)
    seen: list[tuple[float, float]] = []
    for row in rows:
        a_residuals, other = residuals(row)
        least = least_variance(row)
        seen.append(_observed(row, least, r))
        most = list(map(max, most, _permuted([*a_residuals, *other], in_a, chunks, least)))
    ranked = sorted(most)
    at = math.ceil((1 - ALPHA / families) * (len(ranked) + 1)) - 1
    critical = ranked[at] if at < len(ranked) else math.inf
    row_results = tuple(RowResult(t, error, min(families * _p(ranked, abs(t)), 1.0)) for t, error in seen)
    return TestResults(row_results, critical)


def _p(ranked: Sequence[float], t: float) -> float:
    return (1 + len(ranked) - bisect_left(ranked, t)) / (len(ranked) + 1)


def _observed(row: CutRow, least: float, r: float) -> tuple[float, float]:
    """Return the row's t and standard error, enlarged by the correlation of its own or of all rows' blocks.

    A row's own few blocks may by chance not show a correlation that all rows have.
    """
    a_residuals, other = own_residuals(row)
    r = max(correlation(a_residuals, other), r)
    share_a, share_b = row.shares
    gap = share_b - share_a
    # the least that matters is a multiple of the smaller share, so it has the error of that share
    a, b = (row.factor, 1.0) if gap > 0 else (1.0, row.factor)
    variance = max(a * a * _variance(a_residuals) / len(a_residuals) + b * b * _variance(other) / len(other), least)
    error = math.sqrt(variance * inflation(r, min(len(a_residuals), len(other))))
    beyond = math.copysign(max(abs(gap) - row.least, 0.0), gap)
    return (beyond / error if error else 0.0), error


def internal_difference(row: CutRow) -> float:
    """Return the largest difference of shares between successive parts of either span."""
    return max(_range(row.above_a, row.sizes_a), _range(row.above_b, row.sizes_b))


def _range(above: Sequence[int], sizes: Sequence[int]) -> float:
    count = max(2, min(PARTS, len(above), sum(above) // _IN_PART))
    parts = [x / n for x, n in zip(join(above, count), join(sizes, count), strict=True) if n]
    return max(parts) - min(parts)


def inflation(r: float, count: int) -> float:
    """Return the factor on the variance of a mean of `count` blocks whose neighbours correlate.

    The factor is (1 + r) / (1 - r), as for a first-order process. A correlation r above MAX_CORRELATION is estimated
    from few blocks, so a quarter of its standard error is added. The effective number of blocks is smaller by the same
    factor; the last term accounts for Student's t with so few degrees of freedom.
    """
    if r > MAX_CORRELATION:
        r += _ALLOWED / math.sqrt(2 * count)
    r = min(max(r, 0.0), _CORRELATION_CAP)
    grown = (1 + r) / (1 - r)
    worth = count / grown
    return grown * (1 + (grown - 1) / (grown * worth))


def error_of(above: Sequence[int], sizes: Sequence[int], r: float = 0.0) -> float:
    """Return the standard error of the share of I/Os above a cut, from the blocks of one span."""
    size, share = sum(sizes), sum(above) / sum(sizes)
    parts = _around(above, sizes)
    variance = max(_variance(parts) / len(parts), share * (1 - share) / size)
    return math.sqrt(variance * inflation(max(correlation(parts), r), len(parts)))


def error_of_mean(values: Sequence[float]) -> float:
    """Return the standard error of the mean of blocks."""
    return math.sqrt(_variance(values) / len(values) * inflation(correlation(values), len(values)))


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((v - mean) ** 2 for v in values) / (len(values) - 1)


def least_variance(row: CutRow) -> float:
    """Return the variance of independent I/Os; the blocks' own variance, if smaller, is chance."""
    size_a, size_b = sum(row.sizes_a), sum(row.sizes_b)
    share = (sum(row.above_a) + sum(row.above_b)) / (size_a + size_b)
    return share * (1 - share) * (1 / size_a + 1 / size_b)


@lru_cache(64)
def _relabelled(in_a: int, in_b: int) -> tuple[int, ...]:
    """Return which blocks are called A, as bits: all ways if they are few, else a fixed random sample.

    Half of a test's time was spent here.
    """
    size = in_a + in_b
    if math.comb(size, in_a) <= _ALL_UP_TO:
        return tuple([sum(1 << i for i in combination) for combination in combinations(range(size), in_a)][1:])
    rng = Random(1)  # noqa: S311  no secret: the same files must give the same answer
    return tuple(sum(1 << i for i in rng.sample(range(size), in_a)) for _ in range(RESAMPLES))


def _permuted(values: Sequence[float], in_a: int, chunks: Sequence[bytes], least: float) -> list[float]:
    """Return |t| of each relabelling; sums and squares come from tables of all subsets of eight blocks."""
    tables = [_subsets(values[at : at + _CHUNK]) for at in range(0, len(values), _CHUNK)]
    sums = [0j] * len(chunks[0])
    for table, chunk in zip(tables, chunks, strict=True):
        sums = [s + table[byte] for s, byte in zip(sums, chunk, strict=True)]
    total, squares = sum(values), sum(v * v for v in values)
    in_b = len(values) - in_a
    sums_of_draws: list[float] = []
    # written out: this runs a million times
    over_a, over_b = 1 / (in_a * (in_a - 1)), 1 / (in_b * (in_b - 1))
    for subset_sum in sums:
        a, b = subset_sum.real, total - subset_sum.real
        variance = (subset_sum.imag - a * a / in_a) * over_a + (squares - subset_sum.imag - b * b / in_b) * over_b
        variance = variance if variance > least else least  # noqa: FURB136  max() takes twice as long
        sums_of_draws.append(abs(a / in_a - b / in_b) / math.sqrt(variance) if variance > 0 else 0.0)
    return sums_of_draws


def _subsets(values: Sequence[float]) -> list[complex]:
    """Return sum and sum of squares (the imaginary part) of each subset, by its bits."""
    sums = [0j]
    for value in values:
        pair = complex(value, value * value)
        sums += [s + pair for s in sums]
    return sums


@dataclass(frozen=True)
class Survival:
    """Share of I/Os at or above any latency, interpolated in the logarithm within a histogram's bucket."""

    histogram: Histogram

    @cached_property
    def _edges(self) -> tuple[tuple[float, float, float], ...]:
        """Return (low, high, share above low) of each bucket with I/Os, ascending."""
        left, edges = self.histogram.count, []
        for index, n in self.histogram.buckets:
            low, high = bucket_bounds(index, self.histogram.bits)
            edges.append((max(low, 0.5), float(self.histogram.cap(high)), left / self.histogram.count))
            left -= n
        return tuple((low, max(high, low * 1.000001), share) for low, high, share in edges)

    @cached_property
    def _lows(self) -> list[float]:
        return [low for low, _, _ in self._edges]

    def above(self, us: float) -> float:
        """Return the share at or above a latency."""
        edges, at = self._edges, bisect_left(self._lows, us)
        behind = edges[at][2] if at < len(edges) else 0.0
        if at and us < edges[at - 1][1]:
            low, high, share = edges[at - 1]
            return share + (behind - share) * math.log(us / low) / math.log(high / low)
        return behind

    def latency(self, share: float) -> float:
        """Return the latency in us that this share of I/Os is above."""
        edges = self._edges
        for number, (low, high, begin) in enumerate(edges):
            behind = edges[number + 1][2] if number + 1 < len(edges) else 0.0
            if share >= behind:
                # the shares of a few I/Os among 2^60 are equal floats
                part = min(max((begin - share) / (begin - behind), 0.0), 1.0) if begin > behind else 0.0
                return float(low * (high / low) ** part)
        return edges[-1][1]


@dataclass(frozen=True, slots=True)
class QuantileInterval:
    """A quantile in us and its 95 % interval."""

    us: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """B's quantile divided by A's, and its 95 % interval."""

    value: float
    low: float
    high: float


def interval(survival: Survival, share: float, error: float, freedom: int) -> QuantileInterval:
    """Return the quantile that `share` of the I/Os is above; `error` of that share is from `freedom` + 1 blocks."""
    reach = student(freedom) * error
    most = 1 / survival.histogram.count
    return QuantileInterval(
        survival.latency(share),
        survival.latency(min(share + reach, 1 - most)),
        survival.latency(max(share - reach, 0.0)),
    )


def ratio(a: QuantileInterval, b: QuantileInterval) -> Ratio:
    """Return B's quantile divided by A's with its interval."""
    value = math.log(b.us / a.us)
    below = math.hypot(math.log(b.us / b.low), math.log(a.high / a.us))
    above = math.hypot(math.log(b.high / b.us), math.log(a.us / a.low))
    return Ratio(math.exp(value), math.exp(value - below), math.exp(value + above))


def student(freedom: int) -> float:
    """Return the 97.5 % point of Student's t, by its expansion (Abramowitz and Stegun 26.7.5): to 1 % from 4 on."""
    z, v = _Z, max(freedom, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3
