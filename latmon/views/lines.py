"""Lines of spans, each a text and a role, and the column table that all panels use. Pure.

Themes turn roles into colours. The columns appear and grow with the width, for rows of any type: `layout` chooses the
columns and their widths, `heads` and `row` draw them, `around` scrolls to the selected row. No Textual here.

A panel begins with a `heading`, and so does each part of it. `screen_lines` turns the lines of a large screen into
panels with frame lines, where each heading is the frame line above its part; on a small one headings are lines.

Cells of a terminal are changed, one row into another, by escape sequences: only cells that differ are written, with the
part of the style that changes, for a terminal and for a cast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, repeat
from operator import itemgetter
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from rich.cells import cell_len as rich_cell_len
from rich.cells import chop_cells as chop_cells  # noqa: PLC0414 - re-exported: the one place that knows Rich
from rich.cells import set_cell_size

from latmon.support.units import NO_BREAK, unbroken

_NEAR = 6
"""Unchanged cells that are sent again where they need no other style: moving the cursor costs as much."""
SGR_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "8": "28", "9": "29"}
"""SGR parameter of an attribute -> the one that ends it."""
_VISIBLE = frozenset("479")
"""Attributes that are seen on a blank: underline, reverse, strike."""


SORT, ORDER, FINDING, EPISODE, DEVICE = "sort", "order", "finding", "episode", "device"
ROW, PART, TILE = "row", "part", "tile"
_OF_ROWS = (FINDING, EPISODE, DEVICE, ROW, PART)
"""Targets of whole rows: a cell of one without a target of its own has that of the row."""
ODD = "background/bad"
"""Role of the title of a device that is unlike its peers: the text has the colour of the background."""
BLANK: Line = ()
FRAME = "frame"
"""Role of frame lines. Blanks in this role are the part of a heading where its frame line is seen."""
_SELECTED = "/sel"
_TEXTS = ("text", "strong", "bad")
"""Roles that are dim in a row of no importance."""
_FRAMED_FROM = (120, 36)
"""Least size, in cells and lines, of a screen whose panels have frames."""
are_narrow = re.compile("[ -~\u00a0-\u00ac\u00ae-\u02ff\u2190-\u2193\u2264\u2265\u2500-\u25fc…]*").fullmatch
"""Whether each character of a text is one cell wide, as all are that latmon itself draws."""
T = TypeVar("T")
TIME = 6
"""Width of a column of durations."""
_MARK = 1
_MEASURED = 64
"""Rows whose words are measured for the width of their column."""
_ROOM = 10
"""Cells that must be left for bars and words to grow, for each rank above 1, before a column is added."""


class Target(NamedTuple):
    """What a click on a span is about: a kind, and which of that kind.

    SORT: an order of the device table; ORDER: one of slow I/Os; both are empty at a title that no order has.
    FINDING: rule and device; EPISODE: a finding of the list; DEVICE: its name; TILE: that of a small map, which shares
    its lines with others. ROW: the key of a row of the panel; PART: a table of several.
    """

    kind: str
    value: Hashable = ""


class Span(NamedTuple):
    """Text in one role: one of a theme (support/theme), a step of the ramp (heat1 to heatN), a stage, or its letter.

    `heat2/heat5` has two roles: of the text and of its background, `text/sel` is text in the selected row.
    """

    text: str
    role: str = "text"
    target: Target | None = None


Line = tuple[Span, ...]


def cell_len(text: str) -> int:
    """Return the width of a text; fast, since each picture measures a whole screen several times."""
    return len(text) if are_narrow(text) else rich_cell_len(text)


def width(line: Line) -> int:
    """Return the width of a line in cells."""
    return cell_len(plain(line))


def plain(line: Line) -> str:
    """Return the text without roles."""
    return "".join(span.text for span in line)


def targeted(line: Line, target: Target) -> Line:
    """Return a line whose spans are about one thing."""
    return tuple(span._replace(target=target) for span in line)


def target_at(line: Line, x: int) -> Target | None:
    """Return what a cell of a line is about; None where nothing is there for a click."""
    begin = 0
    for span in line:
        begin += cell_len(span.text)
        if x < begin:
            if span.target is not None:
                return span.target
            break
    return next((span.target for span in line if span.target is not None and span.target.kind in _OF_ROWS), None)


def runs(cells: Iterable[tuple[str, str]]) -> Line:
    """Return cells (glyph, role) joined into the fewest spans."""
    same_role = groupby(cells, key=itemgetter(1))
    return tuple(Span("".join(map(itemgetter(0), same_spans)), role) for role, same_spans in same_role)


def fit(line: Line, cells: int) -> Line:
    """Return a line of exactly `cells`: truncated with an ellipsis or padded with blanks.

    Blanks at its end that don't fit are no loss: they are left out without an ellipsis.
    """
    left = cells - width(line)
    if left < 0:
        is_longer = width(line[:-1]) + cell_len(line[-1].text.rstrip()) > cells
        return _truncated(line, cells) if is_longer else fit(_stripped(line), cells)
    if not left:
        return line
    is_selected = bool(line) and line[-1].role.endswith(_SELECTED)
    return (*line, Span(" " * left, f"text{_SELECTED}" if is_selected else "text"))


def _stripped(line: Line) -> Line:
    """Return a line without the blanks at the end of its last span."""
    last = line[-1]
    text = last.text.rstrip()
    return (*line[:-1], last._replace(text=text)) if text else line[:-1]


def _truncated(line: Line, cells: int) -> Line:
    """Return the first `cells` of a longer line, the last of them an ellipsis."""
    if cells <= 0:
        return BLANK
    spans: list[Span] = []
    left = cells - 1
    for span in line:
        size = cell_len(span.text)
        if size > left:
            return (*spans, span._replace(text=f"{set_cell_size(span.text, left)}…"))
        spans.append(span)
        left -= size
    return tuple(spans)


def highlighted(line: Line) -> Line:
    """Return a line on the background of a selected row; `fit` extends the background to the line's end."""
    return backed(line, "sel")


def dimmed(line: Line) -> Line:
    """Return a line whose texts are dim; a cell of a heat map, and the mark of the selected row, keep their colour."""
    return tuple(span._replace(role="dim") if span.role in _TEXTS else span for span in line)


def backed(line: Line, background: str) -> Line:
    """Return a line on another background: a role that ends in `/BACKGROUND`."""
    return tuple(span if "/" in span.role else span._replace(role=f"{span.role}/{background}") for span in line)


def is_framed(size: tuple[int, int]) -> bool:
    """Return whether the panels of a screen of (cells, lines) have frames."""
    return size[0] >= _FRAMED_FROM[0] and size[1] >= _FRAMED_FROM[1]


def heading(left: Line, cells: int, *rights: Line) -> Line:
    """Return the title of a panel in exactly `cells`: `left`, a gap, and the first of `rights` that fits.

    The gap has at least `ends` cells, of which a screen without frames takes one.
    """
    room = cells - ends(cells)
    right = next((spans for spans in rights if width(left) + width(spans) <= room), BLANK)
    kept = left if width(left) <= room else fit(left, room)
    return (*kept, Span(" " * (cells - width(kept) - width(right)), FRAME), *right)


def ends(cells: int) -> int:
    """Return the least cells of the gap in a heading: what `dashed` takes from it, where panels have frames `ruled`."""
    return _RULED if cells >= _FRAMED_FROM[0] - 2 else _DASHED


_DASHED, _RULED = 1, 3
"""Cells of the piece of a frame line before a heading; of those at both ends, and of a blank."""


def is_heading(line: Line) -> bool:
    """Return whether a line was made by `heading`."""
    return any(span.role == FRAME and span.text.isspace() for span in line)


def dashed(line: Line) -> Line:
    """Return a line for a screen without frames: a heading begins with a piece of a frame line, taken from its gap."""
    if not is_heading(line):
        return line
    at = next(at for at, span in enumerate(line) if span.role == FRAME and span.text.isspace())
    return (Span("─", FRAME), *line[:at], line[at]._replace(text=line[at].text[1:]), *line[at + 1 :])


def ruled(line: Line, corners: str) -> Line:
    """Return a heading as a frame line, two cells wider, with `corners` at its ends; gaps become lines."""
    spans, owed = [Span(f"{corners[0]}─", FRAME)], _RULED - 1
    for number, span in enumerate(line, 1):
        text = span.text
        if span.role != FRAME or not text.isspace():
            spans.append(span)
            continue
        size, owed = max(len(text) - owed, 0), max(owed - len(text), 0)
        spans.append(Span(_gap(size, " " * (number > 1), " " * (number < len(line))), FRAME))
    return (*spans, Span(f"─{corners[1]}", FRAME))


def _gap(size: int, before: str, after: str) -> str:
    """Return a piece of a frame line of `size` cells; `before`, `after`: its blanks, empty where no word is there."""
    line = size - len(before) - len(after)
    return f"{before}{'─' * line}{after}" if line > 0 else " " * size


def walled(line: Line, cells: int) -> Line:
    """Return a line of `cells` inside of a frame, two cells wider."""
    return (Span("│", FRAME), *fit(line, cells), Span("│", FRAME))


def panelled(lines: Sequence[Line], cells: int, height: int, corners: str) -> list[Line]:
    """Return lines as panels in `height` lines of `cells`; the first and the last line are headings.

    `corners`: the upper left one, then clockwise.
    """
    first, *inner, last = lines
    inner = inner[: height - 2] + [BLANK] * (height - 2 - len(inner))
    inside = (ruled(one, "├┤") if is_heading(one) else walled(one, cells - 2) for one in inner)
    return [ruled(first, corners[:2]), *inside, ruled(last, corners[3] + corners[2])]


def cell(text: str, cells: int, *, right: bool = False) -> str:
    """Return a text of exactly `cells`: truncated with an ellipsis or padded, so that columns don't move."""
    size = cell_len(text)
    if size > cells:
        return set_cell_size(text, max(cells - 1, 0)) + ("…" if cells else "")
    return " " * (cells - size) + text if right else text + " " * (cells - size)


def cut(lines: Sequence[Line], height: int, top: int = 0, *, key: str = "") -> list[Line]:
    """Return `height` lines from `top` on; where lines below are left out, the last line gives their number.

    A heading above the lines stays there. `key`: text before the number, for the key that scrolls.
    """
    if height > 1 and lines and is_heading(lines[0]):
        return [lines[0], *cut(lines[1:], height - 1, top, key=key)]
    begin = max(0, min(top, len(lines) - height))
    shown = list(lines[begin : begin + max(height, 0)])
    if left := len(lines) - begin - len(shown):
        shown[-1:] = [(Span(f" … {key}{left + 1} more lines", "dim"),)] if shown else []
    return shown


def wrap(text: str, cells: int) -> list[str]:
    """Return words in lines of at most `cells`; a longer word is truncated, one of wide letters is split.

    A number and its unit are one word.
    """
    lines: list[str] = []
    for word in _words(text, cells):
        if cell_len(word) > max(cells, len(word)):
            remainder = cells - cell_len(lines[-1]) - 1 if lines else 0
            begun = chop_cells(word, remainder)[0] if remainder > 1 else ""
            lines[-1:] = [f"{lines[-1]} {begun}"] if begun else lines[-1:]
            lines += chop_cells(word[len(begun) :], max(cells, 2))
            continue
        short = cell(word, cells).rstrip()
        if lines and cell_len(lines[-1]) + 1 + cell_len(short) <= cells:
            lines[-1] += f" {short}"
        else:
            lines.append(short)
    return lines


def _words(text: str, cells: int) -> Iterator[str]:
    for word in filter(None, unbroken(" ".join(text.split())).split(" ")):
        joined = word.replace(NO_BREAK, " ")
        yield from [joined] if len(joined) <= cells else joined.split()


def paragraph(text: str, cells: int, role: str = "text", *, margin: int = 1) -> list[Line]:
    """Return a text wrapped into lines of `cells`, with a margin at both sides."""
    return [(Span(" " * margin + part, role),) for part in wrap(text, cells - 2 * margin)]


def empty_panel(why: str, cells: int, height: int) -> list[Line]:
    """Return the lines of a panel that has nothing to show but the reason for it."""
    return cut([BLANK, *paragraph(why, cells, margin=2)], height)


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column: `make` gets the value and the width in cells. Rank 0 is always shown, higher ranks need more width.

    `most`: width up to which the column grows into cells that are left over; `is_first`: before the others grow.
    """

    title: str
    width: int
    make: Callable[[T, int], str | Line]
    rank: int = 0
    right: bool = True
    most: int = 0
    role: str = "text"
    is_first: bool = False
    meaning: str = ""
    """What the help screen says of the column; empty: it is explained there among others."""
    is_per_op: bool = True
    """Whether it has a value of one op, too."""


Placed = tuple[tuple[Field[T], int], ...]
"""Columns with their widths in cells."""


def layout(fields: Sequence[Field[T]], width: int) -> Placed[T]:
    """Return the columns that fit; where rank 0 alone doesn't fit, the last columns are dropped."""
    for rank in range(max(f.rank for f in fields), -1, -1):
        kept_fields = [f for f in fields if f.rank <= rank]
        left = left_over(kept_fields, width)
        if left >= _ROOM * max(rank - 1, 0):
            return _grown(kept_fields, left)
    while left_over(kept_fields, width) < 0 and len(kept_fields) > 1:
        kept_fields.pop()
    return _grown(kept_fields, max(left_over(kept_fields, width), 0))


def heads(
    placed: Placed[T],
    sorted_by: str = "",
    *,
    above: int = 0,
    kind: str = "",
    orders: Mapping[str, str] = MappingProxyType({}),
) -> Line:
    """Return the titles; the title of the sort column is highlighted. `above`: number of rows scrolled away above.

    `kind`: that of the targets of the titles; `orders`: title -> its order.
    """
    spans = [Span("↑" if above else " ", "accent")]
    for field, cells in placed:
        role = "accent" if sorted_by and field.title == sorted_by else "dim"
        target = Target(kind, orders.get(field.title, "")) if kind else None
        spans.append(Span(f"{cell(field.title, cells, right=field.right)} ", role, target))
    return tuple(spans)


def row(placed: Placed[T], value: T, *, selected: bool = False) -> Line:
    """Return the cells of one value; the selected row has its name and its background highlighted."""
    spans = [Span("▸" if selected else " ", "accent")]
    for number, (field, cells) in enumerate(placed):
        made_cell = field.make(value, cells)
        if isinstance(made_cell, str):
            role = "strong" if selected and not number else field.role
            spans.append(Span(f"{cell(made_cell, cells, right=field.right)} ", role))
        else:
            spans += [*fit(made_cell, cells), Span(" ")]
    return highlighted(tuple(spans)) if selected else tuple(spans)


def table(
    fields: Sequence[Field[T]],
    rows: Sequence[T],
    selected: int,
    size: tuple[int, int],
    *,
    why: str = "",
    is_dim: Callable[[T], bool] = lambda _: False,
    target_of: Callable[[T], Target] | None = None,
) -> list[Line]:
    """Return titles and the rows that fit around the selected one.

    `why`: the reason for an empty table; `is_dim`: whether a row that is not selected is of no importance; `target_of`:
    makes what a click on a row is about.
    """
    cells, height = size
    if not rows:
        return cut(paragraph(why, cells, "dim", margin=2), height)
    placed = layout(
        [_as_long(field, rows) if field.is_first or field is not fields[-1] else field for field in fields], cells
    )
    seen = around(len(rows), selected, height - 1)
    lines = [heads(placed, above=seen.start)]
    for i in seen:
        line = fit(row(placed, rows[i], selected=i == selected), cells)
        line = dimmed(line) if is_dim(rows[i]) and i != selected else line
        lines.append(line if target_of is None else targeted(line, target_of(rows[i])))
    return [fit(line, cells) for line in lines][:height]


def _as_long(field: Field[T], rows: Sequence[T]) -> Field[T]:
    """Return a column of words that grows no wider than its longest one, so that the next column is near it."""
    if field.right or not field.most:
        return field
    made_cells = [field.make(first_row, field.most) for first_row in rows[:_MEASURED]]
    longest = max((cell_len(text) for text in made_cells if isinstance(text, str)), default=field.most)
    return replace(field, most=min(max(longest, field.width), field.most))


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
    for is_later, most in sorted({(not f.is_first, f.most) for f in fields}):
        able = [i for i, f in enumerate(fields) if (not f.is_first, f.most) == (is_later, most) and cells[i] < most]
        while left > 0 and able:
            at = min(able, key=lambda i: cells[i])
            cells[at] += 1
            left -= 1
            able = [i for i in able if cells[i] < most]
    return tuple(zip(fields, cells, strict=True))


class Pen(NamedTuple):
    """The SGR parameters of a style; an empty colour is the terminal's own."""

    colour: str = ""
    background: str = ""
    attributes: frozenset[str] = frozenset()


class Cell(NamedTuple):
    """A cell; the text is empty in the second cell of a wide character."""

    text: str
    pen: Pen


Row = Sequence[Cell]
PLAIN = Pen()
UNKNOWN_CELL = Cell("", Pen("unknown"))
"""A cell of which it isn't known what the terminal shows; no other cell equals it."""


@lru_cache(4096)
def change(old: Pen, new: Pen) -> str:
    """Return the shortest sequence that changes the style."""
    if old == new:
        return ""
    codes = [*sorted(new.attributes), *filter(None, (new.colour, new.background))]
    sequence = f"\x1b[0;{';'.join(codes)}m" if codes else "\x1b[m"
    off = {SGR_OFF[attribute] for attribute in old.attributes - new.attributes}
    parts = [
        *sorted(off),
        *sorted(
            attribute for attribute in new.attributes if attribute not in old.attributes or SGR_OFF[attribute] in off
        ),
    ]
    parts += [new.colour or "39"] if new.colour != old.colour else []
    parts += [new.background or "49"] if new.background != old.background else []
    part = f"\x1b[{';'.join(parts)}m"
    return part if len(part) < len(sequence) else sequence


@lru_cache(1024)
def _blank(pen: Pen) -> Pen:
    """Return the part of a pen that is seen on a blank."""
    seen = pen.attributes & _VISIBLE
    return pen if seen else Pen("", pen.background)


@lru_cache(8192)
def _cell(char: str, pen: Pen) -> Cell:
    """Return the one cell of a character: the same in all texts, which keeps them small and quickly compared."""
    return Cell(" ", _blank(pen)) if char == " " else Cell(char, pen)


@lru_cache(1024)
def cells_of(text: str, pen: Pen) -> tuple[Cell, ...]:
    """Return the cells of a text. One whose characters join (such as emoji) is drawn as a whole, in its first cell."""
    if are_narrow(text):
        return tuple(map(_cell, text, repeat(pen)))
    sizes, size = [cell_len(char) for char in text], cell_len(text)
    remaining_cell = _cell("", pen)
    if sum(sizes) != size or 0 in sizes:
        return (Cell(text, pen), *[remaining_cell] * (size - 1)) if size else ()
    return tuple(
        cell
        for char, size in zip(text, sizes, strict=True)
        for cell in (_cell(char, pen), *[remaining_cell] * (size - 1))
    )


def encode(y: int, old: Row, new: Row, pen: Pen) -> tuple[str, Pen]:
    """Return the sequence that changes the cells of row `y` that differ, and the pen after it."""
    out: list[str] = []
    at, size = -1, len(new)
    for x in range(size):
        cell = new[x]
        if not cell.text or cell == old[x]:
            continue
        if at != x:
            near = new[at:x] if at >= 0 and x - at <= _NEAR else ()
            if near and all(len(cell.text) == 1 and _fits(cell, pen) for cell in near):
                out += [cell.text for cell in near]
            else:
                out.append(f"\x1b[{x - at if x - at > 1 else ''}C" if at >= 0 else f"\x1b[{y + 1};{x + 1}H")
        if not _fits(cell, pen):
            wanted = cell.pen
            if cell.text == " " and not wanted.attributes:  # of the old pen remains what isn't seen on a blank
                wanted = Pen(pen.colour, wanted.background, pen.attributes - _VISIBLE)
            out.append(change(pen, wanted))
            pen = wanted
        out.append(cell.text)
        # terminals differ in the width of some characters, and in where the cursor is after the last cell
        at = x + 1 if len(cell.text) == 1 and x + 1 < size and new[x + 1].text else -1
    return "".join(out), pen


def _fits(cell: Cell, pen: Pen) -> bool:
    """Return whether a cell needs no other style than the present one."""
    if cell.pen == pen:
        return True
    is_blank = cell.text == " " and not cell.pen.attributes
    return is_blank and cell.pen.background == pen.background and not pen.attributes & _VISIBLE
