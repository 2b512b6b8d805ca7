"""Roles to colours without a terminal: of a theme, as RGB for a picture and as xterm's 256 for a cast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from latmon.theme import Theme
from latmon.views.heatmap import RAMP, Ink

_BOLD = ("strong", "bad")
XTERM = (
    *("#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5"),
    *("#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff"),
)
"""Its first 16 colours: those that a terminal may show as it likes."""
_CUBE = (0, 95, 135, 175, 215, 255)
_BLACK, _WHITE = "#000000", "#ffffff"


@dataclass(frozen=True, slots=True)
class Palette:
    """`rgb` and `ansi` by role; a role without a colour has the text's. `ink` is what the heat maps are drawn with."""

    background: str
    text: str
    rgb: Mapping[str, str]
    ansi: Mapping[str, int]
    """Empty for a theme without colours: the terminal's own."""
    ink: Ink
    bold: tuple[str, ...] = _BOLD

    @property
    def ansi_background(self) -> int | None:
        return nearest(self.background) if self.ansi else None


def palette(theme: Theme) -> Palette:
    """A theme's colours; one without any is black on white."""
    if not theme.colours:
        return Palette(_WHITE, _BLACK, {}, {}, RAMP, (*_BOLD, "accent"))
    colours = dict(theme.colours)
    rgb = colours | {"gap": colours["dim"]}
    ansi = {role: nearest(colour) for role, colour in rgb.items()}
    floor = theme.floor or colours["strong"]
    heat = [f"heat{i}" for i in range(1, len(theme.steps) + 2)]
    rgb |= dict(zip(heat, (floor, *theme.steps), strict=True))
    ansi |= dict(zip(heat, (nearest(floor), *theme.steps_256), strict=True))
    ink = Ink(glyphs="▪" + "█" * len(theme.steps)) if theme.steps else RAMP
    return Palette(colours["background"], colours["text"], rgb, ansi, ink)


def nearest(colour: str) -> int:
    """The colour of xterm's cube or greys that is nearest to #rrggbb."""
    parts = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    cube = [min(range(6), key=lambda i, part=part: abs(_CUBE[i] - part)) for part in parts]  # type: ignore[misc]
    grey = min(max(round((sum(parts) / 3 - 8) / 10), 0), 23)
    in_cube = 16 + 36 * cube[0] + 6 * cube[1] + cube[2]
    off_cube = sum((_CUBE[i] - part) ** 2 for i, part in zip(cube, parts, strict=True))
    off_grey = sum((8 + 10 * grey - part) ** 2 for part in parts)
    return 232 + grey if off_grey < off_cube else in_cube
