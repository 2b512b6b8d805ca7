"""What our D scripts print, as the events of the tick protocol: columns become integer keys, tables become buckets.

DTrace prints one line or table per key and no end of a map, so a map is whole when the next line of ours comes. Names
(devices, handlers, threads) get numbers here, for as long as a capture lasts. Sans I/O; the manifests say what is what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.dtrace_rows import Row, Scalar
from latmon.histogram import TOP, bucket_index
from latmon.manifest import Manifest, MapSpec, RecordSpec
from latmon.manifest_parts import NAMED
from latmon.model import NAMED_FROM
from latmon.text import clean
from latmon_backends.dtrace_program import MAP_KEYS
from latmon_backends.dtrace_text import Line, Table, TextEvent
from latmon_backends.probe_events import Counted, Event, HandlerNamed, Printed, Undecoded

SCALE = 3
"""Bits. The scripts count eighths of a microsecond: llquantize(us * 8, 2, 3, 34, 16) has exactly our buckets, where
llquantize(us, ...) would put all below 16 us into one."""
MAX_NAMES = 1 << 16
_MAX_NAME = 120
_DIGITS = 20
_THREADS = ("thread", "other")
_NOT_KNOWN = ("-1", str(2**64 - 1))
"""In a record; a number otherwise is a name like any other (a dev_t), as it is in a map's column."""


class Names:
    """Numbers for names, from 1; 0 is the name for which there was no room."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._names: list[str] = [""]

    def number(self, name: str) -> int:
        """The same for the same name."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        if len(self._names) >= MAX_NAMES:
            return 0
        self._names.append(clean(name, _MAX_NAME))
        self._numbers[name] = len(self._names) - 1
        return self._numbers[name]

    def name(self, number: int) -> str | None:
        """Clean; None for a number that no name has."""
        return self._names[number] or None if 0 <= number < len(self._names) else None


class Maps:
    """Of one program: `take` its text events in their order, `close` at its end."""

    def __init__(self, manifests: Iterable[Manifest], names: Names) -> None:
        known = tuple(manifests)
        self._specs: dict[str, MapSpec] = {spec.name: spec for one in known for spec in one.maps}
        self._probes = {spec.name: one.name for one in known for spec in one.maps}
        self._records: dict[tuple[str, str], RecordSpec] = {
            (kind, one.name): spec for one in known for kind, spec in one.records.items()
        }
        self._names = names
        self._open: dict[str, dict[int, int]] = {}
        self._told: set[tuple[str, int]] = set()

    def take(self, event: TextEvent) -> Iterator[Event]:
        """What it completes."""
        match event:
            case Line(text=text):
                yield from self.close()
                yield Printed(self._with_numbers(text))
            case Scalar() | Table():
                yield from self._map(event)
            case Undecoded():
                yield event

    def close(self) -> Iterator[Event]:
        """The maps that are complete."""
        for name, values in self._open.items():
            yield Counted(name, values)
        self._open = {}

    def _map(self, event: Scalar | Table) -> Iterator[Event]:
        spec = self._specs.get(event.name)
        is_table = isinstance(event, Table)
        if spec is None or is_table != any(part.name == "bucket" for part in spec.key):
            yield Undecoded(clean(event.name, _MAX_NAME))
            return
        key = self._key(spec, event.keys)
        if key is None or (isinstance(event, Table) and not event.whole):
            yield Undecoded(clean(" ".join((event.name, *event.keys)), _MAX_NAME))
            return
        yield from self._handlers(spec, key)
        values = self._open.setdefault(event.name, {})
        if len(values) >= MAP_KEYS and key not in values:
            yield Undecoded(f"{event.name}: more than {MAP_KEYS} keys")
            return
        if isinstance(event, Scalar):
            values[key] = event.value
        else:
            yield from self._buckets(event.rows, key, values)

    def _buckets(self, rows: Iterable[Row], key: int, values: dict[int, int]) -> Iterator[Event]:
        """The bucket is the lowest part of a key. A value below 0 can't be a time."""
        for row in rows:
            if not row.count:
                continue
            if row.high is not None and row.high <= 0:
                yield Undecoded(f"{row.count} times below 0")
                continue
            low = max(0, row.low or 0) >> SCALE
            index = TOP if row.high is None else bucket_index(low)
            values[key | index] = values.get(key | index, 0) + row.count

    def _key(self, spec: MapSpec, words: tuple[str, ...]) -> int | None:
        columns = spec.columns
        if len(columns) != len(words):
            return None
        key = 0
        for part, word in zip(columns, words, strict=True):
            number = self._number(part.name, word)
            placed = None if number is None else part.put(number)
            if placed is None:
                return None
            key |= placed
        return key

    def _number(self, part: str, word: str) -> int | None:
        if part in NAMED:
            return self._names.number(word) + _first(part)
        return int(word) if len(word) < _DIGITS and word.isascii() and word.isdecimal() else None

    def _handlers(self, spec: MapSpec, key: int) -> Iterator[Event]:
        """A handler is told of once, before the map that counts it."""
        for part in spec.columns:
            number = part.read(key)
            told = self._probes[spec.name], number
            if part.name == "handler" and told not in self._told:
                self._told.add(told)
                yield HandlerNamed(*told, self._names.name(number) or "")

    def _with_numbers(self, text: str) -> str:
        """A record's line with numbers for its names. Where a TAB parts its fields names can have blanks."""
        kind, _, rest = text.partition(" ")
        probe, _, rest = rest.partition(" ")
        spec = self._records.get((kind, probe))
        if spec is None:
            return text
        words = rest.split("\t" if "\t" in rest else " ", len(spec.fields))
        for at, field in enumerate(spec.fields[: len(words)]):
            if field in NAMED and words[at] not in _NOT_KNOWN:
                words[at] = str(self._names.number(words[at]) + _first(field))
        return " ".join((kind, probe, *words))


def _first(part: str) -> int:
    """Threads have numbers that can't be taken for pids."""
    return NAMED_FROM if part in _THREADS else 0
