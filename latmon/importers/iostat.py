"""Importers of iostat (Linux, also JSON; Solaris, illumos, FreeBSD), sar -d and pmrep: rates and means of intervals.

Columns are found by name, so versions don't matter; bytes are in kB, MB or sectors of 512 bytes, by the head.
Counts are rates times the interval, rounded. Without -x reads and writes are counted together (op `other`) and nothing
is timed. Solaris times reads and writes together and reports the wait (wait, wsvc_t) apart from the service (actv,
asvc_t). FreeBSD's ms/r and ms/w (svc_t before FreeBSD 11) are from the driver's begin of an I/O to its end, in whole
ms, and qlen is the number of outstanding I/Os at the end (usr.sbin/iostat/iostat.c, lib/libdevstat/devstat.c).

pmrep prints such a table by its configuration `iostat-dktx` of /etc/pcp/pmrep, with the time before each row and `N/A`
in the rows of its first sample.

With -h or --pretty a report is several tables, one of each op; -h rounds bytes. A row of sar has its time before it,
and all of its reports are of intervals.

The first report may be an average since the boot, which iostat doesn't mark. The numbers show it: in an interval each
rate is a whole number of I/Os divided by the interval (401 I/Os in 1.01 s are 397.03 per second), in an average over
the uptime it is not; and without -x a report prints both kB and kB/s, whose quotient is its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from statistics import median
from typing import Any

from latmon.importers import values as importers_values
from latmon.importers.bpftrace import documents, whole
from latmon.importers.values import (
    UNKNOWN_OP,
    Clock,
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    TimeLine,
    add,
    interval_us,
    one_device,
)
from latmon.model.frame import Completed, Flow, Outstanding
from latmon.model.inflight import MEANS, Depths, bucket_end
from latmon.support.errors import RecordingError
from latmon.support.text import clean

Rows = Mapping[str, Mapping[str, float]]
"""Device -> column -> value."""
_RATES = ("r/s", "w/s", "d/s", "f/s", "tps")
_TOTALS = tuple(
    (f"{unit}_{way}", f"{unit}_{way}/s") for unit in ("kB", "MB", "Blk") for way in ("read", "wrtn", "dscd", "w+d")
)
_MOST_RATES = 64
_JITTER = 0.03
"""Share by which a real interval may differ from the requested one."""
_CHANCE = 0.05
"""Below it rates may fit an interval by chance."""
_BOOT = "the boot"
_LONGER = 2
"""A report of so many times the interval is no interval of the run."""


def kept_reports(
    reports: Sequence[tuple[float | None, Rows]],
    is_y: bool,
    options: ImportOptions,
    since: str = "",
    unless: str = "",
) -> tuple[bool, str]:
    """Return whether the first report of a run is imported, and why. `reports`: when each was printed.

    `since`: the begin of the first report's time, if the tool always has such a report; `unless`: its option without.
    """
    kept, why = _kept(reports, is_y, options, since, unless)
    later = interval_us([wall for wall, _ in reports])
    if kept and later == options.interval_us and length_s(reports[0][1]) is None:
        why += f"; it is taken as {later / 1e6:g} s long, as the later reports are"
    return kept, why


def _kept(
    reports: Sequence[tuple[float | None, Rows]], is_y: bool, options: ImportOptions, since: str, unless: str
) -> tuple[bool, str]:
    if options.first_report or is_y:
        keep = options.first_report != "drop"
        by = "--first-report" if options.first_report else "the command line in the text (-y)"
        return keep, f"the first report is {'taken for an interval' if keep else 'left out'}, as {by} says"
    if len(reports) == 1:
        unless = f" unless {unless}" if unless else "" if since else " unless iostat ran with -y"
        text = f"a single report is an average since {since or _BOOT}{unless}; its rates are taken for the interval"
        return True, text
    if since:
        return False, f"the first report is of the time since {since} and left out"
    since_boot = _is_since_boot(reports, options)
    if since_boot is None:
        return False, (
            "its numbers don't show whether the first report is of the time since the boot; it is left out "
            "(--first-report keep imports it: after iostat -y it is an interval)"
        )
    if since_boot:
        return False, "the first report is of the time since the boot, by its numbers, and left out"
    return True, "the first report is of an interval, by its numbers (iostat -y)"


def length_s(rows: Rows) -> float | None:
    """Return the length of a report that prints amounts and their rates; None for any other or an idle one."""
    lengths = [
        (values[total], values[rate])
        for values in rows.values()
        for total, rate in _TOTALS
        if values.get(rate) and values.get(total)
    ]
    total, rate = max(lengths, default=(0.0, 0.0))
    return total / rate if rate else None


def _is_since_boot(reports: Sequence[tuple[float | None, Rows]], options: ImportOptions) -> bool | None:
    """Return whether the first report is since the boot; None if the numbers fit both."""
    (_, first), *others = reports
    own, lengths = length_s(first), [s for _, rows in others if (s := length_s(rows)) is not None]
    if own is not None and lengths:
        return own > _LONGER * median(lengths)
    interval = options.interval_us / 1e6
    digits = max((_digits(value) for _, rows in reports for row in rows.values() for value in row.values()), default=0)
    if not any(_fits(rates, interval, digits) for _, rows in others if (rates := _rates(rows))):
        return None  # the interval is another one, or the disks are idle
    rates = _rates(first)
    if not _fits(rates, interval, digits):
        return True
    tries = 2 * _JITTER * 100 * interval + 1
    by_chance = min(1.0, 2 * _slack(interval, digits)) ** len(rates) * tries
    return False if by_chance < _CHANCE else None


def _rates(rows: Rows) -> list[float]:
    rate_values = (values[name] for values in rows.values() for name in _RATES if values.get(name))
    return [rate for rate, _ in zip(rate_values, range(_MOST_RATES), strict=False)]


def _fits(rates: Iterable[float], interval: float, digits: int) -> bool:
    """Return whether a length near the interval, in hundredths of a second, makes all rates whole numbers."""
    rate_values = list(rates)
    low, high = round((1 - _JITTER) * interval * 100), round((1 + _JITTER) * interval * 100)
    return any(
        all(abs(n - round(n)) <= _slack(cs / 100, digits) for n in (rate * cs / 100 for rate in rate_values))
        for cs in range(max(low, 1), high + 1)
    )


def _slack(interval: float, digits: int) -> float:
    """Return the error of a printed rate in I/Os: half of its last digit, and a tenth for the arithmetic."""
    return 0.55 * interval / 10.0**digits


def _digits(value: float) -> int:
    """Return the number of printed digits after the point."""
    return len(repr(value).partition(".")[2].rstrip("0")) if value < 1e9 else 0  # noqa: PLR2004 - no exponent below


_NUMBER = re.compile(r"(-?\d{1,15}(?:[.,]\d{1,6})?)([BkMGTP%]?)\Z")
_POWERS = {unit: n for n, unit in enumerate("BkMGTP")}
"""Units of a number with -h, as powers of 1024 bytes."""
_AVERAGE = re.compile(r"(?!Device\b)[^\W\d_]{2,40}(?: [^\W\d_]{1,20})?\.? ?[:\N{FULLWIDTH COLON}]")
"""The word before an averages row of sar, in the language of its locale: `Average:`, `Durchschn.:`, `Moyenne :`."""
_STAMP = re.compile(
    r"\s*(\d{1,2}:\d{2}:\d{2}(?: [AP]M)?"
    rf"|{_AVERAGE.pattern}(?=.*\sDEV(?:\s|\Z)|\s+(?:\S+\s+)?(?:\d+[.,]\d+\S?(?:\s+|\Z)){{4}}))\s+(\S.*)"
)
"""The first column of a row of sar holds the time or the word of the averages; then the rest of the row."""
_EVENT = re.compile(r"\s*(\d{1,2}:\d{2}:\d{2}(?: [AP]M)?)\s+(?:(LINUX RESTART)\b.*|COM\s.*)")
"""Line of sar on a restart of the host, or a comment of `sadc -C`: no row."""
_NOISE = re.compile(r"avg-cpu:|Linux \d|\s*extended device statistics|\s*(?:tty|cpu)\b|\s*us sy (?:wt|st) id")
_CPU = re.compile(r"\s+\d+[.,]\d\d?%?(?:\s+\d+[.,]\d\d?%?){5}\s*\Z")
_HEADER = re.compile(r"Linux \d\S* \((.{1,64}?)\)\s")
"""Header of sysstat: a run begins with it, and it names the host."""
_COMMAND = re.compile(r"(?:.{0,80}[#$%>]\s+)?(?:\S{0,80}/)?iostat(?=\s+[-\d]|\s*\Z)(?:\s+[\w./-]{1,64}){0,20}\s*\Z")
"""A command line, with a prompt or without."""
_SHORT = re.compile(r"-[a-zA-Z]+")
_LIMIT = re.compile(r"\s-[a-zA-Z]*l\s+\d+")
"""The number of disks that iostat of Solaris prints at most, which is no interval."""
_OF_BSD = frozenset(("ms/t", "KB/t"))
"""Columns that only iostat of the BSDs and of macOS prints."""
_WAIT = re.compile(r"\s-[a-zA-Z]*w\s*(\d{1,6}(?:\.\d{1,3})?)(?=\s|\Z)")
_COUNT = re.compile(r"\s-[a-zA-Z]*c\s*\d+(?=\s|\Z)")
_LINUX = {"read": ("r", "r_await"), "write": ("w", "w_await"), "discard": ("d", "d_await"), "flush": ("f", "f_await")}
_FREEBSD = {"read": ("r", "ms/r"), "write": ("w", "ms/w")}
_SOLARIS = {"read": "r", "write": "w"}
_KB, _MB, _SECTOR = 1024, 1024 * 1024, 512
_BYTES = (("{}kB/s", _KB), ("{}MB/s", _MB), ("{}sec/s", _SECTOR), ("k{}/s", _KB), ("M{}/s", _MB))
"""A rate of bytes: of Linux with -k, with -m, of sysstat before 2010; of Solaris and illumos, and with -M."""
_PLAIN_BYTES = (
    *((f"{unit}_{way}/s", size) for unit, size in (("kB", _KB), ("MB", _MB), ("Blk", _SECTOR))
      for way in ("read", "wrtn", "dscd", "w+d")),
    *((f"{way}{unit}/s", size) for unit, size in (("kB", _KB), ("MB", _MB)) for way in "rwd"),
    ("rd_sec/s", _SECTOR),
    ("wr_sec/s", _SECTOR),
)  # fmt: skip
"""Rates of Linux without -x, and of sar: transfers are counted together, bytes are not."""
_GROUPS = ({"r/s", "r_await"}, {"w/s", "w_await"}, {"d/s", "d_await"}, {"f/s", "f_await"})
"""Columns of the tables of a report with -h or --pretty."""
_DEVICES = ("device", "dev")
_QUEUE = ("aqu-sz", "avgqu-sz")
QUEUE_MS = "queue_await"
"""Mean time of an I/O above the driver, in ms, which the times of reads and writes include."""
_BUSY = "%b"
"""The last column of disks of FreeBSD."""
_QLEN = "qlen"
"""I/Os that are outstanding when a report is printed: no mean."""
_PROMPT = re.compile(r"\S{0,80}[#$%>](?:\s|\Z)")
_TRIVIAL = re.compile(r"[\s#=\-_*.^C]*\Z")
_ALL = "ALL"
_LEAST = 5
_MAX_NAMED = 4
_PROSE = 3
"""Words of a line without a digit that make it prose: a row that was cut off has fewer."""
_MAX_RATE = 1e12
_LONGEST = 1000
"""Characters of a row of sar."""
_DATE = re.compile(r"\s(\d{2}/\d{2}/\d{2,4}|\d{4}-\d{2}-\d{2})\s")
_DAY_US = 86_400_000_000


@dataclass(slots=True)
class Report:
    """Block of rows below a head."""

    first: int
    last: int
    wall: float | None
    columns: list[str]
    rows: dict[str, dict[str, float]] = field(default_factory=dict)
    head: list[str] = field(default_factory=list)
    """Columns of the latest table of a report with several; empty: it has one table."""
    begin: float | None = None
    """When its interval began (sar)."""
    is_rounded: bool = False
    """Its bytes have units (-h)."""
    run: int = 0
    """The number of the run that printed it, and the line in which that began."""
    begun: int = 0
    is_y: bool = False
    """Its command line is in the text and has -y: no report since the boot."""
    period_us: int | None = None
    """The interval by its command line."""
    dt_us: int | None = None
    """Its length in us, where the tool prints it."""
    is_interval: bool = False
    """Its tool prints reports of intervals only, a first one, too."""
    since: str = ""
    """Begin of the time of a first report, if the tool always prints one that is of no interval."""
    is_open: bool = True
    """No blank line has come behind its latest row: each line is one of its rows, damaged or not."""
    damaged: dict[int, str] = field(default_factory=dict)
    """Lines that are rows and can't be read, and why."""

    def add(self, at: int, line: str) -> bool:
        """Take a row; return whether the line is one, damaged or not."""
        row = _row(line, self.head or self.columns)
        if row is None and not _is_damaged_row(line, self):
            return False
        if row is None:
            self.damaged[at] = "a row can't be read: its disk is left out of this report"
        elif not self.rows.get(row[0], {}).keys().isdisjoint(row[1]):
            self.damaged[at] = f"{clean(row[0])} has another row in the same report: the first one is taken"
        else:
            self.rows.setdefault(row[0], {}).update(row[1])
            self.is_rounded |= any(_has_unit(word) for word in line.split())
        self.is_open, self.last = True, at
        return True

    def extend(self, at: int, columns: list[str]) -> bool:
        """Begin another table of this report; return whether the columns are of one."""
        is_group = any(group_columns <= {*columns} for group_columns in _GROUPS) and columns[-1] in self.columns
        if not is_group or not {*columns[:-1]}.isdisjoint(self.columns):
            return False
        self.head, self.columns, self.last = columns, [*columns[:-1], *self.columns], at
        return True


@dataclass(slots=True)
class IostatRun:
    """Run of iostat, begun by sysstat's header or by a command line."""

    number: int = 0
    line: int = 0
    host: str = ""
    is_y: bool = False
    command: str = ""
    """Its command line, if the text has it."""
    reports: int = 0

    def report(self, at: int, wall: float | None, columns: list[str]) -> Report:
        """Return its next report, which begins in line `at`."""
        self.reports += 1
        return Report(
            at,
            at,
            wall,
            columns,
            run=self.number,
            begun=self.line,
            is_y=self.is_y,
            period_us=_period_us(self.command, columns),
        )


def _period_us(command: str, columns: Sequence[str]) -> int | None:
    """Return the interval by a command line.

    On FreeBSD and macOS it is the number behind -w, and the one behind -c is that of reports.
    """
    is_bsd = not _OF_BSD.isdisjoint(columns)
    wait = _WAIT.search(command) if is_bsd else None
    if wait is not None:
        return round(float(wait[1]) * 1e6) or None
    return importers_values.period_us((_COUNT if is_bsd else _LIMIT).sub(" ", command))


def sniff_text(head: str) -> bool:
    """Return whether there is a head with r/s, w/s and a time, or with tps and a rate of bytes."""
    return any(_columns(line) or ("DEV" in line and _sar(line)[1]) for line in head.split("\n"))


def read_text(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each report. RecordingError where two hosts follow each other."""
    reader = _IostatReader(Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.line(at, line)
    _drop_partial([report for report in reader.reports if report.head])
    if reader.headless and any(report.begin is not None or not report.rows for report in reader.reports):
        where = TextSpan(reader.headless[0], reader.headless[-1])
        text = f"rows of sar without a head that has its time: {len(reader.headless):,}, left out"
        yield Remark(where, text, len(reader.headless), is_incomplete=True)
    yield from found(reader.reports, options)


@dataclass(slots=True)
class _IostatReader:
    """Reports of a text, and the run that prints them."""

    clock: Clock
    reports: list[Report] = field(default_factory=list)
    now: Report | None = None
    wall: float | None = None
    """The time of the next report."""
    run: IostatRun = field(default_factory=IostatRun)
    has_heads: bool = False
    """A head of sar, of disks or anything else, has come."""
    headless: list[int] = field(default_factory=list)
    """Rows of sar above the first head."""

    def line(self, at: int, line: str) -> Iterator[Passed]:
        columns = [] if _STAMP.match(line) else _columns(line)
        if columns:
            if self.now is None or self.wall is not None or not self.now.extend(at, columns):
                self._begin(at, columns)
        elif not line.strip():
            if self.now is not None:
                self.now.is_open = False
        elif self._is_event(at, line) or self._of_pmrep(at, line) or self._of_sar(at, line):
            yield Passed(TextSpan(at, at))
        elif self.now is None or self.now.begin is not None or not self.now.add(at, line):
            self.now = None
            self.run, is_known = begun(self.run, at, line)
            if is_known and (date := _DATE.search(line)) is not None:
                self.clock.wall(f"{date[1]} 00:00:00")
            is_time = self._take_time(at, line)
            if is_known or is_time or _NOISE.match(line) or _CPU.match(line):
                yield Passed(TextSpan(at, at))

    def _take_time(self, at: int, line: str) -> bool:
        """Take the time of the next report; return whether the line is one."""
        stamp = importers_values.moment(line)
        if stamp is None:
            return False
        if self._begins_with_time:
            self.run = replace(self.run, number=self.run.number + 1, line=at, reports=0)
        self.wall = stamp
        if stamp >= importers_values.RELATIVE_BELOW:
            self.clock.wall(line)  # rows of sar and of pmrep have their time of this day
        return True

    def _begin(self, at: int, columns: list[str], wall: float | None = None) -> Report:
        self.now = self.run.report(at, self.wall if wall is None else wall, columns)
        self.reports.append(self.now)
        self.wall = None
        return self.now

    def _is_event(self, at: int, line: str) -> bool:
        """Return whether a line of sar is an event: counters begin again at a restart, from the next head's time on."""
        event = _EVENT.fullmatch(line[:_LONGEST])
        if event is not None and event[2]:
            self.now = None
            self.run = replace(self.run, number=self.run.number + 1, line=at, reports=0)
        return event is not None

    def _of_pmrep(self, at: int, line: str) -> bool:
        """Take the first row of pmrep below a head that has no time; return whether the line is one.

        The rows below it are read as those of sar.
        """
        stamped = _STAMP.fullmatch(line) if len(line) < _LONGEST else None
        is_apart = self.now is None and bool(self.reports) and self.wall is not None  # a time is above each row
        report = self.reports[-1] if is_apart else self.now
        if report is None or stamped is None or report.columns[0] != "Device":
            return False  # sar's heads have DEV
        if len(stamped[2].split()) != len(report.columns):
            return False
        if report.begin is not None:
            self.now = report
            return False
        when = None if report.rows else self.clock.wall(stamped[1])
        if when is None:
            return False
        report.begin, report.wall, self.wall = when, None, None
        if _is_not_available(stamped[2]):
            return True
        report.wall = when
        return report.add(at, stamped[2])

    def _of_sar(self, at: int, line: str) -> bool:
        """Take a head or a row of sar; return whether the line is one, damaged or not."""
        stamp, columns = _sar(line)
        when = self.clock.wall(stamp) if stamp and (columns or self._in_sar) else None
        if columns:
            if when is not None:  # not above the averages of all reports
                self._begin(at, columns).begin = when
            return True
        text = line.partition(stamp)[2] if stamp else line
        report, words = self.now, text.split()
        numbers = sum(_NUMBER.match(word) is not None for word in words)
        self.has_heads |= bool(stamp) and not numbers
        if not self._in_sar or report is None:
            is_row = stamp[:1].isdigit() and not self.has_heads and numbers >= _LEAST
            self.headless += [at] if is_row else []
            return is_row
        if not stamp or when is None:
            is_like = len(words) >= len(report.columns) and (2 * numbers >= len(words) or "tps" in words)
            if is_like and not stamp:
                report.damaged[at] = "a line of sar can't be read: its disk is left out of this report"
            return is_like
        if _is_not_available(text):
            return True
        if report.wall is not None and when != report.wall:
            begin, report = report.wall, self._begin(at, report.columns)
            report.begin = begin
        report.wall = when
        return report.add(at, text)

    @property
    def _begins_with_time(self) -> bool:
        """Return whether the run has a time above its first report alone, so that the next time begins a run.

        OSWatcher's files are so: each time is followed by iostat's report since the boot and one or two others.
        """
        if self.run.reports <= 1:
            return False
        first, second, last = (self.reports[at] for at in (-self.run.reports, 1 - self.run.reports, -1))
        return first.wall is not None and second.wall is None and last.wall is None

    @property
    def _in_sar(self) -> bool:
        return self.now is not None and self.now.begin is not None


def _is_not_available(row: str) -> bool:
    """Return whether a row has a name and no number: pmrep has no rates yet, or the device is gone."""
    return {*row.split()[1:]} == {"N/A"}


def _sar(line: str) -> tuple[str, list[str]]:
    """Return what sar prints before a row, and the columns if the line is a head; both empty for any other line."""
    stamped = _STAMP.fullmatch(line) if len(line) < _LONGEST else None
    return (stamped[1], _columns(stamped[2])) if stamped else ("", [])


def is_head_of_sar(line: str) -> bool:
    """Return whether a line is a head of sar, which has the time before it: iostat calls the column Device."""
    stamp, columns = _sar(line)
    return "DEV" in columns and not _STAMP.match(line.partition(stamp)[2])


def begun(run: IostatRun, at: int, line: str) -> tuple[IostatRun, bool]:
    """Return the run that this line belongs to, and whether it is a header or a command line of iostat."""
    header, command = _HEADER.match(line), _COMMAND.fullmatch(line.rstrip())
    if header is None and command is None:
        return run, False
    following = IostatRun(run.number + 1, at, run.host) if run.reports else run
    if command is not None:
        following.is_y = any("y" in word for word in line.split() if _SHORT.fullmatch(word))
        following.command = line
    if header is not None:
        host = clean(header[1])
        if run.host and host != run.host:
            raise RecordingError(
                f"line {at}: output of another host begins ({host}, before it {run.host}); import each by itself"
            )
        following.host = host
    return following, True


def found(reports: list[Report], options: ImportOptions) -> Iterator[Found]:
    """Yield the windows of reports in text or JSON."""
    if not reports:
        return
    yield from _assumed(reports)
    yield from _without_totals(reports)
    names = ShortNames()
    for report in reports:
        report.rows = {names.short(name): row for name, row in report.rows.items()}
    disks = list(dict.fromkeys(name for report in reports for name in report.rows))
    one_device(options, disks)
    _begin_where_time_falls(reports)
    for number, run_reports in groupby(reports, key=lambda report: report.run):
        run = list(run_reports)
        later = interval_us(report.wall for report in run)
        of_run = replace(options, interval_us=run[0].period_us or later or options.interval_us)
        if number:
            where = TextSpan(run[0].begun, run[0].begun)
            yield TimeLine(where, f"line {where.first}: another run of iostat begins")
        if run[0].period_us and all(report.wall is None for report in run):
            yield Remark(_where(run[0]), importers_values.by_command(run[0].period_us))
        yield from _missing(run)
        kept, why = True, ""
        if run[0].begin is None and not run[0].is_interval:
            kept, why = kept_reports(
                [(report.wall, report.rows) for report in run], run[0].is_y, of_run, _since(run[0])
            )
        if why:
            yield Remark(_where(run[0]), why)
        if not kept:
            yield Passed(_where(run[0]))
        yield from _windows(run, disks, of_run, skipped=not kept)


def _begin_where_time_falls(reports: list[Report]) -> None:
    """Begin another run at each report whose time is earlier than that of the one before."""
    number, latest, falls = 0, 0.0, 0
    for report in reports:
        latest = latest if report.run == number else 0.0
        number = report.run
        if report.wall is not None and report.wall < latest:
            falls, report.begun = falls + 1, report.first
        latest = latest if report.wall is None else report.wall
        report.run += falls


def _without_totals(reports: list[Report]) -> Iterator[Remark]:
    """Leave out the row of all disks (-g ALL) of each report that has rows of disks beside it."""
    each = [report for report in reports if _ALL in report.rows and len(report.rows) > 1]
    for report in each:
        del report.rows[_ALL]
    if each:
        yield Remark(_where(each[0]), f"{_ALL} is the sum of the other rows: left out")


def _missing(run: list[Report]) -> Iterator[Remark]:
    """Yield remarks on rows that are damaged or absent."""
    for report in run:
        for at, why in report.damaged.items():
            yield Remark(TextSpan(at, at), why, 1, is_incomplete=True)
    reports = [report for report in run if not report.damaged]
    bare = [report for report in reports if _is_idle(report, is_last=report is run[-1])]
    if run[-1] in reports and not run[-1].rows and run[-1] not in bare and len(run) > 1:
        yield Remark(_where(run[-1]), "the text ends at the head of a report: it is left out, whether idle or cut off")
    if bare and len(run) > 1:
        yield Remark(
            _where(bare[0]), f"reports without a row: {len(bare):,}; their disks are taken as idle (iostat -z)"
        )
    each = [report for report in reports if report.rows]
    # -z leaves out idle rows: a text that has one was printed without it
    names = dict.fromkeys(name for report in each for name in report.rows)
    fewer = [report for report in each if len(report.rows) < len(names)]
    if any(not any(values.values()) for report in each for values in report.rows.values()):
        for name in names:
            yield from _absent(name, each)
    elif fewer:
        yield Remark(_where(fewer[0]), f"reports without a row of each disk: {len(fewer):,}, as iostat -z prints them")


def _is_idle(report: Report, *, is_last: bool) -> bool:
    """Return whether a report without rows is one of idle disks (iostat -z): it ended, unless the text was cut off."""
    return not report.rows and not report.damaged and not (is_last and report.is_open)


def _absent(name: str, each: list[Report]) -> Iterator[Remark]:
    """Yield a remark if some of the reports have no row of the disk, though they print idle disks."""
    has = [name in report.rows for report in each]
    if all(has):
        return
    known = has[has.index(True) : len(has) - has[::-1].index(True)]
    where, text = _where(each[has.index(False)]), f"reports without a row of {clean(name)}: {has.count(False):,}"
    if all(known):
        yield Remark(where, f"{text}; the disk is taken as one that came or went")
    else:
        yield Remark(where, f"{text}, between others that have one: rows are missing", 1, is_incomplete=True)


def _assumed(reports: list[Report]) -> Iterator[Found]:
    """Yield remarks on values that no column has."""
    where = _where(reports[0])
    queues = any(_outstanding(dict.fromkeys(report.columns, 0.0)) is not None for report in reports)
    at_end = any(_QLEN in report.columns for report in reports)
    means = f"; outstanding I/Os are {'those at the end' if at_end else 'means'}"
    means = means if queues else "; no column of outstanding I/Os: they are not known"
    yield Remark(where, f"counts are rates x the interval, rounded{means}")
    plain = [report for report in reports if "tps" in report.columns]
    if plain:
        timed = "timed" if all("await" in report.columns for report in plain) else "nothing is timed"
        yield Remark(
            where, f"reads and writes are counted together (tps), as op {UNKNOWN_OP}; {timed}".removesuffix("; timed")
        )
    if _is_in_whole_ms(reports):
        yield Remark(where, "times are rounded to whole ms by iostat")
    if any(report.is_rounded for report in reports):
        yield Remark(where, "bytes are rounded to a digit after the point (-h)")
    if any(_is_timed_together(report.columns) for report in reports):
        yield Remark(where, "no separate times of reads and writes: the mean of both is taken for each")
    if any(_bytes(dict.fromkeys(report.columns, 0.0), "r") is None for report in reports):
        names = " ".join(reports[0].columns)
        yield Remark(where, clean(f"no column of bytes is known, so bytes are 0; columns: {names}", 300))


def _is_in_whole_ms(reports: Sequence[Report]) -> bool:
    """Return whether times are of FreeBSD, some versions of which print no digit behind the point."""
    rows = [row for report in reports for row in report.rows.values() if "ms/t" in row]
    return bool(rows) and all(row.get(name, 0.0).is_integer() for row in rows for name in ("ms/r", "ms/w"))


def _is_timed_together(columns: Sequence[str]) -> bool:
    """Return whether reads and writes are counted apart and timed together."""
    return {"r_await", "ms/r", "tps"}.isdisjoint(columns)


def _windows(run: list[Report], disks: list[str], options: ImportOptions, *, skipped: bool) -> Iterator[Counts]:
    """Yield the reports of a run, without the first one if it is `skipped`."""
    before = run[0].begin
    for number, report in enumerate(run):
        passed = None if before is None or report.wall is None else round((report.wall - before) * 1e6)
        length = length_s(report.rows)
        own = None if length is None else round(length * 1e6)
        dt = next((us for us in (report.dt_us, passed, own) if us and 0 < us <= _DAY_US), options.interval_us)
        if report.wall is None and before is not None:  # a time above the first report alone, as OSWatcher prints it
            report.wall = before + dt / 1e6
        before = report.wall
        if number == 0 and skipped:
            continue
        idle = _is_idle(report, is_last=number == len(run) - 1 > 0)
        rows = (
            dict.fromkeys(disks, dict.fromkeys(report.columns, 0.0)) if idle else report.rows
        )  # -z prints no idle disk
        yield _counts(TextSpan(report.first, report.last, report.wall, dt), rows, options)


def _counts(where: TextSpan, rows: Mapping[str, Mapping[str, float]], options: ImportOptions) -> Counts:
    kernel: dict[Flow, Completed] = {}
    outstanding: dict[str, Outstanding] = {}
    depths: dict[str, Depths] = {}
    for name, values in rows.items():
        device = options.device or name
        gauge = _outstanding(values)
        # a report whose disks are all idle is a window, too
        done = _completed(values, where.dt_us or 0).items()
        for op, completed in done:
            if completed.count or gauge is None:
                add(kernel, options.flow(device, op), completed)
        if gauge is not None:
            outstanding[device] = gauge
        if "actv" in values or _mean_outstanding(values) is not None:
            depths[device] = _depths(values, max(1, (where.dt_us or 0) // 1000))
    return Counts(where, kernel, outstanding, depths)


def _where(report: Report) -> TextSpan:
    return TextSpan(report.first, report.last)


def _since(report: Report) -> str:
    """Return the begin of the first report, if the tool always prints one that is of no interval; else nothing."""
    is_boot = not {"svc_t", "asvc_t", "actv", *_OF_BSD}.isdisjoint(report.columns)
    return _BOOT if is_boot else report.since


def _columns(line: str) -> list[str]:
    """Return the head's columns; empty for any other line."""
    words = line.removeprefix("# ").split()
    names = {word.lower() for word in words}
    known = {"r/s", "w/s"} <= names and names & {"await", "r_await", "svc_t", "asvc_t", "ms/t"}
    is_last = bool(words) and words[-1].lower() in _DEVICES
    named = bool(words) and (is_last or words[0].rstrip(":").lower() in _DEVICES)
    plain = named and "tps" in names and {"kB/s", "MB/s", *dict(_PLAIN_BYTES)} & {*words}
    group = is_last and any(group_columns <= names for group_columns in _GROUPS)
    if "qlen" in names and _BUSY in words:
        words = words[: words.index(_BUSY) + 1]  # FreeBSD prints columns of the CPU (-C) and the terminal behind
    return [word.rstrip(":") for word in words] if (known or plain or group) and len(words) >= _LEAST else []


def _row(line: str, columns: list[str]) -> tuple[str, dict[str, float]] | None:
    """Return device and values: the name is first, or last with -n."""
    words = line.split()
    if len(words) < len(columns):
        return None
    if columns[-1].lower() in _DEVICES:
        count = len(columns) - 1
        name, numbers, names = " ".join(words[count:]), words[:count], columns[:-1]
    else:
        words = words[: len(columns)] if columns[-1] == _BUSY else words
        if len(words) != len(columns):
            return None
        name, numbers, names = words[0], words[1:], columns[1:]
    if not all(_NUMBER.match(number) for number in numbers):
        return None
    values = {column: _value(column, number) for column, number in zip(names, numbers, strict=True)}
    return (clean(name, _LONGEST), values) if all(0 <= value <= _MAX_RATE for value in values.values()) else None


def _has_unit(word: str) -> bool:
    number = _NUMBER.match(word)
    return number is not None and number[2] in _POWERS


def _value(column: str, text: str) -> float:
    """Return a number in the unit of its column; with -h it has a unit of its own."""
    number = _NUMBER.match(text)
    value = float(number[1].replace(",", ".")) if number else 0.0
    if not number or number[2] not in _POWERS:
        return value
    return value * 1024.0 ** (_POWERS[number[2]] - _POWERS["M" if "MB" in column else "k"])


def _is_damaged_row(line: str, report: Report) -> bool:
    """Return whether a line was a row: any line below the head except prose, prompts and iostat's own heads."""
    if _NOISE.match(line) or _CPU.match(line) or _TRIVIAL.match(line) or importers_values.moment(line) is not None:
        return False
    if line.count('","') > 1:
        return False  # a table of commas, such as esxtop's
    words = line.split()
    if not report.is_open:
        return len(words) >= _LEAST and sum(_NUMBER.match(word) is not None for word in words) >= len(words) // 2
    if _HEADER.match(line) or _COMMAND.fullmatch(line.rstrip()) or _PROMPT.match(line):
        return False
    return any(word.isdigit() for word in line) or len(words) < _PROSE


def _completed(values: Mapping[str, float], dt: int) -> dict[str, Completed]:
    """Return completions by op; without -x all are one op."""
    seconds, either = dt / 1e6, values.get("await")
    if "tps" in values:
        return {UNKNOWN_OP: _done(values["tps"], _bytes(values, "") or 0.0, (either, None), seconds)}
    if values.keys().isdisjoint(("svc_t", "asvc_t")):
        timed = _FREEBSD if "ms/t" in values else _LINUX
        means: dict[str, tuple[str, tuple[float | None, float | None]]] = {
            op: (name, (values.get(wait, either), values.get(QUEUE_MS))) for op, (name, wait) in timed.items()
        }
    else:
        wait_ms = values.get("wsvc_t")
        all_ms = (wait_ms or 0.0) + values["asvc_t"] if "asvc_t" in values else values["svc_t"]
        means = {op: (name, (all_ms, wait_ms)) for op, name in _SOLARIS.items()}
    return {
        op: _done(values[f"{name}/s"], _bytes(values, name) or 0.0, mean, seconds)
        for op, (name, mean) in means.items()
        if f"{name}/s" in values
    }


def _bytes(values: Mapping[str, float], name: str) -> float | None:
    """Return bytes a second; None without a column of them. Without -x (tps) those of all directions."""
    if "tps" in values:
        rates = [values[column] * unit for column, unit in _PLAIN_BYTES if column in values]
        if rates:
            return sum(rates)
        name = ""
    return next((values[of.format(name)] * unit for of, unit in _BYTES if of.format(name) in values), None)


def _done(rate: float, size: float, means_ms: tuple[float | None, float | None], seconds: float) -> Completed:
    """Return the completions of an interval; `means_ms`: the whole time and the part of it in the queue."""
    count = round(rate * seconds)
    total, queue = (None if means_m is None else round(means_m * 1000 * count) for means_m in means_ms)
    return Completed(count, round(size * seconds), total, queue)


def _outstanding(values: Mapping[str, float]) -> Outstanding | None:
    """Return the means, rounded; None without a column of them."""
    if "actv" in values:
        return Outstanding(round(values["actv"]), round(values["wait"]) if "wait" in values else None)
    mean = values.get(_QLEN, _mean_outstanding(values))
    return None if mean is None else Outstanding(round(mean), None)


def _mean_outstanding(values: Mapping[str, float]) -> float | None:
    """Return the mean of Linux; None without a column of it."""
    return next((values[column] for column in _QUEUE if column in values), None)


def _depths(values: Mapping[str, float], ms: int) -> Depths:
    """Return depths by actv and %b, wait and %w (Solaris), or by aqu-sz and %util of both together (Linux)."""
    mean = _mean_outstanding(values)
    if mean is not None:
        return Depths(_spread(mean, values.get("%util"), ms), source=MEANS)
    queued = _spread(values["wait"], values.get("%w"), ms) if "wait" in values else {}
    return Depths(_spread(values["actv"], values.get("%b"), ms), queued, source=MEANS)


def _spread(mean: float, busy_percent: float | None, ms: int) -> dict[int, int]:
    """Return milliseconds at the two depths next to the mean while busy: the least spread with this mean and share.

    A busy share that is not known, or was rounded to 0, is the largest that the mean allows.
    """
    busy = min((busy_percent or 0) / 100 or 1.0, 1.0, mean)
    if not busy:
        return {0: ms}
    depth, part = divmod(mean / busy, 1)
    in_flight = round(busy * ms)
    above = round(in_flight * part)
    counts: dict[int, int] = {0: ms - in_flight}
    for end, n in ((int(depth), in_flight - above), (int(depth) + 1, above)):
        counts[bucket_end(end)] = counts.get(bucket_end(end), 0) + n
    return {end: n for end, n in counts.items() if n}


_RENAMED = {
    "util": "%util",
    "rrqm": "%rrqm",
    "wrqm": "%wrqm",
    "drqm": "%drqm",
    "util-percent": "%util",
    **{name: f"{name}/s" for name in ("rkB", "wkB", "dkB", "rd_sec", "wr_sec")},
}
"""Key of iostat's and of sadf's JSON -> column."""
_SECTORS = ("rd_sec", "wr_sec", "dc_sec")
"""Keys of sadf that repeat rkB, wkB and dkB."""
_DISK_KEYS = ("disk_device", "disk-device")
"""Keys of a device's name: of iostat and of sadf."""


def sniff_json(head: str) -> bool:
    """Return whether it is nested as sysstat's JSON is: iostat's, or that of sadf."""
    return '"sysstat"' in head


def read_json(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each `statistics` entry with disks."""
    all_reports: list[Report] = []
    for where, value in documents(lines, "sysstat"):
        yield Passed(where)
        if isinstance(value, str):
            yield Remark(where, f"iostat: {value}", 1, is_incomplete=True)
            continue
        reports = _reports_of(value, where, all_reports[-1].run + 1 if all_reports else 0)
        _drop_partial(reports)
        all_reports += (report for report in reports if report.rows or report.damaged)
    yield from found(all_reports, options)


def _reports_of(value: Mapping[str, Any], where: TextSpan, run: int) -> list[Report]:
    """Return the reports of one output; RecordingError if it is of several hosts, or of no known form."""
    reports: list[Report] = []
    try:
        hosts = value["sysstat"]["hosts"]
        if len(hosts) > 1:
            raise RecordingError(f"it is of {len(hosts):,} hosts; import each by itself")
        for host in hosts:
            boots = _boots(host)
            for statistics in host["statistics"]:
                disks = [(_disk_name(disk), _values(disk)) for disk in statistics.get("disk", ())]
                wall, dt_us = _json_time(statistics.get("timestamp"))
                columns = sorted({name for _, values in disks for name in values})
                report = Report(where.first, where.last, wall, columns, dict(reversed(disks)), dt_us=dt_us)
                report.is_interval = dt_us is not None
                boot = sum(wall is not None and wall >= boot for boot in boots)
                report.run, report.begun = run + boot, where.first
                reports.append(report)
                twice = len(disks) - len(report.rows)
                if twice:
                    why = f"rows of a disk that has another in the same report: {twice:,}; the first one is taken"
                    report.damaged[where.first] = why
    except (KeyError, TypeError, AttributeError, OverflowError):
        raise RecordingError(
            "it is no JSON of iostat or sadf: a key of sysstat is missing or of another kind"
        ) from None
    return reports


def _disk_name(disk: Mapping[str, Any]) -> str:
    key = next((key for key in _DISK_KEYS if key in disk), _DISK_KEYS[0])
    return clean(str(disk[key]), _LONGEST)


def _json_time(stamp: Any) -> tuple[float | None, int | None]:
    """Return the time of a report, and its length in us, which sadf's JSON has."""
    if isinstance(stamp, str):
        return importers_values.moment(stamp), None
    if not isinstance(stamp, dict):
        return None, None
    wall = importers_values.moment(f"{stamp.get('date', '')} {stamp.get('time', '')}")
    seconds = whole(stamp.get("interval"), _DAY_US // 1_000_000)
    return wall, 1_000_000 * seconds if seconds else None


def _boots(host: Mapping[str, Any]) -> list[float]:
    """Return the times at which a host was restarted, which sadf's JSON has."""
    walls = [_json_time(restart.get("boot"))[0] for restart in host.get("restarts", ())]
    return [wall for wall in walls if wall is not None]


def _drop_partial(reports: list[Report]) -> None:
    """Take out rows that lack a column of the others: sysstat prints the same ones for each disk."""
    columns = {name for report in reports for name in report.columns if name.lower() not in _DEVICES}
    for report in reports:
        partial = [name for name, values in report.rows.items() if len(values) < len(columns)]
        for name in partial:
            lacks = ", ".join(sorted(columns - report.rows.pop(name).keys())[:_MAX_NAMED])
            report.damaged[report.first] = f"the row of {clean(name)} lacks {lacks}: it is left out"


def _values(disk: Mapping[str, Any]) -> dict[str, float]:
    repeated = _SECTORS if "rkB" in disk else ()
    return {
        _RENAMED.get(name, name): float(value)
        for name, value in disk.items()
        if type(value) in (int, float) and 0 <= value <= 1e12 and name not in repeated  # noqa: PLR2004
    }
