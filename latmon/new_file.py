"""A new file to write to: private to its owner, never through a link, never over what is there.

Owns how a file comes to be that isn't a recording. Knows nothing of what goes into it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from latmon.errors import UnavailableError
from latmon.text import clean

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(path: Path) -> BinaryIO:
    """A new file that only its owner reads; UnavailableError when there can't be one."""
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
    except FileExistsError:
        raise UnavailableError(
            f"can't write {named(path)}: it exists and is never overwritten; name a new file"
        ) from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UnavailableError(f"can't write {named(path)}: {why}") from None
    return os.fdopen(descriptor, "wb")


def named(path: Path) -> str:
    """A path as a message may say it."""
    return clean(str(path), 200)
