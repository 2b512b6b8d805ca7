"""The target of a recording: its name, directory, file system, and every reason to refuse before a probe starts.

No file is opened here: the recording's writer creates it, never follows a link and never overwrites.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from latmon.capture.mounts import mounts_of
from latmon.support import output_files, paths, streams
from latmon.support.errors import UnavailableError, UsageError
from latmon.support.streams import STANDARD
from latmon.support.units import show_size

SUFFIX = ".latmon.jsonl.gz"
_TRIES = 100
MIN_FREE_BYTES = 256 * 1024 * 1024
MIN_FREE_SHARE = 0.05
OWN_WRITES = "one write a second and what the file system adds to it"
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_KINDS = ((stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"))


def recording_name(host: str, wall: float, suffix: str = SUFFIX) -> str:
    """Return HOST-YYYYmmddTHHMMSSZ and the suffix; no host name gives a path, a hidden file or an option."""
    cleaned = _NOT_IN_A_NAME.sub("_", host).lstrip("._-")[:64] or "host"
    return f"{cleaned}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}{suffix}"


def unused(path: Path, suffix: str = SUFFIX) -> Path:
    """Return the path, or `NAME-2` and so on before the suffix if it exists already."""
    stem = path.name.removesuffix(suffix)
    others = (path.with_name(f"{stem}-{n}{suffix}") for n in range(2, _TRIES))
    return next((candidate for candidate in (path, *others) if not os.path.lexists(candidate)), path)


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the current directory, or the user's state directory where that is not writable or was removed.

    Root doesn't write to a current directory that another user can change.
    """
    cwd = paths.current()
    is_writable = cwd is not None and os.access(cwd, os.W_OK | os.X_OK, effective_ids=True)
    if cwd is not None and is_writable and output_files.may_write_in(cwd):
        return cwd
    directory = output_files.state(environ) / "recordings"
    try:
        output_files.make_directories(directory)
    except OSError as error:
        raise UnavailableError(
            f"can't save a file: {cwd or 'this directory'} is not writable and neither is {directory}: {_why(error)}"
        ) from None
    return directory


def refuse(path: Path) -> None:
    """Raise UnavailableError if a recording can't be started at `path`, UsageError for a terminal."""
    if path == STANDARD:
        if sys.stdout.isatty():
            raise UsageError("a recording is binary, and standard output is a terminal: name a file, or pipe it on")
        if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise streams.explain(streams.StdoutError(errno.EBADF, ""))
        return
    output_files.require(path)
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


def refuse_for_hosts(directory: Path) -> None:
    """Raise UnavailableError if a fleet can't be recorded into `directory`, which may be new."""
    output_files.require(directory / "recording" if paths.mode(directory) else directory, str(directory))
    if os.path.islink(directory) or (  # noqa: PTH114 - Path.is_symlink raises OSError for a long name
        paths.mode(directory) and not paths.is_directory(directory)
    ):
        raise UnavailableError(f"can't record to {directory}: it is no directory, and each host gets a file in it")
    if not paths.mode(directory):
        _refuse_directory(directory)
    elif not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise UnavailableError(f"can't record to {directory}: it is not writable")


def short_of_space(path: Path) -> str:
    """Return why the file system of `path` has too little room, or an empty text: a recorder must not fill a disk."""
    if path == STANDARD:
        return ""
    try:
        room = os.statvfs(path.parent)
    except OSError as error:
        return f"the free space of the file system of {path} is not known: {_why(error)}"
    free, share = room.f_bavail * room.f_frsize, room.f_bavail / max(1, room.f_blocks)
    if free >= MIN_FREE_BYTES and share >= MIN_FREE_SHARE:
        return ""
    return (
        f"only {show_size(free)} ({share:.0%}) are free beside {path}, and recording needs "
        f"{show_size(MIN_FREE_BYTES)} and {MIN_FREE_SHARE:.0%}"
    )


def _refuse_directory(path: Path) -> None:
    directory = path.parent
    if not paths.is_directory(directory):
        raise UnavailableError(f"can't record to {path}: there is no directory {directory}")
    if not os.access(directory, os.W_OK | os.X_OK, effective_ids=True):
        raise UnavailableError(f"can't record to {path}: {directory} is not writable; name a file elsewhere")
    shortage = short_of_space(path)
    if shortage:
        raise UnavailableError(f"can't record: {shortage}")


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__


def remarks(path: Path, globs: Sequence[str] = (), proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> str:
    """Return a warning about the file system of the new file `path`; empty when there is nothing unusual."""
    directory = paths.resolved(path.parent)
    mounts = mounts_of(proc)
    mount = mounts.above(directory)
    if mount is not None and mount.is_remote:
        return f"the recording goes to a {mount.kind} file system: a server that hangs makes gaps in it"
    below = mounts.devices_below(directory, sys)
    measured = [device for device in below if not globs or any(fnmatchcase(device, glob) for glob in globs)]
    if not measured:
        return ""
    which = f"{', '.join(measured[:-1])} and {measured[-1]}, which are" if measured[1:] else f"{measured[0]}, which is"
    return f"the recording lies on {which} measured: latmon's own writes ({OWN_WRITES}) are in the numbers"
