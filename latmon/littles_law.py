"""Little's law for a device: IOPS = outstanding / latency, and what lifting its limit would give. Pure.

The three are means over the same time, of I/Os between the same two points: in the driver with the time in the driver,
or all of them with the whole latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon.limits import wall
from latmon.model import OPS, Limit
from latmon.outstanding import SYSFS, Depths, bucket_middle
from latmon.words import rate, spelled

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


class Law(NamedTuple):
    """Three means, each measured by itself."""

    outstanding: float
    latency_us: float
    iops: float

    @property
    def by_law(self) -> float:
        """How many the rate and the latency say are outstanding."""
        return self.iops * self.latency_us / 1e6

    @property
    def agrees(self) -> bool:
        """Whether that is what was counted; if not, some I/Os are missing from one of the three."""
        return abs(self.by_law - self.outstanding) <= _AGREE * max(self.by_law, self.outstanding)


class Lift(NamedTuple):
    """What a device at its limit could do with more in flight: the most, if the time in the driver stayed the same."""

    limit: int
    depth: int
    iops: float
    """Up to so many at `depth`."""
    most: float
    """Up to so many at `limit`: above that the limit allows none."""


class Times(NamedTuple):
    """I/Os that completed, and how long they took in the mean."""

    ios: int
    mean_us: float


class Found(NamedTuple):
    """Little's law of a device, and of which I/Os it is: `all` of them, or those in the `driver`."""

    of: str
    law: Law
    lift: Lift | None

    @property
    def sentence(self) -> str:
        return sentence(self.law, self.lift)


def of(
    depths: Depths,
    span_us: int,
    time_us: int,
    *,
    whole: Times | None = None,
    driver: Times | None = None,
    bound: Limit | None = None,
) -> Found | None:
    """Of a device over `time_us`, `span_us` of which `depths` are of; None where it isn't known well enough.

    `whole`: times from the block layer on, `driver`: in the driver alone, of COUNTED. The law is of all I/Os where
    what is queued is known, else of those in the driver.
    """
    in_driver, queued = _mean(depths.in_driver), _mean(depths.queued)
    if in_driver is None or span_us < _MOSTLY * time_us or _too_rare(depths, span_us):
        return None
    of_all = _law(None if queued is None else in_driver + queued, whole, time_us)
    name, found = ("all", of_all) if of_all else ("driver", _law(in_driver, driver, time_us))
    if found is None or not (found.agrees or time_us >= _ENOUGH_US):
        return None
    held = wall(depths, bound)
    waiting = _mean({depth: n for depth, n in depths.queued.items() if depth}) or 0
    lifted = lift(held, (held or 0) + round(waiting), in_driver * 1e6 / found.iops) if found.agrees else None
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


def sentence(found: Law, lifted: Lift | None = None) -> str:
    """`1,000 IOPS = 3 in flight / 3 ms; at 32 in flight up to 10,700 if the time in the driver stayed the same`."""
    said = f"{_iops(found.iops)} IOPS = {_few(found.outstanding)} in flight / {spelled(found.latency_us)}"
    if not found.agrees:
        said = (
            f"{_iops(found.iops)} IOPS at {spelled(found.latency_us)} are {_few(found.by_law)} in flight by Little's "
            f"law, and {_few(found.outstanding)} were counted: one of the three isn't of all I/Os"
        )
    if lifted is None:
        return said
    return f"{said}; at {lifted.depth:,} in flight up to {_iops(lifted.iops)} if the time in the driver stayed the same"


def _law(outstanding: float | None, times: Times | None, time_us: int) -> Law | None:
    few = times is None or times.ios < _MIN_IOS or not time_us
    return None if times is None or few else law(outstanding, times.mean_us, times.ios * 1e6 / time_us)


def _mean(counts: Mapping[int, int]) -> float | None:
    whole = sum(counts.values())
    return sum(bucket_middle(depth) * n for depth, n in counts.items()) / whole if whole else None


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


def _few(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - %g would write an exponent
