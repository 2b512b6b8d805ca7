"""When a recording gets a roll-up: before the first member of the next minute, for all members of the one that ended.

Follows members as they are written, whoever writes them: a Writer, or a repair that writes old windows anew. The first
minute gets none, because a sum begins with a window; nor does the last one, which no other follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from latmon.minute_sums import MinuteSums, minute_of
from latmon.model import Frame
from latmon.recording import members
from latmon.recording.minutes import roll_up
from latmon.waiting import Waiting


class Rolling:
    """Ask `due` before a member is written, then tell `took` or `missed`."""

    def __init__(self) -> None:
        self._waiting = Waiting()
        self._sums: MinuteSums | None = None
        self._minute = -1
        self._begin = self._first_us = 0
        self._last_us: int | None = None

    def due(self, windows: Sequence[Frame], end: int) -> bytes:
        """The member that belongs at byte `end`, before the one with these windows; empty where there is none."""
        if self._sums is None or not windows or minute_of(windows[-1].mono_us) == self._minute:
            return b""
        line = roll_up(self._sums)
        self._sums = None
        if line is None or self._last_us is None:
            return b""
        return members.pack(line, self._first_us, self._last_us, end - self._begin)

    def took(self, windows: Sequence[Frame], begin: int, *, alone: bool) -> None:
        """A member was written to byte `begin`; `alone`: its windows are all that is in it."""
        if windows and (self._sums is None or minute_of(windows[-1].mono_us) != self._minute):
            self._sums = MinuteSums(self._waiting, self._last_us)
            self._minute = minute_of(windows[-1].mono_us)
            self._begin, self._first_us = begin, windows[0].mono_us
        if self._sums is not None:
            for frame in windows:
                self._sums.add(frame)
            if not alone:
                self._sums.spoil()
        if windows:
            self._last_us = windows[-1].mono_us

    def missed(self) -> None:
        """Windows were not written."""
        if self._sums is not None:
            self._sums.spoil()
