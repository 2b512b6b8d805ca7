"""Importer of iostat -D of AIX, with -l or without: rates and mean times of reads and writes, and of the queue.

avgserv is from the driver's begin of an I/O to its end, avgtime is the wait before it (of reads and writes together);
the whole time is their sum. Times are in ms, with S in seconds, and bytes are powers of 1024 with K, M or G (IBM's
page of the iostat command). With an interval each report is of an interval, a single report is since the boot.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers import iostat, values
from latmon.importers.values import Clock, Found, ImportOptions, Passed, TextSpan
from latmon.support.text import clean

SECTION = re.compile(r"\s*(?:(\S{1,64})\s+)?(xfer|read|write|queue):((?:\s+[%\w]+){5,6})\s*")
"""Head of one part of a disk; that of the first part names the disk."""
LONG_HEAD = re.compile(r"\s+%tm\s+bps\s+tps\s+bread\s+bwrtn\s+rps(?:\s+\w+){5}\s+wps(?:\s+\w+){11}\s*")
LONG = (
    *("%tm_act", "bps", "tps", "bread", "bwrtn"),
    *(f"read {name}" for name in ("rps", "avgserv", "minserv", "maxserv", "timeouts", "fails")),
    *(f"write {name}" for name in ("wps", "avgserv", "minserv", "maxserv", "timeouts", "fails")),
    *(f"queue {name}" for name in ("avgtime", "mintime", "maxtime", "avgwqsz", "avgsqsz", "sqfull")),
)
NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)([KMGTS]?)")
SECONDS = "S"
NEEDED = ("bread", "bwrtn", "read rps", "read avgserv", "write wps", "write avgserv", "queue avgtime")
COLUMNS = ["Device", "r/s", "w/s", "r_await", "w_await", "rkB/s", "wkB/s", "aqu-sz"]
HEADS = ("System configuration:", "Disks: ")


def sniff(head: str) -> bool:
    """Return whether there is the head of a disk's part, or of the long form."""
    lines = [line for line in head.split("\n") if "bread" in line]
    return any(SECTION.fullmatch(line) or LONG_HEAD.fullmatch(line) for line in lines)


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each report."""
    reader = _Reader(Clock(options.start))
    for at, line in enumerate(lines, 1):
        if reader.take_line(at, line):
            yield Passed(TextSpan(at, at))
    reader.end_disk()
    reports = reader.reports
    numbers = Counter(report.run for report in reports)
    for report in reports:
        report.is_interval = numbers[report.run] > 1
    yield from iostat.found(reports, options)


@dataclass(slots=True)
class _Reader:
    """Reports of a text, and the disk whose parts are being read."""

    clock: Clock
    reports: list[iostat.Report] = field(default_factory=list)
    run: iostat.IostatRun = field(default_factory=iostat.IostatRun)
    disk: str = ""
    first: int = 0
    last: int = 0
    printed: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """Names of the numbers that the next line has."""
    is_long: bool = False
    wall: float | None = None

    def take_line(self, at: int, line: str) -> bool:
        """Take a line; return whether it is one of iostat -D."""
        section = SECTION.fullmatch(line)
        words = line.split()
        time = values.moment(line)
        if section is not None and (section[1] or self.disk):
            if section[1]:
                self.end_disk()
                self.disk, self.first, self.is_long = clean(section[1]), at, False
            prefix = "" if section[2] == "xfer" else f"{section[2]} "
            self.names = [f"{prefix}{name}" for name in section[3].split()]
        elif LONG_HEAD.fullmatch(line):
            self.end_disk()
            self.is_long = True
        elif self.names and len(words) == len(self.names):
            self.printed |= zip(self.names, words, strict=True)
            self.names = []
        elif self.is_long and len(words) > len(LONG) and NUMBER.fullmatch(words[1]):
            self.disk, self.first = clean(words[0]), at
            self.printed = dict(zip(LONG, words[1:], strict=False))
            self.wall = self.clock.wall(words[-1]) if len(words) > len(LONG) + 1 else self.wall
            self.last = at
            self.end_disk()
            return True
        elif time is not None:
            self.end_disk()
            self.wall = time
        else:
            self.end_disk()
            self.run, is_known = iostat.begun(self.run, at, line)
            return is_known or line.startswith(HEADS) or (self.is_long and line.split()[:1] == ["act"])
        self.last = at
        return True

    def end_disk(self) -> None:
        """Add the disk whose parts were read to its report."""
        if not self.disk:
            return
        latest = self.reports[-1] if self.reports else None
        is_same = latest is not None and latest.run == self.run.number and latest.wall == (self.wall or latest.wall)
        if latest is None or not is_same or self.disk in latest.rows:
            latest = self.run.report(self.first, self.wall, COLUMNS)
            latest.since = "the boot"
            self.reports.append(latest)
        row = _row(self.printed)
        latest.last = self.last
        if row is None:
            latest.damaged[self.first] = f"{self.disk}: a number is missing or can't be read: it is left out"
        else:
            latest.rows[self.disk] = row
        self.disk, self.printed, self.names = "", {}, []
        self.wall = None if not self.is_long else self.wall


def _row(printed: dict[str, str]) -> dict[str, float] | None:
    """Return the values of a disk by the columns of iostat on Linux; None where one can't be read."""
    numbers = {}
    for name in NEEDED:
        value = _number(name, printed.get(name, ""))
        if value is None:
            return None
        numbers[name] = value
    wait_ms = numbers["queue avgtime"]
    return {
        "r/s": numbers["read rps"],
        "w/s": numbers["write wps"],
        "rkB/s": numbers["bread"] / 1024,
        "wkB/s": numbers["bwrtn"] / 1024,
        "r_await": numbers["read avgserv"] + wait_ms,
        "w_await": numbers["write avgserv"] + wait_ms,
        iostat.QUEUE_MS: wait_ms,
        **_depth(printed),
    }


def _depth(printed: dict[str, str]) -> dict[str, float]:
    """Return the mean number of waiting and of issued I/Os, and the busy share in percent, where both can be read."""
    waiting, issued = (_number(name, printed.get(f"queue {name}", "")) for name in ("avgwqsz", "avgsqsz"))
    busy = _number("%tm_act", printed.get("%tm_act", ""))
    return {} if waiting is None or issued is None or busy is None else {"aqu-sz": waiting + issued, "%util": busy}


def _number(name: str, text: str) -> float | None:
    """Return bytes or a rate, or a time in ms; None for anything else."""
    number = NUMBER.fullmatch(text)
    if number is None:
        return None
    is_time = name.endswith(("serv", "time"))
    if number[2] == SECONDS:
        return float(number[1]) * 1000 if is_time else None
    return None if is_time and number[2] else float(number[1]) * values.POWERS[number[2]]
