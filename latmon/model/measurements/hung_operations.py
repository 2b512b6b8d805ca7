"""Operations on files that hang: their file system is frozen, or its server doesn't answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.frame import FROZEN, SERVER
from latmon.model.table import DEVICE, MOUNT, TEXT, Meaning, Part, Table, Unit, record_of_counts


class HungOperation(NamedTuple):
    """Key of a process whose operations on the files of a file system hang."""

    device: str
    """That of the file system; empty: none, or not known."""
    mount: str
    """Its mount point; empty: which file system it is, is not known."""
    kind: str
    """Its type, such as ext4 or nfs4."""
    cause: str
    """FROZEN (fsfreeze) or SERVER (of FUSE, NFS, SMB, Ceph, 9P)."""
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class HungTime:
    """Time in which operations hung: it counts from the look that saw the wait first."""

    lasted_us: int
    """Time in which one or more of the process's threads waited."""
    threads_us: int
    """The time of all of its threads."""
    times: int = 0
    """How often the oldest operation that hung was another one: 0 in an interval through which one hung."""


HUNG_OPERATIONS = Table(
    "hung_operations",
    HungOperation,
    (DEVICE, MOUNT, TEXT, Part(names=(FROZEN, SERVER)), Part(Meaning.PROCESS)),
    record_of_counts(HungTime, others=Unit.EVENTS, optional=("times",)),
    group="hangs",
    export_name="hung_operation",
    row_title="a process whose operations on files hang",
    counts_ios=False,
    has_own_decoder=True,  # the kernel's stacks of sleeping threads, no probe
)
"""Processes whose threads slept in one and the same operation from one look to the next, about 1 s or more."""
