"""Reader of what is short of memory: cgroups that reach their limit, who writes there, and processes with major faults.

Read only while the host reclaims pages that are used, or not yet written, or while it reads pages for faults: a thread
looks at /proc/PID/stat of all processes (15 us each), every 2 s, or as seldom as 0.5 % of a CPU allows, and in the
former case at the limits of all cgroups. Of cgroups that reached a limit since the last look it reads the pages that
are still to be written, those that were read again, and their processes with their memory. Two looks give a difference,
which is added to sums; a sample has the sums. Any user may read these files.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from latmon.capture.mounts import Mounts, MountTable
from latmon.model.measurements import MAJOR_FAULTS, MEMORY_LIMITS, MEMORY_USERS, MEMORY_WRITERS
from latmon.model.measurements.memory import (
    KINDS,
    Faulting,
    MemoryLimit,
    MemoryUser,
    MemoryWriter,
    ReachedLimit,
    Unwritten,
    UsedMemory,
)
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.cgroups import LimitedCgroup, cgroup_name, cgroups_below, hierarchies, pids_of
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name

MOVED = 20
"""Pages that were reclaimed too early, between two samples, from which on it is looked for who is short of memory."""
FAULTED = 20
"""Major faults between two samples, from which on it is looked for whose they are."""
_FRESH_US = 60_000_000
"""A look that is older says nothing about the time before the next one."""
_MOST_PROCESSES, _MOST_CGROUPS = 20_000, 5_000
_MOST_FAULTING = 16
"""Processes with most faults, whose cgroups are read."""
_UNLIMITED = 1 << 60
"""Version 1 has LONG_MAX rounded to pages, version 2 `max`."""
_MAJOR_FAULTS, _SYSTEM_TICKS, _RESIDENT = 12 - 3, 15 - 3, 24 - 3
"""Places of majflt, stime and rss from the state on in /proc/PID/stat: fields 12, 15 and 24 of proc_pid_stat(5)."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_UNWRITTEN = re.compile(rb"^(total_dirty|total_writeback|file_dirty|file_writeback) (\d{1,19})$", re.MULTILINE)
"""Lines of memory.stat: version 1 with those of the cgroups below in `total_`, version 2 with `file_`."""
_RELOADS = re.compile(rb"^((?:total_)?workingset_refault(?:_file)?) (\d{1,19})$", re.MULTILINE)
"""Up to Linux 5.8 without `_file`; version 1 has those of the cgroups below in `total_` alone."""
Key = TypeVar("Key")
_EVENT = re.compile(rb"^(max|high) (\d{1,19})$", re.MULTILINE)


class _Process(NamedTuple):
    """A process with its major faults since it began."""

    row_name: str
    """NAME/PID."""
    faults: int
    system_ticks: int = 0
    """CPU time in the kernel, where a process reclaims and writes."""
    resident_bytes: int = 0


class _LimitedCgroup(NamedTuple):
    """The state of a cgroup that reached a limit since the last look."""

    unwritten_bytes: int
    reloads: int
    """Pages of files that were read again after they were reclaimed, since the cgroup was made."""
    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """Absolute numbers of one moment."""

    mono_us: int
    spent_us: int
    hits: Mapping[MemoryLimit, int]
    """Limit -> its hits, read at `hits_us`; a look for faults only has those of the look before."""
    processes: Mapping[int, _Process]
    limited: Mapping[str, _LimitedCgroup] = field(default_factory=dict)
    """Cgroup -> its state, of those that reached a limit since the last look at limits."""
    hits_us: int = 0
    """When the limits were read."""


class MemoryReader(PacedLooks[Look]):
    """The looks at limits of memory and major faults."""

    def __init__(
        self, proc: Path, mounts: MountTable, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None
    ) -> None:
        sums = (
            BoundedSums(MEMORY_LIMITS, attrgetter("hits")),
            BoundedSums(MAJOR_FAULTS, int),
            BoundedSums(MEMORY_WRITERS, attrgetter("unwritten_bytes")),
            BoundedSums(MEMORY_USERS, attrgetter("resident_bytes")),
        )
        super().__init__("memory", sums, run, now_us)
        self._proc, self._mounts = proc, mounts
        self._moved = self._faults = 0
        self._is_short = False
        """Whether memory was short at a sample since the last look."""

    def is_wanted(self, moved: int, faults: int = 0) -> bool:
        """Return whether memory is short, or pages are read for faults.

        `moved`: counters of pages that were reclaimed too early, added up; `faults`: major ones since the host booted.
        """
        moved_before, self._moved = self._moved, moved
        faults_before, self._faults = self._faults, faults
        is_short = moved_before > 0 and moved - moved_before >= MOVED
        self._is_short |= is_short
        return is_short or (faults_before > 0 and faults - faults_before >= FAULTED)

    def look(self, mono_us: int, before: Look | None) -> Look:
        has_limits, self._is_short = self._is_short, False
        return look(self._proc, self._mounts.read(), mono_us, before, has_limits=has_limits)

    def gains(self, before: Look, now: Look) -> Tables:
        if now.mono_us - before.mono_us > _FRESH_US:
            return {}
        has_hits = now.hits_us - before.hits_us <= _FRESH_US
        counts = {pid: process.faults for pid, process in now.processes.items()}
        faults = _grown({pid: process.faults for pid, process in before.processes.items()}, counts)
        largest = sorted(faults, key=lambda pid: -faults[pid])[:_MOST_FAULTING]
        return {
            MEMORY_LIMITS: _reached(before, now) if has_hits else {},
            MAJOR_FAULTS: {self._faulting(pid, now.processes[pid].row_name): faults[pid] for pid in largest},
            MEMORY_WRITERS: dict(_writers(before, now)),
            MEMORY_USERS: dict(_users(before, now)),
        }

    def _faulting(self, pid: int, process: str) -> Faulting:
        lines = [line.split(":", 2) for line in os.fsdecode(content(self._proc / str(pid) / "cgroup")).splitlines()]
        paths = {kind: line[2] for line in lines if len(line) == 3 for kind in line[1].split(",")}  # noqa: PLR2004
        cgroup = paths.get("memory", paths.get("", "/"))
        return Faulting(cgroup_name(cgroup), process)


def _grown(before: Mapping[Key, int], now: Mapping[Key, int]) -> dict[Key, int]:
    """Return how much the counters grew that both looks have."""
    gains = {key: count - before.get(key, count) for key, count in now.items()}
    return {key: gain for key, gain in gains.items() if gain > 0}


def _reached(before: Look, now: Look) -> dict[MemoryLimit, ReachedLimit]:
    """Return the limits that were reached between two looks."""
    reached: dict[MemoryLimit, ReachedLimit] = {}
    for limit, hits in _grown(before.hits, now.hits).items():
        was, state = before.limited.get(limit.cgroup), now.limited.get(limit.cgroup)
        reloads = 0 if was is None or state is None else max(0, state.reloads - was.reloads)
        reached[limit] = ReachedLimit(hits, reloads)
    return reached


def _writers(before: Look, now: Look) -> Iterator[tuple[MemoryWriter, Unwritten]]:
    """Yield the process of each cgroup at its limit that used most CPU time of the kernel since the look before."""
    for cgroup, state in now.limited.items():
        used = {
            pid: now.processes[pid].system_ticks - before.processes[pid].system_ticks
            for pid in state.pids
            if pid in now.processes and pid in before.processes
        }
        if used:
            # A tick is 10 ms: of processes that used none since, the one that did before.
            pid = max(used, key=lambda pid: (used[pid], now.processes[pid].system_ticks))
            yield MemoryWriter(cgroup, now.processes[pid].row_name), Unwritten(1, state.unwritten_bytes)


def _users(before: Look, now: Look) -> Iterator[tuple[MemoryUser, UsedMemory]]:
    """Yield the process of each cgroup at its limit that has most memory."""
    for cgroup, state in now.limited.items():
        processes = {pid: now.processes[pid] for pid in state.pids if pid in now.processes}
        pid = max(processes, key=lambda pid: processes[pid].resident_bytes, default=None)
        if pid is None:
            continue
        process, was = processes[pid], before.processes.get(pid)
        grown = 0 if was is None else max(0, process.resident_bytes - was.resident_bytes)
        yield MemoryUser(cgroup, process.row_name), UsedMemory(1, process.resident_bytes, grown)


def look(proc: Path, mounts: Mounts, mono_us: int, before: Look | None = None, *, has_limits: bool = True) -> Look:
    """Read the major faults of all processes, and with `has_limits` the cgroups' limits; `before`: the last look."""
    begun_ns = time.thread_time_ns()
    hits, hits_us = (before.hits, before.hits_us) if before is not None else ({}, mono_us)
    limited: dict[str, _LimitedCgroup] = {}
    if has_limits:
        hits_before = hits if mono_us - hits_us <= _FRESH_US else {}
        limits = list(_limits(mounts))
        hits, hits_us = {limit: count for _, limit, count in limits}, mono_us
        for path, limit, count in limits:
            if limit.cgroup not in limited and count > hits_before.get(limit, count):
                pids = tuple(int(pid) for pid in pids_of(path) if pid.isdecimal())
                limited[limit.cgroup] = _limited(path, pids)
    processes = dict(_processes(proc))
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, hits, processes, limited, hits_us)


def _limited(path: Path, pids_of_cgroup: tuple[int, ...]) -> _LimitedCgroup:
    """Return the state of a cgroup by its memory.stat."""
    stat = content(path / "memory.stat")
    unwritten_bytes = sum(int(size) for _, size in _UNWRITTEN.findall(stat))
    reloads = max((int(pages) for _, pages in _RELOADS.findall(stat)), default=0)
    return _LimitedCgroup(unwritten_bytes, reloads, pids_of_cgroup)


def _processes(proc: Path) -> Iterator[tuple[int, _Process]]:
    for pid in pids(proc)[:_MOST_PROCESSES]:
        before, _, after = content(f"{proc}/{pid}/stat").rpartition(b")")
        fields = after.split()
        if len(fields) > _SYSTEM_TICKS and fields[_MAJOR_FAULTS].isdigit() and fields[_SYSTEM_TICKS].isdigit():
            row = row_name(before.partition(b"(")[2], pid)
            resident = fields[_RESIDENT] if len(fields) > _RESIDENT and fields[_RESIDENT].isdigit() else b"0"
            counts = int(fields[_MAJOR_FAULTS]), int(fields[_SYSTEM_TICKS])
            yield pid, _Process(row, *counts, int(resident) * _PAGE_BYTES)


def _limits(mounts: Mounts) -> Iterator[tuple[Path, MemoryLimit, int]]:
    """Yield the directory of each limited cgroup, the limit, and how often it was reached."""
    for root, version in hierarchies(mounts, "memory"):
        for path in islice(cgroups_below(root), _MOST_CGROUPS):
            for limit, hits in _limits_of(root, path, version):
                yield path, limit, hits


def _limits_of(root: Path, path: Path, version: int) -> Iterator[tuple[MemoryLimit, int]]:
    """Yield the limits of a cgroup with how often they were reached."""
    cgroup = LimitedCgroup(root, path, version).name
    if version == 1:
        limit, hits = _number(path / "memory.limit_in_bytes"), _number(path / "memory.failcnt")
        if limit is not None and hits and limit < _UNLIMITED:
            yield MemoryLimit(cgroup, KINDS[0], limit), hits
        return
    events = _EVENT.findall(content(path / "memory.events.local") or content(path / "memory.events"))
    for kind, count in events:
        name = kind.decode()
        limit = _number(path / f"memory.{name}") if int(count) else None
        if limit is not None:
            yield MemoryLimit(cgroup, name, limit), int(count)


def _number(file: Path) -> int | None:
    """Return a file's number; None where it has none, such as `max`."""
    digits = content(file).strip()
    return int(digits) if digits.isdigit() and len(digits) < 20 else None  # noqa: PLR2004 - digits of 2^64
