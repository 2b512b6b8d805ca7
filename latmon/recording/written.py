"""Whether a recording is still being written: its latmon holds a lock on it until it ends, however it ends."""

from __future__ import annotations

import fcntl
from typing import BinaryIO


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
