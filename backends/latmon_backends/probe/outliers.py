"""Outliers: the records of one slow I/O, from both probes, merged into one Outlier; request flags; known threads.

The two probes print the records of one request up to a tick apart: a record waits up to `hold` ticks for the others.
The always-on probe decides what is an outlier: a traced request without a record of that probe was below the threshold,
or its rate limit left the record out and counted it. For devices that it doesn't time, the tracer's scripts that count
I/Os above the threshold decide. In a flood the two rate limits let different requests through: a traced request then
replaces one without stages. Where both probes have stages of a request, the tracer's are taken.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.decode.tables import Record, thread_label
from latmon.manifest import TIMES, Manifest, op_name
from latmon.model.frame import Outlier, Thread, Wait
from latmon.model.measurements.errors import status_name
from latmon.model.stages import ABOVE_DRIVER, WORKER
from latmon.support.paths import content
from latmon.support.text import clean

WORDS = {
    "sync": "__REQ_SYNC",
    "fua": "__REQ_FUA",
    "meta": "__REQ_META",
    "preflush": "__REQ_PREFLUSH",
    "readahead": "__REQ_RAHEAD",
    "background": "__REQ_BACKGROUND",
}
"""Flag -> its name in enum req_flag_bits."""
USUAL = {"sync": 11, "fua": 17, "meta": 12, "preflush": 18, "readahead": 19, "background": 20}
"""Bits of most kernels since 4.10."""
_HIGHEST = 63
# blk_fill_rwbs: a preflush's F, the op, then FUA, readahead, sync, meta and (6.11) atomic in this order.
_RWBS = re.compile(r"(F(?=[RWDFNZ]))?(?:R|W|DE?|F|N|Z(?:RA|[A-Z]))(F)?(A)?(S)?(M)?U?")
_LETTERS = ("preflush", "fua", "readahead", "sync", "meta")
POLICIES = ("other", "fifo", "rr", "batch", "", "idle", "deadline", "ext")
"""Scheduling policies by their numbers in include/uapi/linux/sched.h."""
KTHREAD = 0x00200000
"""PF_KTHREAD of task_struct.flags: the same since 2.6.25."""
UNKNOWN_PRIORITY = -1
_MAX_THREADS = 8192
_FRESH_S = 10.0
"""chrt and renice are rare; a read of /proc/TID/stat for each thread and tick is not."""
_REAL_TIME = 100
_AFTER_STATE = 4
_SLACK_US = 1000
"""Time between a wake-up and the request's own stamp: two programs, one interrupt."""
_STAGES = {name: name.removesuffix("_us") for name in TIMES if name not in ("total_us", "unaccounted_us")}
_MOST_WAITS = 32
"""The longest of them: an I/O of seconds may wait for one thread hundreds of times, and a recording refuses 65."""
_SOFTIRQ_THREADS = ("ksoftirqd/", "ktimers/")
HOLD = 2
"""Ticks that a record waits for the others."""
MAX_WAITING = 10_000
"""Records of one kind: 100 s of a probe's rate limit."""
_BEGUN_NS = 5_000
"""Both probes take a request's begin from its own stamp; the one by way of two times that are cut to whole us."""
_DONE_NS = 50_000
"""Two programs at one event, one after the other. A tag, and so a request's address, is used again well within 1 ms."""
_SAME_NS = 1_000_000_000
"""Two records of one request agree on its begin, which is unique: an interrupt may come between them, or the
host of a virtual machine take its CPU away."""
_COUNTING = ("always", "bios")
"""Groups of the scripts that count I/Os above the threshold; the others add details."""
Aged = list[tuple[int, Record]]


def positions(bits: Mapping[str, int]) -> Mapping[str, int]:
    """Return word -> bit, from an enum's names and values; the usual bits where the enum has none of them."""
    positions = {word: bits[name] for word, name in WORDS.items() if 0 <= bits.get(name, -1) <= _HIGHEST}
    return positions or USUAL


def of_bits(flags: int, at: Mapping[str, int]) -> tuple[str, ...]:
    """Return the words of cmd_flags."""
    return tuple(word for word in WORDS if word in at and flags >> at[word] & 1)


def of_letters(rwbs: str) -> tuple[str, ...]:
    """Return the words of a tracepoint's rwbs; none where it can't be decoded."""
    match = _RWBS.fullmatch(rwbs)
    if match is None:
        return ()
    named = {word for word, letter in zip(_LETTERS, match.groups(), strict=True) if letter}
    return tuple(word for word in WORDS if word in named)


_FLAGS, _PRIORITY, _POLICY = 9 - _AFTER_STATE, 18 - _AFTER_STATE, 41 - _AFTER_STATE
"""Positions after the state, from the numbers of fields in proc_pid_stat(5)."""


class Threads:
    """Threads that were looked up or recorded by probes, bounded; those that are gone stay known."""

    def __init__(self, proc: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._now_s = proc, now_s
        self._known: OrderedDict[int, tuple[Thread, float]] = OrderedDict()

    def learn(self, record: Record) -> None:
        """Remember a `thread` record: the thread when the probe saw it. /proc is read where the record has no flags."""
        pid, flags = record.get("thread"), record.get("flags")
        if pid is None:
            return
        thread = read(self._proc, pid) if flags is None else None
        priority = record.get("priority")
        self._keep(
            thread
            or Thread(
                pid,
                record.text,
                _policy(record.get("policy")),
                UNKNOWN_PRIORITY if priority is None else priority,
                bool((flags or 0) & KTHREAD),
            )
        )

    def of(self, pid: int) -> Thread:
        """Return a thread as last recorded or read; with an empty comm where nothing is known.

        Priority -1 is not known, or that of a deadline thread.
        """
        known, at = self._known.get(pid, (None, 0.0))
        if known is not None and self._now_s() - at < _FRESH_S:
            return known
        return self._keep(read(self._proc, pid) or known or Thread(pid, "", "", UNKNOWN_PRIORITY))

    def _keep(self, thread: Thread) -> Thread:
        self._known[thread.pid] = thread, self._now_s()
        self._known.move_to_end(thread.pid)
        if len(self._known) > _MAX_THREADS:
            self._known.popitem(last=False)
        return thread


class NumberedThreads(Threads):
    """Threads that probes number, and whose priorities they record."""

    def __init__(self, proc: Path) -> None:
        super().__init__(proc)
        self._priorities: dict[int, int] = {}

    def learn(self, record: Record) -> None:
        """Remember the priority of a `thread` record."""
        number, priority = record.get("thread"), record.get("priority")
        if number is not None and priority is not None:
            self._priorities[number] = priority

    def priority(self, number: int) -> int:
        """Return the last recorded priority."""
        return self._priorities.get(number, UNKNOWN_PRIORITY)


def read(proc: Path, pid: int) -> Thread | None:
    """Read a thread from /proc/TID/stat, which exists though no listing shows it; None when it is gone."""
    raw = content(proc / str(pid) / "stat")
    comm, _, remainder = raw.partition(b"(")[2].rpartition(b")")
    try:
        fields = [int(word) for word in remainder.split()[1:]]
        policy, priority = _policy(fields[_POLICY]), fields[_PRIORITY] + _REAL_TIME
        return Thread(pid, clean(comm), policy, priority, bool(fields[_FLAGS] & KTHREAD))
    except (ValueError, IndexError):
        return None


def _policy(number: int | None) -> str:
    return POLICIES[number] if number is not None and 0 <= number < len(POLICIES) else ""


@dataclass(slots=True, eq=False)
class RequestRecords:
    """The records of one request."""

    done_ns: int
    always: Record | None = None
    on_demand: Record | None = None
    resumed: Record | None = None
    is_substitute: bool = False
    """It is recorded although the always-on probe's rate limit left it out."""

    @property
    def whole(self) -> bool:
        return None not in (self.always, self.on_demand, self.resumed)

    def sources(self) -> Iterator[Record]:
        """Yield the records of both probes, the tracer's first."""
        return (record for record in (self.on_demand, self.always) if record is not None)

    def get(self, name: str) -> int | None:
        for record in (self.on_demand, self.always):
            if record is not None and (value := record.get(name)) is not None:
                return value
        return None

    @property
    def total_us(self) -> int | None:
        """Time to completion as recorded, else from the two stamps."""
        total, begun = self.get("total_us"), self.get("begun_ns")
        if total is None and begun is not None and begun <= self.done_ns:
            return (self.done_ns - begun) // 1000
        return total


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Look-ups that decode a record's numbers."""

    device: Callable[[int], str | None]
    """Kernel dev_t -> name."""
    threads: Threads
    manifests: Mapping[str, Manifest]
    flag_bits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ClockPair:
    """One time on two clocks."""

    wall: float
    mono_us: int


def outlier(
    reported: RequestRecords, late: Mapping[int, list[Record]], names: RecordContext, now: ClockPair
) -> Outlier | None:
    """Make the outlier of a request's records. `late`: wake-ups by thread.

    None where the records are impossible: no total, or a begin before the clock's.
    """
    number, total, done_us = reported.get("dev"), reported.total_us, reported.done_ns // 1000
    device = None if number is None else names.device(number)
    if device is None or total is None or done_us < total:
        return None
    stages, unaccounted = _stages(reported, total)
    resume = reported.resumed.get("resume_us") if reported.resumed else None
    if resume is not None:
        stages["resume"] = resume
    begun = done_us - total
    manifest = names.manifests[next(reported.sources()).probe]
    path = reported.get("path")
    issuer = next((source for source in reported.sources() if source.get("pid") is not None), None)
    return Outlier(
        wall=now.wall - (now.mono_us - begun) / 1e6,
        mono_us=begun,
        device=device,
        op=op_name(255 if (op := reported.get("op")) is None else op & 0xFF),
        total_us=total + (resume or 0),
        stages_us=stages,
        unaccounted_us=unaccounted,
        flags=_flags(reported, names.flag_bits),
        sector=reported.get("sector"),
        bytes=reported.get("bytes"),
        pid=issuer.get("pid") if issuer else None,
        comm=issuer.text if issuer else "",
        cpu_issue=reported.get("cpu_issue"),
        cpu_complete=reported.get("cpu_complete"),
        outstanding_at_issue=reported.get("outstanding"),
        overtaken_by=reported.get("overtaken"),
        path="" if path is None else _path(reported, names, path),
        includes={stage: into for stage, into in manifest.includes.items() if stage in stages},
        waits=_waits(reported, (begun, done_us, done_us + (resume or 0)), late, names.threads),
        admission_us=reported.get("admission_us"),
        inserted_us=reported.get("inserted_us"),
        dispatch_us=reported.get("dispatch_us") or 0,
        status=_status(reported),
    )


def _stages(reported: RequestRecords, total: int) -> tuple[dict[str, int], int]:
    """Return stages and the unaccounted rest in us, from the first source that has stages.

    Each stage is cut to whole us: their sum may be below the total, never above.
    """
    for source in reported.sources():
        stages = {stage: us for name, stage in _STAGES.items() if (us := source.get(name)) is not None}
        if stages and sum(stages.values()) <= total:
            return stages, total - sum(stages.values())
    return {}, total


def _status(reported: RequestRecords) -> str:
    """Return the status of a failed I/O; empty for one that didn't fail, or whose scripts don't report it."""
    code = reported.get("status")
    return status_name(code) if code else ""


def _flags(reported: RequestRecords, bits: Mapping[str, int]) -> tuple[str, ...]:
    flags = reported.get("flags")
    if flags is not None:
        return of_bits(flags, bits)
    return next((of_letters(source.rwbs) for source in reported.sources() if source.rwbs), ())


def _path(reported: RequestRecords, names: RecordContext, code: int) -> str:
    probe = next(source.probe for source in reported.sources() if source.get("path") is not None)
    return names.manifests[probe].path_name(code) or f"unknown code {code}"


def _waits(
    reported: RequestRecords, times: tuple[int, int, int], late: Mapping[int, list[Record]], threads: Threads
) -> tuple[Wait, ...]:
    """Return late wake-ups of the thread that completed or sent it, before its completion, and of the waiter after it.

    A worker may have been woken for another I/O, before this one began.
    """
    begun, done, end = times
    completing = reported.get("thread")
    is_worker = (reported.get("worker_us") or 0) > (reported.get("completion_us") or 0)
    stage = WORKER if is_worker else "completion"
    waiter = reported.resumed.get("thread") if reported.resumed else None
    waits = []
    known = {pid for pid in (completing, waiter) if pid is not None}
    for record in (record for pid in known for record in late.get(pid, ())):
        woken_ns, delay = record.get("woken_ns"), record.get("delay_us")
        if woken_ns is None or delay is None:
            continue
        pid, woken = record.fields["thread"], woken_ns // 1000
        is_before = woken + delay <= done + _SLACK_US
        is_in_time = woken + delay > begun if is_worker else begun <= woken
        if pid == completing and is_before and is_in_time:
            waits.append(late_wait(stage, record, (pid, woken, delay), threads))
        elif pid == waiter and done - _SLACK_US <= woken and woken + delay <= end + _SLACK_US:
            waits.append(late_wait("resume", record, (pid, woken, delay), threads))
    longest = sorted(waits, key=lambda wait: wait.delay_us)[-_MOST_WAITS:]
    return tuple(sorted(longest, key=lambda wait: wait.woken_us))


def late_wait(stage: str, late: Record, at: tuple[int, int, int], threads: Threads) -> Wait:
    """Return the wait of a `late` record. `at`: its thread, when it was woken, and its delay in us."""
    pid, woken, delay = at
    comm, priority, instead = late.text or threads.of(pid).comm, late.get("priority"), late.get("instead")
    if stage == "completion" and comm.startswith(_SOFTIRQ_THREADS):
        stage = "softirq"
    return Wait(
        stage=stage,
        thread=comm,
        pid=pid,
        priority=UNKNOWN_PRIORITY if priority is None else priority,
        woken_us=woken,
        delay_us=delay,
        instead="" if instead is None else thread_label(threads.of, instead, late.get("instead_priority")),
        ran_us=late.get("ran_us") or 0,
        cpu=late.get("cpu"),
        policy=threads.of(pid).policy,
        instead_policy="" if instead is None else threads.of(instead).policy,
    )


@dataclass(frozen=True, slots=True)
class ReadyOutliers:
    """Outliers whose records are complete or waited long enough, in the order of their begins."""

    outliers: tuple[Outlier, ...] = ()
    dropped: int = 0
    """I/Os above the threshold for whose record there was no room."""
    lost: int = 0
    """Other records without room: an outlier lacks their details."""
    undecoded: int = 0
    """Records with impossible values, or of an unknown script."""


class Outliers:
    """Records that wait for others of the same request."""

    def __init__(
        self,
        manifests: Iterable[Manifest],
        device_name: Callable[[int], str | None],
        threads: Threads,
        flag_bits: Mapping[str, int] = USUAL,
        times: Callable[[str, str], bool] = lambda _device, _op: True,
        *,
        alone: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`times`: whether the always-on probe times an op of a device; `alone`: whether only the tracer does."""
        self._names = RecordContext(
            device_name, threads, {manifest.name: manifest for manifest in manifests}, flag_bits
        )
        self._begins = _begins(self._names.manifests)
        self._times, self._alone = times, alone
        self._reported: list[tuple[int, RequestRecords]] = []
        self._places: defaultdict[tuple[str, int, int], list[RequestRecords]] = defaultdict(list)
        self._resumed: Aged = []
        self._late: Aged = []
        self._tick = self._dropped = self._lost = self._undecoded = 0

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Add the manifests of scripts that were started later."""
        known = {**self._names.manifests, **{manifest.name: manifest for manifest in manifests}}
        self._names = replace(self._names, manifests=known)
        self._begins = _begins(known)

    def take(self, records: Iterable[Record]) -> None:
        """Take slow, resumed and late records with stamps on CLOCK_MONOTONIC; ignore others."""
        for record in records:
            if record.kind == "slow":
                self._slow(record)
            elif record.kind == "resumed":
                self._keep(self._resumed, record)
            elif record.kind == "late":
                self._keep(self._late, record)

    def take_ready(self, wall: float, mono_us: int, hold: int = HOLD, *, flood: bool = False) -> ReadyOutliers:
        """Advance by one tick; return the outliers that are complete or waited long enough.

        `wall` and `mono_us` are the same time. `flood`: the always-on probe's rate limit left some out.
        """
        since = self._tick - hold
        self._tick += 1
        self._resume()
        ready = [reported for tick, reported in self._reported if reported.whole or tick <= since]
        self._reported = [(tick, reported) for tick, reported in self._reported if not reported.whole and tick > since]
        late: defaultdict[int, list[Record]] = defaultdict(list)
        for _, record in self._late:
            late[record.fields.get("thread", -1)].append(record)
        if flood:
            ready = self._with_stages(ready)
        timed_outliers = [
            outlier
            for reported in ready
            if (outlier := self._made(reported, late, ClockPair(wall, mono_us))) is not None
        ]
        # A late wake-up is printed before the request that waited for it, at most a tick before.
        self._late = [(tick, record) for tick, record in self._late if tick >= since]
        self._resumed = [(tick, record) for tick, record in self._resumed if tick > since]
        self._places.clear()
        for _, reported in self._reported:
            for record in reported.sources():
                self._place(record, reported)
        complete = ReadyOutliers(
            tuple(sorted(timed_outliers, key=lambda outlier: outlier.mono_us)),
            self._dropped,
            self._lost,
            self._undecoded,
        )
        self._dropped = self._lost = self._undecoded = 0
        return complete

    def _keep(self, waiting: Aged, record: Record) -> None:
        if len(waiting) < MAX_WAITING:
            waiting.append((self._tick, record))
        else:
            self._lost += 1

    def _slow(self, record: Record) -> None:
        done, manifest = record.get("done_ns"), self._names.manifests.get(record.probe)
        if done is None or manifest is None:
            self._undecoded += 1
            return
        source = "always" if manifest.group == "always" else "on_demand"
        reported = self._find(record, done, source)
        if reported is None:
            if len(self._reported) >= MAX_WAITING:
                counts = manifest.group in _COUNTING
                self._dropped += counts
                self._lost += not counts
                return
            reported = RequestRecords(done)
            self._reported.append((self._tick, reported))
        setattr(reported, source, record)
        self._place(record, reported)

    def _place(self, record: Record, reported: RequestRecords) -> None:
        for place in _places(record):
            self._places[place].append(reported)

    def _find(self, record: Record, done: int, free: str) -> RequestRecords | None:
        """Return the request that ended closest to `done`, by its address, else by its place on the device."""
        for place in _places(record):
            near = [
                reported
                for reported in self._places.get(place, ())
                if getattr(reported, free) is None and _is_of(reported, record, done, self._begins)
            ]
            if near:
                return min(near, key=lambda reported: abs(reported.done_ns - done))
        return None

    def _resume(self) -> None:
        """Add waiters' records to their I/Os. One may come before that of its I/O; some I/Os were left out."""
        waiting: Aged = []
        for tick, record in self._resumed:
            done = record.get("done_ns")
            if done is None or record.get("resume_us") is None:
                self._undecoded += 1
            elif (reported := self._find(record, done, "resumed")) is not None:
                reported.resumed = record
            else:
                waiting.append((tick, record))
        self._resumed = waiting

    def _with_stages(self, ready: list[RequestRecords]) -> list[RequestRecords]:
        """Replace requests without stages by traced ones of the same device and op; the number stays."""
        alone: defaultdict[tuple[int | None, int | None], list[RequestRecords]] = defaultdict(list)
        traced: defaultdict[tuple[int | None, int | None], list[RequestRecords]] = defaultdict(list)
        for reported in ready:
            kind = reported.get("dev"), reported.get("op")
            if reported.on_demand is None:
                alone[kind].append(reported)
            elif reported.always is None and self._of_stages(reported.on_demand):
                traced[kind].append(reported)
        out: set[int] = set()
        for kind, records in alone.items():
            able = _above_all(traced.get(kind, ()), records)
            for reported, instead in zip(records, able, strict=False):
                instead.is_substitute = True
                out.add(id(reported))
        return [reported for reported in ready if id(reported) not in out]

    def _of_stages(self, record: Record | None) -> bool:
        return record is not None and self._names.manifests[record.probe].group == "stages"

    def _counts(self, record: Record | None) -> bool:
        """Return whether its script counts each I/O above the threshold."""
        return record is not None and any(spec.role == "above" for spec in self._names.manifests[record.probe].maps)

    def _made(self, reported: RequestRecords, late: Mapping[int, list[Record]], now: ClockPair) -> Outlier | None:
        on_demand = reported.on_demand if reported.always is None and not reported.is_substitute else None
        if self._of_stages(on_demand) and not self._counts(on_demand):
            return None
        outlier_record = outlier(reported, late, self._names, now)
        if outlier_record is not None and self._of_stages(on_demand) and not self._alone(outlier_record.device):
            return None
        if outlier_record is None:
            self._undecoded += self._names.device(reported.get("dev") or 0) is not None
        elif reported.on_demand is None and not self._times(outlier_record.device, outlier_record.op):
            return None
        return outlier_record


def _above_all(traced: Iterable[RequestRecords], records: Sequence[RequestRecords]) -> list[RequestRecords]:
    """Return the traced requests that are as slow as every one of `those`: the tracer's threshold is lower."""
    least_total, least_issued = (min(each) for each in zip(*map(_both, records), strict=True))
    return [reported for reported in traced if (both := _both(reported))[0] >= least_total and both[1] >= least_issued]


def _both(reported: RequestRecords) -> tuple[int, int]:
    """Return its total, and the total without the time before its issue, which not every always-on probe measures."""
    total = reported.total_us or 0
    return total, total - sum(reported.get(f"{stage}_us") or 0 for stage in ABOVE_DRIVER)


def _begins(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Return where each probe's totals begin."""
    return {name: manifest.latency_from for name, manifest in manifests.items()}


def _is_of(reported: RequestRecords, record: Record, done: int, begins: Mapping[str, str]) -> bool:
    """Return whether they are of one I/O: by address and begin where both have them, else by the completion's time."""
    apart = abs(reported.done_ns - done)
    request, begun = record.get("request"), record.get("begun_ns")
    for source in reported.sources():
        other, start = source.get("request"), source.get("begun_ns")
        if request and other:
            if request != other:
                return False
            if begun is not None and start is not None:
                if begins.get(record.probe) != begins.get(source.probe):
                    # From the queue, and from the issue: two I/Os don't have an address at the same time.
                    return apart <= _DONE_NS < min(reported.done_ns, done) - max(begun, start)
                return apart < _SAME_NS and abs(begun - start) <= _BEGUN_NS
    return apart <= _DONE_NS


def _places(record: Record) -> list[tuple[str, int, int]]:
    """Return keys that identify a request: its address, and its place on the device. A flush has no place."""
    dev, request, sector = record.get("dev"), record.get("request"), record.get("sector")
    if dev is None:
        return []
    places = [("request", dev, request)] if request else []
    return places if sector is None else [*places, ("sector", dev, sector)]
