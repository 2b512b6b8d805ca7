"""Packed histograms: many histograms as a few flat arrays. They have the scale of BITS or a coarser one."""

from __future__ import annotations

from array import array
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain, repeat
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
        values = [value if value.bits <= BITS else value.coarsen(BITS) for value in histograms.values()]
        buckets = list(chain.from_iterable(value.buckets for value in values))
        has_scales = any(value.bits != BITS for value in values)
        return cls(
            tuple(histograms),
            accumulate(len(value.buckets) for value in values),
            bytes([index for index, _ in buckets]),
            [n for _, n in buckets],
            sums=[UNKNOWN if value.sum is None else value.sum for value in values],
            maxima=[UNKNOWN if value.max is None else value.max for value in values],
            scales=bytes([value.bits for value in values]) if has_scales else b"",
        )

    def joined(self, *others: Packed[K]) -> Packed[K]:
        """Return the rows of all, which have no key in common."""
        tables = [table for table in (self, *others) if table.rows]
        if len(tables) <= 1:
            return tables[0] if tables else self
        ends: list[int] = []
        for table in tables:
            begin = ends[-1] if ends else 0
            ends += [begin + end for end in table.ends]
        has_scales = any(table.scales for table in tables)
        return Packed(
            tuple(chain.from_iterable(table.rows for table in tables)),
            ends,
            b"".join(table.indices for table in tables),
            list(chain.from_iterable(table.counts for table in tables)),
            sums=_joined([table.sums for table in tables], tables),
            maxima=_joined([table.maxima for table in tables], tables),
            scales=b"".join(table.scales or bytes([BITS]) * len(table) for table in tables) if has_scales else b"",
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

    def span(self, key: K) -> RowSpan | None:
        """Return where a key's buckets are; None where it is missing."""
        row = self._row_of.get(key)
        return None if row is None else RowSpan(row, self.ends[row - 1] if row else 0, self.ends[row])

    def __getitem__(self, key: K) -> Histogram:
        span = self.span(key)
        if span is None:
            raise KeyError(key)
        return self._made(span)

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
        histograms, begin = [], 0
        for row, end in enumerate(self.ends):
            histograms.append(Histogram(pairs[begin:end], known(self.sums, row), known(self.maxima, row), bits(row)))
            begin = end
        return histograms

    def contradiction(self, *, coarse: bool = False) -> tuple[K, str] | None:
        """Return a row that no latencies can have, and why (Histogram.contradiction); None if there is none."""
        if not self.scales and self._adds_up(coarse=coarse):
            return None
        for key, histogram in self.items():
            reason = histogram.contradiction(coarse=coarse)
            if reason:
                return key, reason
        return None

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


def _joined(columns: Sequence[array[int]], tables: Sequence[Packed[Any]]) -> list[int]:
    """Return the sums or maxima of all tables' rows; nothing where none is known."""
    values: list[int] = []
    if any(columns):
        for column, table in zip(columns, tables, strict=True):
            values += column or [UNKNOWN] * len(table.rows)
    return values


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
    listed = values if isinstance(values, list) else list(values)
    for code in ("i", "q"):
        try:
            return array(code, listed)
        except OverflowError:
            continue
    return array("q", [min(value, _MOST) for value in listed])
