"""The synthetic host of the demo: nine devices, their load, limits and settings.

One SAS disk (`sdd`) is unlike its peers: about one I/O in 450 takes a good part of a second, rarely more than one.
A backup bursts over the disks' HBA, one SSD pauses, trims come every half minute; a LUN (`sdf`) that may have only 3
I/Os at once has many that wait above it. Knows no wall clock and no pace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from random import Random
from types import MappingProxyType

from latmon import __version__
from latmon.model.frame import Completed, Device, Flow, Frame, Health, Limit, Outstanding, Series, Settings
from latmon.model.histogram import Histogram
from latmon_backends.demo.synthesis import Mode, Shape, binomial, histogram, meet, poisson

_QUEUE = (
    Limit("write_cache", "write back", "queue/write_cache"),
    Limit("rq_affinity", 1, "queue/rq_affinity"),
    Limit("iostats", 1, "queue/iostats"),
)


def _scsi(
    depth: int, host: str, can_queue: int, *, scheduler: str = "mq-deadline", requests: int = 64
) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", requests, "queue/nr_requests"),
        Limit("scheduler", scheduler, "queue/scheduler"),
        Limit("wbt_lat_usec", 75_000, "queue/wbt_lat_usec"),
        *_QUEUE,
        Limit("nr_tags", can_queue, "mq/0/nr_tags"),
        Limit("hardware queues", 1, "mq"),
        Limit("queue_depth", depth, "device/queue_depth"),
        Limit("queue_type", "simple", "device/queue_type"),
        Limit("can_queue", can_queue, f"{host}/can_queue"),
        Limit("cmd_per_lun", 7, f"{host}/cmd_per_lun"),
        Limit("nr_hw_queues", 1, f"{host}/nr_hw_queues"),
        Limit("host_tagset", 0, f"{host}/host_tagset"),
    )


def _nvme(controller: str) -> tuple[Limit, ...]:
    return (
        Limit("nr_requests", 1023, "queue/nr_requests"),
        Limit("scheduler", "none", "queue/scheduler"),
        Limit("wbt_lat_usec", 2_000, "queue/wbt_lat_usec"),
        *_QUEUE,
        Limit("nr_tags", 1023, "mq/0/nr_tags"),
        Limit("hardware queues", 8, "mq"),
        Limit("sqsize", 1023, f"{controller}/sqsize"),
        Limit("queue_count", 9, f"{controller}/queue_count"),
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
"""By device; a volume has none."""


INTERVAL_US = 1_000_000
UNLIKE = "sdd"
TICKING = "sdb"
"""Not in the backup: its tail is another story."""
CROWDED = "sdf"
"""At its ceiling of 3 almost all the time."""
PERIOD = 90
"""Windows after which the host's rhythm repeats."""
_SUSPENDED = frozenset(range(28, 40))
_BURST = frozenset(range(46, 54))
_MISSED = 0.0003
"""Share of completions that the probe doesn't see: BPF programs are skipped when they nest."""

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
class Mood:
    """How a window differs from the ordinary one: a factor on the rate, and whether requests wait before the driver."""

    factor: float = 1.0
    congested: bool = False


@dataclass(frozen=True)
class Load:
    """One op on one device: its rate per second, the shapes of its stages, its sizes, and its rhythm."""

    device: str
    op: str
    rate: float
    queue: Shape
    hba: Shape
    rhythm: Callable[[int], Mood]
    bytes_small: int = 0
    bytes_large: int = 0


@dataclass(frozen=True, slots=True)
class DrawnHost:
    """One load in one window."""

    flow: Flow
    queue: Histogram
    hba: Histogram
    total: Histogram
    seen: Completed
    kernel: Completed
    met: tuple[tuple[int, int, int], ...]
    """The timed I/Os as (size, queue, hba)."""
    sizes: tuple[int, int]
    """Bytes of a small one and of a large one."""


def steady(seq: int) -> Mood:
    """Swing slowly around the rate."""
    return Mood(1 + 0.25 * math.sin(seq / 7))


def pausing(seq: int) -> Mood:
    """Stop altogether for a while."""
    return Mood(0) if seq % PERIOD in _SUSPENDED else Mood(1 + 0.15 * math.sin(seq / 4))


def bursting(seq: int) -> Mood:
    """Suffer a backup once per period: more than the HBA takes at once."""
    return Mood(5, congested=True) if seq % PERIOD in _BURST else Mood(1 + 0.2 * math.sin(seq / 11))


def crowding(seq: int) -> Mood:
    """Offer as much as three at a time can do, hardly ever less."""
    return Mood(1 + 0.02 * math.sin(seq / 5))


def trimming(seq: int) -> Mood:
    """Sleep, and trim in one window of thirty."""
    return Mood(1.0 if seq % 30 == 17 else 0.0)  # noqa: PLR2004 - see above


_SSD_QUEUE = Shape((Mode(0.98, 2, 0.6), Mode(0.02, 9, 0.5)))
_DISK_QUEUE = Shape((Mode(0.97, 6, 0.6), Mode(0.03, 300, 0.8)))
_CONGESTED_QUEUE = Shape((Mode(0.35, 40, 1.0), Mode(0.65, 9_000, 0.7)))
_LUN_QUEUE = Shape((Mode(0.1, 40, 0.8), Mode(0.9, 4_000, 0.5)))
_LUN_HBA = Shape((Mode(0.8, 900, 0.3), Mode(0.2, 1_900, 0.4)))


@cache
def _ssd(median_us: float) -> Shape:
    return Shape((Mode(0.972, median_us, 0.22), Mode(0.0278, 2.6 * median_us, 0.4), Mode(0.0002, 2_500, 0.4)))


@cache
def _disk(op: str, *, unlike: bool) -> Shape:
    modes = {
        "read": (Mode(0.28, 240, 0.3), Mode(0.72, 5_600, 0.45)),
        "write": (Mode(0.9, 850, 0.35), Mode(0.1, 7_500, 0.4)),
        "flush": (Mode(1, 11_000, 0.35),),
    }[op]
    return Shape((*modes, Mode(0.0022, 420_000, 0.5))) if unlike else Shape(modes)


def _ssd_loads(device: str, scale: float, rhythm: Callable[[int], Mood]) -> Iterable[Load]:
    yield Load(device, "read", 2_400 * scale, _SSD_QUEUE, _ssd(84), rhythm, 4096, 65536)
    yield Load(device, "write", 900 * scale, _SSD_QUEUE, _ssd(23), rhythm, 8192, 131072)
    yield Load(device, "flush", 14 * scale, _SSD_QUEUE, _ssd(380), rhythm)
    yield Load(device, "discard", 180 * scale, _SSD_QUEUE, _ssd(900), trimming, 1 << 20, 1 << 24)


def _disk_loads(device: str) -> Iterable[Load]:
    unlike = device == UNLIKE
    for op, rate, small, large in (("read", 110.0, 8192, 262144), ("write", 70.0, 16384, 524288), ("flush", 3.0, 0, 0)):
        rhythm = steady if device == TICKING else bursting
        yield Load(device, op, rate, _DISK_QUEUE, _disk(op, unlike=unlike), rhythm, small, large)


LOADS = (
    *_ssd_loads("nvme0n1", 1.0, steady),
    *_ssd_loads("nvme1n1", 0.5, pausing),
    *(load for disk in _DISKS for load in _disk_loads(disk.name)),
    Load(CROWDED, "read", 1_750.0, _LUN_QUEUE, _LUN_HBA, crowding, 8192, 65536),
    Load(CROWDED, "write", 620.0, _LUN_QUEUE, _LUN_HBA, crowding, 8192, 65536),
)


def window(rng: Random, seq: int, start_wall: float, start_mono_us: int) -> Frame:
    """Window `seq` (from 0) of the host; windows must be drawn in order, they share one generator."""
    return framed(rng, drawn(rng, seq), seq, start_wall, start_mono_us)


def drawn(rng: Random, seq: int) -> list[DrawnHost]:
    """What every load did in window `seq`."""
    return [one for one in (_draw(rng, load, seq) for load in LOADS) if one.kernel.count]


def framed(rng: Random, loads: list[DrawnHost], seq: int, start_wall: float, start_mono_us: int) -> Frame:
    """What the request stamps and the kernel's counters tell of it."""
    missed = sum(d.kernel.count - d.seen.count for d in loads)
    kernel = {d.flow: d.kernel for d in loads} | _volume(loads)
    return Frame(
        seq=seq,
        wall=start_wall + (seq + 1) * INTERVAL_US / 1e6,
        mono_us=start_mono_us + (seq + 1) * INTERVAL_US,
        dt_us=INTERVAL_US,
        histograms=MappingProxyType({series: h for d in loads for series, h in _series(d) if h}),
        seen=MappingProxyType({d.flow: d.seen for d in loads}),
        kernel=MappingProxyType(kernel),
        outstanding=MappingProxyType(_outstanding(rng, loads)),
        devices=DEVICES if seq == 0 else (),
        health=Health(probes_attached=1, probes_wanted=1, skipped=missed, probe_ns_per_io=round(rng.gauss(560, 12), 1)),
    )


def _draw(rng: Random, load: Load, seq: int) -> DrawnHost:
    mood = load.rhythm(seq)
    issued = poisson(rng, load.rate * mood.factor * INTERVAL_US / 1e6)
    missed = binomial(rng, issued, _MISSED)
    queue = (_CONGESTED_QUEUE if mood.congested else load.queue).draw(rng, issued - missed)
    hba = load.hba.draw(rng, issued - missed)
    met = meet(rng, queue, hba)
    total = histogram((n, q + h) for n, q, h in met)
    large = binomial(rng, issued - missed, 0.06)
    size = load.bytes_small * (issued - missed - large) + load.bytes_large * large
    mean_us = 0 if total.mean is None else round(total.mean)
    return DrawnHost(
        flow=Flow(load.device, load.op),
        queue=histogram(queue),
        hba=histogram(hba),
        total=total,
        seen=Completed(issued - missed, size, total.sum),
        kernel=Completed(issued, size + missed * load.bytes_small, (total.sum or 0) + missed * mean_us),
        met=tuple(met),
        sizes=(load.bytes_small, load.bytes_large),
    )


def _series(drawn: DrawnHost) -> Iterable[tuple[Series, Histogram]]:
    device, op = drawn.flow
    yield Series(device, op, "queue"), drawn.queue
    yield Series(device, op, "hba"), drawn.hba
    yield Series(device, op, "total"), drawn.total


def _volume(drawn: Iterable[DrawnHost]) -> dict[Flow, Completed]:
    """The volume's own kernel counts: what its members completed (each I/O goes to one of them)."""
    sums: dict[Flow, Completed] = {}
    for one in drawn:
        if one.flow.device in _VOLUME.members:
            flow = Flow(_VOLUME.name, one.flow.op)
            have, more = sums.get(flow, Completed(0, 0, 0)), one.kernel
            time_us = (have.time_us or 0) + (more.time_us or 0)
            sums[flow] = Completed(have.count + more.count, have.bytes + more.bytes, time_us)
    return sums


def _outstanding(rng: Random, drawn: Iterable[DrawnHost]) -> dict[str, Outstanding]:
    """In flight at the window's end, by Little's law: time spent in a stage divided by the window's length."""
    waiting = {d.name: [0, 0] for d in DEVICES if d.timed}
    for one in drawn:
        waiting[one.flow.device][0] += one.hba.sum or 0
        waiting[one.flow.device][1] += one.queue.sum or 0
    depths = {
        name: Outstanding(poisson(rng, hba / INTERVAL_US), poisson(rng, queue / INTERVAL_US))
        for name, (hba, queue) in waiting.items()
    }
    members = [depths[name] for name in _VOLUME.members]
    return depths | {_VOLUME.name: Outstanding(sum(m.known for m in members), None)}


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
