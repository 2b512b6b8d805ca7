"""A step of a tour as lines: its place, what the screen above shows, and the keys. Pure."""

from __future__ import annotations

from typing import NamedTuple

from latmon.views.lines import Line, Span, cell, wrap
from latmon.views.lines import width as line_width

LINES = 4
"""Of text at 80 columns: what is left is the view that it is about."""


class Band(NamedTuple):
    """What stands above the health line. `place`: 2/5."""

    place: str
    title: str
    text: str
    keys: Line = ()


def banded(band: Band, width: int) -> list[Line]:
    """A line with the place and the keys, and the text."""
    place = f" {band.place}  "
    room = width - len(place) - line_width(band.keys) - 1
    title = cell(band.title, max(room, 0))
    head: Line = (Span(place, "accent"), Span(title, "strong"), Span(" "), *band.keys)
    return [head, *((Span(f" {line}"),) for line in wrap(band.text, width - 2))]
