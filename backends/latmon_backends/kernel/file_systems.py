"""Mounted file systems by the number of their superblock's device, from mountinfo and sysfs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from latmon.capture import target
from latmon.model.frame import FileSystem
from latmon.support.text import clean

_FRESH_S, _AGAIN_S = 10.0, 1.0
"""A file system is mounted elsewhere, or another gets its anonymous number: both are rare. Mounts of other namespaces,
such as those of containers, stay unknown: what is new is looked for once in the latter time, what was missing in the
former, because a host may have 10,000 mounts."""
_MINOR_BITS = 20
_MAX_MOUNT = 200


class FileSystems:
    """Look-ups of file systems. The mounts are read again where they are old, or a number isn't known."""

    def __init__(self, proc: Path, sys: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._sys, self._now_s = proc, sys, now_s
        self._mounts: dict[int, target.Mount] = {}
        self._known: dict[int, FileSystem] = {}
        """File systems that were asked for since the mounts were read: sysfs is read for these alone."""
        self._missing: set[int] = set()
        self._read_s = -_FRESH_S

    def of(self, number: int) -> FileSystem:
        """Return the file system with the kernel's number of a device, major << 20 | minor."""
        now_s = self._now_s()
        is_new = number not in self._mounts and number not in self._missing
        if now_s - self._read_s >= (_AGAIN_S if is_new else _FRESH_S):
            self._read(now_s)
            if number not in self._mounts:
                self._missing.add(number)
        if number not in self._known:
            self._known[number] = self._file_system(number)
        return self._known[number]

    def _file_system(self, number: int) -> FileSystem:
        mount = self._mounts.get(number)
        if mount is None:
            return FileSystem(f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}")
        disk = target.disk_of(mount, self._proc, self._sys)
        return FileSystem(clean(mount.point, _MAX_MOUNT), mount.kind, disk)

    def _read(self, now_s: float) -> None:
        best: dict[int, target.Mount] = {}
        for one in target.mounts(self._proc):
            number = one.number[0] << _MINOR_BITS | one.number[1]
            before = best.get(number)
            # bind mounts have other roots; of several places the shortest is the usual one
            if before is None or _rank(one) < _rank(before):
                best[number] = one
        if now_s - self._read_s >= _FRESH_S:
            self._missing.clear()
        self._mounts, self._known, self._read_s = best, {}, now_s


def _rank(mount: target.Mount) -> tuple[bool, int]:
    return mount.root != "/", len(mount.point)
