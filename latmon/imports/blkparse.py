"""blkparse's lines: an I/O is timed from its issue (D) to its completion (C), and from its queueing (Q) if it is there.

Keyed by device and sector. A request that was merged completes with the sector of its first bio: a Q is taken for the
request that begins at its sector, others are merges and have no time of their own. A second D is a requeue; the last
one counts. A completion of some of its sectors leaves the request outstanding with those that follow them. Flushes
without a sector can't be told apart and are left out, counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Where
from latmon.imports.naming import op_of
from latmon.imports.seconds import IN_FLIGHT, SECOND, Second
from latmon.model import Flow, Outlier
from latmon.text import clean

_LINE = re.compile(
    r"\s*(\d{1,4}),(\d{1,7})\s+(\d{1,4})\s+(\d{1,12})\s+(\d{1,9})\.(\d{9})\s+(\d{1,10})\s+([A-Z]{1,2})\s+([A-Z]{1,8})\b"
    r"(?:\s+(\d{1,19}) \+ (\d{1,9}))?(?:\s+[(<]\S+[)>])?(?:.{0,60}\[(.{0,40})\])?"
)
_SKIPS = re.compile(r"Skips: \d{1,15} \w+ \((\d{1,15}) ")
"""blkparse's count of events that are missing: a hole in a CPU's sequence numbers."""
_SUMMARY = re.compile(r"(?:CPU\d+|Total) \(")
_HEADS = re.compile(
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
    """Those that have not completed."""


def sniff(head: str) -> bool:
    """Lines with an action of an I/O."""
    return any((line := _LINE.match(one)) and line[8] in ("Q", "D", "C", "G", "I") for one in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Completions of one second of the trace are a window."""
    trace = _Trace(asked)
    for at, line in enumerate(lines, 1):
        found = _LINE.match(line)
        if found is not None:
            yield from trace.take(at, found)
        elif (skips := _SKIPS.match(line)) is not None and int(skips[1]):
            yield Remark(Where(at, at), f"{int(skips[1]):,} events are missing in the trace", lost=int(skips[1]))
        elif _SUMMARY.match(line):
            trace.is_over = True
        if found is not None or _HEADS.match(line):
            yield Passed(Where(at, at))
    yield from trace.end(len(lines))


@dataclass(slots=True)
class _Trace:
    """What is in flight, and the second that is being filled. A run has sequence numbers of its own on each CPU."""

    asked: Asked
    open: dict[tuple[str, int], _Request] = field(default_factory=dict)
    second: Second | None = None
    unmatched: int = 0
    unkeyed: int = 0
    unqueued: int = 0
    partial: int = 0
    is_over: bool = False
    """blkparse's summary has come: what follows is of another run."""
    sequence: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last number of each device and CPU."""

    def take(self, at: int, found: re.Match[str]) -> Iterator[Found]:
        """One event; a second that is over."""
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
            # merges make it longer, a retry after a partial completion has what is left of it
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
            yield Moment(Where(at, at), f"line {at}: another run of blktrace begins")
            self.open, self.sequence, self.second, self.is_over = {}, {}, None, False
            self.unmatched = self.unkeyed = self.unqueued = self.partial = 0
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
        if self.second is None or self.second.number != ns // SECOND:
            if self.second is not None:
                yield self.second.times()
            self.second = Second(ns // SECOND, at, at)
        self.second.last = at
        self.unqueued += request.queued is None
        flow = Flow(self.asked.device or key[0], self.asked.op or op_of(found[9]))
        one = _outlier(flow, key[1] + request.left - request.sectors, request, ns)
        self.second.add(flow, one, slow=one.total_us >= self.asked.threshold_us)

    def end(self, last: int) -> Iterator[Found]:
        """The last second, and what could not be timed."""
        if self.second is not None:
            yield self.second.times()
        left = sum(one.issued is not None for one in self.open.values())
        for number, text, lost in (
            (self.unmatched, "completions without an issue in the trace", True),
            (self.unkeyed, "completions without a sector (flushes): not timed", True),
            (self.partial, "completions of a part of a request: it is outstanding until the rest completes", False),
            (self.unqueued, "I/Os whose queueing isn't in the trace: their total begins at the issue", False),
            (left, "I/Os had not completed at the end", False),
        ):
            if number:
                yield Remark(Where(last, last), f"{number:,} {text}", number if lost else 0)


def _outlier(flow: Flow, sector: int, request: _Request, ns: int) -> Outlier:
    """The I/O with its stages, slow or not."""
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
