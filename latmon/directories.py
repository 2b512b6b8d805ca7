"""Where a user's files belong: the XDG base directories, or what stands for them below HOME.

Asks the environment only; whoever writes makes the directory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state(environ: Mapping[str, str]) -> Path:
    """For what is kept from run to run: crashes, recordings made where nothing else could be written."""
    return _base(environ, "XDG_STATE_HOME", ".local/state")


def config(environ: Mapping[str, str]) -> Path:
    """For the user's settings."""
    return _base(environ, "XDG_CONFIG_HOME", ".config")


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """`variable` when it is absolute, as the XDG specification wants it."""
    named = Path(environ.get(variable, ""))
    return (named if named.is_absolute() else Path(environ.get("HOME", "/")) / below_home) / "latmon"
