"""Commits of journals by phase, writes of xfs logs, and the processes that wait for syncs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import DEVICE, Meaning, Part, Table, Unit, record_of_counts


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of the journals on a device that ended in an interval (jbd2), and the time in each phase."""

    commits: int = 0
    locked_us: int = 0
    """Waiting for the operations that had begun."""
    flushing_us: int = 0
    """Submitting the data of files that must be on the device before (data=ordered)."""
    logging_us: int = 0
    """Writing the journal's blocks, waiting for that data, and flushing the device's cache."""
    blocks: int = 0
    """Blocks that were written to the journal."""

    @property
    def total_us(self) -> int:
        return self.locked_us + self.flushing_us + self.logging_us


JOURNALS: Table[str, Commits] = Table(
    "journals",
    str,
    (DEVICE,),
    record_of_counts(Commits, others=Unit.EVENTS),
    group="journals",
    export_name="journal",
    row_title="a journal",
    counts_ios=False,
)


@dataclass(frozen=True, slots=True)
class LogWrites:
    """Writes of the xfs logs on a device that ended in an interval, and waits for room in a log."""

    writes: int = 0
    writing_us: int = 0
    """From a write's submission to the end of its I/O, the flush of the device's cache before it included."""
    bytes: int = 0
    waits: int = 0
    """Transactions that had no room in the log, each time that they slept."""
    waited_us: int = 0


XFS_LOGS: Table[str, LogWrites] = Table(
    "xfs_logs",
    str,
    (DEVICE,),
    record_of_counts(LogWrites, others=Unit.EVENTS),
    group="journals",
    export_name="xfs_log",
    row_title="an xfs log",
    counts_ios=False,
)


class Syncing(NamedTuple):
    """Key of a process that waits for syncs of files on a device."""

    device: str
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class Syncs:
    """Syncs of one process that ended in an interval."""

    syncs: int = 0
    waited_us: int = 0


SYNCS = Table(
    "syncs",
    Syncing,
    (DEVICE, Part(Meaning.PROCESS, probe_part="process")),
    record_of_counts(Syncs, others=Unit.EVENTS),
    group="journals",
    export_name="sync",
    row_title="a process that waits for syncs",
    counts_ios=False,
)


class JournalWriter(NamedTuple):
    """Key of a process whose operations change a file system with a journal."""

    device: str
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class JournalWrites:
    """Operations of one process that ended in an interval, and the blocks that they put into the journal."""

    operations: int = 0
    """Handles of jbd2, one or more per system call."""
    blocks: int = 0
    """Blocks that were not in the transaction before (fs/jbd2/transaction.c jbd2_journal_dirty_metadata())."""


JOURNAL_WRITERS = Table(
    "journal_writers",
    JournalWriter,
    (DEVICE, Part(Meaning.PROCESS, probe_part="process")),
    record_of_counts(JournalWrites, others=Unit.EVENTS),
    group="journals",
    export_name="journal_writer",
    row_title="a process that writes to a journal",
    counts_ios=False,
)
