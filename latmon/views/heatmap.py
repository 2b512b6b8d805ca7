"""A heat map as lines: time from left to right, latency up, I/Os as steps. Pure; colours are chosen elsewhere."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from latmon.moments import letter
from latmon.views.lines import Line, Span, cell, cell_len, runs, width, wrap
from latmon.views.scale import LatencyScale, level
from latmon.views.timeline import Begin, Column, Timeline
from latmon.views.units import clock, count, duration, rate, rounded

LABEL = 6
"""Cells of the latency labels, the axis included."""
TOTALS = 6
"""Cells of the I/Os per row, at the right."""
_CLOCK = 8
_MIN_BAR = 6
_ROUND_S = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_COARSE = 24
"""Three octaves."""


@dataclass(frozen=True, slots=True)
class Ink:
    """How a cell is drawn: one glyph per level, and whether each level has a colour of its own."""

    glyphs: str = "▪████████"
    coloured: bool = True
    line: str = "┄"
    gap: str = "╎"
    now: str = "│"
    staged: bool = False
    """Without colours for the levels, but with one for each stage."""

    @property
    def levels(self) -> int:
        return len(self.glyphs)

    def cell(self, step: int) -> tuple[str, str]:
        """(glyph, role) of a level >= 1."""
        return self.glyphs[step - 1], f"heat{step}" if self.coloured else "strong" if step == 1 else "text"


RAMP = Ink(glyphs="·:░▒▓█", coloured=False)
"""For 16 colours and none: the amount of ink is the amount of I/O, a single one is a bold dot."""


@dataclass(frozen=True, slots=True)
class MapStyle:
    """Everything about a map that isn't data."""

    scale: LatencyScale
    top: int
    cell_width: int = 1
    ink: Ink = Ink()
    threshold_us: int | None = None
    now: str = "now"
    """Label of the marker of a sweep."""

    @property
    def limit_row(self) -> int:
        """The row of the threshold; -1 without one, and where a row is too coarse for a line to tell anything."""
        if self.threshold_us is None or self.scale.step > _COARSE:
            return -1
        return self.scale.row_of(self.threshold_us)


def rows_of(counts: dict[int, int], scale: LatencyScale) -> list[int]:
    """I/Os per row, from below."""
    rows = [0] * scale.rows
    for index, n in counts.items():
        rows[scale.row(index)] += n
    return rows


def body(timeline: Timeline, device: str, style: MapStyle) -> list[Line]:
    """Return the cells alone, highest latency first; the part without data yet says so."""
    columns = [_column(c, device, style) for c in timeline.by_slot()]
    if timeline.sweep and timeline.columns and timeline.slots > 1:
        columns[timeline.slot(timeline.newest() + 1)] = [(style.ink.now, "dim")] * style.scale.rows
    empty = 0 if timeline.sweep else timeline.empty * style.cell_width
    written = empty_words(timeline.begin, empty, style.scale.rows)
    return [_row(columns, row, written.get(row), timeline, style) for row in reversed(range(style.scale.rows))]


def _row(columns: list[list[tuple[str, str]]], row: int, text: str | None, timeline: Timeline, style: MapStyle) -> Line:
    """Return one row; `text` stands in its columns without data."""
    empty = timeline.empty if text is not None else 0
    cells = runs((_wide(glyph, style), role) for glyph, role in (column[row] for column in columns[empty:]))
    return cells if text is None else (Span(cell(f" {text}", empty * style.cell_width), "dim"), *cells)


def empty_words(begin: Begin, cells: int, rows: int) -> dict[int, str]:
    """Return words for the `cells` x `rows` of a map before its data, by their row from below; none where none fit."""
    if math.isnan(begin.wall):
        return {}
    brief = f"no data before {clock(begin.wall)}"
    several = ([f"{brief} (started)"] if begin.is_start else []) + [brief, "no data"]
    whole = (text for text in several if max(map(cell_len, text.split())) <= cells - 2)
    lines = next((lines for text in whole if len(lines := wrap(text, cells - 2)) <= rows), [])
    top = rows - 1 - (rows - len(lines)) // 2
    return {top - at: text for at, text in enumerate(lines)}


def labelled(timeline: Timeline, device: str, style: MapStyle, cells: int) -> list[Line]:
    """The cells with the latency axis at the left; at the right the I/Os per row, where `cells` reach with bars."""
    sums = rows_of(total_counts(timeline, device), style.scale)
    longest = cells - LABEL - timeline.slots * style.cell_width - TOTALS - 2
    return [
        (label(style, row), *line, *_row_total(sums[row], max(sums), longest))
        for row, line in zip(reversed(range(style.scale.rows)), body(timeline, device, style), strict=True)
    ]


def total_counts(timeline: Timeline, device: str) -> dict[int, int]:
    """A device's I/Os per bucket over all columns of the map."""
    sums: dict[int, int] = {}
    for column in timeline.columns:
        for index, n in column.counts.get(device, {}).items():
            sums[index] = sums.get(index, 0) + n
    return sums


def label(style: MapStyle, row: int) -> Span:
    """The lower edge of a row, where an octave begins or the threshold's line is, and the axis.

    The lowest row that begins at 0 has its upper edge: `<8u`, because `0u` would look like no time at all.
    """
    line = row == style.limit_row
    edge = duration(style.scale.edge_us(row)) if line or style.scale.is_octave(row) else ""
    if row == 0 and style.scale.open_below:
        below = style.scale.edge_us(1)
        edge = next((t for t in (f"<{duration(below)}", f"<{duration(below, 2)}") if len(t) < LABEL), "")
    return Span(f"{edge:>{LABEL - 1}}{'┤' if line else '│'}", "accent" if line else "dim")


def limit(style: MapStyle) -> str:
    """What the line is; empty where there is none."""
    return (
        "" if style.threshold_us is None or style.limit_row < 0 else f"{style.ink.line}{duration(style.threshold_us)}"
    )


def axis(timeline: Timeline, style: MapStyle) -> Line:
    """The time axis below a map with labels."""
    return (Span(" " * (LABEL - 1) + "└", "dim"), *times(timeline, style))


def times(timeline: Timeline, style: MapStyle) -> Line:
    """Return round wall-clock stamps that end under their column, and the time of the newest column at the right edge.

    A sweep has a ▲ under the column that is written next instead. Letters are what happened beside the I/O.
    """
    wide = style.cell_width
    letters = {timeline.slot(c.number) * wide: sign for c in timeline.columns if (sign := letter(c.moments))}
    ends = [((timeline.slot(c.number) + 1) * wide, c.wall) for c in timeline.columns if not c.gap]
    size = timeline.slots * wide
    label = _marker(timeline, style, size) if timeline.sweep else newest_label(timeline.last_wall, size, letters)
    return runs(time_axis(ends, timeline.column_us, wide, label, size=size, letters=letters))


class Placed(NamedTuple):
    """Cells of an axis from `begin` on."""

    begin: int = 0
    cells: tuple[tuple[str, str], ...] = ()


def newest_label(wall: float | None, size: int, letters: Collection[int] = ()) -> Placed:
    """Return the time at the right edge of an axis; nothing where letters need its cells, or there is no time yet."""
    begin = size - _CLOCK - 1
    if wall is None or begin < 0 or any(x >= begin for x in letters):
        return Placed()
    return Placed(begin, (("─", "dim"), *((char, "text") for char in clock(wall))))


def _marker(timeline: Timeline, style: MapStyle, size: int) -> Placed:
    """Return the label of a sweep's marker, which is under the column that is written next."""
    x, mark = timeline.slot(timeline.newest() + 1) * style.cell_width, f"▲{style.now}"
    if not timeline.columns or size <= len(mark):
        return Placed()
    is_left = x + len(mark) > size
    word = mark[1:] + mark[0] if is_left else mark
    cells = tuple((char, "accent" if char == mark[0] else "dim") for char in word)
    return Placed(x + 1 - len(mark) if is_left else x, cells)


def time_axis(
    ends: Iterable[tuple[int, float]],
    column_us: int,
    cell_width: int,
    label: Placed,
    *,
    size: int,
    letters: Mapping[int, str] = MappingProxyType({}),
) -> list[tuple[str, str]]:
    """Return `size` cells of an axis with round wall-clock stamps, where neither the label nor a letter is.

    `ends`: for each column the cell behind it and the time in s when it ends; `letters`: by their cell.
    """
    cells = [("─", "dim")] * size
    every = _tick_s(column_us, cell_width)
    taken = {*letters, *range(label.begin, label.begin + len(label.cells))}
    for end, wall in ends:
        begin, tick = end - _CLOCK, wall // every * every
        if begin >= 0 and wall - column_us / 1e6 < tick and taken.isdisjoint(range(begin, end)):
            cells[begin:end] = [(char, "dim") for char in clock(tick)]
    cells[label.begin : label.begin + len(label.cells)] = label.cells
    for x, sign in letters.items():
        cells[x] = (sign, "bad")
    return cells


def legend(style: MapStyle, cells: int) -> Line:
    """Which latency the line is, and what a cell's step means: from a single I/O to the fullest; what fits of it."""
    steps = (*(Span(*style.ink.cell(i + 1)) for i in range(style.ink.levels)), Span(rounded(style.top), "dim"))
    line = Span(limit(style), "accent")
    several: list[Line] = [(line, Span(" "), *steps), (line, *steps)] if line.text else []
    return next((some for some in (*several, steps) if width(some) <= cells), ())


def _tick_s(column_us: int, cell_width: int) -> int:
    """Return the seconds between stamps: round, and wider than a stamp."""
    wanted = (_CLOCK + 4) / cell_width * column_us / 1e6
    return next((s for s in _ROUND_S if s >= wanted), _ROUND_S[-1])


def _wide(glyph: str, style: MapStyle) -> str:
    """A cell of the map's width; the mark of a single I/O stays single."""
    alone = glyph in (style.ink.glyphs[0], style.ink.now)
    return f"{glyph:<{style.cell_width}}" if alone else glyph * style.cell_width


def _row_total(n: int, most: int, longest: int) -> Line:
    """How many I/Os a row holds; a single one is a number that can't be overlooked."""
    text = count(n) if n else ""
    total = Span(f"{text if len(text) < TOTALS else rate(n):>{TOTALS}}", "strong" if n == 1 else "dim")
    if longest < _MIN_BAR or not n:
        return (total,)
    return total, Span(" " + "━" * max(1, round(longest * math.log(n + 1) / math.log(most + 1))), "dim")


def _column(column: Column | None, device: str, style: MapStyle) -> list[tuple[str, str]]:
    ink, rows, limit = style.ink, style.scale.rows, style.limit_row
    if column is not None and column.gap == "missing":
        return [(ink.gap, "gap")] * rows
    sums = [0] * rows if column is None else rows_of(column.counts.get(device, {}), style.scale)
    empty = (ink.gap, "gap") if column is not None and column.gap else (" ", "text")
    return [
        ink.cell(level(n, style.top, ink.levels)) if n else (ink.line, "accent") if row == limit else empty
        for row, n in enumerate(sums)
    ]
