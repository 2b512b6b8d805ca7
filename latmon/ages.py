"""How long I/Os in flight have waited, as values: at one moment, and what a minute's windows leave of it.

Knows neither how it is found out (waiting.py) nor how it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from latmon.outstanding import AGES_S, InFlight, StillInFlight


@dataclass(frozen=True, slots=True)
class Aged:
    """One request that a probe follows, or `count` I/Os of which only a least age is known."""

    device: str
    age_us: int
    at_least: bool = False
    count: int = 1
    request: InFlight | None = None


@dataclass(frozen=True, slots=True)
class Ages:
    """What is in flight at the end of a frame and old enough to be told."""

    oldest: tuple[Aged, ...] = ()
    """Oldest first."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(AGES_S, 0)))
    """Seconds (AGES_S) -> I/Os older than that."""
    at_least: bool = False
    """Whether `older` may be more: of some I/Os only a least age is known, or none."""
    unknown: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight that may be of any age; at most so many where a probe follows the device."""
    probe: StillInFlight | None = None
    """What the probe said that follows requests; None: there is none."""

    @property
    def of_unknown_age(self) -> int:
        """Of all devices."""
        return sum(self.unknown.values())

    @property
    def oldest_us(self) -> int | None:
        """None where nothing is known to wait."""
        return self.oldest[0].age_us if self.oldest else None

    def is_followed(self, device: str) -> bool:
        """Whether a probe knows all that the device began lately."""
        return self.probe is not None and self.probe.follows(device)


class Seen(NamedTuple):
    """What waited, and the end of the window that showed it, by both clocks."""

    row: Aged
    wall_s: float
    mono_us: int


class Held(NamedTuple):
    """I/Os that were in flight before a minute and hadn't completed at `until_us`, a window's end in it."""

    until_us: int
    wall_s: float
    followed: bool
    """Whether a probe follows the device, so that its requests are told one by one."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a minute's windows leave behind: all that a sum or a later window may need of what waited in them."""

    since: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> moments in it and how many I/Os are in flight since then and were not before; at the end of it."""
    held: Mapping[str, Held] = field(default_factory=lambda: MappingProxyType({}))
    """By device. Since when these are in flight is known to whoever read what is before the minute."""
    longest: Mapping[str, Seen] = field(default_factory=lambda: MappingProxyType({}))
    """By device: what was known to wait the longest, `held` apart."""
    fewest: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> the fewest I/Os in flight at the end of a window."""
    probed_since: int | None = None
    """Where the probe of each of them begins; None: none had one."""
