"""Repair of a recording: the same lines, byte for byte, in whole members with right stamps.

Lost windows become a gap line, and a closing line counts the copy's own windows. scan.py decides what can be read; a
repacked file is read line by line with the same checks, so that places in it are line numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from latmon.model.frame import Frame, Origin
from latmon.recording import decode, encode, members, validate
from latmon.recording.encode import End, Gap
from latmon.recording.members import MemberPart, is_repacked, lines
from latmon.recording.reader import MAX_LINES, UNCLOSED, Recording, open_recording, opened
from latmon.recording.rollup import KIND
from latmon.recording.scan import Damage, ScannedLine, is_imported, line_of
from latmon.recording.validate import ReadPosition
from latmon.recording.writer import FLUSH_US, Rolling
from latmon.support.errors import RecordingError, TooManyError

DAMAGED = "damaged"
REPAIRED = "repaired"
_MEMBER_BYTES = 4 * 1024 * 1024


class CleanCopy:
    """Writer of whole members from all passages of a file in their order; `write` gets the bytes."""

    def __init__(self, write: Callable[[bytes], object], origin: Origin, *, headless: bool) -> None:
        self._write = write
        self._pending: list[bytes] = []
        self._bytes = 0
        self._begin = 0
        self._frames: list[Frame] = []
        self._end = 0
        self._rolling = Rolling()
        self._mono_us = origin.start_mono_us
        self._closing: tuple[ScannedLine, bool] | None = None
        self._since_end = 0
        self._damaged = headless
        self.windows = self.gaps = 0
        if headless:
            self._put(encode.to_bytes(encode.encode_origin(origin)), None)
            self._flush()

    def add(self, passage: ScannedLine | Damage) -> None:
        if isinstance(passage, Damage):
            self._damaged = True
            if passage.lost_us:
                self.gaps += 1
                gap = Gap(DAMAGED, passage.lost_us / 1e6, passage.mono_us, passage.wall)
                self._keep_closing()
                self._put(encode.to_bytes(encode.encode_gap(gap)), None)
            return
        self._keep_closing()
        if passage.kind == KIND:
            return  # it is made again from the windows that are left
        if passage.part.begin != self._begin:
            self._flush()
            self._begin = passage.part.begin
        if isinstance(passage.item, End):
            self._closing = passage, passage.item.windows == self._since_end
            return
        raw = passage.raw if passage.raw.endswith(b"\n") else passage.raw + b"\n"
        self._put(raw, passage.item if isinstance(passage.item, Frame) else None)

    def finish(self) -> None:
        """Close it; its own closing line is kept if nothing was damaged."""
        if self._closing is not None and self._closing[1] and not self._damaged:
            self._keep_closing()
        else:
            self._flush()
            self._put(encode.to_bytes(encode.encode_end(End(REPAIRED, self._since_end))), None)
        self._flush()

    def _keep_closing(self) -> None:
        """Keep a closing line that isn't the last if its count is right: two recordings in one file."""
        closing, self._closing = self._closing, None
        if closing is not None and closing[1]:
            self._put(closing[0].raw.rstrip(b"\n") + b"\n", None)
            self._since_end = 0

    def _put(self, raw: bytes, frame: Frame | None) -> None:
        if self._bytes + len(raw) > _MEMBER_BYTES or len(self._pending) >= MAX_LINES:
            self._flush()
        self._pending.append(raw)
        self._bytes += len(raw)
        if frame is not None:
            self.windows += 1
            self._since_end += 1
            self._mono_us = frame.mono_us
            self._frames.append(frame)

    def _flush(self) -> None:
        if not self._pending:
            return
        first_us = self._frames[0].mono_us if self._frames else self._mono_us
        roll_up = self._rolling.due(self._frames, self._end)
        member = members.pack(b"".join(self._pending), first_us, self._mono_us)
        self._write(roll_up + member)
        self._rolling.took(self._frames, self._end + len(roll_up), alone=len(self._frames) == len(self._pending))
        self._end += len(roll_up) + len(member)
        self._pending, self._bytes, self._frames = [], 0, []


REPACKED = "it was unpacked, or packed again by another program: only --repair reads it"


class RepackedRecording(Recording):
    """Recording with an origin and lines, but no items for a reader."""


def opened_anyway(path: Path) -> Recording:
    """Open a recording or a repacked one; RecordingError if even a repair could read nothing."""
    try:
        return open_recording(path)
    except RecordingError as refusal:
        with opened(path) as file:
            if not is_repacked(file):
                raise
            header = validate.parse(next(lines(file)))
        try:
            return RepackedRecording(path, decode.decode_origin(header), decode.decode_devices(header), "")
        except RecordingError as newer:
            raise RecordingError(f"{path} can't be read: {newer}") from refusal


class Repacked:
    """Passages of a repacked file, iterated once like Passages."""

    live = False

    def __init__(self, file: BinaryIO, origin: Origin) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self.members = 1
        self.ended: End | None = None
        self._file = file
        self._imported = is_imported(origin)
        self._position = ReadPosition()

    @property
    def place(self) -> int:
        """Return the position in the file."""
        return self._file.tell()

    def __iter__(self) -> Iterator[ScannedLine | Damage]:
        yield Damage(0, REPACKED, mild=True)
        wall, covered_us, number, member = 0.0, 0, 0, 0
        found = lines(self._file)
        while True:
            number += 1
            try:
                if (raw := next(found, None)) is None:
                    break
                item, kind = line_of(raw, self._position, imported=self._imported)
            except TooManyError as refusal:
                yield Damage(0, f"{refusal}: nothing after it is read", None, line=number)
                break
            except RecordingError as refusal:
                yield Damage(0, str(refusal), None, max(0, self._position.mono_us), wall, line=number)
                continue
            if self._position.is_foreign:
                continue
            if item is not None or kind == "header":
                self.ended = item if isinstance(item, End) else None
            yield ScannedLine(MemberPart(member, 0, None), raw, item, kind)
            if isinstance(item, Frame):
                wall, covered_us = item.wall, covered_us + item.dt_us
            if covered_us + (item.dt_us // 2 if isinstance(item, Frame) else 0) >= FLUSH_US:
                member, covered_us = member + 1, 0
        if self.ended is None:
            yield Damage(self.size, UNCLOSED, 0, max(0, self._position.mono_us), wall, mild=True)
