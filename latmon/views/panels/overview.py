"""The overview: the table with the selected device's map, that device alone, or a small map for each device."""

from __future__ import annotations

from dataclasses import replace

from latmon.views import empty, tail
from latmon.views.lines import Line, Span
from latmon.views.multiples import grid, page, tiles
from latmon.views.panels.bigmap import big_map
from latmon.views.sight import Sight, no_rows, selected, sentence
from latmon.views.sweep import shape
from latmon.views.table import RAMP_SPARKS, SPARKS, Subject, fitting, header, row, sparkline

_MIN_MAP = 11


def overview(sight: Sight, width: int, room: int) -> list[Line]:
    """Whatever of it the panel says; without a row, why."""
    subjects = sight.subjects()
    chosen = selected(subjects)
    if chosen is None or sight.origin is None:
        return sentence(no_rows(sight), width, room)
    panel = sight.choice.panel
    if panel == "maps":
        return _maps(sight, subjects, width, room)
    rows = [chosen] if panel == "zoom" else _around(subjects, chosen, max(room - 1 - _MIN_MAP, 1))
    table = _table(sight, rows, subjects, width)
    return [*table, *big_map(sight, chosen, width, room - len(table))]


def _table(sight: Sight, rows: list[Subject], every: list[Subject], width: int) -> list[Line]:
    origin, trends = sight.origin, sight.history.trends
    columns, room = fitting(width, distribution=origin is None or not empty.no_distribution(origin))
    tail_cells, trend = tail.split(room) if sight.history.any_traced else (0, room)
    glyphs = SPARKS if sight.ink.coloured else RAMP_SPARKS
    bounds = trends.bounds()
    some = f"{len(rows)} of {len(every)}" if len(rows) < len(every) else ""
    gap = (Span(" "),) if trend else ()
    in_trend = some if not tail_cells else ""
    head = header(columns, trend, sight.choice, in_trend, above=len(rows) > 1 and rows[0] is not every[0])
    lines: list[Line] = [(*head, *gap, Span(tail.title(tail_cells, some), "dim"))]
    for s in rows:
        line = row(replace(s, trend=sparkline(trends.of(s.device.name), trend, bounds, glyphs)), columns, trend)
        lines.append((*line, *gap, *_tail(sight, s, tail_cells)))
    return lines


def _tail(sight: Sight, subject: Subject, cells: int) -> Line:
    if not cells:
        return ()
    asked = (subject.device.name, sight.choice.ops, sight.choice.threshold_us)
    found = sight.history.made(("tail", *asked), lambda: tail.worst(sight.history.deep.traced, *asked))
    return tail.tail_cell(found, cells, sight.ink)


def _maps(sight: Sight, subjects: list[Subject], width: int, room: int) -> list[Line]:
    choice, history, origin = sight.choice, sight.history, sight.origin

    def cut(cells: int) -> int:
        return shape(cells - 1, choice.window_us, history.interval_us, sweep=choice.sweep).cells

    where = grid(width, room, len(subjects), cut)
    cells = where.tile_width - 1
    timeline = sight.sweep.slots(
        shape(cells, choice.window_us, history.interval_us, sweep=choice.sweep),
        choice.ops,
        history.frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    style = sight.sweep.style(timeline, where.tile_height - 1, cells, sight.ink, choice.threshold_us)
    some = page(subjects, subjects[0].choice.selected, where.tiles)
    why = {s.device.name: empty.no_map(s, origin) for s in some} if origin else {}
    return tiles(some, timeline, style, where, why)


def _around(subjects: list[Subject], chosen: Subject, rows: int) -> list[Subject]:
    """As many rows as fit, with the selected one among them."""
    at = next(i for i, s in enumerate(subjects) if s is chosen)
    begin = max(0, min(at - rows + 1, len(subjects) - rows))
    return subjects[begin : begin + rows]
