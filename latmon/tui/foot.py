"""The last line of the screen: what the keys do now, or the filter while it is typed. Pure."""

from __future__ import annotations

from latmon.tui.actions import key_line
from latmon.tui.typed import Typed
from latmon.views.lines import Line, Span
from latmon.views.sight import Sight


def foot(sight: Sight, typed: Typed | None, theme: str) -> Line:
    """The line for this moment."""
    return _states(sight, theme) if typed is None else _typing(sight, typed)


def _states(sight: Sight, theme: str) -> Line:
    choice = sight.choice
    states = {
        "sort": choice.sort,
        "ops": choice.op,
        "next_panel": "table" if choice.panel == "maps" else "maps",
        "zoom": "unzoom" if choice.panel == "zoom" else "zoom",
        "pause": "go on" if sight.history.paused else "pause",
        "filter": choice.pattern,
        "theme": theme,
    }
    return key_line(states)


def _typing(sight: Sight, typed: Typed) -> Line:
    text = f"  {len(sight.subjects())} of {len(sight.history.store.devices)} devices  "
    keys = (Span("Enter", "accent"), Span(" keep  ", "dim"), Span("Esc", "accent"), Span(" clear", "dim"))
    return (Span(" / ", "accent"), Span(typed.text, "strong"), Span("█"), Span(text, "dim"), *keys)
