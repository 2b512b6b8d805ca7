"""What a repair can take of a recording that was packed by something else: its lines, a second to a member again.

Goes line by line where passages.py goes member by member, with the same checks. A place in it is a line's number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from latmon.checking.passages import Damage, Line, is_imported, line_of
from latmon.errors import RecordingError, TooManyError
from latmon.model import Frame, Origin
from latmon.recording import Recording, checks, decode, open_recording
from latmon.recording.course import Course
from latmon.recording.lines import End
from latmon.recording.members import Part
from latmon.recording.reader import UNCLOSED, opened
from latmon.recording.repacked import is_repacked, lines
from latmon.recording.writer import FLUSH_US

REPACKED = "it was unpacked, or packed again by another program: only --repair reads it"


class RepackedRecording(Recording):
    """It has an origin and lines, and no item for a reader."""


def opened_anyway(path: Path) -> Recording:
    """RecordingError when there is nothing that even a repair could take."""
    try:
        return open_recording(path)
    except RecordingError as refusal:
        with opened(path) as file:
            if not is_repacked(file):
                raise
            header = checks.parse(next(lines(file)))
        try:
            return RepackedRecording(path, decode.decode_origin(header), decode.decode_devices(header), "")
        except RecordingError as newer:
            raise RecordingError(f"{path} can't be read: {newer}") from refusal


class Repacked:
    """As Passages: iterate it once."""

    live = False

    def __init__(self, file: BinaryIO, origin: Origin) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self.members = 1
        self.ended: End | None = None
        self._file = file
        self._imported = is_imported(origin)
        self._course = Course()

    @property
    def place(self) -> int:
        """How far it came."""
        return self._file.tell()

    def __iter__(self) -> Iterator[Line | Damage]:
        yield Damage(0, REPACKED, mild=True)
        wall, covered_us, number, member = 0.0, 0, 0, 0
        found = lines(self._file)
        while True:
            number += 1
            try:
                if (raw := next(found, None)) is None:
                    break
                item, kind = line_of(raw, self._course, imported=self._imported)
            except TooManyError as refusal:
                yield Damage(0, f"{refusal}: nothing behind it is read", None, line=number)
                break
            except RecordingError as refusal:
                yield Damage(0, str(refusal), None, max(0, self._course.mono_us), wall, line=number)
                continue
            if self._course.is_foreign:
                continue
            if item is not None or kind == "header":
                self.ended = item if isinstance(item, End) else None
            yield Line(Part(member, 0, None), raw, item, kind)
            if isinstance(item, Frame):
                wall, covered_us = item.wall, covered_us + item.dt_us
            if covered_us + (item.dt_us // 2 if isinstance(item, Frame) else 0) >= FLUSH_US:
                member, covered_us = member + 1, 0
        if self.ended is None:
            yield Damage(self.size, UNCLOSED, 0, max(0, self._course.mono_us), wall, mild=True)
