"""The tables of a frame in packed form: flat arrays, from which sums are made, compressed where they are rarely read.

Frames share equal keys. What of a frame is neither a table nor adds up is the state of its tracer and its thresholds: a
sum has those of the latest frame.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from math import gcd
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.model.coverage import Coverage, by_device
from latmon.model.devices import WithIdle, busy_rows
from latmon.model.frame import Completed, Flow, Frame, Traced
from latmon.model.histogram import Histogram
from latmon.model.measurements import LATENCIES, SEEN, TABLES
from latmon.model.measurements.completions import COMPLETED
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.model.table import DEVICE, OP, TEXT, AnyTable, Part, Row, Table, Unit, always, count, never, record

K = TypeVar("K")
V = TypeVar("V")

OFF, SUPPRESSED, FILES_LEFT_OUT = "off", "suppressed", "files_left_out"
COUNTERS: Table[str, int] = Table(
    "counters",
    str,
    (TEXT,),
    count("n", Unit.IOS),
    group="always",
    export_name="counter",
    is_sampled=OFF.__eq__,
)
"""Counters that a frame has in its other parts: `traced.off`, `health.suppressed`, `files_left_out`."""
SEEN_ALONE = Table(
    "seen_alone", Flow, (DEVICE, OP), COMPLETED, group="completions", export_name="seen_alone", counts_ios=False
)
"""Completions of SEEN in frames that have no kernel counters of the flow, such as the first ones."""
COVERAGE: Table[str, Coverage] = Table(
    "coverage",
    str,
    (DEVICE,),
    record(Coverage, seen=Unit.IOS, kernel=Unit.IOS),
    group="completions",
    export_name="coverage",
    counts_ios=False,
)
"""Completions by the probe and by the kernel, of the devices that the kernel counted."""
_SAMPLED = tuple(table for table in TABLES if table.is_sampled is not never)
_PER_HISTOGRAM = 6
"""Arrays of a Packed."""


class Rate(NamedTuple):
    """Key of the frames with one sampling rate."""

    one_in: int


RATES: Table[Rate, int] = Table(
    "rates", Rate, (Part(highest=1 << 20),), count("frames", Unit.IOS), group="always", export_name="rate"
)
"""Frames in which the tracer ran, by its sampling rate."""
SUMMED: tuple[AnyTable, ...] = (COUNTERS, RATES, SEEN_ALONE, COVERAGE, *TABLES)
"""The tables that are added up."""
COMPLETION_TABLES: tuple[AnyTable, ...] = (LATENCIES, *(table for table in SUMMED if table.group == SEEN.group))
"""Those of each frame of the history, which the windows of the device table add up."""


@dataclass(frozen=True, slots=True)
class RowCounts(Generic[K]):
    """Counts of some rows: as many of each as its table has, one row after the other; UNKNOWN where not known."""

    rows: tuple[K, ...] = ()
    counts: array[int] = field(default_factory=lambda: array("i"))

    @property
    def by_row(self) -> dict[K, tuple[int, ...]]:
        """Return row -> its counts."""
        width = len(self.counts) // max(len(self.rows), 1)
        return {row: tuple(self.counts[place * width : (place + 1) * width]) for place, row in enumerate(self.rows)}


@dataclass(frozen=True, slots=True)
class PackedTable:
    """The rows of one table, by the places of its cells. A row may be missing in a part that has nothing of it."""

    histograms: Mapping[int, Packed[Any]] = field(default_factory=dict)
    counts: RowCounts[Any] = field(default_factory=RowCounts)
    named: Mapping[int, RowCounts[tuple[Any, str]]] = field(default_factory=dict)
    """Rows are a key and a name."""
    facts: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)
    """Key -> facts, in the order of `fact_places`."""
    idle: Mapping[Any, Any] | None = None
    """Rows of idle devices, which count nothing; None where all devices have rows of their own."""

    def only(self, keys: Collection[Any]) -> PackedTable:
        """Return the rows with these keys."""
        histograms: dict[int, Packed[Any]] = {}
        for place, packed in self.histograms.items():
            histograms[place] = Packed.of({key: histogram for key, histogram in packed.items() if key in keys})
        kept = {key: counts for key, counts in self.counts.by_row.items() if key in keys}
        named: dict[int, RowCounts[tuple[Any, str]]] = {}
        for place, row_counts in self.named.items():
            pairs = zip(row_counts.rows, row_counts.counts, strict=True)
            left = {row: n for row, n in pairs if row[0] in keys}
            named[place] = RowCounts(tuple(left), numbers(left.values()))
        return PackedTable(
            histograms,
            RowCounts(tuple(kept), numbers(list(chain.from_iterable(kept.values())))),
            named,
            {key: facts for key, facts in self.facts.items() if key in keys},
        )

    @property
    def all_rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of each part."""
        yield from (packed.rows for packed in self.histograms.values())
        yield self.counts.rows
        yield from (counts.rows for counts in self.named.values())


class PackedRows(Mapping[Row, V]):
    """The rows of a packed table, whose values are made when they are read."""

    def __init__(self, table: Table[Row, V], packed: PackedTable, keys: Iterable[Row] | None = None) -> None:
        """`keys`: of the rows; without them all that are timed, or counted."""
        self._table, self.packed = table, packed
        if keys is None:
            keys = chain.from_iterable(histograms.rows for histograms in packed.histograms.values())
            if not table.is_timed:
                keys = chain(packed.counts.rows, (key for key, _ in _names_in(packed)), keys)
        self._keys = dict.fromkeys(keys)
        self._made: dict[Row, V] = {}

    def __getitem__(self, key: Row) -> V:
        value = self._made.get(key)
        if value is None:
            if key not in self._keys:
                raise KeyError(key)
            value = self._made[key] = self._value(key)
        return value

    def get(self, key: Row, default: Any = None) -> Any:
        """Return a row; Mapping's own catches a KeyError for each key that is missing."""
        return self[key] if key in self._keys else default

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Row]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    @cached_property
    def _counts(self) -> Mapping[Row, tuple[int, ...]]:
        return self.packed.counts.by_row

    @cached_property
    def _named(self) -> Mapping[int, Mapping[Row, Mapping[str, int]]]:
        by_place: dict[int, Mapping[Row, Mapping[str, int]]] = {}
        for place, counts in self.packed.named.items():
            of_rows: dict[Row, dict[str, int]] = {}
            for (key, name), n in zip(counts.rows, counts.counts, strict=True):
                of_rows.setdefault(key, {})[name] = n
            by_place[place] = of_rows
        return by_place

    def _value(self, key: Row) -> V:
        counts = [None if n == UNKNOWN else n for n in self._counts.get(key, ())]
        packed = self.packed
        return made_value(
            self._table, key, histograms=packed.histograms, counts=counts, named=self._named, facts=packed.facts
        )


def made_value(
    table: Table[Row, V],
    key: Row,
    *,
    histograms: Mapping[int, Mapping[Row, Histogram]],
    counts: Sequence[int | None],
    named: Mapping[int, Mapping[Row, Mapping[str, int]]],
    facts: Mapping[Row, tuple[Any, ...]],
) -> V:
    """Return a row's value by its parts, of which any may have nothing of it.

    `histograms` and `named` are by the place of a cell; `counts` are those of the row, empty without any.
    """
    cells = list(table.empty_cells)
    if len(counts) == len(cells):  # all cells are counts
        return table.value.make(*counts)
    for place, column in histograms.items():
        if key in column:
            cells[place] = column[key]
    for place, content in zip(table.count_places, counts, strict=False):
        cells[place] = content
    for place, names in named.items():
        cells[place] = dict(names.get(key, cells[place]))
    for place, content in zip(table.fact_places, facts.get(key, ()), strict=False):
        cells[place] = content
    return table.value.make(*cells)


def _names_in(packed: PackedTable) -> Iterator[tuple[Any, str]]:
    for counts in packed.named.values():
        yield from counts.rows


@dataclass(frozen=True, slots=True)
class PackedFrame:
    """The tables of one frame, or of a sum of frames."""

    tables: Mapping[AnyTable, PackedTable] = field(default_factory=dict)
    traced: Traced = field(default_factory=Traced)
    """State of the tracer, without its tables."""
    thresholds_us: Mapping[str, int] = field(default_factory=dict)
    frames_by_rate: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Sampling rate -> frames that have rows of the sample. A sum of them is subtracted like its frames."""

    @property
    def one_in(self) -> int:
        """I/Os that each one of the rows of the sample stands for; 0: there is none."""
        return gcd(*self.frames_by_rate)


def pack(frame: Frame, tables: Iterable[AnyTable] = SUMMED) -> PackedFrame:
    """Return the rows of these tables of a frame."""
    packed: dict[AnyTable, PackedTable] = {}
    for table in tables:
        derive = _DERIVED.get(table)
        rows = frame[table] if derive is None else derive(frame)
        if rows or isinstance(rows, WithIdle):
            packed[table] = pack_table(table, rows)
    return PackedFrame(packed, state_of(frame.traced), frame.thresholds_us, frames_by_rate(frame))


def _counters(frame: Frame) -> Mapping[str, int]:
    counted = {OFF: frame.traced.off, SUPPRESSED: frame.health.suppressed, FILES_LEFT_OUT: frame.files_left_out}
    return {name: n for name, n in counted.items() if n}


def _rates(frame: Frame) -> Mapping[Rate, int]:
    return {Rate(one_in): 1 for one_in in frame.traced.sampled if one_in}


def _seen_alone(frame: Frame) -> Mapping[Flow, Completed]:
    return {flow: done for flow, done in busy_rows(frame.seen).items() if flow not in frame.kernel}


_DERIVED: Mapping[AnyTable, Callable[[Frame], Mapping[Any, Any]]] = {
    COUNTERS: _counters,
    RATES: _rates,
    SEEN_ALONE: _seen_alone,
    COVERAGE: by_device,
}
"""Tables that are made of other parts of a frame."""


def state_of(traced: Traced) -> Traced:
    """Return the state of the tracer without what it counted."""
    return Traced(
        one_in=traced.one_in,
        devices=traced.devices,
        includes=traced.includes,
        bio_includes=traced.bio_includes,
        absent=traced.absent,
    )


def one_in_of(frame: Frame) -> int:
    """Return how many I/Os each one of the frame's sampled rows stands for; 0 where it has none."""
    has_sample = frame.traced.off or any(_has_sample(table, frame[table]) for table in _SAMPLED)
    return max(frame.traced.one_in, 1) if has_sample else 0


def frames_by_rate(frame: Frame) -> Mapping[int, int]:
    """Return the frame's sampling rate -> 1; empty where it has no sample."""
    return _one_frame(one_in_of(frame))


@lru_cache(64)
def _one_frame(one_in: int) -> Mapping[int, int]:
    """Return one object for all frames with a rate."""
    return MappingProxyType({one_in: 1} if one_in else {})


def _has_sample(table: AnyTable, rows: Mapping[Any, Any]) -> bool:
    return bool(rows) and (table.is_sampled is always or any(map(table.is_sampled, rows)))


def pack_table(table: Table[Row, V], rows: Mapping[Row, V]) -> PackedTable:
    """Return the rows of a table; those of idle devices apart."""
    if table.value.pack is not None:
        return PackedTable({0: table.value.pack(rows)})
    busy, idle = busy_rows(rows), rows.idle if isinstance(rows, WithIdle) else None
    if isinstance(busy, PackedRows):
        return busy.packed if idle is None else replace(busy.packed, idle=idle)
    all_cells = [table.value.split(value) for value in busy.values()]
    histograms: dict[int, Packed[Row]] = {}
    for place in table.histogram_places:
        histograms[place] = Packed.of(dict(zip(busy, [cells[place] for cells in all_cells], strict=True)))
    return PackedTable(
        histograms,
        _pack_counts(table, busy, all_cells),
        {place: _pack_named(busy, all_cells, place) for place in table.named_places},
        _facts(table, busy, all_cells),
        idle,
    )


def _pack_counts(table: AnyTable, rows: Iterable[Any], all_cells: Sequence[tuple[Any, ...]]) -> RowCounts[Any]:
    places = table.count_places
    if not places:
        return RowCounts()
    counts: list[int] = []
    for cells in all_cells:
        counts += [UNKNOWN if cells[place] is None else cells[place] for place in places]
    return RowCounts(tuple(rows), numbers(counts))


def _pack_named(rows: Collection[Any], all_cells: Sequence[tuple[Any, ...]], place: int) -> RowCounts[tuple[Any, str]]:
    counts: dict[tuple[Any, str], int] = {}
    for key, cells in zip(rows, all_cells, strict=True):
        for name, n in cells[place].items():
            if n:
                counts[key, name] = n
    return RowCounts(tuple(counts), numbers(counts.values()))


def _facts(table: AnyTable, rows: Collection[Any], all_cells: Sequence[tuple[Any, ...]]) -> dict[Any, tuple[Any, ...]]:
    if not table.fact_places:
        return {}
    return {
        key: tuple([cells[place] for place in table.fact_places]) for key, cells in zip(rows, all_cells, strict=True)
    }


class Pressed:
    """A compressed PackedFrame of a few kB, for values that are rarely read again."""

    def __init__(self, packed: PackedFrame) -> None:
        self._without_tables = replace(packed, tables={})
        self._tables = {table: _rows_alone(rows) for table, rows in packed.tables.items()}
        arrays = list(chain.from_iterable(map(_arrays_of, packed.tables.values())))
        self._shapes = [(column.typecode, len(column) * column.itemsize) for column in arrays]
        # level 1: half the time of the default for 10 % more bytes
        self.numbers = zlib.compress(b"".join([column.tobytes() for column in arrays]), 1)

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of each part of each table."""
        for table in self._tables.values():
            yield from table.all_rows

    @property
    def packed(self) -> PackedFrame:
        arrays = self._arrays()
        tables = {table: _with_arrays(rows_alone, arrays) for table, rows_alone in self._tables.items()}
        return replace(self._without_tables, tables=tables)

    def _arrays(self) -> Iterator[array[int]]:
        content, begin = zlib.decompress(self.numbers), 0
        for code, size in self._shapes:
            column: array[int] = array(code)
            column.frombytes(content[begin : begin + size])
            begin += size
            yield column


def _rows_alone(table: PackedTable) -> PackedTable:
    """Return the keys and facts without numbers."""
    return replace(
        table,
        histograms={place: Packed(packed.rows) for place, packed in table.histograms.items()},
        counts=RowCounts(table.counts.rows),
        named={place: RowCounts(counts.rows) for place, counts in table.named.items()},
    )


def _arrays_of(table: PackedTable) -> Iterator[array[int]]:
    """Yield the numbers in the order in which `_with_arrays` takes them."""
    for packed in table.histograms.values():
        yield packed.ends
        yield array("B", packed.indices)
        yield packed.counts
        yield packed.sums
        yield packed.maxima
        yield array("B", packed.scales)
    yield table.counts.counts
    for counts in table.named.values():
        yield counts.counts


def _with_arrays(table: PackedTable, arrays: Iterator[array[int]]) -> PackedTable:
    histograms: dict[int, Packed[Any]] = {}
    for place, packed in table.histograms.items():
        ends, indices, counts, sums, maxima, scales = islice(arrays, _PER_HISTOGRAM)
        histograms[place] = Packed(
            packed.rows, ends, indices.tobytes(), counts, sums=sums, maxima=maxima, scales=scales.tobytes()
        )
    return replace(
        table,
        histograms=histograms,
        counts=RowCounts(table.counts.rows, next(arrays)),
        named={place: RowCounts(counts.rows, next(arrays)) for place, counts in table.named.items()},
    )
