"""Standard output whose failures are told from all others: a full disk behind `> FILE` is no fault of what is read.

Owns the process's sys.stdout. Knows nothing of what is written to it.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StdoutError(OSError):
    """It doesn't take what is written to it; a reader who has gone away is a BrokenPipeError as ever."""


class _Output(io.FileIO):
    def write(self, some: ReadableBuffer, /) -> int:
        try:
            return super().write(some)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StdoutError(error.errno, error.strerror) from None


def install() -> None:
    """For the whole process; it encodes, and ends its lines, as it did."""
    old = sys.stdout
    raw = _Output(old.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), old.encoding, old.errors, line_buffering=bool(old.line_buffering) or raw.isatty()
    )


def drop() -> None:
    """What it has not taken goes nowhere, instead of failing once more at the very end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
