"""completion-wakeup: slow I/Os wait for a kernel thread that is woken and not run.

It is a completion thread (an interrupt's, a worker, one of the HBA's driver), or a worker that sends I/Os to the driver
or is a part of it (kblockd, loop, dm-crypt). The stage `completion` has the work of the thread, too, so its wake-ups
must show the delay; `worker` has nothing but the wait. An outlier names the thread; else it is a kernel thread that was
late by half of the mean wait or more, and whose name ties it to the device (its interrupt's thread, the name of the
device or its driver) or to work that is handed on (kworker). Where no thread is known to have been late for
`completion`, it is a notice that names none: a thread that runs for long is another cause. A late wake-up of the
application's own thread doesn't count, because its I/O had completed.
Where the tracer has no stage `worker` (tier C), that wait is in queue and hba. A late kernel thread that does the
device's I/Os is then found beside them: a warning where its late wake-ups are as long as the slow I/Os and together
cover the time in which these were in flight, and most I/Os of the device are fast; else a notice.
Devices that wait for the same thread, or for a pool of unbound workers, are one finding, on the first by name of those
with at least half as many such I/Os as any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.findings.evidence import (
    Instead,
    SlowIos,
    blocks_with,
    count_from,
    host_before,
    ran_instead,
    serves,
    slow_ios,
    what_keeps_the_cpu,
)
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    CRITICAL,
    NOTICE,
    TRACED,
    WARNING,
    Fact,
    Finding,
    Rule,
    Severity,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    longest_fact,
    plain,
    setting,
    short_text,
    within,
)
from latmon.model.devices import thread_of
from latmon.model.frame import OTHER_PRIORITY, THREAD_PRIORITY, Outlier, Wait, comm_of, pid_of, priority_of
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model.inflight import mean_depth
from latmon.model.measurements.wakeups import Wakeups
from latmon.model.stages import WORKER
from latmon.support.host import REAL_TIME, policy_text, priority_text
from latmon.support.units import part, spelled

STAGE, SOFTIRQ = "completion", "softirq"
_KINDS = {WORKER: "kernel thread", STAGE: "completion thread"}
"""Stage -> what the thread that I/Os wait for in it is called."""
_JOINED = {WORKER: "a worker", STAGE: "a completion thread", SOFTIRQ: "ksoftirqd"}
"""Stage -> the thread that waits in it beside another one."""
ID = "completion-wakeup"
_EXPLAINS = 2
"""A thread explains a mean wait of at most so many times its own longest wait."""
_NEAR = 2
"""A device with at least 1/_NEAR of the greatest count of I/Os may be the one that the finding names."""
_UNBOUND_POOL = re.compile(r"kworker/u\d+(?=:)")
_OF_DRIVER = re.compile(r"(\w+?)\d*_(?:channel|thread|taskq)")
"""A completion thread's name: driver and instance of the HBA first, as in emlxs0_channel3."""
_EMLXS = (
    "; known: Emulex' emlxs, bug 23075272 (emlxs completion thread model can affect performance on busy systems), "
    "patched in Solaris 11.3 SRU 8.7.0 (package driver/fc/emlxs), which made the waits shorter; a QLogic HBA had none"
)
_KBLOCKD = re.compile(r"kworker/\d+:\d+H")
_FAR = 10
"""Half of all I/Os are so many times faster than slow ones that wait for a late thread."""
_UNSPLIT = "the wait of each I/O is not known: tier C has it in queue and hba (tier A: the stage worker)"
_CPUMASK = "/sys/devices/virtual/workqueue/cpumask"
_REFUTED = (
    "wake-ups of that thread (screen 5) that are short while the I/Os are slow: then it runs for long, or "
    "other I/Os are before them in its queue"
)


class LateThread(NamedTuple):
    """A kernel thread that was woken and ran up to `longest_us` later; `number` is its id."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: Instead
    """The thread that had its CPU meanwhile."""
    wakeups: Wakeups | None
    kind: str = _KINDS[STAGE]
    wait: Wait | None = None
    """Its longest recorded wait."""

    @property
    def text(self) -> str:
        """Return what it is, with its name and priority where they are known."""
        prio = "" if self.priority is None else f"(prio {self.priority})"
        return " ".join(filter(None, (f"the {self.kind}", self.name, prio)))

    @property
    def policy(self) -> str:
        """Return its policy; empty where it is not known."""
        known = self.wait.policy if self.wait else ""
        return known or (self.wakeups.thread.policy if self.wakeups else "")

    @property
    def cpu(self) -> int | None:
        """Return the CPU that it waited for longest; None where that is not known."""
        return self.wait.cpu if self.wait else None


def by_outliers(facts: Facts, outliers: Iterable[Outlier], delay_us: float, stage: str = STAGE) -> LateThread | None:
    """Return the thread with the most waits of these I/Os of `delay_us` or longer; None without such a wait."""
    outliers = tuple(outliers)
    waits = [wait for outlier in outliers for wait in outlier.waits if wait.stage == stage]
    long = [wait for wait in waits if wait.delay_us >= delay_us]
    if not long:
        return None
    host = host_before(facts, outliers[0].device)
    pool = Counter(_pool(wait.thread, wait.pid) for wait in long).most_common(1)[0][0]
    return _of_waits(facts, host, [wait for wait in long if _pool(wait.thread, wait.pid) == pool])


def _pool(comm: str, pid: int) -> int | str:
    """Return what threads have in common that do each other's work: the name of unbound workers' pool, else the id.

    Any idle one of them takes the next work (kernel/workqueue.c).
    """
    unbound = _UNBOUND_POOL.match(comm)
    return unbound[0] if unbound else pid


def _rows_of(facts: Facts, host: str, pool: int | str) -> list[Wakeups]:
    """Return the wake-ups of a pool's workers on a host: a program's thread may have any name."""
    threads = ((row.thread.comm, row) for row in facts.wakeups if row.thread.kernel or row.thread.pid == pool)
    own = ((comm.removeprefix(host), row) for comm, row in threads if comm.startswith(host))
    return [row for comm, row in own if _pool(comm, row.thread.pid) == pool]


def by_name(facts: Facts, device: str, delay_us: float, stage: str = STAGE) -> LateThread | None:
    """Return the latest thread that its name ties to the device and that was late by `delay_us`; None without one."""
    host = host_before(facts, device)

    def is_tied(comm: str) -> bool:
        name = comm.removeprefix(host)
        return serves(facts, comm, device) or (stage == WORKER and name.startswith(_KWORKER))

    late = [
        woken
        for woken in facts.wakeups
        if woken.thread.kernel and (woken.delay.max_bound or 0) >= delay_us and is_tied(woken.thread.comm)
    ]
    latest = max(late, key=lambda woken: (woken.delay.max_bound or 0, woken.thread.pid), default=None)
    if latest is None:
        return None
    rows = _rows_of(facts, host, _pool(latest.thread.comm.removeprefix(host), latest.thread.pid))
    return _of_wakeups(latest, _KINDS[stage])._replace(instead=ran_instead(rows, ()))


def _of_wakeups(latest: Wakeups, kind: str) -> LateThread:
    thread = latest.thread
    priority = thread.priority if thread.priority >= 0 else None
    longest_us = latest.delay.max_bound or 0
    return LateThread(thread.pid, thread.comm, priority, longest_us, ran_instead([latest], ()), latest, kind)


def _of_waits(facts: Facts, host: str, waits: list[Wait]) -> LateThread:
    longest = max(waits, key=lambda wait: wait.delay_us)
    wakeups = next((wakeup for wakeup in facts.wakeups if wakeup.thread.pid == longest.pid), None)
    known = (longest.priority, wakeups.thread.priority if wakeups else -1)
    priority = next((level for level in known if level >= 0), None)
    instead = ran_instead(_rows_of(facts, host, _pool(longest.thread, longest.pid)), waits)
    return LateThread(
        number=longest.pid,
        name=longest.thread,
        priority=priority,
        longest_us=longest.delay_us,
        instead=instead,
        wakeups=wakeups,
        kind=_KINDS[longest.stage],
        wait=longest,
    )


_KWORKER, _UNBOUND = "kworker/", "kworker/u"
"""Beginnings of the names of threads that workqueues share; the latter aren't of one CPU."""


class _DelayedIos(NamedTuple):
    """The slow I/Os of one device that waited for a kernel thread in a stage."""

    stage: str
    slow: SlowIos
    ios: int
    mean_us: float
    longest_us: int
    outliers: tuple[Outlier, ...]
    """The recorded ones of them."""
    joined: tuple[str, ...] = ()
    """Other stages in which a kernel thread waited behind the same program."""

    @property
    def device(self) -> str:
        return self.slow.device

    @property
    def share(self) -> float:
        """Return the share of all these stages in the slow I/Os' time."""
        return self.slow.share(self.stage, *self.joined)

    @property
    def share_text(self) -> str:
        """Return that share as the beginning of a sentence."""
        return self.slow.share_text(self.stage, *self.joined)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per thread that I/Os wait for; where the thread is not known, per device."""
    groups: dict[tuple[str, int | str], list[tuple[_DelayedIos, LateThread | None]]] = {}
    is_unsplit = _is_unsplit(facts)
    for device in facts.busy:
        by_stage = filter(None, (_delayed(facts, device, stage, limits) for stage in _KINDS))
        delayed = max(by_stage, key=lambda ios: ios.share, default=None)
        if delayed:
            woken = _thread(facts, delayed, limits)
            host = host_before(facts, device)
            waited_for = _pool(woken.name.removeprefix(host), woken.number) if woken else device
            groups.setdefault((host, waited_for), []).append((delayed, woken))
        elif is_unsplit and (beside := _beside(facts, device, limits)):
            yield _finding_beside(facts, beside)
    for group in groups.values():
        most = max(delayed.ios for delayed, _ in group)
        # the order of similar counts changes from block to block, that of names doesn't
        group.sort(key=lambda member: (member[0].ios < most / _NEAR, member[0].device))
        if sum(delayed.ios for delayed, _ in group) >= limits["ios"]:
            yield _finding(facts, [delayed for delayed, _ in group], group[0][1], limits)


class _LateBeside(NamedTuple):
    """Slow I/Os of a device, and the late wake-ups of a kernel thread that does such I/Os."""

    slow: SlowIos
    stages: tuple[str, ...]
    """Stages that contain such waits."""
    wakeups: int
    """The late ones."""
    woken: LateThread
    is_cause: bool
    """Whether the late wake-ups explain the time of the slow I/Os."""


class _LateWaits(NamedTuple):
    """Wake-ups of a thread that were late by as much as slow I/Os take."""

    row: Wakeups
    wakeups: int
    us: int
    """All together, at least."""
    longest_us: int

    @classmethod
    def of(cls, row: Wakeups, least_us: float, most_us: float) -> _LateWaits:
        """Return those from `least_us` on. An I/O is no faster than its worker: longer ones than that are of others."""
        first = bucket_index(int(least_us), row.delay.bits)
        last = bucket_index(int(most_us), row.delay.bits)
        late = {index: count for index, count in row.delay.buckets if first <= index <= last}
        bounds = {index: bucket_bounds(index, row.delay.bits) for index in late}
        us = sum(count * bounds[index][0] for index, count in late.items())
        longest_us = min(max((most for _, most in bounds.values()), default=0), row.delay.max_bound or 0)
        return cls(row, sum(late.values()), us, longest_us)

    @property
    def thread(self) -> LateThread:
        """Return its thread as one that ran late."""
        return _of_wakeups(self.row, _KINDS[WORKER])._replace(longest_us=self.longest_us)


def _is_unsplit(facts: Facts) -> bool:
    """Return whether the tracer of this Linux can't measure the stage `worker`."""
    absent = facts.window[-1].packed.traced.absent
    return not facts.is_sun and any(missing.name == WORKER for missing in absent)


def _beside(facts: Facts, device: str, limits: Thresholds) -> _LateBeside | None:
    """Return the slow I/Os of a device with the latest thread that does them; None where no thread was as late.

    A thread is late by half of the slow I/Os' mean or more. Where the driver hands its I/Os to no thread of this
    host, a thread only sends them (kblockd): they then wait above the driver.
    """
    stages = ("queue", "requeue", "hba") if _driver_thread(facts, device) else ("queue", "requeue")
    for slow in slow_ios(facts, device):
        share, mean_us = slow.share(*stages), slow.mean_us(*stages)
        if share < limits["tail"] or mean_us < limits["delay_us"] or slow.count < limits["ios"]:
            continue
        rows = [row for row in facts.wakeups if _does_ios_of(facts, row, device)]
        most_us = facts.latency(device).max_bound or slow.cut_us
        late = [_LateWaits.of(row, mean_us / _EXPLAINS, most_us * _EXPLAINS) for row in rows]
        wakeups = sum(waits.wakeups for waits in late)
        if wakeups:
            worst = max(late, key=lambda waits: (waits.us, waits.row.thread.pid))
            is_cause = wakeups >= limits["ios"] and _explains(facts, slow, sum(waits.us for waits in late))
            return _LateBeside(slow, stages, wakeups, worst.thread, is_cause)
    return None


def _driver_thread(facts: Facts, device: str) -> str:
    return thread_of(device, facts.device(device).driver)


def _does_ios_of(facts: Facts, row: Wakeups, device: str) -> bool:
    """Return whether a kernel thread can be the one that does a device's I/Os, or sends them to the driver.

    loop's workers are of an unbound workqueue (drivers/block/loop.c since Linux 5.14), kblockd's of each CPU with high
    priority (block/blk-core.c): their names say no more.
    """
    comm = row.thread.comm
    name = comm.removeprefix(host_before(facts, device))
    if not row.thread.kernel:
        return False
    if serves(facts, comm, device):
        return True
    if not _driver_thread(facts, device):
        return bool(_KBLOCKD.match(name))
    return name.startswith(_UNBOUND) or bool(_KBLOCKD.match(name))


def _explains(facts: Facts, slow: SlowIos, waited_us: int) -> bool:
    """Return whether late wake-ups cover at least half of the time in which slow I/Os were in flight.

    That time is theirs by the mean number in flight. Where half of all I/Os are nearly as slow, the device may be.
    """
    device = slow.device
    median_us = facts.latency(device).quantile(0.5)
    slow_us = sum(slow.us.values())
    if median_us is None or median_us * _FAR > slow_us / slow.count:
        return False
    depths = facts.depths(device)
    in_flight = _busy_mean(depths.in_driver) + _busy_mean(depths.queued)
    return waited_us * max(in_flight, 1.0) * _EXPLAINS >= slow_us


def _busy_mean(depths: Mapping[int, int]) -> float:
    """Return the mean of a depth histogram over the time with at least one I/O."""
    return mean_depth({depth: ms for depth, ms in depths.items() if depth})


def _finding_beside(facts: Facts, beside: _LateBeside) -> Finding:
    slow, woken = beside.slow, beside.woken
    device = slow.device
    ran = f"{woken.text} was woken and ran up to {spelled(woken.longest_us)} later{_meanwhile(woken.instead)}"
    mean_us = sum(slow.us.values()) / slow.count
    if beside.is_cause:
        summary = f"{device}: {ran}, as long as its {slow.count:,} I/Os above {spelled(slow.cut_us)} take"
    else:
        summary = f"{device}: {ran}, which may be a part of its {slow.count:,} I/Os above {spelled(slow.cut_us)}"
    return Finding(
        id=ID,
        severity=WARNING if beside.is_cause else NOTICE,
        device=device,
        summary=summary,
        facts=(
            Fact("slow", slow.count, f"{slow.count:,} I/Os took {spelled(slow.cut_us)} or more", "ios"),
            *duration_facts(("slow_mean", mean_us, "they took {} on average", slow.count)),
            Fact("late", beside.wakeups, f"{beside.wakeups:,} wake-ups were late by half of that or more"),
            *_thread_facts(facts, woken),
            *_priority_instead(facts, woken),
            Fact("unsplit", "worker", _UNSPLIT),
        ),
        where=Where("stages", device, low_us=slow.cut_us),
        steps=tuple(_steps(facts, device, woken)),
        refuted_by=_REFUTED,
        share=beside.slow.lost_share(facts, *beside.stages),
        short=_short_late(device, woken),
        peak_us=woken.longest_us,
    )


def _priority_instead(facts: Facts, woken: LateThread) -> Iterator[Fact]:
    priority = priority_of(woken.instead.label)
    if priority >= 0:
        text = f"the priority of {comm_of(woken.instead.label)} is {priority_text(priority, facts.origin.kernel)}"
        yield Fact("instead_priority", priority, text)


def _delayed(facts: Facts, device: str, stage: str, limits: Thresholds) -> _DelayedIos | None:
    waits = facts.stage_with_longest(stage, device)
    outliers = tuple(
        outlier for outlier in facts.outliers(device) if outlier.stages_us.get(stage, 0) >= limits["delay_us"]
    )
    longest = max(waits.max_bound or 0, *(outlier.stages_us.get(stage, 0) for outlier in outliers), 0)
    if longest < limits["long_us"] and blocks_with(facts, device, stage, limits["delay_us"]) < limits["blocks"]:
        return None
    for slow in slow_ios(facts, device):
        joined = _joined(facts, slow, stage, limits)
        stages = stage, *joined
        if slow.share(*stages) >= limits["tail"] and slow.mean_us(*stages) >= limits["delay_us"]:
            ios = min(slow.count, count_from(waits, limits["delay_us"]) or len(outliers))
            return (
                _DelayedIos(stage, slow, ios, slow.us.get(stage, 0) / ios, longest, outliers, joined) if ios else None
            )
    return None


def _joined(facts: Facts, slow: SlowIos, stage: str, limits: Thresholds) -> tuple[str, ...]:
    """Return other stages in which kernel threads waited behind the program that one waited for in `stage`.

    A program that has a CPU makes workers and ksoftirqd late there: either alone may be less than half of the time.
    """
    own = slow.share(stage)
    if not 0 < own < limits["tail"]:
        return ()
    culprit = _culprit(facts, slow, stage, limits)
    others = (other for other in (*_KINDS, SOFTIRQ) if other != stage and slow.share(other))
    return tuple(other for other in others if culprit and _culprit(facts, slow, other, limits) == culprit)


def _culprit(facts: Facts, slow: SlowIos, stage: str, limits: Thresholds) -> str:
    """Return the program that ran for most of the time while a kernel thread waited in a stage; empty: not known."""
    outliers = facts.outliers(slow.device)
    if stage == SOFTIRQ:
        rows = [row for row in facts.wakeups if _is_ksoftirqd(facts, row, slow.device)]
        late = [row for row in rows if (row.delay.max_bound or 0) >= limits["delay_us"]]
        waits = [wait for outlier in outliers for wait in outlier.waits if wait.stage == SOFTIRQ]
        instead = ran_instead(late, waits)
    else:
        late_us = max(slow.mean_us(stage) / _EXPLAINS, limits["delay_us"])
        woken = by_outliers(facts, outliers, limits["delay_us"], stage) or by_name(facts, slow.device, late_us, stage)
        instead = woken.instead if woken else Instead()
    return comm_of(instead.label) if instead.is_most else ""


def _is_ksoftirqd(facts: Facts, row: Wakeups, device: str) -> bool:
    return row.thread.comm.removeprefix(host_before(facts, device)).startswith("ksoftirqd/")


def _thread(facts: Facts, delayed: _DelayedIos, limits: Thresholds) -> LateThread | None:
    """Return the thread that the I/Os waited for; None where nothing ties a late thread to them."""
    named = by_outliers(facts, delayed.outliers, limits["delay_us"], delayed.stage)
    return named or by_name(facts, delayed.device, delayed.mean_us / _EXPLAINS, delayed.stage)


def _severity(group: list[_DelayedIos], woken: LateThread | None, limits: Thresholds) -> Severity:
    """Return its severity: the stage completion without a late thread may be the thread's work."""
    if woken is None and group[0].stage == STAGE:
        return NOTICE
    longest_us = max(delayed.longest_us for delayed in group)
    return CRITICAL if longest_us >= limits["critical_us"] else WARNING


def _finding(facts: Facts, group: list[_DelayedIos], woken: LateThread | None, limits: Thresholds) -> Finding:
    delayed = group[0]
    severity = _severity(group, woken, limits)
    return Finding(
        id=ID,
        severity=severity,
        device=delayed.device,
        summary=_summary(facts, delayed, woken),
        facts=tuple(_facts(facts, group, woken)),
        where=Where("stages", delayed.device, low_us=delayed.slow.cut_us),
        steps=tuple(_steps(facts, delayed.device, woken)),
        refuted_by=_REFUTED,
        share=delayed.slow.lost_share(facts, delayed.stage, *delayed.joined),
        also=tuple(member.device for member in group[1:]),
        short=_short(delayed, woken),
        at=None if woken is None or woken.wait is None else facts.moment(woken.wait.woken_us),
        peak_us=0 if woken is None else woken.longest_us,
    )


def _summary(facts: Facts, delayed: _DelayedIos, woken: LateThread | None) -> str:
    begin = f"{delayed.device}: {delayed.share_text}"
    if woken is None and delayed.stage == WORKER:
        return (
            f"{begin} is a wait for kernel threads that were woken and not run, {spelled(delayed.mean_us)} on "
            "average; which ones is not known here"
        )
    if woken is None:
        late = "whether it was woken late is not known here"
        if resumed := _resumed(facts, delayed.device).max_bound:
            late = f"threads took up to {spelled(resumed)} to resume"
        if (open_us := facts.open_from_us("resume", delayed.device)) is not None:
            late = f"threads took {spelled(open_us)} or more to resume"
        return (
            f"{begin} passes between their interrupt and the thread that completes them, {spelled(delayed.mean_us)} on "
            f"average; {late}"
        )
    device = _device_us(delayed)
    thread = thread_of(delayed.device, facts.device(delayed.device).driver)
    below = f"{thread} and what is below it" if thread else "the device itself"
    itself = f"; {below} took {spelled(device)}" if device is not None else ""
    return (
        f"{begin} is a wait for {woken.text}, which was woken and ran "
        f"up to {spelled(woken.longest_us)} later{_where(woken)}{_meanwhile(woken.instead)}"
        f"{_with_joined(delayed)}{itself}"
    )


def _with_joined(delayed: _DelayedIos) -> str:
    """Return what else waited behind the same program, as the end of a sentence; empty where nothing did."""
    names = " and ".join(_JOINED[stage] for stage in delayed.joined)
    return f"; {names} waited behind the same program" if names else ""


def _where(woken: LateThread) -> str:
    return "" if woken.cpu is None else f" on CPU {woken.cpu}"


def _resumed(facts: Facts, device: str) -> Histogram:
    """Return the times that threads took to resume, from other tables of an imported text; empty elsewhere."""
    return facts.stage("resume", device) if facts.origin.is_imported else Histogram()


def _meanwhile(instead: Instead) -> str:
    if instead.us:
        return f" while {instead.who} had its CPU"
    return f", after {instead.label}" if instead.label else ""


def _short(delayed: _DelayedIos, woken: LateThread | None) -> str:
    """Return the short text of slow I/Os that wait for a thread."""
    if woken is not None:
        device_us = _device_us(delayed)
        itself = "" if device_us is None else f"; the device took {spelled(device_us)}"
        return _short_late(delayed.device, woken, itself)
    slow, mean = f"{part(delayed.share)} of slow I/Os' time", f", {spelled(delayed.mean_us)} on average"
    if delayed.stage == WORKER:
        return short_text(delayed.device, f"{slow} waits for a kernel thread", mean)
    return short_text(delayed.device, f"{slow} is after their interrupt", mean)


def _short_late(device: str, woken: LateThread, *clauses: str) -> str:
    """Return the short text of a thread that ran late."""
    name = within(woken.name) or "a kernel thread"
    instead = woken.instead
    ran = f", after {within(instead.name)}" if instead.label and not instead.us else ""
    ran = f", {within(instead.name)} had its CPU" if instead.is_most else ran
    return short_text(device, f"up to {spelled(woken.longest_us)} late: {name} was not run", ran, *clauses)


def _facts(facts: Facts, group: list[_DelayedIos], woken: LateThread | None) -> Iterator[Fact]:
    delayed = group[0]
    text = f"{delayed.slow.count:,} I/Os took {spelled(delayed.slow.cut_us)} or more"
    yield Fact("slow", delayed.slow.count, text, "ios")
    yield from duration_facts(
        ("wait_mean", delayed.mean_us, "each waited {} on average", delayed.ios),
        ("wait_max", delayed.longest_us, f"the longest wait was {_bounded(facts, delayed)}", delayed.ios),
        ("device", _device_us(delayed), "before that they took {} in HBA, fabric and device", len(delayed.outliers)),
    )
    yield from _joined_facts(delayed)
    if (most := _at_once(group)) > 1:
        followed_ios = sum(len(member.outliers) for member in group)
        yield Fact("at_once", most, f"{most} I/Os waited for one wake-up", "ios", followed_ios)
    if len(group) > 1:
        others = ", ".join(member.device for member in group[1:])
        yield Fact("others", others, f"{others} waited for the same thread", of=sum(member.ios for member in group[1:]))
    if woken is not None:
        yield from _thread_facts(facts, woken)
        return
    if delayed.stage == WORKER:
        return
    resumed = _resumed(facts, delayed.device)
    text = "resuming a thread took {} in the same text, its sleep included"
    if (open_us := facts.open_from_us("resume", delayed.device)) is not None:
        yield from duration_facts(("resume_max", open_us, text.format("{} or more"), resumed.count))
    elif resumed:
        yield from longest_fact("resume_max", resumed, text)
    for report in facts.device(delayed.device).reports:
        if report.name == THREAD_PRIORITY:
            yield Fact("priority", report.value, f"the priority of a thread is {report.value} ({report.source})")
        elif report.name == OTHER_PRIORITY:
            text = f"that of another driver's completion threads is {report.value} ({report.source})"
            yield Fact("other_priority", report.value, text)


def _joined_facts(delayed: _DelayedIos) -> Iterator[Fact]:
    for stage in delayed.joined:
        share = delayed.slow.share(stage)
        text = f"{_JOINED[stage]} waited behind the same program: {part(share)} of that time (stage {stage})"
        yield Fact(f"with_{stage}", round(share, 3), text, "share", delayed.slow.count)


def _bounded(facts: Facts, delayed: _DelayedIos) -> str:
    """Return the place of the longest wait in its sentence; `at most` where it is the bound of a bucket."""
    stage = delayed.stage
    logged = any(outlier.stages_us.get(stage) == delayed.longest_us for outlier in delayed.outliers)
    return "{}" if logged or facts.stage_with_longest(stage, delayed.device).max is not None else "at most {}"


def _thread_facts(facts: Facts, woken: LateThread) -> Iterator[Fact]:
    if woken.name:
        does = "completes them" if woken.kind == _KINDS[STAGE] else "sends or completes them"
        yield Fact("thread", woken.name, f"{woken.name} {does}")
    if woken.priority is not None:
        yield Fact("priority", woken.priority, f"its priority is {priority_text(woken.priority, facts.origin.kernel)}")
    if woken.wait and (policy := policy_text(woken.policy, woken.wait.priority)):
        yield Fact("policy", policy, f"its policy is {policy}")
    if woken.cpu is not None:
        yield Fact("cpu", woken.cpu, f"it waited longest for CPU {woken.cpu}")
    if woken.instead.label:
        yield woken.instead.fact
    if policy := _policy_instead(woken):
        yield Fact("instead_policy", policy, f"the policy of {comm_of(woken.instead.label)} is {policy}")
    if woken.wakeups is not None:
        delay = woken.wakeups.delay
        yield from duration_facts(("wakeup_p99", delay.quantile(0.99), "the p99 of its wake-ups is {}", delay.count))
        yield from longest_fact("wakeup_max", delay, "its latest wake-up took {}")


def _policy_instead(woken: LateThread) -> str:
    """Return the policy of the thread that ran instead; empty where it is not known, or of another thread."""
    wait = woken.wait
    if wait is None or comm_of(wait.instead) != comm_of(woken.instead.label):
        return ""
    return policy_text(wait.instead_policy, priority_of(wait.instead))


def _steps(facts: Facts, device: str, woken: LateThread | None) -> Iterator[Step]:
    if woken is None:
        yield Step("look at the wake-ups of kernel threads on screen 5: which thread is woken, and when does it run?")
        return
    by = woken.instead.label if woken.instead.us else ""
    yield what_keeps_the_cpu(by, is_sun=facts.is_sun)
    yield from _sun(facts, device, woken) if facts.is_sun else _linux(facts, device, woken)


def _sun(facts: Facts, device: str, woken: LateThread) -> Iterator[Step]:
    thread_of = _OF_DRIVER.match(woken.name)  # the disk's own driver is sd, whose HBA completes the I/O
    driver = thread_of[1] if thread_of else facts.device(device).driver
    bug = _EMLXS if driver == "emlxs" else ""
    yield Step(
        "look for a driver whose completion threads have a higher priority, or none: a patch of the HBA's driver, "
        f"another HBA{bug}",
        "a reboot; drivers complete I/Os differently, so compare before and after with latmon diff",
        (f"modinfo | grep -w {driver}",) if plain(driver) else (),
    )
    yield Step(
        "see which CPUs are busy, and keep the load off those that complete (a processor set, fewer threads)",
        "less throughput for that load",
        ("mpstat 5", "psrset -i"),
    )
    yield Step(
        "where ZFS is in use, see whether user_reserve_hint_pct bounds its cache: that makes these waits longer",
        commands=("echo user_reserve_hint_pct/D | mdb -k",),
    )


def _linux(facts: Facts, device: str, woken: LateThread) -> Iterator[Step]:
    thread = woken.name or f"the {woken.kind}"
    yield Step(
        f"move what runs instead to other CPUs, or lower it below {thread}",
        "its own work gets slower, which may be real-time work",
        ("taskset -cp CPUS TID",),
    )
    name = thread.removeprefix(host_before(facts, device))
    if 0 <= priority_of(woken.instead.label) < REAL_TIME:
        yield Step(
            f"else run {comm_of(woken.instead.label)} without real-time priority",
            "it may miss its deadlines; undone by chrt with its old policy and priority",
            ("chrt -o -p 0 TID",),
        )
    if name.startswith(_UNBOUND):
        cpu = "that CPU" if woken.cpu is None else f"CPU {woken.cpu}"
        yield Step(
            f"else keep unbound workers such as {thread} off {cpu}: a mask of the other CPUs, in hex",
            "all of their work shares fewer CPUs; undone by the old mask",
            (f"cat {_CPUMASK}", setting(_CPUMASK, "MASK")),
        )
    if name.startswith(_KWORKER):
        return  # workqueues make and end their threads: a priority would not last
    yield Step(
        f"else give {thread} real-time priority",
        "it may now keep others from the CPU; gone after a reboot or when the thread is recreated",
        (f"chrt -f -p 50 {pid_of(woken.number) or 'PID'}",),
    )


def _device_us(delayed: _DelayedIos) -> float | None:
    """Return the outliers' mean time between issue and interrupt; None where it was not timed."""
    times = [outlier.stages_us["hba"] for outlier in delayed.outliers if "hba" in outlier.stages_us]
    return sum(times) / len(times) if times else None


def _at_once(group: list[_DelayedIos]) -> int:
    """Return the greatest number of I/Os, of all devices, that waited for one wake-up."""
    moments = Counter(
        (wait.pid, wait.woken_us)
        for delayed in group
        for outlier in delayed.outliers
        for wait in outlier.waits
        if wait.stage == delayed.stage
    )
    return max(moments.values(), default=0)


RULE = Rule(
    ID,
    "slow I/Os wait for a kernel thread that was woken and not run",
    evaluate,
    needs=TRACED,
    traced_part="resume",
    thresholds={
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is the wait for the thread"),
        "delay_us": Threshold(10_000, "us", "that wait, in the slow I/Os' mean"),
        "ios": Threshold(3, "ios", "slow ones at least"),
        "long_us": Threshold(100_000, "us", "one such wait is enough; on a busy host workers wait less"),
        "blocks": Threshold(3, "blocks", "of a minute with such a wait, where none is so long"),
        "critical_us": Threshold(500_000, "us", "a wait of this makes it critical: a log writer's warning"),
    },
)
