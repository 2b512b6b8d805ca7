"""Incident bubbles: 302 I/Os wait for nine minutes behind sd's disksort.

The numbers are of a published case, a pathological test of ten minutes: both its tables in milliseconds, with disksort
and without, are exact in the whole recording, whatever the seed. The rest follows by Little's law: 629 a second of
191 ms are 120 in flight, of which un_throttle lets 32 into the driver. Made up are that throttle, the sectors, the
program, and the release of the system, which is one with llquantize(). The test writes block after block, and the 302
I/Os at far lower sectors: sorted by LBA these are never next, until nothing else arrives.

A row is the millisecond at which a bucket of DTrace's quantize() begins, and its count. latmon's own buckets are finer
and have other edges: a latency is only taken from buckets that lie wholly in one row, so that the rows can be read from
a histogram. Two I/Os wait for 8 to 9 minutes, 300 for 9 to 10, and all of them are done in the test's last half second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from math import exp
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import Device, Flow, Frame, Outlier, Outstanding
from latmon.model.histogram import TOP, bucket_bounds
from latmon.model.inflight import Depths, Issue
from latmon_backends.demo import inflight, scenario
from latmon_backends.demo.inflight import apportioned, device_times
from latmon_backends.demo.probed_host import ProbedHost
from latmon_backends.demo.scenario import (
    INTERVAL_US,
    START_MONO_US,
    EqualIos,
    FlowIos,
    HostFacts,
    IoGroup,
    Load,
    Mode,
    Scenario,
    Shape,
)

WINDOWS = 600
SORTED: Mapping[int, int] = MappingProxyType({0: 40, 1: 9, 2: 6, 4: 17, 8: 23, 16: 6, 32: 36, 64: 15_407, 128: 361_660})
"""Row -> I/Os with disksort, without those that waited for minutes."""
STUCK = (2, 300)
"""I/Os done after 8 to 9 and after 9 to 10 minutes: the row of 524,288 ms."""
UNSORTED: Mapping[int, int] = MappingProxyType(
    {0: 30, 1: 21, 2: 30, 16: 50, 32: 3, 64: 384, 128: 505, 256: 531_169, 512: 11_764}
)
_MANY = 2_000
"""A row with fewer I/Os belongs to the first window, when the queue isn't full yet."""
_UNEVEN = 0.012
_LEAST_US = 256
"""Time of a hit in the disk's cache."""
BELONGS_TO = ("blockwriter", 8123)
_SECOND = 1_000_000
_LATE = (int(60.3 * _SECOND), int(61.2 * _SECOND))
"""After the start, when the other two arrive."""
_BELOW = 2_000_000
"""Sectors of the starved I/Os, far below all others."""
_DRAIN_US = 470_000
_HBA_US = 45_000
THROTTLE = 32
THRESHOLD_US = 1_000_000
_IN_DRIVER = 31.75
"""Mean number of I/Os in the driver, which is at its throttle almost all the time."""
_SERVED = (0.6, 1.0, 1.4)
_SHARES: Mapping[int, float] = MappingProxyType({0: 0.3, 1: 0.4, 2: 0.3})
"""Index in `_SERVED` -> share of I/Os with that factor on the disk's mean time."""
_BURST = 64
_FIRST_SECTOR = 20_000_000
_OTHER = "sd2"
_NEIGHBOURS = tuple(
    Load(Flow(_OTHER, op), rate, Shape((Mode(1, 5, 0.5),)), Shape((Mode(0.3, 400, 0.3), Mode(0.7, 6_200, 0.4))))
    for op, rate in (("read", 7), ("write", 3))
)


def by_window(rng: Random, table: Mapping[int, int], last: float) -> list[dict[int, int]]:
    """Return row -> I/Os for every window; `last`: the share of an ordinary window that the last one has."""
    by_windows: list[dict[int, int]] = [{} for _ in range(WINDOWS)]
    for row, n in table.items():
        if n < _MANY:
            by_windows[0][row] = n
            continue
        shares = {seq: max(0.5, rng.gauss(1, _UNEVEN)) for seq in range(WINDOWS)}
        begun = sum(few for few in table.values() if few < _MANY)
        shares[0] *= max(0.05, 1 - begun * WINDOWS / sum(table.values()))
        shares[WINDOWS - 1] *= last
        for seq, some in apportioned(shares, n).items():
            by_windows[seq][row] = some
    return by_windows


def latencies(rng: Random, rows: Mapping[int, int], mean_us: int, spread_us: int) -> list[EqualIos]:
    """Draw so many I/Os of each row, most of them around the mean."""
    equal_ios = []
    for row, n in rows.items():
        inside = _inside(row)
        weights = {low: exp(-((((low + high) / 2 - mean_us) / spread_us) ** 2) / 2) + 1e-6 for low, high in inside}
        width = {low: high - low for low, high in inside}
        equal_ios += [
            EqualIos(some, low + int(rng.random() * width[low])) for low, some in apportioned(weights, n).items()
        ]
    return equal_ios


@cache
def _inside(row: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of the buckets that lie wholly in a row of milliseconds."""
    low_us, high_us = max(row * 1_000, _LEAST_US), max(2 * row, 1) * 1_000
    bounds = (bucket_bounds(index) for index in range(TOP))
    return tuple((low, high) for low, high in bounds if low_us <= low and high <= high_us)


DISK, OP, BLOCK = "sd1", "write", 8192
_FIRST, _LAST = 1 * _SECOND, 9 * _SECOND
"""After the start, when most of the starved I/Os arrive: the queue is full by then."""


class DisksortedIo(NamedTuple):
    """One of the I/Os that wait for minutes."""

    began_us: int
    done_us: int
    sector: int

    @property
    def total_us(self) -> int:
        return self.done_us - self.began_us


def drawn(rng: Random) -> tuple[DisksortedIo, ...]:
    """Draw the starved I/Os, ordered by arrival; they complete by sector once nothing else arrives."""
    few, many = STUCK
    came = [_FIRST + int(rng.random() * (_LAST - _FIRST)) for _ in range(many)] + list(_LATE[:few])
    places = sorted((16 * int(rng.random() * _BELOW / 16), us) for us in came)
    end_us = scenario.begin_us(WINDOWS)
    gap_us = _DRAIN_US // len(places)
    ending = end_us - gap_us * len(places)
    ios = (DisksortedIo(START_MONO_US + us, ending + gap_us * at, sector) for at, (sector, us) in enumerate(places))
    return tuple(sorted(ios))


def _groups(stuck: Sequence[DisksortedIo]) -> tuple[IoGroup, ...]:
    """Return them as I/Os of the last window; the disk takes as long for them as for the others."""
    return tuple(IoGroup(1, sorted_io.total_us - _HBA_US, _HBA_US) for sorted_io in stuck)


def _issued(stuck: Sequence[DisksortedIo]) -> tuple[Issue, ...]:
    """Return their issues to the driver, by sector."""
    order = sorted(stuck, key=lambda disksorted_io: disksorted_io.sector)
    return tuple(
        Issue(sorted_io.done_us - _HBA_US, sorted_io.sector, BLOCK, OP, sorted_io.total_us - _HBA_US)
        for sorted_io in order
    )


def _rows(rng: Random, stuck: Sequence[DisksortedIo]) -> tuple[Outlier, ...]:
    """Return the rows of some of the starved I/Os, as many as the rate limit lets through."""
    chosen = sorted(sorted(stuck, key=lambda _: rng.random())[: scenario.ROWS])
    each = zip(chosen, _groups(chosen), strict=True)
    return tuple(
        scenario.outlier(
            _sick_host(),
            FlowIos(Flow(DISK, OP), (group,), BLOCK),
            group,
            sorted_io.began_us,
            sector=sorted_io.sector,
        )
        for sorted_io, group in each
    )


_MEAN_US, _SPREAD_US = 198_000, 22_000
_HEALTHY_MEAN_US, _HEALTHY_SPREAD_US = 462_000, 26_000
_SECTORS = BLOCK // 512


def _disk(name: str, instance: int, throttle: int, *, sorts: bool) -> Device:
    flags = {"un_f_opt_queueing": 0, "un_f_disksort_disabled": 0 if sorts else 1, "un_f_write_cache_enabled": 0}
    limits = scenario.sd_limits(throttle, **flags)
    return Device(name, 0, instance, driver="sd", model="FC disk 73G 10000rpm", serial=name, limits=limits)


def _host(*, sorts: bool) -> HostFacts:
    return scenario.sun(
        "demo-sun",
        "illumos",
        "sd_order",
        devices=(_disk(DISK, 1, THROTTLE, sorts=sorts), _disk(_OTHER, 2, 256, sorts=True)),
        threshold_us=THRESHOLD_US,
        programs={DISK: BELONGS_TO, _OTHER: ("nfsd", 611)},
    )


@cache
def _sick_host() -> HostFacts:
    return _host(sorts=True)


@cache
def _healthy_host() -> HostFacts:
    return _host(sorts=False)


def _sick(rng: Random) -> Iterator[Frame]:
    tables = by_window(rng, SORTED, last=0.5)
    stuck = drawn(rng)
    done = [0, *accumulate(sum(rows.values()) for rows in tables)]
    probed = ProbedHost(_sick_host())
    for seq, rows in enumerate(tables):
        moving = _writes(rng, latencies(rng, rows, _MEAN_US, _SPREAD_US))
        issues = _sorted_issues(rng, seq, moving, done[seq])
        if seq < WINDOWS - 1:
            waiting = bisect_left(stuck, (scenario.begin_us(seq + 1),))
            yield _frame(rng, seq, probed, moving, _depths(moving, waiting), issues=issues)
        else:
            yield _last(rng, probed, moving, stuck, issues)


def _last(
    rng: Random, probed: ProbedHost, moving: FlowIos, stuck: Sequence[DisksortedIo], issues: tuple[Issue, ...]
) -> Frame:
    """Return the last window, in which nothing arrives and the starved I/Os complete."""
    flow_ios = FlowIos(moving.flow, (*moving.groups, *_groups(stuck)), BLOCK)
    reported = _draining(_depths(moving, 0), len(stuck), flow_ios.count)
    order = (*issues[: _BURST // 2], *_issued(stuck)[: _BURST // 2])
    rows, none = _rows(rng, stuck), Outstanding(0, 0)
    return _frame(rng, WINDOWS - 1, probed, flow_ios, reported, issues=order, outliers=rows, now=none)


def _healthy(rng: Random) -> Iterator[Frame]:
    done = 0
    probed = ProbedHost(_healthy_host())
    for seq, rows in enumerate(by_window(rng, UNSORTED, last=1.0)):
        drawn = _writes(rng, latencies(rng, rows, _HEALTHY_MEAN_US, _HEALTHY_SPREAD_US))
        yield _frame(rng, seq, probed, drawn, _depths(drawn, 0), issues=_issues_as_they_came(seq, drawn, done))
        done += drawn.count


def _writes(rng: Random, groups: Sequence[tuple[int, int]]) -> FlowIos:
    """Divide totals into queue and hba; the driver has as many as it may at all times, the others wait."""
    mean_us = _IN_DRIVER * INTERVAL_US / sum(size for size, _ in groups)
    io_groups = []
    for size, total in groups:
        for at, some in apportioned(_SHARES, size).items():
            hba = int(min(_SERVED[at] * mean_us * (0.97 + 0.06 * rng.random()), 0.9 * total))
            io_groups.append(IoGroup(some, total - hba, hba))
    return FlowIos(Flow(DISK, OP), tuple(io_groups), BLOCK)


def _frame(
    rng: Random,
    seq: int,
    probed: ProbedHost,
    drawn: FlowIos,
    reported: Depths,
    *,
    issues: tuple[Issue, ...],
    outliers: tuple[Outlier, ...] = (),
    now: Outstanding | None = None,
) -> Frame:
    """Return a window; `now`: the disk's I/Os in flight at its end, where that is no moment as any other."""
    others = [scenario.ordinary(rng, load) for load in _NEIGHBOURS]
    depths = {DISK: reported, _OTHER: inflight.ordinary(others, 256)}
    outstanding = inflight.gauges(rng, depths) | ({} if now is None else {DISK: now})
    return probed.window(seq, (drawn, *others), outliers, depths=depths, outstanding=outstanding, issues={DISK: issues})


def _depths(drawn: FlowIos, stuck: int) -> Depths:
    times = device_times([drawn])[DISK]
    waiting = inflight.bell(times.above_us / INTERVAL_US + stuck, 5.0, 1 << 16)
    return inflight.depths(inflight.served(times.below_us / INTERVAL_US, THROTTLE), waiting, THROTTLE, times)


def _draining(reported: Depths, waiting: int, issued: int) -> Depths:
    """Return the depths once nothing arrives: ever fewer wait, and the starved I/Os are issued too."""
    queued = inflight.ends(apportioned(dict.fromkeys(range(waiting + 90), 1.0), 1_000))
    return replace(
        reported, queued=queued, at_issue=apportioned({n: float(ios) for n, ios in reported.at_issue.items()}, issued)
    )


def _sorted_issues(rng: Random, seq: int, drawn: FlowIos, before: int) -> tuple[Issue, ...]:
    """Return issues by ascending sector, whatever the order of arrival."""
    gap_us = INTERVAL_US // (2 * drawn.count)
    mean_us = sum(io_group.size * io_group.queue for io_group in drawn.groups) // drawn.count
    begin_us = scenario.begin_us(seq)
    return tuple(
        Issue(begin_us + 2 * i * gap_us, _sector(before + i), BLOCK, OP, int(mean_us * (0.7 + 0.6 * rng.random())))
        for i in range(_BURST)
    )


def _issues_as_they_came(seq: int, drawn: FlowIos, before: int) -> tuple[Issue, ...]:
    """Return issues in the order of arrival, whatever their sectors."""
    gap_us = INTERVAL_US // drawn.count
    mean_us = sum(io_group.size * io_group.queue for io_group in drawn.groups) // drawn.count
    begin_us = scenario.begin_us(seq)
    places = (before + i * 37 % _BURST for i in range(_BURST))
    return tuple(Issue(begin_us + i * gap_us, _sector(at), BLOCK, OP, mean_us) for i, at in enumerate(places))


def _sector(block: int) -> int:
    return _FIRST_SECTOR + block * _SECTORS


BUBBLES = Scenario(
    "disksort on a slow spindle: 302 of 377,506 writes wait for nine minutes while all others overtake them.",
    _sick_host,
    WINDOWS,
    _sick,
    "bubbles-healthy",
)
BUBBLES_HEALTHY = Scenario(
    "the same test with disksort off: every write takes longer, and none as much as a second.",
    _healthy_host,
    WINDOWS,
    _healthy,
)
