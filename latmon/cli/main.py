"""The process of a command: a command line in, an exit code out, no traceback.

Every refusal is one sentence on stderr. arguments.py owns the options, commands.py the commands; --version and --help
end before the latter is imported.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from latmon import __version__
from latmon.support import failures, first_picture, imports, output_files, paths, signals, streams
from latmon.support.errors import EXIT_DONE, LatmonError, UnavailableError
from latmon.support.text import clean

MAX_BYTES = 256 * 1024
_STANDARD_FILES = {"stdin": os.O_RDWR, "stdout": os.O_RDONLY, "stderr": os.O_RDWR}


def install() -> None:
    """Set the process's handlers of exceptions that nothing catches; the interpreter's exit code is already 1."""
    sys.excepthook = _explain
    failures.install()


def log_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the crash log in the user's state directory."""
    return output_files.state(environ) / "crash.log"


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    failures.end_reports()
    why = failures.exhausted(error)
    if not why:
        try:
            why = _describe(kind, error, trace)
        except (MemoryError, OSError, ImportError) as failure:
            limit = failures.exhausted(failure) or type(failure).__name__
            why = f"{kind.__name__}; the details could not be kept: {limit}"
    print(f"latmon failed: {why}", file=sys.stderr)


def _describe(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> str:
    """Return a sentence about an unexpected exception, after its details were written to the log."""
    import traceback

    from latmon.support import privileges

    details = "".join(traceback.format_exception(kind, error, trace))
    sentence = f"{kind.__name__}: {clean(str(error), 200)}"
    try:  # under sudo the log is below the user's home, where a name may be a link
        privileges.drop_root(privileges.invoker(os.environ, os.geteuid()))
        kept = _keep(details, log_path(os.environ))
    except OSError as failure:  # still root: it writes nothing there
        kept = f"the details could not be kept: {failure.strerror}"
    return f"{sentence}; {kept}"


def _keep(details: str, path: Path) -> str:
    """Append to the log, or overwrite it above MAX_BYTES; return a message with its path."""
    try:
        output_files.make_directories(path.parent)
        with os.fdopen(output_files.open_to_append(path), "a") as log:
            if os.fstat(log.fileno()).st_size > MAX_BYTES:
                log.truncate(0)
            log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} latmon {__version__}\n{details}")
    except UnavailableError as error:
        return f"the details could not be kept: {error}"
    except OSError as error:
        return f"the details could not be kept: {error.strerror}"
    return f"the details are in {path}, please report them"


def main() -> NoReturn:
    """Run the command line and exit with its code; the launcher of a zip archive ignores a returned code."""
    sys.exit(_run())


def _run() -> int:
    """Return the exit code; outside of a capture or a screen 128 and the signal's number, as shells expect."""
    install()
    _open_standard_files()
    streams.install()
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
    output_files.restrict_umask()
    try:
        try:
            imports.guard()  # before what they import
            from latmon.cli import arguments

            args = arguments.parse(argv)
            from latmon.support import loop_errors

            loop_errors.install()
            from latmon.cli import commands

            signals.leave_if_received()
            return commands.run(args)
        finally:
            first_picture.end()
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
    streams.message(str(error), failures.MAX_SENTENCE)
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
