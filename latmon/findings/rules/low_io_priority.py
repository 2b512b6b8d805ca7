"""low-io-priority: I/Os of a program wait in the scheduler's queue, because its I/O priority is lower than others'.

A program of the idle class (`ionice -c3`, systemd's IOSchedulingClass=idle) is served when no other one has I/Os: by
mq-deadline after 10 s at the latest (prio_aging_expire), by bfq once in 200 ms (BFQ_CL_IDLE_TIMEOUT). A low level of
best-effort, which also a nice value gives, has a small share of the device under bfq. The device's own times are good
meanwhile, and programs of the usual priority see nothing. No finding: a scheduler that heeds no priority, I/Os that
wait in the driver, a device that does hardly anything but the program's own I/Os, and slow I/Os of the usual priority
that wait about as long.

A program of the real-time class (`ionice -c1`, or one with a real-time policy) is served before all others, so that
those of the usual priority wait as long as it has I/Os. Most of the device's bytes are then its own
(`findings/real_time_class.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from latmon.analysis.limits import elevator
from latmon.findings.facts import Facts
from latmon.findings.queue_waits import QueueWaits, are_long, queue_us, share_of_bytes, staged_outliers, wait_facts
from latmon.findings.real_time_class import finding_behind, waits_behind
from latmon.findings.rule import (
    FLEET,
    PRIORITIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
    within,
)
from latmon.model.frame import Outlier
from latmon.model.measurements import IO_PRIORITIES
from latmon.model.measurements.io_priorities import HEEDED, IDLE_CLASS, REAL_TIME, IoPriority
from latmon.support.units import counted, part, show_size, spelled

ID = "low-io-priority"
_NAME_CELLS = 14
_REFUTED = "its I/Os wait as long with the usual priority (`ionice -c2 -n4`), or with the scheduler `none`"


class _Delayed(NamedTuple):
    """The slow I/Os of a process with a low priority."""

    waits: QueueWaits
    priority: IoPriority
    usual_us: float | None
    """Mean time in the queue of slow I/Os of the usual priority, of the same operations; None: there are none."""
    others: float | None
    """Share of the device's bytes that are not the process's; None: not known."""

    @property
    def words(self) -> str:
        """Return the priority as a text."""
        return "the idle class" if self.priority.io_class == IDLE_CLASS else f"best-effort {self.priority.level} of 7"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about the process whose I/Os waited longest in all."""
    if not facts[IO_PRIORITIES]:
        return
    for name in sorted({outlier.device for outlier in facts.outliers()}):
        scheduler = elevator(facts.device(name).limits) or ""
        if scheduler not in HEEDED:
            continue
        delayed = [each for each in _delayed(facts, name, scheduler) if _is_found(facts, each, limits)]
        behind = list(waits_behind(facts, name, scheduler, facts[IO_PRIORITIES].keys(), limits))
        delayed.sort(key=lambda each: -each.waits.queue_us)
        behind.sort(key=lambda each: -each.waits.queue_us)
        if delayed and (not behind or delayed[0].waits.queue_us >= behind[0].waits.queue_us):
            yield _finding(facts, delayed)
        elif behind:
            yield finding_behind(facts, ID, behind)


def _delayed(facts: Facts, device: str, scheduler: str) -> Iterator[_Delayed]:
    """Yield the processes of a heeded class with slow reads or writes on a device."""
    priorities = {row.process.rpartition("/")[2]: row for row in facts[IO_PRIORITIES]}
    low: dict[IoPriority, list[Outlier]] = {}
    usual: list[Outlier] = []
    for outlier in staged_outliers(facts, device):
        row = priorities.get(str(outlier.pid))
        is_same = facts.origin.backend != FLEET or (row is not None and row.process.startswith(f"{outlier.comm}/"))
        if row is None or not is_same:
            usual.append(outlier)
        elif row.io_class in HEEDED[scheduler]:
            low.setdefault(row, []).append(outlier)
        elif row.io_class != REAL_TIME:
            usual.append(outlier)
    median_us = facts.latency(device).quantile(0.5) or 0
    for row, outliers in low.items():
        waits = QueueWaits(row.process, device, scheduler, outliers, median_us)
        usual_us = [queue_us(outlier) for outlier in usual if outlier.op in waits.ops]
        own_share = share_of_bytes(facts, device, row.process)
        yield _Delayed(waits, row, fmean(usual_us) if usual_us else None, None if own_share is None else 1 - own_share)


def _is_found(facts: Facts, delayed: _Delayed, limits: Thresholds) -> bool:
    if delayed.waits.overtaken is None and delayed.others is None:  # it is not known whether others were served
        return False
    if delayed.others is not None and delayed.others < limits["others"]:
        return False
    if delayed.usual_us is not None and delayed.usual_us > limits["usual"] * delayed.waits.mean_us:
        return False
    return are_long(facts, delayed.waits, limits)


def _finding(facts: Facts, delayed_programs: Sequence[_Delayed]) -> Finding:
    worst = delayed_programs[0]
    waits, program = worst.waits, worst.waits.program
    short = "I/O class idle" if worst.priority.io_class == IDLE_CLASS else f"best-effort {worst.priority.level}"
    name = within(program.name or "a program", _NAME_CELLS)
    return Finding(
        id=ID,
        severity=WARNING,
        device=waits.device,
        summary=f"{waits.text}, because its I/O priority is {worst.words}: {waits.meanwhile}",
        facts=tuple(_facts(facts, delayed_programs)),
        where=Where("outliers", waits.device),
        steps=tuple(_steps(program.pids[0])),
        refuted_by=_REFUTED,
        share=waits.lost_share(facts),
        state=(waits.process, worst.words),
        short=short_text(
            waits.device, f"{name} waits {spelled(waits.mean_us)}: {short}", f" in {waits.scheduler}'s queue"
        ),
    )


def _facts(facts: Facts, delayed_programs: Sequence[_Delayed]) -> Iterator[Fact]:
    worst = delayed_programs[0]
    waits = worst.waits
    yield Fact("process", waits.process, f"{waits.process} has the I/O priority {worst.words}")
    yield from wait_facts(waits)
    yield from duration_facts(
        ("usual_us", worst.usual_us, "slow I/Os of the usual priority wait there for {} on average", None)
    )
    if worst.others is not None:
        text = f"{part(worst.others)} of the bytes of {waits.device} are of other programs"
        yield Fact("others", round(worst.others, 3), text, "share")
    if moved := facts[IO_PRIORITIES][worst.priority].io_bytes:
        text = f"{waits.process} moved {show_size(moved)} on all devices in the last minute"
        yield Fact("io_bytes", moved, text, "bytes")
    for at, other in enumerate(delayed_programs[1:4], 1):
        process = other.waits.process
        text = f"{process} waits, too: {counted(len(other.waits.ios), 'slow I/O')}, {other.words}"
        yield Fact(f"other_{at}", process, text)


def _steps(pid: str) -> Iterator[Step]:
    process = pid if pid.isdecimal() else "PID"
    yield Step(
        "ask who set it, and whether it is meant to wait: ionice or nice in a script of cron, IOSchedulingClass= or "
        "Nice= of a systemd unit",
        commands=(f"ionice -p {process}",),
    )
    yield Step(
        "give it the usual priority; each of its threads has one of its own (/proc/PID/task)",
        "it takes time of the device from the other programs; undone by the old class and level",
        (f"ionice -c2 -n4 -p {process}",),
    )
    yield Step("if it is meant to wait, let it run while the others have little I/O; a faster disk helps little")


RULE = Rule(
    ID,
    "I/Os of a program wait in the scheduler's queue, because its I/O priority is lower than others'",
    evaluate,
    needs=PRIORITIES,
    thresholds={
        "ios": Threshold(3, "ios", "slow ones of the program in the last minute at least"),
        "queue": Threshold(0.7, "share", "of their time is in the scheduler's queue"),
        "wait_us": Threshold(10_000, "us", "there on average at least"),
        "times": Threshold(3.0, "times", "the median of all I/Os of the device at least, there"),
        "overtaken": Threshold(8, "ios", "that came later are completed meanwhile on average, where that is known"),
        "usual": Threshold(0.5, "share", "of its wait there, slow I/Os of the usual priority wait on average at most"),
        "others": Threshold(
            0.5, "share", "of the device's bytes are of those that are served before it, where that is known"
        ),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was so, or 30 % of that all the time from the start: no burst"
        ),
    },
)
