"""What a user sees of a mistake of ours: one sentence and where the details are, never a traceback on the screen."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from latmon import __version__, directories, privileges
from latmon.text import clean

MAX_BYTES = 256 * 1024


def install() -> None:
    """For the whole process; the interpreter's own exit code for an unhandled exception is already 1."""
    sys.excepthook = _explain


def log_path(environ: Mapping[str, str]) -> Path:
    """Where crashes are written down: the user's state directory."""
    return directories.state(environ) / "crash.log"


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    details = "".join(traceback.format_exception(kind, error, trace))
    with contextlib.suppress(OSError):  # under sudo the log is below the user's home, where a name may be a link
        privileges.settle(privileges.invoker(os.environ, os.geteuid()))
    sentence = f"latmon failed: {kind.__name__}: {clean(str(error), 200)}"
    print(f"{sentence}; {_keep(details, log_path(os.environ))}", file=sys.stderr)


def _keep(details: str, path: Path) -> str:
    """Add to the log, which starts anew when it has grown; says where it is."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = os.O_TRUNC if path.exists() and path.stat().st_size > MAX_BYTES else os.O_APPEND
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | fresh, 0o600), "a") as log:
            log.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} latmon {__version__}\n{details}")
    except OSError as error:
        return f"the details could not be kept: {error.strerror}"
    return f"the details are in {path}, please report them"
