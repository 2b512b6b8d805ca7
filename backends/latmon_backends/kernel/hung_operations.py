"""Threads that wait in operations on files while no device is busy: of a frozen file system, or of one with a server.

A thread looks at the kernel function in which each thread of the host sleeps (/proc/PID/task/TID/wchan), every 2 s, or
as seldom as 0.5 % of a CPU allows: 5,000 threads take 62 ms, so that they are looked at every 12 s. Where some of them
wait in an operation on files, those are looked at again with the next sample, so that short freezes are counted, too.
One that has not run since the look before, by its count of context switches, hangs in the same operation: that time is
added to sums, and a sample has the sums. One that was seen waiting for a server is looked at again for a while, also
where it waits for none: the share of the looks that find it waiting is that of its time. A look comes late by chance,
else a program that does something once a second could be found waiting at each look.

It needs CAP_SYS_PTRACE and CAP_SYS_ADMIN: for others `wchan` is 0. Nothing is read that a hanging thread can block: no
memory (cmdline, environ, mem), no file of the file system. The file is that of the system call's first argument, by
its mnt_id (fdinfo). Of a call without a file, as of io_submit, it is known where the process has open files to write
on one file system only; of one with a path it isn't known.
"""

from __future__ import annotations

import os
import platform
import random
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.capture.mounts import Mount, Mounts, MountTable, mount_name
from latmon.model.frame import FROZEN, SERVER, FileSystem
from latmon.model.measurements import FILE_SERVERS, HUNG_OPERATIONS, SERVER_WAITS
from latmon.model.measurements.hung_operations import HungOperation, HungTime
from latmon.model.measurements.server_waits import ServerWait, WaitedTime
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.file_servers import FoundServers, file_servers
from latmon_backends.kernel.paced_looks import LEAST_US, PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_THREADS, _MOST_WAITS, _MOST_FILES = 20_000, 200, 256
_MOST_PAGE_WAITS = 100
"""Threads on local disks wait for pages, too: they leave room for the others."""
_MOST_OF_PROCESS = 20
"""Threads of one process that are looked at: hundreds that wait leave room for other programs."""
_MOST_NAMESPACES, _MOST_NAMESPACE_BYTES = 16, 1 << 20
"""Other mount namespaces of which a look reads the mounts, and bytes of each: 1 MiB has about 7,000 mounts."""
_WALK_SHARE = 200
"""All threads are looked at after so many times the CPU time that it takes: 0.5 % of a CPU."""
_WATCHED_LOOKS = 10
"""A thread that waited for a server is looked at so often after that: its time without waits belongs to its share."""
_MOST_LATE_S = 0.9
"""A look is so much late at most, by chance: samples are 1 s apart, and the next one takes the result."""
_SERVERS_SHARE, _LEAST_SERVERS_US = 200, 60_000_000
"""Servers of FUSE are looked for after so many times the CPU time that it takes, and once a minute at most."""


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
_FRAME = re.compile(rb"^\[<\w+>\] ([\w.]+)\+", re.MULTILINE)
_SWITCHES = re.compile(rb"^(?:non)?voluntary_ctxt_switches:\s*(\d{1,20})$", re.MULTILINE)
_CALL = re.compile(rb"(-?\d{1,10}) 0x([0-9a-f]{1,16})\b")
_MOUNT_ID = re.compile(rb"^mnt_id:\s*(\d{1,10})$", re.MULTILINE)
_FLAGS = re.compile(rb"^flags:\s*([0-7]{1,12})$", re.MULTILINE)
_PAGE_FAULT = -1
_WITHOUT_FILE: Mapping[str, frozenset[int]] = MappingProxyType(
    {"x86_64": frozenset((209, 426, _PAGE_FAULT)), "aarch64": frozenset((2, 426, _PAGE_FAULT))}
)
"""Machine -> io_submit, io_uring_enter, page fault: the file is one that is open."""
_OF_TWO_FILES: Mapping[str, frozenset[int]] = MappingProxyType(
    {"x86_64": frozenset((40, 275, 326)), "aarch64": frozenset((71, 76, 285))}
)
"""Machine -> sendfile, splice, copy_file_range: which of the files it waits for is not known."""
_LOCKS: Mapping[str, frozenset[int]] = MappingProxyType({"x86_64": frozenset((72, 73)), "aarch64": frozenset((25, 32))})
"""Machine -> fcntl, flock: they wait for a server as long as another program has the lock, which is no silence."""
_ELSEWHERE = Mount("", "", "", "")
"""A mount that is known to be none of latmon's namespace: one of a container, or one that was detached (umount -l)."""
_Thread = tuple[str, str]
"""Numbers of the process and of the thread."""


class _Wait(NamedTuple):
    """A thread that waits."""

    function: bytes
    switches: int
    """Context switches until now: they tell one wait from the next one."""
    row: HungOperation | None
    """None: it isn't an operation on files, or not known which."""
    server: ServerWait | None
    """None: it waits for none."""
    since_us: int
    """The first look that saw it."""
    looks_since: int = 0
    """Looks after the last one that saw the thread wait for its server: above 0 it waits for none now."""


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
    """Those of FUSE, as of the last time that they were looked for."""
    servers_due_us: int = 0
    """When they are looked for again, if programs wait for them."""


def _size(gained: HungTime) -> int:
    return gained.threads_us


def _waited(gained: WaitedTime) -> int:
    return gained.waited_us


def _served(gained: int) -> int:
    return gained


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
            BoundedSums(HUNG_OPERATIONS, _size),
            BoundedSums(SERVER_WAITS, _waited),
            BoundedSums(FILE_SERVERS, _served),
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
        server_waits = _server_waits(before, now)
        has_fuse = any(_is_of_fuse(wait) and waited.waited_us for wait, waited in server_waits.items())
        fuse_us = now.mono_us - before.mono_us if has_fuse else 0
        return {
            HUNG_OPERATIONS: _gains(before, now),
            SERVER_WAITS: server_waits,
            FILE_SERVERS: dict.fromkeys(now.servers.servers, fuse_us) if fuse_us else {},
        }

    def pause_us(self, look: Look) -> int:
        """Return the time until a look finds more: none where operations on files wait, else that to the next walk."""
        has_operations = any(wait.row is not None or wait.server is not None for wait in look.waits.values())
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
        has_oldest_ended = oldest_now[row] > oldest_before[row]
        gains[row] = HungTime(us, us * len(waits), int(is_new or has_oldest_ended))
    return gains


def _server_waits(before: Look, now: Look) -> dict[ServerWait, WaitedTime]:
    """Return the time between two looks in which the threads that are watched waited for a server, and their switches.

    It is known of a thread that has not run in between. Else a look that finds it waiting counts for the time since the
    look before was due, and other looks don't count: on average over the looks, which come by chance, that is its time.
    The look that saw a thread first is not counted: it is watched because it waited then.
    """
    gains: dict[ServerWait, WaitedTime] = {}
    for thread, wait in now.waits.items():
        was = before.waits.get(thread)
        if wait.server is None or was is None or was.server is None or wait.switches < was.switches:
            continue
        sleeps = wait.switches - was.switches
        waited_us = now.mono_us - before.mono_us if sleeps else now.seen_us - before.seen_us
        if wait.looks_since:
            waited_us = 0
        gained = gains.get(wait.server, WaitedTime(0))
        gains[wait.server] = WaitedTime(gained.waited_us + waited_us, gained.sleeps + sleeps)
    return gains


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
    walked_ns = 0
    if mono_us < walk_due_us:
        functions = _functions(proc, known)
    else:
        threads, walked_to = _threads(proc, walked_to)
        functions = _functions(proc, dict.fromkeys((*known, *threads)))
        walked_ns = time.thread_time_ns() - begun_ns
        walk_due_us = mono_us + max(LEAST_US, _WALK_SHARE * walked_ns // 1000)
    mounts = _MountsOfThreads(proc, sys, mount_table)
    waits: dict[_Thread, _Wait] = {}
    for thread, function in functions.items():
        switches = _switches(proc, thread)
        if switches is None:
            continue
        was = known.get(thread)
        if was is not None and (was.function, was.switches) == (function, switches):
            waits[thread] = was
        else:
            row, server = _operation(proc, thread, function, mounts)
            waits[thread] = _Wait(function, switches, row, server, mono_us)
    for thread, was in known.items():
        is_watched = was.server is not None and was.looks_since < _WATCHED_LOOKS and len(waits) < _MOST_WAITS
        has_wait = thread in waits and (waits[thread].row is not None or waits[thread].server is not None)
        switches = _switches(proc, thread) if is_watched and not has_wait else None
        if switches is not None:
            waits[thread] = _Wait(b"", switches, None, was.server, mono_us, was.looks_since + 1)
    spent_us = (time.thread_time_ns() - begun_ns - walked_ns) // 1000
    servers, servers_due_us = _file_servers(proc, mount_table, mono_us, before, waits)
    return Look(mono_us, mono_us, spent_us, walk_due_us, walked_to, waits, servers, servers_due_us)


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
    return functions | page_waits


def _switches(proc: Path, thread: _Thread) -> int | None:
    """Return how often a thread has left its CPU; None of one that has ended, and of a kernel thread."""
    status = content(f"{proc}/{thread[0]}/task/{thread[1]}/status")
    counts = _SWITCHES.findall(status)
    if not counts or b"\nVmSize:" not in status:  # a kernel thread has no memory of its own
        return None
    return sum(map(int, counts))


def _operation(
    proc: Path, thread: _Thread, function: bytes, mounts: _MountsOfThreads
) -> tuple[HungOperation | None, ServerWait | None]:
    """Return the operation that a thread waits in, and the server that it waits for; None: there is none."""
    pid, tid = thread
    is_frozen = function in _FREEZE_WAITS
    if is_frozen and not _is_of_files(content(f"{proc}/{pid}/task/{tid}/stack")):
        return None, None
    call = content(f"{proc}/{pid}/task/{tid}/syscall")
    if _is_lock(call):
        return None, None
    mount = mounts.of_call(pid, call)
    if function in _SERVERS:
        mount = mounts.with_server(pid, mount, _SERVERS[function].kinds)
    if function in _PAGE_WAITS and (mount is None or not mount.is_remote):
        return None, None
    process = row_name_of(proc, pid)
    if mount is None and not is_frozen:  # nothing says which of the servers it is
        return None, ServerWait("", _SERVERS[function].name, process)
    file_system = FileSystem("") if mount is None else mounts.file_system(mount)
    cause = FROZEN if is_frozen else SERVER
    row = HungOperation(file_system.device, file_system.mount, file_system.kind, cause, process)
    return row, None if is_frozen else ServerWait(file_system.mount, file_system.kind, process)


def _is_lock(call: bytes) -> bool:
    """Return whether a system call may wait for a lock of a file."""
    found = _CALL.match(call)
    return found is not None and int(found[1]) in _LOCKS.get(platform.machine(), ())


def _is_of_files(stack: bytes) -> bool:
    """Return whether a semaphore that a thread waits for is that of a frozen file system, by its caller."""
    callers = (function for function in _FRAME.findall(stack) if function not in _FREEZE_WAITS)
    return bool(_OF_FILES.match(next(callers, b"")))


def _beginning(mountinfo: Path) -> bytes:
    """Return the first bytes of a file of mounts; none where it can't be read."""
    try:
        with mountinfo.open("rb") as file:
            return file.read(_MOST_NAMESPACE_BYTES)
    except OSError:
        return b""


class _MountsOfThreads:
    """Mounts of what threads wait for, of one look."""

    def __init__(self, proc: Path, sys: Path, table: MountTable) -> None:
        self._proc, self._sys, self._table = proc, sys, table
        self._disks: dict[int, str] = {}
        self._others: dict[str, Mapping[int, Mount]] = {}
        """Mounts of other namespaces, by the namespace."""

    def of_call(self, pid: str, call: bytes) -> Mount | None:
        """Return the mount of the file that a system call works on; None: not known."""
        found = _CALL.match(call)
        machine = platform.machine()
        if found is None or int(found[1]) in _WITHOUT_FILE.get(machine, ()):
            return self._of_open_files(pid)
        if int(found[1]) in _OF_TWO_FILES.get(machine, ()):
            return None
        return self._of_file(pid, int(found[2], 16))

    def with_server(self, pid: str, mount: Mount | None, kinds: re.Pattern[str]) -> Mount | None:
        """Return the mount where it is of a kind of server, else None; where none is known, the only one of the kind.

        A process of another mount namespace, such as a container's, may wait for a mount that isn't one of this host's.
        """
        if mount is not None:
            return mount if kinds.fullmatch(mount.kind) else None
        namespace = self._namespace(pid)
        return self._only_one(kinds) if namespace and namespace == self._namespace("self") else None

    def file_system(self, mount: Mount) -> FileSystem:
        """Return the file system of a mount; of one with a server by its usual mount, as its other numbers are."""
        if mount.is_remote:
            mount = self._own.usual[mount.number]
        return FileSystem(mount_name(mount.point), mount.kind, self._disk(mount))

    def _of_file(self, pid: str, number: int) -> Mount | None:
        info = content(f"{self._proc}/{pid}/fdinfo/{number}") if number < 1 << 31 else b""
        return self._of_info(pid, info)

    def _of_info(self, pid: str, info: bytes) -> Mount | None:
        found = _MOUNT_ID.search(info)
        if found is None:
            return None
        number = int(found[1])
        mount = self._own.by_number_of_mount.get(number)
        if mount is None:  # of another mount namespace: its path there is another one, or another file system's, here
            there = self._in_namespace_of(pid).get(number)
            mount = self._own.usual.get(there.number, _ELSEWHERE) if there is not None else _ELSEWHERE
        return mount

    def _in_namespace_of(self, pid: str) -> Mapping[int, Mount]:
        """Return the mounts in the namespace of a process, by mnt_id: each namespace is read once; none of too many."""
        namespace = self._namespace(pid)
        if namespace not in self._others:
            if not namespace or len(self._others) >= _MOST_NAMESPACES:
                return {}
            text = _beginning(self._proc / pid / "mountinfo")
            self._others[namespace] = Mounts(text).by_number_of_mount
        return self._others[namespace]

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

    def _namespace(self, pid: str) -> str:
        """Return the mount namespace of a process; empty where it can't be read."""
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/mnt")  # noqa: PTH115 - no paths of hundreds
        except OSError:
            return ""

    def _only_one(self, kinds: re.Pattern[str]) -> Mount | None:
        """Return the only mount of some kinds; None where there are several."""
        mounts = [mount for mount in self._own.usual.values() if kinds.fullmatch(mount.kind)]
        return mounts[0] if len(mounts) == 1 else None

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
