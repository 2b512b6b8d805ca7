"""Importers of zpool iostat: rates and means (-l, -v), queues (-q), and latencies by column (-w).

total_wait is the whole time of an I/O of a vdev, disk_wait the part in the disk; the rest is the wait in ZFS' queues.
A row of -w is named by the end of its bucket, 2^n - 1 ns, which zpool rounds. Waits of synchronous and asynchronous
I/Os are of different I/Os and are added. The first report is of the time since the pool's import.

A pool's row contains those of its vdevs, and these contain their disks: each is a device of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from math import log2

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.iostat import kept_reports
from latmon.importers.values import (
    TRIVIAL,
    UNKNOWN_OP,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    TimeLine,
    add,
    one_device,
)
from latmon.model.frame import Completed, Flow, Outstanding, Series
from latmon.support.text import clean

_WAITS = ("total_wait", "disk_wait", "syncq_wait", "asyncq_wait")
_TOPS = {
    "capacity": 2,
    "operations": 2,
    "bandwidth": 2,
    **dict.fromkeys((*_WAITS, "sync_queue", "async_queue"), 2),
    **dict.fromkeys(("syncq_read", "syncq_write", "asyncq_read", "asyncq_write", "scrubq_read", "trimq_write"), 2),
    "rebuildq_write": 2,
    "scrub": 1,
    "trim": 1,
    "rebuild": 1,
}
"""Label of a group of columns -> how many columns it has; -w of ZFS on Linux 0.7 has sync_queue for syncq_wait."""
_STAGES = {"total_wait": "total", "disk_wait": "hba"}
"""Waits; any other one is in a queue."""
_DASHES = re.compile(r"-{5,}(?:\s+-{5,})*\s*")
_NUMBER = re.compile(r"(\d{1,18}(?:[.,]\d{1,6})?)([KMGTPE]?)")
_TIME = re.compile(r"(\d{1,18}(?:[.,]\d{1,6})?)(ns|us|ms|s|m|h)?")
_NS = {"": 1, "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_LONGEST = 600
_COMMAND = re.compile(r"(?:.{0,80}[#$%>]\s+)?(?:\S{0,80}/)?zpool iostat\b(.{0,200})")
_LAST_BIT = 37
"""The last bucket of zpool ends at 2^37 - 1 ns."""
_AGAIN = "another run of zpool iostat begins"
_SINCE, _UNLESS = "the import of the pool", "zpool ran with -y"


@dataclass(frozen=True, slots=True)
class _ZpoolRun:
    """Run of zpool, begun by its command line or by a time that is earlier than the one before."""

    number: int = 0
    is_y: bool = False
    period_us: int | None = None
    """The interval by its command line."""


@dataclass(slots=True)
class _Report:
    """Rows of all vdevs at one moment, or the buckets of one vdev."""

    first: int
    last: int
    wall: float | None
    columns: list[tuple[str, str]]
    run: _ZpoolRun
    rows: dict[str, dict[tuple[str, str], float]] = field(default_factory=dict)
    name: str = ""
    """The vdev of buckets; empty: no buckets."""
    buckets: list[tuple[int, list[float]]] = field(default_factory=list)
    """End of a bucket in bits, and its counts by column."""
    damaged: dict[int, str] = field(default_factory=dict)
    is_rounded: bool = False


def sniff(head: str) -> bool:
    """Return whether two lines are the head of zpool iostat."""
    return any(
        _head(top, bottom) for top, bottom in pairwise(head.split("\n")) if "operations" in top or "_wait" in top
    )


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each report."""
    reader = _ZpoolReader(lines)
    for at in range(1, len(lines) + 1):
        yield from reader.line(at)
    reports, names = reader.reports, ShortNames()
    for report in reports:
        report.name = names.short(report.name) if report.name else ""
        report.rows = {names.short(name): row for name, row in report.rows.items()}
    for named in (
        [name for report in reports for name in report.rows],
        [report.name for report in reports if report.name],
    ):
        one_device(options, list(dict.fromkeys(named)))
    for report in reports:
        yield from (Remark(TextSpan(at, at), why, 1, is_incomplete=True) for at, why in report.damaged.items())
    for run, run_reports in groupby(reports, key=lambda report: report.run):
        of_run = list(run_reports)
        later = values.interval_us(report.wall for report in of_run)
        asked = replace(options, interval_us=run.period_us or later or options.interval_us)
        yield from _rates(run, [report for report in of_run if not report.name], asked)
        for name in dict.fromkeys(report.name for report in of_run if report.name):
            yield from _histograms(run, [report for report in of_run if report.name == name], asked)


@dataclass(slots=True)
class _ZpoolReader:
    lines: Sequence[str]
    reports: list[_Report] = field(default_factory=list)
    columns: list[tuple[str, str]] = field(default_factory=list)
    """Columns of the latest head; empty: no table."""
    path: list[tuple[int, str]] = field(default_factory=list)
    """Indentations and names of the vdevs that contain the present one."""
    wall: float | None = None
    latest: float | None = None
    """The time of the latest report."""
    skip: int = 0
    run: _ZpoolRun = field(default_factory=_ZpoolRun)

    def line(self, at: int) -> Iterator[Found]:
        """Take a line; what it has is in `reports` at the end."""
        text = self.lines[at - 1]
        if at <= self.skip or len(text) > _LONGEST:
            yield from (Passed(TextSpan(at, at)),) if at <= self.skip else ()
            return
        below = self.lines[at] if at < len(self.lines) else ""
        head = _head(text, below)
        wall = values.moment(text)
        if head is not None:
            name, self.columns = head
            self.skip = at + 1
            last = self.reports[-1] if self.reports else None
            if name or last is None or (last.columns, last.run) != (self.columns, self.run) or self.wall is not None:
                self._begin(at, name)
            yield Passed(TextSpan(at, at))
        elif wall is not None:
            falls = self.latest is not None and wall < self.latest
            if falls:
                self.run = replace(self.run, number=self.run.number + 1)
            self.wall = self.latest = wall
            yield TimeLine(TextSpan(at, at, wall), f"line {at}: {_AGAIN}, its time falls" if falls else "")
            if self.columns:
                self._begin(at, "")
        elif (command := _COMMAND.fullmatch(text)) is not None:
            is_y = any("y" in word for word in command[1].split() if re.fullmatch(r"-[a-zA-Z]+", word))
            again = bool(self.reports) and self.reports[-1].run == self.run
            self.run = _ZpoolRun(self.run.number + again, is_y, values.period_us(command[1]))
            self.columns, self.latest = [], None
            yield TimeLine(TextSpan(at, at), f"line {at}: {_AGAIN}") if again else Passed(TextSpan(at, at))
        elif self.columns and self._row(at, text):
            yield Passed(TextSpan(at, at))
        elif text.strip() and not TRIVIAL.match(text):
            self.columns = []

    def _begin(self, at: int, name: str) -> None:
        last = self.reports[-1] if self.reports else None
        if last is not None and not name and not last.name and not last.rows and last.wall is None:
            self.reports.pop()  # a time stands above the head
        self.reports.append(_Report(at, at, self.wall, self.columns, self.run, name=name))
        self.path = []
        if not name:
            self.wall = None

    def _row(self, at: int, text: str) -> bool:
        report, words = self.reports[-1], text.split()
        if _DASHES.fullmatch(text):
            if report.name and report.buckets:
                self.columns = []
            return True
        cells = words[-len(self.columns) :]
        name = " ".join(words[: -len(self.columns)])
        numbers = [_value(column, cell) for column, cell in zip(self.columns, cells, strict=False)]
        if not name or len(cells) < len(self.columns) or None in numbers:
            digits = sum(any(c.isdigit() for c in word) for word in words)
            is_like = len(words) >= len(self.columns) and 2 * digits >= len(self.columns)
            if is_like:
                report.damaged[at] = "a row of zpool iostat can't be read: it is left out"
            return is_like
        report.is_rounded |= any(cell[-1] in values.POWERS and cell[-1] for cell in cells)
        if report.name:
            return self._bucket(at, report, name, [number or 0.0 for number in numbers])
        path = self._path(text, name)
        if all(cell == "-" for cell in cells):
            return True  # a heading such as `logs`
        if len(self.path) == 1 and name in report.rows:
            self._begin(at, "")
            report = self.reports[-1]
            self._path(text, name)
        while path in report.rows:
            path += "'"
        report.rows[path] = {
            column: n for column, n in zip(self.columns, numbers, strict=True) if n is not None and n >= 0
        }
        report.last = at
        return True

    def _path(self, text: str, name: str) -> str:
        indent = len(text) - len(text.lstrip())
        self.path = [ancestor for ancestor in self.path if ancestor[0] < indent]
        self.path.append((indent, name))
        return " ".join(name for _, name in self.path)

    def _bucket(self, at: int, report: _Report, label: str, counts: list[float]) -> bool:
        ns = _ns(label)
        if ns is None:
            return False
        bits = max(1, round(log2(ns + 1)))
        if report.buckets and bits != report.buckets[-1][0] + 1:
            report.damaged[at] = f"the row {clean(label, 20)} of {report.name} isn't the next bucket"
        report.buckets.append((bits, counts))
        report.last = at
        return True


def _head(top: str, bottom: str) -> tuple[str, list[tuple[str, str]]] | None:
    """Return the vdev of buckets (or nothing) and the columns, if two lines are a head."""
    if len(top) > _LONGEST or len(bottom) > _LONGEST or ("operations" not in top and "_wait" not in top):
        return None
    words, below = top.split(), bottom.split()
    begin = next((n for n, word in enumerate(words) if word in _TOPS), len(words))
    labels = words[begin:]
    if not below or below[0] not in ("pool", "vdev", "latency") or not labels:
        return None
    of_buckets = below[0] == "latency"
    if of_buckets != bool(begin) or not all(word in _TOPS for word in labels):
        return None
    names = [label for label in labels for _ in range(_TOPS[label])]
    lines_below = below[1:]
    # in a head of -w the labels of single columns are in the second line
    names += [word for word in lines_below[len(names) :] if word in _TOPS] if of_buckets else []
    return (
        (" ".join(words[:begin]), list(zip(names, lines_below, strict=True)))
        if len(names) == len(lines_below)
        else None
    )


def _value(column: tuple[str, str], cell: str) -> float | None:
    """Return a number, a time in ns, or -1 for `-`; None for anything else."""
    if cell == "-":
        return -1.0
    if (column[0] in _WAITS or column[1] == "wait") and (ns := _ns(cell)) is not None:
        return ns
    number = _NUMBER.fullmatch(cell)
    return None if number is None else _decimal(number[1]) * values.POWERS[number[2]]


def _decimal(digits: str) -> float:
    """Return a number with a point or, by its locale, a comma."""
    return float(digits.replace(",", "."))


def _ns(cell: str) -> float | None:
    time = _TIME.fullmatch(cell)
    return None if time is None else _decimal(time[1]) * _NS[time[2] or ""]


def _rates(run: _ZpoolRun, reports: list[_Report], options: ImportOptions) -> Iterator[Found]:
    reports = [report for report in reports if report.rows]
    if not reports:
        return
    where = TextSpan(reports[0].first, reports[0].last)
    yield Remark(
        where, "counts are rates x the interval, rounded; a pool contains its vdevs, which contain their disks"
    )
    names = dict.fromkeys(name for report in reports for name in report.rows)
    fewer = [report for report in reports if len(report.rows) < len(names)]
    if fewer:
        span = TextSpan(fewer[0].first, fewer[0].last)
        yield Remark(span, f"reports without a row of each vdev: {len(fewer):,}", len(fewer), is_incomplete=True)
    timed = [report for report in reports if report.wall is not None]
    if run.period_us and not timed:
        yield Remark(where, values.by_command(run.period_us))
    if timed and len(timed) < len(reports):
        text = f"reports without a time, beside others that have one: {len(reports) - len(timed):,}"
        yield Remark(where, f"{text}; the length of their intervals is assumed")
    kept, why = kept_reports([(report.wall, {}) for report in reports], run.is_y, options, _SINCE, _UNLESS)
    yield Remark(where, why)
    inside = {name: tuple(each for each in names if each.rpartition(" ")[0] == name) for name in names}
    members = {name: vdevs for name, vdevs in inside.items() if vdevs}
    before: float | None = None
    for number, report in enumerate(reports):
        passed = None if before is None or report.wall is None else round((report.wall - before) * 1e6)
        before = report.wall
        span = TextSpan(
            report.first, report.last, report.wall, passed if passed and passed > 0 else options.interval_us
        )
        if number == 0 and not kept:
            yield Passed(TextSpan(report.first, report.last))
        else:
            kernel: dict[Flow, Completed] = {}
            for flow, done in _completed(report, span.dt_us or 0, options):
                add(kernel, flow, done)
            gauges = {
                options.device or name: gauge for name, row in report.rows.items() if (gauge := _outstanding(row))
            }
            yield Counts(span, kernel, gauges, members=members)


def _completed(report: _Report, dt_us: int, options: ImportOptions) -> Iterator[tuple[Flow, Completed]]:
    for name, row in report.rows.items():
        for op in ("read", "write"):
            count = round(row.get(("operations", op), 0.0) * dt_us / 1e6)
            size = round(row.get(("bandwidth", op), 0.0) * dt_us / 1e6)
            total, disk = (row.get((wait, op)) for wait in ("total_wait", "disk_wait"))
            us = None if total is None else round(total * count / 1000)
            queue = None if total is None or disk is None else round(max(0.0, total - disk) * count / 1000)
            yield Flow(options.device or name, op), Completed(count, size, us, queue)


def _outstanding(row: Mapping[tuple[str, str], float]) -> Outstanding | None:
    """Return the I/Os that the queues of a vdev had at the end (-q): `activ` are in the device, `pend` wait for it."""
    active, pending = ([n for (_, word), n in row.items() if word == name] for name in ("activ", "pend"))
    return Outstanding(round(sum(active)), round(sum(pending))) if active and pending else None


def _histograms(run: _ZpoolRun, reports: list[_Report], options: ImportOptions) -> Iterator[Found]:
    kept, why = kept_reports([(report.wall, {}) for report in reports], run.is_y, options, _SINCE, _UNLESS)
    alone = f"a single table counts since {_SINCE}, unless {_UNLESS}"
    yield Remark(TextSpan(reports[0].first, reports[0].last), why if len(reports) > 1 or run.is_y else alone)
    for number, report in enumerate(reports):
        where = TextSpan(report.first, report.last)
        if number == 0 and not kept:
            yield Passed(where)
        elif report.damaged or not report.buckets:
            yield Remark(
                where, f"the table of {clean(report.name, 60)} is damaged: all of it is left out", 1, is_incomplete=True
            )
        else:
            yield from _tables(report, options)


def _tables(report: _Report, options: ImportOptions) -> Iterator[Found]:
    where = TextSpan(report.first, report.last, dt_us=report.run.period_us if report.wall is None else None)
    first, last = report.buckets[0][0], report.buckets[-1][0]
    if first > 1 or last < _LAST_BIT:
        yield Remark(where, f"{clean(report.name, 60)}: the rows are from bucket {first} to {last} of {_LAST_BIT}")
    if report.is_rounded:
        yield Remark(where, f"{clean(report.name, 60)}: counts with K or M are rounded by zpool")
    sums: dict[tuple[str, str], list[float]] = {}
    for place, (label, word) in enumerate(report.columns):
        op = word if word in ("read", "write") else "discard" if "trim" in (label, word) else UNKNOWN_OP
        counts = [max(0.0, counts_of_row[place]) for _, counts_of_row in report.buckets]
        key = (op, _STAGES.get(label, "queue"))
        sums_before = sums.setdefault(key, [0.0] * len(counts))
        sums[key] = [a + b for a, b in zip(sums_before, counts, strict=True)]
    for (op, stage), counts in sums.items():
        rows = tuple(
            Row(1 << (bits - 1) if bits > 1 else 0, 1 << bits if bits < _LAST_BIT else None, round(n))
            for (bits, _), n in zip(report.buckets, counts, strict=True)
        )
        if any(row.count for row in rows):
            title = clean(f"{report.name} {op} {stage}", 100)
            series = Series(options.device or report.name, op, stage)
            yield ImportedTable(where, title, "zpool", rows, "ns", "the rows' own", series)
