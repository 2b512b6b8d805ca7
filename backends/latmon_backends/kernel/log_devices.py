"""Disks of file systems whose log is on another disk, as reports of these disks.

XFS shows `logdev=` among its mount options (xfs_fs_show_options). ext4 shows nothing: its journal's thread, whose pid
/sys/fs/ext4/DEVICE/journal_task has, is called `jbd2/JOURNAL`. JOURNAL is the file system's device with the number of
an inode (`sda1-8`) for a journal in the file system, and else the journal's device (`sdb1`), as in /proc/fs/jbd2
(fs/jbd2/journal.c, jbd2_journal_init_dev, jbd2_journal_init_inode). A kernel before 5.17 cuts a thread's name to 15
characters, so that the whole name is taken from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import MountTable
from latmon.model.frame import LOG_DEVICE, DeviceReport
from latmon.support.paths import content
from latmon.support.text import clean

_AGAIN_S = 5
"""Seconds between two readings: mounts are rare."""
_OPTION = "logdev="
_THREAD = "jbd2/"
_LONGEST_NAME = 15
"""Characters of a thread's name (include/linux/sched.h TASK_COMM_LEN)."""
_XFS_SOURCE, _EXT4_SOURCE = "/proc/self/mountinfo", "/proc/fs/jbd2"
DiskOf = Callable[[str], str]
"""Returns the disk of a block device's name; empty where none is known."""
DiskAt = Callable[[int, int], str]
"""Returns the disk with a device number, or with a partition of that number; empty where none is known."""


class _Log(NamedTuple):
    """A file system's disk, and the disk that its log is on."""

    disk: str
    log_disk: str
    source: str


class LogDeviceReader:
    """The disks of file systems with a log elsewhere, read again after `_AGAIN_S`."""

    def __init__(self, proc: Path, sys: Path, mounts: MountTable) -> None:
        self._proc, self._sys, self._mounts = proc, sys, mounts
        self._due_s = 0
        self.reports: dict[str, DeviceReport] = {}
        """Disk of a file system -> the disk of its log; of several file systems on a disk the first one's."""

    def refresh(self, now_s: int, disk_of: DiskOf, disk_at: DiskAt) -> None:
        """Read the mounts and the journals where that is due."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + _AGAIN_S
        reports: dict[str, DeviceReport] = {}
        for log in (*self._xfs_logs(disk_at), *self._ext4_journals(disk_of)):
            if log.disk and log.log_disk and log.disk != log.log_disk:
                reports.setdefault(log.disk, DeviceReport(LOG_DEVICE, log.log_disk, log.source))
        self.reports = reports

    def _xfs_logs(self, disk_at: DiskAt) -> Iterator[_Log]:
        # Thousands of mounts (of containers) are parsed only where one of them has the option.
        mounts = self._mounts.read()
        if not mounts.has_text(_OPTION.encode()):
            return
        for mount in mounts.all:
            for option in mount.options.split(","):
                if mount.kind == "xfs" and option.startswith(_OPTION):
                    log_disk = _disk_of_node(option.removeprefix(_OPTION), disk_at)
                    yield _Log(disk_at(*mount.number), log_disk, _XFS_SOURCE)

    def _ext4_journals(self, disk_of: DiskOf) -> Iterator[_Log]:
        journals = _names(self._proc / "fs/jbd2")
        for device in _names(self._sys / "fs/ext4"):
            task = content(self._sys / "fs/ext4" / device / "journal_task").strip()
            if not task.isdigit():  # the directory `features`, or no journal
                continue
            thread = os.fsdecode(content(self._proc / os.fsdecode(task) / "comm")).strip()
            own = f"{_THREAD}{device}-"
            if len(thread) == _LONGEST_NAME:  # which may be cut
                own = own[:_LONGEST_NAME]
            if not thread.startswith(_THREAD) or thread.startswith(own):
                continue
            beginning = thread.removeprefix(_THREAD)
            names = [name for name in journals if name.startswith(beginning)]
            exact = [name for name in names if name == beginning]
            for journal in exact or (names if len(names) == 1 else []):
                yield _Log(disk_of(device), disk_of(journal), _EXT4_SOURCE)


def _disk_of_node(path: str, disk_at: DiskAt) -> str:
    """Return the disk of a device node; empty where there is none, as in another mount namespace."""
    if not path.startswith("/dev/"):  # stat(2) of a path on a silent server would not return
        return ""
    try:
        number = os.stat(path).st_rdev  # noqa: PTH116 - a text that stays one
    except (OSError, ValueError):  # ValueError: no name of a file
        return ""
    return disk_at(os.major(number), os.minor(number))


def _names(directory: Path) -> list[str]:
    try:
        return sorted(clean(name) for name in os.listdir(directory))  # noqa: PTH208 - names alone
    except OSError:
        return []
