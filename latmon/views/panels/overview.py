"""The overview panel: device table, heat map of one device, sub-second offsets, small multiples. Pure.

The map of sub-second offsets (as FlameScope's, but of I/Os) shows what the kernel does on timer ticks as bands. Folded
to the tick, 4 ms at HZ 250, a tick is one band. Its events have a stamp finer than a window: completions of outliers,
issues of requests. Windows shorter than a second add their counts, at their end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from latmon.aggregate.history import KEEP_US
from latmon.analysis.threshold import is_above, slower
from latmon.findings.engine import HIGH
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import OPS, Device, Frame, Outlier, shown_reports
from latmon.model.host_context import BYTES, CONTEXT, PER_S, SHARE, ContextValue
from latmon.model.inflight import Issue
from latmon.support.units import UNKNOWN, part, rate, significant, spelled, whole, with_unit
from latmon.views import status
from latmon.views.axes import Begin, TimeColumn, Timeline, begins, by_bucket, level
from latmon.views.bars import bar_lines, role, share_bar, short
from latmon.views.context import ViewState, means_only, no_distribution, no_map, no_rows, selected
from latmon.views.device_table import (
    RAMP_SPARKS,
    SPARKS,
    TREND_MIN,
    Subject,
    are_hosts,
    fitting,
    group_columns,
    header,
    host_columns,
    is_titled,
    largest,
    name_cells,
    of_counted,
    op_row,
    sparkline,
    table_title,
)
from latmon.views.device_table import row as table_row
from latmon.views.heatmap import (
    LABEL,
    TAIL,
    Ink,
    MapStyle,
    SideMark,
    axis,
    body,
    empty_words,
    label,
    labelled,
    legends,
    map_cells,
    max_mark,
    newest_label,
    quantile_marks,
    time_axis,
    times,
)
from latmon.views.heatmap_state import HeatmapState, shape
from latmon.views.lines import (
    BLANK,
    DEVICE,
    FRAME,
    ODD,
    TILE,
    Line,
    Span,
    Target,
    around,
    cell,
    cut,
    empty_panel,
    fit,
    heading,
    heads,
    highlighted,
    paragraph,
    plain,
    runs,
    targeted,
    wrap,
)
from latmon.views.lines import row as field_row
from latmon.views.lines import width as line_width
from latmon.views.past_view import strip
from latmon.views.selection import APART, HOST, SORT_WORDS, SORTS, across, framed, headline, picked
from latmon.views.slow_part import SlowPart, slow_part
from latmon.views.units import at_least, count, quantile

SECOND_US = 1_000_000
OFFSET_LABEL = 7
_RIGHT = 6
_MOST_BAR = 36
"""Cells of the number of a row's events, at the right, and the most cells of its bar before it."""
_LABELLED = (5, 4)
"""Rows are a multiple of one of these: they are labelled in fifths or fourths of the second or of the tick."""
_TITLE, _AXIS = 1, 1
_NAME = 16
NO_DATA = Begin()
OUTLIERS, ISSUES, WINDOWS = "outliers", "issues", "windows"
"""Kinds of events on a map of offsets. They are of different I/Os, and a map shows one kind."""
_LEAST = 8
"""Least events of a pattern."""
_BANDED = 2.5
"""Least ratio of the cells in the fuller half of the rows to the others; below it chance is likely."""
_MIN_STRIP, _MIN_STRIP_LIVE = 8, 14
"""Least lines of a map with the strip of the whole time below it: in a replay, and live."""
_MEMBERS = 6
"""Most members that are named; a device may have dozens."""
FOLDS = ("", "second", "tick")
"""No offset map, and the folds of its rows. `second issues` and `tick issues` show issues where there are outliers."""
_USUAL_HZ = 250
_AROUND = 2
"""Lines besides the rows."""
_BY_OP_FROM = 32
"""Lines from which on a map twice as wide has maps of single ops below it, in a third of the lines."""
_MAP_ROWS = 10
"""Rows of a map above which a smaller one has a strip of the depth."""
_SHOWN_LOAD = (
    *("psi_cpu_some", "psi_io_some", "psi_memory_some", "psi_irq_full", "steal"),
    *("direct_reclaims", "dirty", "writeback", "tcp_retransmits", "nfs_retransmits", "arc"),
)
"""Values of CONTEXT in the order of their strips; `full` is a part of `some`."""
_LOAD_AGE_US = 60_000_000
"""Age up to which a value is the present one: a file that costs much CPU time is read that seldom."""
_LEAST_BAR = {SHARE: 0.2, PER_S: 10.0, BYTES: 64e6}
"""Unit -> the least value of the highest bar."""
MIN_WIDTH = 25
MIN_HEIGHT = 8
"""Least cells and lines of a small map, its title included: fewer rows show no shape."""
MAX_HEIGHT = 20
_AXIS_FROM = 4
"""Lines above which small maps have a time axis."""
_LEGEND_FROM = 18
"""Lines from which on small maps have a legend, whose line may take a row of each of them."""
LEAST = 15
_MIN_MAP = 11
_GROUPS_SHARE = 0.4
"""Share of the lines that the map has beside a table of groups, which are few."""


@dataclass(frozen=True, slots=True)
class OffsetEvents:
    """Events with a stamp (CLOCK_MONOTONIC, us) finer than a window, by their kind."""

    outliers: tuple[int, ...] = ()
    """Completion of each."""
    issues: tuple[int, ...] = ()
    windows: tuple[tuple[int, int], ...] = ()
    """(end, I/Os) of windows that are shorter than a second; empty where they are not."""
    window_us: int = SECOND_US

    def __bool__(self) -> bool:
        return bool(self.outliers or self.issues or self.windows)

    @property
    def populations(self) -> tuple[str, ...]:
        """Return the kinds of events that there are, the first one preferred; windows only without finer ones."""
        finer = tuple(name for name, kind_events in ((OUTLIERS, self.outliers), (ISSUES, self.issues)) if kind_events)
        return finer or ((WINDOWS,) if self.windows else ())

    def only(self, population: str) -> OffsetEvents:
        """Return the events of one kind; of the preferred one where there are none of that kind."""
        kind = population if population in self.populations else next(iter(self.populations), "")
        return OffsetEvents(
            self.outliers if kind == OUTLIERS else (),
            self.issues if kind == ISSUES else (),
            self.windows if kind == WINDOWS else (),
            self.window_us,
        )

    def counts(self) -> Counter[int]:
        """Return stamp -> I/Os of the preferred kind: completions and issues are never added up."""
        offset_events = self.only("")
        return Counter(offset_events.outliers or offset_events.issues) or Counter(dict(offset_events.windows))

    def between(self, begin_us: int, end_us: int) -> OffsetEvents:
        """Return the events of [begin, end)."""
        return OffsetEvents(
            tuple(us for us in self.outliers if begin_us <= us < end_us),
            tuple(us for us in self.issues if begin_us <= us < end_us),
            tuple((us, n) for us, n in self.windows if begin_us <= us < end_us),
            self.window_us,
        )

    @property
    def words(self) -> str:
        """Return the kinds of events in words."""
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
) -> OffsetEvents:
    """Return the events of a device that are known to less than a window."""
    short = frames[-1].dt_us if frames else SECOND_US
    moment_rows = tuple(
        (f.mono_us, n)
        for f in frames
        if f.dt_us < SECOND_US
        and (n := sum(histogram.count for s, histogram in f.histograms.items() if s.device == device and s.op in ops))
    )
    return OffsetEvents(
        # until a waiter ran again is after completion
        tuple(
            outlier.mono_us + outlier.total_us - outlier.stages_us.get("resume", 0)
            for outlier in outliers
            if outlier.device == device and outlier.op in ops
        ),
        tuple(issue.mono_us for burst in bursts for issue in burst if issue.op in ops),
        moment_rows,
        short,
    )


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """I/Os by cell (column, row from below). `fold_us`: the time that the rows cover, a second or a tick."""

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
        per_rows = [0] * self.rows
        for (_, row), n in self.cells.items():
            per_rows[row] += n
        return per_rows

    @property
    def is_banded(self) -> bool:
        """Return whether the rows differ more than by chance.

        Non-empty cells are counted, not events: a burst in one second is no band.
        """
        filled = [0] * self.rows
        for _, row in self.cells:
            filled[row] += 1
        filled.sort(reverse=True)
        total, half = sum(filled), sum(filled[: max(self.rows // 2, 1)])
        expected = total / self.rows
        chi2 = sum((n - expected) ** 2 for n in filled) / expected if expected else 0.0
        # chi-squared has a mean of its degrees of freedom and twice that as variance: five deviations
        beyond = self.rows - 1 + 5 * (2 * (self.rows - 1)) ** 0.5
        return self.rows > 1 and total >= _LEAST and chi2 > beyond and half >= _BANDED * (total - half)


def offset_map(
    offset_events: OffsetEvents, until_us: int, length_us: int, columns: int, rows: int, *, fold_us: int = SECOND_US
) -> OffsetMap:
    """Return a map with columns of whole seconds up to `until_us`, and rows of the fold."""
    column_us = SECOND_US * max(-(-length_us // (SECOND_US * max(columns, 1))), 1)
    last = -(-until_us // column_us)
    number = min(columns, -(-length_us // column_us))
    begin_us = (last - number) * column_us
    cells: dict[tuple[int, int], int] = {}
    for at_us, n in offset_events.counts().items():
        column = (at_us - begin_us) // column_us
        if 0 <= column < number:
            at = column, at_us % fold_us * rows // fold_us
            cells[at] = cells.get(at, 0) + n
    return OffsetMap(cells, number, rows, fold_us, begin_us, column_us)


def rows_of(window_us: int, room: int, fold_us: int, *, fine: bool) -> int:
    """Return the number of rows that fit; with windows only, at most the number of windows in a second."""
    most = max(room // parts * parts for parts in _LABELLED)
    return max(most, 1) if fine else max(min(room, fold_us // max(window_us, 1)), 1)


def draw(
    found: OffsetMap,
    offset_events: OffsetEvents,
    width: int,
    ink: Ink,
    *,
    wall_less_mono: float = 0.0,
    begin: Begin = NO_DATA,
    also: str = "",
) -> list[Line]:
    """Return a headline, rows with their offsets, and the time below.

    `begin`: of the data, if it is in the map; `also`: another kind of events, which the key shows.
    """
    fold_text = "second" if found.fold_us == SECOND_US else f"tick of {spelled(found.fold_us)}"
    seen = " banded" if found.is_banded else ""
    text = offset_events.between(found.begin_us, found.end_us).words or "nothing in this time"
    next_kind = (Span("  f", "accent"), Span(f": {also}", "dim")) if also else ()
    top = max(found.cells.values(), default=1)
    shown = [step for step in begins(top, ink.levels) if step >= level(1, top, ink.levels)]
    last = f" {count(top)} " if top > 1 else " "
    steps = (Span("events 1 ", "dim"), *(Span(*ink.cell(step)) for step in shown), Span(last, "dim"))
    head = (Span(f"  offset in the {fold_text}: {text}"), Span(seen, "strong"), *next_kind)
    legend = steps if line_width((*head, *steps)) + 1 <= width else ()
    lines = [(*fit(head, width - line_width(legend)), *legend)]
    cell_width = max((width - OFFSET_LABEL - _RIGHT) // max(found.columns, 1), 1)
    sums, right = found.per_row, width - OFFSET_LABEL - found.columns * cell_width
    bar, most = min(right - _RIGHT - 1, _MOST_BAR), max(found.per_row, default=0)
    before_us = 0 if math.isnan(begin.wall) else (begin.wall - wall_less_mono) * 1e6 - found.begin_us
    empty = max(int(before_us // found.column_us), 0)
    written = empty_words(begin, empty * cell_width, found.rows)
    for row in reversed(range(found.rows)):
        first = empty if row in written else 0
        words = Span(cell(f" {written[row]}", empty * cell_width), "dim") if first else Span("")
        cells = [_cell(found.cells.get((x, row), 0), top, cell_width, ink) for x in range(first, found.columns)]
        total = Span(f"{count(sums[row]) if sums[row] else '':>{_RIGHT}}", "dim")
        side = (Span("│", "frame"), *share_bar(sums[row] / max(most, 1), bar, "area")) if bar > 0 else ()
        lines.append((_label(found, row), words, *runs(cells), *side, total))
    return [*lines, fit((*_axis(found, cell_width, wall_less_mono), Span(" per row", "dim")), width)]


def why_none(offset_events: OffsetEvents, *, recorded: bool, members: Sequence[str] | None = None) -> str:
    """Return why a device has no events; empty where it has some. `members`: of a device without own requests."""
    if offset_events:
        return ""
    if members is not None:
        below = f": {', '.join(members[:_MEMBERS])}" if members else ""
        return f"no request passes this device: its I/O is timed at its members, select one of them{below}"
    again = "a recording made with --interval 100ms" if recorded else "--interval 100ms"
    return (
        "no event here has a stamp finer than its window: no outlier was recorded and no order of issue was traced"
        f" in this time; {again} shows counts by tenths of a second"
    )


def _cell(n: int, top: int, cells: int, ink: Ink) -> tuple[str, str]:
    if not n:
        return " " * cells, "text"
    glyph, role = ink.cell(level(n, top, ink.levels))
    return glyph * cells, role


def _label(offset_map: OffsetMap, row: int) -> Span:
    parts = next((parts for parts in _LABELLED if offset_map.rows % parts == 0), _LABELLED[0])
    is_labelled = row % max(offset_map.rows // parts, 1) == 0
    edge_us = offset_map.fold_us * row // offset_map.rows
    text = (with_unit(edge_us) if edge_us else "0") if is_labelled else ""
    return Span(f"{text:>{OFFSET_LABEL - 1}}{'┤' if is_labelled else '│'}", "dim")


def _axis(offset_map: OffsetMap, cell_width: int, wall_less_mono: float) -> Line:
    columns = range(1, offset_map.columns + 1)
    ends = [(n * cell_width, wall_less_mono + (offset_map.begin_us + n * offset_map.column_us) / 1e6) for n in columns]
    size = offset_map.columns * cell_width
    label = newest_label(ends[-1][1] if ends else None, size)
    cells = time_axis(ends, offset_map.column_us, cell_width, [label], size=size)
    return (Span(" " * (OFFSET_LABEL - 1) + "└", "dim"), *runs(cells))


def offsets_panel(view: ViewState, chosen: Subject, width: int, room: int) -> list[Line]:
    """Return the offset map of a device, in at most `room` lines."""
    history, selection = view.history, view.selection
    offset_events = events(view, chosen.device.name)
    fold, _, kind = selection.fold.partition(" ")
    kind_offsets = offset_events.only(kind)
    members = None if chosen.device.timed else chosen.device.members
    if why := why_none(kind_offsets, recorded=view.recorded, members=members):
        return cut(paragraph(why, width, margin=2), room)
    hz = view.origin.hz if view.origin else None
    fold_us = SECOND_US if fold != "tick" else SECOND_US // (hz or _USUAL_HZ)
    fine = bool(kind_offsets.outliers or kind_offsets.issues)
    if not fine and fold_us < 2 * kind_offsets.window_us:
        why = f"only counts of windows are known here, and {spelled(kind_offsets.window_us)} are too long to see"
        return cut(paragraph(f"{why} a tick of {spelled(fold_us)} in them", width, margin=2), room)
    rows = rows_of(kind_offsets.window_us, max(room - _AROUND, 1), fold_us, fine=fine)
    fold_map = offset_map(
        kind_offsets, history.until_us, selection.window_us, max(width - OFFSET_LABEL - 6, 1), rows, fold_us=fold_us
    )
    last = history.window.last
    wall_less_mono = last.wall - last.mono_us / 1e6 if last else 0.0
    begin = _begin(view) if history.begin_us > fold_map.begin_us else NO_DATA
    also = "requests by issue" if not kind and len(offset_events.populations) > 1 else ""
    return draw(fold_map, kind_offsets, width, view.ink, wall_less_mono=wall_less_mono, begin=begin, also=also)[:room]


def folds(view: ViewState) -> tuple[str, ...]:
    """Return the values of Selection.fold in the order of the key, for the selected device."""
    chosen = selected(view.subjects())
    several = chosen is not None and len(events(view, chosen.device.name).populations) > 1
    return (*FOLDS, *(f"{fold_name} {ISSUES}" for fold_name in FOLDS[1:])) if several else FOLDS


def _begin(view: ViewState) -> Begin:
    first, origin_us = view.history.window.frames[0], view.history.origin_us
    is_start = origin_us is not None and view.history.begin_us - origin_us < first.dt_us
    return Begin(first.wall - first.dt_us / 1e6, is_start=is_start)


def events(view: ViewState, device: str) -> OffsetEvents:
    """Return the events of a device in the window that is shown."""
    history, selection = view.history, view.selection
    after_us = history.until_us - selection.window_us
    bursts = history.store.depths.bursts(device, after_us, history.until_us)
    return moments(device, history.on_demand.outliers, bursts, tuple(history.window.frames), selection.ops)


_WIDE, _STRIPS_FROM = 100, 20
"""Cells and lines from which on a map has all strips."""
_STRIPS, _STRIP_PART = 2, 16
"""Strips of one line each; where the map has lines to spare, a strip has another sixteenth of the lines at most."""


def big_map(view: ViewState, chosen: Subject, width: int, room: int, *, explains: bool = True) -> list[Line]:
    """Return headline, heat map, axis and strips of a device, in at most `room` lines.

    `explains`: whether a source without distributions is explained, which is not yet done above.
    """
    origin, name = view.origin, chosen.device.name
    assert origin is not None  # noqa: S101  drawn only once there is a row
    view.latency_map.has_load = False
    if view.selection.fold and view.selection.cursor is None:
        head = _headline(view, chosen, width)
        return [head, *offsets_panel(view, chosen, width, room - 1)]
    why = no_map(chosen, origin)
    if why and not any(io.request for io in view.history.ages.of(name)):
        if why == no_distribution(origin):
            why = means_only(origin) if explains else ""
        lines = _without(view, chosen, why, width, room - 1)
        view.latency_map.drawn = None
        return [_headline(view, chosen, width), *lines]
    return _map_with_strips(view, chosen, width, room, paragraph(why, width) if why else [])


def _headline(
    view: ViewState, chosen: Subject, width: int, legend: Sequence[Line] = (BLANK,), *, column_us: int = 0
) -> Line:
    """Return the headline of a device's map, with the number of its I/Os above the threshold."""
    automatic_us = view.history.on_demand.thresholds_us.get(chosen.device.name)
    return status.headline(
        chosen,
        width,
        view.above(chosen),
        legend,
        column_us=column_us,
        automatic_us=automatic_us,
        in_flight=view.in_flight_above(chosen.device.name),
    )


def _map_with_strips(view: ViewState, chosen: Subject, width: int, room: int, reason: list[Line]) -> list[Line]:
    """Return `big_map` of a device with a distribution; `reason` is below its headline."""
    room -= len(reason)
    name, selection, cells = chosen.device.name, view.selection, map_cells(width)
    ops = _shown_apart(chosen, width, room)
    by_op = room // 3 if ops else 0
    room -= by_op
    load_room = _load_room(view, width, room)
    room -= load_room
    timeline = _timeline(view, view.latency_map, selection.ops, cells)
    timeline.note(view.found.moments)
    load = _load(view, chosen.device, timeline, (width, load_room))
    room += load_room - len(load)
    whole_time = _strip(view, width, timeline.slots * max(cells // timeline.slots, 1), room)
    room -= len(whole_time)
    histogram = chosen.window.latency(name, selection.ops)
    counts = by_bucket(histogram)
    strips = _strips_beside(chosen, selection.op, width, room)
    style = view.latency_map.style(
        timeline,
        {name: counts},
        (cells, room - 2 - strips),
        view.ink,
        selection.threshold_us,
        spare=strips * (room // _STRIP_PART) if strips == _STRIPS else 0,
    )
    waiting = bool(timeline.columns) and bool(timeline.columns[-1].waiting(name))
    marks = _side_marks(view, chosen, style, waiting=waiting)
    lines = labelled(timeline, name, style, width, marks, counts=counts)
    legend = legends(style, ages=timeline.ages(name))
    head = _headline(view, chosen, width, legend, column_us=timeline.column_us)
    head, lines = _with_region(view, name, timeline, style, (head, lines), width=width)
    below = axis(timeline, style, name)
    room_right = width - line_width(below) - 1
    scale_of = next((text for text in ("I/Os, log scale", "log scale") if len(text) <= room_right), "")
    map_lines = [head, *reason, *lines, (*below, Span(f" {scale_of}", "dim"))]
    if strips:
        map_lines += _strips(chosen, timeline, style, (width, room + len(reason) - len(map_lines)), strips)
    map_lines += [*load, *whole_time]
    return [*map_lines, *_op_maps(view, chosen, ops, width, by_op)] if ops else map_lines


def _strips_beside(chosen: Subject, op: str, width: int, room: int) -> int:
    """Return the number of strips on a map's time axis: of the depth alone where the screen is small."""
    if room >= _STRIPS_FROM and width >= _WIDE:
        return _STRIPS
    has_depth = op == "all" and chosen.outstanding.in_driver is not None
    return int(room - 2 > _MAP_ROWS and has_depth)


def _with_region(
    view: ViewState, name: str, timeline: Timeline, style: MapStyle, drawn: tuple[Line, list[Line]], *, width: int
) -> tuple[Line, list[Line]]:
    """Return the headline and the rows of a map with the frame and the counts of the region, if there is one."""
    selection, history = view.selection, view.history
    cursor = selection.cursor or (across(selection.band, timeline, style.scale) if selection.band else None)
    if cursor is None:
        return drawn
    region = cursor.region(style.scale)
    holds = picked(cursor, timeline, name, style.scale, selection.op).holds
    reported = None if history.is_partial else sum(map(holds, history.on_demand.outliers))
    head = heading(headline(region, timeline, name, reported), width)
    return head, framed(drawn[1], region, timeline, style)


def _strip(view: ViewState, width: int, cells: int, room: int) -> list[Line]:
    """Return the strip of the whole time, where it is longer than the window and the map keeps enough rows."""
    past, history = view.past, view.history
    needed = _MIN_STRIP if view.recorded else _MIN_STRIP_LIVE
    if past is None or room < needed or len(past.stamps) < 2:  # noqa: PLR2004  a line has two ends
        return []
    if past.stamps.mono_us[-1] - past.stamps.mono_us[0] < 2 * history.window.length_us:
        return []
    glyphs = SPARKS if view.ink.coloured else RAMP_SPARKS
    events = [*view.begins, *past.moments]  # of several in a cell the last one has its letter there
    return [strip(past, events, (history.begin_us, history.until_us), (width, cells), glyphs)]


def _shown_apart(chosen: Subject, width: int, room: int) -> list[str]:
    """Return the ops with a map of their own below the map of all; empty where there is no room or only one."""
    if room < _BY_OP_FROM or chosen.selection.op != "all" or chosen.selection.cursor is not None:
        return []
    ios = {op: chosen.window.latency(chosen.device.name, (op,)).count for op in OPS}
    most = sorted((op for op in OPS if ios[op]), key=lambda op: -ios[op])[: width // _WIDE]
    return [op for op in OPS if op in most] if len(most) > 1 else []


def _op_maps(view: ViewState, chosen: Subject, ops: Sequence[str], width: int, room: int) -> list[Line]:
    """Return maps of single ops beside each other, each with its own range, in `room` lines."""
    wide = width // len(ops)
    op_maps = [_op_map(view, chosen, op, wide - 1, room) for op in ops]
    heads = [(*lines[0], Span(" " * (wide - line_width(lines[0])), FRAME)) for lines in op_maps]
    title = heading(tuple(span for head in heads for span in head)[:-1], width)
    return [title, *(tuple(span for lines in op_maps for span in fit(lines[y], wide)) for y in range(1, room))]


def _op_map(view: ViewState, chosen: Subject, op: str, width: int, room: int) -> list[Line]:
    name, state, cells = chosen.device.name, view.latency_map.of_op(op), map_cells(width)
    histogram = chosen.window.latency(name, (op,))
    counts = by_bucket(histogram)
    timeline = _timeline(view, state, (op,), cells)
    limit_us = view.selection.threshold_us
    style = state.style(timeline, {name: counts}, (cells, room - 2), view.ink, limit_us)
    head = (Span(f" {op}", "strong"), Span(f"  {count(histogram.count)} I/Os"))
    marks = [*quantile_marks(histogram), *max_mark(histogram)]
    return [head, *labelled(timeline, name, style, width, marks, counts=counts), axis(timeline, style, name)]


def _timeline(view: ViewState, state: HeatmapState, ops: tuple[str, ...], cells: int) -> Timeline:
    """Return the timeline of latency maps that are so wide; it reaches back beyond the window to fill them."""
    selection, history = view.selection, view.history
    timeline = state.slots(
        shape(cells, selection.window_us, history.interval_us, sweep=selection.sweep, kept_us=KEEP_US),
        ops,
        history.frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
        window_us=selection.window_us,
    )
    if history.is_cut:
        timeline.begin = NO_DATA
    return timeline


class ColumnStrip(NamedTuple):
    """A value for each column of a map; `now` and `most` are the newest, or the mean, and the greatest as text.

    `limit`: that of the values, as text, or another text behind the greatest one.
    """

    title: str
    values: list[float | None]
    now: str
    most: str
    role: str
    limit: str = ""
    least: float = 0.0
    """The least value of the highest bar, so that noise is low."""


def _strips(chosen: Subject, timeline: Timeline, style: MapStyle, size: tuple[int, int], many: int) -> list[Line]:
    """Return lines of `size` (cells, lines) with the IOPS and the depth of each column of a map, below it.

    `many`: the number of strips; of fewer than all, the depth is the first.
    """
    name, columns = chosen.device.name, timeline.by_slot()
    iops = [None if column is None else column.per_second(name) for column in columns]
    newest = timeline.columns[-1]
    most = rate(max(n for n in iops if n is not None))
    column_strips = [
        ColumnStrip("IOPS", iops, rate(newest.per_second(name)), most, "area"),
        *_depth_strip(chosen, columns),
    ]
    width, room = size
    return _drawn(column_strips[-many:], room, style, width)


def _depth_strip(chosen: Subject, columns: Sequence[TimeColumn | None]) -> list[ColumnStrip]:
    """Return the strip of a device's I/Os in its driver; empty where they were not counted."""
    depths = [None if column is None else column.depth(chosen.device.name) for column in columns]
    known = [n for n in depths if n is not None]
    if not known:
        return []
    limit = "" if chosen.limit is None else f" of {chosen.limit}"
    now = next((n for column, n in zip(reversed(columns), reversed(depths), strict=True) if column), None)
    newest = UNKNOWN if now is None else str(now)
    return [ColumnStrip("depth", [*depths], newest, str(max(known)), "depth", limit)]


def _drawn(
    column_strips: Sequence[ColumnStrip], room: int, style: MapStyle, width: int, *, gap: bool = False
) -> list[Line]:
    """Return strips below each other in `room` lines, which are shared out; `gap`: with a blank line after each."""
    glyphs = SPARKS if style.ink.coloured else RAMP_SPARKS
    tall = [room // len(column_strips) + (room % len(column_strips) > i) for i in range(len(column_strips))]
    drawn_strips = (
        _bars(column_strip, lines, style.cell_width, glyphs, width)
        for column_strip, lines in zip(column_strips, tall, strict=True)
    )
    return [fit(line, width) for lines in drawn_strips for line in (*lines, *([BLANK] * gap))]


def _bars(strip: ColumnStrip, tall: int, wide: int, glyphs: str, width: int) -> list[Line]:
    """Return the lines of a strip from 0 to its greatest value; bars leave a gap, so that strips don't touch.

    `wide`: cells of a column, as in the map above; `width`: cells of the screen.
    """
    lines: list[Line] = []
    room = width - LABEL - len(strip.values) * wide - 1
    newest = strip.now if strip.now[:1].isalpha() else f"now {strip.now}"  # the mean is called so already
    each_row = _bar_rows(strip.values, max(strip.least, *(n or 0 for n in strip.values)), tall, glyphs)
    for row, bars in zip(reversed(range(tall)), each_row, strict=True):
        cells = "".join(glyph * wide for glyph in bars)
        label = f"{'' if row else strip.title:>{LABEL - 1}} "
        now = "" if row else f" {newest if tall > 1 else strip.now}"
        most = [f"{',' * bool(now)} max {strip.most}{of}" for of in (strip.limit, "")] if row == tall - 1 else []
        words = next((text for text in (*(now + number_text for number_text in most), now) if len(text) <= room), "")
        lines.append((Span(label, "dim"), Span(cells, strip.role), Span("│", "frame"), Span(words, "dim")))
    return lines


def _bar_rows(values: Sequence[float | None], top: float, tall: int, glyphs: str) -> Iterator[list[str]]:
    """Return the glyphs of bars from 0 to `top` in `tall` lines, the highest line first; they leave a gap above."""
    most = tall * (len(glyphs) - 1) - 1
    return bar_lines([max(1, round(n / top * most)) if n else 0 for n in values], tall, glyphs)


_LOAD_FROM, _LOAD_PART, _LEAST_LOAD = 22, 5, 4
"""Lines from which on a wide map has the host's high values by itself, the part of the lines that they may take, and
the least lines where they are asked for."""


def _load_room(view: ViewState, width: int, room: int) -> int:
    """Return the most lines for the host's values."""
    wanted = view.selection.load
    if wanted is None:
        return room // _LOAD_PART if width >= _WIDE and room >= _LOAD_FROM else 0
    return min(max(room // _LOAD_PART, _LEAST_LOAD), max(room - _MIN_MAP, 2)) if wanted else 0


def _load(view: ViewState, device: Device, timeline: Timeline, size: tuple[int, int]) -> list[Line]:
    """Return strips of the values of a device's host, one line each, and a line with the others; `size` is the most.

    One more line has what the device reports about itself. Unless they are asked for, strips are of values that are
    high in a column (HIGH), and there is nothing where none is: the map keeps the lines.
    """
    (width, room), host = size, device.name[: device.name.find(HOST_SEPARATOR) + 1]
    asked = bool(view.selection.load)
    peaks = _load_peaks(timeline, host)
    measured = [name for name in _SHOWN_LOAD if name in peaks]
    moved = [name for name in measured if peaks[name]]
    shown = [name for name in moved if asked or CONTEXT[name].scaled(peaks[name]) >= HIGH.get(name, math.inf)]
    view.latency_map.has_load = room > 0 and (asked or bool(shown))
    if not view.latency_map.has_load:
        return []
    contexts = [{} if column is None else column.host_context for column in timeline.by_slot()]
    values = {name: [context.get(host + name) for context in contexts] for name in shown}
    reports = {report.name: report.value for report in device.reports}
    own = ", ".join(f"{name} {reports[name]}" for name in shown_reports(reports))
    below = [fit((Span(f"{' ' * LABEL}{device.name} reports: {own}", "dim"),), width)] if own else []
    room -= len(below)
    if not measured:
        return [fit((Span(" " * LABEL + "load of the host: not measured here", "dim"),), width), *below]
    wide = max(map_cells(width) // timeline.slots, 1)
    glyphs = SPARKS if view.ink.coloured else RAMP_SPARKS
    newest = [
        column.host_context
        for column in timeline.columns
        if timeline.columns[-1].mono_us - column.mono_us < _LOAD_AGE_US
    ]
    strips = [
        _load_strip(
            name,
            values[name],
            [context_values[host + name] for context_values in newest if host + name in context_values],
        )
        for name in shown[: room - 1]
    ]
    lines = [fit(line, width) for column_strip in strips for line in _bars(column_strip, 1, wide, glyphs, width)]
    left = [name for name in moved if name not in shown[: room - 1]]
    return [*lines, _other_load(left, measured, moved, width, asked=asked), *below]


def _load_peaks(timeline: Timeline, host: str) -> dict[str, float]:
    """Return the highest mean of a column of each value of a host that is measured in one."""
    peaks: dict[str, float] = {}
    for column in timeline.by_slot():
        context = {} if column is None else column.host_context
        for name in _SHOWN_LOAD if context else ():
            value = context.get(host + name)
            if value is not None:
                peaks[name] = max(value.ratio, peaks.get(name, value.ratio))
    return peaks


def _load_strip(name: str, values: Sequence[ContextValue | None], newest: Sequence[ContextValue]) -> ColumnStrip:
    """Return a value's strip; `newest`: its values that are new enough for the present one, the latest last."""
    kind = CONTEXT[name]
    scaled = [None if context_value is None else kind.scaled(context_value.ratio) for context_value in values]
    text = _load_text(name, max(context_value.highest for context_value in values if context_value))
    now = _load_text(name, newest[-1].ratio) if newest else UNKNOWN
    return ColumnStrip(kind.short, scaled, now, text, "depth", f" {kind.title}", _LEAST_BAR[kind.unit])


def _load_text(name: str, ratio: float) -> str:
    return CONTEXT[name].text(CONTEXT[name].scaled(ratio)).replace(" ", "")


def _other_load(left: Sequence[str], measured: Sequence[str], moved: Sequence[str], width: int, *, asked: bool) -> Line:
    """Return a line with the values that have no strip: low or without room (`left`), 0, not measured."""
    if not asked:
        return fit((Span(" " * LABEL), Span("L", "accent"), Span(" shows all values of the host", "dim")), width)
    parts = (
        ("no room for ", left),
        ("always 0: ", [name for name in measured if name not in moved]),
        ("not measured here: ", [name for name in _SHOWN_LOAD if name not in measured]),
    )
    texts = [f"{words}{', '.join(CONTEXT[name].title for name in names)}" for words, names in parts if names]
    return fit((Span(" " * LABEL + "; ".join(texts), "dim"),), width)


def _side_marks(view: ViewState, chosen: Subject, style: MapStyle, *, waiting: bool) -> list[SideMark]:
    """Return the marks of the side histogram: the maximum, I/Os above a threshold that is drawn, p99.9, p99 and p50.

    `waiting`: the newest column has I/Os in flight, of which the oldest may be the maximum. Where the map has none of
    them, an older one than any that completed has no mark, and so there is no maximum.
    """
    device = chosen.device.name
    histogram = chosen.window.latency(device, view.selection.ops)
    side_marks = quantile_marks(histogram)
    if style.threshold_us is not None and style.limit_row >= 0 and histogram:
        slow, bound = view.above(chosen) or slower(histogram, style.threshold_us)
        done = "done " if view.in_flight_above(device).ios else ""
        above = f"{done}{'above' if bound == style.threshold_us else f'>{with_unit(bound)}'}"
        side_marks.append(
            SideMark(style.threshold_us, f"{whole(slow)} {above}", TAIL if slow else "limit", is_limit=True)
        )
    if chosen.oldest_us > (histogram.max_bound or 0):
        if not waiting:
            return side_marks
        is_old = is_above(chosen.oldest_us, style.threshold_us)
        return [
            SideMark(chosen.oldest_us, f"max {at_least(chosen.oldest_us)}", TAIL if is_old else "strong"),
            *side_marks,
        ]
    return [*max_mark(histogram), *side_marks]  # the highest of equal ones first


def _without(view: ViewState, chosen: Subject, why: str, width: int, room: int) -> list[Line]:
    """Return why a device has no map, and strips of what the kernel counts of it where that is known."""
    lines = [BLANK, *paragraph(why, width, margin=2), BLANK] if why else []
    state, name, cells = view.latency_map, chosen.device.name, map_cells(width)
    timeline = _timeline(view, state, view.selection.ops, cells)
    column_strips = _counted_strips(view, chosen, timeline.by_slot())
    left = room - len(lines) - 1
    column_strips = column_strips[: max(left, 0)]
    if not column_strips:
        return cut(lines, room)
    load = _load(view, chosen.device, timeline, (width, _load_room(view, width, left)))
    left -= len(load)
    style = state.style(timeline, {name: {}}, (cells, left), view.ink, None)
    gaps = len(column_strips) if left >= (_COUNTED_LINES + 1) * len(column_strips) else 0
    tall = min(left - gaps, _COUNTED_MOST * len(column_strips))
    return [*lines, *_drawn(column_strips, tall, style, width, gap=bool(gaps)), axis(timeline, style, name), *load]


_COUNTED_LINES, _COUNTED_MOST = 2, 8
"""Lines of a strip from which on strips have a blank line between them, and the most lines of one."""


def _counted_strips(view: ViewState, chosen: Subject, columns: Sequence[TimeColumn | None]) -> list[ColumnStrip]:
    """Return strips of mean latencies, IOPS, throughput and depth from the kernel's counters; empty without any."""
    name, selection, history = chosen.device.name, view.selection, view.history
    column_strips = []
    for op in selection.ops:
        done = history.window.timed(name, op)
        if done and done.count and done.time_us is not None:
            means = [None if column is None else column.kernel(name, (op,)).mean_us for column in columns]
            most = max((us for us in means if us is not None), default=None)
            mean = f"mean {with_unit(done.time_us / done.count)}"
            column_strips.append(
                ColumnStrip(op if len(op) < LABEL else op[: LABEL - 2], means, mean, with_unit(most), "area")
            )
    sums = [None if column is None else column.kernel(name, selection.ops) for column in columns]
    for title, factor in (("IOPS", 1), ("MB/s", 1_000_000)):
        rates = [
            kernel_counts and kernel_counts.per_second(kernel_counts.bytes if factor > 1 else kernel_counts.ios)
            for kernel_counts in sums
        ]
        rates = [None if n is None else n / factor for n in rates]
        known = [n for n in rates if n is not None]
        if any(known):
            column_strips.append(ColumnStrip(title, rates, rate(known[-1]), rate(max(known)), "area"))
    return [*column_strips, *_depth_strip(chosen, columns)] if column_strips else []


@dataclass(frozen=True, slots=True)
class Grid:
    """Number and size of the tiles; a tile is a title and its rows.

    `times`: the time axis is below each row of tiles where the maps lose no row by it, else below the last one.
    """

    across: int
    down: int
    tile_width: int
    tile_height: int
    times: str = ""

    @property
    def tiles(self) -> int:
        return self.across * self.down


def grid(width: int, height: int, devices: int, columns: Callable[[int], int]) -> Grid:
    """Return the grid that shows the most devices, then the most of each; `columns`: width -> columns in the window.

    The devices that don't fit are on further pages.
    """
    room = max(width - LABEL, 1)
    grids = [_grid(across, room, height, devices) for across in range(1, max(room // MIN_WIDTH, 1) + 1)]

    def worth(grid: Grid) -> tuple[int, int]:
        used = min(grid.tiles, devices)
        return used, used * grid.tile_height * columns(grid.tile_width)

    return max(grids, key=worth)


def _grid(across: int, room: int, height: int, devices: int) -> Grid:
    # the screen's title has the time of the newest column, too: a second row of maps is worth more than the axis
    is_tight = height == 2 * MIN_HEIGHT and devices > across
    left = height if is_tight or height <= _AXIS_FROM else height - 1
    down = max(1, min(-(-devices // across), left // MIN_HEIGHT))
    tall = min(max(left // down, 2), MAX_HEIGHT)
    times = "" if left == height else "each" if (tall + 1) * down <= height else "last"
    return Grid(across, down, room // across, tall, times)


def page(subjects: list[Subject], selected: str, tiles: int) -> list[Subject]:
    """Return the page of tiles with the selected device."""
    at = next((i for i, s in enumerate(subjects) if s.device.name == selected), 0)
    begin = at // max(tiles, 1) * tiles
    return subjects[begin : begin + tiles]


def tiles(
    shown: list[Subject],
    timeline: Timeline,
    style: MapStyle,
    where: Grid,
    why: dict[str, str],
    *,
    means: Mapping[str, Sequence[float | None]] = MappingProxyType({}),
) -> list[Line]:
    """Return all tiles, latency labels at the left of each row of tiles. `why`: device -> why its map is empty.

    `means`: device -> mean latency of each column in us, drawn as bars where latencies of single I/Os are not known.
    """
    time = _beside(Span(" " * (LABEL - 1) + "└", "dim"), [times(timeline, style)] * where.across, where.tile_width)
    top = max((us for column_means in means.values() for us in column_means if us), default=0.0)
    rows, lines = range(style.scale.rows - 1, -1, -1), list[Line]()
    labels = [_mean_label(top, row, style.scale.rows) if means else label(style, row) for row in rows]
    for begin in range(0, len(shown), where.across):
        subjects = shown[begin : begin + where.across]
        titles = [_title(subject, where.tile_width) for subject in subjects]
        targets = [Target(TILE, subject.device.name) for subject in subjects]
        lines.append(_tiled(Span(" " * LABEL), titles, where.tile_width, targets))
        bodies = [
            _mean_body(means[subject.device.name], top, style)
            if means.get(subject.device.name)
            else _body(subject, timeline, style, where.tile_width, why.get(subject.device.name, ""))
            for subject in subjects
        ]
        for y in range(style.scale.rows):
            lines.append(_tiled(labels[y], [each[y] for each in bodies], where.tile_width, targets))
        if where.times == "each" or (where.times == "last" and begin + where.across >= len(shown)):
            lines.append(time)
    return lines


def _mean_label(top: float, row: int, rows: int) -> Span:
    """Return the axis of means, which begins at 0: the greatest one at the highest row."""
    text = with_unit(top, 2) if row == rows - 1 and top else "" if row else "0"
    return Span(f"{text:>{LABEL - 1}}{'┤' if text else '│'}", "dim")


def _mean_body(values: Sequence[float | None], top: float, style: MapStyle) -> list[Line]:
    """Return means as bars from 0 to `top`, in the rows of a map."""
    lines = _bar_rows(values, top, style.scale.rows, SPARKS if style.ink.coloured else RAMP_SPARKS)
    return [(Span("".join(glyph * style.cell_width for glyph in bars), "area"),) for bars in lines]


def _beside(first: Span, parts: list[Line], width: int) -> Line:
    return (first, *(span for part in parts for span in fit(part, width)))


def _tiled(first: Span, parts: Sequence[Line], width: int, targets: Sequence[Target]) -> Line:
    """Return a line of several small maps, each with its target."""
    tiles = zip(parts, targets, strict=True)
    return (first, *(span for part, target in tiles for span in targeted(fit(part, width), target)))


def _body(subject: Subject, timeline: Timeline, style: MapStyle, width: int, why: str) -> list[Line]:
    if why:
        words = [Span(f" {text}", "dim") for text in wrap(why, width - 3)][: style.scale.rows]
        return [*((word,) for word in words), *[()] * (style.scale.rows - len(words))]
    return body(timeline, subject.device.name, style)


def _title(subject: Subject, cells: int) -> Line:
    """Return the name at the left; at the right p99, maximum and IOPS as far as they fit.

    A device that is unlike its peers has its ratio to them instead, and its title is red.
    """
    selected = subject.device.name == subject.selection.selected
    histogram = subject.window.latency(subject.device.name, subject.selection.ops)
    iops = of_counted(subject, subject.ios * subject.per_second)
    name = (
        Span("▸" if selected else " ", "accent"),
        Span(cell(subject.device.name, min(len(subject.device.name), _NAME)), "accent" if selected else "strong"),
    )
    times = subject.times_peers
    more = Span(f" {iops}/s" if times is None else f" {significant(times, 2)}x", "dim")
    trend_variants: tuple[Line, ...] = ((more,), ()) if subject.is_counted else ((),)
    if not histogram and subject.mean_us is not None:
        trend_variants = ((mean := Span(f" mean {with_unit(subject.mean_us)}", "dim"), more), (mean,), ())
    elif histogram:
        p99 = Span(f" p99 {quantile(histogram, 0.99)}", "dim")
        trend_variants = ((p99, Span(" max ", "dim"), largest(subject, "dim"), more), (p99, more), (p99,), ())
    right = next(spans for spans in trend_variants if line_width(name) + line_width(spans) < cells or not spans)
    line = (*fit(name, cells - 1 - line_width(right)), *right)
    return (*(highlighted(line) if times is None else (Span(plain(line), ODD),)), Span(" "))


_WHOLE_FROM, _MOST = 20, 36
"""Cells of the tail column from which on it has the whole name of a stage, and its most cells."""
_STAGE, _WHOLE_STAGE, _PERCENT = 7, 11, 4


def split(room: int) -> tuple[int, int]:
    """Return (cells of the tail column, cells of the trend); where both don't fit, the trend is dropped."""
    if room < LEAST:
        return 0, room
    left = room - LEAST - 1
    if left < TREND_MIN:
        return room, 0
    more = max((left - TREND_MIN + 1) // 2, min(left - TREND_MIN, _WHOLE_FROM - LEAST))
    tail_cells = min(LEAST + more, _MOST)
    return tail_cells, room - 1 - tail_cells


def title(cells: int) -> str:
    """Return the title of the tail column."""
    return "slow part" if cells else ""


def tail_cell(slow: SlowPart | None, cells: int, ink: Ink, *, is_explained: bool = False) -> Line:
    """Return a bar, the stage and its share; blank where it isn't known.

    `is_explained`: a finding has the share already, of the last minute, and two numbers for one claim would contradict
    each other.
    """
    if slow is None:
        return (Span(" " * cells),)
    stage, share = slow
    size, name = (_WHOLE_STAGE, stage) if cells >= _WHOLE_FROM else (_STAGE, short(stage))
    bar = share_bar(share, cells - size - _PERCENT - 2, role(stage, ink))
    percent = "" if is_explained else part(share)
    return (*bar, Span(f" {name:<{size}}"), Span(f" {percent:>{_PERCENT}}"))


_MAP_SHARE, _FRAMED_SHARE = 0.7, 0.75
"""Least share of the lines that the map of the selected device has besides the table, without and with frames."""


def overview(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table and a map, or the small maps; without a device, the reason."""
    subjects = view.subjects()
    chosen = selected(subjects)
    if chosen is None or view.origin is None:
        return empty_panel(no_rows(view), width, room)
    panel = view.selection.panel
    if panel == "maps":
        return _maps(view, subjects, width, room, titled=view.framed or is_titled(view.selection, 0))
    titled = view.framed or is_titled(view.selection, room)
    extra = len(APART) if view.selection.splits else 0
    share = _FRAMED_SHARE if view.framed else _MAP_SHARE
    most = max(room - 1 - titled - extra - max(_MIN_MAP, round(room * share)), 1)
    at = next(i for i, subject in enumerate(subjects) if subject is chosen)
    if view.selection.lists_groups:
        table = _group_rows(view, chosen, width, room - max(_MIN_MAP, round(room * _GROUPS_SHARE)), titled=titled)
    else:
        rows = [chosen] if panel == "zoom" else [subjects[i] for i in around(len(subjects), at, most)]
        table = device_rows(view, rows, subjects, width, titled=titled)
    if extra:
        return [*table, *_maps_apart(view, chosen, width, room - len(table))]
    return [*table, *big_map(view, chosen, width, room - len(table))]


def _group_rows(view: ViewState, chosen: Subject, width: int, room: int, *, titled: bool) -> list[Line]:
    """Return a row per group of devices with its sums and its worst device, in at most `room` lines."""
    groups, kind, origin = view.groups(), view.selection.group, view.origin
    at = next(i for i, group in enumerate(groups) if any(s is chosen for s in group.members))
    columns = group_columns(
        kind,
        width,
        distribution=origin is None or not no_distribution(origin),
        has_peers=any(group.worst.times_peers is not None for group in groups),
    )
    rows = around(len(groups), at, room - 1 - titled)
    lines = [heads(columns, above=rows.start)]
    for i in rows:
        name = chosen.device.name if i == at else groups[i].worst.device.name
        line = fit(field_row(columns, groups[i], selected=i == at), width)
        lines.append(targeted(line, Target(DEVICE, name)))
    if not titled:
        return lines
    name, note = f"{kind}s", f", with {sum(len(group.members) for group in groups):,} devices"
    return [table_title(view.selection, (rows.start + 1, rows.stop), len(groups), width, name=name, note=note), *lines]


def _maps_apart(view: ViewState, chosen: Subject, width: int, room: int) -> list[Line]:
    """Return the map of a device's reads above that of its writes."""
    origin = view.origin
    lines = paragraph(means_only(origin), width, margin=2) if origin is not None and no_distribution(origin) else []
    rooms = ((room - len(lines)) // 2, (room - len(lines) + 1) // 2)
    states, pasts = (view.latency_map, view.write_map), (None, view.past)
    for op, state, past, left in zip(APART, states, pasts, rooms, strict=True):
        shown = replace(view.selection, op=op, load=op == APART[-1] and view.selection.load)
        of_op = replace(view, selection=shown, latency_map=state, past=past)
        subject = replace(chosen, selection=replace(chosen.selection, op=op), times_peers=None)
        lines += big_map(of_op, subject, width, left, explains=False)
    view.latency_map.has_load = view.write_map.has_load
    return lines


def device_rows(
    view: ViewState, rows: list[Subject], every: list[Subject], width: int, *, titled: bool = False
) -> list[Line]:
    """Return the header and some rows of the device table; `titled`: with its order and filter above."""
    origin, trends = view.origin, view.history.trends
    distribution = origin is None or not no_distribution(origin)
    counted = (subject.window.latency(subject.device.name, subject.selection.ops) for subject in every)
    sums = origin is None or origin.latency_from != "issue" or any(histogram.mean is not None for histogram in counted)
    driver = max((len(subject.device.driver) for subject in every), default=0)
    name, hosts = name_cells(view.history.devices(), view.selection), are_hosts(view.history.devices())
    wanted = view.selection.columns
    if hosts:
        wanted = host_columns(wanted, width)
    columns, room = fitting(
        width,
        distribution=distribution,
        sums=sums,
        titles=wanted,
        driver=driver,
        name=name,
        has_failed=any(subject.failed for subject in every),
        has_peers=any(subject.times_peers is not None for subject in every),
        from_issue=distribution and origin is not None and origin.latency_from == "issue",
    )
    tail_cells, trend = split(room) if view.history.any_traced else (0, room)
    glyphs = SPARKS[:-1] if view.ink.coloured else RAMP_SPARKS  # a whole cell would touch the row above
    bounds = trends.bounds()
    host = HOST if hosts else ""
    if len(rows) < len(every) and not titled:
        host = f"{len(rows)} of {len(every)}"
    gap = (Span(" "),) if trend and tail_cells else ()
    head = header(columns, trend, view.selection, above=len(rows) > 1 and rows[0] is not every[0])
    if host:
        head = (head[0], head[1]._replace(text=f"{cell(host, columns[0][1])} ", role="dim"), *head[2:])
    first = next(at for at, subject in enumerate(every) if subject is rows[0]) + 1
    whose, shown = f"  of {view.selection.within}" if view.selection.within else "", (first, first + len(rows) - 1)
    above = [table_title(view.selection, shown, len(every), width, note=whose)] if titled else []
    lines: list[Line] = [*above, (*head, *gap, Span(title(tail_cells), "dim"))]
    for s in rows:
        line = table_row(replace(s, trend=sparkline(trends.of(s.device.name), trend, bounds, glyphs)), columns, trend)
        whole_row = (*line, *gap, *_tail(view, s, tail_cells))
        whole_row = targeted(whole_row, Target(DEVICE, s.device.name))
        is_selected = s.device.name == s.selection.selected
        lines.append(fit(highlighted(whole_row), width) if is_selected else whole_row)
        if view.selection.splits and is_selected:
            for op in APART:
                of_op = replace(view, selection=replace(view.selection, op=op))
                of_row = (*op_row(s, op, columns, trend), *gap, *_tail(of_op, s, tail_cells))
                of_row = targeted(of_row, Target(DEVICE, s.device.name))
                lines.append(fit(highlighted(of_row), width))
    return lines


def _tail(view: ViewState, subject: Subject, cells: int) -> Line:
    if not cells:
        return ()
    if view.history.is_partial:
        return tail_cell(None, cells, view.ink)
    wanted_key = (subject.device.name, view.selection.ops, view.selection.threshold_us, len(view.found.shown))
    slow = view.history.made(("tail", *wanted_key), lambda: slow_part(view, subject))
    return tail_cell(slow, cells, view.ink, is_explained=subject.device.name in view.found.explained)


def _means(subjects: Sequence[Subject], timeline: Timeline) -> dict[str, list[float | None]]:
    """Return device -> the mean latency of its I/Os in each column, by the kernel's counters."""
    columns, means_by_device = timeline.by_slot(), dict[str, list[float | None]]()
    for subject in subjects:
        name, ops = subject.device.name, subject.selection.ops
        means = [None if column is None else column.kernel(name, ops).mean_us for column in columns]
        if any(means):
            means_by_device[name] = means
    return means_by_device


_ONE_SCALE, _PAGE_SCALE = ", one scale for all", ", one scale a page"


def _maps(view: ViewState, subjects: list[Subject], width: int, room: int, *, titled: bool) -> list[Line]:
    """Return the small maps of the page with the selected device; the last line has the legend.

    The page and the order are in the title, without one in the last line too.
    """
    selection, history, origin = view.selection, view.history, view.origin
    room -= titled

    def cut(cells: int) -> int:
        return shape(cells - 1, selection.window_us, history.interval_us, sweep=selection.sweep).slots

    where = grid(width, room - (room >= _LEGEND_FROM), len(subjects), cut)
    paged = where.tiles < len(subjects)
    if paged:
        where = grid(width, room - 1, len(subjects), cut)
    if (where.tiles < len(subjects)) != (view.latency_map.page < len(subjects)):
        view.latency_map.page = where.tiles
        subjects = replace(view).subjects()  # all fit, or no longer: they have another order
    view.latency_map.page = where.tiles
    cells = where.tile_width - 1
    timeline = _timeline(view, view.latency_map, selection.ops, cells)
    page_subjects = page(subjects, subjects[0].selection.selected, where.tiles)
    counts = {s.device.name: by_bucket(s.window.latency(s.device.name, selection.ops)) for s in page_subjects}
    size, limit_us = (cells, where.tile_height - 1), selection.threshold_us
    style = view.latency_map.style(timeline, counts, size, view.ink, limit_us)
    why = {s.device.name: no_map(s, origin) for s in page_subjects} if origin else {}
    means = _means(page_subjects, timeline) if origin and no_distribution(origin) else {}
    if means:  # the legend gives the reason for bars once
        why = dict.fromkeys(why, "no I/O in this time")
    lines, begin = tiles(page_subjects, timeline, style, where, why, means=means), subjects.index(page_subjects[0])
    order = SORT_WORDS[selection.sort] if paged or selection.sort != SORTS[0] else "by name"
    which = f"{begin + 1}-{begin + len(page_subjects)} of {len(subjects)}" if paged else f"{len(subjects)}"
    rows, note = (begin + 1, begin + len(page_subjects)), _PAGE_SCALE if paged else _ONE_SCALE
    title = table_title(selection, rows, len(subjects), width, name="maps", order=order, note=note)
    above = [title] if titled else []
    if len(lines) >= room:
        return [*above, *lines]
    keys = (Span("  PgDn PgUp", "accent"), Span(" more ", "dim")) if paged else ()
    words = () if titled else (Span(f" maps {which}"), Span(f" {order}", "dim"))
    left: Line = (*words, *keys)
    ages = {bucket for s in page_subjects for bucket in timeline.ages(s.device.name)}
    legend_variants = legends(style, ages=ages, shared=True)
    legend_variants = ((Span("bars: mean latency from 0 ", "dim"),), BLANK) if means else legend_variants
    right = next((spans for spans in legend_variants if line_width(left) + line_width(spans) <= width), BLANK)
    return [*above, *lines, (*fit(left, width - line_width(right)), *right)]
