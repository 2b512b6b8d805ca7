"""Paths: XDG directories, data files of the installation, small kernel files.

Directories are computed from the environment, and made by the code that writes to them. Files of /proc and /sys may
vanish while they are read: absence is no error. A user's file may be anything.
"""

from __future__ import annotations

import errno
import glob
import os
import select
import stat
import time
from collections.abc import Mapping
from pathlib import Path

from latmon.support.errors import UnavailableError

_PACKAGE = Path(__file__).resolve().parents[1]
_PORTION = 1 << 16
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def current() -> Path | None:
    """Return the current directory; None where it was removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def config(environ: Mapping[str, str]) -> Path:
    """Return the directory of the user's settings."""
    return xdg(environ, "XDG_CONFIG_HOME", ".config")


def cache(environ: Mapping[str, str]) -> Path:
    """Return the directory of what can be found out again."""
    return xdg(environ, "XDG_CACHE_HOME", ".cache")


def mode(path: Path) -> int:
    """Return the mode of a file that a user names; 0 where there is none, or where it can't be examined.

    Path.exists and its like raise OSError for a name that is too long, and below a directory without permission.
    """
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_directory(path: Path) -> bool:
    """Return whether a user's path is a directory, as far as that can be examined."""
    return stat.S_ISDIR(mode(path))


def existing(path: Path) -> Path:
    """Return the first of `path` and its parents that exists."""
    return next(parent for parent in (path, *path.parents) if mode(parent))


def xdg(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return latmon's directory below `variable` if that is absolute (XDG), else below the home directory."""
    named = Path(environ.get(variable, ""))
    return (named if named.is_absolute() else Path(environ.get("HOME", "/")) / below_home) / "latmon"


def data_dir(name: str) -> Path:
    """Return the directory of bundled data called `name` ("probes", "themes"); UnavailableError where there is none.

    A zip archive has none: bpftrace runs as root and must get files that no other user unpacked or can write to.
    """
    path = next((path for path in (_PACKAGE / name, _PACKAGE.parent / name) if path.is_dir()), None)
    if path is None:
        raise UnavailableError(
            f"{_PACKAGE.parent} has no directory {name}: latmon doesn't run from a zip archive; "
            "install it (pipx install .) or use ./bootstrap run in a checkout"
        )
    return path


def content(path: Path | str) -> bytes:
    """Return a file's bytes; empty when it doesn't exist or can't be read.

    A text is a third faster than a Path that has to be made first.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:  # a third faster than a file object: thousands of small files are read each second
        portions = [os.read(descriptor, _PORTION)]
        while portions[-1]:
            portions.append(os.read(descriptor, _PORTION))
        return b"".join(portions)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def text(path: Path) -> str:
    """Return a file's text as ASCII, with other bytes replaced; empty when it can't be read."""
    return content(path).decode("ascii", "replace")


def resolved(path: Path) -> Path:
    """Return a path without symbolic links; as it is where that can't be found out."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def link_target(path: Path) -> str:
    """Return where a symbolic link points; empty where it is none, or can't be read."""
    try:
        return str(path.readlink())
    except OSError:
        return ""


def matching(directory: Path, pattern: str) -> list[Path]:
    """Return the paths below `directory` that match. Path.glob raises where a directory vanishes meanwhile."""
    return [directory / path for path in glob.glob(pattern, root_dir=directory)]  # noqa: PTH207


def regular(path: Path, most: int, owner: int | None = None) -> bytes:
    """Return the first `most` bytes of a regular file. OSError for anything else: a FIFO is not waited for.

    `owner`: the uid that must own it.
    """
    _need_regular(path.stat(), owner)  # opening a device may already do something to it
    descriptor = os.open(path, _FLAGS)
    try:
        _need_regular(os.fstat(descriptor), owner)  # it may have been replaced
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most) or b""  # None where nothing can be read yet, such as /proc/kmsg
    finally:
        os.close(descriptor)


def first_line(path: Path, most: int, within_s: float) -> bytes:
    """Return the first line of a file or a pipe without its newline, or its first `most` bytes and one more.

    TimeoutError where it is not there within `within_s` seconds; other OSErrors as of `open`.
    """
    end = time.monotonic() + within_s
    descriptor = os.open(path, _FLAGS)
    line = bytearray()
    try:
        while len(line) <= most and b"\n" not in line:
            # Without a writer yet, reading a pipe would find its end
            if not select.select([descriptor], [], [], max(end - time.monotonic(), 0))[0]:
                raise TimeoutError
            part = os.read(descriptor, most + 1 - len(line))
            if not part:
                break
            line += part
    finally:
        os.close(descriptor)
    return bytes(line.partition(b"\n")[0])


def _need_regular(status: os.stat_result, owner: int | None = None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if owner not in (None, status.st_uid):
        raise PermissionError(errno.EPERM, "another user's file")
