"""Themes and ramps: YAML files read into validated values, and the colour of each role. Knows colours, not drawing.

A theme has the colours of texts and lines, a ramp those of counts; a user chooses them apart. Their files are foreign
input: at most 64 KiB, known keys only, no aliases, every colour parsed; a ThemeError names file, line and key. The
user's directories come before latmon's, so that a theme or a ramp can be replaced by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import yaml

from latmon.support import paths, strict_yaml
from latmon.support.errors import ThemeError
from latmon.support.paths import data_dir

T = TypeVar("T")
MAX_BYTES = 64 * 1024
ROLES = ("background", "text", "dim", "strong", "accent", "bad")
ANSI = tuple(
    f"{bright}{name}"
    for bright in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
XTERM = (
    *("#000000", "#cd0000", "#00cd00", "#cdcd00", "#0000ee", "#cd00cd", "#00cdcd", "#e5e5e5"),
    *("#7f7f7f", "#ff0000", "#00ff00", "#ffff00", "#5c5cff", "#ff00ff", "#00ffff", "#ffffff"),
)
"""The colours of ANSI in xterm; a terminal may show them as it likes."""
GLYPHS = "·:░▒▓█"
"""Glyphs of a ramp with few colours, from light to dense."""
AUTO = "auto"
"""The ramp of the theme, else DEFAULT_RAMP."""
DEFAULT_THEME = "dark"
DEFAULT_RAMP = "cividis"
OUR_THEMES = ("dark", "light", "high-contrast", "mono", "solarized", "colour-blind", "phosphor")
OUR_RAMPS = (DEFAULT_RAMP, "viridis", "inferno", "mono")
_CUBE = (0, 95, 135, 175, 215, 255)
_GREYS = 232
"""First of xterm's greys."""
READABLE = 4.5
"""Contrast that WCAG 2 demands of texts."""
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_STEPS, _FEW = range(4, 17), range(4, 7)
"""Steps of a ramp with many colours, and of one with 16 or 8."""
BACKGROUNDS = ("sel", "critical", "warning")
"""Roles of backgrounds: `text/sel` is text on one."""
_TAIL_ANSI = {True: 9, False: 1}
_FAINT = 0.6
"""Share of the colour of `dim` in that of `faint`, what a tour does not point at; the background has the rest."""
_TOO_DARK = (0, 3, 4, 8)
"""ANSI colours that are no texts on dark: black, yellow (brown on a console), blue, bright black. On light, few are."""
_ON_LIGHT = {7: 8, 8: 7, 3: 11, **{bright: bright - 8 for bright in range(9, 16)}}
"""ANSI colour of a stage on dark -> the darker one on light, where bright ones can't be seen; yellow makes room."""
Where = tuple[str | int, ...]
"""Keys from the top of a file down; a number is the position in a list."""


class Colour(NamedTuple):
    """A role's colour: as rgb, and of xterm's 256."""

    rgb: str
    xterm: int


class RampStep(NamedTuple):
    """A step of a ramp with few colours: one of ANSI, and a glyph."""

    ansi: int
    glyph: str


class _Accent(NamedTuple):
    rgb: str
    ansi: int
    xterm: int | None = None
    """Of xterm's 256, where the nearest one would be a grey."""


_ACCENTS = {
    True: {
        "limit": _Accent("#7ee0b8", 10),
        "frame": _Accent("#3b444f", 8),
        "area": _Accent("#5f7f9f", 6),
        "depth": _Accent("#7c6f9f", 5),
        "wait": _Accent("#ffffff", 15),
        "sel": _Accent("#1d2835", 0),
        "critical": _Accent("#4f1a1c", 0, 52),
        "warning": _Accent("#2e2b22", 0, 236),
    },
    False: {
        "limit": _Accent("#116149", 5),
        "frame": _Accent("#c3c7cb", 7),
        "area": _Accent("#7a93ad", 6),
        "depth": _Accent("#9484b5", 5),
        "wait": _Accent("#000000", 0),
        "sel": _Accent("#e3ecf7", 7),
        "critical": _Accent("#ffdcd7", 7, 224),
        "warning": _Accent("#f7f0d0", 7, 230),
    },
}
"""Roles that a theme may leave out: threshold, frame lines, bars of no stage, I/Os in flight, and the backgrounds of
the header and of a selected row, and of critical findings and warnings in the verdict. On dark, on light.
"""
ACCENTS = tuple(_ACCENTS[True])


@dataclass(frozen=True, slots=True)
class Ramp:
    """Colours of counts for one background, few to many I/Os, per colour depth. Steps differ in luminance."""

    name: str = ""
    steps: tuple[str, ...] = ()
    steps_256: tuple[int, ...] = ()
    steps_16: tuple[RampStep, ...] = ()
    steps_8: tuple[RampStep, ...] = ()
    tail: str = ""
    """The colour of I/Os above the threshold, where that of a theme could be taken for a step."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by role, and the ramp. A theme without colours is monochrome: its heat map is a ramp of glyphs."""

    name: str
    dark: bool = True
    colours: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    colours_16: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tail: str = ""
    """The colour of I/Os above the threshold. Where it is empty, they have that of `bad`."""
    ramp: Ramp = Ramp()


def role_colours(theme: Theme, stages: Iterable[tuple[str, int, int]]) -> dict[str, Colour]:
    """Return role -> colour for terminals and pictures with 256 colours or more; empty for a theme without colours.

    `stages`: the colours of the stages in their order, each as rgb, of xterm's 256 and of ANSI.
    """
    own = theme.colours
    if not own:
        return {}
    texts = {role: accent.rgb for role, accent in _ACCENTS[theme.dark].items()} | dict(own)
    texts |= {"gap": own["dim"], "tail": theme.ramp.tail or theme.tail or own["bad"]}
    texts["faint"] = mixed(own["dim"], own["background"], _FAINT)
    colours = {role: Colour(rgb, nearest(rgb)) for role, rgb in texts.items()}
    for role, accent in _ACCENTS[theme.dark].items():
        if accent.xterm is not None and role not in own:
            colours[role] = Colour(accent.rgb, accent.xterm)
    ramp = zip(theme.ramp.steps, theme.ramp.steps_256, strict=True)
    colours |= {f"heat{number}": Colour(rgb, xterm) for number, (rgb, xterm) in enumerate(ramp, 1)}
    for number, (rgb, xterm, _) in enumerate(stages, 1):
        colour = colours[f"stage{number}"] = Colour(rgb, xterm)
        colours[f"letter{number}"] = colour if _is_text(colour, colours["background"]) else colours["text"]
    return colours


def ansi_colours(theme: Theme, stages: Iterable[tuple[str, int, int]]) -> dict[str, int]:
    """Return role -> number of the ANSI colour, without the ramp; a role that is missing has the terminal's own.

    It is empty for a theme without colours.
    """
    if not (theme.colours or theme.colours_16):
        return {}
    colours = {role: accent.ansi for role, accent in _ACCENTS[theme.dark].items()} | {"tail": _TAIL_ANSI[theme.dark]}
    swapped = {} if theme.dark else _ON_LIGHT
    for number, (_, _, ansi) in enumerate(stages, 1):
        colours[f"stage{number}"] = swapped.get(ansi, ansi)
        if theme.dark and ansi not in _TOO_DARK:
            colours[f"letter{number}"] = ansi
    return colours | {role: ANSI.index(name) for role, name in theme.colours_16.items()}


def mixed(first_colour: str, other: str, share: float) -> str:
    """Return a colour between two, as #rrggbb; `share`: of the first one."""
    parts = []
    for at in (1, 3, 5):
        first, second = int(first_colour[at : at + 2], 16), int(other[at : at + 2], 16)
        parts.append(round(first * share + second * (1 - share)))
    return "#{:02x}{:02x}{:02x}".format(*parts)


def _is_text(colour: Colour, background: Colour) -> bool:
    """Return whether a text of a colour can be read, as rgb and of xterm's 256."""
    ours = contrast(colour.rgb, background.rgb), contrast(_of_xterm(colour.xterm), _of_xterm(background.xterm))
    return min(ours) >= READABLE


def contrast(first_colour: str, other: str) -> float:
    """Return the contrast of two colours by WCAG 2, 1 to 21."""
    low, high = sorted((_luminance(first_colour), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)  # noqa: PLR2004  sRGB
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _of_xterm(index: int) -> str:
    """Return a colour of xterm's cube or greys as #rrggbb."""
    if index >= _GREYS:
        return "#" + f"{8 + 10 * (index - _GREYS):02x}" * 3
    return "#" + "".join(f"{_CUBE[(index - 16) // by % 6]:02x}" for by in (36, 6, 1))


def nearest(colour: str) -> int:
    """Return the colour of xterm's cube or greys that is nearest to #rrggbb."""
    parts = tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    cube = [min(range(6), key=lambda i, part=part: abs(_CUBE[i] - part)) for part in parts]  # type: ignore[misc]
    grey = min(max(round((sum(parts) / 3 - 8) / 10), 0), 23)
    in_cube = 16 + 36 * cube[0] + 6 * cube[1] + cube[2]
    off_cube = sum((_CUBE[i] - part) ** 2 for i, part in zip(cube, parts, strict=True))
    off_grey = sum((8 + 10 * grey - part) ** 2 for part in parts)
    return _GREYS + grey if off_grey < off_cube else in_cube


def theme_dirs() -> tuple[Path, ...]:
    """Return the directories of themes, the user's first; `ramps` in each has the ramps."""
    return paths.config(os.environ) / "themes", Path("/etc/xdg/latmon/themes"), data_dir("themes")


def theme_names(dirs: tuple[Path, ...] | None = None) -> tuple[str, ...]:
    """Return the names of all themes: latmon's, then others in alphabetical order."""
    return _names(dirs or theme_dirs(), OUR_THEMES)


def ramp_names(dirs: tuple[Path, ...] | None = None) -> tuple[str, ...]:
    """Return the names of all ramps: `auto`, latmon's, then others in alphabetical order."""
    return AUTO, *_names(_ramp_dirs(dirs), OUR_RAMPS)


def load_theme(name: str, dirs: tuple[Path, ...] | None = None, *, ramp: str = AUTO) -> Theme:
    """Return a theme with a ramp, both by name. Raises ThemeError that lists the names."""
    path = _found(name, dirs or theme_dirs())
    if path is None:
        raise ThemeError(f"no theme {name!r}; there are {', '.join(theme_names(dirs))}")
    theme = replace(read_theme(path), name=name)
    return theme if ramp == AUTO else replace(theme, ramp=load_ramp(ramp, dark=theme.dark, dirs=dirs))


def load_ramp(name: str, *, dark: bool, dirs: tuple[Path, ...] | None = None) -> Ramp:
    """Return the ramp called `name` for a background. Raises ThemeError that lists the ramps."""
    path = _found(name, _ramp_dirs(dirs))
    if path is None:
        raise ThemeError(f"no ramp {name!r}; there are {', '.join(ramp_names(dirs))}")
    return replace(read_ramp(path, dark=dark), name=name)


def read_theme(path: Path) -> Theme:
    """Return the validated theme of a file, with its own ramp or the default one. Raises ThemeError."""
    return _read(path, _theme)


def read_ramp(path: Path, *, dark: bool) -> Ramp:
    """Return the validated ramp of a file for a dark or a light background. Raises ThemeError."""
    return _read(path, _ramps)[not dark]


def _ramp_dirs(dirs: tuple[Path, ...] | None) -> tuple[Path, ...]:
    return tuple(directory / "ramps" for directory in (*(dirs or theme_dirs()), data_dir("themes")))


def _names(dirs: Iterable[Path], ours: tuple[str, ...]) -> tuple[str, ...]:
    stems = {path.stem for directory in dirs for path in _files(directory)}
    return tuple(n for n in ours if n in stems) + tuple(sorted(stems.difference(ours)))


def _found(name: str, dirs: Iterable[Path]) -> Path | None:
    return next((path for directory in dirs for path in _files(directory) if path.stem == name), None)


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files that may be themes; none of a directory that can't be read."""
    try:
        found_paths = [Path(dir_entry.path) for dir_entry in os.scandir(directory)]
    except OSError:
        return
    named = (path for path in found_paths if path.suffix == ".yaml" and _NAME.fullmatch(path.stem))
    yield from (path for path in named if os.path.isfile(path))  # noqa: PTH113  False, not ELOOP, for a link to itself


class _MistakeError(Exception):
    """A mistake in a file; `key` is the key that is wrong itself, not its value."""

    def __init__(self, where: Where, text: str, key: object = None) -> None:
        super().__init__(text)
        self.where = where
        self.at = where if key is None else (*where, str(key))


def _read(path: Path, parse_theme: Callable[[object], T]) -> T:
    """Return what `made` returns for the YAML of a file. Raises ThemeError."""
    try:
        raw = paths.regular(path, MAX_BYTES + 1)
    except OSError as error:
        raise ThemeError(f"{path}: can't be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ThemeError(f"{path}: larger than {MAX_BYTES // 1024} KiB")
    try:
        return parse_theme(strict_yaml.load(raw))
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ThemeError(f"{path}{line}: not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ThemeError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except _MistakeError as error:
        keys = (f"item {key + 1}" if isinstance(key, int) else key for key in error.where)
        where = ": ".join((f"{path}:{strict_yaml.line_of(raw, error.at)}", *keys))
        raise ThemeError(f"{where}: {error}") from error


def _theme(value: object) -> Theme:
    top = _mapping(value, (), ("name", "dark", "colours", "colours_16", "heatmap"))
    _check_name(top)
    dark = top.get("dark", True)
    if not isinstance(dark, bool):
        raise _MistakeError(("dark",), "true or false")
    own = _mapping(top.get("colours", {}), ("colours",), (*ROLES, *ACCENTS))
    if own and (missing := [role for role in ROLES if role not in own]):
        raise _MistakeError(("colours",), f"{', '.join(missing)} missing")
    ansi = _mapping(top.get("colours_16", {}), ("colours_16",), (*ROLES[1:], *ACCENTS))
    tail, ramp = _heatmap(top.get("heatmap", {}), load_ramp(DEFAULT_RAMP, dark=dark, dirs=(data_dir("themes"),)))
    return Theme(
        name=str(top["name"]),
        dark=dark,
        colours=MappingProxyType({k: _hex(v, ("colours", k)) for k, v in own.items()}),
        colours_16=MappingProxyType({k: ANSI[_ansi(v, ("colours_16", k))] for k, v in ansi.items()}),
        tail=tail,
        ramp=ramp,
    )


def _heatmap(value: object, default: Ramp) -> tuple[str, Ramp]:
    """Return the colour of the tail and the theme's own ramp, else the default one."""
    where: Where = ("heatmap",)
    heat = _mapping(value, where, ("tail", "floor", "steps", "steps_256"))
    key = "floor" if "tail" not in heat and "floor" in heat else "tail"  # themes of 0.1 have the former
    tail = _hex(heat[key], (*where, key)) if key in heat else ""
    if "steps" not in heat and "steps_256" not in heat:
        return tail, default
    return tail, replace(default, name="", tail="", **_many(heat, where))


def _ramps(value: object) -> tuple[Ramp, Ramp]:
    """Return a ramp for a dark and for a light background."""
    top = _mapping(value, (), ("name", "dark", "light"))
    _check_name(top)
    return _ramp(top, "dark"), _ramp(top, "light")


def _ramp(top: Mapping[str, object], side: str) -> Ramp:
    steps = _mapping(top.get(side), (side,), ("tail", "steps", "steps_256", "steps_16", "steps_8"))
    few: dict[str, tuple[Any, ...]] = {key: _few(steps.get(key), (side, key)) for key in ("steps_16", "steps_8")}
    if any(cell.ansi >= len(ANSI) // 2 for cell in few["steps_8"]):
        raise _MistakeError((side, "steps_8"), f"only {', '.join(ANSI[: len(ANSI) // 2])}")
    tail = _hex(steps["tail"], (side, "tail")) if "tail" in steps else ""
    return Ramp(str(top["name"]), **_many(steps, (side,)), **few, tail=tail)


def _many(steps: Mapping[str, object], where: Where) -> dict[str, tuple[Any, ...]]:
    """Return `steps` and `steps_256`."""
    rgb = _sequence(steps.get("steps"), (*where, "steps"), _STEPS)
    indices = _sequence(steps.get("steps_256"), (*where, "steps_256"), _STEPS)
    if len(indices) != len(rgb):
        raise _MistakeError((*where, "steps_256"), "as many as steps")
    return {
        "steps": tuple(_hex(colour, (*where, "steps", at)) for at, colour in enumerate(rgb)),
        "steps_256": tuple(_index(number, (*where, "steps_256", at)) for at, number in enumerate(indices)),
    }


def _few(value: object, where: Where) -> tuple[RampStep, ...]:
    """Return the steps of texts such as `bright_blue ▒`."""
    ramp_steps = []
    for at, ramp in enumerate(_sequence(value, where, _FEW)):
        name, _, glyph = str(ramp).partition(" ")
        if len(glyph) != 1 or glyph not in GLYPHS:
            raise _MistakeError((*where, at), f"a colour and one of {' '.join(GLYPHS)}, such as `bright_blue ▒`")
        ramp_steps.append(RampStep(_ansi(name, (*where, at)), glyph))
    return tuple(ramp_steps)


def _check_name(top: Mapping[str, object]) -> None:
    name = top.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _MistakeError(("name",), "letters, digits, - and _ only")


def _mapping(value: object, where: Where, known: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _MistakeError(where, f"a mapping of {', '.join(known)}")
    for key in value:
        if key not in known:
            raise _MistakeError(where, f"unknown key {str(key)[:40]!r}; known are {', '.join(known)}", key)
    return value


def _sequence(value: object, where: Where, sizes: range) -> list[object]:
    if not isinstance(value, list) or len(value) not in sizes:
        raise _MistakeError(where, f"a list of {sizes.start} to {sizes.stop - 1}, few to many I/Os")
    return value


def _hex(value: object, where: Where) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise _MistakeError(where, 'a colour like "#5fd7ff"')
    return value.lower()


def _index(value: object, where: Where) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 16 <= value <= 255:  # noqa: PLR2004  the fixed part of xterm's palette
        raise _MistakeError(where, "numbers from 16 to 255")
    return value


def _ansi(value: object, where: Where) -> int:
    if value not in ANSI:
        raise _MistakeError(where, f"one of {', '.join(ANSI)}")
    return ANSI.index(str(value))
