"""Importers of bcc, libbpf-tools and perf-tools: histograms, and tables with a row for each I/O.

Histograms are log2 and linear, `a -> b : count |***|`, and `-j`. A bucket's end is inclusive, but not with perf-tools'
head (`>=(ms) .. <(ms)`), and not where it is the next bucket's begin, as Inspektor Gadget prints it. The last bucket
that libbpf-tools have is open. What was measured is in the line with which a tool begins ("Tracing run queue latency"),
or in its command line; which disk, op or function, in the line above a table (`disk = 'sda'`, `flags = Sync-Write`).
Tables of one print that are of the same device and op, such as those of Write and Sync-Write, are of different I/Os and
are added row by row.

Tables are those of biosnoop, iosnoop, fileslower, ext4slower, runqslower, funcslower. A table is known by its head:
each word is a column whose meaning is declared here, and one is a latency. Names of processes and files may have
blanks; other columns may not. A table in which time falls, or whose head comes again, is another run. Tools that trace
what is slower than a threshold say so in the line above their head. Oracle's warning of a slow log write is a row
without a head.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.values import (
    APPLICATION,
    DISK,
    FILE,
    TRIVIAL,
    UNITS,
    UNKNOWN_OP,
    WHOLE,
    Clock,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    ShortNames,
    TextSpan,
    TimeLine,
)
from latmon.model.frame import Outlier, Series
from latmon.support.text import clean


class Tracer(NamedTuple):
    """Measurement of a tool of bcc, which the line with which it begins or its command names."""

    begins: re.Pattern[str]
    commands: str
    device: str
    """Device of its values; empty: the first group of `begins`."""
    stage: str = WHOLE
    no_latency: str = ""
    """Reason why its values are no latencies of I/Os; empty where they are."""
    layer: str = ""
    """One of values.LAYERS; empty where that is not known."""


TRACERS = tuple(
    Tracer(re.compile(begins), *rest)
    for begins, *rest in (
        (
            *(r"Tracing block (?:device )?I/O", "biolatency iolatency biosnoop iosnoop biostacks bitesize"),
            *("all disks", WHOLE, "", values.DISK),
        ),
        (r"Tracing run queue latency", "runqlat runqslower", "run queue", "resume"),
        (r"Tracing work queue request latency", "wqlat", "work queue", "resume"),
        (r"Tracing (?:tcp|TCP) ", "tcprtt tcpcong", "", "", "times of TCP"),
        (r"Tracing sync read/writes", "fileslower", "files", WHOLE, "", values.FILE),
        (r"Tracing (\w+) operations?\b", "", "", WHOLE, "", values.FILE),
        (r"Tracing (?:MySQL|database)", "dbslower mysqld_qslower", "queries", WHOLE, "", values.APPLICATION),
        (r"Tracing (?:hard|soft) irq event time", "hardirqs softirqs", "", "", "run times of handlers"),
        (r"Tracing (?:on|off)-CPU time", "cpudist", "", "", "times on or off a CPU"),
        (r"Tracing fs read-ahead", "readahead", "", "", "ages of pages read ahead"),
        (r'Tracing \d+ functions? for "(.{1,100}?)"', "", ""),
        (r"Tracing (\w{1,100})\. {1,2}Hit Ctrl-C", "", ""),
    )
)
FILE_SYSTEM = re.compile(r"(ext4|xfs|zfs|btrfs|nfs|f2fs)(?:dist|slower)")
_COMMAND = re.compile(
    r"(.{0,80}?[#$%>]\s+)?(?:sudo )?(?:\S{0,80}/)?([a-z0-9_]{3,20})(?:-bpfcc|\.py)?"
    r"(?:\s+(?:-\S{1,30}(?:\s+[a-z]\S{0,40})?|[\d.]{1,10})){0,10}\s*"
)
"""A command line, with a prompt or without."""
_HEAD = re.compile(r"\s*(\S.{0,40}?)\s+: (?:count\s+distribution|I/O\s+\|Distribution\s*\|)\s*")
_LIMITED = ": count    distribution"
"""In the heads of libbpf-tools and Inspektor Gadget; bcc's own have a blank more, and a row for each 64-bit value."""
_LAST_ROWS = {"biolatency": 1 << 26, "runqlat": 1 << 25}
"""Begin of the last row (MAX_SLOTS) of a tool of libbpf-tools."""
_LAST_ROW_OF_FILES = 1 << 31
"""Begin of the last row of ext4dist and similar tools."""
_ANY_LAST_ROW = (1 << 24, *_LAST_ROWS.values(), _LAST_ROW_OF_FILES)
"""Begins of the last rows of all tools, for a table without its tool's sentence; the first is funclatency's."""
_UP_TO = re.compile(r">=\((\w+)\) \.\. <\(\w+\)")
_ROW = re.compile(r"\s*(\d{1,20}) -> (\d{1,20})\s*: (\d{1,20})\s*\|[*#+ ]*\|?\s*")
_ONE = re.compile(r"\s*(\d{1,20})\s+: (\d{1,20})\s*\|[*#+ ]*\|?\s*")
_LIKE_ROW = re.compile(r"\s*\S{0,20}\d\S{0,20}\s|.*(?:->|\|)")
_SECTION = re.compile(
    r"(?:Bucket )?([A-Za-z][\w ]{0,20}) = (?:b?'(.{0,100}?)'|(.{1,100}?))(?:\s+flags = ([\w-]{1,100}))?\s*"
)
_MEAN = re.compile(r"avg = (\d{1,18}) (\w{1,6}), total: (\d{1,18}) \w{1,6}, count: (\d{1,18})\s*")
_LOST = re.compile(r"\s*(?:Possibly lost|Lost) (\d{1,15}) (?:samples|events\b)")
_JSON = re.compile(
    r"\{'ts': '([^']{1,40})', 'val_type': '([^']{1,20})', 'data': \[([^\]]*)\]"
    r"(?:, '([\w ]{1,30})': b?'([^']{0,100})')?\}\s*"
)
_JSON_BEGIN = "{'ts': '"
_JSON_ROW = re.compile(
    r"\{(?:'interval-start': (\d{1,20}), 'interval-end': (\d{1,20})|'value': (\d{1,20})), "
    r"'count': (\d{1,20})\}(?:, |\Z)"
)
_CUMULATIVE = re.compile(r"Tracing \w{1,100}\. {1,2}Hit Ctrl-C to exit")
_DEVICE_KEYS = ("disk", "bucket ptr", "dev", "device", "function")
_TITLE = 200


def tracer_of(line: str, before: Tracer | None) -> Tracer | None:
    """Return the tool that a line names, by what it prints first or by its command; else the one named `before`."""
    if line.startswith("Tracing "):
        for tracer in TRACERS:
            if match := tracer.begins.match(line):
                return tracer if tracer.device or tracer.no_latency else tracer._replace(device=clean(match[1], 100))
    if (command := _COMMAND.fullmatch(line)) is None:
        return before
    if file_system := FILE_SYSTEM.fullmatch(command[2]):
        return TRACERS[0]._replace(device=file_system[1], layer=values.FILE)
    unknown = None if command[1] else before
    return next((tracer for tracer in TRACERS if command[2] in tracer.commands.split()), unknown)


def last_rows(tracer: Tracer | None) -> tuple[int, ...]:
    """Return where the last row of a tool's version in libbpf-tools begins; all of them where the tool isn't known."""
    if tracer is None:
        return _ANY_LAST_ROW
    if tracer.layer == values.FILE:
        return (_LAST_ROW_OF_FILES,)
    begins = tuple(low for name, low in _LAST_ROWS.items() if name in tracer.commands.split())
    return begins or _ANY_LAST_ROW


def lost_in(at: int, line: str) -> Remark | None:
    """Return a remark if a line is the tool's own sentence on events that it lost."""
    lost = _LOST.match(line)
    if lost is None:
        return None
    return Remark(TextSpan(at, at), f"the tool lost {int(lost[1]):,} events", lost=int(lost[1]))


@dataclass(slots=True)
class _Histogram:
    """Histogram as it is printed."""

    first: int
    last: int
    label: str
    """Left part of its head: the unit, or what is counted."""
    section: tuple[tuple[str, str], ...]
    tracer: Tracer | None
    printed: list[Row] = field(default_factory=list)
    """Rows with the upper edges that are printed."""
    begun: int = 0
    """The line of its first row; 0 if all rows are in one line."""
    is_log2: bool = False
    is_limited: bool = False
    """Its tool counts what is above the last row that it has in that row."""
    torn: int = 0
    total_us: int | None = None
    """Sum of the values, as printed below it."""

    @property
    def unit(self) -> str:
        """Return one of UNITS; empty if the head counts no time, such as Kbytes."""
        up_to = _UP_TO.fullmatch(self.label)
        word = up_to[1] if up_to else self.label
        return values.of_title(f"({word})")

    @property
    def count(self) -> int:
        return sum(row.count for row in self.printed)

    @property
    def rows(self) -> tuple[Row, ...]:
        """Return the rows with the first value above each; the last one of a limited table has none."""
        rows = tuple(self.printed) if _UP_TO.fullmatch(self.label) else values.half_open(self.printed)
        if self.is_limited and rows and rows[-1].low in last_rows(self.tracer):
            return (*rows[:-1], rows[-1]._replace(high=None))
        return rows

    def take(self, at: int, line: str) -> bool:
        """Add a row; return whether the line is one, damaged or not."""
        row = _ROW.fullmatch(line)
        match = None if row else _ONE.fullmatch(line)
        if row:
            self.printed.append(Row(int(row[1]), int(row[2]), int(row[3])))
            self.is_log2 = True
        elif match:
            self.printed.append(Row(int(match[1]), int(match[1]), int(match[2])))
        elif line.strip() and _LIKE_ROW.match(line) and not _SECTION.fullmatch(line) and not _HEAD.fullmatch(line):
            self.torn = self.torn or at
        else:
            return False
        self.begun, self.last = self.begun or at, at
        return True

    @property
    def hole(self) -> int | None:
        """Return the place of the first row that doesn't begin where the one before it ends; None without one.

        A log2 histogram begins at 0.
        """
        rows = self.rows
        if self.is_log2 and rows and rows[0].low != 0:
            return 0
        return next((n for n, (row, other) in enumerate(pairwise(rows), 1) if row.high != other.low), None)


def sniff(head: str) -> bool:
    """Return whether there is the head of such a table, or a table as a dictionary."""
    return any((": " in line and _HEAD.fullmatch(line)) or line.startswith(_JSON_BEGIN) for line in head.split("\n"))


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each histogram as a table; a time above them is theirs."""
    tables = _tables(lines, options)
    begins = {at: bool(_CUMULATIVE.match(line)) for at, line in enumerate(lines, 1) if line.startswith("Tracing ")}
    yield from _differences(tables, begins) if any(begins.values()) else tables


def _tables(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    reader = _BccReader(options, Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.line(at, line)
    yield from reader.end()


def _differences(rows: Iterable[Found], begins: Mapping[int, bool]) -> Iterator[Found]:
    """Yield tables that grow from print to print as their differences.

    funclatency of libbpf-tools (bcc 0.26) prints all values since its begin; later ones those of an interval. A run is
    cumulative if no count of its tables ever falls. `begins`: lines with which a tool's output begins -> whether it is
    funclatency's; tables of other tools in the same text are left as they are.
    """
    runs: list[list[Found]] = [[]]
    for bcc_row in rows:
        runs += [[]] if isinstance(bcc_row, TimeLine) and bcc_row.run else []
        runs[-1].append(bcc_row)
    for run in runs:
        tables = [row for row in run if isinstance(row, ImportedTable)]
        above = [at for at in begins if tables and at <= tables[0].where.first]
        pairs = list(pairwise(tables)) if above and begins[above[-1]] else []
        grown = {id(new): _minus(new, old) for old, new in pairs}
        is_cumulative = bool(pairs) and all(row.count >= 0 for table in grown.values() for row in table.rows)
        for bcc_row in run:
            yield grown.get(id(bcc_row), bcc_row) if is_cumulative and isinstance(bcc_row, ImportedTable) else bcc_row
        if is_cumulative:
            text = f"{len(tables):,} tables count all values since the begin: each has what it has more than the last"
            yield Remark(TextSpan(tables[0].where.first, tables[0].where.first), text)


def _minus(table: ImportedTable, other: ImportedTable) -> ImportedTable:
    """Return a table without the counts of an earlier one; rows that only the earlier one has are below 0."""
    earlier_rows = {row.low: row for row in other.rows}
    rows = [
        row._replace(count=row.count - (earlier_rows.pop(row.low).count if row.low in earlier_rows else 0))
        for row in table.rows
    ]
    return replace(table, rows=(*rows, *(row._replace(count=-row.count) for row in earlier_rows.values())), sum_us=None)


@dataclass(slots=True)
class _BccReader:
    options: ImportOptions
    clock: Clock
    tracer: Tracer | None = None
    section: tuple[tuple[str, str], ...] = ()
    section_at: int = 0
    now: _Histogram | None = None
    print: list[_Histogram] = field(default_factory=list)
    """Tables that the tool printed together."""
    has_tables: bool = False
    is_named: bool = False
    """A remark that no line says what was measured has been yielded."""

    def line(self, at: int, line: str) -> Iterator[Found]:
        if self.now is not None:
            if self.now.take(at, line):
                return
            self._end_of_table()
        if (head := _HEAD.fullmatch(line)) is not None and ": " in line:
            is_limited = _LIMITED in line
            table = _Histogram(self.section_at or at, at, head[1], self.section, self.tracer, is_limited=is_limited)
            yield from self._begin(table)
        elif line.startswith(_JSON_BEGIN):
            yield from self._json(at, line)
        elif section := _section(line):
            self.section, self.section_at = section, at
        elif line.strip() and not values.of_line(line):
            self.section, self.section_at = (), 0
            yield from self._other(at, line)

    def end(self) -> Iterator[Found]:
        """Yield what is left after the last line."""
        self._end_of_table()
        yield from self._end_of_print()

    def _begin(self, table: _Histogram) -> Iterator[Found]:
        if any(histogram.section == table.section for histogram in self.print):
            yield from self._end_of_print()
        self.now = table
        self.section, self.section_at = (), 0

    def _end_of_table(self) -> None:
        if self.now is not None:
            self.print.append(self.now)
            self.now, self.has_tables = None, True

    def _end_of_print(self) -> Iterator[Found]:
        tables, self.print = self.print, []
        merged: dict[Series, ImportedTable] = {}
        for histogram in tables:
            last_row = self._found(histogram)
            if not isinstance(last_row, ImportedTable) or last_row.series is None:
                yield last_row
            elif (imported_table := merged.get(last_row.series)) is None or not _same_edges(imported_table, last_row):
                yield from (merged.pop(last_row.series),) if imported_table else ()
                merged[last_row.series] = last_row
            else:
                merged[last_row.series] = _added(imported_table, last_row)
                text = f"added to the table in line {imported_table.where.first}, of the same device and op"
                yield Remark(TextSpan(last_row.where.first, last_row.where.first), text)
                yield Passed(last_row.where)
        yield from merged.values()
        if tables and not self.is_named and any(table.tracer is None and not table.section for table in tables):
            self.is_named = True
            text = "no line says what was measured: taken for whole latencies; --stage and --device overrule"
            yield Remark(TextSpan(tables[0].first, tables[0].first), text)

    def _found(self, histogram: _Histogram) -> Found:
        where, title = TextSpan(histogram.first, histogram.last), self._title(histogram)
        if histogram.torn or histogram.hole is not None or not histogram.printed:
            at = histogram.torn or (histogram.begun + (histogram.hole or 0) if histogram.begun else histogram.first)
            text = f"the table {title} is damaged in line {at}: all of it is left out"
            if not histogram.rows and not histogram.torn:
                text = f"the table {title} has no row with a count"
            return Remark(where, text, 1, is_incomplete=True)
        why = histogram.tracer.no_latency if histogram.tracer else ""
        if why or not histogram.unit:
            return Remark(where, f"{title}: {why or clean(histogram.label, 40)}, no latency, left out", histogram.count)
        kind = "log2" if histogram.is_log2 else "linear"
        series = self._series(histogram)
        layer = (
            histogram.tracer.layer
            if histogram.tracer
            else values.DISK
            if any(key == "disk" for key, _ in histogram.section)
            else ""
        )
        unit_from = "the head of the table"
        return ImportedTable(
            where=where,
            title=title,
            kind=kind,
            rows=histogram.rows,
            unit=histogram.unit,
            unit_from=unit_from,
            series=series,
            sum_us=histogram.total_us,
            layer=layer,
        )

    def _title(self, histogram: _Histogram) -> str:
        return clean(
            " ".join(f"{key} {value}" for key, value in histogram.section)
            or (histogram.tracer or TRACERS[0]).device
            or "a table",
            _TITLE,
        )

    def _series(self, histogram: _Histogram) -> Series:
        device, op = (histogram.tracer.device if histogram.tracer else "table"), UNKNOWN_OP
        for key, value in histogram.section:
            if key in _DEVICE_KEYS:
                device = value
            elif key == "flags":
                op = values.op_named(value.rpartition("-")[2])
            elif key == "operation":
                op = values.op_named(value)
                device = device if op != UNKNOWN_OP else f"{device} {value}"
            else:
                device = f"{device} {key} {value}"
        return self.options.series(clean(device, _TITLE), op, histogram.tracer.stage if histogram.tracer else WHOLE)

    def _other(self, at: int, line: str) -> Iterator[Found]:
        """Take a line between tables: a time, the tool's first sentence, the mean below a table, lost events."""
        where = TextSpan(at, at)
        wall = self.clock.wall(line.strip().removesuffix(":"))
        mean = _MEAN.fullmatch(line)
        if wall is not None:
            yield from self._end_of_print()
            yield TimeLine(replace(where, wall=wall))
        elif mean is not None:
            yield from self._mean(at, mean)
        elif (lost := lost_in(at, line)) is not None:
            yield lost
        else:
            yield from self._end_of_print()
            self.tracer = tracer_of(line, self.tracer)
            if line.startswith("Tracing ") and self.tracer is not None:
                yield (
                    TimeLine(where, f"line {at}: another run begins: {clean(line, 60)}")
                    if self.has_tables
                    else Passed(where)
                )
                self.has_tables = False

    def _mean(self, at: int, mean: re.Match[str]) -> Iterator[Found]:
        """Take the mean below the tables of a print: it is of all of them."""
        where, count, unit = TextSpan(at, at), int(mean[4]), values.of_title(f"({mean[2]})")
        if len(self.print) == 1 and self.print[0].count == count and unit:
            self.print[0].total_us = int(mean[3]) * UNITS[unit] // 1000
            yield Passed(where)
        elif sum(histogram.count for histogram in self.print) == count:
            yield Remark(where, f"the mean of the tables above together: {int(mean[1]):,} {mean[2]}")
        else:
            tables = sum(histogram.count for histogram in self.print)
            text = f"the mean is of {count:,} values, and the tables above have {tables:,}: it is left out"
            yield Remark(where, text, 1)

    def _json(self, at: int, line: str) -> Iterator[Found]:
        """Take a table that is one line (biolatency -j)."""
        table = _JSON.fullmatch(line)
        rows = None if table is None else _json_rows(table[3])
        if table is None or rows is None:
            yield Remark(TextSpan(at, at), "a table can't be read: it is left out", 1, is_incomplete=True)
            return
        key = (table[4] or "").lower()
        section = ((key, clean(table[5], _TITLE)),) if key else ()
        wall = self.clock.wall(table[1])
        if any(histogram.section == section for histogram in self.print):
            yield from self._end_of_print()
        if wall is not None and not self.print:
            yield TimeLine(TextSpan(at, at, wall))
        yield from self._begin(_Histogram(at, at, table[2], section, self.tracer, rows))
        self._end_of_table()


def _section(line: str) -> tuple[tuple[str, str], ...]:
    match = _SECTION.fullmatch(line) if " = " in line and not line.startswith("avg = ") else None
    if match is None:
        return ()
    labels = ((match[1].lower(), clean(match[2] or match[3] or "", _TITLE)),)
    return (*labels, ("flags", match[4])) if match[4] else labels


def _json_rows(text: str) -> list[Row] | None:
    rows: list[Row] = []
    at = 0
    while at < len(text):
        row = _JSON_ROW.match(text, at)
        if row is None:
            return None
        rows.append(Row(int(row[1] or row[3]), int(row[2] or row[3]), int(row[4])))
        at = row.end()
    return rows


def _same_edges(table: ImportedTable, other: ImportedTable) -> bool:
    return table.unit == other.unit and all(a[:2] == b[:2] for a, b in zip(table.rows, other.rows, strict=False))


def _added(imported_table: ImportedTable, other: ImportedTable) -> ImportedTable:
    """Return the sum of two tables whose buckets have the same edges; the longer one has more of them."""
    few, many = sorted((imported_table, other), key=lambda table: len(table.rows))
    counts = [row.count for row in few.rows] + [0] * (len(many.rows) - len(few.rows))
    rows = tuple(row._replace(count=row.count + n) for row, n in zip(many.rows, counts, strict=True))
    return replace(imported_table, rows=rows, sum_us=None)


class EventColumn(NamedTuple):
    """A column: its meaning and its unit in microseconds or bytes, by its word in a head."""

    role: str
    pattern: str
    unit: float = 1


_INT, _DECIMAL, _WORD, _TEXT = r"-?\d{1,19}", r"-?\d{1,12}(?:\.\d{1,9})?", r"\S{1,80}", r".{0,200}?"
_TIME = EventColumn("clock", r"\d{1,2}:\d{2}:\d{2}(?:\.\d{1,9})?")
_SECONDS = EventColumn("end", _DECIMAL)
_COMM, _PID, _OP = EventColumn("comm", _TEXT), EventColumn("pid", _INT), EventColumn("op", _WORD)
_BYTES, _MS, _US = (
    EventColumn("bytes", r"-?\d{1,19}|LL_MAX"),
    EventColumn("latency", _DECIMAL, 1000),
    EventColumn("latency", _DECIMAL, 1),
)
_FILE, _OTHER = EventColumn("file", _TEXT), EventColumn("", _WORD)
_DEVICE, _SECTOR = EventColumn("device", _WORD), EventColumn("sector", _INT)
_NUMBERS = EventColumn("device", r"\d{1,4},\d{1,7}")
COLUMNS = {
    "TIME(s)": _SECONDS,
    "TIME(ms)": EventColumn("end", _DECIMAL, 1e-3),
    "TIME": _TIME,
    "TIMESTAMP": _TIME,
    "STARTs": EventColumn("", _DECIMAL),
    "ENDs": _SECONDS,
    "ENDTIME_us": EventColumn("end", _INT, 1e-6),
    "ENDTIME_ns": EventColumn("end", _INT, 1e-9),
    "COMM": _COMM,
    "TASK": _COMM,
    "PID": _PID,
    "TID": _PID,
    "DISK": _DEVICE,
    "DEV": _NUMBERS,
    "T": _OP,
    "D": _OP,
    "TYPE": _OP,
    "SECTOR": _SECTOR,
    "BLOCK": _SECTOR,
    "BYTES": _BYTES,
    "P": _OTHER,
    "OFF_KB": EventColumn("", _INT),
    "OFFSET_b": EventColumn("", _INT),
    "QUE(ms)": EventColumn("queue", _DECIMAL, 1000),
    "LAT(ms)": _MS,
    "LATms": _MS,
    "MS": _MS,
    "LAT(us)": _US,
    "LATENCY_us": _US,
    "FILENAME": _FILE,
    "FILE": _FILE,
    "QUERY": _FILE,
    "RVAL": _OTHER,
    "FUNC": EventColumn("device", r"\S.{0,200}?"),
}
"""Word of a head -> what the column has."""
_PREVIOUS = " PREV COMM"
"""The task that had the CPU before, in the last two columns of runqslower -P."""
_LEAST = 4
_QUEUED = "-529"
"""The kernel's EIOCBQUEUED instead of a size: an asynchronous I/O was submitted, and had not completed."""
_LONGEST = 1000
"""Characters of a row or a head."""
_MIN = re.compile(r"Tracing .{1,80} (?:slower|higher) than (\d{1,9}) (ms|us)")
_ORACLE = re.compile(r"\s*(?:Warning: )?log write elapsed time (\d{1,12}) ?ms, size (\d{1,12}) ?KB\s*")
_BACK_S = 1
"""Rows of different CPUs may be printed in another order than they ended."""
_UNITS = {"ms": 1000, "us": 1}
_MOST_US = 2**53


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a table, and a pattern of its rows."""

    columns: tuple[EventColumn, ...]
    row: re.Pattern[str]
    separator: str

    def is_like_row(self, line: str) -> bool:
        """Return whether a line has as many words as a row, and begins like one."""
        words = line.split(self.separator or None)
        if self.columns[0].role in ("end", "clock") and not any(c.isdigit() for c in "".join(words[:1])):
            return False
        numbers = sum(any(c.isdigit() for c in word) for word in words[: len(self.columns) + 2])
        return len(words) >= len(self.columns) - 1 and 2 * numbers >= len(self.columns) - 1


def head_of(line: str) -> Head | None:
    """Return the head that a line is; None for any other line."""
    if len(line) > _LONGEST or not ("LAT" in line or "MS" in line):
        return None
    comma = "," if line.count(",") >= _LEAST else ""
    shown, previous, _ = line.partition(_PREVIOUS)
    names = [word.strip() for word in shown.split(comma or None)]
    if len(names) < _LEAST or not all(name in COLUMNS for name in names):
        return None
    columns = tuple(COLUMNS[word] for word in names)
    roles = [event_column.role for event_column in columns]
    if roles.count("latency") != 1 or len({*filter(None, roles)}) < len([*filter(None, roles)]):
        return None
    gap = "," if comma else r"\s+"
    remainder = r"(?:\s+.{0,60})?" if previous else ""
    pattern = gap.join(f"({event_column.pattern})" for event_column in columns)
    return Head(columns, re.compile(rf"\s*{pattern}{remainder}\s*"), comma)


def sniff_events(head: str) -> bool:
    """Return whether there is the head of such a table, or Oracle's warning."""
    return any(
        head_of(line) is not None or ("elapsed" in line and _ORACLE.fullmatch(line[:_LONGEST]) is not None)
        for line in head.split("\n")
    )


def read_events(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the I/Os that ended in each second."""
    reader = _EventReader(options, Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.line(at, line)
    yield from reader.end()


@dataclass(slots=True)
class _EventReader:
    options: ImportOptions
    clock: Clock
    head: Head | None = None
    tracer: Tracer | None = None
    seconds: Seconds = field(init=False)
    end_s: float | None = None
    """When the latest row ended."""
    wall: float | None = None
    """The latest time between rows, for rows without one."""
    names: ShortNames = field(default_factory=ShortNames)
    has_rows: bool = False
    least_us: int | None = None
    submitted: list[int] = field(default_factory=list)
    """Lines of rows of the table that were printed when their I/O was submitted."""

    def __post_init__(self) -> None:
        self.seconds = Seconds(self.options.threshold_us)

    def line(self, at: int, line: str) -> Iterator[Found]:
        where = TextSpan(at, at)
        oracle = _ORACLE.fullmatch(line[:_LONGEST]) if "elapsed" in line else None
        row = self.head.row.fullmatch(line) if self.head is not None and len(line) <= _LONGEST else None
        if self.head is not None and row is not None:
            yield from self._row(at, self.head, row)
        elif oracle is not None:
            yield from self._oracle(at, oracle)
        elif (head := head_of(line)) is not None:
            yield from self._begin(at, head)
        elif (lost := lost_in(at, line)) is not None:
            yield lost
        elif self.head is not None and self.head.is_like_row(line):
            yield Remark(where, "a row can't be read: its I/O is left out", 1, is_incomplete=True)
        elif not TRIVIAL.match(line):
            yield from self._other(at, line)

    def end(self) -> Iterator[Found]:
        """Yield the last second of a table, and a remark on rows that have no I/O."""
        yield from self.seconds.end()
        if self.submitted:
            where = TextSpan(self.submitted[0], self.submitted[0])
            text = (
                f"{len(self.submitted):,} rows are of asynchronous I/Os ({_QUEUED} bytes), timed until the submission"
            )
            yield Remark(where, f"{text}: they are left out", len(self.submitted))
            self.submitted = []

    def _begin(self, at: int, head: Head) -> Iterator[Found]:
        yield from self.end()
        stage = self.options.stage_of(self.tracer.stage if self.tracer else WHOLE)
        least = self.options.threshold_us if self.least_us is None else min(self.options.threshold_us, self.least_us)
        # a wait for the CPU is no I/O
        self.seconds = Seconds(least if stage == WHOLE else _MOST_US + 1, stage, self._layer(head))
        self.head, self.end_s = head, None
        where = TextSpan(at, at)
        yield TimeLine(where, f"line {at}: another table begins") if self.has_rows else Passed(where)
        self.has_rows = False

    def _layer(self, head: Head) -> str:
        """Return where the tool of a table measures, by its first sentence, else by its columns."""
        if self.tracer is not None and self.tracer.layer:
            return self.tracer.layer
        return DISK if {_DEVICE, _NUMBERS} & {*head.columns} else FILE if _FILE in head.columns else ""

    def _at(self, layer: str) -> Iterator[Found]:
        """Begin a window of another layer; yield the second of the one before."""
        if self.seconds.layer != layer:
            yield from self.seconds.end()
            self.seconds.layer = layer

    def _other(self, at: int, line: str) -> Iterator[Found]:
        """Take a line that is no row: a time, or the tool's first sentence."""
        wall = self.clock.wall(line.strip().removeprefix("*** "))
        if wall is not None:
            yield from self.seconds.end()
            self.wall = wall
            yield TimeLine(TextSpan(at, at, wall))
            return
        self.head = None
        self.tracer = tracer_of(line, self.tracer)
        if line.startswith("Tracing "):
            least = _MIN.match(line)
            self.least_us = None if least is None else int(least[1]) * _UNITS[least[2]]
            yield Passed(TextSpan(at, at))
            if least is not None:
                yield Remark(TextSpan(at, at), f"the table below has only what took longer than {least[1]} {least[2]}")

    def _row(self, at: int, head: Head, row: re.Match[str]) -> Iterator[Found]:
        where = TextSpan(at, at)
        fields = {
            event_column.role: (text, event_column.unit)
            for event_column, text in zip(head.columns, row.groups(), strict=True)
            if event_column.role
        }
        latency = _us(fields["latency"])
        if latency is None:
            yield Remark(where, "a row without a latency: its I/O is left out", 1, is_incomplete=True)
            return
        if fields.get("bytes", ("",))[0] == _QUEUED:
            self.submitted.append(at)
            yield Passed(where)
            return
        queue = _us(fields["queue"]) if "queue" in fields else None
        end = self._end(fields)
        if end is not None and self.end_s is not None and self.end_s - end > _BACK_S:
            yield from self.seconds.end()
            yield TimeLine(where, f"line {at}: another run begins, its time falls")
            self.end_s = None
        if end is not None:
            self.end_s = max(end, self.end_s if self.end_s is not None else end)
        self.has_rows = True
        outlier = self._io(fields, latency, queue)
        yield from self._at(self._layer(head))
        yield from self.seconds.add(None if self.end_s is None else int(self.end_s), at, at, outlier)

    def _end(self, fields: dict[str, tuple[str, float]]) -> float | None:
        if "end" in fields:
            text, unit = fields["end"]
            return max(0.0, float(text) * unit)
        return self.clock.wall(fields["clock"][0]) if "clock" in fields else self.wall

    def _io(self, fields: dict[str, tuple[str, float]], latency: int, queue: int | None) -> Outlier:
        """Return the I/O of a row; the latency of a disk begins at the issue, and a queue comes before it."""
        text = {role: value for role, (value, _) in fields.items()}
        size, pid = text.get("bytes", ""), text.get("pid", "")
        sector = text.get("sector", "")
        total = latency + (queue or 0)
        end = self.end_s
        flow = self.options.flow(self._device(text), _op(text.get("op", "")))
        return Outlier(
            wall=max(0.0, end - total / 1e6) if end is not None else values.NO_WALL,
            mono_us=0,
            device=flow.device,
            op=flow.op,
            total_us=total,
            stages_us={} if queue is None else {"queue": queue, "hba": latency},
            unaccounted_us=total if queue is None else 0,
            sector=int(sector) if sector.isdecimal() else None,
            bytes=int(size) if size.isdecimal() else None,
            pid=int(pid) if pid.isdecimal() and int(pid) else None,
            comm=clean(text.get("comm", "").strip()),
            path=clean(f"file {text['file']}", 100) if text.get("file", "").strip() else "",
            includes={} if queue is None else {"hba": ("irq", "softirq", "completion")},
        )

    def _device(self, text: dict[str, str]) -> str:
        if "device" in text:
            return self.names.short(text["device"].replace(",", ":"))
        return clean(self.tracer.device if self.tracer else "files" if "file" in text else "table", 64)

    def _oracle(self, at: int, row: re.Match[str]) -> Iterator[Found]:
        us = int(row[1]) * 1000
        self.has_rows = True
        outlier = Outlier(
            wall=values.NO_WALL if self.wall is None else max(0.0, self.wall - us / 1e6),
            mono_us=0,
            device=self.options.device or "log writer",
            op="write",
            total_us=us,
            unaccounted_us=us,
            bytes=int(row[2]) * 1024,
            path="log write of Oracle",
        )
        self.end_s = self.wall
        yield from self._at(APPLICATION)
        yield from self.seconds.add(None if self.wall is None else int(self.wall), at, at, outlier)


def _us(cell: tuple[str, float]) -> int | None:
    """Return a time in us; None for one below 0, which tools print for what they don't know."""
    us = round(float(cell[0]) * cell[1])
    return us if 0 <= us <= _MOST_US else None


def _op(letters: str) -> str:
    """Return the op of the kernel's letters, or of the letter of a file's operation (S is a sync)."""
    return "flush" if letters == "S" else values.op_of(letters)
