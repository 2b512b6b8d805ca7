"""Incident emulex: 2 KiB log writes wait for the completion threads of an Emulex HBA; emulex-healthy is a QLogic.

The numbers are those of "Comparing Latency on Emulex and QLogic HBA Driver" (N. Noveljic, 2016): emlxsoverhead.d's row
of 1,238,999 us, the second table of resume(ms), the log writer's warning of 836 ms, 0.001 % of the I/Os above 500 ms,
priorities 97 and 99, kstat's qlc_0_comp_thd. One I/O in 53 wakes a thread: then the table's 1 wake-up in 15,230 with
its 8 packets is that 0.001 %. It is a busy hour's load: one table per 40 s, and 6 such hours make several thousand
slow I/Os a day.

The delays are dealt out of the case's own table: each table of 15,230 wake-ups is spread over 40 windows. The healthy
host differs in its HBA's driver alone; no script measures what that one does, so its I/Os have sd's stages. Made up is
that all wake-ups are of one channel's thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from latmon.model.frame import NAMED_FROM, Device, Flow, Frame, Outlier, Taskq, Thread, Wait
from latmon.model.measurements.handlers import UNKNOWN_IRQ, Handler
from latmon.model.measurements.wakeups import Wakeups
from latmon_backends.demo import scenario
from latmon_backends.demo.inflight import InDriver, depth_tables
from latmon_backends.demo.probed_host import ProbedHost
from latmon_backends.demo.scenario import (
    INTERVAL_US,
    WINDOWS,
    EqualIos,
    FlowIos,
    HostFacts,
    IoGroup,
    Mode,
    Scenario,
    Shape,
    begin_us,
    bucket,
    combine_stages,
    handled,
    histogram,
    outlier,
    poisson,
)
from latmon_backends.demo.script_output import label

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
"""resume(ms): the lower end of a row -> its count. The wake-up of the last row is a `Drain`."""
TABLE_WINDOWS = 40
UNTIL_IT_RAN = "completion thread, most of the time until it ran"
BEHIND_OTHERS = "completion thread, most of the time behind what it ran first"
PACKETS: Mapping[str, int] = {"sd0": 4, "sd1": 2, "sd3": 1, "sd4": 1}
"""LUN -> writes of a drain: eight that share a completion queue, all with the same times."""
_RARE_MS, _DRAIN_MS = 8, 1024
_FIRST_AT = 1
"""The window at 12:13:04: the first screen of the demo has it."""
_FIRST = IoGroup(1, 3, 85, irq=6, completion=1_238_738 + 165, unaccounted=2, path=UNTIL_IT_RAN)
"""The row's I/O START, TOTAL - EMLXS, I/O INTR, QUEUE + I/O DONE, and the rest of its total."""
_WARNED_US = 836_000
"""The log writer's warning: `log write elapsed time 836ms, size 2KB`."""
_DONE_US = 165
START_WALL = 1_460_031_183.0
"""2016-04-07 12:13:03 UTC: the case's row was printed at 12:13:04."""
THRESHOLD_US = 500_000
"""The log writer warns from here on."""
_SPAN_US = 10_000_000
"""Between two samples of the task queues."""
_CACHED = Shape((Mode(0.97, 85, 0.18), Mode(0.03, 260, 0.4)), bits=2)
_WRITTEN = Shape((Mode(0.95, 110, 0.25), Mode(0.05, 420, 0.4)), bits=2)
_READ = Shape((Mode(0.7, 190, 0.3), Mode(0.3, 640, 0.4)), bits=2)
_LIMITS = scenario.sd_limits(
    256,
    un_f_opt_queueing=0,
    un_f_arq_enabled=1,
    un_f_use_adaptive_throttle=1,
    un_f_disksort_disabled=1,
    un_f_write_cache_enabled=0,
)
COMPLETER = Thread(NAMED_FROM + 1, "emlxs0_channel3", "", 97)
_ZIO = Thread(NAMED_FROM + 2, "taskq:zio_write_issue.0", "", 99)
HOGS = (Thread(NAMED_FROM + 3, "zpool-data", "", 99), Thread(NAMED_FROM + 4, "zpool-redo", "", 99))
"""Threads that run instead: on Solaris the higher number is the higher priority."""
_LATE_US = 1_000
_BEHIND = Shape((Mode(1, 14, 0.5),), bits=1)
_WOKEN = Shape((Mode(0.996, 6, 0.6), Mode(0.004, 300, 0.7)))


class Drain(NamedTuple):
    """A batch of packets that the thread finds when it finally runs."""

    seq: int
    """The window in which it ends."""
    ends_us: int
    """After that window's begin."""
    packet: IoGroup

    @property
    def waited_us(self) -> int:
        """Time from the thread's waking to its running."""
        return (self.packet.completion or 0) - _DONE_US

    def in_driver(self, seq: int) -> dict[str, InDriver]:
        """Return its packets in the driver during window `seq`, by LUN."""
        end = self.seq * INTERVAL_US + self.ends_us
        begin = end - self.packet.total
        low, high = seq * INTERVAL_US, (seq + 1) * INTERVAL_US
        share = (min(end, high) - max(begin, low)) / INTERVAL_US
        return {name: InDriver(count, share, still=end > high) for name, count in PACKETS.items()} if share > 0 else {}


class Planned(NamedTuple):
    """A window's wake-ups by the table's rows, without the drain's own, and the drain that ends in it."""

    rows: Mapping[int, int]
    drain: Drain | None


def plan(rng: Random, windows: int) -> list[Planned]:
    """Plan whole tables, so there may be more windows than requested; a drain is known to the windows before it."""
    return [planned for table in range(-(-windows // TABLE_WINDOWS)) for planned in _table(rng, table)]


def delays(rng: Random, rows: Mapping[int, int]) -> Iterator[int]:
    """Yield the delay of each wake-up, in us. Those of a row in one bucket are equal, which keeps a window cheap."""
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
    for number in range(TABLE_WINDOWS):
        rows = {low: _dealt(count, number) for low, count in TABLE_MS.items() if low < _RARE_MS}
        for low, place in zip(rare, places, strict=True):
            if place == number:
                rows[low] = rows.get(low, 0) + 1
        yield Planned(rows, drain if number == at else None)


def _dealt(count: int, window: int) -> int:
    """Return a window's part of `count`: as even as whole numbers allow, none lost."""
    return count * (window + 1) // TABLE_WINDOWS - count * window // TABLE_WINDOWS


def _drain(rng: Random, table: int, seq: int) -> Drain:
    """Return the case's own two drains first, then others from 0.5 to 2 s."""
    ends_us = int((0.05 + 0.9 * rng.random()) * INTERVAL_US)
    far = rng.random()
    if table == 0:
        return Drain(seq, ends_us, _FIRST)
    total = _WARNED_US if table == 1 else int(530_000 + 1_440_000 * far * far)
    hba, irq = 80 + int(rng.random() * 20), 5 + int(rng.random() * 4)
    return Drain(seq, ends_us, _FIRST._replace(hba=hba, irq=irq, completion=total - 3 - hba - irq - 2))


EMLXS, QLC = "emlxs", "qlc"


class LunLoad(NamedTuple):
    """One op on one LUN: I/Os a second, their size, and the time of HBA, fabric and array."""

    flow: Flow
    rate: int
    bytes_each: int
    hba: Shape


_LOGS, _FILES = ("sd0", "sd1"), ("sd2", "sd3", "sd4", "sd5")
LOADS = (
    *(LunLoad(Flow(name, "write"), 1_600, 2_048, _CACHED) for name in _LOGS),
    *(LunLoad(Flow(name, "read"), 3_000, 8_192, _READ) for name in _FILES),
    *(LunLoad(Flow(name, "write"), 1_200, 8_192, _WRITTEN) for name in _FILES),
)
"""Together 20,000 I/Os a second: both redo logs, synchronous, and four LUNs of data files."""
_WRITERS = dict.fromkeys(_LOGS, ("ora_lgwr", 5102)) | dict.fromkeys(_FILES, ("ora_dbw0", 5110))


def _host(*more: str) -> HostFacts:
    """Return the facts of the host with the scripts of this HBA."""
    devices = tuple(
        Device(name, 0, number, driver="sd", model="SAN LUN 1T", serial=f"DEMO-LUN-{number}", limits=_LIMITS)
        for number, name in enumerate((*_LOGS, *_FILES))
    )
    return scenario.sun(
        "demo-ora-01",
        "11.3",
        *more,
        "intr",
        "taskqs",
        devices=devices,
        threshold_us=THRESHOLD_US,
        programs=_WRITERS,
        start_wall=START_WALL,
        threads=(COMPLETER, _ZIO, *HOGS),
    )


@cache
def _sick_host() -> HostFacts:
    return _host("emlxs_sli4", "emlxs_thread")


@cache
def _healthy_host() -> HostFacts:
    return _host()


def taskqs(driver: str, seq: int) -> tuple[Taskq, ...] | None:
    """Return the task queues, sampled every 10 s: ZFS's, and qlc's threads: nothing executed, all active."""
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


_SHARES = tuple(accumulate(lun_load.rate for lun_load in LOADS))


def _sick(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(_sick_host())
    planned = plan(rng, WINDOWS)
    drains = [step.drain for step in planned if step.drain]
    for seq, now in enumerate(planned):
        woken = list(delays(rng, now.rows))
        late = _by_load(rng, woken)
        loads = [_drawn(rng, load, late.get(load.flow, {}), now.drain) for load in LOADS]
        stuck: dict[str, InDriver] = {}
        for drain in drains:
            stuck |= drain.in_driver(seq)
        waits = [EqualIos(1, us) for us in woken] + ([EqualIos(1, now.drain.waited_us)] if now.drain else [])
        tables = depth_tables(rng, loads, probed.host.devices, stuck)
        tables["wakeups"] = (_completer(rng, waits), _zio(rng))
        rows = tuple(_outliers(rng, seq, loads, now.drain)) if now.drain else ()
        yield _frame(probed, seq, loads, EMLXS, tables, rows=rows)


def _healthy(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(_healthy_host())
    for seq in range(WINDOWS):
        loads = [_drawn(rng, load, {}, None) for load in LOADS]
        tables = depth_tables(rng, loads, probed.host.devices)
        yield _frame(probed, seq, loads, QLC, tables | {"wakeups": (_zio(rng),)})


def _frame(
    probed: ProbedHost,
    seq: int,
    loads: Sequence[FlowIos],
    driver: str,
    tables: Mapping[str, Any],
    *,
    rows: tuple[Outlier, ...] = (),
) -> Frame:
    runs = handled([group for flow_ios in loads for group in flow_ios.times("irq")])
    handlers = {Handler(UNKNOWN_IRQ, f"{driver}0"): runs}
    return probed.window(seq, loads, rows, handlers=handlers, taskqs=taskqs(driver, seq), **tables)


def _by_load(rng: Random, woken: list[int]) -> dict[Flow, dict[int, int]]:
    """Draw the loads whose I/Os woke a thread, in proportion to their rates: flow -> delay -> I/Os."""
    by_loads: dict[Flow, dict[int, int]] = {}
    for us in woken:
        load = LOADS[bisect_right(_SHARES, rng.random() * _SHARES[-1])]
        sizes = by_loads.setdefault(load.flow, {})
        sizes[us] = sizes.get(us, 0) + 1
    return by_loads


def _drawn(rng: Random, load: LunLoad, late: Mapping[int, int], drain: Drain | None) -> FlowIos:
    """Draw one load's I/Os: those that find the thread awake, those that wake it, and those of a drain."""
    waiting = sum(late.values())
    ordinary = max(0, poisson(rng, load.rate) - waiting)
    awake = combine_stages(rng, load.hba.draw(rng, ordinary), _BEHIND.draw(rng, ordinary))
    asleep = combine_stages(rng, load.hba.draw(rng, waiting), [EqualIos(size, us) for us, size in sorted(late.items())])
    groups = [_packet(rng, size, hba, us, BEHIND_OTHERS) for size, hba, us in awake]
    groups += [_packet(rng, size, hba, us + 12 + int(rng.random() * 8), UNTIL_IT_RAN) for size, hba, us in asleep]
    if drain and load.flow.op == "write" and load.flow.device in PACKETS:
        groups.append(drain.packet._replace(size=PACKETS[load.flow.device]))
    return FlowIos(load.flow, tuple(groups), load.bytes_each)


def _packet(rng: Random, size: int, hba: int, completion: int, path: str) -> IoGroup:
    dice = int(rng.random() * 45)
    return IoGroup(
        size,
        queue=2 + dice % 3,
        hba=hba,
        irq=4 + dice % 5,
        completion=completion,
        unaccounted=dice // 15,
        path=path,
    )


def _completer(rng: Random, waits: Sequence[EqualIos]) -> Wakeups:
    late = sorted(equal_ios.us for equal_ios in waits for _ in range(equal_ios.size) if equal_ios.us >= _LATE_US)
    few = int(len(late) * 0.2 + rng.random())
    turns = {label(hog): stamps for hog, stamps in zip(HOGS, (late[few:], late[:few]), strict=True) if stamps}
    instead, ran_us = ({hog: count(turn) for hog, turn in turns.items()} for count in (len, sum))
    return Wakeups(COMPLETER, histogram(waits), instead, ran_us)


def _zio(rng: Random) -> Wakeups:
    """Return ZFS's own threads, which do not wait for a CPU."""
    return Wakeups(_ZIO, histogram(_WOKEN.draw(rng, 3_100)))


def _outliers(rng: Random, seq: int, loads: Sequence[FlowIos], drain: Drain) -> Iterator[Outlier]:
    """Yield the packets of a drain: sent in the same microsecond, taken from the queue in the same run."""
    packet = drain.packet
    begun_us = begin_us(seq) + drain.ends_us - packet.total
    woken_us = begun_us + packet.queue + (packet.hba or 0) + (packet.irq or 0)
    us = drain.waited_us
    wait = Wait(
        stage="completion",
        thread=COMPLETER.comm,
        pid=COMPLETER.pid,
        priority=COMPLETER.priority,
        woken_us=woken_us,
        delay_us=us,
        instead=label(HOGS[0]),
        ran_us=us,
    )
    for flow_ios in loads:
        for _ in range(PACKETS.get(flow_ios.flow.device, 0) if flow_ios.flow.op == "write" else 0):
            yield outlier(
                _sick_host(),
                flow_ios,
                packet,
                begun_us,
                sector=8 * int(rng.random() * 2**28),
                cpu_complete=11,
                waits=(wait,),
            )


EMULEX = Scenario(
    "Solaris 11, Oracle log writer: 1 I/O in 100,000 takes 0.5 to 2 s, 85 us of it in the SAN; an Emulex HBA's "
    "completion threads (priority 97) wait for ZFS's (99).",
    _sick_host,
    WINDOWS,
    _sick,
    healthy="emulex-healthy",
)
EMULEX_HEALTHY = Scenario(
    "the same load on a QLogic HBA, which completes in a task queue of priority 99: no I/O takes 100 ms.",
    _healthy_host,
    WINDOWS,
    _healthy,
)
