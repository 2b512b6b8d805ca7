"""completion-wakeup: slow I/Os wait for a completion thread that is woken and not run.

The completion thread is an interrupt's thread, a worker, or a thread of the HBA's driver. Its wake-ups must show the
delay. An outlier names the thread; else it is a kernel thread that was late by half of the mean wait or more, and whose
name ties it to the device (its interrupt's thread, the name of the device or its driver). Where no such thread is known
to have been late, it is a notice that names none: a thread that runs for long is another cause. A late wake-up of the
application's own thread doesn't count, because its I/O had completed.
Devices that wait for the same thread are one finding, on the first by name of those with at least half as many such
I/Os as any other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.findings.evidence import Instead, SlowIos, blocks_with, count_from, ran_instead, serves, slow_ios
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
    threads,
)
from latmon.model.devices import thread_of
from latmon.model.frame import THREAD_PRIORITY, Outlier, Wait, comm_of, pid_of
from latmon.model.histogram import Histogram
from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import Wakeups
from latmon.support.host import priority_text
from latmon.support.units import spelled

STAGE = "completion"


class CompletionThread(NamedTuple):
    """A completion thread that was woken and ran up to `longest_us` later; `number` is its id."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: Instead
    """The thread that had its CPU meanwhile."""
    wakeups: Wakeups | None

    @property
    def text(self) -> str:
        """Return what it is, with its name and priority where they are known."""
        prio = "" if self.priority is None else f"(prio {self.priority})"
        return " ".join(filter(None, ("the completion thread", self.name, prio)))


def by_outliers(facts: Facts, outliers: Iterable[Outlier], delay_us: float) -> CompletionThread | None:
    """Return the thread with the most waits of these I/Os of `delay_us` or longer; None without such a wait."""
    long = [wait for one in outliers for wait in one.waits if wait.stage == STAGE and wait.delay_us >= delay_us]
    if not long:
        return None
    number = Counter(wait.pid for wait in long).most_common(1)[0][0]
    return _of_waits([wait for wait in long if wait.pid == number], facts)


def by_name(facts: Facts, device: str, delay_us: float) -> CompletionThread | None:
    """Return the latest thread that its name ties to the device and that was late by `delay_us`; None without one."""
    late = [
        one
        for one in facts[WAKEUPS].values()
        if one.thread.kernel and (one.delay.max_bound or 0) >= delay_us and serves(facts, one.thread.comm, device)
    ]
    one = max(late, key=lambda some: (some.delay.max_bound or 0, some.thread.pid), default=None)
    if one is None:
        return None
    thread = one.thread
    priority = thread.priority if thread.priority >= 0 else None
    return CompletionThread(thread.pid, thread.comm, priority, one.delay.max_bound or 0, ran_instead([one], ()), one)


def _of_waits(waits: list[Wait], facts: Facts) -> CompletionThread:
    longest = max(waits, key=lambda wait: wait.delay_us)
    wakeups = next((one for one in facts[WAKEUPS].values() if one.thread.pid == longest.pid), None)
    known = (longest.priority, wakeups.thread.priority if wakeups else -1)
    priority = next((one for one in known if one >= 0), None)
    instead = ran_instead([wakeups] if wakeups else [], waits)
    return CompletionThread(longest.pid, longest.thread, priority, longest.delay_us, instead, wakeups)


ID = "completion-wakeup"
_EXPLAINS = 2
"""A thread explains a mean wait of at most so many times its own longest wait."""
_NEAR = 2
"""A device with at least 1/_NEAR of the greatest count of I/Os may be the one that the finding names."""
_OF_DRIVER = re.compile(r"(\w+?)\d*_(?:channel|thread|taskq)")
"""A completion thread's name: driver and instance of the HBA first, as in emlxs0_channel3."""
_EMLXS = (
    "; known: Emulex' emlxs, bug 23075272 (emlxs completion thread model can affect performance on busy systems), "
    "patched in Solaris 11.3 SRU 8.7.0 (package driver/fc/emlxs), which made the waits shorter; a QLogic HBA had none"
)
_REFUTED = (
    "wake-ups of the completion thread (screen 5) that are short while the I/Os are slow: then it runs for long, or "
    "other I/Os are before them in its queue"
)


class _DelayedIos(NamedTuple):
    """The slow I/Os of one device that waited for their completion thread."""

    slow: SlowIos
    ios: int
    mean_us: float
    longest_us: int
    outliers: tuple[Outlier, ...]
    """The recorded ones of them."""

    @property
    def device(self) -> str:
        return self.slow.device


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per thread that I/Os wait for; where the thread is not known, per device."""
    groups: dict[int | str, list[tuple[_DelayedIos, CompletionThread | None]]] = {}
    for device in facts.busy:
        if delayed := _delayed(facts, device, limits):
            woken = _thread(facts, delayed, limits)
            groups.setdefault(woken.number if woken else device, []).append((delayed, woken))
    for group in groups.values():
        most = max(delayed.ios for delayed, _ in group)
        # the order of similar counts changes from block to block, that of names doesn't
        group.sort(key=lambda one: (one[0].ios < most / _NEAR, one[0].device))
        if sum(delayed.ios for delayed, _ in group) >= limits["ios"]:
            yield _finding(facts, [delayed for delayed, _ in group], group[0][1], limits)


def _delayed(facts: Facts, device: str, limits: Thresholds) -> _DelayedIos | None:
    waits = facts.traced_stage(STAGE, device)
    outliers = tuple(one for one in facts.outliers(device) if one.stages_us.get(STAGE, 0) >= limits["delay_us"])
    longest = max(waits.max_bound or 0, *(one.stages_us.get(STAGE, 0) for one in outliers), 0)
    if longest < limits["long_us"] and blocks_with(facts, device, STAGE, limits["delay_us"]) < limits["blocks"]:
        return None
    for one in slow_ios(facts, device):
        if one.share(STAGE) >= limits["tail"] and one.mean_us(STAGE) >= limits["delay_us"]:
            ios = min(one.count, count_from(waits, limits["delay_us"]) or len(outliers))
            return _DelayedIos(one, ios, one.us.get(STAGE, 0) / ios, longest, outliers) if ios else None
    return None


def _thread(facts: Facts, delayed: _DelayedIos, limits: Thresholds) -> CompletionThread | None:
    """Return the thread that the I/Os waited for; None where nothing ties a late thread to them."""
    found = by_outliers(facts, delayed.outliers, limits["delay_us"])
    return found or by_name(facts, delayed.device, delayed.mean_us / _EXPLAINS)


def _finding(facts: Facts, group: list[_DelayedIos], woken: CompletionThread | None, limits: Thresholds) -> Finding:
    delayed = group[0]
    longest = max(one.longest_us for one in group)
    severity: Severity = NOTICE if woken is None else CRITICAL if longest >= limits["critical_us"] else WARNING
    return Finding(
        ID,
        severity,
        delayed.device,
        _summary(facts, delayed, woken),
        tuple(_facts(facts, group, woken)),
        Where("stages", delayed.device, low_us=delayed.slow.cut_us),
        tuple(_steps(facts, delayed, woken)),
        _REFUTED,
        delayed.slow.share(STAGE),
        tuple(one.device for one in group[1:]),
        _brief(delayed, woken),
    )


def _summary(facts: Facts, delayed: _DelayedIos, woken: CompletionThread | None) -> str:
    begin = f"{delayed.device}: {delayed.slow.share_text(STAGE)}"
    if woken is None:
        late = "whether it was woken late is not known here"
        if resumed := _resumed(facts, delayed.device).max_bound:
            late = f"threads took up to {spelled(resumed)} to resume"
        if (open_us := facts.open_from_us("resume", delayed.device)) is not None:
            late = f"threads took {spelled(open_us)} or more to resume"
        return (
            f"{begin} passes between their interrupt and the thread that completes them, {spelled(delayed.mean_us)} in "
            f"the mean; {late}"
        )
    device = _device_us(delayed)
    thread = thread_of(delayed.device, facts.device(delayed.device).driver)
    below = f"{thread} and what is below it" if thread else "the device itself"
    itself = f"; {below} took {spelled(device)}" if device is not None else ""
    return (
        f"{begin} is a wait for {woken.text}, which was woken and ran "
        f"up to {spelled(woken.longest_us)} later{_meanwhile(woken.instead)}{itself}"
    )


def _resumed(facts: Facts, device: str) -> Histogram:
    """Return the times that threads took to resume, from other tables of an imported text; empty elsewhere."""
    return facts.stage("resume", device) if facts.origin.is_imported else Histogram()


def _meanwhile(instead: Instead) -> str:
    if instead.us:
        return f" while {instead.who} had its CPU"
    return f", after {instead.label}" if instead.label else ""


def _brief(delayed: _DelayedIos, woken: CompletionThread | None) -> str:
    """Return the summary without times of single waits; empty where the thread is not known."""
    if woken is None:
        return ""
    begin = f"{delayed.device}: {delayed.slow.share_text(STAGE)}"
    return f"{begin} is a wait for {woken.text}, woken but not run{_meanwhile(woken.instead)}"


def _facts(facts: Facts, group: list[_DelayedIos], woken: CompletionThread | None) -> Iterator[Fact]:
    delayed = group[0]
    text = f"{delayed.slow.count:,} I/Os took {spelled(delayed.slow.cut_us)} or more"
    yield Fact("slow", delayed.slow.count, text, "ios")
    yield from duration_facts(
        ("wait_mean", delayed.mean_us, "each waited {} in the mean", delayed.ios),
        ("wait_max", delayed.longest_us, f"the longest wait was {_bounded(facts, delayed)}", delayed.ios),
        ("device", _device_us(delayed), "before that they took {} in HBA, fabric and device", len(delayed.outliers)),
    )
    if (most := _at_once(group)) > 1:
        of = sum(len(one.outliers) for one in group)
        yield Fact("at_once", most, f"{most} I/Os waited for one wake-up", "ios", of)
    if len(group) > 1:
        others = ", ".join(one.device for one in group[1:])
        yield Fact("others", others, f"{others} waited for the same thread", of=sum(one.ios for one in group[1:]))
    if woken is not None:
        yield from _thread_facts(facts, woken)
        return
    resumed = _resumed(facts, delayed.device)
    text = "resuming a thread took {} in the same text, its sleep included"
    if (open_us := facts.open_from_us("resume", delayed.device)) is not None:
        yield from duration_facts(("resume_max", open_us, text.format("{} or more"), resumed.count))
    elif resumed:
        yield from longest_fact("resume_max", resumed, text)
    for one in facts.device(delayed.device).reports:
        if one.name == THREAD_PRIORITY:
            yield Fact("priority", one.value, f"the priority of a thread is {one.value} ({one.source})")


def _bounded(facts: Facts, delayed: _DelayedIos) -> str:
    """Return the place of the longest wait in its sentence; `at most` where it is the bound of a bucket."""
    logged = any(one.stages_us.get(STAGE) == delayed.longest_us for one in delayed.outliers)
    return "{}" if logged or facts.traced_stage(STAGE, delayed.device).max is not None else "at most {}"


def _thread_facts(facts: Facts, woken: CompletionThread) -> Iterator[Fact]:
    if woken.name:
        yield Fact("thread", woken.name, f"{woken.name} completes them")
    if woken.priority is not None:
        yield Fact("priority", woken.priority, f"its priority is {priority_text(woken.priority, facts.origin.kernel)}")
    if woken.instead.label:
        yield woken.instead.fact
    if woken.wakeups is not None:
        delay = woken.wakeups.delay
        yield from duration_facts(("wakeup_p99", delay.quantile(0.99), "the p99 of its wake-ups is {}", delay.count))
        yield from longest_fact("wakeup_max", delay, "its latest wake-up took {}")


def _steps(facts: Facts, delayed: _DelayedIos, woken: CompletionThread | None) -> Iterator[Step]:
    if woken is None:
        yield Step("look at the wake-ups of kernel threads on screen 5: which thread is woken, and when does it run?")
        return
    by = woken.instead.label if woken.instead.us else ""
    yield Step(
        f"find out why {by or 'something'} keeps the CPU: is it meant to run for so long, and on that CPU?",
        commands=(threads(comm_of(by), is_sun=facts.is_sun),),
    )
    yield from _sun(facts, delayed, woken) if facts.is_sun else _linux(woken)


def _sun(facts: Facts, delayed: _DelayedIos, woken: CompletionThread) -> Iterator[Step]:
    thread_of = _OF_DRIVER.match(woken.name)  # the disk's own driver is sd, whose HBA completes the I/O
    driver = thread_of[1] if thread_of else facts.device(delayed.device).driver
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


def _linux(woken: CompletionThread) -> Iterator[Step]:
    thread = woken.name or "the completion thread"
    yield Step(
        f"move what runs instead to other CPUs, or lower it below {thread}",
        "its own work gets slower, which may be real-time work",
        ("taskset -cp CPUS TID",),
    )
    yield Step(
        f"else give {thread} real-time priority",
        "it may now keep others from the CPU; gone after a reboot or when the thread is recreated",
        (f"chrt -f -p 50 {pid_of(woken.number) or 'PID'}",),
    )


def _device_us(delayed: _DelayedIos) -> float | None:
    """Return the outliers' mean time between issue and interrupt; None where it was not timed."""
    times = [one.stages_us["hba"] for one in delayed.outliers if "hba" in one.stages_us]
    return sum(times) / len(times) if times else None


def _at_once(group: list[_DelayedIos]) -> int:
    """Return the greatest number of I/Os, of all devices, that waited for one wake-up."""
    moments = Counter(
        (wait.pid, wait.woken_us)
        for delayed in group
        for one in delayed.outliers
        for wait in one.waits
        if wait.stage == STAGE
    )
    return max(moments.values(), default=0)


RULE = Rule(
    ID,
    "slow I/Os wait for a completion thread that was woken and not run",
    evaluate,
    needs=TRACED,
    traced_part="resume",
    thresholds={
        "tail": Threshold(0.5, "share", "of the slow I/Os' time is the wait for the completion thread"),
        "delay_us": Threshold(10_000, "us", "that wait, in the slow I/Os' mean"),
        "ios": Threshold(3, "ios", "slow ones at least"),
        "long_us": Threshold(100_000, "us", "one such wait is enough; on a busy host workers wait less"),
        "blocks": Threshold(3, "blocks", "of a minute with such a wait, where none is so long"),
        "critical_us": Threshold(500_000, "us", "a wait of this makes it critical: a log writer's warning"),
    },
)
