"""Operations on files that hang, and the processes that serve file systems: what rules about servers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from latmon.findings.evidence import host_before
from latmon.findings.facts import Block, Facts
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import SERVER, FileSystem
from latmon.model.measurements import FILE_SERVERS, HUNG_OPERATIONS
from latmon.model.measurements.file_sleeps import FileSleep
from latmon.model.measurements.hung_operations import HungOperation


def is_known_mount(mount: str) -> bool:
    """Return whether a mount is known: in a fleet, that of a host alone (`HOST:`) is not."""
    return bool(mount) and not mount.endswith(HOST_SEPARATOR)


def file_system_of(facts: Facts, row: FileSleep | HungOperation) -> FileSystem:
    """Return the file system of a row; in a fleet the host (`HOST:`) stands for a device that isn't known."""
    return FileSystem(row.mount, row.kind, row.device or host_before(facts, row.mount))


def unbroken(window: Sequence[Block], row: HungOperation) -> list[Block]:
    """Return the last blocks through which operations of a process have hung without a break.

    The block in which they began to hang is the first of them, unless it has the time of others, too.
    """
    blocks: list[Block] = []
    for at in range(len(window) - 1, -1, -1):
        time = window[at][HUNG_OPERATIONS].get(row)
        if time is None or time.times > 1:
            break
        has_others = at > 0 and row in window[at - 1][HUNG_OPERATIONS]
        if time.times == 0 or not has_others:
            blocks.append(window[at])
        if time.times:
            break
    return blocks


def stuck_until_us(facts: Facts, mount: str, process: str) -> frozenset[int]:
    """Return the ends of the last blocks in which a process has waited for a mount's server in one operation."""
    rows = [
        row
        for row in facts.window[-1][HUNG_OPERATIONS]
        if row.cause == SERVER and row.mount == mount and row.process == process
    ]
    return frozenset(block.end_us for row in rows for block in unbroken(facts.window, row))


def server_of(facts: Facts, mount: str) -> str:
    """Return the process that serves a mount, as NAME; empty where it is not known."""
    served: Mapping[str, int] = {row.process: us for row, us in facts[FILE_SERVERS].items() if row.mount == mount}
    if not served:
        return ""
    return max(served, key=lambda process: served[process]).rpartition("/")[0]
