"""The gzip members of a recording (docs/RECORDING.md): their heads, their places in the file, the writer's lock.

`Places` indexes the members from the file's begin on for as long as there is no damage and time goes forward. Entries
stay valid, because a recording only grows.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import BinaryIO, NamedTuple

from latmon.support import memory
from latmon.support.errors import RecordingError

MAX_TEXT = 16 * 1024 * 1024
"""Decompressed. A second of 24 devices has 17 kB; a bomb of 1 GiB is refused after this much."""
_MAX_LENGTH = MAX_TEXT + 64 * 1024
_MAX_WASTE = 128 * 1024 * 1024
"""Bytes that are searched without result before a file is given up; an hour with every member damaged takes 30 MB."""
_SCAN = 16 * 1024
GIVEN_UP = "too much damage"
GZIP_WITH_EXTRA = b"\x1f\x8b\x08\x04"
_HEAD = struct.Struct("<4sIBBH2sHIQQ")
_STANDS_FOR = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _STANDS_FOR.size
_NOTE = b"LM"
_NOTE_LENGTH = 20
_NO_OS = 255
_GZIP = 31
_LEVEL = 6
"""Level 1 is 20 % larger; 9 is 1 to 4 % smaller, and takes two to five times the CPU. Z_FILTERED saves 3 %: it ignores
short matches, mere chance in numbers."""
_NO_MEMORY = "Error -4 "
"""How zlib reports Z_MEM_ERROR."""
MAX_PLACES = 1_000_000
"""Eleven days of seconds, 16 MB."""


class MemberHead(NamedTuple):
    """Length, stamps and roll-up size in a member's gzip header."""

    length: int
    first_us: int
    last_us: int
    stands_for: int = 0
    """The bytes of members before this one that a reader of sums may leave out for it; 0 in all but roll-ups."""


def pack(text: bytes, first_us: int, last_us: int, stands_for: int = 0) -> bytes:
    """Return one whole member. It has neither file name nor time: the same text gives the same bytes."""
    gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, strategy=zlib.Z_FILTERED)
    squeezed = gzip.compress(text) + gzip.flush()
    more = _STANDS_FOR.pack(stands_for) if stands_for else b""
    length = _HEAD.size + len(more) + len(squeezed) + 8
    note = _NOTE_LENGTH + len(more)
    head = _HEAD.pack(GZIP_WITH_EXTRA, 0, 0, _NO_OS, note + 4, _NOTE, note, length, first_us, last_us)
    return head + more + squeezed + struct.pack("<II", zlib.crc32(text), len(text) & 0xFFFFFFFF)


class ReadError(OSError):
    """Failure to read the file, as distinct from errors of writing what was read."""


def read_at(file: BinaryIO, offset: int, length: int) -> bytes:
    """Return so many bytes of a file, fewer at its end."""
    try:
        return os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise ReadError(error.errno, error.strerror) from None


def head_of(start: bytes) -> MemberHead | None:
    """Return the head of the member that begins with these bytes; None if no recording's member does."""
    if len(start) < _HEAD.size:
        return None
    magic, _, _, _, extra, note, size, length, first_us, last_us = _HEAD.unpack_from(start)
    ours = magic == GZIP_WITH_EXTRA and note == _NOTE and size >= _NOTE_LENGTH and extra >= size + 4
    if not ours or not _HEAD.size < length <= _MAX_LENGTH:
        return None
    reported = size >= _NOTE_LENGTH + _STANDS_FOR.size and len(start) >= HEAD_BYTES
    return MemberHead(length, first_us, last_us, _STANDS_FOR.unpack_from(start, _HEAD.size)[0] if reported else 0)


def unpack(member: bytes) -> bytes:
    """Return a member's text; RecordingError for a wrong checksum or more than MAX_TEXT."""
    gunzip = zlib.decompressobj(_GZIP)
    try:
        text = gunzip.decompress(member, MAX_TEXT)
    except zlib.error as error:
        if str(error).startswith(_NO_MEMORY):
            raise MemoryError from None
        raise RecordingError("damaged") from None
    if not gunzip.eof and len(text) >= MAX_TEXT:
        raise RecordingError(f"more than {MAX_TEXT // 2**20} MiB when unpacked")
    if not gunzip.eof or gunzip.unused_data:
        raise RecordingError("damaged")
    return text


@dataclass(frozen=True, slots=True)
class MemberPart:
    """Bytes `begin` to `end - 1` of a file: a member's text, or its damage. `head` may be of a damaged one."""

    begin: int
    end: int
    head: MemberHead | None
    text: bytes = b""
    damage: str = ""


class Members:
    """Members of a file in their order; anything between them is damage, for which `note` is called."""

    def __init__(self, file: BinaryIO, note: Callable[[str], None], patience: int = _MAX_WASTE) -> None:
        self._file, self._note, self._patience = file, note, patience
        self._wasted = 0

    def texts(self, since_us: int = 0) -> Iterator[bytes]:
        """Yield the members' texts; members that end before `since_us` are skipped."""
        return (part.text for part in self.parts(since_us) if not part.damage)

    def parts(
        self, since_us: int = 0, until_us: int | None = None, *, begin: int = 0, end: int | None = None
    ) -> Iterator[MemberPart]:
        """Yield members and damage with their places, from byte `begin` on.

        Ends before the first member that begins behind `until_us`, or at `end`.
        """
        offset = begin
        while offset < (self.size if end is None else min(end, self.size)):
            head = self.head(offset)
            if head is not None and head.last_us < since_us and self.head(offset + head.length) is not None:
                offset += head.length
                continue
            if head is not None and until_us is not None and head.first_us > until_us:
                return
            memory.require_room()
            part = self._part(offset, head)
            yield part
            offset = part.end
            if self._wasted > self._patience:
                given_up = f"{GIVEN_UP}: what is behind byte {offset} is not read"
                self._note(given_up)
                yield MemberPart(offset, self.size, None, damage=given_up)
                return

    def _part(self, offset: int, head: MemberHead | None) -> MemberPart:
        """Return the member or damage at `offset`; it ends where reading can go on."""
        why = "no part of a recording"
        if head is not None:
            member = self._read(offset, head.length)
            try:
                return MemberPart(offset, offset + head.length, head, unpack(member))
            except RecordingError as damage:
                why = str(damage) if len(member) == head.length else "cut off"
            self._wasted += len(member) + MAX_TEXT * why.startswith("more")
        after = self._next(offset + 1)
        self._note(f"bytes {offset} to {after - 1}: {why}")
        return MemberPart(offset, after, head, damage=why)

    def _next(self, offset: int) -> int:
        """Return where the next member begins, at `offset` or later; the file's end if there is none."""
        begin = offset
        while self._wasted <= self._patience and (chunk := self._read(offset, _SCAN + _HEAD.size)):
            at = chunk.find(GZIP_WITH_EXTRA)
            while at >= 0:
                if self.head(offset + at) is not None:
                    self._wasted += offset + at - begin
                    return offset + at
                at = chunk.find(GZIP_WITH_EXTRA, at + 1)
            offset += min(len(chunk), _SCAN)
            self._wasted += offset - begin
            begin = offset
        return min(offset, self.size)

    def head(self, offset: int) -> MemberHead | None:
        """Return the head of the member at `offset`; None if there is none."""
        return head_of(self._read(offset, HEAD_BYTES))

    def _read(self, offset: int, length: int) -> bytes:
        return read_at(self._file, offset, length)

    @property
    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size


class Places:
    """Index of members by their last stamp; `end` is the place of the first member that isn't indexed."""

    def __init__(self) -> None:
        self._begins, self._lasts = array("Q"), array("Q")
        self._learning = Lock()
        self._first_us = 0
        self.end = 0

    def ends(self) -> list[int]:
        """Return the last stamps of the indexed members that have windows."""
        return [us for us in self._lasts[1:] if us] if len(self._lasts) > 1 else []

    def behind(self, file: BinaryIO, mono_us: int) -> int:
        """Return the first byte from which members may end at `mono_us` or later."""
        if not self._lasts or self._lasts[-1] < mono_us:
            self.follow(file)
        index = bisect_left(self._lasts, mono_us)
        begin = self._begins[index] if index < len(self._begins) else self.end
        # a file of another one's name, or one that was cut, has no member here
        return begin if head_of(read_at(file, begin, HEAD_BYTES)) else 0

    def follow(self, file: BinaryIO) -> tuple[int, int]:
        """Index the members that were written since; return the first and the last stamp of all."""
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


def is_written(file: BinaryIO) -> bool:
    """Return whether a writer has the file locked: it has no closing line yet, and was not killed."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
