"""The budget of the tracer: measured cost to a coarser sample or to its end. Pure.

The measure is the time in their programs, in percent of one CPU. Sampling thins out requests alone: where it no longer
helps, what is left is the interrupts' and the scheduler's, and only switching off does.

The kernel counts for every BPF program of the host while it is switched on, at some 20 ns each run: so not for long.
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
class Verdict:
    """What to do: go on tracing one request in `one_in`, or stop (0); and the figure behind it."""

    one_in: int
    percent: float


class Budget:
    """Of `percent` of one CPU; 0: none."""

    def __init__(self, percent: float) -> None:
        self.percent = percent
        self._above: list[float] = []
        self._before: float | None = None

    def first(self, iops: float) -> int:
        """What to begin with, by how many requests there are a second."""
        one_in = 1
        while self.percent and one_in < COARSEST and iops / one_in * GUESSED_NS / 1e7 > self.percent:
            one_in *= FACTOR
        return one_in

    def exceeded(self, percent: float) -> bool:
        """Never without a budget."""
        return 0 < self.percent < percent

    def judge(self, percent: float, one_in: int) -> Verdict | None:
        """After each measurement; None: go on as it is."""
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
            return Verdict(0, spent)
        self._before = spent
        return Verdict(coarser, spent)

    def forget(self) -> None:
        """The probes were stopped: what they cost then says nothing about the next time."""
        self._above, self._before = [], None


PHASE_S, EVERY_S, FIRST_AFTER_S = 1.0, 10.0, 2.0
"""One second in ten; the first soon, because a probe that is too dear must not run for long."""


@dataclass(frozen=True, slots=True)
class Measured:
    """None: can't be had."""

    percent: float | None = None
    """Of one CPU, in a process's programs."""
    skipped: int | None = None
    """Runs of them that the kernel left out since they were loaded."""


async def measure(launcher: Launcher, pids: Sequence[int], seconds: float = PHASE_S) -> tuple[Measured, ...]:
    """What each process's programs take now."""
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
