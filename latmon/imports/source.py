"""The foreign file as clean lines: read once, bounded, and refused in one sentence where it is no text.

Owns the caps. Knows no format.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

from latmon.errors import RecordingError, UnavailableError

MAX_BYTES = 32 * 1024 * 1024
MAX_LINES = 400_000
MAX_LINE = 1 << 20
"""Characters of a text's line. JSON may be one line, and has a limit of its own."""
MAX_JSON = 8 * 1024 * 1024
"""The worst JSON takes 21 times its size in memory."""
_GZIP = b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")
"""What a terminal was told: colours and titles in a saved session."""
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def read(path: Path) -> bytes:
    """All of the file, or of stdin for `-`; RecordingError where it is too large."""
    try:
        if str(path) == "-":
            raw = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise RecordingError(f"{path} is no plain file; pipe it in with `latmon import - ...`")
                raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnavailableError(f"can't read {path}: {error.strerror or error}") from None
    if len(raw) > MAX_BYTES:
        raise RecordingError(f"{path} is larger than {MAX_BYTES >> 20} MiB; import it in parts")
    return raw


def lines(raw: bytes, name: str) -> list[str]:
    """Its lines without their ends; RecordingError for what is no text or has too many."""
    if raw.startswith(_GZIP):
        raise RecordingError(f"{name} is compressed: unpack it with gunzip; a recording of latmon needs no import")
    if raw.startswith(_UTF16):
        raise RecordingError(f"{name} is UTF-16: convert it with `iconv -f UTF-16 -t UTF-8`")
    if b"\0" in raw:
        raise RecordingError(f"{name} is no text: it holds NUL bytes")
    if not raw.strip():
        raise RecordingError(f"{name} is empty")
    if raw.count(b"\n") + raw.count(b"\r") > 2 * MAX_LINES or raw.count(b"\n") >= MAX_LINES:
        raise RecordingError(f"{name} has more than {MAX_LINES:,} lines; import it in parts")
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") >= MAX_LINES:
        raise RecordingError(f"{name} has more than {MAX_LINES:,} lines; import it in parts")
    text = text.replace("\xa0", " ")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    found = _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text).split("\n")
    longest = max(map(len, found))
    if longest > (MAX_JSON if _is_json(found) else MAX_LINE):
        raise RecordingError(f"{name} has a line of {longest:,} characters, longer than any tool's")
    return found


def _is_json(found: list[str]) -> bool:
    return next((line.lstrip()[:1] for line in found if line.strip()), "") in ("{", "[")
