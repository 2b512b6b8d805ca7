"""The tracer's D scripts: which run here, started as one more dtrace process.

D scripts have no filter of devices and take no sample: tracing one device traces all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latmon.capture.backend import Options
from latmon.decode.records import Record
from latmon.manifest.loader import Manifest
from latmon.model.frame import NAMED_FROM, Missing, Thread
from latmon_backends.dtrace import program, tool
from latmon_backends.dtrace import program as dtrace_program
from latmon_backends.dtrace.decoder import NumberedNames
from latmon_backends.dtrace.devices import DtraceClock, NamedDevices
from latmon_backends.dtrace.probe import DtraceProbe
from latmon_backends.dtrace.program import MAP_KEYS, DtraceProgram
from latmon_backends.dtrace.tool import DtraceTool, is_listed
from latmon_backends.probe.frame_builder import FrameBuilder
from latmon_backends.probe.launcher import Launcher, Script, Values
from latmon_backends.probe.outliers import UNKNOWN_PRIORITY, Threads
from latmon_backends.probe.process import RefusedError, RunningProbe, answer
from latmon_backends.probe.tick_protocol import OnDemandSurroundings, OnDemandTicks
from latmon_backends.tracer import programs
from latmon_backends.tracer.programs import ChosenScripts, Programs, Target, stages_of

_STEP_MS = 100
"""Oracle's DTrace loses ticks: at 100 ms and less 12 of 12 windows came in time, at 200 ms 10 of 15."""


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
        return program.fillings(manifest, self._values, self.tool.system)

    @property
    def _values(self) -> Values:
        interval_ms = self.options.interval_us // 1000
        return programs.pace(interval_ms, _STEP_MS) | programs.outliers(self.options.threshold_us)


_LISTING_S = 120.0
_MAX_LISTING = 1 << 20


class NamedThreads(Threads):
    """Threads by the numbers of their names, with the priorities that probes recorded."""

    def __init__(self, options: Options, names: NumberedNames) -> None:
        super().__init__(options.proc)
        self._names = names
        self._priorities: dict[int, int] = {}

    def learn(self, record: Record) -> None:
        number, priority = record.get("thread"), record.get("priority")
        if number is not None and priority is not None:
            self._priorities[number] = priority

    def of(self, pid: int) -> Thread:
        """Return a kernel thread; "other threads" where there was no room for its name."""
        name = self._names.name(pid - NAMED_FROM) or "other threads"
        return Thread(pid, name, "", self._priorities.get(pid, UNKNOWN_PRIORITY))


class DtracePrograms(Programs[DtraceProgram]):
    """The tracer's D scripts. They have no filter of devices and take no sample of the I/Os."""

    sample_us = 1
    _is_privilege = staticmethod(tool.is_privilege)

    def __init__(self, here: CaptureParts, found: Sequence[Manifest]) -> None:
        threads = NamedThreads(here.options, here.names)
        super().__init__([one for one in found if one.group != "always"], threads)
        self._here = here
        self._has: dict[str, bool] = {}

    async def look(self) -> None:
        """List the hooks that exist; where that fails scripts are tried."""
        hooks = sorted({hook for one in self.manifests for hook in one.hooks})
        if hooks:
            listed = await answer(self._here.tool.listing(hooks), within_s=_LISTING_S, most=_MAX_LISTING)
            self._has = {hook: is_listed(hook, listed) for hook in hooks} if listed else {}
        self._reported = {one.name for one in self.choice().missing}

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

    def target(self, devices: tuple[str, ...]) -> Target:
        return Target(why_all="D scripts trace all devices" if devices else "")

    def program(self, target: Target, one_in: int) -> DtraceProgram:  # noqa: ARG002 - D scripts trace every I/O of all devices
        return DtraceProgram(tuple(self._script(one) for one in self.choice().manifests))

    def _script(self, manifest: Manifest) -> Script:
        return next(self._here.fillings(manifest))

    async def _launch(self, launcher: Launcher, program: DtraceProgram) -> RunningProbe:
        return await DtraceProbe.start(launcher, program, self._here.names)

    def _ticks(self, program: DtraceProgram) -> OnDemandTicks:
        around = OnDemandSurroundings(MAP_KEYS, self._here.clock.ahead_us, lambda name: not self.times_alone(name))
        return OnDemandTicks(program.manifests, self._here.frames.selected_name, self.threads, around)

    async def _leave_out(self, launcher: Launcher, program: DtraceProgram, refusal: RefusedError) -> None:
        chosen = program.manifests
        if named := _named(chosen, str(refusal)):
            self._refused[named] = str(refusal)
            return
        # A compiler's message need not name a script: those that don't run alone are left out.
        for one in chosen:
            try:
                probe = await self._launch(launcher, DtraceProgram((self._script(one),)))
            except RefusedError as alone:
                self._refused[one.name] = str(alone)
            else:
                await probe.stop()
        if not self._refused.keys() & {one.name for one in chosen}:
            self._refused[chosen[-1].name] = str(refusal)

    def times_alone(self, name: str) -> bool:
        """Return whether the always-on script doesn't time a device (a ZFS pool, an HBA's port)."""
        device = self._here.devices.known.get(name)
        return device is None or not device.timed


def _named(chosen: Sequence[Manifest], why: str) -> str:
    """Return the script that a refusal names: by a name of its own or a hook that it alone has; else empty."""
    words = set(re.findall(r"[\w:.*-]+", why))
    theirs = [one.name for one in chosen if words & set(one.hooks)]
    own = [one.name for one in chosen if any(word.startswith(f"{one.name}_") for word in words)]
    return own[0] if own else theirs[0] if len(theirs) == 1 else ""
