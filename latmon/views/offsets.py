"""Where in the second things happened: seconds across, the offset within each up, events as steps. Pure.

What the kernel does on its timer's ticks makes bands, what comes as it likes is even (FlameScope's map, of I/Os, not
of samples). Folded to the tick, 4 ms at HZ 250, all offsets of a second lie on one another: a tick is one band.
Events are what has a stamp finer than a window: outliers as they completed, requests as they went to a driver; windows
shorter than a second add their counts, at their end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from latmon.model import Frame, Outlier
from latmon.outstanding import Issue
from latmon.views.heatmap import Ink, empty_words, newest_label, time_axis
from latmon.views.lines import Line, Span, cell, fit, runs, wrap
from latmon.views.scale import level
from latmon.views.timeline import Begin
from latmon.views.units import count, spelled

SECOND_US = 1_000_000
LABEL = 7
_RIGHT = 6
_TITLE, _AXIS = 1, 1
NO_DATA = Begin()
_LEAST = 8
"""Fewer events are no pattern."""
_BANDED = 2.5
"""The fullest half of the rows may hold so many times the events of the other, and chance is still likely."""
_MEMBERS = 6
"""That are named; a device has dozens at times."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Events at CLOCK_MONOTONIC stamps, I/Os each, and what they are."""

    outliers: tuple[int, ...] = ()
    """When each completed."""
    issues: tuple[int, ...] = ()
    windows: tuple[tuple[int, int], ...] = ()
    """(end, I/Os) of windows that are shorter than a second; empty where they are not."""
    window_us: int = SECOND_US

    def __bool__(self) -> bool:
        return bool(self.outliers or self.issues or self.windows)

    def counts(self) -> Counter[int]:
        """Stamp -> I/Os. Counts of windows are another kind of fact: they are shown where there is nothing finer."""
        if self.outliers or self.issues:
            return Counter((*self.outliers, *self.issues))
        return Counter(dict(self.windows))

    def between(self, begin_us: int, end_us: int) -> Moments:
        """Those of [begin, end)."""
        return Moments(
            tuple(us for us in self.outliers if begin_us <= us < end_us),
            tuple(us for us in self.issues if begin_us <= us < end_us),
            tuple((us, n) for us, n in self.windows if begin_us <= us < end_us),
            self.window_us,
        )

    @property
    def said(self) -> str:
        """What the map is made of."""
        parts = []
        if self.outliers:
            parts.append(f"{count(len(self.outliers))} outlier{'s' * (len(self.outliers) != 1)} by completion")
        if self.issues:
            parts.append(f"{count(len(self.issues))} request{'s' * (len(self.issues) != 1)} by issue")
        if not parts and self.windows:
            parts.append(f"I/Os of windows of {spelled(self.window_us)}")
        return ", ".join(parts)


def moments(
    device: str,
    outliers: Iterable[Outlier],
    bursts: Iterable[Sequence[Issue]],
    frames: Sequence[Frame],
    ops: tuple[str, ...],
) -> Moments:
    """What is known of one device to less than a window."""
    short = frames[-1].dt_us if frames else SECOND_US
    some = tuple(
        (f.mono_us, n)
        for f in frames
        if f.dt_us < SECOND_US
        and (n := sum(one.count for s, one in f.histograms.items() if s.device == device and s.op in ops))
    )
    return Moments(
        # until a waiter ran again is after completion
        tuple(
            one.mono_us + one.total_us - one.stages_us.get("resume", 0)
            for one in outliers
            if one.device == device and one.op in ops
        ),
        tuple(one.mono_us for burst in bursts for one in burst if one.op in ops),
        some,
        short,
    )


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Cells (column, row from below) -> I/Os. `fold_us`: what the rows are of, a second or a tick."""

    cells: dict[tuple[int, int], int]
    columns: int
    rows: int
    fold_us: int
    begin_us: int
    column_us: int

    @property
    def end_us(self) -> int:
        return self.begin_us + self.columns * self.column_us

    @property
    def per_row(self) -> list[int]:
        found = [0] * self.rows
        for (_, row), n in self.cells.items():
            found[row] += n
        return found

    @property
    def is_banded(self) -> bool:
        """More in the fullest half of the rows than chance puts there; too little says nothing.

        What counts are cells that hold something, not events: a burst in one second is no band.
        """
        held = [0] * self.rows
        for _, row in self.cells:
            held[row] += 1
        held.sort(reverse=True)
        total, half = sum(held), sum(held[: max(self.rows // 2, 1)])
        expected = total / self.rows
        chi2 = sum((n - expected) ** 2 for n in held) / expected if expected else 0.0
        # chi-squared has a mean of its degrees of freedom and twice that as variance: five deviations
        beyond = self.rows - 1 + 5 * (2 * (self.rows - 1)) ** 0.5
        return self.rows > 1 and total >= _LEAST and chi2 > beyond and half >= _BANDED * (total - half)


def offset_map(
    some: Moments, until_us: int, length_us: int, columns: int, rows: int, *, fold_us: int = SECOND_US
) -> OffsetMap:
    """`columns` of whole seconds that end with `until_us`, `rows` of the fold."""
    column_us = SECOND_US * max(-(-length_us // (SECOND_US * max(columns, 1))), 1)
    last = -(-until_us // column_us)
    number = min(columns, -(-length_us // column_us))
    begin_us = (last - number) * column_us
    cells: dict[tuple[int, int], int] = {}
    for at_us, n in some.counts().items():
        column = (at_us - begin_us) // column_us
        if 0 <= column < number:
            at = column, at_us % fold_us * rows // fold_us
            cells[at] = cells.get(at, 0) + n
    return OffsetMap(cells, number, rows, fold_us, begin_us, column_us)


def rows_of(window_us: int, room: int, fold_us: int, *, fine: bool) -> int:
    """As many rows as fit; windows alone have no more than there are of them in a second."""
    return room if fine else max(min(room, fold_us // max(window_us, 1)), 1)


def draw(
    found: OffsetMap, some: Moments, width: int, ink: Ink, *, wall_less_mono: float = 0.0, begin: Begin = NO_DATA
) -> list[Line]:
    """Return a headline, rows with their offsets, and the time below; `begin`: where data begins, if in the map."""
    every = "second" if found.fold_us == SECOND_US else f"tick of {spelled(found.fold_us)}"
    seen = " banded" if found.is_banded else ""
    said = some.between(found.begin_us, found.end_us).said or "nothing in this time"
    lines = [fit((Span(f"  offset in the {every}: {said}"), Span(seen, "strong")), width)]
    top = max(found.cells.values(), default=1)
    cell_width = max((width - LABEL - _RIGHT) // max(found.columns, 1), 1)
    sums = found.per_row
    before_us = 0 if math.isnan(begin.wall) else (begin.wall - wall_less_mono) * 1e6 - found.begin_us
    empty = max(int(before_us // found.column_us), 0)
    written = empty_words(begin, empty * cell_width, found.rows)
    for row in reversed(range(found.rows)):
        first = empty if row in written else 0
        words = Span(cell(f" {written[row]}", empty * cell_width), "dim") if first else Span("")
        cells = [_cell(found.cells.get((x, row), 0), top, cell_width, ink) for x in range(first, found.columns)]
        total = Span(f"{count(sums[row]) if sums[row] else '':>{_RIGHT}}", "dim")
        lines.append((_label(found, row), words, *runs(cells), total))
    return [*lines, _axis(found, cell_width, wall_less_mono)]


def without(why: str, width: int, room: int) -> list[Line]:
    """Why there is no map."""
    lines: list[Line] = [(Span(f"  {part}"),) for part in wrap(why, width - 4)]
    return lines[:room]


def why_none(some: Moments, *, recorded: bool, members: Sequence[str] | None = None) -> str:
    """What a device without events would need; empty where it has some. `members`: of one that times no I/O itself."""
    if some:
        return ""
    if members is not None:
        below = f": {', '.join(members[:_MEMBERS])}" if members else ""
        return f"no request passes this device: its I/O is timed at its members, select one of them{below}"
    again = "a recording made with --interval 100ms" if recorded else "--interval 100ms"
    return (
        "no event here has a stamp finer than its window: no outlier was told and no order of issue was traced"
        f" in this time; {again} shows counts by tenths of a second"
    )


def _cell(n: int, top: int, cells: int, ink: Ink) -> tuple[str, str]:
    if not n:
        return " " * cells, "text"
    glyph, role = ink.cell(level(n, top, ink.levels))
    return glyph * cells, role


def _label(found: OffsetMap, row: int) -> Span:
    step = max(found.rows // 5, 1)
    edge = found.fold_us * row // found.rows
    text = f"{edge / 1000:.3g}ms" if row % step == 0 else ""
    return Span(f"{text:>{LABEL - 1}}│", "dim")


def _axis(found: OffsetMap, cell_width: int, wall_less_mono: float) -> Line:
    columns = range(1, found.columns + 1)
    ends = [(n * cell_width, wall_less_mono + (found.begin_us + n * found.column_us) / 1e6) for n in columns]
    size = found.columns * cell_width
    label = newest_label(ends[-1][1] if ends else None, size)
    cells = time_axis(ends, found.column_us, cell_width, label, size=size)
    return (Span(" " * (LABEL - 1) + "└", "dim"), *runs(cells))
