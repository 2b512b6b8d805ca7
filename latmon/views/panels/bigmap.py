"""The selected device's heat map with its headline and axes, or why there is none. Pure but for the sweep it asks."""

from __future__ import annotations

from latmon.model import Flow
from latmon.views import empty, status
from latmon.views.cursor import across, picked
from latmon.views.heatmap import LABEL, TOTALS, axis, labelled, legend
from latmon.views.lines import BLANK, Line, Span, fit
from latmon.views.lines import width as line_width
from latmon.views.panels.offsets import offsets_panel
from latmon.views.region import framed, headline
from latmon.views.sight import Sight, sentence
from latmon.views.sweep import shape
from latmon.views.table import Subject
from latmon.views.units import duration


def big_map(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    """Headline, rows, axis: `room` lines at most."""
    origin = sight.origin
    assert origin is not None  # noqa: S101  drawn only once there is a row
    head = status.headline(chosen, width, _counted(sight, chosen.device.name))
    if sight.choice.fold and sight.choice.cursor is None:
        return [head, *offsets_panel(sight, chosen, width, room - 1)]
    if why := empty.no_map(chosen, origin):
        return [head, *_without(sight, chosen, why, width, room - 1)]
    choice, cells = sight.choice, width - LABEL - TOTALS
    cut = shape(cells, choice.window_us, sight.history.interval_us, sweep=choice.sweep)
    history = sight.history
    timeline = sight.sweep.slots(
        cut, choice.ops, history.frames, interval_us=history.interval_us, origin_us=history.origin_us
    )
    timeline.note(sight.found.moments)
    style = sight.sweep.style(timeline, room - 2, cells, sight.ink, choice.threshold_us)
    lines = labelled(timeline, chosen.device.name, style, width)
    cursor = choice.cursor or (across(choice.band, timeline, style.scale) if choice.band else None)
    if cursor is not None:
        region = cursor.region(style.scale)
        holds = picked(cursor, timeline, chosen.device.name, style.scale).holds
        told = None if history.is_glimpse else sum(map(holds, history.deep.outliers))
        head = headline(region, timeline, chosen.device.name, told)
        lines = framed(lines, region, timeline, style)
    below = axis(timeline, style)
    right = legend(style, width - line_width(below))
    return [head, *lines, (*fit(below, width - line_width(right)), *right)]


def _counted(sight: Sight, device: str) -> int | None:
    """Its I/Os above the threshold, where the cut is the one that the probe counts by."""
    choice, deep = sight.choice, sight.history.deep
    if choice.threshold_us is None or deep.thresholds_us.get(device) != choice.threshold_us:
        return None
    return sum(deep.above.get(Flow(device, op), 0) for op in choice.ops)


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
