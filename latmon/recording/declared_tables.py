"""Declared tables as the values of a window's line, and back.

A table of counts is a list of rows: the parts of the key, then the cells. A table with a histogram is an object with
`rows` and the flat arrays of packed_tables, a histogram for each row; with several histograms it has the arrays of each
in an object of its name. Where rows share parts of their keys, `by` has these once, and a row begins with their place
in it: names of cgroups and mount points are long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any

from latmon.model.measurements import TABLES
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.model.packed_frame import PackedRows, PackedTable, RowCounts
from latmon.model.table import AnyTable, Cell, Meaning, Part, Tables, Unit
from latmon.recording import validate
from latmon.recording.packed_tables import MAX_IN_TABLE, encode_table, table
from latmon.recording.validate import (
    Line,
    Read,
    RecordField,
    RowDecoder,
    count,
    few_labels,
    flag,
    label,
    mapped,
    one_of,
    optional,
    text,
    whole,
    within,
)
from latmon.support.errors import RecordingError

Cells = tuple[Any, ...]
Pick = Callable[[Cells], Cells]
_NO_DEFAULT = object()
_OF_LINES = tuple(table for table in TABLES if not table.attribute)
"""Tables with a key of their own in a line; those of a frame's attributes have forms of their own (records.py)."""


def reader_of(part: Part) -> Read:
    """Return the check of a part of a key."""
    if part.names:
        return one_of(*part.names)
    if part.highest is None:
        return label
    if part.is_power_of_two:
        return _power_of_two
    return within(part.lowest, part.highest)


def reader_of_cell(cell: Cell) -> Read:
    """Return the check of a cell that is no histogram."""
    if cell.unit is Unit.NAMED:
        return mapped(_summable, cell.most)
    if cell.unit is not Unit.FACT:
        return optional(_summable) if cell.may_be_unknown else _summable
    if isinstance(cell.unknown, tuple):
        return few_labels(cell.most)
    if isinstance(cell.unknown, bool):
        return flag
    return text if cell.part.meaning is Meaning.LISTED else reader_of(cell.part)


def _summable(value: Any, key: str) -> int:
    """Return a count that sums over windows can't bring beyond 63 bits, where they would stay at the largest number."""
    if type(value) is int and 0 <= value <= MAX_IN_TABLE:
        return value
    return whole(value, key, 0, MAX_IN_TABLE)


def _writer_of(cell: Cell) -> Callable[[Any], Any]:
    """Return what makes JSON of a cell that is no histogram."""
    if cell.unit is Unit.NAMED:
        return dict
    return list if isinstance(cell.unknown, tuple) else _itself


def _itself(content: Any) -> Any:
    return content


def _power_of_two(value: Any, key: str) -> int:
    number = count(value, key)
    if number & (number - 1):
        raise RecordingError(f"{key!r} is {number}, which is no power of two")
    return number


def _picker(places: Sequence[int]) -> Pick:
    """Return a function that takes the cells at these places."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda cells: tuple(cells[place] for place in places)


class TableCodec:
    """Encoder and decoder of one declared table."""

    def __init__(self, declared: AnyTable) -> None:
        self._table = declared
        self._parts_of = declared.parts_of
        names, shared = declared.part_names, declared.named_once
        own = tuple(name for name in names if name not in shared)
        self._shared, self._defaults = shared, getattr(declared.key, "_field_defaults", {})
        self._shared_parts = _picker([names.index(name) for name in shared])
        self._own_parts = _picker([names.index(name) for name in own])
        cells = declared.value.cells
        in_row = [place for place, cell in enumerate(cells) if not cell.is_histogram and not cell.of_key]
        self._contents_of = _picker(in_row)
        writers = [_writer_of(cells[place]) for place in in_row]
        self._writers = writers if any(write is not _itself for write in writers) else ()
        self._optional = [cells[place].empty for place in in_row if cells[place].is_optional]
        self._histograms = [(cells[place].name, place) for place in declared.histogram_places]
        readers = dict(zip(names, map(reader_of, declared.parts), strict=True))
        contents = [(cells[place].name, reader_of_cell(cells[place])) for place in in_row]
        self._first_cell = len(own) + bool(shared)
        self._in_row = {
            place: bool(shared) + own.index(cell.name) if cell.of_key else self._first_cell + in_row.index(place)
            for place, cell in enumerate(cells)
            if not cell.is_histogram
        }
        """Place of a cell -> its place in a row."""
        self._counts_of = _picker([self._in_row[place] for place in declared.count_places])
        self._facts_of = _picker([self._in_row[place] for place in declared.fact_places])
        place_in_by = [("by", within(0, validate.MAX_ITEMS))] if shared else []
        own_parts = [(name, readers[name]) for name in own]
        self._width = self._first_cell + len(contents)
        make = self._padded if self._optional else _cells
        self._row = RowDecoder(make, *place_in_by, *own_parts, *contents, optional=len(self._optional))
        optional = sum(name in self._defaults for name in shared)
        self._names = RowDecoder(self._with_defaults, *((name, readers[name]) for name in shared), optional=optional)
        written = [*own, *shared]
        self._key_parts = _picker([written.index(name) for name in names])

    def encode(self, rows: Mapping[Any, Any]) -> Any:
        """Return the value of a line; empty without a row."""
        if not self._histograms:
            return [self._encode_row(key, value, {}) for key, value in rows.items()]
        if not rows:
            return {}
        line: Line = {}
        places: dict[Cells, int] = {}
        if self._shared:
            for key in rows:
                places.setdefault(self._shared_parts(self._parts_of(key)), len(places))
            line["by"] = [self._without_defaults(parts) for parts in places]
        line["rows"] = [self._encode_row(key, value, places) for key, value in rows.items()]
        arrays = {name: encode_table(Packed.of(self._table.column(rows, place))) for name, place in self._histograms}
        return line | (arrays if len(arrays) > 1 else next(iter(arrays.values())))

    def decode(self, value: Any, key: str) -> Mapping[Any, Any]:
        """Return the rows; RecordingError where a row is impossible, or there twice."""
        if not self._histograms:
            rows = self._row.read_all(validate.items(value, key), key)
            return self._checked([self._key(cells) for cells in rows], rows, {}, key)
        line = validate.mapping(value, key)
        names = self._names.read_all(validate.items(line.get("by", []), "by"), "by")
        rows = self._row.read_all(validate.items(line.get("rows", []), "rows"), "rows")
        if self._shared:
            if any(cells[0] >= len(names) for cells in rows):
                raise RecordingError(f"{key!r} has a row of {self._table.row_title} that 'by' lacks")
            keys = [self._key((*cells[1 : self._first_cell], *names[cells[0]])) for cells in rows]
        else:
            keys = [self._key(cells) for cells in rows]
        tables = [line]
        if len(self._histograms) > 1:
            tables = [validate.mapping(line.get(name, {}), name) for name, _ in self._histograms]
        places = [place for _, place in self._histograms]
        columns = {place: table(arrays, keys) for place, arrays in zip(places, tables, strict=True)}
        return self._checked(keys, rows, columns, key)

    def _key(self, written: Cells) -> Any:
        """Return the key of its parts in the order of a line."""
        return self._table.key_of(self._key_parts(written))

    def _checked(
        self, keys: list[Any], rows: list[Cells], columns: Mapping[int, Packed[Any]], key: str
    ) -> Mapping[Any, Any]:
        """Return the rows in packed form; `columns`: the histograms by the place of their cell."""
        declared = self._table
        validate.require_once(keys)
        self._refuse_impossible(rows, columns, key)
        if declared.value.unpack is not None:
            (histograms,) = columns.values()
            return declared.value.unpack(histograms)
        counts: list[int] = []
        for cells in rows:
            counts += [UNKNOWN if n is None else n for n in self._counts_of(cells)]
        named: dict[int, RowCounts[tuple[Any, str]]] = {}
        for place in declared.named_places:
            at = self._in_row[place]
            of_names: dict[tuple[Any, str], int] = {}
            for about, cells in zip(keys, rows, strict=True):
                of_names.update({(about, name): n for name, n in cells[at].items()})
            named[place] = RowCounts(tuple(of_names), numbers(of_names.values()))
        facts = dict(zip(keys, map(self._facts_of, rows), strict=True)) if declared.fact_places else {}
        packed = PackedTable(columns, RowCounts(tuple(keys), numbers(counts)), named, facts)
        return PackedRows(declared, packed, keys)

    def _refuse_impossible(self, rows: list[Cells], columns: Mapping[int, Packed[Any]], key: str) -> None:
        impossible = self._table.value.impossible
        if impossible is None:
            return
        places = self._table.histogram_places
        timed = zip(*(columns[place].counts_by_row for place in places), strict=True) if places else repeat(())
        for cells, counts in zip(rows, timed, strict=False):
            if why := impossible(*self._counts_of(cells), *counts):
                raise RecordingError(f"{key!r} {why}")

    def _encode_row(self, key: Any, value: Any, places: Mapping[Cells, int]) -> list[Any]:
        place = [places[self._shared_parts(self._parts_of(key))]] if self._shared else []
        contents = self._contents_of(self._table.value.split(value))
        if self._writers:
            contents = tuple(write(cell) for write, cell in zip(self._writers, contents, strict=True))
        row = [*place, *self._own_parts(self._parts_of(key)), *contents]
        for empty in reversed(self._optional):
            if row[-1] != empty:
                break
            row.pop()
        return row

    def _padded(self, *cells: Any) -> Cells:
        """Return the cells of a row, with the optional ones that a line leaves out."""
        missing = self._width - len(cells)
        return (*cells, *self._optional[len(self._optional) - missing :]) if missing else cells

    def _with_defaults(self, *parts: Any) -> Cells:
        """Return the parts that rows share, with those that a line leaves out."""
        return (*parts, *(self._defaults[name] for name in self._shared[len(parts) :]))

    def _without_defaults(self, parts: Cells) -> list[Any]:
        """Return the parts without those at the end that a reader adds by itself."""
        kept = list(parts)
        while kept and self._defaults.get(self._shared[len(kept) - 1], _NO_DEFAULT) == kept[-1]:
            kept.pop()
        return kept


def _cells(*cells: Any) -> Cells:
    return cells


def table_fields() -> Iterator[RecordField]:
    """Yield the field of each declared table in a window's line."""
    for declared in _OF_LINES:
        codec, rows_of = TableCodec(declared), itemgetter(declared)
        yield RecordField(declared.name, codec.decode, write=codec.encode, get=rows_of, default=validate.NOTHING)


def tables_in(values: dict[str, Any]) -> Tables:
    """Take the declared tables out of the values of a window, which have them by their names."""
    return {declared: values.pop(declared.name) for declared in _OF_LINES}
