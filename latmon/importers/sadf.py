"""Importer of `sadf -d` (sysstat): rows of sar -d with semicolons, each with its host, its interval and its time.

A line that begins with `#` names the columns of the rows below it; with -h a row has all devices of a moment, and the
head ends in `[...]`. The interval is in whole seconds. A restart of the host is a row with the interval -1 (sadf(1) of
sysstat 12.6, render_dbppc_... in its sadf_misc.c). JSON of sadf is read with that of iostat.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers import iostat, values
from latmon.importers.values import Found, ImportOptions, Passed, Remark, TextSpan
from latmon.support.errors import RecordingError
from latmon.support.text import clean

HEAD = "# hostname;interval;timestamp;"
ZONE = re.compile(r" [A-Z]{2,5}\Z")
DASHES = re.compile(r"(?<= \d\d)-(\d\d)-(?=\d\d\Z)")
"""Signs in a time of day of sysstat 10 and before (-t): `2013-09-19 00-45-01`."""
ROW = re.compile(r"([^;\s#][^;]{0,255});(-1|\d{1,9});([\d :.T/-]{8,40}(?: [A-Z]{2,5})?);(.+)")
RESTART = "LINUX-RESTART"
MARKS = (RESTART, "COM ")
"""Begins of rows that have an event instead of values."""


def sniff(head: str) -> bool:
    """Return whether there is a head of devices."""
    return any(line.startswith(HEAD) and ";DEV;" in line for line in head.split("\n"))


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each moment. RecordingError where two hosts follow each other."""
    reader = _Reader()
    for at, line in enumerate(lines, 1):
        yield from reader.take_line(at, line)
    yield from iostat.found(reader.reports, options)


@dataclass(slots=True)
class _Reader:
    """Reports of a text, and the columns of the latest head."""

    reports: list[iostat.Report] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    host: str = ""
    run: int = 0
    run_line: int = 0

    def take_line(self, at: int, line: str) -> Iterator[Found]:
        """Take a head or a row; yield the line if it is one, and a remark on a row that can't be read."""
        where = TextSpan(at, at)
        if line.startswith(HEAD):
            self.columns = line.removesuffix("[...]").split(";")[3:]
            yield Passed(where)
            return
        row = ROW.fullmatch(line)
        if row is None or not self.columns:
            if self.columns and line.count(";") >= len(self.columns):
                yield Remark(where, "a row of sadf can't be read: it is left out", 1, is_incomplete=True)
            return
        yield Passed(where)
        self._check_host(at, clean(row[1]))
        if row[4].startswith(MARKS):
            if row[4].startswith(RESTART):
                self.run, self.run_line = self.run + 1, at
        elif "DEV" in self.columns:
            self._take_row(at, row)

    def _check_host(self, at: int, host: str) -> None:
        if self.host and host != self.host:
            raise RecordingError(
                f"line {at}: output of another host begins ({host}, before it {self.host}); import each by itself"
            )
        self.host = host

    def _take_row(self, at: int, row: re.Match[str]) -> None:
        wall = values.moment(DASHES.sub(r":\1:", ZONE.sub("", row[3])))
        cells = row[4].split(";")
        width = len(self.columns)
        report = self._report(at, wall, int(row[2]), name=cells[0])
        for begin in range(0, len(cells), width):
            device = cells[begin : begin + width]
            if len(device) < width or not report.add(at, " ".join(device)):
                report.damaged[at] = "a row of sadf can't be read: its disk is left out of this report"

    def _report(self, at: int, wall: float | None, seconds: int, name: str) -> iostat.Report:
        """Return the report of a moment: the latest one, unless its time is another or it has the device already."""
        latest = self.reports[-1] if self.reports else None
        is_same = latest is not None and (latest.wall, latest.run, latest.columns) == (wall, self.run, self.columns)
        if latest is not None and is_same and name not in latest.rows:
            return latest
        report = iostat.Report(at, at, wall, self.columns, run=self.run, begun=self.run_line, is_interval=True)
        report.dt_us = seconds * 1_000_000 if seconds > 0 else None
        self.reports.append(report)
        return report
