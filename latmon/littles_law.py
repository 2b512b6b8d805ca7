"""Little's law for a device: IOPS = outstanding / latency, and what lifting its limit would give. Pure.

The three are means over the same time, of I/Os between the same two points: in the driver with the time in the driver,
or all of them with the whole latency.
"""

from __future__ import annotations

from typing import NamedTuple

from latmon.views.units import rate, spelled

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


def _iops(value: float) -> str:
    """Three digits, which is what a mean over some seconds has."""
    if value < 100:  # noqa: PLR2004 - below, a digit behind the point tells
        return rate(value)
    step = 10 ** max(0, len(str(int(value))) - 3)
    return f"{round(value / step) * step:,}"


def _few(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - %g would write an exponent
