"""The kernel's own counters as this system has them: /proc and sysfs, kstat, or what psutil knows.

Chooses; each of them is a module of its own. Knows neither frames nor probes.
"""

from __future__ import annotations

from typing import Protocol

from latmon.backend import Options
from latmon.errors import UnavailableError
from latmon.model import Device, Taskq
from latmon_backends.kstat_counters import KstatSampler
from latmon_backends.kstat_taskqs import TaskqSampler
from latmon_backends.psutil_counters import PsutilSampler
from latmon_backends.sampler import KernelSampler, Sample


class Sampler(Protocol):
    """Absolute counters by device, and what changed since the sample before."""

    @property
    def devices(self) -> tuple[Device, ...]: ...

    def sample(self) -> Sample: ...

    def require_selected(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def sampler_of(options: Options) -> tuple[Sampler, str]:
    """The best one, and the name of what it asks, empty for /proc. UnavailableError only from its own readings."""
    if (options.proc / "diskstats").exists():
        return KernelSampler(options.proc, options.sys, options.devices), ""
    try:
        return KstatSampler(options.devices), "kstat"
    except UnavailableError:
        return PsutilSampler(options.devices), "psutil"


class TaskQueues:
    """Task queues where kstat has them; a reading that fails is left out, the queues are no capture's purpose."""

    def __init__(self, asked: str) -> None:
        """`asked`: as of `sampler_of`."""
        self._sampler: TaskqSampler | None = None
        self.undecoded = 0
        """Of the last call's reading."""
        if asked == "kstat":
            self._sampler = TaskqSampler()

    def sample(self) -> tuple[Taskq, ...] | None:
        """Those that were busy; None where nothing was read."""
        self.undecoded = 0
        if self._sampler is None:
            return None
        try:
            found = self._sampler.sample()
        except UnavailableError:
            return None
        self.undecoded = 0 if found is None else self._sampler.undecoded
        return found
