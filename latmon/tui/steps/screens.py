"""Steps between the screens, into a closer look and back out of it."""

from __future__ import annotations

from dataclasses import replace

from latmon.tui.steps.outstanding import worth_a_look
from latmon.views.choice import OP_CHOICES, PANELS, SCREENS, Choice, after, window_beside
from latmon.views.sight import Sight


def screen(sight: Sight, by: int) -> Choice:
    """The screen of that number in SCREENS; the outstanding I/Os open on the device that is worth the look."""
    choice = replace(
        sight.choice,
        screen=SCREENS[by],
        selected=sight.choice.selected if sight.choice.is_selected else "",
        offered="",
        opened=False,
        top=0,
        cursor=None,
        region=None,
        aside="",
        band=None,
        back=None,
    )
    if choice.screen == "outstanding" and not choice.is_selected and (name := worth_a_look(sight)):
        return replace(choice, selected=name, offered=name)
    return choice


def enter(sight: Sight, _by: int) -> Choice:
    """The closer look at what is selected."""
    return replace(sight.choice, opened=True, top=0)


def leave(sight: Sight, _by: int) -> Choice:
    """One step back: the closer look, the region's outliers, its cursor, the zoom, the filter, the screen.

    From a finding's evidence to the finding.
    """
    choice = sight.choice
    out = _one_back(choice)
    if choice.back is not None and (choice.depth == choice.landed or out is None):
        return replace(choice.back, window_us=choice.window_us, stages=choice.stages)
    panel = PANELS[0] if choice.screen == "overview" else choice.panel
    return out or replace(choice, screen="overview", panel=panel)


def _one_back(choice: Choice) -> Choice | None:
    """None where it is the screen itself."""
    if choice.aside or choice.opened:
        return replace(choice, aside="", opened=False, top=0)
    if choice.region is not None:
        return replace(choice, region=None, screen="overview")
    if choice.cursor is not None:
        return replace(choice, cursor=None)
    if choice.screen == "overview" and choice.panel == "zoom":
        return replace(choice, panel=PANELS[0], band=None)
    if choice.pattern:
        return replace(choice, pattern="")
    return None


def ops(sight: Sight, _by: int) -> Choice:
    """The next op alone, then all."""
    return replace(sight.choice, op=after(tuple(name for name, _ in OP_CHOICES), sight.choice.op))


def window(sight: Sight, by: int) -> Choice:
    """A longer or a shorter window."""
    return replace(sight.choice, window_us=window_beside(sight.choice.window_us, by))


def scroll(sight: Sight, by: int) -> Choice:
    """Lines of a closer look; how many there are is known when it is drawn."""
    return replace(sight.choice, top=max(sight.choice.top + by, 0))


STEPS = {"screen": screen, "enter": enter, "leave": leave, "ops": ops, "window": window, "scroll": scroll}
