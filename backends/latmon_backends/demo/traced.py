"""Traced values of the demo's host: stages, interrupts, wake-ups and outliers of its own I/Os.

Draws from a generator of its own and changes nothing of what the host did.

`sdd` waits for a completion thread that does not get a CPU, `sdb` for a softirq that only the tick runs (4 ms), an NVMe
device completes in the hard interrupt, and the SAS disks' interrupt is shared with a slow handler. Draws no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from latmon.model.frame import (
    UNACCOUNTED,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Missing,
    Outlier,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wait,
    Wakeups,
)
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds, merge
from latmon_backends.demo.host import DEVICES, HBA, TICKING, UNLIKE, DrawnHost
from latmon_backends.demo.synthesis import Group, Mode, Shape, bucket, histogram

TICK_US = 4000
SHARED_US = 20
"""What the slow handler on the disks' vector takes before theirs."""
THREAD_FROM_US = 60_000
_TICKS_FROM_US = {"read": 12_000, "write": 4_500}
_LOST = 0.002
_RESUME = Shape((Mode(0.97, 14, 0.5), Mode(0.03, 300, 0.6)))
_WAITED_FOR = ("read", "flush")


PASSED = ("queue", "hba", "irq", "softirq", "completion", UNACCOUNTED)
FIRST = 2
"""Where they begin in a split."""


class Split(NamedTuple):
    """`size` I/Os and where the time of each of them went; None: not passed."""

    size: int
    total: int
    queue: int
    hba: int | None
    irq: int | None
    softirq: int | None
    completion: int | None
    unaccounted: int

    @property
    def path(self) -> str:
        if self.hba is None:
            return ""
        if self.completion is not None:
            return "worker thread"
        return "hard interrupt" if self.softirq is None else "BLOCK softirq"

    def stages(self) -> dict[str, int]:
        """Those that were passed, without what is unaccounted."""
        named = zip(PASSED[:-1], self[FIRST:-1], strict=True)
        return {name: us for name, us in named if us is not None}


@dataclass(frozen=True, slots=True)
class Load:
    """One load's I/Os, split, and how long their issuers took to run again."""

    drawn: DrawnHost
    splits: tuple[Split, ...]
    resume: Histogram


def load(rng: Random, drawn: DrawnHost) -> Load:
    """One load of a window, split."""
    splits = tuple(_split(rng, drawn.flow, *met) for met in drawn.met)
    waited = drawn.total.count if drawn.flow.op in _WAITED_FOR else 0
    return Load(drawn, splits, histogram(_RESUME.draw(rng, waited)) if waited else EMPTY)


def _split(rng: Random, flow: Flow, size: int, queue: int, us: int) -> Split:
    if flow.device.startswith("nvme"):
        if flow.device == "nvme1n1" and rng.random() < _LOST:
            return Split(size, queue + us, queue, None, None, None, None, us)
        irq = min(2 + int(rng.random() * 4), us // 4)
        return Split(size, queue + us, queue, us - irq, irq, None, None, 0)
    unknown = int(rng.random() < 0.3)  # noqa: PLR2004 - a microsecond is lost to rounding now and then
    irq = min(SHARED_US + 4 + int(rng.random() * 5), us // 3)
    left = us - irq - unknown
    if flow.device == UNLIKE and us > THREAD_FROM_US:
        hba = 80 + int(rng.random() * 60)
        return Split(size, queue + us, queue, hba, irq, None, left - hba, unknown)
    softirq = min(5 + int(rng.random() * 12), left // 3)
    if flow.device == TICKING and us > _TICKS_FROM_US.get(flow.op, us):
        softirq = (left - 300) // TICK_US * TICK_US - int(rng.random() * 60)
    return Split(size, queue + us, queue, left - softirq, irq, softirq, None, unknown)


THRESHOLDS_US = {name: 2_000 if name.startswith("nvme") else 40_000 for name in (
    "nvme0n1", "nvme1n1", "sda", "sdb", "sdc", "sdd", "sde", "sdf",
)}  # fmt: skip
PER_WINDOW = 40
PROGRAMS = {
    "nvme0n1": ("postgres", 4211),
    "nvme1n1": ("mongod", 4630),
    "sdd": ("ora_lgwr", 5102),
    "sdf": ("oracle", 5140),
}
BACKUP = ("backup", 7781)
COMPLETER = "mpt3sas_cmpl"
COMPLETER_PID = 388
HOG = "rt-logger (prio 49)"
_FLAGS = {"read": (), "write": ("sync",), "flush": ("sync", "preflush"), "discard": ("background",)}


class Told(NamedTuple):
    """`above` counts every I/O above its threshold, `suppressed` those of them that have no row."""

    outliers: tuple[Outlier, ...]
    above: dict[Flow, int]
    suppressed: int


def outlier_rows(rng: Random, frame: Frame, loads: Iterable[Load]) -> Told:
    """The window's outliers in the order in which they began."""
    found: list[tuple[Load, Split]] = []
    above: dict[Flow, int] = {}
    for load in loads:
        slow = [one for one in load.splits if one.total > THRESHOLDS_US[load.drawn.flow.device]]
        if slow:
            above[load.drawn.flow] = sum(one.size for one in slow)
            found += [(load, one) for one in slow for _ in range(one.size)]
    let_through = sorted(found, key=lambda _: rng.random())[:PER_WINDOW]
    rows = sorted((_outlier(rng, frame, *one) for one in let_through), key=lambda one: one.mono_us)
    return Told(tuple(rows), above, len(found) - len(rows))


def _outlier(rng: Random, frame: Frame, load: Load, split: Split) -> Outlier:
    device, op = load.drawn.flow
    done_us = frame.mono_us - int(rng.random() * frame.dt_us)
    begun_us = done_us - split.total
    stages = split.stages()
    comm, pid = PROGRAMS.get(device, BACKUP)
    waits = tuple(_waits(split, begun_us))
    resume = _resume(rng, load)
    if resume:
        stages["resume"] = resume
        waits = (*waits, Wait("resume", comm, pid, 120, done_us, resume))
    return Outlier(
        wall=frame.wall - (frame.mono_us - begun_us) / 1e6,
        mono_us=begun_us,
        device=device,
        op=op,
        total_us=split.total + resume,
        stages_us=stages,
        unaccounted_us=split.unaccounted,
        flags=_FLAGS.get(op, ()),
        sector=8 * int(rng.random() * 2**31),
        bytes=load.drawn.sizes[rng.random() < 0.06],  # noqa: PLR2004 - the host's share of large ones
        pid=pid,
        comm=comm,
        cpu_issue=int(rng.random() * _CPUS),
        cpu_complete=1 + ord(device[-1]) % (_CPUS - 1),
        outstanding_at_issue=int(rng.random() * (2 + load.drawn.hba.count / 200)),
        overtaken_by=int(split.total * load.drawn.hba.count / frame.dt_us * rng.random()),
        path=split.path,
        waits=waits,
    )


def _waits(split: Split, begun_us: int) -> Iterator[Wait]:
    """Whom a request waited for behind its interrupt."""
    if split.completion is not None:
        woken_us = begun_us + split.queue + (split.hba or 0) + (split.irq or 0)
        delay_us = max(0, split.completion - _WAKING_US)
        yield Wait("completion", COMPLETER, COMPLETER_PID, 120, woken_us, delay_us, HOG)


def _resume(rng: Random, load: Load) -> int:
    """One of those that were drawn."""
    if not load.resume:
        return 0
    index, _ = load.resume.buckets[int(rng.random() * len(load.resume.buckets))]
    return load.resume.cap(bucket_bounds(index)[0])


_SHARED_IRQ = 16
_NVME_IRQ = 64
_RUN_US = 5
_WAKING_US = 15
_LATE_US = 1000
_SLOW, _OURS = "uhci_hcd:usb3", "mpt3sas0"
_CPUS = 8


def _always(runs: int, delay_us: int, run_us: int) -> SoftirqRuns:
    def constant(us: int) -> Histogram:
        return histogram([Group(runs, us)])

    return SoftirqRuns(constant(delay_us), constant(run_us), {"irq_exit": runs}, {"irq": runs})


_BACKGROUND = {
    SoftirqCpu(vector, cpu): _always(runs, delay, run)
    for vector, runs, delay, run in (("TIMER", 250, 1, 3), ("SCHED", 90, 2, 4), ("RCU", 60, 2, 2))
    for cpu in range(_CPUS)
}
"""What a host does anyway: the same in every window, and one object for all of them."""


def handlers(loads: Iterable[Load]) -> dict[Handler, HandlerRuns]:
    """The NVMe devices' own vectors, and the disks' one, which a slow handler shares."""
    disks: list[Group] = []
    drives: dict[str, list[Group]] = {}
    for load in loads:
        times = [Group(one.size, one.irq) for one in load.splits if one.irq is not None]
        device = load.drawn.flow.device
        if device.startswith("nvme"):
            drives.setdefault(device, []).extend(times)
        else:
            disks += times
    found = {_nvme(device): HandlerRuns(*_handled(times), device=device) for device, times in drives.items()}
    return found | (_shared(disks) if disks else {})


def softirqs(loads: Iterable[Load]) -> dict[SoftirqCpu, SoftirqRuns]:
    """BLOCK on the CPU of each disk, and what a host does anyway."""
    waits: dict[int, list[Group]] = {}
    for load in loads:
        times = [Group(one.size, max(0, one.softirq - _RUN_US)) for one in load.splits if one.softirq is not None]
        if times:
            waits.setdefault(_cpu(load.drawn.flow.device), []).extend(times)
    return _BACKGROUND | {SoftirqCpu("BLOCK", cpu): _block(times) for cpu, times in sorted(waits.items())}


def wakeups(loads: Iterable[Load]) -> tuple[Wakeups, ...]:
    """The completion thread, and the programs that wait for their reads and flushes."""
    late: list[Group] = []
    resumed: dict[tuple[str, int], list[Histogram]] = {}
    for load in loads:
        late += [
            Group(one.size, max(0, one.completion - _WAKING_US)) for one in load.splits if one.completion is not None
        ]
        if load.resume:
            resumed.setdefault(PROGRAMS.get(load.drawn.flow.device, BACKUP), []).append(load.resume)
    return (*_completer(late), *(_program(comm, pid, parts) for (comm, pid), parts in resumed.items()))


def _completer(late: list[Group]) -> Iterator[Wakeups]:
    if late:
        thread = Thread(COMPLETER_PID, COMPLETER, "other", 120)
        yield Wakeups(thread, histogram(late), {HOG: sum(one.size for one in late)})


def _program(comm: str, pid: int, parts: list[Histogram]) -> Wakeups:
    return Wakeups(Thread(pid, comm, "other", 120, kernel=False), merge(parts))


def _handled(times: list[Group]) -> tuple[Histogram, dict[str, int]]:
    return histogram(times) if times else EMPTY, {"handled": sum(one.size for one in times)}


def _shared(times: list[Group]) -> dict[Handler, HandlerRuns]:
    count = sum(one.size for one in times)
    own, returned = _handled([Group(one.size, max(0, one.us - SHARED_US)) for one in times])
    slow = HandlerRuns(histogram([Group(count, SHARED_US)]), {"none": count}, 0, "0000:00:1d.0", (_OURS,))
    return {
        Handler(_SHARED_IRQ, _SLOW): slow,
        Handler(_SHARED_IRQ, _OURS): HandlerRuns(own, returned, count * SHARED_US, HBA, (_SLOW,)),
    }


def _block(times: list[Group]) -> SoftirqRuns:
    count = sum(one.size for one in times)
    late = sum(one.size for one in times if one.us >= _LATE_US)
    # raised in an interrupt it would run when that one ends: what waits for the tick was raised elsewhere
    ran_in, raised_in = (
        {here: count - late, **({there: late} if late else {})}
        for here, there in (("irq_exit", "timer"), ("irq", "other"))
    )
    return SoftirqRuns(histogram(times), histogram([Group(count, _RUN_US)]), ran_in, raised_in)


def _nvme(device: str) -> Handler:
    number = next(at for at, one in enumerate(DEVICES) if one.name == device)
    return Handler(_NVME_IRQ + number, f"nvme{number}q1")


def _cpu(device: str) -> int:
    return next(at for at, one in enumerate(DEVICES) if one.name == device) % _CPUS


_LOST_WHY = "a user's thread, or an interrupt without a handler"
_ABSENT = (Missing("requeue", "the demo's drivers refuse no request"),)


def deepened(rng: Random, frame: Frame, drawn: Iterable[DrawnHost]) -> Frame:
    """The window with all that deep probes tell of it; windows must be taken in order."""
    loads = [load(rng, one) for one in drawn]
    told = outlier_rows(rng, frame, loads)
    return replace(
        frame,
        traced=_traced(loads),
        above=told.above,
        outliers=told.outliers,
        thresholds_us=THRESHOLDS_US,
        handlers=handlers(loads),
        softirqs=softirqs(loads),
        wakeups=wakeups(loads),
        health=replace(frame.health, suppressed=told.suppressed, probe_cpu_percent=round(rng.gauss(1.4, 0.1), 2)),
    )


def _traced(loads: Iterable[Load]) -> Traced:
    histograms: dict[Series, Histogram] = {}
    by_total: dict[Series, dict[int, int]] = {}
    paths: dict[str, dict[str, int]] = {}
    unfollowed: dict[str, dict[str, int]] = {}
    for one in loads:
        device, op = one.drawn.flow
        if not one.drawn.total:
            continue
        for stage, found, sums in _stages(one.splits):
            histograms[Series(device, op, stage)] = found
            by_total[Series(device, op, stage)] = sums
        histograms[Series(device, op, "total")] = one.drawn.total
        if one.resume:
            histograms[Series(device, op, "resume")] = one.resume
        for path, size in _paths(one.splits):
            named = (paths if path else unfollowed).setdefault(device, {})
            named[path or _LOST_WHY] = named.get(path or _LOST_WHY, 0) + size
    return Traced(histograms, by_total, unfollowed, paths, one_in=1, absent=_ABSENT)


def _stages(splits: Sequence[Split]) -> Iterator[tuple[str, Histogram, dict[int, int]]]:
    """Every stage's histogram, and its time by the bucket of the total."""
    columns = tuple(zip(*splits, strict=True))
    sizes, totals = columns[0], [bucket(us) for us in columns[1]]
    for stage, times in zip(PASSED, columns[FIRST:], strict=False):
        ios: dict[int, int] = {}
        sums: dict[int, int] = {}
        for size, us, total in zip(sizes, times, totals, strict=True):
            if us is not None:
                ios[us] = ios.get(us, 0) + size
                sums[total] = sums.get(total, 0) + size * us
        if ios:
            yield stage, histogram((size, us) for us, size in ios.items()), sums


def _paths(splits: Iterable[Split]) -> Iterator[tuple[str, int]]:
    return ((split.path, split.size) for split in splits)
