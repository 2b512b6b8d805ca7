"""The always-on D script: the best that runs here, found by trying, kept running, window by window.

Owns the choice and restarts. What makes a frame of a window is another module's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from latmon.errors import UnavailableError
from latmon.framing import Framer, Interval
from latmon.manifest import Manifest
from latmon_backends import dtrace_messages, sampler
from latmon_backends.dtrace_gauge import Gauge
from latmon_backends.dtrace_here import Here
from latmon_backends.dtrace_probe import Probe
from latmon_backends.dtrace_program import MAP_KEYS, Program, Script
from latmon_backends.kept_running import KeptRunning
from latmon_backends.launching import Direct, Launcher
from latmon_backends.probe_events import Event, Printed
from latmon_backends.running_probe import RefusedError
from latmon_backends.tick_lines import stamped
from latmon_backends.ticks import Surroundings, Ticks, Window

_SILENT_S = 15.0
"""Oracle's DTrace loses ticks, for up to 13 s in a row: only one that prints nothing for longer is stuck."""


class AlwaysOn:
    """One dtrace process. What the next frame must say of its life goes to `frames`."""

    def __init__(self, here: Here) -> None:
        self._here, self._frames = here, here.frames
        self.launcher: Launcher = Direct(here.tool, here.options.proc)
        self._kept = KeptRunning("dtrace", here.frames, here.options.interval_us, _SILENT_S)

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
                if dtrace_messages.is_library(str(refusal)):
                    raise UnavailableError(_no_library(str(refusal), self._tool)) from refusal
            else:
                return refusals
        raise UnavailableError(f"{self._tool} runs none of the probes here: {_why_none(refusals)}.")

    @property
    def _tool(self) -> str:
        return f"dtrace {self._here.tool.version}".strip()

    async def window(self) -> Window | None:
        """The next one; None where the probe ended and can't be kept running."""
        while True:
            event = await self._kept.next(self.probe)
            if event is None:
                if not await self._kept.restart(self.probe, self._again):
                    return None
            elif (window := self._take(event)) is not None:
                return self._counted(window)

    async def last(self, patience_s: float) -> Window | None:
        """End the probe and return the interval that was begun, where it comes in time.

        ProbeGoneError where the probe was gone already.
        All is told within 10 ms; what takes 5 to 17 s after it is DTrace's detaching, which nobody waits for.
        """
        self._kept.check()
        self.probe.end(patient=True)
        self._ticks.end()
        try:
            async with asyncio.timeout(patience_s):
                while (event := await self.probe.next()) is not None and not self._is_last(event):
                    self._ticks.take(event)
        except TimeoutError:
            return None
        if not self._ticks.said_last:
            raise self._kept.gone()
        window = self._ticks.last()
        return None if window is None else self._counted(window)

    def _take(self, event: Event) -> Window | None:
        words = event.text.split() if isinstance(event, Printed) else []
        if words[:1] == ["tick"] and (found := stamped(words)) is not None:
            self._here.clock.hear(found[1], sampler.monotonic_us())
        return self._ticks.take(event)

    def _is_last(self, event: Event) -> bool:
        """The end of the last maps; ticks may be on their way before it."""
        return event == Printed(f"done {self.manifest.name}") and self._ticks.said_last

    def _counted(self, window: Window) -> Window:
        before, self._ticks.before = self._ticks.before, Interval()
        self.gauge.take(before)
        self.gauge.take(window.interval, dropped=window.losses.map_full + window.losses.lost > 0)
        return window

    async def mend(self, gap: str) -> None:
        """After a window's frame. A clock that stands still while the host sleeps bends no time but those in flight."""
        if gap == "suspended":
            await self.probe.stop()
            await self._kept.start_again(self._again, "the host was suspended")

    async def _start(self, script: Script) -> None:
        self.program = Program((script,))
        self.probe = await Probe.start(self.launcher, self.program, self._here.names)
        self.script, self.manifest = script, script.manifest
        self.gauge = Gauge(self._frames.is_selected, from_issue=self.manifest.latency_from == "issue")
        frames = self._frames
        around = Surroundings(
            now_us=sampler.monotonic_us,
            ahead_us=self._here.clock.ahead_us,
            sample=self._here.devices.sample,
            map_keys=MAP_KEYS,
            interval_us=self._here.options.interval_us,
        )
        self._ticks = Ticks(self.manifest, Framer(self.manifest, self._timed, selects=frames.is_selected), around)

    def _timed(self, number: int) -> str | None:
        """A device that this script names is one that it times."""
        name = self._frames.device_name(number)
        if name is not None:
            self._here.devices.times(name)
        return name

    async def _again(self) -> None:
        await self._start(self.script)


def _no_privilege(why: str, system: str) -> str:
    how = {
        "linux": "run `sudo latmon`",
        "illumos": "run latmon as root, or give the user the privilege dtrace_kernel "
        "(usermod -K defaultpriv=basic,dtrace_kernel USER), then log in again",
        "freebsd": "run latmon as root",
    }
    return f"dtrace needs more privileges ({why}): {how[system]}."


def _no_library(why: str, tool: str) -> str:
    """DTrace compiles its own files for every program, so no other would do."""
    hidden = ", which a kernel without CONFIG_KALLSYMS_ALL does not tell" if "failed to resolve vmlinux`" in why else ""
    return f"{tool} can't compile its own library on this kernel: {why}{hidden}."


def _why_none(refusals: dict[str, str]) -> str:
    """Each reason once, with the scripts that were refused for it, whatever their words were."""
    reasons: dict[str, dict[str, None]] = {}
    for script, reason in refusals.items():
        reasons.setdefault(reason, {})[script.split(" ", 1)[0]] = None
    told = (f"{', '.join(scripts)}: {reason}" for reason, scripts in reasons.items())
    return "; ".join(told) or "there is none for this system"
