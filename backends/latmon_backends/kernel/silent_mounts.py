"""Which of several mounts with servers is the one that programs wait for, without touching a file of any.

A connection of FUSE counts its requests without an answer (/sys/fs/fuse/connections/N/waiting, where fusectl is
mounted). A loop device on a file of a mount completes I/Os only while the server of that mount answers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from latmon.capture.mounts import Mount, Mounts
from latmon.support.paths import content

_READS, _WRITES = 0, 4
"""Fields of /sys/block/DEVICE/stat with completed I/Os (Documentation/block/stat.rst)."""
_Number = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ServedIos:
    """Completed I/Os of the loop devices on files, by the number of the file system that has the file."""

    ios: Mapping[_Number, int] = field(default_factory=dict)

    @classmethod
    def read(cls, sys: Path, mounts: Mounts) -> ServedIos:
        """Read the counters of all loop devices."""
        ios: dict[_Number, int] = {}
        for name in _loops(sys):
            block = sys / "block" / name
            backing = content(block / "loop/backing_file").strip()
            mount = mounts.above(Path(os.fsdecode(backing)).parent) if backing else None
            if mount is not None:
                ios[mount.number] = ios.get(mount.number, 0) + _completed(content(block / "stat"))
        return cls(ios)


def silent_mount(sys: Path, mounts: Sequence[Mount], before: ServedIos, now: ServedIos) -> Mount | None:
    """Return the only one of the mounts whose server may be silent; None: several may be."""
    waiting = {mount.number: _waiting(sys, mount) for mount in mounts}
    if None not in waiting.values():
        mounts = [mount for mount in mounts if waiting[mount.number]]
    if len(mounts) > 1:
        served = {number for number, ios in now.ios.items() if ios > before.ios.get(number, ios)}
        mounts = [mount for mount in mounts if mount.number not in served]
    return mounts[0] if len(mounts) == 1 else None


def _waiting(sys: Path, mount: Mount) -> int | None:
    """Return the requests to the server of a FUSE mount that have no answer; None where that is not counted."""
    text = content(sys / f"fs/fuse/connections/{mount.number[1]}/waiting").strip()
    return int(text) if text.isdigit() else None


def _completed(stat: bytes) -> int:
    words = stat.split()
    fields = [int(words[place]) for place in (_READS, _WRITES) if place < len(words) and words[place].isdigit()]
    return sum(fields)


def _loops(sys: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(sys / "block") if name.startswith("loop"))  # noqa: PTH208
    except OSError:
        return []
