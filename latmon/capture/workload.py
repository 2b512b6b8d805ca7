"""The command that a recording measures: `latmon --record FILE -- COMMAND`.

It is forked while latmon may still be root, as the user who called sudo, and waits for the first window. A supervisor
of its own is its parent, which belongs to no process of latmon: neither its I/O nor its CPU time is latmon's own, it
gets no `no_new_privs` from latmon, and it goes on where latmon is killed. Both stay in latmon's process group, so that
the terminal's Ctrl-C reaches the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from latmon.support.errors import LatmonError
from latmon.support.privileges import Invoker, become
from latmon.support.process import signal_name
from latmon.support.text import clean

NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes of a shell."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
_MAX_LINE = 400
"""Characters of the command line in marks and messages."""
_PORTION = 256


class CommandError(LatmonError):
    """A command that can't be run."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


class Workload:
    """A command, from its fork to its exit code."""

    def __init__(self, words: Sequence[str], *, is_named: bool = True) -> None:
        """`is_named`: whether marks and messages have its words."""
        self._words, self._is_named = tuple(words), is_named
        self._release = self._status = -1
        self._pid = 0
        """The command's; 0: it does not run."""
        self._begun = 0.0
        self._unread = b""
        self.code: int | None = None
        """Its exit code, as a shell reports it, once it has ended: 128 and the number of the signal that killed it."""
        self._killed_by = 0
        """The number of that signal."""
        self.failure: CommandError | None = None
        """Why it could not be started."""
        self.ended = asyncio.Event()

    @property
    def line(self) -> str:
        """The command as it is typed, unless its words are private."""
        return clean(shlex.join(self._words), _MAX_LINE) if self._is_named else "the command"

    @property
    def name(self) -> str:
        return clean(os.path.basename(self._words[0]), _MAX_LINE) if self._is_named else "the command"  # noqa: PTH119 - a word

    @property
    def runs(self) -> bool:
        return self._pid > 0 and self.code is None

    def require(self, environ: Mapping[str, str]) -> None:
        """Raise CommandError where the command isn't there; to be called as the user who will run it."""
        word = self._words[0]
        if shutil.which(word, path=environ.get("PATH", os.defpath)) is None:
            is_there = "/" in word and os.path.exists(word)  # noqa: PTH110 - a word
            raise self._failed(errno.EACCES if is_there else errno.ENOENT)

    def fork(self, user: Invoker | None, umask: int) -> None:
        """Fork the supervisor, which starts the command once it is released; not at all where latmon ends before."""
        sys.stdout.flush()
        sys.stderr.flush()
        may_begin, self._release = os.pipe()
        self._status, status = os.pipe()
        pid = os.fork()
        if pid == 0:
            _supervise(self._words, may_begin, status, user, umask)
        os.waitpid(pid, 0)
        os.close(may_begin)
        os.close(status)

    def begin(self, on_end: Callable[[], None]) -> None:
        """Release the command; `on_end` is called when it has ended, or couldn't be started."""
        if self._release < 0:
            return
        self._begun = time.monotonic()
        os.set_blocking(self._status, False)
        asyncio.get_running_loop().add_reader(self._status, self._read, on_end)
        os.write(self._release, b"\n")
        self._close_release()

    def forward(self, number: signal.Signals) -> None:
        """Send a signal to the command, unless the terminal has sent it to both."""
        if self.runs and not (number in _OF_TERMINAL and _is_in_foreground()):
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is another user's now
                os.kill(self._pid, number)

    def close(self) -> None:
        """Leave it to itself; one that was not released is never started."""
        self._close_release()
        if self._status >= 0:
            os.close(self._status)
            self._status = -1

    @property
    def outcome(self) -> str:
        """Return how it ended: `exit code 0 after 10.2 s`."""
        if self.code is None:
            return "still running"
        seconds = time.monotonic() - self._begun
        if self._killed_by:
            return f"killed by {signal_name(self._killed_by)} after {seconds:.1f} s (exit code {self.code})"
        return f"exit code {self.code} after {seconds:.1f} s"

    def _failed(self, number: int) -> CommandError:
        """Return the error of an errno, with the command's path as it was typed."""
        word = clean(self._words[0], _MAX_LINE) if self._is_named else "the command"
        if number in (errno.ENOENT, errno.ENOTDIR):
            return CommandError(f"{word}: command not found: nothing was run", NOT_FOUND)
        return CommandError(f"{word} can't be run: {os.strerror(number)}", NOT_EXECUTABLE)

    def _close_release(self) -> None:
        if self._release >= 0:
            os.close(self._release)
            self._release = -1

    def _read(self, on_end: Callable[[], None]) -> None:
        """Take what the supervisor reports: the command's pid, its exit code or signal, or why it can't be started."""
        try:
            portion = os.read(self._status, _PORTION)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + portion).split(b"\n")
        for line in lines:
            kind, _, number = line.partition(b" ")
            if kind == b"pid":
                self._pid = int(number)
            elif kind == b"error":
                self.failure = self._failed(int(number))
                self.code = self.failure.exit_code
            elif kind == b"code":
                self.code = int(number) if self.code is None else self.code
            elif kind == b"signal":
                self._killed_by = int(number)
                self.code = 128 + self._killed_by
        if not portion:
            asyncio.get_running_loop().remove_reader(self._status)
            self.code = 1 if self.code is None else self.code  # the supervisor was killed
            self.ended.set()
            on_end()


def _is_in_foreground() -> bool:
    """Return whether this process group has the terminal, whose Ctrl-C reaches each process of it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


# In the forked processes: no Python object of latmon's may be closed or flushed, so they end by os._exit.


def _supervise(words: Sequence[str], may_begin: int, status: int, user: Invoker | None, umask: int) -> NoReturn:
    """Start the command when a byte comes, and report its pid and its exit code, or the signal that killed it."""
    code = 1
    try:
        if os.fork():
            os._exit(0)  # now the supervisor is nobody's child
        ignored = [number for number in _FORWARDED if signal.getsignal(number) is signal.SIG_IGN]  # as under nohup
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_IGN)
        if user is not None:
            become(user)
        _close_others(may_begin, status)
        if os.read(may_begin, 1):
            _run(words, status, ignored, umask)
        code = 0
    finally:
        os._exit(code)


def _run(words: Sequence[str], status: int, ignored: Sequence[int], umask: int) -> None:
    pid = os.fork()
    if pid == 0:
        _execute(words, status, ignored, umask)
    os.write(status, f"pid {pid}\n".encode())
    _, ended = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(ended)
    os.write(status, (f"code {code}\n" if code >= 0 else f"signal {-code}\n").encode())


def _execute(words: Sequence[str], status: int, ignored: Sequence[int], umask: int) -> NoReturn:
    try:
        for number in (*_FORWARDED, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        os.umask(umask)
        os.execvp(words[0], list(words))  # noqa: S606 - the user's own words, and no shell
    except OSError as error:
        os.write(status, f"error {error.errno}\n".encode())
    finally:
        os._exit(NOT_FOUND)


def _close_others(*kept: int) -> None:
    """Close all files of latmon but the standard ones; the command's own exec closes the others."""
    first = 3
    for number in sorted(kept):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, min(1 << 16, os.sysconf("SC_OPEN_MAX")))
