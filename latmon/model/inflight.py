"""Outstanding I/O as values: depth histograms, I/Os in flight with their ages, order of issue.

Raw facts of one interval, as all of a frame; shares, modes and ceilings are computed by their readers.

aggregate/request_age.py finds the ages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

SYSFS, PROBE, MEANS = "sysfs", "probe", "means"
AGES_S = (1, 10, 60)
"""The ages in seconds above which requests that are still in flight are counted."""


EXACT = 256
"""Depths are exact to here: what limits are set to, 31, 32, 64, 254, stays recognisable."""
COARSE = 64
_PER_OCTAVE = 8


def bucket_end(depth: int) -> int:
    """The depth itself to EXACT, above it the highest one of its bucket: 288 for 257 to 288, then 8 in each octave.

    A power of two is an end, as is any end's end: 512 -> 512, 1023 -> 1024, 1024 -> 1024.
    """
    if depth <= EXACT:
        return depth
    width = _width(depth)
    return -(-depth // width) * width


def coarse_end(depth: int) -> int:
    """As bucket_end, and from 65 to 256 buckets too, 16 per octave: for what no limit is compared with."""
    if not COARSE < depth <= EXACT:
        return bucket_end(depth)
    width = _width(depth) // 2
    return -(-depth // width) * width


def bucket_middle(end: int) -> float:
    """What a depth stands for in a mean: itself to EXACT, above it the middle of the bucket that it ends."""
    return end if end <= EXACT else end - (_width(end) - 1) / 2


def _width(depth: int) -> int:
    return (1 << (depth - 1).bit_length() - 1) // _PER_OCTAVE


class Took(NamedTuple):
    """I/Os and the sum of their times."""

    ios: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Depths:
    """How many I/Os a device had outstanding in an interval.

    The depths are exact to EXACT; above, each is the highest one of its bucket (bucket_end). `in_driver` and `queued`
    count moments, evenly spread over the interval: their shares are shares of time.
    """

    in_driver: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests that the driver and the device hold -> moments at which they were so many."""
    queued: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests that wait in the block layer -> moments; empty where the kernel doesn't tell them apart."""
    at_issue: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests in the driver, the new one counted, when it was given one -> requests; empty: not measured."""
    latency: Mapping[int, Took] = field(default_factory=lambda: MappingProxyType({}))
    """Requests of the device outstanding, queued ones and the new one counted, when it came -> how long such ones took,
    from then to completion. A probe tells coarse_end(depth): with one each to 256 it was most of a recording."""
    most: int | None = None
    """The most requests in the driver that anyone saw, not rounded; None where that is no more than the depths say."""
    corrected: int = 0
    """By how many requests a probe's count was set right, in either direction: it missed as many."""
    source: str = SYSFS
    """Who counted: SYSFS, the kernel's own gauges read now and then, PROBE, or MEANS: a mean and a busy share of the
    interval (iostat: actv, %b; aqu-sz, %util), spread over the two depths next to the mean while busy. With MEANS and
    an empty `queued`, `in_driver` counts queued requests, too."""
    quiet_in: int = 0
    """In a sum: the moments of those intervals in which nothing was seen, in the driver or queued."""

    @property
    def quiet(self) -> int:
        """Moments, among those of `in_driver`, of whole intervals in which nothing was seen."""
        seen = any(n for of in (self.in_driver, self.queued) for depth, n in of.items() if depth)
        return self.quiet_in if seen else sum(self.in_driver.values())

    @property
    def highest(self) -> int:
        """The most requests in the driver that are known of: what was counted, before the end of its bucket."""
        told = max(*self.in_driver, *self.at_issue, 0, 0)
        return told if self.most is None or bucket_end(self.most) < told else self.most


class InFlight(NamedTuple):
    """One request that had not completed at the end of an interval. A None or "" is "not known"."""

    device: str
    op: str
    began_us: int
    """CLOCK_MONOTONIC: when it came into the block layer."""
    flags: tuple[str, ...] = ()
    sector: int | None = None
    bytes: int | None = None
    pid: int | None = None
    comm: str = ""
    """Who issued it."""
    issued: bool | None = None
    """True: the driver has it; False: it waits in the block layer."""
    overtaken_by: int | None = None
    """I/Os of the device that came later and have completed, or fewer: completions since it came, less what was in
    flight before it."""
    own: bool = False
    """Issued by this latmon or its probe tool: no evidence of a finding."""


@dataclass(frozen=True, slots=True)
class StillInFlight:
    """Requests that had not completed at the end of an interval, of the devices that a probe follows."""

    oldest: tuple[InFlight, ...] = ()
    """Oldest first, the ones that are worth a line (above 0.5 s) and no more of them than a screen can hold."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds (AGES_S) -> requests older than that, all of them."""
    since_us: int = 0
    """CLOCK_MONOTONIC: requests that began earlier are not known to it; 0: there are none."""
    at_us: int = 0
    """CLOCK_MONOTONIC: when the probe looked, at or before the frame's end; 0: at its end."""
    devices: tuple[str, ...] = ()
    """Whose requests the probe follows; empty: all devices'."""

    def follows(self, device: str) -> bool:
        return not self.devices or device in self.devices


class Issue(NamedTuple):
    """One request as it went to the driver: a window of one device, to see the order against LBA."""

    mono_us: int
    sector: int
    bytes: int
    op: str
    queued_us: int
    """How long it had waited in the block layer."""


def together(parts: Iterable[Depths]) -> Depths:
    """Several intervals of one device as one; the source is the one that told most of the moments."""
    each = list(parts)
    in_driver, queued, at_issue, told = Counter[int](), Counter[int](), Counter[int](), Counter[str]()
    latency: dict[int, Took] = {}
    for one in each:
        in_driver.update(one.in_driver)
        queued.update(one.queued)
        at_issue.update(one.at_issue)
        told[one.source] += sum(one.in_driver.values())
        for depth, took in one.latency.items():
            had = latency.get(depth, Took(0, 0))
            latency[depth] = Took(had.ios + took.ios, had.time_us + took.time_us)
    return Depths(
        dict(in_driver),
        dict(queued),
        dict(at_issue),
        latency,
        max((one.most for one in each if one.most is not None), default=None),
        sum(one.corrected for one in each),
        told.most_common(1)[0][0] if told else SYSFS,
        sum(one.quiet for one in each),
    )


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
    unlisted: tuple[Aged, ...] = ()
    """I/Os that `older` counts, that have no row in `oldest` and that can only be of their device."""

    def of(self, device: str) -> tuple[Aged, ...]:
        """Return all I/Os of a device with an exact or a least age."""
        return tuple(one for one in (*self.oldest, *self.unlisted) if one.device == device)

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
