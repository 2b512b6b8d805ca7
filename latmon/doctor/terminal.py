"""Check of the terminal: is there one, how large, how many colours. Says what the screen will look like, not how."""

from __future__ import annotations

import os
import sys

from latmon.doctor.check import Check, Place, Status
from latmon.text import clean

_MIN_COLUMNS, _MIN_LINES = 80, 24


def terminal(place: Place, size: tuple[int, int] | None = None) -> Check:
    """The terminal that the TUI would draw on. It draws on standard error, so a redirected output doesn't matter."""
    term = clean(place.environ.get("TERM", ""))
    cells = size or _size()
    if cells is None:
        return Check("terminal", Status.OK, "not looked at: standard error of this command is no terminal")
    if term in ("", "dumb"):
        why = f"TERM={term or '(unset)'} can't be drawn on"
        return Check("terminal", Status.DEGRADED, why, "record with `latmon --record FILE`, then `latmon report FILE`")
    columns, lines = cells
    what = f"{term}, {columns}x{lines}, {_colours(place, term)}"
    if columns < _MIN_COLUMNS or lines < _MIN_LINES:
        return Check("terminal", Status.DEGRADED, f"{what}: small", f"enlarge it to {_MIN_COLUMNS}x{_MIN_LINES}")
    return Check("terminal", Status.OK, what)


def _size() -> tuple[int, int] | None:
    try:
        columns, lines = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return None
    return columns, lines


def _colours(place: Place, term: str) -> str:
    if place.environ.get("NO_COLOR"):
        return "no colours (NO_COLOR)"
    if place.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "true colour"
    return "256 colours" if "256" in term else "16 colours"
