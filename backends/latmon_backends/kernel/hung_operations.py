"""Threads that wait in operations on files for something else than I/O of their own.

They wait for a frozen file system, for the server of one, for the lock of a file or a directory, or for a journal.

A thread looks at the kernel function in which each thread of the host sleeps (/proc/PID/task/TID/wchan), every 2 s, or
as seldom as 0.5 % of a CPU allows: 5,000 threads take 62 ms, so that they are looked at every 12 s. Where some of them
wait in an operation on files, those are looked at again with the next sample, so that short freezes are counted, too.
One that has not run since the look before, by its count of context switches, hangs in the same operation: that time is
added to sums, and a sample has the sums. One that was seen waiting for a server, a lock or a journal is looked at again
for a while, also where it waits for none: the share of the looks that find it waiting is that of its time. A look comes
late by chance, else a program that does something once a second could be found waiting at each look.

It needs CAP_SYS_PTRACE and CAP_SYS_ADMIN: for others `wchan` is 0. Nothing is read that a hanging thread can block: no
memory (cmdline, environ, mem), no file of the file system. The file is that of the system call's first argument, by
its mnt_id (fdinfo). Of a call without a file, as of io_submit, it is known where the process has open files to write
on one file system only; of one with a path where one mount alone is possible (`silent_mounts` for those of servers).

Who has the lock of a file is not in /proc: a thread that is in a call on the same file, and waits for something else
than its lock, may have it.
"""

from __future__ import annotations

import os
import platform
import random
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from latmon.capture.mounts import Mount, Mounts, MountTable, mount_name
from latmon.model.frame import FROZEN, JOURNAL, LOCK, SERVER, FileSystem
from latmon.model.measurements import (
    FILE_SERVERS,
    FILE_SLEEPS,
    HUNG_OPERATIONS,
    JOURNAL_SIZES,
    LOCK_HOLDERS,
    SERVER_WAITS,
)
from latmon.model.measurements.file_sleeps import LOG_SPACE, FileSleep, JournalLooks, JournalOf, LockHolder
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.server_waits import ServerWait, WaitedTime
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon.support.text import clean_path
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.file_servers import FoundServers, file_servers
from latmon_backends.kernel.journal_sizes import JournalSizes
from latmon_backends.kernel.mount_namespaces import MountNamespaces
from latmon_backends.kernel.paced_looks import LEAST_US, PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of
from latmon_backends.kernel.silent_mounts import ServedIos, silent_mount
from latmon_backends.kernel.sleep_causes import cause_of, functions_of, is_sync, kind_of, may_be_in_operation
from latmon_backends.kernel.system_calls import PAGE_FAULT, Call, call_of

_MOST_THREADS, _MOST_WAITS, _MOST_FILES = 20_000, 200, 256
_MOST_PAGE_WAITS = 100
"""Threads on local disks wait for pages, too: they leave room for the others."""
_MOST_POSSIBLE = 100
"""Threads that may wait for a lock or a journal, or have a lock: they leave room for others as well."""
_MAX_FILE = 256
"""Characters of the path of a file, in a recording too."""
_MOST_OF_PROCESS = 20
"""Threads of one process that are looked at: hundreds that wait leave room for other programs."""
_WALK_SHARE = 200
"""All threads are looked at after so many times the CPU time that it takes: 0.5 % of a CPU."""
_WATCHED_LOOKS = 10
"""A thread that waited for a server, a lock or a journal is looked at so often after that: its time without waits
belongs to its share."""
_MOST_LATE_S = 0.9
"""A look is so much late at most, by chance: samples are 1 s apart, and the next one takes the result."""
_SERVERS_SHARE, _LEAST_SERVERS_US = 200, 60_000_000
"""Servers of FUSE are looked for after so many times the CPU time that it takes, and once a minute at most."""
_PAGE_WAITS = frozenset(
    (
        b"folio_wait_bit_common",
        b"folio_wait_bit",
        b"__folio_lock",
        b"wait_on_page_bit_common",
        b"wait_on_page_bit",
        b"__lock_page",
    )
)
"""Functions in which a thread waits for a page of a file: of a server's, where the file has one (a buffered read)."""
_FREEZE_WAITS = frozenset((b"percpu_rwsem_wait", b"__percpu_down_read", b"percpu_down_read", b"__sb_start_write"))
"""Functions in which a writer waits for the end of a freeze; other semaphores have those of percpu_rwsem, too."""
_OF_FILES = re.compile(
    rb"(?:vfs_|do_iter_|file_|sb_|__sb_|mnt_want_write|kiocb_|aio_|io_|do_page_mkwrite|iomap_|generic_|do_splice|"
    rb"ext4_|xfs_|btrfs_|f2fs_|ovl_|ksys_|__x64_sys_f|__arm64_sys_f|do_truncate|do_fallocate)"
)
"""Callers of sb_start_write(), which is inline; the other semaphores are of cgroups, of CPUs and of modules."""
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d{1,20})$", re.MULTILINE)
_MOUNT_ID = re.compile(rb"^mnt_id:\s*(\d{1,10})$", re.MULTILINE)
_INODE = re.compile(rb"^ino:\s*(\d{1,20})$", re.MULTILINE)
_FLAGS = re.compile(rb"^flags:\s*([0-7]{1,12})$", re.MULTILINE)
_WITHOUT_FILE: Mapping[str, frozenset[int]] = MappingProxyType(
    {"x86_64": frozenset((209, 426, PAGE_FAULT)), "aarch64": frozenset((2, 426, PAGE_FAULT))}
)
"""Machine -> io_submit, io_uring_enter, page fault: the file is one that is open."""
_OF_TWO_FILES: Mapping[str, frozenset[int]] = MappingProxyType(
    {"x86_64": frozenset((40, 275, 326)), "aarch64": frozenset((71, 76, 285))}
)
"""Machine -> sendfile, splice, copy_file_range: which of the files it waits for is not known."""
_LOCKS: Mapping[str, frozenset[int]] = MappingProxyType({"x86_64": frozenset((72, 73)), "aarch64": frozenset((25, 32))})
"""Machine -> fcntl, flock: they wait for a server as long as another program has the lock, which is no silence."""
_OF_JOURNALS = (JOURNAL, LOG_SPACE)
_ELSEWHERE = Mount("", "", "", "")
"""A mount that is known to be none of latmon's namespace: one of a container, or one that was detached (umount -l)."""
Key = TypeVar("Key")
_Thread = tuple[str, str]
"""Numbers of the process and of the thread."""


class _Servers(NamedTuple):
    """Servers of a kind."""

    name: str
    kinds: re.Pattern[str]
    """The types of their file systems."""


_FUSE, _NFS = _Servers("fuse", re.compile(r"fuse|fuseblk|fuse\..*")), _Servers("nfs", re.compile(r"nfs|nfs4"))
_CEPH, _9P = _Servers("ceph", re.compile("ceph")), _Servers("9p", re.compile("9p"))
_SERVERS: Mapping[bytes, _Servers] = MappingProxyType(
    {
        b"request_wait_answer": _FUSE,
        b"fuse_direct_IO": _FUSE,
        b"fuse_file_write_iter": _FUSE,
        b"rpc_wait_bit_killable": _NFS,
        b"nfs_wait_bit_killable": _NFS,
        b"nfs_direct_wait": _NFS,
        b"wait_for_response": _Servers("cifs", re.compile(r"cifs|smb3")),
        b"ceph_mdsc_wait_request": _CEPH,
        b"ceph_osdc_wait_request": _CEPH,
        b"p9_client_rpc": _9P,
        b"p9_virtio_request": _9P,
    }
)
"""Function in which a thread waits for a server -> what kind of server.

With O_DIRECT a thread waits in fuse_direct_IO() (fs/fuse/file.c) and nfs_direct_wait() (fs/nfs/direct.c); in
fuse_file_write_iter() for the file's lock, which another write has until its answer comes.
"""


class _FileId(NamedTuple):
    """An inode, by which two descriptors are of one file; Linux 5.14 and newer."""

    file_system: tuple[int, int]
    inode: int


class _Operation(NamedTuple):
    """What a thread waits for."""

    row: HungOperation | None = None
    """None: it isn't an operation on files, or not known which."""
    server: ServerWait | None = None
    """None: it waits for none."""
    sleep: FileSleep | None = None
    """None: it waits for none of SLEEP_CAUSES."""
    file: _FileId | None = None
    """The file whose lock it waits for; None: not known."""

    @property
    def is_of_interest(self) -> bool:
        return any(part is not None for part in self)

    @property
    def is_unknown_mount(self) -> bool:
        """Whether it waits for a server that isn't known."""
        return self.server is not None and not self.server.mount


_NO_OPERATION = _Operation()


class _Wait(NamedTuple):
    """A thread that waits."""

    function: bytes
    switches: int
    """Context switches until now: they tell one wait from the next one."""
    operation: _Operation
    since_us: int
    """The first look that saw it."""
    looks_since: int = 0
    """Looks after the last one that saw the thread wait so: above 0 it waits for nothing of interest now."""

    @property
    def row(self) -> HungOperation | None:
        return self.operation.row

    @property
    def server(self) -> ServerWait | None:
        return self.operation.server

    @property
    def is_watched(self) -> bool:
        """Whether its time without waits is of interest, too."""
        return self.operation.server is not None or self.operation.sleep is not None


@dataclass(frozen=True, slots=True)
class Look:
    """The threads that waited at one moment."""

    mono_us: int
    """When it was due."""
    seen_us: int
    """When the threads were looked at, somewhat later by chance."""
    spent_us: int
    """Without the time for looking at all threads, which has a pace of its own."""
    walk_due_us: int
    """When all threads are looked at again."""
    walked_to: int = 0
    """The process after which the next walk begins, where there were too many threads for one; 0: it saw all."""
    waits: Mapping[_Thread, _Wait] = field(default_factory=dict)
    servers: FoundServers = field(default_factory=FoundServers)
    """Servers of FUSE that the last search for them found."""
    servers_due_us: int = 0
    """When they are looked for again, if programs wait for them."""
    holders: frozenset[LockHolder] = frozenset()
    """Processes in operations on files whose lock threads wait for; looked for with all threads."""
    served: ServedIos = field(default_factory=ServedIos)
    """I/Os of devices on files of mounts with a server, of which several may be waited for."""
    sizes: JournalSizes = field(default_factory=JournalSizes)
    """Of the journals that threads have waited for."""
    journals: Mapping[JournalOf, int] = field(default_factory=dict)
    """The journals that threads wait for, with their sizes where these are known by now."""


class HangReader(PacedLooks[Look]):
    """The looks at threads that hang."""

    def __init__(
        self,
        proc: Path,
        sys: Path,
        mounts: MountTable,
        run: Run[Look] | None = None,
        now_us: Callable[[], int] | None = None,
        *,
        wait_by_chance: Callable[[], None] | None = None,
    ) -> None:
        """`wait_by_chance`: instead of a sleep before each look."""
        sums = (
            BoundedSums(HUNG_OPERATIONS, attrgetter("threads_us")),
            BoundedSums(SERVER_WAITS, attrgetter("waited_us")),
            BoundedSums(FILE_SERVERS, int),
            BoundedSums(FILE_SLEEPS, attrgetter("waited_us")),
            BoundedSums(LOCK_HOLDERS, int),
            BoundedSums(JOURNAL_SIZES, attrgetter("looks")),
        )
        super().__init__("hung operations", sums, run, now_us)
        self._proc, self._sys, self._mounts = proc, sys, mounts
        self._wait_by_chance = _wait_by_chance if wait_by_chance is None else wait_by_chance

    @property
    def is_possible(self) -> bool:
        """Whether this process may read the stacks of threads: the kernel refuses its own, too, where it may not."""
        return bool(content(self._proc / "self/stack"))

    def look(self, mono_us: int, before: Look | None) -> Look:
        self._wait_by_chance()
        looked = look(self._proc, self._sys, self._mounts, self._now_us(), before)
        return replace(looked, mono_us=mono_us)

    def gains(self, before: Look, now: Look) -> Tables:
        server_waits, sleeps = _times_of_waits(before, now)
        has_fuse = any(_is_of_fuse(wait) and waited.waited_us for wait, waited in server_waits.items())
        fuse_us = now.mono_us - before.mono_us if has_fuse else 0
        return {
            HUNG_OPERATIONS: _gains(before, now),
            SERVER_WAITS: server_waits,
            FILE_SERVERS: dict.fromkeys(now.servers.servers, fuse_us) if fuse_us else {},
            FILE_SLEEPS: sleeps,
            LOCK_HOLDERS: dict.fromkeys(now.holders, now.mono_us - before.mono_us),
            JOURNAL_SIZES: {journal: JournalLooks(1, size) for journal, size in now.journals.items()},
        }

    def pause_us(self, look: Look) -> int:
        """Return the time until a look finds more: none where operations on files wait, else that to the next walk."""
        has_operations = any(wait.operation.is_of_interest for wait in look.waits.values())
        return 0 if has_operations else look.walk_due_us - look.mono_us


def _gains(before: Look, now: Look) -> dict[HungOperation, HungTime]:
    """Return the time between two looks of the threads that slept all of it in one operation."""
    us = now.seen_us - before.seen_us
    hung: dict[HungOperation, list[_Wait]] = {}
    for wait in now.waits.values():
        if wait.row is not None and wait.since_us <= before.seen_us:
            hung.setdefault(wait.row, []).append(wait)
    oldest_before = _oldest_us(before.waits.values())
    oldest_now = _oldest_us(wait for waits in hung.values() for wait in waits)
    gains: dict[HungOperation, HungTime] = {}
    for row, waits in hung.items():
        is_new = oldest_now[row] == before.seen_us
        has_oldest_ended = row not in oldest_before or oldest_now[row] > oldest_before[row]
        gains[row] = HungTime(us, us * len(waits), int(is_new or has_oldest_ended))
    return gains


def _times_of_waits(before: Look, now: Look) -> tuple[dict[ServerWait, WaitedTime], dict[FileSleep, WaitedTime]]:
    """Return the time between two looks in which the threads that are watched waited, and their switches.

    It is known of a thread that has not run in between. Else a look that finds it waiting counts for the time since the
    look before was due, and other looks don't count: on average over the looks, which come by chance, that is its time.
    The look that saw a thread first is not counted: it is watched because it waited then.
    """
    server_waits: dict[ServerWait, WaitedTime] = {}
    sleeps: dict[FileSleep, WaitedTime] = {}
    for thread, wait in now.waits.items():
        was = before.waits.get(thread)
        if was is None or not was.is_watched or wait.switches < was.switches:
            continue
        switches = wait.switches - was.switches
        waited_us = now.mono_us - before.mono_us if switches else now.seen_us - before.seen_us
        time_of_wait = WaitedTime(0 if wait.looks_since else waited_us, switches)
        _add(server_waits, wait.operation.server, time_of_wait)
        _add(sleeps, wait.operation.sleep, time_of_wait)
    return server_waits, sleeps


def _add(times: dict[Key, WaitedTime], key: Key | None, gained: WaitedTime) -> None:
    if key is not None:
        before = times.get(key, WaitedTime(0))
        times[key] = WaitedTime(before.waited_us + gained.waited_us, before.sleeps + gained.sleeps)


def _wait_by_chance() -> None:
    time.sleep(random.uniform(0, _MOST_LATE_S))  # noqa: S311 - no secret


def _is_of_fuse(wait: ServerWait) -> bool:
    return _FUSE.kinds.fullmatch(wait.kind) is not None


def _oldest_us(waits: Iterable[_Wait]) -> dict[HungOperation, int]:
    """Return the first look that saw the oldest wait of each row."""
    oldest: dict[HungOperation, int] = {}
    for wait in waits:
        if wait.row is not None:
            oldest[wait.row] = min(wait.since_us, oldest.get(wait.row, wait.since_us))
    return oldest


def look(proc: Path, sys: Path, mount_table: MountTable, mono_us: int, before: Look | None = None) -> Look:
    """Look at the threads that waited at the last look, or at all where that is due."""
    begun_ns = time.thread_time_ns()
    known = before.waits if before is not None else {}
    walk_due_us = before.walk_due_us if before is not None else 0
    walked_to = before.walked_to if before is not None else 0
    mounts = _MountsOfThreads(proc, sys, mount_table, before)
    # They are looked at one after the other at once: a wait of milliseconds is over when all threads have been.
    functions = _functions(proc, known)
    waits = _waits(proc, functions, known, mounts, mono_us)
    walked_ns = 0
    is_walk = mono_us >= walk_due_us
    if is_walk:
        walk_begun_ns = time.thread_time_ns()
        threads, walked_to = _threads(proc, walked_to)
        others = _functions(proc, dict.fromkeys(thread for thread in threads if thread not in known))
        walked_ns = time.thread_time_ns() - walk_begun_ns
        walk_due_us = mono_us + max(LEAST_US, _WALK_SHARE * walked_ns // 1000)
        functions |= others
        waits |= _waits(proc, others, known, mounts, mono_us)
    for thread, was in known.items():
        is_watched = was.is_watched and was.looks_since < _WATCHED_LOOKS and len(waits) < _MOST_WAITS
        has_wait = thread in waits and waits[thread].operation.is_of_interest
        switches = _switches(proc, thread) if is_watched and not has_wait else None
        if switches is not None:
            operation = was.operation._replace(row=None, file=None)
            waits[thread] = _Wait(b"", switches, operation, mono_us, was.looks_since + 1)
    holders = frozenset(_holders(proc, functions, waits, mounts)) if is_walk else frozenset()
    asleep = (wait.operation.sleep for wait in waits.values() if not wait.looks_since)
    journals = mounts.journals(asleep, mono_us)
    spent_us = (time.thread_time_ns() - begun_ns - walked_ns) // 1000
    servers, servers_due_us = _file_servers(proc, mount_table, mono_us, before, waits)
    return Look(
        mono_us=mono_us,
        seen_us=mono_us,
        spent_us=spent_us,
        walk_due_us=walk_due_us,
        walked_to=walked_to,
        waits=waits,
        servers=servers,
        servers_due_us=servers_due_us,
        holders=holders,
        served=mounts.served,
        sizes=mounts.sizes,
        journals=journals,
    )


def _waits(
    proc: Path,
    functions: Mapping[_Thread, bytes],
    known: Mapping[_Thread, _Wait],
    mounts: _MountsOfThreads,
    mono_us: int,
) -> dict[_Thread, _Wait]:
    """Return the waits of threads that sleep in functions of interest."""
    waits: dict[_Thread, _Wait] = {}
    for thread, function in functions.items():
        switches = _switches(proc, thread)
        if switches is None:
            continue
        was = known.get(thread)
        is_same = was is not None and (was.function, was.switches) == (function, switches)
        if was is not None and is_same and not was.operation.is_unknown_mount:
            waits[thread] = was
            continue
        operation = _operation(proc, thread, function, mounts)
        if not _sleeps_on(proc, thread, function, switches):
            operation = _NO_OPERATION
        since_us = was.since_us if was is not None and is_same else mono_us
        waits[thread] = _Wait(function, switches, operation, since_us)
    return waits


def _sleeps_on(proc: Path, thread: _Thread, function: bytes, switches: int) -> bool:
    """Return whether a thread is in the same sleep as before: else its call is another one, such as a nanosleep."""
    pid, tid = thread
    return content(f"{proc}/{pid}/task/{tid}/wchan") == function and _switches(proc, thread) == switches


def _holders(
    proc: Path, threads: Iterable[_Thread], waits: Mapping[_Thread, _Wait], mounts: _MountsOfThreads
) -> Iterator[LockHolder]:
    """Yield the processes in an operation on a file whose lock other threads wait for.

    `threads`: those that sleep in a function of interest.
    """
    locked = {
        wait.operation.file: wait.operation.sleep
        for wait in waits.values()
        if wait.operation.file is not None and wait.operation.sleep is not None
    }
    if not locked:
        return
    for pid, tid in threads:
        wait = waits.get((pid, tid))
        if wait is None or wait.operation.file is not None:
            continue
        call = call_of(content(f"{proc}/{pid}/task/{tid}/syscall"))
        if call is None or not call.has_file or call.descriptor is None:
            continue
        file = mounts.file_id(pid, call.descriptor)
        sleep = None if file is None else locked.get(file)
        if sleep is not None:
            yield LockHolder(sleep.mount, sleep.file, call.op, row_name_of(proc, pid))


def _file_servers(
    proc: Path, mounts: MountTable, mono_us: int, before: Look | None, waits: Mapping[_Thread, _Wait]
) -> tuple[FoundServers, int]:
    """Return the servers of FUSE and when they are due again; looked for where threads wait for one once more."""
    if before is None:
        return FoundServers(), 0
    waiting_again = (wait.server for thread, wait in waits.items() if thread in before.waits and not wait.looks_since)
    is_due = mono_us >= before.servers_due_us
    if not is_due or not any(server is not None and _is_of_fuse(server) for server in waiting_again):
        return before.servers, before.servers_due_us
    begun_ns = time.thread_time_ns()
    servers = file_servers(proc, mounts.read(), before.servers)
    spent_us = (time.thread_time_ns() - begun_ns) // 1000
    return servers, mono_us + max(_LEAST_SERVERS_US, _SERVERS_SHARE * spent_us)


def _threads(proc: Path, after: int) -> tuple[list[_Thread], int]:
    """Return all threads, or of more than `_MOST_THREADS` those of the processes that follow `after`; and the last one.

    The last process is 0 where these are all threads. So each thread has its turn.
    """
    ordered_pids = sorted(pids(proc))
    begin = bisect_right(ordered_pids, after)
    threads: list[_Thread] = []
    last = 0
    for pid in (*ordered_pids[begin:], *ordered_pids[:begin]):
        try:
            tids = os.listdir(f"{proc}/{pid}/task")  # noqa: PTH208
        except OSError:
            continue
        if threads and len(threads) + len(tids) > _MOST_THREADS:
            return threads, last
        threads += ((str(pid), tid) for tid in tids[:_MOST_THREADS])
        last = pid
    return threads, 0


def _functions(proc: Path, threads: Iterable[_Thread]) -> dict[_Thread, bytes]:
    """Return the threads that sleep in a function of interest, with the function: some of a process with many."""
    functions: dict[_Thread, bytes] = {}
    page_waits: dict[_Thread, bytes] = {}
    possible: dict[_Thread, bytes] = {}
    of_process = Counter[str]()
    for pid, tid in threads:
        if of_process[pid] >= _MOST_OF_PROCESS:
            continue
        function = content(f"{proc}/{pid}/task/{tid}/wchan")
        if function in _SERVERS or function in _FREEZE_WAITS:
            of_process[pid] += 1
            functions[pid, tid] = function
            if len(functions) >= _MOST_WAITS:
                break
        elif function in _PAGE_WAITS and len(page_waits) < _MOST_PAGE_WAITS:
            of_process[pid] += 1
            page_waits[pid, tid] = function
        elif len(possible) < _MOST_POSSIBLE and may_be_in_operation(function):
            of_process[pid] += 1
            possible[pid, tid] = function
    return functions | page_waits | possible


def _switches(proc: Path, thread: _Thread) -> int | None:
    """Return how often a thread has left its CPU; None of one that has ended, and of a kernel thread."""
    status = content(f"{proc}/{thread[0]}/task/{thread[1]}/status")
    counts = _SWITCHES.findall(status)
    if not counts or b"\nVmSize:" not in status:  # a kernel thread has no memory of its own
        return None
    return sum(map(int, counts))


def _operation(proc: Path, thread: _Thread, function: bytes, mounts: _MountsOfThreads) -> _Operation:
    """Return what a thread waits for."""
    pid, tid = thread
    if may_be_in_operation(function):
        return _sleep(proc, thread, function, mounts)
    is_other = function in _FREEZE_WAITS and not _is_of_files(content(f"{proc}/{pid}/task/{tid}/stack"))
    call = call_of(content(f"{proc}/{pid}/task/{tid}/syscall"))
    if is_other or (call is not None and call.number in _LOCKS.get(platform.machine(), ())):
        return _NO_OPERATION
    mount = mounts.of_call(pid, call)
    process = row_name_of(proc, pid)
    if function in _FREEZE_WAITS:
        file_system = FileSystem("") if mount is None else mounts.file_system(mount)
        return _Operation(HungOperation(file_system.device, file_system.mount, file_system.kind, FROZEN, process))
    servers = _SERVERS.get(function)
    if servers is not None:
        mount = mounts.with_server(pid, mount, servers.kinds)
        if mount is None:
            return _of_unknown_server(servers.name, process, call, is_here=mounts.is_here(pid, call))
    has_server = mount is not None and mount.is_remote
    return _of_server(mounts, mount, call, pid, process) if has_server and mount is not None else _NO_OPERATION


def _of_server(mounts: _MountsOfThreads, mount: Mount, call: Call | None, pid: str, process: str) -> _Operation:
    file_system = mounts.file_system(mount)
    row = HungOperation(file_system.device, file_system.mount, file_system.kind, SERVER, process)
    sleep = _file_sleep(file_system, SERVER, call, mounts.file_of_call(pid, call, mount), process)
    return _Operation(row, ServerWait(file_system.mount, file_system.kind, process), sleep)


def _of_unknown_server(kind: str, process: str, call: Call | None, *, is_here: bool) -> _Operation:
    """Return the operation on one of several mounts with such servers; `is_here`: whether it may be one of this host's.

    A mount of a container is not looked for among them.
    """
    server = ServerWait("", kind, process)
    if not is_here:
        return _Operation(server=server)
    sleep = _file_sleep(FileSystem("", kind), SERVER, call, "", process)
    return _Operation(HungOperation("", "", kind, SERVER, process), server, sleep)


def _sleep(proc: Path, thread: _Thread, function: bytes, mounts: _MountsOfThreads) -> _Operation:
    """Return the wait for a lock or a journal; nothing where a thread waits for something else."""
    pid, tid = thread

    def stack() -> bytes:
        return content(f"{proc}/{pid}/task/{tid}/stack")

    cause = cause_of(function, stack)
    call = call_of(content(f"{proc}/{pid}/task/{tid}/syscall")) if cause else None
    if call is None:
        return _NO_OPERATION
    mount = mounts.of_call(pid, call)
    if mount is not None and mount.is_remote:
        return _NO_OPERATION
    kind = kind_of(stack()) if mount is None else ""
    mount = mounts.only_one_of_kind(pid, kind) if kind else mount
    if cause in _OF_JOURNALS and is_sync(stack()):
        call = call._replace(op="fsync")
    file_system = FileSystem("", kind) if mount is None else mounts.file_system(mount)
    file = mounts.file_of_call(pid, call, mount)
    sleep = _file_sleep(file_system, cause, call, file, row_name_of(proc, pid))
    is_known = cause == LOCK and call.has_file and call.descriptor is not None
    file_id = mounts.file_id(pid, call.descriptor) if is_known and call.descriptor is not None else None
    return _Operation(sleep=sleep, file=file_id)


def _file_sleep(file_system: FileSystem, cause: str, call: Call | None, file: str, process: str) -> FileSleep:
    op = "" if call is None else call.op
    return FileSleep(file_system.device, file_system.mount, file_system.kind, cause, op, file, process)


def _is_of_files(stack: bytes) -> bool:
    """Return whether a semaphore that a thread waits for is that of a frozen file system, by its caller."""
    callers = (function for function in functions_of(stack) if function not in _FREEZE_WAITS)
    return bool(_OF_FILES.match(next(callers, b"")))


class _MountsOfThreads:
    """Mounts of what threads wait for, of one look."""

    def __init__(self, proc: Path, sys: Path, table: MountTable, before: Look | None) -> None:
        self._proc, self._sys, self._table = proc, sys, table
        self._served_before = ServedIos() if before is None else before.served
        self.served = self._served_before
        """As of this look, where it had to find a mount among several."""
        self.sizes = JournalSizes() if before is None else before.sizes
        self._disks: dict[int, str] = {}
        self._namespaces = MountNamespaces(proc)

    def of_call(self, pid: str, call: Call | None) -> Mount | None:
        """Return the mount of the file that a system call works on; None: not known."""
        machine = platform.machine()
        if call is None or call.number in _WITHOUT_FILE.get(machine, ()):
            return self._of_open_files(pid)
        if call.number in _OF_TWO_FILES.get(machine, ()) or call.descriptor is None:
            return None
        return self._of_info(pid, self._info(pid, call.descriptor))

    def file_of_call(self, pid: str, call: Call | None, mount: Mount | None) -> str:
        """Return the path of the call's file in its file system; empty where it is not known.

        The kernel makes the path of an open file of its cache: no file system is asked.
        """
        if call is None or not call.has_file or call.descriptor is None or mount is None:
            return ""
        try:
            path = os.readlink(f"{self._proc}/{pid}/fd/{call.descriptor}")  # noqa: PTH115
        except OSError:
            return ""
        point = mount.point.rstrip("/") + "/"
        return clean_path(path.removeprefix(point), _MAX_FILE) if path.startswith(point) else ""

    def file_id(self, pid: str, descriptor: int) -> _FileId | None:
        """Return the inode of an open file; None where it is not known."""
        info = self._info(pid, descriptor)
        inode, mount = _INODE.search(info), self._of_info(pid, info)
        if inode is None or mount is None or mount is _ELSEWHERE:
            return None
        return _FileId(mount.number, int(inode[1]))

    def with_server(self, pid: str, mount: Mount | None, kinds: re.Pattern[str]) -> Mount | None:
        """Return the mount where it is of a kind of server, else None; where none is known, the only one of the kind.

        A process of another mount namespace, such as a container's, may wait for a mount that isn't one of this host's.
        Of several mounts it is the one whose server is silent, as far as that can be decided.
        """
        if mount is not None:
            return mount if kinds.fullmatch(mount.kind) else None
        if not self._namespaces.is_own(pid):
            return None
        mounts = [mount for mount in self._own.usual.values() if kinds.fullmatch(mount.kind)]
        if len(mounts) <= 1:
            return mounts[0] if mounts else None
        self.served = ServedIos.read(self._sys, self._own)
        return silent_mount(self._sys, mounts, self._served_before, self.served)

    def is_here(self, pid: str, call: Call | None) -> bool:
        """Return whether a thread may wait for one of this host's mounts: by a path, in this mount namespace."""
        return self.of_call(pid, call) is None and self._namespaces.is_own(pid)

    def only_one_of_kind(self, pid: str, kind: str) -> Mount | None:
        """Return the only mount of a type; None of several: a program may have its log open on another one."""
        if not self._namespaces.is_own(pid):
            return None
        mounts = [mount for mount in self._own.usual.values() if mount.kind == kind]
        return mounts[0] if len(mounts) == 1 else None

    def journals(self, sleeps: Iterable[FileSleep | None], mono_us: int) -> dict[JournalOf, int]:
        """Return the journals that threads wait for, with their sizes where these are known by now."""
        journals: dict[JournalOf, int] = {}
        names = {sleep.mount for sleep in sleeps if sleep is not None and sleep.mount and sleep.cause in _OF_JOURNALS}
        for mount in self._own.usual.values() if names else ():
            name = mount_name(mount.point)
            if name not in names:
                continue
            self.sizes = self.sizes.with_size_of(mount, mono_us)
            size = self.sizes.bytes_of(mount.number)
            if size:
                journals[JournalOf(self._disk(mount), name)] = size
        return journals

    def file_system(self, mount: Mount) -> FileSystem:
        """Return the file system of a mount; of one with a server by its usual mount, as its other numbers are."""
        if mount.is_remote:
            mount = self._own.usual[mount.number]
        return FileSystem(mount_name(mount.point), mount.kind, self._disk(mount))

    def _info(self, pid: str, number: int) -> bytes:
        return content(f"{self._proc}/{pid}/fdinfo/{number}")

    def _of_info(self, pid: str, info: bytes) -> Mount | None:
        match = _MOUNT_ID.search(info)
        if match is None:
            return None
        number = int(match[1])
        mount = self._own.by_number_of_mount.get(number)
        if mount is None:  # of another mount namespace: its path there is another one, or another file system's, here
            mount_here = self._namespaces.mounts_of(pid).get(number)
            mount = self._own.usual.get(mount_here.number, _ELSEWHERE) if mount_here is not None else _ELSEWHERE
        return mount

    def _of_open_files(self, pid: str) -> Mount | None:
        """Return the mount of all files on block devices that a process has open to write; None: of none or several."""
        try:
            numbers = os.listdir(f"{self._proc}/{pid}/fdinfo")  # noqa: PTH208
        except OSError:
            return None
        mounts: dict[int, Mount] = {}
        for number in numbers[:_MOST_FILES]:
            info = content(f"{self._proc}/{pid}/fdinfo/{number}")
            flags = _FLAGS.search(info)
            mount = self._of_info(pid, info) if flags and int(flags[1], 8) & os.O_ACCMODE else None
            if mount is not None and self._disk(mount):
                mounts[mount.number_of_mount] = mount
        return next(iter(mounts.values())) if len(mounts) == 1 and len(numbers) <= _MOST_FILES else None

    @cached_property
    def _own(self) -> Mounts:
        """The mounts now: the kernel gives the number of one that is gone to the next one."""
        return self._table.read(max_age_s=0)

    def _disk(self, mount: Mount) -> str:
        """Return the disk of a mount; empty of one with a server, whose files are not touched."""
        if mount.is_remote:
            return ""
        if mount.number_of_mount not in self._disks:
            self._disks[mount.number_of_mount] = self._own.disk_of(mount, self._sys)
        return self._disks[mount.number_of_mount]
