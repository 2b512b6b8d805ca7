"""The system's own counters by platform: /proc and sysfs, kstat, or psutil.

Contains the choice between them, the psutil sampler, and the threads for samplers that run a command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from latmon.capture.backend import Options
from latmon.model.frame import Completed, Device, Taskq
from latmon.support.errors import UnavailableError
from latmon.support.process import SideThread, run_aside
from latmon.support.text import clean
from latmon_backends.kernel.counters import CLOCK, CounterSampler, FrameClock, KernelSampler, Sample
from latmon_backends.kernel.diskstats import Counters
from latmon_backends.kernel.kstat import KstatSampler, TaskqSampler

_EARLY_S = 0.2
"""A reading begins so long before its sample is due, or two readings' time where that is longer."""
_FIRST_S = 1.0
"""The first frame comes after this long even when intervals are longer."""


class Sampler(Protocol):
    """Source of absolute counters by device, and of the changes since the sample before."""

    @property
    def devices(self) -> tuple[Device, ...]: ...

    def sample(self) -> Sample: ...

    def require_selected(self) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def sampler_of(options: Options) -> tuple[Sampler, str]:
    """Return the best sampler, and the name of its source, empty for /proc."""
    if (options.proc / "diskstats").exists():
        return KernelSampler(options.proc, options.sys, options.devices), ""
    try:
        return Aside(KstatSampler(options.devices), options.interval_us), "kstat"
    except UnavailableError:
        return PsutilSampler(options.devices), "psutil"


def _psutil_counters() -> Mapping[str, Any]:
    """Return the counters. OSError where psutil can't read them."""
    import psutil  # noqa: PLC0415 - 20 ms that only a system without /proc/diskstats pays

    # nowrap=True would keep psutil's own state between calls; difference() handles counters that restart.
    try:
        return psutil.disk_io_counters(perdisk=True, nowrap=False)
    except psutil.Error as error:
        raise OSError(str(error)) from error


class PsutilSampler(CounterSampler):
    """Reads the counters of psutil, where there is no /proc/diskstats.

    Devices have no identity but a name, nothing in flight, no flushes or discards: these are absent, not zero.
    """

    def __init__(
        self,
        devices: tuple[str, ...] = (),
        clock: FrameClock = CLOCK,
        ask: Callable[[], Mapping[str, Any]] = _psutil_counters,
    ) -> None:
        super().__init__(devices, clock)
        self._ask = ask

    def sample(self) -> Sample:
        """Return a sample of this moment. UnavailableError when psutil fails."""
        mono_us, wall = self._clock.mono_us(), self._clock.wall()
        io_by_device = {Device(clean(name), 0, 0, kind="other"): io for name, io in self._counts().items()}
        counters = {
            device.name: _counters(device.name, io) for device, io in io_by_device.items() if self.selects(device)
        }
        # psutil has no dev_t: devices are numbered in the order of their appearance.
        known = (self._known.get(name) or Device(name, 0, at, kind="other") for at, name in enumerate(counters))
        changed, removed = self._replace(known)
        return Sample(mono_us, wall, counters, shown=frozenset(counters), devices=changed, removed=removed)

    def require_selected(self) -> None:
        """Raise UnavailableError where the globs match no device."""
        if self._globs and not self._known:
            raise UnavailableError(f"No device matches --device {' '.join(self._globs)}.")

    def _counts(self) -> Mapping[str, Any]:
        try:
            return self._ask()
        except (OSError, RuntimeError) as error:
            raise UnavailableError(f"This system's I/O counters can't be read: {error}.") from error


def _counters(name: str, io: Any) -> Counters:
    ops = {
        "read": Completed(io.read_count, io.read_bytes, _time_us(io, "read_time")),
        "write": Completed(io.write_count, io.write_bytes, _time_us(io, "write_time")),
    }
    return Counters(name, ops)


def _time_us(io: Any, name: str) -> int | None:
    """Return a time that psutil has in ms; None where the system counts none (NetBSD, OpenBSD)."""
    ms = getattr(io, name, None)
    return None if ms is None else 1000 * int(ms)


class _Read(NamedTuple):
    sample: Sample
    devices: tuple[Device, ...]


class Aside:
    """Wrapper of a sampler that runs a command, which can hang: it runs on its own thread from `start` to `close`.

    A sample is the newest finished reading, with that reading's own time; each sample begins one more, to end just
    before the next. A sample without a new reading has the last counters, so the next one has what it missed.
    """

    def __init__(self, sampler: Sampler, interval_us: int, clock: FrameClock = CLOCK) -> None:
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
        """All selected devices as of the last sample."""
        return self._last.devices

    def require_selected(self) -> None:
        """Raise UnavailableError where no device is selected. To be called before `start`."""
        self._sampler.require_selected()

    def start(self) -> None:
        """Read on the thread from now on: `sample` no longer waits."""
        self._thread = SideThread("counters")
        self._ask(self._thread)

    def close(self) -> None:
        """Stop reading; does not wait for a running one."""
        self._closing.set()
        if self._thread is not None:
            self._thread.shutdown()

    def sample(self) -> Sample:
        """Return the newest sample. Before `start` it is read directly: UnavailableError where that fails."""
        if self._thread is None:
            self._last = self._read()
            sample = self._last.sample
        else:
            sample = self._newest() or self._nothing_new()
            if self._next is None and not self._closing.is_set():
                self._ask(self._thread)
        # A reading may end a moment before a sample that doesn't have it yet.
        sample = replace(sample, mono_us=max(sample.mono_us, self._given_us + 1))
        self._given_us = sample.mono_us
        return sample

    def _newest(self) -> Sample | None:
        if self._next is None or not self._next.done():
            return None
        read, self._next = self._next.result(), None
        if read is None:
            return None
        self._last = read
        return read.sample

    def _nothing_new(self) -> Sample:
        """Return a sample with the last counters, and the last gauges up to two intervals old."""
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
        """Read once. The sample's time is the end of the reading: a command reads counters last."""
        began_us = self._clock.mono_us()
        sample = self._sampler.sample()
        now_us = self._clock.mono_us()
        self._took_s = (now_us - began_us) / 1e6
        return _Read(replace(sample, mono_us=now_us, wall=self._clock.wall()), self._sampler.devices)


class TaskQueues:
    """Task queues where kstat has them, read on a thread: returned with the first sample after a reading has ended.

    A reading that fails is left out: task queues are additional information.
    """

    def __init__(self, source: str, sampler: TaskqSampler | None = None) -> None:
        """`source`: the source as `sampler_of` names it."""
        self._sampler = sampler or (TaskqSampler() if source == "kstat" else None)
        self._reading: Future[tuple[Taskq, ...] | None] | None = None
        self.undecoded = 0
        """Lines that were not understood in the last call's reading."""

    def sample(self) -> tuple[Taskq, ...] | None:
        """Return the busy task queues; None where nothing was read."""
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
            taskqs = reading.result()
        except UnavailableError:
            return None
        self.undecoded = self._sampler.undecoded
        return taskqs


def _once(sampler: TaskqSampler) -> Future[tuple[Taskq, ...] | None]:
    return run_aside("task queues", sampler.sample)
