"""Differences of cumulative maps between two prints.

Owns the cumulative state and the limits of keys and values. Knows neither roles nor devices.
"""

from __future__ import annotations

from collections.abc import Iterable

from latmon.manifest.schema import KeyPart, MapSpec
from latmon.model.histogram import MAX_COUNT, TOP

Counts = dict[int, int]


class Differences:
    """Differences of the maps of one script."""

    def __init__(self, specs: Iterable[MapSpec]) -> None:
        self._buckets: dict[str, KeyPart | None] = {
            spec.name: next((part for part in spec.key if part.name == "bucket"), None) for spec in specs
        }
        self._before: dict[str, Counts] = {}
        self._printed: dict[str, Counts] = {}
        self._undecoded = 0

    def printed(self, name: str, values: Counts) -> None:
        """Take one map as the tool printed it; count maps that are not the script's, and impossible values."""
        if name not in self._buckets:
            self._undecoded += 1
            return
        bucket = self._buckets[name]
        sane = {key: value for key, value in values.items() if _is_sane(bucket, key, value)}
        self._undecoded += len(values) - len(sane)
        self._printed[name] = sane

    def gained(self, name: str) -> Counts:
        """Return the gain per key; a map that was not printed (empty, or its line was lost) has gained nothing yet.

        A value that went down was cleared and counted again from 0: all of it is gain.
        """
        if name not in self._printed:
            return {}
        now, before = self._printed[name], self._before.get(name, {})
        self._before[name] = now
        gained = {key: value - before.get(key, 0) for key, value in now.items()}
        return {key: value if value > 0 else now[key] for key, value in gained.items() if value}

    def latest(self, name: str) -> Counts:
        """Return the map itself if it was printed since the last `close`; else an empty one."""
        return self._printed.get(name, {})

    def close(self) -> int:
        """End an interval; return the number of its maps and values that were not decoded."""
        self._printed.clear()
        undecoded, self._undecoded = self._undecoded, 0
        return undecoded


def _is_sane(bucket: KeyPart | None, key: int, value: int) -> bool:
    """Return whether a kernel can count this value; others would falsify every later sum."""
    return 0 <= value <= MAX_COUNT and 0 <= key <= MAX_COUNT and (bucket is None or bucket.read(key) <= TOP)
