"""Programs that sleep in operations on files without I/O of their own, and those that keep them waiting for a lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.frame import JOURNAL, LOCK, SERVER
from latmon.model.measurements.server_waits import WaitedTime
from latmon.model.table import DEVICE, MOUNT, PRIVATE_TEXT, TEXT, Meaning, Part, Table, Unit, count, record_of_counts

LOG_SPACE = "log space"
SLEEP_CAUSES = (LOCK, JOURNAL, LOG_SPACE, SERVER)
"""Parts of FILE_PARTS that the kernel function in which a thread sleeps, and its callers, tell. `log space`: of the
part `journal`, the waits for room in a log that is full; `journal`: the others, for a transaction or its commit."""


class FileSleep(NamedTuple):
    """Key of the sleeps of a process in one kind of operation on a file."""

    device: str
    """That of the file system; empty: none, or not known."""
    mount: str
    """Its mount point; empty: not known, as of a call with a path."""
    kind: str
    """Its type; where the mount isn't known that of its functions or servers, such as `xfs` or `fuse`."""
    cause: str
    """One of SLEEP_CAUSES."""
    op: str
    """The operation, as a noun, such as `read`, `open` or `chown`; `fsync` is also a write with O_DSYNC; empty: not
    known."""
    file: str
    """Path in the file system of the file that the call works on; empty: the call has a path, which isn't read."""
    process: str
    """NAME/PID."""


FILE_SLEEPS = Table(
    "file_sleeps",
    FileSleep,
    (DEVICE, MOUNT, TEXT, Part(names=SLEEP_CAUSES), TEXT, PRIVATE_TEXT, Part(Meaning.PROCESS)),
    record_of_counts(WaitedTime, others=Unit.EVENTS),
    group="hangs",
    export_name="file_sleep",
    row_title="a process that sleeps in operations on files",
    counts_ios=False,
    has_own_decoder=True,  # the kernel's stacks of sleeping threads, no probe
)
"""Processes whose threads were seen asleep for such a cause, by looks about 1 s apart; times as in SERVER_WAITS."""


class JournalOf(NamedTuple):
    """Key of the journal, or the log, of a file system."""

    device: str
    mount: str


@dataclass(frozen=True, slots=True)
class JournalLooks:
    """Looks that saw threads sleep for a journal, and its size, added up over them."""

    looks: int = 0
    size_bytes: int = 0

    @property
    def mean_bytes(self) -> int:
        return self.size_bytes // max(self.looks, 1)


JOURNAL_SIZES = Table(
    "journal_sizes",
    JournalOf,
    (DEVICE, MOUNT),
    record_of_counts(JournalLooks, others=Unit.EVENTS),
    group="hangs",
    export_name="journal_size",
    row_title="a journal that programs wait for",
    counts_ios=False,
    has_own_decoder=True,
)


class LockHolder(NamedTuple):
    """Key of a process that was in an operation on a file while threads waited for the file's lock."""

    mount: str
    file: str
    """As FileSleep has it."""
    op: str
    process: str
    """NAME/PID."""


LOCK_HOLDERS = Table(
    "lock_holders",
    LockHolder,
    (MOUNT, PRIVATE_TEXT, TEXT, Part(Meaning.PROCESS)),
    count("us", Unit.MICROSECONDS),
    group="hangs",
    export_name="lock_holder",
    row_title="a process that may have the lock of a file",
    counts_ios=False,
    has_own_decoder=True,
)
"""Time between looks of which the last one found it so: in the operation, and not waiting for the lock itself."""
