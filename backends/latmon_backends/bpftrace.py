"""The bpftrace backend: an always-on probe and, while they are wanted, deep probes beside it, as frames.

Puts the parts together: who starts the tool, what the probes say, the kernel's own counters. Each part is a module of
its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Self

from latmon import __version__, host
from latmon.backend import Options
from latmon.mark import Settings
from latmon.model import Frame, Health, Missing, Origin
from latmon.settings import capped
from latmon_backends import bpftrace_tool, host_settings, root_launcher, sampler
from latmon_backends.bpftrace_always import AlwaysOn
from latmon_backends.bpftrace_tool import Tool
from latmon_backends.deep_process import Deep
from latmon_backends.deep_programs import DeepPrograms, Host, Inventory
from latmon_backends.frames import Frames
from latmon_backends.interrupts import Interrupts
from latmon_backends.joining import Joining, health_of
from latmon_backends.kept_running import left_out_until
from latmon_backends.launching import Direct, Launcher
from latmon_backends.outliers import Outliers
from latmon_backends.programs import Target
from latmon_backends.root_launcher import RootLauncher
from latmon_backends.sampler import KernelSampler
from latmon_backends.threads import Threads
from latmon_backends.ticks import Window

_TRACED_S = 90.0
"""How long a busy or emulated host may take to compile the deep probes before a capture goes on without."""
_SETTLES = 0.3
"""Of an interval: the deep probes tick on their own, and print much more."""
_FINISHING_S = 1.1
"""A capture waits 1.4 s for its last frame."""


class BpftraceBackend:
    """Frames from bpftrace. Times come from the kernel's stamps, never from when a line was read."""

    def __init__(
        self, options: Options, find_tool: Callable[[], Tool] = bpftrace_tool.find, only: tuple[str, ...] = ()
    ) -> None:
        """`only` names the always-on manifests that may be tried; empty means all."""
        self._options, self._find_tool, self._only = options, find_tool, only
        self._sampler = KernelSampler(options.proc, options.sys, options.devices)
        self._origin = Origin(backend="bpftrace", host=host.name(), kernel=host.kernel(), latmon=__version__)

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        tool = self._tool = self._find_tool()
        self._launcher: Launcher = Direct(tool, self._options.proc)
        self._frames = Frames(self._sampler, self._options.sys)
        self._sampler.require_selected()
        self._always = AlwaysOn(self._options, tool, self._launcher, self._sampler, self._frames)
        # While the probe compiles: once it runs, every line of it that waits is a late frame.
        asking = asyncio.create_task(asyncio.to_thread(lambda: tool.version))
        looking = asyncio.create_task(asyncio.to_thread(Inventory, self._options))
        reading = asyncio.create_task(host_settings.bounded(self._options, self._sampler.devices, {}))
        try:
            refusals = await self._always.choose(self._only)
        finally:
            await asyncio.wait({asking, looking, reading})
        if root_launcher.needed():
            self._launcher = self._always.launcher = RootLauncher(tool, self._always.probe.pid)
        self._prepare_deep(await looking)
        if self._options.stages == "all":
            await self._until_traced()
        manifest = self._always.variant.manifest
        self._origin = replace(
            self._origin,
            tool=f"bpftrace {tool.version}".strip(),
            tier=manifest.tier,
            interval_us=self._options.interval_us,
            start_wall=time.time(),
            start_mono_us=sampler.monotonic_us(),
            boot_id=host.boot_id(self._options.proc),
            hz=host.hz(self._options.proc),
            measured={stage: manifest.includes.get(stage, ()) for stage in manifest.stages},
            absent=tuple(Missing(stage, why) for stage, why in manifest.absent.items()),
            probes_missing=self._programs.choice().missing,
            latency_from=manifest.latency_from,
            reason=self._always.why_lesser(refusals),
            settings=capped({**self._told(), **await reading}),
            extra={"probe": self._always.variant.name, "refused": refusals, **self._options.fixed},
        )
        self._sampler.start()
        return self

    async def settings(self) -> Settings:
        return await host_settings.bounded(self._options, self._sampler.devices, self._told())

    def _told(self) -> host_settings.Sections:
        """What this process knows by itself. The deep program is the one for all devices: its filter is no setting."""
        deep = self._programs.program(Target(), 1)
        return {
            "tool": {"bpftrace": self._tool.version, "latmon": __version__},
            "probe always-on": host_settings.probe(self._always.program.text(), (self._always.variant.name,)),
            "probe deep": host_settings.probe(deep.text(), (one.manifest.name for one in deep.scripts)),
        }

    def _prepare_deep(self, inventory: Inventory) -> None:
        variant, block = self._always.variant, self._sampler.block
        threads = Threads(self._options.proc)
        here = Host(
            variant.manifest.tier,
            variant.values,
            lambda: block.devices,
            self._sampler.selects,
            self._frames.selected_name,
            threads,
        )
        self._programs = DeepPrograms(self._options, here, inventory)
        self._deep = Deep(self._options, self._launcher, self._programs)
        waiting = Outliers(
            (variant.manifest, *self._programs.manifests),
            self._frames.selected_name,
            threads,
            inventory.flag_bits,
            self._times,
        )
        self._joining = Joining(
            self._frames,
            self._deep,
            waiting,
            Interrupts(self._options.sys),
            lambda: block.devices,
            stages=self._programs.stages,
            sample_us=self._programs.sample_us,
        )

    async def _until_traced(self) -> None:
        """Who asked for all stages wants them from the first frame on: what comes before it is left out."""
        self._deep.begin()
        tried = asyncio.create_task(asyncio.wait_for(self._deep.tried(), _TRACED_S))
        try:
            await left_out_until(tried, self._always.window)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._sampler.close()
        await asyncio.gather(self._always.probe.stop(), self._deep.close())
        await self._launcher.close()

    def deepen(self, devices: tuple[str, ...]) -> None:
        self._deep.deepen(devices)

    def set_stages(self, mode: str) -> None:
        self._deep.set_stages(mode)

    async def frames(self) -> AsyncIterator[Frame]:
        """One frame per tick; ends with a notice when the probe can't be kept running."""
        self._deep.begin()
        while (window := await self._always.window()) is not None:
            await self._deep.settled(_SETTLES * self._options.interval_us / 1e6)
            frame = self._frame(window, await self._always.skipped())
            yield frame
            await self._always.mend(window, frame.gap)
        yield self._frames.farewell(Health(probes_wanted=self._always.probe.wanted))

    async def finish(self, patience_s: float) -> Frame | None:
        """Ends the probes; the frame of the interval that was begun, so that the totals are those at the end.

        The deep process has many more probes to detach: with some patience it ends first, so that nothing is traced
        that isn't counted. What it hasn't said in time is not worth the frame.
        """
        ending = asyncio.create_task(self._deep.finish(patient=patience_s > 0))
        try:
            await self._always.outlast(ending, patience_s)
            begun = time.monotonic()
            window = await self._always.last()
            await asyncio.wait({ending}, timeout=max(0.0, begun + _FINISHING_S - time.monotonic()))
        finally:
            ending.cancel()
            await asyncio.wait({ending})
        return None if window is None else self._frame(window, None, ending=True)

    def _frame(self, window: Window, skipped: int | None, *, ending: bool = False) -> Frame:
        health = health_of(window, self._always.probe, skipped)
        return self._joining.frame(window, self._always.variant.manifest, health, ending=ending)

    def _times(self, device: str, op: str) -> bool:
        """False where the always-on probe's own times of these I/Os are left out of its histograms."""
        guesses = self._always.variant.manifest.latency_from == "issue" and op == "flush"
        return not (guesses and self._frames.has_several_queues(device))
