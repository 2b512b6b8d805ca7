"""Options of `latmon export`: formats, screens, versions, and which option belongs to which format."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

from latmon.model.frame import Origin
from latmon.support.errors import UsageError
from latmon.support.units import duration_us

_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)(?::(\d\d))?", re.ASCII)
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export; each format reads its own."""

    buckets: bool = False
    size: tuple[int, int] = (80, 24)
    screen: str = "overview"
    at: str = ""
    """When, in the words of the command line; empty: a picture at the end, a cast from the begin."""
    speed: float = 1.0
    duration_us: int | None = None
    """Span of the recording, from `at` on."""
    cast_version: int = 2
    theme: str = "dark"
    ramp: str = "auto"


def moment_us(text: str, origin: Origin) -> int:
    """Return CLOCK_MONOTONIC of `90s` (from the begin on), `14:05:30` (local time, the first one in it) or RFC 3339."""
    start_us, wall = origin.start_mono_us, origin.start_wall
    if match := _TIME_OF_DAY.fullmatch(text):
        begin = datetime.fromtimestamp(wall).astimezone()
        hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3] or 0)
        if hours < 24 and minutes < 60 and seconds < 60:  # noqa: PLR2004  of a clock
            then = begin.replace(hour=hours, minute=minutes, second=seconds, microsecond=0)
            return start_us + round(((then - begin).total_seconds() % _DAY_S) * 1e6)
    try:
        return start_us + duration_us(text)
    except ValueError:
        pass
    try:
        then = datetime.fromisoformat(text)
        then = then if then.tzinfo else then.astimezone()
        return start_us + round((then.astimezone(UTC).timestamp() - wall) * 1e6)
    except (ValueError, OverflowError):
        raise UsageError(f"--at {text}: expected 90s from the begin, 14:05:30, or 2026-11-22T14:05:30Z") from None


FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "jsonl": "the lines of the recording, uncompressed",
        "csv": "a row per window, device, op and stage",
        "openmetrics": "a snapshot for Prometheus",
        "hlog": "an HdrHistogram log",
        "perfetto": "outliers and counters for ui.perfetto.dev",
        "svg": "a picture of a screen",
        "text": "a screen as plain text",
        "cast": "an animation of a screen for asciinema",
    }
)
SCREENS = (
    *("overview", "maps", "zoom", "offsets", "ticks"),
    *("stages", "outstanding", "outliers", "interrupts", "findings"),
)
"""Screens of pictures: the TUI's screens, and the other forms of its first."""
VERSIONS = (2, 3)
SIZES = ((40, 10), (500, 200))
"""Columns and lines of the smallest and of the largest picture."""
GOES_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "buckets": ("csv",),
        "screen": ("svg", "text", "cast"),
        "size": ("svg", "text", "cast"),
        "at": ("svg", "text", "cast"),
        "theme": ("svg", "cast"),
        "ramp": ("svg", "cast"),
        "speed": ("cast",),
        "duration": ("cast",),
        "cast_version": ("cast",),
    }
)
"""Option -> its formats."""
