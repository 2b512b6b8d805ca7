"""Where our data files are: in the installed package first, then in the checkout. Knows names, not contents."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The directory of bundled data called `name` ("probes", "themes")."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name
