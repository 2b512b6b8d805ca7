"""Keys -> choice: what each step of the action table makes of what the user looks at. Pure; changes nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from latmon.views.choice import OP_CHOICES, PANELS, SORTS, Choice, after, window_beside
from latmon.views.sight import Sight

Step = Callable[[Sight, int], Choice]
"""(what is looked at, how far) -> what to look at."""


def move(sight: Sight, by: int) -> Choice:
    """Another device, stopping at the ends."""
    choice, names = sight.choice, [s.device.name for s in sight.subjects()]
    if not names:
        return choice
    at = names.index(choice.selected) if choice.selected in names else 0
    return replace(choice, selected=names[min(max(at + by, 0), len(names) - 1)])


def next_panel(sight: Sight, _by: int) -> Choice:
    """The table with one map, or the small maps."""
    return replace(sight.choice, panel="maps" if sight.choice.panel != "maps" else PANELS[0])


def zoom(sight: Sight, _by: int) -> Choice:
    """The selected device alone, and back."""
    return replace(sight.choice, panel=PANELS[0] if sight.choice.panel == "zoom" else "zoom")


def leave(sight: Sight, _by: int) -> Choice:
    """Out of the zoom, then out of the filter, then back to the table."""
    choice = sight.choice
    if choice.panel != "zoom" and choice.pattern:
        return replace(choice, pattern="")
    return replace(choice, panel=PANELS[0])


def sort(sight: Sight, _by: int) -> Choice:
    """The table by the next column."""
    return replace(sight.choice, sort=after(SORTS, sight.choice.sort))


def ops(sight: Sight, _by: int) -> Choice:
    """The next op alone, then all."""
    return replace(sight.choice, op=after(tuple(name for name, _ in OP_CHOICES), sight.choice.op))


def window(sight: Sight, by: int) -> Choice:
    """A longer or a shorter window."""
    return replace(sight.choice, window_us=window_beside(sight.choice.window_us, by))


STEPS: Mapping[str, Step] = MappingProxyType(
    {
        "move": move,
        "next_panel": next_panel,
        "zoom": zoom,
        "leave": leave,
        "sort": sort,
        "ops": ops,
        "window": window,
    },
)
