"""The spotlight of a guided tour: the parts of a screen that its text is about are bright, the rest is faint. Pure.

A part is named by `verdict`, by `table` and `map` of the overview, or by words. Words of a heading name the part below
the first such heading, other words the lines that contain them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

from latmon.views.heatmap import Ink
from latmon.views.lines import FRAME, Line, Span, is_heading, plain

FAINT = "faint"
"""Role of all that the text of a tour is not about."""
VERDICT, TABLE, MAP = "verdict", "table", "map"
_SHADES = "░▒▓"
_CELLS = frozenset(f"{_SHADES}█▀▄·: ")
"""Glyphs of the cells of a map."""
_SHADED = dict.fromkeys(_SHADES, "▒")
_AXIS = " " * 5 + "└"
"""Beginning of the time axis below a map."""


def faint(line: Line) -> Line:
    """Return a line in the role of what the text is not about; frame lines keep theirs."""
    return tuple(span if span.role == FRAME else span._replace(text=_glyphs(span), role=FAINT) for span in line)


def bright(line: Line, ink: Ink) -> Line:
    """Return a line that differs from a faint one; without colours it is bold, which nothing else is then."""
    if ink.coloured:
        return line
    return tuple(span if span.role == FRAME else span._replace(role=_bold(span.role)) for span in line)


def _bold(role: str) -> str:
    text, slash, background = role.partition("/")
    return f"strong{slash}{background}" if text in ("text", "dim") else role


def _glyphs(span: Span) -> str:
    """Return the text of a span in one colour, which shows no steps: both halves of a cell of a map are alike."""
    upper, _, lower = span.role.partition("/")
    is_count = upper.startswith("heat") or lower.startswith("heat")
    if not is_count or not set(span.text) <= _CELLS:
        return span.text
    return "".join("█" if lower and glyph == "▀" else _SHADED.get(glyph, glyph) for glyph in span.text)


def lit(points: Collection[str], verdict: Sequence[Line], body: Sequence[Line]) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines of the verdict and of those of the body that `points` name."""
    rows: set[int] = set()
    for point in points:
        rows.update(_rows(point, body))
    return set(range(len(verdict))) if VERDICT in points else set(), rows


def _rows(point: str, body: Sequence[Line]) -> Sequence[int]:
    """Return the numbers of the lines of a body that one name is about; empty where there are none."""
    if point == VERDICT:
        return ()
    parts = list(_parts(body))
    texts = [plain(line) for line in body]
    if point in (TABLE, MAP):
        axis = next((row for row, text in enumerate(texts) if text.startswith(_AXIS)), None)
        drawn = next((part for part in parts if axis is not None and axis in part), range(0))
        return drawn if point == MAP else range(drawn.start)
    for part in parts:
        if is_heading(body[part.start]) and point in texts[part.start]:
            return part
    return [row for row, text in enumerate(texts) if point in text]


def _parts(body: Sequence[Line]) -> Iterator[range]:
    """Yield the lines from each heading to the next one, and those before the first heading; none of an empty body."""
    starts = [row for row, line in enumerate(body) if row == 0 or is_heading(line)]
    for start, end in pairwise([*starts, len(body)]):
        yield range(start, end)
