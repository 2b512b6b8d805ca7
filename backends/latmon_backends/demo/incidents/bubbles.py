"""Incident bubbles: 302 I/Os wait for nine minutes behind sd's disksort.

The numbers are of a published case, a pathological test of ten minutes: both its tables in milliseconds, with disksort
and without, hold to the I/O in the whole recording, whatever the seed. Little's law makes the rest of them: 629 a
second of 191 ms are 120 in flight, of which un_throttle lets 32 into the driver. Made up are that throttle, the places
on the disk and who wrote. The test writes block after block, and far below them the 302: sorted by LBA these are never
next, until nothing else comes.

A row is the millisecond at which a bucket of DTrace's quantize() begins, and its count. latmon's own buckets are finer
and have other edges: a latency is only taken from those that lie wholly in one row, so that a histogram tells the rows.
Knows no device.

Two wait for 8 to 9 minutes, 300 for 9 to 10, and all of them are done in the test's last half second.
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

from latmon import __version__
from latmon.decode.inflight import MOST_TOLD
from latmon.model.frame import Device, Flow, Frame, Limit, Outlier, Outstanding, Settings
from latmon.model.histogram import TOP, bucket_bounds
from latmon.model.inflight import AGES_S, Depths, InFlight, Issue, StillInFlight
from latmon_backends.demo import inflight, scenario
from latmon_backends.demo.inflight import apportioned
from latmon_backends.demo.scenario import INTERVAL_US, SOLARIS_ABSENT, START_MONO_US, Alike, Drawn, Host, Load, Scenario
from latmon_backends.demo.synthesis import Group, Mode, Shape

WINDOWS = 600
SORTED: Mapping[int, int] = MappingProxyType({0: 40, 1: 9, 2: 6, 4: 17, 8: 23, 16: 6, 32: 36, 64: 15_407, 128: 361_660})
"""With disksort, without those that waited for minutes."""
STUCK = (2, 300)
"""Done after 8 to 9 and after 9 to 10 minutes: the row of 524,288 ms."""
UNSORTED: Mapping[int, int] = MappingProxyType(
    {0: 30, 1: 21, 2: 30, 16: 50, 32: 3, 64: 384, 128: 505, 256: 531_169, 512: 11_764}
)
_MANY = 2_000
"""A row of fewer is of the beginning, when the queue isn't full yet."""
_UNEVEN = 0.012
_LEAST_US = 256
"""What a disk's own memory takes."""


def by_window(rng: Random, table: Mapping[int, int], last: float) -> list[dict[int, int]]:
    """Row -> I/Os, of every window; `last`: the share of an ordinary window that the last one has."""
    found: list[dict[int, int]] = [{} for _ in range(WINDOWS)]
    for row, n in table.items():
        if n < _MANY:
            found[0][row] = n
            continue
        shares = {seq: max(0.5, rng.gauss(1, _UNEVEN)) for seq in range(WINDOWS)}
        begun = sum(few for few in table.values() if few < _MANY)
        shares[0] *= max(0.05, 1 - begun * WINDOWS / sum(table.values()))
        shares[WINDOWS - 1] *= last
        for seq, some in apportioned(shares, n).items():
            found[seq][row] = some
    return found


def latencies(rng: Random, rows: Mapping[int, int], mean_us: int, spread_us: int) -> list[Group]:
    """So many I/Os of each row, most of them around the mean."""
    found = []
    for row, n in rows.items():
        inside = _inside(row)
        weights = {low: exp(-((((low + high) / 2 - mean_us) / spread_us) ** 2) / 2) + 1e-6 for low, high in inside}
        width = {low: high - low for low, high in inside}
        found += [Group(some, low + int(rng.random() * width[low])) for low, some in apportioned(weights, n).items()]
    return found


@cache
def _inside(row: int) -> tuple[tuple[int, int], ...]:
    """Bounds of the buckets that lie wholly in a row of milliseconds."""
    low_us, high_us = max(row * 1_000, _LEAST_US), max(2 * row, 1) * 1_000
    bounds = (bucket_bounds(index) for index in range(TOP))
    return tuple((low, high) for low, high in bounds if low_us <= low and high <= high_us)


DISK, OP, BLOCK = "sd1", "write", 8192
BELONGS_TO = ("blockwriter", 8123)
_SECOND = 1_000_000
_FIRST, _LAST = 1 * _SECOND, 9 * _SECOND
"""After the start, when most of them come: the queue is full by then."""
_LATE = (int(60.3 * _SECOND), int(61.2 * _SECOND))
"""The two."""
_BELOW = 2_000_000
"""Sectors: far below all others."""
_DRAIN_US = 470_000
_WORTH_US = 500_000
_HBA_US = 45_000
_MOVING = 120
"""In flight as one of them comes, and ahead of it."""


class Stuck(NamedTuple):
    """One of them."""

    began_us: int
    done_us: int
    sector: int

    @property
    def total_us(self) -> int:
        return self.done_us - self.began_us


def drawn(rng: Random) -> tuple[Stuck, ...]:
    """In the order in which they came; when nothing else comes any more they are done by their places."""
    few, many = STUCK
    came = [_FIRST + int(rng.random() * (_LAST - _FIRST)) for _ in range(many)] + list(_LATE[:few])
    places = sorted((16 * int(rng.random() * _BELOW / 16), us) for us in came)
    end_us = scenario.begin_us(WINDOWS)
    gap_us = _DRAIN_US // len(places)
    ending = end_us - gap_us * len(places)
    found = (Stuck(START_MONO_US + us, ending + gap_us * at, sector) for at, (sector, us) in enumerate(places))
    return tuple(sorted(found))


def parts(stuck: Sequence[Stuck], path: str) -> tuple[Alike, ...]:
    """As I/Os of the last window; the disk takes as long for them as for the others."""
    return tuple(Alike(1, one.total_us - _HBA_US, _HBA_US, path=path) for one in stuck)


def issued(stuck: Sequence[Stuck]) -> tuple[Issue, ...]:
    """To the driver, by their places."""
    order = sorted(stuck, key=lambda one: one.sector)
    return tuple(Issue(one.done_us - _HBA_US, one.sector, BLOCK, OP, one.total_us - _HBA_US) for one in order)


def stuck_rows(rng: Random, frame: Frame, stuck: Sequence[Stuck], done: Sequence[int]) -> Frame:
    """The window with those that still wait, or, where they are done, with their rows; `done`: others, by window."""
    if frame.seq == WINDOWS - 1:
        chosen = sorted(stuck, key=lambda _: rng.random())[: len(frame.outliers)]
        return replace(frame, outliers=tuple(_outlier(one, done) for one in sorted(chosen)))
    began = [one.began_us for one in stuck]
    worth = bisect_left(began, frame.mono_us - _WORTH_US)
    rows = tuple(_in_flight(one, frame, done) for one in stuck[: min(worth, MOST_TOLD)])
    older = {s: bisect_left(began, frame.mono_us - s * _SECOND) for s in AGES_S}
    return replace(frame, in_flight=StillInFlight(rows, older, at_us=frame.mono_us))


def _in_flight(one: Stuck, frame: Frame, done: Sequence[int]) -> InFlight:
    comm, pid = BELONGS_TO
    return InFlight(
        DISK,
        OP,
        one.began_us,
        sector=one.sector,
        bytes=BLOCK,
        pid=pid,
        comm=comm,
        issued=False,
        overtaken_by=_passed(one, frame.mono_us, done),
    )


def _outlier(one: Stuck, done: Sequence[int]) -> Outlier:
    comm, pid = BELONGS_TO
    return Outlier(
        wall=scenario.wall_of(one.began_us),
        mono_us=one.began_us,
        device=DISK,
        op=OP,
        total_us=one.total_us,
        stages_us={"queue": one.total_us - _HBA_US, "hba": _HBA_US},
        sector=one.sector,
        bytes=BLOCK,
        pid=pid,
        comm=comm,
        cpu_issue=one.sector // 16 % 4,
        cpu_complete=1,
        outstanding_at_issue=_MOVING,
        overtaken_by=_passed(one, one.done_us, done),
        path="HBA interrupt",
        includes=scenario.included(scenario.SOLARIS_ABSENT),
    )


def _passed(one: Stuck, until_us: int, done: Sequence[int]) -> int:
    """Done since it came, less what was ahead of it."""
    return max(0, _done_by(until_us, done) - _done_by(one.began_us, done) - _MOVING)


def _done_by(mono_us: int, done: Sequence[int]) -> int:
    """As if a window's I/Os were done evenly."""
    seq, part = divmod(mono_us - START_MONO_US, INTERVAL_US)
    if seq >= WINDOWS:
        return done[WINDOWS]
    return done[seq] + (done[seq + 1] - done[seq]) * part // INTERVAL_US


THROTTLE = 32
THRESHOLD_US = 1_000_000
_IN_DRIVER = 31.75
"""In the mean: the driver is hardly ever given fewer than it may have."""
_MEAN_US, _SPREAD_US = 198_000, 22_000
_HEALTHY_MEAN_US, _HEALTHY_SPREAD_US = 462_000, 26_000
_SERVED = (0.6, 1.0, 1.4)
_SHARES: Mapping[int, float] = MappingProxyType({0: 0.3, 1: 0.4, 2: 0.3})
"""How much longer or shorter than the mean the disk takes for some of them."""
_BURST = 64
_FIRST_SECTOR = 20_000_000
_SECTORS = BLOCK // 512
_OTHER = "sd2"
_PATH = "HBA interrupt"
_NEIGHBOURS = tuple(
    Load(Flow(_OTHER, op), rate, Shape((Mode(1, 5, 0.5),)), Shape((Mode(0.3, 400, 0.3), Mode(0.7, 6_200, 0.4))))
    for op, rate in (("read", 7), ("write", 3))
)


def _disk(name: str, instance: int, throttle: int, *, sorts: bool) -> Device:
    limits = (
        Limit("un_throttle", throttle, "sd_limits"),
        Limit("un_saved_throttle", throttle, "sd_limits"),
        Limit("un_busy_throttle", 0, "sd_limits"),
        Limit("un_min_throttle", 8, "sd_limits"),
        Limit("un_f_opt_queueing", 0, "sd_limits"),
        Limit("un_f_disksort_disabled", 0 if sorts else 1, "sd_limits"),
        Limit("un_f_write_cache_enabled", 0, "sd_limits"),
    )
    return Device(
        name, 0, instance, driver="ssd", controller="qlc0", model="FC disk 73G 10000rpm", serial=name, limits=limits
    )


def _host(*, sorts: bool) -> Host:
    settings: Settings = {
        "tool": {"latmon": __version__},
        "kernel": {"system": "SunOS", "release": "5.10", "version": "10", "machine": "sun4u"},
        "module ssd": {"ssd.conf disable disksort": "unset" if sorts else DISK},
    }
    return Host(
        scenario.solaris("demo-sparc", "5.10", settings),
        (_disk(DISK, 1, THROTTLE, sorts=sorts), _disk(_OTHER, 2, 256, sorts=True)),
        {DISK: THRESHOLD_US, _OTHER: THRESHOLD_US},
        {DISK: BELONGS_TO, _OTHER: ("nfsd", 611)},
        absent=SOLARIS_ABSENT,
    )


_SICK, _HEALTHY = _host(sorts=True), _host(sorts=False)


def _sick(rng: Random) -> Iterator[Frame]:
    tables = by_window(rng, SORTED, last=0.5)
    stuck = drawn(rng)
    done = [0, *accumulate(sum(rows.values()) for rows in tables)]
    for seq, rows in enumerate(tables):
        moving = _writes(rng, latencies(rng, rows, _MEAN_US, _SPREAD_US))
        last = seq == WINDOWS - 1
        waiting = bisect_left(stuck, (scenario.begin_us(seq + 1),))
        told = _depths(moving, 0 if last else waiting)
        whole = Drawn(moving.flow, (*moving.parts, *parts(stuck, _PATH)), BLOCK) if last else moving
        frame = _frame(rng, seq, _SICK, whole, _draining(told, waiting, whole.count) if last else told)
        frame = stuck_rows(rng, frame, stuck, done)
        issues = _sorted_issues(rng, frame, moving, done[seq])
        if last:
            issues = (*issues[: _BURST // 2], *issued(stuck)[: _BURST // 2])
            frame = replace(frame, outstanding={**frame.outstanding, DISK: Outstanding(0, 0)})
        yield replace(frame, issues={DISK: issues})


def _healthy(rng: Random) -> Iterator[Frame]:
    done = 0
    for seq, rows in enumerate(by_window(rng, UNSORTED, last=1.0)):
        drawn = _writes(rng, latencies(rng, rows, _HEALTHY_MEAN_US, _HEALTHY_SPREAD_US))
        frame = _frame(rng, seq, _HEALTHY, drawn, _depths(drawn, 0))
        yield replace(frame, issues={DISK: _issues_as_they_came(frame, drawn, done)})
        done += drawn.count


def _writes(rng: Random, groups: Sequence[tuple[int, int]]) -> Drawn:
    """What isn't spent in the driver is waited for: as many are in it as it may have."""
    mean_us = _IN_DRIVER * INTERVAL_US / sum(size for size, _ in groups)
    found = []
    for size, total in groups:
        for at, some in apportioned(_SHARES, size).items():
            hba = int(min(_SERVED[at] * mean_us * (0.97 + 0.06 * rng.random()), 0.9 * total))
            found.append(Alike(some, total - hba, hba, path=_PATH))
    return Drawn(Flow(DISK, OP), tuple(found), BLOCK)


def _frame(rng: Random, seq: int, host: Host, drawn: Drawn, told: Depths) -> Frame:
    others = [scenario.ordinary(rng, load, _PATH) for load in _NEIGHBOURS]
    return scenario.framed(rng, seq, host, (drawn, *others), {DISK: told, _OTHER: inflight.ordinary(others, 256)})


def _depths(drawn: Drawn, stuck: int) -> Depths:
    in_driver, queued = (drawn.summed(stage) / INTERVAL_US for stage in ("hba", "queue"))
    waiting = inflight.bell(queued + stuck, 5.0, 1 << 16)
    shares = inflight.served(in_driver, THROTTLE), waiting
    return inflight.depths(*shares, THROTTLE, drawn.count, drawn.total.sum or 0)


def _draining(told: Depths, waiting: int, issued: int) -> Depths:
    """Nothing comes any more: ever fewer wait, and those that waited for minutes are issued too."""
    queued = inflight.ends(apportioned(dict.fromkeys(range(waiting + 90), 1.0), 1_000))
    return replace(
        told, queued=queued, at_issue=apportioned({n: float(ios) for n, ios in told.at_issue.items()}, issued)
    )


def _sorted_issues(rng: Random, frame: Frame, drawn: Drawn, before: int) -> tuple[Issue, ...]:
    """Ever upwards, in whichever order they came."""
    gap_us = INTERVAL_US // (2 * drawn.count)
    mean_us = drawn.summed("queue") // drawn.count
    begin_us = frame.mono_us - frame.dt_us
    return tuple(
        Issue(begin_us + 2 * i * gap_us, _sector(before + i), BLOCK, OP, int(mean_us * (0.7 + 0.6 * rng.random())))
        for i in range(_BURST)
    )


def _issues_as_they_came(frame: Frame, drawn: Drawn, before: int) -> tuple[Issue, ...]:
    """One after the other, wherever they lie."""
    gap_us = INTERVAL_US // drawn.count
    mean_us = drawn.summed("queue") // drawn.count
    begin_us = frame.mono_us - frame.dt_us
    places = (before + i * 37 % _BURST for i in range(_BURST))
    return tuple(Issue(begin_us + i * gap_us, _sector(at), BLOCK, OP, mean_us) for i, at in enumerate(places))


def _sector(block: int) -> int:
    return _FIRST_SECTOR + block * _SECTORS


BUBBLES = Scenario(
    "disksort on a slow spindle: 302 of 377,506 writes wait for nine minutes while all others pass them.",
    _SICK.origin,
    WINDOWS,
    _sick,
    "bubbles-healthy",
)
BUBBLES_HEALTHY = Scenario(
    "the same test with disksort off: every write takes longer, and none as much as a second.",
    _HEALTHY.origin,
    WINDOWS,
    _healthy,
)
