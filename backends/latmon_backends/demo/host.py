"""The synthetic host of the demo: nine devices, their load, limits and settings.

One SAS disk (`sdd`) is unlike its peers: about one I/O in 450 takes 0.2 to 1 s. A backup bursts over the disks' HBA,
one SSD pauses, trims come every half minute; a LUN (`sdf`) with a queue depth of 3 has many I/Os waiting above it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from types import MappingProxyType

from latmon import __version__
from latmon.model.frame import Device, Flow, Limit, Settings
from latmon_backends.demo.scenario import INTERVAL_US, FlowIos, IoGroup, mq_limits, sysfs_limits
from latmon_backends.demo.synthesis import Mode, Shape, binomial, combine_stages, poisson

_QUEUE: Mapping[str, int | str] = {"write_cache": "write back", "rq_affinity": 1, "iostats": 1}


def _scsi(
    depth: int, host: str, can_queue: int, *, scheduler: str = "mq-deadline", requests: int = 64
) -> tuple[Limit, ...]:
    return (
        *sysfs_limits("queue", nr_requests=requests, scheduler=scheduler, wbt_lat_usec=75_000, **_QUEUE),
        *mq_limits(can_queue, 1),
        *sysfs_limits("device", queue_depth=depth, queue_type="simple"),
        *sysfs_limits(host, can_queue=can_queue, cmd_per_lun=7, nr_hw_queues=1, host_tagset=0),
    )


def _nvme(controller: str) -> tuple[Limit, ...]:
    return (
        *sysfs_limits("queue", nr_requests=1023, scheduler="none", wbt_lat_usec=2_000, **_QUEUE),
        *mq_limits(1023, 8),
        *sysfs_limits(controller, sqsize=1023, queue_count=9),
    )


LIMITS: Mapping[str, tuple[Limit, ...]] = MappingProxyType(
    {
        "nvme0n1": _nvme("nvme0"),
        "nvme1n1": _nvme("nvme1"),
        **{f"sd{letter}": _scsi(64, "host2", 9_680) for letter in "abcd"},
        "sde": _scsi(64, "host2", 9_680, requests=256),
        "sdf": _scsi(3, "host3", 1_024, scheduler="none", requests=1_024),
    },
)
"""Limits by device; a volume has none."""


UNLIKE = "sdd"
TICKING = "sdb"
"""Not in the backup: its tail comes from ticks alone."""
CROWDED = "sdf"
"""At its queue depth of 3 almost all the time."""
PERIOD = 90
"""Windows after which the host's rhythm repeats."""
_SUSPENDED = frozenset(range(28, 40))
_BURST = frozenset(range(46, 54))
_MISSED = 0.0003
"""Share of completions that the probe doesn't see: BPF programs are skipped when they nest."""
LARGE_SHARE = 0.06
"""Share of I/Os of the larger size."""

HBA = "0000:3b:00.0"
_DISKS = tuple(
    Device(
        f"sd{letter}",
        8,
        16 * i,
        driver="mpt3sas",
        controller=HBA,
        model="HDD 8T 7200rpm",
        serial=f"DEMO-HDD-{i}",
        limits=LIMITS[f"sd{letter}"],
    )
    for i, letter in enumerate("abcde")
)
_LUN = Device(
    CROWDED,
    8,
    80,
    driver="lpfc",
    controller="0000:5e:00.0",
    model="ARRAY LUN 2T",
    serial="DEMO-LUN-0",
    limits=LIMITS[CROWDED],
)
_SSDS = tuple(
    Device(
        f"nvme{i}n1",
        259,
        i,
        driver="nvme",
        controller=f"0000:{41 + i}:00.0",
        model="SSD 1920G",
        serial=f"DEMO-SSD-{i}",
        limits=LIMITS[f"nvme{i}n1"],
    )
    for i in range(2)
)
_VOLUME = Device("dm-0", 253, 0, "dm", members=("sda", "sdb"), timed=False, label="vg0-data")
DEVICES = (*_SSDS, *_DISKS, _LUN, _VOLUME)


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """Load of one window: a factor on the usual rate, and whether requests wait before the driver."""

    factor: float = 1.0
    congested: bool = False


@dataclass(frozen=True)
class HostLoad:
    """One op on one device: its rate per second, the shapes of its stages, its sizes, and its rhythm."""

    flow: Flow
    rate: float
    queue: Shape
    hba: Shape
    rhythm: Callable[[int], LoadPhase]
    bytes_small: int = 0
    bytes_large: int = 0


def steady(seq: int) -> LoadPhase:
    """Vary the rate slowly by a quarter."""
    return LoadPhase(1 + 0.25 * math.sin(seq / 7))


def pausing(seq: int) -> LoadPhase:
    """Stop the load for 12 windows of each period."""
    return LoadPhase(0) if seq % PERIOD in _SUSPENDED else LoadPhase(1 + 0.15 * math.sin(seq / 4))


def bursting(seq: int) -> LoadPhase:
    """Multiply the rate by a backup once per period, which congests the queue."""
    return LoadPhase(5, congested=True) if seq % PERIOD in _BURST else LoadPhase(1 + 0.2 * math.sin(seq / 11))


def near_saturation(seq: int) -> LoadPhase:
    """Offer nearly the load that a depth of three can serve, at all times."""
    return LoadPhase(1 + 0.02 * math.sin(seq / 5))


def trimming(seq: int) -> LoadPhase:
    """Return no load except in one window of thirty."""
    return LoadPhase(1.0 if seq % 30 == 17 else 0.0)  # noqa: PLR2004 - see above


_BITS, _QUEUE_BITS = 2, 1
"""Resolutions of the draws: each bit less halves the groups of I/Os, and what a window costs."""
_SSD_QUEUE = Shape((Mode(0.98, 2, 0.6), Mode(0.02, 9, 0.5)), _QUEUE_BITS)
_DISK_QUEUE = Shape((Mode(0.97, 6, 0.6), Mode(0.03, 300, 0.8)), _QUEUE_BITS)
_CONGESTED_QUEUE = Shape((Mode(0.35, 40, 1.0), Mode(0.65, 9_000, 0.7)), _QUEUE_BITS)
_LUN_QUEUE = Shape((Mode(0.1, 40, 0.8), Mode(0.9, 4_000, 0.5)), _QUEUE_BITS)
_LUN_HBA = Shape((Mode(0.8, 900, 0.3), Mode(0.2, 1_900, 0.4)), _BITS)


@cache
def _ssd(median_us: float) -> Shape:
    return Shape((Mode(0.972, median_us, 0.22), Mode(0.0278, 2.6 * median_us, 0.4), Mode(0.0002, 2_500, 0.4)), _BITS)


@cache
def _disk(op: str, *, unlike: bool) -> Shape:
    modes = {
        "read": (Mode(0.28, 240, 0.3), Mode(0.72, 5_600, 0.45)),
        "write": (Mode(0.9, 850, 0.35), Mode(0.1, 7_500, 0.4)),
        "flush": (Mode(1, 11_000, 0.35),),
    }[op]
    return Shape((*modes, Mode(0.0022, 420_000, 0.5))) if unlike else Shape(modes)


def _ssd_loads(device: str, scale: float, rhythm: Callable[[int], LoadPhase]) -> Iterable[HostLoad]:
    yield HostLoad(Flow(device, "read"), 2_400 * scale, _SSD_QUEUE, _ssd(84), rhythm, 4096, 65536)
    yield HostLoad(Flow(device, "write"), 900 * scale, _SSD_QUEUE, _ssd(23), rhythm, 8192, 131072)
    yield HostLoad(Flow(device, "flush"), 14 * scale, _SSD_QUEUE, _ssd(380), rhythm)
    yield HostLoad(Flow(device, "discard"), 180 * scale, _SSD_QUEUE, _ssd(900), trimming, 1 << 20, 1 << 24)


def _disk_loads(device: str) -> Iterable[HostLoad]:
    unlike = device == UNLIKE
    for op, rate, small, large in (("read", 110.0, 8192, 262144), ("write", 70.0, 16384, 524288), ("flush", 3.0, 0, 0)):
        rhythm = steady if device == TICKING else bursting
        yield HostLoad(Flow(device, op), rate, _DISK_QUEUE, _disk(op, unlike=unlike), rhythm, small, large)


LOADS = (
    *_ssd_loads("nvme0n1", 1.0, steady),
    *_ssd_loads("nvme1n1", 0.5, pausing),
    *(load for disk in _DISKS for load in _disk_loads(disk.name)),
    HostLoad(Flow(CROWDED, "read"), 1_750.0, _LUN_QUEUE, _LUN_HBA, near_saturation, 8192, 65536),
    HostLoad(Flow(CROWDED, "write"), 620.0, _LUN_QUEUE, _LUN_HBA, near_saturation, 8192, 65536),
)


def drawn(rng: Random, seq: int) -> list[FlowIos]:
    """Draw the I/Os of all loads in window `seq` (from 0); windows must be drawn in order, they share one generator."""
    return [_drawn(rng, load, seq) for load in LOADS]


def _drawn(rng: Random, load: HostLoad, seq: int) -> FlowIos:
    mood = load.rhythm(seq)
    issued = poisson(rng, load.rate * mood.factor * INTERVAL_US / 1e6)
    missed = binomial(rng, issued, _MISSED)
    queue = (_CONGESTED_QUEUE if mood.congested else load.queue).draw(rng, issued - missed)
    hba = load.hba.draw(rng, issued - missed)
    groups = tuple(IoGroup(*met) for met in combine_stages(rng, queue, hba))
    large = binomial(rng, issued - missed, LARGE_SHARE)
    return FlowIos(load.flow, groups, load.bytes_small, large, load.bytes_large, missed)


_DISK = {
    "scheduler": "mq-deadline",
    "nr_requests": "256",
    "rq_affinity": "1",
    "nomerges": "0",
    "wbt_lat_usec": "75000",
    "max_sectors_kb": "1280",
    "read_ahead_kb": "128",
    "write_cache": "write through",
    "rotational": "1",
    "io_poll": "0",
    "queue_depth": "32",
    "queue_type": "simple",
    "rev": "SN04",
    "hba version_fw": "16.00.11.00",
}

_SSD = {
    "scheduler": "none",
    "nr_requests": "1023",
    "rq_affinity": "1",
    "nomerges": "0",
    "max_sectors_kb": "512",
    "read_ahead_kb": "128",
    "write_cache": "write through",
    "rotational": "0",
    "io_poll": "0",
    "io_timeout": "30000",
    "firmware_rev": "EDA53W0Q",
}

SETTINGS: Settings = MappingProxyType(
    {
        "tool": MappingProxyType({"latmon": __version__}),
        "kernel": MappingProxyType(
            {
                "system": "Linux",
                "release": "6.12.0-demo",
                "version": "#1 SMP PREEMPT_DYNAMIC",
                "machine": "x86_64",
                "hz": "250",
                "preemption": "voluntary",
                "clocksource": "tsc",
                "cpus": "0-15",
                "boot mitigations": "auto",
            }
        ),
        "module mpt3sas": MappingProxyType(
            {"version": "48.100.00.00", "max_queue_depth": "-1", "max_sgl_entries": "-1", "perf_mode": "-1"}
        ),
        "module scsi_mod": MappingProxyType({"use_blk_mq": "Y", "max_luns": "512"}),
        **{f"device {name}": MappingProxyType(_DISK) for name in ("sda", "sdb", "sdc", "sdd", "sde")},
        **{f"device {name}": MappingProxyType(_SSD) for name in ("nvme0n1", "nvme1n1")},
    }
)
