"""Our child processes: who descends from whom, by /proc (a parameter), and the pipes that they print into."""

from __future__ import annotations

import contextlib
import fcntl
import sys
from collections.abc import Iterator
from pathlib import Path

from latmon.files import text

PIPE_BYTES = 1 << 20


def widen(pipe: int) -> None:
    """Give a pipe room for PIPE_BYTES: a child that prints goes on for longer while its reader is stopped.

    Where the user's pipes hold too much already, 64 KiB have to do.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def descendants(pid: int, proc: Path = Path("/proc")) -> Iterator[int]:
    """Return children, their children and so on; a process that ends meanwhile is left out.

    It costs what the family costs, not what the host has.
    """
    todo = [pid]
    while todo:
        children = [int(child) for one in proc.glob(f"{todo.pop()}/task/*/children") for child in text(one).split()]
        yield from children
        todo += children
