"""Where a recording's members are: learned once by hopping from head to head, then a seek is a look into a table.

Knows the members that follow each other without damage while time goes forward; what is behind the first that don't is
read in its order. Forgets nothing: a recording only grows, and what it says in a place it goes on to say.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from threading import Lock
from typing import BinaryIO

from latmon.recording.members import HEAD_BYTES, head_of, read_at

MAX_PLACES = 1_000_000
"""Eleven days of seconds, 16 MB."""


class Places:
    """`end` is where the first member begins that isn't known."""

    def __init__(self) -> None:
        self._begins, self._lasts = array("Q"), array("Q")
        self._learning = Lock()
        self._first_us = 0
        self.end = 0

    def ends(self) -> list[int]:
        """The last stamps of those that are known and hold windows."""
        return [us for us in self._lasts[1:] if us] if len(self._lasts) > 1 else []

    def behind(self, file: BinaryIO, mono_us: int) -> int:
        """The byte from which on members may end at `mono_us` or later."""
        if not self._lasts or self._lasts[-1] < mono_us:
            self.follow(file)
        index = bisect_left(self._lasts, mono_us)
        begin = self._begins[index] if index < len(self._begins) else self.end
        # a file of another one's name, or one that was cut, has no member here
        return begin if head_of(read_at(file, begin, HEAD_BYTES)) else 0

    def follow(self, file: BinaryIO) -> tuple[int, int]:
        """Learn what there is by now: the first stamp and the last one of what is known."""
        with self._learning:
            return self._follow(file)

    def _follow(self, file: BinaryIO) -> tuple[int, int]:
        end = self.end
        last_us = self._lasts[-1] if self._lasts else 0
        head = head_of(read_at(file, end, HEAD_BYTES))
        while head is not None and head.last_us >= last_us and len(self._begins) < MAX_PLACES:
            behind = end + head.length
            after = head_of(read_at(file, behind, HEAD_BYTES))
            if after is None:  # this one may be cut
                break
            if not self._begins:
                self._first_us = head.first_us
            self._begins.append(end)
            self._lasts.append(head.last_us)
            last_us, end, head = head.last_us, behind, after
        self.end = end
        return self._first_us, last_us
