"""What a small file of the kernel's holds. Those of /proc and /sys vanish while they are read: absence is no fault."""

from __future__ import annotations

from pathlib import Path


def content(path: Path) -> bytes:
    """The bytes; empty when there is no such file, no longer, or not for us."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def text(path: Path) -> str:
    """The same as ASCII; what isn't ASCII is replaced."""
    return content(path).decode("ascii", "replace")
