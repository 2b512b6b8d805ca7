"""Sentences in the 80 columns of a ticket; what a terminal draws two cells wide counts as two."""

from __future__ import annotations

import textwrap
import unicodedata

WIDTH = 79
_WIDE = "WF"
"""East Asian Width (UAX #11): wide and fullwidth take two cells."""
_SECOND = "\0"
"""Stands behind a wide character while lines are broken; clean text has none."""


def wrapped(text: str, indent: str = "") -> list[str]:
    """Lines, those behind the first two cells further in."""
    if text.isascii():
        return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    wide = "".join(one + _SECOND * (unicodedata.east_asian_width(one) in _WIDE) for one in text)
    lines = textwrap.wrap(wide, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    return [line.replace(_SECOND, "") for line in lines]
