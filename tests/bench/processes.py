"""CPU time and memory of processes, and who started whom: from /proc."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME = 11
"""Index of utime behind the comm in /proc/PID/stat; stime follows."""


def descendants(pid: int, word: str = "") -> list[int]:
    """All below `pid` whose command line or comm contains `word`, the oldest first."""
    found: list[int] = []
    todo = [pid]
    while todo:
        with contextlib.suppress(OSError):  # it ended meanwhile
            for children in Path(f"/proc/{todo.pop(0)}/task").glob("*/children"):
                todo += [int(child) for child in _read(children).split()]
        found += [one for one in todo if one not in found]
    return [one for one in found if word in _read(Path(f"/proc/{one}/comm"))]


def child_module(pid: int, module: str) -> int | None:
    """The descendant that runs `python -m module`."""
    for descendant in descendants(pid):
        if module in _read(Path(f"/proc/{descendant}/cmdline")).split("\0"):
            return descendant
    return None


def cpu_s(pid: int) -> float:
    """User and system time so far."""
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return sum(int(field) for field in fields[_UTIME : _UTIME + 2]) / _TICKS if fields else 0.0


def memory_mb(pid: int, what: str = "Rss") -> float:
    """`Rss`, or `Pss`: shared pages divided among those who map them. MB of 10^6 bytes."""
    for line in _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one process over some seconds."""

    cpu_percent: float
    rss_mb: float
    pss_mb: float


def watch(pids: dict[str, int], seconds: float) -> dict[str, Usage]:
    """Return the usage of each named process in the next `seconds`, in percent of one core."""
    before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {
        name: Usage(100 * (cpu_s(pid) - before[name]) / passed, memory_mb(pid), memory_mb(pid, "Pss"))
        for name, pid in pids.items()
    }


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:  # the process ended
        return ""
