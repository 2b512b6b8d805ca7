"""How long a device had how many I/Os outstanding, from readings of the kernel's gauges at any moments.

A reading stands for the time nearest to it: half of the gap to the one before and half of the gap to the next. So a
rate that changes weighs nothing twice, and neither does the busy spell that made it change. Time is counted in whole
milliseconds, which are the moments of `Depths`; what is left of one goes into the next. Pure: the caller has the clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.outstanding import SYSFS, Depths, bucket_end

STANDS_US = 5_000_000
"""The longest time in either direction that a reading stands for; beyond it nothing is known."""
_MOMENT_US = 1000


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds by depth since a device was first looked at; `queued` is empty where it isn't told apart."""

    in_driver: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    queued: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    since_us: int = 0
    """The first look; another one is another device, or one that nobody looked at for a while."""


class DepthTime:
    """One device's readings. Bounded: depths are counted as the ends of their buckets."""

    def __init__(self) -> None:
        self._in_driver, self._queued = Counter[int](), Counter[int]()
        self._last: tuple[int, int, int | None] | None = None
        self._since_us = self._left_us = 0

    def read(self, mono_us: int, driver: int, queued: int | None, stands_us: int = STANDS_US) -> None:
        """Take a reading, which stands for `stands_us` at most in either direction; an older one is left out."""
        if self._last is None:
            self._since_us = mono_us
        else:
            was_us, was_driver, was_queued = self._last
            gap_us = mono_us - was_us
            if gap_us <= 0:
                return
            self._add(min(gap_us // 2, stands_us), was_driver, was_queued)
            self._add(min(gap_us - gap_us // 2, stands_us), driver, queued)
        self._last = (mono_us, driver, queued)

    def spent(self) -> Spent:
        """Up to the last reading, whatever came before it."""
        return Spent(dict(self._in_driver), dict(self._queued), self._since_us)

    def _add(self, us: int, driver: int, queued: int | None) -> None:
        moments, self._left_us = divmod(us + self._left_us, _MOMENT_US)
        if moments:
            self._in_driver[bucket_end(driver)] += moments
            if queued is not None:
                self._queued[bucket_end(queued)] += moments


def between(before: Spent, after: Spent) -> Depths | None:
    """What was spent from one to the other; None where that is no time at all."""
    if before.since_us != after.since_us:
        before = Spent()
    in_driver = _gained(before.in_driver, after.in_driver)
    return Depths(in_driver, _gained(before.queued, after.queued), source=SYSFS) if in_driver else None


def _gained(before: Mapping[int, int], after: Mapping[int, int]) -> dict[int, int]:
    return {depth: gained for depth, ms in sorted(after.items()) if (gained := ms - before.get(depth, 0)) > 0}
