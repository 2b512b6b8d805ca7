"""Settings against settings, and no more of them than a header holds. Knows not where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from latmon.mark import NO_SETTINGS, Settings

MAX_BYTES = 150_000
"""Of a header's 200 kB."""
LEFT_OUT = "left out"
_EVER_CHANGING = frozenset(("clock", LEFT_OUT))
_ROOM = 100
"""For the section that tells what was left out."""


def capped(settings: Settings, most: int = MAX_BYTES) -> Settings:
    """As many whole sections, in their order, as fit; how many did not is one more section."""
    kept: dict[str, Mapping[str, str]] = {}
    size, left = _ROOM, 0
    for section, named in settings.items():
        needed = _size(section, named)
        if size + needed > most:
            left += 1
            continue
        size += needed
        kept[section] = MappingProxyType(dict(named))
    if left:
        kept[LEFT_OUT] = MappingProxyType({"sections": str(left)})
    return MappingProxyType(kept) if kept else NO_SETTINGS


def changes(before: Settings, now: Settings) -> Settings:
    """What is set differently now. What is not in `now` is no change: it may be another user's to read by now."""
    found: dict[str, Mapping[str, str]] = {}
    for section in before.keys() & now.keys() - _EVER_CHANGING:
        old, new = before[section], now[section]
        if different := {name: value for name, value in new.items() if old.get(name) != value}:
            found[section] = MappingProxyType(different)
    return MappingProxyType(dict(sorted(found.items()))) if found else NO_SETTINGS


def _size(section: str, named: Mapping[str, str]) -> int:
    """As JSON, if every character of a value were escaped as one that isn't ASCII."""
    texts = (section, *named, *named.values())
    return sum(6 + (len(one) if one.isascii() else 6 * len(one)) for one in texts)
