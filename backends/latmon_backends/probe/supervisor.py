"""The supervisor of an always-on probe process: silence, end, restarts.

What the next frame must say of that goes to `frames`. Knows neither how it is started nor what it prints.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable

from latmon.support.errors import ProbeGoneError, UnavailableError, UntrustedError
from latmon_backends.probe.events import Event
from latmon_backends.probe.frame_builder import Frames
from latmon_backends.probe.process import LOOK_S, RefusedError, RunningProbe, Silence

_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS = 3
Start = Callable[[], Awaitable[None]]


class KeptRunning:
    """`tool` is its name in sentences; it is stuck when it prints nothing for `silent_s` and three ticks."""

    def __init__(self, tool: str, frames: Frames, interval_us: int, silent_s: float) -> None:
        self._tool, self._frames = tool, frames
        self._silent_s = max(_SILENT_TICKS * interval_us / 1e6, silent_s)
        self._why_ended, self._is_down = "", False
        self._silence = Silence()
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    async def next(self, probe: RunningProbe) -> Event | None:
        """The next event; None where the probe ended, or must be ended because it fell silent."""
        try:
            event = await self._listened(probe)
        except TimeoutError:
            self._why_ended, self._is_down = f"it printed nothing for {self._silent_s:.0f} s", True
            await probe.stop()
            return None
        if event is None:
            self._why_ended, self._is_down = "its output ended", True
            self._why_ended = await probe.complaint()
        return event

    async def _listened(self, probe: RunningProbe) -> Event | None:
        """Return the next event; TimeoutError where the probe is silent, not where this process was stopped."""
        self._silence.heard()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    return await probe.next()
            if self._silence.look() >= self._silent_s:
                raise TimeoutError

    def check(self) -> None:
        """ProbeGoneError where the probe has ended and no other one runs yet."""
        if self._is_down:
            raise self.gone()

    def gone(self) -> ProbeGoneError:
        """Return the error that says why nothing was counted since the last frame."""
        why = f": {self._why_ended}" if self._why_ended else " by itself"
        return ProbeGoneError(f"{self._tool} had ended{why}")

    async def restart(self, probe: RunningProbe, start: Start) -> bool:
        """After an end nobody asked for: again, at most three times a minute, with a gap to show for it."""
        why = self._why_ended
        await probe.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._frames.notice = f"{self._tool} ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        return await self.start_again(start, f"it had ended: {why}")

    async def start_again(self, start: Start, why: str) -> bool:
        """False where it can't be: the notice says so."""
        self._is_down = True
        try:
            await start()
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._frames.notice = f"{self._tool} could not be started again ({why}): {refusal}"
            return False
        self._is_down = False
        self._frames.gap, self._frames.notice = "probe-restart", f"{self._tool} was started again ({why})"
        return True


async def left_out_until(task: asyncio.Task[None], window: Callable[[], Awaitable[object | None]]) -> None:
    """What is counted until `task` is done is of no frame: a capture begins when all that was asked for is there.

    The task is over then, whatever came of it: what it could not do is told by who began it.
    """
    try:
        while not task.done() and await window() is not None:
            pass
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
