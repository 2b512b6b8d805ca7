"""completion-wakeup: slow I/Os wait for a completion thread that is woken and not run.

It fires when the thread that completes a device's I/Os (an interrupt's thread, a worker, a thread of the HBA's driver)
holds `tail` or more of the slow I/Os' time, `delay_us` or more in their mean and `ios` of them at least. Devices that
wait for the same thread are one finding, on the first by name of those that have half as many as any other, or more.
The thread's own wake-ups must show it: woken, and run so much later. A row of a single I/O names the thread; else it is
one that was late by half of the mean wait or more, and whose name ties it to the device (its interrupt's thread, its
own or its driver's name). A thread that works for long, or that has much to do, is something else: where no such
thread is known to have been late, it is a notice that names none.
A busy host keeps its workers waiting for some ms now and then. So the longest wait must be `long_us`, or there must be
long ones in `blocks` blocks of a minute, or in as many minutes where a long capture is read by minutes. The
application's own waiter that is woken late is not meant: its I/O had completed. It is critical from a wait of
`critical_us` on.

A row names it. Without one it is a kernel thread that was woken as late and whose name ties it to the device; any other
late thread may be anybody's. No judgment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from latmon.analysis import priorities
from latmon.analysis.attribution import stages_of
from latmon.findings.evidence import Slow, lasting, long_ones, serves, slow
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where, plain, threads
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Outlier, Wait, Wakeups, pid_of
from latmon.model.histogram import Histogram
from latmon.support.units import part, spelled

STAGE = "completion"


class Completer(NamedTuple):
    """It was woken, and ran up to `longest_us` later."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: str
    """The thread that had its CPU for most of that time, as comm (prio N); empty when not known."""
    wakeups: Wakeups | None
    instead_us: int = 0
    """How long `instead` had the CPU in the waits of the I/Os that are known one by one; 0 where none is."""
    waits_us: int = 0
    """The sum of all those waits."""

    @property
    def is_mixed(self) -> bool:
        """Whether other threads had the CPU in some of the waits."""
        return 0 < self.instead_us < self.waits_us

    @property
    def said(self) -> str:
        prio = "" if self.priority is None else f"(prio {self.priority})"
        return " ".join(filter(None, ("the completion thread", self.name, prio)))


def by_rows(facts: Facts, told: Iterable[Outlier], delay_us: float) -> Completer | None:
    """Of those for which these I/Os waited so long or longer the one with the most of them."""
    long = [wait for one in told for wait in one.waits if wait.stage == STAGE and wait.delay_us >= delay_us]
    if not long:
        return None
    number = Counter(wait.pid for wait in long).most_common(1)[0][0]
    return _of_waits([wait for wait in long if wait.pid == number], facts)


def by_name(facts: Facts, device: str, delay_us: float) -> Completer | None:
    """The latest one that is tied to the device and was so late or later; None where none is."""
    late = [
        one
        for one in facts.wakeups
        if one.thread.kernel and (one.delay.max_bound or 0) >= delay_us and serves(facts, one.thread.comm, device)
    ]
    one = max(late, key=lambda some: (some.delay.max_bound or 0, some.thread.pid), default=None)
    if one is None:
        return None
    thread = one.thread
    priority = thread.priority if thread.priority >= 0 else None
    return Completer(thread.pid, thread.comm, priority, one.delay.max_bound or 0, _dominant(one.instead).label, one)


def _of_waits(waits: list[Wait], facts: Facts) -> Completer:
    longest = max(waits, key=lambda wait: wait.delay_us)
    told = next((one for one in facts.wakeups if one.thread.pid == longest.pid), None)
    labels = Counter[str]()
    for wait in waits:
        labels[wait.instead] += wait.delay_us
    by = _dominant({label: us for label, us in labels.items() if label})
    priorities = (longest.priority, told.thread.priority if told else -1)
    priority = next((one for one in priorities if one >= 0), None)
    return Completer(
        longest.pid,
        longest.thread,
        priority,
        longest.delay_us,
        by.label or (_dominant(told.instead).label if told else ""),
        told,
        by.weight,
        labels.total(),
    )


class _Dominant(NamedTuple):
    label: str = ""
    weight: int = 0


def _dominant(labels: Mapping[str, int]) -> _Dominant:
    """Return the thread with the greatest weight over all of its labels, as its own heaviest label.

    A label is `comm (prio N)`, and a thread's priority may change from wait to wait (a time-sharing class, a boost).
    """
    names = Counter[str]()
    for label, weight in labels.items():
        names[_comm(label)] += weight
    if not names:
        return _Dominant()
    name = max(names, key=lambda one: (names[one], one))
    own = [label for label in labels if _comm(label) == name]
    return _Dominant(max(own, key=lambda one: (labels[one], one)), names[name])


def _comm(label: str) -> str:
    return label.rpartition(" (prio ")[0] or label


ID = "completion-wakeup"
_EXPLAINS = 2
"""A thread explains a mean wait that is at most so many times as long as its own."""
_NEAR = 2
"""Counts that differ by less don't say which device is the one to name."""
_EMLXS = (
    "; known: Emulex' emlxs, bug 23075272 (emlxs completion thread model can affect performance on busy systems), "
    "patched in Solaris 11.3 SRU 8.7.0 (package driver/fc/emlxs), which made the waits shorter; a QLogic HBA had none"
)
_REFUTED = (
    "wake-ups of the completion thread (screen 5) that are short while the I/Os are slow: then it works for long, or "
    "other I/Os are before them in its queue"
)


class _Held(NamedTuple):
    """The slow I/Os of one device that its completion thread held."""

    slow: Slow
    ios: int
    mean_us: float
    longest_us: int
    told: tuple[Outlier, ...]
    """Those of them that are told one by one."""

    @property
    def device(self) -> str:
        return self.slow.device


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per thread that I/Os wait for; where none is known, per device."""
    groups: dict[int | str, list[tuple[_Held, Completer | None]]] = {}
    for device in facts.busy:
        if held := _held(facts, device, limits):
            woken = _woken(facts, held, limits)
            groups.setdefault(woken.number if woken else device, []).append((held, woken))
    for group in groups.values():
        most = max(held.ios for held, _ in group)
        # counts that are near change places from block to block; names don't
        group.sort(key=lambda one: (one[0].ios < most / _NEAR, one[0].device))
        if sum(held.ios for held, _ in group) >= limits["ios"]:
            yield _finding(facts, [held for held, _ in group], group[0][1], limits)


def _held(facts: Facts, device: str, limits: Thresholds) -> _Held | None:
    waits = stages_of(facts.traced, device).get(STAGE, Histogram())
    told = tuple(one for one in facts.outliers(device) if one.stages_us.get(STAGE, 0) >= limits["delay_us"])
    longest = max(waits.max_bound or 0, *(one.stages_us.get(STAGE, 0) for one in told), 0)
    if longest < limits["long_us"] and lasting(facts, device, STAGE, limits["delay_us"]) < limits["blocks"]:
        return None
    for one in slow(facts, device):
        if one.share(STAGE) >= limits["tail"] and one.mean_us(STAGE) >= limits["delay_us"]:
            ios = min(one.count, long_ones(waits, limits["delay_us"]) or len(told))
            return _Held(one, ios, one.us.get(STAGE, 0) / ios, longest, told) if ios else None
    return None


def _woken(facts: Facts, held: _Held, limits: Thresholds) -> Completer | None:
    """Whom its I/Os waited for; None where nothing ties a late thread to them."""
    found = by_rows(facts, held.told, limits["delay_us"])
    return found or by_name(facts, held.device, held.mean_us / _EXPLAINS)


def _finding(facts: Facts, group: list[_Held], woken: Completer | None, limits: Thresholds) -> Finding:
    held = group[0]
    longest = max(one.longest_us for one in group)
    severity = NOTICE if woken is None else CRITICAL if longest >= limits["critical_us"] else WARNING
    return Finding(
        ID,
        severity,
        held.device,
        _summary(held, woken),
        tuple(_facts(facts, group, woken)),
        Where("stages", held.device, low_us=held.slow.cut_us),
        tuple(_steps(facts, held, woken)),
        _REFUTED,
        held.slow.share(STAGE),
        tuple(one.device for one in group[1:]),
    )


def _summary(held: _Held, woken: Completer | None) -> str:
    share = part(held.slow.share(STAGE))
    begin = f"{held.device}: {share} of the time of I/Os above {spelled(held.slow.cut_us)}"
    if woken is None:
        return (
            f"{begin} passes between their interrupt and the thread that completes them, {spelled(held.mean_us)} in "
            "the mean; whether it was woken late is not known here"
        )
    instead = f" while {'mostly ' if woken.is_mixed else ''}{woken.instead} had its CPU" if woken.instead else ""
    device = _device_us(held)
    itself = f"; the device itself took {spelled(device)}" if device is not None else ""
    return (
        f"{begin} is a wait for {woken.said}, which was woken and ran "
        f"up to {spelled(woken.longest_us)} later{instead}{itself}"
    )


def _facts(facts: Facts, group: list[_Held], woken: Completer | None) -> Iterator[Fact]:
    held = group[0]
    above = spelled(held.slow.cut_us)
    yield Fact("slow", held.slow.count, f"{held.slow.count:,} I/Os took {above} or more", "ios")
    yield Fact("wait_mean", held.mean_us, f"{spelled(held.mean_us)} each in the mean", "us", held.ios)
    yield Fact("wait_max", held.longest_us, f"{spelled(held.longest_us)} the longest", "us", held.ios)
    if (device := _device_us(held)) is not None:
        yield Fact("device", device, f"{spelled(device)} in HBA, fabric and device", "us", len(held.told))
    if (most := _at_once(group)) > 1:
        yield Fact("at_once", most, f"{most} I/Os were held by one wake-up", "ios", sum(len(one.told) for one in group))
    if len(group) > 1:
        others = ", ".join(one.device for one in group[1:])
        yield Fact("others", others, f"{others} waited for the same thread", of=sum(one.ios for one in group[1:]))
    if woken is not None:
        yield from _thread_facts(facts, woken)


def _thread_facts(facts: Facts, woken: Completer) -> Iterator[Fact]:
    if woken.name:
        yield Fact("thread", woken.name, f"{woken.name} completes them")
    if woken.priority is not None:
        yield Fact(
            "priority", woken.priority, f"its priority is {priorities.said(woken.priority, facts.origin.kernel)}"
        )
    if woken.instead:
        shared = f" for {spelled(woken.instead_us)} of {spelled(woken.waits_us)}" if woken.is_mixed else " meanwhile"
        yield Fact("instead", woken.instead, f"{woken.instead} ran on its CPU{shared}")
    if woken.wakeups is not None:
        delay = woken.wakeups.delay
        if (p99 := delay.quantile(0.99)) is not None:
            yield Fact("wakeup_p99", p99, f"p99 of its wake-ups {spelled(p99)}", "us", delay.count)
        if (top := delay.max_bound) is not None:
            yield Fact("wakeup_max", top, f"its latest wake-up took {spelled(top)}", "us", delay.count)


def _steps(facts: Facts, held: _Held, woken: Completer | None) -> Iterator[Step]:
    if woken is None:
        yield Step("watch the wake-ups of kernel threads on screen 5: who is woken and when does it run?")
        return
    yield Step(
        f"find out why {woken.instead or 'something'} keeps the CPU, and whether it is meant to run so long, and there",
        commands=(threads(woken.instead, is_sun=facts.is_sun),),
    )
    yield from _sun(facts, held) if facts.is_sun else _linux(woken)


def _sun(facts: Facts, held: _Held) -> Iterator[Step]:
    driver = known.driver if (known := facts.devices.get(held.device)) else ""
    bug = _EMLXS if driver == "emlxs" else ""
    yield Step(
        "look for a driver whose completion threads have a higher priority, or none: a patch of the HBA's driver, "
        f"another HBA{bug}",
        "a reboot; each completes in its own way, so compare before and after with latmon diff",
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


def _linux(woken: Completer) -> Iterator[Step]:
    thread = woken.name or "the completion thread"
    yield Step(
        f"move what runs instead to other CPUs, or lower it below {thread}",
        "its own work gets slower, which may be real-time work",
        ("taskset -cp CPUS TID",),
    )
    yield Step(
        f"else give {thread} real-time priority",
        "it may now keep others from the CPU; gone after a reboot or when the thread is made anew",
        (f"chrt -f -p 50 {pid_of(woken.number) or 'PID'}",),
    )


def _device_us(held: _Held) -> float | None:
    """The mean time between issue and interrupt of those that are told."""
    times = [one.stages_us["hba"] for one in held.told if "hba" in one.stages_us]
    return sum(times) / len(times) if times else None


def _at_once(group: list[_Held]) -> int:
    """The most I/Os, of all devices, that one wake-up held."""
    moments = Counter(
        (wait.pid, wait.woken_us) for held in group for one in held.told for wait in one.waits if wait.stage == STAGE
    )
    return max(moments.values(), default=0)


RULE = Rule(ID, "slow I/Os wait for a completion thread that was woken and not run", judge)
