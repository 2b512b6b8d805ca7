"""I/O priorities of processes: those of the idle and real-time class, and of best-effort below its usual level.

A thread asks ioprio_get(2) for each process, every 2 s or as seldom as 0.5 % of a CPU allows, as long as a device has a
scheduler that heeds priorities (HEEDED). It is 1 us a process, and needs no privilege. A process without a priority
of its own has the one that follows from its nice value and its policy (include/linux/ioprio.h task_nice_ioprio(),
task_nice_ioclass()). A priority is a thread's: that of the process is its first thread's, with which `ionice` starts a
program. A process is listed from its first I/O on, where /proc/PID/io may be read: the first pids are those of the
kernel's threads (migration/N, irq/N), of which hosts have hundreds with a real-time policy, and most do no I/O.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.analysis.limits import elevator
from latmon.model.frame import Device
from latmon.model.measurements import IO_PRIORITIES
from latmon.model.measurements.io_priorities import (
    BEST_EFFORT,
    HEEDED,
    IDLE_CLASS,
    LOWEST_LEVEL,
    REAL_TIME,
    USUAL_LEVEL,
    IoPriority,
    PriorityTime,
)
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_PROCESSES, _MOST_UNUSUAL = 20_000, 256
_IO = re.compile(rb"^(?:read_bytes|write_bytes): (\d{1,19})$", re.MULTILINE)
_CALL: Mapping[str, int] = MappingProxyType(
    {"x86_64": 252, "i686": 290, "aarch64": 31, "riscv64": 31, "loongarch64": 31, "ppc64le": 274, "s390x": 283}
)
"""Machine -> number of the system call ioprio_get, for which libc has no function."""
_OF_PROCESS = 1
"""IOPRIO_WHO_PROCESS."""
_CLASS_SHIFT = 13
_REAL_TIME_CODE, _BEST_EFFORT_CODE, _IDLE_CODE = 1, 2, 3
"""IOPRIO_CLASS_RT, IOPRIO_CLASS_BE, IOPRIO_CLASS_IDLE."""
_REAL_TIME_POLICIES = (os.SCHED_FIFO, os.SCHED_RR)
_LEVEL_MASK = 7
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Unusual(NamedTuple):
    """A process with a priority that is not the usual one, at one moment."""

    priority: IoPriority
    io_bytes: int | None
    """Since it began; None: it may not be read."""


@dataclass(frozen=True, slots=True)
class Look:
    """The processes that have done I/O, with a priority that is not the usual one at one moment, by pid."""

    mono_us: int
    spent_us: int
    processes: Mapping[int, _Unusual]


def priority_of(pid: int) -> int:
    """Return the kernel's code of a process's I/O priority. OSError where there is no such process, or no such call."""
    number = _CALL.get(platform.machine())
    if number is None:
        raise OSError(f"the number of ioprio_get is not known for {platform.machine()}")
    code: int = _LIBC.syscall(number, _OF_PROCESS, pid)
    if code < 0:
        raise OSError(ctypes.get_errno(), "ioprio_get")
    # Linux up to 5.x returns the usual level beside the class that stands for none.
    return code if code >> _CLASS_SHIFT else _of_nice(pid)


def _of_nice(pid: int) -> int:
    """Return the priority that the kernel gives a process without its own."""
    policy = os.sched_getscheduler(pid)
    if policy == os.SCHED_IDLE:
        return _IDLE_CODE << _CLASS_SHIFT
    io_class = _REAL_TIME_CODE if policy in _REAL_TIME_POLICIES else _BEST_EFFORT_CODE
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    return io_class << _CLASS_SHIFT | (nice + 20) // 5


def is_possible() -> bool:
    """Return whether priorities can be asked for on this machine."""
    return platform.machine() in _CALL


class PriorityReader(PacedLooks[Look]):
    """The looks at I/O priorities."""

    def __init__(
        self,
        proc: Path,
        run: Run[Look] | None = None,
        now_us: Callable[[], int] | None = None,
        priority: Callable[[int], int] = priority_of,
    ) -> None:
        super().__init__(
            "io priorities", [BoundedSums(IO_PRIORITIES, attrgetter("io_bytes", "lasted_us"))], run, now_us
        )
        self._proc, self._priority = proc, priority
        self._devices: Mapping[str, Device] = {}
        self._is_heeded = False

    def is_wanted(self, devices: Mapping[str, Device]) -> bool:
        """Return whether one of the devices heeds priorities, and they can be asked for."""
        if devices is not self._devices:
            self._devices = devices
            self._is_heeded = any(elevator(device.limits) in HEEDED for device in devices.values())
        return self._is_heeded and is_possible()

    def look(self, mono_us: int, _before: Look | None) -> Look:
        return look(self._proc, mono_us, self._priority)

    def gains(self, before: Look, now: Look) -> Tables:
        return {IO_PRIORITIES: dict(_gains(before, now))}


def _gains(before: Look, now: Look) -> Iterator[tuple[IoPriority, PriorityTime]]:
    """Yield the processes that had the priority at both looks."""
    us = now.mono_us - before.mono_us
    for pid, process in now.processes.items():
        was = before.processes.get(pid)
        if was is None or was.priority != process.priority:
            continue
        gained = 0
        if process.io_bytes is not None and was.io_bytes is not None:
            gained = max(0, process.io_bytes - was.io_bytes)
        yield process.priority, PriorityTime(us, gained)


def look(proc: Path, mono_us: int, priority: Callable[[int], int] = priority_of) -> Look:
    """Look at the processes that have done I/O, and those of which that may not be read; `priority`: `priority_of`."""
    begun_ns = time.thread_time_ns()
    processes: dict[int, _Unusual] = {}
    for pid in pids(proc)[:_MOST_PROCESSES]:
        try:
            code = priority(pid)
        except OSError:  # it has ended
            continue
        io_class, level = _class_and_level(code)
        if not io_class:
            continue
        io_bytes = _io_bytes(proc, pid)
        if io_bytes == 0:
            continue
        processes[pid] = _Unusual(IoPriority(row_name_of(proc, pid), io_class, level), io_bytes)
        if len(processes) >= _MOST_UNUSUAL:
            break
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, processes)


def _class_and_level(code: int) -> tuple[str, int]:
    """Return class and level of a priority that is not the usual one; an empty class of the others."""
    kernel_class, level = code >> _CLASS_SHIFT, code & _LEVEL_MASK
    if kernel_class == _REAL_TIME_CODE:
        return REAL_TIME, level
    if kernel_class == _IDLE_CODE:
        return IDLE_CLASS, 0
    if kernel_class == _BEST_EFFORT_CODE and USUAL_LEVEL < level <= LOWEST_LEVEL:
        return BEST_EFFORT, level
    return "", 0


def _io_bytes(proc: Path, pid: int) -> int | None:
    counters = content(f"{proc}/{pid}/io")
    return sum(map(int, _IO.findall(counters))) if counters else None
