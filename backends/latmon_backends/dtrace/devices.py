"""Devices as D scripts name them, the clock offset, and gauges from started and completed I/Os.

A name in the kernel's counters is that device, a partition's name means its disk, a number is the kernel's dev_t. Any
other name (a ZFS pool, an HBA's port, a disk without counters) is a device that only the probes know.

FreeBSD's `timestamp` is the processor's counter, scaled and never corrected (sys/cddl/dev/dtrace, dtrace_gethrtime), as
CLOCK_MONOTONIC is: the two differ from boot on, and drift. A line is read some time after its stamp was taken; the
smallest delay among the lines of the last minutes gives the best offset.

Gauges are differences of sums since the script's start. I/Os in flight at that time are not in them. After starts were
dropped their ends are missing, so that no gauge is reported any more.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from latmon.decode.framer import ProbeInterval
from latmon.model.frame import Device, Frame, Outstanding
from latmon_backends.dtrace.probe import NumberedNames
from latmon_backends.kernel import counters as kernel_counters
from latmon_backends.kernel.counters import KernelSampler, Sample
from latmon_backends.kernel.system import Sampler

MAX_DEVICES = 4096
_DRIVER = re.compile(r"[A-Za-z_]+")
_WORD = re.compile(r"[\w.!-]+")


class NoCounters:
    """Empty counters for a kernel whose counters can't be read: the probes' counts are the only ones."""

    devices: tuple[Device, ...] = ()

    def sample(self) -> Sample:
        return Sample(kernel_counters.CLOCK.mono_us(), kernel_counters.CLOCK.wall())

    def require_selected(self) -> None:
        """Accept any selection: devices are known only by the probes' names."""

    def start(self) -> None:
        """Do nothing: there is nothing to sample."""

    def close(self) -> None:
        """Do nothing: nothing is open."""


class NamedDevices:
    """The counters of a `Sampler`, and the devices of the probes' names; `DeviceCounters` of frames."""

    def __init__(self, counters: Sampler, names: NumberedNames, globs: tuple[str, ...], sys: Path) -> None:
        self._counters, self._names, self._globs, self._sys = counters, names, globs, sys
        self._known: dict[str, Device] = {}
        self._seen: dict[str, Device] = {}
        self._fresh: dict[str, None] = {}
        self._disks: dict[int, str] = {}

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices that the user selects, at the last sample."""
        return tuple(device for device in self.known.values() if self.selects(device))

    @property
    def known(self) -> Mapping[str, Device]:
        """All devices."""
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
        """Return a frame's devices and those that the probes named for it, after all its maps and records were read."""
        reported, fresh = {device.name for device in devices}, self._fresh
        self._fresh = {}
        new = (self._seen[name] for name in fresh if name not in reported and name not in self._known)
        return (*devices, *(one for one in new if self.selects(one)))

    def times(self, name: str) -> None:
        """Note that the always-on probe times a device; one that only the tracer names is not timed."""
        device = self._seen.get(name)
        if device is not None and not device.timed:
            self._seen[name] = replace(device, timed=True)
            self._fresh[name] = None

    def selects(self, device: Device) -> bool:
        """Return whether the globs match a device's name or label."""
        names = tuple(name for name in (device.name, device.label) if name)
        return not self._globs or any(fnmatchcase(name, glob) for glob in self._globs for name in names)

    def numbered(self, number: int) -> Device | None:
        """Return the device of a name's number; None where there is no room for one more."""
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
        """Return whether the kernel's counters have it."""
        return name in self._known

    def require_selected(self) -> None:
        """Raise UnavailableError where the globs match none of the devices.

        Elsewhere than on Linux a name may be one that only probes know, from its first I/O on.
        """
        if isinstance(self._counters, KernelSampler) and self._globs:
            self._counters.require_selected()

    def _disk(self, name: str) -> str:
        """Return the disk of a partition, whose directory is in the disk's; else the name."""
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
    """Offset of DTrace's clock during a capture, from the ticks' stamps."""

    def __init__(self) -> None:
        self._distances_us: deque[int] = deque(maxlen=_LINES)

    def add_tick(self, stamp_ns: int, now_us: int) -> None:
        """Take a tick's stamp, and our clock at the time when its line is read."""
        self._distances_us.append(stamp_ns // 1000 - now_us)

    def ahead_us(self) -> int:
        """Return how far DTrace's clock is ahead, negative where it is behind; 0 before the first tick."""
        return max(self._distances_us, default=0)


class InFlightGauge:
    """I/Os in flight by device, counted since one start of the script.

    `selects`: the devices to report. `from_issue`: I/Os begin when the driver gets them.
    """

    def __init__(self, selects: Callable[[str], bool] = lambda _: True, *, from_issue: bool = False) -> None:
        self._selects, self._from_issue = selects, from_issue
        self._open: Counter[str] = Counter()
        self._drifts = False

    def take(self, interval: ProbeInterval, *, dropped: bool = False) -> None:
        """Add an interval, even one without a frame. `dropped`: some of its starts or counts were lost."""
        self._drifts |= dropped
        for flow, n in interval.started.items():
            self._open[flow.device] += n
        for flow, n in interval.ended.items():
            # A script without counts of begins has no gauge; others count a begin before its end.
            if flow.device in self._open:
                self._open[flow.device] -= n

    def fill(self, frame: Frame) -> Frame:
        """Return the frame with gauges for the devices that have none."""
        reported = {
            name: Outstanding(max(0, n), None) if self._from_issue else Outstanding(None, max(0, n))
            for name, n in self._open.items()
            if not self._drifts and self._selects(name) and _is_unknown(frame.outstanding.get(name))
        }
        return replace(frame, outstanding={**frame.outstanding, **reported}) if reported else frame


def _is_unknown(gauge: Outstanding | None) -> bool:
    return gauge is None or (gauge.in_driver is None and gauge.queued is None)
