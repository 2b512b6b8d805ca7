"""Disks of file systems that are mounted with `sync` or `dirsync`, as reports of these disks.

mountinfo has both among the options of the file system (fs/proc_namespace.c show_sb_opts()): each write, or each change
of a directory, is on the disk, with its journal's commit and a flush, before the call returns.
"""

from __future__ import annotations

from pathlib import Path

from latmon.capture.mounts import MountTable, mount_name
from latmon.model.frame import MOUNTED_DIRSYNC, MOUNTED_SYNC, DeviceReport

_AGAIN_S = 5
"""Seconds between two readings: mounts are rare."""
_REPORTS = {"sync": MOUNTED_SYNC, "dirsync": MOUNTED_DIRSYNC}
_SOURCE = "/proc/self/mountinfo"


class SyncMountReader:
    """The disks with such a file system, read again after `_AGAIN_S`."""

    def __init__(self, sys: Path, mounts: MountTable) -> None:
        self._sys, self._mounts = sys, mounts
        self._due_s = 0
        self.reports: dict[str, DeviceReport] = {}
        """Disk -> its first such file system."""

    def refresh(self, now_s: int) -> None:
        """Read the mounts where that is due."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + _AGAIN_S
        reports: dict[str, DeviceReport] = {}
        mounts = self._mounts.read()
        # Thousands of mounts (of containers) are parsed only where one of them may have the option.
        for mount in mounts.usual.values() if mounts.has_text(b"sync") else ():
            names = [_REPORTS[option] for option in mount.options.split(",") if option in _REPORTS]
            disk = mounts.disk_of(mount, self._sys) if names and not mount.is_remote else ""
            if disk:
                reports.setdefault(disk, DeviceReport(names[0], mount_name(mount.point), _SOURCE))
        self.reports = reports
