"""How many I/Os a device of an incident had outstanding: shares of time that agree with its rates and times.

Knows no incident and draws nothing: means are a window's times divided by its length (Little's law).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

from latmon.outstanding import PROBE, Depths, Took, bucket_end, coarse_end
from latmon_backends import demo_outstanding
from latmon_backends.demo_outstanding import MOMENTS, after_issue, apportioned
from latmon_backends.incidents.drawing import ABOVE_DRIVER, BELOW, INTERVAL_US, Drawn

_WIDE = 4
"""Standard deviations that a bell reaches to either side."""
Shares = Mapping[int, float]


def served(mean: float, cap: int) -> Shares:
    """Of those that come at random, `cap` at most at once."""
    return _served(round(mean, 2), cap) if mean else {0: 1.0}


def waiting(mean: float) -> Shares:
    """Of those that wait now and then, `mean` in all."""
    return demo_outstanding.line(mean, min(1.0, mean)) if mean else {0: 1.0}


def bell(mean: float, spread: float, cap: int) -> Shares:
    """Of a load that keeps nearly the same number in flight at all times."""
    low, high = max(0, math.floor(mean - _WIDE * spread)), min(cap, math.ceil(mean + _WIDE * spread))
    return {n: math.exp(-(((n - mean) / spread) ** 2) / 2) for n in range(low, high + 1)}


def ordinary(loads: Sequence[Drawn], cap: int) -> Depths:
    """Of a device with these loads, whose driver takes `cap`."""
    below, above = (sum(one.summed(*stages) for one in loads) / INTERVAL_US for stages in (BELOW, ABOVE_DRIVER))
    ios, time_us = sum(one.count for one in loads), sum(one.total.sum or 0 for one in loads)
    return depths(served(below, cap), waiting(above), cap, ios, time_us)


def depths(in_driver: Shares, queued: Shares, cap: int, ios: int, time_us: int) -> Depths:
    """As a probe tells them. `ios`: that were issued; `time_us`: the sum of their times."""
    return Depths(
        in_driver=ends(apportioned(in_driver, MOMENTS)),
        queued=ends(apportioned(queued, MOMENTS)),
        at_issue=ends(apportioned(after_issue(dict(sorted(in_driver.items())), cap), ios)),
        latency=_latency(in_driver, queued, ios, time_us),
        source=PROBE,
    )


def ends(counts: Mapping[int, int]) -> dict[int, int]:
    """Above 256 a depth is told by the end of its bucket."""
    found: dict[int, int] = {}
    for depth, n in counts.items():
        found[bucket_end(depth)] = found.get(bucket_end(depth), 0) + n
    return found


@lru_cache(maxsize=1 << 12)
def _served(mean: float, cap: int) -> Shares:
    return demo_outstanding.crowd(mean, cap)


def _latency(in_driver: Shares, queued: Shares, ios: int, time_us: int) -> dict[int, Took]:
    """By all that were outstanding as it came, itself counted: one that comes to more takes longer."""
    most = max(in_driver, key=lambda depth: in_driver[depth])
    few = sum(queued.values()) == queued.get(0, 0)
    found = {depth + 1: share for depth, share in (in_driver if few else queued).items()}
    shift = 0 if few else most
    counts = apportioned({depth + shift: share for depth, share in sorted(found.items())}, ios)
    times = apportioned({depth: float(n * (8 + depth)) for depth, n in counts.items()}, time_us)
    told: dict[int, Took] = {}
    for depth, n in counts.items():
        had = told.get(coarse_end(depth), Took(0, 0))
        told[coarse_end(depth)] = Took(had.ios + n, had.time_us + times.get(depth, 0))
    return told
