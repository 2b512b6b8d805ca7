"""The last line of the screen: what the keys do now, or the filter while it is typed. Pure."""

from __future__ import annotations

from latmon.tui.actions import key_line
from latmon.tui.typed import Typed
from latmon.views.choice import SCREENS
from latmon.views.lines import Line, Span
from latmon.views.sight import Sight


def foot(sight: Sight, typed: Typed | None, theme: str, cells: int, *, switched: bool = True) -> Line:
    """The line for this moment. `switched`: the deep probes can be switched from here."""
    if typed is not None:
        return _typing(sight, typed)
    choice = sight.choice
    states = {
        "sort": choice.sort,
        "order": choice.order,
        "ops": choice.op if choice.screen != "outstanding" else "",
        "next_panel": "table" if choice.panel == "maps" else "maps",
        "zoom": "unzoom" if choice.panel == "zoom" else "zoom",
        "busy": "idle too" if choice.busy else "busy",
        "mark": "let go" if choice.cursor and choice.cursor.corner else "hold" if choice.cursor else "mark",
        "hold": "go on" if sight.history.paused else "pause",
        "stages": f"stages {choice.stages}" if switched else "",
        "theme": theme,
    }
    if choice.pattern:
        states["filter"] = choice.pattern
    return key_line(choice.context, states, cells, SCREENS.index(choice.screen))


def _typing(sight: Sight, typed: Typed) -> Line:
    text = f"  {len(sight.subjects())} of {len(sight.history.store.devices)} devices  "
    keys = (Span("Enter", "accent"), Span(" keep  ", "dim"), Span("Esc", "accent"), Span(" clear", "dim"))
    return (Span(" / ", "accent"), Span(typed.text, "strong"), Span("█"), Span(text, "dim"), *keys)
