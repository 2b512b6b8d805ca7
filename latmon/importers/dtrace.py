"""Importer of DTrace's aggregations: quantize(), lquantize(), llquantize(); scalars are named and left out.

The text has no marks of latmon's and is in memory as a whole. Columns of a key are separated if their widths allow only
one reading; they are as printed, not yet clean. Text that is neither key, row nor value is Undecoded, as are the tables
of `-x agghist` and `-x aggpack`, which have no distributions or no counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latmon.decode.dtrace_aggregation import HEADER, INTEGER, PrintedRow, Row, Scalar, bounded, kind_of
from latmon.importers import values
from latmon.importers.values import Found, ImportedTable, ImportOptions, Passed, Remark, TextSpan, TimeLine
from latmon.support.text import clean

SHOWN = 200
_LONGEST = 1024
_STRING = 52
_INT_WIDTHS = (17, 9, 6, 4)
"""Widths of key columns: a string of 50 after two blanks, integers of 64, 32, 16 and 8 bits after one."""

_REFUSED = re.compile(r"[ \t]*+(?:key[ \t]++-++ Distribution -|(?:key[ \t]++)?min \.-++\. max)")
_COLUMNS = re.compile(r" *CPU +ID +FUNCTION:NAME")
_RECORD = re.compile(r" {0,2}[0-9]++ ++[0-9]++ ++[^ ]*:[^ ]*")
_DUMP_HEAD = re.compile(r" *0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef")
_DUMPED = re.compile(r" {0,11}[0-9a-f]{1,8}: ((?:[0-9a-f]{2} ){1,16}).*")
_INT_COLUMN = re.compile(r"( ++)(-?[0-9]++)(?= |$)")
_FRAME = re.compile(r" {14}[^ ]*[^ 0-9-][^ ]*")


@dataclass(frozen=True, slots=True)
class Distribution:
    """One quantize(), lquantize() or llquantize() with its key; `kind_of` judges by its labels."""

    keys: tuple[str, ...]
    kind: str
    rows: tuple[Row, ...]
    line: int = field(default=0, compare=False)
    """Its header, from 1."""
    key_line: int = field(default=0, compare=False)
    """Line in which its key begins; the header if it has none."""
    last: int = field(default=0, compare=False)
    """Its last row."""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A line that is part of no distribution and no scalar."""

    text: str
    line: int = field(default=0, compare=False)


Dump = Distribution | Scalar | Undecoded


def tables(text: str) -> Iterator[Dump]:
    """Yield all distributions and scalars in their order; a scalar's name is not printed."""
    reader = _AggregationReader()
    for line in text.split("\n"):
        reader.number += 1
        yield from reader.line(line.replace("\xa0", " ").removesuffix("\r"))
    yield from reader.end()


@dataclass(slots=True)
class _AggregationReader:
    """Reader of lines whose meaning depends on the next one: `pending` may be a key, a value, or neither."""

    number: int = 0
    parts: list[str] = field(default_factory=list)  # the key so far
    parts_at: int = 0
    pending: str | None = None
    pending_at: int = 0
    header_at: int = 0
    dump: bytearray | None = None
    stack: list[str] = field(default_factory=list)
    rows: PrintedRow | None = None
    refusing: bool = False

    def line(self, line: str) -> Iterator[Dump]:
        if self.rows is not None:
            if self.rows.take(line) or self.rows.take_bare(line):
                return
            yield from self._end_of_rows()
        if self.refusing:
            self.refusing = "|" in line  # their rows
            if self.refusing:
                return
        if self._is_of_key(line):
            return
        self._end_of_parts()
        if HEADER.fullmatch(line):
            self._add_pending_to_key()
            self.rows, self.header_at = PrintedRow(), self.number
        elif not line or line.isspace():
            yield from self._flush(keep_parts=True)
        elif _REFUSED.match(line):
            yield from self._flush()
            yield _undecoded(f"a table of agghist or aggpack: {line.strip()}", self.number)
            self.refusing = True
        elif _COLUMNS.fullmatch(line.rstrip()):
            yield from self._flush()
        else:
            yield from self._flush(keep_parts=True)
            self.pending, self.pending_at = line[:_LONGEST], self.number

    def end(self) -> Iterator[Dump]:
        """Yield the rest after the last line."""
        if self.rows is not None:
            yield from self._end_of_rows()
        self._end_of_parts()
        yield from self._flush()

    def _is_of_key(self, line: str) -> bool:
        """Return whether a line belongs to a key: non-ASCII strings are dumped as bytes, stacks as lines."""
        if self.dump is not None and (found := _DUMPED.fullmatch(line)):
            self.dump += bytes.fromhex(found[1])
            return True
        if _DUMP_HEAD.fullmatch(line.rstrip()):
            self._end_of_parts()
            self._add_pending_to_key()
            self._begin_part(self.number)
            self.dump = bytearray()
            return True
        if _FRAME.fullmatch(line.rstrip()):
            self._add_pending_to_key()
            self._begin_part(self.number)
            self.stack.append(line.strip())
            return True
        return False

    def _end_of_parts(self) -> None:
        if self.dump is not None:
            self.parts.append(self.dump.rstrip(b"\0").decode("utf-8", "replace"))
            self.dump = None
        if self.stack:
            self.parts.append("\n".join(self.stack))
            self.stack = []

    def _add_pending_to_key(self) -> None:
        """Add the pending line, if there is one, to the key."""
        if self.pending is not None:
            self._begin_part(self.pending_at)
            self.parts += columns(self.pending)
            self.pending = None

    def _begin_part(self, line: int) -> None:
        if not self.parts and not self.stack:
            self.parts_at = line

    def _end_of_rows(self) -> Iterator[Dump]:
        printed, self.rows = self.rows or PrintedRow(), None
        keys, self.parts = tuple(self.parts), []
        rows = bounded(printed)
        if rows:
            begins = self.parts_at if keys else self.header_at
            last = self.header_at + len(rows)
            yield Distribution(keys, kind_of(printed), rows, self.header_at, begins, last)
        else:
            why = "of labels that do not go together" if printed.counts else "without rows"
            yield _undecoded(f"a table {why}", self.header_at)

    def _flush(self, *, keep_parts: bool = False) -> Iterator[Dump]:
        """Yield the pending line, which was no key: it is a value, or not understood."""
        line, self.pending = self.pending, None
        value = None if line is None else _value(line)
        if value is not None:
            key, number = value
            keys, self.parts = (*self.parts, *columns(key)), []
            yield Scalar("", keys, number, self.pending_at)
        elif line is not None:
            yield from self._forget()
            record = _RECORD.match(line)
            if record is None or line[record.end() :].strip():
                yield _undecoded(line, self.pending_at)
        elif not keep_parts:
            yield from self._forget()

    def _forget(self) -> Iterator[Dump]:
        for part in self.parts:
            yield _undecoded(part, self.parts_at)
        self.parts = []


def _value(line: str) -> tuple[str, int] | None:
    """Return key and value of a scalar's row: the value is the last column, 16 wide after a blank."""
    line = line.rstrip()
    number = line.rpartition(" ")[2]
    start = len(line) - max(17, len(number) + 1)
    if start < 0 or not INTEGER.fullmatch(number) or line[start:].lstrip(" ") != number:
        return None
    if line[start + 1] != " " and _columns(line[:start]) is None:
        return None  # a sentence that ends in a large number looks the same
    return line[:start], int(number)


def columns(key: str) -> tuple[str, ...]:
    """Return the columns of a key by their widths; one column if there is no reading or more than one."""
    return _columns(key) or ((key.strip(),) if key.strip() else ())


def _columns(key: str) -> tuple[str, ...] | None:
    ways: dict[int, list[tuple[str, ...]]] = {0: [()]}  # the readings up to a place: two are one too many
    for at in range(len(key)):
        for before in ways.pop(at, ()):
            for word, end in _columns_at(key, at):
                ways.setdefault(end, []).append((*before, word))
                del ways[end][2:]
    found = ways.get(len(key), [])
    return found[0] if len(found) == 1 else None


def _columns_at(key: str, at: int) -> Iterator[tuple[str, int]]:
    if key[at] != " ":
        return
    end = min(at + _STRING, len(key))
    word = key[at + 2 : end]
    is_string = key[at : at + 2] == "  " and (word[:1].strip() or (not word.strip() and end - at == _STRING))
    if is_string:
        yield word.rstrip(" "), end
    found = _INT_COLUMN.match(key, at)
    if found and (found.end() - at in _INT_WIDTHS or (len(found[1]) == 1 and len(found[2]) >= _INT_WIDTHS[-1])):
        yield found[2], found.end()


def _undecoded(text: str, line: int) -> Undecoded:
    return Undecoded(clean(text[:SHOWN], SHOWN), line)


_RUN = re.compile(r"dtrace: (?:script|description) \S{1,256} matched \d+ probes?")
_DROPS = re.compile(r"dtrace: (\d{1,15}) (?:\w+ ){0,4}drops?\b")
"""libdtrace's sentence on full buffers: `dtrace: 5 aggregation drops on CPU 1`."""
_NOISE = re.compile(r"dtrace: (?:script|description) .*matched \d+ probe|\^C$|\[\.\.\.truncated\.\.\.\]$")
_TITLE = 200


def sniff(head: str) -> bool:
    """Return whether there is a table's head, which is unlike anything else."""
    return any("istribution" in line and HEADER.fullmatch(line) is not None for line in head.split("\n"))


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield tables in their order, with runs and times between them."""
    del options
    found = [one for one in tables("\n".join(lines)) if isinstance(one, Distribution | Scalar)]
    distributions = [one for one in found if isinstance(one, Distribution)]
    columns = {line for one in distributions for line in range(one.key_line, one.last + 1)}
    events: list[tuple[int, Found]] = [(one.line, _table(one)) for one in distributions]
    for at, line in enumerate(lines, 1):
        if at in columns:
            continue
        wall = values.moment(line)
        if wall is not None:
            events.append((at, TimeLine(TextSpan(at, at, wall))))
        elif _RUN.match(line.strip()):
            events.append((at, TimeLine(TextSpan(at, at), clean(f"line {at}: {line.strip()}", _TITLE))))
        elif (lost := _DROPS.match(line.strip())) is not None:
            events.append(
                (at, Remark(TextSpan(at, at), f"DTrace lost data: {clean(line.strip(), 100)}", lost=int(lost[1])))
            )
        elif _NOISE.match(line.strip()):
            events.append((at, Passed(TextSpan(at, at))))
    if distributions:
        events += (
            (one.line, Remark(TextSpan(one.line, one.line), f"{_title(one.keys)}: a count, no latency"))
            for one in found
            if isinstance(one, Scalar) and one.keys and _is_aggregation(lines[one.line - 1])
        )
    yield from (one for _, one in sorted(events, key=lambda pair: pair[0]))


def _is_aggregation(line: str) -> bool:
    """Return whether the default printer made a line: a key of two blanks and 50 columns, then 16 for the value.

    A line with a bar is a row whose table is damaged.
    """
    return line.startswith("  ") and len(line.rstrip()) >= 60 and "|" not in line  # noqa: PLR2004


def _has_hole(one: Distribution) -> bool:
    """Return whether a row is missing.

    quantize() doubles its labels, and the steps of lquantize() and llquantize() never become smaller. A missing row
    just below the last one can't be seen: it may be where llquantize's steps become longer.
    """
    lows = [row.low for row in one.rows if row.low is not None and row.low >= 0]
    steps = [high - low for low, high in pairwise(lows)]
    if len(steps) < 2 or len(set(steps)) == 1:  # noqa: PLR2004 - one step has none to be compared with
        return False
    if all(low & (low - 1) == 0 for low in lows):
        return any(high != (2 * low or 1) for low, high in pairwise(lows))
    return any(high < low for low, high in pairwise(steps))


_ROW_ABOVE = re.compile(r"(?:[<>]=? *)?-?\d{1,20} *\|[@ ]*\d{1,20}")
"""Row that came above the head of its table, where the title is."""


def _table(one: Distribution) -> ImportedTable | Remark:
    if _ROW_ABOVE.fullmatch(_title(one.keys)):
        text = f"a row of the table in line {one.line} is above its head: all of it is left out"
        return Remark(TextSpan(one.key_line, one.last), text, 1, is_incomplete=True)
    if _has_hole(one):
        text = f"the table {_title(one.keys)}".rstrip() + f" in line {one.line} has no row for a part of its range"
        return Remark(TextSpan(one.key_line, one.last), f"{text}: all of it is left out", 1, is_incomplete=True)
    return ImportedTable(TextSpan(one.key_line, one.last), _title(one.keys), one.kind, one.rows)


def _title(keys: tuple[str, ...]) -> str:
    return clean(" ".join(key.replace("\n", " ") for key in keys).strip(), _TITLE)
