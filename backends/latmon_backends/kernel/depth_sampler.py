"""Depth histograms sampled from the kernel's in-flight gauges between two frames.

A thread of its own reads, because any read of sysfs can hang. A busy device is read through open files. The quiet
devices share one reading of /proc/diskstats: an unchanged line with nothing in flight is a depth of 0, a changed line
makes the device busy.

A sample counts for the time nearest to it: half of the gap to the one before and half of the gap to the next. So the
weights add up to the time, whatever the rate of sampling. Time is counted in whole milliseconds, which are the moments
of `Depths`; the remainder is carried over. The pace is set by the CPU time of the thread, waking up included: that
costs as much as reading a few devices.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Self

from latmon.model.frame import Outstanding
from latmon.model.inflight import SYSFS, Depths, bucket_end
from latmon.support.paths import content
from latmon.support.process import SideThread
from latmon_backends.kernel import block_devices, diskstats

_STAT_BYTES, _INFLIGHT_BYTES = 512, 64
_INFLIGHT_COLUMN = 8
"""In-flight in /sys/block/X/stat, column 12 of /proc/diskstats (Documentation/block/stat.rst)."""
MOST_OPEN = 128
"""Devices whose files are open at once: two each, of 1024 that a process may have. Others are opened for each read."""
_QUIET = 64
"""Passes without any I/O after which a device is quiet."""
REACH_US = 5_000_000
"""The longest time in either direction that a sample counts for; beyond it the depth is unknown."""
_MOMENT_US = 1000
BUDGET = 0.0045
"""CPU seconds per second, of 0.005 allowed: the margin is for a pass that takes longer than those before it."""
_MEMORY = 16
"""Passes over which the cost of one is averaged."""
_LEAST_REACH_US = 1_000_000
"""Passes are 10 ms to 0.5 s apart unless they are expensive: after a longer gap the thread did not run."""


class DepthGauge(NamedTuple):
    """A reading. `moved` is False where no I/O arrived or completed since the one before."""

    in_driver: int
    queued: int | None
    moved: bool


class DepthFiles:
    """A device's two open files. To be closed when a read fails."""

    def __init__(self, block: Path, *, has_queued: bool) -> None:
        """Open the files. OSError where the device has gone or no more can be opened: none is left open then.

        `has_queued` as in diskstats.outstanding, for this device.
        """
        self._has_queued = has_queued
        self._stat = os.open(block / "stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._inflight = os.open(block / "inflight", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            os.close(self._stat)
            raise
        self._line = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def read(self) -> DepthGauge:
        """Return the gauge now. OSError (ENODEV) when the device has gone, ValueError for an unknown format.

        The two files are read one after the other: I/Os that completed in between would look as if they were queued.
        Where any seem to be queued the column is read again, and the smaller number is the queue.
        """
        line = os.pread(self._stat, _STAT_BYTES, 0)
        moved, self._line = line != self._line, line
        column = _column(line)
        if not column:
            return DepthGauge(0, 0 if self._has_queued else None, moved)
        driver = sum(map(int, os.pread(self._inflight, _INFLIGHT_BYTES, 0).split()))
        if self._has_queued and column > driver:
            column = min(column, _column(os.pread(self._stat, _STAT_BYTES, 0)))
        reported = diskstats.outstanding(driver, column, has_queued=self._has_queued)
        return DepthGauge(driver, reported.queued, moved)

    def close(self) -> None:
        os.close(self._stat)
        os.close(self._inflight)


def _column(line: bytes) -> int:
    words = line.split(None, _INFLIGHT_COLUMN + 1)
    if len(words) <= _INFLIGHT_COLUMN:
        raise ValueError("fewer columns than any supported kernel prints")
    return int(words[_INFLIGHT_COLUMN])


_NAME, _COLUMN = 2, 11
"""Columns of /proc/diskstats: name and in-flight (Documentation/admin-guide/iostats.rst)."""


@dataclass(frozen=True, slots=True)
class Watched:
    """A device to be sampled. Another `generation` is another device with the same name."""

    generation: int
    has_queued: bool
    """The argument `has_queued` of diskstats.outstanding, for this device."""


@dataclass(slots=True)
class _Busy:
    watched: Watched
    files: DepthFiles
    passes_without: int = 0


class Passes:
    """Passes over all devices. A device that can't be read is left out until its line changes.

    `report` is called with each reading.
    """

    def __init__(self, proc: Path, sys: Path, report: Callable[[str, Watched, DepthGauge], None]) -> None:
        self._diskstats, self._block, self._report = proc / "diskstats", sys / "block", report
        self._watched: Mapping[str, Watched] = {}
        self._names: dict[bytes, str] = {}
        self._busy: dict[str, _Busy] = {}
        self._lines: dict[str, bytes] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for name in tuple(self._busy):
            self._close(name)

    @property
    def open(self) -> frozenset[str]:
        """Devices whose files are open."""
        return frozenset(self._busy)

    def watch(self, devices: Mapping[str, Watched]) -> None:
        """Read these devices and no others, from the next pass on."""
        if devices is self._watched:
            return
        self._watched = devices
        self._names = {name.encode(): name for name in devices}
        self._lines = {name: line for name, line in self._lines.items() if name in devices}
        for name, busy in tuple(self._busy.items()):
            if devices.get(name) != busy.watched:
                self._close(name)

    def one(self, *, quiet: bool) -> None:
        """Read the busy devices, and with `quiet` the quiet ones too."""
        for name, busy in tuple(self._busy.items()):
            self._read(name, busy)
        if quiet:
            for line in content(self._diskstats).splitlines():
                self._look(line)

    def _read(self, name: str, busy: _Busy) -> None:
        try:
            gauge = busy.files.read()
        except (OSError, ValueError):  # ENODEV: it has gone
            self._close(name)
            return
        self._report(name, busy.watched, gauge)
        busy.passes_without = 0 if gauge.moved or gauge.in_driver or gauge.queued else busy.passes_without + 1
        if busy.passes_without > _QUIET:
            self._close(name)

    def _look(self, line: bytes) -> None:
        words = line.split(None, _COLUMN + 1)
        name = self._names.get(words[_NAME]) if len(words) > _COLUMN else None
        if name is None or name in self._busy:
            return
        watched, before, self._lines[name] = self._watched[name], self._lines.get(name, line), line
        if line == before and words[_COLUMN] == b"0":
            self._report(name, watched, DepthGauge(0, 0 if watched.has_queued else None, moved=False))
            return
        try:
            files = DepthFiles(block_devices.directory(self._block, name), has_queued=watched.has_queued)
        except OSError:
            return
        busy = self._busy[name] = _Busy(watched, files)
        self._read(name, busy)
        if len(self._busy) > MOST_OPEN:
            self._close(name)

    def _close(self, name: str) -> None:
        if busy := self._busy.pop(name, None):
            busy.files.close()


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds by depth since a device's first sample; `queued` is empty where it isn't known."""

    in_driver: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    queued: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    since_us: int = 0
    """The first sample; a different one means another device, or one that was not sampled for a while."""


class DepthTime:
    """Accumulator of one device's samples. Bounded: depths are counted as the ends of their buckets."""

    def __init__(self) -> None:
        self._in_driver, self._queued = Counter[int](), Counter[int]()
        self._last: tuple[int, int, int | None] | None = None
        self._since_us = self._left_us = 0
        self._spent: Spent | None = None

    def read(self, mono_us: int, driver: int, queued: int | None, reach_us: int = REACH_US) -> None:
        """Add a sample, which counts for `reach_us` at most in either direction; an older one is left out."""
        if self._last is None:
            self._since_us = mono_us
        else:
            was_us, was_driver, was_queued = self._last
            gap_us = mono_us - was_us
            if gap_us <= 0:
                return
            self._add(min(gap_us // 2, reach_us), was_driver, was_queued)
            self._add(min(gap_us - gap_us // 2, reach_us), driver, queued)
        self._last = (mono_us, driver, queued)

    def spent(self) -> Spent:
        """Return the time by depth up to the last sample."""
        if self._spent is None or self._spent.since_us != self._since_us:
            self._spent = Spent(dict(self._in_driver), dict(self._queued), self._since_us)
        return self._spent

    def _add(self, us: int, driver: int, queued: int | None) -> None:
        moments, self._left_us = divmod(us + self._left_us, _MOMENT_US)
        if moments:
            self._spent = None
            self._in_driver[bucket_end(driver)] += moments
            if queued is not None:
                self._queued[bucket_end(queued)] += moments


def between(before: Spent, after: Spent, dt_us: int) -> Depths | None:
    """Return the depths of an interval of `dt_us` from one to the other; None where no time has passed.

    Of a device that was idle before it the time since its last sample is left out: frames before have it as idle.
    """
    if before.since_us != after.since_us:
        before = Spent()
    most = dt_us // _MOMENT_US
    in_driver = _gained(before.in_driver, after.in_driver, most)
    return Depths(in_driver, _gained(before.queued, after.queued, most), source=SYSFS) if in_driver else None


def _gained(before: Mapping[int, int], after: Mapping[int, int], most: int) -> dict[int, int]:
    gained_by_depth = {
        depth: gained for depth, ms in sorted(after.items()) if (gained := ms - before.get(depth, 0)) > 0
    }
    idle_ms = min(gained_by_depth.pop(0, 0), most - sum(gained_by_depth.values()))
    return {0: idle_ms, **gained_by_depth} if idle_ms > 0 else gained_by_depth


SHORTEST_S, LONGEST_S = 0.010, 4.0


class SamplingPace:
    """Schedule of the passes. `cpu_s` returns the CPU time of the thread that reads, `chance` 0 to 1."""

    def __init__(self, cpu_s: Callable[[], float], chance: Callable[[], float]) -> None:
        self._cpu_s, self._chance = cpu_s, chance
        self._before_s = cpu_s()
        self.step_s = 2 * SHORTEST_S
        self._cost_s = self.step_s * BUDGET

    def pause_s(self) -> float:
        """Return a pause of a half to one and a half steps: random, so that it aliases with no periodic load."""
        spent = self._cpu_s()
        self._cost_s += (spent - self._before_s - self._cost_s) / _MEMORY
        self._before_s = spent
        self.step_s = min(max(self._cost_s / BUDGET, SHORTEST_S), LONGEST_S)
        return self.step_s * (0.5 + self._chance())


_ROUND, _ROUND_S = 8, 0.5
"""Quiet devices are read at every 8th pass, or more often where passes are rare."""


class DepthSampler:
    """Thread that samples depths from `start` to `close`. `watch` and `spent` never wait for a read."""

    def __init__(self, proc: Path, sys: Path, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._passes = Passes(proc, sys, self._read_now)
        self._lock = threading.Lock()  # locked for arithmetic, never during a read: that may hang
        self._times: dict[str, tuple[Watched, DepthTime]] = {}
        self._reach_us = _LEAST_REACH_US
        self._watched: Mapping[str, Watched] = MappingProxyType({})
        self._going = threading.Lock()  # locked until `close`; waiting for an Event takes a third more CPU
        self._going.acquire()
        self._looking: Future[None] | None = None

    def start(self) -> None:
        thread = SideThread("depths")
        self._looking = thread.submit(self._look)
        thread.shutdown()

    def close(self, patience_s: float = 0.5) -> None:
        """Close the files before returning, or, if the thread hangs in a read, as soon as that returns."""
        looking, self._looking = self._looking, None
        if looking is not None:
            self._going.release()
            with suppress(TimeoutError):
                looking.result(patience_s)

    def watch(self, mono_us: int, devices: Mapping[str, Watched], gauges: Mapping[str, Outstanding]) -> None:
        """Set the devices to sample, and add a frame's own gauges of them as samples.

        `gauges` may lack idle devices, which the thread reports.
        """
        if devices is not self._watched:
            with self._lock:
                known = self._times
                self._times = {
                    name: known[name] if name in known and known[name][0] == number else (number, DepthTime())
                    for name, number in devices.items()
                }
                self._watched = devices
        for name, gauge in gauges.items():
            if name in devices and gauge.in_driver is not None:
                self._read(name, devices[name], mono_us, DepthGauge(gauge.in_driver, gauge.queued, moved=True))

    def spent(self) -> dict[str, Spent]:
        """Return each device's time by depth up to its last sample. Raises what the thread raised."""
        if self._looking is not None and self._looking.done():
            self._looking.result()
        with self._lock:
            return {name: time_by.spent() for name, (_, time_by) in self._times.items()}

    def _look(self) -> None:
        pace, count = SamplingPace(time.thread_time, random.random), 0
        with self._passes:
            while not self._going.acquire(timeout=self._pause_s(pace)):
                self._passes.watch(self._watched)
                self._passes.one(quiet=count % max(1, min(_ROUND, int(_ROUND_S / pace.step_s))) == 0)
                count += 1

    def _pause_s(self, pace: SamplingPace) -> float:
        """Return the next pause. A sample counts for that long, not for the time in which this process was stopped."""
        pause_s = pace.pause_s()
        self._reach_us = min(REACH_US, max(_LEAST_REACH_US, round(pause_s * 1e6)))
        return pause_s

    def _read_now(self, name: str, watched: Watched, gauge: DepthGauge) -> None:
        self._read(name, watched, self._now_us(), gauge)

    def _read(self, name: str, watched: Watched, mono_us: int, gauge: DepthGauge) -> None:
        with self._lock:
            known = self._times.get(name)
            if known is not None and known[0] == watched:
                known[1].read(mono_us, gauge.in_driver, gauge.queued, self._reach_us)
