"""Incident e810: every I/O over an Intel E810 waits for the next 4 ms tick; e810-healthy takes 100 us.

The numbers are those of the case that Zhang Yang published (2024): 4 KiB random reads and writes one at a time, 3.966
ms from the acknowledgement to nvme_rdma_send_done, HZ 250, irdma 1.15.11, the storage below 100 us and its card's
answer after 10. The driver raises IRQ_POLL from a thread by __raise_softirq_irqoff, which does not wake
ksoftirqd: it runs when the timer's interrupt comes, or another one by chance.

The healthy host differs in its network card alone. The kernel is 4.19, without BTF: scripts of tier C measure it, which
know requests by device and sector and follow none in flight. Of a softirq that is raised outside of an interrupt they
have no stage `irq`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from random import Random
from typing import NamedTuple

from latmon import __version__
from latmon.model.frame import Device, Flow, Frame, Limit, Outlier, Thread
from latmon.model.histogram import EMPTY
from latmon.model.measurements.handlers import Handler
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon_backends.demo import scenario
from latmon_backends.demo.inflight import depth_tables
from latmon_backends.demo.probed_host import HostVectors, ProbedHost
from latmon_backends.demo.scenario import (
    INTERVAL_US,
    START_MONO_US,
    WINDOWS,
    EqualIos,
    FlowIos,
    HostFacts,
    IoGroup,
    Mode,
    Scenario,
    Shape,
    constant_softirq,
    handled,
    histogram,
    outlier,
    poisson,
)
from latmon_backends.kernel.interrupts import Vectors

HZ = 250
TICK_US = 1_000_000 // HZ
THRESHOLD_US = 2_000
REMOTE, LOCAL = "nvme0n1", "nvme1n1"
PER_WINDOW = 6
"""Outliers that the rate limit lets through: nearly every I/O is one."""
_CHANCE = 0.02
"""Share of I/Os for which another interrupt comes before the tick."""
_BYTES = 4_096
_FIO = ("fio", 9_120)
_RUN_US = 4
_RATE = 9_550
_FABRIC = Shape((Mode(1, 76, 0.1),))
_LOCAL = {
    "read": (420, Shape((Mode(0.97, 84, 0.22), Mode(0.03, 220, 0.4)))),
    "write": (210, Shape((Mode(1, 23, 0.3),))),
}
_WORKER = Thread(217, "kworker/3:1H", "other", 100)
_WOKEN = Shape((Mode(1, 4, 0.4),))
_BACKGROUND = {
    SoftirqCpu(vector, cpu): constant_softirq(
        runs, 1 + (cpu + len(vector)) % 2, run_us, "timer" if vector == "TIMER" else "irq_exit"
    )
    for vector, runs, run_us in (("TIMER", HZ, 3), ("SCHED", 90, 4), ("RCU", 60, 2))
    for cpu in range(8)
}


class Card(NamedTuple):
    """A network card."""

    vector: str
    """The driver's name for the interrupt of a completion queue."""
    path: str
    """Path of the completions of I/Os over it."""


E810 = Card("irdma-ceq-3", "softirq raised outside of a handler")
MELLANOX = Card("mlx5_comp3@pci:0000:5e:00.0", "IRQ_POLL softirq")
_CARD, _DRIVE = "0000:5e:00.0", "0000:41:00.0"
_CARD_IRQ, _DRIVE_IRQ = 131, 92
_VECTORS = HostVectors(Vectors({}, {_CARD_IRQ: (_CARD,), _DRIVE_IRQ: (_DRIVE,)}))


def _devices() -> tuple[Device, ...]:
    """Return the remote namespace and the local drive."""
    return (
        Device(
            REMOTE,
            259,
            0,
            driver="nvme-rdma",
            controller="nvme0 nvme-rdma traddr=192.0.2.20,trsvcid=4420",
            model="zStorage demo volume",
            serial="DEMO-VOL-0",
            limits=_limits(128, 8),
        ),
        Device(
            LOCAL,
            259,
            1,
            driver="nvme",
            controller=f"nvme1 nvme {_DRIVE}",
            model="SSD 1920G",
            serial="DEMO-SSD-1",
            limits=_limits(1_023, 8),
        ),
    )


@cache
def host() -> HostFacts:
    """Return the facts of the host, which are the same with both cards: no setting names the card."""
    probes = scenario.scripts("block_c", "stages_c", "irqs_c", "softirqs_c", "wakeups_c", "processes_c")
    queue = {"scheduler": "none", "rq_affinity": "1", "nomerges": "0", "io_poll": "0"}
    origin = scenario.origin(
        "demo-hygon-03",
        "4.19.90-demo",
        probes,
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
            "module nvme_rdma": {"register_always": "Y"},
            f"device {REMOTE}": {**queue, "nr_requests": "128"},
            f"device {LOCAL}": {**queue, "nr_requests": "1023"},
        },
        threshold_us=THRESHOLD_US,
    )
    thresholds = dict.fromkeys((REMOTE, LOCAL), THRESHOLD_US)
    flags = {"write": ("sync",)}
    programs = {REMOTE: _FIO}
    threads = (_WORKER, Thread(_FIO[1], _FIO[0], "other", 120, kernel=False))
    cgroups = {REMOTE: ("/user.slice/user-0.slice/session-1.scope", "")}
    return HostFacts(origin, _devices(), thresholds, programs, probes, threads=threads, flags=flags, cgroups=cgroups)


def _limits(requests: int, queues: int) -> tuple[Limit, ...]:
    queue = scenario.sysfs_limits("queue", nr_requests=requests, scheduler="none", rq_affinity=1)
    return (*queue, *scenario.mq_limits(requests, queues))


VECTOR, CPU = "IRQ_POLL", 3


class SentIo(NamedTuple):
    """One I/O of fio, and the moment at which it began."""

    begun_us: int
    """Since the first window's begin."""
    op: str
    group: IoGroup

    @property
    def ends_us(self) -> int:
        return self.begun_us + self.group.total


def one_by_one(rng: Random) -> Iterator[SentIo]:
    """Yield I/Os that each begin when the tick has completed the last: each waits a tick less fio's time in between.

    They are so similar that a quantile, the end of a histogram's bucket or its maximum, is within their range.
    """
    now = 8
    while True:
        now += 31 + int(rng.random() * 8)
        sent = SentIo(now, "read" if rng.random() < 0.5 else "write", _draw_io(rng, TICK_US - now % TICK_US))  # noqa: PLR2004 - half of them
        now = sent.ends_us
        yield sent


def _draw_io(rng: Random, tick_us: int) -> IoGroup:
    """Draw an I/O that completes shortly after `tick_us` from now, or at an interrupt that comes by chance."""
    queue, lost = 1 + int(rng.random() * 3), int(rng.random() + 0.3)
    hba = min(95, max(10, round(rng.gauss(74, 8))))
    late = 3 + int(rng.random() * 4)
    chance = rng.random() < _CHANCE
    softirq = _RUN_US + (int(rng.random() * 120) if chance else max(0, tick_us - queue - hba - lost) + late)
    return IoGroup(1, queue, hba, softirq=softirq, unaccounted=lost, path=E810.path)


def _sick(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(host(), _VECTORS)
    sent_ios = one_by_one(rng)
    ahead = next(sent_ios)
    for seq in range(WINDOWS):
        ended = []
        while ahead.ends_us < (seq + 1) * INTERVAL_US:
            ended.append(ahead)
            ahead = next(sent_ios)
        loads = [
            FlowIos(Flow(REMOTE, op), tuple(sent_io.group for sent_io in ended if sent_io.op == op), _BYTES)
            for op in _LOCAL
        ]
        yield _frame(rng, seq, probed, loads, ended)


def _healthy(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(host(), _VECTORS)
    for seq in range(WINDOWS):
        yield _frame(rng, seq, probed, [_quick(rng, op) for op in _LOCAL])


def _quick(rng: Random, op: str) -> FlowIos:
    """Draw one op, half of the I/Os; the card's interrupt raises the softirq, which runs at its end."""
    groups = []
    for size, hba in _FABRIC.draw(rng, poisson(rng, _RATE / 2)):
        dice = int(rng.random() * 24)
        softirq = _RUN_US + 2 + dice % 4
        groups.append(
            IoGroup(size, 1 + dice % 3, hba, 3 + dice % 2, softirq, unaccounted=dice // 12, path=MELLANOX.path)
        )
    return FlowIos(Flow(REMOTE, op), tuple(groups), _BYTES)


def _draw_local(rng: Random, op: str) -> FlowIos:
    """Draw the I/Os of the host's own drive."""
    rate, shape = _LOCAL[op]
    groups = (
        IoGroup(size, 1 + int(rng.random() * 3), hba, 2 + int(rng.random() * 2))
        for size, hba in shape.draw(rng, poisson(rng, rate))
    )
    return FlowIos(Flow(LOCAL, op), tuple(groups), 2 * _BYTES)


def _frame(rng: Random, seq: int, probed: ProbedHost, remote: Sequence[FlowIos], ended: Sequence[SentIo] = ()) -> Frame:
    """Return a window. `ended`: the I/Os over the E810, where they are sent one by one; none over the other card."""
    card = E810 if ended else MELLANOX
    local = [_draw_local(rng, op) for op in _LOCAL]
    crowded = depth_tables(rng, [*remote, *local], probed.host.devices, most={REMOTE: 1})
    woken = histogram(_WOKEN.draw(rng, sum(flow_ios.count for flow_ios in remote))) if ended else EMPTY
    answered = [EqualIos(flow_ios.count, 3) for flow_ios in remote if flow_ios.count]
    return probed.window(
        seq,
        [*remote, *local],
        tuple(_outliers(rng, ended)) if ended else (),
        softirqs=_BACKGROUND | {SoftirqCpu(VECTOR, CPU): _polled(remote, card)},
        handlers={
            Handler(_CARD_IRQ, card.vector): handled(answered),
            Handler(_DRIVE_IRQ, "nvme1q4"): handled(_times(local, "irq")),
        },
        wakeups=(Wakeups(_WORKER, woken),) if ended else (),
        **crowded,
    )


def _times(loads: Iterable[FlowIos], stage: str) -> list[EqualIos]:
    return [group for flow_ios in loads for group in flow_ios.times(stage)]


def _polled(remote: Iterable[FlowIos], card: Card) -> SoftirqRuns:
    """Return IRQ_POLL: raised in a worker thread without waking ksoftirqd, or by the other card in its interrupt."""
    waits = [EqualIos(size, us - _RUN_US) for size, us in _times(remote, "softirq")]
    count = sum(equal_ios.size for equal_ios in waits)
    late = sum(equal_ios.size for equal_ios in waits if equal_ios.us >= THRESHOLD_US)
    ran_in = {"irq_exit": count - late, "timer": late}
    raised_in = {"other" if card is E810 else "irq": count}
    run = histogram([EqualIos(count, _RUN_US)])
    return SoftirqRuns(histogram(waits), run, {where: n for where, n in ran_in.items() if n}, raised_in)


def _outliers(rng: Random, ended: Sequence[SentIo]) -> Iterator[Outlier]:
    """Yield a few of the I/Os that waited for the tick, from the whole window."""
    late = [sent_io for sent_io in ended if sent_io.group.total > THRESHOLD_US]
    picked = sorted({at * len(late) // PER_WINDOW + int(rng.random() * 20) for at in range(PER_WINDOW)})
    for sent_io in (late[at] for at in picked if at < len(late)):
        yield outlier(
            host(),
            FlowIos(Flow(REMOTE, sent_io.op), (sent_io.group,), _BYTES),
            sent_io.group,
            START_MONO_US + sent_io.begun_us,
            sector=8 * int(rng.random() * 2**28),
            cpu_issue=CPU,
            cpu_complete=CPU,
        )


E810_CASE = Scenario(
    "4 KiB one at a time over RDMA: each I/O takes 3.97 ms, a tick of HZ 250, because the E810's driver raises "
    "IRQ_POLL in a thread and doesn't wake ksoftirqd to run it.",
    host,
    WINDOWS,
    _sick,
    healthy="e810-healthy",
)
E810_HEALTHY = Scenario(
    "the same load over a Mellanox card, whose interrupt raises the softirq: 0.1 ms each.",
    host,
    WINDOWS,
    _healthy,
)
