"""completion-wakeup: slow I/Os wait for a completion thread that was woken and not run.

It fires when the thread that completes a device's I/Os (an interrupt's thread, a worker, a thread of the HBA's driver)
holds `tail` or more of the slow I/Os' time, `delay_us` or more in their mean and `ios` of them at least. Devices that
wait for the same thread are one finding, on the one with the most of them.
The thread's own wake-ups must show it: woken, and run so much later. A thread that works for long, or that has much to
do, is something else; where nothing here times wake-ups, it is a notice that says so.
A busy host keeps its workers waiting for some ms now and then. So the longest wait must be `long_us`, or there must be
long ones in `blocks` blocks of a minute. The application's own waiter that is woken late is not meant: its I/O had
completed. It is critical from a wait of `critical_us` on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.deep import stages_of
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.findings.slow import Slow, lasting, long_ones, slow
from latmon.histogram import Histogram
from latmon.model import Outlier, Wait, Wakeups, pid_of
from latmon.words import part, spelled

ID = "completion-wakeup"
_STAGE = "completion"
_REAL_TIME = 100
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


class _Woken(NamedTuple):
    """The thread, as its wake-ups tell it."""

    number: int
    name: str
    priority: int | None
    longest_us: int
    instead: str
    """Who most often had its CPU, as comm (prio N); empty when not known."""
    wakeups: Wakeups | None

    @property
    def said(self) -> str:
        return " ".join(filter(None, ("the completion thread", self.name, self.prio)))

    @property
    def prio(self) -> str:
        return "" if self.priority is None else f"(prio {self.priority})"


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per thread that I/Os wait for, on the device with the most of them."""
    groups: dict[int | None, list[tuple[_Held, _Woken | None]]] = {}
    for device in facts.busy:
        if held := _held(facts, device, limits):
            woken = _woken(facts, held, limits)
            groups.setdefault(woken.number if woken else None, []).append((held, woken))
    for group in groups.values():
        group.sort(key=lambda one: (-one[0].ios, one[0].device))
        if sum(held.ios for held, _ in group) >= limits["ios"]:
            yield _finding(facts, [held for held, _ in group], group[0][1], limits)


def _held(facts: Facts, device: str, limits: Thresholds) -> _Held | None:
    waits = stages_of(facts.traced, device).get(_STAGE, Histogram())
    told = tuple(one for one in facts.outliers(device) if one.stages_us.get(_STAGE, 0) >= limits["delay_us"])
    longest = max(waits.max_bound or 0, *(one.stages_us[_STAGE] for one in told), 0)
    if longest < limits["long_us"]:
        blocks = lasting(facts, device, _STAGE, limits["delay_us"])
        if blocks < min(limits["blocks"], len(facts.window)):
            return None
    for one in slow(facts, device):
        if one.share(_STAGE) >= limits["tail"] and one.mean_us(_STAGE) >= limits["delay_us"]:
            ios = min(one.count, long_ones(waits, limits["delay_us"]) or len(told))
            return _Held(one, ios, one.us[_STAGE] / ios, longest, told) if ios else None
    return None


def _woken(facts: Facts, held: _Held, limits: Thresholds) -> _Woken | None:
    """Whom its I/Os waited for; None where no wake-up is known that explains them."""
    waits = [wait for one in held.told for wait in one.waits if wait.stage == _STAGE]
    long = [wait for wait in waits if wait.delay_us >= limits["delay_us"]]
    if long:
        number = Counter(wait.pid for wait in long).most_common(1)[0][0]
        return _of_waits([wait for wait in long if wait.pid == number], facts)
    late = [one for one in facts.wakeups if one.thread.kernel and (one.delay.max_bound or 0) >= held.mean_us / 2]
    if not late:
        return None
    one = max(late, key=lambda some: (some.delay.max_bound or 0, some.thread.pid))
    thread = one.thread
    priority = thread.priority if thread.priority >= 0 else None
    return _Woken(thread.pid, thread.comm, priority, one.delay.max_bound or 0, _most(one), one)


def _of_waits(waits: list[Wait], facts: Facts) -> _Woken:
    longest = max(waits, key=lambda wait: wait.delay_us)
    told = next((one for one in facts.wakeups if one.thread.pid == longest.pid), None)
    instead = Counter({wait.instead: wait.delay_us for wait in waits if wait.instead}).most_common(1)
    known = instead[0][0] if instead else _most(told) if told else ""
    priorities = (longest.priority, told.thread.priority if told else -1)
    priority = next((one for one in priorities if one >= 0), None)
    return _Woken(longest.pid, longest.thread, priority, longest.delay_us, known, told)


def _finding(facts: Facts, group: list[_Held], woken: _Woken | None, limits: Thresholds) -> Finding:
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
        tuple(_steps(facts, woken)),
        _REFUTED,
        held.slow.share(_STAGE),
    )


def _summary(held: _Held, woken: _Woken | None) -> str:
    share = part(held.slow.share(_STAGE))
    begin = f"{held.device}: {share} of the time of I/Os above {spelled(held.slow.cut_us)}"
    if woken is None:
        return (
            f"{begin} passes between their interrupt and the thread that completes them, {spelled(held.mean_us)} in "
            "the mean; whether it was woken late is not known here"
        )
    instead = f" while {woken.instead} had its CPU" if woken.instead else ""
    device = _device_us(held)
    itself = f"; the device itself took {spelled(device)}" if device is not None else ""
    return (
        f"{begin} is a wait for {woken.said}, which was woken and ran "
        f"up to {spelled(woken.longest_us)} later{instead}{itself}"
    )


def _facts(facts: Facts, group: list[_Held], woken: _Woken | None) -> Iterator[Fact]:
    held = group[0]
    share = held.slow.share(_STAGE)
    slow_ones = f"I/Os above {spelled(held.slow.cut_us)}"
    yield Fact("tail_share", share, f"{part(share)} of the time of {slow_ones}", "share", held.slow.count)
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


def _thread_facts(facts: Facts, woken: _Woken) -> Iterator[Fact]:
    if woken.name:
        yield Fact("thread", woken.name, f"{woken.name} completes them")
    if woken.priority is not None:
        yield Fact("priority", woken.priority, f"its priority is {_priority(facts, woken.priority)}")
    if woken.instead:
        yield Fact("instead", woken.instead, f"{woken.instead} ran on its CPU meanwhile")
    if woken.wakeups is not None:
        delay = woken.wakeups.delay
        if (p99 := delay.quantile(0.99)) is not None:
            yield Fact("wakeup_p99", p99, f"p99 of its wake-ups {spelled(p99)}", "us", delay.count)
        if (top := delay.max_bound) is not None:
            yield Fact("wakeup_max", top, f"its latest wake-up took {spelled(top)}", "us", delay.count)


def _steps(facts: Facts, woken: _Woken | None) -> Iterator[Step]:
    if woken is None:
        yield Step("watch the wake-ups of kernel threads on screen 5: who is woken and when does it run?")
        return
    yield Step(f"find out why {woken.instead or 'something'} keeps the CPU: is it meant to run so long, and there?")
    if _is_sun(facts):
        yield Step(
            "look for a driver whose completion threads have a higher priority, or none: a patch of the HBA's driver, "
            "another HBA",
            "a reboot; each completes in its own way, so compare before and after with latmon diff",
        )
        yield Step(
            "keep the load off those CPUs (psrset, a smaller pool of busy threads)", "less throughput for that load"
        )
        return
    thread = woken.name or "the completion thread"
    yield Step(
        f"move what runs instead to other CPUs (taskset, cpuset), or lower it below {thread}",
        "its own work gets slower, which may be real-time work",
    )
    yield Step(
        f"else give {thread} real-time priority: chrt -f -p 50 {pid_of(woken.number) or 'PID'}",
        "it may now keep others from the CPU; gone after a reboot or when the thread is made anew",
    )


def _device_us(held: _Held) -> float | None:
    """The mean time between issue and interrupt of those that are told."""
    times = [one.stages_us["hba"] for one in held.told if "hba" in one.stages_us]
    return sum(times) / len(times) if times else None


def _at_once(group: list[_Held]) -> int:
    """The most I/Os, of all devices, that one wake-up held."""
    moments = Counter(
        (wait.pid, wait.woken_us) for held in group for one in held.told for wait in one.waits if wait.stage == _STAGE
    )
    return max(moments.values(), default=0)


def _priority(facts: Facts, priority: int) -> str:
    if _is_sun(facts):
        return f"{priority}; a higher number goes first"
    kind = "real time" if priority < _REAL_TIME else "an ordinary thread's"
    return f"{priority} ({kind}); a lower number goes first"


def _is_sun(facts: Facts) -> bool:
    return facts.origin.kernel.startswith("SunOS")


def _most(one: Wakeups) -> str:
    return max(one.instead, key=lambda name: (one.instead[name], name), default="")


RULE = Rule(ID, "slow I/Os wait for a completion thread that was woken and not run", judge)
