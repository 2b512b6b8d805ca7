"""The raised priority of a start. The first module that a start loads, so it imports next to nothing.

A host with a load of 8 gives a start a fifth of a CPU, and showed its first data after 10 s.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

HURRY = -5
"""Nice value: three times the share of others, for 1 to 2 s of CPU of screen, collector and probe together."""
_TRIES, _REST_S = 5, 0.11
_BEFORE = "LATMON_NICE_BEFORE"
"""Variable of the processes that a start starts: the nice value that they restore themselves."""


class Hurry:
    """A raised priority of this process, of those that it starts, and of its session; nothing without the right to it.

    With autogroups (sched(7)) priorities count only inside of a session, so the session is raised as well.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._before = self._session_before = 0
        self._session = -1

    def begin(self) -> None:
        self._before = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self._before + HURRY)
            self._is_on = True
            os.environ[_BEFORE] = str(self._before)
            # Kept open, because `end` may come after root was dropped.
            session = os.open("/proc/self/autogroup", os.O_RDWR | os.O_CLOEXEC)
            try:
                words = os.read(session, 80).split()  # /autogroup-22 nice 0
                self._session_before = int(words[2])
            except (OSError, ValueError, IndexError):  # it is empty for a process without an autogroup
                os.close(session)
                return
            self._session = session
            _write(self._session, max(self._session_before + HURRY, -20))

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
        if self._session >= 0:
            with contextlib.suppress(OSError):
                _write(self._session, self._session_before)
            os.close(self._session)
            self._session = -1


def _write(session: int, nice: int) -> None:
    """Set the priority of a session. Without root the kernel takes one change of all sessions in 0.1 s."""
    for _ in range(_TRIES):
        try:
            os.write(session, b"%d" % nice)
        except BlockingIOError:
            time.sleep(_REST_S)
        else:
            return


def restore_inherited() -> None:
    """Restore the priority of this process where a start raised it; never raise it, whatever the variable has."""
    with contextlib.suppress(KeyError, ValueError, OverflowError, OSError):
        before = int(os.environ.pop(_BEFORE))
        os.setpriority(os.PRIO_PROCESS, 0, max(before, os.getpriority(os.PRIO_PROCESS, 0)))


START = Hurry()
"""That of this process."""
