"""Standard input as a recording: copied to a file without a name, because a reader goes back and forth in it.

Owns the process's standard input. Knows nothing of what is in the copy.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path, PosixPath

from latmon.errors import RecordingError, UnavailableError, UsageError
from latmon.new_file import STANDARD

MAX_BYTES = 1 << 30
"""Of the copy: three days of 24 devices."""
_PIECE = 1 << 20
_NAME = "standard input"


class _Spooled(PosixPath):
    """A file that is opened by its descriptor and named by where its bytes came from."""

    def __fspath__(self) -> str:
        return super().__str__()

    def __str__(self) -> str:
        return _NAME

    @property
    def name(self) -> str:
        return _NAME


def readable(path: Path) -> Path:
    """Return `path`, or for `-` the copy of standard input; UsageError where that is a terminal."""
    return _spooled() if path == STANDARD else path


def keys_from_terminal() -> None:
    """Read keys from the terminal instead of standard input, once that was read; UnavailableError without one."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise UnavailableError(
            f"standard input is the recording, and keys can't be read from /dev/tty: {why}; without it use: "
            "latmon report -"
        ) from None
    _spooled()
    os.dup2(terminal, sys.stdin.fileno())
    os.close(terminal)


@cache
def _spooled() -> Path:
    """Copy once, whoever asks. The file has no name and is gone with the process."""
    if sys.stdin.isatty():
        raise UsageError("- is standard input, and that is a terminal: pipe a recording into it")
    try:
        copy = tempfile.TemporaryFile(prefix="latmon-")  # noqa: SIM115 - open as long as the process
        while piece := os.read(sys.stdin.fileno(), _PIECE):
            if copy.tell() + len(piece) > MAX_BYTES:
                raise RecordingError(f"standard input has more than {MAX_BYTES >> 30} GiB: save it, and name the file")
            copy.write(piece)
        copy.flush()
    except OSError as error:
        where = tempfile.gettempdir()
        raise UnavailableError(f"can't copy standard input to {where}: {error.strerror or error}") from None
    return _Spooled(f"/dev/fd/{os.dup(copy.fileno())}")


def copy_out(path: Path) -> None:
    """Write a file to standard output."""
    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer, _PIECE)
    sys.stdout.buffer.flush()
