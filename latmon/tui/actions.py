"""The one table of keys: it makes the bindings, the last line of the screen and the ? help, so they can't differ."""

from __future__ import annotations

from dataclasses import dataclass

from textual.binding import Binding

from latmon.tui.steps import STEPS
from latmon.views.lines import Line, Span


@dataclass(frozen=True, slots=True)
class Action:
    """What a key does: a step of steps.py, `by` so much, or else an action of the app's own.

    `keys` are Textual's names, `shown` what a person reads; `brief` puts it on the last line.
    """

    name: str
    keys: str
    shown: str
    does: str
    brief: str = ""
    by: int = 0

    @property
    def call(self) -> str:
        """What Textual runs."""
        return f"choose({self.name!r}, {self.by})" if self.name in STEPS else self.name


ACTIONS = (
    Action("stop", "q", "q", "quit", "quit"),
    Action("stop_now", "ctrl+c,ctrl+q", "Ctrl-C", "quit, whatever is open"),
    Action("help", "question_mark,f1,H", "?", "this page: keys, and what each number includes", "help"),
    Action("pause", "space", "space", "pause and go on; data keeps arriving", "pause"),
    Action("filter", "slash", "/", "show some devices: a part of a name, driver or model, or a glob", "filter"),
    Action("next_panel", "tab", "Tab", "table with one map, or a small map for each device", "maps"),
    Action("zoom", "enter", "Enter", "only the selected device", "zoom"),
    Action("sort", "s", "s", "sort by unlike, p99, max, IOPS, MB/s, out, name", "sort"),
    Action("ops", "o", "o", "all I/O, or only read, write, flush, discard, other", "op"),
    Action("window", "plus,equals_sign", "+", "longer window", by=1),
    Action("window", "minus", "-", "shorter window", by=-1),
    Action("record", "R", "R", "start and stop a recording"),
    Action("theme", "t", "t", "next theme"),
    Action("leave", "escape,backspace", "Esc", "back; clears the filter"),
    Action("move", "up,k,left,h", "↑ ← k h", "device before", by=-1),
    Action("move", "down,j,right,l", "↓ → j l", "device after", by=1),
    Action("move", "home,g", "Home g", "first device", by=-1000),
    Action("move", "end,G", "End G", "last device", by=1000),
)


_FIRST = ("stop_now", "next_panel")
"""Before any widget: quitting always works, and Textual would move the focus with Tab."""


def bindings(actions: tuple[Action, ...] = ACTIONS) -> list[Binding]:
    """The same table as Textual's bindings."""
    return [Binding(a.keys, a.call, a.does, show=False, priority=a.name in _FIRST) for a in actions]


def key_line(states: dict[str, str]) -> Line:
    """The last line: keys and what they do now; `states` maps an action's name to its current value."""
    spans: list[Span] = [Span(" ")]
    for action in ACTIONS:
        if action.brief:
            key = action.shown.split()[0]
            state = states.get(action.name, "")
            spans += [Span(key, "accent"), Span(f" {state or action.brief}  ", "dim")]
    return tuple(spans)
