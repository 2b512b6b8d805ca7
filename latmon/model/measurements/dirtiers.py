"""Processes that dirty pages faster than a device writes them, and the pauses for which the kernel stops them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from latmon.model.table import DEVICE, Meaning, Part, Table, record_of_counts


class Dirtier(NamedTuple):
    """Key of a process that dirties pages of a device's files."""

    device: str
    """That of the kernel's backing device (bdi), which is a whole disk."""
    process: str
    """NAME/PID."""


@dataclass(frozen=True, slots=True)
class Dirtied:
    """Pages that a process dirtied, and its pauses for that.

    The kernel reports them only while the dirty pages are above the middle of the background limit and the limit.
    """

    paused_us: int = 0
    """Time for which balance_dirty_pages() stopped it, as it was planned at the begin of each pause."""
    dirtied_bytes: int = 0


DIRTIERS = Table(
    "dirtiers",
    Dirtier,
    (DEVICE, Part(Meaning.PROCESS, probe_part="process")),
    record_of_counts(Dirtied),
    group="always",
    export_name="dirtier",
    row_title="a process that dirties pages",
    counts_ios=False,
)
"""Processes that dirty pages while writers are paused; none: nobody was paused."""
