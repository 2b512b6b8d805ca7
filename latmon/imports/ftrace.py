"""ftrace's and trace-cmd's lines: how long it takes from one event (or function) to another, `--events A,B`.

`--key FIELD` says which A belongs to which B: a `name=value` of the line, or cpu, pid, comm, dev, sector. Without one
the oldest A that waits is taken. Knows no event by itself: what two of them mean is for the one who asks.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.errors import UsageError
from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Where
from latmon.imports.naming import UNKNOWN_OP, op_of
from latmon.imports.seconds import IN_FLIGHT, SECOND, Second
from latmon.model import Flow, Outlier
from latmon.text import clean

_LINE = re.compile(
    r"\s*(.{1,32}?)-(\d{1,10})\s+(?:\(\s*[\d-]+\)\s+)?\[(\d{1,5})\]\s+(?:[\w.+#\-]{4,8}\s+)?(\d{1,9})\.(\d{1,9}):\s+"
    r"(?:[\w-]{1,32}:\s+)??([A-Za-z_][\w.]{0,80})(?::|\s*<-|\s|\(|$)(.{0,2000})"
)
_LOST = re.compile(r"\s*CPU:(\d{1,5}) \[(?:LOST(?: (\d{1,15}))? EVENTS|(\d{1,15}) EVENTS DROPPED)\]")
"""Of trace_pipe (kernel/trace/trace.c) and of trace-cmd report."""
_BEGINS = re.compile(r"# tracer:|cpus=\d+\s*\Z")
_HEADS = re.compile(r"\s*#|cpus=\d+|version = |CPU \d+ is empty|\s*CPU:\d+ \[LOST|trace-cmd|libtrace")
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


def sniff(head: str) -> bool:
    """Task, CPU in brackets, seconds, an event."""
    return any(_LINE.match(one) for one in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Pairs that end in one second are a window. UsageError without --events."""
    if asked.events is None:
        raise UsageError("a trace needs --events A,B: the two events whose distance is wanted")
    pairing = _Pairing(asked, *asked.events)
    for at, text in enumerate(lines, 1):
        one = _line(at, text)
        if one is not None:
            yield from pairing.take(one)
        elif (lost := _LOST.match(text)) is not None:
            yield from pairing.lost(at, int(lost[1]), int(lost[2] or lost[3] or 1))
        elif _BEGINS.match(text):
            pairing.is_over = bool(pairing.times)
        if one is not None or _HEADS.match(text):
            yield Passed(Where(at, at))
    yield from pairing.end(len(lines))


@dataclass(slots=True)
class _Pairing:
    """Begins that wait for their end, by key, and the pairs of the second that is being filled."""

    asked: Asked
    begin: str
    end_: str
    waiting: dict[str, deque[_Line]] = field(default_factory=lambda: defaultdict(deque))
    second: Second | None = None
    held: int = 0
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
        """One event; a second that is over."""
        yield from self._another_trace(one)
        if one.event not in (self.begin, self.end_):
            return
        key = _key(one, self.asked.key)
        if key is None:
            self.keyless += 1
        elif one.event == self.end_ and self.waiting[key]:
            yield from self._paired(self.waiting[key].popleft(), one)
        elif one.event == self.begin and self.held < IN_FLIGHT:
            self.waiting[key].append(one)
            self.held += 1
        else:
            self.unmatched += 1

    def _another_trace(self, one: _Line) -> Iterator[Found]:
        if self.is_over or one.ns < self.times.get(one.cpu, 0):
            yield from self.end(one.at - 1)
            yield Moment(Where(one.at, one.at), f"line {one.at}: another trace begins")
            self.waiting.clear()
            self.times.clear()
            self.second, self.is_over = None, False
            self.held = self.unmatched = self.keyless = self.pairs = self.dropped = 0
        self.times[one.cpu] = one.ns

    def lost(self, at: int, cpu: int, events: int) -> Iterator[Found]:
        """Drop the begins that wait: if their end is among the lost events, they would be paired with a later one."""
        self.dropped += self.held
        self.held = 0
        self.waiting.clear()
        yield Remark(Where(at, at), f"{events:,} events of CPU {cpu} were lost by the kernel's buffer", lost=events)

    def _paired(self, begun: _Line, ended: _Line) -> Iterator[Found]:
        self.held -= 1
        if begun.ns > ended.ns:
            self.unmatched += 1
            return
        if self.second is None or self.second.number != ended.ns // SECOND:
            if self.second is not None:
                yield self.second.times()
            self.second = Second(ended.ns // SECOND, begun.at, ended.at, self.asked.stage or "total")
        self.pairs += 1
        self.second.last = ended.at
        flow = _flow(begun, self.asked)
        one = _outlier(flow, begun, ended, self.asked)
        self.second.add(flow, one, slow=one.total_us >= self.asked.threshold_us)

    def end(self, last: int) -> Iterator[Found]:
        """The last second, and what has no other half."""
        if self.second is not None:
            yield self.second.times()
        begin, end, where = clean(self.begin), clean(self.end_), Where(last, last)
        if not self.pairs:
            yield Remark(where, f"no {begin} is followed by a {end}")
        if self.unmatched or self.held:
            text = f"{self.unmatched:,} {end} without a {begin}, {self.held:,} the other way"
            yield Remark(where, text, self.unmatched)
        if self.dropped:
            yield Remark(where, f"{self.dropped:,} {begin} before lost events: not paired", self.dropped)
        if self.keyless:
            yield Remark(where, f"{self.keyless:,} of these events have no {clean(self.asked.key)}", self.keyless)


def _line(at: int, text: str) -> _Line | None:
    found = _LINE.match(text)
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


def _flow(begun: _Line, asked: Asked) -> Flow:
    block = _BLOCK.match(begun.rest)
    name = block[1].replace(",", ":") if block else clean(" to ".join(asked.events or ()))
    return Flow(asked.device or name, asked.op or (op_of(block[2]) if block else UNKNOWN_OP))


def _outlier(flow: Flow, begun: _Line, ended: _Line, asked: Asked) -> Outlier:
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
        path=clean(" to ".join(asked.events or ())),
    )
