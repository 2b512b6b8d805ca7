"""Mounted file systems by the number of their superblock's device, from mountinfo and sysfs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from latmon.capture import target
from latmon.model.frame import FileSystem
from latmon.support.text import clean

_FRESH_S = 10.0
"""A file system is mounted elsewhere, or another gets its anonymous number: both are rare."""
_MINOR_BITS = 20
_MAX_MOUNT = 200


class FileSystems:
    """Look-ups of file systems. The mounts are read again where they are old, or a number isn't known."""

    def __init__(self, proc: Path, sys: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._proc, self._sys, self._now_s = proc, sys, now_s
        self._known: dict[int, FileSystem] = {}
        self._read_s = -_FRESH_S
        self._missing: set[int] = set()

    def of(self, number: int) -> FileSystem:
        """Return the file system with the kernel's number of a device, major << 20 | minor."""
        is_new = number not in self._known and number not in self._missing
        if is_new or self._now_s() - self._read_s >= _FRESH_S:
            self._read()
        if number not in self._known:  # of another mount namespace, or gone
            self._missing.add(number)
            return FileSystem(f"{number >> _MINOR_BITS}:{number & ((1 << _MINOR_BITS) - 1)}")
        return self._known[number]

    def _read(self) -> None:
        best: dict[int, target.Mount] = {}
        for one in target.mounts(self._proc):
            number = one.number[0] << _MINOR_BITS | one.number[1]
            before = best.get(number)
            # bind mounts have other roots; of several places the shortest is the usual one
            if before is None or _rank(one) < _rank(before):
                best[number] = one
        self._known = {
            number: FileSystem(clean(one.point, _MAX_MOUNT), one.kind, target.disk_of(one, self._proc, self._sys))
            for number, one in best.items()
        }
        self._missing.clear()
        self._read_s = self._now_s()


def _rank(mount: target.Mount) -> tuple[bool, int]:
    return mount.root != "/", len(mount.point)
