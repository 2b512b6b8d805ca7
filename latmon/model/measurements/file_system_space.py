"""Free space of file systems on block devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import DEVICE, MOUNT, TEXT, Table, Unit, record_of_counts


class SpaceOf(NamedTuple):
    """Key of a writable file system."""

    device: str
    """The whole disk, or the first one of several."""
    mount: str
    """One of its mount points."""
    kind: str
    """Its type, such as ext4."""


@dataclass(frozen=True, slots=True)
class SpaceLooks:
    """What statvfs(3) had, added up over the looks: divided by `looks` it is the mean."""

    looks: int
    size_bytes: int
    available_bytes: int
    """Free for ordinary users (f_bavail)."""
    free_bytes: int
    """Free for root, too, which may use reserved blocks (f_bfree)."""
    inodes: int
    """0: the file system has no limit of them."""
    free_inodes: int
    """Free for ordinary users (f_favail)."""
    written_bytes: int
    """Bytes written to its disks or partitions since the look before, as their counters have them."""
    active_looks: int
    """Looks at most five minutes after the last look that saw it written."""


def _impossible(looks: int, size_bytes: int, *_others: int) -> str:
    return "" if looks and size_bytes else "has a file system without looks or without a size"


FILE_SYSTEM_SPACE = Table(
    "file_system_space",
    SpaceOf,
    (DEVICE, MOUNT, TEXT),
    record_of_counts(SpaceLooks, others=Unit.EVENTS, impossible=_impossible),
    group="space",
    export_name="file_system_space",
    row_title="the space of a file system",
    counts_ios=False,
    has_own_decoder=True,  # asked by statvfs(3), no probe
)
"""Writable file systems on the block devices, looked at every 5 s."""
