"""Disks of file systems that the kernel made read-only after an error, as reports of these disks.

A mount that is writable by its own options, of a file system that is read-only, was made so by the kernel: mountinfo
has both (fs/proc_namespace.c show_mountinfo()). ext4 after an error is `ro` there before Linux 6.12, and
`emergency_ro` or `shutdown` among its options since 6.15 (fs/ext4/super.c _ext4_show_options()). XFS that is shut down
is not in mountinfo: who looks at free space sees it. ext4 has the time and the place of its last error in sysfs.

A remount through one mount point makes the file system read-only for all others, on purpose. So a mount of the same
file system with `ro` leaves the rest undecided, except where ext4 counts errors. Types that are always read-only, such
as squashfs, are not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType

from latmon.capture.mounts import Mount, Mounts, mount_name
from latmon.model.frame import READ_ONLY_CAUSE, READ_ONLY_KIND, READ_ONLY_MOUNT, READ_ONLY_SINCE, DeviceReport
from latmon.support.paths import content, resolved
from latmon.support.text import clean
from latmon.support.units import rfc3339
from latmon_backends.kernel.file_system_space import WRITABLE_KINDS

_BY_KERNEL = ("emergency_ro", "shutdown")
"""Options that ext4 shows after an error."""
_SIGNS = (b" ro,", b" ro\n", *(option.encode() for option in _BY_KERNEL))
_SOURCE, _SHUT_DOWN_SOURCE = "/proc/self/mountinfo", "stat(2): EIO"
_JOURNAL_CHECK = ("ext4_journal_check_start", "ext4_journal_start_sb")
"""Functions that find an aborted journal (fs/ext4/ext4_jbd2.c)."""
_CODES = MappingProxyType(
    {
        "2": "I/O error",
        "3": "no memory",
        "4": "wrong checksum",
        "5": "corrupted structures",
        "6": "no space",
    }
)
"""ext4's codes of errors (fs/ext4/ext4.h EXT4_ERR_EIO and the like)."""


class ReadOnlyMounts:
    """Which file systems are so, and since when, from one walk over the mounts to the next."""

    def __init__(self, sys: Path, wall: Callable[[], float] = time.time) -> None:
        self._sys, self._wall = sys, wall
        self._before: dict[int, int | None] = {}
        """Number of a mount (mnt_id) at the last walk -> the second since 1970 in which it was first seen read-only,
        0 while it is writable; None: it was so at the first look."""
        self._now: dict[int, int | None] = {}
        """The same of this walk."""

    def reports_of(self, mounts: Mounts, mount: Mount, *, is_shut_down: bool) -> Iterator[DeviceReport]:
        """Yield the reports of a file system that is so; `is_shut_down`: as far as who looks at free space saw it."""
        if mount.kind not in WRITABLE_KINDS:
            return
        number = mount.number_of_mount
        if not is_shut_down and not self._is_made_read_only(mounts, mount):
            self._now[number] = 0
            return
        since_s = self._before.get(number)
        if since_s == 0:
            since_s = round(self._wall())
        self._now[number] = since_s
        yield from self._reports_of(mount, since_s, _SHUT_DOWN_SOURCE if is_shut_down else _SOURCE)

    def end_walk(self) -> None:
        """Keep what this walk saw for the next one."""
        self._before, self._now = self._now, {}

    def _is_made_read_only(self, mounts: Mounts, mount: Mount) -> bool:
        if not any(mounts.has_text(sign) for sign in _SIGNS):
            return False
        options = mount.options.split(",")
        is_read_only = "ro" in options
        if is_read_only and mount.is_read_only:
            return False  # mounted so
        if any(option in options for option in _BY_KERNEL):
            return True
        return is_read_only and (mount.number not in mounts.read_only or bool(self._last_error_s(mount)))

    def _reports_of(self, mount: Mount, since_s: int | None, source: str) -> Iterator[DeviceReport]:
        yield DeviceReport(READ_ONLY_KIND, mount.kind, source)
        yield DeviceReport(READ_ONLY_MOUNT, mount_name(mount.point), source)
        error_s = self._last_error_s(mount)
        if error_s or since_s is not None:
            yield DeviceReport(READ_ONLY_SINCE, rfc3339(error_s or since_s or 0, "seconds") or "", source)
        cause = self._cause(mount) if error_s else ""
        if cause:
            yield DeviceReport(READ_ONLY_CAUSE, cause, "last_error_func")

    def _last_error_s(self, mount: Mount) -> int:
        """Return the time of ext4's last error in seconds since 1970; 0 where there is none."""
        text = self._error_field(mount, "last_error_time")
        return int(text) if text.isdecimal() else 0

    def _cause(self, mount: Mount) -> str:
        """Return ext4's last error."""
        where = self._error_field(mount, "last_error_func")
        code = _CODES.get(self._error_field(mount, "last_error_errcode"), "")
        if where in _JOURNAL_CHECK:
            return "journal aborted" + (f" ({code})" if code else "")
        if not where:
            return code
        return f"error in {where}" + (f" ({code})" if code else "")

    def _error_field(self, mount: Mount, name: str) -> str:
        major, minor = mount.number
        device = resolved(self._sys / f"dev/block/{major}:{minor}").name
        return clean(content(self._sys / "fs/ext4" / device / name).strip())
