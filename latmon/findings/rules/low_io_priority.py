"""low-io-priority: I/Os of a program wait in the scheduler's queue, because its I/O priority is lower than others'.

A program of the idle class (`ionice -c3`, systemd's IOSchedulingClass=idle) is served when no other one has I/Os: by
mq-deadline after 10 s at the latest (prio_aging_expire), by bfq once in 200 ms (BFQ_CL_IDLE_TIMEOUT). A low level of
best-effort, which also a nice value gives, has a small share of the device under bfq. The device's own times are good
meanwhile, and programs of the usual priority see nothing. No finding: a scheduler that heeds no priority, I/Os that
wait in the driver, and a device that does hardly anything but the program's own I/Os.

A program of the real-time class (`ionice -c1`, or one with a real-time policy) is served before all others, so that
those of the usual priority wait as long as it has I/Os. Most of the device's bytes are then its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from latmon.analysis.limits import elevator
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import program_of
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
from latmon.model.measurements.io_priorities import (
    BEST_EFFORT,
    HEEDED,
    IDLE_CLASS,
    REAL_TIME,
    USUAL_LEVEL,
    IoPriority,
    PriorityTime,
)
from latmon.model.stages import plural_of_op
from latmon.support.units import counted, part, show_size, spelled

ID = "low-io-priority"
_OPS = ("read", "write")
_NAME_CELLS = 14
_REFUTED = "its I/Os wait as long with the usual priority (`ionice -c2 -n4`), or with the scheduler `none`"

_Priorities = Mapping[int, Mapping[IoPriority, PriorityTime]]
"""Pid -> the priorities that the process had in the window."""


class _Delayed(NamedTuple):
    """A process whose slow I/Os wait in the scheduler's queue of a device."""

    device: str
    scheduler: str
    priority: IoPriority
    ios: Sequence[Outlier]
    """Its slow I/Os of the window."""
    median_us: int
    """Median of all I/Os of the device."""
    others: float | None
    """Share of the device's bytes that are not the process's, or that are those of `behind`; None: not known."""
    behind: IoPriority | None = None
    """The program of the real-time class that is served before it."""

    @property
    def queue_us(self) -> int:
        return sum(outlier.stages_us.get("queue", 0) for outlier in self.ios)

    @property
    def share(self) -> float:
        """Return the share of the queue in the time of the slow I/Os."""
        return self.queue_us / max(1, sum(outlier.total_us for outlier in self.ios))

    @property
    def mean_us(self) -> float:
        """Return the mean time in the queue."""
        return self.queue_us / len(self.ios)

    @property
    def overtaken(self) -> float | None:
        """Return how many later I/Os were completed meanwhile, on average; None where that was not counted."""
        known = [outlier.overtaken_by for outlier in self.ios if outlier.overtaken_by is not None]
        return fmean(known) if known else None

    @property
    def words(self) -> str:
        """Return the priority as a text."""
        if self.behind is not None:
            return "the usual one"
        return "the idle class" if self.priority.io_class == IDLE_CLASS else f"best-effort {self.priority.level} of 7"


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device, about the process whose I/Os waited longest in all."""
    priorities = _priorities(facts)
    if not priorities:
        return
    for name in sorted({outlier.device for outlier in facts.outliers()}):
        scheduler = elevator(facts.device(name).limits) or ""
        if scheduler not in HEEDED:
            continue
        delayed_ones = (*_delayed(facts, name, scheduler, priorities), *_behind(facts, name, scheduler, priorities))
        several = [delayed for delayed in delayed_ones if _is_found(facts, delayed, limits)]
        if several:
            yield _finding(facts, sorted(several, key=lambda delayed: -delayed.queue_us))


def _priorities(facts: Facts) -> _Priorities:
    priorities: dict[int, dict[IoPriority, PriorityTime]] = {}
    for row, time in facts[IO_PRIORITIES].items():
        pid = row.process.rpartition("/")[2]
        if pid.isdecimal():
            priorities.setdefault(int(pid), {})[row] = time
    return priorities


def _delayed(facts: Facts, device: str, scheduler: str, priorities: _Priorities) -> Iterator[_Delayed]:
    """Yield the processes of a heeded class with slow reads or writes on a device."""
    ios: dict[IoPriority, list[Outlier]] = {}
    for outlier in facts.outliers(device):
        if outlier.pid is None or outlier.op not in _OPS or not outlier.stages_us:
            continue
        for row in list(priorities.get(outlier.pid, ()))[-1:]:
            is_same = facts.origin.backend != FLEET or row.process.startswith(f"{outlier.comm}/")
            if is_same and row.io_class in HEEDED[scheduler]:
                ios.setdefault(row, []).append(outlier)
    done = facts.completed(device)
    own_bytes = sum(priorities[int(row.process.rpartition("/")[2])][row].io_bytes for row in ios)
    others = None
    if own_bytes and done is not None and done.bytes:
        others = max(0.0, 1 - own_bytes / done.bytes)
    median_us = facts.latency(device).quantile(0.5) or 0
    for row, outliers in ios.items():
        yield _Delayed(device, scheduler, row, outliers, median_us, others)


def _behind(facts: Facts, device: str, scheduler: str, priorities: _Priorities) -> Iterator[_Delayed]:
    """Yield the processes with slow reads or writes beside one of the real-time class; not on the hosts of a fleet."""
    rows = [(row, time.io_bytes) for rows in priorities.values() for row, time in rows.items()]
    first, moved = max(
        ((row, moved) for row, moved in rows if row.io_class == REAL_TIME), key=lambda pair: pair[1], default=(None, 0)
    )
    done = facts.completed(device)
    if first is None or not moved or done is None or not done.bytes or facts.origin.backend == FLEET:
        return
    ios: dict[str, list[Outlier]] = {}
    for outlier in facts.outliers(device):
        if outlier.pid is None or outlier.op not in _OPS or not outlier.stages_us or outlier.pid in priorities:
            continue
        ios.setdefault(f"{outlier.comm}/{outlier.pid}", []).append(outlier)
    median_us = facts.latency(device).quantile(0.5) or 0
    for process, outliers in ios.items():
        usual = IoPriority(process, BEST_EFFORT, USUAL_LEVEL)
        yield _Delayed(device, scheduler, usual, outliers, median_us, min(1.0, moved / done.bytes), first)


def _is_found(facts: Facts, delayed: _Delayed, limits: Thresholds) -> bool:
    if len(delayed.ios) < limits["ios"] or delayed.share < limits["queue"]:
        return False
    if delayed.mean_us < max(limits["wait_us"], limits["times"] * delayed.median_us):
        return False
    overtaken, others = delayed.overtaken, delayed.others
    if overtaken is None and others is None:  # it is not known whether others were served
        return False
    if overtaken is not None and overtaken < limits["overtaken"]:
        return False
    if others is not None and others < limits["others"]:
        return False
    pid = delayed.ios[0].pid

    def waits(block: Block) -> bool:
        return any(outlier.pid == pid and outlier.device == delayed.device for outlier in block.outliers)

    return facts.lasts(facts.lasted_us(waits), limits["lasting_us"])


def _finding(facts: Facts, several: Sequence[_Delayed]) -> Finding:
    worst = several[0]
    device, mean = worst.device, spelled(worst.mean_us)
    program = program_of(worst.priority.process)
    ops = " and ".join(plural_of_op(op) for op in _OPS if any(outlier.op == op for outlier in worst.ios))
    overtaken = worst.overtaken
    meanwhile = "others' I/Os are" if overtaken is None else f"{overtaken:,.0f} later I/Os are"
    short = "I/O class idle" if worst.priority.io_class == IDLE_CLASS else f"best-effort {worst.priority.level}"
    why = f"its I/O priority is {worst.words}"
    blamed = program
    if worst.behind is not None:
        blamed = program_of(worst.behind.process)
        why = f"{blamed.text} has the I/O class {REAL_TIME}"
        short = f"{within(blamed.name or 'another one', _NAME_CELLS)} is {REAL_TIME}"
    return Finding(
        ID,
        WARNING,
        device,
        f"{device}: {ops} of {program.text} wait {mean} in the queue of {worst.scheduler}, because {why}: "
        f"{meanwhile} completed meanwhile",
        tuple(_facts(facts, several)),
        Where("outliers", device),
        tuple(_steps(blamed.pids[0])),
        _REFUTED,
        worst.share,
        state=(worst.priority.process, worst.words),
        short=short_text(
            device,
            f"{within(program.name or 'a program', _NAME_CELLS)} waits {mean}: {short}",
            f" in {worst.scheduler}'s queue",
        ),
    )


def _facts(facts: Facts, several: Sequence[_Delayed]) -> Iterator[Fact]:
    worst = several[0]
    count = len(worst.ios)
    yield Fact("process", worst.priority.process, f"{worst.priority.process} has the I/O priority {worst.words}")
    yield Fact("scheduler", worst.scheduler, f"scheduler: {worst.scheduler}, which heeds I/O priorities")
    text = f"{part(worst.share)} of the time of its slow I/Os is in the scheduler's queue"
    yield Fact("queue", round(worst.share, 3), text, "share", count)
    yield from duration_facts(
        ("queue_us", worst.mean_us, "each waits there for {} on average", count),
        ("median_us", worst.median_us, f"half of all I/Os of {worst.device} take less than {{}}", None),
    )
    if worst.overtaken is not None:
        text = f"{worst.overtaken:,.0f} I/Os that came later were completed meanwhile, on average"
        yield Fact("overtaken", round(worst.overtaken), text, "ios", count)
    if worst.others is not None:
        whose = "that program's" if worst.behind is not None else "of other programs"
        text = f"{part(worst.others)} of the bytes of {worst.device} are {whose}"
        yield Fact("others", round(worst.others, 3), text, "share")
    listed = worst.behind or worst.priority
    moved = facts[IO_PRIORITIES][listed].io_bytes
    if worst.behind is not None:
        yield Fact("behind", listed.process, f"{listed.process} has the I/O class {REAL_TIME}, level {listed.level}")
    if moved:
        yield Fact("io_bytes", moved, f"{listed.process} moved {show_size(moved)} in the last minute", "bytes")
    for at, other in enumerate(several[1:4], 1):
        text = f"{other.priority.process} waits, too: {counted(len(other.ios), 'slow I/O')}, {other.words}"
        yield Fact(f"other_{at}", other.priority.process, text)


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
        "others": Threshold(0.5, "share", "of the device's bytes are of other programs, where that is known"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was so, or 30 % of that all the time from the start: no burst"
        ),
    },
)
