"""How many I/Os an incident's devices had outstanding: by Little's law of the very times that were drawn.

Those that a thread or a queue holds for longer than a window are told apart, because their whole time is in the window
in which they complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from latmon.model import Device, Outstanding
from latmon.outstanding import PROBE, Depths, Took
from latmon_backends.demo_outstanding import MOMENTS, MOST, after_issue, apportioned, crowd, line
from latmon_backends.incidents.drawing import INTERVAL_US, Drawn
from latmon_backends.synthetic import poisson

_HELD_US = INTERVAL_US // 2
"""I/Os of more than this are told by `Held` alone."""


class Held(NamedTuple):
    """`ios` I/Os of a device that its driver held for a share of this window, and whether it still does."""

    ios: int
    share: float
    still: bool


class Crowds(NamedTuple):
    """Of every device: at the window's end, and over the window."""

    outstanding: dict[str, Outstanding]
    depths: dict[str, Depths]


@dataclass
class _Busy:
    """What a device did in a window: I/Os with all of their time, and the time of those that were not held."""

    ios: int = 0
    all_us: int = 0
    below_us: int = 0
    queue_us: int = 0


def crowds(
    rng: Random,
    loads: Iterable[Drawn],
    devices: Iterable[Device],
    held: Mapping[str, Held] | None = None,
    most: Mapping[str, int] | None = None,
) -> Crowds:
    """`most`: device -> how many its driver takes, or its only application sends, at a time."""
    busy = {device.name: _Busy() for device in devices}
    for one in loads:
        _add(busy[one.flow.device], one)
    found = Crowds({}, {})
    for name, now in busy.items():
        here, cap = (held or {}).get(name), (most or {}).get(name, MOST)
        still = here.ios if here is not None and here.still else 0
        service = crowd(now.below_us / INTERVAL_US, cap) if now.below_us else {0: 1.0}
        driver = _at_one_moment(rng, service)
        found.outstanding[name] = Outstanding(driver + still, poisson(rng, now.queue_us / INTERVAL_US))
        found.depths[name] = _depths(now, service, here, cap)
    return found


def _at_one_moment(rng: Random, shares: Mapping[int, float]) -> int:
    far = rng.random()
    for depth, share in shares.items():
        far -= share
        if far < 0:
            return depth
    return max(shares)


def _add(busy: _Busy, one: Drawn) -> None:
    for part, below, total in zip(one.parts, one.below, one.totals, strict=True):
        busy.ios += part.size
        busy.all_us += part.size * total
        if total <= _HELD_US:
            busy.below_us += part.size * below
            busy.queue_us += part.size * (total - below)


def _depths(busy: _Busy, service: Mapping[int, float], held: Held | None, most: int) -> Depths:
    waiting = line(busy.queue_us / INTERVAL_US, 1.0) if busy.queue_us else {0: 1.0}
    counts = apportioned(after_issue(service, most), busy.ios)
    times = apportioned({n: float(count * (8 + n)) for n, count in counts.items()}, busy.all_us)
    return Depths(
        in_driver=apportioned(_with(service, held), MOMENTS),
        queued=apportioned(waiting, MOMENTS),
        at_issue=counts,
        latency={n: Took(count, times.get(n, 0)) for n, count in counts.items()},
        source=PROBE,
    )


def _with(service: Mapping[int, float], held: Held | None) -> dict[int, float]:
    if held is None:
        return dict(service)
    found = {depth: share * (1 - held.share) for depth, share in service.items()}
    for depth, share in service.items():
        found[depth + held.ios] = found.get(depth + held.ios, 0) + share * held.share
    return dict(sorted(found.items()))
