"""Devices as D scripts name them, the clock offset, and gauges from started and completed I/Os.

A name that the counters know is that device, a partition's is its disk's, a number is the kernel's dev_t. Any other (a
ZFS pool, an HBA's port, a disk without counters) is a device that only the probes know. Knows no probe and no frame.

FreeBSD's `timestamp` is the processor's own counter, scaled and never corrected (sys/cddl/dev/dtrace, dtrace_gethrtime)
as CLOCK_MONOTONIC is. So they differ by what they differed at boot, and drift. A line is read some time after its stamp
was taken: of the lines of the last minutes the one that took least time tells the distance best.

Both are exact sums since the script's start, from before the first window on. What was in flight when it started isn't
in them: neither its begin nor its end is counted. When starts were dropped for want of room their ends never come, so
from then on nothing is told. Knows no probe.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from latmon.decode.framer import Interval
from latmon.model.frame import Device, Frame, Outstanding
from latmon_backends.dtrace.decoder import Names
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel.counters import KernelSampler, Sample
from latmon_backends.kernel.system import Sampler

MAX_DEVICES = 4096
_DRIVER = re.compile(r"[A-Za-z_]+")
_WORD = re.compile(r"[\w.!-]+")


class NoCounters:
    """Where the kernel's counters can't be had: the probes' own counts are all there is."""

    devices: tuple[Device, ...] = ()

    def sample(self) -> Sample:
        return Sample(kernel_counters.CLOCK.mono_us(), kernel_counters.CLOCK.wall())

    def require_selected(self) -> None:
        """Devices are known only by what the probes name."""

    def start(self) -> None:
        """Nothing to look at between samples."""

    def close(self) -> None:
        """Nothing is open."""


class NamedDevices:
    """The counters of a `Sampler`, and the devices of the probes' names; a `frames.Counters`."""

    def __init__(self, counters: Sampler, names: Names, globs: tuple[str, ...], sys: Path) -> None:
        self._counters, self._names, self._globs, self._sys = counters, names, globs, sys
        self._known: dict[str, Device] = {}
        self._seen: dict[str, Device] = {}
        self._fresh: dict[str, None] = {}
        self._disks: dict[int, str] = {}

    @property
    def devices(self) -> tuple[Device, ...]:
        """Those that the user selects, as of the last sample."""
        return tuple(device for device in self.known.values() if self.selects(device))

    @property
    def known(self) -> Mapping[str, Device]:
        """All of them."""
        return {**self._seen, **self._known}

    def start(self) -> None:
        self._counters.start()

    def close(self) -> None:
        self._counters.close()

    def sample(self) -> Sample:
        found = self._counters.sample()
        self._known = {device.name: device for device in self._counters.devices}
        return found

    def put_fresh(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        """A frame's devices and those that the probes named for it: after all of its maps and records were read."""
        told, fresh = {device.name for device in devices}, self._fresh
        self._fresh = {}
        new = (self._seen[name] for name in fresh if name not in told and name not in self._known)
        return (*devices, *(one for one in new if self.selects(one)))

    def times(self, name: str) -> None:
        """The always-on probe times it: one that only the deep ones name is not timed itself."""
        device = self._seen.get(name)
        if device is not None and not device.timed:
            self._seen[name] = replace(device, timed=True)
            self._fresh[name] = None

    def selects(self, device: Device) -> bool:
        """As the kernel's counters select, by name or label."""
        names = tuple(name for name in (device.name, device.label) if name)
        return not self._globs or any(fnmatchcase(name, glob) for glob in self._globs for name in names)

    def numbered(self, number: int) -> Device | None:
        """By the number that Names gave its name; None where there is no room for one more."""
        name = self._disks.get(number)
        if name is None:
            named = self._names.name(number)
            if named is None:
                return None
            if named.isdecimal():
                return self._counters.numbered(int(named)) if isinstance(self._counters, KernelSampler) else None
            name = self._disks[number] = self._disk(named)
        return self._known.get(name) or self._seen.get(name) or self._new(name)

    def is_counted(self, name: str) -> bool:
        """Whether the kernel's counters know it."""
        return name in self._known

    def require_selected(self) -> None:
        """UnavailableError where the globs mean none of the devices that there are.

        Elsewhere than on Linux a name may be one that only probes know, from its first I/O on.
        """
        if isinstance(self._counters, KernelSampler) and self._globs:
            self._counters.require_selected()

    def _disk(self, name: str) -> str:
        """A partition has a directory in its disk's."""
        if name in self._known or not _WORD.fullmatch(name):
            return name
        directory = self._sys / "class/block" / name
        return directory.resolve().parent.name if (directory / "partition").exists() else name

    def _new(self, name: str) -> Device | None:
        if len(self._seen) >= MAX_DEVICES:
            return None
        driver = _DRIVER.match(name)
        # No dev_t is known: devices are numbered in the order of their appearance, which nothing shows.
        kind = "other" if ":" in name else "disk"
        device = Device(name, 0, len(self._seen), kind=kind, driver=driver[0] if driver else "", timed=False)
        self._seen[name] = device
        self._fresh[name] = None
        return device


_LINES = 120


class DtraceClock:
    """Of one capture: `hear` each tick's stamp as its line is read."""

    def __init__(self) -> None:
        self._heard: deque[int] = deque(maxlen=_LINES)

    def hear(self, stamp_ns: int, now_us: int) -> None:
        """A stamp, and our clock as its line is read."""
        self._heard.append(stamp_ns // 1000 - now_us)

    def ahead_us(self) -> int:
        """Negative where DTrace's is behind; 0 before anything was heard."""
        return max(self._heard, default=0)


class Gauge:
    """By device, of one start of the script.

    `selects`: whose is told; `from_issue`: I/Os begin where the driver has them.
    """

    def __init__(self, selects: Callable[[str], bool] = lambda _: True, *, from_issue: bool = False) -> None:
        self._selects, self._from_issue = selects, from_issue
        self._open: Counter[str] = Counter()
        self._drifts = False

    def take(self, interval: Interval, *, dropped: bool = False) -> None:
        """Each interval, whether a frame comes of it or not. `dropped`: some of its starts or counts were lost."""
        self._drifts |= dropped
        for flow, n in interval.started.items():
            self._open[flow.device] += n
        for flow, n in interval.ended.items():
            # A script that counts no begins tells nothing here; one that does counts a begin before its end.
            if flow.device in self._open:
                self._open[flow.device] -= n

    def fill(self, frame: Frame) -> Frame:
        """The frame, with the gauge of the devices that have none."""
        told = {
            name: Outstanding(max(0, n), None) if self._from_issue else Outstanding(None, max(0, n))
            for name, n in self._open.items()
            if not self._drifts and self._selects(name) and _is_unknown(frame.outstanding.get(name))
        }
        return replace(frame, outstanding={**frame.outstanding, **told}) if told else frame


def _is_unknown(gauge: Outstanding | None) -> bool:
    return gauge is None or (gauge.in_driver is None and gauge.queued is None)
