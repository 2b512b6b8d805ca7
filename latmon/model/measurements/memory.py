"""Limits of memory that cgroups reach, and processes whose pages were gone when they used them."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import CGROUP, Meaning, Part, Table, Unit, count

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


MEMORY_LIMITS = Table(
    "memory_limits",
    MemoryLimit,
    (CGROUP, Part(names=KINDS), Part(highest=_MOST_BYTES)),
    count("hits", Unit.EVENTS),
    group="memory",
    export_name="memory_limit",
    row_title="a limit of memory",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""How often the memory of a cgroup was about to go above a limit, sampled while the host reclaims pages in use."""

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
"""Faults for which a page was read, of the processes with most of them, sampled as above."""
