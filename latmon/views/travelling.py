"""Where the user stands in time, in words: how far behind, what happened there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latmon.moments import Moment
from latmon.views.units import clock

if TYPE_CHECKING:
    from latmon.views.sight import Sight

_MINUTE_S, _HOUR_S = 60, 3600
_MOST = 3


def whole(us: int) -> str:
    """0:05, 3:20, 1:03:20: a distance in time in whole seconds."""
    seconds = round(us / 1e6)
    minutes, rest = divmod(seconds, _MINUTE_S)
    hours = f"{minutes // 60}:{minutes % 60:02}" if seconds >= _HOUR_S else str(minutes)
    return f"{hours}:{rest:02}"


def happened(sight: Sight) -> str:
    """What happened beside the I/O where the cursor is, or at the time that is looked at; empty where nothing did."""
    some = _here(sight)
    said = list(dict.fromkeys(f"{clock(one.wall)} {one.text}" for one in some))
    more = f"; and {len(said) - _MOST} more" if len(said) > _MOST else ""
    return "; ".join(said[:_MOST]) + more


def _here(sight: Sight) -> list[Moment]:
    cursor, drawn = sight.choice.cursor, sight.sweep.drawn
    if cursor is not None and drawn is not None:
        column = next((c for c in drawn.timeline.columns if c.number == cursor.at.column), None)
        return column.moments if column is not None else []
    last = sight.history.window.last
    if not sight.away or last is None:
        return []
    some = [*sight.history.moments(), *sight.found.moments]
    return [one for one in some if last.mono_us - last.dt_us < one.mono_us <= last.mono_us]
