"""Reader of which processes write, also those whose pages the kernel's threads send to the disk.

`write_bytes` of /proc/PID/io counts a page when it is made dirty (task_io_account_write()), and a direct write when it
is submitted. The processes are read only while the host dirties pages, by `nr_dirtied` of /proc/vmstat, as seldom as
0.5 % of a CPU allows (about 20 us a process). Counters of other users' processes need a privilege.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from latmon.model.measurements import WRITTEN
from latmon.model.measurements.written import Writer
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_PROCESSES = 20_000
_LEAST_PER_S = 1 << 20
"""Bytes per second: a host or a process that writes less fills no device."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_DIRTIED = re.compile(rb"^nr_dirtied (\d{1,19})$", re.MULTILINE)
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
    dirtied_bytes: int
    """By the host since it booted."""
    processes: Mapping[int, _Process] = field(default_factory=dict)
    """By pid; empty while the host hardly dirties pages."""


def _size(gained: int) -> int:
    return gained


class WrittenReader(PacedLooks[Look]):
    """The looks at what processes write."""

    def __init__(self, proc: Path, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None) -> None:
        super().__init__("written", [BoundedSums(WRITTEN, _size)], run, now_us)
        self._proc = proc

    def look(self, mono_us: int, before: Look | None) -> Look:
        return look(self._proc, mono_us, before)

    def gains(self, before: Look, now: Look) -> Tables:
        seconds = (now.mono_us - before.mono_us) / 1e6
        written: dict[Writer, int] = {}
        for pid, process in now.processes.items():
            was = before.processes.get(pid)
            if was is None or was.row != process.row:
                continue
            gained = process.write_bytes - was.write_bytes
            if gained >= _LEAST_PER_S * seconds:
                written[process.row] = gained
        return {WRITTEN: written}


def look(proc: Path, mono_us: int, before: Look | None = None) -> Look:
    """Read what the host dirtied, and what each process wrote where the host dirtied pages since the last look."""
    begun_ns = time.thread_time_ns()
    dirtied_bytes = _number(_DIRTIED, content(proc / "vmstat")) * _PAGE_BYTES
    processes: dict[int, _Process] = {}
    if before is not None and dirtied_bytes - before.dirtied_bytes >= _LEAST_PER_S * (mono_us - before.mono_us) / 1e6:
        processes = _processes(proc)
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, dirtied_bytes, processes)


def _processes(proc: Path) -> dict[int, _Process]:
    processes: dict[int, _Process] = {}
    for pid in pids(proc)[:_MOST_PROCESSES]:
        write_bytes = _number(_WRITE_BYTES, content(f"{proc}/{pid}/io"))
        if write_bytes >= _LEAST_PER_S:
            processes[pid] = _Process(Writer(row_name_of(proc, pid)), write_bytes)
    return processes


def _number(pattern: re.Pattern[bytes], text: bytes) -> int:
    match = pattern.search(text)
    return int(match[1]) if match else 0
