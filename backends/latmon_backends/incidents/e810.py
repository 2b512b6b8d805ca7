"""e810: every I/O over an Intel E810 waits for the next tick of 4 ms; e810-healthy: a Mellanox card, 100 us.

The numbers are those of the case that Zhang Yang published (2024): 4 KiB random reads and writes one at a time, 3.966
ms from the acknowledgement to nvme_rdma_send_done, HZ 250, irdma 1.15.11, the storage below 100 us and its card's
answer after 10. The driver raises IRQ_POLL from a thread by __raise_softirq_irqoff, which wakes nobody: it runs when
the timer's interrupt comes, or another one by chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from latmon.model import Flow, Frame, Handler, HandlerRuns, Outlier, SoftirqCpu, SoftirqRuns, Thread, Wakeups
from latmon_backends.incidents import e810_host as host
from latmon_backends.incidents.crowding import crowds
from latmon_backends.incidents.drawing import INTERVAL_US, START_MONO_US, Alike, Drawn, above, window
from latmon_backends.incidents.e810_host import E810, LOCAL, MELLANOX, REMOTE, TICK_US, Card
from latmon_backends.incidents.scenario import WINDOWS, Scenario
from latmon_backends.synthetic import Group, Mode, Shape, histogram, poisson

PER_WINDOW = 6
"""Outliers that the rate limit lets through: nearly every I/O is one."""
VECTOR, CPU = "IRQ_POLL", 3
_CHANCE = 0.02
"""Of I/Os for which another interrupt comes before the tick."""
_BYTES = 4_096
_FIO = ("fio", 9_120)
_RUN_US = 4
_CPUS = 8
_PATH = "IRQ_POLL softirq"
_RATE = 9_550
_FABRIC = Shape((Mode(1, 76, 0.1),))
_LOCAL = {
    "read": (420, Shape((Mode(0.97, 84, 0.22), Mode(0.03, 220, 0.4)))),
    "write": (210, Shape((Mode(1, 23, 0.3),))),
}
_WORKER = Thread(217, "kworker/3:1H", "other", 100)
_WOKEN = Shape((Mode(1, 4, 0.4),))


class Sent(NamedTuple):
    """One I/O of fio's: when it began, in us since the first window's begin."""

    begun_us: int
    op: str
    way: Alike

    @property
    def ends_us(self) -> int:
        return self.begun_us + self.way.total


def one_by_one(rng: Random) -> Iterator[Sent]:
    """The next begins when the tick has completed the last: it waits a tick less what fio took in between.

    These are so much alike that a quantile, which a histogram tells as its bucket's end or its largest, is theirs.
    """
    now = 8
    while True:
        now += 31 + int(rng.random() * 8)
        sent = Sent(now, "read" if rng.random() < 0.5 else "write", _way(rng, TICK_US - now % TICK_US))  # noqa: PLR2004 - half of them
        now = sent.ends_us
        yield sent


def _way(rng: Random, tick_us: int) -> Alike:
    """Until `tick_us` from now and some more, or until an interrupt that happens to come."""
    queue, irq, lost = 1 + int(rng.random() * 3), 3 + int(rng.random() * 3), int(rng.random() + 0.3)
    hba = min(95, max(10, round(rng.gauss(74, 8))))
    late = 3 + int(rng.random() * 4)
    chance = rng.random() < _CHANCE
    softirq = _RUN_US + (int(rng.random() * 120) if chance else max(0, tick_us - queue - hba - irq - lost) + late)
    return Alike(1, queue, hba, irq=irq, softirq=softirq, unaccounted=lost, path=_PATH)


def _sick(rng: Random) -> Iterator[Frame]:
    every = one_by_one(rng)
    ahead = next(every)
    for seq in range(WINDOWS):
        ended = []
        while ahead.ends_us < (seq + 1) * INTERVAL_US:
            ended.append(ahead)
            ahead = next(every)
        loads = [Drawn(Flow(REMOTE, op), tuple(one.way for one in ended if one.op == op), _BYTES) for op in _LOCAL]
        frame = _framed(rng, seq, E810, loads)
        told = tuple(_outliers(rng, frame, ended))
        left_out = sum(frame.above.values()) - len(told)
        yield replace(frame, outliers=told, health=replace(frame.health, suppressed=left_out))


def _healthy(rng: Random) -> Iterator[Frame]:
    for seq in range(WINDOWS):
        yield _framed(rng, seq, MELLANOX, [_quick(rng, op) for op in _LOCAL])


def _quick(rng: Random, op: str) -> Drawn:
    """Half of what one I/O at a time comes to; the card's interrupt raises the softirq, and it runs at its end."""
    parts = []
    for size, hba in _FABRIC.draw(rng, poisson(rng, _RATE / 2)):
        dice = int(rng.random() * 24)
        softirq = _RUN_US + 2 + dice % 4
        parts.append(Alike(size, 1 + dice % 3, hba, 3 + dice % 2, softirq, unaccounted=dice // 12, path=_PATH))
    return Drawn(Flow(REMOTE, op), tuple(parts), _BYTES)


def _beside(rng: Random, op: str) -> Drawn:
    """What the host's own drive does meanwhile."""
    rate, shape = _LOCAL[op]
    parts = (
        Alike(size, 1 + int(rng.random() * 3), hba, 2 + int(rng.random() * 2))
        for size, hba in shape.draw(rng, poisson(rng, rate))
    )
    return Drawn(Flow(LOCAL, op), tuple(parts), 2 * _BYTES)


def _framed(rng: Random, seq: int, card: Card, remote: Sequence[Drawn]) -> Frame:
    loads = [*remote, *(_beside(rng, op) for op in _LOCAL)]
    frame = window(host.origin(card), seq, loads, host.devices(card), absent=host.ABSENT)
    crowded = crowds(rng, loads, host.devices(card), most={REMOTE: 1})
    ended = sum(one.count for one in remote)
    return replace(
        frame,
        above=above(loads, host.THRESHOLDS_US),
        thresholds_us=host.THRESHOLDS_US,
        softirqs=_BACKGROUND | {SoftirqCpu(VECTOR, CPU): _polled(remote, card)},
        handlers={
            Handler(131, card.vector): _handled(remote, card.address),
            Handler(92, "nvme1q4"): _handled(loads[len(remote) :], LOCAL),
        },
        wakeups=(Wakeups(_WORKER, histogram(_WOKEN.draw(rng, ended))),) if card is E810 else (),
        outstanding=crowded.outstanding,
        depths=crowded.depths,
    )


def _polled(remote: Iterable[Drawn], card: Card) -> SoftirqRuns:
    """The E810's is raised by a worker thread, whose raise wakes nobody; the other card's by its interrupt."""
    waits = [Group(size, us - _RUN_US) for one in remote for size, us in one.times("softirq")]
    count = sum(one.size for one in waits)
    late = sum(one.size for one in waits if one.us >= host.THRESHOLD_US)
    ran_in = {"irq_exit": count - late, "timer": late}
    raised_in = {"other" if card is E810 else "irq": count}
    run = histogram([Group(count, _RUN_US)])
    return SoftirqRuns(histogram(waits), run, {where: n for where, n in ran_in.items() if n}, raised_in)


def _handled(loads: Iterable[Drawn], device: str) -> HandlerRuns:
    times = [group for one in loads for group in one.times("irq")]
    return HandlerRuns(histogram(times), {"handled": sum(one.size for one in times)}, device=device)


def _always(vector: str, cpu: int, runs: int, run_us: int) -> SoftirqRuns:
    """What a host does anyway, the same in every window."""
    where = {"timer": runs} if vector == "TIMER" else {"irq_exit": runs}
    delay = 1 + (cpu + len(vector)) % 2
    return SoftirqRuns(histogram([Group(runs, delay)]), histogram([Group(runs, run_us)]), where, {"irq": runs})


_BACKGROUND = {
    SoftirqCpu(vector, cpu): _always(vector, cpu, runs, run_us)
    for vector, runs, run_us in (("TIMER", host.HZ, 3), ("SCHED", 90, 4), ("RCU", 60, 2))
    for cpu in range(_CPUS)
}


def _outliers(rng: Random, frame: Frame, ended: Sequence[Sent]) -> Iterator[Outlier]:
    """A few of those that waited for the tick, from the whole window."""
    late = [one for one in ended if one.way.total > host.THRESHOLD_US]
    picked = sorted({at * len(late) // PER_WINDOW + int(rng.random() * 20) for at in range(PER_WINDOW)})
    for one in (late[at] for at in picked if at < len(late)):
        begun_us = START_MONO_US + one.begun_us
        yield Outlier(
            wall=frame.wall - (frame.mono_us - begun_us) / 1e6,
            mono_us=begun_us,
            device=REMOTE,
            op=one.op,
            total_us=one.way.total,
            stages_us=one.way.stages(),
            unaccounted_us=one.way.unaccounted,
            flags=("sync",) if one.op == "write" else (),
            sector=8 * int(rng.random() * 2**28),
            bytes=_BYTES,
            pid=_FIO[1],
            comm=_FIO[0],
            cpu_issue=CPU,
            cpu_complete=CPU,
            outstanding_at_issue=0,
            overtaken_by=0,
            path=_PATH,
        )


E810_CASE = Scenario(
    "4 KiB one at a time over RDMA: each I/O takes 3.97 ms, a tick of HZ 250, because the E810's driver raises "
    "IRQ_POLL in a thread and wakes nobody to run it.",
    host.origin(E810),
    WINDOWS,
    _sick,
    healthy="e810-healthy",
)
E810_HEALTHY = Scenario(
    "the same load over a Mellanox card, whose interrupt raises the softirq: 0.1 ms each.",
    host.origin(MELLANOX),
    WINDOWS,
    _healthy,
)
