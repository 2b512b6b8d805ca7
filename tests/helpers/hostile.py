"""Recordings that latmon never writes: each is a header, something hostile, a good window and a closing line."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from recorded import ORIGIN, frame

from latmon.recording.codec import End, encode_frame, encode_note, encode_origin, to_bytes
from latmon.recording.members import MAX_TEXT, pack

GOOD = 10**6
"""`seq` of the good window."""
GIB = 2**30
EVIL = "\x1b]52;c;aGk=\x07[@click=quit]x[/red]\u202e\u200b\n\t../../../../tmp/evil"
WINDOW = b'{"type":"window","seq":1,"t":1000001,"mono":6000001,"dt":1000000,"h":{"rows":['


YAML_SPLINTERS = (
    *(b":", b"- ", b"\n", b"\n  ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"<<: ", b"!!python/object:os.system "),
    *(b"null", b"1e999", b".nan", b"-1", b"9" * 40, b"\x00", b"\xff"),
)
"""What `mutated` puts into a YAML file, whatever its keys are."""


def cases(few: int) -> list[object]:
    """Return `seed` and `count` for a test of mutated files: a few cases, and as slow ones a million in tenths."""
    slow = (pytest.mark.slow, pytest.mark.timeout(7200))
    return [pytest.param(few, few), *(pytest.param(seed, 100_000, marks=slow) for seed in range(10))]


def mutated(text: bytes, draw: Random, others: Sequence[bytes], splinters: Sequence[bytes]) -> bytes:
    """Return a text after one to four edits, which also put `splinters` or parts of `others` in."""
    data = bytearray(text)
    for _ in range(draw.randint(1, 4)):
        at, way = draw.randrange(len(data) + 1), draw.randrange(5)
        if way == 0:
            data[at : at + 1] = bytes([draw.randrange(256)])
        elif way == 1:
            del data[at : at + draw.randint(1, 20)]
        elif way == 2:
            data[at:at] = data[draw.randrange(len(data) + 1) :][:20]
        elif way == 3:
            data[at:at] = draw.choice(splinters)
        else:
            data[at:] = draw.choice(others)[draw.randrange(40) :]
    return bytes(data)


def member(line: bytes, at: int = 6_000_001) -> bytes:
    """A member with these stamps in its head, for any text."""
    return pack(line, at, at)


def _good() -> bytes:
    given_frame = frame(GOOD)
    return pack(to_bytes(encode_frame(given_frame)), given_frame.mono_us, given_frame.mono_us)


def _window(seq: int, **changed: object) -> bytes:
    given_frame = frame(seq)
    return pack(to_bytes(encode_frame(given_frame) | changed), given_frame.mono_us, given_frame.mono_us)


def _series(rows: bytes, buckets: bytes = b"", counts: bytes = b"") -> bytes:
    return member(WINDOW + rows + b'],"b":[' + buckets + b'],"n":[' + counts + b"]}}\n")


def _bomb() -> bytes:
    """One member that becomes 1 GiB."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    blank, checksum = b" " * 2**20, 0
    text = []
    for _ in range(GIB // len(blank)):
        text.append(squeeze.compress(blank))
        checksum = zlib.crc32(blank, checksum)
    squeezed = b"".join(text) + squeeze.flush()
    whole = bytearray(member(b""))
    head = whole[: len(whole) - 8 - len(zlib.compress(b"", wbits=-15))]
    struct.pack_into("<I", head, 16, len(head) + len(squeezed) + 8)
    return bytes(head) + squeezed + struct.pack("<II", checksum, GIB & 0xFFFFFFFF)


def _new_labels() -> bytes:
    filled = {"b": [1, *[256] * 9_999], "n": [1] * 10_000}
    return b"".join(
        _window(seq, h={"rows": [[f"d{seq}-{row}", "r"] for row in range(10_000)], **filled}) for seq in range(100)
    )


def _evil_strings() -> bytes:
    device = {"name": EVIL, "major": 8, "minor": 1} | dict.fromkeys(("driver", "controller", "model", "serial"), EVIL)
    reported = {
        "h": {"rows": [[EVIL, EVIL]], "b": [1], "n": [1]},
        "stages": {"rows": [[EVIL, EVIL, [EVIL]]], "b": [1], "n": [1]},
        "seen": {"rows": [[EVIL, EVIL]], "n": [1], "bytes": [1]},
        "devices": [device],
        "health": {"notice": EVIL},
        "gap": EVIL,
    }
    asides = [{"type": "mark", "text": EVIL, "changed": {EVIL: {EVIL: EVIL}}}, {"type": "gap", "reason": EVIL}]
    return b"".join(
        (*(member(to_bytes(one)) for one in asides), member(to_bytes({"type": EVIL})), _window(0, **reported))
    )


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a bomb of 1 GiB": _bomb,
    "1 GiB in many members": lambda: member(b" " * (MAX_TEXT - 1) + b"\n") * 64,
    "10^6 labels": lambda: _series(b",".join(b'["d%d","r"]' % row for row in range(400_000))) * 3,
    "new labels in each window": _new_labels,
    "1,000,000 lines": lambda: member(b"{}\n" * 1_000_000),
    "empty lists": lambda: _series(b"[]," * 2_700_000 + b"[]"),
    "NaN": lambda: _series(b'["a","r"]', b"1", b"NaN") + member(WINDOW + b']},"dt":Infinity}\n'),
    "bucket 10^9": lambda: _series(b'["a","r"]', b"1000000000", b"1"),
    "negative counts": lambda: _series(b'["a","r"]', b"3", b"-5"),
    "a label of 1 MB": lambda: _series(b'["' + b"x" * 10**6 + b'","r"]', b"3", b"5"),
    "evil strings": _evil_strings,
    "10^5 deep": lambda: member(b'{"type":"window","h":' + b"[" * 10**5 + b"]" * 10**5 + b"}\n"),
    "10^5 deep and new": lambda: member(b'{"type":"new","x":' + b'{"x":' * 10**5 + b"1" + b"}" * 10**5 + b"}\n"),
    "10^4 digits": lambda: member(b'{"type":"window","seq":' + b"9" * 10**4 + b"}\n"),
    "time goes back": lambda: b"".join(map(_window, (5, 4, 3, 5, 6, 0))),
    "heads alone": lambda: member(b"x")[:36] * 20_000,
    "noise": lambda: os.urandom(3_000_000),
}
"""What is between header and good window."""
WINDOWS = {"evil strings": 2, "time goes back": 3}
"""That can be read; else the good one alone."""


def write(path: Path, name: str) -> None:
    """A hostile recording."""
    header = encode_origin(ORIGIN) | {"host": EVIL}
    parts = (
        member(to_bytes(header), 0),
        HOSTILE[name](),
        _good(),
        member(to_bytes(encode_note(End("closed", WINDOWS.get(name, 1)))), 0),
    )
    path.write_bytes(b"".join(parts))
