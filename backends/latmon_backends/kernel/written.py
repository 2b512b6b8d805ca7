"""Reader of which processes write, also those whose pages the kernel's threads send to the disk.

`write_bytes` of /proc/PID/io counts a page when it is made dirty (task_io_account_write()), and a direct write when it
is submitted. The processes are read only while the host dirties pages, as seldom as 0.5 % of a CPU allows (about 20 us
a process). Where another reader has all of them with each sample, its numbers are taken. Counters of other users'
processes need a privilege.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from latmon.model.measurements import WRITTEN
from latmon.model.measurements.written import Writer
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.cgroups import CountedProcess, ProcessCounters
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name, row_name_of

_MOST_PROCESSES = 20_000
_LEAST_PER_S = 1 << 20
"""Bytes per second: a host or a process that writes less fills no device."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_FRESH_US = 60_000_000
"""A look that is older says nothing about the time before the next one."""
_WRITE_BYTES = re.compile(rb"^write_bytes: (\d{1,19})$", re.MULTILINE)


class _Process(NamedTuple):
    """A process with the bytes that it wrote since it began."""

    row: Writer
    write_bytes: int


@dataclass(frozen=True, slots=True)
class Look:
    """Absolute numbers of one moment."""

    mono_us: int
    spent_us: int
    processes: Mapping[int, _Process]
    """By pid."""


class WrittenReader(PacedLooks[Look]):
    """The looks at what processes write."""

    def __init__(self, proc: Path, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None) -> None:
        super().__init__("written", [BoundedSums(WRITTEN, int)], run, now_us)
        self._proc = proc
        self.counted: Callable[[], ProcessCounters] | None = None
        """Returns the processes of the last sample of another reader; None: there is none."""
        self._dirtied = (0, 0)
        """Time of the last sample, and the pages that the host had made dirty until then."""

    def is_wanted(self, mono_us: int, dirtied: int) -> bool:
        """Return whether the host makes pages dirty. `dirtied`: those since it booted; 0: not counted."""
        before_us, before = self._dirtied
        self._dirtied = mono_us, dirtied
        pages_per_s = (dirtied - before) * 1e6 / max(mono_us - before_us, 1)
        return before > 0 and pages_per_s * _PAGE_BYTES >= _LEAST_PER_S

    def look(self, mono_us: int, _before: Look | None) -> Look:
        counted = self.counted
        if counted is None:
            return look(self._proc, mono_us)
        return Look(mono_us, 0, {pid: _counted(pid, process) for pid, process in counted().items()})

    def gains(self, before: Look, now: Look) -> Tables:
        passed_us = now.mono_us - before.mono_us
        if passed_us > _FRESH_US:
            return {}
        written: dict[Writer, int] = {}
        for pid, process in now.processes.items():
            was = before.processes.get(pid)
            if was is None or was.row != process.row:
                continue
            gained = process.write_bytes - was.write_bytes
            if gained >= _LEAST_PER_S * passed_us / 1e6:
                written[process.row] = gained
        return {WRITTEN: written}


def _counted(pid: int, process: CountedProcess) -> _Process:
    _, write_bytes = process.total
    return _Process(Writer(row_name(process.comm, pid)), write_bytes)


def look(proc: Path, mono_us: int) -> Look:
    """Read what each process wrote."""
    begun_ns = time.thread_time_ns()
    processes = _processes(proc)
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, processes)


def _processes(proc: Path) -> dict[int, _Process]:
    processes: dict[int, _Process] = {}
    for pid in pids(proc)[:_MOST_PROCESSES]:
        line = _WRITE_BYTES.search(content(f"{proc}/{pid}/io"))
        write_bytes = int(line[1]) if line else 0
        if write_bytes >= _LEAST_PER_S:
            processes[pid] = _Process(Writer(row_name_of(proc, pid)), write_bytes)
    return processes
