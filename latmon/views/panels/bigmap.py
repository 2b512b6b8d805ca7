"""The selected device's heat map with its headline and axes, or why there is none. Pure but for the sweep it asks."""

from __future__ import annotations

from latmon.views import empty, status
from latmon.views.cursor import picked
from latmon.views.heatmap import LABEL, TOTALS, axis, labelled, legend
from latmon.views.lines import BLANK, Line, Span, fit
from latmon.views.lines import width as line_width
from latmon.views.region import framed, headline
from latmon.views.sight import Sight, sentence
from latmon.views.sweep import shape
from latmon.views.table import Subject
from latmon.views.units import duration


def big_map(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    """Headline, rows, axis: `room` lines at most."""
    origin = sight.origin
    assert origin is not None  # noqa: S101  drawn only once there is a row
    head = status.headline(chosen, width)
    if why := empty.no_map(chosen, origin):
        return [head, *_without(sight, chosen, why, width, room - 1)]
    choice, cells = sight.choice, width - LABEL - TOTALS
    cut = shape(cells, choice.window_us, sight.history.interval_us)
    timeline = sight.sweep.slots(cut, choice.ops, sight.history.frames)
    style = sight.sweep.style(timeline, room - 2, cells, sight.ink, choice.threshold_us)
    lines = labelled(timeline, chosen.device.name, style, width)
    if choice.cursor is not None:
        region = choice.cursor.region(style.scale)
        told = sum(
            map(picked(choice.cursor, timeline, chosen.device.name, style.scale).holds, sight.history.deep.outliers)
        )
        head = headline(region, timeline, chosen.device.name, told)
        lines = framed(lines, region, timeline, style)
    return [head, *lines, _beside(axis(timeline, style), legend(style), width)]


def _without(sight: Sight, chosen: Subject, why: str, width: int, room: int) -> list[Line]:
    lines = sentence(why, width, room)
    means = [
        f"{op} {duration(c.time_us / c.count)}"
        for op in sight.choice.ops
        if (c := sight.history.window.completed(chosen.device.name, op)) and c.count and c.time_us is not None
    ]
    if means and len(lines) < room:
        lines += [BLANK, (Span(f"  mean  {'  '.join(means)}", "text"),)]
    return lines[:room]


def _beside(left: Line, right: Line, cells: int) -> Line:
    """`right` at the right edge where there is room for it."""
    room = cells - line_width(right)
    return (*fit(left, room), *right) if line_width(left) <= room else left
