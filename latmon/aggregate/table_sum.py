"""Sum: the running sum of frames, with exact subtraction, and TableSum, its part of one declared table.

Windows of a screen, blocks of the rules, minutes of a recording and totals of a report are this sum over other spans. A
sum is given frames, or other sums, in packed form (PackedFrame), and returns one of its own.

- Counts are added up. Of what a source may not report, the sum is unknown where one frame lacks it.
- Histograms are merged. Their maxima can't be subtracted: a sliding maximum needs a stamp that grows (Peak).
- Facts (thread, handlers that share a vector, sampling rate) are those of the latest frame.
- What is of the tracer's sample is weighed by the sampling rate of its frame (SampleRates).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from latmon.aggregate.histogram_sum import HistogramSums
from latmon.model.devices import WithIdle
from latmon.model.frame import Frame, Series, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements import (
    ADMISSION_CAUSES,
    COMPLETERS,
    PATHS,
    RAISERS,
    STAGE_TIMES,
    TRACED_LATENCIES,
    UNFOLLOWED,
)
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.model.packed_frame import (
    COUNTERS,
    OFF,
    RATES,
    SUMMED,
    PackedFrame,
    PackedRows,
    PackedTable,
    RowCounts,
    made_value,
    pack,
)
from latmon.model.sample import SampleRates
from latmon.model.table import AnyTable, Meaning, Row, Table, always, never

K = TypeVar("K")
V = TypeVar("V")
Weight = Callable[[Any], int]
"""Row -> the I/Os that each of its counted ones stands for."""


class CountSums(Generic[K]):
    """Running sums of the counts of rows."""

    def __init__(self, may_be_unknown: Sequence[bool], *, keeps_zeros: bool = False) -> None:
        """`may_be_unknown`: of each count of a row. `keeps_zeros`: a row stays while a frame that has it is in the sum.

        Such sums must be subtracted as they were added: frame by frame, or all of them at once.
        """
        self._width = len(may_be_unknown)
        self._keeps_zeros = keeps_zeros
        optional = [place for place, may_be in enumerate(may_be_unknown) if may_be]
        self._unknown_at = {place: 1 + self._width + number for number, place in enumerate(optional)}
        self._size = 1 + self._width + len(optional)
        self.sums: dict[K, list[int]] = {}
        """Row -> its frames if `keeps_zeros`, its counts, and for each that may be unknown the frames that lack it."""

    def copy(self) -> CountSums[K]:
        other = CountSums[K]([place in self._unknown_at for place in range(self._width)], keeps_zeros=self._keeps_zeros)
        other.sums = {key: sums.copy() for key, sums in self.sums.items()}
        return other

    def add(self, packed: RowCounts[K], sign: int = 1, weight_of: Weight | None = None) -> None:
        """Add rows, or with -1 as `sign` subtract them; `weight_of`: their weights, 1 without."""
        begin, width = 0, self._width
        counts = packed.counts
        for key in packed.rows:
            contents = counts[begin : begin + width]
            begin += width
            if not self._keeps_zeros and not any(contents):
                continue
            sums = self.sums.get(key)
            if sums is None:
                sums = self.sums[key] = [0] * self._size
            if self._keeps_zeros:
                sums[0] += sign
            factor = sign if weight_of is None else sign * weight_of(key)
            for place, n in enumerate(contents):
                if n == UNKNOWN:
                    sums[self._unknown_at[place]] += sign
                else:
                    sums[1 + place] += factor * n
            if sign < 0 and not any(sums):
                del self.sums[key]

    def multiply(self, factor: Fraction, is_wanted: Callable[[K], bool]) -> None:
        """Multiply the counts of the wanted rows by a factor that leaves them whole."""
        for key, sums in self.sums.items():
            if is_wanted(key):
                for place in range(1, 1 + self._width):
                    sums[place] = int(sums[place] * factor)

    def contents(self, key: K) -> list[int | None]:
        """Return the sums of a row; KeyError without it."""
        sums = self.sums[key]
        contents: list[int | None] = [*sums[1 : 1 + self._width]]
        for place, at in self._unknown_at.items():
            if sums[at]:
                contents[place] = None
        return contents

    @property
    def packed(self) -> RowCounts[K]:
        counts: list[int] = []
        for key in self.sums:
            counts += [UNKNOWN if content is None else content for content in self.contents(key)]
        return RowCounts(tuple(self.sums), numbers(counts))


class NamedSums(Generic[K]):
    """Running sums of the counts by name of rows."""

    def __init__(self) -> None:
        self.sums: dict[K, dict[str, int]] = {}

    def copy(self) -> NamedSums[K]:
        other = NamedSums[K]()
        other.sums = {key: named.copy() for key, named in self.sums.items()}
        return other

    def add(self, packed: RowCounts[tuple[K, str]], sign: int = 1, weight_of: Weight | None = None) -> None:
        """Add counts, or with -1 as `sign` subtract them; `weight_of`: the weights of their rows, 1 without."""
        for (key, name), n in zip(packed.rows, packed.counts, strict=True):
            named = self.sums.setdefault(key, {})
            named[name] = named.get(name, 0) + (sign if weight_of is None else sign * weight_of(key)) * n
            if not named[name]:
                del named[name]
            if not named:
                del self.sums[key]

    def multiply(self, factor: Fraction, is_wanted: Callable[[K], bool]) -> None:
        """Multiply the counts of the wanted rows by a factor that leaves them whole."""
        for key, named in self.sums.items():
            if is_wanted(key):
                for name, n in named.items():
                    named[name] = int(n * factor)

    @property
    def packed(self) -> RowCounts[tuple[K, str]]:
        rows: list[tuple[K, str]] = []
        counts: list[int] = []
        for key, named in self.sums.items():
            rows += [(key, name) for name in named]
            counts += named.values()
        return RowCounts(tuple(rows), numbers(counts))


class TableSum(Mapping[Row, V]):
    """Running sum of one table; a mapping of its rows, whose values are made when they are read."""

    def __init__(
        self, table: Table[Row, V], *, peaks: bool = True, wanted: Callable[[Row], bool] | None = None
    ) -> None:
        """`wanted` selects rows of histograms; without `peaks` no maxima are kept."""
        self.table = table
        self._peaks, self._wanted = peaks, wanted
        cells = table.value.cells
        self.histograms: dict[int, HistogramSums[Row]] = {
            place: HistogramSums(wanted, peaks=peaks and cells[place].has_maximum) for place in table.histogram_places
        }
        """By the place of the cell."""
        may_be_unknown = [cells[place].may_be_unknown for place in table.count_places]
        self.counts: CountSums[Row] = CountSums(may_be_unknown, keeps_zeros=table.counts_nothing_too)
        self._named: dict[int, NamedSums[Row]] = {place: NamedSums() for place in table.named_places}
        self._facts: dict[Row, tuple[Any, ...]] = {}
        self.idle: Mapping[Row, V] = MappingProxyType({})
        """Rows of idle devices in the frame that was added last and has any: they add nothing."""
        self._made: dict[Row, V] = {}
        self._parts = self._parts_with_rows()

    def _parts_with_rows(self) -> tuple[Mapping[Row, Any], ...]:
        """Return the mappings of which one has each summed row as a key."""
        timed = [histograms.sums for histograms in self.histograms.values()]
        if self.table.is_timed:
            return tuple(timed)
        return (self.counts.sums, *(named.sums for named in self._named.values()), *timed)

    def copy(self) -> TableSum[Row, V]:
        other = TableSum(self.table, peaks=self._peaks, wanted=self._wanted)
        other.histograms = {place: sums.copy() for place, sums in self.histograms.items()}
        other._named = {place: sums.copy() for place, sums in self._named.items()}
        other.counts, other._facts, other.idle = self.counts.copy(), self._facts.copy(), self.idle
        other._parts = other._parts_with_rows()
        return other

    def add(self, packed: PackedTable, stamp: int = 0, factor: int = 1) -> None:
        """Add rows; `stamp` grows from one to the next, rows of the sample count `factor` times."""
        self._made = {}
        for place, histograms in packed.histograms.items():
            self.histograms[place].add(self._weighed(histograms, factor), stamp)
        self._add_counts(packed, 1, factor)
        self._facts.update(packed.facts)
        if packed.idle is not None:
            self.idle = packed.idle

    def subtract(self, packed: PackedTable, stamp: int = 0, factor: int = 1) -> None:
        """Subtract rows that were added with `stamp` and `factor`."""
        self._made = {}
        for place, histograms in packed.histograms.items():
            gone = self.histograms[place].remove(self._weighed(histograms, factor), stamp)
            for key in gone if self._facts else ():
                if not self._is_timed(key):
                    self._facts.pop(key, None)
        self._add_counts(packed, -1, factor)

    def replace_parts(self, parts: Sequence[tuple[PackedTable, int]], whole: tuple[PackedTable, int]) -> None:
        """Have `whole` be subtracted in place of `parts`, as Sum.replace_parts; each is rows and their factor."""
        rows, factor = whole
        for place, histograms in rows.histograms.items():
            if histograms.sums and UNKNOWN not in histograms.sums:
                continue
            columns = [self._weighed(part.histograms[place], weight) for part, weight in parts]
            self.histograms[place].replace_parts(columns, self._weighed(histograms, factor))

    def multiply(self, factor: Fraction) -> None:
        """Multiply what is of the sample by a factor that leaves it whole."""
        is_sampled = self.table.is_sampled
        if is_sampled is never:
            return
        self._made = {}
        for histograms in self.histograms.values():
            histograms.multiply(factor, is_sampled)
        self.counts.multiply(factor, is_sampled)
        for named in self._named.values():
            named.multiply(factor, is_sampled)

    def forget(self, devices: Collection[str]) -> None:
        """Drop the rows of devices, whose names others may get."""
        self._made = {}
        places = self.table.of_meaning(Meaning.DEVICE)
        parts_of = self.table.parts_of
        gone = [key for key in self if any(parts_of(key)[place] in devices for place in places)]
        for sums in self.histograms.values():
            sums.forget(gone)
        for key in gone:
            self.counts.sums.pop(key, None)
            self._facts.pop(key, None)
            for named in self._named.values():
                named.sums.pop(key, None)
        if self.idle:
            dropped = frozenset(gone)
            self.idle = {key: value for key, value in self.idle.items() if key not in dropped}

    @property
    def packed(self) -> PackedTable:
        """Return the sum in packed form."""
        return PackedTable(
            {place: sums.packed for place, sums in self.histograms.items()},
            self.counts.packed if self.table.count_places else RowCounts(),
            {place: sums.packed for place, sums in self._named.items()},
            dict(self._facts),
            self.idle or None,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in the sum, not even counts of rows that are not timed yet."""
        return not self and not self.counts.sums and not any(named.sums for named in self._named.values())

    @property
    def is_uniform(self) -> bool:
        """Whether of each row all histograms have an exact maximum or none has."""
        return all(sums.is_uniform for sums in self.histograms.values())

    def __getitem__(self, key: Row) -> V:
        value = self._made.get(key)
        if value is None:
            value = self._made[key] = self._value(key)
        return value

    def get(self, key: Row, default: Any = None) -> Any:
        """Return a row; Mapping's own catches a KeyError for each device that has none."""
        value = self._made.get(key)
        if value is not None:
            return value
        for rows in self._parts:  # a picture asks for some 300 rows that are in none
            if key in rows:
                return self[key]
        return self.idle.get(key, default)

    def __contains__(self, key: object) -> bool:
        return self._is_summed(key) or key in self.idle

    def __iter__(self) -> Iterator[Row]:
        rows = self._rows
        return chain(rows, (key for key in self.idle if key not in rows)) if self.idle else iter(rows)

    def __len__(self) -> int:
        rows = self._rows
        return len(rows) + sum(key not in rows for key in self.idle)

    @property
    def busy(self) -> Collection[Row]:
        """Return the rows that are no idle device's."""
        return self._rows

    @property
    def _rows(self) -> Mapping[Row, Any]:
        """Return a mapping that has the summed rows as keys."""
        filled = [rows for rows in self._parts if rows]
        if len(filled) == 1:
            return filled[0]
        return dict.fromkeys(chain.from_iterable(filled))

    def _value(self, key: Row) -> V:
        if not self._is_summed(key):
            return self.idle[key]
        counts = self.counts.contents(key) if key in self.counts.sums else ()
        named = {place: sums.sums for place, sums in self._named.items()}
        return made_value(self.table, key, histograms=self.histograms, counts=counts, named=named, facts=self._facts)

    def _weighed(self, histograms: Packed[Row], factor: int) -> Packed[Row]:
        is_sampled = self.table.is_sampled
        if factor == 1 or is_sampled is never:
            return histograms
        return histograms.scaled(factor, None if is_sampled is always else is_sampled)

    def _add_counts(self, packed: PackedTable, sign: int, factor: int) -> None:
        weight_of = self._weight_of(factor)
        self.counts.add(packed.counts, sign, weight_of)
        for place, counts in packed.named.items():
            self._named[place].add(counts, sign, weight_of)

    def _weight_of(self, factor: int) -> Weight | None:
        """Return the weight of each row; None where all have the weight 1."""
        is_sampled = self.table.is_sampled
        if factor == 1 or is_sampled is never:
            return None
        return lambda key: factor if is_sampled(key) else 1

    def _is_summed(self, key: object) -> bool:
        # read a thousand times for a picture: a loop takes a third of the time of any() with a generator
        for rows in self._parts:  # noqa: SIM110
            if key in rows:
                return True
        return False

    def _is_timed(self, key: object) -> bool:
        return any(key in sums for sums in self.histograms.values())


class ExactTimes(Mapping[Series, Histogram]):
    """Histograms of a sum with the times of a table that lacks none.

    A tracer may print a map of sums after completions that the map of counts lacks. A frame without counts has no
    histogram for that time, so the sums of histograms lack it when I/O stops; the table of times has all of it.
    """

    def __init__(self, sums: TableSum[Series, Histogram], times: TableSum[Series, Mapping[int, int]]) -> None:
        self._sums, self._times = sums, times
        self._made: dict[Series, Histogram] = {}

    def __getitem__(self, series: Series) -> Histogram:
        new_histogram = self._made.get(series)
        if new_histogram is None:
            new_histogram = self._made[series] = self._with_time(series, self._sums[series])
        return new_histogram

    def __contains__(self, series: object) -> bool:
        return series in self._sums

    def __iter__(self) -> Iterator[Series]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    def _with_time(self, series: Series, histogram: Histogram) -> Histogram:
        (times,) = self._times.histograms.values()
        by_bucket = times.sums.get(series)
        if by_bucket is None:
            return histogram
        us = sum(by_bucket.counts.values())
        if histogram.sum == us:
            return histogram
        possible = histogram.within(us)
        # A frame whose map of sums was not printed has no sum; a later frame may contain all of it.
        return histogram if histogram.sum is None and us != possible else replace(histogram, sum=possible)


class Sum:
    """Running sum of frames: of all tables, or of some."""

    def __init__(
        self,
        tables: Iterable[AnyTable] = SUMMED,
        *,
        peaks: bool = True,
        wanted: Mapping[AnyTable, Callable[[Any], bool]] = MappingProxyType({}),
        bound: Callable[[PackedFrame], PackedFrame] | None = None,
    ) -> None:
        """Start empty. Without `peaks` no maxima are kept; `wanted` selects rows of tables of one histogram.

        `bound` leaves out rows of what `add` is given; such a sum can't subtract.
        """
        self.tables: dict[AnyTable, TableSum[Any, Any]] = {
            table: TableSum(table, peaks=peaks, wanted=wanted.get(table)) for table in tables
        }
        self._bound = bound
        self.rates = SampleRates()
        """Sampling rates of the frames."""
        self.latest = PackedFrame()
        """The latest frame, without its tables."""

    def copy(self) -> Sum:
        other = Sum(())
        other.tables = {table: sums.copy() for table, sums in self.tables.items()}
        other.rates, other.latest = self.rates.copy(), self.latest
        return other

    def add_frame(self, frame: Frame) -> None:
        """Add a frame to a sum without peaks, or one of which nothing is subtracted."""
        self.add(pack(frame, self.tables))

    def add(self, packed: PackedFrame, stamp: int = 0) -> None:
        """Add a frame, or a sum of frames; `stamp` grows from one to the next."""
        if self._bound is not None:
            packed = self._bound(packed)
        self._multiply(self.rates.add(packed.frames_by_rate))
        factor = self._factor(packed)
        for table, rows in packed.tables.items():
            sums = self.tables.get(table)
            if sums is not None:
                sums.add(rows, stamp, factor)
        self.latest = replace(packed, tables={})

    def subtract(self, packed: PackedFrame, stamp: int = 0) -> None:
        """Subtract what was added with `stamp`, in the order in which it was added."""
        factor = self._factor(packed)
        for table, rows in packed.tables.items():
            sums = self.tables.get(table)
            if sums is not None:
                sums.subtract(rows, stamp, factor)
        self._multiply(self.rates.add(packed.frames_by_rate, -1))

    def replace_parts(self, parts: Sequence[PackedFrame], packed_frame: PackedFrame) -> None:
        """Have `whole` be subtracted in place of `parts`, which were added one by one and whose sum it is."""
        for table, rows in packed_frame.tables.items():
            sums = self.tables.get(table)
            if sums is not None:
                weighed = [(part.tables[table], self._factor(part)) for part in parts if table in part.tables]
                sums.replace_parts(weighed, (rows, self._factor(packed_frame)))

    def weigh_as(self, one_in: int) -> None:
        """Have each row of the sample stand for `one_in` I/Os, a divisor of what it stands for now."""
        self._multiply(self.rates.add({one_in: 1}))

    def forget(self, devices: Collection[str]) -> None:
        """Drop the rows of devices."""
        for sums in self.tables.values():
            sums.forget(devices)

    @property
    def one_in(self) -> int:
        """I/Os that each counted one of the sample stands for; 0: nothing is of a sample."""
        return self.rates.one_in

    @property
    def packed(self) -> PackedFrame:
        """Return the sum in the form of one frame."""
        tables = {table: sums.packed for table, sums in self.tables.items() if not sums.is_empty}
        return replace(self.latest, tables=tables, frames_by_rate=dict(self.rates.frames))

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the sums of a table, which are valid until the next change."""
        sums: Mapping[Row, V] = self.tables[table]
        if table.exact_times in self.tables:
            sums = ExactTimes(self.tables[table], self.tables[table.exact_times])  # type: ignore[assignment] # Series
        return sums

    def histograms(self, table: Table[Row, Histogram]) -> HistogramSums[Row]:
        """Return the sums of a table whose value is one histogram."""
        (sums,) = self.tables[table].histograms.values()
        return sums

    def counter(self, name: str) -> int:
        """Return one of COUNTERS."""
        return self[COUNTERS].get(name, 0)

    def _factor(self, packed: PackedFrame) -> int:
        return packed.one_in // self.one_in if packed.one_in else 1

    def _multiply(self, factor: Fraction) -> None:
        if factor != 1:
            for sums in self.tables.values():
                sums.multiply(factor)


def rows_of(packed: PackedFrame, table: Table[Row, V]) -> Mapping[Row, V]:
    """Return the rows of one table of a packed frame, with those of idle devices."""
    rows = packed.tables.get(table)
    if rows is None:
        return {}
    if table.value.unpack is not None:
        (histograms,) = rows.histograms.values()
        return table.value.unpack(histograms)
    busy = PackedRows(table, rows)
    return busy if rows.idle is None else WithIdle(busy, rows.idle)


def state_of(state: Traced, counters: Sum) -> Traced:
    """Return the state of the tracer with the rates, and the frames without it, of all frames."""
    rates = [rate.one_in for rate in counters[RATES]]
    return replace(state, off=counters.counter(OFF), rates=(min(rates), max(rates)) if rates else (0, 0))


def traced_of(state: Traced, sums: Sum, counters: Sum) -> Traced:
    """Return the sum of traced requests with the state of the tracer; `rates` are those of all frames.

    `counters`: the sum that has the tables COUNTERS and RATES.
    """
    return replace(
        state_of(state, counters),
        histograms=sums[TRACED_LATENCIES],
        by_total=sums[STAGE_TIMES],
        unfollowed=sums[UNFOLLOWED],
        paths=sums[PATHS],
        admission_causes=sums[ADMISSION_CAUSES],
        completers=sums[COMPLETERS],
        raisers=sums[RAISERS],
    )
