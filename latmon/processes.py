"""Who descends from whom, from /proc (a parameter). Costs what the family costs, not what the host has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from latmon.files import text


def descendants(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Children, their children and so on; a process that ends meanwhile is left out."""
    todo = [pid]
    while todo:
        children = [int(child) for one in proc.glob(f"{todo.pop()}/task/*/children") for child in text(one).split()]
        yield from children
        todo += children
