"""The target of `latmon trace`: a disk, and which of its I/Os, by LBA, by a file's blocks, by process or cgroup.

Sectors have 512 bytes and are those of the whole disk, as in its requests; those of a partition begin with it. The
blocks of a file are from FIEMAP (Documentation/filesystems/fiemap.rst), as of the start of the trace.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from latmon.capture.backend import TraceRequest
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.text import clean
from latmon_backends.kernel import block_devices, cgroups

MAX_RANGES = 64
"""Ranges that a probe compares; the parameter `wanted` of stages_a.yaml has the same bound."""
BY_LBA, BY_PID, BY_CGROUP = 1, 2, 3
"""Values of the parameter `by` of stages_a.yaml."""
_SECTOR = 512
_MAX_EXTENTS = 65_536
_FIEMAP = 0xC020660B
_SYNC = 1
_HEAD, _EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_AT_ONCE = 256
_LAST, _NOWHERE = 1, 0x2 | 0x4 | 0x200
"""FIEMAP_EXTENT_LAST; UNKNOWN, DELALLOC and DATA_INLINE: no place on the device."""
_LISTED = 20


class BlockRange(NamedTuple):
    """The first and the last sector, or number."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class TraceTarget:
    """A disk with requests, and its I/Os by a value of the parameter `by`; 0: all."""

    disk: str
    number: int
    """dev_t of the kernel."""
    by: int = 0
    ranges: tuple[BlockRange, ...] = ()
    text: str = ""
    """The target in words."""
    remark: str = ""
    """Sentence on what else is traced; empty where nothing is."""

    @property
    def wanted(self) -> str:
        """The parameter `wanted`."""
        return ",".join(f"{one.low}-{one.high}" for one in self.ranges)


class _Place(NamedTuple):
    """A disk or a partition: its name, its disk's name, its first sector on the disk, its sectors."""

    name: str
    disk: str
    first: int
    sectors: int


def trace_target(request: TraceRequest) -> TraceTarget:
    """Return the target. UnavailableError where it isn't there, UsageError where the options contradict each other."""
    place = _place(request.device, request.sys)
    number = _number(request.sys / "block" / place.disk.replace("/", "!"), place)
    if request.lba is not None:
        return _by_sectors(place, number, [BlockRange(*request.lba)], _lba_text(place, request.lba))
    if request.file is not None:
        return _by_file(place, number, request.file, request.sys)
    if request.pid is not None:
        if not (request.proc / str(request.pid)).exists():
            raise UnavailableError(f"--pid {request.pid}: there is no such process")
        return TraceTarget(
            place.disk, number, BY_PID, (BlockRange(request.pid, request.pid),), f"{place.disk}, process {request.pid}"
        )
    if request.cgroup:
        return _by_cgroup(place, number, request.cgroup, request.proc)
    if place.name != place.disk:
        return _by_sectors(place, number, [BlockRange(0, place.sectors - 1)], place.name)
    return TraceTarget(place.disk, number, text=place.disk)


def _place(name: str, sys: Path) -> _Place:
    """Return a block device by its name, or by its path in /dev."""
    short = Path(name).resolve().name if name.startswith("/") else name
    path = block_devices.directory(sys / "class/block", short)
    sectors = block_devices.number(path / "size")
    if not short or short in (".", "..") or sectors is None:
        there = [one for one in block_devices.names(sys / "class/block") if block_devices.number(_size(sys, one))]
        more = " ..." if len(there) > _LISTED else ""
        raise UnavailableError(
            f"there is no block device {clean(name, 80)!r}; there are: {', '.join(there[:_LISTED]) or 'none'}{more}"
        )
    disk = block_devices.whole_disk(sys, short)
    own = block_devices.directory(sys / "block", disk)
    if not block_devices.has_requests(own):
        below = ", ".join(clean(one) for one in block_devices.names(own / "slaves"))
        instead = f"trace what is below it: {below}" if below else "only devices with requests can be traced"
        raise UnavailableError(f"{disk} has no requests of its own: {instead}")
    if not sectors:
        raise UnavailableError(f"{short} has no sectors: no medium, or no file behind it")
    return _Place(clean(short), disk, block_devices.number(path / "start") or 0, sectors)


def _size(sys: Path, name: str) -> Path:
    return block_devices.directory(sys / "class/block", name) / "size"


def _number(path: Path, place: _Place) -> int:
    major, _, minor = block_devices.attribute(path / "dev").partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        raise UnavailableError(f"the kernel gives {place.disk} no number: a hidden path can't be traced alone")
    return int(major) << 20 | int(minor)


def _lba_text(place: _Place, lba: tuple[int, int]) -> str:
    if lba[1] >= place.sectors:
        raise UsageError(
            f"--lba {lba[0]}-{lba[1]}: {place.name} has the sectors 0 to {place.sectors - 1} (of {_SECTOR} bytes)"
        )
    return f"{place.name}, sectors {lba[0]:,} to {lba[1]:,}"


def _by_sectors(place: _Place, number: int, ranges: Iterable[BlockRange], text: str, remark: str = "") -> TraceTarget:
    moved = tuple(BlockRange(place.first + low, place.first + high) for low, high in ranges)
    return TraceTarget(place.disk, number, BY_LBA, moved, text, remark)


def _by_file(place: _Place, number: int, file: Path, sys: Path) -> TraceTarget:
    shown = f"--file {clean(str(file), 200)}"
    try:
        with file.open("rb", buffering=0) as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{shown}: it is no regular file")
            lies_on = _lies_on(status.st_dev, shown, sys)
            if place.name not in (lies_on.name, lies_on.disk):
                raise UsageError(f"{shown}: it lies on {lies_on.name}, not on {place.name}")
            extents = list(_extents(opened.fileno()))
    except OSError as error:
        raise UnavailableError(f"{shown}: {error.strerror or error}") from None
    if not extents:
        raise UsageError(f"{shown}: it has no blocks on {lies_on.name}: it is empty, or is kept in its inode")
    ranges, more = covered(extents, MAX_RANGES)
    remark = ""
    if more:
        share = more / sum(high - low + 1 for low, high in ranges)
        remark = (
            f"the file has {len(extents):,} extents: {MAX_RANGES} ranges that cover them are traced, "
            f"{share:.1%} of their sectors are not the file's"
        )
    return _by_sectors(lies_on, number, ranges, f"{place.disk}, file {clean(str(file), 200)}", remark)


def _lies_on(device: int, shown: str, sys: Path) -> _Place:
    """Return the device of a file system by its number."""
    path = sys / f"dev/block/{os.major(device)}:{os.minor(device)}"
    if not os.major(device) or not path.exists():
        raise UsageError(f"{shown}: its file system (btrfs, overlay, nfs, tmpfs, ...) is on no single block device")
    return _place(path.resolve().name.replace("!", "/"), sys)


def _extents(descriptor: int) -> Iterator[BlockRange]:
    """Yield the sectors of an open file on its file system's device, in the order of the file."""
    at = 0
    for _ in range(_MAX_EXTENTS // _AT_ONCE):
        buffer = bytearray(_HEAD.pack(at, 2**64 - 1 - at, _SYNC, 0, _AT_ONCE, 0) + bytes(_EXTENT.size * _AT_ONCE))
        fcntl.ioctl(descriptor, _FIEMAP, buffer)
        found = _HEAD.unpack_from(buffer)[3]
        for number in range(found):
            logical, physical, length, _, _, flags, *_ = _EXTENT.unpack_from(buffer, _HEAD.size + number * _EXTENT.size)
            if not flags & _NOWHERE and length:
                yield BlockRange(physical // _SECTOR, (physical + length - 1) // _SECTOR)
            at = logical + length
            if flags & _LAST:
                return
        if not found:
            return
    raise UsageError(f"the file has more than {_MAX_EXTENTS:,} extents: trace a range of its device, --lba A-B")


def covered(extents: Sequence[BlockRange], most: int) -> tuple[list[BlockRange], int]:
    """Return at most so many ranges that cover the extents, and how many other sectors they have.

    The smallest gaps are covered first.
    """
    joined: list[BlockRange] = []
    for low, high in sorted(extents):
        if joined and low <= joined[-1].high + 1:
            joined[-1] = BlockRange(joined[-1].low, max(joined[-1].high, high))
        else:
            joined.append(BlockRange(low, high))
    gaps = sorted(range(1, len(joined)), key=lambda at: joined[at].low - joined[at - 1].high)
    closed = set(gaps[: max(0, len(joined) - most)])
    found: list[BlockRange] = []
    more = 0
    for at, one in enumerate(joined):
        if at in closed:
            more += one.low - found[-1].high - 1
            found[-1] = BlockRange(found[-1].low, one.high)
        else:
            found.append(one)
    return found, more


def _by_cgroup(place: _Place, number: int, wanted: str, proc: Path) -> TraceTarget:
    """Trace a cgroup and those below it, by its path or the end of it."""
    known = cgroups.numbers(proc)
    shown = f"--cgroup {clean(wanted, 200)}"
    if not known:
        raise UnavailableError(f"{shown}: no hierarchy of cgroups with the I/O controller is mounted")
    path = wanted.rstrip("/") if wanted != "/" else "/"
    exact = path if path in known.values() else f"/{path}"
    named = [one for one in known.values() if one == exact] or [
        one for one in known.values() if one.endswith(f"/{path.lstrip('/')}")
    ]
    if not named:
        raise UnavailableError(f"{shown}: there is no such cgroup in the hierarchy of the I/O controller")
    if len(named) > 1:
        raise UsageError(f"{shown}: these are several cgroups, {named[0]} and {named[1]}: name the whole path")
    above = named[0].rstrip("/")
    numbers = sorted(one for one, name in known.items() if name == named[0] or name.startswith(f"{above}/"))
    if len(numbers) > MAX_RANGES:
        raise UsageError(
            f"{shown}: it has {len(numbers) - 1} cgroups below it, and at most {MAX_RANGES - 1} are traced"
        )
    below = len(numbers) - 1
    with_below = f" and {below} below it" if below else ""
    ranges = tuple(BlockRange(one, one) for one in numbers)
    return TraceTarget(place.disk, number, BY_CGROUP, ranges, f"{place.disk}, cgroup {named[0]}{with_below}")
