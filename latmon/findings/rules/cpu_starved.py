"""cpu-starved: what does I/O waits for a CPU for most of its time, since others have the CPUs that it may use.

It is a program with I/O, or a kernel thread of a CPU (its kworkers and ksoftirqd, which send and complete I/Os) where
a program of a real-time policy has that CPU.
Its I/Os are completed in time, and it runs late after each of them: no latency of a device shows it. The waits are the
kernel's own counts (schedstat), so that no tracer is needed. No finding: programs that compute, such as the jobs of
a build, each of which has its share of a busy host (8 of them on 2 CPUs wait 90 % of their time), a program that waits
for its own processes, and one that waits shortly, or seldom. It is a notice where the program was set to run after the
others. A quota that is used up is cpu-throttled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from latmon.findings.evidence import disk_facts, host_before
from latmon.findings.facts import Block, Facts
from latmon.findings.programs import by_program, most_used_device
from latmon.findings.rule import (
    CPU_WAITS,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    plain,
    short_text,
    threads,
    within,
)
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.measurements.cpu_waits import IDLE, USUAL_WEIGHTS, CpuWait, CpuWaiter
from latmon.support.units import part, show_size, spelled

ID = "cpu-starved"
_REFUTED = "the second number of /proc/PID/task/TID/schedstat hardly grows while the program is slow"
_SHORT_CELLS = 14
_WITH_SLASH = re.compile(
    r"^(kworker|ksoftirqd|ktimers|migration|irq|jbd2|xfsaild|xfs-[a-z-]+|rcu(?:b|c|op|os|og)|dmcrypt_write)_"
)
"""Beginnings of kernel threads' names before a slash; others, such as md0_raid1 and scsi_eh_0, have a `_` there."""


_Wait = tuple[CpuWaiter, CpuWait]


class _Starved(NamedTuple):
    """A program that waits for a CPU, with the sums of the window."""

    host: str
    """`HOST:` in a fleet, else empty."""
    name: str
    """Empty where it is hidden."""
    row: CpuWaiter
    """Of the longest waits."""
    ran_us: int
    waited_us: int
    runs: int
    io_bytes: int
    lasted_us: int
    """Time in which one of its processes waited."""

    @property
    def is_kernel(self) -> bool:
        """Return whether it is a kernel thread, which has no I/O of its own."""
        return not self.io_bytes

    @property
    def who(self) -> str:
        """Return its name; a slash in a kernel thread's is `_` in a row."""
        if self.is_kernel:
            return _WITH_SLASH.sub(r"\1/", self.name) or "a kernel thread"
        return self.name or "a program"

    @property
    def instead(self) -> str:
        """Return the name of what ran on its CPUs; empty where it is not known."""
        return self.row.instead.rpartition("/")[0]

    @property
    def share(self) -> float:
        """Return the share of its waits in the time in which it could run."""
        return self.waited_us / max(self.waited_us + self.ran_us, 1)

    @property
    def mean_us(self) -> float:
        """Return how long it waits until it runs, on average."""
        return self.waited_us / max(self.runs, 1)

    @property
    def running(self) -> float:
        """Return its threads that run at a time, on average."""
        return self.ran_us / max(self.lasted_us, 1)

    @property
    def waiting(self) -> float:
        """Return its threads that wait at a time, on average."""
        return self.waited_us / max(self.lasted_us, 1)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per host, about the program with most waits."""
    by_host: dict[str, list[_Starved]] = {}
    for starved in _programs(facts):
        if not _is_starved(starved, limits):
            continue
        lasted_us = sum(block.span_us for block in facts.window if _has(block, starved))
        if facts.lasts(lasted_us, limits["lasting_us"]):
            by_host.setdefault(starved.host, []).append(starved)
    for starved_programs in by_host.values():
        starved_programs.sort(
            key=lambda starved: (starved.row.is_background, starved.is_kernel, -starved.waited_us, starved.name)
        )
        yield _finding(facts, starved_programs)


def _programs(facts: Facts) -> Iterator[_Starved]:
    by_host: dict[str, list[tuple[str, _Wait]]] = {}
    for row, wait in facts[measurements.CPU_WAITS].items():
        by_host.setdefault(host_before(facts, row.cgroup), []).append((row.process, (row, wait)))
    for host, rows in by_host.items():
        for program, waits in by_program(rows).items():
            yield _program(host, program.name, waits)


def _program(host: str, name: str, waits: Sequence[_Wait]) -> _Starved:
    row, _ = max(waits, key=lambda each: each[1].waited_us)
    return _Starved(
        host=host,
        name=name,
        row=row,
        ran_us=sum(wait.ran_us for _, wait in waits),
        waited_us=sum(wait.waited_us for _, wait in waits),
        runs=sum(wait.runs for _, wait in waits),
        io_bytes=sum(wait.io_bytes for _, wait in waits),
        lasted_us=_longest_us(waits),
    )


def _longest_us(waits: Iterable[_Wait]) -> int:
    """Return the time of the process that waited for longest: several wait at the same time."""
    lasted_us: dict[str, int] = {}
    for row, wait in waits:
        lasted_us[row.process] = lasted_us.get(row.process, 0) + wait.lasted_us
    return max(lasted_us.values())


def _is_starved(starved: _Starved, limits: Thresholds) -> bool:
    if starved.share < limits["share"] or starved.mean_us < limits["wait_us"]:
        return False
    if starved.is_kernel:
        return starved.waiting >= limits["kernel_waiting"]
    bytes_per_s = starved.io_bytes * 1e6 / max(starved.lasted_us, 1)
    does_io = starved.running <= limits["running"] and bytes_per_s >= limits["bytes_per_s"]
    return does_io and starved.waiting >= limits["waiting"]


def _has(block: Block, starved: _Starved) -> bool:
    return any(
        row.process.rpartition("/")[0] == starved.name and row.cgroup.startswith(starved.host)
        for row in block[measurements.CPU_WAITS]
    )


def _finding(facts: Facts, starved_programs: list[_Starved]) -> Finding:
    worst = starved_programs[0]
    device = most_used_device(facts, worst.row.process, worst.row.cgroup)
    instead = f": {worst.instead} runs there" if worst.instead else ""
    about = worst.host.replace(HOST_SEPARATOR, ": ")
    reasons = "".join(f"; {reason}" for reason in _reasons(worst.row))
    return Finding(
        id=ID,
        severity=NOTICE if worst.row.is_background else WARNING,
        device=worst.host,  # which device is not known at first: another one would begin another episode
        summary=f"{about}{worst.who} {_does(worst)} and waits {spelled(worst.mean_us)} for a CPU each time before "
        "it runs, "
        f"{part(worst.share)} of the time in which it could run{instead}{reasons}",
        facts=tuple(_facts(facts, starved_programs)),
        where=Where("overview", device),
        steps=tuple(_steps(facts, worst)),
        refuted_by=_REFUTED,
        share=min(1.0, worst.share),
        also=(device,) if device else (),
        short=short_text(
            worst.host.rstrip(HOST_SEPARATOR),
            f"{within(worst.who)} waits {spelled(worst.mean_us)} each time for a CPU",
            *([f": {within(worst.instead, _SHORT_CELLS)} runs"] if worst.instead else []),
            *(f", {reason}" for reason in _short_reasons(worst.row)),
        ),
    )


def _does(starved: _Starved) -> str:
    return "does I/O of others" if starved.is_kernel else "does I/O"


def _reasons(row: CpuWaiter) -> Iterator[str]:
    """Yield what makes it wait for others, as far as that is known."""
    if row.instead_policy:
        yield f"that has the real-time policy {row.instead_policy}"
    if row.weight_file:
        yield f"its cgroup {row.cgroup} has {row.weight_file} {row.weight} (usual: {USUAL_WEIGHTS[row.weight_file]})"
    if row.cpus:
        yield f"it may use {_cpus(row)} only"
    if row.nice > 0:
        yield f"its nice value is {row.nice}"


def _cpus(row: CpuWaiter) -> str:
    return row.cpus if row.cpus.endswith("CPUs") else f"CPU {row.cpus}"


def _short_reasons(row: CpuWaiter) -> Iterator[str]:
    if row.instead_policy:
        yield row.instead_policy
    if row.weight_file:
        yield f"{row.weight_file} {row.weight}"
    if row.nice > 0:
        yield f"nice {row.nice}"
    if row.cpus:
        yield f"{_cpus(row)} only"


def _facts(facts: Facts, starved_programs: list[_Starved]) -> Iterator[Fact]:
    worst = starved_programs[0]
    text = f"{worst.who} waited for a CPU for {part(worst.share)} of the time in which it could run (schedstat)"
    yield Fact("waited", round(worst.share, 3), text, "share", worst.runs)
    yield from duration_facts(
        ("wait_us", worst.mean_us, "a wait takes {} on average", worst.runs),
        ("run_us", worst.ran_us / max(worst.runs, 1), "then it runs for {} on average", None),
    )
    yield Fact("waiting", round(worst.waiting, 2), f"{worst.waiting:.2g} of its threads wait at a time, on average")
    if worst.is_kernel:
        yield Fact("work", worst.who, _work(worst))
    else:
        yield Fact("io_bytes", worst.io_bytes, f"it read and wrote {show_size(worst.io_bytes)} meanwhile", "bytes")
    if worst.row.instead:
        yield Fact("instead", worst.instead, f"{worst.instead} ran most on the CPUs that it may use")
    for at, reason in enumerate(_reasons(worst.row), 1):
        yield Fact(f"reason_{at}", reason, reason)
    yield from disk_facts(facts, worst.host)
    for at, other in enumerate(starved_programs[1:4], 1):
        text = f"{other.who} waits, too: {spelled(other.mean_us)} on average"
        yield Fact(f"other_{at}", other.name, text)


def _work(starved: _Starved) -> str:
    """Return what I/O waits for a kernel thread, by Documentation/core-api/workqueue.rst and kernel/softirq.c."""
    if starved.name.startswith("ksoftirqd"):
        return "ksoftirqd completes the I/Os whose interrupts its CPU takes, where softirqs don't run at once"
    return "the kernel hands work of that CPU to it: I/Os that are sent on, completed or written back"


def _steps(facts: Facts, starved: _Starved) -> Iterator[Step]:
    pid = starved.row.process.rpartition("/")[2]
    yield Step(
        "see what uses the CPUs, and which of them the program may use; no faster disk helps",
        commands=(
            threads(starved.instead if plain(starved.instead) else "", is_sun=facts.is_sun),
            f"taskset -cp {pid if pid.isdecimal() else 'PID'}",
        ),
    )
    row = starved.row
    if row.instead_policy:
        yield from _real_time_steps(row)
        return
    if row.weight_file:
        yield Step(
            f"{_condition(row)}{_larger_weight(row)}",
            "others on the host have less CPU; undone by the old value",
        )
    if row.cpus:
        yield Step(
            "let it run on other CPUs, or move what runs there",
            "caches of the CPU are lost; undone by the old list of CPUs",
        )
    if row.nice > 0:
        yield Step(
            f"{_condition(row)}run it with the usual nice value", "others have less CPU; undone by the old value"
        )
    if not row.weight_file and not row.cpus and row.nice <= 0:
        yield Step(
            "run the others at other times, with a higher nice value or on more CPUs", "they take longer until they end"
        )


def _real_time_steps(row: CpuWaiter) -> Iterator[Step]:
    pid = row.instead.rpartition("/")[2]
    which = pid if pid.isdecimal() else "PID"
    yield Step(
        "give it an ordinary policy, if it needs no real-time one",
        "it may run later than it must; undone by the old policy and priority",
        commands=(f"chrt -ap {which}", f"chrt -ao -p 0 {which}"),
    )
    yield Step(
        "else move it to a CPU that the kernel leaves alone (isolcpus, irqaffinity), and the interrupts away from it",
        "it shares that CPU with nothing; undone by the old list of CPUs",
        commands=(f"taskset -acp {which}",),
    )


def _condition(row: CpuWaiter) -> str:
    return "if it must be done sooner, " if row.is_background else ""


def _larger_weight(row: CpuWaiter) -> str:
    if row.weight_file == IDLE:
        return f"set {IDLE} of cgroup {row.cgroup} to 0"
    return f"give cgroup {row.cgroup} a larger {row.weight_file}; of a Kubernetes pod it follows from the CPU request"


RULE = Rule(
    ID,
    "what does I/O waits for a CPU for most of its time",
    evaluate,
    needs=CPU_WAITS,
    explained_by=("cpu-throttled",),
    thresholds={
        "share": Threshold(0.95, "share", "of the time in which it could run, it waits"),
        "running": Threshold(
            0.1, "threads", "of the program run at a time on average at most: one that computes has more"
        ),
        "bytes_per_s": Threshold(1_024, "bytes", "per second of I/O it does at least"),
        "wait_us": Threshold(20_000, "us", "a wait takes at least on average"),
        "waiting": Threshold(0.5, "threads", "of the program wait at a time on average at least"),
        "kernel_waiting": Threshold(0.1, "threads", "of a kernel thread wait at a time on average at least"),
        "lasting_us": Threshold(
            12_000_000, "us", "of the last minute it was so, or 30 % of that all the time from the start: no burst"
        ),
    },
)
