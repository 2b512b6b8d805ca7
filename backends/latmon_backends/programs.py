"""The deep process's programs as those see them who steer it, whichever tool runs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from latmon.model import Missing
from latmon_backends.deep_ticks import DeepTicks
from latmon_backends.launching import Launcher
from latmon_backends.running_probe import RunningProbe


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
