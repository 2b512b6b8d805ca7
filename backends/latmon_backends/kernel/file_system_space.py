"""Free blocks and inodes of writable file systems on block devices, by statvfs(3), every 5 s.

A call may never return: a device may be lost, and a mount above the path may be of a silent server. So each file system
is asked on a thread of its own. One that does not answer keeps that thread, and is not asked again before the answer is
there. Mounts of servers are not asked, and neither is what lies below one. An automount is left alone, too: to ask it
would keep it mounted. A notice says how many file systems on watched devices are not asked, and why.

XFS that was shut down after an error still answers, and mountinfo does not have it. So its root is looked at as well
(fstat(2)), which fails with EIO then (fs/xfs/xfs_iops.c xfs_vn_getattr()).

A mount point may be another file system's by now, or be covered by one. So it is opened (O_PATH, which asks no file
system for anything), and its mnt_id is compared.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import Mount, Mounts, MountTable, mount_name
from latmon.model.measurements import FILE_SYSTEM_SPACE
from latmon.model.measurements.file_system_space import SpaceLooks, SpaceOf
from latmon.model.table import Tables
from latmon.support.paths import content
from latmon.support.process import run_aside
from latmon.support.units import counted
from latmon_backends.kernel.bounded_sums import BoundedSums
from latmon_backends.kernel.paced_looks import PacedLooks, Run

_AGAIN_US = 4_900_000
"""About 5 s: some samples come a little early."""
_ACTIVE_US = 300_000_000
_PATIENCE_S = 1.0
_MOST_FILE_SYSTEMS, _MOST_ROWS = 64, 32
_MOST_HUNG = 8
"""Threads that wait for an answer, after which no file system is asked: something that all of them need hangs."""
_NO_ANSWER, _BELOW_SERVER = "without an answer", "below the mount of a server or an automount"
_TOO_MANY = f"beyond the first {_MOST_FILE_SYSTEMS}"
"""Reasons why a file system is not asked."""
WRITABLE_KINDS = frozenset(
    (
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs", "reiserfs", "nilfs2", "bcachefs"),
        *("vfat", "exfat", "ntfs3"),
    )
)
"""Types of images that are full by design (squashfs, iso9660, erofs) are not among them."""
_MOUNT_ID = re.compile(rb"^mnt_id:\s*(\d{1,10})$", re.MULTILINE)
_SECTOR = 512
_SECTORS_WRITTEN = 6
"""Place in the file `stat` of a block device (Documentation/block/stat.rst)."""


class Space(NamedTuple):
    """An answer of statvfs(3)."""

    size_bytes: int
    available_bytes: int
    free_bytes: int
    inodes: int
    free_inodes: int
    is_shut_down: bool = False
    """Whether all calls on its files fail, after an error."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file system at one look."""

    number_of_mount: int
    space: Space
    written: int
    """Bytes written to its devices since they exist."""
    gained: int
    """They were written since the look before."""
    last_written_us: int | None
    """The last look that saw it written; None: no look did."""


@dataclass(frozen=True, slots=True)
class Look:
    """The file systems at one moment."""

    mono_us: int
    spent_us: int
    file_systems: Mapping[SpaceOf, _Seen]
    not_asked: Mapping[str, int] = field(default_factory=dict)
    """Reason -> file systems on watched devices whose space is not known."""


Ask = Callable[[Mount], Space | None]
"""Returns the space of a mount's file system; None where its mount point is another one's now."""


class SpaceReader(PacedLooks[Look]):
    """The looks at file systems on devices that are watched."""

    def __init__(
        self,
        proc: Path,
        sys: Path,
        mounts: MountTable,
        *,
        run: Run[Look] | None = None,
        now_us: Callable[[], int] | None = None,
        ask: Ask | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`ask`: in place of the kernel; `patience_s`: after that time a file system hangs."""
        sums = BoundedSums(FILE_SYSTEM_SPACE, _used_share, most_rows=_MOST_ROWS)
        super().__init__("free space", [sums], run, now_us)
        self._sys, self._mounts = sys, mounts
        self._ask: Ask = partial(ask_kernel, proc) if ask is None else ask
        self._patience_s = patience_s
        self._hung: dict[tuple[int, int], Future[Space | None]] = {}
        """Device number of a file system -> its answer, which is not there yet. Used on the thread of a look only."""
        self._devices: Collection[str] = ()

    @property
    def is_possible(self) -> bool:
        """Return whether file systems can be asked, so that no row means that there is none."""
        mounts = self._mounts.read()
        return bool(mounts.all) and "/" not in _unsafe_points(mounts)

    @property
    def left_out(self) -> str:
        not_asked = _not_asked_text(self._last.not_asked) if self._last is not None else ""
        return "; ".join(filter(None, (super().left_out, not_asked)))

    @property
    def shut_down(self) -> frozenset[int]:
        """Return the numbers of the mounts (mnt_id) whose file systems were shut down, as of the last look."""
        seen = self._last.file_systems.values() if self._last is not None else ()
        return frozenset(row.number_of_mount for row in seen if row.space.is_shut_down)

    def watch(self, devices: Collection[str]) -> None:
        """Look at the file systems on these disks from now on."""
        self._devices = devices

    def look(self, mono_us: int, before: Look | None) -> Look:
        begun_ns = time.thread_time_ns()
        mounts = self._mounts.read()
        earlier = before.file_systems if before is not None else {}
        seen: dict[SpaceOf, _Seen] = {}
        local, not_asked = self._local(mounts)
        for device, mount in local:
            space = self._answer(mount, not_asked)
            if space is not None and space.size_bytes:
                key = SpaceOf(device, mount_name(mount.point), mount.kind)
                seen[key] = _seen(mount, space, self._written(mounts, mount), mono_us, earlier.get(key))
        spent_us = (time.thread_time_ns() - begun_ns) // 1000
        return Look(mono_us, spent_us, seen, not_asked)

    def gains(self, _before: Look, now: Look) -> Tables:
        return {FILE_SYSTEM_SPACE: {key: _row(seen, now.mono_us) for key, seen in now.file_systems.items()}}

    def pause_us(self, _look: Look) -> int:
        return _AGAIN_US

    def _local(self, mounts: Mounts) -> tuple[list[tuple[str, Mount]], Counter[str]]:
        """Return the file systems that can be asked, each with its disk; and how many are not asked, by the reason."""
        devices = self._devices
        unsafe = _unsafe_points(mounts)
        local: list[tuple[str, Mount]] = []
        not_asked: Counter[str] = Counter()
        for mount in mounts.usual.values():
            if mount.kind not in WRITABLE_KINDS or not _is_writable(mount):
                continue
            device = mounts.disk_of(mount, self._sys)
            if device not in devices:
                continue
            if any(_is_at_or_below(mount.point, point) for point in unsafe):
                not_asked[_BELOW_SERVER] += 1
            elif len(local) >= _MOST_FILE_SYSTEMS:
                not_asked[_TOO_MANY] += 1
            else:
                local.append((device, mount))
        return local, not_asked

    def _answer(self, mount: Mount, not_asked: Counter[str]) -> Space | None:
        """Return the space of a file system; None while it hangs, which is counted, and where it is gone."""
        self._hung = {number: answer for number, answer in self._hung.items() if not answer.done()}
        if mount.number in self._hung or len(self._hung) >= _MOST_HUNG:
            not_asked[_NO_ANSWER] += 1
            return None
        answer = run_aside("statvfs", partial(self._ask, mount))
        try:
            return answer.result(timeout=self._patience_s)
        except TimeoutError:
            self._hung[mount.number] = answer
            not_asked[_NO_ANSWER] += 1
        except OSError:  # it is gone, or may not be reached
            pass
        return None

    def _written(self, mounts: Mounts, mount: Mount) -> int:
        """Return the bytes written to the disks or partitions of a file system."""
        written = 0
        for directory in mounts.block_directories(mount, self._sys):
            fields = content(directory / "stat").split()
            if len(fields) > _SECTORS_WRITTEN:
                written += _SECTOR * int(fields[_SECTORS_WRITTEN])
        return written


def ask_kernel(proc: Path, mount: Mount) -> Space | None:
    """Ask the kernel for the space of a mount's file system."""
    file = os.open(mount.point, os.O_PATH | os.O_CLOEXEC)
    try:
        number = _MOUNT_ID.search(content(proc / f"self/fdinfo/{file}"))
        if number is None or int(number[1]) != mount.number_of_mount:
            return None
        answer = os.fstatvfs(file)
        is_shut_down = mount.kind == "xfs" and _fails(file)
    finally:
        os.close(file)
    unit = answer.f_frsize
    sizes = answer.f_blocks * unit, answer.f_bavail * unit, answer.f_bfree * unit
    return Space(*sizes, answer.f_files, answer.f_favail, is_shut_down)


def _fails(file: int) -> bool:
    """Return whether a look at an open directory fails with EIO."""
    try:
        os.fstat(file)
    except OSError as error:
        return error.errno == errno.EIO
    return False


def _unsafe_points(mounts: Mounts) -> list[str]:
    """Return the mount points below which no file system is asked."""
    return [mount.point for mount in mounts.all if mount.is_remote or mount.kind == "autofs"]


def _not_asked_text(not_asked: Mapping[str, int]) -> str:
    if not not_asked:
        return ""
    reasons = ", ".join(f"{number} {reason}" for reason, number in not_asked.items())
    return f"free space is not known of {counted(sum(not_asked.values()), 'file system')}: {reasons}"


def _is_writable(mount: Mount) -> bool:
    return "ro" not in mount.options.split(",")


def _is_at_or_below(path: str, directory: str) -> bool:
    return directory in ("/", path) or path.startswith(f"{directory}/")


def _seen(mount: Mount, space: Space, written: int, mono_us: int, before: _Seen | None) -> _Seen:
    gained, last_written_us = 0, None
    if before is not None and before.number_of_mount == mount.number_of_mount:
        gained = max(0, written - before.written)
        last_written_us = before.last_written_us
        # Without iostats the device counts nothing, but what is free changes.
        if gained or space != before.space:
            last_written_us = mono_us
    return _Seen(mount.number_of_mount, space, written, gained, last_written_us)


def _row(seen: _Seen, mono_us: int) -> SpaceLooks:
    is_active = seen.last_written_us is not None and mono_us - seen.last_written_us <= _ACTIVE_US
    space = seen.space
    sizes = space.size_bytes, space.available_bytes, space.free_bytes
    return SpaceLooks(1, *sizes, space.inodes, space.free_inodes, seen.gained, int(is_active))


def _used_share(row: SpaceLooks) -> float:
    """Return the share of a file system's blocks or inodes that is used, the greater one."""
    used = 1 - row.available_bytes / row.size_bytes
    return max(used, 1 - row.free_inodes / row.inodes) if row.inodes else used
