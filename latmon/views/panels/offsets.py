"""The selected device's sub-second-offset map in place of its heat map: of a second, or folded to the kernel's tick."""

from __future__ import annotations

from latmon.views.lines import Line
from latmon.views.offsets import (
    LABEL,
    NO_DATA,
    SECOND_US,
    Moments,
    draw,
    moments,
    offset_map,
    rows_of,
    why_none,
    without,
)
from latmon.views.sight import Sight
from latmon.views.table import Subject
from latmon.views.timeline import Begin
from latmon.views.units import spelled

FOLDS = ("", "second", "tick")
"""No such map, and what its rows may be of."""
_USUAL_HZ = 250
_AROUND = 2
"""Lines that aren't rows."""


def offsets_panel(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    """Headline, rows, axis: `room` lines at most."""
    history, choice = sight.history, sight.choice
    some = events(sight, chosen.device.name)
    members = None if chosen.device.timed else chosen.device.members
    if why := why_none(some, recorded=sight.recorded, members=members):
        return without(why, width, room)
    hz = sight.origin.hz if sight.origin else None
    fold_us = SECOND_US if choice.fold != "tick" else SECOND_US // (hz or _USUAL_HZ)
    fine = bool(some.outliers or some.issues)
    if not fine and fold_us < 2 * some.window_us:
        why = f"only counts of windows are known here, and {spelled(some.window_us)} are too long to see"
        return without(f"{why} a tick of {spelled(fold_us)} in them", width, room)
    rows = rows_of(some.window_us, max(room - _AROUND, 1), fold_us, fine=fine)
    found = offset_map(some, history.until_us, choice.window_us, max(width - LABEL - 6, 1), rows, fold_us=fold_us)
    last = history.window.last
    wall_less_mono = last.wall - last.mono_us / 1e6 if last else 0.0
    begin = _begin(sight) if history.begin_us > found.begin_us else NO_DATA
    return draw(found, some, width, sight.ink, wall_less_mono=wall_less_mono, begin=begin)[:room]


def _begin(sight: Sight) -> Begin:
    first, origin_us = sight.history.window.frames[0], sight.history.origin_us
    is_start = origin_us is not None and sight.history.begin_us - origin_us < first.dt_us
    return Begin(first.wall - first.dt_us / 1e6, is_start=is_start)


def events(sight: Sight, device: str) -> Moments:
    """What is known of a device to less than a window, in the window that is shown."""
    history, choice = sight.history, sight.choice
    after_us = history.until_us - choice.window_us
    bursts = history.store.depths.bursts(device, after_us, history.until_us)
    return moments(device, history.deep.outliers, bursts, tuple(history.window.frames), choice.ops)
