"""The tracer's programs as its controller sees them, independent of the tool."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from latmon.model.frame import Missing
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import RunningProbe
from latmon_backends.probe.tick_protocol import DeepTicks


@dataclass(frozen=True, slots=True)
class Target:
    """The devices that are traced, by name (none: all) and by the kernel's numbers."""

    devices: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    why_all: str = ""
    """Why all devices are traced though only some are wanted."""


class Programs(Protocol):
    """What can run here, started when asked."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that there is no word about while the deep probes don't run."""
        ...

    @property
    def sample_us(self) -> int:
        """The time between two looks at depths; 1 where a script tells how long each lasted."""
        ...

    @property
    def timed(self) -> Mapping[str, bool]:
        """All devices, and whether each has requests."""
        ...

    def news(self) -> tuple[Missing, ...]:
        """What was refused since it was asked last."""
        ...

    def target(self, devices: tuple[str, ...]) -> Target:
        """Whom a program for these devices traces."""
        ...

    def outgrown(self, target: Target, devices: tuple[str, ...]) -> bool:
        """Whether the kernel's filter of a program for `target` lacks one of these devices: it was created later."""
        ...

    def unfollowed(self, target: Target) -> Mapping[str, str]:
        """Device that the running program for `target` can't follow, in all or in part -> why, as a sentence's end."""
        ...

    async def start(self, launcher: Launcher, target: Target, one_in: int) -> tuple[RunningProbe, DeepTicks]:
        """RefusedError where no script runs."""
        ...


_STEP_MS = 200


def pace(interval_ms: int, step_ms: int = _STEP_MS) -> dict[str, int | str]:
    """A script wakes every `step_ms` and prints when `gate_ns` have passed since it last did, half a step early.

    `step_ms` is the most; what fits into the interval is taken.
    """
    step = interval_ms // math.ceil(interval_ms / step_ms)
    return {"step_ms": step, "gate_ns": (interval_ms - step // 2) * 1_000_000}


def outliers(threshold_us: int | None) -> dict[str, int | str]:
    """What makes an I/O an outlier. A script's 0 means that it finds one per device, so the user's 0 is 1 us."""
    return {"threshold_us": 0 if threshold_us is None else max(1, threshold_us)}
