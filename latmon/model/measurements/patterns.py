"""Where I/Os lay on a device, and how they were flagged."""

from __future__ import annotations

from dataclasses import dataclass

from latmon.model.frame import Flow
from latmon.model.table import DEVICE, OP, Table, Unit, record


@dataclass(frozen=True, slots=True)
class Pattern:
    """I/Os of one op that went to a device in an interval, by where they lay and how they were flagged."""

    issued: int = 0
    sequential: int = 0
    """Those that began where one of the last I/Os of the op had ended."""
    sync: int = 0
    """Writes flagged SYNC: something waits for them, as for direct ones, not for writeback. Reads have no such flag."""
    ahead: int = 0
    """Reads ahead of what a program asked for."""
    unaligned: int = 0
    """Those that begin or end within a physical block of the device."""


def _impossible(issued: int, *of_kinds: int) -> str:
    return "has a row with more I/Os of a kind than were issued" if max(of_kinds) > issued else ""


PATTERNS = Table(
    "patterns",
    Flow,
    (DEVICE, OP),
    record(
        Pattern,
        impossible=_impossible,
        issued=Unit.IOS,
        sequential=Unit.IOS,
        sync=Unit.IOS,
        ahead=Unit.IOS,
        unaligned=Unit.IOS,
    ),
    group="sizes",
    export_name="pattern",
    has_own_decoder=True,  # one map counts all: the code in its keys has a bit for each kind
)
"""Issued I/Os of traced devices, of which each is counted as long as the tracer traces every I/O."""
PATTERN = tuple(cell.name for cell in PATTERNS.value.cells)
"""Fields of a Pattern."""
