"""Outliers: the records of one slow I/O, from both probes, merged into one Outlier.

    outliers = Outliers(manifests, device_name, threads, flag_bits)
    outliers.take(records)                            # of a Window, of a DeepWindow, in any order
    settled = outliers.settled(wall, mono_us, hold)   # once a tick; hold: HOLD while the deep probes run, else 0

The two probes tell of one request up to a tick apart: a record waits up to `hold` ticks for the others. The always-on
probe says what is an outlier: a traced request of which it tells nothing was below the threshold, or is one of those
that its rate limit left out and counts. Of devices that it doesn't time, scripts that count what is above speak for
themselves. In a flood the two rate limits let different requests through: a traced one then stands in for one of which
no stages are known.
Owns what waits, bounded; `Outlier` is made here. Knows neither events nor frames.

Owns the words and where the bits are when BTF can't be read. Reads no file.

Owns what is remembered of threads that are gone, bounded. Knows neither probes nor tables.

Of a request that both probes tell of, the deep probe's stages win. Knows nothing of waiting for records.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from latmon.decode.records import Record
from latmon.decode.tables import who
from latmon.manifest.loader import Manifest
from latmon.manifest.schema import TIMES, op_name
from latmon.model.frame import Outlier, Thread, Wait
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
"""And what enum req_flag_bits calls them."""
USUAL = {"sync": 11, "fua": 17, "meta": 12, "preflush": 18, "readahead": 19, "background": 20}
"""Of most kernels since 4.10."""
_HIGHEST = 63
# blk_fill_rwbs: a preflush's F, the op, then FUA, readahead, sync, meta and (6.11) atomic in this order.
_RWBS = re.compile(r"(F(?=[RWDFNZ]))?(?:R|W|DE?|F|N|Z(?:RA|[A-Z]))(F)?(A)?(S)?(M)?U?")
_LETTERS = ("preflush", "fua", "readahead", "sync", "meta")


def positions(bits: Mapping[str, int]) -> Mapping[str, int]:
    """Word -> bit, of an enum's names and values; the usual ones where it doesn't have them."""
    found = {word: bits[name] for word, name in WORDS.items() if 0 <= bits.get(name, -1) <= _HIGHEST}
    return found or USUAL


def of_bits(flags: int, at: Mapping[str, int]) -> tuple[str, ...]:
    """Of cmd_flags."""
    return tuple(word for word in WORDS if word in at and flags >> at[word] & 1)


def of_letters(rwbs: str) -> tuple[str, ...]:
    """Of a tracepoint's rwbs; nothing where it can't be understood."""
    found = _RWBS.fullmatch(rwbs)
    if found is None:
        return ()
    named = {word for word, letter in zip(_LETTERS, found.groups(), strict=True) if letter}
    return tuple(word for word in WORDS if word in named)


POLICIES = ("other", "fifo", "rr", "batch", "", "idle", "deadline", "ext")
"""By their numbers in include/uapi/linux/sched.h."""
KTHREAD = 0x00200000
"""PF_KTHREAD of task_struct.flags: the same since 2.6.25."""
UNKNOWN_PRIORITY = -1
_MAX_THREADS = 8192
_FRESH_S = 10.0
"""chrt and renice are rare; a read of /proc/TID/stat for each thread and tick is not."""
_REAL_TIME = 100
_AFTER_STATE = 4
_FLAGS, _PRIORITY, _POLICY = 9 - _AFTER_STATE, 18 - _AFTER_STATE, 41 - _AFTER_STATE
"""By their numbers in proc_pid_stat(5)."""


class Threads:
    """The threads that were asked for or told of. `of` always answers: with an empty comm where nothing is known."""

    def __init__(self, proc: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._now_s = proc, now_s
        self._known: OrderedDict[int, tuple[Thread, float]] = OrderedDict()

    def learn(self, record: Record) -> None:
        """A `thread` record: as the thread was when the probe saw it. One without flags leaves more to /proc."""
        pid, flags = record.get("thread"), record.get("flags")
        if pid is None:
            return
        found = read(self._proc, pid) if flags is None else None
        priority = record.get("priority")
        self._keep(
            found
            or Thread(
                pid,
                record.text,
                _policy(record.get("policy")),
                UNKNOWN_PRIORITY if priority is None else priority,
                bool((flags or 0) & KTHREAD),
            )
        )

    def of(self, pid: int) -> Thread:
        """As last told or read; priority -1 is not known (or a deadline thread, which has no other)."""
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


def read(proc: Path, pid: int) -> Thread | None:
    """From /proc/TID/stat, which a thread has though no listing shows it; None when it is gone."""
    raw = content(proc / str(pid) / "stat")
    comm, _, rest = raw.partition(b"(")[2].rpartition(b")")
    try:
        fields = [int(word) for word in rest.split()[1:]]
        policy, priority = _policy(fields[_POLICY]), fields[_PRIORITY] + _REAL_TIME
        return Thread(pid, clean(comm), policy, priority, bool(fields[_FLAGS] & KTHREAD))
    except (ValueError, IndexError):
        return None


def _policy(number: int | None) -> str:
    return POLICIES[number] if number is not None and 0 <= number < len(POLICIES) else ""


_SLACK_US = 1000
"""What may lie between a wake-up and the request's own stamp: two programs, one interrupt."""
_STAGES = {name: name.removesuffix("_us") for name in TIMES if name not in ("total_us", "unaccounted_us")}
_MOST_WAITS = 32
"""The longest of them: an I/O of seconds may wait for one thread hundreds of times, and a recording refuses 65."""
_SOFTIRQ_THREADS = ("ksoftirqd/", "ktimers/")


@dataclass(slots=True, eq=False)
class Told:
    """The records of one request."""

    done_ns: int
    always: Record | None = None
    deep: Record | None = None
    resumed: Record | None = None
    stands_in: bool = False
    """It is told although the always-on probe's rate limit left it out."""

    @property
    def whole(self) -> bool:
        return None not in (self.always, self.deep, self.resumed)

    def sources(self) -> Iterator[Record]:
        """The better one first."""
        return (one for one in (self.deep, self.always) if one is not None)

    def get(self, name: str) -> int | None:
        return next((value for one in self.sources() if (value := one.get(name)) is not None), None)

    @property
    def total_us(self) -> int | None:
        """To completion, as told, else from its two ends."""
        total, begun = self.get("total_us"), self.get("begun_ns")
        if total is None and begun is not None and begun <= self.done_ns:
            return (self.done_ns - begun) // 1000
        return total


@dataclass(frozen=True, slots=True)
class Names:
    """What records leave to others to know."""

    device: Callable[[int], str | None]
    """Of a kernel dev_t."""
    threads: Threads
    manifests: Mapping[str, Manifest]
    flag_bits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The same moment on two clocks."""

    wall: float
    mono_us: int


def outlier(told: Told, late: Mapping[int, list[Record]], names: Names, now: Moment) -> Outlier | None:
    """None where the records can't be: no total, or it began before the clock did. `late`: wake-ups by thread."""
    number, total, done_us = told.get("dev"), told.total_us, told.done_ns // 1000
    device = None if number is None else names.device(number)
    if device is None or total is None or done_us < total:
        return None
    stages, unaccounted = _stages(told, total)
    resume = told.resumed.get("resume_us") if told.resumed else None
    if resume is not None:
        stages["resume"] = resume
    begun = done_us - total
    manifest = names.manifests[next(told.sources()).probe]
    path = told.get("path")
    issuer = next((one for one in told.sources() if one.get("pid") is not None), None)
    return Outlier(
        wall=now.wall - (now.mono_us - begun) / 1e6,
        mono_us=begun,
        device=device,
        op=op_name(255 if (op := told.get("op")) is None else op & 0xFF),
        total_us=total + (resume or 0),
        stages_us=stages,
        unaccounted_us=unaccounted,
        flags=_flags(told, names.flag_bits),
        sector=told.get("sector"),
        bytes=told.get("bytes"),
        pid=issuer.get("pid") if issuer else None,
        comm=issuer.text if issuer else "",
        cpu_issue=told.get("cpu_issue"),
        cpu_complete=told.get("cpu_complete"),
        outstanding_at_issue=told.get("outstanding"),
        overtaken_by=told.get("overtaken"),
        path="" if path is None else _path(told, names, path),
        includes={stage: into for stage, into in manifest.includes.items() if stage in stages},
        waits=_waits(told, (begun, done_us, done_us + (resume or 0)), late, names.threads),
    )


def _stages(told: Told, total: int) -> tuple[dict[str, int], int]:
    """Of the best source that has any. Each is cut to whole us, so together they may lack some, never exceed."""
    for one in told.sources():
        stages = {stage: us for name, stage in _STAGES.items() if (us := one.get(name)) is not None}
        if stages and sum(stages.values()) <= total:
            return stages, total - sum(stages.values())
    return {}, total


def _flags(told: Told, bits: Mapping[str, int]) -> tuple[str, ...]:
    flags = told.get("flags")
    if flags is not None:
        return of_bits(flags, bits)
    return next((of_letters(one.rwbs) for one in told.sources() if one.rwbs), ())


def _path(told: Told, names: Names, code: int) -> str:
    probe = next(one.probe for one in told.sources() if one.get("path") is not None)
    return names.manifests[probe].path_name(code) or f"unknown code {code}"


def _waits(
    told: Told, times: tuple[int, int, int], late: Mapping[int, list[Record]], threads: Threads
) -> tuple[Wait, ...]:
    """Late wake-ups of the thread that completed the request before it did so, and of its waiter after."""
    begun, done, end = times
    completing = told.get("thread")
    waiter = told.resumed.get("thread") if told.resumed else None
    found = []
    known = {pid for pid in (completing, waiter) if pid is not None}
    for one in (one for pid in known for one in late.get(pid, ())):
        woken_ns, delay = one.get("woken_ns"), one.get("delay_us")
        if woken_ns is None or delay is None:
            continue
        pid, woken = one.fields["thread"], woken_ns // 1000
        if pid == completing and begun <= woken and woken + delay <= done + _SLACK_US:
            found.append(_wait("completion", one, (pid, woken, delay), threads))
        elif pid == waiter and done - _SLACK_US <= woken and woken + delay <= end + _SLACK_US:
            found.append(_wait("resume", one, (pid, woken, delay), threads))
    longest = sorted(found, key=lambda wait: wait.delay_us)[-_MOST_WAITS:]
    return tuple(sorted(longest, key=lambda wait: wait.woken_us))


def _wait(stage: str, late: Record, at: tuple[int, int, int], threads: Threads) -> Wait:
    pid, woken, delay = at
    comm, priority, instead = late.text or threads.of(pid).comm, late.get("priority"), late.get("instead")
    if stage == "completion" and comm.startswith(_SOFTIRQ_THREADS):
        stage = "softirq"
    return Wait(
        stage,
        comm,
        pid,
        UNKNOWN_PRIORITY if priority is None else priority,
        woken,
        delay,
        "" if instead is None else who(threads.of, instead, late.get("instead_priority")),
    )


HOLD = 2
"""Ticks."""
MAX_WAITING = 10_000
"""Records of one kind: 100 s of a probe's rate limit."""
_BEGUN_NS = 5_000
"""Both probes take a request's begin from its own stamp; the one by way of two times that are cut to whole us."""
_DONE_NS = 50_000
"""Two programs at one event, one after the other. A tag, and so a request's address, is used again well within 1 ms."""
_SAME_NS = 1_000_000_000
"""As much where they agree on the request and its begin, which no other has: an interrupt may come between them, or the
host of a virtual machine take its CPU away."""
_SPEAK = ("always", "bios")
"""Groups of the scripts that count what is above; the others tell more of it."""
Aged = list[tuple[int, Record]]


@dataclass(frozen=True, slots=True)
class Settled:
    """The outliers for which nothing more is waited, in the order in which they began."""

    outliers: tuple[Outlier, ...] = ()
    dropped: int = 0
    """I/Os above the threshold for whose record there was no room."""
    lost: int = 0
    """Other records for which there was none: an outlier lacks what they told."""
    undecoded: int = 0
    """Records that tell what can't be, or of a script that isn't known."""


class Outliers:
    """What is waiting. `times` says of a device and op whether the always-on probe's times are its own."""

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
        """`alone`: whether only the deep probes time a device."""
        self._names = Names(device_name, threads, {one.name: one for one in manifests}, flag_bits)
        self._begins = _begins(self._names.manifests)
        self._times, self._alone = times, alone
        self._told: list[tuple[int, Told]] = []
        self._places: defaultdict[tuple[str, int, int], list[Told]] = defaultdict(list)
        self._resumed: Aged = []
        self._late: Aged = []
        self._tick = self._dropped = self._lost = self._undecoded = 0

    def add(self, manifests: Iterable[Manifest]) -> None:
        """Scripts that were started later."""
        known = {**self._names.manifests, **{one.name: one for one in manifests}}
        self._names = replace(self._names, manifests=known)
        self._begins = _begins(known)

    def take(self, records: Iterable[Record]) -> None:
        """slow, resumed and late, with stamps on CLOCK_MONOTONIC; others are nothing."""
        for record in records:
            if record.kind == "slow":
                self._slow(record)
            elif record.kind == "resumed":
                self._keep(self._resumed, record)
            elif record.kind == "late":
                self._keep(self._late, record)

    def settled(self, wall: float, mono_us: int, hold: int = HOLD, *, flood: bool = False) -> Settled:
        """One tick on: what is whole or has waited long enough. `wall` and `mono_us` are the same moment.

        `flood`: the always-on probe's rate limit left some out.
        """
        since = self._tick - hold
        self._tick += 1
        self._resume()
        ready = [told for tick, told in self._told if told.whole or tick <= since]
        self._told = [(tick, told) for tick, told in self._told if not told.whole and tick > since]
        late: defaultdict[int, list[Record]] = defaultdict(list)
        for _, record in self._late:
            late[record.fields.get("thread", -1)].append(record)
        if flood:
            ready = self._with_stages(ready)
        found = [made for told in ready if (made := self._made(told, late, Moment(wall, mono_us))) is not None]
        # A late wake-up is told before the request that waited for it, at most a tick before.
        self._late = [(tick, record) for tick, record in self._late if tick >= since]
        self._resumed = [(tick, record) for tick, record in self._resumed if tick > since]
        self._places.clear()
        for _, told in self._told:
            for record in told.sources():
                self._place(record, told)
        settled = Settled(tuple(sorted(found, key=lambda one: one.mono_us)), self._dropped, self._lost, self._undecoded)
        self._dropped = self._lost = self._undecoded = 0
        return settled

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
        source = "always" if manifest.group == "always" else "deep"
        told = self._find(record, done, source)
        if told is None:
            if len(self._told) >= MAX_WAITING:
                speaks = manifest.group in _SPEAK
                self._dropped += speaks
                self._lost += not speaks
                return
            told = Told(done)
            self._told.append((self._tick, told))
        setattr(told, source, record)
        self._place(record, told)

    def _place(self, record: Record, told: Told) -> None:
        for place in _places(record):
            self._places[place].append(told)

    def _find(self, record: Record, done: int, free: str) -> Told | None:
        """The one that ended closest to `done`, by the request itself, else by where it is on the device."""
        for place in _places(record):
            near = [
                told
                for told in self._places.get(place, ())
                if getattr(told, free) is None and _is_of(told, record, done, self._begins)
            ]
            if near:
                return min(near, key=lambda told: abs(told.done_ns - done))
        return None

    def _resume(self) -> None:
        """A waiter's record may come before that of its I/O; one whose I/O was left out finds none."""
        waiting: Aged = []
        for tick, record in self._resumed:
            done = record.get("done_ns")
            if done is None or record.get("resume_us") is None:
                self._undecoded += 1
            elif (told := self._find(record, done, "resumed")) is not None:
                told.resumed = record
            else:
                waiting.append((tick, record))
        self._resumed = waiting

    def _with_stages(self, ready: list[Told]) -> list[Told]:
        """One for one, of the same device and op: as many are told as before, and as many left out."""
        alone: defaultdict[tuple[int | None, int | None], list[Told]] = defaultdict(list)
        traced: defaultdict[tuple[int | None, int | None], list[Told]] = defaultdict(list)
        for told in ready:
            kind = told.get("dev"), told.get("op")
            if told.deep is None:
                alone[kind].append(told)
            elif told.always is None and self._of_stages(told.deep):
                traced[kind].append(told)
        out: set[int] = set()
        for kind, those in alone.items():
            able = _above_all(traced.get(kind, ()), those)
            for told, instead in zip(those, able, strict=False):
                instead.stands_in = True
                out.add(id(told))
        return [told for told in ready if id(told) not in out]

    def _of_stages(self, record: Record | None) -> bool:
        return record is not None and self._names.manifests[record.probe].group == "stages"

    def _counts(self, record: Record | None) -> bool:
        """Whether its script counts each I/O that is above."""
        return record is not None and any(spec.role == "above" for spec in self._names.manifests[record.probe].maps)

    def _made(self, told: Told, late: Mapping[int, list[Record]], now: Moment) -> Outlier | None:
        deep = told.deep if told.always is None and not told.stands_in else None
        if self._of_stages(deep) and not self._counts(deep):
            return None
        made = outlier(told, late, self._names, now)
        if made is not None and self._of_stages(deep) and not self._alone(made.device):
            return None
        if made is None:
            self._undecoded += self._names.device(told.get("dev") or 0) is not None
        elif told.deep is None and not self._times(made.device, made.op):
            return None
        return made


def _above_all(traced: Iterable[Told], those: Sequence[Told]) -> list[Told]:
    """Of the traced ones, which begin below the threshold, those that surely are above it."""
    least_total, least_issued = (min(each) for each in zip(*map(_both, those), strict=True))
    return [told for told in traced if (both := _both(told))[0] >= least_total and both[1] >= least_issued]


def _both(told: Told) -> tuple[int, int]:
    """Its total, and that without what came before its issue, which not every always-on probe sees."""
    total = told.total_us or 0
    return total, total - (told.get("queue_us") or 0) - (told.get("requeue_us") or 0)


def _begins(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Where each probe's totals begin."""
    return {name: one.latency_from for name, one in manifests.items()}


def _is_of(told: Told, record: Record, done: int, begins: Mapping[str, str]) -> bool:
    """Of the same I/O: by its address and begin where both tell them, else by when it was done."""
    apart = abs(told.done_ns - done)
    request, begun = record.get("request"), record.get("begun_ns")
    for one in told.sources():
        other, start = one.get("request"), one.get("begun_ns")
        if request and other:
            if request != other:
                return False
            if begun is not None and start is not None:
                if begins.get(record.probe) != begins.get(one.probe):
                    # From the queue, and from the issue: two I/Os don't have an address at the same time.
                    return apart <= _DONE_NS < min(told.done_ns, done) - max(begun, start)
                return apart < _SAME_NS and abs(begun - start) <= _BEGUN_NS
    return apart <= _DONE_NS


def _places(record: Record) -> list[tuple[str, int, int]]:
    """What a request is known by: its own address, else its place on the device. A flush has no place."""
    dev, request, sector = record.get("dev"), record.get("request"), record.get("sector")
    if dev is None:
        return []
    places = [("request", dev, request)] if request else []
    return places if sector is None else [*places, ("sector", dev, sector)]
