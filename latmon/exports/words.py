"""The words of `latmon export`: formats, screens, versions, and which options go with which format. Imports nothing."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "jsonl": "the recording's own lines, unpacked",
        "csv": "a row per window, device, op and stage",
        "openmetrics": "a snapshot, for Prometheus and its kin",
        "hlog": "an HdrHistogram log",
        "perfetto": "outliers and counters, for ui.perfetto.dev",
        "svg": "a picture of a screen",
        "cast": "a film of one, for asciinema",
    }
)
SCREENS = (
    *("overview", "maps", "zoom", "offsets", "ticks"),
    *("stages", "outstanding", "outliers", "interrupts", "findings"),
)
"""What a picture may show: the TUI's screens, and the other forms of its first."""
VERSIONS = (2, 3)
GOES_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "buckets": ("csv",),
        "screen": ("svg", "cast"),
        "size": ("svg", "cast"),
        "at": ("svg", "cast"),
        "theme": ("svg", "cast"),
        "speed": ("cast",),
        "duration": ("cast",),
        "cast_version": ("cast",),
    }
)
"""Option -> its formats."""
