"""Reader of the programs with I/O that wait for a CPU, which no latency of a device shows.

Read only while programs of the host wait for CPUs (PSI). A thread reads /proc/PID/task/TID/schedstat of all threads
every 2 s, or as seldom as 0.5 % of a CPU allows (about 10 us a thread). Of the processes that waited longest, and
longer than they ran, it reads the I/O, the context switches, and what decides on their turn: weight of the cgroup,
CPUs, nice value, and which process ran most on these CPUs. Two looks give a difference, which is added to sums; a
sample has the sums. /proc/PID/io of other users' processes needs a privilege.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import Mounts, MountTable
from latmon.model.measurements import CPU_WAITS
from latmon.model.measurements.cpu_waits import SHARES, USUAL_WEIGHTS, WEIGHT, CpuWait, CpuWaiter
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.cgroups import cgroup_name, hierarchies
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of

_PRESSURE, _PRESSED_CPUS, _LEAST_PRESSURE = 0.2, 0.5, 0.02
"""Share of the time in which a program waits for a CPU (PSI, an average over the CPUs that are busy) from which on it
is looked for which. On a host with many CPUs one of them is little: there it is that of half a CPU, but not below the
last value."""
_FRESH_US = 60_000_000
"""A look that is older says nothing about the time before the next one."""
_MOST_THREADS, _MOST_WAITERS, _MOST_RUNNERS, _MOST_RUNNER_THREADS = 20_000, 8, 4, 64
_LEAST_WAITED, _LEAST_RAN = 0.1, 0.25
"""Threads of a process that wait, and those of another one that run, on average."""
_OWN_SLEEPS = 0.5
"""Least share of the runs that end with a sleep: those of a program that computes end with its time slice."""
_IO = re.compile(rb"^(?:read_bytes|write_bytes): (\d{1,19})$", re.MULTILINE)
_SLEEPS = re.compile(rb"^voluntary_ctxt_switches:\s*(\d{1,19})$", re.MULTILINE)
_COUNTERS, _MAX_DIGITS = 3, 19
_STATE, _NICE, _CPU = 3 - 3, 19 - 3, 39 - 3
"""Places of state, nice and processor from the state on in /proc/PID/stat, by proc_pid_stat(5)."""
_LOWEST_NICE, _HIGHEST_NICE = -20, 19
_MOST_OF_LIST = 40
"""Characters of a list of CPUs: every other one of 256 has 456, and a recording has names of 256 at most."""
_VERSION_2 = 2


class _Turns(NamedTuple):
    """Times of a process's threads since they began, from schedstat."""

    ran_us: int
    waited_us: int
    runs: int
    tids: frozenset[str] = frozenset()


class _Waiter(NamedTuple):
    """What is read of a process that waits."""

    row: CpuWaiter
    io_bytes: int
    sleeps: int


@dataclass(frozen=True, slots=True)
class Look:
    """Absolute numbers of one moment by pid."""

    mono_us: int
    spent_us: int
    turns: Mapping[int, _Turns]
    waiters: Mapping[int, _Waiter]


def _waited_us(gained: CpuWait) -> int:
    return gained.waited_us


def is_possible(proc: Path) -> bool:
    """Return whether the kernel counts the waits for a CPU, of processes and of the host."""
    return (proc / "self/schedstat").exists() and (proc / "pressure/cpu").exists()


class CpuWaitReader(PacedLooks[Look]):
    """The looks at what waits for a CPU."""

    def __init__(
        self, proc: Path, mounts: MountTable, run: Run[Look] | None = None, now_us: Callable[[], int] | None = None
    ) -> None:
        super().__init__("cpu waits", [BoundedSums(CPU_WAITS, _waited_us)], run, now_us)
        self._proc, self._mounts = proc, mounts
        self._pressure = (0, 0)
        """Time in which programs waited, and all of it, as of the last reading."""
        self._is_pressed = False

    def is_wanted(self, waited_us: int, mono_us: int) -> bool:
        """Return whether programs wait for CPUs: `waited_us` since the host booted, by PSI's reading at `mono_us`."""
        before_us, before_mono_us = self._pressure
        if mono_us > before_mono_us:
            self._pressure = waited_us, mono_us
            least = max(_LEAST_PRESSURE, min(_PRESSURE, _PRESSED_CPUS / (os.cpu_count() or 1)))
            self._is_pressed = before_mono_us > 0 and waited_us - before_us >= least * (mono_us - before_mono_us)
        return self._is_pressed

    def look(self, mono_us: int, before: Look | None) -> Look:
        return look(self._proc, self._mounts.read(), mono_us, before)

    def gains(self, before: Look, now: Look) -> Tables:
        return {CPU_WAITS: dict(_gains(before, now)) if _is_fresh(before, now.mono_us) else {}}


def _is_fresh(before: Look, mono_us: int) -> bool:
    return 0 < mono_us - before.mono_us <= _FRESH_US


def _gains(before: Look, now: Look) -> Iterator[tuple[CpuWaiter, CpuWait]]:
    """Yield the processes that waited at both looks, did I/O, and slept of themselves."""
    turns = _turns_between(before.turns, now.turns)
    for pid, waiter in now.waiters.items():
        was, gained = before.waiters.get(pid), turns.get(pid)
        if was is None or gained is None or was.row.process != waiter.row.process:
            continue
        io_bytes = waiter.io_bytes - was.io_bytes
        if io_bytes > 0 and waiter.sleeps - was.sleeps >= _OWN_SLEEPS * gained.runs:
            times = CpuWait(now.mono_us - before.mono_us, gained.ran_us, gained.waited_us, gained.runs, io_bytes)
            yield waiter.row, times


def _turns_between(before: Mapping[int, _Turns], now: Mapping[int, _Turns]) -> dict[int, _Turns]:
    """Return the growth of each process; without those of which a thread ended, whose time is no longer in the sums."""
    gains: dict[int, _Turns] = {}
    for pid, turns in now.items():
        was = before.get(pid)
        if was is None or not was.tids <= turns.tids:
            continue
        gained = turns.ran_us - was.ran_us, turns.waited_us - was.waited_us, turns.runs - was.runs
        if min(gained) >= 0 and any(gained):
            gains[pid] = _Turns(*gained)
    return gains


def look(proc: Path, mounts: Mounts, mono_us: int, before: Look | None = None) -> Look:
    """Read the times of all processes. `before`: the last look; what waited since is looked at closer."""
    begun_ns = time.thread_time_ns()
    turns = dict(_turns(proc))
    waiters: dict[int, _Waiter] = {}
    if before is not None and _is_fresh(before, mono_us):
        gains = _turns_between(before.turns, turns)
        passed_us = mono_us - before.mono_us
        waiting = _waiting(gains, passed_us)
        runners = _runners(proc, gains, passed_us) if waiting else {}
        for pid in waiting:
            waiter = _waiter(proc, mounts, pid, runners)
            if waiter is not None:
                waiters[pid] = waiter
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, turns, waiters)


def _turns(proc: Path) -> Iterator[tuple[int, _Turns]]:
    threads = 0
    for pid in pids(proc):
        tasks = _tasks(proc, pid)
        counters = {task: _counters(f"{task}/schedstat") for task in tasks}
        counters = {task: counts for task, counts in counters.items() if counts}
        if counters:
            ran_ns, waited_ns, runs = (sum(column) for column in zip(*counters.values(), strict=True))
            tids = frozenset(task.rpartition("/")[2] for task in counters)
            yield pid, _Turns(ran_ns // 1000, waited_ns // 1000, runs, tids)
        threads += len(tasks)
        if threads >= _MOST_THREADS:
            return


def _tasks(proc: Path, pid: int) -> list[str]:
    """Return the directories of a process's threads; none where it has ended."""
    directory = f"{proc}/{pid}/task"
    try:
        return [f"{directory}/{tid}" for tid in os.listdir(directory)]  # noqa: PTH208 - no paths of thousands
    except OSError:
        return []


def _counters(file: str) -> list[int]:
    """Return time on a CPU, time in the queue of one, in ns, and runs; empty where the thread has ended."""
    words = content(file).split()
    is_whole = len(words) == _COUNTERS and all(word.isdigit() and len(word) <= _MAX_DIGITS for word in words)
    return [int(word) for word in words] if is_whole else []


def _waiting(gains: Mapping[int, _Turns], passed_us: int) -> list[int]:
    """Return the processes that waited longest, and longer than they ran."""
    waiting = [
        pid
        for pid, turns in gains.items()
        if turns.waited_us >= max(turns.ran_us, _LEAST_WAITED * passed_us) and turns.runs
    ]
    return sorted(waiting, key=lambda pid: -gains[pid].waited_us)[:_MOST_WAITERS]


def _runners(proc: Path, gains: Mapping[int, _Turns], passed_us: int) -> dict[str, frozenset[int]]:
    """Return the processes that ran most, as NAME/PID, with the CPUs that they run on."""
    running = [pid for pid, turns in gains.items() if turns.ran_us >= _LEAST_RAN * passed_us]
    running.sort(key=lambda pid: -gains[pid].ran_us)
    return {row_name_of(proc, pid): frozenset(_cpus_in_use(proc, pid)) for pid in running[:_MOST_RUNNERS]}


def _cpus_in_use(proc: Path, pid: int) -> Iterator[int]:
    """Yield the CPUs of a process's threads that run or are ready to."""
    for task in _tasks(proc, pid)[:_MOST_RUNNER_THREADS]:
        fields = _stat(task)
        if len(fields) > _CPU and fields[_STATE] == b"R" and fields[_CPU].isdigit():
            yield int(fields[_CPU])


def _stat(directory: str) -> list[bytes]:
    """Return the fields from the state on of a process's or thread's stat."""
    return content(f"{directory}/stat").rpartition(b")")[2].split()


def _waiter(proc: Path, mounts: Mounts, pid: int, runners: Mapping[str, frozenset[int]]) -> _Waiter | None:
    """Read a process that waits; None where it did no I/O, or that may not be read."""
    io_bytes = sum(map(int, _IO.findall(content(f"{proc}/{pid}/io"))))
    if not io_bytes:
        return None
    sleeps = sum(int(n) for task in _tasks(proc, pid) for n in _SLEEPS.findall(content(f"{task}/status")))
    cpus = _allowed_cpus(pid)
    is_limited = len(cpus) < (os.cpu_count() or 0)
    name = row_name_of(proc, pid)
    instead = next((row for row, used in runners.items() if row != name and (not is_limited or used & cpus)), "")
    cgroup, weight_file, weight = _lowest_weight(proc, mounts, pid)
    row = CpuWaiter(
        name, cgroup, weight_file, weight, cpu_list(cpus) if is_limited else "", _nice(f"{proc}/{pid}"), instead
    )
    return _Waiter(row, io_bytes, sleeps)


def _allowed_cpus(pid: int) -> frozenset[int]:
    """Return the CPUs that a process may use; empty where it has ended."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def cpu_list(cpus: Iterable[int]) -> str:
    """Return CPUs as the kernel lists them, `0-2,5`; of a long list how many they are, `128 CPUs`."""
    numbers = sorted(cpus)
    begins = [*numbers[:1], *(after for before, after in pairwise(numbers) if after != before + 1)]
    ends = [*(before for before, after in pairwise(numbers) if after != before + 1), *numbers[-1:]]
    ranges = zip(begins, ends, strict=True)
    text = ",".join(str(begin) if begin == end else f"{begin}-{end}" for begin, end in ranges)
    return text if len(text) <= _MOST_OF_LIST else f"{len(numbers)} CPUs"


def _nice(directory: str) -> int:
    fields = _stat(directory)
    text = fields[_NICE].decode() if len(fields) > _NICE else ""
    nice = int(text) if text.removeprefix("-").isdecimal() else 0
    return nice if _LOWEST_NICE <= nice <= _HIGHEST_NICE else 0


def _lowest_weight(proc: Path, mounts: Mounts, pid: int) -> tuple[str, str, int]:
    """Return the cgroup with the lowest weight below the usual one, of a process's own and those above; its file.

    Where no weight is lower it is the process's own cgroup, without a file.
    """
    lines = [line.split(":", 2) for line in os.fsdecode(content(f"{proc}/{pid}/cgroup")).splitlines()]
    paths = {controller: line[2] for line in lines if len(line) == _COUNTERS for controller in line[1].split(",")}
    lowest = cgroup_name(paths.get("cpu", paths.get("", "/"))), "", 0
    lowest_part = 1.0
    for root, version in hierarchies(mounts, "cpu"):
        file, path = (WEIGHT, paths.get("", "/")) if version == _VERSION_2 else (SHARES, paths.get("cpu", "/"))
        own = Path(path.lstrip("/"))
        for cgroup in (own, *own.parents):
            if ".." in cgroup.parts or cgroup == Path():
                continue
            digits = content(root / cgroup / file).strip()
            weight = int(digits) if digits.isdigit() and len(digits) <= _MAX_DIGITS else 0
            if weight and weight / USUAL_WEIGHTS[file] < lowest_part:
                lowest, lowest_part = (cgroup_name(f"/{cgroup}"), file, weight), weight / USUAL_WEIGHTS[file]
    return lowest
