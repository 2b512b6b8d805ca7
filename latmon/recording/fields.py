"""Field tables: one table per kind of record gives its encoder, its decoder and its validation.

A RecordCodec is for JSON objects and a RowDecoder for JSON lists. A value that is at its default is left out of an
object. Unknown keys, and cells after the last known one of a row, are ignored: a later version may add them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from latmon.model.histogram import MAX_COUNT
from latmon.recording import validate
from latmon.recording.validate import MAX_ITEMS, Json, once
from latmon.support.errors import RecordingError

Line = dict[str, Any]
Read = Callable[[Any, str], Any]
"""Check of a JSON value and its key: returns the decoded value, or raises RecordingError with the key."""
NOTHING: Mapping[Any, Any] = MappingProxyType({})
OWN = object()
"""Default of a field that the constructor sets, because the value is mutable."""
T = TypeVar("T")


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
        self.keys = frozenset(one.key for one in fields)
        self._readers = {one.key: (one.name or one.key, one.read) for one in fields}
        self._defaults = {one.name or one.key: one.default for one in fields if one.default is not OWN}
        self._required = tuple(one.key for one in fields if one.required)
        self._writers = tuple(
            (one.key, one.getter, one.write, one.always, one.omits_empty, one.default) for one in fields
        )

    def encode(self, value: Any) -> Line:
        """Return the object of a value, without what is at its default."""
        line = {}
        for key, get, write, always, omits_empty, default in self._writers:
            found = get(value)
            if write is not None:
                found = write(found)
            if always or (found if omits_empty else found != default):
                line[key] = found
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
        return self.decode(validate.mapping(value, key))

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
        return self._make(*[read(one, name) for (name, read), one in zip(self._cells, value, strict=False)])


def count(value: Any, key: str) -> int:
    """Return `value` if it is a whole number of 0 or more."""
    if type(value) is int and 0 <= value <= MAX_COUNT:
        return value
    return validate.whole(value, key)


def within(low: int, high: int = MAX_COUNT) -> Read:
    """Return a check for whole numbers from `low` to `high`."""
    return lambda value, key: validate.whole(value, key, low, high)


def optional(read: Read) -> Read:
    """Return a check that passes null as None."""
    return lambda value, key: None if value is None else read(value, key)


def few_labels(most: int) -> Read:
    """Return a check for lists of at most `most` names."""
    return lambda value, key: validate.labels(value, key, most)


def listed(read: Read, most: int = MAX_ITEMS) -> Read:
    """Return a check for lists, decoded as tuples."""
    return lambda value, key: tuple([read(one, key) for one in validate.items(value, key, most)])


def mapped(read: Read, most: int = MAX_ITEMS) -> Read:
    """Return a check for objects whose keys are names, decoded as mappings that name nothing twice."""

    def checked(value: Any, key: str) -> Mapping[str, Any]:
        if not value and type(value) is dict:
            return NOTHING
        found = validate.mapping(value, key, most)
        return once([(validate.label(name, key), read(one, key)) for name, one in found.items()])

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
