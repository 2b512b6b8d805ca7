"""Files that latmon writes: the only module that creates, replaces and removes files, and makes directories.

As root each step of the path is checked on an open descriptor as that of a tool is (trust.py), and the file is opened
relative to the last one: a link or a directory of another user would decide what root writes to. A plain user follows
links as with any program. A file is never overwritten, and never removed by its name alone, which another file may have
by then. Under sudo latmon is the invoking user when it calls this; where it stays root, that user's steps pass, too.

Names are not enough for the library's own functions, which keep their rules: temporary files (`tempfile`) are in a
directory that `drop_temporary_directory` has checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import NamedTuple

from latmon.support import owners, paths
from latmon.support.errors import UnavailableError
from latmon.support.text import clean

_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SEARCH: int | None = getattr(os, "O_PATH", None)
"""Flag to open a directory that may be unreadable; None on systems without one."""
_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
"""Variables that tempfile reads."""


_PRIVATE = 0o077
_umask_before: list[int] = []


def restrict_umask() -> None:
    """Make new files the user's alone; `umask_before` has the process's umask from then on."""
    before = os.umask(_PRIVATE)
    if not _umask_before:
        _umask_before.append(before)


def umask_before() -> int:
    """Return the umask with which latmon was started, for a command that is the user's."""
    return _umask_before[0] if _umask_before else _PRIVATE


def create(path: Path, access: int = os.O_WRONLY) -> int:
    """Return the descriptor of a new file that only its owner can read.

    Raises FileExistsError and other OSErrors, UnavailableError where root should not write.
    """
    with _parent(path) as parent:
        return os.open(parent.entry(path), access | _NEW, 0o600, dir_fd=parent.directory)


def open_to_append(path: Path, what: str = "") -> int:
    """Return the descriptor of a regular file, new or old, to append to; `what` names it in a message.

    OSError: ELOOP for a link, ENXIO for a pipe or a socket, EINVAL for anything else that is no regular file.
    UnavailableError where root should not write, also for a file that another user can change and for a hard link.
    """
    with _parent(path, what) as parent:
        entry = parent.entry(path)
        try:
            return os.open(entry, _APPEND | _NEW, 0o600, dir_fd=parent.directory)
        except FileExistsError:
            # without O_CREAT, which Linux refuses for others' files in directories such as /tmp (fs.protected_regular)
            descriptor = os.open(entry, _APPEND, dir_fd=parent.directory)
        try:
            _require_own(path, os.fstat(descriptor), what)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _require_own(path: Path, status: os.stat_result, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    if os.geteuid() == 0:
        from latmon.support import trust  # noqa: PLC0415 - as in _parent

        trust.require_to_write(path, status, what or _named(path), owners.owners(os.environ))


def replace(path: Path, data: bytes) -> None:
    """Put a file with these bytes in the place of `path`, whole or not at all; its directory exists."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with _parent(path) as parent:
        directory = parent.directory
        descriptor = os.open(parent.entry(new), os.O_WRONLY | _NEW, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(parent.entry(new), parent.entry(path), src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(parent.entry(new), dir_fd=directory)
            raise


def make_directories(path: Path) -> None:
    """Make a directory and those above it, which only its owner can read, unless it exists."""
    if os.geteuid():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    with _parent(path / "file", _named(path), makes=True):
        pass


def unlink(path: Path, descriptor: int) -> bool:
    """Remove the name of the file that is open as `descriptor`, unless another file has it; return whether it did.

    An open file's inode number is not reused, so equal numbers mean the same file.
    """
    ours = os.fstat(descriptor)
    return unlink_if(path, lambda stat_result: bool(ours.st_nlink) and os.path.samestat(stat_result, ours))


def unlink_if(path: Path, is_wanted: Callable[[os.stat_result], bool]) -> bool:
    """Remove a name if `is_wanted` returns True for the status of what has it; return whether it did."""
    with _parent(path) as parent:
        entry = parent.entry(path)
        if not is_wanted(os.stat(entry, dir_fd=parent.directory, follow_symlinks=False)):
            return False
        os.unlink(entry, dir_fd=parent.directory)
        return True


def require(path: Path, what: str = "") -> None:
    """Raise UnavailableError where root should not create `path`; `what` names it in the message.

    A directory that is missing is no error.
    """
    if os.geteuid() == 0:
        with contextlib.suppress(OSError), _parent(path, what):
            pass


def may_write_in(directory: Path) -> bool:
    """Return whether latmon creates files in this directory: not as root where another user decides what they are."""
    try:
        with _parent(directory / "file"):
            return True
    except (OSError, UnavailableError):
        return False


def drop_temporary_directory(environ: MutableMapping[str, str]) -> None:
    """Remove the variables that name a directory for temporary files in which root should not write."""
    for name in _TEMPORARY:
        if name in environ and not may_write_in(Path(environ[name])):
            del environ[name]


def state(environ: Mapping[str, str]) -> Path:
    """Return the directory for crash logs, and for recordings that could be written nowhere else.

    Root makes no directory where another user can change what it is, nor a home that doesn't exist: it uses its own
    home instead.
    """
    variable, below_home = "XDG_STATE_HOME", ".local/state"
    if os.geteuid():
        return paths.xdg(environ, variable, below_home)
    roots = pwd.getpwuid(0).pw_dir
    directory = paths.xdg({"HOME": roots, **environ}, variable, below_home)
    return directory if _is_roots(directory, Path(environ.get("HOME", roots))) else Path(roots) / below_home / "latmon"


def _is_roots(directory: Path, home: Path) -> bool:
    from latmon.support import trust  # noqa: PLC0415 - as in _parent

    begin = home if directory.is_relative_to(home) else paths.existing(directory)
    try:
        return begin.is_absolute() and begin.stat().st_uid == 0 and trust.flaw(directory) is None
    except OSError:
        return False


class _Parent(NamedTuple):
    """The directory of a file. `directory`: its descriptor; None where a plain user's system opens none to search."""

    directory: int | None

    def entry(self, path: Path) -> str:
        """Return the name by which a file in it is opened."""
        return str(path) if self.directory is None else path.name or "."


@contextlib.contextmanager
def _parent(path: Path, what: str = "", *, makes: bool = False) -> Iterator[_Parent]:
    """Yield the directory in which `path` is; see trust.directory_to_write."""
    if os.geteuid() == 0:
        from latmon.support import trust  # noqa: PLC0415 - it imports shutil, and a plain user needs none of it

        allowed = owners.owners(os.environ)
        with trust.directory_to_write(path.parent, what or _named(path), allowed, makes=makes) as directory:
            yield _Parent(directory)
        return
    if _SEARCH is None:
        yield _Parent(None)
        return
    directory = os.open(path.parent, _SEARCH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _Parent(directory)
    finally:
        os.close(directory)


def _named(path: Path) -> str:
    return clean(str(path), 200)
