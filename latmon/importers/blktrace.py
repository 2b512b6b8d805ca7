"""Importers of blkparse's, ftrace's and perf script's lines: times from one event to another.

blkparse: I/Os are keyed by device, sector and operation: a read and a write of one sector may be in flight together. A
merged request completes with the sector of its first bio: a Q is taken for the request that begins at its sector, other
Qs are merges and have no time of their own. A second D is a requeue,
and the last one counts. A completion of some sectors leaves the request outstanding with the sectors after them.
Flushes without a sector can't be distinguished: they are left out and counted.

ftrace and perf script: `--key FIELD` decides which A belongs to which B: a `name=value` of the line, or cpu, pid,
comm, dev, sector; several fields must all agree. Without it the oldest waiting A is taken, but requests of the block
layer are paired by device, sector and operation, and they are the events where none are named.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from latmon.importers.values import (
    IN_FLIGHT,
    SECOND,
    UNKNOWN_OP,
    Counts,
    Found,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    TextSpan,
    TimeLine,
    add,
    one_device,
    op_of,
)
from latmon.model.frame import Completed, Flow, Outlier
from latmon.model.measurements.errors import ERRNO_CODE, status_name
from latmon.support.text import clean

_BLKPARSE_LINE = re.compile(
    r"\s*(\d{1,4}),(\d{1,7})\s+(\d{1,4})\s+(\d{1,12})\s+(\d{1,9})\.(\d{9})\s+(\d{1,10})\s+([A-Z]{1,2})\s+([A-Z]{1,8})\b"
    r"(?:\s+(\d{1,19}) \+ (\d{1,9})(?!\S))?(?:\s+[(<]\S+[)>])?(?:.{0,60}\[(.{0,40})\])?"
)
_BLKPARSE_EVENT = re.compile(r"\s*(?:\d+,\d+\s+\S+\s+\S+\s+\S+\s|\S+\s+\d+\s+\d+\s+\d+\.\d{9}\s)")
"""The begin of an event, of which one field may be damaged."""
_MESSAGE = re.compile(r"\s*\d+,\d+\s+\d+\s+\d+\s+\d+\.\d{9}\s+\d+\s+m\s+N\b")
"""A scheduler's message, no event of an I/O."""
_SKIPS = re.compile(r"Skips: \d{1,15} \w+ \((\d{1,15}) ")
"""blkparse's count of events that are missing: a hole in a CPU's sequence numbers."""
_SUMMARY = re.compile(r"(?:CPU\d+|Total) \(")
_BLKPARSE_HEADS = re.compile(
    r"(?:CPU\d+ \(|Total \(|\s+(?:Reads|Read|Writes|PC|IO|Timer|In) ?\S|Throughput \(|Events \(|Skips:|Input file)"
)
_ERRNO = re.compile(r"-?[0-9]{1,5}", re.ASCII)
_ERRNOS, _MAX_ERRNO = 1 << 16, 4095
_SECTOR = 512
_NAMED_TRACE = re.compile(r"(?:CPU\d{1,4}|(Total)) \((.{1,64})\):\s*")
_COMPLETED = re.compile(
    r"\s*Reads Completed:\s+(\d[\d,]{0,18}),\s+(\d[\d,]{0,18})KiB"
    r"\s+Writes Completed:\s+(\d[\d,]{0,18}),\s+(\d[\d,]{0,18})KiB\s*"
)
_THROUGHPUT = re.compile(r"Throughput \(R/W\): (\d[\d,]{0,12})KiB/s / (\d[\d,]{0,12})KiB/s\s*")


class _RequestKey(NamedTuple):
    """Identity of a request in flight: its device, its first sector that has not completed, and its operation."""

    device: str
    sector: int
    op: str


@dataclass(slots=True)
class _Request:
    queued: int | None
    issued: int | None
    comm: str
    pid: int
    sectors: int
    """All of them, as it was issued."""
    left: int
    """Sectors that have not completed."""


def sniff_blkparse(head: str) -> bool:
    """Return whether there are lines with an action of an I/O, or a summary of them."""
    return any(
        ((line := _BLKPARSE_LINE.match(part)) and line[8] in ("Q", "D", "C", "G", "I")) or _COMPLETED.fullmatch(part)
        for part in head.split("\n")
    )


def read_blkparse(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the completions of each second of the trace."""
    trace = _Trace(options, Seconds(options.threshold_us))
    for at, line in enumerate(lines, 1):
        match = _BLKPARSE_LINE.match(line)
        if match is not None:
            yield from trace.take(at, match)
        elif (skips := _SKIPS.match(line)) is not None and int(skips[1]):
            yield Remark(TextSpan(at, at), f"{int(skips[1]):,} events are missing in the trace", lost=int(skips[1]))
        elif _SUMMARY.match(line):
            trace.is_over = True
            trace.summary.begin(at, line)
        elif trace.is_over and not trace.is_timed:
            yield from trace.summary.take(at, line)
        elif _MESSAGE.match(line):
            yield Passed(TextSpan(at, at))
        elif match is None and _BLKPARSE_EVENT.match(line):
            yield Remark(TextSpan(at, at), "an event can't be read: its I/O may be missing", 1, lost=1)
        if match is not None or _BLKPARSE_HEADS.match(line):
            yield Passed(TextSpan(at, at))
    yield from trace.end(len(lines))


@dataclass(slots=True)
class _Totals:
    """Summary of blkparse without its events: I/Os and KiB of each CPU, or of all (`Total`), by name of the trace."""

    options: ImportOptions
    first: int = 0
    name: str = ""
    is_total: bool = False
    rows: dict[str, tuple[bool, list[int]]] = field(default_factory=dict)

    def begin(self, at: int, line: str) -> None:
        """Note whose rows follow."""
        named = _NAMED_TRACE.fullmatch(line)
        self.name, self.is_total = (named[2], bool(named[1])) if named else ("", False)
        self.first = self.first or at

    def take(self, at: int, line: str) -> Iterator[Found]:
        """Add a row of completions; yield all of them at the throughput, with which a summary ends."""
        done, ends = _COMPLETED.fullmatch(line), _THROUGHPUT.fullmatch(line)
        if done is not None and self.name:
            numbers = [int(group.replace(",", "")) for group in done.groups()]
            is_total, numbers_before = self.rows.get(self.name, (False, [0] * len(numbers)))
            if self.is_total or not is_total:
                numbers_now = (
                    numbers if self.is_total else [a + b for a, b in zip(numbers_before, numbers, strict=True)]
                )
                self.rows[self.name] = self.is_total, numbers_now
        elif ends is not None and self.rows:
            where = TextSpan(
                self.first, at, dt_us=self._dt_us([int(group.replace(",", "")) for group in ends.groups()])
            )
            kernel: dict[Flow, Completed] = {}
            for name, (_, (reads, read, writes, written)) in self.rows.items():
                for op, count, kib in (("read", reads, read), ("write", writes, written)):
                    add(kernel, self.options.flow(clean(name.replace(",", ":"), 64), op), Completed(count, 1024 * kib))
            yield Counts(where, kernel, {})
            yield Remark(where, "a summary of blkparse counts I/Os, and times none; its length is by the throughput")
            self.rows, self.first, self.name = {}, 0, ""

    def _dt_us(self, rates: list[int]) -> int | None:
        """Return the length by the greater of the rates, which are whole KiB/s; None where both are 0."""
        totals = [sum(row_numbers[at] for _, row_numbers in self.rows.values()) for at in (1, 3)]
        rate, kib = max(zip(rates, totals, strict=True))
        return round(1e6 * kib / rate) if rate and kib else None


@dataclass(slots=True)
class _Trace:
    """I/Os in flight and the window of the present second. A run has its own sequence numbers on each CPU."""

    options: ImportOptions
    seconds: Seconds
    open: dict[_RequestKey, _Request] = field(default_factory=dict)
    unmatched: int = 0
    unkeyed: int = 0
    unqueued: int = 0
    partial: int = 0
    skipped: int = 0
    """Sequence numbers that are absent: blkparse -a and grep leave out lines, too."""
    is_over: bool = False
    """Whether blkparse's summary was read: the next lines are of another run."""
    sequence: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last number of each device and CPU."""
    is_timed: bool = False
    """Whether the run has a completion: its summary counts the same I/Os again."""
    summary: _Totals = field(init=False)

    def __post_init__(self) -> None:
        self.summary = _Totals(self.options)

    def take(self, at: int, match: re.Match[str]) -> Iterator[Found]:
        """Take one event; yield a second that is over."""
        yield from self._another_run(at, match)
        action, ns = match[8], int(match[5]) * SECOND + int(match[6])
        self.is_timed = self.is_timed or action == "C"
        if action not in ("Q", "D", "C"):
            return
        if match[10] is None or not int(match[11]):
            self.unkeyed += action == "C"
            return
        key = _RequestKey(f"{match[1]}:{match[2]}", int(match[10]), op_of(match[9]))
        sectors = int(match[11])
        if action == "C":
            yield from self._completed(at, match, key, ns)
        elif action == "D" and key in self.open:
            request = self.open[key]
            # merges make it longer, a retry after a partial completion has the rest of it
            request.sectors += max(0, sectors - request.left)
            request.issued, request.left = ns, max(sectors, request.left)
        elif len(self.open) < IN_FLIGHT:
            queued, issued = (ns, None) if action == "Q" else (None, ns)
            comm, pid = clean(match[12] or ""), int(match[7])
            self.open[key] = _Request(queued, issued, comm, pid, sectors, sectors)

    def _another_run(self, at: int, match: re.Match[str]) -> Iterator[Found]:
        cpu, number = (f"{match[1]}:{match[2]}", match[3]), int(match[4])
        begins = self.is_over or (cpu in self.sequence and number <= self.sequence[cpu])
        if begins and self.sequence:
            yield from self.end(at - 1)
            yield TimeLine(TextSpan(at, at), f"line {at}: another run of blktrace begins")
            self.open, self.sequence, self.is_over, self.is_timed = {}, {}, False, False
            self.unmatched = self.unkeyed = self.unqueued = self.partial = self.skipped = 0
        elif cpu in self.sequence and number > self.sequence[cpu] + 1:
            self.skipped += number - self.sequence[cpu] - 1
        self.sequence[cpu] = number

    def _completed(self, at: int, match: re.Match[str], key: _RequestKey, ns: int) -> Iterator[Found]:
        request = self.open.pop(key, None)
        issued = None if request is None else request.issued
        if request is None or issued is None or issued > ns:
            self.unmatched += 1
            return
        done = int(match[11])
        if done < request.left:
            self.partial += 1
            request.left -= done
            self.open[key._replace(sector=key.sector + done)] = request
            return
        self.unqueued += request.queued is None
        flow = self.options.flow(key.device, key.op)
        sector = key.sector + request.left - request.sectors
        outlier = replace(_blkparse_outlier(flow, sector, request, issued, ns), status=_status(match[12]))
        yield from self.seconds.add(ns // SECOND, at, at, outlier)

    def end(self, last: int) -> Iterator[Found]:
        """Yield the last second, and remarks on what could not be timed."""
        yield from self.seconds.end()
        left = sum(request.issued is not None for request in self.open.values())
        for number, text, lost in (
            (self.unmatched, "completions without an issue in the trace", True),
            (self.unkeyed, "completions without a sector (flushes): not timed", True),
            (self.partial, "completions of a part of a request: it is outstanding until the rest completes", False),
            (self.unqueued, "I/Os whose queueing isn't in the trace: their total begins at the issue", False),
            (self.skipped, "sequence numbers are absent: events were filtered or are lost", False),
            (left, "I/Os had not completed at the end", False),
        ):
            if number:
                yield Remark(TextSpan(last, last), f"{number:,} {text}", number if lost else 0)


def _status(text: str | None) -> str:
    """Return the status of a completion by its errno in 16 bits, `65531` for -5; empty for 0."""
    if text is None or not _ERRNO.fullmatch(text):
        return ""
    errno = abs(int(text))
    errno = _ERRNOS - errno if errno > _ERRNOS // 2 else errno
    return status_name(ERRNO_CODE + errno) if 0 < errno <= _MAX_ERRNO else ""


def _blkparse_outlier(flow: Flow, sector: int, request: _Request, issued: int, ns: int) -> Outlier:
    """Return the I/O with its stages, slow or not; issued and completed at these times of the trace, in ns."""
    begun = issued if request.queued is None else min(request.queued, issued)
    total = (ns - begun) // 1000
    stages = {} if request.queued is None else {"queue": (issued - begun) // 1000}
    stages["hba"] = (ns - issued) // 1000
    return Outlier(
        wall=begun / SECOND,
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        stages_us=stages,
        unaccounted_us=max(0, total - sum(stages.values())),
        sector=max(0, sector),
        bytes=request.sectors * _SECTOR,
        pid=request.pid or None,
        comm=request.comm,
        includes={"hba": ("irq", "softirq", "completion")},
    )


_MARK = r"(?:\s+[^\d\s].{0,100})?\s*"
"""A mark or a word that somebody wrote behind a row."""
_BTT_HEAD = re.compile(rf"\s*([A-Z]\w{{2}}|[A-Z]\d[A-Z]dm)\s+MIN\s+AVG\s+MAX\s+N{_MARK}")
_BTT_ROW = re.compile(
    r"\s*(\(\s*\d{1,4},\s*\d{1,7}\)|[^\s(].{0,40}?)"
    r"\s+(\d{1,9}\.\d{9})\s+(\d{1,9}\.\d{9})\s+(\d{1,9}\.\d{9})\s+(\d{1,15})" + _MARK
)
_BTT_SECTION = re.compile(r"=+ (.{1,60}?) =+\s*")
_BTT_MERGES = re.compile(
    r"\s*(\(\s*\d{1,4},\s*\d{1,7}\)) \|\s+(\d+)\s+(\d+)\s+[\d.]+ \|(?:\s+\d+){3}\s+(\d{1,15})" + _MARK
)
_BTT_REST = re.compile(r".*\s\|\s|[-=|\s]+\Z|#|\s+\d+\.\d{9}\s+\d+\.\d\s*\Z")
"""Other tables of btt, and its lists of activity."""
_WHOLE_TIME, _DEVICE_TIME, _BETWEEN = "Q2C", "D2C", "Q2Q"
_ALL, _ALL_DM = "", "dm"
"""Keys of the times of all devices, and of those that btt takes for volumes: Q2Qdm, Q2Adm and Q2Cdm."""
_DM_MAJORS = ("9", "253", "254")
"""btt 1.2.0 takes these for md and the device mapper; virtio disks and zram may have the last two as well."""


class _Step(NamedTuple):
    """Times of a step in btt's table: shortest, mean and longest in seconds, and how many."""

    least: float
    mean: float
    most: float
    number: int


def sniff_btt(head: str) -> bool:
    """Return whether there is the head of btt's times."""
    return any(_BTT_HEAD.fullmatch(line) for line in head.split("\n") if "MIN" in line)


def read_btt(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the I/Os and exact means of each device, else of all of them.

    Q2C is the whole time and D2C that of driver and device; Q2Cdm is Q2C of what btt takes for a
    volume. btt counts bios, of which several may be one request. Its tables per process are of the
    same I/Os and are left out.
    """
    run = _BttRun()
    for at, line in enumerate(lines, 1):
        section, head = _BTT_SECTION.fullmatch(line), _BTT_HEAD.fullmatch(line)
        if section is not None and run.is_over(section[1]):
            yield from run.end(options)
            yield TimeLine(TextSpan(at, at), f"line {at}: another output of btt begins")
            run = _BttRun()
        if run.take(at, line, section, head):
            yield Passed(TextSpan(at, at))
    yield from run.end(options)


@dataclass(slots=True)
class _BttRun:
    """Output of one btt."""

    first: int = 0
    last: int = 0
    section: str = ""
    head: str = ""
    steps: dict[str, dict[str, _Step]] = field(default_factory=dict)
    """Device, _ALL or _ALL_DM -> step -> its times."""
    sectors: dict[str, int] = field(default_factory=dict)

    def is_over(self, section: str) -> bool:
        """Return whether a section is of another output: times of processes (-A) come before those of all devices."""
        return section in ("Per Process", "All Devices") and bool({_ALL, _ALL_DM} & self.steps.keys())

    def take(self, at: int, line: str, section: re.Match[str] | None, head: re.Match[str] | None) -> bool:
        """Take a line; return whether it is btt's."""
        if section is not None or head is not None:
            self.first = self.first or at
            self.section, self.head = (section[1], "") if section else (self.section, head[1] if head else "")
        elif not self.first:
            return False
        elif self.head and (row := _BTT_ROW.fullmatch(line)):
            step = _Step(float(row[2]), float(row[3]), float(row[4]), int(row[5]))
            if self.head == "ALL":
                key = _ALL_DM if row[1].endswith("dm") else _ALL
                self.steps.setdefault(key, {})[row[1].removesuffix("dm")] = step
            elif self.section == "Per Device":
                self.steps.setdefault(_btt_device(row[1]), {})[self.head.removesuffix("dm")] = step
        elif merges := _BTT_MERGES.fullmatch(line):
            self.sectors[_btt_device(merges[1])] = int(merges[4])
        elif not _BTT_REST.match(line):
            return False
        self.last = at
        return True

    def end(self, options: ImportOptions) -> Iterator[Found]:
        """Yield the counts of the devices and their exact times in words."""
        between = [self.steps.get(key, {}).get(_BETWEEN) for key in (_ALL, _ALL_DM)]
        dt_us = max((round(step.mean * step.number * 1e6) for step in between if step), default=0)
        where = TextSpan(self.first or 1, self.last or 1, dt_us=dt_us or None)
        kernel: dict[Flow, Completed] = {}
        measured = {name: steps for name, steps in self._devices().items() if _WHOLE_TIME in steps}
        for name, steps in measured.items():
            whole_step, driver = steps[_WHOLE_TIME], steps.get(_DEVICE_TIME)
            us = round(whole_step.mean * whole_step.number * 1e6)
            queue_us = None
            if driver is not None and driver.number == whole_step.number:
                queue_us = max(0, us - round(driver.mean * driver.number * 1e6))
            size = self._sectors_of(name, measured) * _SECTOR
            add(kernel, options.flow(name, UNKNOWN_OP), Completed(whole_step.number, size, us, queue_us))
            words = "; ".join(_in_words(name, step) for name, step in steps.items() if name != _BETWEEN)
            yield Remark(where, f"{name}: {words}")
        if kernel:
            one_device(options, list(measured))
            yield Counts(where, kernel, {})
        elif self.first:
            text = "this output of btt has no times from queueing to completion (Q2C)"
            yield Remark(where, text, 1, is_incomplete=True)

    def _devices(self) -> dict[str, dict[str, _Step]]:
        """Return the times of each device; where only those of all are there, of the disks and of the volumes."""
        each = {name: steps for name, steps in self.steps.items() if name not in (_ALL, _ALL_DM)}
        if any(_WHOLE_TIME in steps for steps in each.values()):
            return each
        disks, volumes = self.steps.get(_ALL, {}), self.steps.get(_ALL_DM, {})
        if _WHOLE_TIME not in volumes:
            return {self._only(list(self.sectors), "all disks"): disks}
        if _WHOLE_TIME not in disks:
            # I/Os of these devices alone: the times without `dm` are theirs, too
            return {self._only(list(self.sectors), "all disks"): disks | volumes}
        driver = disks.get(_DEVICE_TIME)
        if driver is not None and driver.number != disks[_WHOLE_TIME].number:
            # it is of disks and volumes together
            disks = {name: step for name, step in disks.items() if name != _DEVICE_TIME}
        is_volume = {name: name.partition(":")[0] in _DM_MAJORS for name in self.sectors}
        return {
            self._only([name for name in self.sectors if not is_volume[name]], "all disks"): disks,
            self._only([name for name in self.sectors if is_volume[name]], "all volumes"): volumes,
        }

    @staticmethod
    def _only(names: Sequence[str], of_all: str) -> str:
        return names[0] if len(names) == 1 else of_all

    def _sectors_of(self, name: str, measured: Collection[str]) -> int:
        """Return the sectors of a device, or of the devices that a name stands for; 0 is unknown."""
        if name in self.sectors:
            return self.sectors[name]
        if len([other for other in measured if other not in self.sectors]) > 1:
            return 0
        return sum(number for device, number in self.sectors.items() if device not in measured)


def _btt_device(text: str) -> str:
    """Return 8:0 of `(  8,  0)`."""
    return ":".join(part.strip() for part in text.strip("()").split(","))


def _in_words(step: str, of: _Step) -> str:
    least, mean, most = (f"{seconds * 1e6:,.3f}" for seconds in of[:3])
    return f"{step} min {least}, mean {mean}, max {most} us of {of.number:,}"


_FTRACE_LINE = re.compile(
    r"\s*(?P<comm>.{1,32}?)-(?P<pid>\d{1,10})\s+(?:\(\s*[\d-]+\)\s+)?"
    r"(?:\[(?P<cpu>\d{1,5})\]\s+(?:[\w.+#\-]{4,8}\s+)?|(?P<number>\d{1,5})[.a-zA-Z][\w.+#\-]{3,7}\s+)"
    r"(?P<s>\d{1,9})\.(?P<part>\d{1,9}):\s+"
    r"(?:[\w-]{1,32}:\s+)??(?P<event>[A-Za-z_][\w.]{0,80})(?::|\s*<-|\s|\(|$)(?P<rest>.{0,2000})"
)
_PERF_LINE = re.compile(
    r"\s*(?P<comm>\S.{0,31}?)\s+(?P<pid>\d{1,10})(?:/\d{1,10})?\s+(?:\[(?P<cpu>\d{1,5})\]\s+)?"
    r"(?P<s>\d{1,9})\.(?P<part>\d{1,9}):\s+(?:\d{1,20}\s+)?"
    r"(?:[\w-]{1,40}:)?(?P<event>[A-Za-z_][\w.]{0,80}):(?!\S)(?P<rest>.{0,2000})"
)
"""Line of perf script: task, pid (or pid/tid), CPU where it is printed, time, period of a sample, group, event."""
_STACK = re.compile(r"\s+[0-9a-f]{6,16} \S.{0,300} \(.{1,200}\)\s*")
"""Frame of a call chain below a line of perf script."""
_LOST = re.compile(r"\s*CPU:(\d{1,5}) \[(?:LOST(?: (\d{1,15}))? EVENTS|(\d{1,15}) EVENTS DROPPED)\]")
"""Lost events in trace_pipe (kernel/trace/trace.c) and in trace-cmd report."""
_PERF_LOST = re.compile(
    r".{0,100}?(?:PERF_RECORD_LOST lost (\d{1,15})|Processed \d{1,15} events and lost (\d{1,15}) chunks)"
)
"""Lost events by perf script --show-lost-events; lost chunks, of one event or more each, by its warning."""
_BEGINS = re.compile(r"# tracer:|cpus=\d+\s*\Z")
_FTRACE_HEADS = re.compile(r"\s*#|cpus=\d+|version = |CPU \d+ is empty|\s*CPU:\d+ \[LOST|trace-cmd|libtrace")
_BLOCK = re.compile(r"\s*(\d+,\d+) ([A-Z]+) (?:(\d+) )?\(.{0,200}?\) (\d+) \+ (\d+)")
_DISK = re.compile(r"\bdisk=(\w{1,40})")
_REQUEST = ("block_rq_issue", "block_rq_complete")
"""Events that are paired where --events names none."""


@dataclass(slots=True)
class _Line:
    at: int
    comm: str
    pid: int
    cpu: int
    ns: int
    event: str
    rest: str


def sniff_ftrace(head: str) -> bool:
    """Return whether there are lines with task, CPU, seconds and event."""
    return any(_line(0, line) is not None for line in head.split("\n"))


def read_ftrace(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the pairs that end in each second; without --events of requests of the block layer."""
    events = options.events
    if events is None and not all(any(event in line for line in lines) for event in _REQUEST):
        yield from _without_events(lines)
        return
    begin, end = (event.rpartition(":")[2] for event in events or _REQUEST)
    key = options.key or ("sector" if (begin, end) == _REQUEST else "")
    asked = replace(options, events=events or _REQUEST, key=key)
    pairing = _Pairing(asked, Seconds(asked.threshold_us, asked.stage_of()), begin, end)
    for at, text in enumerate(lines, 1):
        yield from _traced_line(pairing, at, text)
    yield from pairing.end(len(lines))


def _traced_line(pairing: _Pairing, at: int, text: str) -> Iterator[Found]:
    line, where = _line(at, text), TextSpan(at, at)
    is_ours = line is not None or _FTRACE_HEADS.match(text)
    if line is not None:
        yield from pairing.take(line)
    elif (lost := _LOST.match(text)) is not None:
        yield from pairing.lost(at, int(lost[2] or lost[3] or 1), f"CPU {lost[1]}")
    elif (lost := _PERF_LOST.match(text)) is not None:
        is_ours = True
        yield from pairing.lost(at, int(lost[1] or lost[2]), "perf")
    elif _BEGINS.match(text):
        pairing.is_over = bool(pairing.times)
    elif not is_ours and (pairing.begin in text or pairing.end_ in text):
        yield Remark(where, "an event can't be read: its pair is missing", 1, lost=1)
    if is_ours or (pairing.times and _STACK.fullmatch(text)):
        yield Passed(where)


def _without_events(lines: Sequence[str]) -> Iterator[Found]:
    """Yield a remark on a trace of which no two events are named."""
    row_numbers = [at for at, text in enumerate(lines, 1) if _line(at, text) is not None]
    text = (
        f"{len(row_numbers):,} lines of a trace need --events A,B, the time from event A to event B: they are left out"
    )
    begin, end = _REQUEST
    events = [event for event in _REQUEST if any(event in line for line in lines)]
    if events:
        missing = end if events == [begin] else begin
        text = f"the trace has {events[0]} and no {missing}: trace both, or name two of its events with --events A,B"
    yield Remark(TextSpan(row_numbers[0], row_numbers[-1]), text, len(row_numbers), is_incomplete=True)


@dataclass(slots=True)
class _Pairing:
    """Begins that wait for their end, by key, and the window of the present second."""

    options: ImportOptions
    seconds: Seconds
    begin: str
    end_: str
    waiting: dict[str, deque[_Line]] = field(default_factory=lambda: defaultdict(deque))
    begun: int = 0
    unmatched: int = 0
    keyless: int = 0
    pairs: int = 0
    dropped: int = 0
    """Begins whose end may be among events that were lost."""
    is_over: bool = False
    """The head of another trace has come."""
    times: dict[int, int] = field(default_factory=dict)
    """The time of the last event of each CPU: it falls where another trace begins."""

    def take(self, line: _Line) -> Iterator[Found]:
        """Take one event; yield a second that is over."""
        yield from self._another_trace(line)
        if line.event not in (self.begin, self.end_):
            return
        key = _key(line, self.options.key)
        if key is None:
            self.keyless += 1
        elif line.event == self.end_ and self.waiting[key]:
            yield from self._paired(self.waiting[key].popleft(), line)
        elif line.event == self.begin and self.begun < IN_FLIGHT:
            self.waiting[key].append(line)
            self.begun += 1
        else:
            self.unmatched += 1

    def _another_trace(self, line: _Line) -> Iterator[Found]:
        if self.is_over or line.ns < self.times.get(line.cpu, 0):
            yield from self.end(line.at - 1)
            yield TimeLine(TextSpan(line.at, line.at), f"line {line.at}: another trace begins")
            self.waiting.clear()
            self.times.clear()
            self.is_over = False
            self.begun = self.unmatched = self.keyless = self.pairs = self.dropped = 0
        self.times[line.cpu] = line.ns

    def lost(self, at: int, events: int, by: str) -> Iterator[Found]:
        """Drop the begins that wait: if their end was lost, they would be paired with a later one."""
        self.dropped += self.begun
        self.begun = 0
        self.waiting.clear()
        yield Remark(TextSpan(at, at), f"{events:,} events of {by} were lost by the kernel's buffer", lost=events)

    def _paired(self, begun: _Line, ended: _Line) -> Iterator[Found]:
        self.begun -= 1
        if begun.ns > ended.ns:
            self.unmatched += 1
            return
        self.pairs += 1
        outlier = _ftrace_outlier(_flow(begun, self.options), begun, ended, self.options)
        # things are sorted by their first line: a second begins where its first I/O ended, not began
        yield from self.seconds.add(ended.ns // SECOND, ended.at, ended.at, outlier)

    def end(self, last: int) -> Iterator[Found]:
        """Yield the last second, and remarks on events without their other half."""
        yield from self.seconds.end()
        begin, end, where = clean(self.begin), clean(self.end_), TextSpan(last, last)
        if not self.pairs:
            yield Remark(where, f"no {begin} is followed by a {end}")
        if self.unmatched or self.begun:
            text = f"{self.unmatched:,} {end} without a {begin}, {self.begun:,} the other way"
            yield Remark(where, text, self.unmatched)
        if self.dropped:
            yield Remark(where, f"{self.dropped:,} {begin} before lost events: not paired", self.dropped)
        if self.keyless:
            yield Remark(where, f"{self.keyless:,} of these events have no {clean(self.options.key)}", self.keyless)


def _line(at: int, text: str) -> _Line | None:
    match = _FTRACE_LINE.match(text) or (_PERF_LINE.match(text) if ": " in text else None)
    if match is None:
        return None
    ns = int(match["s"]) * SECOND + int(match["part"].ljust(9, "0"))
    cpu = match["cpu"] or match.groupdict().get("number") or -1
    return _Line(at, clean(match["comm"].strip()), int(match["pid"]), int(cpu), ns, match["event"], match["rest"])


def _key(line: _Line, keys: str) -> str | None:
    """Return the values of the fields of --key, separated by commas; None for a line that lacks one."""
    key_values = [_field(line, key.strip()) for key in keys.split(",")] if keys else []
    return None if None in key_values else " ".join(map(str, key_values))


def _field(line: _Line, key: str) -> str | None:
    if key in ("cpu", "pid", "comm"):
        return str(getattr(line, key))
    if key in ("dev", "sector") and (block := _BLOCK.match(line.rest)):
        if key == "dev":
            return block[1]
        # a flush is issued at sector 0 and completes at 2^64 - 1; a device has one at a time (block/blk-flush.c)
        sector = "flush" if block[5] == "0" else block[4]
        return f"{block[1]} {sector} {op_of(block[2])}"
    match = re.search(rf"\b{re.escape(key)}\s*[=:]\s*([^\s,;]{{1,64}})", line.rest)
    return match[1] if match else None


def _flow(begun: _Line, options: ImportOptions) -> Flow:
    block = _BLOCK.match(begun.rest)
    disk = _DISK.search(begun.rest)
    named = disk[1] if disk else " to ".join(options.events or ())
    name = block[1].replace(",", ":") if block else clean(named)
    return options.flow(name, op_of(block[2]) if block else UNKNOWN_OP)


def _ftrace_outlier(flow: Flow, begun: _Line, ended: _Line, options: ImportOptions) -> Outlier:
    total = (ended.ns - begun.ns) // 1000
    block = _BLOCK.match(begun.rest)
    return Outlier(
        wall=begun.ns / SECOND,
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        unaccounted_us=total,
        sector=int(block[4]) if block and block[5] != "0" else None,
        pid=begun.pid or None,
        comm=begun.comm,
        cpu_issue=begun.cpu if begun.cpu >= 0 else None,
        cpu_complete=ended.cpu if ended.cpu >= 0 else None,
        path=clean(" to ".join(options.events or ())),
    )
