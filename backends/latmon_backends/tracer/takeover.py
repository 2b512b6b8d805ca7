"""The takeover of a running tracer by another one, so that no interval is untraced and no I/O is counted twice.

`Takeover.begin` waits until the successor counts, empties the filter of the first process shortly before a tick and has
the successor count from that tick on. It returns the Predecessor, which counts on until it is ended: its windows are
added to those of its successor.

No filter separates the tables of the host (interrupts, softirqs, wake-ups, operations on files): the first process
counts them up to its own last tick, its successor from the first tick of each of its scripts. An interval of which a
part was counted by neither is reported as incomplete.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from latmon.support.memory import available_memory
from latmon_backends.probe.launcher import ALL_DEVICES, SAMPLE, Launcher
from latmon_backends.probe.tick_protocol import TracerWindow
from latmon_backends.tracer.run import TracerRun
from latmon_backends.tracer.windows import have_same_sample, requests_of, with_window_of, without_host_part

_BEFORE_TICK_S = 0.05
"""A process ends to count so long before the first tick that its successor counts from."""
_SPARE = 0.3
"""Share of an interval by which a tick may be late."""
_ROOM = 400 << 20
"""Bytes of memory for a second process: bpftrace takes some 200 MB while it compiles, its maps 50 MB."""


@dataclass(slots=True, kw_only=True)
class Predecessor:
    """A process whose successor counts already, until all that it counted is printed."""

    run: TracerRun
    before: TracerWindow
    """Counts that it had printed when it was replaced: its tables of the host end with each script's tick."""
    until_us: int
    """When its filter was emptied. What it counts of the host after that, its successor counts too."""
    is_filtered: bool
    """Whether it counts no I/O after that."""
    last_tick_us: int | None = None
    """The earliest of its scripts' newest ticks when it was replaced; None: not known."""
    successor_scripts: int = 0
    """Scripts of the successor that counted then."""
    has_ended: bool = False
    _is_cut: bool = False
    """Whether an interval was left out, of which its successor has a part."""

    def add_to(self, window: TracerWindow) -> TracerWindow:
        """Return a window of the successor with what this process counted since the last call, to its end."""
        was_cut, earlier = self._is_cut, self._take_window()
        joined = with_window_of(earlier, window)
        is_begin_missing = self._is_cut and not (was_cut and window.ticks)
        is_left_out = bool(earlier.ticks and window.ticks) and not have_same_sample(earlier, window)
        return without_host_part(joined) if is_begin_missing or is_left_out else joined

    async def end(self) -> None:
        """End the process within 2 s; its last output can be taken."""
        try:
            await self.run.stop()
        finally:
            self.has_ended = True

    def uncounted_us(self, counts_since: tuple[int, ...]) -> int | None:
        """Return the longest time (us) that neither process counts the tables of the host; None: not known.

        It is from this process's last tick to the last of the first ticks of the successor's scripts, `counts_since`.
        """
        if self.last_tick_us is None or not counts_since or len(counts_since) < self.successor_scripts:
            return None
        return max(max(counts_since) - self.last_tick_us, 0)

    def _take_window(self) -> TracerWindow:
        """Return the data since the last call that the successor doesn't have."""
        before, self.before = self.before, TracerWindow()
        return with_window_of(before, self._later_window())

    def _later_window(self) -> TracerWindow:
        """Return the data since the process was replaced."""
        window = self.run.taken()
        if window.ticks and window.until_us <= self.until_us:
            return window
        self._is_cut = self._is_cut or bool(window.ticks)
        return requests_of(window) if self.is_filtered else TracerWindow(losses=window.losses)


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """The steps by which one process of the tracer replaces another."""

    launcher: Launcher
    clock: Callable[[], float]
    """CLOCK_MONOTONIC, in seconds."""
    interval_s: float
    """Time between two ticks of a script."""
    silent_s: float
    """A process that counts nothing for so long doesn't take over."""

    async def begin(self, earlier: TracerRun, later: TracerRun) -> Predecessor | None:
        """End the counting of a process, and begin that of its successor with the tick that follows.

        The first one's filter is emptied, so that no I/O is counted twice, shortly before that tick, so that hardly one
        is counted by neither. Return None where the successor ends meanwhile, or counts nothing.
        """
        tick_us = await self._first_tick(later)
        if tick_us is None:
            return None
        begun = self.clock()
        is_filtered = earlier.target.filtered and await self.launcher.trace_devices(
            earlier.probe.pid, {SAMPLE: earlier.sample.one_in - 1}
        )
        # that changes nothing: a busy host takes as long for what follows
        before_s = _BEFORE_TICK_S + self.clock() - begun
        elapsed_s = self.clock() - tick_us / 1e6 + before_s
        await asyncio.sleep(math.ceil(elapsed_s / self.interval_s) * self.interval_s - elapsed_s)
        if is_filtered:
            untraced = dict.fromkeys(earlier.target.numbers or (ALL_DEVICES,), 0)
            is_filtered = await self.launcher.trace_devices(earlier.probe.pid, untraced)
        until_us = int(self.clock() * 1e6)
        scripts, last_tick_us = len(later.counting), min(earlier.counting, default=None)
        later.count_from(until_us)
        return Predecessor(
            run=earlier,
            before=earlier.taken(),
            until_us=until_us,
            is_filtered=is_filtered,
            last_tick_us=last_tick_us,
            successor_scripts=scripts,
        )

    async def wait_for_last_tick(self) -> None:
        """Wait for a tick of the replaced process, with all that it counted."""
        await asyncio.sleep((1 + _SPARE) * self.interval_s)

    async def _first_tick(self, later: TracerRun) -> int | None:
        """Wait until all scripts of a process count, which is one after the other while hooks are attached.

        Return the earliest of their newest ticks; None where the process ends, or counts nothing for too long.
        """
        begun = self.clock()
        counting, since = 0, begun
        while not later.ended and (counting or self.clock() - begun < self.silent_s):
            if len(later.counting) != counting:
                counting, since = len(later.counting), self.clock()
            elif counting and self.clock() - since > (1 + _SPARE) * self.interval_s:
                return min(later.counting)
            await asyncio.sleep(_BEFORE_TICK_S)
        return None


def has_memory_for_two(proc: Path) -> bool:
    """Return whether a second process fits into the memory that /proc reports as available."""
    return available_memory(proc) >= _ROOM


def uncounted_text(uncounted_us: int | None, *, has_files: bool) -> str:
    """Return a sentence on the time that neither a process nor its successor counted; None: not known."""
    tables = ("interrupts", "softirqs", "wake-ups", *(("operations on files",) if has_files else ()))
    time_text = "an unknown time" if uncounted_us is None else f"up to {math.ceil(uncounted_us / 1e5) / 10:.1f} s"
    return f"{', '.join(tables[:-1])} and {tables[-1]} were not counted for {time_text}"
