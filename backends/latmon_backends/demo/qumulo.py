"""Incident qumulo: one of 24 NVMe drives shares its vector with the slow handler of a PCIe switch.

The numbers are of a published case: averages 10 to 15 us apart, exactly one drive far slower than its average suggests,
8,080, 5,540 and 4,540 MB/s of writes at max_vec 2, 4 and 8, and 15 GB/s without the module switchtec. Every write is
spread over all drives (erasure coding) and waits for the slowest of them, so all have the same rate. The published
reads (15,460, 13,670 and 13,430 MB/s) are of another test at another time: there are none in this recording, which
would otherwise show a mixture that was not measured. Made up are how long the switch's handler takes (12 us on
average, for most of its runs are quick), a drive's own times, and which drive it is. A real host reloads its driver to
change max_vec, and its drives are gone meanwhile; here they stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from random import Random
from types import MappingProxyType

from latmon import __version__
from latmon.model.frame import Device, Flow, Frame, Mark, Settings, Thread
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon_backends.demo import inflight, scenario
from latmon_backends.demo.probed_host import HostVectors, ProbedHost
from latmon_backends.demo.scenario import (
    BACKGROUND_SOFTIRQS,
    WINDOWS,
    EqualIos,
    FlowIos,
    HostFacts,
    IoGroup,
    Mode,
    Scenario,
    Shape,
    combine_stages,
    histogram,
    poisson,
)
from latmon_backends.kernel.interrupts import Vectors

DRIVES = 24
VICTIM = "nvme13n1"
SWITCH = "switchtec0"
MB_S: Mapping[int, int] = MappingProxyType({2: 8_080, 4: 5_540, 8: 4_540})
"""max_vec -> writes of all drives together; a phase each, in this order."""
HEALTHY_MB_S = 15_000
PHASE = 60
"""Windows of a phase."""
_WRITE = 131_072
_QUEUE = Shape((Mode(1, 2.2, 0.2),))
_DEVICE = Shape((Mode(0.998, 58, 0.16), Mode(0.002, 130, 0.3)))
_QUICK = Mode(1, 2.5, 0.25)
_SLOW_SHARE: Mapping[int, float] = MappingProxyType({2: 0.021, 4: 0.0225, 8: 0.024})
"""max_vec -> share of the handler's runs whose register reads stall; it grows with the number of vectors."""
_SWITCH_RUN: Mapping[int, Shape] = MappingProxyType(
    {max_vec: Shape((_QUICK._replace(weight=1 - slow), Mode(slow, 400, 0.5))) for max_vec, slow in _SLOW_SHARE.items()}
)
_UNLIKE = 5
"""Different drives drawn in a window: each drive copies one of them, and in the next window another."""
_DEPTH = 1023
_VMD_IRQ, _SWITCH_IRQ, _FIRST_IRQ = 40, 95, 96
_VMD_US = 1
"""Run time of VMD's handler before the first one that it calls."""
_CPUS = 32
_SWITCH_ADDRESS = "10001:00:00.1"
_DOMAINS = ("10000", "10001")
_THRESHOLD_US = 600


def _drive(at: int) -> Device:
    domain, bus = _DOMAINS[at // 12], 1 + at % 12
    limits = (
        *scenario.sysfs_limits("queue", nr_requests=_DEPTH, scheduler="none", write_cache="write through"),
        *scenario.mq_limits(_DEPTH, 1),
        *scenario.sysfs_limits(f"nvme{at}", sqsize=_DEPTH),
    )
    return Device(
        f"nvme{at}n1",
        259,
        at,
        driver="nvme",
        controller=f"{domain}:{bus:02x}:00.0",
        model="NVMe SSD 3.84T",
        serial=f"DEMO-NVME-{at:02}",
        limits=limits,
    )


DEVICES = tuple(_drive(at) for at in range(DRIVES))
_FUNCTIONS = {_FIRST_IRQ + at: (device.controller,) for at, device in enumerate(DEVICES)}
_VECTORS = HostVectors(Vectors({}, {**_FUNCTIONS, _SWITCH_IRQ: (_SWITCH_ADDRESS,)}))


@cache
def host() -> HostFacts:
    """Return the facts of the host, with the switch's module or without it."""
    probes = scenario.scripts("block_a", "stages_a", "who_ap", "irqs_a", "softirqs_a", "processes_ap")
    origin = scenario.origin(
        "demo-nvme-24", "5.3.0-demo", probes, settings=_settings(), hz=250, threshold_us=_THRESHOLD_US
    )
    thresholds = {device.name: _THRESHOLD_US for device in DEVICES}
    server = Thread(3120, "fsd", "other", 120, kernel=False)
    programs = {device.name: (server.comm, server.pid) for device in DEVICES}
    cgroups = {device.name: ("/system.slice/fsd.service", "") for device in DEVICES}
    return HostFacts(origin, DEVICES, thresholds, programs, probes, _CPUS, threads=(server,), cgroups=cgroups)


def _settings() -> Settings:
    return MappingProxyType(
        {
            "tool": MappingProxyType({"latmon": __version__}),
            "kernel": MappingProxyType({"system": "Linux", "release": "5.3.0-demo", "machine": "x86_64", "hz": "250"}),
            "module nvme": MappingProxyType({"poll_queues": "0", "write_queues": "0"}),
            "module vmd": MappingProxyType({"max_vec": str(next(iter(MB_S)))}),
        }
    )


def window(rng: Random, seq: int, probed: ProbedHost) -> Frame:
    """Return a window of the three phases; after them the last one goes on."""
    phase = min(seq // PHASE, len(MB_S) - 1)
    max_vec = list(MB_S)[phase]
    frame = _frame(rng, seq, probed, MB_S[max_vec], _SWITCH_RUN[max_vec])
    return replace(frame, marks=(_mark(seq, max_vec, phase),)) if seq == phase * PHASE else frame


def probed_host() -> ProbedHost:
    """Return the host before its first window."""
    return ProbedHost(host(), _VECTORS)


def _sick(rng: Random) -> Iterator[Frame]:
    probed = probed_host()
    return (window(rng, seq, probed) for seq in count())


def _healthy(rng: Random) -> Iterator[Frame]:
    probed = probed_host()
    return (_frame(rng, seq, probed, HEALTHY_MB_S, None) for seq in count())


def _mark(seq: int, max_vec: int, phase: int) -> Mark:
    """Return the mark at the start of a phase; the first phase's setting is in the header already."""
    began_us = scenario.begin_us(seq)
    changed = {"module vmd": {"max_vec": str(max_vec)}} if phase else {}
    return Mark(f"max_vec={max_vec}", began_us, host().wall_of(began_us), changed)


def _frame(rng: Random, seq: int, probed: ProbedHost, mb_s: int, switch: Shape | None) -> Frame:
    """Return a window; `switch`: run times of the switch's handler, None: its module isn't loaded."""
    each = rng.gauss(mb_s * 1e6 / _WRITE / DRIVES, mb_s / 1_000)
    alike = [_draw_drive(rng, each) for _ in range(_UNLIKE)]
    before = switch.draw(rng, round(each)) if switch else ()
    picked = {device.name: alike[int(rng.random() * _UNLIKE)] for device in DEVICES}
    if before:
        picked[VICTIM] = FlowIos(Flow(VICTIM, "write"), _writes(rng, round(each), before), _WRITE)
    depth_tables = {id(flow_ios): inflight.ordinary([flow_ios], _DEPTH) for flow_ios in picked.values()}
    reported = {name: depth_tables[id(flow_ios)] for name, flow_ios in picked.items()}
    drawn = [flow_ios.on(name) for name, flow_ios in picked.items()]
    handlers = _handlers(rng, drawn, before)
    return inflight.probed_window(rng, seq, probed, drawn, reported, handlers=handlers, softirqs=BACKGROUND_SOFTIRQS)


def _draw_drive(rng: Random, each: float) -> FlowIos:
    """Draw one drive's writes; the drives differ by a few."""
    return FlowIos(Flow(VICTIM, "write"), _writes(rng, round(each + rng.random() * 4 - 2), ()), _WRITE)


def _writes(rng: Random, n: int, before: Sequence[EqualIos]) -> tuple[IoGroup, ...]:
    """Draw writes; the interrupt of each is VMD's handler, what it calls before the drive's handler, and that one."""
    irqs = [EqualIos(size, _VMD_US + us + 2) for size, us in before] or [EqualIos(n, _VMD_US + 2)]
    behind = combine_stages(rng, _DEVICE.draw(rng, n), irqs)
    places = [EqualIos(ios_behind[0], at) for at, ios_behind in enumerate(behind)]
    met = combine_stages(rng, _QUEUE.draw(rng, n), places)
    return tuple(IoGroup(size, queue, behind[at][1], behind[at][2]) for size, queue, at in met)


def _handlers(rng: Random, drawn: Sequence[FlowIos], before: Sequence[EqualIos]) -> dict[Handler, HandlerRuns]:
    """Return the handlers: a vector of VMD per drive, one interrupt per write."""
    all_runs: dict[Handler, HandlerRuns] = {}
    for at, flow_ios in enumerate(drawn):
        n, vmd = flow_ios.count, _VMD_IRQ + at
        slow = before if flow_ios.flow.device == VICTIM else ()
        if slow:
            own = min(poisson(rng, 2), n)
            returned = {"none": n - own, "handled": own}
            all_runs[Handler(_SWITCH_IRQ, SWITCH)] = HandlerRuns(
                histogram(slow), returned=returned, before_us=n * _VMD_US, caller=vmd
            )
        run = histogram([EqualIos(n // 2, 1), EqualIos(n - n // 2, 2)])
        waited = n * _VMD_US + sum(size * us for size, us in slow)
        all_runs[Handler(_FIRST_IRQ + at, f"nvme{at}q1")] = HandlerRuns(
            run, returned={"handled": n}, before_us=waited, caller=vmd
        )
        equal_ios = [EqualIos(size, _VMD_US + us + 2) for size, us in slow] or [EqualIos(n, _VMD_US + 2)]
        all_runs[Handler(vmd, "vmd")] = HandlerRuns(histogram(equal_ios), returned={"handled": n})
    return all_runs


QUMULO = Scenario(
    "one of 24 NVMe drives waits behind a PCIe switch's interrupt handler: averages barely move, writes fall by half.",
    host,
    WINDOWS,
    _sick,
    "qumulo-healthy",
)
QUMULO_HEALTHY = Scenario(
    "the same 24 drives without the module switchtec: all alike, 15 GB/s of writes.",
    host,
    WINDOWS,
    _healthy,
)
