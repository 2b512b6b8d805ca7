"""The DTrace backend: an always-on D script and, while they are wanted, deep ones beside it, as frames.

Puts the parts together, as bpftrace.py does: what the probes say, the kernel's own counters where it has some. The tick
protocol, frames and the deep process are the same; only what starts a probe and reads its output is DTrace's.
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Self

from latmon import __version__, host
from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.mark import Settings
from latmon.model import Frame, Health, Missing, Origin
from latmon.settings import capped
from latmon_backends import dtrace_scripts, dtrace_tool, host_settings, root_launcher, sampler
from latmon_backends.deep_process import Deep
from latmon_backends.dtrace_always import AlwaysOn
from latmon_backends.dtrace_devices import NamedDevices, NoCounters
from latmon_backends.dtrace_here import Here
from latmon_backends.dtrace_maps import Names
from latmon_backends.dtrace_programs import DtracePrograms
from latmon_backends.dtrace_tool import Tool
from latmon_backends.frames import Frames
from latmon_backends.interrupts import Interrupts
from latmon_backends.joining import Joining, health_of
from latmon_backends.kept_running import left_out_until
from latmon_backends.outliers import Outliers
from latmon_backends.root_launcher import RootLauncher
from latmon_backends.system_counters import Sampler, TaskQueues, sampler_of
from latmon_backends.ticks import Window

_TRACED_S = 90.0
"""How long a busy or emulated host may take to compile the deep probes before a capture goes on without."""
_SETTLES = 0.3
"""Of an interval: the deep probes tick on their own, and print much more."""
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
        found = dtrace_scripts.manifests(tool.system)
        dtrace_scripts.check_invasive(self._options.invasive, found)
        names = Names()
        counters, asked = _counters(self._options)
        self._queues = TaskQueues(asked)
        self._devices = NamedDevices(counters, names, self._options.devices, self._options.sys)
        self._frames = Frames(self._devices, self._options.sys)
        self._devices.require_selected()
        here = Here(self._options, tool, names, self._devices, self._frames)
        self._always, self._programs = AlwaysOn(here), DtracePrograms(here, found)
        looking = asyncio.create_task(self._look())
        reading = asyncio.create_task(host_settings.bounded(self._options, self._devices.devices, {}))
        try:
            scripts = (one for one in dtrace_scripts.always_on(found) if not self._only or one.name in self._only)
            refusals = await self._always.choose(tuple(scripts))
        except BaseException:
            looking.cancel()
            await asyncio.wait({looking, reading})
            raise
        if platform.system() == "Linux" and root_launcher.needed():
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
            start_mono_us=sampler.monotonic_us(),
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
        return await host_settings.bounded(self._options, self._devices.devices, self._told())

    def _told(self) -> host_settings.Sections:
        """What this process knows by itself."""
        deep = self._programs.program()
        return {
            "tool": {"dtrace": self._tool.version, "latmon": __version__},
            "probe always-on": host_settings.probe(self._always.program.text(), (self._always.script.name,)),
            "probe deep": host_settings.probe(deep.text(), (one.name for one in deep.scripts)),
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
