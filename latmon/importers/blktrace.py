"""Importers of blkparse's and ftrace's lines: times from one event to another.

blkparse: I/Os are keyed by device and sector. A merged request completes with the sector of its first bio: a Q is taken
for the request that begins at its sector, other Qs are merges and have no time of their own. A second D is a requeue,
and the last one counts. A completion of some sectors leaves the request outstanding with the sectors after them.
Flushes without a sector can't be distinguished: they are left out and counted.

ftrace: `--key FIELD` decides which A belongs to which B: a `name=value` of the line, or cpu, pid, comm, dev, sector.
Without it the oldest waiting A is taken.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.importers.values import (
    IN_FLIGHT,
    SECOND,
    UNKNOWN_OP,
    Found,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    TextSpan,
    TimeLine,
    op_of,
)
from latmon.model.frame import Flow, Outlier
from latmon.support.errors import UsageError
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
_SECTOR = 512


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
    """Return whether there are lines with an action of an I/O."""
    return any((line := _BLKPARSE_LINE.match(one)) and line[8] in ("Q", "D", "C", "G", "I") for one in head.split("\n"))


def read_blkparse(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the completions of each second of the trace."""
    trace = _Trace(options, Seconds(options.threshold_us))
    for at, line in enumerate(lines, 1):
        found = _BLKPARSE_LINE.match(line)
        if found is not None:
            yield from trace.take(at, found)
        elif (skips := _SKIPS.match(line)) is not None and int(skips[1]):
            yield Remark(TextSpan(at, at), f"{int(skips[1]):,} events are missing in the trace", lost=int(skips[1]))
        elif _SUMMARY.match(line):
            trace.is_over = True
        elif _MESSAGE.match(line):
            yield Passed(TextSpan(at, at))
        elif found is None and _BLKPARSE_EVENT.match(line):
            yield Remark(TextSpan(at, at), "an event can't be read: its I/O may be missing", 1, lost=1)
        if found is not None or _BLKPARSE_HEADS.match(line):
            yield Passed(TextSpan(at, at))
    yield from trace.end(len(lines))


@dataclass(slots=True)
class _Trace:
    """I/Os in flight and the window of the present second. A run has its own sequence numbers on each CPU."""

    options: ImportOptions
    seconds: Seconds
    open: dict[tuple[str, int], _Request] = field(default_factory=dict)
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

    def take(self, at: int, found: re.Match[str]) -> Iterator[Found]:
        """Take one event; yield a second that is over."""
        yield from self._another_run(at, found)
        action, ns = found[8], int(found[5]) * SECOND + int(found[6])
        if action not in ("Q", "D", "C"):
            return
        if found[10] is None or not int(found[11]):
            self.unkeyed += action == "C"
            return
        key, sectors = (f"{found[1]}:{found[2]}", int(found[10])), int(found[11])
        if action == "C":
            yield from self._completed(at, found, key, ns)
        elif action == "D" and key in self.open:
            request = self.open[key]
            # merges make it longer, a retry after a partial completion has the rest of it
            request.sectors += max(0, sectors - request.left)
            request.issued, request.left = ns, max(sectors, request.left)
        elif len(self.open) < IN_FLIGHT:
            queued, issued = (ns, None) if action == "Q" else (None, ns)
            comm, pid = clean(found[12] or ""), int(found[7])
            self.open[key] = _Request(queued, issued, comm, pid, sectors, sectors)

    def _another_run(self, at: int, found: re.Match[str]) -> Iterator[Found]:
        cpu, number = (f"{found[1]}:{found[2]}", found[3]), int(found[4])
        begins = self.is_over or number <= self.sequence.get(cpu, 0)
        if begins and self.sequence:
            yield from self.end(at - 1)
            yield TimeLine(TextSpan(at, at), f"line {at}: another run of blktrace begins")
            self.open, self.sequence, self.is_over = {}, {}, False
            self.unmatched = self.unkeyed = self.unqueued = self.partial = self.skipped = 0
        elif cpu in self.sequence and number > self.sequence[cpu] + 1:
            self.skipped += number - self.sequence[cpu] - 1
        self.sequence[cpu] = number

    def _completed(self, at: int, found: re.Match[str], key: tuple[str, int], ns: int) -> Iterator[Found]:
        request = self.open.pop(key, None)
        if request is None or request.issued is None or request.issued > ns:
            self.unmatched += 1
            return
        done = int(found[11])
        if done < request.left:
            self.partial += 1
            request.left -= done
            self.open[key[0], key[1] + done] = request
            return
        self.unqueued += request.queued is None
        flow = self.options.flow(key[0], op_of(found[9]))
        one = _blkparse_outlier(flow, key[1] + request.left - request.sectors, request, ns)
        yield from self.seconds.add(ns // SECOND, at, at, one)

    def end(self, last: int) -> Iterator[Found]:
        """Yield the last second, and remarks on what could not be timed."""
        yield from self.seconds.end()
        left = sum(one.issued is not None for one in self.open.values())
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


def _blkparse_outlier(flow: Flow, sector: int, request: _Request, ns: int) -> Outlier:
    """Return the I/O with its stages, slow or not."""
    issued = request.issued or ns
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


_FTRACE_LINE = re.compile(
    r"\s*(.{1,32}?)-(\d{1,10})\s+(?:\(\s*[\d-]+\)\s+)?\[(\d{1,5})\]\s+(?:[\w.+#\-]{4,8}\s+)?(\d{1,9})\.(\d{1,9}):\s+"
    r"(?:[\w-]{1,32}:\s+)??([A-Za-z_][\w.]{0,80})(?::|\s*<-|\s|\(|$)(.{0,2000})"
)
_LOST = re.compile(r"\s*CPU:(\d{1,5}) \[(?:LOST(?: (\d{1,15}))? EVENTS|(\d{1,15}) EVENTS DROPPED)\]")
"""Lost events in trace_pipe (kernel/trace/trace.c) and in trace-cmd report."""
_BEGINS = re.compile(r"# tracer:|cpus=\d+\s*\Z")
_FTRACE_HEADS = re.compile(r"\s*#|cpus=\d+|version = |CPU \d+ is empty|\s*CPU:\d+ \[LOST|trace-cmd|libtrace")
_BLOCK = re.compile(r"\s*(\d+,\d+) ([A-Z]+) (?:(\d+) )?\(.{0,200}?\) (\d+) \+ (\d+)")


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
    """Return whether there are lines with task, CPU in brackets, seconds and event."""
    return any(_FTRACE_LINE.match(one) for one in head.split("\n"))


def read_ftrace(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the pairs that end in each second. UsageError without --events."""
    if options.events is None:
        raise UsageError("a trace needs --events A,B: the time from event A to event B is measured")
    pairing = _Pairing(options, Seconds(options.threshold_us, options.stage_of()), *options.events)
    for at, text in enumerate(lines, 1):
        one = _line(at, text)
        if one is not None:
            yield from pairing.take(one)
        elif (lost := _LOST.match(text)) is not None:
            yield from pairing.lost(at, int(lost[1]), int(lost[2] or lost[3] or 1))
        elif _BEGINS.match(text):
            pairing.is_over = bool(pairing.times)
        elif not _FTRACE_HEADS.match(text) and any(event in text for event in options.events):
            yield Remark(TextSpan(at, at), "an event can't be read: its pair is missing", 1, lost=1)
        if one is not None or _FTRACE_HEADS.match(text):
            yield Passed(TextSpan(at, at))
    yield from pairing.end(len(lines))


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

    def take(self, one: _Line) -> Iterator[Found]:
        """Take one event; yield a second that is over."""
        yield from self._another_trace(one)
        if one.event not in (self.begin, self.end_):
            return
        key = _key(one, self.options.key)
        if key is None:
            self.keyless += 1
        elif one.event == self.end_ and self.waiting[key]:
            yield from self._paired(self.waiting[key].popleft(), one)
        elif one.event == self.begin and self.begun < IN_FLIGHT:
            self.waiting[key].append(one)
            self.begun += 1
        else:
            self.unmatched += 1

    def _another_trace(self, one: _Line) -> Iterator[Found]:
        if self.is_over or one.ns < self.times.get(one.cpu, 0):
            yield from self.end(one.at - 1)
            yield TimeLine(TextSpan(one.at, one.at), f"line {one.at}: another trace begins")
            self.waiting.clear()
            self.times.clear()
            self.is_over = False
            self.begun = self.unmatched = self.keyless = self.pairs = self.dropped = 0
        self.times[one.cpu] = one.ns

    def lost(self, at: int, cpu: int, events: int) -> Iterator[Found]:
        """Drop the begins that wait: if their end was lost, they would be paired with a later one."""
        self.dropped += self.begun
        self.begun = 0
        self.waiting.clear()
        yield Remark(TextSpan(at, at), f"{events:,} events of CPU {cpu} were lost by the kernel's buffer", lost=events)

    def _paired(self, begun: _Line, ended: _Line) -> Iterator[Found]:
        self.begun -= 1
        if begun.ns > ended.ns:
            self.unmatched += 1
            return
        self.pairs += 1
        one = _ftrace_outlier(_flow(begun, self.options), begun, ended, self.options)
        yield from self.seconds.add(ended.ns // SECOND, begun.at, ended.at, one)

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
    found = _FTRACE_LINE.match(text)
    if found is None:
        return None
    ns = int(found[4]) * SECOND + int(found[5].ljust(9, "0"))
    return _Line(at, clean(found[1].strip()), int(found[2]), int(found[3]), ns, found[6], found[7])


def _key(one: _Line, key: str) -> str | None:
    if not key:
        return ""
    if key in ("cpu", "pid", "comm"):
        return str(getattr(one, key))
    if key in ("dev", "sector") and (block := _BLOCK.match(one.rest)):
        return block[1] if key == "dev" else f"{block[1]} {block[4]}"
    found = re.search(rf"\b{re.escape(key)}\s*[=:]\s*([^\s,;]{{1,64}})", one.rest)
    return found[1] if found else None


def _flow(begun: _Line, options: ImportOptions) -> Flow:
    block = _BLOCK.match(begun.rest)
    name = block[1].replace(",", ":") if block else clean(" to ".join(options.events or ()))
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
        sector=int(block[4]) if block else None,
        pid=begun.pid or None,
        comm=begun.comm,
        cpu_issue=begun.cpu,
        cpu_complete=ended.cpu,
        path=clean(" to ".join(options.events or ())),
    )
