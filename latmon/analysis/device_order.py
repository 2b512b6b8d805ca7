"""The order of devices on every screen and for the tracer. Pure.

Devices that are unlike their peers come first, then those whose I/O takes the most time, then by name. Time counts in
steps of a factor of 4 below the busiest device, and a device leaves its step only when it is clearly in another one:
rows with similar load keep their place while their numbers change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from latmon.model.inflight import Aged

STEP = 4
"""Times as much time: one step."""
_LEAVES = 0.75
"""Steps from the middle of a step at which a device leaves it: 0.5 is its edge."""
_IDLE_STEP = 1_000
_SMALL, _SMALL_UNTIL = 0.01, 0.02
"""Share of the host's I/O below which a device comes last, and from which it comes back."""
_MEMORY = re.compile(r"(loop|ram|zram|zd)\d+")
"""Devices on files and in memory, and ZFS volumes, whose I/O is another disk's as well."""


@dataclass(frozen=True, slots=True)
class Rank:
    """Sort key of one device.

    `busy_us`: the time of its I/Os, completed and in flight; `share`: its share of the host's I/O, 0 to 1; `unlike`:
    how many times slower its tail is than its peers', 0 where it is like them; `is_named`: a finding is about it.
    """

    name: str
    busy_us: float = 0.0
    share: float = 1.0
    unlike: float = 0.0
    is_named: bool = False
    is_timed: bool = True
    is_gone: bool = False
    is_traced: bool = False
    """Whether the tracer follows it already. It counts as a step busier, since each change causes a gap."""


class Order:
    """Keeps the step of each device from one call to the next."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._small: set[str] = set()
        self._last: list[str] = []

    def sort(self, some: Sequence[Rank], *, keep: bool = False) -> list[str]:
        """Return the names in order.

        `keep`: the ranks are incomplete, so the last order is kept, and new devices are appended by name.
        """
        if keep and self._last:
            place = {name: at for at, name in enumerate(self._last)}
            return sorted((one.name for one in some), key=lambda name: (place.get(name, len(place)), by_name(name)))
        busiest_us = max((one.busy_us for one in some), default=0.0)
        self._steps = {one.name: self._step(one, busiest_us) for one in some if one.busy_us > 0}
        self._small = {one.name for one in some if self._is_small(one)}
        self._last = [one.name for one in sorted(some, key=self._place)]
        return self._last

    def _place(self, one: Rank) -> tuple[object, ...]:
        on_another, by = by_name(one.name)
        is_last = on_another or (one.name in self._small and not one.unlike) or one.is_gone
        return (
            is_last and not one.is_named,
            one.is_gone,
            not one.is_named,
            -one.unlike * (STEP if one.is_traced else 1),
            not one.is_timed,
            self._steps.get(one.name, _IDLE_STEP) - one.is_traced,
            not one.is_traced,
            on_another,
            by,
        )

    def _step(self, one: Rank, busiest_us: float) -> int:
        if one.busy_us <= 0:
            return _IDLE_STEP
        below = math.log(busiest_us / one.busy_us, STEP)
        before = self._steps.get(one.name, _IDLE_STEP)
        return before if abs(below - before) <= _LEAVES else round(below)

    def _is_small(self, one: Rank) -> bool:
        return one.share < (_SMALL_UNTIL if one.name in self._small else _SMALL)


def is_on_another(name: str) -> bool:
    """Return whether the device is on a file or in memory, so that its I/O is none or another disk's as well."""
    return bool(_MEMORY.fullmatch(name))


def shares(ios: Iterable[tuple[str, float]], busy_us: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return each device's share of the host's I/O: the greater one of its shares of number and time."""
    found: dict[str, float] = {}
    for some in (dict(ios), dict(busy_us)):
        whole = sum(some.values())
        for name, part in some.items():
            found[name] = max(found.get(name, 0.0), part / whole if whole else 0.0)
    return found


def in_flight_us(some: Iterable[Aged], window_us: int) -> dict[str, int]:
    """Return for each device how long its I/Os in flight have waited in the window, together, in us."""
    found: dict[str, int] = {}
    for one in some:
        found[one.device] = found.get(one.device, 0) + one.count * min(one.age_us, window_us)
    return found


@lru_cache(1 << 14)
def by_name(name: str) -> tuple[bool, tuple[tuple[int, str], ...]]:
    """Return the sort key of a list without load: natural order, devices on files and in memory last."""
    return is_on_another(name), natural(name)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts sda2 before sda10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part)
