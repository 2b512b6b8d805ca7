"""Little's law for a device: outstanding = IOPS x latency, and the gain from a higher limit. Pure.

The three are means over the same time, of I/Os between the same two points: in the driver with the time in the driver,
or all of them with the whole latency. All of them are the requests of the kernel's counters, which are those of its
gauges: the empty write that carries a flush is one of them, and no probe times it.

The law holds for a stationary window (docs/OUTSTANDING.md): I/Os that cross its edges are a small part, and I/Os that
have not completed at its end are few or known to be stuck. Stuck ones are in the gauges and in no latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from latmon.analysis.limits import wall
from latmon.model.frame import OPS, Completed, Limit
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, SYSFS, Aged, Depths, bucket_middle
from latmon.support.units import rate, spelled

COUNTED = tuple(op for op in OPS if op != "flush")
"""Whose times belong to the gauges' depths: a flush's request is none that they count (RQF_FLUSH_SEQ)."""
_MOSTLY = 0.9
"""Of the time is to be counted."""
_MIN_BUSY_US, _MIN_BUSY = 1_000_000, 0.05
"""Gauges that are looked at now and then meet too few busy moments below these to tell a mean."""
_MIN_IOS = 100
"""Of fewer, one that began before the time or is still in flight at its end is a good part of the mean."""
_ENOUGH_US = 10_000_000
"""Below it, gauges that are read now and then may well differ from what was completed: three that don't agree
are no finding."""
_AGREE = 0.1
"""Gauges that are read now and then, and I/Os that begin before the time and end in it, cost some percent."""
_LOOKS_PER_S = 9
"""Readings of sampled gauges where ten disks and the CPUs are busy (docs/OUTSTANDING.md): their number isn't kept."""
_SIGMAS = 2
"""Of a sampled mean's standard error: 95 %."""
_LENGTHS = 2 / _AGREE
"""A window is at least so many times as long as its longest I/O. At each of its two edges L I/Os are in flight in the
mean, each for at most that long on the other side: 2 L longest / (L window) <= _AGREE."""


class Law(NamedTuple):
    """Three means, each measured by itself."""

    outstanding: float
    latency_us: float
    iops: float
    stuck: float = 0.0
    """Of `outstanding`, the mean number of I/Os that are in flight at the end and older than any that completed."""
    error: float = 0.0
    """What `outstanding` may be off by, because its gauges were sampled."""
    stuck_most: float = 0.0
    """Upper bound of that number; more than `stuck` where only a least age of some of them is known."""

    @property
    def by_law(self) -> float:
        """How many the rate and the latency say are outstanding."""
        return self.iops * self.latency_us / 1e6

    @property
    def explained(self) -> float:
        """Return the number by the law and the stuck ones, as near to what was counted as the bounds of these allow."""
        most = self.by_law + max(self.stuck, self.stuck_most)
        return min(max(self.by_law + self.stuck, self.outstanding), most)

    @property
    def equals(self) -> bool:
        """Whether both sides are the same number, within 10 %."""
        return self._differs <= _AGREE * max(self.explained, self.outstanding)

    @property
    def agrees(self) -> bool:
        """Whether both sides are the same within 10 %, or within the sampling error."""
        return self.equals or self._differs <= self.error

    @property
    def _differs(self) -> float:
        return abs(self.explained - self.outstanding)


class Lift(NamedTuple):
    """What a device at its limit could do with more in flight: the most, if the time in the driver stayed the same."""

    limit: int
    depth: int
    iops: float
    """Up to so many at `depth`."""
    most: float
    """Up to so many at `limit`: above that the limit allows none."""


class Times(NamedTuple):
    """I/Os that completed, how long they took in the mean, and the longest at most; None: that isn't known."""

    ios: int
    mean_us: float
    longest_us: int | None = None

    @property
    def usual_us(self) -> float:
        """The longest, or the mean where that is all that is known."""
        return self.mean_us if self.longest_us is None else self.longest_us


class Found(NamedTuple):
    """Little's law of a device, and of which I/Os it is: `all` of them, or those in the `driver`."""

    of: str
    law: Law
    lift: Lift | None

    @property
    def sentence(self) -> str:
        return sentence(self.law, self.lift, self.of)


def times_of(found: Histogram | None) -> Times | None:
    """Return the times of a histogram's I/Os; None without any, or where their sum isn't known."""
    return Times(found.count, found.mean, found.max_bound) if found and found.mean is not None else None


def times(
    depths: Depths, done: Mapping[str, Completed | None], probe: Times | None, longest_us: int | None = None
) -> Times | None:
    """Return how many I/Os completed and how long they took, of the same requests as the depths are of.

    `done`: by op, what the kernel counted; `probe`: COUNTED as a probe timed them, `longest_us` of them. Sampled gauges
    are the kernel's, and so are their times. A probe's gauges go with its times; where there are flushes, which its
    histograms lack the empty writes of, with those that it has by depth.
    """
    kernel = _by_kernel([one for op in COUNTED if (one := done.get(op)) is not None and one.count], longest_us)
    if depths.source != PROBE or kernel is None:
        return kernel or probe
    flushes = done.get("flush")
    if probe is not None and not (flushes and flushes.count):
        return probe
    ios = sum(took.ios for took in depths.latency.values())
    return kernel._replace(mean_us=sum(took.time_us for took in depths.latency.values()) / ios) if ios else kernel


def _by_kernel(done: list[Completed], longest_us: int | None) -> Times | None:
    """None where it doesn't time all of them."""
    some = [one.time_us for one in done if one.time_us is not None]
    ios = sum(one.count for one in done)
    return Times(ios, sum(some) / ios, longest_us) if some and len(some) == len(done) else None


def of(
    depths: Depths,
    span_us: int,
    time_us: int,
    *,
    whole: Times | None = None,
    driver: Times | None = None,
    bound: Limit | None = None,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> Found | None:
    """Of a device over `time_us`, `span_us` of which `depths` are of; None where it isn't known well enough.

    `whole`: times from the block layer on, `driver`: in the driver alone, of COUNTED. The law is of all I/Os where
    what is queued is known, else of those in the driver. `left`: the device's I/Os in flight at the end; `waiting`:
    its rows of them with an age. None as well where the window isn't stationary.
    """
    in_driver, queued = _mean(depths.in_driver), _mean(depths.queued)
    if in_driver is None or span_us < _MOSTLY * time_us or _too_rare(depths, span_us):
        return None
    rows = tuple(waiting)
    of_all = _law(None if queued is None else in_driver + queued, whole, time_us, rows, left)
    name, found = ("all", of_all) if of_all else ("driver", _law(in_driver, driver, time_us, _issued(rows), left))
    found = found and found._replace(error=_error(depths, span_us, with_queue=name == "all"))
    if found is None or not (found.agrees or time_us >= _ENOUGH_US):
        return None
    held = wall(depths, bound)
    above = _mean({depth: n for depth, n in depths.queued.items() if depth}) or 0
    lifted = lift(held, (held or 0) + round(above), in_driver * 1e6 / found.iops) if found.agrees else None
    return Found(name, found, lifted)


def law(outstanding: float | None, latency_us: float | None, iops: float) -> Law | None:
    """None where one of the three isn't known, or nothing went through."""
    if not outstanding or not latency_us or not iops:
        return None
    return Law(outstanding, latency_us, iops)


def lift(limit: int | None, depth: int, driver_us: float | None) -> Lift | None:
    """What `depth` would give in place of `limit`, at which the device is held (limits.wall); None where it isn't.

    `driver_us` is the mean time in the driver. It grows with the depth as soon as the device itself is busy all the
    time, so both rates are upper bounds.
    """
    if limit is None or limit < 1 or depth <= limit or not driver_us:
        return None
    return Lift(limit, depth, depth * 1e6 / driver_us, limit * 1e6 / driver_us)


_PLACES = {"all": ("in flight", "in driver and queue"), "driver": ("in the driver", "in the driver")}
"""What the numbers are of, in an equation and of a count."""


def sentence(found: Law, lifted: Lift | None = None, name: str = "all") -> str:
    """`1,000 IOPS = 3 in flight / 3 ms; at 32 in flight up to 10,700 if the time in the driver stayed the same`."""
    place, counted = _PLACES[name]
    said = f"{_iops(found.iops)} IOPS = {_few(found.outstanding)} {place} / {spelled(found.latency_us)}"
    if found.stuck or found.stuck_most or not found.equals:
        said = f"{_iops(found.iops)} IOPS at {spelled(found.latency_us)}: {_difference(found, counted)}"
    if lifted is None:
        return said
    return f"{said}; at {lifted.depth:,} in flight up to {_iops(lifted.iops)} if the time in the driver stayed the same"


def _difference(found: Law, place: str) -> str:
    """`0.6 by Little's law + 2 stuck = 2.6 counted in driver and queue`; no sum where the sides differ."""
    explained = _tenths(found.by_law + found.stuck)
    if found.equals and found.stuck_most <= found.stuck and explained == _tenths(found.outstanding):
        return f"{_tenths(found.by_law)} by Little's law + {_tenths(found.stuck)} stuck = {explained} counted {place}"
    return (
        f"{_few(found.by_law)} by Little's law{_stuck(found)}, {_few(found.outstanding)} counted {place}{_why(found)}"
    )


def _stuck(found: Law) -> str:
    least, most = _few(found.stuck), _few(max(found.stuck, found.stuck_most))
    return "" if most == "0" else f" + {most} stuck" if least == most else f" + {least} to {most} stuck"


def _why(found: Law) -> str:
    if found.equals:
        return ""
    return " (within the sampling error)" if found.agrees else _unexplained(found)


def _unexplained(found: Law) -> str:
    """A sampler that takes a CPU from a fast device's load sees less in flight than there is (docs/OUTSTANDING.md)."""
    if found.error and found.outstanding < found.explained:
        return ": sampled gauges miss fast I/Os"
    return "; what explains the difference is not known"


def _law(
    outstanding: float | None, times: Times | None, time_us: int, waiting: Iterable[Aged], left: int
) -> Law | None:
    if times is None or times.ios < _MIN_IOS or not time_us:
        return None
    stuck = [one for one in waiting if one.age_us > times.usual_us * (1 if times.longest_us is not None else _LENGTHS)]
    moving = left - sum(one.count for one in stuck)
    if time_us < _LENGTHS * times.usual_us or moving > _AGREE * times.ios:
        return None
    found = law(outstanding, times.mean_us, times.ios * 1e6 / time_us)
    least = sum(one.count * min(one.age_us, time_us) for one in stuck) / time_us
    most = sum(one.count * (time_us if one.at_least else min(one.age_us, time_us)) for one in stuck) / time_us
    return found and found._replace(stuck=least, stuck_most=most)


def _issued(rows: Iterable[Aged]) -> Iterable[Aged]:
    """Return the rows that may be in the driver."""
    return tuple(one for one in rows if one.request is None or one.request.issued is not False)


def _mean(counts: Mapping[int, int]) -> float | None:
    whole = sum(counts.values())
    return sum(bucket_middle(depth) * n for depth, n in counts.items()) / whole if whole else None


def _error(depths: Depths, span_us: int, *, with_queue: bool) -> float:
    """Return the sampling error of the mean outstanding; a probe looks every 4 ms."""
    if depths.source != SYSFS:
        return 0.0
    deviation = sum(_deviation(one) for one in (depths.in_driver, depths.queued if with_queue else {}))
    return _SIGMAS * deviation / math.sqrt(max(1.0, _LOOKS_PER_S * span_us / 1e6))


def _deviation(counts: Mapping[int, int]) -> float:
    middle, whole = _mean(counts) or 0.0, sum(counts.values()) or 1
    return math.sqrt(sum((bucket_middle(depth) - middle) ** 2 * n for depth, n in counts.items()) / whole)


def _too_rare(depths: Depths, span_us: int) -> bool:
    moments = sum(depths.in_driver.values())
    busy_us = (1 - depths.in_driver.get(0, 0) / moments) * span_us if moments else 0
    return depths.source == SYSFS and busy_us < max(_MIN_BUSY_US, _MIN_BUSY * span_us)


def _iops(value: float) -> str:
    """Three digits, which is what a mean over some seconds has."""
    if value < 100:  # noqa: PLR2004 - below, a digit behind the point tells
        return rate(value)
    step = 10 ** max(0, len(str(int(value))) - 3)
    return f"{round(value / step) * step:,}"


def _tenths(value: float) -> str:
    """Numbers that are added up before the reader's eyes: 0.003, 0.6, 2, 48."""
    return f"{value:.1g}" if 0 < value < 0.1 else f"{value:,.1f}".removesuffix(".0")  # noqa: PLR2004 - it would be 0


def _few(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - %g would write an exponent
