"""The smallest update of a terminal: the difference between the shown and the wanted cells, as escape sequences.

Textual resets the style after each segment and sends whole lines. Here only cells that differ are sent, with the part
of the style that changes. Where a row has moved sideways, as a heat map does each second, its cells are moved by the
terminal (DCH and ICH, ECMA-48 8.3.26 and 8.3.64), so that only the new column is sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from heapq import nlargest
from operator import itemgetter, ne
from typing import NamedTuple

from rich.color import Color as RichColor
from rich.color import ColorSystem, ColorType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate

from latmon.views.lines import PLAIN, SGR_OFF, UNKNOWN_CELL, Cell, Pen, Row, cells_of, change, encode

_MOVES = (1, -1, 2, -2, 3, -3, 4, -4)
"""Cells by which a row may have moved, to the left first."""
_PROBES = 4
"""Rows with the most changes, from which the movement of all rows is determined."""
_WORTH = 4
"""Least number of cells that a movement corrects."""
_ATTRIBUTES = tuple(
    zip(("bold", "dim", "italic", "underline", "blink", "reverse", "conceal", "strike"), SGR_OFF, strict=True)
)


@lru_cache(1024)
def pen_of(style: Style | None, colours: ColorSystem) -> Pen:
    """Return the parameters of a style for a depth of colours."""
    if style is None:
        return PLAIN
    attributes = frozenset(number for name, number in _ATTRIBUTES if getattr(style, name))
    return Pen(_codes(style.color, colours), _codes(style.bgcolor, colours, foreground=False), attributes)


def _codes(colour: RichColor | None, colours: ColorSystem, *, foreground: bool = True) -> str:
    if colour is None or colour.type is ColorType.DEFAULT:
        return ""
    return ";".join(colour.downgrade(colours).get_ansi_codes(foreground=foreground))


class Painter:
    """The cells of a terminal with so many `colours`. `shifts`: it can delete and insert cells."""

    def __init__(self, colours: ColorSystem, *, shifts: bool) -> None:
        self._colours, self._shifts = colours, shifts
        self._shown: list[Row] = []
        self._wanted: list[Row] = []
        self._is_known = False
        self._next = 0
        """The row that the next part begins with."""
        self._by = _MOVES[0]
        """Cells by which a picture has moved last."""

    def forget(self) -> None:
        """Forget what the terminal shows: something else has drawn on it, or its size has changed."""
        self._is_known = False

    def take(self, update: CompositorUpdate) -> None:
        """Add an update to what the terminal shall show."""
        if isinstance(update, LayoutUpdate):
            rows: list[Row] = [[cell for strip in strips for cell in self._cells(strip)] for strips in update.strips]
            if [len(row) for row in rows] != [len(row) for row in self._wanted]:
                self.forget()
            self._wanted = rows
        elif isinstance(update, ChopsUpdate):
            for y, begin, end in update.spans:
                for last, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
                    if strip is not None and x < end and last > begin and y < len(self._wanted):
                        cells = self._cells(strip)[: last - x]
                        old = self._wanted[y]
                        self._wanted[y] = [*old[:x], *cells, *old[x + len(cells) :]]

    @property
    def is_changed(self) -> bool:
        """Return whether the terminal shows something else than it shall."""
        return bool(self._wanted) and (not self._is_known or self._shown != self._wanted)

    def draw(self, most: int | None = None) -> str:
        """Return the escape sequences of the difference; with `most`, only its rows up to so many bytes.

        The next part begins with the row after them.
        """
        out, size, pen, height = [], 0, PLAIN, len(self._wanted)
        if not self._is_known:
            self._shown = [[UNKNOWN_CELL] * len(row) for row in self._wanted]
            self._is_known, self._next = True, 0
            out.append("\x1b[m")
        first, self._next = self._next, 0
        changed = [y for y in (*range(first, height), *range(first)) if self._shown[y] != self._wanted[y]]
        by = self._moved(changed) if self._shifts else 0
        for y in changed:
            if most is not None and size >= most:
                self._next = y
                break
            text, pen = update(y, self._shown[y], self._wanted[y], pen, by)
            self._shown[y] = self._wanted[y]
            out.append(text)
            size += len(text.encode())
        out.append(change(pen, PLAIN))
        return "".join(out)

    def _cells(self, strip: Iterable[Segment]) -> list[Cell]:
        colours = self._colours
        return [
            cell
            for text, style, control in strip
            if text and not control
            for cell in cells_of(text, pen_of(style, colours))
        ]

    def _moved(self, rows: Iterable[int]) -> int:
        """Return by how many cells most of a picture has moved to the left; 0 where it hasn't."""
        some = ((self._shown[y], self._wanted[y]) for y in rows)
        tries = (self._by, *(by for by in _MOVES if by != self._by))
        sizes = ((sum(map(ne, old, new)), old, new) for old, new in some if is_simple(old) and is_simple(new))
        probes = [(old, new) for size, old, new in nlargest(_PROBES, sizes, key=itemgetter(0)) if size >= _WORTH]
        changed = sum(sum(map(ne, old, new)) for old, new in probes)
        best, most = 0, _WORTH - 1
        for by in tries if probes else ():
            gain = sum(movement(old, new, by)[0] for old, new in probes)
            if gain > most:
                best, most = by, gain
                if 2 * gain > changed:  # another one hardly puts more cells right
                    break
        self._by = best or self._by
        return best


def is_simple(row: Row) -> bool:
    """Return whether all characters of a row are known and one cell wide."""
    return set(map(len, map(itemgetter(0), row))) == {1}


def update(y: int, old: Row, new: Row, pen: Pen, by: int) -> tuple[str, Pen]:
    """Return the shortest update of row `y`, and the pen after it; `by`: as in Movement, 0 for none."""
    gain, moved = movement(old, new, by) if by and is_simple(old) and is_simple(new) else (0, None)
    if moved is None or gain < _WORTH:
        return encode(y, old, new, pen)
    text = moved.text(y)
    rest, after = encode(y, moved.row(old), new, pen)
    if gain < len(text):  # a cell costs a byte at least
        whole = encode(y, old, new, pen)
        if len(whole[0]) <= len(text) + len(rest):
            return whole
    return text + rest, after


class Movement(NamedTuple):
    """Movement of the cells that end up in [begin, end) by so many cells to the left; `by` < 0: to the right."""

    begin: int
    end: int
    by: int

    @property
    def _places(self) -> tuple[int, int, int]:
        """Return where cells are deleted, where they are then inserted, and how many."""
        size = abs(self.by)
        return (self.begin, self.end, size) if self.by > 0 else (self.end - size, self.begin - size, size)

    def row(self, old: Row) -> Row:
        """Return a row after the movement; what is inserted isn't known: the background may be that of the pen."""
        at, to, size = self._places
        left = [*old[:at], *old[at + size :]]
        return [*left[:to], *[UNKNOWN_CELL] * size, *left[to:]]

    def text(self, y: int) -> str:
        """Return the sequence that moves the cells of row `y`."""
        at, to, size = self._places
        number = "" if size == 1 else str(size)
        return f"\x1b[{y + 1};{at + 1}H\x1b[{number}P\x1b[{y + 1};{to + 1}H\x1b[{number}@"


def movement(old: Row, new: Row, by: int) -> tuple[int, Movement]:
    """Return (cells put right, movement) of the best part of a row to move by so many cells to the left.

    The best part is that with the largest sum of gains, found as in Kadane's algorithm.
    """
    size = len(new)
    first, last = max(-by, 0), min(size - by, size)
    best, best_begin, best_end, total, begin = 0, first, first, 0, first
    for x in range(first, last):
        cell = new[x]
        total += (old[x + by] == cell) - (old[x] == cell)
        if total <= 0:
            total, begin = 0, x + 1
        elif total > best:
            best, best_begin, best_end = total, begin, x + 1
    return best, Movement(best_begin, best_end, by)
