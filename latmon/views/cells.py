"""Cells of a terminal, and the escape sequences that change one row of them into another. Pure.

Only cells that differ are written, with the part of the style that changes: for a terminal and for a cast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from latmon.views.lines import are_narrow, cell_len

_NEAR = 6
"""Unchanged cells that are sent again where they need no other style: moving the cursor costs as much."""
OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "8": "28", "9": "29"}
"""SGR parameter of an attribute -> the one that ends it."""
_VISIBLE = frozenset("479")
"""Attributes that are seen on a blank: underline, reverse, strike."""


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
UNKNOWN = Cell("", Pen("unknown"))
"""A cell of which it isn't known what the terminal shows; no other cell equals it."""


@lru_cache(4096)
def change(old: Pen, new: Pen) -> str:
    """Return the shortest sequence that changes the style."""
    if old == new:
        return ""
    every = [*sorted(new.attributes), *filter(None, (new.colour, new.background))]
    whole = f"\x1b[0;{';'.join(every)}m" if every else "\x1b[m"
    off = {OFF[one] for one in old.attributes - new.attributes}
    parts = [*sorted(off), *sorted(one for one in new.attributes if one not in old.attributes or OFF[one] in off)]
    parts += [new.colour or "39"] if new.colour != old.colour else []
    parts += [new.background or "49"] if new.background != old.background else []
    part = f"\x1b[{';'.join(parts)}m"
    return part if len(part) < len(whole) else whole


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
    rest = _cell("", pen)
    if sum(sizes) != size or 0 in sizes:
        return (Cell(text, pen), *[rest] * (size - 1)) if size else ()
    return tuple(
        cell for char, one in zip(text, sizes, strict=True) for cell in (_cell(char, pen), *[rest] * (one - 1))
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
            if near and all(len(one.text) == 1 and _fits(one, pen) for one in near):
                out += [one.text for one in near]
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
