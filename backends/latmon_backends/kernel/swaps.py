"""Swap areas by /proc/swaps, as reports of the disks that they are on."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from latmon.capture.mounts import MountTable, plain_bytes
from latmon.model.frame import SWAP, DeviceReport
from latmon.support.paths import content
from latmon.support.text import clean

_AGAIN_S = 5
"""Seconds between two readings: swapon and swapoff are rare."""
_MOST = 32
"""MAX_SWAPFILES of the kernel."""
_AREA = re.compile(rb"^(/\S*) +\s*(partition|file)\s", re.MULTILINE)
_SOURCE = "/proc/swaps"


class SwapArea(NamedTuple):
    """A swap area: a device or a file."""

    path: bytes
    is_file: bool


def areas(text: bytes) -> Iterator[SwapArea]:
    """Yield the areas of /proc/swaps."""
    for path, kind in _AREA.findall(text)[:_MOST]:
        yield SwapArea(plain_bytes(path), kind == b"file")


class SwapReader:
    """The disks with swap areas, read again after `_AGAIN_S`."""

    def __init__(self, proc: Path, mounts: MountTable) -> None:
        self._proc, self._mounts = proc, mounts
        self._due_s = 0
        self._text = b""
        self.reports: dict[str, DeviceReport] = {}
        """Disk -> its first area: `whole`, the partition's name, or the file's path."""

    def refresh(self, now_s: int, disk_of: Callable[[str], str], disk_at: Callable[[int, int], str]) -> None:
        """Read the areas where that is due. `disk_of`: a block device's disk; `disk_at`: that of a device number."""
        if now_s < self._due_s:
            return
        self._due_s = now_s + _AGAIN_S
        text = content(self._proc / "swaps")
        if text == self._text and not any(area.is_file for area in areas(text)):
            return
        self._text = text
        device_reports: dict[str, DeviceReport] = {}
        for area in areas(text):
            disk, where = self._on(area, disk_of, disk_at)
            if disk:
                device_reports.setdefault(disk, DeviceReport(SWAP, where, _SOURCE))
        self.reports = device_reports

    def _on(self, area: SwapArea, disk_of: Callable[[str], str], disk_at: Callable[[int, int], str]) -> tuple[str, str]:
        """Return the disk of an area, and what it is there."""
        if area.is_file:
            # By its mount: stat(2) of the file does not return while its file system hangs.
            mount = self._mounts.read().above(Path(os.fsdecode(area.path)))
            return disk_at(*mount.number) if mount is not None else "", clean(area.path)
        name = clean(area.path.rpartition(b"/")[2])
        disk = disk_of(name)
        return disk, "whole" if disk == name else name
