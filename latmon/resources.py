"""Where our data files are: in the installed package first, then in the checkout. Knows names, not contents."""

from __future__ import annotations

from pathlib import Path

from latmon.errors import UnavailableError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """Return the directory of bundled data called `name` ("probes", "themes"); UnavailableError where there is none.

    A zip archive holds none: bpftrace, a root process, must be given files that nobody else unpacked or can write to.
    """
    found = next((one for one in (_PACKAGE / name, _PACKAGE.parent / name) if one.is_dir()), None)
    if found is None:
        raise UnavailableError(
            f"{_PACKAGE.parent} has no directory {name}: latmon doesn't run from a zip archive; "
            "install it (pipx install .) or use ./bootstrap run in a checkout"
        )
    return found
