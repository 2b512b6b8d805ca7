"""slow-shared-handler: another driver's slow interrupt handler runs before a disk's on the same vector.

So do handlers that a third one calls one after the other (VMD, MSI demultiplexers), each with an irq of its own.
A handler that serves its own device is no finding. Only interrupts that can have completed an I/O count: where the
disk's handler ran more often than there were I/Os, as many of its runs as I/Os. The other handler may be a disk
controller's; then its disks are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.findings.evidence import SlowIos, devices_of, host_before, slow_ios
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
    short_text,
    within,
)
from latmon.model.measurements import HANDLERS
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler, HandlerRuns
from latmon.support.units import part, spelled, whole

ID = "slow-shared-handler"
_STAGE = "irq"
_UNIT = re.compile(r"\d+$")
_REFUTED = (
    "the same slow I/Os once its module is gone or its vector is another: then the time passes in the device, or "
    "before the interrupt"
)


class _SharedVector(NamedTuple):
    """Another device's handler and a disk's on one vector, and the time that the disk's I/Os lose."""

    other: Handler
    runs: HandlerRuns
    victim: Handler
    waited: HandlerRuns
    devices: tuple[str, ...]
    """Devices with I/O that the victim's handler serves."""
    ios: int
    lost_us: float
    lost: float
    """The lost share of all their I/O time."""
    of: tuple[str, ...]
    """Disks that the other handler serves; empty where it is not a disk controller's."""
    tail: SlowIos | None
    """The slow I/Os of the first device."""

    @property
    def called(self) -> bool:
        """Return whether the handler of another irq calls both."""
        return self.other.irq != self.victim.irq

    @property
    def irq(self) -> int:
        """Return the irq that both share."""
        return self.waited.caller if self.called else self.victim.irq

    @property
    def tail_share(self) -> float:
        return self.tail.share(_STAGE) if self.tail else 0.0


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Return one finding per disk handler's most affected device, on that device's worst vector."""
    worst: dict[str, _SharedVector] = {}
    slow = [(handler, runs) for handler, runs in facts[HANDLERS].items() if _is_slow_for_others(runs, limits)]
    for victim, waited in sorted(facts[HANDLERS].items()) if slow else ():
        devices = devices_of(facts, waited.device)
        if devices and waited.before_us and (slowest := _slowest_other(facts, slow, (victim, waited))):
            shared = _shared_vector(facts, slowest, (victim, waited), devices)
            if shared and _is_worth_a_finding(shared, limits):
                device = shared.devices[0]
                worst[device] = max(worst.get(device, shared), shared, key=lambda shared_handler: shared_handler.lost)
    return [_finding(facts, shared, limits) for shared in worst.values()]


def _is_worth_a_finding(shared: _SharedVector, limits: Thresholds) -> bool:
    if shared.ios < limits["ios"] or shared.lost_us < limits["time_us"]:
        return False
    return shared.lost >= limits["victim"] or shared.tail_share >= limits["tail"]


def _is_slow_for_others(runs: HandlerRuns, limits: Thresholds) -> bool:
    """Return whether a handler takes long, and most of its runs are for interrupts of others."""
    if runs.run.count < max(1, limits["runs"]) or (runs.run.mean or 0) < limits["run_us"]:
        return False
    return runs.returned.get("none", 0) > runs.run.count / 2


def _slowest_other(
    facts: Facts, slow: Sequence[tuple[Handler, HandlerRuns]], mine: tuple[Handler, HandlerRuns]
) -> tuple[Handler, HandlerRuns] | None:
    """Return the other device's slow handler on the victim's vector that took the most time; None without one."""
    waited = mine[1]
    others_by_time = [
        (handler, runs)
        for handler, runs in slow
        if _on_one_vector((handler, runs), mine)
        and handler.name in waited.shared_with
        and not set(devices_of(facts, runs.device)) & set(devices_of(facts, waited.device))
    ]
    return max(others_by_time, key=lambda row: (row[1].run.sum or 0, row[0]), default=None)


def _on_one_vector(first: tuple[Handler, HandlerRuns], other: tuple[Handler, HandlerRuns]) -> bool:
    """Return whether two handlers run one after the other in one interrupt."""
    caller = first[1].caller
    return first[0].irq == other[0].irq or (caller != UNKNOWN_IRQ and caller == other[1].caller)


def _shared_vector(
    facts: Facts, slowest: tuple[Handler, HandlerRuns], mine: tuple[Handler, HandlerRuns], devices: tuple[str, ...]
) -> _SharedVector | None:
    timed = {name: latency_here for name in devices if (latency_here := facts.latency(name)).sum}
    whole_us = sum(histogram.sum or 0 for histogram in timed.values())
    if not whole_us:
        return None
    tails = {name: _tail(facts, name) for name in timed}
    hit = sorted(timed, key=lambda name: (-(tail.share(_STAGE) if (tail := tails[name]) else 0.0), name))
    ios = sum(histogram.count for histogram in timed.values())
    waited_us = mine[1].before_us
    if slowest[0].irq != mine[0].irq:  # since the entry of the handler that calls both, whose own work is in it
        waited_us = min(waited_us, slowest[1].run.sum or 0)
    lost_us = _lost_us(mine[1], waited_us, ios)
    of = devices_of(facts, slowest[1].device)
    return _SharedVector(*slowest, *mine, tuple(hit), ios, lost_us, min(1.0, lost_us / whole_us), of, tails[hit[0]])


def _lost_us(victim: HandlerRuns, waited_us: int, ios: int) -> float:
    """Return the part of the wait of its interrupts that is of at most one interrupt per I/O."""
    own = sum(n for returned, n in victim.returned.items() if returned != "none")
    return waited_us * min(1.0, ios / own) if own else float(waited_us)


def _tail(facts: Facts, device: str) -> SlowIos | None:
    return max(slow_ios(facts, device), key=lambda tail: tail.share(_STAGE), default=None)


def _finding(facts: Facts, shared: _SharedVector, limits: Thresholds) -> Finding:
    host = host_before(facts, shared.other.name)
    share = max(shared.tail_share, shared.lost)
    severity: Severity = NOTICE
    if shared.tail_share >= limits["critical"]:
        severity = CRITICAL
    elif share >= limits["warning"]:
        severity = WARNING
    device = shared.devices[0]
    return Finding(
        id=ID,
        severity=severity,
        device=device,
        summary=_summary(shared),
        facts=tuple(_facts(shared)),
        where=Where("interrupts", device),
        steps=tuple(_steps(shared, host, is_sun=facts.is_sun)),
        refuted_by=_REFUTED,
        share=max(shared.lost, shared.tail.lost_share(facts, _STAGE) if shared.tail else 0.0),
        also=shared.devices[1:],
        short=_short(shared),
    )


def _cause(shared: _SharedVector) -> str:
    """Return the begin of the sentence: which disk's interrupts wait, and for which handler."""
    device = shared.devices[0]
    others = f" (and {len(shared.devices) - 1} more disks of its handler)" if len(shared.devices) > 1 else ""
    of = f" (of {', '.join(shared.of)})" if shared.of else ""
    how = f"which irq {shared.irq} calls before theirs" if shared.called else "which shares their vector"
    return f"{device}{others}: its interrupts wait for the handler {shared.other.name}{of}, {how}"


def _summary(shared: _SharedVector) -> str:
    tail = shared.tail
    runs = f"and runs {spelled(shared.runs.run.mean or 0)} on average, up to {spelled(shared.runs.run.max_bound or 0)}"
    if tail and shared.tail_share > shared.lost:
        cost = f"{tail.share_text(_STAGE)} passes in interrupts"
    else:
        cost = f"{part(shared.lost)} of the I/Os' time is that wait"
    return f"{_cause(shared)} {runs}, mostly not handled (IRQ_NONE); {cost}"


def _short(shared: _SharedVector) -> str:
    share, whose = (shared.lost, "the") if shared.tail_share <= shared.lost else (shared.tail_share, "slow")
    verdict = f"{part(share)} of {whose} I/Os' time waits for a handler"
    return short_text(shared.devices[0], verdict, f": {within(shared.other.name)} on irq {shared.irq}")


def _facts(shared: _SharedVector) -> Iterator[Fact]:
    runs, none = shared.runs.run, shared.runs.returned.get("none", 0)
    text = f"{shared.other.name} shares irq {shared.irq} with {shared.victim.name}"
    if shared.called:
        text = f"irq {shared.irq} calls {shared.other.name} and {shared.victim.name} one after the other"
    yield Fact("handler", shared.other.name, text)
    if shared.of:
        yield Fact("handler_of", ", ".join(shared.of), f"{shared.other.name} is the handler of {', '.join(shared.of)}")
    yield from duration_facts(("run_mean", runs.mean, "it runs {} on average", runs.count))
    yield from longest_fact("run_max", runs, "its longest run took {}")
    unhandled = none / runs.count
    text = f"{part(unhandled)} of its runs were not handled (IRQ_NONE)"
    yield Fact("not_its_own", unhandled, text, "share", runs.count)
    per_io_us = shared.lost_us / shared.ios
    yield from duration_facts(("before_each", per_io_us, "per I/O it ran {} before the disk's handler", shared.ios))
    yield Fact("time_share", shared.lost, f"that wait is {part(shared.lost)} of the I/Os' time", "share", shared.ios)
    if tail := shared.tail:
        text = f"{tail.share_text(_STAGE)} passes in interrupts"
        yield Fact("tail_share", shared.tail_share, text, "share", tail.count)
    if len(shared.devices) > 1:
        yield Fact(
            "devices", ", ".join(shared.devices), f"{shared.victim.name} serves {whole(len(shared.devices))} disks"
        )


def _steps(shared: _SharedVector, host: str, *, is_sun: bool) -> Iterator[Step]:
    if not shared.of:  # a disk controller's module stays: its disks would be gone
        module = _UNIT.sub("", shared.other.name.removeprefix(host).partition(":")[0])
        name = module if plain(module) else "MODULE"
        unload = (f"modinfo | grep -w {name}", "modunload -i ID") if is_sun else (f"modprobe -r {name}",)
        known = "; known: it reads a register over PCIe at each interrupt" if name == "switchtec" else ""
        yield Step(
            f"find out what {shared.other.name} is for, and unload its module if nothing needs it{known}",
            "what it manages (hot plug, LEDs, a port) is without a driver until it is loaded again",
            unload,
        )
    yield Step(
        "give the disk a vector of its own: another slot, MSI-X instead of a line, fewer vectors per device where "
        "devices share a pool of them" + ("" if is_sun else " (vmd's max_vec)"),
        "while its module reloads, its disks are gone; or a reboot",
    )
    proc = f"grep '^ *{shared.irq}:' /proc/interrupts"
    who = "echo ::interrupts -d | mdb -k" if is_sun else proc
    yield Step(f"look on screen 5 at the run time and name of each handler on irq {shared.irq}", commands=(who,))


RULE = Rule(
    ID,
    "the slow interrupt handler of another device runs before a disk's on the same vector, or a third one (VMD's) "
    "calls both",
    evaluate,
    needs=TRACED,
    traced_part="handlers",
    thresholds={
        "run_us": Threshold(2, "us", "another device's handler takes on average, in the interrupt of a disk's"),
        "runs": Threshold(100, "runs", "of that handler at least"),
        "ios": Threshold(100, "ios", "of the victim in the minute at least; an idle disk has none worth a finding"),
        "time_us": Threshold(10_000, "us", "of the victim's I/O time in the minute passed in that wait, at least"),
        "victim": Threshold(0.05, "share", "of the victim's I/O time its handler waited for others"),
        "tail": Threshold(0.2, "share", "or so much of its slow I/Os' time passed in interrupts"),
        "warning": Threshold(0.1, "share", "of either: a warning, below it a notice"),
        "critical": Threshold(0.5, "share", "of the slow I/Os' time: critical"),
    },
)
