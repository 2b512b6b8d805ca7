"""Where a probe tool is: what the user named, else the search path; never the current directory.

A tool runs as root: one that merely lies where latmon was started must not be it. A latmon that is root itself refuses
a tool that another user can change. Must not run anything.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from latmon import files, trust
from latmon.errors import UnavailableError, UntrustedError

VARIABLES = ("LATMON_BPFTRACE", "LATMON_DTRACE", "LATMON_KSTAT")
"""Each names a tool."""
_ADMIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Where root's tools are, and often not in a user's search path."""
_REMEDY = "put it where only root can write, such as /usr/local/bin"
_MAX_INTERPRETERS = 5
"""A script's interpreter may be a script; the kernel goes no deeper."""
_FIRST_LINE = 256


def find_tool(name: str, variable: str, environ: Mapping[str, str]) -> Path:
    """The tool's absolute path: `$variable` when it is set, else `name` on the search path.

    UnavailableError where there is none. UntrustedError where latmon is root and others can change it.
    """
    named = environ.get(variable, "")
    if named:
        path = _named(Path(named), variable)
        require(path, f"{variable}={path}")
        return path
    # Behind the trusted directories all of them, for the sentence that says why what is there doesn't count.
    found = shutil.which(name, path=search_path(environ)) or shutil.which(name, path=_whole_path(environ))
    if found is None:
        raise UnavailableError(f"{name} is not installed (looked in PATH and for {variable}).")
    require(Path(found), f"{found}, found in PATH,")
    return Path(found)


def search_path(environ: Mapping[str, str]) -> str:
    """PATH without its relative parts, and with the administrators' directories; for root where only root writes."""
    whole = _whole_path(environ).split(os.pathsep)
    return os.pathsep.join(whole if os.geteuid() else [part for part in whole if trust.flaw(Path(part)) is None])


def require(path: Path, what: str) -> None:
    """Raise UntrustedError where latmon is root and others can change the tool, or the interpreter that it names.

    `what` names the path and where it comes from.
    """
    if os.geteuid():
        return
    trust.require(path, what, _REMEDY)
    for _ in range(_MAX_INTERPRETERS):
        found = _interpreter(path)
        if found is None:
            return
        if not found.is_absolute():
            raise UntrustedError(
                f"{what} is not used as root, because {path} names its interpreter {found} relative to the current "
                "directory: name an absolute path in its first line"
            )
        trust.require(found, f"{what} with the interpreter {found}", _REMEDY)
        path = found


def require_named(environ: Mapping[str, str]) -> None:
    """Raise UntrustedError where latmon is root and a variable names a tool that others can change."""
    for variable in VARIABLES:
        path = Path(environ.get(variable, ""))
        if path.is_absolute():
            require(path, f"{variable}={path}")


def _whole_path(environ: Mapping[str, str]) -> str:
    parts = [part for part in environ.get("PATH", os.defpath).split(os.pathsep) if Path(part).is_absolute()]
    return os.pathsep.join(dict.fromkeys((*parts, *_ADMIN)))


def _interpreter(path: Path) -> Path | None:
    """What the first line of a script names; None for another program, and for one that isn't there."""
    try:
        line, *_ = files.regular(path, _FIRST_LINE).splitlines() or [b""]
    except OSError:
        return None
    words = line.removeprefix(b"#!").split()
    return Path(os.fsdecode(words[0])) if line.startswith(b"#!") and words else None


def _named(path: Path, variable: str) -> Path:
    if not path.is_absolute():
        raise UnavailableError(f"{variable} must be an absolute path, not {str(path)!r}.")
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UnavailableError(f"{variable} names {path}, which can't be run.")
    return path
