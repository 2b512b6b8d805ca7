"""Importers of atop -P DSK and of biotop: I/Os of an interval, by disk.

atop's line has the end of its interval, its length in s, the time that the disk was busy in ms, and counts of I/Os and
sectors of 512 bytes (atop(1), "Parseable output"). It times no I/O: avio on its screen is the busy time of an I/O. The
first sample, behind RESET, is since the boot.

biotop (bcc, libbpf-tools) has a row per process, disk and direction, with the mean time of its I/Os, which begin at the
issue (tools/biotop.py of bcc). It prints the processes with the most I/O, 20 by default.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers.values import (
    Clock,
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    TextSpan,
    add,
    interval_us,
    one_device,
    op_named,
)
from latmon.model.frame import Completed, Flow, Outstanding
from latmon.support.text import clean

SECTOR, KIB = 512, 1024
LABELS = ("DSK", "LVM", "MDD")
"""Disks, and volumes, which count the I/Os of their disks again."""
DSK = re.compile(
    rf"(?P<label>{'|'.join(LABELS)}) (?P<host>\S{{1,255}}) (?P<epoch>\d{{9,10}}) \d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d "
    r"(?P<seconds>\d{1,9}) (?P<disk>\S{1,64}) (?P<numbers>-?\d{1,19}(?: -?\d{1,19}(?:\.\d{1,3})?){4,9})"
)
NUMBERS = ("ms", "reads", "sectors read", "writes", "sectors written", "discards", "sectors discarded", "in flight")
OPS = (
    ("read", "reads", "sectors read"),
    ("write", "writes", "sectors written"),
    ("discard", "discards", "sectors discarded"),
)
RESET, SEPARATOR = "RESET", "SEP"
OFTEN = 2
"""A first sample of so many times the usual length is since the boot."""


@dataclass(slots=True)
class _Sample:
    """I/Os of an interval that ended at `wall`."""

    first: int
    last: int
    wall: float | None
    seconds: int | None = None
    is_since_boot: bool = False
    kernel: dict[Flow, Completed] = field(default_factory=dict)
    outstanding: dict[str, Outstanding] = field(default_factory=dict)

    def counts(self) -> Counts:
        dt_us = None if self.seconds is None else self.seconds * 1_000_000
        return Counts(TextSpan(self.first, self.last, self.wall, dt_us), self.kernel, self.outstanding)


def sniff_atop(head: str) -> bool:
    """Return whether there is a line of a disk."""
    return any(line.startswith(LABELS) and DSK.match(line) for line in head.split("\n"))


def read_atop(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the counts of each interval."""
    samples: list[_Sample] = []
    is_reset = False
    for at, line in enumerate(lines, 1):
        where = TextSpan(at, at)
        row = DSK.fullmatch(line) if line.startswith(LABELS) else None
        if row is not None:
            wall, seconds = float(row["epoch"]), int(row["seconds"])
            if not samples or (samples[-1].wall, samples[-1].seconds) != (wall, seconds):
                samples.append(_Sample(at, at, wall, seconds, is_reset))
                is_reset = False
            _take_disk(samples[-1], row, options)
            samples[-1].last = at
            yield Passed(where)
        elif line in (RESET, SEPARATOR):
            is_reset = is_reset or line == RESET
            yield Passed(where)
        elif line.startswith(tuple(f"{label} " for label in LABELS)):
            yield Remark(where, "a line of atop can't be read: its disk is left out", 1, is_incomplete=True)
    one_device(options, list(dict.fromkeys(flow.device for sample in samples for flow in sample.kernel)))
    if samples:
        text = (
            "atop has the time that a disk was busy, and times no I/O; LVM and MDD count the I/Os of their disks again"
        )
        yield Remark(TextSpan(samples[0].first, samples[0].first), text)
        samples[0].is_since_boot |= _is_far_longer(samples[0], samples[1:])
    for sample in samples:
        if sample.is_since_boot and options.first_report != "keep":
            yield Remark(TextSpan(sample.first, sample.last), "the first sample is since the boot and left out")
        else:
            yield sample.counts()


def _is_far_longer(sample: _Sample, others: Sequence[_Sample]) -> bool:
    longest = max((other.seconds or 0 for other in others), default=None)
    return longest is not None and (sample.seconds or 0) > OFTEN * longest


def _take_disk(sample: _Sample, row: re.Match[str], options: ImportOptions) -> None:
    numbers = dict(zip(NUMBERS, map(float, row["numbers"].split()), strict=False))
    disk = clean(row["disk"])
    for op, count, sectors in OPS:
        if numbers.get(count, -1.0) >= 0 and sectors in numbers:
            done = Completed(round(numbers[count]), round(max(0.0, numbers[sectors])) * SECTOR)
            add(sample.kernel, options.flow(disk, op), done)
    if numbers.get("in flight", -1.0) >= 0:
        sample.outstanding[options.device or disk] = Outstanding(round(numbers["in flight"]), None)


BIOTOP_HEAD = re.compile(r"PID\s+COMM\s+D MAJ MIN\s+DISK\s+I/O\s+Kbytes\s+AVGms\s*")
BIOTOP_BEGIN = re.compile(r"Tracing\.\.\. Output every (\d{1,6}) secs\. Hit Ctrl-C to end\s*")
BIOTOP_TIME = re.compile(r"(\d\d:\d\d:\d\d) loadavg: .*")
BIOTOP_ROW = re.compile(
    r"\d{1,10}\s.{0,40}?\s?(?P<way>[RW]) (?P<number>\d{1,7}\s+\d{1,7})\s+(?P<disk>\S{1,40})\s+(?P<ios>\d{1,15})"
    r"\s+(?P<kib>\d{1,15}(?:\.\d{1,2})?)\s+(?P<ms>\d{1,12}\.\d{1,3})\s*"
)

FEWEST_CELLS, FEWEST_NUMBERS = 7, 3
"""Cells of a row without a command, and those of a damaged one that have a digit."""


def is_like_row(line: str) -> bool:
    """Return whether a line below a head is a row, damaged or not."""
    cells = line.split()
    return len(cells) >= FEWEST_CELLS and sum(any(map(str.isdigit, cell)) for cell in cells) >= FEWEST_NUMBERS


def sniff_biotop(head: str) -> bool:
    """Return whether there is a head of biotop."""
    return any(BIOTOP_HEAD.fullmatch(line) for line in head.split("\n") if "AVGms" in line)


def read_biotop(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the counts and the mean times of each table: the rows of a disk and a direction are added."""
    reader = _BiotopReader(options, Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.take_line(at, line)
    samples = reader.samples
    one_device(options, list(dict.fromkeys(flow.device for sample in samples for flow in sample.kernel)))
    if samples:
        text = "biotop lists the processes with the most I/O (-r, 20): other I/Os are not counted"
        yield Remark(TextSpan(samples[0].first, samples[0].first), text)
    usual = interval_us(sample.wall for sample in samples)
    for sample in samples:
        sample.seconds = sample.seconds or (round(usual / 1e6) if usual else None)
        if sample.kernel:
            yield sample.counts()


@dataclass(slots=True)
class _BiotopReader:
    """Tables of a text."""

    options: ImportOptions
    clock: Clock
    samples: list[_Sample] = field(default_factory=list)
    disks: dict[str, str] = field(default_factory=dict)
    """Number of a disk -> its name."""
    wall: float | None = None
    """The time of the next table."""
    seconds: int | None = None
    is_table: bool = False

    def take_line(self, at: int, line: str) -> Iterator[Found]:
        """Take a line; yield it if it is one of biotop, and a remark on a row that can't be taken."""
        where = TextSpan(at, at)
        begin, time = BIOTOP_BEGIN.fullmatch(line), BIOTOP_TIME.fullmatch(line)
        if begin is not None:
            self.seconds = int(begin[1]) or None
        elif time is not None:
            self.wall, self.is_table = self.clock.wall(time[1]), False
        elif BIOTOP_HEAD.fullmatch(line):
            self.samples.append(_Sample(at, at, self.wall, self.seconds))
            self.wall, self.is_table = None, True
        elif self.is_table and is_like_row(line):
            why = self.take_row(at, line)
            if why:
                yield Remark(where, f"{why}: it is left out", 1, is_incomplete=True)
        else:
            self.is_table = self.is_table and bool(line.strip())
            return
        yield Passed(where)

    def take_row(self, at: int, line: str) -> str:
        """Add a row to its table; return why it can't be added, nothing if it was."""
        row = BIOTOP_ROW.fullmatch(line)
        if row is None:
            return "a row of biotop can't be read"
        known = self.disks.setdefault(row["number"], row["disk"])
        if known != row["disk"]:
            return f"a row of {clean(row['disk'])} has the number of {clean(known)}"
        ios = int(row["ios"])
        done = Completed(ios, round(float(row["kib"]) * KIB), round(float(row["ms"]) * 1000 * ios))
        add(self.samples[-1].kernel, self.options.flow(clean(row["disk"]), op_named(row["way"])), done)
        self.samples[-1].last = at
        return ""
