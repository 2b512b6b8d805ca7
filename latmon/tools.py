"""Where a probe tool is: what the user named, else the search path; never the current directory.

A tool runs as root: one that merely lies where latmon was started must not be it. Must not run anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from latmon.errors import UnavailableError

_ADMIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where root's tools are, and often not in a user's search path."""


def find_tool(name: str, variable: str, environ: Mapping[str, str]) -> Path:
    """The tool's absolute path: `$variable` when it is set, else `name` on the search path."""
    named = environ.get(variable, "")
    if named:
        return _named(Path(named), variable)
    found = shutil.which(name, path=search_path(environ))
    if found is None:
        raise UnavailableError(f"{name} is not installed (looked in PATH and for {variable}).")
    return Path(found)


def search_path(environ: Mapping[str, str]) -> str:
    """PATH without its relative parts, and with the administrators' directories."""
    parts = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if Path(part).is_absolute()]
    return os.pathsep.join(dict.fromkeys((*parts, *_ADMIN)))


def _named(path: Path, variable: str) -> Path:
    if not path.is_absolute():
        raise UnavailableError(f"{variable} must be an absolute path, not {str(path)!r}.")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UnavailableError(f"{variable} names {path}, which can't be run.")
    return path
