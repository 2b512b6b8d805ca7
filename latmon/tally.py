"""Running sums of histograms: what comes is added, what leaves a window is taken away again, exactly.

A maximum can't be subtracted: `Peak` remembers the ones that may still be the window's. Knows no frame.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from latmon.histogram import BITS, Histogram, bucket_bounds


@dataclass(slots=True)
class Tally:
    """The running sum of one series over a window; without its maximum."""

    counts: dict[int, int] = field(default_factory=dict)
    sum: int = 0
    unknown_sums: int = 0
    bits: int = BITS

    def add(self, histogram: Histogram, sign: int) -> None:
        counts = self.counts
        self.bits = histogram.bits
        if not counts and sign > 0:
            counts.update(histogram.buckets)
        elif sign > 0:
            had = counts.get
            for index, n in histogram.buckets:
                counts[index] = had(index, 0) + n
        else:
            for index, n in histogram.buckets:
                left = counts.get(index, 0) - n
                if left:
                    counts[index] = left
                else:
                    counts.pop(index, None)
        self.sum += sign * (histogram.sum or 0)
        self.unknown_sums += sign * (histogram.sum is None)

    def histogram(self, maximum: int | None = None) -> Histogram:
        return Histogram.of(self.counts, None if self.unknown_sums else self.sum, maximum, self.bits)


@dataclass(slots=True)
class Running:
    """As a Tally, of one row of packed histograms, which are taken away one by one as they came."""

    counts: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    sum: int = 0
    unknown_sums: int = 0

    def add(self, indices: bytes, counts: Sequence[int], total: int | None) -> None:
        sums = self.counts
        for index, n in zip(indices, counts, strict=True):
            sums[index] += n
        self.sum += total or 0
        self.unknown_sums += total is None

    def remove(self, indices: bytes, counts: Sequence[int], total: int | None) -> None:
        sums = self.counts
        for index, n in zip(indices, counts, strict=True):
            left = sums[index] - n
            if left:
                sums[index] = left
            else:
                del sums[index]
        self.sum -= total or 0
        self.unknown_sums -= total is None

    def histogram(self, maximum: int | None = None) -> Histogram:
        return Histogram(tuple(sorted(self.counts.items())), None if self.unknown_sums else self.sum, maximum)


@dataclass(slots=True)
class Peak:
    """The greatest value of a sliding window, in memory that grows with how often it fell: (stamp, value), falling."""

    known: deque[tuple[int, int]] = field(default_factory=deque)
    bounds: deque[tuple[int, int]] = field(default_factory=deque)
    """Where a histogram has no exact maximum: the highest value that it may hold."""

    def add(self, stamp: int, histogram: Histogram) -> None:
        last = histogram.buckets[-1][0] if histogram else 0
        if histogram or histogram.max is not None:
            self.see(stamp, histogram.max, last, histogram.bits)

    def see(self, stamp: int, maximum: int | None, last: int, bits: int = BITS) -> None:
        """`last`: the highest bucket, which counts where the maximum isn't known."""
        if maximum is not None:
            _push(self.known, stamp, maximum)
        else:
            _push(self.bounds, stamp, bucket_bounds(last, bits)[1] - 1)

    def forget(self, until: int) -> None:
        """What came at `until` or earlier has left the window."""
        for one in (self.known, self.bounds):
            while one and one[0][0] <= until:
                one.popleft()

    def maximum(self) -> int | None:
        """Exact if a known one is above all that the others may hold; None when that can't be told."""
        known = self.known[0][1] if self.known else -1
        bound = self.bounds[0][1] if self.bounds else -1
        return known if known >= max(bound, 0) else None


def _push(falling: deque[tuple[int, int]], stamp: int, value: int) -> None:
    while falling and falling[-1][1] <= value:
        falling.pop()
    # one that leaves together with a greater one is never the greatest
    if not falling or falling[-1][0] != stamp:
        falling.append((stamp, value))
