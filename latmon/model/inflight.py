"""Outstanding I/O of one interval: depth histograms, I/Os in flight with their ages, order of issue.

Shares, modes and ceilings are computed by readers. aggregate/request_age.py computes the ages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

SYSFS, PROBE, MEANS = "sysfs", "probe", "means"
MAX_DEPTH = 1 << 24
"""The most I/Os of a device in flight: a hundred times what nr_tags can be."""
AGES_S = (1, 10, 60)
"""Ages in seconds above which requests in flight are counted."""


EXACT = 256
"""Depths are exact up to here, so that usual limits (31, 32, 64, 254) are recognised."""
COARSE = 64
_PER_OCTAVE = 8


def bucket_end(depth: int) -> int:
    """Return the depth itself up to EXACT, else the highest depth of its bucket; 8 buckets per octave: 257 -> 288.

    Powers of two are ends, and an end is its own end: 512 -> 512, 1023 -> 1024, 1024 -> 1024.
    """
    if depth <= EXACT:
        return depth
    width = _width(depth)
    return -(-depth // width) * width


def coarse_end(depth: int) -> int:
    """Return bucket_end with 16 buckets per octave from 65 to 256, for values that no limit is compared with."""
    if not COARSE < depth <= EXACT:
        return bucket_end(depth)
    width = _width(depth) // 2
    return -(-depth // width) * width


def bucket_middle(end: int) -> float:
    """Return the depth that represents a bucket in a mean: its end up to EXACT, else its middle."""
    return end if end <= EXACT else end - (_width(end) - 1) / 2


def mean_depth(depths: Mapping[int, int]) -> float:
    """Return the mean of a depth histogram over all of the time; 0 where nothing was sampled."""
    ms = sum(depths.values())
    return sum(bucket_middle(depth) * n for depth, n in depths.items()) / ms if ms else 0.0


def busy_share(depths: Mapping[int, int], least: int = 1) -> float:
    """Return the share of the time with a depth of `least` or more."""
    ms = sum(depths.values())
    return sum(n for depth, n in depths.items() if depth >= least) / ms if ms else 0.0


def _width(depth: int) -> int:
    return (1 << (depth - 1).bit_length() - 1) // _PER_OCTAVE


class Took(NamedTuple):
    """Count of I/Os and sum of their times."""

    ios: int
    time_us: int


@dataclass(frozen=True, slots=True)
class Depths:
    """Histograms of a device's outstanding I/Os in an interval.

    Depths above EXACT are the ends of their buckets (bucket_end). `in_driver` and `queued` count samples, evenly spread
    over the interval: their shares are shares of time.
    """

    in_driver: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests in the driver and the device -> samples with so many."""
    queued: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests waiting in the block layer -> samples; empty where the kernel has no separate count."""
    at_issue: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Requests in the driver when a request is issued, that one included -> requests; empty: not measured."""
    latency: Mapping[int, Took] = field(default_factory=lambda: MappingProxyType({}))
    """Outstanding requests when a request arrives, queued ones and that one included -> time of such requests from
    arrival to completion. A probe reports coarse_end(depth): exact depths were most of a recording's size."""
    most: int | None = None
    """The most requests in the driver, not rounded to a bucket; None where the depths are exact enough."""
    corrected: int = 0
    """Sum of the corrections of a probe's count, in requests: it missed as many."""
    source: str = SYSFS
    """Source of the counts: SYSFS (samples of the kernel's gauges), PROBE, or MEANS: a mean and a busy share of the
    interval (iostat: actv, %b; aqu-sz, %util), spread over the two depths next to the mean while busy. With MEANS and
    an empty `queued`, `in_driver` counts queued requests, too."""
    quiet_in: int = 0
    """In a sum: samples of the intervals without any request in the driver or queued."""

    @property
    def quiet(self) -> int:
        """Samples of `in_driver` that belong to intervals without any request."""
        seen = any(n for of in (self.in_driver, self.queued) for depth, n in of.items() if depth)
        return self.quiet_in if seen else sum(self.in_driver.values())

    @property
    def highest(self) -> int:
        """The most requests in the driver: `most` where it is known, else the end of the highest depth's bucket."""
        reported = max(*self.in_driver, *self.at_issue, 0, 0)
        return reported if self.most is None or bucket_end(self.most) < reported else self.most


class InFlight(NamedTuple):
    """One request that had not completed at the end of an interval. None or "" is "not known"."""

    device: str
    op: str
    began_us: int
    """When it arrived in the block layer, on CLOCK_MONOTONIC."""
    flags: tuple[str, ...] = ()
    sector: int | None = None
    bytes: int | None = None
    pid: int | None = None
    comm: str = ""
    """Name of the process that issued it."""
    issued: bool | None = None
    """True: the driver has it; False: it waits in the block layer."""
    overtaken_by: int | None = None
    """I/Os of the device that arrived later and have completed; a lower bound: completions since its arrival minus the
    I/Os that were in flight before it."""
    own: bool = False
    """Issued by this latmon or its probe tool: no evidence of a finding."""


@dataclass(frozen=True, slots=True)
class InFlightList:
    """Requests that had not completed at the end of an interval, of devices whose requests a probe follows."""

    oldest: tuple[InFlight, ...] = ()
    """Requests in flight for more than 0.5 s, oldest first; at most a screenful."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds (AGES_S) -> number of all requests older than that."""
    since_us: int = 0
    """Requests that began earlier (CLOCK_MONOTONIC) are not known to the probe; 0: there are none."""
    at_us: int = 0
    """When the probe read its table, on CLOCK_MONOTONIC; 0: at the frame's end."""
    devices: tuple[str, ...] = ()
    """Devices whose requests the probe follows; empty: all."""

    def follows(self, device: str) -> bool:
        return not self.devices or device in self.devices


class Issue(NamedTuple):
    """One request at the time of issue; consecutive ones show the order of issue against LBA."""

    mono_us: int
    sector: int
    bytes: int
    op: str
    queued_us: int
    """Time in the block layer before issue."""


@dataclass(frozen=True, slots=True)
class Aged:
    """One request that a probe follows, or `count` I/Os of which only a lower bound of the age is known."""

    device: str
    age_us: int
    at_least: bool = False
    count: int = 1
    request: InFlight | None = None


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of the I/Os in flight at the end of a frame."""

    oldest: tuple[Aged, ...] = ()
    """Oldest first."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType(dict.fromkeys(AGES_S, 0)))
    """Seconds (AGES_S) -> I/Os older than that."""
    at_least: bool = False
    """Whether `older` is a lower bound, because some ages are lower bounds or unknown."""
    unknown: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight of unknown age; an upper bound where a probe follows the device."""
    of_unknown_age: int = 0
    """Sum of `unknown`, without volumes whose disks have I/Os in flight: those are the same ones."""
    probe: InFlightList | None = None
    """Report of the probe that follows requests; None without one."""
    unlisted: tuple[Aged, ...] = ()
    """I/Os that `older` counts, that have no row in `oldest`, and whose device is certain."""

    def of(self, device: str) -> tuple[Aged, ...]:
        """Return all I/Os of a device with an exact or a least age."""
        return tuple(aged for aged in (*self.oldest, *self.unlisted) if aged.device == device)

    @property
    def oldest_us(self) -> int | None:
        """Age of the oldest I/O in us; None without any."""
        return self.oldest[0].age_us if self.oldest else None

    def is_followed(self, device: str) -> bool:
        """Return whether a probe follows the device's requests."""
        return self.probe is not None and self.probe.follows(device)


class AgedAt(NamedTuple):
    """Ages of one row and the end of the frame that had it, by both clocks."""

    row: Aged
    wall_s: float
    mono_us: int
