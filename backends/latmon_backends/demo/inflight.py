"""Outstanding I/O of synthetic hosts, from rates and times by Little's law.

One LUN is at its limit with a queue above it; two requests of a disk never complete. Draws nothing of its own: depths
follow from what the host did, so a window's means are its times divided by its length.

Those that a thread or a queue holds for longer than a window are told apart, because their whole time is in the window
in which they complete.

Knows no incident and draws nothing: means are a window's times divided by its length (Little's law).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, takewhile
from random import Random
from typing import NamedTuple

from latmon.analysis.limits import ceiling
from latmon.model.frame import Device, Frame, Limit, Outstanding
from latmon.model.inflight import (
    AGES_S,
    PROBE,
    SYSFS,
    Depths,
    InFlight,
    Issue,
    StillInFlight,
    Took,
    bucket_end,
    coarse_end,
)
from latmon_backends.demo.host import DEVICES, DrawnHost
from latmon_backends.demo.scenario import ABOVE_DRIVER, BELOW, INTERVAL_US, Drawn
from latmon_backends.demo.synthesis import poisson

STARVED = "sde"
"""Its scheduler sorts, and two of its requests never complete."""
MOMENTS = 1_000
MOST = 256
_TOLD = 0.0005
"""A depth that is rarer than half a moment isn't seen."""
_HELD_S, _WAITING_S = 5, 41
"""Seconds after the start at which the two began."""
_PASS_IT = 180
"""I/Os a second: nearly all that the disk does."""
_WORTH_US = 500_000
"""A probe tells of those that are older."""
_LIMITS = {d.name: ceiling(d.limits) for d in DEVICES}
_BURST = 96
_STEP = 1 << 18


@dataclass(frozen=True, slots=True)
class Busy:
    """What one device did in a window: I/Os, and their summed times below and above the driver."""

    ios: int
    hba_us: int
    queue_us: int


def told(frame: Frame, loads: Iterable[DrawnHost]) -> Frame:
    """The window with its depths, with what is still in flight, and with a burst of issues."""
    busy = busy_of(loads)
    start_us = frame.mono_us - (frame.seq + 1) * frame.dt_us
    held = _held(frame.mono_us, start_us)
    depths = {d.name: _depths(d, busy.get(d.name, Busy(0, 0, 0)), frame.dt_us, held) for d in DEVICES if d.timed}
    depths |= {d.name: _volume(d, busy, frame.dt_us) for d in DEVICES if not d.timed}
    return replace(
        frame,
        depths=depths,
        in_flight=StillInFlight(
            held,
            {s: sum(frame.mono_us - one.began_us > s * 1_000_000 for one in held) for s in AGES_S},
        ),
        issues={STARVED: _sorted_burst(frame)} if busy.get(STARVED) else {},
        outstanding={name: _gauge(name, now, _LIMITS.get(name), held) for name, now in frame.outstanding.items()},
    )


def busy_of(loads: Iterable[DrawnHost]) -> dict[str, Busy]:
    """By device."""
    found: dict[str, Busy] = {}
    for one in loads:
        had = found.get(one.flow.device, Busy(0, 0, 0))
        found[one.flow.device] = Busy(
            had.ios + one.total.count, had.hba_us + (one.hba.sum or 0), had.queue_us + (one.queue.sum or 0)
        )
    return found


def apportioned(shares: Mapping[int, float], n: int) -> dict[int, int]:
    """`n` things in these shares, none lost: rounding errors are carried on to the next."""
    total = sum(shares.values())
    sums = [round(n * one / total) for one in accumulate(shares.values())] if total else []
    counts = [now - before for now, before in zip(sums, [0, *sums], strict=False)]
    return {depth: count for depth, count in zip(shares, counts, strict=True) if count}


def crowd(mean: float, cap: int) -> dict[int, float]:
    """Shares of time with 0 to `cap` in service where they come at random (Erlang's), `mean` of them."""
    highest = min(cap, int(mean + 8 * math.sqrt(mean)) + 6, MOST)
    if highest < cap:  # hardly any is turned away: as many are in service as are offered
        return _erlang(mean, highest)
    mean = min(mean, cap * 0.995)
    low, high = mean, 1e5
    for _ in range(40):
        middle = math.sqrt(low * high)
        found = _erlang(middle, cap)
        low, high = (middle, high) if sum(k * p for k, p in found.items()) < mean else (low, middle)
    return found


def _erlang(offered: float, cap: int) -> dict[int, float]:
    weights = list(accumulate(range(1, cap + 1), lambda weight, k: weight * offered / k, initial=1.0))
    total = sum(weights)
    return {k: weight / total for k, weight in enumerate(weights)}


def line(mean: float, busy: float) -> dict[int, float]:
    """Shares of time with so many waiting, `mean` of them, where they only wait for a share `busy` of the time."""
    each = mean / busy
    ratio = each / (1 + each)
    waiting = takewhile(lambda p: p[1] > _TOLD / 10, ((j, busy * (1 - ratio) * ratio**j) for j in range(MOST)))
    found = dict(waiting)
    found[0] = found.get(0, 0) + 1 - busy
    return found


def _depths(device: Device, busy: Busy, dt_us: int, held: Iterable[InFlight]) -> Depths:
    limit = _LIMITS[device.name]
    cap = int(limit.value) if limit else MOST
    service = crowd(busy.hba_us / dt_us, cap) if busy.hba_us else {0: 1.0}
    full = cap <= MOST and max(service) == cap
    waiting = line(busy.queue_us / dt_us, service[cap] if full else 1.0) if busy.queue_us else {0: 1.0}
    stuck = [one.issued for one in held if one.device == device.name]
    return Depths(
        in_driver=_more(apportioned(service, MOMENTS), stuck.count(True)),
        queued=_more(apportioned(waiting, MOMENTS), stuck.count(False)),
        at_issue=_more(apportioned(after_issue(service, cap), busy.ios), stuck.count(True)),
        latency=_latency(service, waiting, cap if full else None, busy),
        source=PROBE,
    )


def after_issue(service: Mapping[int, float], cap: int) -> dict[int, float]:
    """What one that comes at random finds, itself counted; where all are busy it takes the place of one."""
    found: dict[int, float] = {}
    for depth, share in service.items():
        found[min(depth + 1, cap)] = found.get(min(depth + 1, cap), 0) + share
    return found


def _latency(
    service: Mapping[int, float], waiting: Mapping[int, float], cap: int | None, busy: Busy
) -> dict[int, Took]:
    """By all that are outstanding: the more there are, the longer it took; the sums are the window's own."""
    if cap is None:
        found = {depth + 1: share for depth, share in service.items()}
    else:
        found = {depth + 1: share for depth, share in service.items() if depth < cap}
        found |= {cap + 1 + j: share for j, share in waiting.items() if j}
        found[cap + 1] = found.get(cap + 1, 0) + max(1 - sum(found.values()), 0)
    counts = apportioned(dict(sorted(found.items())), busy.ios)
    weights = {n: ios * (max(n, cap) if cap else 8 + n) for n, ios in counts.items()}
    times = apportioned({n: float(w) for n, w in weights.items()}, busy.hba_us + busy.queue_us)
    return {n: Took(ios, times.get(n, 0)) for n, ios in counts.items()}


def _volume(volume: Device, busy: Mapping[str, Busy], dt_us: int) -> Depths:
    parts = [busy[name] for name in volume.members if name in busy]
    mean = sum(one.hba_us + one.queue_us for one in parts) / dt_us
    return Depths(in_driver=apportioned(crowd(mean, MOST), MOMENTS) if mean else {0: MOMENTS}, source=SYSFS)


def _held(now_us: int, start_us: int) -> tuple[InFlight, ...]:
    """The two that never complete: one in the driver, one that the scheduler passes over; the disk's others go on."""
    stuck = InFlight(
        STARVED,
        "write",
        start_us + _HELD_S * 1_000_000,
        flags=("sync", "fua"),
        sector=7_516_192_768,
        bytes=4096,
        pid=5102,
        comm="ora_lgwr",
        issued=True,
    )
    passed = InFlight(
        STARVED,
        "read",
        start_us + _WAITING_S * 1_000_000,
        sector=15_032_385_528,
        bytes=8192,
        pid=7781,
        comm="backup",
        issued=False,
    )
    aged = [(one, now_us - one.began_us) for one in (stuck, passed)]
    return tuple(one._replace(overtaken_by=age * _PASS_IT // 1_000_000) for one, age in aged if age > _WORTH_US)


def _gauge(device: str, now: Outstanding, limit: Limit | None, held: Iterable[InFlight]) -> Outstanding:
    """What was drawn, with the two; what is above the limit waits."""
    if now.in_driver is None or now.queued is None:
        return now
    stuck = [one.issued for one in held if one.device == device]
    in_driver, queued = now.in_driver + stuck.count(True), now.queued + stuck.count(False)
    most = int(limit.value) if limit else in_driver
    return Outstanding(min(in_driver, most), queued + max(in_driver - most, 0))


def _more(counts: Mapping[int, int], by: int) -> dict[int, int]:
    return {depth + by: n for depth, n in counts.items()}


def _sorted_burst(frame: Frame) -> tuple[Issue, ...]:
    """Ever upwards, then from the start again: what a scheduler that sorts makes of random requests."""
    begin_us, gap_us = frame.mono_us - frame.dt_us, frame.dt_us // (2 * _BURST)
    found = []
    for i in range(_BURST):
        place = (frame.seq * _BURST + i) % (3 * _BURST // 2)
        sector = place * 7 * _STEP + (i * 2_654_435_761) % _STEP // 8 * 8
        op = "write" if i * 7 % 5 < 2 else "read"  # noqa: PLR2004 - two of five
        found.append(
            Issue(begin_us + i * gap_us, sector, 8192 if i % 16 else 262_144, op, 2_000 + i * 77_977 % 480_000)
        )
    return tuple(found)


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
        found.depths[name] = _crowded_depths(now, service, here, cap)
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


def _crowded_depths(busy: _Busy, service: Mapping[int, float], held: Held | None, most: int) -> Depths:
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


_WIDE = 4
"""Standard deviations that a bell reaches to either side."""
Shares = Mapping[int, float]


def served(mean: float, cap: int) -> Shares:
    """Of those that come at random, `cap` at most at once."""
    return _served(round(mean, 2), cap) if mean else {0: 1.0}


def waiting(mean: float) -> Shares:
    """Of those that wait now and then, `mean` in all."""
    return line(mean, min(1.0, mean)) if mean else {0: 1.0}


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
        latency=_depth_latency(in_driver, queued, ios, time_us),
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
    return crowd(mean, cap)


def _depth_latency(in_driver: Shares, queued: Shares, ios: int, time_us: int) -> dict[int, Took]:
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
