"""A new file to write to: private to its owner, never through a link, never over what is there.

Owns how a file comes to be that isn't a recording, and how one of ours goes again: never by its name alone, which may
be somebody else's by then. Knows nothing of what goes into it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from latmon.errors import UnavailableError
from latmon.text import clean

STANDARD = Path("-")
"""Standard input or output, wherever a file is named on the command line."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


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


@contextlib.contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A new file that is on disk behind the block, or gone where the block failed: half of one looks like a whole one.

    An OSError of the block is one of writing: UnavailableError says so.
    """
    file = create(path)
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):
            unlink(path, file.fileno())
        with contextlib.suppress(OSError):  # closing tells again what writing told
            file.close()
        if isinstance(error, OSError):
            raise UnavailableError(f"can't write {named(path)}: {error.strerror or error}") from None
        raise
    file.close()


def unlink(path: Path, descriptor: int) -> bool:
    """Take its name from the file that is open as `descriptor`, and from no other that bears it by now; whether it did.

    An open file's inode number is nobody else's, so two that are the same are one file.
    """
    directory = os.open(path.parent, _DIRECTORY)
    try:
        there, ours = os.stat(path.name, dir_fd=directory, follow_symlinks=False), os.fstat(descriptor)
        if not ours.st_nlink or not os.path.samestat(there, ours):
            return False
        os.unlink(path.name, dir_fd=directory)
    finally:
        os.close(directory)
    return True


def named(path: Path) -> str:
    """A path as a message may say it; of what is written, `-` is standard output."""
    return "standard output" if path == STANDARD else clean(str(path), 200)
