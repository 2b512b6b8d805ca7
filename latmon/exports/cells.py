"""CSV as RFC 4180 has it, in UTF-8: cells as bytes of a row. A cell that a spreadsheet would run has a ' before it."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.report.figures import rfc3339

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def row(cells: Iterable[object]) -> bytes:
    """One line; None is an empty cell."""
    return (",".join(map(_cell, cells)) + "\r\n").encode("utf-8", "backslashreplace")


def names(words: Iterable[str]) -> str | None:
    """Return several names as one cell, with blanks between; None for none."""
    return " ".join(words) or None


def stamp(wall: float) -> str | None:
    """RFC 3339 in UTC, to the microsecond; None for a stamp beyond the calendar."""
    return rfc3339(wall, "microseconds")


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if text.startswith(_FORMULA):
        text = f"'{text}"
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if any(c in text for c in ',"\r\n') else text
