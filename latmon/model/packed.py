"""Packed histograms: many histograms as a few flat arrays. They have the scale of BITS or a coarser one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, repeat
from operator import mul
from typing import Any, NamedTuple, TypeVar

from latmon.model.histogram import BITS, Histogram, value_bounds

UNKNOWN = -1
_MOST = 2**63 - 1

K = TypeVar("K")


class RowSpan(NamedTuple):
    """Position of a row's buckets in the arrays."""

    row: int
    begin: int
    end: int


class Packed(Mapping[K, Histogram]):
    """Histograms by key in flat arrays.

    `sums` and `maxima` contain UNKNOWN, or are empty, where they aren't known; `scales` are the bits of each row, empty
    where all have BITS.
    """

    def __init__(
        self,
        rows: tuple[K, ...] = (),
        ends: Iterable[int] = (),
        indices: bytes = b"",
        counts: Iterable[int] = (),
        *,
        sums: Iterable[int] = (),
        maxima: Iterable[int] = (),
        scales: bytes = b"",
    ) -> None:
        self.rows = rows
        self.ends = numbers(ends)
        """End of each row's buckets."""
        self.indices, self.counts = indices, numbers(counts)
        self.sums, self.maxima = numbers(sums), numbers(maxima)
        self.scales = scales

    @classmethod
    def of(cls, histograms: Mapping[K, Histogram]) -> Packed[K]:
        """Pack the values; return packed ones as they are."""
        if isinstance(histograms, Packed):
            return histograms
        every = [one if one.bits <= BITS else one.coarsen(BITS) for one in histograms.values()]
        buckets = [bucket for one in every for bucket in one.buckets]
        return cls(
            tuple(histograms),
            accumulate(len(one.buckets) for one in every),
            bytes([index for index, _ in buckets]),
            [n for _, n in buckets],
            sums=[UNKNOWN if one.sum is None else one.sum for one in every],
            maxima=[UNKNOWN if one.max is None else one.max for one in every],
            scales=bytes([one.bits for one in every]) if any(one.bits != BITS for one in every) else b"",
        )

    def joined(self, *others: Packed[K]) -> Packed[K]:
        """Return the rows of all, which have no key in common."""
        every = [one for one in (self, *others) if one.rows]
        if not every[1:]:
            return every[0] if every else self
        first_of = accumulate((len(one.indices) for one in every), initial=0)
        return Packed(
            tuple(row for one in every for row in one.rows),
            [first + end for first, one in zip(first_of, every, strict=False) for end in one.ends],
            b"".join(one.indices for one in every),
            [n for one in every for n in one.counts],
            sums=_all([one.sums for one in every], every),
            maxima=_all([one.maxima for one in every], every),
            scales=bytes([one.bits(row) for one in every for row in range(len(one.rows))])
            if any(one.scales for one in every)
            else b"",
        )

    def renamed(self, rename: Callable[[K], K]) -> Packed[K]:
        """Return the same values under other keys; `rename` makes no two of them equal."""
        rows = tuple(map(rename, self.rows))
        values = {"sums": self.sums, "maxima": self.maxima}
        return Packed(rows, self.ends, self.indices, self.counts, **values, scales=self.scales)

    def scaled(self, factor: int, wanted: Callable[[K], bool] | None = None) -> Packed[K]:
        """Return the rows with `factor` times as many I/Os of the same latencies; others than `wanted` as they are."""
        factors = [factor if wanted is None or wanted(key) else 1 for key in self.rows]
        counts = list(self.counts)
        for _, part in self.parts():
            for at in range(part.begin, part.end):
                counts[at] *= factors[part.row]
        sums = [us if us == UNKNOWN else us * times for us, times in zip(self.sums, factors, strict=False)]
        return Packed(self.rows, self.ends, self.indices, counts, sums=sums, maxima=self.maxima, scales=self.scales)

    @property
    def counts_by_row(self) -> list[int]:
        """Return the number of I/Os of each row."""
        sums = [0, *accumulate(self.counts)]
        return [sums[end] - sums[begin] for begin, end in zip([0, *self.ends], self.ends, strict=False)]

    def parts(self) -> Iterator[tuple[K, RowSpan]]:
        """Yield the rows without making their histograms."""
        begin = 0
        for row, (key, end) in enumerate(zip(self.rows, self.ends, strict=True)):
            yield key, RowSpan(row, begin, end)
            begin = end

    def __getitem__(self, key: K) -> Histogram:
        row = self._row_of[key]
        return self._made(RowSpan(row, self.ends[row - 1] if row else 0, self.ends[row]))

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def __iter__(self) -> Iterator[K]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def items(self) -> ItemsView[K, Histogram]:
        """Return all rows with their histograms, made in one pass."""
        return dict(zip(self.rows, self.values_in_order(), strict=True)).items()

    def values_in_order(self) -> list[Histogram]:
        """Return the histograms of all rows, in a third of the time of single look-ups."""
        pairs = tuple(zip(self.indices, self.counts, strict=True))
        known, bits = self.known, self.bits
        found, begin = [], 0
        for row, end in enumerate(self.ends):
            found.append(Histogram(pairs[begin:end], known(self.sums, row), known(self.maxima, row), bits(row)))
            begin = end
        return found

    def contradiction(self, *, coarse: bool = False) -> tuple[K, str] | None:
        """Return a row that no latencies can have, and why (Histogram.contradiction); None if there is none."""
        if not self.scales and self._adds_up(coarse=coarse):
            return None
        reasons = ((key, one.contradiction(coarse=coarse)) for key, one in self.items())
        return next((found for found in reasons if found[1]), None)

    def _adds_up(self, *, coarse: bool) -> bool:
        """Return whether every sum and maximum fits the buckets, by all rows at once."""
        lows, highs = value_bounds(coarse=coarse)
        least, most = (
            [0, *accumulate(map(mul, self.counts, map(bounds.__getitem__, self.indices)))] for bounds in (lows, highs)
        )
        begin = 0
        for end, us, high in zip(self.ends, self.sums or repeat(UNKNOWN), self.maxima or repeat(UNKNOWN), strict=False):
            if us != UNKNOWN and not least[end] - least[begin] <= us <= most[end] - most[begin]:
                return False
            last = self.indices[end - 1] if begin < end else 0
            if high != UNKNOWN and not (lows[last] <= high <= highs[last] if begin < end else not high):
                return False
            begin = end
        return True

    @staticmethod
    def known(values: array[int], row: int) -> int | None:
        """Return a row's sum or maximum; None where it isn't known."""
        return None if not values or values[row] == UNKNOWN else values[row]

    def bits(self, row: int) -> int:
        """Return the scale of a row."""
        return self.scales[row] if self.scales else BITS

    @cached_property
    def _row_of(self) -> dict[K, int]:
        return {key: row for row, key in enumerate(self.rows)}

    def _made(self, part: RowSpan) -> Histogram:
        return Histogram(
            tuple(zip(self.indices[part.begin : part.end], self.counts[part.begin : part.end], strict=True)),
            self.known(self.sums, part.row),
            self.known(self.maxima, part.row),
            self.bits(part.row),
        )


def _all(values: Sequence[array[int]], every: Sequence[Packed[Any]]) -> list[int]:
    """Return the values of all rows, or none where none is known."""
    if not any(values):
        return []
    return [n for some, one in zip(values, every, strict=True) for n in some or [UNKNOWN] * len(one.rows)]


class TimesByBucket(Mapping[K, Mapping[int, int]]):
    """Times in us by bucket, of each key; packed like histograms whose counts are microseconds."""

    def __init__(self, packed: Packed[K]) -> None:
        self.packed = packed

    @staticmethod
    def pack(times: Mapping[K, Mapping[int, int]]) -> Packed[K]:
        """Return the values in packed form; those that are packed as they are."""
        if isinstance(times, TimesByBucket):
            return times.packed
        ordered = [sorted(of_key.items()) for of_key in times.values()]
        buckets = [bucket for of_key in ordered for bucket in of_key]
        ends = accumulate(map(len, ordered))
        return Packed(tuple(times), ends, bytes([index for index, _ in buckets]), [us for _, us in buckets])

    def __getitem__(self, key: K) -> Mapping[int, int]:
        return dict(self.packed[key].buckets)

    def __iter__(self) -> Iterator[K]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)


def numbers(values: Iterable[int]) -> array[int]:
    """Return an array with four bytes each where they fit, else eight; larger values become the largest of those."""
    if isinstance(values, array):
        return values
    some = values if isinstance(values, list) else list(values)
    for code in ("i", "q"):
        try:
            return array(code, some)
        except OverflowError:
            continue
    return array("q", [min(value, _MOST) for value in some])
