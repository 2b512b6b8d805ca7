"""The budget of the tracer: measured cost to a coarser sample or to its end. Pure.

The cost is the time in the tracer's programs, in percent of one CPU. Sampling thins out requests only: where it no
longer helps, interrupts and the scheduler cause the cost, and the tracer is stopped.

While counting is on, the kernel counts all BPF programs of the host, at some 20 ns each run; so it is switched on
for a short time only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from latmon_backends.probe.launcher import Launcher

FACTOR, COARSEST = 4, 256
IN_A_ROW = 2
"""Measurements above the budget before anything is done: each is a second, and a burst is no load."""
HELPS = 0.8
"""A coarser sample that still costs more than this share of what it cost before doesn't help."""
PAUSE_S = 300.0
"""Switched off for so long, then tried again."""
GUESSED_NS = 5_000.0
"""Per traced request, before it was measured: 3.8 us for the full split, and some for its interrupts and wake-ups."""


@dataclass(frozen=True, slots=True)
class BudgetVerdict:
    """A decision: trace one request in `one_in`, or stop (0), because of the measured `percent` of a CPU."""

    one_in: int
    percent: float


class Budget:
    """A budget of `percent` of one CPU; 0: unlimited."""

    def __init__(self, percent: float) -> None:
        self.percent = percent
        self._above: list[float] = []
        self._before: float | None = None

    def first(self, iops: float) -> int:
        """Return the sampling to begin with, by the requests per second."""
        one_in = 1
        while self.percent and one_in < COARSEST and iops / one_in * GUESSED_NS / 1e7 > self.percent:
            one_in *= FACTOR
        return one_in

    def exceeded(self, percent: float) -> bool:
        """Return whether a cost is above the budget, if there is one."""
        return 0 < self.percent < percent

    def evaluate(self, percent: float, one_in: int) -> BudgetVerdict | None:
        """Evaluate a measurement; None: no change."""
        self._above = [*self._above, percent] if self.exceeded(percent) else []
        if len(self._above) < IN_A_ROW:
            return None
        spent, self._above = min(self._above), []
        coarser = min(COARSEST, one_in * FACTOR)
        while coarser < COARSEST and spent * one_in / coarser > self.percent:
            coarser *= FACTOR
        helps = self._before is None or spent < self._before * HELPS
        if one_in >= COARSEST or not helps:
            self._before = None
            return BudgetVerdict(0, spent)
        self._before = spent
        return BudgetVerdict(coarser, spent)

    def forget(self) -> None:
        """Forget the measurements: after a stop they don't predict the next cost."""
        self._above, self._before = [], None


PHASE_S, EVERY_S, FIRST_AFTER_S = 1.0, 10.0, 2.0
"""One second in ten; the first soon, because a probe that is too dear must not run for long."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Cost and skipped runs of a process's programs; None: not known."""

    percent: float | None = None
    """Percent of one CPU."""
    skipped: int | None = None
    """Runs that the kernel skipped since the programs were loaded."""


async def measure(launcher: Launcher, pids: Sequence[int], seconds: float = PHASE_S) -> tuple[Measured, ...]:
    """Measure the cost of each process's programs."""
    if not await launcher.count_time(on=True):
        return tuple([Measured(None, (await launcher.totals(pid)).skipped) for pid in pids])
    try:
        begun = time.monotonic_ns()
        before = [await launcher.totals(pid) for pid in pids]
        await asyncio.sleep(seconds)
        after = [await launcher.totals(pid) for pid in pids]
        passed = time.monotonic_ns() - begun
    finally:
        await launcher.count_time(on=False)
    each = zip(before, after, strict=True)
    return tuple(Measured(_percent(was.run_ns, now.run_ns, passed), now.skipped) for was, now in each)


def _percent(before: int | None, after: int | None, passed_ns: int) -> float | None:
    return None if before is None or after is None or passed_ns <= 0 else 100 * max(0, after - before) / passed_ns
