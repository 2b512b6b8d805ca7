"""A mark: a note that somebody put beside what was happening, and the settings that had changed by then.

Settings are texts by name, in sections: `kernel`, `tool`, `module NAME`, `device NAME`, `probe NAME`. Knows neither
where they are read nor where they are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Settings = Mapping[str, Mapping[str, str]]
"""Section -> name -> value; a value that could not be read is not in it."""
NO_SETTINGS: Settings = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mark:
    """`mono_us` is CLOCK_MONOTONIC, `wall` seconds since 1970."""

    text: str
    mono_us: int = 0
    wall: float = 0.0
    changed: Settings | None = None
    """Against the origin's settings, empty: they are as they were; None where they were not read. An empty value stands
    for one that is gone."""
