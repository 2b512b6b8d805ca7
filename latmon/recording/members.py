"""The gzip members of a recording: lengths and stamps in the extra field, offsets, the writer's lock.

Subfield `LM` (RFC 1952, 2.3.1.1): the member's own length, then the first and last CLOCK_MONOTONIC stamp in it; in a
roll-up also how many bytes of members before it it stands for. A reader hops from member to member without
decompressing, and finds its way back behind damage by the next note.
Knows nothing of what the members hold.

Knows the members that follow each other without damage while time goes forward; what is behind the first that don't is
read in its order. Forgets nothing: a recording only grows, and what it says in a place it goes on to say.

`zcat FILE | gzip` makes one. No reader takes it as it is, because nothing in it says where a second begins; a repair
makes a recording of it. Streams: one line at a time is in memory.
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

from latmon.recording import validate
from latmon.support.errors import RecordingError

MAX_TEXT = 16 * 1024 * 1024
"""Decompressed. A second of 24 devices has 17 kB; a bomb of 1 GiB is refused after this much."""
_MAX_LENGTH = MAX_TEXT + 64 * 1024
_MAX_WASTE = 128 * 1024 * 1024
"""Bytes looked at in vain before a file is given up: an hour in which every member is damaged takes 30 MB."""
_SCAN = 16 * 1024
GIVEN_UP = "too much damage"
_GZIP_WITH_EXTRA = b"\x1f\x8b\x08\x04"
_HEAD = struct.Struct("<4sIBBH2sHIQQ")
_STANDS_FOR = struct.Struct("<Q")
HEAD_BYTES = _HEAD.size + _STANDS_FOR.size
_NOTE = b"LM"
_NOTE_LENGTH = 20
_NO_OS = 255
_GZIP = 31
_LEVEL = 6
"""Level 1 is 20 % larger, 9 no smaller. Z_FILTERED takes 3 % off: what repeats by chance in numbers isn't worth it."""


class Head(NamedTuple):
    """What a member says about itself."""

    length: int
    first_us: int
    last_us: int
    stands_for: int = 0
    """The bytes of members before this one that a reader of sums may leave out for it; 0 in all but roll-ups."""


def pack(text: bytes, first_us: int, last_us: int, stands_for: int = 0) -> bytes:
    """One whole member. No file name and no time in it: the same text gives the same bytes."""
    gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, strategy=zlib.Z_FILTERED)
    squeezed = gzip.compress(text) + gzip.flush()
    more = _STANDS_FOR.pack(stands_for) if stands_for else b""
    length = _HEAD.size + len(more) + len(squeezed) + 8
    note = _NOTE_LENGTH + len(more)
    head = _HEAD.pack(_GZIP_WITH_EXTRA, 0, 0, _NO_OS, note + 4, _NOTE, note, length, first_us, last_us)
    return head + more + squeezed + struct.pack("<II", zlib.crc32(text), len(text) & 0xFFFFFFFF)


class ReadError(OSError):
    """The file can't be read: none of the errors of whoever writes what was read of it."""


def read_at(file: BinaryIO, offset: int, length: int) -> bytes:
    """So many bytes of a file, fewer at its end."""
    try:
        return os.pread(file.fileno(), length, offset)
    except OSError as error:
        raise ReadError(error.errno, error.strerror) from None


def head_of(start: bytes) -> Head | None:
    """The head of the member that begins with these bytes; None when there is none of ours."""
    if len(start) < _HEAD.size:
        return None
    magic, _, _, _, extra, note, size, length, first_us, last_us = _HEAD.unpack_from(start)
    ours = magic == _GZIP_WITH_EXTRA and note == _NOTE and size >= _NOTE_LENGTH and extra >= size + 4
    if not ours or not _HEAD.size < length <= _MAX_LENGTH:
        return None
    told = size >= _NOTE_LENGTH + _STANDS_FOR.size and len(start) >= HEAD_BYTES
    return Head(length, first_us, last_us, _STANDS_FOR.unpack_from(start, _HEAD.size)[0] if told else 0)


def unpack(member: bytes) -> bytes:
    """A member's text; RecordingError when it isn't what was packed, or too much of it."""
    gunzip = zlib.decompressobj(_GZIP)
    try:
        text = gunzip.decompress(member, MAX_TEXT)
    except zlib.error:
        raise RecordingError("damaged") from None
    if not gunzip.eof and len(text) >= MAX_TEXT:
        raise RecordingError(f"more than {MAX_TEXT // 2**20} MiB when unpacked")
    if not gunzip.eof or gunzip.unused_data:
        raise RecordingError("damaged")
    return text


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes `begin` to `end - 1` of a file: a member's text, or why there is none. `head` may be of a damaged one."""

    begin: int
    end: int
    head: Head | None
    text: bytes = b""
    damage: str = ""


class Members:
    """A file's members, in order, whatever lies between them; `note` is told of every damage."""

    def __init__(self, file: BinaryIO, note: Callable[[str], None], patience: int = _MAX_WASTE) -> None:
        self._file, self._note, self._patience = file, note, patience
        self._wasted = 0

    def texts(self, since_us: int = 0) -> Iterator[bytes]:
        """Their texts. Members that end before `since_us` are hopped over."""
        return (part.text for part in self.parts(since_us) if not part.damage)

    def parts(
        self, since_us: int = 0, until_us: int | None = None, *, begin: int = 0, end: int | None = None
    ) -> Iterator[Part]:
        """The same with their places, and what is damaged in its place: what begins at byte `begin` or behind it.

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
            part = self._part(offset, head)
            yield part
            offset = part.end
            if self._wasted > self._patience:
                given_up = f"{GIVEN_UP}: what is behind byte {offset} is not read"
                self._note(given_up)
                yield Part(offset, self.size, None, damage=given_up)
                return

    def _part(self, offset: int, head: Head | None) -> Part:
        """What begins at `offset`, and ends where one can go on."""
        why = "no part of a recording"
        if head is not None:
            member = self._read(offset, head.length)
            try:
                return Part(offset, offset + head.length, head, unpack(member))
            except RecordingError as damage:
                why = str(damage) if len(member) == head.length else "cut off"
            self._wasted += len(member) + MAX_TEXT * why.startswith("more")
        after = self._next(offset + 1)
        self._note(f"bytes {offset} to {after - 1}: {why}")
        return Part(offset, after, head, damage=why)

    def _next(self, offset: int) -> int:
        """Where the next member of ours begins, at `offset` or behind it; the file's end when there is none."""
        begin = offset
        while self._wasted <= self._patience and (chunk := self._read(offset, _SCAN + _HEAD.size)):
            at = chunk.find(_GZIP_WITH_EXTRA)
            while at >= 0:
                if self.head(offset + at) is not None:
                    self._wasted += offset + at - begin
                    return offset + at
                at = chunk.find(_GZIP_WITH_EXTRA, at + 1)
            offset += min(len(chunk), _SCAN)
            self._wasted += offset - begin
            begin = offset
        return min(offset, self.size)

    def head(self, offset: int) -> Head | None:
        """What the member at `offset` says about itself; None when there is none."""
        return head_of(self._read(offset, HEAD_BYTES))

    def _read(self, offset: int, length: int) -> bytes:
        return read_at(self._file, offset, length)

    @property
    def size(self) -> int:
        """Of the file by now."""
        return os.fstat(self._file.fileno()).st_size


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


def is_written(file: BinaryIO) -> bool:
    """Then it has no closing line yet, and nobody killed its writer."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


_MAGIC = b"\x1f\x8b"
_PIECE = 256 * 1024
MAX_LONG = 64
"""Lines too long to be ours before it is given up: a bomb has nothing else."""


def is_repacked(file: BinaryIO) -> bool:
    """Whether this text, packed or not, begins with a header of ours; the place in the file is lost."""
    try:
        return validate.parse(next(lines(file), b"")).get("type") == "header"
    except RecordingError:
        return False


def lines(file: BinaryIO) -> Iterator[bytes]:
    """All of them; RecordingError behind the last that can be read."""
    rest, long = b"", 0
    for text in _texts(file):
        *whole, rest = (rest + text).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > validate.MAX_LINE:
            long += 1
            if long > MAX_LONG:
                raise RecordingError("its lines are longer than any of ours")
            yield rest
            rest = b""
    if rest:
        yield rest


def _texts(file: BinaryIO) -> Iterator[bytes]:
    """What is unpacked, a piece at a time, to the last byte that can be."""
    file.seek(0)
    packed = file.read(len(_MAGIC)) == _MAGIC
    file.seek(0)
    gunzip = zlib.decompressobj(_GZIP)
    while raw := file.read(_PIECE):
        if not packed:
            yield raw
            continue
        while raw:
            if gunzip.eof:
                gunzip = zlib.decompressobj(_GZIP)
            try:
                yield gunzip.decompress(raw, _PIECE)
            except zlib.error:
                raise RecordingError("damaged: what is behind it is not read") from None
            raw = gunzip.unused_data if gunzip.eof else gunzip.unconsumed_tail
    if packed and not gunzip.eof:
        yield gunzip.flush()
        raise RecordingError("cut off")
