"""Importers of DTrace's aggregations, and of Solaris' scripts and debuggers.

Aggregations are quantize(), lquantize(), llquantize(); scalars are named and left out. The text has no marks of
latmon's and is in memory as a whole. Columns of a key are separated if their widths allow only one reading; they are as
printed, not yet clean. Text that is neither key, row nor value is Undecoded, as are the tables of `-x agghist` and
`-x aggpack`, which have no distributions or no counts.

The scripts are emlxsoverhead.d, scsi.d and max_sd.d. emlxsoverhead: TOTAL - EMLXS is the device and the SAN. EMLXS =
I/O START + from the interrupt's begin to the end of I/O DONE, so the stages add up but for what was cut below 1 us
each. Its I/O INTR begins at the MSI handler, with the packets before it. scsi.d: the `<-` line alone has everything
that is needed.

kstat of task queues: how long tasks waited is not recorded; kernel/kstat.py explains the values. Settings of sd and of
an HBA's driver are printed by mdb and by the crash analysis tool (sdump); a structure is known by its address alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise

from latmon.decode.dtrace_aggregation import HEADER, INTEGER, PrintedRow, Row, Scalar, bounded, kind_of
from latmon.importers import values
from latmon.importers.values import (
    UNKNOWN_OP,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Limits,
    Message,
    Passed,
    Queues,
    Remark,
    Seconds,
    TextSpan,
    TimeLine,
    Times,
    one_device,
)
from latmon.model.frame import Completed, Limit, Outlier, Series, Taskq
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, Depths
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
            if values.of_line(line):
                return  # of the table above, not the key of the next one
        self.refusing = self.refusing and "|" in line  # their rows
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
        if self.dump is not None and (match := _DUMPED.fullmatch(line)):
            self.dump += bytes.fromhex(match[1])
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
    column_names = ways.get(len(key), [])
    return column_names[0] if len(column_names) == 1 else None


def _columns_at(key: str, at: int) -> Iterator[tuple[str, int]]:
    if key[at] != " ":
        return
    end = min(at + _STRING, len(key))
    word = key[at + 2 : end]
    is_string = key[at : at + 2] == "  " and (word[:1].strip() or (not word.strip() and end - at == _STRING))
    if is_string:
        yield word.rstrip(" "), end
    match = _INT_COLUMN.match(key, at)
    if match and (match.end() - at in _INT_WIDTHS or (len(match[1]) == 1 and len(match[2]) >= _INT_WIDTHS[-1])):
        yield match[2], match.end()


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
    distributions_found = [table for table in tables("\n".join(lines)) if isinstance(table, Distribution | Scalar)]
    distributions = [distribution for distribution in distributions_found if isinstance(distribution, Distribution)]
    columns = {line for distribution in distributions for line in range(distribution.key_line, distribution.last + 1)}
    events: list[tuple[int, Found]] = [(distribution.line, _table(distribution)) for distribution in distributions]
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
            (
                distribution.line,
                Remark(
                    TextSpan(distribution.line, distribution.line), f"{_title(distribution.keys)}: a count, no latency"
                ),
            )
            for distribution in distributions_found
            if isinstance(distribution, Scalar) and distribution.keys and _is_aggregation(lines[distribution.line - 1])
        )
    yield from (event_row for _, event_row in sorted(events, key=lambda pair: pair[0]))


def _is_aggregation(line: str) -> bool:
    """Return whether the default printer made a line: a key of two blanks and 50 columns, then 16 for the value.

    A line with a bar is a row whose table is damaged.
    """
    return line.startswith("  ") and len(line.rstrip()) >= 60 and "|" not in line  # noqa: PLR2004


def _has_hole(distribution: Distribution) -> bool:
    """Return whether a row is missing.

    quantize() doubles its labels, and the steps of lquantize() and llquantize() never become smaller. A missing row
    just below the last one can't be seen: it may be where llquantize's steps become longer.
    """
    lows = [row.low for row in distribution.rows if row.low is not None and row.low >= 0]
    steps = [high - low for low, high in pairwise(lows)]
    if len(steps) < 2 or len(set(steps)) == 1:  # noqa: PLR2004 - one step has none to be compared with
        return False
    if all(low & (low - 1) == 0 for low in lows):
        return any(high != (2 * low or 1) for low, high in pairwise(lows))
    return any(high < low for low, high in pairwise(steps))


_ROW_ABOVE = re.compile(r"(?:[<>]=? *)?-?\d{1,20} *\|[@ ]*\d{1,20}")
"""Row that came above the head of its table, where the title is."""


def _table(distribution: Distribution) -> ImportedTable | Remark:
    if _ROW_ABOVE.fullmatch(_title(distribution.keys)):
        text = f"a row of the table in line {distribution.line} is above its head: all of it is left out"
        return Remark(TextSpan(distribution.key_line, distribution.last), text, 1, is_incomplete=True)
    if _has_hole(distribution):
        text = (
            f"the table {_title(distribution.keys)}".rstrip()
            + f" in line {distribution.line} has no row for a part of its range"
        )
        return Remark(
            TextSpan(distribution.key_line, distribution.last), f"{text}: all of it is left out", 1, is_incomplete=True
        )
    return ImportedTable(
        TextSpan(distribution.key_line, distribution.last),
        _title(distribution.keys),
        distribution.kind,
        distribution.rows,
    )


def _title(keys: tuple[str, ...]) -> str:
    return clean(" ".join(key.replace("\n", " ") for key in keys).strip(), _TITLE)


_HEAD = re.compile(r"\s*TIMESTAMP\s+TOTAL\(us\)\s+EMLXS\(us\)")
_ROW = re.compile(r"\s*(\d{4} [A-Z][a-z]{2} [ \d]?\d \d{2}:\d{2}:\d{2})" + r"\s+(\d{1,15})" * 6 + r"\s*")
_LIKE_ROW = re.compile(r"\s*\S+ \S+ {1,2}\S+ \S+:\S+:\S+(?:\s+\S+){6}\s*")
_DEVICE = "emlxs"


def sniff_emlxs(head: str) -> bool:
    """Return whether there is its head, or a row that has lost it."""
    return any(_HEAD.match(line) or _ROW.fullmatch(line) for line in head.split("\n"))


def is_emlxs(line: str) -> bool:
    """Return whether a line is a row, which begins with its time."""
    return _ROW.fullmatch(line) is not None


def read_emlxs(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the rows of each second; a head begins another run."""
    rows: list[tuple[int, Outlier]] = []
    for at, line in enumerate(lines, 1):
        if _HEAD.match(line):
            yield from _windows(rows, options)
            yield (
                TimeLine(TextSpan(at, at), f"line {at}: another run of emlxsoverhead begins")
                if rows
                else Passed(TextSpan(at, at))
            )
            rows = []
        elif (row := _ROW.fullmatch(line)) and (outlier := _outlier(row, options)):
            rows.append((at, outlier))
        elif _LIKE_ROW.fullmatch(line):
            yield Remark(TextSpan(at, at), "a row can't be read: its I/O is left out", 1, is_incomplete=True)
    yield from _windows(rows, options)


def _windows(rows: list[tuple[int, Outlier]], options: ImportOptions) -> Iterator[Times]:
    for wall, same in groupby(rows, key=lambda pair: pair[1].wall):
        group = list(same)
        for first, last in _periods([at for at, _ in group]):
            yield _second(
                TextSpan(first, last, wall), [outlier for at, outlier in group if first <= at <= last], options
            )


def _periods(lines: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of adjacent lines."""
    first = last = lines[0]
    for at in lines[1:]:
        if at != last + 1:
            yield first, last
            first = at
        last = at
    yield first, last


def _outlier(row: re.Match[str], options: ImportOptions) -> Outlier | None:
    """Return the I/O of a row; None if its stages are more than their total."""
    wall = values.moment(row[1])
    total, emlxs, start, intr, queue, done = (int(group) for group in row.groups()[1:])
    stages = {"queue": start, "hba": total - emlxs, "irq": intr, "completion": queue + done}
    remainder = total - sum(stages.values())
    if wall is None or remainder < 0 or emlxs > total:
        return None
    flow = options.flow(_DEVICE, UNKNOWN_OP)
    return Outlier(
        wall=wall,
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        stages_us=stages,
        unaccounted_us=remainder,
        path=f"completion: QUEUE {queue} us, I/O DONE {done} us",
    )


def _second(where: TextSpan, group: list[Outlier], options: ImportOptions) -> Times:
    flow = options.flow(_DEVICE, UNKNOWN_OP)
    histograms = {Series(*flow, "total"): Histogram.record(outlier.total_us for outlier in group)}
    for stage in group[0].stages_us:
        histograms[Series(*flow, stage)] = Histogram.record(outlier.stages_us[stage] for outlier in group)
    total = sum(outlier.total_us for outlier in group)
    return Times(where, histograms, tuple(group), {flow: Completed(len(group), 0, total)})


_BEGIN = re.compile(
    r"\s*(?:(\d{1,9}\.\d{1,9})\s+)?([\w./@-]{1,64}):\s*(->|<-|COMMAND|RETURN)\s+0[x\u00d7]?[0-9a-fA-F]*\s+"
)
_COMMAND = re.compile(r"\(?([A-Z][A-Z_ ]{2,40}(?:\(\d{1,2}\))?)\)?")
_ADDRESS = re.compile(r"\baddress\s+([0-9a-fA-F:]{1,24}\b)")
_LBA = re.compile(r"\blba\s+(?:0[x\u00d7])?([0-9a-fA-F]{1,16})\b")
_LENGTH = re.compile(r"\blen\s+(?:0[x\u00d7])?([0-9a-fA-F]{1,12})\b")
_TIME = re.compile(r"\bTime\s+(\d{1,15})us\b")
_REASON = re.compile(r"\breason\s+0[x\u00d7]?[0-9a-fA-F]*\s+\((\w{1,32})\)")
_SECTOR = 512
_NEEDED = 3
_WORDS = ("address ", "lba ")
"""Words in any command's line, damaged or not."""
_BACK_S = 1
"""DTrace prints the buffers of its CPUs one behind the other, a second of each: stamps of a run fall by less."""
_OPS = {"READ": "read", "WRITE": "write", "SYNC": "flush", "UNMAP": "discard"}


def sniff_scsi(head: str) -> bool:
    """Return whether there are arrows with an opcode and an address."""
    return any(_BEGIN.match(line) and _ADDRESS.search(line) for line in head.split("\n"))


def read_scsi(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the commands that came back in each second."""
    begun: dict[tuple[str, str, str], int] = defaultdict(int)
    seconds = Seconds(options.threshold_us)
    second = 0
    before = 0.0
    for at, line in enumerate(lines, 1):
        start = _BEGIN.match(line)
        if not start or not _ADDRESS.search(line):
            yield from _unread(at, line)
            continue
        stamp = float(start[1] or before)
        if before - stamp > _BACK_S:
            yield from seconds.end()
            yield from _waiting(begun, at - 1)
            yield TimeLine(TextSpan(at, at), f"line {at}: another run of scsi.d begins")
            begun.clear()
        before = stamp
        key = (start[2], *((_ADDRESS.search(line) or [""])[0], (_LBA.search(line) or [""])[0]))
        if start[3] in ("->", "COMMAND"):
            begun[key] += 1
            yield Passed(TextSpan(at, at))
            continue
        begun[key] = max(0, begun[key] - 1)
        outlier = _returned(start, line, options)
        if outlier is None:
            yield Remark(TextSpan(at, at), "a command came back without a time in us", 1, is_incomplete=True)
            continue
        second = int(float(start[1])) if start[1] else second
        yield from seconds.add(second, at, at, outlier)
        if (reason := _REASON.search(line)) and reason[1] != "COMPLETED":
            yield Remark(TextSpan(at, at), clean(f"{outlier.device}: {reason[1]}"))
    yield from seconds.end()
    yield from _waiting(begun, len(lines))


def _unread(at: int, line: str) -> Iterator[Remark]:
    """Yield a remark if a line that can't be read was a command."""
    if ("->" in line or "<-" in line) and all(word in line for word in _WORDS):
        yield Remark(TextSpan(at, at), "a command can't be read: it is left out", 1, is_incomplete=True)


def _waiting(begun: Mapping[tuple[str, str, str], int], at: int) -> Iterator[Found]:
    if left := sum(begun.values()):
        yield Remark(TextSpan(at, at), f"{left:,} commands had not come back at the end", 0)


def _returned(start: re.Match[str], line: str, options: ImportOptions) -> Outlier | None:
    time, address, lba, length = (pattern.search(line) for pattern in (_TIME, _ADDRESS, _LBA, _LENGTH))
    command = _COMMAND.match(line, start.end())
    if time is None or address is None:
        return None
    total = int(time[1])
    flow = options.flow(clean(f"{start[2]} {address[1]}"), _op(command[1] if command else ""))
    return Outlier(
        wall=max(0.0, float(start[1]) - total / 1e6) if start[1] else values.NO_WALL,
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        stages_us={},
        unaccounted_us=total,
        sector=int(lba[1], 16) if lba else None,
        bytes=int(length[1], 16) * _SECTOR if length else None,
        path=clean(command[1].strip()) if command else "",
    )


def _op(command: str) -> str:
    return next((op for word, op in _OPS.items() if command.startswith(word)), UNKNOWN_OP)


_LINE = re.compile(r"\s*(?:s?sd\d{1,5}\s+\d{1,6}(?:\s+|$))+")
_PAIR = re.compile(r"(s?sd\d{1,5})\s+(\d{1,6})(?!\S)")
_MAX_NAMED = 8


def sniff_max_sd(head: str) -> bool:
    """Return whether there are lines of LUNs and numbers alone."""
    return any(_LINE.fullmatch(line) for line in head.split("\n"))


def read_max_sd(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each pair as a maximum depth; there is neither time nor distribution."""
    names = [name for line in lines if _LINE.fullmatch(line) for name, _ in _PAIR.findall(line)]
    one_device(options, list(dict.fromkeys(names)))
    for at, line in enumerate(lines, 1):
        if not _LINE.fullmatch(line):
            continue
        where = TextSpan(at, at)
        pairs = _PAIR.findall(line)
        depths = {options.device or name: Depths(most=int(most), source=PROBE) for name, most in pairs}
        yield Counts(where, {}, {}, depths)
        text = ", ".join(f"{name} {most}" for name, most in pairs[:_MAX_NAMED])
        yield Remark(where, f"the most commands in the driver, without a time: {text}")


_MODULE = re.compile(r"\s*module:\s+(\S{1,64})\s+instance:\s+(\d{1,10})\s*")
_NAME = re.compile(r"\s*name:\s+(\S.{0,63}?)\s+class:\s+(\S{1,64})\s*")
_VALUE = re.compile(r"\s*([a-z_]{2,32})\s+(-?\d{1,20}(?:\.\d{1,12})?)\s*")
_TASKQ_PAIR = re.compile(r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):([a-z_]{2,32})[\t ]+(\S{1,64})\s*")
_TASKQ_NEEDED = ("tasks", "executed", "maxtasks", "nactive", "priority", "threads")
_MAX = 2**63 - 1
_MOST = 1024


def sniff_taskq(head: str) -> bool:
    """Return whether there is the class taskq, or a statistic that only task queues have."""
    lines = head.split("\n")
    return any((name := _NAME.fullmatch(line)) and name[2] == "taskq" for line in lines) or any(
        (pair := _TASKQ_PAIR.fullmatch(line)) and pair[4] in ("maxtasks", "nactive") for line in lines
    )


def read_taskq(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all queues of a reading together; a queue that comes again begins the next reading."""
    del options
    rows_by_taskq: dict[tuple[str, int], dict[str, str]] = {}
    first = last = 0
    instance, current = 0, None
    for at, line in enumerate(lines, 1):
        module, name, pair = _MODULE.fullmatch(line), _NAME.fullmatch(line), _TASKQ_PAIR.fullmatch(line)
        value = _VALUE.fullmatch(line) if current is not None else None
        if pair and pair[4] != "class":
            key = (pair[3], int(pair[2]))
            if pair[4] in rows_by_taskq.get(key, {}) or len(rows_by_taskq) >= _MOST:
                yield from _reading(rows_by_taskq, first, last)
                rows_by_taskq = {}
            rows_by_taskq.setdefault(key, {})[pair[4]] = pair[5]
        elif pair:
            pass  # its statistics show its class
        elif module:
            instance, current = int(module[2]), None
        elif name and name[2] == "taskq":
            key = (name[1], instance)
            if key in rows_by_taskq or len(rows_by_taskq) >= _MOST:
                yield from _reading(rows_by_taskq, first, last)
                rows_by_taskq = {}
            current = rows_by_taskq.setdefault(key, {})
        elif value and current is not None:
            current[value[1]] = value[2]
        else:
            current = None
            continue
        yield Passed(TextSpan(at, at))
        first, last = (
            (at, at) if len(rows_by_taskq) <= 1 and sum(map(len, rows_by_taskq.values())) <= 1 else (first or at, at)
        )
    yield from _reading(rows_by_taskq, first, last)


def _reading(rows_by_taskq: Mapping[tuple[str, int], Mapping[str, str]], first: int, last: int) -> Iterator[Found]:
    taskqs = {key: taskq for key, values in rows_by_taskq.items() if (taskq := _taskq(*key, values)) is not None}
    if taskqs:
        yield Queues(TextSpan(first, last), tuple(taskqs.values()))
    for name, _ in rows_by_taskq.keys() - taskqs.keys():
        yield Remark(
            TextSpan(first, last), f"task queue {clean(name)}: some of {', '.join(_TASKQ_NEEDED)} is missing", 1
        )


def _taskq(name: str, instance: int, values: Mapping[str, str]) -> Taskq | None:
    """Return a queue; None if a statistic is missing or out of range."""
    numbers = [
        int(values[key]) for key in _TASKQ_NEEDED if values.get(key, "").isdecimal() and int(values[key]) <= _MAX
    ]
    if len(numbers) < len(_TASKQ_NEEDED):
        return None
    tasks, executed, most, active, priority, threads = numbers
    waiting = max(tasks - executed - active, 0)
    return Taskq(
        name=clean(name),
        instance=instance,
        threads=threads,
        priority=priority,
        active=active,
        waiting=waiting,
        most=most,
        ever=executed,
    )


_SETTING = re.compile(
    r"(?:&nbsp;|\s)*(?:([0-9a-f]{8,16})\s+)?(?:[a-z]\w{2,20}\s+){0,2}(?::\d{1,2}\s+)?"
    r"(un_(?:f_)?\w{3,40}|m_(?:notag|nowide))\s+=\s+(0x[0-9a-f]{1,16}|\d{1,10})\b.{0,200}"
)
_STRUCTURE = re.compile(r".{0,80}\bsdump\s+(0x[0-9a-f]{8,16})\b.{0,200}")
_DUMP = re.compile(r"CAT\(([^()\s]{1,40})\)")
"""The dump that the prompt of Solaris CAT names."""
_PRIORITY = re.compile(r"\s*prio: (\d{1,4})\s*")
_MAX_SETTING = 400
_ADAPTER, _DISK = "mpt", "sd"


def sniff_settings(head: str) -> bool:
    """Return whether there is a setting of sd, or the priority of a thread."""
    return any(_setting(line) is not None or _PRIORITY.fullmatch(line) for line in head.split("\n"))


def read_settings(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the settings of each structure, and priorities as messages.

    Settings of mpt are of an adapter, each group of them of another one, and not of the disk before them.
    """
    del options
    structure = dump = ""
    adapters = 0
    settings_found: list[tuple[int, str, int]] = []
    for at, line in enumerate(lines, 1):
        begins, setting = _STRUCTURE.fullmatch(line[:_MAX_SETTING]), _setting(line)
        address = begins[1] if begins else setting[0] if setting else ""
        if setting and not address and setting[1].startswith("m_") is not structure.startswith(_ADAPTER):
            adapters += setting[1].startswith("m_")
            address = f"{_ADAPTER}{adapters}" if setting[1].startswith("m_") else _DISK
        if begins or (address and address != structure):
            yield from _limits(structure, settings_found, dump)
            named = _DUMP.search(line) if begins else None
            settings_found, dump = [], named[1] if named else ""
        if setting is not None:
            settings_found.append((at, *setting[1:]))
        elif (priority := _PRIORITY.fullmatch(line)) is not None:
            yield Message(
                TextSpan(at, at), f"line {at}: prio: {priority[1]}, the priority of a thread", int(priority[1])
            )
        if begins or setting is not None:
            yield Passed(TextSpan(at, at))
        structure = address or structure
    yield from _limits(structure, settings_found, dump)


def _setting(line: str) -> tuple[str, str, int] | None:
    """Return address, name and value of a setting; the address is empty where the line has none."""
    match = _SETTING.fullmatch(line[:_MAX_SETTING]) if " = " in line[:_MAX_SETTING] else None
    return None if match is None else (match[1] or "", match[2], int(match[3], 0))


def _limits(structure: str, settings_found: Sequence[tuple[int, str, int]], dump: str) -> Iterator[Limits]:
    """Yield the settings of a structure; those of a disk are from the dump that the prompt before them names."""
    if settings_found:
        sources = {"u": f"struct sd_lun, {dump}" if dump else "struct sd_lun", "m": "struct mpt"}
        each = {name: Limit(name, value, sources[name[0]]) for _, name, value in settings_found}
        yield Limits(TextSpan(settings_found[0][0], settings_found[-1][0]), structure or _DISK, tuple(each.values()))
