"""DepthSampler: how long each device had how many I/Os outstanding, by readings between two frames.

Reads on a thread of its own, because any read of sysfs can hang. Owns the thread and what it shares with the frames'
own; files, passes, pace and time by depth are modules of their own. Must not know frames.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from latmon.model import Outstanding
from latmon.side_thread import SideThread
from latmon_backends.depth_files import Gauge
from latmon_backends.depth_pace import Pace
from latmon_backends.depth_passes import Passes, Watched
from latmon_backends.depth_time import STANDS_US, DepthTime, Spent

_STANDS_US = 1_000_000
"""Passes are 10 ms to 0.5 s apart unless they are dear: after a longer gap the thread did not run."""
_ROUND, _ROUND_S = 8, 0.5
"""Quiet devices are read at every 8th pass, or more often where passes are rare."""


class DepthSampler:
    """Begins with `start`, ends with `close`. `watch` and `spent` never wait for a read."""

    def __init__(self, proc: Path, sys: Path, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._passes = Passes(proc, sys, self._read_now)
        self._lock = threading.Lock()  # held over arithmetic, never over a read: that may hang for ever
        self._times: dict[str, tuple[Watched, DepthTime]] = {}
        self._stands_us = _STANDS_US
        self._watched: Mapping[str, Watched] = MappingProxyType({})
        self._going = threading.Lock()  # held while it goes on; an Event takes a third more CPU to wait for
        self._going.acquire()
        self._looking: Future[None] | None = None

    def start(self) -> None:
        thread = SideThread("depths")
        self._looking = thread.submit(self._look)
        thread.shutdown()

    def close(self, patience_s: float = 0.5) -> None:
        """The files are closed when this returns, unless the thread hangs in a read: then as soon as that returns."""
        looking, self._looking = self._looking, None
        if looking is not None:
            self._going.release()
            with suppress(TimeoutError):
                looking.result(patience_s)

    def watch(self, mono_us: int, devices: Mapping[str, Watched], gauges: Mapping[str, Outstanding]) -> None:
        """The devices that there are now, and a frame's own gauges of them: a reading as any other."""
        with self._lock:
            known = self._times
            self._times = {
                name: known[name] if name in known and known[name][0] == one else (one, DepthTime())
                for name, one in devices.items()
            }
            self._watched = dict(devices)
        for name, one in devices.items():
            gauge = gauges.get(name, Outstanding(None, None))
            if gauge.in_driver is not None:
                self._read(name, one, mono_us, Gauge(gauge.in_driver, gauge.queued, moved=True))

    def spent(self) -> dict[str, Spent]:
        """Of each device, up to its last reading. A mistake of ours in the thread comes out here."""
        if self._looking is not None and self._looking.done():
            self._looking.result()
        with self._lock:
            return {name: time_by.spent() for name, (_, time_by) in self._times.items()}

    def _look(self) -> None:
        pace, count = Pace(time.thread_time, random.random), 0
        with self._passes:
            while not self._going.acquire(timeout=self._pause_s(pace)):
                self._passes.watch(self._watched)
                self._passes.one(quiet=count % max(1, min(_ROUND, int(_ROUND_S / pace.step_s))) == 0)
                count += 1

    def _pause_s(self, pace: Pace) -> float:
        """Return the next pause. A reading stands for that long, not for the time in which this process was stopped."""
        pause_s = pace.pause_s()
        self._stands_us = min(STANDS_US, max(_STANDS_US, round(pause_s * 1e6)))
        return pause_s

    def _read_now(self, name: str, watched: Watched, gauge: Gauge) -> None:
        self._read(name, watched, self._now_us(), gauge)

    def _read(self, name: str, watched: Watched, mono_us: int, gauge: Gauge) -> None:
        with self._lock:
            known = self._times.get(name)
            if known is not None and known[0] == watched:
                known[1].read(mono_us, gauge.in_driver, gauge.queued, self._stands_us)
