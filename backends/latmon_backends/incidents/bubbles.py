"""One spindle behind sd's disksort: 302 I/Os wait for nine minutes while 377,204 that came later are done.

The numbers are of a published case, a pathological test of ten minutes: both its tables in milliseconds, with disksort
and without, hold to the I/O in the whole recording, whatever the seed. Little's law makes the rest of them: 629 a
second of 191 ms are 120 in flight, of which un_throttle lets 32 into the driver. Made up are that throttle, the places
on the disk and who wrote. The test writes block after block, and far below them the 302: sorted by LBA these are never
next, until nothing else comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from types import MappingProxyType

from latmon import __version__
from latmon.mark import Settings
from latmon.model import Device, Flow, Frame, Limit, Outstanding
from latmon.outstanding import Depths, Issue
from latmon_backends.demo_outstanding import apportioned
from latmon_backends.incidents import bubbles_stuck, depths, windows
from latmon_backends.incidents.bubbles_stuck import BELONGS_TO, BLOCK, DISK, OP
from latmon_backends.incidents.bubbles_tables import SORTED, UNSORTED, WINDOWS, by_window, latencies
from latmon_backends.incidents.drawing import INTERVAL_US, Alike, Drawn
from latmon_backends.incidents.scenario import Scenario
from latmon_backends.incidents.windows import SOLARIS_ABSENT, Host, Load
from latmon_backends.synthetic import Mode, Shape

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
        windows.solaris("demo-sparc", "5.10", settings),
        (_disk(DISK, 1, THROTTLE, sorts=sorts), _disk(_OTHER, 2, 256, sorts=True)),
        {DISK: THRESHOLD_US, _OTHER: THRESHOLD_US},
        {DISK: BELONGS_TO, _OTHER: ("nfsd", 611)},
        absent=SOLARIS_ABSENT,
    )


_SICK, _HEALTHY = _host(sorts=True), _host(sorts=False)


def _sick(rng: Random) -> Iterator[Frame]:
    tables = by_window(rng, SORTED, last=0.5)
    stuck = bubbles_stuck.drawn(rng)
    done = [0, *accumulate(sum(rows.values()) for rows in tables)]
    for seq, rows in enumerate(tables):
        moving = _writes(rng, latencies(rng, rows, _MEAN_US, _SPREAD_US))
        last = seq == WINDOWS - 1
        waiting = bisect_left(stuck, (windows.begin_us(seq + 1),))
        told = _depths(moving, 0 if last else waiting)
        whole = Drawn(moving.flow, (*moving.parts, *bubbles_stuck.parts(stuck, _PATH)), BLOCK) if last else moving
        frame = _frame(rng, seq, _SICK, whole, _draining(told, waiting, whole.count) if last else told)
        frame = bubbles_stuck.told(rng, frame, stuck, done)
        issues = _sorted_issues(rng, frame, moving, done[seq])
        if last:
            issues = (*issues[: _BURST // 2], *bubbles_stuck.issued(stuck)[: _BURST // 2])
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
    others = [windows.ordinary(rng, load, _PATH) for load in _NEIGHBOURS]
    return windows.framed(rng, seq, host, (drawn, *others), {DISK: told, _OTHER: depths.ordinary(others, 256)})


def _depths(drawn: Drawn, stuck: int) -> Depths:
    in_driver, queued = (drawn.summed(stage) / INTERVAL_US for stage in ("hba", "queue"))
    waiting = depths.bell(queued + stuck, 5.0, 1 << 16)
    shares = depths.served(in_driver, THROTTLE), waiting
    return depths.depths(*shares, THROTTLE, drawn.count, drawn.total.sum or 0)


def _draining(told: Depths, waiting: int, issued: int) -> Depths:
    """Nothing comes any more: ever fewer wait, and those that waited for minutes are issued too."""
    queued = depths.ends(apportioned(dict.fromkeys(range(waiting + 90), 1.0), 1_000))
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
