"""Streams: private new files, standard input as a file, standard output whose errors are sentences, stderr's lines.

output_files.py opens and removes the files; here their errors become sentences. Owns the process's standard input and
output. Knows nothing of their contents.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import syslog
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, BinaryIO, Self, TextIO

from latmon.support import output_files, signals
from latmon.support.errors import RecordingError, UnavailableError, UsageError
from latmon.support.text import clean

STANDARD = Path("-")
"""Name of standard input or output on the command line."""
_PATIENCE_S = 1.0
_BETWEEN_S = 0.25
Log = Callable[[int, str], None]
"""Logs a sentence with its syslog level."""
_LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
_NO_FILE = {
    errno.ELOOP: "a link",
    errno.ENXIO: "a pipe or a socket",
    errno.EISDIR: "a directory",
    errno.EINVAL: "not a regular file",
}
MAX_BYTES = 1 << 30
"""Limit of the copy of standard input: three days of 24 devices."""
_PIECE = 1 << 20
_NAME = "standard input"


def create(path: Path) -> BinaryIO:
    """Create a file that only its owner can read. Raises UnavailableError if it exists or can't be created."""
    try:
        descriptor = output_files.create(path)
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
    """Create a file that is synced after the block, or removed if the block fails.

    An OSError in the block becomes an UnavailableError.
    """
    file = create(path)
    try:
        yield file
        file.flush()
        os.fsync(file.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError, UnavailableError):
            output_files.unlink(path, file.fileno())
        with contextlib.suppress(OSError):  # closing repeats the error of writing
            file.close()
        if isinstance(error, OSError):
            raise UnavailableError(f"can't write {named(path)}: {error.strerror or error}") from None
        raise
    file.close()


@contextlib.contextmanager
def output(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file as `whole` does or, for `-`, standard output."""
    if path != STANDARD:
        with whole(path) as file:
            yield file
        return
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def named(path: Path) -> str:
    """Return a path for a message; `-` is standard output."""
    return "standard output" if path == STANDARD else clean(str(path), 200)


def message(text: str, most: int = 1000) -> None:
    """Print a clean sentence on stderr; where that is closed or full, the sentence is lost and nothing fails."""
    with contextlib.suppress(OSError):
        print(f"latmon: {clean(text, most)}", file=sys.stderr, flush=True)


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StdoutError(OSError):
    """Standard output can't be written to; a closed pipe is a BrokenPipeError as usual."""


class _Output(io.FileIO):
    """Raw standard output that raises StdoutError."""

    def write(self, buffer: ReadableBuffer, /) -> int:
        try:
            return super().write(buffer)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise StdoutError(error.errno, error.strerror) from None


def explain(error: StdoutError) -> UnavailableError:
    """Return the sentence for an error of standard output."""
    why = "it is not open for writing" if error.errno == errno.EBADF else error.strerror
    return UnavailableError(f"can't write to stdout: {why}")


def install() -> None:
    """Replace sys.stdout by one that raises StdoutError; its encoding and buffering stay."""
    old = sys.stdout
    raw = _Output(old.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), old.encoding, old.errors, line_buffering=bool(old.line_buffering) or raw.isatty()
    )


def terminal_size(file: TextIO) -> os.terminal_size:
    """Return columns and lines of a stream's terminal; by COLUMNS and LINES, else 80x24, where it has no size."""
    with contextlib.suppress(OSError, ValueError):
        size = os.get_terminal_size(file.fileno())
        if all(size):
            return size
    import shutil  # noqa: PLC0415 - with tempfile 7 ms that `--version` needn't pay

    return shutil.get_terminal_size()


class Progress:
    """A line on stderr with the share of a long task that is done, removed at its end.

    It begins a second after the task does, and only where stderr is a terminal.
    """

    def __init__(self, doing: str, *, quiet: bool = False) -> None:
        """`doing`: such as `reading FILE`; `quiet`: print nothing, because the output may go to the terminal."""
        self._doing = clean(doing, 200)
        self._is_live = sys.stderr.isatty() and not quiet
        self._due = time.monotonic() + _PATIENCE_S
        self._shown = 0

    def __enter__(self) -> Self:
        signals.leave_if_received()
        return self

    def __exit__(self, *exc: object) -> None:
        self._overwrite("")

    def __call__(self, done: int, total: int) -> None:
        """Report that `done` of `total` are done, in any unit."""
        if total > 0:
            self._report(self._doing, f": {min(done / total, 1.0):.0%}")

    def wait(self, on: Sequence[str]) -> None:
        """Report what the task waits for; remove the line where that is nothing."""
        if on:
            self._report(f"{self._doing} {clean(', '.join(on), 200)}", "")
        else:
            self._overwrite("")

    def _report(self, text: str, share: str) -> None:
        if not self._is_live or (now := time.monotonic()) < self._due:
            return
        self._due = now + _BETWEEN_S
        room = max(terminal_size(sys.stderr).columns - 1 - len(share), 0)
        self._overwrite(f"latmon: {text}"[:room] + share)

    def _overwrite(self, line: str) -> None:
        if not self._shown and not line:
            return
        try:
            sys.stderr.write("\r" + line.ljust(self._shown) + ("" if line else "\r"))
            sys.stderr.flush()
        except OSError:  # the terminal is gone; the task goes on
            self._is_live = False
        self._shown = len(line)


QUIET, NORMAL, VERBOSE = syslog.LOG_WARNING, syslog.LOG_INFO, syslog.LOG_DEBUG
"""Levels up to which sentences are logged."""
_MAX_LOGGED, _WHEN = 1000, "%Y-%m-%dT%H:%M:%SZ"


class LogFile:
    """A file to which a log appends lines with their times. It is opened once, so that root may be given up later."""

    def __init__(self, path: Path) -> None:
        """Open or create `path`.

        Raises UnavailableError for a link and for anything but a regular file, and where latmon is root for a path
        that another user can change, who would decide what root writes to.
        """
        try:
            self._descriptor = output_files.open_to_append(path, f"--log-file {named(path)}")
        except (OSError, ValueError) as error:
            what = _NO_FILE.get(getattr(error, "errno", None) or 0)
            if what:
                raise UnavailableError(f"--log-file {named(path)}: it is {what}; name a file, new or old") from None
            why = error.strerror if isinstance(error, OSError) else error
            raise UnavailableError(f"--log-file {named(path)}: {why}; name a file that you can write") from None
        self._lost = 0
        self._is_torn = False

    def write(self, level: int, text: str) -> str:
        """Append a line; return why that is impossible, once for all lines that are lost in a row.

        The line after one that a full disk cut off begins on a new line.
        """
        lost = f" ({self._lost:,} lines before this one could not be written)" if self._lost else ""
        begin = f"{chr(10) * self._is_torn}{time.strftime(_WHEN, time.gmtime())} {_LEVELS[level]}"
        line = f"{begin} latmon[{os.getpid()}]: {text}{lost}\n".encode()
        try:
            written = os.write(self._descriptor, line)
            why = "" if written == len(line) else os.strerror(errno.ENOSPC)
        except OSError as error:
            written, why = 0, error.strerror or str(error)
        if written:
            self._is_torn = line[written - 1 : written] != b"\n"
        self._lost = self._lost + 1 if why else 0
        return why if self._lost == 1 else ""


class ServiceLog:
    """The log of a capture without a screen: stderr, with the level in front where that is the journal.

    A file gets the same sentences, and so does syslog if wanted.
    """

    def __init__(
        self,
        out: TextIO | None = None,
        *,
        least: int = NORMAL,
        file: LogFile | None = None,
        to_syslog: bool = False,
    ) -> None:
        """`out`: None is stderr; `least`: the level of the least important sentences that are logged."""
        self._out, self.least, self._file, self._to_syslog = out or sys.stderr, least, file, to_syslog
        self._is_journal = _is_journal(self._out)
        if to_syslog:
            syslog.openlog("latmon", syslog.LOG_PID, syslog.LOG_DAEMON)

    def __call__(self, level: int, text: str) -> None:
        """Log a sentence of this level, if it is important enough."""
        if level > self.least:
            return
        text = clean(text, _MAX_LOGGED)
        self._print(level, text)
        if self._to_syslog:
            syslog.syslog(level, text)
        if self._file is not None and (why := self._file.write(level, text)):
            self._print(syslog.LOG_ERR, f"the log file can't be written: {why}")

    def _print(self, level: int, text: str) -> None:
        with contextlib.suppress(OSError):  # one write: threads log at the same time
            self._out.write(f"<{level}>latmon: {text}\n" if self._is_journal else f"latmon: {text}\n")
            self._out.flush()


def _is_journal(out: TextIO) -> bool:
    """Return whether a stream is the journal's (systemd.exec(5)): terminals of a session inherit the variable, too."""
    try:
        status = os.fstat(out.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def drop() -> None:
    """Discard the unwritten output, which would otherwise fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Spooled(PosixPath):
    """Path of the copy of standard input, which is opened by its descriptor and named after its source."""

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
    """Copy standard input once. The file has no name and ends with the process."""
    if sys.stdin.isatty():
        raise UsageError("- is standard input, and that is a terminal: pipe a file into it")
    import tempfile  # noqa: PLC0415 - as shutil

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
    import shutil  # noqa: PLC0415

    with path.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer, _PIECE)
    sys.stdout.buffer.flush()
