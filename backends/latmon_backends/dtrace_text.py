"""DTrace's text output as events: bytes in, values out, no I/O. For programs that mark what they print (`@@`).

Rows and their buckets are latmon.dtrace_rows. Knows no probe.
A line that is not understood is an event too: counted, never raised. Keys and texts are as printed, not yet clean.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from latmon.dtrace_rows import HEADER, INTEGER, MAX_ROWS, Printed, Row, Scalar, bounded
from latmon.text import clean
from latmon_backends.probe_events import Undecoded

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
    printed: Printed = field(default_factory=Printed)


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
