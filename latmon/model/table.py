"""Table: the declaration of a measurement that a frame holds per key, from which everything generic is derived.

A declaration says what a key and a value consist of. Sums, recordings, the merge of a fleet, redaction, the selection
of devices and the export are loops over declarations (measurements.TABLES): they name no table.

    class Behind(NamedTuple):
        device: str
        cgroup: str
        other: str

    BEHIND = Table(
        "behind",
        Behind,
        (DEVICE, CGROUP, CGROUP),
        count("us", Unit.MICROSECONDS),
        group="issuers",
        export_name="behind",
    )

A value consists of cells. A cell is a count or counts by name, which are added up, a histogram of latencies, which is
merged, or a fact such as the name of a thread, of which a sum has the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from dataclasses import fields as fields_of
from enum import Enum
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.model.histogram import BITS, EMPTY, Histogram, merge
from latmon.model.packed import Packed, TimesByBucket

Row = TypeVar("Row")
"""Key of a table's rows: a NamedTuple, or a text where it has one part."""
K = TypeVar("K")
V = TypeVar("V")

MAX_NAMES = 65_536
"""A table of a recording has at most so many rows, and a row so many names."""
MAX_PID = (1 << 32) - 1
"""A probe's record has 32 bits; the kernel's own PID_MAX_LIMIT is 2^22."""
_NONE_NAMED: Mapping[str, int] = MappingProxyType({})
NO_TABLES: Tables = MappingProxyType({})


class Meaning(Enum):
    """What a part of a key is to those who rename, hide or select it."""

    DEVICE = "device"
    """A device's name: a fleet puts the host in front, and a frame of selected devices has only their rows."""
    CGROUP = "cgroup"
    """A cgroup's path: a fleet puts the host in front, redaction hides it."""
    MOUNT = "mount"
    """A mount point: a fleet puts the host in front, redaction hides it."""
    NAME = "name"
    """A name that two hosts may have: a fleet puts the host in front."""
    THREAD = "thread"
    """A thread's name and priority: redaction hides those of programs."""
    THREAD_NUMBER = "thread number"
    """A fleet gives each host's threads numbers of their own."""
    LISTED = "listed"
    """Several such names in one text, with a comma and a blank between them."""
    PRIVATE = "private"
    """Redaction leaves it empty (0 for a number)."""
    PROCESS = "process"
    """A process as NAME/PID: probes have its number, redaction leaves it empty."""
    OP = "op"
    """One of OPS; probes have its number."""
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a key: its meaning, and the values that it can have.

    A part is a text, or with `highest` a whole number from `lowest` up to that.
    """

    meaning: Meaning = Meaning.PLAIN
    highest: int | None = None
    lowest: int = 0
    names: tuple[str, ...] = ()
    """All texts that are possible; empty: any."""
    is_power_of_two: bool = False
    """Of a number: 0 or a power of two."""
    probe_part: str = ""
    """The part of the keys of probes' maps that has its code; empty: no code stands for it alone."""
    from_code: Callable[[int], Any] | None = None
    """What a code stands for; None: its place in `names`, or the number itself where there are no names."""

    @property
    def in_probes(self) -> str:
        """Return the part of the keys of probes' maps from which it is decoded; empty where that takes more."""
        return _IN_PROBES.get(self.meaning, self.probe_part)

    def of_code(self, code: int) -> Any:
        """Return what a code of `probe_part` stands for; None where the part can't have it."""
        if self.from_code is not None:
            return self.from_code(code)
        if self.names:
            return self.names[code] if code < len(self.names) else None
        is_possible = self.highest is None or self.lowest <= code <= self.highest
        return code if is_possible else None


_IN_PROBES = {Meaning.DEVICE: "dev", Meaning.OP: "op"}
DEVICE, OP = Part(Meaning.DEVICE), Part(Meaning.OP)
CGROUP, MOUNT = Part(Meaning.CGROUP), Part(Meaning.MOUNT)
TEXT, PRIVATE_TEXT = Part(), Part(Meaning.PRIVATE)
PRIVATE_PID = Part(Meaning.PRIVATE, highest=MAX_PID)


class Unit(Enum):
    """Unit of a cell."""

    IOS = "ios"
    EVENTS = "events"
    BYTES = "bytes"
    MICROSECONDS = "us"
    LATENCIES = "latencies"
    """A histogram."""
    NAMED = "named"
    """Counts by name."""
    FACT = "fact"
    """No number: a name, a list of names or a setting. All others are counts."""


_EMPTY: Mapping[Unit, Any] = MappingProxyType({Unit.LATENCIES: EMPTY, Unit.NAMED: _NONE_NAMED})


@dataclass(frozen=True, slots=True)
class Cell:
    """One number, histogram or fact of a value."""

    name: str
    unit: Unit
    bits: int = BITS
    """Scale of a histogram."""
    part: Part = TEXT
    """Meaning of a fact or of the names of counts, and the values that they can have."""
    unknown: Any = ""
    """A fact that isn't known; its type is that of the others: a text, a whole number, a flag or a tuple of names."""
    most: int = 64
    """Names that a row can have."""
    is_optional: bool = False
    """Whether a recording's row ends before it where it is empty: earlier releases have no such cell."""
    of_key: bool = False
    """Whether it is the part of the key with its name, which a recording's row has once."""
    may_be_unknown: bool = False
    """Of a count: whether a source may not report it (None). A sum is unknown where one of its parts is."""
    has_maximum: bool = True
    """Whether its histograms can have an exact maximum."""

    @property
    def is_count(self) -> bool:
        return self.unit not in (Unit.LATENCIES, Unit.NAMED, Unit.FACT)

    @property
    def is_histogram(self) -> bool:
        return self.unit is Unit.LATENCIES

    @property
    def empty(self) -> Any:
        """Return what a row has where nothing was counted."""
        if self.may_be_unknown:
            return None
        return self.unknown if self.unit is Unit.FACT else _EMPTY.get(self.unit, 0)

    def sum_contents(self, contents: Sequence[Any]) -> Any:
        """Return the sum of contents, which is the last one of facts."""
        if self.unit is Unit.LATENCIES:
            return merge(contents)
        if self.unit is Unit.NAMED:
            return _sum_named(pair for named in contents for pair in named.items())
        if self.unit is Unit.FACT:
            return contents[-1]
        return None if self.may_be_unknown and None in contents else sum(contents)

    def scale(self, content: Any, factor: int) -> Any:
        """Return `factor` times as much; a fact as it is."""
        if self.unit is Unit.LATENCIES:
            return content.scaled(factor)
        if self.unit is Unit.NAMED:
            return {name: n * factor for name, n in content.items()}
        return content if self.unit is Unit.FACT or content is None else content * factor

    def with_new_names(self, content: Any, new_name: Callable[[Any], Any]) -> Any:
        """Return a fact, or counts by name, with other names."""
        if self.unit is Unit.FACT:
            return tuple(map(new_name, content)) if isinstance(content, tuple) else new_name(content)
        return _sum_named((new_name(name), n) for name, n in content.items())


def _sum_named(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for name, n in counts:
        sums[name] = sums.get(name, 0) + n
    return sums


def fact(name: str, unknown: Any, part: Part = TEXT, *, is_optional: bool = False, of_key: bool = False) -> Cell:
    """Return the declaration of a fact."""
    return Cell(name, Unit.FACT, part=part, unknown=unknown, is_optional=is_optional, of_key=of_key)


def named(name: str, part: Part = TEXT, *, is_optional: bool = False) -> Cell:
    """Return the declaration of counts of any number of names."""
    return Cell(name, Unit.NAMED, part=part, most=MAX_NAMES, is_optional=is_optional)


class MapRole(NamedTuple):
    """Content of a probe's map that fills a cell of a declared table."""

    cell: Cell
    parts: tuple[str, ...]
    """Parts that its keys have."""
    is_sum: bool = False
    """Whether it has the sums of the histogram in us, and another map its buckets."""


@dataclass(frozen=True)
class Value(Generic[V]):
    """A value as its cells: `split` returns their contents, `make` takes them, both in the order of `cells`."""

    cells: tuple[Cell, ...]
    make: Callable[..., V]
    split: Callable[[V], tuple[Any, ...]]
    impossible: Callable[..., str] | None = None
    """Returns why no I/Os can have such numbers, empty where some can; None: all are possible.

    It takes the counts in the order of `cells`, then those of the histograms."""
    pack: Callable[[Mapping[Any, V]], Packed[Any]] | None = None
    """Of a value that is one histogram: return rows as arrays. Other values are packed cell by cell."""
    unpack: Callable[[Packed[Any]], Mapping[Any, V]] | None = None
    """The way back of `pack`, which need not make all values."""

    def add(self, first: V, second: V) -> V:
        """Return the sum of two values; its facts are those of the second."""
        return self.sum_values((first, second))

    def sum_values(self, values: Sequence[V]) -> V:
        """Return the sum of values; its facts are those of the last one."""
        columns = zip(*map(self.split, values), strict=True)
        return self.make(*[cell.sum_contents(contents) for cell, contents in zip(self.cells, columns, strict=True)])

    def scale(self, value: V, factor: int) -> V:
        """Return `factor` times as many I/Os of the same sizes and latencies."""
        cells = zip(self.cells, self.split(value), strict=True)
        return self.make(*[cell.scale(content, factor) for cell, content in cells])

    def with_new_names(self, value: V, new_names: Mapping[Meaning, Callable[[Any], Any]]) -> V:
        """Return the value with other names in its facts and counts; `new_names`: as Table.with_new_names takes it."""
        contents = [
            cell.with_new_names(content, new_names[cell.part.meaning]) if cell.part.meaning in new_names else content
            for cell, content in zip(self.cells, self.split(value), strict=True)
        ]
        return self.make(*contents)


def _alone(content: V) -> tuple[V]:
    return (content,)


def _itself(content: V) -> V:
    return content


def count(name: str, unit: Unit) -> Value[int]:
    """Return the declaration of a value that is one count."""
    return Value((Cell(name, unit),), _itself, _alone)


def latencies() -> Value[Histogram]:
    """Return the declaration of a value that is one histogram."""
    return Value((Cell("latency", Unit.LATENCIES),), _itself, _alone, pack=Packed.of, unpack=_itself)


def named_counts(part: Part = TEXT, most: int = MAX_NAMES) -> Value[Mapping[str, int]]:
    """Return the declaration of a value that is counts by name, of at most so many names."""
    return Value((Cell("counts", Unit.NAMED, part=part, most=most),), _itself, _alone)


def times_by_bucket() -> Value[Mapping[int, int]]:
    """Return the declaration of times in us by bucket: a histogram whose counts are microseconds."""
    cell = Cell("times", Unit.LATENCIES, has_maximum=False)
    return Value((cell,), _by_bucket, _as_histogram, pack=TimesByBucket.pack, unpack=TimesByBucket)


def _by_bucket(histogram: Histogram) -> Mapping[int, int]:
    return dict(histogram.buckets)


def _as_histogram(times: Mapping[int, int]) -> tuple[Histogram]:
    return (Histogram(tuple(sorted(times.items()))),)


def record(
    make: Callable[..., V], *, impossible: Callable[..., str] | None = None, bits: int = BITS, **fields: Unit | Cell
) -> Value[V]:
    """Return the declaration of a dataclass: its fields in order, each with its unit; `bits` of its histogram."""
    cells = tuple(
        declared if isinstance(declared, Cell) else Cell(name, declared, bits) for name, declared in fields.items()
    )
    return Value(cells, make, _splitter(tuple(fields)), impossible)


def record_of_counts(
    make: Callable[..., V],
    *,
    others: Unit = Unit.IOS,
    optional: Collection[str] = (),
    impossible: Callable[..., str] | None = None,
) -> Value[V]:
    """Return the declaration of a dataclass of counts, whose names end with their unit; None: a source has none.

    `others`: the unit of names without one. A field with the default None may be unknown; a recording's row ends before
    it, and before the fields of `optional`, where they are empty.
    """
    cells: list[Cell] = []
    for declared in fields_of(make):  # type: ignore[arg-type] # a dataclass
        unit = Unit.MICROSECONDS if declared.name.endswith("_us") else others
        if declared.name.endswith("bytes"):
            unit = Unit.BYTES
        may_be_unknown = declared.default is None
        is_optional = may_be_unknown or declared.name in optional
        cells.append(Cell(declared.name, unit, may_be_unknown=may_be_unknown, is_optional=is_optional))
    return Value(tuple(cells), make, _splitter([cell.name for cell in cells]), impossible)


def _splitter(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a getter of the attributes with these names, as a tuple also where it is one."""
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda value: (getter(value),)


def never(_: object) -> bool:
    """Return False, for a declaration that is true of no row."""
    return False


def always(_: object) -> bool:
    """Return True, for a declaration that is true of each row."""
    return True


@dataclass(frozen=True, eq=False)
class Table(Generic[Row, V]):
    """The declaration of a measurement. Tables are compared by identity."""

    name: str
    """Key of the table in a recording's line."""
    key: type[Row]
    """A NamedTuple; `str` where it has one part."""
    parts: tuple[Part, ...]
    """The fields of the key, in order."""
    value: Value[V]
    _: KW_ONLY
    group: str
    """Tables of a group are summed up when one of them is read."""
    export_name: str
    """Its name in an export, in the singular."""
    help_text: str = ""
    """What its counts are, for a metric's HELP; without a full stop."""
    row_title: str = "a row"
    """A row in a sentence about damage."""
    attribute: str = ""
    """The attribute of a frame that has the rows (`traced.paths`); empty: `frame.tables` has them."""
    exact_times: AnyTable | None = None
    """A table with the times of the same I/Os that lacks none of them; a sum's histograms have these."""
    is_sampled: Callable[[Row], bool] = never
    """Whether a row counts one I/O in `one_in` of the tracer; other rows count all I/Os."""
    counts_ios: bool = True
    """Whether rows are of I/Os, so that an export of who issued them (csv --who) has them."""
    counts_nothing_too: bool = False
    """Whether a row without I/Os says that they are counted; else such rows are left out of sums."""
    is_timed: bool = False
    """Whether a sum has only rows with latencies: other counts are of what has not ended yet. A table with facts has
    them as long as its latencies."""
    has_own_decoder: bool = False
    """Whether a decoder of its own makes the rows although a probe's key has a code for each part."""
    named_once: tuple[str, ...] = ()
    """Parts of the key that a recording's line names once for all rows that share them."""
    is_private_row: Callable[[Row], bool] = never
    """Whether redaction leaves the row out, because another row has its I/Os as well."""
    about: Callable[[Row], tuple[str, str, str | None]] | None = None
    """Table, name and detail of a row in an export; None: `export_name` and the parts after device and op."""

    def __post_init__(self) -> None:
        if len(self.part_names) != len(self.parts):
            raise TypeError(f"{self.name}: its key has {len(self.part_names)} fields, {len(self.parts)} are declared")
        if self.fact_places and not self.is_timed:
            raise TypeError(f"{self.name}: it has facts, and rows without latencies")

    @cached_property
    def empty_cells(self) -> tuple[Any, ...]:
        """Contents of a value of which nothing was counted, in the order of its cells."""
        return tuple(cell.empty for cell in self.value.cells)

    @cached_property
    def part_names(self) -> tuple[str, ...]:
        """Names of the key's fields."""
        if self.key is str:
            return ("name",)
        names: tuple[str, ...] = self.key._fields  # type: ignore[attr-defined] # of a NamedTuple
        return names

    @cached_property
    def attribute_of(self) -> Callable[[Any], Any]:
        """Getter of `attribute`."""
        return attrgetter(self.attribute)

    def parts_of(self, key: Row) -> tuple[Any, ...]:
        """Return the parts of a key."""
        parts: tuple[Any, ...] = (key,) if self.key is str else key  # type: ignore[assignment] # a NamedTuple
        return parts

    def key_of(self, parts: Iterable[Any]) -> Row:
        """Return the key with these parts."""
        make: Callable[[Iterable[Any]], Row] = next if self.key is str else self.key._make  # type: ignore[attr-defined, assignment]
        return make(iter(parts))

    @cached_property
    def histogram_places(self) -> tuple[int, ...]:
        """Places of the histograms among the cells."""
        return self._places(lambda cell: cell.is_histogram)

    @cached_property
    def count_places(self) -> tuple[int, ...]:
        """The same of the counts."""
        return self._places(lambda cell: cell.is_count)

    @cached_property
    def named_places(self) -> tuple[int, ...]:
        """The same of counts by name."""
        return self._places(lambda cell: cell.unit is Unit.NAMED)

    @cached_property
    def fact_places(self) -> tuple[int, ...]:
        """The same of the facts."""
        return self._places(lambda cell: cell.unit is Unit.FACT)

    def place_of(self, name: str) -> int:
        """Return the place of a cell."""
        return next(place for place, cell in enumerate(self.value.cells) if cell.name == name)

    def _places(self, is_wanted: Callable[[Cell], bool]) -> tuple[int, ...]:
        return tuple(place for place, cell in enumerate(self.value.cells) if is_wanted(cell))

    @cached_property
    def roles(self) -> Mapping[str, MapRole]:
        """Roles of probes' maps; empty where a decoder of its own makes the rows.

        A histogram has a map of its buckets (`size_latency`) and one of its sums: `size_sum`, or in a table with
        several histograms one each, `softirq_delay_sum`. The keys of counts by name have the code of the name in
        `context`.
        """
        if self.attribute or self.has_own_decoder or self.fact_places or not all(part.in_probes for part in self.parts):
            return MappingProxyType({})
        parts = tuple(part.in_probes for part in self.parts)
        own_part = {Unit.LATENCIES: ("bucket",), Unit.NAMED: ("context",)}
        roles: dict[str, MapRole] = {}
        for cell in self.value.cells:
            role = f"{self.export_name}_{cell.name}"
            roles[role] = MapRole(cell, (*parts, *own_part.get(cell.unit, ())))
            if cell.is_histogram:
                sum_role = f"{role}_sum" if len(self.histogram_places) > 1 else f"{self.export_name}_sum"
                roles[sum_role] = MapRole(cell, parts, is_sum=True)
        return MappingProxyType(roles)

    def of_meaning(self, meaning: Meaning) -> tuple[int, ...]:
        """Return the places of the parts with this meaning."""
        return tuple(place for place, part in enumerate(self.parts) if part.meaning is meaning)

    def column(self, rows: Mapping[Row, V], place: int) -> Mapping[Row, Any]:
        """Return one cell of each row, such as its histogram; `place`: as in `histogram_places`."""
        if self.value.pack is not None:
            return self.value.pack(rows)
        split = self.value.split
        return {key: split(value)[place] for key, value in rows.items()}

    def sum_rows(self, rows: Iterable[tuple[K, V]]) -> dict[K, V]:
        """Return the rows by key, which may be a part of theirs; those with the same key are added up."""
        values: dict[K, list[V]] = {}
        for key, value in rows:
            values.setdefault(key, []).append(value)
        add = self.value.sum_values
        return {key: same_key[0] if len(same_key) == 1 else add(same_key) for key, same_key in values.items()}

    def sum_tables(self, tables: Sequence[Mapping[Row, V]]) -> Mapping[Row, V]:
        """Return the sum of several tables' rows. Arrays without a row in common are joined as they are."""
        if self.value.pack is not None and self.value.unpack is not None and all(map(_is_packed, tables)):
            packed = [self.value.pack(rows) for rows in tables]
            if len(set().union(*packed)) == sum(map(len, packed)):
                return self.value.unpack(Packed[Any]().joined(*packed))
        return self.sum_rows(pair for rows in tables for pair in rows.items())

    def scale_rows(self, rows: Mapping[Row, V], factor: int) -> Mapping[Row, V]:
        """Return `factor` times as many I/Os of the rows that are of the tracer's sample; others as they are."""
        if self.is_sampled is never or factor == 1:
            return rows
        if self.value.pack is not None and self.value.unpack is not None:
            return self.value.unpack(self.value.pack(rows).scaled(factor, self.is_sampled))
        scale = self.value.scale
        return {key: scale(value, factor) if self.is_sampled(key) else value for key, value in rows.items()}

    def with_new_names(
        self, rows: Mapping[Row, V], new_names: Mapping[Meaning, Callable[[Any], Any]]
    ) -> Mapping[Row, V]:
        """Return the rows with other names; `new_names` has a function for each meaning that changes."""
        changes = [new_names.get(part.meaning) for part in self.parts]
        has_new_values = any(cell.part.meaning in new_names for cell in self.value.cells)
        if not has_new_values and not any(changes):
            return rows

        def renamed(key: Row) -> Row:
            parts = zip(self.parts_of(key), changes, strict=True)
            return self.key_of([part if new_name is None else new_name(part) for part, new_name in parts])

        value = self.value
        if has_new_values:
            return self.sum_rows((renamed(key), value.with_new_names(row, new_names)) for key, row in rows.items())
        if value.pack is not None and value.unpack is not None and _is_packed(rows):
            packed = value.pack(rows).renamed(renamed)
            if len(set(packed.rows)) == len(packed.rows):
                return value.unpack(packed)
        return self.sum_rows((renamed(key), row) for key, row in rows.items())


def _is_packed(rows: object) -> bool:
    return isinstance(rows, Packed | TimesByBucket)


AnyTable = Table[Any, Any]
Tables = Mapping[AnyTable, Mapping[Any, Any]]
"""Declaration -> rows by key. Tables without a row are left out."""


def filled(tables: Tables) -> Tables:
    """Return the tables that have a row."""
    return tables if all(tables.values()) else {table: rows for table, rows in tables.items() if rows}


def sum_tables(each: Iterable[Tables]) -> Tables:
    """Return the sums of several tables, row by row."""
    together: dict[AnyTable, list[Mapping[Any, Any]]] = {}
    for tables in each:
        for table, rows in tables.items():
            together.setdefault(table, []).append(rows)
    return {table: same[0] if len(same) == 1 else table.sum_tables(same) for table, same in together.items()}
