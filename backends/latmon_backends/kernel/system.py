"""The system's own counters by platform: /proc and sysfs, kstat, or psutil.

Chooses, and asks a command aside; each of them is a module of its own. Knows neither frames nor probes.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import NamedTuple, Protocol

from latmon.capture.backend import Options
from latmon.model.frame import Device, Taskq
from latmon.support.errors import UnavailableError
from latmon.support.process import SideThread
from latmon_backends.illumos.disks import KstatSampler
from latmon_backends.illumos.task_queues import TaskqSampler
from latmon_backends.kernel.counters import CLOCK, Clock, KernelSampler, Sample
from latmon_backends.kernel.psutil_counters import PsutilSampler

_EARLY_S = 0.2
"""A reading begins so long before its sample is expected, or two readings' time where that is more."""
_FIRST_S = 1.0
"""The first frame comes after this long even when intervals are longer."""


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
        return Aside(KstatSampler(options.devices), options.interval_us), "kstat"
    except UnavailableError:
        return PsutilSampler(options.devices), "psutil"


class _Read(NamedTuple):
    sample: Sample
    devices: tuple[Device, ...]


class Aside:
    """A sampler that runs a command, which can hang: asked on a thread of its own from `start` to `close`.

    A sample is the newest reading that is finished, with that reading's own time; each sample begins one more, to end
    just before the next. Where none is new nothing is told of that time: what it missed is in the next one.
    """

    def __init__(self, sampler: Sampler, interval_us: int, clock: Clock = CLOCK) -> None:
        self._sampler, self._interval_us, self._clock = sampler, interval_us, clock
        self._thread: SideThread | None = None
        self._closing = threading.Event()
        self._last = _Read(Sample(0, 0.0), ())
        self._next: Future[_Read | None] | None = None
        self._asked = 0
        self._took_s = 0.0
        self._given_us = 0

    @property
    def devices(self) -> tuple[Device, ...]:
        """As of the last sample."""
        return self._last.devices

    def require_selected(self) -> None:
        """To be called before `start`."""
        self._sampler.require_selected()

    def start(self) -> None:
        """From now on `sample` doesn't wait."""
        self._thread = SideThread("counters")
        self._ask(self._thread)

    def close(self) -> None:
        """No more readings; waits for none."""
        self._closing.set()
        if self._thread is not None:
            self._thread.shutdown()

    def sample(self) -> Sample:
        """Before `start` read directly: UnavailableError where that fails."""
        if self._thread is None:
            self._last = self._read()
            found = self._last.sample
        else:
            found = self._newest() or self._nothing_new()
            if self._next is None and not self._closing.is_set():
                self._ask(self._thread)
        # A reading may end a moment before a sample that doesn't have it yet.
        found = replace(found, mono_us=max(found.mono_us, self._given_us + 1))
        self._given_us = found.mono_us
        return found

    def _newest(self) -> Sample | None:
        if self._next is None or not self._next.done():
            return None
        read, self._next = self._next.result(), None
        if read is None:
            return None
        self._last = read
        return read.sample

    def _nothing_new(self) -> Sample:
        """The counters that the next reading is compared with; the gauges while they aren't old."""
        now_us, last = self._clock.mono_us(), self._last.sample
        old = now_us - last.mono_us > 2 * self._interval_us
        return Sample(now_us, self._clock.wall(), counters=last.counters, outstanding={} if old else last.outstanding)

    def _ask(self, thread: SideThread) -> None:
        interval_s = self._interval_us / 1e6
        # The first two frames may be less than an interval apart.
        expected_s = (min(interval_s, _FIRST_S), 0.0)[self._asked] if self._asked < 2 else interval_s  # noqa: PLR2004
        self._asked += 1
        self._next = thread.submit(self._later, expected_s - max(_EARLY_S, 2 * self._took_s))

    def _later(self, delay_s: float) -> _Read | None:
        return None if self._closing.wait(max(0.0, delay_s)) else self._read()

    def _read(self) -> _Read:
        """Its time is that of its end: a command begins with what isn't reading."""
        began_us = self._clock.mono_us()
        sample = self._sampler.sample()
        now_us = self._clock.mono_us()
        self._took_s = (now_us - began_us) / 1e6
        return _Read(replace(sample, mono_us=now_us, wall=self._clock.wall()), self._sampler.devices)


class TaskQueues:
    """Task queues where kstat has them, read aside: told with the first sample after a reading has ended.

    A reading that fails is left out, the queues are no capture's purpose.
    """

    def __init__(self, asked: str, sampler: TaskqSampler | None = None) -> None:
        """`asked`: as of `sampler_of`."""
        self._sampler = sampler or (TaskqSampler() if asked == "kstat" else None)
        self._reading: Future[tuple[Taskq, ...] | None] | None = None
        self.undecoded = 0
        """Of the last call's reading."""

    def sample(self) -> tuple[Taskq, ...] | None:
        """Those that were busy; None where nothing was read."""
        self.undecoded = 0
        if self._sampler is None:
            return None
        if self._reading is None:
            if self._sampler.is_due:
                self._reading = _once(self._sampler)
            return None
        if not self._reading.done():
            return None
        reading, self._reading = self._reading, None
        try:
            found = reading.result()
        except UnavailableError:
            return None
        self.undecoded = self._sampler.undecoded
        return found


def _once(sampler: TaskqSampler) -> Future[tuple[Taskq, ...] | None]:
    """On a thread that ends with it."""
    thread = SideThread("task queues")
    reading = thread.submit(sampler.sample)
    thread.shutdown()
    return reading
