"""What a small file holds: of the kernel's, or of a user's.

Files of /proc and /sys vanish while they are read: absence is no fault. A user's file may be anything.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def content(path: Path) -> bytes:
    """The bytes; empty when there is no such file, no longer, or not for us."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def text(path: Path) -> str:
    """The same as ASCII; what isn't ASCII is replaced."""
    return content(path).decode("ascii", "replace")


def regular(path: Path, most: int) -> bytes:
    """Return the first `most` bytes of a regular file. OSError for anything else: a FIFO is not waited for."""
    _need_regular(path.stat())  # opening a device may already do something to it
    descriptor = os.open(path, _FLAGS)
    try:
        _need_regular(os.fstat(descriptor))  # it may have been replaced
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _need_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
