"""The theme on this terminal: Rich styles by role and colour depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType

from rich.color import Color, ColorSystem
from rich.style import Style

from latmon.model.stages import FACTS
from latmon.support.theme import Colour, Theme, ansi_colours, role_colours
from latmon.views.bars import BOLD, LETTER_ROLES
from latmon.views.heatmap import RAMP, TAIL, WAIT, Ink, solid
from latmon.views.lines import ODD

DEPTHS = MappingProxyType(
    {
        "none": ColorSystem.STANDARD,
        "8": ColorSystem.STANDARD,
        "16": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
    }
)
"""Colour depth -> the sequences that Rich sends for it."""
_FULL = ("truecolor", "256")
_STAGES = tuple(one.colour for one in FACTS)
_BRIGHT = 8
"""Number of the first bright colour of ANSI. With 8 colours bold replaces bright, as terminfo has it."""
_PLAIN = {
    "text": Style(),
    "dim": Style(),
    "strong": Style(bold=True),
    "accent": Style(bold=True),
    "bad": Style(bold=True, underline=True),
    "gap": Style(),
    "limit": Style(bold=True),
    "area": Style(),
    "depth": Style(),
    WAIT: Style(bold=True),
    "frame": Style(),
    "sel": Style(),
    ODD: Style(bold=True, reverse=True),
}


@dataclass(frozen=True, slots=True)
class Face:
    """Styles by role, and the heat map's ink."""

    name: str
    styles: Mapping[str, Style]
    ink: Ink
    glyphs: Mapping[int, str] = field(default_factory=dict)
    """Replacements of glyphs that the terminal lacks."""

    def text(self, text: str) -> str:
        """Return a text in the terminal's glyphs."""
        return text.translate(self.glyphs) if self.glyphs else text


def face(theme: Theme, depth: str, glyphs: Mapping[int, str] = MappingProxyType({})) -> Face:
    """Return the styles of a theme for one of DEPTHS; 16 colours and fewer keep the terminal's background.

    `glyphs`: as in Face.
    """
    return replace(_face(theme, depth), glyphs=glyphs)


def _face(theme: Theme, depth: str) -> Face:
    if depth in _FULL and theme.colours:
        styles = _coloured(role_colours(theme, _STAGES), depth)
        return Face(theme.name, MappingProxyType(styles), solid(len(theme.ramp.steps)))
    few = ansi_colours(theme, _STAGES) if depth != "none" else {}
    if not few:
        return Face(theme.name, MappingProxyType(_PLAIN | _selected(_PLAIN, Style(bold=True))), RAMP)
    only_8 = depth == "8"
    cells = theme.ramp.steps_8 if only_8 else theme.ramp.steps_16
    styles = _PLAIN | {"bad": Style(bold=True)} | dict.fromkeys(LETTER_ROLES, Style(bold=True))
    for role, number in few.items():
        styles[role] = styles.get(role, Style()) + (_of_8(number) if only_8 else Style(color=Color.from_ansi(number)))
    styles[ODD] = styles["bad"] + styles[ODD]
    styles |= {f"heat{number}": Style(color=Color.from_ansi(cell.ansi)) for number, cell in enumerate(cells, 1)}
    back = few["sel"] % _BRIGHT if only_8 else few["sel"]
    styles |= _selected(styles, Style(bgcolor=Color.from_ansi(back)))
    ink = Ink(glyphs="".join(cell.glyph for cell in cells), halves=False) if cells else RAMP
    return Face(theme.name, MappingProxyType(styles), ink)


def _selected(styles: Mapping[str, Style], back: Style) -> dict[str, Style]:
    """Return the styles of texts in a selected row and in the header."""
    return {f"{role}/sel": style + back for role, style in styles.items() if "/" not in role}


def _of_8(number: int) -> Style:
    """Return an ANSI colour on a terminal with 8; bright black is black on some, and has the terminal's own instead."""
    if number == _BRIGHT:
        return Style()
    return Style(color=Color.from_ansi(number % _BRIGHT), bold=True if number > _BRIGHT else None)


def _coloured(some: Mapping[str, Colour], depth: str) -> dict[str, Style]:
    shown = {role: Color.from_ansi(one.xterm) if depth == "256" else Color.parse(one.rgb) for role, one in some.items()}
    styles = {role: Style(color=colour, bgcolor=shown["background"]) for role, colour in shown.items()}
    for role in BOLD:
        styles[role] += Style(bold=True)
    styles |= _selected(styles, Style(bgcolor=shown["sel"]))
    styles[ODD] = Style(color=shown["background"], bgcolor=shown["bad"], bold=True)
    cells = [role for role in shown if role.startswith("heat") or role == TAIL]
    for upper, lower in permutations(cells, 2):  # of the two halves of a cell
        styles[f"{upper}/{lower}"] = Style(color=shown[upper], bgcolor=shown[lower])
    return styles
