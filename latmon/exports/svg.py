"""svg: the screen at one moment as a picture that stands alone: no font is fetched, its text can be selected.

A cell is a fixed part of the picture: every run of text is stretched to its cells, whatever the viewer's font, and full
blocks are rectangles, so that heat maps have no seams.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO
from xml.sax.saxutils import escape

from latmon.errors import RecordingError
from latmon.exports.moments import Moments, bounds, windows
from latmon.exports.palette import Palette, palette
from latmon.exports.source import Source
from latmon.exports.wish import Wish
from latmon.theme import load_theme
from latmon.views.lines import Line, Span, cell_len, fit, plain

_WIDE, _HIGH, _BASE = 8.4, 18, 13.5
"""Of a cell, in the picture's units; the text's base line in it."""
_FONT = "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
_PARTS = re.compile(r"█+| +|[^█ ]+(?: [^█ ]+)*")
"""Full blocks, blanks, and words with single blanks between them."""


def write(source: Source, out: BinaryIO, wish: Wish) -> None:
    """The picture as of `at`, else of the end."""
    colours = palette(load_theme(wish.theme))
    shown = Moments(source, wish, colours.ink)
    ends = source.recording.ends()
    at_us, _ = bounds(source, wish, ends[-1] if ends else 0)
    for frame in windows(source, at_us):
        if wish.at and frame.mono_us > at_us and shown.last is not None:
            break
        shown.append(frame)
    if shown.last is None:
        raise RecordingError(f"{source.recording.path} holds no window to draw")
    lines = [fit(line, wish.size[0]) for line in shown.lines()]
    out.write("\n".join(picture(lines, wish.size, colours)).encode())


def picture(lines: list[Line], size: tuple[int, int], colours: Palette) -> Iterator[str]:
    """SVG, a line of it each."""
    width, height = size[0] * _WIDE + 2 * _WIDE, (size[1] + 1) * _HIGH
    box = f'viewBox="0 0 {width:.1f} {height}" width="{width:.1f}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    yield f"<title>{escape(plain(lines[0]).strip()) if lines else 'latmon'}</title>"
    yield "<style>"
    yield f"text {{ font: 14px {_FONT}; white-space: pre; fill: {colours.text} }}"
    yield from (f".{role} {{ fill: {colour} }}" for role, colour in colours.rgb.items() if role != "background")
    yield from (f"text.{role} {{ font-weight: bold }}" for role in colours.bold)
    yield "</style>"
    yield f'<rect width="100%" height="100%" rx="6" fill="{colours.background}"/>'
    yield f'<g transform="translate({_WIDE} {_HIGH / 2})">'
    for y, line in enumerate(lines):
        x = 0
        for span in line:
            yield from _span(span, x, y)
            x += cell_len(span.text)
    yield "</g></svg>\n"


def _span(span: Span, x: int, y: int) -> Iterator[str]:
    for part in _PARTS.finditer(span.text):
        text = part[0]
        if text.isspace():
            continue
        at, cells = x + cell_len(span.text[: part.start()]), cell_len(text)
        left, wide = f"{at * _WIDE:.1f}", f"{cells * _WIDE:.1f}"
        if text[0] == "█":
            yield f'<rect class="{span.role}" x="{left}" y="{y * _HIGH}" width="{wide}" height="{_HIGH}"/>'
        else:
            where = f'x="{left}" y="{y * _HIGH + _BASE}" textLength="{wide}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text class="{span.role}" {where}>{escape(text)}</text>'
