"""Synthesis of latency histograms from described distributions: bucket counts, not single I/Os.

The only randomness is the generator passed in, and only its `random` and `gauss` are used, so a seed gives the same
numbers on every version of Python.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import NamedTuple

from latmon.model.histogram import BITS, MAX_US, Histogram, bucket_bounds, bucket_index

FEW = 24
"""Up to here single draws cost less than one draw per bucket (about 80 of them)."""
_NORMAL_FROM = 6
"""Expected counts from here on are drawn from the normal distribution."""
_NEGLIGIBLE = 1e-8
bucket = lru_cache(maxsize=1 << 14)(bucket_index)
"""Cached, because a window has thousands of times and most of them recur."""


class Mode(NamedTuple):
    """One hump of a distribution: log-normal around `median_us`, `spread` is sigma of the logarithm."""

    weight: float
    median_us: float
    spread: float


class EqualIos(NamedTuple):
    """`size` I/Os that took `us` each."""

    size: int
    us: int


@dataclass(frozen=True)
class Shape:
    """A latency distribution as a mixture of modes; weights need not add up to 1."""

    modes: tuple[Mode, ...]
    bits: int = BITS
    """Resolution of the draw: fewer bits give wider buckets, fewer groups and a cheaper window."""

    @cached_property
    def odds(self) -> tuple[tuple[int, float], ...]:
        """(bucket, probability) of every bucket that is not negligible, ascending, adding up to 1."""
        below = [self._below(low) for low, _ in _bounds(self.bits)]
        kept = [(i, b - a) for i, (a, b) in enumerate(pairwise(below)) if b - a > _NEGLIGIBLE]
        total = sum(p for _, p in kept)
        return tuple((i, p / total) for i, p in kept)

    @cached_property
    def cumulated(self) -> tuple[float, ...]:
        return tuple(accumulate(p for _, p in self.odds))

    def _below(self, us: int) -> float:
        if us <= 0:
            return 0.0
        total = sum(m.weight for m in self.modes)
        return sum(m.weight * _normal_below(math.log(us / m.median_us) / m.spread) for m in self.modes) / total

    def draw(self, rng: Random, n: int) -> list[EqualIos]:
        """Draw `n` I/Os as groups, ascending; the I/Os of one bucket all take the same time within its bounds."""
        counts = self._few(rng, n) if n <= FEW else self._many(rng, n)
        random, bounds = rng.random, _bounds(self.bits)
        found = ((bounds[index], size) for index, size in counts.items())
        return [EqualIos(size, low + int(random() * (high - low))) for (low, high), size in found]

    def _few(self, rng: Random, n: int) -> dict[int, int]:
        last = len(self.odds) - 1
        picks = sorted(min(bisect_right(self.cumulated, rng.random()), last) for _ in range(n))
        counts: dict[int, int] = {}
        for pick in picks:
            bucket = self.odds[pick][0]
            counts[bucket] = counts.get(bucket, 0) + 1
        return counts

    def _many(self, rng: Random, n: int) -> dict[int, int]:
        """Draw bucket by bucket from the remaining I/Os, so the counts add up to `n`."""
        counts: dict[int, int] = {}
        left, mass = n, 1.0
        for bucket, p in self.odds:
            share = p / mass if p < mass else 1.0
            count = _about(rng, left * share, 1 - share)
            if count > 0:
                counts[bucket] = count = min(count, left)
                left -= count
                if not left:
                    return counts
            mass -= p
        counts[self.odds[-1][0]] = counts.get(self.odds[-1][0], 0) + left
        return counts


def binomial(rng: Random, n: int, p: float) -> int:
    """Draw how many of `n` happen at probability `p`: a Poisson approximation where few do, never more than `n`."""
    return min(n, poisson(rng, n * p) if n * p <= _NORMAL_FROM else max(0, _about(rng, n * p, 1 - p)))


def poisson(rng: Random, expected: float) -> int:
    """Draw a Poisson-distributed count."""
    if expected > _NORMAL_FROM:
        return max(0, _about(rng, expected, 1.0))
    count, product, floor = 0, 1.0 - rng.random(), math.exp(-max(0.0, expected))
    while product > floor:
        count += 1
        product *= 1.0 - rng.random()
    return count


def combine_stages(rng: Random, first: Sequence[EqualIos], second: Sequence[EqualIos]) -> list[tuple[int, int, int]]:
    """Combine two stages of the same I/Os at random, as (size, us of the first, us of the second)."""
    lefts, rights = _shuffled(rng, first), list(second)
    found: list[tuple[int, int, int]] = []
    i = j = taken_i = taken_j = 0
    while i < len(lefts) and j < len(rights):
        count = min(lefts[i].size - taken_i, rights[j].size - taken_j)
        found.append((count, lefts[i].us, rights[j].us))
        taken_i, taken_j = taken_i + count, taken_j + count
        if taken_i == lefts[i].size:
            i, taken_i = i + 1, 0
        if taken_j == rights[j].size:
            j, taken_j = j + 1, 0
    return found


def histogram(groups: Iterable[tuple[int, int]]) -> Histogram:
    """Return groups as a histogram with exact sum and maximum."""
    counts: dict[int, int] = {}
    total = most = 0
    for size, us in groups:
        index = bucket(us)
        counts[index] = counts.get(index, 0) + size
        total += size * us
        if us > most:  # noqa: PLR1730  called thousands of times per window, and max() takes four times as long
            most = us
    return Histogram.of(counts, total, most)


@cache
def _bounds(bits: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of every bucket, and of one more."""
    return tuple(bucket_bounds(index, bits) for index in range(bucket_index(MAX_US, bits) + 2))


def _normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _about(rng: Random, expected: float, spread: float) -> int:
    """Draw a whole number with that mean: normal with variance expected * spread, or rounded at random if small."""
    if expected > _NORMAL_FROM:
        return round(rng.gauss(expected, math.sqrt(expected * spread)))
    return int(expected + rng.random())


def _shuffled(rng: Random, groups: Sequence[EqualIos]) -> list[EqualIos]:
    """Return the groups in random order; how `Random.shuffle` uses the generator may differ between versions."""
    return [g for _, g in sorted((rng.random(), g) for g in groups)]
