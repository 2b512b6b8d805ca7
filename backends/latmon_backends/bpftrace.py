"""The bpftrace backend: the best always-on probe that runs here, as frames beside the kernel's own counters.

Owns the choice among the variants and keeps the chosen one running. The process, its events, the tick protocol and what
makes a frame are other modules'.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from latmon import __version__, host
from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.framing import Framer
from latmon.model import Frame, Health, Missing, Origin
from latmon_backends import bpftrace_tiers, bpftrace_tool, sampler
from latmon_backends.bpftrace_frames import Frames
from latmon_backends.bpftrace_json import Event
from latmon_backends.bpftrace_probe import Probe, RefusedError
from latmon_backends.bpftrace_ticks import Surroundings, Ticks, Window
from latmon_backends.bpftrace_tiers import Variant
from latmon_backends.bpftrace_tool import Tool
from latmon_backends.sampler import KernelSampler

_RESTARTS, _WITHIN_S = 3, 60.0
_TOO_OLD = ("Unknown function: nsecs", "Invalid probe type")
"""What 0.17 and 0.18 say to nsecs(monotonic) and to rawtracepoint."""
_SILENT_TICKS, _SILENT_S = 3, 6.0
"""A probe that prints nothing for so long is stuck: a tick prints at least its number."""
_ENOUGH = 100
"""Completions in an interval that tell what requests here are like."""


class BpftraceBackend:
    """Frames from one bpftrace process. Times come from the kernel's stamps, never from when a line was read."""

    def __init__(
        self, options: Options, find_tool: Callable[[], Tool] = bpftrace_tool.find, only: tuple[str, ...] = ()
    ) -> None:
        """`only` names the manifests that may be tried; empty means all."""
        self._options, self._find_tool, self._only = options, find_tool, only
        self._sampler = KernelSampler(options.proc, options.sys, options.devices)
        self._origin = Origin(backend="bpftrace", host=host.name(), kernel=host.kernel(), latmon=__version__)
        self._stamps_given_up = False
        self._why_ended = ""
        self._began_as_root = os.geteuid() == 0
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        self._tool = tool = self._find_tool()
        self._frames = Frames(self._sampler, self._options.sys)
        self._sampler.require_selected()
        asking = asyncio.create_task(asyncio.to_thread(lambda: tool.version))  # while the probe compiles
        try:
            refusals = await self._choose()
        finally:
            await asyncio.wait({asking})
        manifest = self._variant.manifest
        self._origin = replace(
            self._origin,
            tool=f"bpftrace {self._tool.version}".strip(),
            tier=manifest.tier,
            interval_us=self._options.interval_us,
            start_wall=time.time(),
            start_mono_us=sampler.monotonic_us(),
            boot_id=host.boot_id(self._options.proc),
            hz=host.hz(self._options.proc),
            measured={stage: manifest.includes.get(stage, ()) for stage in manifest.stages},
            absent=tuple(Missing(stage, why) for stage, why in manifest.absent.items()),
            latency_from=manifest.latency_from,
            reason=self._why_lesser(refusals),
            extra={"probe": self._variant.name, "refused": refusals},
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._probe.stop()

    async def frames(self) -> AsyncIterator[Frame]:
        """One frame per tick; ends with a notice when the probe can't be kept running."""
        while True:
            event = await self._next()
            if event is None:
                if not await self._restart():
                    yield self._frames.farewell(Health(probes_wanted=len(self._variant.hooks)))
                    return
            elif (window := self._ticks.take(event)) is not None:
                frame = self._frame(window)
                yield frame
                if frame.gap == "suspended" and self._variant.knows_clock:
                    await self._set_clock()
                elif self._lacks_stamps(window):
                    await self._keep_issues()

    async def _next(self) -> Event | None:
        """The next event; None where the probe ended, or must be ended because it fell silent."""
        silent_s = max(_SILENT_TICKS * self._options.interval_us / 1e6, _SILENT_S)
        try:
            async with asyncio.timeout(silent_s):
                event = await self._probe.next()
        except TimeoutError:
            await self._probe.stop()
            self._why_ended = f"it printed nothing for {silent_s:.0f} s"
            return None
        if event is None:
            self._why_ended = await self._probe.complaint()
        return event

    async def finish(self) -> Frame | None:
        """Ends the probe; the frame of the interval that was begun, so that the totals are those at the end."""
        self._probe.end()
        self._ticks.end()
        while (event := await self._probe.next()) is not None:
            self._ticks.take(event)
        window = self._ticks.last()
        return None if window is None else self._frame(window)

    # Choosing a variant and keeping it running

    async def _choose(self) -> dict[str, str]:
        """Starts the first variant that runs; what the others said, by name."""
        refusals: dict[str, str] = {}
        for variant in self._variants():
            before = next(reversed(refusals.values()), "")
            if variant.only_after is not None and not variant.only_after.search(before) and not self._only:
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

    def _variants(self) -> Iterator[Variant]:
        interval_ms, ahead_ns = self._options.interval_us // 1000, host.suspended_us() * 1000
        found = bpftrace_tiers.variants(
            interval_ms, ahead_ns, self._options.sys, threshold_us=self._options.threshold_us
        )
        return (variant for variant in found if not self._only or variant.manifest.name in self._only)

    def _why_lesser(self, refusals: Mapping[str, str]) -> str:
        """Why this tier and not A."""
        if not refusals or self._variant.manifest.tier == "A":
            return ""
        refusal = next(iter(refusals.values()))
        if any(sign in refusal for sign in _TOO_OLD):
            why = f"needs bpftrace 0.19 or newer, and this is {self._tool.version}"
        else:
            why = f"is refused: {refusal}"
        return f"tier {self._variant.manifest.tier}, because tier A {why}"

    async def _start(self, variant: Variant) -> None:
        self._probe = await Probe.start(self._tool, variant)
        self._variant = variant
        framer = Framer(variant.manifest, self._frames.device_name, self._frames.has_several_queues)
        around = Surroundings(
            now_us=sampler.monotonic_us,
            ahead_us=host.suspended_us,
            sample=self._sampler.sample,
            map_keys=self._tool.map_keys,
            interval_us=self._options.interval_us,
        )
        self._ticks = Ticks(variant.manifest, framer, around)

    async def _restart(self) -> bool:
        """After an end nobody asked for: again, at most three times a minute, with a gap to show for it."""
        why = self._why_ended
        await self._probe.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._frames.notice = f"bpftrace ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        return await self._start_again(f"it had ended: {why}")

    async def _start_again(self, why: str) -> bool:
        """The same variant, told anew how far its clock is ahead of the stamps, where it must know.

        Started as root and being the invoking user by now, only `sudo -n` can.
        """
        if self._began_as_root and os.geteuid() != 0:
            self._tool = replace(self._tool, sudo=True)
        try:
            await self._start(self._variant.with_clock(host.suspended_us() * 1000))
        except (RefusedError, UnavailableError) as refusal:
            self._frames.notice = f"bpftrace could not be started again ({why}): {refusal}"
            return False
        self._frames.gap, self._frames.notice = "probe-restart", f"bpftrace was started again ({why})"
        return True

    def _lacks_stamps(self, window: Window) -> bool:
        """Tier A needs stamps that not every queue keeps (QUEUE_FLAG_STATS): here most requests had none."""
        if self._stamps_given_up or self._variant.manifest.tier != "A":
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
            running = self._probe
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

    async def _set_clock(self) -> None:
        """A probe that was told how far its clock is ahead of the stamps is told again after a suspend."""
        await self._probe.stop()
        await self._start_again("the host was suspended")

    # What a frame says of the probe

    def _frame(self, window: Window) -> Frame:
        manifest = self._variant.manifest
        counts_bytes = any(spec.role == "bytes" for spec in manifest.maps)
        asleep = manifest.clock == "boottime"
        return self._frames.make(window, self._health(window), counts_bytes=counts_bytes, keeps_time_asleep=asleep)

    def _health(self, window: Window) -> Health:
        interval, losses = window.interval, window.losses
        return Health(
            probes_attached=self._probe.attached,
            probes_wanted=len(self._variant.hooks),
            lost_events=losses.lost,
            map_full=losses.map_full,
            unmatched=interval.unmatched + interval.unnamed,
            undecoded_lines=losses.undecoded + interval.undecoded + window.end.sample.undecoded,
            skipped=self._probe.skipped.since_last(),
        )


@dataclass(frozen=True, slots=True)
class TierReport:
    """What this host gets, for the doctor: the tier ("" for none), and why not a better one."""

    tier: str
    why: str


def explain() -> TierReport:
    """Finds out by trying, which takes as long as a start."""
    return asyncio.run(_explain())


async def _explain() -> TierReport:
    try:
        async with BpftraceBackend(Options()) as backend:
            return TierReport(backend.origin.tier, backend.origin.reason)
    except UnavailableError as refusal:
        return TierReport("", str(refusal))


def _no_privilege(why: str) -> str:
    if os.geteuid() == 0:
        return f"the kernel refuses bpftrace though it is root ({why}), as in a container: see `latmon doctor`."
    how = "run `sudo latmon`" if shutil.which("sudo") else "run latmon as root"
    return f"bpftrace needs root ({why}): {how}."
