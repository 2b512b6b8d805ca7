"""Validation of untrusted JSON: checks of values, and tables of fields.

Every check takes the value and its key; it returns the value, strings cleaned, or raises RecordingError with the key.
One table of fields per kind of record gives its encoder, its decoder and its validation: a RecordCodec for JSON
objects, a RowDecoder for JSON lists. A value that is at its default is left out of an object. Unknown keys, and cells
after the last known one of a row, are ignored: a later version may add them.

This module defines the bounds of values. It knows neither line types nor files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from latmon.model.histogram import MAX_COUNT
from latmon.model.table import MAX_NAMES
from latmon.support.errors import RecordingError
from latmon.support.text import clean

MAX_LABEL = 256
MAX_SENTENCE = 1024
MAX_ITEMS = MAX_NAMES
"""Series, devices or counts in one window: 900 devices with all their ops and stages, and ten times that idle."""
MAX_NUMBER = 1e100
MAX_DEPTH = 8
MAX_WALL = 253_402_300_799.0
"""The last second of the year 9999, the last year that Python's datetime represents."""
MAX_SPAN_US = 100 * 365 * 86_400_000_000
"""A window's length: an imported table may be of all time since a boot years ago."""
Json = Mapping[str, Any]
Key = TypeVar("Key")
Value = TypeVar("Value")
T = TypeVar("T")
Line = dict[str, Any]
Read = Callable[[Any, str], Any]
"""Check of a JSON value and its key: returns the decoded value, or raises RecordingError with the key."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})
OWN = object()
"""Default of a field that the constructor sets, because the value is mutable."""
_PLAIN = ({str}, {int})


def whole(value: Any, key: str, low: int = 0, high: int = MAX_COUNT) -> int:
    """Return `value` if it is an integer within bounds."""
    if type(value) is not int or not low <= value <= high:
        raise RecordingError(f"{key!r} is not a whole number of {low} or more" if low >= 0 else f"{key!r} is no number")
    return value


def flag(value: Any, key: str) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise RecordingError(f"{key!r} is neither true nor false")
    return value


def span(value: Any, key: str) -> int:
    """Return the length of a window in microseconds."""
    if not 0 < whole(value, key) <= MAX_SPAN_US:
        raise RecordingError(f"{key!r} is {value} us, and a window lasts 1 us to 100 years")
    return int(value)


def real(value: Any, key: str) -> float:
    """Return `value` as a finite float."""
    if isinstance(value, float) and math.isfinite(value):
        return value
    if type(value) is int and -MAX_COUNT <= value <= MAX_COUNT:
        return float(value)
    raise RecordingError(f"{key!r} is no number")


def wall(value: Any, key: str) -> float:
    """Return seconds since 1970 that a calendar can show."""
    if not 0 <= (seconds := real(value, key)) <= MAX_WALL:
        raise RecordingError(f"{key!r} is no time between 1970 and the year 9999")
    return seconds


def share(value: Any, key: str) -> float:
    """Return a number of 0 or more that is small enough to be summed."""
    if not 0 <= (number := real(value, key)) <= MAX_NUMBER:
        raise RecordingError(f"{key!r} is not a number from 0 to {MAX_NUMBER:g}")
    return number


def text(value: Any, key: str) -> str:
    """Return text for a person, cut when too long."""
    if not isinstance(value, str):
        raise RecordingError(f"{key!r} is no text")
    return clean(value[: MAX_SENTENCE + 1], MAX_SENTENCE)


def label(value: Any, key: str) -> str:
    """Return a name that is used as a key. Too long a name is refused: two names that are cut may become the same."""
    if type(value) is str and len(value) <= MAX_LABEL:
        return value if value.isprintable() else clean(value, MAX_LABEL)
    if not isinstance(value, str):
        raise RecordingError(f"{key!r} is no text")
    raise RecordingError(f"{key!r} is a name of {len(value)} characters")


def labels(value: Any, key: str, most: int = MAX_ITEMS) -> tuple[str, ...]:
    """Return a list of at most `most` names."""
    return tuple(label(label_text, key) for label_text in items(value, key, most))


def items(value: Any, key: str, most: int = MAX_ITEMS) -> list[Any]:
    """Return `value` if it is a list of at most `most` entries."""
    if not isinstance(value, list):
        raise RecordingError(f"{key!r} is no list")
    _require_few(value, key, most)
    return value


def objects(value: Any, key: str, most: int = MAX_ITEMS) -> list[Json]:
    """Return `value` if it is a list of at most `most` objects."""
    objects = items(value, key, most)
    if not all(isinstance(json_object, dict) for json_object in objects):
        raise RecordingError(f"{key!r} has an entry that is no object")
    return objects


def mapping(value: Any, key: str, most: int = MAX_ITEMS) -> Json:
    """Return `value` if it is an object of at most `most` keys."""
    if not isinstance(value, dict):
        raise RecordingError(f"{key!r} is no object")
    _require_few(value, key, most)
    return value


def _require_few(value: Sized, key: str, most: int) -> None:
    if len(value) > most:
        raise RecordingError(f"{key!r} has {len(value)} entries, and {most} are the most")


def cleaned(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return unknown JSON that is kept: strings clean, sizes within the limits."""
    if isinstance(value, str):
        return clean(value[: MAX_SENTENCE + 1], MAX_SENTENCE)
    if isinstance(value, float):
        return real(value, "a number")
    if type(value) is int:
        return whole(value, "a number", -MAX_COUNT)
    if isinstance(value, list | dict) and (depth == 0 or len(value) > MAX_ITEMS):
        raise RecordingError("an unknown key has more data than is kept")
    if isinstance(value, list):
        return [cleaned(inner_value, depth - 1) for inner_value in value]
    if isinstance(value, dict):
        return {label(key, "an unknown key"): cleaned(inner_value, depth - 1) for key, inner_value in value.items()}
    return value


def once(pairs: list[tuple[Key, Value]]) -> MappingProxyType[Key, Value]:
    """Return a mapping of `pairs`; RecordingError when two have the same key, because one of them would vanish."""
    require_once([key for key, _ in pairs])
    return MappingProxyType(dict(pairs))


def require_once(keys: Collection[object]) -> None:
    """Raise RecordingError where a key is there twice, because one of its entries would vanish."""
    if len(set(keys)) != len(keys):
        raise RecordingError("a window has the same entry twice")


@dataclass(frozen=True, slots=True)
class RecordField:
    """One value of a record."""

    key: str
    """In JSON."""
    read: Read
    name: str = ""
    """Attribute that is encoded, and argument of the record's constructor; empty: the key."""
    write: Callable[[Any], Any] | None = None
    """Encoder of the attribute's value; None: JSON has it as it is."""
    default: Any = 0
    """Decoded value where the object has no such key."""
    required: bool = False
    """Whether an object without the key is refused, as if it were null."""
    always: bool = False
    """Whether the default is encoded, too."""
    get: Callable[[Any], Any] | None = None
    """Getter of the value that is encoded, where that is no attribute."""

    @property
    def getter(self) -> Callable[[Any], Any]:
        """Return the getter of the value that is encoded."""
        return self.get or attrgetter(self.name or self.key)

    @property
    def omits_empty(self) -> bool:
        """Return whether every empty value is left out of an object; else only the default is."""
        return self.default is not None and not (self.default and isinstance(self.default, str | int))


def fields(read: Read, *keys: str, default: Any = 0, always: bool = False) -> tuple[RecordField, ...]:
    """Return fields that differ in their key only, which is their name as well."""
    return tuple(RecordField(key, read, default=default, always=always) for key in keys)


class RecordCodec(Generic[T]):
    """Codec of JSON objects that are built as `make(**values)`."""

    def __init__(self, make: Callable[..., T], *fields: RecordField) -> None:
        self._make = make
        self.keys = frozenset(record_field.key for record_field in fields)
        self._readers = {
            record_field.key: (record_field.name or record_field.key, record_field.read) for record_field in fields
        }
        self._defaults = {
            record_field.name or record_field.key: record_field.default
            for record_field in fields
            if record_field.default is not OWN
        }
        self._required = tuple(record_field.key for record_field in fields if record_field.required)
        self._writers = tuple(
            (
                record_field.key,
                record_field.getter,
                record_field.write,
                record_field.always,
                record_field.omits_empty,
                record_field.default,
            )
            for record_field in fields
        )

    def encode(self, value: Any) -> Line:
        """Return the object of a value, without what is at its default."""
        line = {}
        for key, get, write, always, omits_empty, default in self._writers:
            field_value = get(value)
            if write is not None:
                field_value = write(field_value)
            if always or (field_value if omits_empty else field_value != default):
                line[key] = field_value
        return line

    def decode(self, line: Json) -> T:
        """Return the value of an object; RecordingError names the key of a wrong value."""
        values = self._defaults.copy()
        readers = self._readers
        for key, value in line.items():
            reader = readers.get(key)
            if reader is not None:
                values[reader[0]] = reader[1](value, key)
        for key in self._required:
            if key not in line:
                readers[key][1](None, key)
        return self._make(**values)

    def read(self, value: Any, key: str) -> T:
        """Return the value of an object; RecordingError for anything else."""
        return self.decode(mapping(value, key))

    def entry(self, value: Any, key: str) -> T:
        """Return the value of an entry of a list or mapping."""
        if not isinstance(value, dict):
            raise RecordingError(f"{key!r} has an entry that is no object")
        return self.decode(value)


class RowDecoder(Generic[T]):
    """Decoder of JSON lists with a fixed order of cells, each a name for messages and a check.

    The last `optional` cells may be absent.
    """

    def __init__(self, make: Callable[..., T], *cells: tuple[str, Read], optional: int = 0) -> None:
        self._make, self._cells = make, cells
        self._least = len(cells) - optional

    def read(self, value: Any, key: str) -> T:
        """Return the value of a row; cells that a later version adds at its end are ignored."""
        if not isinstance(value, list) or len(value) < self._least:
            names = ", ".join(name for name, _ in self._cells[: self._least])
            raise RecordingError(f"{key!r} has a row that is too short: it needs {names}")
        return self._make(*[read(cell, name) for (name, read), cell in zip(self._cells, value, strict=False)])

    def read_all(self, values: Sequence[Any], key: str) -> list[T]:
        """Return the values of rows, as `read` does; in half of its time where all rows are plain."""
        columns = self._checked_columns(values)
        if columns is None:
            return [self.read(value, key) for value in values]
        return list(map(self._make, *columns))

    def _checked_columns(self, rows: Sequence[Any]) -> list[Sequence[Any]] | None:
        """Return the cells by column; None where a row or a cell needs `read`, which also says what is wrong with it.

        Of a column of texts or numbers each different one is checked once.
        """
        if {*map(type, rows)} != {list} or {*map(len, rows)} != {len(self._cells)}:
            return None
        columns: list[Sequence[Any]] = []
        for (name, read), column in zip(self._cells, zip(*rows, strict=True), strict=True):
            kinds = {*map(type, column)}
            if kinds == {int} and read is count:
                is_plain = min(column) >= 0 and max(column) <= MAX_COUNT
            elif kinds in _PLAIN:
                is_plain = _all_pass(read, {*column}, name)
            else:
                return None
            if not is_plain:
                return None
            columns.append(column)
        return columns


def _all_pass(read: Read, values: Iterable[Any], name: str) -> bool:
    """Return whether a check takes each of these values, and returns it as it is."""
    try:
        return all(read(value, name) == value for value in values)
    except RecordingError:
        return False


def count(value: Any, key: str) -> int:
    """Return `value` if it is a whole number of 0 or more."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    return whole(value, key)


def within(low: int, high: int = MAX_COUNT) -> Read:
    """Return a check for whole numbers from `low` to `high`."""
    return lambda value, key: whole(value, key, low, high)


def one_of(*names: str) -> Read:
    """Return a check for one of these names."""
    known = frozenset(names)

    def checked(value: Any, key: str) -> str:
        if type(value) is str and value in known:
            return value
        raise RecordingError(f"{key!r} is none of {', '.join(names)}")

    return checked


def optional(read: Read) -> Read:
    """Return a check that passes null as None."""
    return lambda value, key: None if value is None else read(value, key)


def few_labels(most: int) -> Read:
    """Return a check for lists of at most `most` names."""
    return lambda value, key: labels(value, key, most)


def listed(read: Read, most: int = MAX_ITEMS) -> Read:
    """Return a check for lists, decoded as tuples."""
    return lambda value, key: tuple([read(inner_value, key) for inner_value in items(value, key, most)])


def of_object(read: Callable[[Json], Any]) -> Read:
    """Return a check for objects, which are decoded by `read`."""
    return lambda value, key: read(mapping(value, key))


def mapped(read: Read, most: int = MAX_ITEMS) -> Read:
    """Return a check for objects whose keys are names, decoded as mappings that name nothing twice."""

    def checked(value: Any, key: str) -> Mapping[str, Any]:
        if not value and type(value) is dict:
            return NOTHING
        mapped_values = mapping(value, key, most)
        return once([(label(name, key), read(inner_value, key)) for name, inner_value in mapped_values.items()])

    return checked


def number_rows(value: Any, key: str, cells: int, most: int) -> list[tuple[int, ...]]:
    """Return a flat list of numbers of 0 or more as at most `most` rows of `cells`."""
    if not isinstance(value, list) or len(value) % cells or len(value) > cells * most:
        raise RecordingError(f"{key!r} is no list of {cells} numbers each, or too long")
    if not {*map(type, value)} <= {int} or (value and not (min(value) >= 0 and max(value) <= MAX_COUNT)):
        raise RecordingError(f"{key!r} has a value that is not a whole number of 0 or more")
    return list(zip(*(value[at::cells] for at in range(cells)), strict=True))


def flat(rows: Iterable[tuple[int, ...]]) -> list[int]:
    """Return the numbers of rows as one list, the way back of `number_rows`."""
    return [number for row in rows for number in row]
