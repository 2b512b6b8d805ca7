"""Importer of nfsiostat (nfs-utils): operations of each mount, with the mean time of a call and its part in the queue.

A head names the numbers of the line below it. `avg exe` is a call's whole time, `avg RTT` the part from its
transmission to its reply, `avg queue` the part before that; kB are 1,024 bytes (tools/nfs-iostat/nfs-iostat.py). The
first report of a run is since the mount.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers import iostat, values
from latmon.importers.values import Found, ImportOptions, Passed, TextSpan
from latmon.support.text import clean

MOUNT = re.compile(r"(\S{1,255}) mounted on (.{1,255}):\s*")
TOTALS = re.compile(r"\s+ops?/s\s+rpc bklog\s*")
WAY = re.compile(r"(read|write):\s+ops/s\s+kB/s\s+kB/op\s+retrans\s+(avg RTT .*)")
TIMES = re.compile(r"(avg RTT|avg exe|avg queue) \(ms\)|errors")
NUMBER = re.compile(r"\d{1,15}\.\d{1,6}")
SHARE = re.compile(r"\s\(\S{1,8}%\)")
"""Percentage behind a number."""
BEFORE_TIMES = 4
COLUMNS = ["Device", "r/s", "rkB/s", "r_await", "w/s", "wkB/s", "w_await"]
NAMES = {"read": "r", "write": "w"}


def sniff(head: str) -> bool:
    """Return whether there is the head of a direction."""
    return any(WAY.fullmatch(line) for line in head.split("\n") if "avg RTT" in line)


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each report."""
    reader = _Reader()
    for at, line in enumerate(lines, 1):
        if reader.take_line(at, line):
            yield Passed(TextSpan(at, at))
    for report in reader.reports:
        partial = [mount for mount, row in report.rows.items() if len(row) < len(COLUMNS) - 1]
        for mount in partial:
            del report.rows[mount]
            report.damaged[report.first] = f"{mount} lacks numbers of reads or of writes: it is left out"
    yield from iostat.found(reader.reports, options)


@dataclass(slots=True)
class _Reader:
    """Reports of a text, and the mount that is being read."""

    reports: list[iostat.Report] = field(default_factory=list)
    run: iostat.IostatRun = field(default_factory=iostat.IostatRun)
    mount: str = ""
    way: str = ""
    times: list[str] = field(default_factory=list)
    """Names of the last numbers of the next line."""
    is_totals: bool = False
    wall: float | None = None

    def take_line(self, at: int, line: str) -> bool:
        """Take a line; return whether it is one of nfsiostat, or a time."""
        mount, way = MOUNT.fullmatch(line), WAY.fullmatch(line)
        time = values.moment(line)
        if mount is not None:
            self.mount = clean(mount[2])
            self._begin_mount(at)
        elif time is not None:
            self.wall = time
        elif not self.mount or not line.strip():
            return False
        elif way is not None:
            self.way = way[1]
            self.times = [match[1] or "errors" for match in TIMES.finditer(way[2])]
        elif TOTALS.fullmatch(line):
            self.is_totals = True
        elif self.is_totals or self.way:
            self._take_numbers(at, line)
        else:
            return False
        return True

    def _begin_mount(self, at: int) -> None:
        latest = self.reports[-1] if self.reports else None
        if latest is None or self.mount in latest.rows or self.wall is not None:
            latest = self.run.report(at, self.wall, COLUMNS)
            latest.since, self.wall = "the mount", None
            self.reports.append(latest)
        latest.rows[self.mount] = {}
        latest.last = at

    def _take_numbers(self, at: int, line: str) -> None:
        report = self.reports[-1]
        report.last = at
        if self.is_totals:
            self.is_totals = False
            return
        words = SHARE.sub("", line).split()
        numbers = [float(word) for word in words if NUMBER.fullmatch(word) or word.isdecimal()]
        name = NAMES[self.way]
        self.way = ""
        if len(numbers) < len(words) or len(words) != BEFORE_TIMES + len(self.times):
            report.damaged[at] = "a row of nfsiostat can't be read: its mount is left out of this report"
            return
        times = dict(zip(self.times, numbers[BEFORE_TIMES:], strict=True))
        row = report.rows[self.mount]
        row |= {f"{name}/s": numbers[0], f"{name}kB/s": numbers[1], f"{name}_await": times["avg exe"]}
