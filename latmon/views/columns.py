"""The column table that all panels use: columns that appear and grow with the width, for rows of any type. Pure.

`layout` chooses the columns and their widths, `heads` and `row` draw them, `around` scrolls to the selected row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from latmon.views.lines import Line, Span, cell, fit

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
