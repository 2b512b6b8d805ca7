"""The DTrace backend: the always-on D script, and the on-demand tracer beside it, as frames.

Puts the parts together, as bpftrace.py does: what the probes say, the kernel's own counters where it has some. The tick
protocol, frames and the deep process are the same; only what starts a probe and reads its output is DTrace's.

Owns the choice and restarts. What makes a frame of a window is another module's.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Self

from latmon import __version__
from latmon.capture.backend import Options
from latmon.decode.framer import Framer, Interval
from latmon.manifest.loader import Manifest
from latmon.model.frame import Frame, Health, Missing, Origin, Settings, capped
from latmon.support import host
from latmon.support.errors import UnavailableError
from latmon_backends.dtrace import program
from latmon_backends.dtrace import tool as dtrace_tool
from latmon_backends.dtrace.decoder import Names
from latmon_backends.dtrace.devices import Gauge, NamedDevices, NoCounters
from latmon_backends.dtrace.probe import Probe
from latmon_backends.dtrace.program import MAP_KEYS, Program, Script
from latmon_backends.dtrace.tool import Tool
from latmon_backends.dtrace.tracer import DtracePrograms, Here
from latmon_backends.kernel import counters
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel import settings as kernel_settings
from latmon_backends.kernel.interrupts import Interrupts
from latmon_backends.kernel.system import Sampler, TaskQueues, sampler_of
from latmon_backends.probe import launcher
from latmon_backends.probe.events import Event, Printed
from latmon_backends.probe.frame_builder import Frames
from latmon_backends.probe.launcher import Direct, Launcher, RootLauncher
from latmon_backends.probe.outliers import Outliers
from latmon_backends.probe.process import RefusedError
from latmon_backends.probe.supervisor import KeptRunning, left_out_until
from latmon_backends.probe.tick_protocol import Surroundings, Ticks, Window, stamped
from latmon_backends.tracer.controller import Deep
from latmon_backends.tracer.join import Joining, health_of

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
                if dtrace_tool.is_privilege(str(refusal)):
                    raise UnavailableError(_no_privilege(str(refusal), self._here.tool.system)) from refusal
                if dtrace_tool.is_library(str(refusal)):
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
            self._here.clock.hear(found[1], counters.monotonic_us())
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
            now_us=counters.monotonic_us,
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


_TRACED_S = 90.0
"""How long a busy or emulated host may take to compile the deep probes before a capture goes on without."""
_SETTLES = 0.3
"""Share of an interval. The tracer has ticks of its own and prints much more."""
_FINISHING_S = 1.1
"""A capture that is in a hurry waits 1.4 s for its last frame."""
_LAST_S = 0.3
"""What the deep process tells to its end comes within 10 ms."""


class DtraceBackend:
    """Frames from dtrace. Times come from the kernel's clock, never from when a line was read."""

    def __init__(
        self,
        options: Options,
        reason: str = "",
        find_tool: Callable[[], Tool] = dtrace_tool.find,
        only: tuple[str, ...] = (),
    ) -> None:
        """`only` names the always-on scripts that may be tried; empty means all. `reason`: why no better backend."""
        # D scripts have no sample of requests to fall back to, and nothing tells what they cost: no budget.
        self._options = replace(options, budget_percent=0.0)
        self._find_tool, self._only, self._reason = find_tool, only, reason
        self._origin = Origin(backend="dtrace", host=host.name(), kernel=host.kernel(), latmon=__version__)

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        tool = self._tool = await dtrace_tool.asked(self._find_tool())
        found = program.manifests(tool.system)
        program.check_invasive(self._options.invasive, found)
        names = Names()
        counters, asked = _counters(self._options)
        self._queues = TaskQueues(asked)
        self._devices = NamedDevices(counters, names, self._options.devices, self._options.sys)
        self._frames = Frames(self._devices, self._options.sys)
        self._devices.require_selected()
        here = Here(self._options, tool, names, self._devices, self._frames)
        self._always, self._programs = AlwaysOn(here), DtracePrograms(here, found)
        looking = asyncio.create_task(self._look())
        reading = asyncio.create_task(kernel_settings.bounded(self._options, self._devices.devices, {}))
        try:
            scripts = (one for one in program.always_on(found) if not self._only or one.name in self._only)
            refusals = await self._always.choose(tuple(scripts))
        except BaseException:
            looking.cancel()
            await asyncio.wait({looking, reading})
            raise
        if platform.system() == "Linux" and launcher.needed():
            self._always.launcher = RootLauncher(tool, self._always.probe.pid)
        self._join()
        await self._until(looking)
        if self._options.stages == "all":
            self._deep.begin()
            await self._until(asyncio.create_task(asyncio.wait_for(self._deep.tried(), _TRACED_S)))
        manifest = self._always.manifest
        self._origin = replace(
            self._origin,
            tool=f"dtrace {tool.version}".strip(),
            tier=manifest.tier,
            interval_us=self._options.interval_us,
            start_wall=time.time(),
            start_mono_us=kernel_counters.monotonic_us(),
            boot_id=host.boot_id(self._options.proc),
            hz=host.hz(self._options.proc),
            measured={stage: manifest.includes.get(stage, ()) for stage in manifest.stages},
            absent=tuple(Missing(stage, why) for stage, why in manifest.absent.items()),
            probes_missing=self._programs.choice().missing,
            untraced=self._programs.untraced(),
            latency_from=manifest.latency_from,
            reason="; ".join(one for one in (self._reason, _why_lesser(manifest.name, refusals)) if one),
            settings=capped({**self._told(), **await reading}),
            extra={"probe": manifest.name, "refused": refusals, **self._options.fixed},
        )
        self._devices.start()
        return self

    async def settings(self) -> Settings:
        return await kernel_settings.bounded(self._options, self._devices.devices, self._told())

    def _told(self) -> kernel_settings.Sections:
        """Return the settings of latmon itself."""
        deep = self._programs.program()
        return {
            "tool": {"dtrace": self._tool.version, "latmon": __version__},
            "probe always-on": kernel_settings.probe(self._always.program.text(), (self._always.script.name,)),
            "probe deep": kernel_settings.probe(deep.text(), (one.name for one in deep.scripts)),
        }

    def _join(self) -> None:
        manifest, devices = self._always.manifest, self._devices
        self._deep = Deep(self._options, self._always.launcher, self._programs)
        waiting = Outliers(
            (manifest, *self._programs.manifests),
            self._frames.selected_name,
            self._programs.threads,
            alone=self._programs.times_alone,
        )
        self._joining = Joining(
            self._frames,
            self._deep,
            waiting,
            Interrupts(self._options.sys),
            lambda: devices.known,
            stages=self._programs.stages,
            sample_us=self._programs.sample_us,
            fresh=devices.put_fresh,
        )

    async def _look(self) -> None:
        """Listing the probes that there are costs what starting one does: not for those that are never asked for."""
        if self._options.stages != "basic":
            await self._programs.look()

    async def _until(self, task: asyncio.Task[None]) -> None:
        try:
            await left_out_until(task, self._always.window)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._devices.close()
        await asyncio.gather(self._always.probe.stop(), self._deep.close())
        await self._always.launcher.close()

    def deepen(self, devices: tuple[str, ...]) -> None:
        self._deep.deepen(devices)

    def set_stages(self, mode: str) -> None:
        self._deep.set_stages(mode)

    async def frames(self) -> AsyncIterator[Frame]:
        """One frame per tick that DTrace gives, however far apart; ends with a notice when it can't be kept running."""
        self._deep.begin()
        while (window := await self._always.window()) is not None:
            await self._deep.settled(_SETTLES * self._options.interval_us / 1e6)
            frame = self._frame(window)
            yield frame
            await self._always.mend(frame.gap)
        yield self._frames.farewell(Health(probes_wanted=self._always.probe.wanted))

    async def finish(self, patience_s: float) -> Frame | None:
        """Ends the probes; the frame of the interval that was begun, where they tell of it in time."""
        ending = asyncio.create_task(self._deep.finish(patient=patience_s > 0))
        try:
            window = await self._always.last(patience_s + _FINISHING_S)
            await asyncio.wait({ending}, timeout=_LAST_S)
        finally:
            ending.cancel()
            await asyncio.wait({ending})
        return None if window is None else self._frame(window, ending=True)

    def _frame(self, window: Window, *, ending: bool = False) -> Frame:
        health = health_of(window, self._always.probe, None)
        frame = self._joining.frame(window, self._always.manifest, health, ending=ending)
        queues = self._queues.sample()
        health = replace(frame.health, undecoded_lines=frame.health.undecoded_lines + self._queues.undecoded)
        whole = replace(frame, taskqs=queues, health=health)
        return self._always.gauge.fill(whole)


def _counters(options: Options) -> tuple[Sampler, str]:
    """The kernel's own; none where they can't be read."""
    found, asked = sampler_of(options)
    try:
        found.sample()
    except UnavailableError:
        return NoCounters(), ""
    return found, asked


def _why_lesser(name: str, refusals: dict[str, str]) -> str:
    """Why this script and not the one before it."""
    return "".join(f"{name}, because {first} is refused: {why}" for first, why in list(refusals.items())[:1])
