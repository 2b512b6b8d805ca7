"""The theme on this terminal: Rich styles by role and colour depth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from rich.color import Color
from rich.style import Style
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as TextualTheme

from latmon.model.stages import FACTS
from latmon.support.theme import Theme, load_theme, theme_names
from latmon.views.heatmap import RAMP, Ink

_FULL = ("truecolor", "256")
_PLAIN = {
    "text": Style(),
    "dim": Style(),
    "strong": Style(bold=True),
    "accent": Style(bold=True),
    "bad": Style(bold=True, underline=True),
    "gap": Style(),
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
    if staged:
        styles |= {f"stage{i}": Style(color=Color.parse(one.colour)) for i, one in enumerate(FACTS, 1) if one.colour}
    if depth != "none":
        styles |= {role: styles[role] + Style(color=Color.parse(c)) for role, c in theme.colours_16.items()}
    return Face(theme.name, MappingProxyType(styles), replace(RAMP, staged=staged), plain=True)


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
    return Ink(glyphs="▪" + "█" * len(theme.steps)) if theme.steps else RAMP


def _coloured(theme: Theme, depth: str) -> dict[str, Style]:
    c = theme.colours
    styles = {role: Style(color=_rgb(c[role]), bgcolor=_rgb(c["background"])) for role in c}
    styles["strong"] += Style(bold=True)
    styles["bad"] += Style(bold=True)
    styles["gap"] = styles["dim"]
    back = _rgb(c["background"])
    steps = [Color.from_ansi(i) for i in theme.steps_256] if depth == "256" else [_rgb(s) for s in theme.steps]
    for number, step in enumerate([_rgb(theme.floor or c["strong"]), *steps], 1):
        styles[f"heat{number}"] = Style(color=step, bgcolor=back)
    return styles


def _rgb(text: str) -> Color:
    return Color.parse(text)
