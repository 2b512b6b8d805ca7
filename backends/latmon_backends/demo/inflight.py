"""Outstanding I/O of synthetic hosts: depths by Little's law from the rates and times of a window.

A depth distribution is computed from the mean, a window's times divided by its length, so it agrees with the window's
histograms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, takewhile
from random import Random
from typing import Any, NamedTuple

from latmon.model.frame import Device, Frame, Outstanding
from latmon.model.inflight import PROBE, Depths, Took, bucket_end, bucket_middle, coarse_end
from latmon_backends.demo.probed_host import ProbedHost
from latmon_backends.demo.scenario import INTERVAL_US, FlowIos, drawn_outliers, poisson

Shares = Mapping[int, float]
"""Depth -> share of time with that many; shares need not add up to 1."""
MOMENTS = 1_000
"""Samples of a depth in a window."""
MOST = 256
_REPORTED = 0.0005
"""A depth rarer than half a sample is left out."""
_LONG_US = INTERVAL_US // 2
"""I/Os of more than this are counted by `InDriver` alone: their whole time is in the window in which they complete."""
_WIDE = 4
"""Standard deviations that a bell reaches to either side."""


class DeviceTimes(NamedTuple):
    """The I/Os of a device in a window, and their summed times in us."""

    ios: int = 0
    all_us: int = 0
    below_us: int = 0
    """From the last issue to completion."""
    above_us: int = 0


class InDriver(NamedTuple):
    """`ios` I/Os that the driver had for a share of this window; `still`: it has them at the window's end."""

    ios: int
    share: float
    still: bool


def device_times(loads: Iterable[FlowIos], up_to_us: int | None = None) -> dict[str, DeviceTimes]:
    """Sum the loads by device; `below_us` and `above_us` leave out I/Os that took longer than `up_to_us`."""
    times_by_name: dict[str, DeviceTimes] = {}
    for flow_ios in loads:
        earlier_device_times = times_by_name.get(flow_ios.flow.device, DeviceTimes())
        each = zip(flow_ios.groups, flow_ios.below, flow_ios.totals, strict=True)
        times = [(g.size * us, g.size * total) for g, us, total in each if up_to_us is None or total <= up_to_us]
        below, total = sum(us for us, _ in times), sum(us for _, us in times)
        times_by_name[flow_ios.flow.device] = DeviceTimes(
            earlier_device_times.ios + flow_ios.count,
            earlier_device_times.all_us + (flow_ios.total.sum or 0),
            earlier_device_times.below_us + below,
            earlier_device_times.above_us + total - below,
        )
    return times_by_name


def apportioned(shares: Shares, n: int) -> dict[int, int]:
    """Return `n` things in these shares, none lost: rounding errors are carried on to the next."""
    total = sum(shares.values())
    sums = [round(n * running / total) for running in accumulate(shares.values())] if total else []
    counts = [now - before for now, before in zip(sums, [0, *sums], strict=False)]
    return {depth: count for depth, count in zip(shares, counts, strict=True) if count}


def in_service_shares(mean: float, cap: int) -> dict[int, float]:
    """Return the shares of 0 to `cap` in service with random arrivals (Erlang's loss formula), `mean` of them."""
    highest = min(cap, int(mean + 8 * math.sqrt(mean)) + 6, MOST)
    if highest < cap:  # hardly any is turned away: as many are in service as are offered
        return _erlang(mean, highest)
    mean = min(mean, cap * 0.995)
    low, high = mean, 1e5
    for _ in range(40):
        middle = math.sqrt(low * high)
        in_service_shares = _erlang(middle, cap)
        low, high = (middle, high) if sum(k * p for k, p in in_service_shares.items()) < mean else (low, middle)
    return in_service_shares


def _erlang(offered: float, cap: int) -> dict[int, float]:
    weights = list(accumulate(range(1, cap + 1), lambda weight, k: weight * offered / k, initial=1.0))
    total = sum(weights)
    return {k: weight / total for k, weight in enumerate(weights)}


def line(mean: float, busy: float) -> dict[int, float]:
    """Return the shares of so many waiting, `mean` of them, where any wait only for a share `busy` of the time."""
    each = mean / busy
    ratio = each / (1 + each)
    lines = dict(takewhile(lambda p: p[1] > _REPORTED / 10, ((j, busy * (1 - ratio) * ratio**j) for j in range(MOST))))
    lines[0] = lines.get(0, 0) + 1 - busy
    return lines


def served(mean: float, cap: int) -> Shares:
    """Return `in_service_shares` of a mean rounded to 0.01, so that equal devices cost one computation."""
    return _served(round(mean, 2), cap) if mean else {0: 1.0}


@lru_cache(maxsize=1 << 12)
def _served(mean: float, cap: int) -> Shares:
    return in_service_shares(mean, cap)


def waiting(mean: float) -> Shares:
    """Return the shares of an occasional queue of `mean` I/Os."""
    return line(mean, min(1.0, mean)) if mean else {0: 1.0}


def bell(mean: float, spread: float, cap: int) -> Shares:
    """Return the shares of a load that keeps nearly the same number in flight at all times."""
    low, high = max(0, math.floor(mean - _WIDE * spread)), min(cap, math.ceil(mean + _WIDE * spread))
    return {n: math.exp(-(((n - mean) / spread) ** 2) / 2) for n in range(low, high + 1)}


def shifted(shares: Shares, by: int) -> dict[int, float]:
    """Return the shares with `by` more in flight at all times."""
    return {depth + by: share for depth, share in shares.items()}


def after_issue(service: Shares, cap: int) -> dict[int, float]:
    """Return the depths that a random arrival makes, itself counted; where all are busy it takes the place of one."""
    after_issues: dict[int, float] = {}
    for depth, share in service.items():
        after_issues[min(depth + 1, cap)] = after_issues.get(min(depth + 1, cap), 0) + share
    return after_issues


def probe_depths(
    in_driver: Shares, queued: Shares, at_issue: Shares, latency: Shares, times: DeviceTimes, *, full: int = 0
) -> Depths:
    """Return depths as a probe reports them.

    `latency`: outstanding I/Os at arrival; the more there are, the longer it took. `full`: where the driver has that
    many at all times, the time is proportional to the number and each number to 256 is kept; 0: it grows slower.
    """
    counts = apportioned(dict(sorted(latency.items())), times.ios)
    weights = {depth: float(n * (max(depth, full) if full else 8 + depth)) for depth, n in counts.items()}
    took_us = apportioned(weights, times.all_us)
    took: dict[int, Took] = {}
    for depth, n in counts.items():
        end = bucket_end(depth) if full else coarse_end(depth)
        earlier_took = took.get(end, Took(0, 0))
        took[end] = Took(earlier_took.ios + n, earlier_took.time_us + took_us.get(depth, 0))
    return Depths(
        in_driver=ends(apportioned(in_driver, MOMENTS)),
        queued=ends(apportioned(queued, MOMENTS)),
        at_issue=ends(apportioned(at_issue, times.ios)),
        latency=took,
        source=PROBE,
    )


def ends(counts: Mapping[int, int]) -> dict[int, int]:
    """Merge depths above 256 into their buckets, which are named by their ends."""
    ends: dict[int, int] = {}
    for depth, n in counts.items():
        ends[bucket_end(depth)] = ends.get(bucket_end(depth), 0) + n
    return ends


def depths(in_driver: Shares, queued: Shares, cap: int, times: DeviceTimes) -> Depths:
    """Return a device's depths; an arrival finds the queue, or where there is none the I/Os in the driver."""
    usual = max(in_driver, key=lambda depth: in_driver[depth])
    empty = sum(queued.values()) == queued.get(0, 0)
    latency = shifted(in_driver, 1) if empty else shifted(queued, 1 + usual)
    return probe_depths(in_driver, queued, after_issue(dict(sorted(in_driver.items())), cap), latency, times)


def ordinary(loads: Sequence[FlowIos], cap: int) -> Depths:
    """Return the depths of a device with these loads, whose driver takes `cap`."""
    times = sum_of(device_times(loads).values())
    return depths(served(times.below_us / INTERVAL_US, cap), waiting(times.above_us / INTERVAL_US), cap, times)


def sum_of(parts: Iterable[DeviceTimes]) -> DeviceTimes:
    """Return the sum of the times of several devices or loads."""
    return DeviceTimes(*map(sum, zip(DeviceTimes(), *parts, strict=True)))


def depth_tables(
    rng: Random,
    loads: Iterable[FlowIos],
    devices: Iterable[Device],
    stuck: Mapping[str, InDriver] | None = None,
    most: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Return a frame's `outstanding` and `depths` with random arrivals.

    `stuck`: device -> I/Os that the driver has besides these loads. `most`: device -> how many its driver takes, or its
    only application sends, at a time.
    """
    times = device_times(loads, _LONG_US)
    outstanding, all_depths = {}, {}
    for name in (device.name for device in devices):
        now, stuck_now, cap = times.get(name, DeviceTimes()), (stuck or {}).get(name), (most or {}).get(name, MOST)
        service = in_service_shares(now.below_us / INTERVAL_US, cap) if now.below_us else {0: 1.0}
        still = stuck_now.ios if stuck_now is not None and stuck_now.still else 0
        in_driver = _at_one_moment(rng, service) + still
        outstanding[name] = Outstanding(in_driver, poisson(rng, now.above_us / INTERVAL_US))
        queued = line(now.above_us / INTERVAL_US, 1.0) if now.above_us else {0: 1.0}
        issued = after_issue(service, cap)
        all_depths[name] = probe_depths(_with(service, stuck_now), queued, issued, issued, now)
    return {"outstanding": outstanding, "depths": all_depths}


def _at_one_moment(rng: Random, shares: Shares) -> int:
    far = rng.random()
    for depth, share in shares.items():
        far -= share
        if far < 0:
            return depth
    return max(shares)


def _with(service: Shares, stuck: InDriver | None) -> Shares:
    """Add the I/Os that the driver had for a part of the window."""
    if stuck is None:
        return service
    remaining_shares = {depth: share * (1 - stuck.share) for depth, share in service.items()}
    for depth, share in service.items():
        remaining_shares[depth + stuck.ios] = remaining_shares.get(depth + stuck.ios, 0) + share * stuck.share
    return dict(sorted(remaining_shares.items()))


def gauges(rng: Random, reported: Mapping[str, Depths]) -> dict[str, Outstanding]:
    """Draw the outstanding I/Os of one moment from each device's depths."""
    return {name: Outstanding(_sampled(rng, d.in_driver), _sampled(rng, d.queued)) for name, d in reported.items()}


def _sampled(rng: Random, counts: Mapping[int, int]) -> int:
    left = rng.random() * sum(counts.values())
    for depth, n in counts.items():
        left -= n
        if left < 0:
            return int(bucket_middle(depth))
    return 0


def probed_window(
    rng: Random,
    seq: int,
    probed: ProbedHost,
    loads: Sequence[FlowIos],
    reported: Mapping[str, Depths],
    **tables: Any,
) -> Frame:
    """Return window `seq` with drawn outliers and gauges."""
    mono_us = probed.host.origin.start_mono_us + (seq + 1) * INTERVAL_US
    outliers = drawn_outliers(rng, probed.host, loads, mono_us)
    return probed.window(seq, loads, outliers, outstanding=gauges(rng, reported), depths=reported, **tables)
