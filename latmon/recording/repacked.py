"""A recording that was unpacked, or packed again by something else: the lines are ours, the members are not.

`zcat FILE | gzip` makes one. No reader takes it as it is, because nothing in it says where a second begins; a repair
makes a recording of it. Streams: one line at a time is in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO

from latmon.errors import RecordingError
from latmon.recording import checks

_MAGIC = b"\x1f\x8b"
_GZIP = 31
_PIECE = 256 * 1024
MAX_LONG = 64
"""Lines too long to be ours before it is given up: a bomb has nothing else."""


def is_repacked(file: BinaryIO) -> bool:
    """Whether this text, packed or not, begins with a header of ours; the place in the file is lost."""
    try:
        return checks.parse(next(lines(file), b"")).get("type") == "header"
    except RecordingError:
        return False


def lines(file: BinaryIO) -> Iterator[bytes]:
    """All of them; RecordingError behind the last that can be read."""
    rest, long = b"", 0
    for text in _texts(file):
        *whole, rest = (rest + text).split(b"\n")
        for line in whole:
            yield line + b"\n"
        if len(rest) > checks.MAX_LINE:
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
