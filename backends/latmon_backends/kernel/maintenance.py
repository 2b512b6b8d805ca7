"""Maintenance of md arrays and btrfs file systems that runs now, by sysfs.

md has one file per array (Documentation/admin-guide/md.rst, sync_action), btrfs one per file system for work that
excludes other such work (fs/btrfs/sysfs.c, exclusive_operation, Linux 5.10). A scrub of btrfs and one of ZFS have no
file in sysfs. Nothing is read where there is neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from latmon.model.frame import Device
from latmon.model.measurements.maintenance import Maintenance
from latmon_backends.kernel.block_devices import attribute, below, names, whole_disk

_MOST = 64
"""Arrays, and file systems, that are read: a file of sysfs takes some 10 us."""
_MD_WORK = frozenset(("check", "repair", "resync", "recover", "reshape"))
_BTRFS_WORK = frozenset(("balance", "device remove", "device replace", "resize"))
"""Without what moves no data: `none`, `balance paused`, `device add`, `swap activate`."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class MaintenanceReader:
    """Reads what runs on the devices of a host."""

    def __init__(self, sys: Path) -> None:
        self._sys, self._block, self._btrfs = sys, sys / "block", sys / "fs/btrfs"
        self._devices: Mapping[str, Device] = {}
        self._arrays: tuple[str, ...] = ()

    def sample(self, devices: Mapping[str, Device]) -> frozenset[Maintenance]:
        """Return the work that runs on these devices now."""
        if devices is not self._devices:
            self._devices = devices
            self._arrays = tuple(device.name for device in devices.values() if device.kind == "md")[:_MOST]
        return frozenset((*self._of_arrays(), *self._of_file_systems(devices)))

    def _of_arrays(self) -> Iterator[Maintenance]:
        for name in self._arrays:
            action = attribute(below(self._block, name, "md/sync_action"))
            # An array that shares a disk with another one waits for that, with the same action.
            if action in _MD_WORK and attribute(below(self._block, name, "md/sync_completed")) != "delayed":
                yield Maintenance(name, f"md {action}")

    def _of_file_systems(self, devices: Mapping[str, Device]) -> Iterator[Maintenance]:
        for uuid in [name for name in names(self._btrfs) if _UUID.fullmatch(name)][:_MOST]:
            action = attribute(self._btrfs / uuid / "exclusive_operation")
            if action not in _BTRFS_WORK:
                continue
            for part in names(self._btrfs / uuid / "devices"):
                disk = whole_disk(self._sys, part.replace("!", "/"))
                if disk in devices:
                    yield Maintenance(disk, f"btrfs {action}")
