"""What a probe's programs cost, measured for a moment: run time counted by the kernel between two readings.

The kernel counts for every BPF program of the host while it is switched on, at some 20 ns each run: so not for long.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from latmon_backends.launching import Launcher

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
