"""Where a recording may go: its name, its directory, and every reason to refuse a file before a probe starts.

Asks the file system and opens nothing: the file itself is created by the recording's writer, which never follows a
link and never overwrites, whatever happened since.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from latmon import directories
from latmon.errors import UnavailableError, UsageError
from latmon.new_file import STANDARD
from latmon.quantities import show_size

SUFFIX = ".latmon.jsonl.gz"
_TRIES = 100
MIN_FREE_BYTES = 256 * 1024 * 1024
MIN_FREE_SHARE = 0.05
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_KINDS = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"))


def recording_name(host: str, wall: float) -> str:
    """HOST-YYYYmmddTHHMMSSZ.latmon.jsonl.gz; no host leaves the directory, hides the file or is an option."""
    cleaned = _NOT_IN_A_NAME.sub("_", host).lstrip("._-")[:64] or "host"
    return f"{cleaned}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}{SUFFIX}"


def unused(path: Path) -> Path:
    """A name that is free: the path, or `NAME-2` and so on where it is there already; no key takes a name."""
    stem = path.name.removesuffix(SUFFIX)
    others = (path.with_name(f"{stem}-{n}{SUFFIX}") for n in range(2, _TRIES))
    return next((one for one in (path, *others) if not os.path.lexists(one)), path)


def default_directory(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The current directory, or where the user's state belongs when nothing can be written here."""
    if os.access(cwd, os.W_OK | os.X_OK, effective_ids=True):
        return cwd
    directory = directories.state(environ) / "recordings"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"can't record: {cwd} is not writable and neither is {directory}: {_why(error)}"
        ) from None
    return directory


def refuse(path: Path) -> None:
    """UnavailableError when a recording can't be started at `path`; UsageError for a terminal."""
    if path == STANDARD:
        if sys.stdout.isatty():
            raise UsageError("a recording is binary, and standard output is a terminal: name a file, or pipe it on")
        return
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        _refuse_directory(path)
    except OSError as error:
        raise UnavailableError(f"can't record to {path}: {_why(error)}") from None
    else:
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "")
        what = f"is {kind}" if kind else "exists and is never overwritten" if stat.S_ISREG(mode) else "is no plain file"
        raise UnavailableError(f"can't record to {path}: it {what}; name a new file")


def short_of_space(path: Path) -> str:
    """Why nothing more should be written beside `path`: a recorder must not fill the sick host's disk. Else empty."""
    if path == STANDARD:
        return ""
    try:
        room = os.statvfs(path.parent)
    except OSError as error:
        return f"the file system of {path} can't be asked for its free space: {_why(error)}"
    free, share = room.f_bavail * room.f_frsize, room.f_bavail / max(1, room.f_blocks)
    if free >= MIN_FREE_BYTES and share >= MIN_FREE_SHARE:
        return ""
    return (
        f"only {show_size(free)} ({share:.0%}) are free beside {path}, and recording needs "
        f"{show_size(MIN_FREE_BYTES)} and {MIN_FREE_SHARE:.0%}"
    )


def _refuse_directory(path: Path) -> None:
    directory = path.parent
    if not directory.is_dir():
        raise UnavailableError(f"can't record to {path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise UnavailableError(f"can't record to {path}: {directory} is not writable; name a file elsewhere")
    shortage = short_of_space(path)
    if shortage:
        raise UnavailableError(f"can't record: {shortage}")


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
