"""Reader of the programs with I/O that wait for a CPU, which no latency of a device shows.

Read only while programs of the host wait for CPUs (PSI). A thread reads /proc/PID/task/TID/schedstat of all threads
every 2 s, or as seldom as 0.5 % of a CPU allows (about 10 us a thread). Of the processes that waited longest, and
longer than they ran, it reads the I/O, the context switches, and what decides on their turn: weight of the cgroup,
CPUs, nice value, and which process ran most on these CPUs. Kernel threads have no I/O of their own: those are taken
that wait where a thread of a real-time policy runs, since they send and complete the I/Os of others; on an isolated CPU
somebody put it there, and hardly any I/O is done. Two looks give a difference, which is added to sums; a sample has the
sums. /proc/PID/io of other users' processes needs a privilege.
"""

from __future__ import annotations

import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import Mounts, MountTable
from latmon.model.measurements import CPU_WAITS
from latmon.model.measurements.cpu_waits import IDLE, SHARES, USUAL_WEIGHTS, WEIGHT, CpuWait, CpuWaiter
from latmon.model.table import Tables
from latmon.support import host
from latmon.support.host import REAL_TIME, policy_text
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
_LOOKS_OF_PART = 4
"""Looks at a part of too many threads: a difference takes three."""
_LEAST_WAITED, _LEAST_RAN = 0.1, 0.25
"""Threads of a process that wait, and those of another one that run, on average."""
_OWN_SLEEPS = 0.5
"""Least share of the runs that end with a sleep: those of a program that computes end with its time slice."""
_IO = re.compile(rb"^(?:read_bytes|write_bytes): (\d{1,19})$", re.MULTILINE)
_SLEEPS = re.compile(rb"^voluntary_ctxt_switches:\s*(\d{1,19})$", re.MULTILINE)
_COUNTERS, _MAX_DIGITS = 3, 19
_STATE, _FLAGS, _NICE, _CPU = 3 - 3, 9 - 3, 19 - 3, 39 - 3
"""Places of state, flags, nice and processor from the state on in /proc/PID/stat, by proc_pid_stat(5)."""
_KERNEL_THREAD = 0x0020_0000
"""PF_KTHREAD of the flags, by include/linux/sched.h."""
_POLICIES = {os.SCHED_FIFO: "fifo", os.SCHED_RR: "rr"}
_WORK = re.compile(r"(kworker_\w+:\w+)[-+].*?(?=/\d+$)")
"""A worker's row name: its work follows, which changes from look to look (kernel/workqueue.c wq_worker_comm())."""
_LOWEST_NICE, _HIGHEST_NICE = -20, 19
_MOST_OF_LIST = 40
"""Characters of a list of CPUs: every other one of 256 has 456, and a recording has names of 256 at most."""
_VERSION_2 = 2
_OF_PODS = "kubepods"
"""Kubernetes makes the weights of these cgroups from CPU requests: without one it is the least, which nobody chose."""


class _Turns(NamedTuple):
    """Times of a process's threads since they began, from schedstat."""

    ran_us: int
    waited_us: int
    runs: int
    tids: frozenset[str] = frozenset()


class _Part(NamedTuple):
    """The processes that a look reads where all have too many threads for one."""

    after: int = 0
    """They follow this one."""
    looks: int = 0
    """So many have read them before."""


class _Runner(NamedTuple):
    """A process that runs."""

    pid: int
    process: str
    """NAME/PID."""
    cpus: frozenset[int]
    """Those that its threads run on, or are ready to."""
    policy: str
    """Real-time policy and priority of one of these threads; empty: none has one."""


class _Group(NamedTuple):
    """A cgroup that shares CPUs with its siblings by weight."""

    cgroup: str
    file: str
    """File of USUAL_WEIGHTS."""
    weight: int

    @property
    def part(self) -> float:
        """Return its weight as a multiple of the usual one."""
        return 0.0 if self.file == IDLE else self.weight / USUAL_WEIGHTS[self.file]


class _Waiter(NamedTuple):
    """Holds what is read of a process that waits."""

    row: CpuWaiter
    io_bytes: int
    sleeps: int
    is_kernel: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """Absolute numbers of one moment by pid."""

    mono_us: int
    spent_us: int
    turns: Mapping[int, _Turns]
    waiters: Mapping[int, _Waiter]
    next_part: _Part
    left_out: str = ""


def is_possible(proc: Path) -> bool:
    """Return whether the kernel counts the waits for a CPU, of processes and of the host."""
    return (proc / "self/schedstat").exists() and (proc / "pressure/cpu").exists()


class CpuWaitReader(PacedLooks[Look]):
    """The looks at what waits for a CPU."""

    def __init__(
        self,
        proc: Path,
        sys: Path,
        mounts: MountTable,
        run: Run[Look] | None = None,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        super().__init__("cpu waits", [BoundedSums(CPU_WAITS, attrgetter("waited_us"))], run, now_us)
        self._proc, self._sys, self._mounts = proc, sys, mounts
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

    @property
    def left_out(self) -> str:
        not_read = self._last.left_out if self._last is not None else ""
        return "; ".join(filter(None, (super().left_out, not_read)))

    def look(self, mono_us: int, before: Look | None) -> Look:
        return look(self._proc, self._mounts.read(), mono_us, before, _isolated_cpus(self._sys))

    def gains(self, before: Look, now: Look) -> Tables:
        return {CPU_WAITS: dict(_gains(before, now)) if _is_fresh(before, now.mono_us) else {}}


def _is_fresh(before: Look, mono_us: int) -> bool:
    return 0 < mono_us - before.mono_us <= _FRESH_US


def _gains(before: Look, now: Look) -> Iterator[tuple[CpuWaiter, CpuWait]]:
    """Yield the processes that waited at both looks, did I/O or are the kernel's, and slept of themselves."""
    turns = _turns_between(before.turns, now.turns)
    for pid, waiter in now.waiters.items():
        was, gained = before.waiters.get(pid), turns.get(pid)
        if was is None or gained is None or was.row.process != waiter.row.process:
            continue
        io_bytes = waiter.io_bytes - was.io_bytes
        if (io_bytes > 0 or waiter.is_kernel) and waiter.sleeps - was.sleeps >= _OWN_SLEEPS * gained.runs:
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


def look(
    proc: Path,
    mounts: Mounts,
    mono_us: int,
    before: Look | None = None,
    isolated_cpus: frozenset[int] = frozenset(),
) -> Look:
    """Read the times of all processes. `before`: the last look; what waited since is looked at closer."""
    begun_ns = time.thread_time_ns()
    part = before.next_part if before is not None else _Part()
    turns, last, left_out = _turns(proc, part.after)
    waiters: dict[int, _Waiter] = {}
    if before is not None and _is_fresh(before, mono_us):
        gains = _turns_between(before.turns, turns)
        passed_us = mono_us - before.mono_us
        waiting = _waiting(gains, passed_us)
        runners = _runners(proc, gains, passed_us) if waiting else []
        for pid in waiting:
            waiter = _waiter(proc, mounts, pid, runners, isolated_cpus)
            if waiter is not None:
                waiters[pid] = waiter
    is_read_again = last and part.looks + 1 < _LOOKS_OF_PART
    next_part = _Part(part.after, part.looks + 1) if is_read_again else _Part(last)
    return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, turns, waiters, next_part, left_out)


def _turns(proc: Path, after: int) -> tuple[dict[int, _Turns], int, str]:
    """Return the times of all processes, or of more than `_MOST_THREADS` of those that follow `after`; the last one.

    The last process is 0 where these are all. The text says what is left out.
    """
    ordered_pids = sorted(pids(proc))
    begin = bisect_right(ordered_pids, after)
    turns: dict[int, _Turns] = {}
    threads = last = 0
    too_large = ""
    for pid in (*ordered_pids[begin:], *ordered_pids[:begin]):
        tasks = _tasks(proc, pid)
        if len(tasks) > _MOST_THREADS:
            too_large = f"processes with more than {_MOST_THREADS:,} threads are not read for waits for a CPU"
            continue
        if threads + len(tasks) > _MOST_THREADS:
            in_turn = f"of the host's threads {_MOST_THREADS:,} at a time are read for waits for a CPU"
            return turns, last, "; ".join(filter(None, (in_turn, too_large)))
        counters = {task: _counters(f"{task}/schedstat") for task in tasks}
        counters = {task: counts for task, counts in counters.items() if counts}
        if counters:
            ran_ns, waited_ns, runs = (sum(column) for column in zip(*counters.values(), strict=True))
            tids = frozenset(task.rpartition("/")[2] for task in counters)
            turns[pid] = _Turns(ran_ns // 1000, waited_ns // 1000, runs, tids)
        threads += len(tasks)
        last = pid
    return turns, 0, too_large


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


def _runners(proc: Path, gains: Mapping[int, _Turns], passed_us: int) -> list[_Runner]:
    """Return the processes that ran most, with the CPUs that they run on."""
    running = [pid for pid, turns in gains.items() if turns.ran_us >= _LEAST_RAN * passed_us]
    running.sort(key=lambda pid: -gains[pid].ran_us)
    return [_runner(proc, pid) for pid in running[:_MOST_RUNNERS]]


def _runner(proc: Path, pid: int) -> _Runner:
    cpus_by_thread = dict(_running_threads(proc, pid))
    policies = filter(None, map(_real_time_policy, cpus_by_thread))
    return _Runner(pid, row_name_of(proc, pid), frozenset(cpus_by_thread.values()), next(policies, ""))


def _running_threads(proc: Path, pid: int) -> Iterator[tuple[int, int]]:
    """Yield id and CPU of a process's threads that run or are ready to."""
    for task in _tasks(proc, pid)[:_MOST_RUNNER_THREADS]:
        fields = _stat(task)
        if len(fields) > _CPU and fields[_STATE] == b"R" and fields[_CPU].isdigit():
            yield int(task.rpartition("/")[2]), int(fields[_CPU])


def _real_time_policy(tid: int) -> str:
    """Return policy and priority of a thread as chrt has them; empty for an ordinary one, and where it has ended."""
    try:
        policy = _POLICIES.get(os.sched_getscheduler(tid), "")
        priority = os.sched_getparam(tid).sched_priority
    except OSError:
        return ""
    return policy_text(policy, REAL_TIME - 1 - priority)


def _stat(directory: str) -> list[bytes]:
    """Return the fields from the state on of a process's or thread's stat."""
    return content(f"{directory}/stat").rpartition(b")")[2].split()


def _waiter(
    proc: Path, mounts: Mounts, pid: int, runners: Iterable[_Runner], isolated_cpus: frozenset[int]
) -> _Waiter | None:
    """Read a process that waits; None where it did no I/O, or that may not be read, or where its own program runs.

    Of the kernel's threads those are read that may use no other CPU than a thread of a real-time policy runs on.
    """
    is_kernel = _is_kernel(f"{proc}/{pid}")
    io_bytes = 0 if is_kernel else sum(map(int, _IO.findall(content(f"{proc}/{pid}/io"))))
    if not io_bytes and not is_kernel:
        return None
    sleeps = sum(int(n) for task in _tasks(proc, pid) for n in _SLEEPS.findall(content(f"{task}/status")))
    cpus = _allowed_cpus(pid)
    is_limited = len(cpus) < (os.cpu_count() or 0)
    process, nice = _WORK.sub(r"\1", row_name_of(proc, pid)), _nice(f"{proc}/{pid}")
    others = (runner for runner in runners if runner.pid != pid and (not is_limited or runner.cpus & cpus))
    runner = next(others, None)
    if runner is not None and runner.process.rpartition("/")[0] == process.rpartition("/")[0]:
        return None
    policy = "" if runner is None else runner.policy
    if is_kernel and (not cpus or runner is None or not policy or not cpus <= runner.cpus):
        return None
    # whatever the weights and nice values, a real-time policy runs first
    group, nice_reason = (None, 0) if runner is None or policy else _reason(proc, mounts, pid, runner.pid)
    is_set = group is not None and _OF_PODS not in group.cgroup
    is_isolated = is_kernel and cpus <= isolated_cpus
    row = CpuWaiter(
        process=process,
        cgroup=_own_cgroup(proc, pid) if group is None else group.cgroup,
        weight_file="" if group is None else group.file,
        weight=0 if group is None else group.weight,
        cpus=cpu_list(cpus) if is_limited else "",
        nice=nice_reason,
        instead="" if runner is None else runner.process,
        is_background=int(is_set or is_isolated or (nice > 0 and not policy)),
        instead_policy=policy,
    )
    return _Waiter(row, io_bytes, sleeps, is_kernel)


def _is_kernel(directory: str) -> bool:
    fields = _stat(directory)
    flags = fields[_FLAGS] if len(fields) > _FLAGS else b""
    return flags.isdigit() and bool(int(flags) & _KERNEL_THREAD)


def _allowed_cpus(pid: int) -> frozenset[int]:
    """Return the CPUs that a process may use; empty where it has ended."""
    try:
        return frozenset(os.sched_getaffinity(pid))
    except OSError:
        return frozenset()


def _isolated_cpus(sys: Path) -> frozenset[int]:
    """Return the CPUs that the kernel keeps programs away from (isolcpus=, nohz_full=): one puts its program there."""
    return host.cpus("isolated", sys) | host.cpus("nohz_full", sys)


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


def _reason(proc: Path, mounts: Mounts, pid: int, runner: int) -> tuple[_Group | None, int]:
    """Return the cgroup whose weight makes a process wait for one that runs; the nice value where that does, else 0.

    Where the two are in different cgroups, the weights of the uppermost ones that differ decide, else the nice values.
    """
    own, other = _groups(proc, mounts, pid), _groups(proc, mounts, runner)
    while own and other and own[0].cgroup == other[0].cgroup:
        own, other = own[1:], other[1:]
    if own:
        is_less = own[0].part < min([1.0, *(group.part for group in other[:1])])
        return (own[0] if is_less else None), 0
    nice = _nice(f"{proc}/{pid}")
    usual = 0 if other else max(0, _nice(f"{proc}/{runner}"))
    return None, nice if nice > usual else 0


def _groups(proc: Path, mounts: Mounts, pid: int) -> list[_Group]:
    """Return the cgroups with a weight that a process is in, the uppermost first."""
    paths = _cgroup_paths(proc, pid)
    groups: list[_Group] = []
    for root, version in hierarchies(mounts, "cpu"):
        file, path = (WEIGHT, paths.get("", "/")) if version == _VERSION_2 else (SHARES, paths.get("cpu", "/"))
        own = Path(path.lstrip("/"))
        for cgroup in (*reversed(own.parents), own):
            if ".." in cgroup.parts or cgroup == Path():
                continue
            digits = content(root / cgroup / file).strip()
            weight = int(digits) if digits.isdigit() and len(digits) <= _MAX_DIGITS else 0
            if content(root / cgroup / IDLE).strip() == b"1":
                groups.append(_Group(cgroup_name(f"/{cgroup}"), IDLE, 1))
            elif weight:
                groups.append(_Group(cgroup_name(f"/{cgroup}"), file, weight))
    return groups


def _own_cgroup(proc: Path, pid: int) -> str:
    paths = _cgroup_paths(proc, pid)
    return cgroup_name(paths.get("cpu", paths.get("", "/")))


def _cgroup_paths(proc: Path, pid: int) -> dict[str, str]:
    """Return the path of a process's cgroup by controller of version 1; that of version 2 by an empty name."""
    lines = [line.split(":", 2) for line in os.fsdecode(content(f"{proc}/{pid}/cgroup")).splitlines()]
    return {controller: line[2] for line in lines if len(line) == _COUNTERS for controller in line[1].split(",")}
