"""What mounts say about the disks of their file systems, in one walk over all of them.

A host with containers has thousands of mounts, of which hardly one says anything: each is looked at once every 5 s, and
its disk is looked up only then. Of several file systems on a disk the first one with a report of a kind has it.

With `sync` or `dirsync` among the options of the file system (fs/proc_namespace.c show_sb_opts()) each write, or each
change of a directory, is on the disk, with its journal's commit and a flush, before the call returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from latmon.capture.mounts import Mount, MountTable, mount_name
from latmon.model.frame import MOUNTED_DIRSYNC, MOUNTED_SYNC, DeviceReport
from latmon_backends.kernel.log_devices import DiskAt, DiskOf, ext4_journals, xfs_log
from latmon_backends.kernel.read_only_mounts import ReadOnlyMounts

_AGAIN_S = 5
"""Seconds between two walks: mounts are rare."""
_SYNC_OPTIONS = {"sync": MOUNTED_SYNC, "dirsync": MOUNTED_DIRSYNC}
_SOURCE = "/proc/self/mountinfo"


class MountReportReader:
    """The disks with such reports, read again after `_AGAIN_S`."""

    def __init__(self, proc: Path, sys: Path, mounts: MountTable, wall: Callable[[], float] = time.time) -> None:
        self._proc, self._sys, self._mounts = proc, sys, mounts
        self._read_only = ReadOnlyMounts(sys, wall)
        self._due_s = 0
        self.reports: dict[str, tuple[DeviceReport, ...]] = {}

    def refresh(self, now_s: int, disk_of: DiskOf, disk_at: DiskAt, shut_down: Collection[int] = ()) -> None:
        """Walk the mounts where that is due; `shut_down`: numbers of the mounts of file systems that are shut down."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + _AGAIN_S
        mounts = self._mounts.read()
        logs: dict[str, DeviceReport] = {}
        synchronous: dict[str, DeviceReport] = {}
        read_only: dict[str, tuple[DeviceReport, ...]] = {}
        for mount in mounts.usual.values():
            log = xfs_log(mount, disk_at)
            if log is not None:
                logs.setdefault(*log)
            sync_report = _sync_report(mount)
            is_shut_down = mount.number_of_mount in shut_down
            read_only_reports = tuple(self._read_only.reports_of(mounts, mount, is_shut_down=is_shut_down))
            disk = mounts.disk_of(mount, self._sys) if sync_report or read_only_reports else ""
            if disk and sync_report is not None:
                synchronous.setdefault(disk, sync_report)
            if disk and read_only_reports:
                read_only.setdefault(disk, read_only_reports)
        self._read_only.end_walk()
        for log in ext4_journals(self._proc, self._sys, disk_of):
            logs.setdefault(*log)
        reports: dict[str, tuple[DeviceReport, ...]] = {}
        for disk in (*logs, *synchronous, *read_only):
            own = (by_disk[disk] for by_disk in (logs, synchronous) if disk in by_disk)
            reports[disk] = (*own, *read_only.get(disk, ()))
        self.reports = reports


def _sync_report(mount: Mount) -> DeviceReport | None:
    """Return the report of a file system that is mounted with `sync` or `dirsync`."""
    if "sync" not in mount.options or mount.is_remote:
        return None
    names = [_SYNC_OPTIONS[option] for option in mount.options.split(",") if option in _SYNC_OPTIONS]
    return DeviceReport(names[0], mount_name(mount.point), _SOURCE) if names else None
