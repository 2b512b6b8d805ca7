"""slow-shared-handler: another driver's slow interrupt handler runs before a disk's on the same vector.

It fires when a handler shares its vector with a disk's, belongs to another device, takes `run_us` or more in the mean
of `runs` runs at least, more than half of which were not handled (it returns IRQ_NONE), and the disk's handler waited
for those before it for `victim` or more of its devices' I/O time, or that wait is `tail` of the slow I/Os' time. The
devices behind the disk's handler must have completed `ios` I/Os in the minute and lost `time_us` of it: an idle disk
loses nothing worth a finding. Only interrupts that can have completed one of those I/Os count: where the handler ran
more often than that, as many of its runs as there were I/Os. Of several such vectors the worst is reported.
The other handler may be a disk controller's; its disks are named then.
It is a warning where it is `warning` of that time or of the slow I/Os', and critical where it is `critical` of the
latter. A slow handler that no disk waits for is none of ours, and one that works for its own device is busy, not in
the way. Without it the same shows as one drive that is unlike its peers (peer-outlier): this says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from latmon.findings.evidence import Slow, devices_of, slow
from latmon.findings.facts import Facts
from latmon.findings.finding import CRITICAL, NOTICE, WARNING, Fact, Finding, Step, Where, plain
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Handler, HandlerRuns
from latmon.support.units import part, spelled, whole

ID = "slow-shared-handler"
_STAGE = "irq"
_UNIT = re.compile(r"\d+$")
_REFUTED = (
    "the same slow I/Os once its module is gone or its vector is another: then the time passes in the device, or "
    "before the interrupt"
)


class _Met(NamedTuple):
    """A stranger's handler and a disk's on one vector, and what the disk's I/Os lose by it."""

    stranger: Handler
    runs: HandlerRuns
    victim: Handler
    waited: HandlerRuns
    devices: tuple[str, ...]
    """Behind the victim's handler, those with I/O."""
    ios: int
    lost_us: float
    lost: float
    """Share of all their I/O time."""
    of: tuple[str, ...]
    """Disks behind the stranger's handler; empty where it is no disk controller's."""
    tail: Slow | None
    """The slow I/Os of the first of them."""

    @property
    def tail_share(self) -> float:
        return self.tail.share(_STAGE) if self.tail else 0.0


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One finding per device: of each disk's handler on the one behind it that is hit the most, by its worst vector."""
    worst: dict[str, _Met] = {}
    for victim, waited in sorted(facts.handlers.items()):
        devices = devices_of(facts, waited.device)
        if devices and waited.before_us and (slowest := _stranger(facts, victim, waited, limits)):
            met = _met(facts, slowest, (victim, waited), devices)
            if met and _counts(met, limits):
                device = met.devices[0]
                worst[device] = max(worst.get(device, met), met, key=lambda one: one.lost)
    return [_finding(met, limits, is_sun=facts.is_sun) for met in worst.values()]


def _counts(met: _Met, limits: Thresholds) -> bool:
    if met.ios < limits["ios"] or met.lost_us < limits["time_us"]:
        return False
    return met.lost >= limits["victim"] or met.tail_share >= limits["tail"]


def _stranger(
    facts: Facts, victim: Handler, waited: HandlerRuns, limits: Thresholds
) -> tuple[Handler, HandlerRuns] | None:
    """Of those on its vector the one that took the most time."""
    found = [
        (handler, runs)
        for handler, runs in facts.handlers.items()
        if handler.irq == victim.irq
        and handler.name in waited.shared_with
        and not set(devices_of(facts, runs.device)) & set(devices_of(facts, waited.device))
        and runs.run.count >= max(1, limits["runs"])
        and (runs.run.mean or 0) >= limits["run_us"]
        and runs.returned.get("none", 0) > runs.run.count / 2
    ]
    return max(found, key=lambda one: (one[1].run.sum or 0, one[0]), default=None)


def _met(
    facts: Facts, slowest: tuple[Handler, HandlerRuns], mine: tuple[Handler, HandlerRuns], devices: tuple[str, ...]
) -> _Met | None:
    timed = {name: found for name in devices if (found := facts.latency(name)).sum}
    whole_us = sum(one.sum or 0 for one in timed.values())
    if not whole_us:
        return None
    tails = {name: _tail(facts, name) for name in timed}
    hit = sorted(timed, key=lambda name: (-(one.share(_STAGE) if (one := tails[name]) else 0.0), name))
    ios = sum(one.count for one in timed.values())
    lost_us = _lost_us(mine[1], ios)
    of = devices_of(facts, slowest[1].device)
    return _Met(*slowest, *mine, tuple(hit), ios, lost_us, min(1.0, lost_us / whole_us), of, tails[hit[0]])


def _lost_us(victim: HandlerRuns, ios: int) -> float:
    """Return the time that its interrupts waited for others', of no more interrupts than there were I/Os."""
    own = sum(n for returned, n in victim.returned.items() if returned != "none")
    return victim.before_us * min(1.0, ios / own) if own else float(victim.before_us)


def _tail(facts: Facts, device: str) -> Slow | None:
    return max(slow(facts, device), key=lambda one: one.share(_STAGE), default=None)


def _finding(met: _Met, limits: Thresholds, *, is_sun: bool) -> Finding:
    share = max(met.tail_share, met.lost)
    severe = CRITICAL if met.tail_share >= limits["critical"] else WARNING if share >= limits["warning"] else NOTICE
    device = met.devices[0]
    return Finding(
        ID,
        severe,
        device,
        _summary(met),
        tuple(_facts(met)),
        Where("interrupts", device),
        tuple(_steps(met, is_sun=is_sun)),
        _REFUTED,
        share,
        met.devices[1:],
    )


def _summary(met: _Met) -> str:
    device, tail = met.devices[0], met.tail
    others = f" (and {len(met.devices) - 1} more disks behind it)" if len(met.devices) > 1 else ""
    of = f" (of {', '.join(met.of)})" if met.of else ""
    begin = f"{device}{others}: its interrupts wait for the handler {met.stranger.name}{of}, which shares their vector"
    runs = f"and runs {spelled(met.runs.run.mean or 0)} in the mean, up to {spelled(met.runs.run.max_bound or 0)}"
    if tail and met.tail_share > met.lost:
        cost = f"{part(met.tail_share)} of the time of I/Os above {spelled(tail.cut_us)} passes in interrupts"
    else:
        cost = f"{part(met.lost)} of the I/Os' time is that wait"
    return f"{begin} {runs}, mostly for nothing; {cost}"


def _facts(met: _Met) -> Iterator[Fact]:
    runs, none = met.runs.run, met.runs.returned.get("none", 0)
    yield Fact("handler", met.stranger.name, f"{met.stranger.name} shares irq {met.victim.irq} with {met.victim.name}")
    if met.of:
        yield Fact("handler_of", ", ".join(met.of), f"{met.stranger.name} is the handler of {', '.join(met.of)}")
    if runs.mean is not None:
        yield Fact("run_mean", runs.mean, f"it runs {spelled(runs.mean)} in the mean", "us", runs.count)
    if runs.max_bound is not None:
        yield Fact("run_max", runs.max_bound, f"{spelled(runs.max_bound)} the longest", "us", runs.count)
    nothing = none / runs.count
    yield Fact("not_its_own", nothing, f"{part(nothing)} of its runs were not for its device", "share", runs.count)
    each = met.lost_us / met.ios
    yield Fact("before_each", each, f"{spelled(each)} per I/O of the disk it ran before the disk's", "us", met.ios)
    yield Fact("time_share", met.lost, f"{part(met.lost)} of the I/Os' time", "share", met.ios)
    if met.tail:
        above = f"I/Os above {spelled(met.tail.cut_us)}"
        yield Fact(
            "tail_share",
            met.tail_share,
            f"{part(met.tail_share)} of the time of {above} passes in interrupts",
            "share",
            met.tail.count,
        )
    if len(met.devices) > 1:
        yield Fact("devices", ", ".join(met.devices), f"behind {met.victim.name}: {whole(len(met.devices))} disks")


def _steps(met: _Met, *, is_sun: bool) -> Iterator[Step]:
    if not met.of:  # a disk controller's module stays: its disks would be gone
        module = _UNIT.sub("", met.stranger.name.partition(":")[0])
        name = module if plain(module) else "MODULE"
        unload = (f"modinfo | grep -w {name}", "modunload -i ID") if is_sun else (f"modprobe -r {name}",)
        known = "; known: it reads a register over PCIe at each interrupt" if name == "switchtec" else ""
        yield Step(
            f"find out what {met.stranger.name} is for, and unload its module if nobody needs it{known}",
            "what it manages (hot plug, LEDs, a port) is without a driver until it is loaded again",
            unload,
        )
    yield Step(
        "give the disk a vector of its own: another slot, MSI-X instead of a line, fewer vectors per device where "
        "they are shared out" + ("" if is_sun else " (vmd's max_vec)"),
        "a module loaded anew takes its disks away meanwhile, or a reboot",
    )
    proc = f"grep '^ *{met.victim.irq}:' /proc/interrupts"
    who = "echo ::interrupts -d | mdb -k" if is_sun else proc
    yield Step(f"look on screen 5 at the run time and name of each handler on irq {met.victim.irq}", commands=(who,))


RULE = Rule(ID, "the slow interrupt handler of another device runs before a disk's on the same vector", judge)
