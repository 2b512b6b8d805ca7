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

from latmon.capture.mounts import Mount
from latmon.model.frame import LOG_DEVICE, DeviceReport
from latmon.support.paths import content
from latmon.support.text import clean

_OPTION = "logdev="
_THREAD = "jbd2/"
_LONGEST_NAME = 15
"""Characters of a thread's name (include/linux/sched.h TASK_COMM_LEN)."""
_XFS_SOURCE, _EXT4_SOURCE = "/proc/self/mountinfo", "/proc/fs/jbd2"
DiskOf = Callable[[str], str]
"""Returns the disk of a block device's name; empty where none is known."""
DiskAt = Callable[[int, int], str]
"""Returns the disk with a device number, or with a partition of that number; empty where none is known."""


class Log(NamedTuple):
    """The disk of a file system whose log is on another disk."""

    disk: str
    report: DeviceReport


def xfs_log(mount: Mount, disk_at: DiskAt) -> Log | None:
    """Return the log of a file system on XFS that is on another disk; None: it isn't, or not known."""
    if mount.kind != "xfs" or _OPTION not in mount.options:
        return None
    for option in mount.options.split(","):
        if option.startswith(_OPTION):
            log_disk = _disk_of_node(option.removeprefix(_OPTION), disk_at)
            return _log(disk_at(*mount.number), log_disk, _XFS_SOURCE)
    return None


def ext4_journals(proc: Path, sys: Path, disk_of: DiskOf) -> Iterator[Log]:
    """Yield the journals of ext4 that are on another disk."""
    journals = _names(proc / "fs/jbd2")
    for device in _names(sys / "fs/ext4"):
        task = content(sys / "fs/ext4" / device / "journal_task").strip()
        if not task.isdigit():  # the directory `features`, or no journal
            continue
        thread = os.fsdecode(content(proc / os.fsdecode(task) / "comm")).strip()
        own = f"{_THREAD}{device}-"
        if len(thread) == _LONGEST_NAME:  # which may be cut
            own = own[:_LONGEST_NAME]
        if not thread.startswith(_THREAD) or thread.startswith(own):
            continue
        beginning = thread.removeprefix(_THREAD)
        names = [name for name in journals if name.startswith(beginning)]
        exact = [name for name in names if name == beginning]
        for journal in exact or (names if len(names) == 1 else []):
            log = _log(disk_of(device), disk_of(journal), _EXT4_SOURCE)
            if log is not None:
                yield log


def _log(disk: str, log_disk: str, source: str) -> Log | None:
    return Log(disk, DeviceReport(LOG_DEVICE, log_disk, source)) if disk and log_disk and disk != log_disk else None


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
