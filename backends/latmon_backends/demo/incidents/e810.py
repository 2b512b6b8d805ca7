"""Incident e810: every I/O over an Intel E810 waits for the next 4 ms tick; e810-healthy takes 100 us.

The numbers are those of the case that Zhang Yang published (2024): 4 KiB random reads and writes one at a time, 3.966
ms from the acknowledgement to nvme_rdma_send_done, HZ 250, irdma 1.15.11, the storage below 100 us and its card's
answer after 10. The driver raises IRQ_POLL from a thread by __raise_softirq_irqoff, which wakes nobody: it runs when
the timer's interrupt comes, or another one by chance.

The network card is all that differs. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from latmon import __version__
from latmon.model.frame import (
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Limit,
    Missing,
    Origin,
    Outlier,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Wakeups,
)
from latmon_backends.demo import scenario
from latmon_backends.demo.inflight import crowds
from latmon_backends.demo.scenario import (
    INTERVAL_US,
    START_MONO_US,
    WINDOWS,
    Alike,
    Drawn,
    Scenario,
    above_threshold,
    draw_window,
)
from latmon_backends.demo.synthesis import Group, Mode, Shape, histogram, poisson

HZ = 250
TICK_US = 1_000_000 // HZ
THRESHOLD_US = 2_000
REMOTE, LOCAL = "nvme0n1", "nvme1n1"
THRESHOLDS_US = {REMOTE: THRESHOLD_US, LOCAL: THRESHOLD_US}
ABSENT = (
    Missing("requeue", "no request was refused"),
    Missing("completion", "no thread completes I/Os here"),
    Missing("resume", "who waits for io_submit's I/O is not woken by its completion alone"),
)


class Card(NamedTuple):
    """A network card with its driver."""

    driver: str
    version: str
    model: str
    address: str
    vector: str
    """As its driver names the interrupt of a completion queue."""


E810 = Card("irdma", "1.15.11", "E810-C 100GbE", "0000:5e:00.0", "irdma-ceq-3")
MELLANOX = Card("mlx5_core", "5.8-1.1.2", "ConnectX-6 Dx 100GbE", "0000:5e:00.0", "mlx5_comp3@pci:0000:5e:00.0")


def devices(card: Card) -> tuple[Device, ...]:
    """The remote namespace and the local drive."""
    return (
        Device(
            REMOTE,
            259,
            0,
            driver="nvme-rdma",
            controller=f"{card.driver} {card.version}",
            model="zStorage demo volume",
            serial="DEMO-VOL-0",
            limits=_limits(128, 8),
        ),
        Device(
            LOCAL,
            259,
            1,
            driver="nvme",
            controller="0000:41:00.0",
            model="SSD 1920G",
            serial="DEMO-SSD-1",
            limits=_limits(1_023, 8),
        ),
    )


def origin(card: Card) -> Origin:
    """Of the host with this card."""
    queue: Mapping[str, str] = {"scheduler": "none", "rq_affinity": "1", "nomerges": "0", "io_poll": "0"}
    return scenario.origin(
        "demo-hygon-03",
        "4.19.90-demo",
        hz=HZ,
        settings={
            "tool": {"latmon": __version__},
            "kernel": {
                "system": "Linux",
                "release": "4.19.90-demo",
                "machine": "x86_64",
                "hz": str(HZ),
                "preemption": "voluntary",
                "clocksource": "tsc",
            },
            f"module {card.driver}": {"version": card.version, "adapter": card.model},
            "module nvme_rdma": {"version": "1.0", "register_always": "Y"},
            f"device {REMOTE}": {**queue, "nr_requests": "128", "transport": "rdma"},
            f"device {LOCAL}": {**queue, "nr_requests": "1023", "transport": "pcie"},
        },
        threshold_us=THRESHOLD_US,
    )


def _limits(requests: int, queues: int) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", requests, "queue/nr_requests"),
        Limit("scheduler", "none", "queue/scheduler"),
        Limit("rq_affinity", 1, "queue/rq_affinity"),
        Limit("nr_tags", requests, "mq/0/nr_tags"),
        Limit("hardware queues", queues, "mq"),
    )


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
    frame = draw_window(origin(card), seq, loads, devices(card), absent=ABSENT)
    crowded = crowds(rng, loads, devices(card), most={REMOTE: 1})
    ended = sum(one.count for one in remote)
    return replace(
        frame,
        above=above_threshold(loads, THRESHOLDS_US),
        thresholds_us=THRESHOLDS_US,
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
    late = sum(one.size for one in waits if one.us >= THRESHOLD_US)
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
    for vector, runs, run_us in (("TIMER", HZ, 3), ("SCHED", 90, 4), ("RCU", 60, 2))
    for cpu in range(_CPUS)
}


def _outliers(rng: Random, frame: Frame, ended: Sequence[Sent]) -> Iterator[Outlier]:
    """A few of those that waited for the tick, from the whole window."""
    late = [one for one in ended if one.way.total > THRESHOLD_US]
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
    origin(E810),
    WINDOWS,
    _sick,
    healthy="e810-healthy",
)
E810_HEALTHY = Scenario(
    "the same load over a Mellanox card, whose interrupt raises the softirq: 0.1 ms each.",
    origin(MELLANOX),
    WINDOWS,
    _healthy,
)
