"""The always-on probe: choice among its scripts, windows, silence, restarts, end.

What the next frame reports of that goes to `frames`. Each tool has a subclass of AlwaysOn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping

from latmon.capture.backend import Options
from latmon.manifest.loader import Manifest
from latmon.support.errors import ProbeGoneError, UnavailableError, UntrustedError
from latmon_backends.probe.events import Event
from latmon_backends.probe.frame_builder import FrameBuilder
from latmon_backends.probe.launcher import AnyProgram, Launcher, Script
from latmon_backends.probe.process import LOOK_S, RefusedError, RunningProbe, Silence
from latmon_backends.probe.tick_protocol import ProbeWindow, Ticks

_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS = 3
Start = Callable[[], Awaitable[None]]


class ProbeSupervisor:
    """Restarts of one probe process; it is stuck when it prints nothing for `silent_s` and three ticks."""

    def __init__(self, tool: str, frames: FrameBuilder, interval_us: int, silent_s: float) -> None:
        self._tool, self._frames = tool, frames
        self._silent_s = max(_SILENT_TICKS * interval_us / 1e6, silent_s)
        self._why_ended, self._is_down = "", False
        self._silence = Silence()
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    async def next(self, probe: RunningProbe) -> Event | None:
        """Return the next event; None where the probe ended, or was ended because it was silent."""
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
        """Raise ProbeGoneError where the probe has ended and no other one runs yet."""
        if self._is_down:
            raise self.gone()

    def gone(self) -> ProbeGoneError:
        """Return the error that says why nothing was counted since the last frame."""
        why = f": {self._why_ended}" if self._why_ended else " by itself"
        return ProbeGoneError(f"{self._tool} had ended{why}")

    async def restart(self, probe: RunningProbe, start: Start) -> bool:
        """Restart it after an end that was not requested, at most three times a minute; return whether it runs."""
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
        """Start it again, which is a gap; return whether it runs. The notice has the reason."""
        self._is_down = True
        try:
            await start()
        except (RefusedError, UnavailableError, UntrustedError) as refusal:
            self._frames.notice = f"{self._tool} could not be started again ({why}): {refusal}"
            return False
        self._is_down = False
        self._frames.gap, self._frames.notice = "probe-restart", f"{self._tool} was started again ({why})"
        return True


class AlwaysOn(ABC):
    """The always-on probe process of one tool: the first of its scripts that runs, kept running."""

    script: Script
    program: AnyProgram
    probe: RunningProbe
    _ticks: Ticks

    def __init__(self, tool: str, silent_s: float, options: Options, launcher: Launcher, frames: FrameBuilder) -> None:
        """`silent_s`: a probe that prints nothing for so long is stuck."""
        self._options, self.launcher, self._frames = options, launcher, frames
        self._kept = ProbeSupervisor(tool, frames, options.interval_us, silent_s)

    @property
    def manifest(self) -> Manifest:
        return self.script.manifest

    async def choose(self) -> dict[str, str]:
        """Start the first script that runs. Return the others' refusals by name; UnavailableError where none runs."""
        refusals: dict[str, str] = {}
        for script in self._candidates(refusals):
            try:
                await self._start(script)
            except RefusedError as refusal:
                refusals[script.name] = str(refusal)
                if why := self._why_none_would(str(refusal)):
                    raise UnavailableError(why) from refusal
            else:
                return refusals
        raise UnavailableError(self._why_none(refusals))

    async def window(self) -> ProbeWindow | None:
        """Return the next window; None where the probe ended and can't be kept running."""
        while True:
            event = await self._kept.next(self.probe)
            if event is None:
                if not await self._kept.restart(self.probe, self._again):
                    return None
            elif (window := self._take(event)) is not None:
                return window

    async def mend(self, window: ProbeWindow, gap: str) -> None:  # noqa: ARG002 - subclasses use it
        """Restart the probe where the frame of a window shows that it must be."""
        if gap == "suspended":
            await self.probe.stop()
            await self._kept.start_again(self._again, "the host was suspended")

    @abstractmethod
    async def finish(self, on_demand: asyncio.Task[None], patience_s: float) -> ProbeWindow | None:
        """End the probe beside the tracer, whose end `on_demand` is; return the window of the interval that was begun.

        ProbeGoneError where the probe was gone already.
        """

    async def skipped(self) -> int | None:
        """Return the runs of its programs that the kernel skipped since the last call; None where not known."""
        return None

    @abstractmethod
    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Script]:
        """Yield the scripts, the best first; `refusals` has those of the scripts before."""

    @abstractmethod
    async def _start(self, script: Script) -> None:
        """Start the script: sets `script`, `program`, `probe` and the ticks."""

    @abstractmethod
    async def _again(self) -> None:
        """Start the same script once more."""

    @abstractmethod
    def _why_none_would(self, refusal: str) -> str:
        """Return the sentence for a refusal that no other script would avoid, else nothing."""

    @abstractmethod
    def _why_none(self, refusals: dict[str, str]) -> str: ...

    def _take(self, event: Event) -> ProbeWindow | None:
        return self._ticks.take(event)

    def _last(self) -> ProbeWindow | None:
        """Return the interval that was begun; ProbeGoneError where the probe printed no last line."""
        if not self._ticks.saw_last_line:
            raise self._kept.gone()
        return self._ticks.last()


async def drop_windows_until(task: asyncio.Task[None], window: Callable[[], Awaitable[object | None]]) -> None:
    """Drop the windows until `task` is done: a capture begins when all that it needs is there.

    The task has ended when this returns; its error is reported by the code that created it.
    """
    try:
        while not task.done() and await window() is not None:
            pass
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
