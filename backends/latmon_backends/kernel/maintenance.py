"""Maintenance of md arrays and btrfs file systems that runs now, by sysfs and by the state of btrfs-progs.

md has one file per array (Documentation/admin-guide/md.rst, sync_action), btrfs one per file system for work that
excludes other such work (fs/btrfs/sysfs.c, exclusive_operation, Linux 5.10). A scrub of btrfs has none: while
`btrfs scrub` runs, it writes its state to a file of its own every 5 s (cmds/scrub.c of btrfs-progs). One of ZFS has no
file either. Nothing is read where there is neither.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from latmon.model.frame import Device
from latmon.model.measurements.maintenance import Maintenance
from latmon.support.paths import content
from latmon_backends.kernel.block_devices import attribute, below, names, whole_disk

_MOST = 64
"""Arrays, and file systems, that are read: a file of sysfs takes some 10 us."""
_MD_WORK = frozenset(("check", "repair", "resync", "recover", "reshape"))
_BTRFS_WORK = frozenset(("balance", "device remove", "device replace", "resize"))
"""Without what moves no data: `none`, `balance paused`, `device add`, `swap activate`."""
_SCRUB_STATE = "var/lib/btrfs/scrub.status."
"""Beginning of the path of a file system's state of its last scrub, below the root."""
_SCRUB_FRESH_S = 12.0
"""A scrub that runs has written its state since: twice, of which one may be late."""
_MAX_SCRUB_STATE = 1 << 20
"""Bytes: a line of 400 per disk."""
_SCRUB_RUNS = b"|canceled:0|finished:0"
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class MaintenanceReader:
    """Reads what runs on the devices of a host."""

    def __init__(self, sys: Path, now: Callable[[], float] = time.time) -> None:
        """`sys` is below the root of the host's files; `now`: Unix time."""
        self._sys, self._block, self._btrfs = sys, sys / "block", sys / "fs/btrfs"
        self._now = now
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
            works = [action] if action in _BTRFS_WORK else []
            works += ["scrub"] if self._is_scrubbed(uuid) else []
            disks = {whole_disk(self._sys, part.replace("!", "/")) for part in self._parts(uuid)} if works else set()
            yield from (Maintenance(disk, f"btrfs {work}") for work in works for disk in disks if disk in devices)

    def _parts(self, uuid: str) -> tuple[str, ...]:
        """Return the disks and partitions of a file system."""
        return names(self._btrfs / uuid / "devices")

    def _is_scrubbed(self, uuid: str) -> bool:
        """Return whether `btrfs scrub` runs. The state of one that was killed is taken for that until it is old."""
        state = Path(f"{self._sys.parent}/{_SCRUB_STATE}{uuid}")
        try:
            written = state.stat()
        except OSError:
            return False
        is_file = stat.S_ISREG(written.st_mode) and 0 < written.st_size <= _MAX_SCRUB_STATE
        if not is_file or not 0 <= self._now() - written.st_mtime <= _SCRUB_FRESH_S:
            return False
        text = content(state)
        return not text or _SCRUB_RUNS in text  # only root may read it, and all may see its age
