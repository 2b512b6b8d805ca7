"""Interrupts, softirqs, wake-ups and task queues of a recording as report keys, absent when nobody measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latmon.deep import by_vector
from latmon.model import UNKNOWN_IRQ, Handler, HandlerRuns, SoftirqCpu, SoftirqRuns, Wakeups, pid_of
from latmon.report.figures import quantiles, rounded, summed
from latmon.taskqs import TaskqSums

MAX_THREADS = 1000


def softirqs(found: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    """Per vector, all CPUs together, and how many runs each CPU had."""
    told = {vector: _softirq(vector, runs, found) for vector, runs in sorted(by_vector(found).items())}
    return {"softirqs": told} if told else {}


def irqs(found: Mapping[Handler, HandlerRuns]) -> dict[str, Any]:
    """A row per handler; `before_us` is what handlers earlier on its vector took before the runs that were its own."""
    rows = [
        {
            "irq": None if handler.irq == UNKNOWN_IRQ else handler.irq,
            "handler": handler.name,
            "device": runs.device or None,
            "count": runs.run.count,
            "run_us": summed(runs.run),
            "returned": dict(runs.returned),
            "before_us": runs.before_us,
            "shared_with": list(runs.shared_with),
        }
        for handler, runs in sorted(found.items())
    ]
    return {"irqs": rows} if rows else {}


def wakeups(found: tuple[Wakeups, ...], left_out: int = 0) -> dict[str, Any]:
    """A row per thread, the one that waited longest first; `left_out`: wake-ups of threads that are not in `found`."""
    worst = sorted(found, key=lambda one: -(one.delay.max_bound or 0))
    rows = [
        {
            "thread": one.thread.comm,
            "pid": pid_of(one.thread.pid),
            "policy": one.thread.policy,
            "priority": one.thread.priority,
            "kernel": one.thread.kernel,
            "count": one.delay.count,
            "delay_us": quantiles(one.delay),
            "instead": dict(one.instead),
        }
        for one in worst[:MAX_THREADS]
    ]
    left_out += sum(one.delay.count for one in worst[MAX_THREADS:])
    return {"wakeups": rows, **({"wakeups_left_out": left_out} if left_out else {})} if rows else {}


def taskqs(sums: TaskqSums) -> dict[str, Any]:
    """A row per task queue that was ever busy, the one that had most waiting first; no row where all were idle."""
    if not sums.read:
        return {}
    rows = [
        {
            "name": one.last.name,
            "instance": one.last.instance,
            "priority": one.last.priority,
            "threads": one.last.threads,
            "permanent_loops": one.last.loops,
            "active_max": one.active,
            "waiting_max": one.waiting,
            "most": one.last.most,
            "tasks": one.tasks,
            "executed": one.executed,
            "mean_run_us": rounded(one.mean_us, 3),
        }
        for one in sums.rows
    ]
    return {"taskqs": rows, **({"taskqs_left_out": sums.left_out} if sums.left_out else {})}


def _softirq(vector: str, runs: SoftirqRuns, every: Mapping[SoftirqCpu, SoftirqRuns]) -> dict[str, Any]:
    return {
        "count": runs.run.count or runs.delay.count,
        "delay_us": summed(runs.delay),
        "run_us": summed(runs.run),
        "ran_in": dict(runs.ran_in),
        "raised_in": dict(runs.raised_in),
        "cpus": {str(at.cpu): one.run.count for at, one in sorted(every.items()) if at.vector == vector},
    }
