"""Little's law for a device: outstanding = IOPS x latency, and the gain from a higher limit.

The three are means over the same time and the same part of the path: the driver with the time in the driver, or all
I/Os with the whole latency. All I/Os are the requests of the kernel's counters and gauges: these include the empty
write of a flush, which no probe times.

The law applies to a stationary window (Little, Operations Research 59(3), 2011; Denning and Buzen, Computing Surveys
10(3), 1978; docs/OUTSTANDING.md): few I/Os cross its edges, and I/Os that have not completed at its end are few or
known to be stuck. Stuck ones are in the gauges and in no latency.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from latmon.analysis.limits import wall
from latmon.model.frame import OPS, Counted, Limit, Series
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import PROBE, SYSFS, Aged, Depths, bucket_middle
from latmon.support.units import rate, spelled

COUNTED = tuple(op for op in OPS if op != "flush")
"""Operations that the gauges count: a flush's request is not among them (RQF_FLUSH_SEQ)."""
_MOSTLY = 0.9
"""Least share of the time with depth samples."""
_MIN_BUSY_US, _MIN_BUSY = 1_000_000, 0.05
"""Least busy time, absolute and as a share: below it sampled gauges have too few busy samples for a mean."""
_MIN_IOS = 100
"""Least number of I/Os: of fewer, one that crosses an edge of the window is a large part of the mean."""
_ENOUGH_US = 10_000_000
"""Shorter windows report no disagreement, because sampled gauges may differ from the completions."""
_AGREE = 0.1
"""Tolerated difference: sampled gauges and I/Os that cross the edges of the window cause some percent."""
_LOOKS_PER_S = 9
"""Sampling rate of gauges with ten disks and busy CPUs (docs/OUTSTANDING.md); the real number isn't recorded."""
_SIGMAS = 2
"""Standard errors of a sampled mean: 95 %."""
_LENGTHS = 2 / _AGREE
"""Least length of a window in multiples of its longest I/O. At each of its two edges L I/Os are in flight on average,
each for at most that long outside: 2 L longest / (L window) <= _AGREE."""
LawScope = Literal["all", "driver"]
"""I/Os that a law is about: all, or those in the driver."""
_PLACES = {"all": ("in flight", "in driver and queue"), "driver": ("in the driver", "in the driver")}
"""Names of the I/Os that a law is about, in an equation and for a count."""


class Law(NamedTuple):
    """Three independently measured means, and the I/Os that explain a difference."""

    outstanding: float
    latency_us: float
    iops: float
    stuck: float = 0.0
    """Part of `outstanding`: mean number of I/Os in flight at the end that are older than any that completed."""
    error: float = 0.0
    """Sampling error of `outstanding`."""
    stuck_most: float = 0.0
    """Upper bound of `stuck`; greater where only a lower bound of some ages is known."""
    unknown_age: int = 0
    """I/Os in flight at the end whose age isn't known, so that they may be stuck."""

    @property
    def by_law(self) -> float:
        """Outstanding I/Os by Little's law: rate times latency."""
        return self.iops * self.latency_us / 1e6

    @property
    def explained(self) -> float:
        """Number by the law plus the stuck ones, as close to the counted number as the bounds of the latter allow."""
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
    """Upper bounds of a device's IOPS with more in flight, if the time in the driver stayed the same."""

    limit: int
    depth: int
    iops: float
    """At `depth`."""
    most: float
    """At `limit`, the most that the limit allows."""


class MeanTimes(NamedTuple):
    """Completed I/Os, their mean time, and an upper bound of the longest one, None where it isn't known."""

    ios: int
    mean_us: float
    longest_us: int | None = None

    @property
    def usual_us(self) -> float:
        """The longest time where it is known, else the mean."""
        return self.mean_us if self.longest_us is None else self.longest_us


class LawCheck(NamedTuple):
    """Little's law for a device, and the I/Os that it is about: `all` of them, or those in the `driver`."""

    of: LawScope
    law: Law
    lift: Lift | None

    @property
    def sentence(self) -> str:
        return sentence(self.law, self.lift, self.of)


def times_of(histogram: Histogram | None) -> MeanTimes | None:
    """Return the times of a histogram's I/Os; None without any, or where their sum isn't known."""
    return (
        MeanTimes(histogram.count, histogram.mean, histogram.max_bound)
        if histogram and histogram.mean is not None
        else None
    )


def times(
    depths: Depths,
    done: Mapping[str, Counted],
    probe: MeanTimes | None,
    longest_us: int | None = None,
) -> MeanTimes | None:
    """Return the completed I/Os and their times, of the same requests that the depths count.

    `done`: completions by op; `probe`: times of COUNTED by a probe, `longest_us` among them. Sampled gauges belong to
    the kernel's times. A probe's depths belong to its times; if there are flushes, whose empty writes its histograms
    lack, to its times by depth.
    """
    counted_rows = [done[op] for op in COUNTED if op in done]
    ios, kernel_us = sum(counted.every.count for counted in counted_rows if counted.every), kernel_mean_us(counted_rows)
    kernel = None if kernel_us is None else MeanTimes(ios, kernel_us, longest_us)
    if depths.source != PROBE or not ios:
        return kernel or probe
    flushes = done["flush"].every if "flush" in done else None
    if probe is not None and not (flushes and flushes.count):
        return probe
    by_depth = sum(took.ios for took in depths.latency.values())
    if not by_depth:
        return kernel or probe
    return MeanTimes(ios, sum(took.time_us for took in depths.latency.values()) / by_depth, longest_us)


def kernel_mean_us(found: Iterable[Counted]) -> float | None:
    """Return the mean of the kernel's times; None where it doesn't time each op."""
    timed = [counted.timed for counted in found if counted.timed and counted.timed.count]
    times_us = [completed.time_us for completed in timed if completed.time_us is not None]
    return (
        sum(times_us) / sum(completed.count for completed in timed)
        if times_us and len(times_us) == len(timed)
        else None
    )


def of(
    depths: Depths,
    span_us: int,
    time_us: int,
    *,
    whole: MeanTimes | None = None,
    driver: MeanTimes | None = None,
    bound: Limit | None = None,
    waiting: Iterable[Aged] = (),
    left: int = 0,
) -> LawCheck | None:
    """Apply the law to a device over `time_us`, with `depths` over `span_us` of it; None where too little is known.

    `whole`: times from the block layer on, `driver`: times in the driver, both of COUNTED. The law is about all I/Os
    where queued ones are counted, else about those in the driver. `left`: the device's I/Os in flight at the end;
    `waiting`: rows of these with an age. None also for a window that isn't stationary.
    """
    in_driver, queued = _mean(depths.in_driver), _mean(depths.queued)
    if in_driver is None or span_us < _MOSTLY * time_us or _too_rare(depths, span_us):
        return None
    rows = tuple(waiting)
    of_all = _law(None if queued is None else in_driver + queued, whole, time_us, rows, left)
    name: LawScope = "all" if of_all else "driver"
    device_law = of_all or _law(in_driver, driver, time_us, _issued(rows), left)
    unknown = max(0, left - sum(aged.count for aged in rows))
    device_law = device_law and device_law._replace(
        error=_error(depths, span_us, with_queue=name == "all"), unknown_age=unknown
    )
    if device_law is None or not (device_law.agrees or time_us >= _ENOUGH_US):
        return None
    limit = wall(depths, bound)
    above = _mean({depth: n for depth, n in depths.queued.items() if depth}) or 0
    lifted = lift(limit, (limit or 0) + round(above), in_driver * 1e6 / device_law.iops) if device_law.agrees else None
    return LawCheck(name, device_law, lifted)


def mean_waiting(traced: Mapping[Series, Histogram], device: str, ios: int, span_us: int) -> float | None:
    """Return the mean number of I/Os that wait above a driver whose kernel doesn't count them (Linux before 6.10).

    It is the rate of `ios` completions in `span_us` times the mean of the traced waits. None where no request was
    traced, or without the sum of the waits.
    """
    waits, total = (
        merge(histogram for op in COUNTED if (histogram := traced.get(Series(device, op, stage))))
        for stage in ("queue", "total")
    )
    if not total.count or not span_us or (waits and waits.sum is None):
        return None
    return (waits.sum or 0) / total.count * ios / span_us


def law(outstanding: float | None, latency_us: float | None, iops: float) -> Law | None:
    """Return the law's three means; None where one of them isn't known or is 0."""
    if not outstanding or not latency_us or not iops:
        return None
    return Law(outstanding, latency_us, iops)


def lift(limit: int | None, depth: int, driver_us: float | None) -> Lift | None:
    """Return the gain of `depth` over `limit`, which the device is limited to (limits.wall); None without a limit.

    `driver_us` is the mean time in the driver. It grows with the depth when the device is busy all the time, so both
    rates are upper bounds.
    """
    if limit is None or limit < 1 or depth <= limit or not driver_us:
        return None
    return Lift(limit, depth, depth * 1e6 / driver_us, limit * 1e6 / driver_us)


def sentence(balance: Law, lifted: Lift | None = None, name: str = "all") -> str:
    """Return e.g. `1,000 IOPS = 3 in flight / 3 ms; at 32 in flight up to 10,700 if the time in the driver ...`."""
    place, counted = _PLACES[name]
    text = f"{_iops(balance.iops)} IOPS = {_few(balance.outstanding)} {place} / {spelled(balance.latency_us)}"
    if balance.stuck or balance.stuck_most or not balance.equals:
        text = f"{_iops(balance.iops)} IOPS at {spelled(balance.latency_us)}: {_difference(balance, counted)}"
    if lifted is None:
        return text
    return f"{text}; at {lifted.depth:,} in flight up to {_iops(lifted.iops)} if the time in the driver stayed the same"


def _difference(balance: Law, place: str) -> str:
    """Return `0.6 by Little's law + 2 stuck = 2.6 counted in driver and queue`; without `=` where the sides differ."""
    explained = _tenths(balance.by_law + balance.stuck)
    if balance.equals and balance.stuck_most <= balance.stuck and explained == _tenths(balance.outstanding):
        return (
            f"{_tenths(balance.by_law)} by Little's law + {_tenths(balance.stuck)} stuck = {explained} counted {place}"
        )
    by_law = f"{_few(balance.by_law)} by Little's law{_stuck(balance)}"
    return f"{by_law}, {_few(balance.outstanding)} counted {place}{_why(balance)}"


def _stuck(balance: Law) -> str:
    least, few = _few(balance.stuck), _few(max(balance.stuck, balance.stuck_most))
    return "" if few == "0" else f" + {few} stuck" if least == few else f" + {least} to {few} stuck"


def _why(balance: Law) -> str:
    if balance.equals:
        return ""
    return " (within the sampling error)" if balance.agrees else _unexplained(balance)


def _unexplained(balance: Law) -> str:
    """Return the cause of a difference: a sampler that competes with a fast device's load for a CPU counts less."""
    if balance.error and balance.outstanding < balance.explained:
        return ": sampled gauges miss fast I/Os"
    if 0 < balance.outstanding - balance.explained <= balance.unknown_age:
        return f"; {balance.unknown_age:,} of unknown age in flight at the end may be stuck"
    return "; what explains the difference is not known"


def _law(
    outstanding: float | None, times: MeanTimes | None, time_us: int, waiting: Iterable[Aged], left: int
) -> Law | None:
    if times is None or times.ios < _MIN_IOS or not time_us:
        return None
    stuck = [
        aged for aged in waiting if aged.age_us > times.usual_us * (1 if times.longest_us is not None else _LENGTHS)
    ]
    moving = left - sum(aged.count for aged in stuck)
    if time_us < _LENGTHS * times.usual_us or moving > _AGREE * times.ios:
        return None
    device_law = law(outstanding, times.mean_us, times.ios * 1e6 / time_us)
    least = sum(aged.count * min(aged.age_us, time_us) for aged in stuck) / time_us
    most = sum(aged.count * (time_us if aged.at_least else min(aged.age_us, time_us)) for aged in stuck) / time_us
    return device_law and device_law._replace(stuck=least, stuck_most=most)


def _issued(rows: Iterable[Aged]) -> Iterable[Aged]:
    """Return the rows that may be in the driver."""
    return tuple(aged for aged in rows if aged.request is None or aged.request.issued is not False)


def _mean(counts: Mapping[int, int]) -> float | None:
    total = sum(counts.values())
    return sum(bucket_middle(depth) * n for depth, n in counts.items()) / total if total else None


def _error(depths: Depths, span_us: int, *, with_queue: bool) -> float:
    """Return the sampling error of the mean outstanding; a probe samples every 4 ms and has none."""
    if depths.source != SYSFS:
        return 0.0
    deviation = sum(_deviation(shares) for shares in (depths.in_driver, depths.queued if with_queue else {}))
    return _SIGMAS * deviation / math.sqrt(max(1.0, _LOOKS_PER_S * span_us / 1e6))


def _deviation(counts: Mapping[int, int]) -> float:
    middle, total = _mean(counts) or 0.0, sum(counts.values()) or 1
    return math.sqrt(sum((bucket_middle(depth) - middle) ** 2 * n for depth, n in counts.items()) / total)


def _too_rare(depths: Depths, span_us: int) -> bool:
    moments = sum(depths.in_driver.values())
    busy_us = (1 - depths.in_driver.get(0, 0) / moments) * span_us if moments else 0
    return depths.source == SYSFS and busy_us < max(_MIN_BUSY_US, _MIN_BUSY * span_us)


def _iops(value: float) -> str:
    """Format a rate with three digits, the precision of a mean over some seconds."""
    if value < 100:  # noqa: PLR2004 - lower rates get a decimal
        return rate(value)
    step = 10 ** max(0, len(str(int(value))) - 3)
    return f"{round(value / step) * step:,}"


def _tenths(value: float) -> str:
    """Format a term of a sum that is shown: 0.003, 0.6, 2, 48."""
    return f"{value:.1g}" if 0 < value < 0.1 else f"{value:,.1f}".removesuffix(".0")  # noqa: PLR2004 - it would be 0


def _few(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"  # noqa: PLR2004 - %g would write an exponent
