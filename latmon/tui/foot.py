"""The last line of the screen: what the keys do now, or the filter while it is typed. Pure."""

from __future__ import annotations

from latmon.tui.actions import key_line
from latmon.tui.asked import FILTER, SEEK, WORDS, Asked
from latmon.views.choice import SCREENS
from latmon.views.lines import Line, Span
from latmon.views.sight import Sight
from latmon.when import EXAMPLES

_SEEN = 60
"""Characters of what is typed."""


def foot(sight: Sight, asked: Asked | None, theme: str, cells: int, *, switched: bool = True) -> Line:
    """The line for this moment. `switched`: the deep probes can be switched from here."""
    if asked is not None:
        return _typing(sight, asked)
    choice = sight.choice
    states = {
        "sort": choice.sort,
        "order": choice.order,
        "ops": choice.op if choice.screen != "outstanding" else "",
        "next_panel": "table" if choice.panel == "maps" else "maps",
        "zoom": "unzoom" if choice.panel == "zoom" else "zoom",
        "busy": "idle too" if choice.busy else "busy",
        "mark": "let go" if choice.cursor and choice.cursor.corner else "hold" if choice.cursor else "mark",
        "hold": "go on" if sight.away else "pause",
        "stages": f"stages {choice.stages}" if switched else "",
        "theme": theme,
    }
    if choice.pattern:
        states["filter"] = choice.pattern
    return key_line(choice.context, states, cells, SCREENS.index(choice.screen))


def _typing(sight: Sight, asked: Asked) -> Line:
    """What is typed is seen to its end, however long it is."""
    if asked.purpose == FILTER:
        text = f"  {len(sight.subjects())} of {len(sight.history.store.devices)} devices  "
        does, undoes = "keep", "clear"
    else:
        text = f"  {EXAMPLES}  " if asked.purpose == SEEK else "  a note beside what happens now  "
        text = "  " if asked.typed.text else text
        does, undoes = "go" if asked.purpose == SEEK else "put", "leave"
    keys = (Span("Enter", "accent"), Span(f" {does}  ", "dim"), Span("Esc", "accent"), Span(f" {undoes}", "dim"))
    shown = asked.typed.text[-_SEEN:]
    return (Span(WORDS[asked.purpose], "accent"), Span(shown, "strong"), Span("█"), Span(text, "dim"), *keys)
