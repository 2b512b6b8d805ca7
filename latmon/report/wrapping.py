"""Sentences in the 80 columns of a ticket; what a terminal draws two cells wide counts as two."""

from __future__ import annotations

import textwrap

from latmon.views.lines import cell_len

WIDTH = 79
_SECOND = "\0"
"""Stands behind a wide character while lines are broken; clean text has none."""


def wrapped(text: str, indent: str = "") -> list[str]:
    """Lines, those behind the first two cells further in."""
    if text.isascii():
        return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    wide = "".join(one + _SECOND * (cell_len(one) - 1) for one in text)
    lines = textwrap.wrap(wide, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    return [line.replace(_SECOND, "") for line in lines]
