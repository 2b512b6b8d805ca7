"""Running sums of histograms with exact subtraction, and the sliding maximum, which can't be subtracted."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import islice, repeat
from typing import Any, TypeVar

from latmon.model.histogram import BITS, EMPTY, Histogram, bucket_bounds, bucket_index
from latmon.model.packed import UNKNOWN, Packed

K = TypeVar("K")
Pairs = Iterable[tuple[int, int]]
"""(bucket index, count)."""


@dataclass(slots=True)
class HistogramSum:
    """Running sum of one series' histograms, at the scale of the coarsest of them."""

    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sum: int = 0
    unknown_sums: int = 0
    bits: int = BITS
    peak: Peak | None = None
    """Its greatest values; None where no maximum is kept."""

    def copy(self) -> HistogramSum:
        peak = None if self.peak is None else Peak(self.peak.known.copy(), self.peak.bounds.copy())
        return HistogramSum(self.counts.copy(), self.sum, self.unknown_sums, self.bits, peak)

    @property
    def maximum(self) -> int | None:
        """Return the exact maximum in us, where it is known."""
        return None if self.peak is None else self.peak.maximum()

    def add(self, pairs: Pairs, total: int | None, bits: int = BITS) -> None:
        """Add a histogram's buckets and its sum in us."""
        counts = self.counts
        for index, n in pairs if bits == self.bits else self.at_scale(pairs, bits):
            counts[index] += n
        self.sum += total or 0
        self.unknown_sums += total is None

    def remove(self, pairs: Pairs, total: int | None, bits: int = BITS) -> None:
        """Subtract a histogram that was added."""
        counts = self.counts
        for index, n in pairs if bits == self.bits else self.at_scale(pairs, bits):
            left = counts.get(index, 0) - n
            if left:
                counts[index] = left
            else:
                counts.pop(index, None)
        self.sum -= total or 0
        self.unknown_sums -= total is None

    def histogram(self, maximum: int | None = None) -> Histogram:
        """Return the sum, with a maximum that is known from elsewhere."""
        total = None if self.unknown_sums else self.sum
        indices = sorted(self.counts)
        buckets = tuple(zip(indices, map(self.counts.__getitem__, indices), strict=True))
        return Histogram(buckets, total, maximum, self.bits)

    def multiply(self, factor: Fraction) -> None:
        """Multiply counts and sum by a factor that leaves them whole."""
        for index, n in self.counts.items():
            self.counts[index] = int(n * factor)
        self.sum = int(self.sum * factor)

    def at_scale(self, pairs: Pairs, bits: int) -> Pairs:
        """Return the buckets at this sum's scale, which becomes theirs where theirs is coarser."""
        if bits < self.bits:
            coarse = _coarsened(self.counts.items(), self.bits, bits)
            self.counts.clear()
            self.bits = bits
            for index, n in coarse:
                self.counts[index] += n
        return _coarsened(pairs, bits, self.bits)


def _coarsened(pairs: Pairs, bits: int, to: int) -> Pairs:
    return pairs if bits == to else [(bucket_index(bucket_bounds(index, bits)[0], to), n) for index, n in pairs]


@dataclass(slots=True)
class Peak:
    """Greatest value of a sliding window: falling (stamp, value) pairs, as many as the maximum may still become."""

    known: deque[tuple[int, int]] = field(default_factory=deque)
    bounds: deque[tuple[int, int]] = field(default_factory=deque)
    """The highest value that histograms without an exact maximum may have."""

    def add(self, stamp: int, histogram: Histogram) -> None:
        last = histogram.buckets[-1][0] if histogram else 0
        if histogram or histogram.max is not None:
            self.see(stamp, histogram.max, last, histogram.bits)

    def see(self, stamp: int, maximum: int | None, last: int, bits: int = BITS) -> None:
        """Add a maximum in us, or where it isn't known the highest bucket `last`."""
        falling, value = (self.bounds, bucket_bounds(last, bits)[1] - 1) if maximum is None else (self.known, maximum)
        if falling and falling[-1][0] == stamp and falling[-1][1] >= value:
            return
        while falling and falling[-1][1] <= value:
            falling.pop()
        # a value that leaves together with a greater one is never the maximum
        if not falling or falling[-1][0] != stamp:
            falling.append((stamp, value))

    def forget(self, until: int) -> None:
        """Drop values with stamps up to `until`."""
        for maxima in (self.known, self.bounds):
            while maxima and maxima[0][0] <= until:
                maxima.popleft()

    def maximum(self) -> int | None:
        """Return the exact maximum in us; None where a histogram without one may have a greater value."""
        return maximum_of((self,))

    @property
    def is_mixed(self) -> bool:
        """Whether some histograms had an exact maximum and some had none."""
        return bool(self.known and self.bounds)


def maximum_of(peaks: Sequence[Peak]) -> int | None:
    """Return the exact maximum of several peaks in us; None as of `Peak.maximum`."""
    known = max((peak.known[0][1] for peak in peaks if peak.known), default=-1)
    bound = max((peak.bounds[0][1] for peak in peaks if peak.bounds), default=-1)
    return known if known >= max(bound, 0) else None


class HistogramSums(Mapping[K, Histogram]):
    """Running sums of histograms by key; a mapping whose histograms are made when they are read."""

    def __init__(self, wanted: Callable[[K], bool] | None = None, *, peaks: bool = True) -> None:
        """`wanted` selects rows; without `peaks` no maximum is kept, and tables may be removed in any order."""
        self.sums: dict[K, HistogramSum] = {}
        self._wanted = wanted
        self._has_peaks = peaks
        self._made: dict[K, Histogram] = {}

    def copy(self) -> HistogramSums[K]:
        other = HistogramSums(self._wanted, peaks=self._has_peaks)
        other.sums = {key: row.copy() for key, row in self.sums.items()}
        return other

    def add(self, table: Packed[K], stamp: int = 0) -> None:
        """Add histograms; `stamp` grows from one call to the next.

        A report spends most of its time here: a call per row would take half as much again.
        """
        self._made = {}
        sums, wanted, begin = self.sums, self._wanted, 0
        indices = table.indices
        pairs = zip(indices, table.counts, strict=True)
        for key, end, (total, maximum, bits) in zip(table.rows, table.ends, _known(table), strict=False):
            if begin == end:
                continue
            buckets = islice(pairs, end - begin)
            begin = end
            if wanted is not None and not wanted(key):
                deque(buckets, maxlen=0)
                continue
            row = sums.get(key)
            if row is None:
                row = sums[key] = HistogramSum(bits=bits, peak=Peak() if self._has_peaks else None)
            counts = row.counts
            if not counts and bits == row.bits:
                counts.update(buckets)
            else:
                for index, n in buckets if bits == row.bits else row.at_scale(buckets, bits):
                    counts[index] += n
            if total < 0:
                row.unknown_sums += 1
            else:
                row.sum += total
            if row.peak is not None:
                row.peak.see(stamp, None if maximum < 0 else maximum, indices[end - 1], bits)

    def remove(self, table: Packed[K], stamp: int = 0) -> list[K]:
        """Subtract histograms that were added with `stamp`, and return the keys of which nothing is left."""
        self._made = {}
        gone = []
        begin = 0
        pairs = zip(table.indices, table.counts, strict=True)
        for key, end, (total, _, bits) in zip(table.rows, table.ends, _known(table), strict=False):
            buckets = list(islice(pairs, end - begin))
            begin = end
            row = self.sums.get(key)
            if row is None or not buckets:  # sums of 0 leave with the first of them
                continue
            row.remove(buckets, None if total < 0 else total, bits)
            if row.peak is not None:
                row.peak.forget(stamp)
            if not row.counts:
                del self.sums[key]
                gone.append(key)
        return gone

    def replace_parts(self, parts: Iterable[Packed[K]], whole_packed: Packed[K]) -> None:
        """Have `whole`, the sum of the summed `parts`, be subtracted in their place.

        A row of it without a sum in us would leave the sums of its parts behind, so they are forgotten now.
        """
        lacking = {
            key for key, (total, _, _) in zip(whole_packed.rows, _known(whole_packed), strict=False) if total < 0
        }
        lacking &= self.sums.keys()
        if not lacking:
            return
        for part in parts:
            for (key, span), (total, _, _) in zip(part.parts(), _known(part), strict=False):
                if key in lacking and span.begin < span.end:
                    row = self.sums[key]
                    row.sum -= max(total, 0)
                    row.unknown_sums -= total < 0
        for key in lacking:
            self.sums[key].unknown_sums += 1

    def multiply(self, factor: Fraction, wanted: Callable[[K], bool]) -> None:
        """Multiply the counts and sums of the wanted rows by a factor that leaves them whole."""
        self._made = {}
        for key, row in self.sums.items():
            if wanted(key):
                row.multiply(factor)

    def forget(self, keys: Iterable[K]) -> None:
        """Drop rows."""
        self._made = {}
        for key in keys:
            self.sums.pop(key, None)

    @property
    def is_uniform(self) -> bool:
        """Whether of each row all histograms have an exact maximum or none has.

        Their scales may differ: a sum has the coarsest one, in whatever order and groups they are added.
        """
        return not any(row.peak is not None and row.peak.is_mixed for row in self.sums.values())

    def __getitem__(self, key: K) -> Histogram:
        histogram = self._made.get(key)
        if histogram is None:
            row = self.sums[key]
            histogram = self._made[key] = row.histogram(row.maximum)
        return histogram

    @property
    def packed(self) -> Packed[K]:
        """Return `Packed.of` the sums, in half of the time: without their histograms."""
        rows = self.sums.values()
        indices, counts, ends = bytearray(), list[int](), list[int]()
        for row in rows:
            in_order = sorted(row.counts)
            indices += bytes(in_order)
            counts += map(row.counts.__getitem__, in_order)
            ends.append(len(counts))
        maxima = [row.maximum for row in rows]
        scales = bytes([row.bits for row in rows])
        return Packed(
            tuple(self.sums),
            ends,
            bytes(indices),
            counts,
            sums=[UNKNOWN if row.unknown_sums else row.sum for row in rows],
            maxima=[UNKNOWN if maximum is None else maximum for maximum in maxima],
            scales=b"" if scales == bytes([BITS]) * len(scales) else scales,
        )

    def merged(self, keys: Iterable[K], maximum: int | None = None) -> Histogram:
        """Return the sum of several rows; `maximum`: known from elsewhere, where no peaks are kept."""
        rows = [self.sums[key] for key in keys if key in self.sums]
        if not rows:
            return EMPTY
        if self._has_peaks:
            maximum = maximum_of([row.peak for row in rows if row.peak is not None])
        first, *others = rows
        both = first.copy() if others else first
        for row in others:
            both.add(row.counts.items(), None if row.unknown_sums else row.sum, row.bits)
        return both.histogram(maximum)

    def __contains__(self, key: object) -> bool:
        return key in self.sums

    def __iter__(self) -> Iterator[K]:
        return iter(self.sums)

    def __len__(self) -> int:
        return len(self.sums)


def _known(table: Packed[Any]) -> Iterator[tuple[int, int, int]]:
    """Return sum, maximum and scale of each row; UNKNOWN where they are not known; endless where none is."""
    unknown = repeat(UNKNOWN)
    return zip(table.sums or unknown, table.maxima or unknown, table.scales or repeat(BITS), strict=False)
