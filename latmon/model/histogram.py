"""Integer log-linear histograms of microseconds: base 2, k = 3 sub-bucket bits; merge adds, coarsen shifts.

Bucket index of v microseconds, with e = floor(log2 v):
v for v < 2^k, else ((e - k + 1) << k) + ((v >> (e - k)) & (2^k - 1)).
So values below 16 us have a bucket of their own and above it a bucket is at most 12.5 % wide. Values are clamped at
2^32 - 1 us (71 min); the bucket of the clamp, TOP, means "or more". The probes compute the same index in the
kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from operator import itemgetter

BITS = 3
MAX_US = 2**32 - 1
MAX_COUNT = 2**63 - 1
"""Upper bound of sums and maxima."""
Buckets = tuple[tuple[int, int], ...]
"""Sorted (index, count) pairs, each count > 0."""


def bucket_index(us: int, bits: int = BITS) -> int:
    """Return the index of the bucket of `us` microseconds, clamped at MAX_US; ValueError if negative."""
    if us < 0:
        raise ValueError(f"a latency can't be negative: {us}")
    value = min(us, MAX_US)
    exponent = value.bit_length() - 1
    if exponent < bits:
        return value
    return ((exponent - bits + 1) << bits) + ((value >> (exponent - bits)) & ((1 << bits) - 1))


def bucket_bounds(index: int, bits: int = BITS) -> tuple[int, int]:
    """Return (low, high) of a bucket in microseconds: low <= v < high."""
    octave = index >> bits
    if octave == 0:
        return index, index + 1
    width = 1 << (octave - 1)
    low = ((1 << bits) + (index & ((1 << bits) - 1))) * width
    return low, low + width


TOP = bucket_index(MAX_US)
"""Bucket of the clamp: its values are in the bucket of `MAX_US`, or greater."""


def sum_bounds(counts: Iterable[tuple[int, int]], bits: int = BITS, *, coarse: bool = False) -> tuple[int, int]:
    """Return the least and the greatest sum in us that I/Os in these buckets (index, count) can have.

    `coarse`: buckets may come from a scale of whole octaves, each at the begin of its octave (old recordings).
    """
    low = high = 0
    for index, n in counts:
        first, last = _values(index, bits, coarse)
        low += n * first
        high += n * last
    return low, high


@lru_cache(4_096)
def _values(index: int, bits: int, coarse: bool) -> tuple[int, int]:
    """Return the least and the greatest latency in us of a bucket; of the clamp's bucket the greatest sum."""
    low, end = bucket_bounds(index, bits)
    if end > MAX_US:
        return low, MAX_COUNT
    return low, (2 * low or end) - 1 if coarse else end - 1


@cache
def value_bounds(*, coarse: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the least and the greatest latency in us of each bucket at the scale of BITS; `coarse`: see sum_bounds."""
    lows, highs = zip(*(_values(index, BITS, coarse) for index in range(TOP + 1)), strict=True)
    return lows, highs


@dataclass(frozen=True)
class Histogram:
    """Counts of I/Os per latency bucket. `sum` (us) and `max` (us) are exact, or None where the source has none."""

    buckets: Buckets = ()
    sum: int | None = None
    max: int | None = None
    bits: int = BITS

    @classmethod
    def of(
        cls, counts: Mapping[int, int], total: int | None = None, maximum: int | None = None, bits: int = BITS
    ) -> Histogram:
        """Return a histogram from index -> count without empty buckets."""
        pairs = sorted(counts.items())
        return cls(tuple(pairs if all(counts.values()) else [pair for pair in pairs if pair[1]]), total, maximum, bits)

    @classmethod
    def record(cls, values: Iterable[int], bits: int = BITS) -> Histogram:
        """Return a histogram of single latencies in microseconds, with exact sum and maximum."""
        counts: dict[int, int] = {}
        total, maximum = 0, 0
        for value in values:
            index = bucket_index(value, bits)
            counts[index] = counts.get(index, 0) + 1
            total += value
            maximum = max(maximum, value)
        return cls.of(counts, total, maximum, bits) if counts else cls(bits=bits)

    @cached_property
    def count(self) -> int:
        return sum(map(itemgetter(1), self.buckets))

    def __bool__(self) -> bool:
        return bool(self.buckets)

    @property
    def mean(self) -> float | None:
        """Mean in microseconds; None without a sum or without a value."""
        return None if self.sum is None or not self.buckets else self.sum / self.count

    def contradiction(self, *, coarse: bool = False) -> str:
        """Return why no latencies can have these buckets, this sum and this maximum; empty where some can.

        `coarse`: as of sum_bounds.
        """
        if self.sum is not None:
            least, most = sum_bounds(self.buckets, self.bits, coarse=coarse)
            if not least <= self.sum <= most:
                return f"a sum of {self.sum} us, and its buckets allow {least} to {most}"
        low, high = _values(self.buckets[-1][0], self.bits, coarse) if self.buckets else (0, 0)
        if self.max is not None and not low <= self.max <= high:
            return f"a maximum of {self.max} us, and its highest bucket is {low} to {high}"
        return ""

    def within(self, us: int) -> int:
        """Return the sum in us closest to `us` that I/Os in these buckets can have.

        A probe's maps are printed one after another, so a sum may include some I/Os more or less than the buckets.
        """
        low, high = self._sum_bounds
        return min(max(us, low), high)

    @cached_property
    def _sum_bounds(self) -> tuple[int, int]:
        return sum_bounds(self.buckets, self.bits)

    @property
    def nearest_sum(self) -> float:
        """Return the sum in us; of unmeasured ones as of I/Os in the middles of their buckets: 7 % off.

        For formats in which a sum can't be unknown, and where a sign or a limit needs no more than an estimate.
        """
        if self.sum is not None:
            return self.sum
        us = 0.0
        for index, n in self.buckets:
            low, end = bucket_bounds(index, self.bits)
            us += n * (low if end > MAX_US else (low + end - 1) / 2)
        return us

    def coarsen(self, bits: int) -> Histogram:
        """Return the histogram with fewer sub-bucket bits; exact, because every coarse edge is a fine edge."""
        if not 0 <= bits <= self.bits:
            raise ValueError(f"can't coarsen {self.bits} bits to {bits}")
        if bits == self.bits:
            return self
        counts: dict[int, int] = {}
        for index, n in self.buckets:
            coarse = bucket_index(bucket_bounds(index, self.bits)[0], bits)
            counts[coarse] = counts.get(coarse, 0) + n
        return Histogram.of(counts, self.sum, self.max, bits)

    def scaled(self, factor: int) -> Histogram:
        """Return `factor` times as many values of the same distribution."""
        if factor == 1:
            return self
        buckets = tuple((index, n * factor) for index, n in self.buckets)
        return Histogram(buckets, None if self.sum is None else self.sum * factor, self.max, self.bits)

    def difference(self, earlier: Histogram) -> Histogram:
        """Return the increase of a cumulative histogram since `earlier`; ValueError if a count decreased (a reset).

        The maximum of the increase is not known.
        """
        before = dict(earlier.buckets)
        now = dict(self.buckets)
        if any(n > now.get(i, 0) for i, n in before.items()):
            raise ValueError("a cumulative histogram went backwards")
        total = None if self.sum is None or earlier.sum is None else self.sum - earlier.sum
        return Histogram.of({i: n - before.get(i, 0) for i, n in now.items()}, total, None, self.bits)

    def quantile(self, q: float) -> int | None:
        """Return the upper bound in us of the bucket of quantile `q`, at most the exact maximum.

        None unless count * (1 - q) >= 1: p99.9 needs 1,000 values. The error is at most one bucket (12.5 % at k = 3).
        """
        if not 0 <= q < 1:
            raise ValueError(f"a quantile lies in [0, 1): {q}")
        if self.count * (1 - q) < 1 - 1e-9:
            return None
        rank = q * self.count
        seen = 0
        for index, n in self.buckets:
            seen += n
            if seen >= rank and seen > 0:
                return self.cap(bucket_bounds(index, self.bits)[1])
        raise AssertionError("unreachable: ranks end at count")

    def cap(self, us: int) -> int:
        """Return `us`, or the exact maximum where that is less."""
        return us if self.max is None else min(us, self.max)

    @property
    def is_endless(self) -> bool:
        """Return whether nothing bounds its maximum: it is unknown, and the highest bucket is the clamp's."""
        return self.max is None and bool(self.buckets) and bucket_bounds(self.buckets[-1][0], self.bits)[1] > MAX_US

    def bounded(self, us: int | None) -> int | None:
        """Return a quantile or the bound of the maximum; None in the clamp's bucket, which bounds nothing."""
        return None if us is not None and us > MAX_US and self.is_endless else us

    def with_last_row_from(self, us: int) -> Histogram:
        """Return it with the I/Os of the clamp's bucket at `us`, which they took at least."""
        if not self.is_endless:
            return self
        counts = dict(self.buckets)
        count = counts.pop(self.buckets[-1][0])
        index = bucket_index(us, self.bits)
        counts[index] = counts.get(index, 0) + count
        return Histogram.of(counts, self.sum, None, self.bits)

    def within_top(self, maxima: Iterable[int]) -> int | None:
        """Return the greatest of these maxima that lies in the highest bucket; None where none does."""
        low, high = bucket_bounds(self.buckets[-1][0], self.bits)
        return max((us for us in maxima if low <= us < high), default=None)

    def with_longest(self, times: Iterable[int]) -> Histogram:
        """Return it with the exact maximum, where these times in us of single I/Os show it.

        They do where they are all values of the highest bucket: one more number of the same value would be a bound.
        """
        if self.max is not None or not self.buckets:
            return self
        index, count = self.buckets[-1]
        low, high = bucket_bounds(index, self.bits)
        in_highest = [us for us in times if low <= us < high]
        return replace(self, max=max(in_highest)) if in_highest and len(in_highest) >= count else self

    @property
    def max_bound(self) -> int | None:
        """The exact maximum, or the upper bound of the highest bucket where it is unknown; None when empty."""
        if not self.buckets:
            return None
        return self.max if self.max is not None else bucket_bounds(self.buckets[-1][0], self.bits)[1]


EMPTY = Histogram()


@dataclass(frozen=True)
class PartOfLatency(Histogram):
    """Times in a part of I/Os of which none took longer than `whole_us`; their own maximum is not known.

    Without it the upper edge of a part's bucket may be above that of the whole, which the exact maximum limits: a p50
    of 4.1 ms in the driver, and one of 3.97 ms in all.
    """

    whole_us: int = MAX_COUNT

    def cap(self, us: int) -> int:
        """Return `us`, or the longest whole latency where that is less."""
        return min(us, self.whole_us)

    @property
    def max_bound(self) -> int | None:
        """The upper bound of the highest bucket, at most the longest whole latency; None when empty."""
        bound = super().max_bound
        return None if bound is None else self.cap(bound)


def part_of(part: Histogram, histogram: Histogram) -> Histogram:
    """Return the times of a part of I/Os whose latencies are `whole`, with bounds that these allow.

    A part that has I/Os above these has others than them, and keeps its own bounds.
    """
    if part.max is not None or histogram.max is None or not part:
        return part
    if histogram.max < bucket_bounds(part.buckets[-1][0], part.bits)[0]:
        return part
    whole_us = min(histogram.max, part.whole_us) if isinstance(part, PartOfLatency) else histogram.max
    return PartOfLatency(part.buckets, part.sum, None, part.bits, whole_us)


def merged_max(histograms: Iterable[Histogram]) -> int | None:
    """Return the maximum of all; None if a histogram without an exact maximum may have a greater value."""
    known = unknown = -1
    for histogram in histograms:
        if histogram.max is not None:
            known = max(known, histogram.max)
        elif histogram.buckets:
            unknown = max(unknown, bucket_bounds(histogram.buckets[-1][0], histogram.bits)[1] - 1)
    return known if known >= max(unknown, 0) else None


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Add histograms at the resolution of the coarsest one; sum and maximum are None where they are not exact."""
    counts: dict[int, int] = {}
    total: int | None = 0
    parts = [histogram for histogram in histograms if histogram.buckets]
    if len(parts) == 1:
        return parts[0]
    bits = min((part.bits for part in parts), default=BITS)
    if any(part.bits != bits for part in parts):
        parts = [part if part.bits == bits else part.coarsen(bits) for part in parts]
    for histogram in parts:
        for index, n in histogram.buckets:
            counts[index] = counts.get(index, 0) + n
        total = None if total is None or histogram.sum is None else total + histogram.sum
    return Histogram.of(counts, total, merged_max(parts), parts[0].bits) if parts else EMPTY
