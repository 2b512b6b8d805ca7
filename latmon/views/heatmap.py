"""Heat maps: latency, depth or delay over time, with their axes and scales. Pure; roles, no colours.

All three are drawn from a Timeline. `delay_frames` and `depth_frames` turn delays and depths into the frames that a
Timeline cuts into columns: delays with the vector as the device, depths with samples as the I/Os and numbers of I/Os as
the latency. `bands` groups numbers of I/Os into the rows of a depth map.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from latmon.aggregate.history import DepthEntry
from latmon.model.frame import Frame, Series
from latmon.model.histogram import BITS, EMPTY, Histogram, bucket_bounds, bucket_index
from latmon.recording.archive import letter
from latmon.support.units import attached, clock, duration, part, with_unit
from latmon.views.axes import Begin, LatencyScale, TimeColumn, Timeline, rows_of, thresholds
from latmon.views.lines import BLANK, Line, Span, cell_len, fit, heading, paragraph, runs, wrap
from latmon.views.lines import width as line_width
from latmon.views.units import count, maximum, quantile, rounded, span

LABEL = 6
"""Cells of the latency labels, the axis included."""
TOTALS = 6
"""Cells of a number per row, at the right."""
SIDE, WIDE_SIDE = 14, 28
"""Cells of the side histogram with its marks, on a screen of less than 100 columns and on a wider one."""
_WIDE_SCREEN = 100
_MARK, _WIDE_MARK = 11, 17
"""Cells of a mark: `p99.9 530ms`, ` ◂ p50-max 3.97ms`."""
_CLOCK = 8
_ROUND_S = (5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
_COARSE = 24
"""Three octaves."""
_LABELLED = 3
"""Labels of an axis at least, where the rows have edges for them."""
_OCTAVE = 1 << BITS


WAIT = "wait"
"""Role of I/Os in flight."""
TAIL = "tail"
"""Role of I/Os above the threshold: the alarm colour, outside the ramp. Nothing has it without a threshold."""

TAIL_SIGN = "■"
"""Glyph of I/Os above the threshold in a legend, and on maps with few colours."""
_NOMINAL_BELOW = 1 << 20
"""Latencies that have a name in powers of 2, in us."""
BAND_LABEL = 7
"""Cells that every name of a band fits in."""
OPS = ("delay",)
_SECOND_US = 1_000_000
_MAX_PIECES = 64
_TALL = 4
"""Most lines of a row of a depth map."""


@dataclass(frozen=True, slots=True)
class Ink:
    """The glyphs of cells: one per level, and whether each level has a colour of its own.

    `halves`: a cell shows two rows, which needs a colour for the background.
    """

    glyphs: str = "█████████"
    coloured: bool = True
    halves: bool = True
    line: str = "┄"
    gap: str = "╎"
    waiting: str = "▫"
    older: str = "^"
    """I/Os in flight for longer than the range of the map, in its highest row."""
    now: str = "│"

    @property
    def levels(self) -> int:
        return len(self.glyphs)

    @property
    def corners(self) -> str:
        """Return the corners of a frame, clockwise; terminals with few colours may have no round ones."""
        return "╭╮╯╰" if self.halves else "┌┐┘└"

    def cell(self, step: int) -> tuple[str, str]:
        """Return (glyph, role) of a level >= 1."""
        return self.glyphs[step - 1], f"heat{step}" if self.coloured else "text"

    def tail(self) -> tuple[str, str]:
        """Return (glyph, role) of I/Os above the threshold; with few colours the glyph is none of the levels'."""
        return "█" if self.halves else TAIL_SIGN, TAIL if self.coloured else "strong"


RAMP = Ink(glyphs="·:░▒▓█", coloured=False, halves=False)
"""Without colours: denser glyphs are more I/Os."""


def solid(levels: int) -> Ink:
    """Return the ink for a ramp of so many colours; without any, levels are glyphs."""
    return Ink(glyphs="█" * levels) if levels else RAMP


@dataclass(frozen=True)
class MapStyle:
    """Everything that a map is drawn with besides its data."""

    scale: LatencyScale
    top: int
    cell_width: int = 1
    ink: Ink = Ink()
    threshold_us: int | None = None
    now: str = "now"
    """Label of the marker of a sweep."""
    tail: int | None = None
    """First bucket above the threshold; None: no bucket is drawn as such."""

    @cached_property
    def cells(self) -> LatencyScale:
        """Return the scale of the cells: two rows for each line, where the ink has half cells."""
        return self.scale.halves if self.ink.halves else self.scale

    @cached_property
    def limit_row(self) -> int:
        """Return the row of the threshold; -1 without one in the range, and where rows are too coarse for a line."""
        if self.threshold_us is None or self.scale.step > _COARSE or not self.scale.reaches(self.threshold_us):
            return -1
        return self.scale.row_of(self.threshold_us)

    def waiting_role(self, bucket: int) -> str:
        """Return the role of an I/O in flight of this age: the alarm colour is only for those above a threshold."""
        is_above = self.threshold_us is not None and bucket >= bucket_index(self.threshold_us)
        return TAIL if is_above and self.ink.coloured else WAIT

    def is_older(self, bucket: int) -> bool:
        """Return whether the age of an I/O in flight is above the range."""
        return bucket > self.scale.last(self.scale.rows - 1)

    def steps(self, rows: Sequence[int]) -> list[int]:
        """Return the step of each row with so many I/Os, 0 without any; steps of the tail follow those of the ramp."""
        least, levels, first = thresholds(self.top, self.ink.levels), self.ink.levels, self._tail_row
        steps = [n and bisect_right(least, n) for n in rows]
        return [step + levels if row >= first and step else step for row, step in enumerate(steps)]

    def steps_of(self, column: TimeColumn, device: str) -> list[int]:
        """Return the steps of a column. A row with the threshold in it is of the tail where an I/O is above that."""
        steps = self.steps(column.rows(device, self.cells))
        split = self._split_row
        if self.tail is not None and split >= 0 and steps and steps[split]:
            scale, tail = self.cells, self.tail
            if any(bucket >= tail and scale.row(bucket) == split for bucket in column.counts(device)):
                steps[split] += self.ink.levels
        return steps

    def drawn(self, upper: int, lower: int) -> tuple[str, str]:
        """Return (glyphs, role) of a cell from the steps of its halves; they are equal where it has none."""
        drawn_cell = self._drawn.get((upper, lower))
        if drawn_cell is None:
            glyph, role = self._pair(upper, lower)
            drawn_cell = self._drawn[upper, lower] = (glyph * self.cell_width, role)
        return drawn_cell

    def _pair(self, upper: int, lower: int) -> tuple[str, str]:
        if upper == lower:  # needs no colour for the background
            return self._ink(upper)
        if not upper or not lower:
            return ("▀", self._ink(upper)[1]) if upper else ("▄", self._ink(lower)[1])
        above, below = self._ink(upper)[1], self._ink(lower)[1]
        return ("█", above) if above == below else ("▀", f"{above}/{below}")

    def _ink(self, step: int) -> tuple[str, str]:
        levels = self.ink.levels
        return self.ink.cell(step) if step <= levels else self.ink.tail()

    @cached_property
    def _tail_row(self) -> int:
        """Return the first row of the cells that is above the threshold as a whole."""
        scale, first = self.cells, self.tail
        above = () if first is None else (row for row in range(scale.rows) if scale.first(row) >= first)
        return next(iter(above), scale.rows)

    @cached_property
    def _split_row(self) -> int:
        """Return the row of the cells whose upper part alone is above the threshold; -1 without one."""
        row = self._tail_row - 1
        return row if self.tail is not None and row >= 0 and self.cells.last(row) >= self.tail else -1

    @cached_property
    def _drawn(self) -> dict[tuple[int, int], tuple[str, str]]:
        return {}


def body(timeline: Timeline, device: str, style: MapStyle) -> list[Line]:
    """Return the cells alone, highest latency first; the part without data yet is labelled."""
    columns = [_column(c, device, style) for c in timeline.by_slot()]
    if timeline.sweep and timeline.columns and timeline.slots > 1:
        marker = (f"{style.ink.now:<{style.cell_width}}", "dim")
        columns[timeline.slot(timeline.newest() + 1)] = [marker] * style.scale.rows
    empty = 0 if timeline.sweep else timeline.empty
    written = empty_words(timeline.begin, empty * style.cell_width, style.scale.rows)
    lines = []
    for row in reversed(range(style.scale.rows)):
        first = empty if row in written else 0
        cells = runs([column[row] for column in columns[first:]])
        words = (Span(f"{written[row]:^{first * style.cell_width}}", "dim"),) if first else ()
        lines.append((*words, *cells))
    return lines


def empty_words(begin: Begin, cells: int, rows: int) -> dict[int, str]:
    """Return words for the `cells` x `rows` of a map before its data, by their row from below; none where none fit."""
    if math.isnan(begin.wall):
        return {}
    brief = f"no data before {clock(begin.wall)}"
    variants = ([f"{brief} (started)"] if begin.is_start else []) + [brief, "no data"]
    texts = (text for text in variants if max(map(cell_len, text.split())) <= cells - 2)
    lines = next((lines for text in texts if len(lines := wrap(text, cells - 2)) <= rows), [])
    top = rows - 1 - (rows - len(lines)) // 2
    return {top - at: text for at, text in enumerate(lines)}


class SideMark(NamedTuple):
    """A value beside the side histogram: `p99 330ms`, or the I/Os above the threshold."""

    us: int
    text: str
    role: str = "text"
    is_limit: bool = False
    """Whether it has the I/Os above the threshold."""

    @property
    def name(self) -> str:
        return self.text.partition(" ")[0]

    @property
    def value(self) -> str:
        return self.text.partition(" ")[2]


def quantile_marks(histogram: Histogram) -> list[SideMark]:
    """Return the marks of the known quantiles, the highest first."""
    return [
        SideMark(_below(us, histogram), f"{name} {attached(quantile(histogram, q))}")
        for name, q in (("p99.9", 0.999), ("p99", 0.99), ("p50", 0.5))
        if (us := histogram.quantile(q)) is not None
    ]


def _below(us: int, histogram: Histogram) -> int:
    """Return a latency in the bucket whose upper bound a quantile is; the maximum itself is in its bucket."""
    return us if us == histogram.max else us - 1


def max_mark(histogram: Histogram) -> list[SideMark]:
    """Return the mark of the maximum; none of no values."""
    us = histogram.max_bound
    return [] if us is None else [SideMark(us, f"max {attached(maximum(histogram))}", "strong")]


def labelled(
    timeline: Timeline,
    device: str,
    style: MapStyle,
    width: int,
    marks: Iterable[SideMark] = (),
    *,
    counts: Mapping[int, int] | None = None,
) -> list[Line]:
    """Return the cells, the latency axis at the left, and a logarithmic histogram with `marks` at the right.

    `counts`: the I/Os per bucket of the histogram; None: those of all columns.
    """
    scale = style.scale
    sums = rows_of(timeline.counts(device) if counts is None else counts, style.cells)
    is_wide, line, most = width >= _WIDE_SCREEN, Span("│", "frame"), max(sums)
    room = width - LABEL - timeline.slots * style.cell_width - 1
    bar = room - (_WIDE_MARK if is_wide else _MARK)
    texts = _marked(marks, scale, room - bar, _WIDE_TIES if is_wide else _Ties())
    lines = []
    for row, cells in zip(reversed(range(scale.rows)), body(timeline, device, style), strict=True):
        words = texts.get(row, ())
        gap = () if is_wide or not words else (Span(" " * (room - bar - line_width(words))),)  # apart from a bar
        lines.append((label(style, row), *cells, line, *_side(sums, row, bar, style, most), *gap, *words))
    return lines


class _Ties(NamedTuple):
    """The begins of marks: in its own row; of the last one below it, of the first one above it; of those in between."""

    own: str = ""
    below: str = "└"
    above: str = "┌"
    between: str = "├"


_WIDE_TIES = _Ties(" ◂ ", " └ ", " ┌ ", " ├ ")


def _marked(marks: Iterable[SideMark], scale: LatencyScale, cells: int, ties: _Ties) -> dict[int, Line]:
    """Return the marks by row, each of at most `cells`.

    Marks of one row are joined where that fits. Else the lower ones move down, at the bottom of the map the upper ones
    move up, and lines connect them with their row.
    """
    own: dict[int, list[SideMark]] = {}
    for mark in sorted(marks, key=lambda side_mark: -side_mark.us):
        own.setdefault(scale.row_of(mark.us), []).append(mark)
    marked_lines: dict[int, Line] = {}
    for row, next_row in pairwise((*own, -1)):
        room_above, room_below = min(marked_lines, default=scale.rows) - row, row - next_row
        for texts in _worded(own[row]):
            upwards = len(texts) > room_below
            placed = _placed(texts, row, ties, upwards=upwards)
            fits = all(cell_len(span.text) <= cells for _, span in placed)
            if fits and len(texts) <= (room_above if upwards else room_below):
                marked_lines |= {at: (span,) for at, span in placed}
                break
    return marked_lines


def _worded(marks: Sequence[SideMark]) -> Iterator[Sequence[SideMark]]:
    """Yield texts for the marks of one row, the most detailed first; the threshold's is the first one of each."""
    limits, remaining_side_marks = ([mark for mark in marks if mark.is_limit == is_limit] for is_limit in (True, False))
    if remaining_side_marks:
        if len({side_mark.value for side_mark in remaining_side_marks}) == 1:
            yield (
                *limits,
                remaining_side_marks[0]._replace(
                    text=f"{_names(remaining_side_marks)} {remaining_side_marks[0].value}"
                ),
            )
        yield *limits, *remaining_side_marks
        if len(remaining_side_marks) > 1:
            yield (
                *limits,
                remaining_side_marks[0],
                remaining_side_marks[1]._replace(text=_names(remaining_side_marks[1:])),
            )
        yield *limits, remaining_side_marks[0]._replace(text=_names(remaining_side_marks))
    if limits:
        yield limits


def _names(marks: Sequence[SideMark]) -> str:
    """Return the names of marks, of which the first is the highest: `p50 p99`, `p50-max`."""
    low, high = marks[-1].name, marks[0].name
    return low if low == high else f"{low}{' ' if len(marks) == 2 else '-'}{high}"  # noqa: PLR2004  none in between


def _placed(texts: Sequence[SideMark], row: int, ties: _Ties, *, upwards: bool) -> list[tuple[int, Span]]:
    """Return texts in the rows from `row` down, or up to it with a threshold's in the row itself."""
    between = (ties.between,) * (len(texts) - 2)
    if not upwards:
        begins, highest = (ties.own, *between, ties.below)[: len(texts)], row
    else:
        begins, highest = (ties.above, *between, ties.own)[-len(texts) :], row + len(texts) - 1
        texts = sorted(texts, key=lambda mark: mark.is_limit)
    return [
        (highest - at, Span(begin + text.text, text.role))
        for at, (begin, text) in enumerate(zip(begins, texts, strict=True))
    ]


def fitting(text: str, cells: int) -> str:
    """Return the text where it fits, else nothing: half a number is worse than none."""
    return text if cell_len(text) <= cells else ""


def _side(sums: list[int], row: int, cells: int, style: MapStyle, most: int) -> Line:
    """Return the bar of a line of the side histogram, of exactly `cells`; `most`: the I/Os of the longest bar."""
    if style.cells is style.scale:
        size = _length(sums[row], most, cells)
        return (Span("█" * size + " " * (cells - size), "area"),)
    upper, lower = _length(sums[2 * row + 1], most, cells), _length(sums[2 * row], most, cells)
    short, size = sorted((upper, lower))
    end = "▀" if upper > lower else "▄"
    return (Span("█" * short + end * (size - short) + " " * (cells - size), "area"),)


def _length(n: int, most: int, cells: int) -> int:
    return max(1, round(cells * math.log(n + 1) / math.log(most + 1))) if n else 0


def label(style: MapStyle, row: int) -> Span:
    """Return the axis with the nominal lower edge of a row, or with the threshold in its row."""
    threshold = "" if style.threshold_us is None else with_unit(style.threshold_us, 2)
    if row == style.limit_row:
        return Span(f"{threshold:>{LABEL - 1}}┤", "limit")
    edge = edge_labels(style.scale).get(row, "")
    edge = "" if edge == threshold and style.limit_row >= 0 else edge
    return Span(f"{edge:>{LABEL - 1}}{'┤' if edge else '│'}", "dim")


@lru_cache(64)
def edge_labels(scale: LatencyScale) -> Mapping[int, str]:
    """Return the labels of the rows' lower edges: powers of two, where they are too few also parts of an octave."""
    labels = {row: nominal(scale.edge_us(row)) for row in range(scale.rows) if scale.is_labelled(row)}
    parts = 2
    while len(labels) < _LABELLED and parts <= _OCTAVE:
        for row in range(scale.rows):
            edge = scale.edge(row)
            is_part = edge > 0 and scale.is_edge(row) and edge % (_OCTAVE // parts) == 0
            name = nominal(scale.edge_us(row)) if is_part else ""
            if name and len(name) < LABEL:
                labels[row] = name
        parts *= 2
    return MappingProxyType(labels)


def nominal(us: int) -> str:
    """Return a latency by its name in powers of 2, 64us, 4ms for 4,096 us; from 2^20 us on in two digits: 67s, 18min.

    A second of 2^20 us is 5 % longer than one, a minute of 2^26 us 12 %: that is too far from what marks beside it say.
    """
    if us >= _NOMINAL_BELOW:
        return with_unit(us, 2)
    return f"{us / 1024:g}ms" if us >= 1024 else f"{us}us"  # noqa: PLR2004  2^10 us


def axis(timeline: Timeline, style: MapStyle, device: str = "") -> Line:
    """Return the time axis below a map with labels; `device`: as for `times`."""
    return (Span(" " * (LABEL - 1) + "└", "dim"), *times(timeline, style, device))


def times(timeline: Timeline, style: MapStyle, device: str = "") -> Line:
    """Return round wall-clock stamps that end under their column, and the time of the newest column at the right edge.

    A sweep has a ▲ under the column that is written next instead. Letters are events (recording/archive.py); `device`:
    with those of its failed I/Os.
    """
    wide = style.cell_width
    letters: dict[int, str] = {}
    failed: set[int] = set()
    """Cells below columns in which I/Os failed, apart from the first one of each run, which has a letter."""
    for before, column in pairwise([None, *timeline.columns]):
        if column is None:
            continue
        at = timeline.slot(column.number) * wide
        goes_on = before is not None and bool(before.failed(device) and column.failed(device))
        # In a run the kernel's lines are about the same failures: their letters would leave no room for times.
        events = column.moments if goes_on else column.events(device)
        if sign := letter([event for event in events if not goes_on or event.kind != "log"]):
            letters[at] = sign
        if goes_on:
            failed.update(range(at, at + wide))
    ends = [((timeline.slot(c.number) + 1) * wide, c.wall) for c in timeline.columns if not c.gap]
    size = timeline.slots * wide
    label = _marker(timeline, style, size) if timeline.sweep else newest_label(timeline.last_wall, size, letters)
    taken = {*letters, *range(label.begin, label.begin + len(label.cells))}
    labels = (_window_label(timeline, wide, taken), label)
    return runs(time_axis(ends, timeline.column_us, wide, labels, size=size, letters=letters, failed=failed))


class AxisLabel(NamedTuple):
    """A label on an axis: its cells from `begin` on."""

    begin: int = 0
    cells: tuple[tuple[str, str], ...] = ()


def newest_label(wall: float | None, size: int, letters: Collection[int] = ()) -> AxisLabel:
    """Return the time at the right edge of an axis; nothing where letters need its cells, or there is no time yet."""
    begin = size - _CLOCK - 1
    if wall is None or begin < 0 or any(x >= begin for x in letters):
        return AxisLabel()
    return AxisLabel(begin, (("─", "dim"), *((char, "text") for char in clock(wall))))


def _window_label(timeline: Timeline, wide: int, taken: Collection[int]) -> AxisLabel:
    """Return the mark, with its meaning, below the first column of the window that the table is of.

    Nothing where the whole map is of it, in a sweep, and where `taken` cells of the axis leave no room. `wide`: cells
    of a column.
    """
    columns = timeline.columns
    if timeline.sweep or not columns or timeline.first <= columns[0].number:
        return AxisLabel()
    begin = timeline.slot(timeline.first) * wide
    for words in (f"├last {span(timeline.window_us)}", f"├{span(timeline.window_us)}"):
        if begin > 0 and set(taken).isdisjoint(range(begin, begin + len(words))):
            return AxisLabel(begin, tuple((char, "accent" if char == "├" else "dim") for char in words))
    return AxisLabel()


def _marker(timeline: Timeline, style: MapStyle, size: int) -> AxisLabel:
    """Return the label of a sweep's marker, which is under the column that is written next."""
    x, mark = timeline.slot(timeline.newest() + 1) * style.cell_width, f"▲{style.now}"
    if not timeline.columns or size <= len(mark):
        return AxisLabel()
    is_left = x + len(mark) > size
    word = mark[1:] + mark[0] if is_left else mark
    cells = tuple((char, "accent" if char == mark[0] else "dim") for char in word)
    return AxisLabel(x + 1 - len(mark) if is_left else x, cells)


def time_axis(
    ends: Iterable[tuple[int, float]],
    column_us: int,
    cell_width: int,
    labels: Sequence[AxisLabel],
    *,
    size: int,
    letters: Mapping[int, str] = MappingProxyType({}),
    failed: Collection[int] = (),
) -> list[tuple[str, str]]:
    """Return `size` cells of an axis with round wall-clock stamps, where neither a label nor a letter is.

    `ends`: for each column the cell after its last one and its end in s; `letters`: by their cell; `failed`: cells that
    are drawn as those of failed I/Os, where no stamp is.
    """
    cells = [("━", "bad") if x in failed else ("─", "dim") for x in range(size)]
    tick_s = _tick_s(column_us, cell_width)
    taken = set(letters)
    for placed in labels:
        taken.update(range(placed.begin, placed.begin + len(placed.cells)))
    for end, wall in ends:
        start, tick = end - _CLOCK, wall // tick_s * tick_s
        if start >= 0 and wall - column_us / 1e6 < tick and taken.isdisjoint(range(start, end)):
            cells[start:end] = [(char, "dim") for char in clock(tick)]
    for placed in labels:
        cells[placed.begin : placed.begin + len(placed.cells)] = placed.cells
    for x, sign in letters.items():
        cells[x] = (sign, "bad")
    return cells


def legends(style: MapStyle, *, ages: Collection[int], shared: bool = False) -> tuple[Line, ...]:
    """Return legends, the longest first: I/Os in flight, the colour of the tail, steps and the count of the last one.

    `ages`: buckets of the map's I/Os in flight; `shared`: of several maps, above which no number of I/Os stands.
    """
    ink, top_us = style.ink, style.scale.edge_us(style.scale.rows - 1)
    older, shown = (any(style.is_older(age) == beyond for age in ages) for beyond in (True, False))
    flight: Line = (Span(ink.waiting, WAIT), Span(" in flight  ", "dim")) if shown else ()
    above = nominal(top_us) if top_us else "0"
    flight += (Span(ink.older, WAIT), Span(f" in flight, above {above}  ", "dim")) if older else ()
    tail: Line = ()
    if style.threshold_us is None and shared:
        tail = (Span("no threshold  ", "dim"),)
    elif style.threshold_us is not None and shared:
        above_it = f" above {with_unit(style.threshold_us)}  "
        tail = (Span(TAIL_SIGN, ink.tail()[1]), Span(above_it, "dim"))  # a block would look like a cell of the map
    steps = (*(Span(*ink.cell(i + 1)) for i in range(ink.levels)), Span(f" {rounded(style.top)}+ ", "dim"))
    legend_head = Span("I/Os 1 ", "dim")
    variants = ((*flight, *tail, legend_head, *steps), (*flight, *tail, *steps), (*flight, *tail), tail or flight)
    return (*variants, BLANK) if tail or ages else (*variants[:2], BLANK)


def _tick_s(column_us: int, cell_width: int) -> int:
    """Return the seconds between stamps: round, and wider than a stamp."""
    wanted = (_CLOCK + 4) / cell_width * column_us / 1e6
    return next((s for s in _ROUND_S if s >= wanted), _ROUND_S[-1])


def _column(column: TimeColumn | None, device: str, style: MapStyle) -> list[tuple[str, str]]:
    """Return (glyphs, role) of each row, from below; made once per style."""
    if column is None:
        return _cells(None, device, style)
    drawn_column = column.drawn.get(device)
    if drawn_column is None or drawn_column[0] != style:
        drawn_column = column.drawn[device] = (style, _cells(column, device, style))
    return drawn_column[1]


def _cells(column: TimeColumn | None, device: str, style: MapStyle) -> list[tuple[str, str]]:
    """Return the cells of a column; an I/O in flight covers no completed one."""
    ink, wide = style.ink, style.cell_width
    gap, blank = (ink.gap * wide, "gap"), (" " * wide, "text")
    if column is not None and column.gap == "missing":
        return [gap] * style.scale.rows
    drawn = [gap if column is not None and column.gap else blank] * style.scale.rows
    if style.limit_row >= 0:
        drawn[style.limit_row] = (ink.line * wide, "limit")
    if column is None:
        return drawn
    for bucket in sorted(column.waiting(device)):  # the oldest one is on top
        glyph = ink.older if style.is_older(bucket) else ink.waiting
        drawn[style.scale.row(bucket)] = (glyph * wide, style.waiting_role(bucket))
    steps = style.steps_of(column, device)
    lower, upper = (steps, steps) if style.cells is style.scale else (steps[::2], steps[1::2])
    for row, (below, above) in enumerate(zip(lower, upper, strict=True)):
        if below or above:
            drawn[row] = style.drawn(above, below)
    return drawn


_FINEST, _OCTAVES = 8, 14


class DepthBand(NamedTuple):
    """A range of numbers of I/Os, `low` to `high`, both included."""

    low: int
    high: int


def bands(highest: int, rows: int, ends: Iterable[int] = ()) -> list[DepthBand]:
    """Return at most `rows` bands from 0 up; `ends`: numbers that end their band, as long as there is room."""
    own = [end for end in ends if 0 <= end < highest]
    octaves = _ends(highest, 1)
    cut_variants = [_ends(highest, parts) for parts in (_FINEST, 4, 2)]
    cut_variants += [[0, *octaves[1::apart]] for apart in range(1, len(octaves) + 1)]
    for wanted in (own, []):
        for cut in (*cut_variants, [0], []):
            bands = _cut(highest, sorted({*cut, *wanted, highest}))
            if len(bands) <= rows:
                return bands
    return [DepthBand(0, highest)]


def exact(highest: int, rows: int, ends: Iterable[int] = ()) -> list[DepthBand]:
    """Return a band for each number where they fit, else as `bands`."""
    return [DepthBand(n, n) for n in range(highest + 1)] if highest < rows else bands(highest, rows, ends)


def of(counts: Mapping[int, int], cut: Sequence[DepthBand]) -> list[int]:
    """Return the sum of the counts in each band; no number is above the last band."""
    counts_per_band = [0] * len(cut)
    at = 0
    for number in sorted(counts):
        while at < len(cut) - 1 and number > cut[at].high:
            at += 1
        counts_per_band[at] += counts[number]
    return counts_per_band


def band_label(band: DepthBand) -> str:
    """Return the label of a band in seven cells: 3, 5-6, 257+."""
    if band.low == band.high:
        return str(band.low)
    text = f"{band.low}-{band.high}"
    return text if len(text) <= BAND_LABEL else f"{rounded(band.low)}+"


def _ends(highest: int, parts: int) -> list[int]:
    """Return the last numbers of bands: one number each up to `parts`, then `parts` bands per octave."""
    band_ends = list(range(min(parts, highest) + 1))
    for octave in range(_OCTAVES):
        low = parts << octave
        band_ends += [low + low * part // parts for part in range(1, parts + 1)]
    return [end for end in band_ends if end < highest]


def _cut(highest: int, ends: Sequence[int]) -> list[DepthBand]:
    return [DepthBand(before + 1, end) for before, end in zip([-1, *ends], ends, strict=False) if end <= highest]


def delay_frames(delays: Iterable[tuple[int, Mapping[str, Histogram]]], last: Frame) -> Iterator[Frame]:
    """Yield delays as frames. `delays`: (a frame's end, vector -> delays), oldest first; `last`: relates the clocks."""
    before: int | None = None
    for number, (mono_us, by_vector) in enumerate(delays):
        dt_us = last.dt_us if before is None else min(mono_us - before, max(2 * last.dt_us, 1))
        before = mono_us
        histograms = {Series(vector, OPS[0], "total"): h for vector, h in by_vector.items() if h}
        yield Frame(number, last.wall + (mono_us - last.mono_us) / 1e6, mono_us, dt_us, histograms)


def tick_us(hz: int | None) -> int | None:
    """Return the kernel's tick in us; None where CONFIG_HZ isn't known."""
    return _SECOND_US // hz if hz else None


def delay_map(
    timeline: Timeline,
    vector: str,
    style: MapStyle,
    width: int,
    *,
    hz: int | None,
    over_us: int,
    delay: Histogram = EMPTY,
) -> list[Line]:
    """Return a headline, the rows of `style.scale` and the time axis.

    `over_us`: the length of the window; `delay`: that of the vector, whose quantiles are marked.
    """
    waits = sum(timeline.counts(vector).values())
    tick = tick_us(hz)
    over = span(over_us)
    text = f"{count(waits)} waits in {over}" if waits else f"no delayed run in the last {over}"
    drawn = replace(style, threshold_us=tick)
    sign = f"{style.ink.line} " if drawn.limit_row >= 0 else ""
    line = f", {sign}tick {duration(tick)} (CONFIG_HZ={hz})" if tick else ", CONFIG_HZ not known: no tick line"
    head = heading((Span(f" {vector}", "strong"), Span(f" delay  {text}"), Span(line, "dim")), width)
    if not waits:
        return [head, *paragraph(text, width, margin=2)]
    marks = [*max_mark(delay), *quantile_marks(delay)]
    return [head, *labelled(timeline, vector, drawn, width, marks), fit(axis(timeline, drawn), width)]


def map_cells(width: int) -> int:
    """Return the cells for the columns of a latency map, with its labels and its side histogram."""
    return max(width - LABEL - (WIDE_SIDE if width >= _WIDE_SCREEN else SIDE), 2)


def room(width: int) -> int:
    """Return the cells for the columns of a map with labels and totals."""
    return max(width - LABEL - TOTALS, 2)


@dataclass(frozen=True)
class DepthScale(LatencyScale):
    """A scale whose rows are bands of numbers of I/Os, equal to those of the depth bars of the same height."""

    cut: tuple[DepthBand, ...] = ()

    def row(self, index: int) -> int:
        """Return the row of a bucket."""
        return self.row_of(bucket_bounds(index)[0])

    def reaches(self, us: int) -> bool:
        return us <= self.cut[-1].high

    def row_of(self, us: int) -> int:
        """Return the row of a number; a number outside is in the outermost row."""
        return max(bisect_right(self._lows, us) - 1, 0)

    @cached_property
    def _lows(self) -> list[int]:
        return [band.low for band in self.cut]


def ops(device: str) -> tuple[str, ...]:
    """Return the ops of a depth timeline: the device is part of them, since each device has its own timeline."""
    return (f"depth of {device}",)


def depth_frames(entries: Iterable[DepthEntry], device: str, last: Frame, interval_us: int) -> Iterator[Frame]:
    """Yield depths as frames of one interval each; the samples of an entry are spread evenly over its time.

    `entries`: oldest first; `last`: a frame that relates the clocks.
    """
    for log_entry in entries:
        length_us = log_entry.mono_us - log_entry.begin_us
        pieces = min(max(round(length_us / max(interval_us, 1)), 1), _MAX_PIECES)
        counts, end_us = _counts(log_entry, device), log_entry.begin_us
        for i in range(pieces):
            share = {index: n * (i + 1) // pieces - n * i // pieces for index, n in counts.items()}
            before_us, end_us = end_us, log_entry.begin_us + length_us * (i + 1) // pieces
            wall = last.wall + (end_us - last.mono_us) / 1e6
            histogram = Histogram.of({index: n for index, n in share.items() if n})
            series = {Series(device, ops(device)[0], "total"): histogram} if histogram else {}
            yield Frame(0, wall, end_us, end_us - before_us, series)


def depth_map(
    timeline: Timeline, device: str, size: tuple[int, int], ink: Ink, *, limit: int | None, busy: bool = False
) -> list[Line]:
    """Return title, rows with their share of the time, and the time axis; no I/O is dark, whatever its share.

    `limit`: a band ends there, as one of the bars does, which have its line; `busy`: without the time at 0.
    """
    width, height = size
    sums = timeline.counts(device)
    if height < 4 or not sums:  # noqa: PLR2004  a title, two rows and an axis
        return []
    highest = max(*sums, 1)
    scale = depth_scale(bucket_bounds(highest)[1] - 1, height - 2, limit, busy=busy)
    shown = timeline if not busy else _without_idle(timeline, device)
    sums = shown.counts(device)
    fullest = max((n for c in shown.columns for index, n in c.counts(device).items() if index), default=1)
    style = MapStyle(scale, max(fullest, 64), max(1, room(width) // timeline.slots), ink)
    total = sum(sums.values())
    rows = [
        (
            Span(f"{rounded(scale.cut[row].low):>{LABEL - 1}}│", "dim"),
            *(cells if scale.cut[row].high else map(_dark, cells)),
            Span(f"{part(n / total) if n and total else '':>{TOTALS}}", "dim"),
        )
        for row, cells, n in zip(
            reversed(range(scale.rows)), body(shown, device, style), reversed(rows_of(sums, scale)), strict=True
        )
    ]
    tall = min((height - 2) // len(rows), _TALL)  # few numbers fill the height too; a label is at the lower edge
    edge = Span(" " * (LABEL - 1) + "│", "dim")
    rows = [line for row in rows for line in (*[(edge, *map(_wordless, row[1:-1]))] * (tall - 1), row)]
    title = heading((Span(" in the driver over time", "strong"),), width)
    return [fit(line, width) for line in (title, *rows, axis(timeline, style))]


def _dark(span: Span) -> Span:
    """Return blanks in place of a count; words and signs of missing data stay."""
    is_count = span.role == "text" or span.role.startswith("heat")
    return Span(" " * cell_len(span.text)) if is_count else span


def _wordless(span: Span) -> Span:
    """Return cells for another line of a row: words on missing data stand in one line."""
    return span._replace(text=" " * cell_len(span.text)) if any(map(str.isalnum, span.text)) else span


def depth_scale(highest: int, rows: int, limit: int | None, *, busy: bool = False) -> DepthScale:
    """Return the finest scale of at most `rows` rows up to `highest`; `busy`: from 1 up."""
    ends = () if limit is None else (limit, limit - 1)
    bands = tuple(band for band in exact(highest, rows + busy, ends) if band.high or not busy)
    return DepthScale(0, 1, len(bands), cut=bands)


def _counts(entry: DepthEntry, device: str) -> dict[int, int]:
    counts: dict[int, int] = {}
    if device in entry.reported:
        for depth, moments in zip(*entry.reported[device].in_driver, strict=True):
            index = bucket_index(depth)
            counts[index] = counts.get(index, 0) + moments
    return counts


def _without_idle(timeline: Timeline, device: str) -> Timeline:
    """Return a copy with this device only, and without the samples with no I/O in the driver."""
    without_idle = Timeline(timeline.column_us, timeline.slots, ops(device), sweep=timeline.sweep)
    without_idle.begin = timeline.begin
    for column in timeline.columns:
        busy = {index: n for index, n in column.counts(device).items() if index}
        without_idle.columns.append(replace(column, frames=[], sums={device: busy}, drawn={}, _rows={}))
    return without_idle
