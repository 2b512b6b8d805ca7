"""Importers of gstat (FreeBSD), and of iostat of the BSDs and macOS without -x, which times no I/O.

gstat prints a table for each interval, whose length is behind `dT:`. A kBps belongs to the rate before it, ms/r, ms/w
and ms/d are means from the begin of an I/O in GEOM to its end, L(q) is the number of outstanding I/Os at the end, and
%busy has a bar behind it. With -C it is a CSV (usr.sbin/gstat/gstat.c). Partitions and labels count the I/Os of their
disk again.

iostat without -x prints one row for all disks, whose names are in the line above the head: KB, transfers and MB of each
(usr.sbin/iostat/iostat.c). Its first row is an average since the boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latmon.importers import iostat, values
from latmon.importers.values import Found, ImportOptions, Passed, Remark, TextSpan

LENGTH = re.compile(r"dT: (\d{1,7}\.\d{1,6})s  w: \d.*")
CSV_HEAD = "timestamp,name,q-depth,total_ops/s,"
CSV_COLUMNS = {
    "q-depth": "qlen",
    "name": "device",
    "read/s": "r/s",
    "write/s": "w/s",
    "delete/s": "d/s",
    "%busy": "%util",
    "read-KiB/s": "rkB/s",
    "write-KiB/s": "wkB/s",
    "delete-KiB/s": "dkB/s",
    "ms/read": "r_await",
    "ms/write": "w_await",
    "ms/delete": "d_await",
}
"""Column of gstat -C -> column of iostat."""
OTHERS = "o/s"
"""I/Os without data, such as flushes (gstat -o)."""
TRIPLE = (("KB/t",), ("tps", "t/s"), ("MB/s",))
"""Columns of a disk of iostat without -x, by their names on FreeBSD and macOS, and on OpenBSD and NetBSD."""
NO_DISKS = ("tty", "cpu", "load", "average")
CELL = re.compile(r"\d{1,12}(?:[.,]\d{1,3})?")


def columns_of_gstat(line: str) -> list[str]:
    """Return the columns of a head by the names of iostat; empty for any other line."""
    if line.startswith(CSV_HEAD):
        return [CSV_COLUMNS.get(word, word) for word in line.split(",")]
    words = line.split()
    if words[:2] != ["L(q)", "ops/s"] or words[-1] != "Name":
        return []
    columns = []
    way = ""
    for word in words:
        way = word[0] if word in ("r/s", "w/s", "d/s", OTHERS) else way
        names = {"L(q)": "qlen", "kBps": f"{way}kB/s", "kB": f"{way}kB", f"ms/{way}": f"{way}_await"}
        columns.append({**names, "%busy": "%util", "Name": "device"}.get(word, word))
    return columns


def sniff_gstat(head: str) -> bool:
    """Return whether there is a head of gstat."""
    return any(columns_of_gstat(line) for line in head.split("\n") if "ops/s" in line)


def read_gstat(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each table, or for each time of a CSV."""
    reader = _GstatReader()
    for at, line in enumerate(lines, 1):
        yield from reader.take_line(at, line)
    if any(OTHERS in report.columns for report in reader.reports):
        where = TextSpan(reader.reports[0].first, reader.reports[0].first)
        yield Remark(where, "o/s, I/Os without data such as flushes, are left out")
    yield from iostat.found(reader.reports, options)


@dataclass(slots=True)
class _GstatReader:
    """Tables of a text."""

    reports: list[iostat.Report] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    is_csv: bool = False
    dt_us: int | None = None
    wall: float | None = None
    """The time of the next table."""

    def take_line(self, at: int, line: str) -> Iterator[Found]:
        """Take a line; yield it if it is one of gstat, or a time."""
        length = LENGTH.fullmatch(line)
        columns = columns_of_gstat(line)
        wall = values.moment(line)
        if length is not None:
            self.dt_us, self.columns = round(float(length[1]) * 1e6) or None, []
        elif line.startswith("dT: "):
            self.dt_us, self.columns = None, []
            text = "the length of an interval of gstat can't be read: it is assumed"
            yield Remark(TextSpan(at, at), text, 1, is_incomplete=True)
        elif columns:
            self.columns, self.is_csv = columns, line.startswith(CSV_HEAD)
            if not self.is_csv:
                self.begin_report(at, self.wall)
        elif wall is not None:
            self.wall = wall
        elif not line.strip():
            if self.reports:
                self.reports[-1].is_open = False
            return
        elif not self.columns or not self.take_row(at, line):
            return
        yield Passed(TextSpan(at, at))

    def begin_report(self, at: int, wall: float | None) -> None:
        columns = [column for column in self.columns if column != "timestamp"]
        if self.is_csv:  # the name is first, and comes last in a row as iostat reads it
            columns = [*(column for column in columns if column != "device"), "device"]
        self.reports.append(iostat.Report(at, at, wall, columns, dt_us=self.dt_us, is_interval=True))
        self.wall = self.dt_us = None

    def take_row(self, at: int, line: str) -> bool:
        """Take a row; return whether the line is one, damaged or not."""
        if not self.is_csv:
            return self.reports[-1].add(at, line.replace("|", " ", 1))
        cells = line.split(",")
        wall = values.moment(cells[0])
        if wall is None or len(cells) != len(self.columns):
            return False
        if not self.reports or self.reports[-1].wall != wall or cells[1] in self.reports[-1].rows:
            self.begin_report(at, wall)
        return self.reports[-1].add(at, " ".join((*cells[2:], cells[1])))


def disks_of(names: str, columns: str) -> list[str]:
    """Return the disks of iostat without -x by the two lines of its head; empty if they are no such head."""
    words = columns.split()
    places = [at for at, word in enumerate(words) if word == "KB/t"]
    disks = [word for word in names.split() if word not in NO_DISKS]
    are_triples = all(
        len(words) >= at + len(TRIPLE) and all(words[at + n] in own for n, own in enumerate(TRIPLE)) for at in places
    )
    return disks if places and are_triples and len(disks) == len(places) else []


def sniff_plain(head: str) -> bool:
    """Return whether two lines are the head of iostat without -x."""
    return any(disks_of(names, columns) for names, columns in pairwise(head.split("\n")) if "KB/t" in columns)


def is_like_row(cells: Sequence[str], width: int) -> bool:
    """Return whether a line is a row of `width` numbers, damaged or not."""
    numbers = sum(CELL.fullmatch(cell) is not None for cell in cells)
    return numbers > 0 and 2 * numbers >= width and numbers >= len(cells) - 2


def read_plain(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each row but the first one of a run, which is an average since the boot."""
    reports: list[iostat.Report] = []
    run = iostat.IostatRun()
    disks: list[str] = []
    place = width = 0
    wall: float | None = None
    for at, line in enumerate(lines, 1):
        head = disks_of(lines[at - 2], line) if at > 1 and "KB/t" in line else []
        time = values.moment(line)
        if head:
            disks, width, place = head, len(line.split()), line.split().index("KB/t")
            yield Passed(TextSpan(at - 1, at))
        elif time is not None:
            wall = time
            yield Passed(TextSpan(at, at))
        elif disks and is_like_row(cells := line.split(), width):
            report = run.report(at, wall, ["device", "KB/t", "tps", "MB/s"])
            wall = None
            for number, disk in enumerate(disks):
                triple = cells[place + 3 * number : place + 3 * number + 3]
                if len(cells) != width or not report.add(at, " ".join((disk, *triple))):
                    report.damaged[at] = "a row of iostat can't be read: it is left out"
            reports.append(report)
            yield Passed(TextSpan(at, at))
        else:
            run, is_known = iostat.begun(run, at, line)
            if is_known:
                yield Passed(TextSpan(at, at))
    yield from iostat.found(reports, options)
