"""Running sums of histograms with exact subtraction, and the sliding maximum, which can't be subtracted."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    """Running sum of one series' histograms, without its maximum; at the scale of the coarsest of them."""

    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sum: int = 0
    unknown_sums: int = 0
    bits: int = BITS

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
        while falling and falling[-1][1] <= value:
            falling.pop()
        # a value that leaves together with a greater one is never the maximum
        if not falling or falling[-1][0] != stamp:
            falling.append((stamp, value))

    def forget(self, until: int) -> None:
        """Drop values with stamps up to `until`."""
        for one in (self.known, self.bounds):
            while one and one[0][0] <= until:
                one.popleft()

    def maximum(self) -> int | None:
        """Return the exact maximum in us; None where a histogram without one may have a greater value."""
        return maximum_of((self,))

    @property
    def is_mixed(self) -> bool:
        """Whether some histograms had an exact maximum and some had none."""
        return bool(self.known and self.bounds)


def maximum_of(peaks: Sequence[Peak]) -> int | None:
    """Return the exact maximum of several peaks in us; None as of `Peak.maximum`."""
    known = max((one.known[0][1] for one in peaks if one.known), default=-1)
    bound = max((one.bounds[0][1] for one in peaks if one.bounds), default=-1)
    return known if known >= max(bound, 0) else None


HistogramRow = tuple[K, Pairs, int | None, int | None, int, int]
"""Key, buckets, sum, maximum, highest bucket and scale (bits) of one histogram."""


class HistogramSums(Mapping[K, Histogram]):
    """Running sums of histograms by key; a mapping whose histograms are made when they are read."""

    def __init__(self, wanted: Callable[[K], bool] | None = None, *, peaks: bool = True) -> None:
        """`wanted` selects rows; without `peaks` no maximum is kept, and tables may be removed in any order."""
        self.sums: dict[K, HistogramSum] = {}
        self._wanted = wanted
        self._peaks: dict[K, Peak] | None = {} if peaks else None
        self._made: dict[K, Histogram] = {}

    def copy(self) -> HistogramSums[K]:
        other = HistogramSums(self._wanted, peaks=self._peaks is not None)
        other.sums = {key: replace(one, counts=one.counts.copy()) for key, one in self.sums.items()}
        if self._peaks is not None:
            other._peaks = {key: Peak(one.known.copy(), one.bounds.copy()) for key, one in self._peaks.items()}
        return other

    def add(self, table: Mapping[K, Histogram], stamp: int = 0) -> None:
        """Add a table; `stamp` grows from one to the next."""
        if isinstance(table, Packed):
            self._add_packed(table, stamp)
            return
        for key, pairs, total, maximum, last, bits in self._rows(table):
            self._row(key, bits).add(pairs, total, bits)
            if self._peaks is not None:
                self._peaks[key].see(stamp, maximum, last, bits)

    def _add_packed(self, table: Packed[K], stamp: int) -> None:
        """Add a table without a call per row: two thirds of the time, and most of that of a report or a check."""
        self._made = {}
        sums, peaks, wanted, begin = self.sums, self._peaks, self._wanted, 0
        pairs = zip(table.indices, table.counts, strict=True)
        for key, end, (total, maximum, bits) in zip(table.rows, table.ends, _known(table), strict=False):
            some = islice(pairs, end - begin)
            if begin == end:
                continue
            begin = end
            if wanted is not None and not wanted(key):
                deque(some, maxlen=0)
                continue
            one = sums.get(key)
            if one is None:
                one = self._row(key, bits)
            counts = one.counts
            if not counts and bits == one.bits:
                counts.update(some)
            else:
                for index, n in some if bits == one.bits else one.at_scale(some, bits):
                    counts[index] += n
            if total < 0:
                one.unknown_sums += 1
            else:
                one.sum += total
            if peaks is not None:
                peaks[key].see(stamp, None if maximum < 0 else maximum, table.indices[end - 1], bits)

    def _row(self, key: K, bits: int) -> HistogramSum:
        """Return the sum of a row; a new one has the scale of its first histogram."""
        one = self.sums.get(key)
        if one is None:
            one = self.sums[key] = HistogramSum(bits=bits)
            if self._peaks is not None:
                self._peaks[key] = Peak()
        return one

    def remove(self, table: Mapping[K, Histogram], stamp: int = 0) -> list[K]:
        """Subtract a table that was added with `stamp`, and return the keys of which nothing is left."""
        gone = []
        for key, pairs, total, _, _, bits in self._rows(table):
            one = self.sums.get(key)
            if one is None:  # sums of 0 leave with the first of them
                continue
            one.remove(pairs, total, bits)
            if not one.counts:
                del self.sums[key]
                gone.append(key)
            if self._peaks is None:
                continue
            if one.counts:
                self._peaks[key].forget(stamp)
            else:
                del self._peaks[key]
        return gone

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
            if self._peaks is not None:
                self._peaks.pop(key, None)

    @property
    def is_uniform(self) -> bool:
        """Whether of each row all histograms have an exact maximum or none has.

        Their scales may differ: a sum has the coarsest one, in whatever order and groups they are added.
        """
        return not any(peak.is_mixed for peak in (self._peaks or {}).values())

    def __getitem__(self, key: K) -> Histogram:
        made = self._made.get(key)
        if made is None:
            peak = self._peaks[key].maximum() if self._peaks is not None else None
            made = self._made[key] = self.sums[key].histogram(peak)
        return made

    @property
    def packed(self) -> Packed[K]:
        """Return `Packed.of` the sums, in half of the time: without their histograms."""
        if any(one.bits > BITS for one in self.sums.values()):
            return Packed.of(self)
        indices, counts, ends = bytearray(), list[int](), list[int]()
        for one in self.sums.values():
            some = sorted(one.counts)
            indices += bytes(some)
            counts += map(one.counts.__getitem__, some)
            ends.append(len(counts))
        peaks = [None] * len(ends) if self._peaks is None else [self._peaks[key].maximum() for key in self.sums]
        scales = bytes([one.bits for one in self.sums.values()])
        return Packed(
            tuple(self.sums),
            ends,
            bytes(indices),
            counts,
            sums=[UNKNOWN if one.unknown_sums else one.sum for one in self.sums.values()],
            maxima=[UNKNOWN if peak is None else peak for peak in peaks],
            scales=b"" if scales == bytes([BITS]) * len(scales) else scales,
        )

    def merged(self, keys: Iterable[K], maximum: int | None = None) -> Histogram:
        """Return the sum of several rows; `maximum`: known from elsewhere, where no peaks are kept."""
        present = [key for key in keys if key in self.sums]
        if not present:
            return EMPTY
        if self._peaks is not None:
            maximum = maximum_of([self._peaks[key] for key in present])
        first, *others = [self.sums[key] for key in present]
        both = HistogramSum(first.counts.copy(), first.sum, first.unknown_sums, first.bits) if others else first
        for one in others:
            both.add(one.counts.items(), None if one.unknown_sums else one.sum, one.bits)
        return both.histogram(maximum)

    def __contains__(self, key: object) -> bool:
        return key in self.sums

    def __iter__(self) -> Iterator[K]:
        return iter(self.sums)

    def __len__(self) -> int:
        return len(self.sums)

    def _rows(self, table: Mapping[K, Histogram]) -> Iterator[HistogramRow[K]]:
        """Return the table's rows that are wanted and not empty; they change the sum, so its histograms are dropped."""
        self._made = {}
        if isinstance(table, Packed):
            return _packed_rows(table, self._wanted)
        return _plain_rows(table, self._wanted)


def _packed_rows(table: Packed[K], wanted: Callable[[K], bool] | None) -> Iterator[HistogramRow[K]]:
    """Yield rows without making their histograms."""
    indices, counts, begin = table.indices, table.counts, 0
    for key, end, (total, maximum, bits) in zip(table.rows, table.ends, _known(table), strict=False):
        if begin < end and (wanted is None or wanted(key)):
            pairs = zip(indices[begin:end], counts[begin:end], strict=True)
            last = indices[end - 1]
            yield key, pairs, None if total < 0 else total, None if maximum < 0 else maximum, last, bits
        begin = end


def _known(table: Packed[Any]) -> Iterator[tuple[int, int, int]]:
    """Return sum, maximum and scale of each row; UNKNOWN where they are not known; endless where none is."""
    unknown = repeat(UNKNOWN)
    return zip(table.sums or unknown, table.maxima or unknown, table.scales or repeat(BITS), strict=False)


def _plain_rows(table: Mapping[K, Histogram], wanted: Callable[[K], bool] | None) -> Iterator[HistogramRow[K]]:
    for key, one in table.items():
        if one.buckets and (wanted is None or wanted(key)):
            yield key, one.buckets, one.sum, one.max, one.buckets[-1][0], one.bits
