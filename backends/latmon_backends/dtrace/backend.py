"""The DTrace backend: the always-on D script that runs here, its clock and gauges, and the tracer's D scripts.

The tracer is one more dtrace process. D scripts have no filter of devices and take no sample: tracing one device traces
all of them.

`explain` is the doctor's view: the script that runs, and what traces each stage. The tracer's scripts are looked up,
not tried: by their manifests, and by which of their hooks `dtrace -l` lists.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from latmon.capture.backend import NO, Options, ProbeReport, StageCoverage
from latmon.decode.framer import Framer, ProbeInterval
from latmon.manifest import Manifest
from latmon.model.frame import NAMED_FROM, STAGES, FileSystem, Missing, Origin, Outstanding, Taskq, Thread
from latmon.support import host, trust
from latmon.support.errors import UnavailableError
from latmon.support.units import UNKNOWN
from latmon_backends.dtrace import program as dtrace_program
from latmon_backends.dtrace.probe import DtraceProbe, NamedDevices, NoCounters, NumberedNames
from latmon_backends.dtrace.program import MAP_KEYS, DtraceProgram, DtraceTool, is_listed
from latmon_backends.kernel import counters
from latmon_backends.kernel.system import Sampler, TaskQueues, sampler_of
from latmon_backends.probe.always_on import AlwaysOn, FrameBuilder
from latmon_backends.probe.events import Event, Printed
from latmon_backends.probe.launcher import Direct, Launcher, Script, Values
from latmon_backends.probe.outliers import NumberedThreads, Outliers
from latmon_backends.probe.process import RefusedError, RunningProbe, answer
from latmon_backends.probe.tick_protocol import (
    OnDemandSurroundings,
    OnDemandTicks,
    ProbeWindow,
    Surroundings,
    Ticks,
    stamped,
)
from latmon_backends.probe_backend import ProbeBackend, always, following, traced
from latmon_backends.tracer import programs
from latmon_backends.tracer.programs import ChosenScripts, Programs, Target, TracerSample, stages_of

_SILENT_S = 15.0
"""Oracle's DTrace loses ticks, for up to 13 s in a row: only one that prints nothing for longer is stuck."""
_FINISHING_S = 1.1
"""A capture that is in a hurry waits 1.4 s for its last frame."""
_LAST_S = 0.3
"""The tracer's last output comes within 10 ms."""


COARSE = "latencies are counted by octaves (a bucket's end is twice its begin), because this DTrace has no llquantize()"

_LINES = 120
"""Ticks whose stamps are compared: the last minutes."""
_LONGEST_S = 120
"""An emulated host takes a minute; a dtrace that hangs is given up."""
TRACED = "dtrace"
"""The tracer's D scripts have no tiers: those whose hooks exist run."""
DRIVERS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "illumos": {
            "sd, ssd": "sd's probe where a command is sent, then biodone: queue, requeue, D2C (issue to completion)",
            "emlxs": "interrupt, then a completion thread per channel: queue, hba, irq, completion",
            "qlc": "task queues with permanent loops: their work is in D2C (issue to completion)",
            "others": "io:::start to biodone: a total alone",
        },
        "freebsd": {
            "da, ada, nda (CAM)": "CAM's done thread, or the interrupt thread: queue, requeue, hba, completion",
            "nvd and others without CAM": "queue in GEOM, the rest is D2C (issue to completion)",
        },
    }
)
"""By system, how a driver's I/Os complete: docs/DTRACE.md."""
_STEP_MS = 100
"""Oracle's DTrace loses ticks: at 100 ms and less 12 of 12 windows came in time, at 200 ms 10 of 15."""
_LISTING_S = 120.0
_MAX_LISTING = 1 << 20


class DtraceClock:
    """Offset of DTrace's clock during a capture, from the ticks' stamps.

    FreeBSD's `timestamp` is the processor's counter, scaled, never corrected (sys/cddl/dev/dtrace, dtrace_gethrtime),
    as CLOCK_MONOTONIC is: the two differ from boot on, and drift. A line is read some time after its stamp was taken;
    the smallest delay among the lines of the last minutes gives the best offset.
    """

    def __init__(self) -> None:
        self._distances_us: deque[int] = deque(maxlen=_LINES)

    def add_tick(self, stamp_ns: int, now_us: int) -> None:
        """Take a tick's stamp, and our clock at the time when its line is read."""
        self._distances_us.append(stamp_ns // 1000 - now_us)

    def ahead_us(self, clock: str) -> int:
        """Return how far a script's clock is ahead, negative where it is behind.

        The offset of DTrace's own clock is 0 before the first tick.
        """
        return max(self._distances_us, default=0) if clock == "hrtime" else host.probe_ahead_us(clock)


class InFlightGauge:
    """I/Os in flight by device: begun less ended since one start of the script.

    I/Os in flight at that time are not counted. After starts were dropped their ends are missing: from then on no gauge
    is reported. `selects`: the devices to report. `from_issue`: I/Os begin when the driver gets them.
    """

    def __init__(self, selects: Callable[[str], bool] = lambda _: True, *, from_issue: bool = False) -> None:
        self._selects, self._from_issue = selects, from_issue
        self._open: Counter[str] = Counter()
        self._drifts = False

    def take(self, interval: ProbeInterval, *, dropped: bool = False) -> None:
        """Add an interval, even one without a frame. `dropped`: some of its starts or counts were lost."""
        self._drifts |= dropped
        for flow, n in interval.started.items():
            self._open[flow.device] += n
        for flow, n in interval.ended.items():
            # A script without counts of begins has no gauge; others count a begin before its end.
            if flow.device in self._open:
                self._open[flow.device] -= n

    def fill(self, sampled: Mapping[str, Outstanding]) -> Mapping[str, Outstanding]:
        """Return the sampled gauges by device, with those of the devices that have none."""
        if self._drifts:
            return sampled
        gauges: dict[str, Outstanding] = {}
        for name, n in self._open.items():
            gauge = sampled.get(name)
            if self._selects(name) and (gauge is None or not gauge.is_known):
                in_flight = max(0, n)
                gauges[name] = Outstanding(in_flight, None) if self._from_issue else Outstanding(None, in_flight)
        return {**sampled, **gauges} if gauges else sampled


class DtraceAlwaysOn(AlwaysOn):
    """The always-on dtrace process: one of the system's D scripts."""

    def __init__(self, capture_parts: CaptureParts, scripts: Sequence[Manifest]) -> None:
        """`scripts`: those that may be tried, the best first."""
        launcher = Direct(capture_parts.tool, capture_parts.options.proc)
        super().__init__("dtrace", _SILENT_S, capture_parts.options, launcher, capture_parts.frames)
        self._here, self._scripts = capture_parts, scripts

    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Script]:  # noqa: ARG002 - all are tried
        return (filling for manifest in self._scripts for filling in self._here.fillings(manifest))

    def _why_none_would(self, refusal: str) -> str:
        if dtrace_program.is_privilege(refusal):
            return _no_privilege(refusal, self._here.tool.system)
        return _no_library(refusal, self._tool) if dtrace_program.is_library(refusal) else ""

    def _why_none(self, refusals: dict[str, str]) -> str:
        return f"{self._tool} runs none of the probes here: {_reasons(refusals)}."

    @property
    def _tool(self) -> str:
        return f"dtrace {self._here.tool.version}".strip()

    async def finish(self, on_demand: asyncio.Task[None], patience_s: float) -> ProbeWindow | None:
        window = await self._until_last(patience_s + _FINISHING_S)
        await asyncio.wait({on_demand}, timeout=_LAST_S)
        return window

    async def _until_last(self, patience_s: float) -> ProbeWindow | None:
        """End the probe and return the interval that was begun, where it comes in time.

        All is printed within 10 ms; what takes 5 to 17 s after that is DTrace's detaching, which is not waited for.
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
        window = self._last()
        return None if window is None else self._counted(window)

    def _take(self, event: Event) -> ProbeWindow | None:
        words = event.text.split() if isinstance(event, Printed) else []
        if words[:1] == ["tick"] and (stamp := stamped(words)) is not None:
            self._here.clock.add_tick(stamp[1], counters.monotonic_us())
        window = super()._take(event)
        return None if window is None else self._counted(window)

    def _is_last(self, event: Event) -> bool:
        """Return whether the last maps end here; ticks that were printed before them may arrive until then."""
        return event == Printed(f"done {self.manifest.name}") and self._ticks.saw_last_line

    def _counted(self, window: ProbeWindow) -> ProbeWindow:
        before, self._ticks.before = self._ticks.before, ProbeInterval()
        self.gauge.take(before)
        self.gauge.take(window.interval, dropped=window.losses.map_full + window.losses.lost > 0)
        return window

    async def _start(self, script: Script) -> None:
        program = DtraceProgram((script,))
        self.probe = await DtraceProbe.start(self.launcher, program, self._here.names)
        self.script, self.program = script, program
        selects, manifest = self._frames.is_selected, script.manifest
        self.gauge = InFlightGauge(selects, from_issue=manifest.latency_from == "issue")
        around = Surroundings(
            now_us=counters.monotonic_us,
            ahead_us=self._here.clock.ahead_us,
            sample=self._here.devices.sample,
            map_keys=MAP_KEYS,
            interval_us=self._options.interval_us,
        )
        self._ticks = Ticks(manifest, Framer(manifest, self._timed, selects=selects), around)

    def _timed(self, number: int) -> str | None:
        """Return a device's name, and note that this script times it."""
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
    """Return why no script runs: DTrace compiles its own files for every program."""
    unresolved = "failed to resolve vmlinux`" in why
    hidden = ", because a kernel without CONFIG_KALLSYMS_ALL does not list that symbol" if unresolved else ""
    return f"{tool} can't compile its own library on this kernel: {why}{hidden}."


def _reasons(refusals: dict[str, str]) -> str:
    """Return each reason once, with the scripts that were refused for it, whatever their parameters were."""
    reasons: dict[str, dict[str, None]] = {}
    for script, reason in refusals.items():
        reasons.setdefault(reason, {})[script.split(" ", 1)[0]] = None
    reported = (f"{', '.join(scripts)}: {reason}" for reason, scripts in reasons.items())
    return "; ".join(reported) or "there is none for this system"


class DtraceBackend(ProbeBackend):
    """Frames from dtrace. Times come from the kernel's clock, never from when a line was read."""

    name = "dtrace"
    _always: DtraceAlwaysOn
    _devices: NamedDevices
    _programs: DtracePrograms
    _tool: DtraceTool

    def __init__(
        self,
        options: Options,
        reason: str = "",
        find_tool: Callable[[], DtraceTool] | None = None,
        only: tuple[str, ...] = (),
    ) -> None:
        """`only` names the always-on scripts that may be tried; empty means all. `reason`: why no better backend."""
        # D scripts have no sample of requests to fall back to, and their cost can't be measured: no budget.
        super().__init__(replace(options, budget_percent=0.0))
        self._find_tool = find_tool or partial(dtrace_program.find, trust.with_tools(options.tools))
        self._only, self._reason = only, reason

    async def _prepare(self) -> None:
        tool = self._tool = await dtrace_program.examined(self._find_tool())
        found_manifests = dtrace_program.manifests(tool.system, has_llquantize=tool.has_llquantize)
        dtrace_program.check_invasive(self._options.invasive, found_manifests)
        names = NumberedNames()
        sampler, source = _counters(self._options)
        self._queues = TaskQueues(source)
        devices = self._devices = NamedDevices(sampler, names, self._options.devices, self._options.sys)
        self._frames = FrameBuilder(devices, self._options.sys)
        devices.require_selected()
        capture_parts = CaptureParts(self._options, tool, names, devices, self._frames)
        scripts = [
            manifest
            for manifest in dtrace_program.always_on(found_manifests)
            if not self._only or manifest.name in self._only
        ]
        self._always, self._programs = (
            DtraceAlwaysOn(capture_parts, scripts),
            DtracePrograms(capture_parts, found_manifests),
        )

    async def _look(self) -> None:
        """List the probes that exist. That costs as much as starting one: not where the tracer never runs."""
        if self._options.stages != "basic":
            await self._programs.look()

    async def _prepare_tracer(self, looking: asyncio.Task[None]) -> None:
        name, programs = self._frames.selected_name, self._programs
        manifests = (self._always.manifest, *programs.manifests)
        self._join(
            Outliers(manifests, name, programs.threads, alone=programs.times_alone),
            self._devices.put_fresh,
            self._with_counted,
        )
        await self._until(looking)

    def _why(self, refusals: Mapping[str, str]) -> str:
        lesser = [f"{self._probe_name}, because {script} is refused: {why}" for script, why in refusals.items()]
        coarse = "" if self._tool.has_llquantize else COARSE
        return "; ".join(reason for reason in (self._reason, *lesser[:1], coarse) if reason)

    @property
    def _probe_name(self) -> str:
        return self._always.manifest.name

    def _with_counted(self, sampled: Mapping[str, Outstanding]) -> Mapping[str, Outstanding]:
        """Return the gauges with those of the script that runs now: each start has its own."""
        return self._always.gauge.fill(sampled)

    def _task_queues(self) -> tuple[tuple[Taskq, ...] | None, int]:
        queues = self._queues.sample()
        return queues, self._queues.undecoded


def _counters(options: Options) -> tuple[Sampler, str]:
    """Return the kernel's own counters; none where they can't be read."""
    sampler, source = sampler_of(options)
    try:
        sampler.sample()
    except UnavailableError:
        return NoCounters(), ""
    return sampler, source


def explain(environ: Mapping[str, str], reason: str = "") -> ProbeReport:
    """Open the backend, which takes as long as a start, and report what runs.

    `environ` may name the tool. `reason`: why no better backend.
    """
    return asyncio.run(_explain(environ, reason))


async def _explain(environ: Mapping[str, str], reason: str) -> ProbeReport:
    find_tool = partial(dtrace_program.find, environ)
    try:
        system = find_tool().system
        # auto: the hooks of the tracer's scripts are listed
        async with asyncio.timeout(_LONGEST_S), DtraceBackend(Options(stages="auto"), reason, find_tool) as backend:
            origin = backend.origin
    except TimeoutError:
        return ProbeReport("", f"dtrace runs no script within {_LONGEST_S} s")
    except UnavailableError as refusal:
        return ProbeReport("", str(refusal))
    return report(origin, dtrace_program.manifests(system), system)


def report(origin: Origin, manifests: Sequence[Manifest], system: str) -> ProbeReport:
    """Return the report from an open backend's origin and its system's scripts."""
    choice = dtrace_program.choose(
        manifests, lambda _: None, refused={missing.name: missing.reason for missing in origin.probes_missing}
    )
    running = f"{origin.extra.get('probe', '')} of {origin.tool}"
    return ProbeReport(
        origin.tier,
        f"{running}; {origin.reason}" if origin.reason else running,
        tuple(
            StageCoverage(stage, always(stage, origin), {TRACED: _traced(stage, choice, manifests)}) for stage in STAGES
        ),
        {manifest.name: manifest.hooks for manifest in choice.manifests},
        DRIVERS.get(system, {}),
        {TRACED: following(choice.manifests, "no D script follows each I/O")},
    )


def _traced(stage: str, choice: ChosenScripts, manifests: Sequence[Manifest]) -> str:
    """Return the scripts that measure a stage, else why none does."""
    return traced(stage, choice.manifests) or f"{NO}{dtrace_program.why_not(stage, choice, manifests)}"


@dataclass(frozen=True, slots=True)
class CaptureParts:
    """Parts of one capture that its always-on probe and its tracer share."""

    options: Options
    tool: DtraceTool
    names: NumberedNames
    devices: NamedDevices
    frames: FrameBuilder
    clock: DtraceClock = field(default_factory=DtraceClock)

    def fillings(self, manifest: Manifest) -> Iterator[Script]:
        """Yield the script with the words that are possible here, the likeliest first."""
        return dtrace_program.fillings(manifest, self._values, self.tool.system)

    @property
    def _values(self) -> Values:
        interval_ms = self.options.interval_us // 1000
        return programs.pace(interval_ms, _STEP_MS) | programs.outliers(self.options.threshold_us)


class NamedThreads(NumberedThreads):
    """Threads by the numbers of their names, with the priorities that probes recorded."""

    def __init__(self, options: Options, names: NumberedNames) -> None:
        super().__init__(options.proc)
        self._names = names

    def of(self, pid: int) -> Thread:
        """Return a kernel thread; "other threads" where there was no room for its name."""
        name = self._names.name(pid - NAMED_FROM) or "other threads"
        return Thread(pid, name, "", self.priority(pid))


class DtracePrograms(Programs[DtraceProgram]):
    """The tracer's D scripts. They have no filter of devices and take no sample of the I/Os."""

    sample_us = 1
    _is_privilege = staticmethod(dtrace_program.is_privilege)

    def __init__(self, capture_parts: CaptureParts, manifests: Sequence[Manifest]) -> None:
        threads = NamedThreads(capture_parts.options, capture_parts.names)
        super().__init__([manifest for manifest in manifests if manifest.group != "always"], threads)
        self._here = capture_parts
        self._has: dict[str, bool] = {}

    async def look(self) -> None:
        """List the hooks that exist; where that fails scripts are tried."""
        hooks = sorted({hook for manifest in self.manifests for hook in manifest.hooks})
        if hooks:
            listed = await answer(self._here.tool.listing(hooks), within_s=_LISTING_S, most=_MAX_LISTING)
            self._has = {hook: is_listed(hook, listed) for hook in hooks} if listed else {}
        self._reported = {missing.name for missing in self.choice().missing}

    def choice(self) -> ChosenScripts:
        return dtrace_program.choose(self.manifests, self._has.get, self._here.options.invasive, self._refused)

    @property
    def stages(self) -> tuple[str, ...]:
        return stages_of(self.choice().manifests)

    def untraced(self) -> tuple[Missing, ...]:
        return dtrace_program.untraced(self.choice(), self.manifests)

    @property
    def timed(self) -> Mapping[str, bool]:
        return {name: device.timed for name, device in self._here.devices.known.items()}

    def target(self, devices: tuple[str, ...], *, forced: bool, files: bool) -> Target:  # noqa: ARG002 - there is no filter
        return Target(why_all="D scripts trace all devices" if devices else "")

    def program(self, target: Target, sample: TracerSample) -> DtraceProgram:  # noqa: ARG002 - D scripts trace every I/O of all devices
        return DtraceProgram(tuple(self._script(manifest) for manifest in self.choice().manifests))

    def _script(self, manifest: Manifest) -> Script:
        return next(self._here.fillings(manifest))

    async def _launch(self, launcher: Launcher, program: DtraceProgram) -> RunningProbe:
        return await DtraceProbe.start(launcher, program, self._here.names)

    def _ticks(self, program: DtraceProgram) -> OnDemandTicks:
        around = OnDemandSurroundings(
            MAP_KEYS,
            self._here.clock.ahead_us,
            lambda name: not self.times_alone(name),
            file_system=self._file_system,
        )
        return OnDemandTicks(program.manifests, self._here.frames.selected_name, self.threads, around)

    def _file_system(self, number: int) -> FileSystem:
        """Return the file system with a name `TYPE:MOUNT POINT`; that of all for which there was no room has none."""
        kind, _, mount = (self._here.names.name(number) or "").partition(":")
        return FileSystem(mount or UNKNOWN, kind)

    async def _leave_out(self, launcher: Launcher, program: DtraceProgram, refusal: RefusedError) -> None:
        chosen = program.manifests
        if named := _named(chosen, str(refusal)):
            self._refused[named] = str(refusal)
            return
        # A compiler's message need not name a script: those that don't run alone are left out.
        for left_out in chosen:
            try:
                probe = await self._launch(launcher, DtraceProgram((self._script(left_out),)))
            except RefusedError as alone:
                self._refused[left_out.name] = str(alone)
            else:
                await probe.stop()
        if not self._refused.keys() & {manifest.name for manifest in chosen}:
            self._refused[chosen[-1].name] = str(refusal)

    def times_alone(self, name: str) -> bool:
        """Return whether the always-on script doesn't time a device (a ZFS pool, an HBA's port)."""
        device = self._here.devices.known.get(name)
        return device is None or not device.timed


def _named(chosen: Sequence[Manifest], why: str) -> str:
    """Return the script that a refusal names: by a name of its own or a hook that it alone has; else empty."""
    words = set(re.findall(r"[\w:.*-]+", why))
    theirs = [manifest.name for manifest in chosen if words & set(manifest.hooks)]
    own = [manifest.name for manifest in chosen if any(word.startswith(f"{manifest.name}_") for word in words)]
    return own[0] if own else theirs[0] if len(theirs) == 1 else ""
