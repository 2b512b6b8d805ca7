"""Incident emulex: 2 KiB log writes wait for the completion threads of an Emulex HBA; emulex-healthy is a QLogic.

The numbers are those of "Comparing Latency on Emulex and QLogic HBA Driver" (N. Noveljic, 2016): emlxsoverhead.d's row
of 1,238,999 us, the second table of resume(ms), the log writer's warning of 836 ms, 0.001 % of the I/Os above 500 ms,
priorities 97 and 99, kstat's qlc_0_comp_thd. One I/O in 53 wakes a thread: then the table's 1 wake-up in 15,230 with
its 8 packets is that 0.001 %. It is a busy hour's load: a table in 40 s, of which 6 hours make several thousand a day.

The delays are dealt out of the case's own table: each table of 15,230 wake-ups is spread over 40 windows. Knows no LUN.

The HBA's driver is all that differs. Draws nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random
from typing import NamedTuple

from latmon import __version__
from latmon.model.frame import (
    NAMED_FROM,
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Limit,
    Missing,
    Origin,
    Outlier,
    Taskq,
    Thread,
    Wait,
    Wakeups,
)
from latmon_backends.demo import scenario
from latmon_backends.demo.inflight import Held, crowds
from latmon_backends.demo.scenario import INTERVAL_US, WINDOWS, Alike, Drawn, Scenario, above_threshold, draw_window
from latmon_backends.demo.synthesis import Group, Mode, Shape, bucket, histogram, meet, poisson

TABLE_MS: Mapping[int, int] = {
    0: 11_145,
    1: 2_856,
    2: 1_017,
    4: 166,
    8: 6,
    16: 2,
    32: 4,
    64: 29,
    128: 4,
    1024: 1,
}
"""resume(ms): the lower end of a row -> its count. The last one's wake-up is a drain of its own."""
TABLE_WINDOWS = 40
UNTIL_IT_RAN = "completion thread, most of the time until it ran"
BEHIND_OTHERS = "completion thread, most of the time behind what it ran first"
PACKETS: Mapping[str, int] = {"sd0": 4, "sd1": 2, "sd3": 1, "sd4": 1}
"""Writes to LUNs that happen to be behind one completion queue: eight, all with the same numbers."""
_RARE_MS, _DRAIN_MS = 8, 1024
_FIRST_AT = 24
"""12:13:04."""
_FIRST = Alike(1, 3, 85, irq=6, completion=1_238_738 + 165, unaccounted=2, path=UNTIL_IT_RAN)
"""I/O START, TOTAL - EMLXS, I/O INTR, QUEUE + I/O DONE, and what the row's sum lacks."""
_WARNED_US = 836_000
"""log write elapsed time 836ms, size 2KB."""
_DONE_US = 165


class Drain(NamedTuple):
    """A batch of packets that the thread finds when it runs at last."""

    seq: int
    """The window in which it ends."""
    ends_us: int
    """After that window's begin."""
    packet: Alike

    @property
    def waited_us(self) -> int:
        """From the thread's waking to its running."""
        return (self.packet.completion or 0) - _DONE_US

    def held(self, seq: int) -> dict[str, Held]:
        """What of it window `seq` sees, by LUN."""
        end = self.seq * INTERVAL_US + self.ends_us
        begin = end - self.packet.total
        low, high = seq * INTERVAL_US, (seq + 1) * INTERVAL_US
        share = (min(end, high) - max(begin, low)) / INTERVAL_US
        return {name: Held(count, share, still=end > high) for name, count in PACKETS.items()} if share > 0 else {}


class Planned(NamedTuple):
    """A window's wake-ups by the table's rows (the drain's own is not among them), and the drain that ends in it."""

    rows: Mapping[int, int]
    drain: Drain | None


def plan(rng: Random, windows: int) -> list[Planned]:
    """Whole tables, so there may be more windows than were asked for: what comes later is known to those before it."""
    return [one for table in range(-(-windows // TABLE_WINDOWS)) for one in _table(rng, table)]


def delays(rng: Random, rows: Mapping[int, int]) -> Iterator[int]:
    """One wake-up after the other, in us. Those of a row in one bucket are all the same: so a window stays cheap."""
    for low, count in rows.items():
        first: dict[int, int] = {}
        for _ in range(count):
            far = rng.random()
            us = int(1000 * far * far * far) if low == 0 else int(1000 * low * (1 + far * far))
            yield first.setdefault(bucket(us), us)


def _table(rng: Random, table: int) -> Iterator[Planned]:
    rare = [low for low, count in TABLE_MS.items() if _RARE_MS <= low < _DRAIN_MS for _ in range(count)]
    places = [int(rng.random() * TABLE_WINDOWS) for _ in rare]
    at = int(rng.random() * TABLE_WINDOWS) if table else _FIRST_AT
    drain = _drain(rng, table, table * TABLE_WINDOWS + at)
    for window in range(TABLE_WINDOWS):
        rows = {low: _dealt(count, window) for low, count in TABLE_MS.items() if low < _RARE_MS}
        for low, place in zip(rare, places, strict=True):
            if place == window:
                rows[low] = rows.get(low, 0) + 1
        yield Planned(rows, drain if window == at else None)


def _dealt(count: int, window: int) -> int:
    """As evenly as whole numbers go, none lost."""
    return count * (window + 1) // TABLE_WINDOWS - count * window // TABLE_WINDOWS


def _drain(rng: Random, table: int, seq: int) -> Drain:
    """The case's own two first, then others from 0.5 to 2 s."""
    ends_us = int((0.05 + 0.9 * rng.random()) * INTERVAL_US)
    far = rng.random()
    if table == 0:
        return Drain(seq, ends_us, _FIRST)
    total = _WARNED_US if table == 1 else int(530_000 + 1_440_000 * far * far)
    hba, irq = 80 + int(rng.random() * 20), 5 + int(rng.random() * 4)
    return Drain(seq, ends_us, _FIRST._replace(hba=hba, irq=irq, completion=total - 3 - hba - irq - 2))


START_WALL = 1_460_031_160.0
"""2016-04-07 12:12:40 UTC: the case's row was printed at 12:13:04."""
THRESHOLD_US = 500_000
"""From here on the log writer warns."""
EMLXS, QLC = "emlxs", "qlc"
ABSENT = (
    Missing("requeue", "a packet that the driver refuses begins anew"),
    Missing("softirq", "the completion threads do this work, their time is in completion"),
    Missing("resume", "nothing here tells when a waiter runs again"),
)
_SPAN_US = 10_000_000
"""Between two readings of the task queues."""


class Load(NamedTuple):
    """One op on one LUN: I/Os a second, their size, how long HBA, fabric and array take, and who asks."""

    flow: Flow
    rate: int
    bytes_each: int
    hba: Shape
    comm: str
    pid: int


_CACHED = Shape((Mode(0.97, 85, 0.18), Mode(0.03, 260, 0.4)), bits=2)
_WRITTEN = Shape((Mode(0.95, 110, 0.25), Mode(0.05, 420, 0.4)), bits=2)
_READ = Shape((Mode(0.7, 190, 0.3), Mode(0.3, 640, 0.4)), bits=2)
_LGWR, _DBWR, _USER = ("ora_lgwr", 5102), ("ora_dbw0", 5110), ("oracle", 5140)
_LOGS, _FILES = ("sd0", "sd1"), ("sd2", "sd3", "sd4", "sd5")
LOADS = (
    *(Load(Flow(name, "write"), 1_600, 2_048, _CACHED, *_LGWR) for name in _LOGS),
    *(Load(Flow(name, "read"), 3_000, 8_192, _READ, *_USER) for name in _FILES),
    *(Load(Flow(name, "write"), 1_200, 8_192, _WRITTEN, *_DBWR) for name in _FILES),
)
"""Together 20,000 I/Os a second: both redo logs, synchronous, and four LUNs of data files."""
THRESHOLDS_US = dict.fromkeys((*_LOGS, *_FILES), THRESHOLD_US)
_LIMITS = tuple(
    Limit(name, value, "sd_limits")
    for name, value in (
        ("un_throttle", 256),
        ("un_saved_throttle", 256),
        ("un_busy_throttle", 0),
        ("un_min_throttle", 8),
        ("un_f_opt_queueing", 0),
        ("un_f_arq_enabled", 1),
        ("un_f_use_adaptive_throttle", 1),
        ("un_f_disksort_disabled", 1),
        ("un_f_write_cache_enabled", 0),
    )
)
_MODULE: Mapping[str, Mapping[str, str]] = {
    EMLXS: {"version": "2.90.15.0", "adapter": "LPe16002B", "completion threads": "8", "thread priority": "97"},
    QLC: {"version": "5.3.1", "adapter": "QLE2672", "completion threads": "8", "thread priority": "99"},
}


def emulex_devices(driver: str) -> tuple[Device, ...]:
    """The LUNs behind the HBA's only port."""
    return tuple(
        Device(
            name,
            83,
            64 * number,
            driver=driver,
            controller=f"{driver}0",
            model="SAN LUN 1T",
            serial=f"DEMO-LUN-{number}",
            limits=_LIMITS,
        )
        for number, name in enumerate((*_LOGS, *_FILES))
    )


def emulex_origin(driver: str) -> Origin:
    """Of the host with this HBA."""
    return scenario.origin(
        "demo-ora-01",
        "SunOS 5.11-demo",
        settings={
            "tool": {"latmon": __version__},
            "kernel": {
                "system": "SunOS",
                "release": "5.11-demo",
                "version": "11.3 SRU 7",
                "machine": "i86pc",
                "cpus": "32",
            },
            f"module {driver}": _MODULE[driver],
            "module zfs": {"user_reserve_hint_pct": "60"},
            **{f"device {one.name}": {"hba": driver, "un_throttle": "256"} for one in emulex_devices(driver)},
        },
        start_wall=START_WALL,
        threshold_us=THRESHOLD_US,
    )


def taskqs(driver: str, seq: int) -> tuple[Taskq, ...] | None:
    """Read every 10 s: ZFS's, and qlc's threads, which kstat shows as loops: nothing executed, all active."""
    if seq % 10:
        return None
    span_us = _SPAN_US if seq else 0
    executed = 31_000 * bool(seq)
    busy = Taskq(
        "zio_write_issue",
        0,
        threads=24,
        priority=99,
        active=3,
        waiting=0,
        most=61,
        ever=88_000_000 + 3_100 * seq,
        span_us=span_us,
        tasks=executed,
        executed=executed,
        time_us=executed * 74,
    )
    loops = Taskq("qlc_0_comp_thd", 0, 8, 99, 8, 0, most=8, ever=0, span_us=span_us, time_us=0 if seq else None)
    return (loops, busy) if driver == QLC else (busy,)


COMPLETER = Thread(NAMED_FROM + 1, "emlxs_thread", "", 97)
TASKQ = Thread(NAMED_FROM + 2, "qlc_completion_thread", "", 99)
_ZIO = Thread(NAMED_FROM + 3, "zio_taskq_thread", "", 99)
HOGS = ("zpool-data (prio 99)", "zpool-redo (prio 99)")
"""What runs instead: on Solaris the higher number is the higher priority."""
_IN_TASKQ = "task queue"
_LATE_US = 1_000
_IRQ = 60
_BEHIND = Shape((Mode(1, 14, 0.5),), bits=1)
_WOKEN = Shape((Mode(0.996, 6, 0.6), Mode(0.004, 300, 0.7)))
_WAKEUPS = 381
_SHARES = tuple(accumulate(one.rate for one in LOADS))


def _sick(rng: Random) -> Iterator[Frame]:
    origin, devices = emulex_origin(EMLXS), emulex_devices(EMLXS)
    planned = plan(rng, WINDOWS)
    drains = [one.drain for one in planned if one.drain]
    for seq, now in enumerate(planned):
        woken = list(delays(rng, now.rows))
        late = _by_load(rng, woken)
        loads = [_drawn(rng, load, late.get(load.flow, {}), now.drain) for load in LOADS]
        held: dict[str, Held] = {}
        for drain in drains:
            held |= drain.held(seq)
        frame = draw_window(origin, seq, loads, devices, absent=ABSENT)
        waits = [Group(1, us) for us in woken] + ([Group(1, now.drain.waited_us)] if now.drain else [])
        yield replace(
            _told(rng, frame, loads, EMLXS, held),
            wakeups=(_completer(rng, COMPLETER, waits), _zio(rng)),
            outliers=tuple(_outliers(rng, frame, loads, now.drain)) if now.drain else (),
        )


def _healthy(rng: Random) -> Iterator[Frame]:
    origin, devices = emulex_origin(QLC), emulex_devices(QLC)
    for seq in range(WINDOWS):
        loads = [_drawn(rng, load, {}, None, _IN_TASKQ) for load in LOADS]
        frame = draw_window(origin, seq, loads, devices, absent=ABSENT)
        wakeups = (_completer(rng, TASKQ, _WOKEN.draw(rng, _WAKEUPS)), _zio(rng))
        yield replace(_told(rng, frame, loads, QLC, {}), wakeups=wakeups)


def _told(rng: Random, frame: Frame, loads: Sequence[Drawn], driver: str, held: Mapping[str, Held]) -> Frame:
    """The window with what goes with its I/Os in sickness and in health."""
    crowded = crowds(rng, loads, emulex_devices(driver), held)
    interrupts = [group for one in loads for group in one.times("irq")]
    runs = HandlerRuns(histogram(interrupts), {"handled": sum(one.size for one in interrupts)}, device=f"{driver}0")
    return replace(
        frame,
        above=above_threshold(loads, THRESHOLDS_US),
        thresholds_us=THRESHOLDS_US,
        handlers={Handler(_IRQ, f"{driver}0"): runs},
        taskqs=taskqs(driver, frame.seq),
        outstanding=crowded.outstanding,
        depths=crowded.depths,
    )


def _by_load(rng: Random, woken: list[int]) -> dict[Flow, dict[int, int]]:
    """Whose I/O woke a thread, by how often there is one: load -> delay -> I/Os."""
    found: dict[Flow, dict[int, int]] = {}
    for us in woken:
        load = LOADS[bisect_right(_SHARES, rng.random() * _SHARES[-1])]
        sizes = found.setdefault(load.flow, {})
        sizes[us] = sizes.get(us, 0) + 1
    return found


def _drawn(rng: Random, load: Load, late: Mapping[int, int], drain: Drain | None, path: str = BEHIND_OTHERS) -> Drawn:
    """One load's I/Os: those that find the thread awake, those that wake it, and those of a drain."""
    waiting = sum(late.values())
    ordinary = max(0, poisson(rng, load.rate) - waiting)
    awake = meet(rng, load.hba.draw(rng, ordinary), _BEHIND.draw(rng, ordinary))
    asleep = meet(rng, load.hba.draw(rng, waiting), [Group(size, us) for us, size in sorted(late.items())])
    parts = [_packet(rng, size, hba, us, path) for size, hba, us in awake]
    parts += [_packet(rng, size, hba, us + 12 + int(rng.random() * 8), UNTIL_IT_RAN) for size, hba, us in asleep]
    if drain and load.flow.op == "write" and load.flow.device in PACKETS:
        parts.append(drain.packet._replace(size=PACKETS[load.flow.device]))
    return Drawn(load.flow, tuple(parts), load.bytes_each)


def _packet(rng: Random, size: int, hba: int, completion: int, path: str) -> Alike:
    dice = int(rng.random() * 45)
    return Alike(
        size,
        queue=2 + dice % 3,
        hba=hba,
        irq=4 + dice % 5,
        completion=completion,
        unaccounted=dice // 15,
        path=path,
    )


def _completer(rng: Random, thread: Thread, waits: Sequence[Group]) -> Wakeups:
    late = sum(one.size for one in waits if one.us >= _LATE_US)
    few = int(late * 0.2 + rng.random())
    instead = {hog: n for hog, n in zip(HOGS, (late - few, few), strict=True) if n}
    return Wakeups(thread, histogram(waits), instead)


def _zio(rng: Random) -> Wakeups:
    """ZFS's own threads, which nothing keeps waiting."""
    return Wakeups(_ZIO, histogram(_WOKEN.draw(rng, 3_100)))


def _outliers(rng: Random, frame: Frame, loads: Sequence[Drawn], drain: Drain) -> Iterator[Outlier]:
    """The packets of a drain one by one: sent in the same microsecond, taken from the queue in the same run."""
    packet = drain.packet
    begun_us = frame.mono_us - frame.dt_us + drain.ends_us - packet.total
    woken_us = begun_us + packet.queue + packet.hba + (packet.irq or 0)
    wait = Wait("completion", COMPLETER.comm, COMPLETER.pid, COMPLETER.priority, woken_us, drain.waited_us, HOGS[0])
    asked = {load.flow: load for load in LOADS}
    for one in loads:
        load = asked[one.flow]
        for number in range(PACKETS.get(one.flow.device, 0) if one.flow.op == "write" else 0):
            yield Outlier(
                wall=frame.wall - (frame.mono_us - begun_us) / 1e6,
                mono_us=begun_us,
                device=one.flow.device,
                op=one.flow.op,
                total_us=packet.total,
                stages_us=packet.stages(),
                unaccounted_us=packet.unaccounted,
                flags=("sync",),
                sector=8 * int(rng.random() * 2**28),
                bytes=load.bytes_each,
                pid=load.pid,
                comm=load.comm,
                cpu_complete=11,
                outstanding_at_issue=number,
                overtaken_by=int(one.count * packet.total / frame.dt_us),
                path=packet.path,
                waits=(wait,),
            )


EMULEX = Scenario(
    "Solaris 11, Oracle log writer: 1 I/O in 100,000 takes 0.5 to 2 s, 85 us of it in the SAN; an Emulex HBA's "
    "completion threads (priority 97) wait for ZFS's (99).",
    emulex_origin(EMLXS),
    WINDOWS,
    _sick,
    healthy="emulex-healthy",
)
EMULEX_HEALTHY = Scenario(
    "the same load on a QLogic HBA, which completes in a task queue of priority 99: no I/O takes 100 ms.",
    emulex_origin(QLC),
    WINDOWS,
    _healthy,
)
