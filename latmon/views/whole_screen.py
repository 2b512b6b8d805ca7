"""The whole screen as lines: what a terminal shows, and what a picture or a cast of it does. Pure but for the scene."""

from __future__ import annotations

from latmon.views.lines import Line, Span, fit
from latmon.views.scene import MIN_SIZE, Scene


def screen_lines(scene: Scene, foot: Line, width: int, height: int) -> list[Line]:
    """Every line of the terminal, exactly `height` of them."""
    if width < MIN_SIZE[0] or height < MIN_SIZE[1]:
        small: list[Line] = [(Span("terminal too small", "strong"),), (Span(f"{MIN_SIZE[0]}x{MIN_SIZE[1]} needed"),)]
        return small[:height]
    panels = scene.draw(width, height)
    below = [*panels.notice, panels.health, fit(foot, width)]
    above = [panels.title, *panels.body][: height - len(below)]
    return [*above, *[()] * (height - len(below) - len(above)), *below]
