"""Screens as text without the frames of their panels, which large screens have."""

from collections.abc import Sequence

from latmon.views.lines import Line, plain

LEFT = "│├╭╰┌└"


def inside(lines: Sequence[Line]) -> list[str]:
    """Return the lines of a screen without the first and last cell of those that are in a frame."""
    return [line[1:-1] if line and line[0] in LEFT and line[-1] in "│┤╮╯┐┘" else line for line in map(plain, lines)]
