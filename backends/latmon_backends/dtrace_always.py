"""The always-on D script: the best that runs here, found by trying, kept running, window by window.

Owns the choice and restarts. What makes a frame of a window is another module's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from latmon import host
from latmon.errors import UnavailableError
from latmon.framing import Framer
from latmon.manifest import Manifest
from latmon_backends import dtrace_messages, sampler
from latmon_backends.dtrace_here import Here
from latmon_backends.dtrace_probe import Probe
from latmon_backends.dtrace_program import MAP_KEYS, Program, Script
from latmon_backends.launching import Direct, Launcher
from latmon_backends.probe_events import Event
from latmon_backends.running_probe import RefusedError
from latmon_backends.ticks import Surroundings, Ticks, Window

_RESTARTS, _WITHIN_S = 3, 60.0
_SILENT_TICKS, _SILENT_S = 3, 15.0
"""Oracle's DTrace loses ticks, for up to 13 s in a row: only one that prints nothing for longer is stuck."""


class AlwaysOn:
    """One dtrace process. What the next frame must say of its life goes to `frames`."""

    def __init__(self, here: Here) -> None:
        self._here, self._frames = here, here.frames
        self.launcher: Launcher = Direct(here.tool, here.options.proc)
        self._why_ended = ""
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    async def choose(self, scripts: Sequence[Manifest]) -> dict[str, str]:
        """Starts the first script that runs; what the others said, by name. UnavailableError where none does."""
        refusals: dict[str, str] = {}
        for script in (one for manifest in scripts for one in self._here.fillings(manifest)):
            try:
                await self._start(script)
            except RefusedError as refusal:
                refusals[script.name] = str(refusal)
                if dtrace_messages.is_privilege(str(refusal)):
                    raise UnavailableError(_no_privilege(str(refusal), self._here.tool.system)) from refusal
            else:
                return refusals
        why = "; ".join(f"{name}: {reason}" for name, reason in refusals.items()) or "there is none for this system"
        raise UnavailableError(f"dtrace {self._here.tool.version} runs none of the probes here: {why}.")

    async def window(self) -> Window | None:
        """The next one; None where the probe ended and can't be kept running."""
        while True:
            event = await self._next()
            if event is None:
                if not await self._restart():
                    return None
            elif (window := self._ticks.take(event)) is not None:
                return window

    async def last(self, patience_s: float) -> Window | None:
        """Ends the probe; the interval that was begun, where it is told in time.

        END runs at once, but DTrace passes on what it prints only as it detaches, which takes seconds.
        """
        self.probe.end(patient=True)
        self._ticks.end()
        try:
            async with asyncio.timeout(patience_s):
                while (event := await self.probe.next()) is not None:
                    self._ticks.take(event)
        except TimeoutError:
            return None
        return self._ticks.last()

    async def mend(self, gap: str) -> None:
        """After a window's frame. A clock that stands still while the host sleeps bends no time but those in flight."""
        if gap == "suspended":
            await self.probe.stop()
            await self._start_again("the host was suspended")

    async def _start(self, script: Script) -> None:
        self.probe = await Probe.start(self.launcher, Program((script,)), self._here.names)
        self.script, self.manifest = script, script.manifest
        frames = self._frames
        around = Surroundings(
            now_us=sampler.monotonic_us,
            ahead_us=host.suspended_us,
            sample=self._here.devices.sample,
            map_keys=MAP_KEYS,
            interval_us=self._here.options.interval_us,
        )
        self._ticks = Ticks(
            self.manifest, Framer(self.manifest, frames.device_name, selects=frames.is_selected), around
        )

    async def _next(self) -> Event | None:
        """The next event; None where the probe ended, or must be ended because it fell silent."""
        silent_s = max(_SILENT_TICKS * self._here.options.interval_us / 1e6, _SILENT_S)
        try:
            async with asyncio.timeout(silent_s):
                event = await self.probe.next()
        except TimeoutError:
            await self.probe.stop()
            self._why_ended = f"it printed nothing for {silent_s:.0f} s"
            return None
        if event is None:
            self._why_ended = await self.probe.complaint()
        return event

    async def _restart(self) -> bool:
        """After an end nobody asked for: again, at most three times a minute, with a gap to show for it."""
        why = self._why_ended
        await self.probe.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._frames.notice = f"dtrace ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        return await self._start_again(f"it had ended: {why}")

    async def _start_again(self, why: str) -> bool:
        try:
            await self._start(self.script)
        except (RefusedError, UnavailableError) as refusal:
            self._frames.notice = f"dtrace could not be started again ({why}): {refusal}"
            return False
        self._frames.gap, self._frames.notice = "probe-restart", f"dtrace was started again ({why})"
        return True


def _no_privilege(why: str, system: str) -> str:
    how = {
        "linux": "run `sudo latmon`",
        "illumos": "run latmon as root, or give the user the privileges dtrace_kernel and dtrace_proc "
        "(usermod -K defaultpriv=basic,dtrace_kernel,dtrace_proc USER)",
        "freebsd": "run latmon as root",
    }
    return f"dtrace needs more privileges ({why}): {how[system]}."
