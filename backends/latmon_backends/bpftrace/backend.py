"""The bpftrace backend: the always-on probe, and the on-demand tracer beside it, as frames.

Puts the parts together: who starts the tool, what the probes say, the kernel's own counters. Each part is a module of
its own.

Owns the choice among the variants, restarts, and the switch to pointers where requests carry no stamps. What makes a
frame of a window is another module's; so are the deep probes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Self

from latmon import __version__
from latmon.capture.backend import Options
from latmon.decode.framer import Framer
from latmon.model.frame import Frame, Health, Missing, Origin, Settings, capped
from latmon.support import host
from latmon.support.errors import UnavailableError
from latmon_backends.bpftrace import program as bpftrace_program
from latmon_backends.bpftrace import tool as bpftrace_tool
from latmon_backends.bpftrace.probe import Probe
from latmon_backends.bpftrace.program import Program, Variant
from latmon_backends.bpftrace.tool import Tool
from latmon_backends.bpftrace.tracer import DeepPrograms, Host, Inventory
from latmon_backends.kernel import counters
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel import settings as kernel_settings
from latmon_backends.kernel.counters import KernelSampler
from latmon_backends.kernel.interrupts import Interrupts
from latmon_backends.probe import launcher
from latmon_backends.probe.bpf_stats import Skipped
from latmon_backends.probe.frame_builder import Frames
from latmon_backends.probe.launcher import Direct, Launcher, RootLauncher
from latmon_backends.probe.outliers import Outliers, Threads
from latmon_backends.probe.process import GRACE_S, RefusedError
from latmon_backends.probe.supervisor import KeptRunning, left_out_until
from latmon_backends.probe.tick_protocol import Surroundings, Ticks, Window
from latmon_backends.tracer.controller import Deep
from latmon_backends.tracer.join import Joining, health_of
from latmon_backends.tracer.programs import Target

_TOO_OLD = ("Unknown function: nsecs", "Invalid probe type")
"""Begins of the errors that 0.17 and 0.18 print for nsecs(monotonic) and rawtracepoint."""
_SILENT_S = 6.0
"""A probe that prints nothing for so long is stuck: a tick prints at least its number."""
_ENOUGH = 100
"""Completions in an interval that tell what requests here are like."""


class AlwaysOn:
    """One bpftrace process. What the next frame must say of its life goes to `frames`."""

    def __init__(
        self, options: Options, tool: Tool, launcher: Launcher, counters: KernelSampler, frames: Frames
    ) -> None:
        self._options, self._tool, self.launcher = options, tool, launcher
        self._sampler, self._frames = counters, frames
        self._stamps_given_up = False
        self._asked = 0.0
        """When the probe was asked to end."""
        self._kept = KeptRunning("bpftrace", frames, options.interval_us, _SILENT_S)
        self._skipped = Skipped()

    async def choose(self, only: tuple[str, ...] = ()) -> dict[str, str]:
        """Starts the first variant that runs; what the others said, by name. UnavailableError where none does."""
        refusals: dict[str, str] = {}
        for variant in self._variants(only):
            before = next(reversed(refusals.values()), "")
            if variant.only_after is not None and not variant.only_after.search(before) and not only:
                continue
            try:
                await self._start(variant)
            except RefusedError as refusal:
                refusals[variant.name] = str(refusal)
                if bpftrace_tool.is_privilege(str(refusal)):
                    raise UnavailableError(_no_privilege(str(refusal))) from refusal
            else:
                return refusals
        why = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
        raise UnavailableError(f"bpftrace {self._tool.version} runs none of the probes here: {why}.")

    def why_lesser(self, refusals: Mapping[str, str]) -> str:
        """Why this tier and not A."""
        if not refusals or self.variant.manifest.tier == "A":
            return ""
        refusal = next(iter(refusals.values()))
        if any(sign in refusal for sign in _TOO_OLD):
            why = f"needs bpftrace 0.19 or newer, and this is {self._tool.version}"
        else:
            why = f"is refused: {refusal}"
        return f"tier {self.variant.manifest.tier}, because tier A {why}"

    async def window(self) -> Window | None:
        """The next one; None where the probe ended and can't be kept running."""
        while True:
            event = await self._kept.next(self.probe)
            if event is None:
                if not await self._kept.restart(self.probe, self._again):
                    return None
            elif (window := self._ticks.take(event)) is not None:
                return window

    async def outlast(self, others: asyncio.Task[None], seconds: float) -> None:
        """Goes on until these are done, or for so long: what it counts meanwhile is part of the last interval."""
        self._ticks.end()
        if not seconds:
            return
        reading = asyncio.create_task(self._read_on())
        try:
            await asyncio.wait({others, reading}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def last(self) -> Window | None:
        """End the probe and return the interval that was begun. ProbeGoneError where the probe was gone already."""
        self._kept.check()
        self._asked = self._asked or time.monotonic()
        self.probe.end()
        self._ticks.end()
        await self._read_on()
        if not self._ticks.said_last and time.monotonic() - self._asked < GRACE_S:  # the shim's SIGKILL comes no sooner
            raise self._kept.gone()
        return self._ticks.last()

    async def _read_on(self) -> None:
        while (event := await self.probe.next()) is not None:
            self._ticks.take(event)

    async def mend(self, window: Window, gap: str) -> None:
        """After a window's frame: what the window, or the frame's gap, says that the probe lacks."""
        if gap == "suspended" and self.variant.knows_clock:
            await self.probe.stop()
            await self._kept.start_again(self._again, "the host was suspended")
        elif self._lacks_stamps(window):
            await self._keep_issues()

    async def skipped(self) -> int | None:
        """Runs of its programs that the kernel skipped since the last call; None where that can't be told."""
        return self._skipped.since_last((await self.launcher.totals(self.probe.pid)).skipped)

    def _variants(self, only: tuple[str, ...]) -> Iterator[Variant]:
        interval_ms, ahead_ns = self._options.interval_us // 1000, host.suspended_us() * 1000
        found = bpftrace_program.variants(
            interval_ms, ahead_ns, self._options.sys, threshold_us=self._options.threshold_us
        )
        return (variant for variant in found if not only or variant.manifest.name in only)

    async def _start(self, variant: Variant) -> None:
        program = Program((variant.script,), self._tool.map_keys)
        self.probe = await Probe.start(self.launcher, program)
        self.variant, self.program = variant, program
        frames = self._frames
        framer = Framer(variant.manifest, frames.device_name, frames.has_several_queues, frames.is_selected)
        around = Surroundings(
            now_us=kernel_counters.monotonic_us,
            ahead_us=host.suspended_us,
            sample=self._sampler.sample,
            map_keys=self._tool.map_keys,
            interval_us=self._options.interval_us,
        )
        self._ticks = Ticks(variant.manifest, framer, around)
        self._skipped = Skipped()

    async def _again(self) -> None:
        """Restart the variant with the present distance of its clock from the stamps, where its script takes one."""
        await self._start(self.variant.with_clock(host.suspended_us() * 1000))

    def _lacks_stamps(self, window: Window) -> bool:
        """Tier A needs stamps that not every queue keeps (QUEUE_FLAG_STATS): here most requests had none."""
        if self._stamps_given_up or self.variant.manifest.tier != "A":
            return False
        seen = sum(done.count for done in window.interval.seen.values())
        return window.interval.unmatched * 2 > seen >= _ENOUGH

    async def _keep_issues(self) -> None:
        """From stamps to pointers, once, where the kernel's types say how; else the probe that runs stays."""
        self._stamps_given_up = True
        why = "the kernel's types don't show which argument is the request"
        options = self._options
        for variant in bpftrace_program.pointers(
            options.interval_us // 1000, options.sys, threshold_us=options.threshold_us
        ):
            running = self.probe
            try:
                await self._start(variant)
            except (RefusedError, UnavailableError) as refusal:
                why = str(refusal)
                continue
            await running.stop()
            self._frames.gap = "probe-restart"
            self._frames.notice = "requests carry no stamp of their issue here: it is kept by request (tier A')"
            return
        self._frames.notice = f"most requests carry no stamp of their issue here and can't be timed: {why}"


def _no_privilege(why: str) -> str:
    if os.geteuid() == 0:
        return f"the kernel refuses bpftrace though it is root ({why}), as in a container: see `latmon doctor`."
    how = "run `sudo latmon`" if shutil.which("sudo") else "run latmon as root"
    return f"bpftrace needs root ({why}): {how}."


_TRACED_S = 90.0
"""How long a busy or emulated host may take to compile the deep probes before a capture goes on without."""
_SETTLES = 0.3
"""Share of an interval. The tracer has ticks of its own and prints much more."""
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
        reading = asyncio.create_task(kernel_settings.bounded(self._options, self._sampler.devices, {}))
        try:
            refusals = await self._always.choose(self._only)
        finally:
            await asyncio.wait({asking, looking, reading})
        if launcher.needed():
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
            start_mono_us=counters.monotonic_us(),
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
        return await kernel_settings.bounded(self._options, self._sampler.devices, self._told())

    def _told(self) -> kernel_settings.Sections:
        """Return latmon's own settings. The tracer's program is that for all devices: its filter is no setting."""
        deep = self._programs.program(Target(), 1)
        return {
            "tool": {"bpftrace": self._tool.version, "latmon": __version__},
            "probe always-on": kernel_settings.probe(self._always.program.text(), (self._always.variant.name,)),
            "probe deep": kernel_settings.probe(deep.text(), (one.manifest.name for one in deep.scripts)),
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
        """Wait until stages are traced, and drop the windows before: with --stages all the first frame has them."""
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
