"""The capabilities that a probe tool takes instead of root, from /proc (a parameter).

Owns which ones and who has them: this process, or whatever it starts. Knows no tool.
"""

from __future__ import annotations

import re
from pathlib import Path

from latmon.files import content

_WANTED = {"CAP_BPF": 39, "CAP_PERFMON": 38, "CAP_DAC_READ_SEARCH": 2, "CAP_DAC_OVERRIDE": 1}
"""Each one of them is asked for by bpftrace 0.27, one behind the other."""
_SYS_ADMIN = 21
"""Holds the first two."""
_SETS = {name: re.compile(rf"^{name}:\s*([0-9a-f]+)".encode(), re.MULTILINE) for name in ("CapEff", "CapAmb")}


def missing(proc: Path = Path("/proc")) -> frozenset[str]:
    """Those that this process doesn't have."""
    return _without(proc, "CapEff")


def missing_in_children(proc: Path = Path("/proc")) -> frozenset[str]:
    """Those that a program which we start as a plain user won't have: it inherits the ambient ones alone."""
    return _without(proc, "CapAmb")


def can_mount_in_children(proc: Path = Path("/proc")) -> bool:
    """True when a program which we start as a plain user may mount."""
    return bool(_held(proc, "CapAmb") >> _SYS_ADMIN & 1)


def _without(proc: Path, kind: str) -> frozenset[str]:
    held = _held(proc, kind)
    if held >> _SYS_ADMIN & 1:
        held |= 1 << _WANTED["CAP_BPF"] | 1 << _WANTED["CAP_PERFMON"]
    return frozenset(name for name, bit in _WANTED.items() if not held >> bit & 1)


def _held(proc: Path, kind: str) -> int:
    found = _SETS[kind].search(content(proc / "self/status"))
    return int(found[1], 16) if found else 0
