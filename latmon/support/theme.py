"""Themes: YAML files read into one validated value. Knows colours, not drawing.

A theme file is foreign input: at most 64 KiB, known keys only, no aliases, every colour parsed; a ThemeError names file
and key. The user's directories come before latmon's, so that a theme can be replaced by name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

from latmon.support import paths, strict_yaml
from latmon.support.errors import ThemeError
from latmon.support.paths import data_dir

MAX_BYTES = 64 * 1024
ROLES = ("background", "text", "dim", "strong", "accent", "bad")
ANSI = tuple(
    f"{bright}{name}"
    for bright in ("", "bright_")
    for name in ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
)
_HEX = re.compile(r"#[0-9a-fA-F]{6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_STEPS = range(4, 17)
_ACCENTS = {
    True: MappingProxyType({"limit": "#7ee0b8", "frame": "#3b444f", "area": "#5f7f9f"}),
    False: MappingProxyType({"limit": "#116149", "frame": "#c3c7cb", "area": "#7a93ad"}),
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours by role. A theme without colours is monochrome; without steps the heat map is a ramp of glyphs."""

    name: str
    dark: bool = True
    colours: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    colours_16: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tail: str = ""
    """The colour of I/Os above p99.9. Where it is empty, they have that of `strong`."""
    steps: tuple[str, ...] = ()
    steps_256: tuple[int, ...] = ()

    @property
    def accents(self) -> Mapping[str, str]:
        """Return the colours of the threshold, of frame lines and of bars that are no stage."""
        return _ACCENTS[self.dark]


def theme_dirs() -> tuple[Path, ...]:
    """Return the directories of themes, the user's first."""
    return paths.config(os.environ) / "themes", Path("/etc/xdg/latmon/themes"), data_dir("themes")


def theme_names(dirs: tuple[Path, ...] | None = None) -> tuple[str, ...]:
    """Return the names of all themes: latmon's, then others in alphabetical order."""
    found = {path.stem for directory in dirs or theme_dirs() for path in _files(directory)}
    ours = ("dark", "light", "high-contrast", "mono")
    return tuple(n for n in ours if n in found) + tuple(sorted(found.difference(ours)))


def load_theme(name: str, dirs: tuple[Path, ...] | None = None) -> Theme:
    """Return the theme called `name`. Raises ThemeError that lists the themes."""
    for directory in dirs or theme_dirs():
        path = directory / f"{name}.yaml"
        if path in _files(directory):
            return read_theme(path)
    raise ThemeError(f"no theme {name!r}; there are {', '.join(theme_names(dirs))}")


def read_theme(path: Path) -> Theme:
    """Return the validated theme of a file. Raises ThemeError."""
    try:
        raw = paths.regular(path, MAX_BYTES + 1)
    except OSError as error:
        raise ThemeError(f"{path}: can't be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ThemeError(f"{path}: larger than {MAX_BYTES // 1024} KiB")
    try:
        value = strict_yaml.load(raw)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ThemeError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    return _theme(value, str(path))


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files that may be themes; none of a directory that can't be read."""
    try:
        found = [Path(one.path) for one in os.scandir(directory) if one.is_file()]
    except OSError:
        return
    yield from (path for path in found if path.suffix == ".yaml" and _NAME.fullmatch(path.stem))


def _theme(value: object, where: str) -> Theme:
    top = _mapping(value, where, ("name", "dark", "colours", "colours_16", "heatmap"))
    name = top.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ThemeError(f"{where}: name: letters, digits, - and _ only")
    dark = top.get("dark", True)
    if not isinstance(dark, bool):
        raise ThemeError(f"{where}: dark: true or false")
    colours = _mapping(top.get("colours", {}), f"{where}: colours", ROLES)
    if colours and (missing := [role for role in ROLES if role not in colours]):
        raise ThemeError(f"{where}: colours: {', '.join(missing)} missing")
    ansi = _mapping(top.get("colours_16", {}), f"{where}: colours_16", ROLES[1:])
    heat = _mapping(top.get("heatmap", {}), f"{where}: heatmap", ("tail", "floor", "steps", "steps_256"))
    tail, steps, steps_256 = _heatmap(heat, f"{where}: heatmap") if heat else ("", (), ())
    return Theme(
        name=name,
        dark=dark,
        colours=MappingProxyType({k: _hex(v, f"{where}: colours: {k}") for k, v in colours.items()}),
        colours_16=MappingProxyType({k: _ansi(v, f"{where}: colours_16: {k}") for k, v in ansi.items()}),
        tail=tail,
        steps=steps,
        steps_256=steps_256,
    )


def _heatmap(heat: Mapping[str, object], where: str) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    steps = [_hex(v, f"{where}: steps") for v in _sequence(heat.get("steps"), f"{where}: steps")]
    indices = _sequence(heat.get("steps_256"), f"{where}: steps_256")
    if len(indices) != len(steps):
        raise ThemeError(f"{where}: steps_256: as many as steps")
    key = "floor" if "tail" not in heat else "tail"  # themes of 0.1 have the former
    tail = _hex(heat.get(key), f"{where}: {key}")
    return tail, tuple(steps), tuple(_index(v, f"{where}: steps_256") for v in indices)


def _mapping(value: object, where: str, known: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ThemeError(f"{where}: a mapping of {', '.join(known)}")
    for key in value:
        if key not in known:
            raise ThemeError(f"{where}: unknown key {str(key)[:40]!r}; known are {', '.join(known)}")
    return value


def _sequence(value: object, where: str) -> list[object]:
    if not isinstance(value, list) or len(value) not in _STEPS:
        raise ThemeError(f"{where}: a list of {_STEPS.start} to {_STEPS.stop - 1}, few to many I/Os")
    return value


def _hex(value: object, where: str) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ThemeError(f'{where}: a colour like "#5fd7ff"')
    return value.lower()


def _index(value: object, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 16 <= value <= 255:  # noqa: PLR2004  the fixed part of xterm's palette
        raise ThemeError(f"{where}: numbers from 16 to 255")
    return value


def _ansi(value: object, where: str) -> str:
    if value not in ANSI:
        raise ThemeError(f"{where}: one of {', '.join(ANSI)}")
    return str(value)
