"""Incident serialised: Solaris 11.2 on ESX; its driver lets 3 I/Os of a disk through at a time.

The numbers are of a published case: un_throttle 3 below un_min_throttle 8, un_f_opt_queueing 1 and m_notag 0xffff where
Solaris 10 has 256, 0 and 0xffc0; 1,000 reads a second against 140,000. The array is idle: what it takes for one I/O
doesn't depend on how many it has. That time follows by Little's law from the published rates: 3 in flight / 1,000 are
3 ms, and 247 / 140,000 are 1.8 ms. Made up are the time in the queue (48 asynchronous reads are under way in the mean),
the size of the array and what its neighbours do. m_notag is the HBA's, and told of each of its disks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from types import MappingProxyType

from latmon import __version__
from latmon.model.frame import Device, Flow, Frame, Limit, Settings
from latmon.model.inflight import Depths
from latmon_backends.demo import inflight, scenario
from latmon_backends.demo.scenario import INTERVAL_US, SOLARIS_ABSENT, WINDOWS, Alike, Drawn, Load, Scenario
from latmon_backends.demo.synthesis import Mode, Shape, meet

DATA = "sd1"
OFFERED = 48
"""Asynchronous reads that the database has under way, in the mean."""
THROTTLE, HEALTHY_THROTTLE = 3, 256
RATE, HEALTHY_RATE = 1_000, 140_000
_PAGE = 8192
_PATH = "HBA interrupt"
_HEALTHY_IN_DRIVER, _SCATTER = 247.0, 3.0
_HBA = Shape((Mode(1, 2_840, 0.22),))
"""2.91 ms in the mean: a thousand a second keep the three busy."""
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
"""System, redo logs, and an archive that nobody reads."""
_PROGRAMS = {"sd0": ("zpool-rpool", 312), DATA: ("oracle", 2817), "sd2": ("ora_lgwr_PERF", 2790), "sd3": ("rman", 3304)}


def _disks(throttle: int, opt_queueing: int, notag: int) -> tuple[Device, ...]:
    limits = (
        Limit("un_throttle", throttle, "sd_limits"),
        Limit("un_saved_throttle", throttle, "sd_limits"),
        Limit("un_busy_throttle", 0, "sd_limits"),
        Limit("un_min_throttle", 8, "sd_limits"),
        Limit("un_f_arq_enabled", 1, "sd_limits"),
        Limit("un_f_opt_queueing", opt_queueing, "sd_limits"),
        Limit("un_f_use_adaptive_throttle", 0, "sd_limits"),
        Limit("m_notag", notag, "mpt_flags"),
    )
    sizes = {"sd0": 60, DATA: 400, "sd2": 20, "sd3": 800}
    return tuple(
        Device(name, 0, at, driver="mpt_sas", controller="mpt_sas0", model=f"virtual disk {size}G", limits=limits)
        for at, (name, size) in enumerate(sizes.items())
    )


def _settings(release: str, version: str, nowide: str) -> Settings:
    return MappingProxyType(
        {
            "tool": MappingProxyType({"latmon": __version__}),
            "kernel": MappingProxyType({"system": "SunOS", "release": release, "version": version, "machine": "i86pc"}),
            "module mpt_sas": MappingProxyType(
                {"adapter": "LSI Logic SAS", "m_nowide": nowide, "m_props_update": "0"},
            ),
        }
    )


def _sick(rng: Random) -> Iterator[Frame]:
    for seq in count():
        n = round(rng.gauss(RATE, 6))
        yield _frame(rng, seq, _SICK, _reads(rng, n, _QUEUE, _HBA), THROTTLE)


def _healthy(rng: Random) -> Iterator[Frame]:
    for seq in count():
        n = round(rng.gauss(HEALTHY_RATE, 300))
        yield _frame(rng, seq, _HEALTHY, _reads(rng, n, _HEALTHY_QUEUE, _HEALTHY_HBA), HEALTHY_THROTTLE)


def _reads(rng: Random, n: int, queue: Shape, hba: Shape) -> Drawn:
    parts = tuple(Alike(*met, path=_PATH) for met in meet(rng, queue.draw(rng, n), hba.draw(rng, n)))
    return Drawn(Flow(DATA, "read"), parts, _PAGE)


def _frame(rng: Random, seq: int, host: scenario.Host, data: Drawn, throttle: int) -> Frame:
    drawn = (data, *(scenario.ordinary(rng, load, _PATH) for load in _NEIGHBOURS))
    told = {one.name: _ordinary_depths(one.name, drawn, throttle) for one in host.devices if one.name != DATA}
    return scenario.framed(rng, seq, host, drawn, {DATA: _data_depths(data, throttle)} | told)


def _data_depths(data: Drawn, throttle: int) -> Depths:
    in_driver, queued = (data.summed(stage) / INTERVAL_US for stage in ("hba", "queue"))
    spent = (data.count, data.total.sum or 0)
    if throttle == THROTTLE:
        waiting = inflight.bell(queued, 2.0, OFFERED + 8)
        return inflight.depths(inflight.served(in_driver, throttle), waiting, throttle, *spent)
    return inflight.depths(inflight.bell(in_driver, _SCATTER, throttle), inflight.waiting(queued), throttle, *spent)


def _ordinary_depths(name: str, drawn: tuple[Drawn, ...], throttle: int) -> Depths:
    its = [one for one in drawn if one.flow.device == name]
    return inflight.ordinary(its, throttle)


_THRESHOLDS_US = {"sd0": 20_000, DATA: 59_000, "sd2": 20_000, "sd3": 20_000}
_SICK = scenario.Host(
    scenario.solaris("demo-sol11", "5.11", _settings("5.11", "11.2", "0xe080")),
    _disks(THROTTLE, 1, 0xFFFF),
    _THRESHOLDS_US,
    _PROGRAMS,
    absent=SOLARIS_ABSENT,
)
_HEALTHY = scenario.Host(
    scenario.solaris("demo-sol10", "5.10", _settings("5.10", "10", "0xffc0")),
    _disks(HEALTHY_THROTTLE, 0, 0xFFC0),
    _THRESHOLDS_US,
    _PROGRAMS,
    absent=SOLARIS_ABSENT,
)
SERIALISED = Scenario(
    "a Solaris 11 guest gives its virtual disk 3 reads at a time while 45 wait above the driver: 1,000 a second.",
    _SICK.origin,
    WINDOWS,
    _sick,
    "serialised-healthy",
)
SERIALISED_HEALTHY = Scenario(
    "the same host with Solaris 10, whose driver is given up to 256 reads at a time: 140,000 a second.",
    _HEALTHY.origin,
    WINDOWS,
    _healthy,
)
