"""The bpftrace backend: the best always-on probe that runs here, as frames beside the kernel's own counters.

Owns the choice among the variants, restarts, and what makes a frame of an interval. The process, its events, the tick
protocol and the identity of devices are other modules'.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from latmon import __version__, host
from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.framing import Framer
from latmon.model import Completed, Flow, Frame, Health, Missing, Origin, Series
from latmon_backends import bpftrace_tiers, bpftrace_tool, sampler
from latmon_backends.bpftrace_probe import Probe, RefusedError
from latmon_backends.bpftrace_ticks import LastWindow, Surroundings, Ticks, Window
from latmon_backends.bpftrace_tiers import Variant
from latmon_backends.bpftrace_tool import Tool
from latmon_backends.sampler import KernelSampler

_RESTARTS, _WITHIN_S = 3, 60.0
_SLEPT_US = 100_000
_SAME_TIME_US = 20_000
_ENOUGH = 100
"""Completions in an interval that tell what requests here are like."""
Key = TypeVar("Key", Flow, Series)
Value = TypeVar("Value")


class BpftraceBackend:
    """Frames from one bpftrace process. Times come from the kernel's stamps, never from when a line was read."""

    def __init__(
        self, options: Options, find_tool: Callable[[], Tool] = bpftrace_tool.find, only: tuple[str, ...] = ()
    ) -> None:
        """`only` names the manifests that may be tried; empty means all."""
        self._options, self._find_tool, self._only = options, find_tool, only
        self._sampler = KernelSampler(options.proc, options.sys, options.devices)
        self._origin = Origin(backend="bpftrace", host=host.name(), kernel=host.kernel(), latmon=__version__)
        self._seq = 0
        self._gap = self._notice = ""
        self._slept_us = host.suspended_us()
        self._restarts: deque[float] = deque(maxlen=_RESTARTS)

    @property
    def origin(self) -> Origin:
        return self._origin

    async def __aenter__(self) -> Self:
        self._tool = await asyncio.to_thread(self._find_tool)
        self._sampled = self._sampler.sample()
        refusals = await self._choose()
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
            event = await self._probe.next()
            if event is None:
                if not await self._restart():
                    yield self._farewell()
                    return
            elif (window := self._ticks.take(event)) is not None:
                yield self._frame(window)
                if self._lacks_stamps(window):
                    await self._keep_issues()

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
        found = bpftrace_tiers.variants(interval_ms, ahead_ns, self._options.sys)
        return (variant for variant in found if not self._only or variant.manifest.name in self._only)

    def _why_lesser(self, refusals: Mapping[str, str]) -> str:
        """Why this tier and not A: what A needs, and what this bpftrace says to it."""
        if not refusals or self._variant.manifest.tier == "A":
            return ""
        best = next(bpftrace_tiers.variants(1000, 0, self._options.sys)).manifest
        return (
            f"tier {self._variant.manifest.tier}, because tier {best.tier} needs {', '.join(best.requirements[:2])}: "
            f'bpftrace {self._tool.version} says "{next(iter(refusals.values()))}"'
        )

    async def _start(self, variant: Variant) -> None:
        self._probe = await Probe.start(self._tool, variant)
        self._variant = variant
        framer = Framer(variant.manifest, self._device_name, self._has_several_queues)
        around = Surroundings(
            now_us=sampler.monotonic_us,
            ahead_us=host.suspended_us,
            sample=self._sampler.sample,
            map_keys=self._tool.map_keys,
            interval_us=self._options.interval_us,
        )
        self._ticks = Ticks(variant.manifest, framer, around, self._probe.ready_ns)

    async def _restart(self) -> bool:
        """After an end nobody asked for: again, at most three times a minute, with a gap to show for it."""
        why = await self._probe.complaint()
        await self._probe.stop()
        now = time.monotonic()
        if len(self._restarts) == _RESTARTS and now - self._restarts[0] < _WITHIN_S:
            self._notice = f"bpftrace ended {_RESTARTS + 1} times within a minute, the last time: {why}"
            return False
        self._restarts.append(now)
        await asyncio.sleep(0.2 * len(self._restarts))
        try:
            await self._start(self._variant)
        except (RefusedError, UnavailableError) as refusal:
            self._notice = f"bpftrace ended and could not be started again: {refusal}"
            return False
        self._gap, self._notice = "probe-restart", f"bpftrace was started again, it had ended: {why}"
        return True

    def _lacks_stamps(self, window: Window) -> bool:
        """Tier A needs stamps that not every queue keeps (QUEUE_FLAG_STATS): here most requests had none."""
        seen = sum(done.count for done in window.interval.seen.values())
        return self._variant.manifest.tier == "A" and window.interval.unmatched * 2 > seen >= _ENOUGH

    async def _keep_issues(self) -> None:
        """From stamps to pointers, where the kernel's types say how; the probe that runs stays where they don't."""
        for variant in bpftrace_tiers.pointers(self._options.interval_us // 1000, self._options.sys):
            running = self._probe
            try:
                await self._start(variant)
            except (RefusedError, UnavailableError):
                continue
            await running.stop()
            self._gap = "probe-restart"
            self._notice = "requests carry no stamp of their issue here: it is kept by request (tier A')"
            return

    # Making frames

    def _frame(self, window: Window) -> Frame:
        end = window.end
        frame = Frame(
            seq=self._seq,
            wall=end.sample.wall - window.lag_us / 1e6,
            mono_us=end.mono_us,
            dt_us=max(1, end.mono_us - window.begin_us),
            histograms=_selected(window.interval.histograms, self._is_selected),
            seen=_selected(self._with_bytes(window), self._is_selected),
            kernel=_kernel(window),
            outstanding=end.sample.outstanding,
            devices=self._sampler.devices if self._seq == 0 else end.sample.devices,
            removed=end.sample.removed,
            health=self._health(window),
            gap=self._why_gap(window),
        )
        self._seq += 1
        self._gap = self._notice = ""
        self._sampled = end.sample
        return frame

    def _with_bytes(self, window: Window) -> Mapping[Flow, Completed]:
        """What was seen; of a probe that counts no bytes, with the kernel's mean size of that time for each I/O."""
        seen = window.interval.seen
        if any(spec.role == "bytes" for spec in self._variant.manifest.maps):
            return seen
        kernel = sampler.difference(self._sampled, window.end.sample).kernel
        sizes = {flow: done.bytes / done.count for flow, done in kernel.items() if done.count}
        return {flow: replace(done, bytes=round(done.count * sizes.get(flow, 0))) for flow, done in seen.items()}

    def _why_gap(self, window: Window) -> str:
        slept, self._slept_us = self._slept_us, host.suspended_us()
        if self._slept_us - slept > _SLEPT_US:
            return "suspended"
        return self._gap or ("reader-late" if window.late else "")

    def _health(self, window: Window) -> Health:
        hooks = len(self._variant.manifest.hooks)
        interval, losses = window.interval, window.losses
        return Health(
            probes_attached=hooks,
            probes_wanted=hooks,
            lost_events=losses.lost,
            map_full=losses.map_full,
            unmatched=interval.unmatched + interval.unnamed,
            undecoded_lines=losses.undecoded + interval.undecoded + window.end.sample.undecoded,
            skipped=self._probe.skipped.since_last(),
            notice=self._notice,
        )

    def _farewell(self) -> Frame:
        """The last frame says why there are no more."""
        now = self._sampler.sample()
        return Frame(
            seq=self._seq,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=1,
            outstanding=now.outstanding,
            health=Health(probes_wanted=len(self._variant.manifest.hooks), notice=self._notice),
            gap="probe-restart",
        )

    def _device_name(self, number: int) -> str | None:
        device = self._sampler.block.device(number >> 20, number & 0xFFFFF)
        return None if device is None else device.name

    def _is_selected(self, name: str) -> bool:
        device = self._sampler.block.devices.get(name)
        return device is not None and self._sampler.selects(device)

    def _has_several_queues(self, name: str) -> bool:
        return sum(1 for _ in (self._options.sys / "block" / name / "mq").glob("[0-9]*")) > 1


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


def _kernel(window: Window) -> Mapping[Flow, Completed]:
    """The kernel's counts of the same interval; none where the two intervals are not the same.

    Until the first tick it isn't known when the probe was attached; on the way out it sees nothing while it detaches.
    """
    if window.begin is None or (isinstance(window, LastWindow) and window.lag_us > _SAME_TIME_US):
        return {}
    return sampler.difference(window.begin.sample, window.end.sample).kernel


def _selected(table: Mapping[Key, Value], wanted: Callable[[str], bool]) -> dict[Key, Value]:
    return {key: value for key, value in table.items() if wanted(key.device)}


def _no_privilege(why: str) -> str:
    return f"bpftrace needs root ({why}): run `sudo latmon`."
