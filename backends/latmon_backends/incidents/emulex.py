"""emulex: a log writer's 2 KiB writes wait for the completion threads of an Emulex HBA; emulex-healthy: a QLogic HBA.

The numbers are those of "Comparing Latency on Emulex and QLogic HBA Driver" (N. Noveljic, 2016): emlxsoverhead.d's row
of 1,238,999 us, the second table of resume(ms), the log writer's warning of 836 ms, 0.001 % of the I/Os above 500 ms,
priorities 97 and 99, kstat's qlc_0_comp_thd. One I/O in 53 wakes a thread: then the table's 1 wake-up in 15,230 with
its 8 packets is that 0.001 %. It is a busy hour's load: a table in 40 s, of which 6 hours make several thousand a day.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from random import Random

from latmon.model import NAMED_FROM, Flow, Frame, Handler, HandlerRuns, Outlier, Thread, Wait, Wakeups
from latmon_backends.incidents import emulex_host as host
from latmon_backends.incidents.crowding import Held, crowds
from latmon_backends.incidents.drawing import Alike, Drawn, above, window
from latmon_backends.incidents.emulex_drains import BEHIND_OTHERS, PACKETS, UNTIL_IT_RAN, Drain, delays, plan
from latmon_backends.incidents.emulex_host import EMLXS, LOADS, QLC, Load
from latmon_backends.incidents.scenario import WINDOWS, Scenario
from latmon_backends.synthetic import Group, Mode, Shape, histogram, meet, poisson

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
    origin, devices = host.origin(EMLXS), host.devices(EMLXS)
    planned = plan(rng, WINDOWS)
    drains = [one.drain for one in planned if one.drain]
    for seq, now in enumerate(planned):
        woken = list(delays(rng, now.rows))
        late = _by_load(rng, woken)
        loads = [_drawn(rng, load, late.get(load.flow, {}), now.drain) for load in LOADS]
        held: dict[str, Held] = {}
        for drain in drains:
            held |= drain.held(seq)
        frame = window(origin, seq, loads, devices, absent=host.ABSENT)
        waits = [Group(1, us) for us in woken] + ([Group(1, now.drain.waited_us)] if now.drain else [])
        yield replace(
            _told(rng, frame, loads, EMLXS, held),
            wakeups=(_completer(rng, COMPLETER, waits), _zio(rng)),
            outliers=tuple(_outliers(rng, frame, loads, now.drain)) if now.drain else (),
        )


def _healthy(rng: Random) -> Iterator[Frame]:
    origin, devices = host.origin(QLC), host.devices(QLC)
    for seq in range(WINDOWS):
        loads = [_drawn(rng, load, {}, None, _IN_TASKQ) for load in LOADS]
        frame = window(origin, seq, loads, devices, absent=host.ABSENT)
        wakeups = (_completer(rng, TASKQ, _WOKEN.draw(rng, _WAKEUPS)), _zio(rng))
        yield replace(_told(rng, frame, loads, QLC, {}), wakeups=wakeups)


def _told(rng: Random, frame: Frame, loads: Sequence[Drawn], driver: str, held: Mapping[str, Held]) -> Frame:
    """The window with what goes with its I/Os in sickness and in health."""
    crowded = crowds(rng, loads, host.devices(driver), held)
    interrupts = [group for one in loads for group in one.times("irq")]
    runs = HandlerRuns(histogram(interrupts), {"handled": sum(one.size for one in interrupts)}, device=f"{driver}0")
    return replace(
        frame,
        above=above(loads, host.THRESHOLDS_US),
        thresholds_us=host.THRESHOLDS_US,
        handlers={Handler(_IRQ, f"{driver}0"): runs},
        taskqs=host.taskqs(driver, frame.seq),
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
    host.origin(EMLXS),
    WINDOWS,
    _sick,
    healthy="emulex-healthy",
)
EMULEX_HEALTHY = Scenario(
    "the same load on a QLogic HBA, which completes in a task queue of priority 99: no I/O takes 100 ms.",
    host.origin(QLC),
    WINDOWS,
    _healthy,
)
