"""The host of emulex and of emulex-healthy: six LUNs behind one HBA, what Oracle does to them, and what a header says.

The HBA's driver is all that differs. Draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon import __version__
from latmon.model import Device, Flow, Limit, Missing, Origin, Taskq
from latmon_backends.incidents import drawing
from latmon_backends.synthetic import Mode, Shape

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


def devices(driver: str) -> tuple[Device, ...]:
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


def origin(driver: str) -> Origin:
    """Of the host with this HBA."""
    return drawing.origin(
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
            **{f"device {one.name}": {"hba": driver, "un_throttle": "256"} for one in devices(driver)},
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
