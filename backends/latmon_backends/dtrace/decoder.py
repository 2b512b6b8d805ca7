"""Decoder of DTrace's text output (`@@` lines): bytes to the events of the tick protocol. Sans-IO.

Rows and their buckets are latmon.dtrace_rows. Knows no probe.
A line that is not understood is an event too: counted, never raised. Keys and texts are as printed, not yet clean.

DTrace prints one line or table per key and no end of a map, so a map is whole when the next line of ours comes. Names
(devices, handlers, threads) get numbers here, for as long as a capture lasts. Sans I/O; the manifests say what is what.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from latmon.decode.dtrace_aggregation import HEADER, INTEGER, MAX_ROWS, PrintedRow, Row, Scalar, bounded
from latmon.manifest.loader import Manifest
from latmon.manifest.schema import NAMED, MapSpec, RecordSpec
from latmon.model.frame import NAMED_FROM
from latmon.model.histogram import TOP, bucket_index
from latmon.support.text import clean
from latmon_backends.dtrace.program import MAP_KEYS
from latmon_backends.probe.events import Counted, Event, HandlerNamed, Printed, Undecoded

MAX_LINE = 1 << 20
"""Bytes. DTrace cuts a string at 256 unless told otherwise, so that no line of ours comes near."""
MAX_KNOWN = 1 << 12
"""Rows with count 0 that are recognised by their bytes: most rows are such, and the same ones in every tick."""
SHOWN = 200


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one printf of ours, without `@@ ` and newline."""

    text: str


@dataclass(frozen=True, slots=True)
class Table:
    """One key of a quantize, lquantize or llquantize; `whole` is False when its end is missing."""

    name: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    whole: bool


TextEvent = Line | Scalar | Table | Undecoded


@dataclass(slots=True)
class _Open:
    """A table whose end has not come yet."""

    name: str
    keys: tuple[str, ...]
    headed: bool = False
    printed: PrintedRow = field(default_factory=PrintedRow)


class Decoder:
    """Feed it bytes in any portions; whole lines come out as events, a table when its end has come."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._overlong = False
        self._open: _Open | None = None
        self._empty: dict[bytes, int] = {}  # rows with count 0, to their labels

    def feed(self, data: bytes) -> list[TextEvent]:
        """Events of the lines that `data` completes."""
        whole, newline, rest = data.rpartition(b"\n")
        events: list[TextEvent] = []
        if newline:
            self._lines((bytes(self._rest) + whole).split(b"\n"), events)
            self._rest = bytearray()
        self._rest += rest
        if len(self._rest) > MAX_LINE:
            self._rest, self._overlong = bytearray(), True
        return events

    def close(self) -> list[TextEvent]:
        """What an output cut in mid-line or mid-table leaves. Without its newline a line may lack digits."""
        events: list[TextEvent] = []
        rest, self._rest = bytes(self._rest), bytearray()
        if self._overlong or rest == b"@@E":
            self._lines([rest], events)
        elif rest.strip():
            self._odd(rest.decode("utf-8", "replace"), events)
        self._end(events, whole=False)
        return events

    def _lines(self, lines: Iterable[bytes], events: list[TextEvent]) -> None:
        for raw in lines:
            table = self._open
            if table is not None and table.headed and raw in self._empty and len(table.printed.counts) < MAX_ROWS:
                table.printed.labels.append(self._empty[raw])
                table.printed.counts.append(0)
            elif self._overlong or len(raw) > MAX_LINE:
                self._overlong = False
                self._odd(f"a line longer than {MAX_LINE >> 20} MiB", events)
            elif table is None or not self._is_of_table(table, raw, events):
                self._line(raw.decode("utf-8", "replace"), events)

    def _is_of_table(self, table: _Open, raw: bytes, events: list[TextEvent]) -> bool:
        text = raw.decode("utf-8", "replace")
        if not table.headed:
            table.headed = HEADER.fullmatch(text) is not None
            return table.headed
        printed = table.printed
        if printed.take(text):
            if not printed.counts[-1] and len(printed.counts) - 1 not in printed.signs:
                self._remember(raw, printed.labels[-1])
            return True
        if text == "@@E":
            self._end(events, whole=True)
            return True
        return False

    def _remember(self, raw: bytes, label: int) -> None:
        if len(self._empty) < MAX_KNOWN and len(raw) < SHOWN:
            self._empty[raw] = label

    def _line(self, text: str, events: list[TextEvent]) -> None:
        if text.startswith("@@ "):
            self._end(events, whole=False)
            events.append(Line(text[3:]))
        elif text.startswith("@@S "):
            self._end(events, whole=False)
            events.append(_scalar(text))
        elif text.startswith("@@Q "):
            self._end(events, whole=False)
            self._begin(text, events)
        elif text and not text.isspace():
            self._odd(text, events)

    def _begin(self, text: str, events: list[TextEvent]) -> None:
        """`@@Q name TAB key TAB ... TAB`: what follows the last TAB is the table."""
        name, *keys = text[4:].removesuffix("\t").split("\t")
        if name.isidentifier():
            self._open = _Open(name, tuple(keys))
        else:
            self._odd(text, events)

    def _end(self, events: list[TextEvent], *, whole: bool) -> None:
        table, self._open = self._open, None
        if table is None:
            return
        rows = bounded(table.printed)
        if rows is None:
            events.append(_undecoded(f"{' '.join((table.name, *table.keys))}: labels that don't go together"))
        else:
            events.append(Table(table.name, table.keys, rows, whole and bool(rows)))

    def _odd(self, text: str, events: list[TextEvent]) -> None:
        self._end(events, whole=False)
        events.append(_undecoded(text))


def _scalar(text: str) -> TextEvent:
    name, *keys = text[4:].split("\t")
    if not keys or not name.isidentifier() or not INTEGER.fullmatch(keys[-1]):
        return _undecoded(text)
    return Scalar(name, tuple(keys[:-1]), int(keys[-1]))


def _undecoded(text: str) -> Undecoded:
    return Undecoded(clean(text[:SHOWN], SHOWN))


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
        for at, name in enumerate(spec.fields[: len(words)]):
            if name in NAMED and words[at] not in _NOT_KNOWN:
                words[at] = str(self._names.number(words[at]) + _first(name))
        return " ".join((kind, probe, *words))


def _first(part: str) -> int:
    """Threads have numbers that can't be taken for pids."""
    return NAMED_FROM if part in _THREADS else 0
