"""Processes whose I/O priority is not the usual one: a scheduler sends their I/Os after, or before, those of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.table import Meaning, Part, Table, record_of_counts

IDLE_CLASS, BEST_EFFORT, REAL_TIME = "idle", "best-effort", "real-time"
USUAL_LEVEL, LOWEST_LEVEL = 4, 7
"""Levels of best-effort: the one that nobody set (include/uapi/linux/ioprio.h IOPRIO_BE_NORM), and the last."""

HEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bfq": (IDLE_CLASS, BEST_EFFORT), "mq-deadline": (IDLE_CLASS,)}
)
"""Scheduler -> the classes whose I/Os it sends after others: bfq by class and level (block/bfq-iosched.c), mq-deadline
by class, since Linux 5.14 (block/mq-deadline.c). Both send those of the real-time class first. kyber heeds none, and
without a scheduler nothing does."""


class IoPriority(NamedTuple):
    """Key of a process with a low I/O priority, or of the real-time class; one whose priority is changed is another."""

    process: str
    """NAME/PID."""
    io_class: str
    """Also where it follows from the process's nice value or its policy."""
    level: int
    """Of best-effort 5, 6 or 7, of the real-time class 0 to 7; 0 of the idle class."""


@dataclass(frozen=True, slots=True)
class PriorityTime:
    """Time in which a process had the priority, as it was looked at."""

    lasted_us: int
    io_bytes: int
    """Bytes that it read from devices and made dirty meanwhile; 0 also where they may not be read."""


IO_PRIORITIES = Table(
    "io_priorities",
    IoPriority,
    (Part(Meaning.PROCESS), Part(names=(IDLE_CLASS, BEST_EFFORT, REAL_TIME)), Part(highest=LOWEST_LEVEL)),
    record_of_counts(PriorityTime),
    group="io priorities",
    export_name="io_priority",
    row_title="a process with an I/O priority that is not the usual one",
    counts_ios=False,
    has_own_decoder=True,  # asked by ioprio_get(2), no probe
)
"""Processes of the idle and of the real-time class, and of best-effort below the usual level, while a device has a
scheduler of HEEDED."""
