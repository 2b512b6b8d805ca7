"""The tracer's D scripts: which run here, started as one more dtrace process.

D scripts have no filter of devices and take no sample: who wants one device has all of them traced.
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
from latmon_backends.dtrace.decoder import Names
from latmon_backends.dtrace.devices import DtraceClock, NamedDevices
from latmon_backends.dtrace.probe import Probe
from latmon_backends.dtrace.program import MAP_KEYS, Choice, Program, Script
from latmon_backends.dtrace.tool import Tool, is_listed
from latmon_backends.probe.frame_builder import Frames
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.outliers import UNKNOWN_PRIORITY, Threads
from latmon_backends.probe.process import RefusedError, answer
from latmon_backends.probe.tick_protocol import DeepSurroundings, DeepTicks
from latmon_backends.tracer import programs
from latmon_backends.tracer.programs import Target

_STEP_MS = 100
"""Oracle's DTrace loses ticks: at 100 ms and less 12 of 12 windows came in time, at 200 ms 10 of 15."""


@dataclass(frozen=True, slots=True)
class Here:
    """For as long as a capture lasts."""

    options: Options
    tool: Tool
    names: Names
    devices: NamedDevices
    frames: Frames
    clock: DtraceClock = field(default_factory=DtraceClock)

    def fillings(self, manifest: Manifest) -> Iterator[Script]:
        """The script as it may run here, the likeliest first."""
        return program.fillings(manifest, self._values, self.tool.system)

    @property
    def _values(self) -> dict[str, int | str]:
        """What scripts take."""
        interval_ms = self.options.interval_us // 1000
        return programs.pace(interval_ms, _STEP_MS) | programs.outliers(self.options.threshold_us)


_LISTING_S = 120.0
_MAX_LISTING = 1 << 20


class NamedThreads(Threads):
    """Threads by the numbers that Names gave theirs; what a probe told of their priority."""

    def __init__(self, options: Options, names: Names) -> None:
        super().__init__(options.proc)
        self._names = names
        self._priorities: dict[int, int] = {}

    def learn(self, record: Record) -> None:
        number, priority = record.get("thread"), record.get("priority")
        if number is not None and priority is not None:
            self._priorities[number] = priority

    def of(self, pid: int) -> Thread:
        """Kernel threads, as far as scripts tell of any. For some there may have been no room for a name."""
        name = self._names.name(pid - NAMED_FROM) or "other threads"
        return Thread(pid, name, "", self._priorities.get(pid, UNKNOWN_PRIORITY))


class DtracePrograms:
    """Starts what of the deep scripts runs here, and remembers what was refused."""

    sample_us = 1
    """Scripts tell how many microseconds each depth lasted."""

    def __init__(self, here: Here, found: Sequence[Manifest]) -> None:
        self._here = here
        self.manifests = tuple(one for one in found if one.group != "always")
        self.threads = NamedThreads(here.options, here.names)
        self._has: dict[str, bool] = {}
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()

    async def look(self) -> None:
        """Which hooks there are; a listing that fails leaves it to be tried."""
        hooks = sorted({hook for one in self.manifests for hook in one.hooks})
        if hooks:
            listed = await answer(self._here.tool.listing(hooks), within_s=_LISTING_S, most=_MAX_LISTING)
            self._has = {hook: is_listed(hook, listed) for hook in hooks} if listed else {}
        self._told = {one.name for one in self.choice().missing}

    def choice(self) -> Choice:
        """What runs here as far as is known by now."""
        return dtrace_program.choose(self.manifests, self._has.get, self._here.options.invasive, self._refused)

    @property
    def stages(self) -> tuple[str, ...]:
        traced = (one for one in self.choice().manifests if one.group != "bios")
        return tuple(sorted({stage for one in traced for stage in one.stages} - {"total"}))

    def untraced(self) -> tuple[Missing, ...]:
        """What none of them tells, as far as is known by now."""
        return dtrace_program.untraced(self.choice(), self.manifests)

    @property
    def timed(self) -> Mapping[str, bool]:
        return {name: device.timed for name, device in self._here.devices.known.items()}

    def news(self) -> tuple[Missing, ...]:
        fresh = tuple(one for one in self.choice().missing if one.name not in self._told)
        self._told |= {one.name for one in fresh}
        return fresh

    def target(self, devices: tuple[str, ...]) -> Target:
        return Target(why_all="D scripts trace all devices" if devices else "")

    def outgrown(self, target: Target, devices: tuple[str, ...]) -> bool:  # noqa: ARG002 - D scripts have no filter
        return False

    def unfollowed(self, target: Target) -> Mapping[str, str]:  # noqa: ARG002 - D scripts trace all devices
        return {}

    def program(self) -> Program:
        """What would run now."""
        return Program(tuple(next(self._here.fillings(one)) for one in self.choice().manifests))

    async def start(self, launcher: Launcher, target: Target, one_in: int) -> tuple[Probe, DeepTicks]:  # noqa: ARG002 - D scripts trace every I/O of all devices
        """RefusedError where no script runs; each refusal leaves one script out."""
        while chosen := self.choice().manifests:
            program = self.program()
            try:
                probe = await Probe.start(launcher, program, self._here.names)
            except RefusedError as refusal:
                if tool.is_privilege(str(refusal)):
                    raise
                if named := _named(chosen, str(refusal)):
                    self._refused[named] = str(refusal)
                else:
                    await self._try_each(launcher, chosen, str(refusal))
                continue
            around = DeepSurroundings(MAP_KEYS, self._here.clock.ahead_us, lambda name: not self.times_alone(name))
            return probe, DeepTicks(chosen, self._here.frames.selected_name, self.threads, around)
        why = "; ".join(f"{one.name}: {one.reason}" for one in self.choice().missing)
        raise RefusedError(f"no script of the tracer runs here ({why})")

    async def _try_each(self, launcher: Launcher, chosen: Sequence[Manifest], why: str) -> None:
        """A compiler's message need not say whose text it is about: those that don't run alone are left out."""
        for one in chosen:
            try:
                probe = await Probe.start(launcher, Program((next(self._here.fillings(one)),)), self._here.names)
            except RefusedError as refusal:
                self._refused[one.name] = str(refusal)
            else:
                await probe.stop()
        if not self._refused.keys() & {one.name for one in chosen}:
            self._refused[chosen[-1].name] = why

    def times_alone(self, name: str) -> bool:
        """Whether the always-on script doesn't time a device (a ZFS pool, an HBA's port)."""
        device = self._here.devices.known.get(name)
        return device is None or not device.timed


def _named(chosen: Sequence[Manifest], why: str) -> str:
    """Whose fault a refusal is: by a name of its own, or by a hook that it alone has; empty where none is named."""
    words = set(re.findall(r"[\w:.*-]+", why))
    theirs = [one.name for one in chosen if words & set(one.hooks)]
    own = [one.name for one in chosen if any(word.startswith(f"{one.name}_") for word in words)]
    return own[0] if own else theirs[0] if len(theirs) == 1 else ""
