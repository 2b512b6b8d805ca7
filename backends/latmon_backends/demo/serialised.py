"""Incident serialised: Solaris 11.2 on ESX; its driver lets 3 I/Os of a disk through at a time.

The numbers are of a published case: un_throttle 3 below un_min_throttle 8 and un_f_opt_queueing 1, where Solaris 10 had
256 and 0 with the same emulated adapter; 1,000 reads a second, and 140,000 with the patch, in Solaris 11.3.17.5.0. The
array is idle: its time for one I/O does not depend on how many it has. That time follows by Little's law from the
published rates: 3 in flight / 1,000 are 3 ms, and 247 / 140,000 are 1.8 ms. Made up are the time in the queue (48
asynchronous reads are under way on average), the size of the array, the load of the other disks, and that the patched
host has Solaris 10's settings. m_notag, which the case also has, is mpt_sas's own; no script reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import count
from random import Random

from latmon.model.frame import Device, Flow, Frame
from latmon.model.inflight import Depths
from latmon_backends.demo import inflight, scenario
from latmon_backends.demo.inflight import device_times
from latmon_backends.demo.probed_host import ProbedHost
from latmon_backends.demo.scenario import (
    INTERVAL_US,
    WINDOWS,
    FlowIos,
    HostFacts,
    IoGroup,
    Load,
    Mode,
    Scenario,
    Shape,
    combine_stages,
    sd_limits,
)

DATA = "sd1"
OFFERED = 48
"""Mean number of asynchronous reads that the database has outstanding."""
THROTTLE, HEALTHY_THROTTLE = 3, 256
RATE, HEALTHY_RATE = 1_000, 140_000
_PAGE = 8192
_HEALTHY_IN_DRIVER, _SCATTER = 247.0, 3.0
_HBA = Shape((Mode(1, 2_840, 0.22),))
"""2.91 ms on average: a thousand a second keep the three busy."""
_QUEUE = Shape((Mode(1, 45_000, 0.06),))
_HEALTHY_HBA = Shape((Mode(0.97, 1_700, 0.18), Mode(0.03, 2_700, 0.3)))
_HEALTHY_QUEUE = Shape((Mode(0.99, 1.4, 0.3), Mode(0.01, 6, 0.5)))
_LITTLE_QUEUE = Shape((Mode(1, 4, 0.5),))
_LITTLE_HBA = Shape((Mode(0.9, 700, 0.3), Mode(0.1, 1_600, 0.4)))
_NEIGHBOURS = (
    Load(Flow("sd0", "read"), 6, _LITTLE_QUEUE, _LITTLE_HBA),
    Load(Flow("sd0", "write"), 22, _LITTLE_QUEUE, _LITTLE_HBA),
    Load(Flow("sd2", "write"), 64, _LITTLE_QUEUE, _LITTLE_HBA, 4096),
    Load(Flow("sd3", "read"), 0.4, _LITTLE_QUEUE, _LITTLE_HBA, 65536),
)
"""System, redo logs, and an archive that is hardly read."""
_PROGRAMS = {"sd0": ("zpool-rpool", 312), DATA: ("oracle", 2817), "sd2": ("ora_lgwr_PERF", 2790), "sd3": ("rman", 3304)}
_THRESHOLD_US = 59_000


def _disks(throttle: int, opt_queueing: int) -> tuple[Device, ...]:
    limits = sd_limits(throttle, un_f_arq_enabled=1, un_f_opt_queueing=opt_queueing, un_f_use_adaptive_throttle=0)
    sizes = {"sd0": 60, DATA: 400, "sd2": 20, "sd3": 800}
    return tuple(
        Device(name, 0, at, driver="sd", model=f"VMware Virtual disk {size}G", limits=limits)
        for at, (name, size) in enumerate(sizes.items())
    )


def _sick(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(_sick_host())
    for seq in count():
        n = round(rng.gauss(RATE, 6))
        yield _frame(rng, seq, probed, _reads(rng, n, _QUEUE, _HBA), THROTTLE)


def _healthy(rng: Random) -> Iterator[Frame]:
    probed = ProbedHost(_healthy_host())
    for seq in count():
        n = round(rng.gauss(HEALTHY_RATE, 300))
        yield _frame(rng, seq, probed, _reads(rng, n, _HEALTHY_QUEUE, _HEALTHY_HBA), HEALTHY_THROTTLE)


def _reads(rng: Random, n: int, queue: Shape, hba: Shape) -> FlowIos:
    groups = tuple(IoGroup(*met) for met in combine_stages(rng, queue.draw(rng, n), hba.draw(rng, n)))
    return FlowIos(Flow(DATA, "read"), groups, _PAGE)


def _frame(rng: Random, seq: int, probed: ProbedHost, data: FlowIos, throttle: int) -> Frame:
    drawn = (data, *(scenario.ordinary(rng, load) for load in _NEIGHBOURS))
    reported = {
        name: inflight.ordinary([flow_ios for flow_ios in drawn if flow_ios.flow.device == name], throttle)
        for name in _PROGRAMS
        if name != DATA
    }
    return inflight.probed_window(rng, seq, probed, drawn, {DATA: _data_depths(data, throttle)} | reported)


def _data_depths(data: FlowIos, throttle: int) -> Depths:
    times = device_times([data])[DATA]
    in_driver, queued = times.below_us / INTERVAL_US, times.above_us / INTERVAL_US
    if throttle == THROTTLE:
        waiting = inflight.bell(queued, 2.0, OFFERED + 8)
        return inflight.depths(inflight.served(in_driver, throttle), waiting, throttle, times)
    return inflight.depths(inflight.bell(in_driver, _SCATTER, throttle), inflight.waiting(queued), throttle, times)


def _host(version: str, disks: tuple[Device, ...]) -> HostFacts:
    return scenario.sun("demo-sol11", version, devices=disks, threshold_us=_THRESHOLD_US, programs=_PROGRAMS)


@cache
def _sick_host() -> HostFacts:
    return _host("11.2", _disks(THROTTLE, 1))


@cache
def _healthy_host() -> HostFacts:
    return _host("11.3.17.5.0", _disks(HEALTHY_THROTTLE, 0))


SERIALISED = Scenario(
    "a Solaris 11 guest gives its virtual disk 3 reads at a time while 45 wait above the driver: 1,000 a second.",
    _sick_host,
    WINDOWS,
    _sick,
    "serialised-healthy",
)
SERIALISED_HEALTHY = Scenario(
    "the same host with the patch, whose driver is given up to 256 reads at a time: 140,000 a second.",
    _healthy_host,
    WINDOWS,
    _healthy,
)
