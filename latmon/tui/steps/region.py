"""Steps of the cursor on the selected device's map, and from its region to the outliers in it."""

from __future__ import annotations

from dataclasses import replace

from latmon.views.choice import Choice
from latmon.views.cursor import across as band_cursor
from latmon.views.cursor import begun, picked
from latmon.views.sight import Sight, selected


def mark(sight: Sight, _by: int) -> Choice:
    """The device alone and a cursor on its map; with a cursor there, hold this corner or let go of it."""
    choice, drawn, chosen = sight.choice, sight.sweep.drawn, selected(sight.subjects())
    if choice.cursor is not None:
        return replace(choice, cursor=choice.cursor.held())
    if drawn is None or chosen is None or choice.panel == "maps":
        return replace(choice, panel="zoom")
    band, timeline, scale = choice.band, drawn.timeline, drawn.scale
    cursor = band_cursor(band, timeline, scale) if band else begun(timeline, chosen.device.name, scale)
    return replace(choice, panel="zoom", selected=chosen.device.name, cursor=cursor, band=None)


def across(sight: Sight, by: int) -> Choice:
    """To a later or an earlier column."""
    return _moved(sight, by, 0)


def up(sight: Sight, by: int) -> Choice:
    """To a slower or a faster row."""
    return _moved(sight, 0, by)


def grow_across(sight: Sight, by: int) -> Choice:
    """The same with the corner held."""
    return _moved(_holding(sight), by, 0)


def grow_up(sight: Sight, by: int) -> Choice:
    """The same with the corner held."""
    return _moved(_holding(sight), 0, by)


def gather(sight: Sight, _by: int) -> Choice:
    """The outliers in the region."""
    choice, drawn = sight.choice, sight.sweep.drawn
    if choice.cursor is None or drawn is None:
        return choice
    region = picked(choice.cursor, drawn.timeline, choice.selected, drawn.scale)
    return replace(choice, screen="outliers", region=region, outlier=None, opened=False)


def _holding(sight: Sight) -> Sight:
    cursor = sight.choice.cursor
    if cursor is None or cursor.corner is not None:
        return sight
    return replace(sight, choice=replace(sight.choice, cursor=cursor.held()))


def _moved(sight: Sight, columns: int, rows: int) -> Choice:
    choice, drawn = sight.choice, sight.sweep.drawn
    if choice.cursor is None or drawn is None:
        return choice
    return replace(choice, cursor=choice.cursor.moved(columns, rows, drawn.timeline, drawn.scale))


STEPS = {
    "mark": mark,
    "across": across,
    "up": up,
    "grow_across": grow_across,
    "grow_up": grow_up,
    "gather": gather,
}
