"""Processes in /proc: their numbers, and the names by which rows have them."""

from __future__ import annotations

import os
from pathlib import Path

from latmon.support.paths import content
from latmon.support.text import clean

_MAX_NAME = 256 - len("/4294967295")
"""A recording has names of 256 characters at most, and the number of the process is in it."""


def pids(proc: Path) -> list[int]:
    """Return the numbers of all processes, in the kernel's order. OSError where /proc can't be read."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]  # noqa: PTH208 - no paths of thousands


def row_name(comm: str | bytes, pid: int | str) -> str:
    """Return NAME/PID, which rows have as a process; a slash in the name is no separator."""
    return f"{clean(comm, _MAX_NAME).replace('/', '_')}/{pid}"


def row_name_of(proc: Path, pid: int | str) -> str:
    """Return NAME/PID by /proc/PID/comm; an empty name where the process has ended."""
    return row_name(content(f"{proc}/{pid}/comm").rstrip(b"\n"), pid)
