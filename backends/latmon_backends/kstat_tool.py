"""The command `kstat` of illumos and Solaris: where it is and how it is run. Knows no kstat."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from latmon.errors import UnavailableError
from latmon.tools import find_tool, require

VARIABLE = "LATMON_KSTAT"
_USUAL = Path("/usr/bin/kstat")
_TIMEOUT_S = 10
Run = Callable[[tuple[str, ...]], bytes]
"""Arguments -> standard output; UnavailableError where there is none."""


def runner(environ: Mapping[str, str] = os.environ) -> Run:
    """Runs the tool that LATMON_KSTAT names, else /usr/bin/kstat, else the one on the search path."""
    usual = _USUAL if VARIABLE not in environ and os.access(_USUAL, os.X_OK) else None
    path = str(usual or find_tool("kstat", VARIABLE, environ))
    require(Path(path), path)

    def run(words: tuple[str, ...]) -> bytes:
        try:
            # no kstat needs an input; C for numbers that have a point
            done = subprocess.run(  # noqa: S603 - an absolute path that is the user's or the system's
                [path, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**environ, "LC_ALL": "C"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f"kstat can't be run: {error}.") from error
        if done.returncode not in (0, 1):  # 1: nothing matched
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise UnavailableError(f"kstat failed: {said[-1] if said else f'exit code {done.returncode}'}.")
        return done.stdout

    return run
