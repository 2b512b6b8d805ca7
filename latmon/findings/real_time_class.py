"""Programs whose I/Os wait behind those of a program of the real-time I/O class, for the rule low-io-priority."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.programs import program_of
from latmon.findings.queue_waits import (
    QueueWaits,
    are_long,
    least_share_of_bytes,
    share_of_bytes,
    staged_outliers,
    wait_facts,
)
from latmon.findings.rule import FLEET, WARNING, Fact, Finding, Step, Thresholds, Where, short_text, within
from latmon.model.frame import Outlier
from latmon.model.measurements import IO_PRIORITIES
from latmon.model.measurements.io_priorities import REAL_TIME, IoPriority
from latmon.support.units import counted, part, spelled

_NAME_CELLS = 14
_REFUTED = "the waits stay after that program has the usual priority (`ionice -c2 -n4`)"


class WaitsBehind(NamedTuple):
    """The slow I/Os of a process of the usual priority, behind a program of the real-time class."""

    waits: QueueWaits
    first: IoPriority
    """The program of the real-time class."""
    share: float
    """Its share of the device's bytes, at least."""


def waits_behind(
    facts: Facts, device: str, scheduler: str, priorities: Collection[IoPriority], limits: Thresholds
) -> Iterator[WaitsBehind]:
    """Yield the processes that wait behind one of the real-time class, which moves most of the device's bytes.

    Where bytes of processes are not measured by device, its bytes on all devices must leave as many for this one. None
    on the hosts of a fleet, whose pids are not unique.
    """
    if facts.origin.backend == FLEET:
        return
    shares = {row: _share(facts, device, row) for row in priorities if row.io_class == REAL_TIME}
    if not shares:
        return
    first = max(shares, key=lambda row: shares[row])
    if shares[first] < limits["others"]:
        return
    unusual = {row.process.rpartition("/")[2] for row in priorities}
    ios: dict[str, list[Outlier]] = {}
    for outlier in staged_outliers(facts, device):
        if str(outlier.pid) not in unusual:
            ios.setdefault(f"{outlier.comm}/{outlier.pid}", []).append(outlier)
    median_us = facts.latency(device).quantile(0.5) or 0
    for process, outliers in ios.items():
        waits = QueueWaits(process, device, scheduler, outliers, median_us)
        if are_long(facts, waits, limits):
            yield WaitsBehind(waits, first, shares[first])


def _share(facts: Facts, device: str, row: IoPriority) -> float:
    measured = share_of_bytes(facts, device, row.process)
    if measured is not None:
        return measured
    return least_share_of_bytes(facts, device, facts[IO_PRIORITIES][row].io_bytes)


def finding_behind(facts: Facts, rule_id: str, several: Sequence[WaitsBehind]) -> Finding:
    """Return the finding about the first of several processes that wait behind the same program."""
    waits, first, _ = several[0]
    program = program_of(first.process)
    blamed_name = within(program.name or "another one", _NAME_CELLS)
    waiting_name = within(waits.program.name or "a program", _NAME_CELLS)
    return Finding(
        id=rule_id,
        severity=WARNING,
        device=waits.device,
        summary=f"{waits.text}, because {program.text} has the I/O class {REAL_TIME}: {waits.meanwhile}",
        facts=tuple(_facts(several)),
        where=Where("outliers", waits.device),
        steps=tuple(_steps(first)),
        refuted_by=_REFUTED,
        share=waits.lost_share(facts),
        state=(waits.process, f"behind {first.process}"),
        short=short_text(
            waits.device,
            f"{waiting_name} waits {spelled(waits.mean_us)}: {blamed_name} is {REAL_TIME}",
            f" in {waits.scheduler}'s queue",
        ),
    )


def _facts(waits_behinds: Sequence[WaitsBehind]) -> Iterator[Fact]:
    waits, first, share = waits_behinds[0]
    yield Fact("process", waits.process, f"{waits.process} has the usual I/O priority")
    yield Fact("behind", first.process, f"{first.process} has the I/O class {REAL_TIME}, level {first.level}")
    text = f"{part(share)} or more of the bytes of {waits.device} are of {first.process}"
    yield Fact("behind_share", round(share, 3), text, "share")
    yield from wait_facts(waits)
    for at, other in enumerate(waits_behinds[1:4], 1):
        process = other.waits.process
        text = f"{process} waits, too: {counted(len(other.waits.ios), 'slow I/O')}"
        yield Fact(f"other_{at}", process, text)


def _steps(first: IoPriority) -> Iterator[Step]:
    name, _, pid = first.process.rpartition("/")
    process = pid if pid.isdecimal() else "PID"
    yield Step(
        f"ask whether {within(name) or 'that program'} needs the real-time class, and who set it: a script with "
        "ionice, IOSchedulingClass= of a systemd unit, or a real-time policy of the CPU (chrt), which gives it, too",
        commands=(f"ionice -p {process}",),
    )
    yield Step(
        "give that program the usual priority; each of its threads has one of its own (/proc/PID/task)",
        f"its own I/Os wait like those of others; undone by `ionice -c1 -n{first.level} -p {process}`",
        (f"ionice -c2 -n4 -p {process}",),
    )
    yield Step("if it needs the class, give it a device of its own, or let it do less I/O at a time", "it gets slower")
