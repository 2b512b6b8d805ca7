"""Files that lines of the kernel's log call damaged, with a process that has them open.

A line of btrfs or ext4 has the number of the inode alone. A thread looks for it among the open files of all processes,
as seldom as 0.5 % of a CPU allows, and only after such lines: a link in /proc/PID/fd has the path, fdinfo the inode
(Linux 5.14) and the mount. No file is touched. Open files of other users' processes need root. Not found are files that
are mapped and closed, and those in subvolumes that are not mounted themselves.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from latmon.capture.mounts import Mount, Mounts, MountTable, mount_name
from latmon.model.measurements import DAMAGED_FILES
from latmon.model.measurements.file_system_errors import DamagedFile
from latmon.model.table import Tables
from latmon.support.paths import content, resolved
from latmon_backends.kernel.block_devices import whole_disk
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.file_system_errors import Inode
from latmon_backends.kernel.mount_namespaces import MountNamespaces
from latmon_backends.kernel.paced_looks import PacedLooks, Run
from latmon_backends.kernel.processes import pids, row_name_of

_MOST_PROCESSES, _MOST_FILES = 5_000, 4_096
_MOST_INODES = 16
"""Damaged files that are looked for at a time."""
_INODE = re.compile(rb"^ino:\s*(\d{1,20})$", re.MULTILINE)
_MOUNT_ID = re.compile(rb"^mnt_id:\s*(\d{1,10})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found out about the files that were reported since the look before."""

    mono_us: int
    spent_us: int
    reports: Mapping[DamagedFile, int] = field(default_factory=dict)


class DamagedFileReader(PacedLooks[Look]):
    """The looks for processes with damaged files."""

    def __init__(
        self,
        proc: Path,
        sys: Path,
        mounts: MountTable,
        run: Run[Look] | None = None,
        now_us: Callable[[], int] | None = None,
    ) -> None:
        super().__init__("damaged files", [BoundedSums(DAMAGED_FILES, int)], run, now_us)
        self._proc, self._sys, self._mounts = proc, sys, mounts
        self._lock = threading.Lock()
        self._reported: Counter[Inode] = Counter()
        self._last = Look(0, 0)

    @property
    def is_wanted(self) -> bool:
        """Return whether a damaged file was reported since the last look."""
        return bool(self._reported)

    def report(self, inodes: Mapping[Inode, int]) -> None:
        """Take the files that new lines of the kernel's log are about."""
        with self._lock:
            self._reported.update(inodes)

    def look(self, mono_us: int, _before: Look | None) -> Look:
        begun_ns = time.thread_time_ns()
        with self._lock:
            reported, self._reported = self._reported, Counter()
        inodes = dict(reported.most_common(_MOST_INODES))
        files = _open_files(self._proc, self._sys, self._mounts.read(), inodes)
        reports = {file: inodes[inode] for inode, file in files.items()}
        return Look(mono_us, (time.thread_time_ns() - begun_ns) // 1000, reports)

    def gains(self, _before: Look, now: Look) -> Tables:
        return {DAMAGED_FILES: now.reports}


def _open_files(proc: Path, sys: Path, mounts: Mounts, inodes: Mapping[Inode, int]) -> dict[Inode, DamagedFile]:
    """Return the damaged files that processes have open, each with the first of these processes."""
    files: dict[Inode, DamagedFile] = {}
    numbers = {inode.number for inode in inodes}
    namespaces = MountNamespaces(proc)
    for pid in pids(proc)[:_MOST_PROCESSES]:
        for (number, mount_id), path in _files_of(proc, pid, numbers).items():
            mount = mounts.by_number_of_mount.get(mount_id) or namespaces.mounts_of(str(pid)).get(mount_id)
            for disk in _disks(mounts, mount, sys):
                inode = Inode(disk, number)
                if inode in inodes and inode not in files:
                    files[inode] = DamagedFile(disk, mount_name(path), row_name_of(proc, pid))
        if len(files) == len(inodes):
            break
    return files


def _files_of(proc: Path, pid: int, numbers: set[int]) -> dict[tuple[int, int], str]:
    """Return the open files of a process that have one of these inodes: inode and mnt_id -> path.

    A process may have the same file open thousands of times, which is one then.
    """
    files: dict[tuple[int, int], str] = {}
    try:
        descriptors = os.listdir(f"{proc}/{pid}/fd")  # noqa: PTH208 - no paths of thousands
    except OSError:
        return files
    for descriptor in descriptors[:_MOST_FILES]:
        try:
            path = os.readlink(f"{proc}/{pid}/fd/{descriptor}")  # noqa: PTH115
        except OSError:
            continue
        if not path.startswith("/"):  # a socket, a pipe
            continue
        info = content(f"{proc}/{pid}/fdinfo/{descriptor}")
        inode, mount = _INODE.search(info), _MOUNT_ID.search(info)
        if inode is not None and mount is not None and int(inode[1]) in numbers:
            files.setdefault((int(inode[1]), int(mount[1])), path)
    return files


def _disks(mounts: Mounts, mount: Mount | None, sys: Path) -> Iterator[str]:
    """Yield the disks that a mount's file system is on: none of one with a server, whose source may be any path."""
    if mount is None or mount.is_remote:
        return
    for directory in mounts.block_directories(mount, sys):
        yield whole_disk(sys, resolved(directory).name.replace("!", "/"))
