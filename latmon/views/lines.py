"""Lines of spans, each a text and a role; themes turn roles into colours. No Textual here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len as cell_len  # noqa: PLC0414 - re-exported: the one place that knows Rich
from rich.cells import chop_cells as chop_cells  # noqa: PLC0414
from rich.cells import set_cell_size


class Span(NamedTuple):
    """Text in one role: text, dim, strong, accent, bad, marker, gap, or heat1 to heatN."""

    text: str
    role: str = "text"


Line = tuple[Span, ...]
BLANK: Line = ()


def width(line: Line) -> int:
    """Return the width of a line in cells."""
    return sum(_size(span.text) for span in line)


def plain(line: Line) -> str:
    """Return the text without roles."""
    return "".join(span.text for span in line)


def runs(cells: Iterable[tuple[str, str]]) -> Line:
    """Return cells (glyph, role) joined into the fewest spans."""
    spans: list[Span] = []
    text: list[str] = []
    role = ""
    for glyph, this in cells:
        if this != role and text:
            spans.append(Span("".join(text), role))
            text.clear()
        role = this
        text.append(glyph)
    if text:
        spans.append(Span("".join(text), role))
    return tuple(spans)


def fit(line: Line, cells: int) -> Line:
    """Return a line of exactly `cells`: truncated with an ellipsis or padded with blanks."""
    spans: list[Span] = []
    left = cells
    for span in line:
        size = _size(span.text)
        if size > left:
            cut = set_cell_size(span.text, max(left - 1, 0)) + ("…" if left else "")
            return (*spans, Span(cut, span.role)) if cut else tuple(spans)
        spans.append(span)
        left -= size
    return (*spans, Span(" " * left)) if left else tuple(spans)


def cell(text: str, cells: int, *, right: bool = False) -> str:
    """Return a text of exactly `cells`: truncated with an ellipsis or padded, so that columns don't move."""
    size = _size(text)
    if size > cells:
        return set_cell_size(text, max(cells - 1, 0)) + ("…" if cells else "")
    return " " * (cells - size) + text if right else text + " " * (cells - size)


def cut(lines: Sequence[Line], height: int, top: int = 0, *, key: str = "") -> list[Line]:
    """Return `height` lines from `top` on; where lines below are left out, the last line gives their number.

    `key`: text before it, for the key that scrolls.
    """
    begin = max(0, min(top, len(lines) - height))
    shown = list(lines[begin : begin + max(height, 0)])
    if left := len(lines) - begin - len(shown):
        shown[-1:] = [(Span(f" … {key}{left + 1} more lines", "dim"),)] if shown else []
    return shown


def wrap(text: str, cells: int) -> list[str]:
    """Return words in lines of at most `cells`; a longer word is truncated, one of wide letters is split."""
    lines: list[str] = []
    for word in text.split():
        if cell_len(word) > max(cells, len(word)):
            rest = cells - cell_len(lines[-1]) - 1 if lines else 0
            begun = chop_cells(word, rest)[0] if rest > 1 else ""
            lines[-1:] = [f"{lines[-1]} {begun}"] if begun else lines[-1:]
            lines += chop_cells(word[len(begun) :], max(cells, 2))
            continue
        short = cell(word, cells).rstrip()
        if lines and cell_len(lines[-1]) + 1 + cell_len(short) <= cells:
            lines[-1] += f" {short}"
        else:
            lines.append(short)
    return lines


def paragraph(text: str, cells: int, role: str = "text", *, margin: int = 1) -> list[Line]:
    """Return a text wrapped into lines of `cells`, with a margin at both sides."""
    return [(Span(" " * margin + part, role),) for part in wrap(text, cells - 2 * margin)]


def empty_panel(why: str, cells: int, height: int) -> list[Line]:
    """Return the lines of a panel that has nothing to show but the reason for it."""
    return [BLANK, *paragraph(why, cells, margin=2)][: max(height, 0)]


def _size(text: str) -> int:
    """Return the width of a text; fast for ASCII, since each frame measures a whole screen."""
    return len(text) if text.isascii() else cell_len(text)
