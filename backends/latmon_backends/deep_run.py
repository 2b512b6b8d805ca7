"""A deep process that runs: read event by event in a task of its own, so that it keeps nobody waiting, until it ends.

Knows neither why it was started nor what it may cost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

from latmon_backends.bpf_programs import Skipped
from latmon_backends.deep_ticks import DeepTicks, DeepWindow
from latmon_backends.demand import Want
from latmon_backends.programs import Target
from latmon_backends.running_probe import RunningProbe, Silence

_LAST_S = 1.5
"""Who doesn't obey is killed 1.4 s after it was asked to end."""


class Run:
    """From `begin` to `stop`. `percent` and `measured` are its meter's: what it takes, and when to look again."""

    def __init__(
        self,
        probe: RunningProbe,
        ticks: DeepTicks,
        want: Want,
        target: Target,
        *,
        one_in: int,
        clock: Callable[[], float],
    ) -> None:
        self.probe, self.want, self.target, self.one_in = probe, want, target, one_in
        self._ticks, self._clock = ticks, clock
        self.begun = self.heard = self.measured = clock()
        self._silence = Silence(clock)
        self.percent: float | None = None
        self.skipped = Skipped()
        self.skipped.since_last(0)  # no program has run before it was loaded
        self.ended = ""
        """Why, once it has."""
        self.windows = 0
        """Those that had something in them."""
        self._reading: asyncio.Task[None] | None = None
        self._whole = asyncio.Event()

    def begin(self, tell: Callable[[], None]) -> None:
        """Read it from now on; `tell` is called when it ends by itself."""
        self._reading = asyncio.create_task(self._read(tell))

    async def settled(self, seconds: float) -> None:
        """Its scripts have each told of the window that ends now, or it took too long."""
        if self.windows and not self.ended:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._whole.wait()

    def taken(self) -> DeepWindow:
        """What it completed since the last call; where something was, with whom it traces and how much."""
        self._whole.clear()
        window = self._ticks.taken()
        self.windows += bool(window.ticks)
        if not window.ticks:
            return window
        interval, devices = window.interval, self.target.devices
        traced = replace(interval.traced, one_in=self.one_in, devices=devices)
        waiting = None if interval.in_flight is None else replace(interval.in_flight, devices=devices)
        return replace(window, interval=replace(interval, traced=traced, in_flight=waiting))

    def covers(self, want: Want) -> bool:
        """Whether it will do for another want."""
        all_devices = not self.target.numbers and self.want.forced == want.forced
        return all_devices or self.want.covers(want)

    def is_dead(self, silent_s: float) -> bool:
        """It ended, or has been silent for too long. To be asked once in LOOK_S."""
        if not self.ended and self._silence.look() > silent_s:
            self.ended = f"it printed nothing for {silent_s:.0f} s"
        return bool(self.ended)

    async def finish(self, *, patient: bool = False) -> None:
        """It is asked to end, and all that it says then is taken; `patient`: however long that takes."""
        self.probe.end(patient=patient)
        try:
            if self._reading is not None:
                await asyncio.wait({self._reading}, timeout=None if patient else _LAST_S)
        finally:
            self._ticks.end()

    async def stop(self) -> None:
        """Ended for certain when this returns, within 2 s; what it said to its end can be taken."""
        try:
            await self.finish()
        finally:
            await self.probe.stop()
            if self._reading is not None:
                self._reading.cancel()
                await asyncio.wait({self._reading})

    async def _read(self, tell: Callable[[], None]) -> None:
        """Between two events everybody else has a turn."""
        while (event := await self.probe.next()) is not None:
            self._ticks.take(event)
            self.heard = self._clock()
            self._silence.heard()
            if not self._whole.is_set() and self._ticks.whole():
                self._whole.set()
            await asyncio.sleep(0)
        why = await self.probe.complaint()
        self.ended = self.ended or why  # what it says when it is ended for its silence is no reason
        tell()
