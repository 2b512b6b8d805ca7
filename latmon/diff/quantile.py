"""Quantiles between the edges of buckets, their intervals, and the interval of the ratio of two. Pure numbers.

An interval is Woodruff's (1952): that of the share below, turned into latencies; the ratio's is MOVER (Zou and Donner
2008), from the two intervals on the scale of logarithms.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from latmon.histogram import Histogram, bucket_bounds

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
