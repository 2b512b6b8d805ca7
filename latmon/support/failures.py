"""Errors that nothing catches, each as one sentence on stderr: limits of the host, exceptions of finalizers.

Those of asyncio's callbacks come from `loop_errors`. `latmon.cli.main` reports the exception that ends a process, and
keeps its details.
"""

from __future__ import annotations

import errno
import sys
import warnings

from latmon.support import streams

MAX_SENTENCE = 1000
MAX_REPORTED = 20
"""Errors of callbacks and finalizers that are reported; the same one may come a thousand times a second."""

_LIMITS = {
    errno.EMFILE: "latmon may open no more files: raise the limit (ulimit -n), 256 are enough",
    errno.ENFILE: "this host has no more open files: raise fs.file-max, or find the program that has them open",
    errno.EAGAIN: "latmon may start no more processes or threads: raise the limit (ulimit -u, pids.max of its cgroup)",
    errno.ENOMEM: "there is no memory left: free some, or raise the limit of latmon's cgroup (memory.max, ulimit -v)",
    errno.EFBIG: "a file may not become larger: raise the limit (ulimit -f)",
}
"""Limits of the host, which are no mistake of latmon."""
_LOADER = {
    "failed to map segment": errno.ENOMEM,
    "cannot allocate memory": errno.ENOMEM,
    "Too many open files": errno.EMFILE,
}
"""Words of the dynamic loader about a compiled module -> its errno, which an ImportError lacks."""
_NOT_WAITED_FOR = "its output is a pipe that does not wait for its reader (O_NONBLOCK): write to a file, or to `| cat`"
_NO_TEMPORARY = "no directory for temporary files can be written to: have TMPDIR name one"

_RESERVE = 1 << 20
_reported: set[str] = set()
_reserve: list[bytes] = []
_ended: list[bool] = []


def exhausted(error: BaseException) -> str:
    """Return the limit of the host that an exception reports, with the remedy; empty for any other exception."""
    if isinstance(error, MemoryError):
        return _LIMITS[errno.ENOMEM]
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":  # of threading, for any errno
        return _LIMITS[errno.EAGAIN]
    if isinstance(error, BlockingIOError) and hasattr(error, "characters_written"):  # of a write, not of fork(2)
        return _NOT_WAITED_FOR
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error.strerror):  # of tempfile
        return _NO_TEMPORARY
    if isinstance(error, ImportError):
        return next((_LIMITS[number] for words, number in _LOADER.items() if words in str(error)), "")
    return _LIMITS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception is, or follows, what a process without memory raises: also a thread needs some.

    Textual's WorkerFailed has the worker's exception as `error`.
    """
    current: BaseException | None = error
    while current is not None:
        if exhausted(current) in (_LIMITS[errno.ENOMEM], _LIMITS[errno.EAGAIN]):
            return True
        current = getattr(current, "error", None) or current.__cause__ or current.__context__
    return False


def install() -> None:
    """Report exceptions of finalizers in sentences, and no warnings of Python."""
    _reserve.append(bytes(_RESERVE))
    sys.unraisablehook = _report_unraisable
    if not sys.warnoptions:  # of Python
        warnings.simplefilter("ignore")


def end_reports() -> bool:
    """Give back the memory that is reserved for the last sentence, after which nothing is reported.

    Return False where that was done before.
    """
    _reserve.clear()
    _ended.append(True)
    return len(_ended) == 1


def _report_unraisable(ignored: sys.UnraisableHookArgs) -> None:
    """Report an exception of a finalizer; not that of a signal, after which `signals` ends the command."""
    if not isinstance(ignored.exc_value, SystemExit | KeyboardInterrupt):
        report(ignored.exc_value, repr(ignored.object))


def report(error: BaseException | None, place: str) -> None:
    """Report an error after which the process goes on, once; nothing after the last sentence."""
    limit = "" if error is None else exhausted(error)
    why = place if error is None else limit or f"{type(error).__name__}: {error} ({place})"
    if _ended or why in _reported or len(_reported) == MAX_REPORTED:
        return
    _reported.add(why)
    streams.message(f"an error was ignored{'' if limit else ', please report it'}: {why}", MAX_SENTENCE)
