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
_GROUP = Path("/proc/self/autogroup")
_RESTORER = f"""
trap '' HUP INT TERM
exec 2>/dev/null
read end
for try in 1 2 3 4 5; do
    echo 0 >{_GROUP} && break
    sleep 0.2
done
"""
"""Without root the kernel takes one change of all sessions in 0.1 s."""


class Hurry:
    """A raised priority of this process, of those that it starts, and of its session, where that is allowed.

    With autogroups (sched(7)) priorities count only inside of a session, so the session is raised as well. It is mostly
    that of the user's shell: a separate process in it restores it, because latmon may be killed or have dropped root. A
    session with another nice value than 0 is left alone: a second start would otherwise restore the first one's -5.
    """

    def __init__(self) -> None:
        self._is_on = False
        self._before = 0
        self._restorer: tuple[int, int] | None = None
        """Process id, and the pipe whose end it waits for."""

    def begin(self) -> None:
        self._before = os.getpriority(os.PRIO_PROCESS, 0)
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, self._before + HURRY)
            self._is_on = True
            os.environ[_BEFORE] = str(self._before)
            self._raise_session()

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
        if self._restorer is not None:
            pid, pipe = self._restorer
            self._restorer = None
            with contextlib.suppress(OSError):  # it was killed
                os.write(pipe, b"\n")
            os.close(pipe)
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)

    def _raise_session(self) -> None:
        if _GROUP.read_bytes().split()[1:] != [b"nice", b"0"]:  # /autogroup-22 nice 0; empty without an autogroup
            return
        reading, writing = os.pipe()
        try:
            pid = os.posix_spawn(
                "/bin/sh",
                ["sh", "-c", _RESTORER],
                {},
                file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
                setpgroup=0,
            )
        except OSError:
            os.close(writing)
            return
        finally:
            os.close(reading)
        self._restorer = (pid, writing)
        _GROUP.write_bytes(b"%d" % HURRY)


def restore_inherited() -> None:
    """Restore the priority of this process where a start raised it; never raise it, whatever the variable has."""
    with contextlib.suppress(KeyError, ValueError, OverflowError, OSError):
        before = int(os.environ.pop(_BEFORE))
        os.setpriority(os.PRIO_PROCESS, 0, max(before, os.getpriority(os.PRIO_PROCESS, 0)))


START = Hurry()
"""That of this process."""
