"""Small readers of sysfs: an attribute's cleaned text, a link's last part, a directory's names. Absence is empty.

Sysfs attributes vanish, and devices that are dying answer with errors, while they are read: none of that is a fault.
"""

from __future__ import annotations

from pathlib import Path

from latmon.files import content
from latmon.text import clean


def attribute(path: Path) -> str:
    """The attribute's text, cleaned and stripped; empty when there is none."""
    return clean(content(path).strip(b" \t\n\0"))


def number(path: Path) -> int | None:
    """A decimal attribute; None when there is none."""
    try:
        return int(content(path))
    except ValueError:
        return None


def link(path: Path) -> str:
    """The last part of what a link points to (a driver's or subsystem's name); empty when there is no link."""
    try:
        return clean(path.readlink().name)
    except OSError:
        return ""


def names(directory: Path) -> tuple[str, ...]:
    """What a directory holds, sorted; nothing when it can't be read."""
    try:
        return tuple(sorted(clean(entry.name) for entry in directory.iterdir()))
    except OSError:
        return ()
