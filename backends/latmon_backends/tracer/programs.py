"""The tracer's scripts as its controller sees them: chosen, started, refused; each tool has a subclass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from latmon.manifest import Manifest
from latmon.model.frame import Missing
from latmon_backends.probe.launcher import AnyProgram, Launcher
from latmon_backends.probe.outliers import Threads
from latmon_backends.probe.process import RefusedError, RunningProbe
from latmon_backends.probe.tick_protocol import OnDemandTicks

OneProgram = TypeVar("OneProgram", bound=AnyProgram)
_STEP_MS = 200


@dataclass(frozen=True, slots=True)
class Target:
    """The devices that are traced, by name (none: all) and by the kernel's numbers."""

    devices: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    why_all: str = ""
    """Why all devices are traced though only some are wanted."""
    filtered: bool = False
    """Whether the program takes its devices from a map, which is written while it runs."""
    files: bool = False
    """Whether operations on files are traced too."""


@dataclass(frozen=True, slots=True)
class TracerSample:
    """Extent of tracing: one request in `one_in`; `lean`: no events but those of requests."""

    one_in: int = 1
    lean: bool = False
    files: bool = True
    """Whether operations on files may be traced, where they are wanted."""


@dataclass(frozen=True, slots=True)
class ChosenScripts:
    """The scripts that run here, in the order of their text, and those that don't, with reasons."""

    manifests: tuple[Manifest, ...] = ()
    missing: tuple[Missing, ...] = ()


class Programs(ABC, Generic[OneProgram]):
    """The tracer's scripts of one tool, started as one process; refused scripts are left out from then on."""

    sample_us: int
    """Microseconds between two samples of the depths; 1 where a script measures how long each lasted."""

    def __init__(self, manifests: Sequence[Manifest], threads: Threads) -> None:
        self.manifests, self.threads = tuple(manifests), threads
        self.unfiltered = ""
        """Why the program of this start can't be given its devices while it runs; empty where it can."""
        self._refused: dict[str, str] = {}
        self._reported: set[str] = set()

    @property
    @abstractmethod
    def stages(self) -> tuple[str, ...]:
        """Stages to report as not traced while the tracer doesn't run."""

    @property
    @abstractmethod
    def timed(self) -> Mapping[str, bool]:
        """All devices, and whether each has requests."""

    @abstractmethod
    def choice(self) -> ChosenScripts:
        """Return the scripts that run here, as far as is known by now."""

    def untraced(self) -> tuple[Missing, ...]:
        """Return the stages and tables that none of the scripts measures, where that is known before they run."""
        return ()

    def news(self) -> tuple[Missing, ...]:
        """Return the scripts that were refused since the last call; the origin has those known before the first."""
        fresh = tuple(missing for missing in self.choice().missing if missing.name not in self._reported)
        self._reported |= {missing.name for missing in fresh}
        return fresh

    @abstractmethod
    def target(self, devices: tuple[str, ...], *, forced: bool, files: bool) -> Target:
        """Return what a program for these devices traces; `forced`: they don't change while it runs."""

    def lacks(self, target: Target, sample: TracerSample) -> str:  # noqa: ARG002 - a tool without a filter
        """Return what the program that runs has no script for; empty where it can trace the target."""
        return ""

    def unfollowed(self, target: Target) -> Mapping[str, str]:  # noqa: ARG002 - a tool without a filter
        """Return devices that the program for `target` can't follow in all or in part -> why, a sentence's end."""
        return {}

    def left_out(self, target: Target, sample: TracerSample) -> tuple[Missing, ...]:  # noqa: ARG002 - a tool without a budget
        """Return the stages and tables that the program for these doesn't measure, and others do."""
        return ()

    @abstractmethod
    def program(self, target: Target, sample: TracerSample) -> OneProgram:
        """Return the scripts that would run now, put together."""

    async def start(
        self, launcher: Launcher, target: Target, sample: TracerSample
    ) -> tuple[RunningProbe, OnDemandTicks]:
        """Start the program, again without a script or with its lesser variant after each refusal.

        RefusedError where no script is left, and where the tool lacks privileges.
        """
        while (program := self.program(target, sample)).scripts:
            try:
                return await self._launch(launcher, program), self._ticks(program)
            except RefusedError as refusal:
                if self._is_privilege(str(refusal)):
                    raise
                await self._leave_out(launcher, program, refusal)
        why = "; ".join(f"{missing.name}: {missing.reason}" for missing in self.choice().missing)
        raise RefusedError(f"no script of the tracer runs here ({why})")

    @abstractmethod
    async def _launch(self, launcher: Launcher, program: OneProgram) -> RunningProbe: ...

    @abstractmethod
    def _ticks(self, program: OneProgram) -> OnDemandTicks: ...

    @staticmethod
    @abstractmethod
    def _is_privilege(why: str, /) -> bool: ...

    @abstractmethod
    async def _leave_out(self, launcher: Launcher, program: OneProgram, refusal: RefusedError) -> None:
        """Note which of the program's scripts was refused."""


def stages_of(manifests: Iterable[Manifest]) -> tuple[str, ...]:
    """Return the stages that scripts for requests measure; not the total, which the always-on probe has."""
    stages = {stage for manifest in manifests if manifest.group != "bios" for stage in manifest.stages}
    return tuple(sorted(stages - {"total"}))


def pace(interval_ms: int, step_ms: int = _STEP_MS) -> dict[str, int | str]:
    """Return how often a script wakes, and after what time it prints.

    It wakes every `step_ms` and prints when `gate_ns` have passed since it last did, half a step early. The given
    `step_ms` is the most; a whole number of steps fits into the interval.
    """
    step = interval_ms // math.ceil(interval_ms / step_ms)
    return {"step_ms": step, "gate_ns": (interval_ms - step // 2) * 1_000_000}


def outliers(threshold_us: int | None) -> dict[str, int | str]:
    """Return the threshold of outliers. A script's 0 means that it finds one per device: the user's 0 is 1 us."""
    return {"threshold_us": 0 if threshold_us is None else max(1, threshold_us)}
