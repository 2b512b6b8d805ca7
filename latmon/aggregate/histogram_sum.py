"""Running sums of histograms: add what enters a window, subtract exactly what leaves it.

A maximum can't be subtracted: `Peak` remembers the ones that may still be the window's. Knows no frame.

Knows no frame and no time but the stamps that it is given.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.model.packed import Packed, Part


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


K = TypeVar("K")


class TableSum(Mapping[K, Histogram]):
    """The running sum of one table; read as a mapping, whose histograms are made once per frame."""

    def __init__(self, wanted: Callable[[K], bool] | None = None, *, peaks: bool = True) -> None:
        self.tallies: dict[K, Running] = {}
        self._wanted = wanted
        self._peaks: dict[K, Peak] | None = {} if peaks else None
        self._made: dict[K, Histogram] = {}

    def copy(self) -> TableSum[K]:
        """Return another one with the same sums, which goes on by itself."""
        other = TableSum(self._wanted, peaks=self._peaks is not None)
        other.tallies = {key: replace(one, counts=one.counts.copy()) for key, one in self.tallies.items()}
        if self._peaks is not None:
            other._peaks = {key: Peak(one.known.copy(), one.bounds.copy()) for key, one in self._peaks.items()}
        return other

    def add(self, table: Packed[K], stamp: int) -> None:
        for key, part in self._parts(table):
            tally = self.tallies.get(key)
            if tally is None:
                tally = self.tallies[key] = Running()
            indices = table.indices[part.begin : part.end]
            tally.add(indices, table.counts[part.begin : part.end], table.known(table.sums, part.row))
            if self._peaks is not None:
                peak = self._peaks.get(key) or self._peaks.setdefault(key, Peak())
                peak.see(stamp, table.known(table.maxima, part.row), indices[-1])

    def remove(self, table: Packed[K], stamp: int) -> list[K]:
        """The keys that nothing is left of."""
        gone = []
        for key, part in self._parts(table):
            tally = self.tallies.get(key)
            if tally is None:  # sums of 0 leave with the first of them
                continue
            span = slice(part.begin, part.end)
            tally.remove(table.indices[span], table.counts[span], table.known(table.sums, part.row))
            if not tally.counts:
                del self.tallies[key]
                gone.append(key)
            if self._peaks is None:
                continue
            if tally.counts:
                self._peaks[key].forget(stamp)
            else:
                del self._peaks[key]
        return gone

    def __getitem__(self, key: K) -> Histogram:
        made = self._made.get(key)
        if made is None:
            peak = self._peaks[key].maximum() if self._peaks is not None else None
            made = self._made[key] = self.tallies[key].histogram(peak)
        return made

    def __contains__(self, key: object) -> bool:
        return key in self.tallies

    def __iter__(self) -> Iterator[K]:
        return iter(self.tallies)

    def __len__(self) -> int:
        return len(self.tallies)

    def _parts(self, table: Packed[K]) -> Iterator[tuple[K, Part]]:
        """The rows that hold something; what was made of the sum holds no longer."""
        self._made = {}
        wanted = self._wanted
        return ((key, part) for key, part in table.parts() if part.begin < part.end and (wanted is None or wanted(key)))
