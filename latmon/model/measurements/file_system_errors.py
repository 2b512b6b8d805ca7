"""Errors of a device that file systems and device-mapper's checks find in what it returned, or in its I/Os."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import DEVICE, TEXT, Meaning, Part, Table, Unit, count

WRONG_CHECKSUM = "wrong checksum"
"""Of data: the device returned other data than were written, and reported success."""
CORRUPT_METADATA = "corrupt metadata"
"""Structures of the file system that are wrong, or have a wrong checksum."""
FAILED_IO = "I/O error"
CORRECTED = "corrected"
"""Data or metadata with a wrong checksum that the file system read from another copy, and wrote again."""
FOUND = (WRONG_CHECKSUM, CORRUPT_METADATA, FAILED_IO, CORRECTED)


class FileSystemError(NamedTuple):
    """Key of the errors of one kind that a file system found on a device."""

    device: str
    finder: str
    """What found them: btrfs, ext4, xfs, dm-verity, ..."""
    error: str
    """One of FOUND."""


FILE_SYSTEM_ERRORS = Table(
    "file_system_errors",
    FileSystemError,
    (DEVICE, TEXT, Part(names=FOUND)),
    count("events", Unit.EVENTS),
    group="always",
    export_name="file_system_error",
    row_title="errors of a device that its file system found",
    counts_ios=False,
    has_own_decoder=True,  # sysfs and the kernel's log say so, no probe
)
"""Those of btrfs and ext4 by their own counters, which miss none. All others are lines of the kernel's log, of which
the kernel suppresses some: so many at least."""


class DamagedFile(NamedTuple):
    """Key of the reports about a file, and of a process that has it open."""

    device: str
    path: str
    process: str
    """NAME/PID."""


DAMAGED_FILES = Table(
    "damaged_files",
    DamagedFile,
    (DEVICE, Part(Meaning.PRIVATE), Part(Meaning.PROCESS)),
    count("reports", Unit.EVENTS),
    group="always",
    export_name="damaged_file",
    row_title="a file that its file system could not read",
    counts_ios=False,
    has_own_decoder=True,  # lines of the kernel's log, and open files in /proc
)
"""Files whose inodes lines of the kernel's log name as damaged, while a process has them open."""
