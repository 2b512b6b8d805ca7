"""The theme on this terminal: Rich styles by role and colour depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from types import MappingProxyType

from rich.color import Color
from rich.style import Style
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as TextualTheme

from latmon.model.stages import FACTS
from latmon.support.theme import Theme, load_theme, theme_names
from latmon.views.heatmap import RAMP, RAMP_16, TAIL, Ink

_FULL = ("truecolor", "256")
_HEAT_16 = (4, 12, 6, 10, 11, 15)
"""Their luminance rises on xterm and on the Linux console."""
_ROLES_16 = MappingProxyType({TAIL: 15, "limit": 10, "area": 6, "frame": 8})
_PLAIN = {
    "text": Style(),
    "dim": Style(),
    "strong": Style(bold=True),
    "accent": Style(bold=True),
    "bad": Style(bold=True, underline=True),
    "gap": Style(),
    "limit": Style(bold=True),
    "area": Style(),
    "frame": Style(),
}


@dataclass(frozen=True, slots=True)
class Face:
    """Styles by role, the heat map's ink, and whether the terminal's own colours are kept (16 colours and none)."""

    name: str
    styles: Mapping[str, Style]
    ink: Ink
    plain: bool


def face(theme: Theme, depth: str) -> Face:
    """Return the styles of a theme; 16 colours and none keep the terminal's background."""
    if depth in _FULL and theme.colours:
        return Face(theme.name, MappingProxyType(_coloured(theme, depth)), _ink(theme), plain=False)
    styles = dict(_PLAIN)
    staged = depth != "none" and bool(theme.colours_16)
    ink = replace(RAMP, staged=staged)
    if staged and theme.dark:
        ink = replace(RAMP_16, staged=True)
        styles |= {f"heat{i}": Style(color=Color.from_ansi(n)) for i, n in enumerate(_HEAT_16, 1)}
        styles |= {role: Style(color=Color.from_ansi(n)) for role, n in _ROLES_16.items()}
    if staged:
        styles |= {f"stage{i}": Style(color=Color.from_ansi(one.colour.ansi)) for i, one in enumerate(FACTS, 1)}
    if depth != "none":
        styles |= {role: styles[role] + Style(color=Color.parse(c)) for role, c in theme.colours_16.items()}
    return Face(theme.name, MappingProxyType(styles), ink, plain=True)


def next_theme(theme: Theme) -> Theme:
    """Return the theme after this one, after the last the first; raise ThemeError for an invalid file."""
    names = theme_names()
    at = names.index(theme.name) if theme.name in names else -1
    return load_theme(names[(at + 1) % len(names)])


def textual_theme(theme: Theme, *, plain: bool) -> TextualTheme:
    """Return the theme for Textual itself: the background, or the terminal's own."""
    c = theme.colours
    if plain or not c:
        return BUILTIN_THEMES["ansi-dark"]
    return TextualTheme(
        name=f"latmon-{theme.name}",
        primary=c["accent"],
        foreground=c["text"],
        background=c["background"],
        surface=c["background"],
        panel=c["background"],
        dark=theme.dark,
    )


def _ink(theme: Theme) -> Ink:
    return Ink(glyphs="█" * len(theme.steps)) if theme.steps else RAMP


def _coloured(theme: Theme, depth: str) -> dict[str, Style]:
    c = theme.colours
    styles = {role: Style(color=_rgb(c[role]), bgcolor=_rgb(c["background"])) for role in c}
    styles["strong"] += Style(bold=True)
    styles["bad"] += Style(bold=True)
    styles["gap"] = styles["dim"]
    back = _rgb(c["background"])
    steps = [Color.from_ansi(i) for i in theme.steps_256] if depth == "256" else [_rgb(s) for s in theme.steps]
    heat = {f"heat{number}": step for number, step in enumerate(steps, 1)} | {TAIL: _rgb(theme.tail or c["strong"])}
    styles |= {role: Style(color=colour, bgcolor=back) for role, colour in heat.items()}
    for upper, lower in permutations(heat, 2):  # of the two halves of a cell
        styles[f"{upper}/{lower}"] = Style(color=heat[upper], bgcolor=heat[lower])
    styles |= {role: Style(color=_rgb(colour), bgcolor=back) for role, colour in theme.accents.items()}
    for number, one in enumerate(FACTS, 1):
        colour = Color.from_ansi(one.colour.xterm) if depth == "256" else _rgb(one.colour.rgb)
        styles[f"stage{number}"] = Style(color=colour, bgcolor=back)
    return styles


def _rgb(text: str) -> Color:
    return Color.parse(text)
