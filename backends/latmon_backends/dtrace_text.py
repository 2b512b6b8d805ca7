"""DTrace's text output as events: bytes in, values out, no I/O. For programs that mark what they print (`@@`).

Owns what a row of a distribution looks like on each platform and where its bucket begins and ends. Knows no probe.
A line that is not understood is an event too: counted, never raised. Keys and texts are as printed, not yet clean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import lt
from typing import NamedTuple

from latmon.text import clean
from latmon_backends.probe_events import Undecoded

MAX_LINE = 1 << 20
"""Bytes. DTrace cuts a string at 256 unless told otherwise, so that no line of ours comes near."""
MAX_ROWS = 1 << 17
"""Of one table. lquantize() counts its levels in 16 bits."""
MAX_KNOWN = 1 << 12
"""Rows with count 0 that are recognised by their bytes: most rows are such, and the same ones in every tick."""
SHOWN = 200

INTEGER = re.compile(r"-?[0-9]{1,20}")
HEADER = re.compile(r"[ \t]*+value[ \t]++-++ Distribution -++[ \t]++count[ \t]*+")
# Possessive: what a hostile line costs is linear. Bars are `@`, or U+2581 to U+258F with `-x encoding=utf8`; negative
# counts have theirs before the `|`. A bar is rounded: only the number after it counts.
_ROW = re.compile(
    r"[ \t]*+(<=? |>= |abs\(\) < )?+(-?[0-9]{1,20})[ \t][ \t@\u2581-\u258f]*+\|"
    r"[ \t@\u2581-\u258f]*+(?<=[ \t])(-?[0-9]{1,20})[ \t]*+"
)
_FARTHEST = 1 << 62
"""The last bucket of quantize(), and its mirror, have all that 64 bits can hold."""


class Row(NamedTuple):
    """Of a distribution: low <= value < high; None where it is open or no label tells the edge."""

    low: int | None
    high: int | None
    count: int  # type: ignore[assignment] # a tuple's count() is of no use here


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one printf of ours, without `@@ ` and newline."""

    text: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """One key of a count, sum, minimum or maximum."""

    name: str
    keys: tuple[str, ...]
    value: int


@dataclass(frozen=True, slots=True)
class Table:
    """One key of a quantize, lquantize or llquantize; `whole` is False when its end is missing."""

    name: str
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    whole: bool


TextEvent = Line | Scalar | Table | Undecoded


@dataclass(slots=True)
class Printed:
    """Rows as printed: labels, counts, and the sign before a label by its place (`< `, `<= `, `>= `, `abs() < `)."""

    labels: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    signs: dict[int, str] = field(default_factory=dict)

    def take(self, text: str) -> bool:
        """Whether `text` is a row."""
        found = _ROW.fullmatch(text) if len(self.counts) < MAX_ROWS else None
        if found is None:
            return False
        sign, label, count = found.groups()
        if sign:
            self.signs[len(self.counts)] = sign
        self.labels.append(int(label))
        self.counts.append(int(count))
        return True


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


def bounded(printed: Printed) -> tuple[Row, ...] | None:
    """The rows with their edges, which are in their neighbours' labels; None for labels that don't go together.

    A label is where its bucket begins, seen from 0: below 0 quantize and Oracle's llquantize mirror their buckets
    (`-4` is -7 to -4), lquantize doesn't.
    """
    labels = printed.labels
    if labels and labels[0] >= 0 and not printed.signs and all(map(lt, labels, labels[1:])):
        edges = zip(labels, [*labels[1:], _last_edge(printed)], printed.counts, strict=True)
        return tuple(map(tuple.__new__, repeat(Row), edges))  # in C throughout: twice as fast as calling Row
    kind = kind_of(printed)
    rows: list[Row] = []
    for at in range(len(labels)):
        rows.append(_row(printed, at, rows[-1].high if rows else None, kind))
    fits = all(one.high is not None and one.high == other.low for one, other in pairwise(rows))
    return tuple(rows) if fits and all(_is_a_range(row) for row in rows) else None


def _is_a_range(row: Row) -> bool:
    return row.low is None or row.high is None or row.low < row.high


def _row(printed: Printed, at: int, before: int | None, kind: str) -> Row:
    label, count = printed.labels[at], printed.counts[at]
    match printed.signs.get(at, ""):
        case ">= ":
            edges: tuple[int | None, int | None] = (label, None)
        case "< ":
            edges = None, label
        case "<= ":
            edges = None, label + 1
        case "abs() < ":
            edges = 1 - label, label
        case _ if label < 0 and kind != "lquantize":
            edges = _mirrored_edge(label, kind) if before is None else before, label + 1
        case _:
            edges = label, printed.labels[at + 1] if at + 1 < len(printed.labels) else _last_edge(printed)
    return Row(*edges, count)


def _mirrored_edge(label: int, kind: str) -> int | None:
    return 2 * label + (label != -_FARTHEST) if kind == "quantize" else None


def _last_edge(printed: Printed) -> int | None:
    last = printed.labels[-1]
    begins = len(printed.labels) > 1 and last == _next_power(printed.labels[-2])
    return _next_power(last) if begins and kind_of(printed) == "quantize" else None


def kind_of(printed: Printed) -> str:
    """`quantize`, `lquantize` or `llquantize`, as far as labels tell: a stretch of even steps is called `lquantize`."""
    signs = set(printed.signs.values())
    if signs & {"abs() < ", "<= "}:
        return "llquantize"
    labels = printed.labels[printed.signs.get(0) == "< " :]
    if len(labels) < 2:  # noqa: PLR2004 - one label has no step
        return ""
    if not signs and _is_power(labels[0]) and all(_next_power(one) == other for one, other in pairwise(labels)):
        return "quantize"
    return "lquantize" if len({other - one for one, other in pairwise(labels)}) == 1 else "llquantize"


def _is_power(label: int) -> bool:
    return abs(label) & (abs(label) - 1) == 0


def _next_power(label: int) -> int:
    """The label after this one in a quantize()."""
    if label > 0:
        return 2 * label
    return 1 if label == 0 else -(-label >> 1)
