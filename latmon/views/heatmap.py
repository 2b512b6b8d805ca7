"""A heat map as lines: time across (a sweep), latency up, I/Os as steps. Pure; colours and fonts are somebody else's."""

from __future__ import annotations

import time
from dataclasses import dataclass

from latmon.views.lines import Line, Span, runs
from latmon.views.scale import LatencyScale, level
from latmon.views.timeline import Column, Timeline
from latmon.views.units import count, duration, rate, rounded

LABEL = 6
"""Cells of the latency labels, the axis included."""
TOTALS = 6
"""Cells of the I/Os per row, at the right."""
_CLOCK = 8
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
    """The cells alone, highest latency first."""
    columns = [_column(c, device, style, now=False) for c in timeline.by_slot()]
    if timeline.columns and timeline.slots > 1:
        columns[(timeline.newest() + 1) % timeline.slots] = _column(None, device, style, now=True)
    return [
        runs((glyph * style.cell_width, role) for glyph, role in (column[row] for column in columns))
        for row in reversed(range(style.scale.rows))
    ]


def labelled(timeline: Timeline, device: str, style: MapStyle, *, totals: bool = True) -> list[Line]:
    """The cells with the latency axis at the left and the window's I/Os per row at the right."""
    sums = rows_of(total_counts(timeline, device), style.scale)
    lines = body(timeline, device, style)
    return [
        (
            label(style, row),
            *line,
            *((Span(_total(sums[row]), "dim" if sums[row] > 1 else "strong"),) if totals else ()),
        )
        for row, line in zip(reversed(range(style.scale.rows)), lines, strict=True)
    ]


def total_counts(timeline: Timeline, device: str) -> dict[int, int]:
    """A device's I/Os per bucket over all columns of the map."""
    sums: dict[int, int] = {}
    for column in timeline.columns:
        for index, n in column.counts.get(device, {}).items():
            sums[index] = sums.get(index, 0) + n
    return sums


def label(style: MapStyle, row: int) -> Span:
    """The lower edge of a row and the axis."""
    limit = style.limit_row == row
    return Span(
        f"{duration(style.scale.edge_us(row)):>{LABEL - 1}}{'┤' if limit else '│'}", "accent" if limit else "dim"
    )


def axis(timeline: Timeline, style: MapStyle) -> Line:
    """The time axis: wall-clock stamps that end under their column, and the place where time is now."""
    size = timeline.slots * style.cell_width
    cells = [("─", "dim")] * size
    now = (timeline.newest() + 1) % timeline.slots * style.cell_width
    for column in timeline.columns:
        end = (column.number % timeline.slots + 1) * style.cell_width
        begin = end - _CLOCK
        if begin >= 0 and _is_tick(column, timeline) and not begin <= now < end:
            text = time.strftime("%H:%M:%S", time.localtime(column.wall))
            cells[begin:end] = [(c, "dim") for c in text]
    if timeline.columns:
        cells[now] = ("▲", "accent")
    return (Span(" " * (LABEL - 1) + "└", "dim"), *runs(cells))


def legend(style: MapStyle) -> Line:
    """What a cell's step means: from a single I/O to the fullest."""
    steps = tuple(Span(*style.ink.cell(i + 1)) for i in range(style.ink.levels))
    return (*steps, Span(f"{rounded(style.top)}", "dim"))


def _is_tick(column: Column, timeline: Timeline) -> bool:
    """Every 15th column, counted on the sweep so that stamps never stand closer than they are long."""
    return column.number % timeline.slots % max(15, 1) == 14 and not column.gap  # noqa: PLR2004  the last of the 15


def _total(n: int) -> str:
    text = count(n) if n else ""
    return f"{text if len(text) < TOTALS else rate(n):>{TOTALS}}"


def _column(column: Column | None, device: str, style: MapStyle, *, now: bool) -> list[tuple[str, str]]:
    ink, rows = style.ink, style.scale.rows
    if now:
        return [(ink.now, "accent")] * rows
    if column is not None and column.gap == "missing":
        return [(ink.gap, "gap")] * rows
    limit = style.limit_row
    sums = [0] * rows if column is None else rows_of(column.counts.get(device, {}), style.scale)
    empty = (ink.gap, "gap") if column is not None and column.gap else (" ", "text")
    return [
        ink.cell(level(n, style.top, ink.levels)) if n else (ink.line, "accent") if row == limit else empty
        for row, n in enumerate(sums)
    ]
