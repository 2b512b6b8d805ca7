"""The process of a command: a command line in, an exit code out, no traceback.

Every refusal is one sentence on stderr. arguments.py owns the options, commands.py the commands; --version and --help
end before the latter is imported.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from latmon import __version__
from latmon.support import paths, signals, streams
from latmon.support.errors import EXIT_DONE, LatmonError, UnavailableError
from latmon.support.text import clean

MAX_BYTES = 256 * 1024
MAX_SENTENCE = 1000


def install() -> None:
    """Set the process's handlers of exceptions that nothing catches; the interpreter's exit code is already 1."""
    sys.excepthook, sys.unraisablehook = _explain, _report_ignored
    if not sys.warnoptions:  # of Python: at the end of a process that has failed, of coroutines that never began
        warnings.simplefilter("ignore")


def log_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the crash log in the user's state directory."""
    return paths.state(environ) / "crash.log"


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import traceback

    from latmon.support import privileges

    sys.unraisablehook = _ignore  # what the end of the process makes of half an object
    if why := _exhausted(error):
        print(f"latmon failed: {why}", file=sys.stderr)
        return
    details = "".join(traceback.format_exception(kind, error, trace))
    sentence = f"latmon failed: {kind.__name__}: {clean(str(error), 200)}"
    try:  # under sudo the log is below the user's home, where a name may be a link
        privileges.drop_root(privileges.invoker(os.environ, os.geteuid()))
        kept = _keep(details, log_path(os.environ))
    except OSError as failure:  # still root: it writes nothing there
        kept = f"the details could not be kept: {failure.strerror}"
    print(f"{sentence}; {kept}", file=sys.stderr)


def _report_ignored(ignored: sys.UnraisableHookArgs) -> None:
    """Report an exception of a finalizer or a callback, after which the process goes on.

    That of a signal is reported by nothing: `signals` ends the command later.
    """
    if not isinstance(ignored.exc_value, SystemExit | KeyboardInterrupt):
        text = clean(f"{ignored.exc_type.__name__}: {ignored.exc_value} ({ignored.object!r})", MAX_SENTENCE)
        print(f"latmon: an error was ignored, please report it: {text}", file=sys.stderr)


def _ignore(_ignored: sys.UnraisableHookArgs) -> None:
    """Report nothing."""


_LIMITS = {
    errno.EMFILE: "latmon may open no more files: raise the limit (ulimit -n), 256 are enough",
    errno.ENFILE: "this host has no more open files: raise fs.file-max, or find the program that has them open",
    errno.EAGAIN: "latmon may start no more processes or threads: raise the limit (ulimit -u, pids.max of its cgroup)",
    errno.EFBIG: "a file may not become larger: raise the limit (ulimit -f)",
    errno.ENOMEM: "there is no memory left: free some, or raise the limit of latmon's cgroup (memory.max, ulimit -v)",
}
"""Limits of the host, which are no mistake of latmon."""
_NOT_WAITED_FOR = "its output is a pipe that does not wait for its reader (O_NONBLOCK): write to a file, or to `| cat`"


def _exhausted(error: BaseException) -> str:
    """Return the limit of the host that an exception reports, with the remedy; empty for any other exception."""
    if isinstance(error, MemoryError):
        return _LIMITS[errno.ENOMEM]
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # of threading, for any errno
        return _LIMITS[errno.EAGAIN]
    if isinstance(error, BlockingIOError) and hasattr(error, "characters_written"):  # of a write, not of fork(2)
        return _NOT_WAITED_FOR
    return _LIMITS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def _keep(details: str, path: Path) -> str:
    """Append to the log, or overwrite it above MAX_BYTES; return a message with its path."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = os.O_TRUNC if path.exists() and path.stat().st_size > MAX_BYTES else os.O_APPEND
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | fresh, 0o600), "a") as log:
            log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} latmon {__version__}\n{details}")
    except OSError as error:
        return f"the details could not be kept: {error.strerror}"
    return f"the details are in {path}, please report them"


_STANDARD_FILES = {"stdin": os.O_RDWR, "stdout": os.O_RDONLY, "stderr": os.O_RDWR}


def main() -> NoReturn:
    """Run the command line and exit with its code; the launcher of a zip archive ignores a returned code."""
    sys.exit(_run())


def _run() -> int:
    """Return the exit code; outside of a capture or a screen 128 and the signal's number, as shells expect."""
    _open_standard_files()
    streams.install()
    install()
    _drop_settings_of_textual()
    signals.install()
    try:
        return run(sys.argv[1:])
    except KeyboardInterrupt:  # after a loop of asyncio, see `signals.uninstall`
        return 128 + signal.SIGINT
    except Exception:  # a class that is being made turns the SystemExit of a signal into a RuntimeError
        signals.leave_if_received()
        raise
    finally:
        signals.uninstall()


def run(argv: list[str]) -> int:
    """Run the command line and return its exit code; every error is one sentence on stderr."""
    os.umask(0o077)
    try:
        try:
            from latmon.cli import arguments

            args = arguments.parse(argv)
            from latmon.cli import commands

            signals.leave_if_received()
            return commands.run(args)
        finally:
            sys.stdout.flush()
    except LatmonError as error:
        return _refused(error)
    except FileNotFoundError:  # of a relative path
        if paths.current() is not None:
            raise
        return _refused(UnavailableError("the current directory was removed: change to one that exists"))
    except BrokenPipeError:  # `latmon report F | head`: a closed pipe is no failure
        streams.drop()
        return EXIT_DONE
    except streams.StdoutError as error:
        streams.drop()
        return _refused(streams.explain(error))


def _refused(error: LatmonError) -> int:
    streams.message(str(error), MAX_SENTENCE)
    return error.exit_code


def _drop_settings_of_textual() -> None:
    """Remove Textual's own variables: they press keys, write a log as root under `sudo -E`, or end the program."""
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        del os.environ[name]


def _open_standard_files() -> None:
    """Open the null device for each of 0, 1 and 2 that is closed, or a recording would get that number.

    A closed standard output is opened read-only, so that writing fails instead of losing the output.
    """
    for number, (name, flags) in enumerate(_STANDARD_FILES.items()):
        if getattr(sys, name) is None and os.open(os.devnull, flags) == number:  # the lowest that is free
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the whole process
