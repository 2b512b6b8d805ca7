"""The raised priority of a start. The first module that a start loads, so it imports next to nothing.

A host with a load of 8 gives a start a fifth of a CPU, and showed its first data after 10 s.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

HURRY = -5
"""Nice value: three times the share of others, for 1 to 2 s of CPU of screen, collector and probe together."""
_BEFORE = "LATMON_NICE_BEFORE"
"""Variable of the processes that a start starts: the nice value that they restore themselves."""


class Hurry:
    """A raised priority of this process and of those that it starts; nothing without the right to it.

    The priority of its session (autogroup, sched(7)) stays: the session is the user's shell, keeps what it gets after
    latmon was killed, and takes the CPU from all other sessions then.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._before = 0

    def begin(self) -> None:
        self._before = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self._before + HURRY)
            self._is_on = True
            os.environ[_BEFORE] = str(self._before)

    def end(self, *children: int) -> None:
        """Restore the priorities of this process and of its children, of all their threads, once."""
        if not self._is_on:
            return
        self._is_on = False
        os.environ.pop(_BEFORE, None)
        for pid in (os.getpid(), *children):
            with contextlib.suppress(OSError):
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    os.setpriority(os.PRIO_PROCESS, int(thread.name), self._before)


def restore_inherited() -> None:
    """Restore the priority of this process where a start raised it; never raise it, whatever the variable has."""
    with contextlib.suppress(KeyError, ValueError, OverflowError, OSError):
        before = int(os.environ.pop(_BEFORE))
        os.setpriority(os.PRIO_PROCESS, 0, max(before, os.getpriority(os.PRIO_PROCESS, 0)))


START = Hurry()
"""That of this process."""
