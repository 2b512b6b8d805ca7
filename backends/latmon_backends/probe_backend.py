"""The backend of a probe tool: its always-on probe, its tracer and the kernel's counters, joined into frames.

Each tool has a subclass, its adapter: how it is found, what it must look up, which scripts run. `always`, `traced` and
`following` describe for the doctor which scripts measure each stage.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

from latmon import __version__
from latmon.capture.backend import NO, Options, ProbeCost
from latmon.decode.tables import Record
from latmon.manifest import Manifest
from latmon.model.devices import WithIdle, busy_rows
from latmon.model.frame import (
    Device,
    Frame,
    Health,
    Limit,
    Origin,
    Outstanding,
    Settings,
    Taskq,
    capped,
    missing_stages,
)
from latmon.model.inflight import SYSFS, Depths
from latmon.model.measurements import HANDLERS
from latmon.model.stages import called
from latmon.model.table import sum_tables
from latmon.support import host
from latmon.support.errors import UnavailableError
from latmon.support.process import cpu_ns
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel import settings as kernel_settings
from latmon_backends.kernel.interrupts import Interrupts
from latmon_backends.probe import launcher, outliers
from latmon_backends.probe.always_on import AlwaysOn, DeviceCounters, FrameBuilder, drop_windows_until
from latmon_backends.probe.launcher import AnyTool, RootLauncher
from latmon_backends.probe.outliers import Outliers, ReadyOutliers
from latmon_backends.probe.process import RunningProbe
from latmon_backends.probe.tick_protocol import ProbeWindow
from latmon_backends.tracer.controller import OnDemand, TracerPart
from latmon_backends.tracer.demand import CALL_NS
from latmon_backends.tracer.programs import Programs, Target, TracerSample

Gauges = Mapping[str, Outstanding]
"""Device -> its I/Os in flight."""
ALWAYS_ON, TRACER, LATMON = "always-on probe", "tracer", "latmon"
"""Names of the parts whose cost is measured."""
_ENDED = "the probes ended while they were measured"
_TRACED_S = 90.0
"""How long a busy or emulated host may take to compile the tracer's probes before a capture goes on without."""
_SETTLES = 0.3
"""Share of an interval. The tracer has ticks of its own and prints much more."""
_MOST = 64
"""Limits of one device."""


class ProbeTool(AnyTool, Protocol):
    """An installed probe tool."""

    @property
    def version(self) -> str: ...


class OpenCounters(DeviceCounters, Protocol):
    """The kernel's counters of a capture, sampled in between by threads of their own."""

    def start(self) -> None: ...

    def close(self) -> None: ...


class ProbeBackend(ABC):
    """Frames from one tool's probes; a `latmon.capture.backend.Backend`."""

    name: ClassVar[str]
    _tool: ProbeTool
    _devices: OpenCounters
    _frames: FrameBuilder
    _always: AlwaysOn
    _programs: Programs[Any]

    def __init__(self, options: Options) -> None:
        self._options = options
        self._waiting: ProbeWindow | None = None
        """The window that waits for the tracer's output; the probe will not print it once more."""
        self._origin = Origin(backend=self.name, host=host.name(), kernel=host.kernel(), latmon=__version__)

    @property
    def origin(self) -> Origin:
        return self._origin

    @abstractmethod
    async def _prepare(self) -> None:
        """Find the tool, the devices and the always-on scripts."""

    @abstractmethod
    async def _look(self) -> None:
        """Look up what the tracer needs, while the always-on probe compiles.

        Once the probe runs, its output has to be read at once: a window that is read late is a late frame.
        """

    @abstractmethod
    async def _prepare_tracer(self, looking: asyncio.Task[None]) -> None:
        """Make `_programs` and call `_join`; `_look` has ended when this returns."""

    @abstractmethod
    def _why(self, refusals: Mapping[str, str]) -> str:
        """Return why no better always-on script runs; nothing for the best."""

    async def __aenter__(self) -> Self:
        await self._prepare()
        looking = asyncio.create_task(self._look())
        reading = asyncio.create_task(self._settings({}))
        try:
            refusals = await self._always.choose()
        except BaseException:
            looking.cancel()
            await asyncio.wait({looking, reading})
            raise
        if self._needs_root_helper():
            self._always.launcher = RootLauncher(self._tool, self._always.probe.pid)
        await asyncio.wait({reading})  # before windows are dropped: nothing may pause from then to the first frame
        await self._prepare_tracer(looking)
        if self._options.stages == "all":
            self._on_demand.begin()
            await self._until(asyncio.create_task(self._on_demand.tried(_TRACED_S)))
        self._origin = self._opened(refusals, capped({**self._reported(), **await reading}))
        self._devices.start()
        return self

    def _opened(self, refusals: Mapping[str, str], settings: Settings) -> Origin:
        manifest, options = self._always.manifest, self._options
        return replace(
            self._origin,
            tool=f"{self.name} {self._tool.version}".strip(),
            tier=manifest.tier,
            interval_us=options.interval_us,
            start_wall=time.time(),
            start_mono_us=kernel_counters.monotonic_us(),
            boot_id=host.boot_id(options.proc),
            hz=host.hz(options.proc),
            measured={stage: manifest.includes.get(stage, ()) for stage in manifest.stages},
            absent=missing_stages(manifest.stages, manifest.absent, manifest.includes),
            probes_missing=self._programs.choice().missing,
            untraced=self._programs.untraced(),
            latency_from=manifest.latency_from,
            counted=manifest.counted_tables,
            reason=self._why(refusals),
            settings=settings,
            extra={"probe": self._probe_name, "refused": refusals, **options.fixed},
        )

    @property
    def _probe_name(self) -> str:
        return self._always.script.name

    def _needs_root_helper(self) -> bool:
        return platform.system() == "Linux" and launcher.needed()

    async def settings(self) -> Settings:
        return await self._settings(self._reported())

    async def _settings(self, reported: kernel_settings.Sections) -> Settings:
        """Return the reported settings and those of the host."""
        return await kernel_settings.bounded(self._options, self._devices.devices, reported)

    def _reported(self) -> kernel_settings.Sections:
        """Return latmon's own settings. The tracer's program is that for all devices: its filter is no setting."""
        on_demand = self._programs.program(Target(), TracerSample())
        return {
            "tool": {self.name: self._tool.version, "latmon": __version__},
            "probe always-on": kernel_settings.probe(self._always.program.text(), (self._always.script.name,)),
            "probe deep": kernel_settings.probe(on_demand.text(), (script.name for script in on_demand.scripts)),
        }

    def _join(
        self,
        waiting: Outliers,
        fresh: Callable[[tuple[Device, ...]], tuple[Device, ...]] = lambda devices: devices,
        gauges: Callable[[Gauges], Gauges] = lambda sampled: sampled,
    ) -> None:
        """Make the tracer's controller, and the joining of its frames.

        `fresh` adds devices that only probes name, `gauges` the I/Os in flight that only probes count.
        """
        always = self._always
        self._on_demand = OnDemand(self._options, always.launcher, self._programs, always_on=lambda: always.probe.pid)
        self._joining = FrameJoiner(
            self._frames,
            self._on_demand,
            waiting,
            Interrupts(self._options.sys, self._options.proc),
            lambda: self._devices.known,
            sample_us=self._programs.sample_us,
            fresh=fresh,
            gauges=gauges,
        )

    async def _until(self, task: asyncio.Task[None]) -> None:
        """Wait for `task` and drop the windows before: the first frame is complete."""
        try:
            await drop_windows_until(task, self._always.window)
        except BaseException:
            await self.__aexit__()
            raise

    async def __aexit__(self, *exc: object) -> None:
        self._devices.close()
        await asyncio.gather(self._always.probe.stop(), self._on_demand.close())
        await self._always.launcher.close()

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        self._on_demand.request_tracing(devices, files=files)

    def set_stages(self, mode: str) -> None:
        self._on_demand.set_stages(mode)

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield one frame per tick that the probe prints; the last has a notice why it can't be kept running."""
        self._on_demand.begin()
        while (window := await self._always.window()) is not None:
            self._waiting = window
            await self._on_demand.wait_for_tick(_SETTLES * self._options.interval_us / 1e6)
            frame = self._frame(window, await self._always.skipped())
            self._waiting = None
            yield frame
            if self._on_demand.too_dear:
                self._frames.notice = f"the capture was ended: {self._on_demand.too_dear}"
                break
            if why := await self._always.restart_if_needed(window, frame.gap):
                self._on_demand.restart(why)
        yield self._frames.final_frame(Health(probes_wanted=self._always.probe.wanted))

    async def cost(self, frames: AsyncIterator[Frame], seconds: float) -> tuple[ProbeCost, ...]:
        with launcher.counted_time():
            # from here on both counters begin with the same interval
            if await anext(frames, None) is None:
                raise UnavailableError(_ENDED)
            begun, before, one_in = time.monotonic(), await self._spent(), 1
            ios = 0
            while time.monotonic() - begun < seconds:
                frame = await anext(frames, None)
                if frame is None:
                    raise UnavailableError(_ENDED)
                ios += sum(done.count for done in frame.seen.values())
                one_in = max(one_in, frame.traced.one_in)
            passed, after = time.monotonic() - begun, await self._spent()
        if before.keys() != after.keys():
            raise UnavailableError("a probe was started or ended while the cost was measured: run it again")
        costs = []
        for (name, pid), (now, own_ns) in after.items():
            was, was_ns = before[name, pid]
            runs, run_ns = _difference(now.runs, was.runs), _difference(now.run_ns, was.run_ns)
            sample = one_in if name == TRACER else 1
            costs.append(
                ProbeCost(
                    name=name,
                    seconds=passed,
                    ios=ios,
                    cpu_ns=own_ns - was_ns,
                    run_ns=run_ns,
                    runs=runs,
                    calls_ns=(runs or 0) * CALL_NS,
                    one_in=sample,
                )
            )
        return tuple(costs)

    async def _spent(self) -> dict[tuple[str, int], tuple[launcher.ProgramTotals, int]]:
        """Return the counters of each process, by name and pid: of its programs, and its own CPU time in ns."""
        tracer = self._on_demand.pid
        pids = {ALWAYS_ON: self._always.probe.pid, **({} if tracer is None else {TRACER: tracer})}
        totals = {(name, pid): (await self._always.launcher.totals(pid), cpu_ns(pid)) for name, pid in pids.items()}
        return {**totals, (LATMON, os.getpid()): (launcher.ProgramTotals(), time.process_time_ns())}

    async def finish(self, patience_s: float) -> tuple[Frame, ...]:
        """End the probes; return the frame that waits, and that of the unfinished interval if it comes in time."""
        ending = asyncio.create_task(self._on_demand.finish(patient=patience_s > 0))
        try:
            window = await self._always.finish(ending, patience_s)
        finally:
            ending.cancel()
            await asyncio.wait({ending})
        windows = [probe_window for probe_window in (self._waiting, window) if probe_window is not None]
        self._waiting = None
        return tuple(self._frame(probe_window, None, ending=probe_window is window) for probe_window in windows)

    def _frame(self, window: ProbeWindow, skipped: int | None, *, ending: bool = False) -> Frame:
        queues, undecoded = self._task_queues()
        health = health_of(window, self._always.probe, skipped, undecoded)
        return self._joining.frame(window, self._always.manifest, health, taskqs=queues, ending=ending)

    def _task_queues(self) -> tuple[tuple[Taskq, ...] | None, int]:
        """Return the kernel's task queues, None where it has none, and the number of those that were not decoded."""
        return None, 0


def _difference(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


class ReportedLimits:
    """Limits of devices that probes reported."""

    def __init__(self, device_name: Callable[[int], str | None]) -> None:
        self._device_name = device_name
        self._reported: dict[str, dict[str, Limit]] = {}
        self._changed: set[str] = set()

    def take(self, records: Iterable[Record]) -> None:
        """Take `limit` records; ignore others."""
        for record in records:
            value = record.get("value")
            name = self._device_name(record.get("dev") or 0) if record.kind == "limit" else None
            if name is None or value is None:
                continue
            limits = self._reported.setdefault(name, {})
            limit = Limit(record.text, value, record.probe)
            if limits.get(record.text) != limit and (record.text in limits or len(limits) < _MOST):
                limits[record.text] = limit
                self._changed.add(name)

    def put(self, devices: tuple[Device, ...], known: Mapping[str, Device]) -> tuple[Device, ...]:
        """Return a frame's new or changed devices, and those with a changed limit."""
        reported = {device.name: device for device in devices}
        for name in sorted(self._changed & known.keys()):
            reported.setdefault(name, known[name])
        self._changed -= reported.keys()
        return tuple(self._with_limits(device) for device in reported.values())

    def _with_limits(self, device: Device) -> Device:
        limits = self._reported.get(device.name)
        return replace(device, limits=(*device.limits, *limits.values())) if limits else device


class TracerSource(Protocol):
    """The tracer as the joining of frames knows it."""

    @property
    def runs(self) -> bool:
        """Whether more records of the outliers at hand may come."""
        ...

    def part(self, frame: Frame) -> TracerPart:
        """Return its part of the frame that follows the one of the last call."""
        ...


class FrameJoiner:
    """Joining of the probes' data into frames, in their order. The tracer samples depths each `sample_us`."""

    def __init__(
        self,
        frames: FrameBuilder,
        on_demand: TracerSource,
        waiting: Outliers,
        interrupts: Interrupts,
        devices: Callable[[], Mapping[str, Device]],
        *,
        sample_us: int,
        fresh: Callable[[tuple[Device, ...]], tuple[Device, ...]] = lambda devices: devices,
        gauges: Callable[[Gauges], Gauges] = lambda sampled: sampled,
    ) -> None:
        """`fresh` adds the devices that the probes named for a frame, `gauges` the I/Os in flight that they counted."""
        self._frames, self._on_demand, self._outliers, self._interrupts = frames, on_demand, waiting, interrupts
        self._devices, self._sample_us = devices, sample_us
        self._fresh, self._gauges = fresh, gauges
        self._limits = ReportedLimits(frames.selected_name)
        self._flood = 0

    def frame(
        self,
        window: ProbeWindow,
        manifest: Manifest,
        health: Health,
        *,
        taskqs: tuple[Taskq, ...] | None = None,
        ending: bool = False,
    ) -> Frame:
        """Return the window's frame. `ending`: it is the last, so that no outlier waits for more records."""
        counted = self._frames.make(window, manifest, health)
        tracer = self._on_demand.part(counted)
        records = (*window.records, *tracer.window.records)
        self._limits.take(records)
        end = outliers.ClockPair(counted.wall, counted.mono_us)
        slow = self._slow(records, end, ending=ending, is_limited=counted.health.suppressed > 0)
        on_demand = tracer.window.interval
        # The I/Os of processes are beside those of cgroups.
        tables = sum_tables((counted.tables, on_demand.tables))
        fresh = self._fresh(counted.devices)
        devices = self._devices()
        return replace(
            counted,
            outliers=slow.outliers,
            thresholds_us={**on_demand.thresholds_us, **counted.thresholds_us},
            traced=tracer.traced,
            taskqs=taskqs,
            tables={**tables, HANDLERS: self._interrupts.reported(tables.get(HANDLERS, {}), devices)},
            file_operations=tracer.window.operations_until(counted.wall, counted.mono_us),
            files_left_out=on_demand.files_left_out,
            outstanding=self._gauges(counted.outstanding),
            depths=with_probe(counted.depths, on_demand.depths, counted.dt_us, self._sample_us),
            in_flight=tracer.in_flight,
            issues=tracer.window.issues,
            devices=self._limits.put(fresh, devices),
            health=_with_losses(tracer.health, slow),
        )

    def _slow(
        self, records: Iterable[Record], end: outliers.ClockPair, *, ending: bool, is_limited: bool
    ) -> ReadyOutliers:
        """Return the outliers that need no more records. `end`: the frame's; `is_limited`: the probe left some out."""
        self._outliers.take(records)
        hold = outliers.HOLD if self._on_demand.runs and not ending else 0
        self._flood = outliers.HOLD + 1 if is_limited else max(0, self._flood - 1)
        return self._outliers.take_ready(end.wall, end.mono_us, hold, flood=self._flood > 0)


def _with_losses(health: Health, slow: ReadyOutliers) -> Health:
    return replace(
        health,
        suppressed=health.suppressed + slow.dropped,
        dropped_records=health.dropped_records + slow.lost,
        undecoded_lines=health.undecoded_lines + slow.undecoded,
    )


def with_probe(
    sampled: Mapping[str, Depths], reported: Mapping[str, Depths], span_us: int, sample_us: int
) -> Mapping[str, Depths]:
    """Return the probe's depths where its samples, each `sample_us`, cover half of the interval, else those of sysfs.

    The probe's samples are scaled to milliseconds of the interval, as those of sysfs are: a busy CPU drops some, and an
    interval with fewer samples weighs no less. A few samples after a start are not the interval. Where its counts had
    to be corrected they may include depths that never were: that interval has no depths of the probe.
    """
    if not reported:
        return sampled
    all_depths = dict(busy_rows(sampled))
    for name, depths in reported.items():
        if depths.corrected:
            all_depths[name] = replace(sampled.get(name, Depths()), corrected=depths.corrected)
        elif 2 * sum(depths.in_driver.values()) * sample_us >= span_us:
            all_depths[name] = replace(
                depths, in_driver=_in_ms(depths.in_driver, span_us), queued=_in_ms(depths.queued, span_us)
            )
        elif name in sampled:
            all_depths[name] = replace(
                depths, in_driver=sampled[name].in_driver, queued=sampled[name].queued, source=SYSFS
            )
        else:
            all_depths[name] = replace(depths, in_driver={}, queued={})
    return WithIdle(all_depths, sampled.idle) if isinstance(sampled, WithIdle) else all_depths


def _in_ms(samples: Mapping[int, int], span_us: int) -> dict[int, int]:
    """Divide the whole milliseconds of the interval in the proportions of the samples."""
    total, span_ms = sum(samples.values()), span_us // 1000
    parts = {depth: divmod(n * span_ms, total) for depth, n in samples.items() if n}
    left = span_ms - sum(ms for ms, _ in parts.values())
    more = set(sorted(parts, key=lambda depth: (-parts[depth][1], depth))[:left])
    return {depth: ms + (depth in more) for depth, (ms, _) in parts.items() if ms + (depth in more)}


def health_of(window: ProbeWindow, probe: RunningProbe, skipped: int | None, undecoded: int) -> Health:
    """Return the health of the always-on probe's interval. `undecoded`: what could not be decoded beside its output."""
    interval, losses = window.interval, window.losses
    return Health(
        probes_attached=probe.attached,
        probes_wanted=probe.wanted,
        lost_events=losses.lost,
        map_full=losses.map_full,
        unmatched=interval.unmatched + interval.unnamed,
        suppressed=interval.suppressed + losses.dropped,
        undecoded_lines=losses.undecoded + interval.undecoded + undecoded,
        skipped=skipped,
    )


def always(stage: str, origin: Origin | None) -> str:
    """Return whether the always-on probe measures a stage, or why not; `origin` None where none runs."""
    if origin is None:
        return f"{NO}no always-on probe runs here"
    if stage in origin.measured:
        inside = origin.measured[stage]
        name = called(stage, inside)
        interval = f" as {name.both}" if name.column != stage else ""
        return f"yes{interval}, with {', '.join(inside)} in it" if inside else "yes"
    holder = next((outer for outer, inside in origin.measured.items() if stage in inside), "")
    otherwise = f"its time is in {holder}" if holder else "not measured by this probe"
    return NO + next((missing.reason for missing in origin.absent if missing.name == stage), otherwise)


def traced(stage: str, manifests: Sequence[Manifest]) -> str:
    """Return the tracer's scripts that measure a stage, and the stages that it includes; empty where none does."""
    feeding = [manifest for manifest in manifests if manifest.group != "bios" and stage in manifest.stages]
    inside = tuple(dict.fromkeys(into for manifest in feeding for into in manifest.includes.get(stage, ())))
    return ", ".join(manifest.name for manifest in feeding) + (f", with {', '.join(inside)} in it" if inside else "")


def following(manifests: Sequence[Manifest], why_not: str) -> str:
    """Return the scripts that follow each I/O in flight; NO and the reason where none does."""
    return ", ".join(manifest.name for manifest in manifests if "waiting" in manifest.records) or f"{NO}{why_not}"
