"""CPU quotas of cgroups: the periods in which they were used up, and the I/O of the processes that they stop.

A thread walks the hierarchy of the CPU controller every 2 s, or as seldom as 0.5 % of a CPU allows. It reads cpu.stat
of the cgroups with a quota (cpu.max of version 2, cpu.cfs_quota_us of version 1), and /proc/PID/io of the processes of
those that used it up. A process that serves FUSE may do no I/O of its own (its files are another host's, or in memory):
the bytes of its system calls count instead. Two looks give a difference, which is added to sums; a sample has the sums.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import Mounts, MountTable, mounts_of
from latmon.model.measurements import CPU_QUOTAS
from latmon.model.measurements.cpu_quotas import CpuQuota, QuotaPeriods
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.cgroups import LimitedCgroup, cgroups_below, hierarchies, pids_of
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import row_name_of

_MOST_CGROUPS = 5_000
_MOST_THROTTLED = 50
"""Cgroups whose processes are looked at; each takes 20 us a process, of which there are 200 at most."""
_STAT = re.compile(rb"^(nr_periods|nr_throttled|throttled_time|throttled_usec) (\d{1,19})$", re.MULTILINE)
_IO = re.compile(rb"^(?:read_bytes|write_bytes): (\d{1,19})$", re.MULTILINE)
_CALLS = re.compile(rb"^(?:rchar|wchar): (\d{1,19})$", re.MULTILINE)
_FUSE_DEVICE = "/dev/fuse"
_CONNECTION = re.compile(rb"^fuse_connection:\s*(\d{1,10})$", re.MULTILINE)
_MOST_FILES = 64
_QUOTA_V2 = re.compile(rb"(\d{1,18}) (\d{1,18})\s*")
_VERSION_2 = 2
_MAX_DIGITS = 19


class _Counters(NamedTuple):
    """Counters of cpu.stat since the cgroup was made."""

    periods: int
    throttled: int
    throttled_us: int


class _Process(NamedTuple):
    """A process, NAME/PID."""

    name: str
    serves_fuse: bool = False


_NO_PROCESS = _Process("")


class _QuotaReading(NamedTuple):
    """A cgroup with a quota at one moment."""

    quota_us: int
    period_us: int
    counters: _Counters
    ios: Mapping[_Process, int]
    """Process -> its bytes of I/O since it began; empty where the quota was not used up."""


@dataclass(frozen=True, slots=True)
class Look:
    """Absolute numbers of one moment by cgroup."""

    mono_us: int
    spent_us: int
    readings: Mapping[str, _QuotaReading]


class QuotaReader(PacedLooks[Look]):
    """The looks at CPU quotas."""

    def __init__(
        self, proc: Path, mounts: MountTable, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None
    ) -> None:
        super().__init__("cpu quotas", [BoundedSums(CPU_QUOTAS, attrgetter("throttled", "periods"))], run, now_us)
        self._proc, self._mounts = proc, mounts

    @property
    def is_possible(self) -> bool:
        """Whether the CPU controller is mounted."""
        return any(hierarchies(self._mounts.read(), "cpu"))

    def look(self, mono_us: int, before: Look | None) -> Look:
        return look(self._proc, self._mounts.read(), mono_us, before)

    def gains(self, before: Look, now: Look) -> Tables:
        return {CPU_QUOTAS: dict(_gains(before, now))}


def _gains(before: Look, now: Look) -> Iterator[tuple[CpuQuota, QuotaPeriods]]:
    """Yield the cgroups that ran between two looks; one of another quota starts over."""
    for cgroup, reading in now.readings.items():
        was = before.readings.get(cgroup)
        if was is None or (was.quota_us, was.period_us) != (reading.quota_us, reading.period_us):
            continue
        gained = _Counters(*(new - old for new, old in zip(reading.counters, was.counters, strict=True)))
        if gained.periods <= 0 or min(gained) < 0:
            continue
        ios = {process: size - was.ios[process] for process, size in reading.ios.items() if process in was.ios}
        io = max(ios, key=lambda process: ios[process], default=_NO_PROCESS)
        size = max(0, ios.get(io, 0))
        process = io if size else _NO_PROCESS
        io_bytes, served_bytes = (0, size) if process.serves_fuse else (size, 0)
        key = CpuQuota(cgroup, process.name, reading.quota_us, reading.period_us)
        yield key, QuotaPeriods(*gained, io_bytes, served_bytes)


def look(proc: Path, mounts: Mounts, mono_us: int, before: Look | None = None) -> Look:
    """Read the cgroups with a quota. `before`: the last look; those that used up the quota since have their I/O."""
    begun_ns = time.thread_time_ns()
    known = before.readings if before else {}
    readings: dict[str, _QuotaReading] = {}
    looked = 0
    for root, version in hierarchies(mounts, "cpu"):
        for path in islice(cgroups_below(root), _MOST_CGROUPS):
            quota = _quota(path, version)
            counters = _counters(path) if quota else None
            if quota is None or counters is None or not counters.periods:
                continue
            cgroup = LimitedCgroup(root, path, version).name
            was = known.get(cgroup)
            is_used_up = was is not None and counters.throttled > was.counters.throttled
            known_processes = was.ios if was is not None else {}
            ios = _ios(proc, path, known_processes) if is_used_up and looked < _MOST_THROTTLED else {}
            looked += is_used_up
            readings[cgroup] = _QuotaReading(*quota, counters, ios)
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, readings)


def _quota(path: Path, version: int) -> tuple[int, int] | None:
    """Return quota and period of a cgroup in us; None where it has no quota."""
    if version == _VERSION_2:
        match = _QUOTA_V2.fullmatch(content(path / "cpu.max"))
        return (int(match[1]), int(match[2])) if match else None
    quota = content(path / "cpu.cfs_quota_us").strip()  # -1: none
    period = content(path / "cpu.cfs_period_us").strip() if quota.isdigit() else b""
    return (int(quota), int(period)) if period.isdigit() and len(quota) < _MAX_DIGITS else None


def _counters(path: Path) -> _Counters | None:
    counters = {name: int(value) for name, value in _STAT.findall(content(path / "cpu.stat"))}
    if b"nr_periods" not in counters:
        return None
    throttled_us = counters.get(b"throttled_usec", counters.get(b"throttled_time", 0) // 1000)  # version 1 has ns
    return _Counters(counters[b"nr_periods"], counters.get(b"nr_throttled", 0), throttled_us)


def _ios(proc: Path, path: Path, known: Iterable[_Process]) -> dict[_Process, int]:
    """Return the bytes of I/O of the first processes of a cgroup; without those that may not be read.

    `known`: those of the last look. What a process serves is read once: its descriptors take 270 us.
    """
    sizes = {}
    serving = {process.name: process.serves_fuse for process in known}
    for pid in pids_of(path):
        counters = content(proc / pid / "io") if pid.isdecimal() else b""
        if not counters:
            continue
        name = row_name_of(proc, pid)
        serves_fuse = serving[name] if name in serving else _serves_fuse(proc / pid)
        values = (_CALLS if serves_fuse else _IO).findall(counters)
        if values:
            sizes[_Process(name, serves_fuse)] = sum(map(int, values))
    return sizes


def _serves_fuse(process: Path) -> bool:
    """Return whether a process has the device of FUSE open: its server has, and no program that uses its files.

    Newer kernels (seen on 6.18) name the connection in fdinfo, whose number is that of the mount's device: a process
    counts where that is mounted for it. Before, each process with the device open counts as a server.
    """
    try:
        numbers = os.listdir(process / "fd")  # noqa: PTH208 - no paths of thousands
        devices = [number for number in numbers[:_MOST_FILES] if os.readlink(process / "fd" / number) == _FUSE_DEVICE]  # noqa: PTH115
    except OSError:
        return False
    for number in devices:
        connection = _CONNECTION.search(content(process / "fdinfo" / number))
        if connection is None:
            return True
        mounts = mounts_of(process.parent, process.name).all
        if any(mount.number == (0, int(connection[1])) and mount.is_remote for mount in mounts):
            return True
    return False
