"""Errors that file systems find on their devices, by their own counters in sysfs and by lines of the kernel's log.

ext4 counts its errors (fs/ext4/sysfs.c errors_count), and btrfs those of each of its devices (fs/btrfs/sysfs.c
devinfo/ID/error_stats, Linux 5.14). sysfs does not say which device has which ID, so that the counters of a btrfs with
several devices are taken from its lines, which have them as well (fs/btrfs/volumes.c btrfs_dev_stat_inc_and_print()).
XFS, dm-verity, dm-integrity, dm-crypt and others only log: a line counts as one error, and the kernel suppresses lines
beyond some a second.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import Device
from latmon.model.measurements.file_system_errors import (
    CORRECTED,
    CORRUPT_METADATA,
    FAILED_IO,
    WRONG_CHECKSUM,
    FileSystemError,
)
from latmon.support.paths import content
from latmon_backends.kernel.block_devices import attribute, names, whole_disk

BTRFS, EXT4 = "btrfs", "ext4"
_MOST = 64
"""File systems that are read at a time: a file of sysfs takes some 10 us. Errors of more are seen later, at once."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BTRFS_COUNTERS: Mapping[str, str] = MappingProxyType(
    {
        "write_errs": FAILED_IO,
        "read_errs": FAILED_IO,
        "flush_errs": FAILED_IO,
        "corruption_errs": WRONG_CHECKSUM,
    }
)
"""Without generation_errs: a line of its own says what is wrong."""
_COUNTER = re.compile(r"^(\w+) (\d{1,18})$", re.MULTILINE)
_EXT4_ERRORS: Mapping[str, str | None] = MappingProxyType({"2": FAILED_IO, "3": None, "6": None})
"""ext4's code of its last error (fs/ext4/ext4.h): EIO, ENOMEM, ENOSPC; all others are of its structures."""
_ERRORS_OF_DEVICE = re.compile(
    r"BTRFS \w+ \(device [^)]*\): bdev /dev/\S+ errs: "
    r"wr (\d{1,18}), rd (\d{1,18}), flush (\d{1,18}), corrupt (\d{1,18})\b"
)
"""The counters of a device in the order of _BTRFS_COUNTERS."""
_LINES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern), finder, error)
    for pattern, finder, error in (
        # fs/btrfs: bio.c and scrub.c; disk-io.c, tree-checker.c. Of data it has a counter.
        (r"BTRFS \w+ \(.*?\): (?:read error corrected|fixed up error)", BTRFS, CORRECTED),
        (r"BTRFS \w+ \(.*?\): (?:checksum verify failed|bad tree block|parent transid verify failed)", BTRFS, ""),
        (r"BTRFS \w+ \(.*?\): corrupt (?:leaf|node)", BTRFS, ""),
        # fs/xfs: xfs_error.c, xfs_buf.c (74 is EFSBADCRC, 117 EFSCORRUPTED, which other lines say), xfs_aops.c
        (r"XFS \(.*?\): Metadata (?:CRC error|corruption) detected", "xfs", ""),
        (r"XFS \(.*?\): (?:Internal error|Corruption of in-memory data)", "xfs", ""),
        (r"XFS \(.*?\): metadata I/O error .*\berror (?!74\b|117\b)\d+", "xfs", FAILED_IO),
        (r"XFS \(.*?\): (?:log I/O error|writeback error)", "xfs", FAILED_IO),
        # drivers/md: dm-verity-target.c, dm-integrity.c, dm-crypt.c
        (r"device-mapper: verity: \S+ data block \d+ is corrupted", "dm-verity", WRONG_CHECKSUM),
        (r"device-mapper: verity: \S+ metadata block \d+ is corrupted", "dm-verity", ""),
        (r"device-mapper: integrity: \S+ Checksum failed", "dm-integrity", WRONG_CHECKSUM),
        (r"device-mapper: crypt: \S+ INTEGRITY AEAD ERROR", "dm-crypt", WRONG_CHECKSUM),
        # fs/bcachefs, fs/f2fs
        (r"bcachefs \(.*?\).*\bdata checksum error", "bcachefs", WRONG_CHECKSUM),
        (r"bcachefs \(.*?\).*\bbtree node .*\b(?:checksum|corrupt)", "bcachefs", ""),
        (r"F2FS-fs \(.*?\): .*\b(?:corrupt|inconsistent|invalid)", "f2fs", ""),
    )
)
"""Beginning of a line, what logs it, and the error: empty for CORRUPT_METADATA; the first that matches counts."""
_INODE = re.compile(
    r"BTRFS \w+ \(.*?\): csum failed root -?\d+ ino (\d{1,20})\b"
    r"|EXT4-fs error \(device [^)]*\): \w+:\d+: inode #(\d{1,20}):"
)
"""Beginnings of lines: what follows of ext4 has names of programs and files, which any user can choose."""


class Inode(NamedTuple):
    """A file of which a line says that it is damaged."""

    device: str
    number: int


def inode_of(line: str) -> int | None:
    """Return the number of the damaged file that a line of the kernel's log is about; None of another line."""
    match = _INODE.match(line)
    return int(match[1] or match[2]) if match is not None else None


class LoggedErrors:
    """Counts what lines of the kernel's log say."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, int]] = {}
        """Device -> its counters by the last line that has them."""

    def count(self, device: str, line: str, *, is_old: bool) -> Counter[FileSystemError]:
        """Return the errors of which a line about a device reports; none of an old one, whose counters are kept."""
        numbers = _ERRORS_OF_DEVICE.match(line)
        if numbers is not None:
            now = dict(zip(_BTRFS_COUNTERS, map(int, numbers.groups()), strict=True))
            before = self._before.get(device)
            self._before[device] = now
            if before is None:  # the counters began long ago: the line is about one error
                not_zero = {name: 1 for name, number in now.items() if number}
                before, now = {}, not_zero if len(not_zero) == 1 else {}
            return Counter() if is_old else _grown(device, before, now)
        for pattern, finder, error in () if is_old else _LINES:
            if pattern.match(line):
                return Counter({FileSystemError(device, finder, error or CORRUPT_METADATA): 1})
        return Counter()


class ErrorCounters:
    """Reads the counters of file systems, in turn where there are many."""

    def __init__(self, sys: Path) -> None:
        self._sys = sys
        self._next = 0
        self._before: dict[str, tuple[str, dict[str, int]]] = {}
        """Directory in sysfs -> the disk, and its counters."""
        self._disks: dict[str, str] = {}
        """Directory in sysfs -> the disk of its file system."""

    @property
    def has_any(self) -> bool:
        """Return whether a file system counts its errors."""
        return bool(self._directories())

    @property
    def disks_of_btrfs(self) -> frozenset[str]:
        """Return the disks whose errors btrfs counts in sysfs."""
        return frozenset(disk for directory, (disk, _) in self._before.items() if _kind(directory) == BTRFS)

    def since_last(self, devices: Mapping[str, Device]) -> Counter[FileSystemError]:
        """Return the errors on these devices since their counters were last read; none of one that is new."""
        errors: Counter[FileSystemError] = Counter()
        directories = self._directories()
        self._before = {directory: self._before[directory] for directory in directories if directory in self._before}
        self._disks = {directory: self._disks[directory] for directory in directories if directory in self._disks}
        for directory in self._due(directories):
            disk = self._disk(directory)
            counters = self._counters(directory) if disk in devices else {}
            if not counters:
                continue
            known, earlier = self._before.get(directory, ("", counters))
            self._before[directory] = disk, counters
            if known == disk and _kind(directory) == EXT4:
                errors.update(self._of_ext4(directory, disk, counters["errors"] - earlier["errors"]))
            elif known == disk:
                errors.update(_grown(disk, earlier, counters))
        return errors

    def _directories(self) -> list[str]:
        """Return the directories of ext4, and of btrfs with one device."""
        ext4 = (f"{EXT4}/{name}" for name in _entries(f"{self._sys}/fs/{EXT4}") if name != "features")
        btrfs = (f"{BTRFS}/{name}" for name in _entries(f"{self._sys}/fs/{BTRFS}") if _UUID.fullmatch(name))
        return [*ext4, *btrfs]

    def _due(self, directories: list[str]) -> list[str]:
        first = self._next if self._next < len(directories) else 0
        due = directories[first : first + _MOST]
        self._next = first + len(due)
        return due

    def _disk(self, directory: str) -> str:
        """Return the disk of a file system; empty where it has several devices."""
        if directory not in self._disks:
            kind, _, name = directory.partition("/")
            parts = (name,) if kind == EXT4 else names(self._sys / "fs" / directory / "devices")
            self._disks[directory] = whole_disk(self._sys, parts[0].replace("!", "/")) if len(parts) == 1 else ""
        return self._disks[directory]

    def _counters(self, directory: str) -> dict[str, int]:
        path = self._sys / "fs" / directory
        if _kind(directory) == EXT4:
            text = attribute(path / "errors_count")
            return {"errors": int(text)} if text.isdecimal() else {}
        known_ids = names(path / "devinfo")
        if len(known_ids) != 1:  # a device is missing
            return {}
        stats = os.fsdecode(content(path / "devinfo" / known_ids[0] / "error_stats"))
        return {name: int(number) for name, number in _COUNTER.findall(stats) if name in _BTRFS_COUNTERS}

    def _of_ext4(self, directory: str, disk: str, grown: int) -> Counter[FileSystemError]:
        error = _EXT4_ERRORS.get(attribute(self._sys / "fs" / directory / "last_error_errcode"), CORRUPT_METADATA)
        return Counter({FileSystemError(disk, EXT4, error): grown} if grown > 0 and error is not None else {})


def not_counted(
    logged: Mapping[FileSystemError, int], disks_of_btrfs: Collection[str]
) -> Iterator[tuple[FileSystemError, int]]:
    """Yield what lines say, without btrfs' counters of disks that have them in sysfs."""
    for row, events in logged.items():
        is_counter = row.finder == BTRFS and row.error in _BTRFS_COUNTERS.values()
        if not is_counter or row.device not in disks_of_btrfs:
            yield row, events


def _grown(device: str, before: Mapping[str, int], now: Mapping[str, int]) -> Counter[FileSystemError]:
    """Return by how much btrfs' counters of a device grew."""
    errors: Counter[FileSystemError] = Counter()
    for name, error in _BTRFS_COUNTERS.items():
        grown = now.get(name, 0) - before.get(name, 0)
        if grown > 0:
            errors[FileSystemError(device, BTRFS, error)] += grown
    return errors


def _kind(directory: str) -> str:
    return directory.partition("/")[0]


def _entries(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names alone
    except OSError:
        return []
