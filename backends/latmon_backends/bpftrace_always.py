"""The always-on probe: the best variant that runs here, found by trying, kept running, window by window.

Owns the choice among the variants, restarts, and the switch to pointers where requests carry no stamps. What makes a
frame of a window is another module's; so are the deep probes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Mapping

from latmon import host
from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.framing import Framer
from latmon_backends import bpftrace_tiers, bpftrace_tool, sampler
from latmon_backends.bpf_programs import Skipped
from latmon_backends.bpftrace_probe import Probe
from latmon_backends.bpftrace_program import Program
from latmon_backends.bpftrace_tiers import Variant
from latmon_backends.bpftrace_tool import Tool
from latmon_backends.child import GRACE_S
from latmon_backends.frames import Frames
from latmon_backends.kept_running import KeptRunning
from latmon_backends.launching import Launcher
from latmon_backends.running_probe import RefusedError
from latmon_backends.sampler import KernelSampler
from latmon_backends.ticks import Surroundings, Ticks, Window

_TOO_OLD = ("Unknown function: nsecs", "Invalid probe type")
"""What 0.17 and 0.18 say to nsecs(monotonic) and to rawtracepoint."""
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
        found = bpftrace_tiers.variants(
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
            now_us=sampler.monotonic_us,
            ahead_us=host.suspended_us,
            sample=self._sampler.sample,
            map_keys=self._tool.map_keys,
            interval_us=self._options.interval_us,
        )
        self._ticks = Ticks(variant.manifest, framer, around)
        self._skipped = Skipped()

    async def _again(self) -> None:
        """The same variant, told anew how far its clock is ahead of the stamps, where it must know."""
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
        why = "the kernel's types don't tell which argument a request is"
        options = self._options
        for variant in bpftrace_tiers.pointers(
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
