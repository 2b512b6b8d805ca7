"""Importer of log2 and linear histograms of bcc, libbpf-tools and perf-tools: `a -> b : count |***|`, and `-j`.

A bucket's end is inclusive, but not with perf-tools' head (`>=(ms) .. <(ms)`). What was measured is in the line with
which a tool begins ("Tracing run queue latency"), or in its command line; which disk, op or function, in the line above
a table (`disk = 'sda'`, `flags = Sync-Write`). Tables of one print that are of the same device and op, such as those of
Write and Sync-Write, are of different I/Os and are added row by row.
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
    UNITS,
    UNKNOWN_OP,
    WHOLE,
    Clock,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    TextSpan,
    TimeLine,
)
from latmon.model.frame import Series
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
_FILE_SYSTEM = re.compile(r"(ext4|xfs|zfs|btrfs|nfs|f2fs)(?:dist|slower)")
_COMMAND = re.compile(
    r"(.{0,80}?[#$%>]\s+)?(?:sudo )?(?:\S{0,80}/)?([a-z0-9_]{3,20})(?:-bpfcc|\.py)?"
    r"(?:\s+(?:-\S{1,30}(?:\s+[a-z]\S{0,40})?|[\d.]{1,10})){0,10}\s*"
)
"""A command line, with a prompt or without."""
_HEAD = re.compile(r"\s*(\S.{0,40}?)\s+: (?:count\s+distribution|I/O\s+\|Distribution\s*\|)\s*")
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
        for one in TRACERS:
            if found := one.begins.match(line):
                return one if one.device or one.no_latency else one._replace(device=clean(found[1], 100))
    if (command := _COMMAND.fullmatch(line)) is None:
        return before
    if file_system := _FILE_SYSTEM.fullmatch(command[2]):
        return TRACERS[0]._replace(device=file_system[1], layer=values.FILE)
    unknown = None if command[1] else before
    return next((one for one in TRACERS if command[2] in one.commands.split()), unknown)


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
    rows: list[Row] = field(default_factory=list)
    begun: int = 0
    """The line of its first row; 0 if all rows are in one line."""
    is_log2: bool = False
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
        return sum(row.count for row in self.rows)

    def take(self, at: int, line: str) -> bool:
        """Add a row; return whether the line is one, damaged or not."""
        row = _ROW.fullmatch(line)
        one = None if row else _ONE.fullmatch(line)
        if row:
            end = int(row[2]) + (0 if _UP_TO.fullmatch(self.label) else 1)
            self.rows.append(Row(int(row[1]), end, int(row[3])))
            self.is_log2 = True
        elif one:
            self.rows.append(Row(int(one[1]), int(one[1]) + 1, int(one[2])))
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
        if self.is_log2 and self.rows and self.rows[0].low != 0:
            return 0
        return next((n for n, (one, other) in enumerate(pairwise(self.rows), 1) if one.high != other.low), None)


def sniff(head: str) -> bool:
    """Return whether there is the head of such a table, or a table as a dictionary."""
    return any((": " in line and _HEAD.fullmatch(line)) or line.startswith(_JSON_BEGIN) for line in head.split("\n"))


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each histogram as a table; a time above them is theirs."""
    found = _tables(lines, options)
    begins = {at: bool(_CUMULATIVE.match(line)) for at, line in enumerate(lines, 1) if line.startswith("Tracing ")}
    yield from _differences(found, begins) if any(begins.values()) else found


def _tables(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    reader = _BccReader(options, Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.line(at, line)
    yield from reader.end()


def _differences(found: Iterable[Found], begins: Mapping[int, bool]) -> Iterator[Found]:
    """Yield tables that grow from print to print as their differences.

    funclatency of libbpf-tools (bcc 0.26) prints all values since its begin; later ones those of an interval. A run is
    cumulative if no count of its tables ever falls. `begins`: lines with which a tool's output begins -> whether it is
    funclatency's; tables of other tools in the same text are left as they are.
    """
    runs: list[list[Found]] = [[]]
    for one in found:
        runs += [[]] if isinstance(one, TimeLine) and one.run else []
        runs[-1].append(one)
    for run in runs:
        tables = [one for one in run if isinstance(one, ImportedTable)]
        above = [at for at in begins if tables and at <= tables[0].where.first]
        pairs = list(pairwise(tables)) if above and begins[above[-1]] else []
        grown = {id(new): _minus(new, old) for old, new in pairs}
        is_cumulative = bool(pairs) and all(row.count >= 0 for one in grown.values() for row in one.rows)
        for one in run:
            yield grown.get(id(one), one) if is_cumulative and isinstance(one, ImportedTable) else one
        if is_cumulative:
            text = f"{len(tables):,} tables count all values since the begin: each has what it has more than the last"
            yield Remark(TextSpan(tables[0].where.first, tables[0].where.first), text)


def _minus(one: ImportedTable, other: ImportedTable) -> ImportedTable:
    """Return a table without the counts of an earlier one; rows that only the earlier one has are below 0."""
    had = {row.low: row for row in other.rows}
    rows = [row._replace(count=row.count - (had.pop(row.low).count if row.low in had else 0)) for row in one.rows]
    return replace(one, rows=(*rows, *(row._replace(count=-row.count) for row in had.values())), sum_us=None)


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
            yield from self._begin(_Histogram(self.section_at or at, at, head[1], self.section, self.tracer))
        elif line.startswith(_JSON_BEGIN):
            yield from self._json(at, line)
        elif section := _section(line):
            self.section, self.section_at = section, at
        elif line.strip():
            self.section, self.section_at = (), 0
            yield from self._other(at, line)

    def end(self) -> Iterator[Found]:
        """Yield what is left after the last line."""
        self._end_of_table()
        yield from self._end_of_print()

    def _begin(self, table: _Histogram) -> Iterator[Found]:
        if any(one.section == table.section for one in self.print):
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
        for one in tables:
            found = self._found(one)
            if not isinstance(found, ImportedTable) or found.series is None:
                yield found
            elif (had := merged.get(found.series)) is None or not _same_edges(had, found):
                yield from (merged.pop(found.series),) if had else ()
                merged[found.series] = found
            else:
                merged[found.series] = _added(had, found)
                text = f"added to the table in line {had.where.first}, of the same device and op"
                yield Remark(TextSpan(found.where.first, found.where.first), text)
                yield Passed(found.where)
        yield from merged.values()
        if tables and not self.is_named and any(one.tracer is None and not one.section for one in tables):
            self.is_named = True
            text = "no line says what was measured: taken for whole latencies; --stage and --device overrule"
            yield Remark(TextSpan(tables[0].first, tables[0].first), text)

    def _found(self, one: _Histogram) -> Found:
        where, title = TextSpan(one.first, one.last), self._title(one)
        if one.torn or one.hole is not None or not one.rows:
            at = one.torn or (one.begun + (one.hole or 0) if one.begun else one.first)
            text = f"the table {title} is damaged in line {at}: all of it is left out"
            return Remark(where, text, 1, is_incomplete=True)
        why = one.tracer.no_latency if one.tracer else ""
        if why or not one.unit:
            return Remark(where, f"{title}: {why or clean(one.label, 40)}, no latency, left out", one.count)
        kind = "log2" if one.is_log2 else "linear"
        series = self._series(one)
        layer = one.tracer.layer if one.tracer else values.DISK if any(key == "disk" for key, _ in one.section) else ""
        unit_from = "the head of the table"
        return ImportedTable(
            where, title, kind, tuple(one.rows), one.unit, unit_from, series, one.total_us, layer=layer
        )

    def _title(self, one: _Histogram) -> str:
        return clean(
            " ".join(f"{key} {value}" for key, value in one.section) or (one.tracer or TRACERS[0]).device or "a table",
            _TITLE,
        )

    def _series(self, one: _Histogram) -> Series:
        device, op = (one.tracer.device if one.tracer else "table"), UNKNOWN_OP
        for key, value in one.section:
            if key in _DEVICE_KEYS:
                device = value
            elif key == "flags":
                op = values.op_named(value.rpartition("-")[2])
            elif key == "operation":
                op = values.op_named(value)
                device = device if op != UNKNOWN_OP else f"{device} {value}"
            else:
                device = f"{device} {key} {value}"
        return self.options.series(clean(device, _TITLE), op, one.tracer.stage if one.tracer else WHOLE)

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
        elif sum(one.count for one in self.print) == count:
            yield Remark(where, f"the mean of the tables above together: {int(mean[1]):,} {mean[2]}")
        else:
            tables = sum(one.count for one in self.print)
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
        if any(one.section == section for one in self.print):
            yield from self._end_of_print()
        if wall is not None and not self.print:
            yield TimeLine(TextSpan(at, at, wall))
        yield from self._begin(_Histogram(at, at, table[2], section, self.tracer, rows))
        self._end_of_table()


def _section(line: str) -> tuple[tuple[str, str], ...]:
    found = _SECTION.fullmatch(line) if " = " in line and not line.startswith("avg = ") else None
    if found is None:
        return ()
    some = ((found[1].lower(), clean(found[2] or found[3] or "", _TITLE)),)
    return (*some, ("flags", found[4])) if found[4] else some


def _json_rows(text: str) -> list[Row] | None:
    rows: list[Row] = []
    at = 0
    while at < len(text):
        row = _JSON_ROW.match(text, at)
        if row is None:
            return None
        low, high = int(row[1] or row[3]), int(row[2] or row[3]) + 1
        rows.append(Row(low, high, int(row[4])))
        at = row.end()
    return rows


def _same_edges(one: ImportedTable, other: ImportedTable) -> bool:
    return one.unit == other.unit and all(a[:2] == b[:2] for a, b in zip(one.rows, other.rows, strict=False))


def _added(one: ImportedTable, other: ImportedTable) -> ImportedTable:
    """Return the sum of two tables whose buckets have the same edges; the longer one has more of them."""
    few, many = sorted((one, other), key=lambda table: len(table.rows))
    counts = [row.count for row in few.rows] + [0] * (len(many.rows) - len(few.rows))
    rows = tuple(row._replace(count=row.count + n) for row, n in zip(many.rows, counts, strict=True))
    return replace(one, rows=rows, sum_us=None)
