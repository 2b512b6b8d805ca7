"""What a start waits for, by the backend that is asked for. Knows backends by their names only."""

from __future__ import annotations

import platform

_COMPILES = {
    "bpftrace": "bpftrace compiles its probes first, an old one for up to half a minute",
    "dtrace": "dtrace compiles its probes first, for some seconds, on a busy host for up to a minute",
}


def compiling(backend: str = "auto", system: str = platform.system()) -> str:
    """A sentence; empty where nothing is compiled."""
    return _COMPILES.get(("bpftrace" if system == "Linux" else "dtrace") if backend == "auto" else backend, "")
