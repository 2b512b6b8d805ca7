"""Steps among devices: which one, and how the overview shows them."""

from __future__ import annotations

from dataclasses import replace

from latmon.views.choice import PANELS, SORTS, Choice, after
from latmon.views.panels.offsets import FOLDS
from latmon.views.sight import Sight


def move(sight: Sight, by: int) -> Choice:
    """Another device, stopping at the ends."""
    choice, names = sight.choice, [s.device.name for s in sight.subjects()]
    if not names:
        return choice
    at = names.index(choice.selected) if choice.selected in names else 0
    return replace(choice, selected=names[min(max(at + by, 0), len(names) - 1)], band=None)


def next_panel(sight: Sight, _by: int) -> Choice:
    """The table with one map, or the small maps."""
    return replace(sight.choice, panel="maps" if sight.choice.panel != "maps" else PANELS[0])


def zoom(sight: Sight, _by: int) -> Choice:
    """The selected device alone, and back."""
    return replace(sight.choice, panel=PANELS[0] if sight.choice.panel == "zoom" else "zoom")


def sort(sight: Sight, _by: int) -> Choice:
    """The table by the next column."""
    return replace(sight.choice, sort=after(SORTS, sight.choice.sort))


def fold(sight: Sight, _by: int) -> Choice:
    """The offsets in the second, folded to the kernel's tick, and back to the heat map."""
    return replace(sight.choice, fold=after(FOLDS, sight.choice.fold))


STEPS = {"fold": fold, "move": move, "next_panel": next_panel, "zoom": zoom, "sort": sort}
