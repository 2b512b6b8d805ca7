"""The DTrace backend: the always-on D script that runs here, its clock and gauges, and what the tracer needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from latmon.capture.backend import Options
from latmon.decode.framer import Framer, ProbeInterval
from latmon.manifest.loader import Manifest
from latmon.model.frame import Frame
from latmon.support.errors import UnavailableError
from latmon_backends.dtrace import program
from latmon_backends.dtrace import tool as dtrace_tool
from latmon_backends.dtrace.decoder import NumberedNames
from latmon_backends.dtrace.devices import InFlightGauge, NamedDevices, NoCounters
from latmon_backends.dtrace.probe import DtraceProbe
from latmon_backends.dtrace.program import MAP_KEYS, DtraceProgram
from latmon_backends.dtrace.tool import DtraceTool
from latmon_backends.dtrace.tracer import CaptureParts, DtracePrograms
from latmon_backends.kernel import counters
from latmon_backends.kernel.system import Sampler, TaskQueues, sampler_of
from latmon_backends.probe.always_on import AlwaysOn
from latmon_backends.probe.events import Event, Printed
from latmon_backends.probe.frame_builder import FrameBuilder
from latmon_backends.probe.launcher import Direct, Script
from latmon_backends.probe.outliers import Outliers
from latmon_backends.probe.tick_protocol import ProbeWindow, Surroundings, Ticks, stamped
from latmon_backends.probe_backend import ProbeBackend

_SILENT_S = 15.0
"""Oracle's DTrace loses ticks, for up to 13 s in a row: only one that prints nothing for longer is stuck."""
_FINISHING_S = 1.1
"""A capture that is in a hurry waits 1.4 s for its last frame."""
_LAST_S = 0.3
"""The tracer's last output comes within 10 ms."""


class DtraceAlwaysOn(AlwaysOn):
    """The always-on dtrace process: one of the system's D scripts."""

    def __init__(self, here: CaptureParts, scripts: Sequence[Manifest]) -> None:
        """`scripts`: those that may be tried, the best first."""
        launcher = Direct(here.tool, here.options.proc)
        super().__init__("dtrace", _SILENT_S, here.options, launcher, here.frames)
        self._here, self._scripts = here, scripts

    def _candidates(self, refusals: Mapping[str, str]) -> Iterator[Script]:  # noqa: ARG002 - all are tried
        return (one for manifest in self._scripts for one in self._here.fillings(manifest))

    def _why_none_would(self, refusal: str) -> str:
        if dtrace_tool.is_privilege(refusal):
            return _no_privilege(refusal, self._here.tool.system)
        return _no_library(refusal, self._tool) if dtrace_tool.is_library(refusal) else ""

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
        if words[:1] == ["tick"] and (found := stamped(words)) is not None:
            self._here.clock.hear(found[1], counters.monotonic_us())
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

    def __init__(
        self,
        options: Options,
        reason: str = "",
        find_tool: Callable[[], DtraceTool] = dtrace_tool.find,
        only: tuple[str, ...] = (),
    ) -> None:
        """`only` names the always-on scripts that may be tried; empty means all. `reason`: why no better backend."""
        # D scripts have no sample of requests to fall back to, and their cost can't be measured: no budget.
        super().__init__(replace(options, budget_percent=0.0))
        self._find_tool, self._only, self._reason = find_tool, only, reason

    async def _prepare(self) -> None:
        tool = self._tool = await dtrace_tool.with_version(self._find_tool())
        found = program.manifests(tool.system)
        program.check_invasive(self._options.invasive, found)
        names = NumberedNames()
        sampler, asked = _counters(self._options)
        self._queues = TaskQueues(asked)
        devices = self._devices = NamedDevices(sampler, names, self._options.devices, self._options.sys)
        self._frames = FrameBuilder(devices, self._options.sys)
        devices.require_selected()
        here = CaptureParts(self._options, tool, names, devices, self._frames)
        scripts = [one for one in program.always_on(found) if not self._only or one.name in self._only]
        self._always, self._programs = DtraceAlwaysOn(here, scripts), DtracePrograms(here, found)

    async def _look(self) -> None:
        """List the probes that exist. That costs as much as starting one: not where the tracer never runs."""
        if self._options.stages != "basic":
            await self._programs.look()

    async def _prepare_tracer(self, looking: asyncio.Task[None]) -> None:
        name, programs = self._frames.selected_name, self._programs
        manifests = (self._always.manifest, *programs.manifests)
        self._join(Outliers(manifests, name, programs.threads, alone=programs.times_alone), self._devices.put_fresh)
        await self._until(looking)

    def _why(self, refusals: Mapping[str, str]) -> str:
        lesser = [f"{self._probe_name}, because {one} is refused: {why}" for one, why in refusals.items()]
        return "; ".join(one for one in (self._reason, *lesser[:1]) if one)

    @property
    def _probe_name(self) -> str:
        return self._always.manifest.name

    def _frame(self, window: ProbeWindow, skipped: int | None, *, ending: bool = False) -> Frame:
        frame = super()._frame(window, skipped, ending=ending)
        queues = self._queues.sample()
        health = replace(frame.health, undecoded_lines=frame.health.undecoded_lines + self._queues.undecoded)
        return self._always.gauge.fill(replace(frame, taskqs=queues, health=health))


def _counters(options: Options) -> tuple[Sampler, str]:
    """Return the kernel's own counters; none where they can't be read."""
    found, asked = sampler_of(options)
    try:
        found.sample()
    except UnavailableError:
        return NoCounters(), ""
    return found, asked
