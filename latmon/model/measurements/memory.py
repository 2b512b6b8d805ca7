"""Limits of memory that cgroups reach, who writes there, and processes whose pages were gone when they used them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import CGROUP, Meaning, Part, Table, Unit, count, record_of_counts

KINDS = ("max", "high")
"""memory.max (version 1: memory.limit_in_bytes), and memory.high."""
_MOST_BYTES = 1 << 62


class MemoryLimit(NamedTuple):
    """Key of a cgroup's limit of memory; a limit that is changed is another one."""

    cgroup: str
    kind: str
    limit_bytes: int


class Faulting(NamedTuple):
    """Key of a process that waits for its pages."""

    cgroup: str
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """What the looks at a limit saw."""

    hits: int
    """How often the memory was about to go above it."""
    reloads: int = 0
    """Pages of files that the cgroup read again after they were reclaimed, between looks that both saw it there."""


MEMORY_LIMITS = Table(
    "memory_limits",
    MemoryLimit,
    (CGROUP, Part(names=KINDS), Part(highest=_MOST_BYTES)),
    record_of_counts(ReachedLimit, others=Unit.EVENTS, optional=("reloads",)),
    group="memory",
    export_name="memory_limit",
    row_title="a limit of memory",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""Limits of memory that cgroups reach, sampled while the host reclaims pages in use."""

MAJOR_FAULTS = Table(
    "major_faults",
    Faulting,
    (CGROUP, Part(Meaning.PROCESS)),
    count("faults", Unit.EVENTS),
    group="memory",
    export_name="major_fault",
    row_title="a process with major faults",
    counts_ios=False,
    has_own_decoder=True,
)
"""Faults for which a page was read, of the processes with most of them, sampled as above or while there are some."""


class MemoryWriter(NamedTuple):
    """Key of the process that uses most CPU time of the kernel in a cgroup at its limit of memory."""

    cgroup: str
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class Unwritten:
    """Pages of files in a cgroup that were dirty or in write-back, as of the looks that saw it at its limit."""

    looks: int = 0
    """Looks between which and the one before the limit was reached."""
    unwritten_bytes: int = 0
    """Added up over the looks."""


MEMORY_WRITERS = Table(
    "memory_writers",
    MemoryWriter,
    (CGROUP, Part(Meaning.PROCESS)),
    record_of_counts(Unwritten, others=Unit.EVENTS),
    group="memory",
    export_name="memory_writer",
    row_title="a process in a cgroup at its limit of memory",
    counts_ios=False,
    has_own_decoder=True,
)
"""Pages that can't be reclaimed before they are written, sampled as above."""


class MemoryUser(NamedTuple):
    """Key of the process with most memory in a cgroup at its limit."""

    cgroup: str
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class UsedMemory:
    """Memory of the process, as of the looks that saw the cgroup at its limit."""

    looks: int = 0
    resident_bytes: int = 0
    """Its resident set, added up over the looks."""
    grown_bytes: int = 0
    """By which that grew from each look to the next."""


MEMORY_USERS = Table(
    "memory_users",
    MemoryUser,
    (CGROUP, Part(Meaning.PROCESS)),
    record_of_counts(UsedMemory, others=Unit.EVENTS),
    group="memory",
    export_name="memory_user",
    row_title="the process with most memory in a cgroup at its limit",
    counts_ios=False,
    has_own_decoder=True,
)
"""Who uses the memory of a cgroup at its limit, sampled as above."""
