"""Which softirq completes a device's I/Os, where it was raised, what ran it, and how long it waited. No judgment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from latmon.deep import by_vector
from latmon.findings.facts import Facts
from latmon.model import Outlier, SoftirqRuns

_PATH = " softirq"
_NUMBERS = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
"""As the kernel counts them."""
_CAN_COMPLETE = ("BLOCK", "IRQ_POLL", "TASKLET", "HI")
"""Vectors in which drivers of disks complete, or hand on what they complete."""
_RUNNERS = {
    "irq_exit": "the end of an interrupt",
    "timer": "the end of the timer's interrupt",
    "ksoftirqd": "ksoftirqd",
    "other": "other code that let softirqs run",
}
_RAISERS = {"irq": "an interrupt", "softirq": "another softirq", "other": "a thread, outside of interrupts"}


def of_device(facts: Facts, device: str) -> Iterator[tuple[str, SoftirqRuns]]:
    """Vectors by which its requests were seen to complete; where no path was followed, those that may."""
    paths = facts.traced.paths.get(device, {})
    named = [path.removesuffix(_PATH) for path in paths if path.endswith(_PATH)]
    found = by_vector(facts.softirqs)
    for vector in named if paths else _CAN_COMPLETE:
        if vector in found:
            yield vector, found[vector]


def latest_cpu(facts: Facts, vector: str) -> int | None:
    """Where its longest wait was."""
    waits = {where.cpu: runs.delay.max_bound or 0 for where, runs in facts.softirqs.items() if where.vector == vector}
    return max(waits, key=lambda cpu: (waits[cpu], -cpu), default=None)


def ran_by(runs: SoftirqRuns) -> str:
    """What most often ran it, in words; empty when not known."""
    return _RUNNERS.get(most(runs.ran_in.items()), "")


def raised_by(runs: SoftirqRuns) -> str:
    """Where it was most often raised, in words; empty when not known."""
    return _RAISERS.get(most(runs.raised_in.items()), "")


def hog(told: Iterable[Outlier]) -> str:
    """Who ran instead of ksoftirqd, as comm (prio N), in the longest wait that names one; empty when none does."""
    waits = [wait for one in told for wait in one.waits if wait.stage == "softirq" and wait.instead]
    return max(waits, key=lambda wait: wait.delay_us).instead if waits else ""


def raisers(vector: str) -> str:
    """A command that shows the kernel stacks that raise it."""
    which = f" /args->vec == {_NUMBERS.index(vector)}/" if vector in _NUMBERS else ""
    return f"bpftrace -e 'tracepoint:irq:softirq_raise{which} {{ @[kstack] = count() }} interval:s:5 {{ exit() }}'"


def most(counts: Iterable[tuple[str, int]]) -> str:
    """The name with the greatest count; empty when there is none."""
    return max(counts, key=lambda one: (one[1], one[0]), default=("", 0))[0]
