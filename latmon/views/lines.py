"""Lines of spans, each a text and a role, and the column table that all panels use. Pure.

Themes turn roles into colours. The columns appear and grow with the width, for rows of any type: `layout` chooses the
columns and their widths, `heads` and `row` draw them, `around` scrolls to the selected row. No Textual here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from rich.cells import cell_len as cell_len  # noqa: PLC0414 - re-exported: the one place that knows Rich
from rich.cells import chop_cells as chop_cells  # noqa: PLC0414
from rich.cells import set_cell_size


class Span(NamedTuple):
    """Text in one role: text, dim, strong, accent, bad, marker, gap, or heat1 to heatN."""

    text: str
    role: str = "text"


Line = tuple[Span, ...]
ODD = "background/bad"
"""Role of the title of a device that is unlike its peers: the text has the colour of the background."""
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


T = TypeVar("T")
TIME = 6
"""Width of a column of durations."""
_MARK = 1
_ROOM = 10
"""Cells that must be left for bars and words to grow, for each rank above 1, before a column is added."""


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column: `make` gets the value and the width in cells. Rank 0 is always shown, higher ranks need more width.

    `most`: width up to which the column grows into cells that are left over.
    """

    title: str
    width: int
    make: Callable[[T, int], str | Line]
    rank: int = 0
    right: bool = True
    most: int = 0
    role: str = "text"


Placed = tuple[tuple[Field[T], int], ...]
"""Columns with their widths in cells."""


def layout(fields: Sequence[Field[T]], width: int) -> Placed[T]:
    """Return the columns that fit; where rank 0 alone doesn't fit, the last columns are dropped."""
    for rank in range(max(f.rank for f in fields), -1, -1):
        some = [f for f in fields if f.rank <= rank]
        left = left_over(some, width)
        if left >= _ROOM * max(rank - 1, 0):
            return _grown(some, left)
    while left_over(some, width) < 0 and len(some) > 1:
        some.pop()
    return _grown(some, max(left_over(some, width), 0))


def heads(placed: Placed[T], sorted_by: str = "", *, above: int = 0) -> Line:
    """Return the titles; the title of the sort column is highlighted. `above`: number of rows scrolled away above."""
    spans = [Span("↑" if above else " ", "accent")]
    for field, cells in placed:
        role = "accent" if sorted_by and field.title == sorted_by else "dim"
        spans.append(Span(f"{cell(field.title, cells, right=field.right)} ", role))
    return tuple(spans)


def row(placed: Placed[T], value: T, *, selected: bool = False) -> Line:
    """Return the cells of one value."""
    spans = [Span("▸" if selected else " ", "accent")]
    for number, (field, cells) in enumerate(placed):
        made = field.make(value, cells)
        if isinstance(made, str):
            role = "accent" if selected and not number else field.role
            spans.append(Span(f"{cell(made, cells, right=field.right)} ", role))
        else:
            spans += [*fit(made, cells), Span(" ")]
    return tuple(spans)


def table(
    fields: Sequence[Field[T]], some: Sequence[T], selected: int, size: tuple[int, int], *, why: str
) -> list[Line]:
    """Return titles and the rows that fit around the selected one; `why`: the reason for an empty table."""
    cells, height = size
    if not some:
        return [fit((Span(f"  {why}"),), cells)][:height]
    placed = layout(fields, cells)
    seen = around(len(some), selected, height - 1)
    lines = [heads(placed, above=seen.start), *(row(placed, some[i], selected=i == selected) for i in seen)]
    return [fit(line, cells) for line in lines][:height]


def around(total: int, selected: int, rows: int) -> range:
    """Return the rows to show of `total`: as many as fit, with the selected one."""
    shown = max(min(rows, total), 0)
    begin = max(0, min(max(selected, 0) - shown + 1, total - shown))
    return range(begin, begin + shown)


def left_over(fields: Sequence[Field[T]], width: int) -> int:
    """Return the cells that columns of their least width leave; negative where they don't fit."""
    return width - _MARK - sum(f.width + 1 for f in fields)


def as_wide(fields: Sequence[Field[T]]) -> Placed[T]:
    """Return columns with their least width."""
    return tuple((field, field.width) for field in fields)


def _grown(fields: Sequence[Field[T]], left: int) -> Placed[T]:
    """Return the columns grown into the cells left over: words before bars, since a truncated word is worse."""
    cells = [f.width for f in fields]
    for most in sorted({f.most for f in fields}):
        able = [i for i, f in enumerate(fields) if f.most == most and cells[i] < most]
        while left > 0 and able:
            at = min(able, key=lambda i: cells[i])
            cells[at] += 1
            left -= 1
            able = [i for i in able if cells[i] < most]
    return tuple(zip(fields, cells, strict=True))
