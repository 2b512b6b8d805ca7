"""What a start waits for, by the backend that is asked for. Knows backends by their names only."""

from __future__ import annotations

import platform

_COMPILES = {
    "bpftrace": "bpftrace compiles its probes first, an old one for up to half a minute",
    "": "the probe tool compiles its probes first, an old bpftrace for up to half a minute",
    "dtrace": "dtrace compiles its probes first, for some seconds, on a busy host for up to a minute",
    "demo": "the demo makes its first windows",
}


def compiling(backend: str = "auto", system: str = platform.system()) -> str:
    """A sentence; empty where a start waits for nothing."""
    own = "" if system == "Linux" else "dtrace"  # bpftrace, or dtrace where it doesn't open
    return _COMPILES.get(own if backend == "auto" else backend, "")
