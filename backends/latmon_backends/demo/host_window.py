"""The synthetic host of the demo: nine devices, their load, limits and settings, and the windows of its I/Os.

The SAS disk `sdd` is unlike its peers: about one I/O in 450 takes 0.2 to 1 s, because it waits for a completion thread
that does not get a CPU. `sdb` waits for a softirq that only the tick runs (4 ms), an NVMe device completes in the hard
interrupt, and the SAS disks' interrupt is shared with a slow handler. A backup bursts over the disks' HBA, one SSD
pauses, trims come every half minute. The LUN `sdf` with a queue depth of 3 has many I/Os waiting above it; two requests
of `sde` never complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from latmon import __version__
from latmon.analysis.limits import ceiling
from latmon.model.frame import (
    CACHED,
    DEVICE_BOUND,
    Device,
    FileOperation,
    FileSystem,
    Flow,
    Frame,
    Limit,
    Outlier,
    Outstanding,
    Settings,
    Thread,
    Wait,
)
from latmon.model.histogram import EMPTY, Histogram, bucket_bounds, merge
from latmon.model.inflight import AGES_S, SYSFS, Depths, InFlight, InFlightList, Issue
from latmon.model.measurements.files import FileSeries
from latmon.model.measurements.handlers import Handler, HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups
from latmon_backends.demo.inflight import (
    MOMENTS,
    MOST,
    DeviceTimes,
    Shares,
    after_issue,
    apportioned,
    device_times,
    in_service_shares,
    line,
    probe_depths,
    shifted,
    sum_of,
)
from latmon_backends.demo.probed_host import HostVectors, ProbedHost
from latmon_backends.demo.scenario import (
    BACKGROUND_SOFTIRQS,
    INTERVAL_US,
    START_MONO_US,
    UNFOLLOWED,
    EqualIos,
    FlowIos,
    HostFacts,
    IoGroup,
    Mode,
    Shape,
    binomial,
    combine_stages,
    draw_slow,
    handled,
    histogram,
    mq_limits,
    origin,
    outlier,
    poisson,
    scripts,
    sysfs_limits,
)
from latmon_backends.demo.script_output import label
from latmon_backends.kernel.interrupts import Vectors

_QUEUE: Mapping[str, int | str] = {"write_cache": "write back", "rq_affinity": 1, "iostats": 1}
UNLIKE = "sdd"
TICKING = "sdb"
"""Not in the backup: its tail comes from ticks alone."""
CROWDED = "sdf"
"""At its queue depth of 3 almost all the time."""
PERIOD = 90
"""Windows after which the host's rhythm repeats."""
_SUSPENDED = frozenset(range(28, 40))
_BACKUP_BURST = frozenset(range(46, 54))
_MISSED = 0.0003
"""Share of completions that the probe doesn't see: BPF programs are skipped when they nest."""
LARGE_SHARE = 0.06
"""Share of I/Os of the larger size."""
HBA = "0000:3b:00.0"
_VOLUME = Device("dm-0", 253, 0, "dm", members=("sda", "sdb"), timed=False, label="vg0-data")
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
TICK_US = 4000
SHARED_US = 20
"""Run time of the slow handler on the disks' vector, before theirs."""
THREAD_FROM_US = 60_000
_TICKS_FROM_US = {"read": 12_000, "write": 4_500}
_LOST = 0.002
_RESUME = Shape((Mode(0.97, 14, 0.5), Mode(0.03, 300, 0.6)))
_WAITED_FOR = ("read", "flush")
_BACKUP = ("backup", 7781)
_CONTAINER = f"/system.slice/docker-{'5d41c0a7' * 8}.scope"
_CGROUPS = {
    "postgres": ("/system.slice/postgresql@16-main.service", ""),
    "mongod": (_CONTAINER, "mongo-1"),
    _BACKUP[0]: ("/system.slice/backup.service", ""),
    "ora_lgwr": ("/system.slice/oracle-db.service", ""),
    "oracle": ("/system.slice/oracle-db.service", ""),
}
"""Program -> path and container of its cgroup."""
_SEQUENTIAL = {
    **{Flow(f"sd{letter}", op): share for letter in "abc" for op, share in (("read", 0.9), ("write", 0.8))},
    Flow("sdd", "write"): 0.9,
    Flow("nvme0n1", "write"): 0.3,
    Flow("nvme1n1", "write"): 0.6,
}
"""The backup reads whole files, a log is written from its begin to its end; `sde` sorts random I/Os."""
_BUFFERED = {"read": 4, "write": 1}
_FILE_OPS = {"read": "read", "write": "write", "flush": "fsync"}
_CALL_US = 4
"""Time of a system call outside of the block layer."""
_CACHED_US = ((12, 1), (6, 2), (1, 5))
"""(Weight, time) of operations that the page cache serves."""
COMPLETER = Thread(388, "mpt3sas_cmpl", "other", 120)
HOG = Thread(702, "rt-logger", "fifo", 49, kernel=False)
_SHARED_IRQ = 16
_NVME_IRQ = 64
_RUN_US = 5
_WAKING_US = 15
_LATE_US = 1000
_LONGEST_US = 5_000_000
"""No wait of a thread is longer."""
_USB = "0000:00:1d.0"
STARVED = "sde"
"""Its scheduler sorts, and two of its requests never complete."""
_OVERTAKING = 180
"""I/Os a second that overtake the two: nearly all of the disk's."""
_SHOWN_FROM_US = 500_000
"""A probe reports requests that are older."""
_BURST = 96
_STEP = 1 << 18
_NEVER_COMPLETE = (
    InFlight(
        STARVED,
        "write",
        START_MONO_US + 5_000_000,
        flags=("sync", "fua"),
        sector=7_516_192_768,
        bytes=4096,
        pid=5102,
        comm="ora_lgwr",
        issued=True,
    ),
    InFlight(
        STARVED,
        "read",
        START_MONO_US + 41_000_000,
        sector=15_032_385_528,
        bytes=8192,
        pid=7781,
        comm="backup",
        issued=False,
    ),
)
"""One is in the driver, the scheduler passes over the other."""


def _scsi(
    depth: int, host: str, can_queue: int, *, scheduler: str = "mq-deadline", requests: int = 64
) -> tuple[Limit, ...]:
    return (
        *sysfs_limits("queue", nr_requests=requests, scheduler=scheduler, wbt_lat_usec=75_000, **_QUEUE),
        *mq_limits(can_queue, 1),
        *sysfs_limits("device", queue_depth=depth, queue_type="simple"),
        *sysfs_limits(host, can_queue=can_queue, cmd_per_lun=7, nr_hw_queues=1, host_tagset=0),
    )


def _nvme_limits(controller: str) -> tuple[Limit, ...]:
    return (
        *sysfs_limits("queue", nr_requests=1023, scheduler="none", wbt_lat_usec=2_000, **_QUEUE),
        *mq_limits(1023, 8),
        *sysfs_limits(controller, sqsize=1023, queue_count=9),
    )


LIMITS: Mapping[str, tuple[Limit, ...]] = MappingProxyType(
    {
        "nvme0n1": _nvme_limits("nvme0"),
        "nvme1n1": _nvme_limits("nvme1"),
        **{f"sd{letter}": _scsi(64, "host2", 9_680) for letter in "abcd"},
        "sde": _scsi(64, "host2", 9_680, requests=256),
        "sdf": _scsi(3, "host3", 1_024, scheduler="none", requests=1_024),
    },
)
"""Limits by device; a volume has none."""


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
    return LoadPhase(5, congested=True) if seq % PERIOD in _BACKUP_BURST else LoadPhase(1 + 0.2 * math.sin(seq / 11))


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


_PROGRAMS = dict.fromkeys((device.name for device in DEVICES if device.timed), _BACKUP) | {
    "nvme0n1": ("postgres", 4211),
    "nvme1n1": ("mongod", 4630),
    "sdd": ("ora_lgwr", 5102),
    "sdf": ("oracle", 5140),
}


class _Files(NamedTuple):
    """A file system and its program's files: every read and flush of its device is a read or an fsync of them."""

    on: FileSystem
    data: str
    log: str
    cached: Mapping[str, int] = {}
    """Op -> operations per I/O of the device that need no device; writes that aren't here wait for the device."""


_FILES = {
    files.on.device: files
    for files in (
        _Files(
            FileSystem("/var/lib/postgresql", "ext4", "nvme0n1"),
            "16/main/base/16384/24601",
            "16/main/pg_wal/000000010000002A000000C3",
            _BUFFERED,
        ),
        _Files(
            FileSystem("/var/lib/mongodb", "xfs", "nvme1n1"),
            "collection-7--4630.wt",
            "journal/WiredTigerLog.0000000117",
            _BUFFERED,
        ),
        _Files(FileSystem("/u01", "xfs", "sdd"), "oradata/DB07/control01.ctl", "oradata/DB07/redo03.log"),
    )
}
"""By device; the others have no file system, or are in a volume."""
_SLOW, _OURS = "uhci_hcd:usb3", "mpt3sas0"
_VECTORS = HostVectors(
    Vectors(
        {_SHARED_IRQ: (_SLOW, _OURS)},
        {_SHARED_IRQ: (_USB, HBA), **{_NVME_IRQ + at: (device.controller,) for at, device in enumerate(_SSDS)}},
    ),
    {HBA: frozenset({_OURS}), _USB: frozenset({_SLOW})},
)


@cache
def host() -> HostFacts:
    """Return the facts of the host, with the scripts that run on Linux 6.12."""
    probes = scripts(
        "block_a",
        "stages_a",
        "irqs_a",
        "softirqs_a",
        "wakeups_a",
        "inflight_a",
        "order_a",
        "processes_a",
        "sizes_a",
        "files_a",
    )
    programs = (Thread(pid, comm, "other", 120, kernel=False) for comm, pid in dict.fromkeys(_PROGRAMS.values()))
    return HostFacts(
        replace(
            origin("demo-db-07", "6.12.0-demo", probes, settings=SETTINGS, hz=250),
            reason="synthetic: nothing of this host is measured",
        ),
        DEVICES,
        {device.name: 2_000 if device.driver == "nvme" else 40_000 for device in DEVICES if device.timed},
        _PROGRAMS,
        probes,
        threads=(COMPLETER, HOG, *programs),
        flags={"write": ("sync",), "flush": ("sync", "preflush"), "discard": ("background",)},
        cgroups={device: _CGROUPS[comm] for device, (comm, _) in _PROGRAMS.items()},
        sequential=_SEQUENTIAL,
        file_systems=tuple(files.on for files in _FILES.values()),
    )


def frames(rng: Random, on_demand: Random) -> Iterator[Frame]:
    """Yield the host's windows without end. `on_demand` draws what tracing shows, so that it changes no I/O."""
    probed = ProbedHost(host(), _VECTORS)
    threads: dict[int, list[Wait]] = {}
    for seq in count():
        loads = [_traced(on_demand, flow_ios) for flow_ios in drawn(rng, seq)]
        times = device_times(loads)
        gauges = _gauges(rng, times)
        mono_us = START_MONO_US + (seq + 1) * INTERVAL_US
        stuck = _stuck(mono_us)
        outliers = _outliers(on_demand, loads, mono_us, threads)
        yield probed.window(
            seq,
            loads,
            outliers,
            handlers=_handlers(loads),
            softirqs=_softirqs(loads),
            wakeups=_wakeups(loads),
            outstanding={name: _with_stuck(name, now, stuck) for name, now in gauges.items()},
            depths={d.name: _depths(d, times, stuck) if d.timed else _volume(d, times) for d in DEVICES},
            in_flight=InFlightList(
                stuck, {s: sum(mono_us - in_flight.began_us > s * 1_000_000 for in_flight in stuck) for s in AGES_S}
            ),
            issues={STARVED: _sorted_burst(seq, mono_us - INTERVAL_US)},
            files=_files(loads, outliers),
            file_operations=[_operation(slow_io) for slow_io in outliers if _waits(Flow(slow_io.device, slow_io.op))],
        )


def _traced(rng: Random, ios: FlowIos) -> FlowIos:
    """Divide the time below the driver into stages, and draw how long the issuers took to run again."""
    groups = tuple(_split(rng, ios.flow, io_group.size, io_group.queue, io_group.below) for io_group in ios.groups)
    waited = ios.count if ios.flow.op in _WAITED_FOR else 0
    return replace(ios, groups=groups, resume=histogram(_RESUME.draw(rng, waited)) if waited else EMPTY)


def _split(rng: Random, flow: Flow, size: int, queue: int, us: int) -> IoGroup:
    if flow.device.startswith("nvme"):
        if flow.device == "nvme1n1" and rng.random() < _LOST:
            return IoGroup(size, queue, None, unaccounted=us, path=UNFOLLOWED)
        irq = min(2 + int(rng.random() * 4), us // 4)
        return IoGroup(size, queue, us - irq, irq)
    unknown = int(rng.random() < 0.3)  # noqa: PLR2004 - a microsecond is lost to rounding now and then
    irq = min(SHARED_US + 4 + int(rng.random() * 5), us // 3)
    left = us - irq - unknown
    if flow.device == UNLIKE and us > THREAD_FROM_US:
        hba = 80 + int(rng.random() * 60)
        return IoGroup(size, queue, hba, irq, completion=left - hba, unaccounted=unknown, path="worker thread")
    softirq = min(5 + int(rng.random() * 12), left // 3)
    if flow.device == TICKING and us > _TICKS_FROM_US.get(flow.op, us):
        softirq = (left - 300) // TICK_US * TICK_US - int(rng.random() * 60)
    return IoGroup(size, queue, left - softirq, irq, softirq, unaccounted=unknown, path="BLOCK softirq")


def _outliers(
    rng: Random, loads: Iterable[FlowIos], end_us: int, threads: dict[int, list[Wait]]
) -> tuple[Outlier, ...]:
    """Return a window's outliers. `threads`: thread -> its waits in the window before, which become this one's."""
    outliers = [_outlier(rng, *drawn, end_us) for drawn in draw_slow(rng, host(), loads)]
    for pid, waits in threads.items():
        threads[pid] = [wait for wait in waits if _end(wait) > end_us - INTERVAL_US - _LONGEST_US]
    longest_first = sorted(outliers, key=lambda slow_io: -max((wait.delay_us for wait in slow_io.waits), default=0))
    return tuple(
        sorted((_apart(slow_io, threads, end_us) for slow_io in longest_first), key=lambda slow_io: slow_io.mono_us)
    )


def _apart(slow_io: Outlier, threads: dict[int, list[Wait]], end_us: int) -> Outlier:
    """Move an I/O so that no thread waits twice at a time, and add its waits to `threads`.

    A wait for which the window has no room is not recorded, as one that the probe's rate limit leaves out.
    """
    waits: list[Wait] = []
    moved_us = 0
    for own in slow_io.waits:
        wait, others = replace(own, woken_us=own.woken_us + moved_us), threads.setdefault(own.pid, [])
        if any(_overlap(other, wait) for other in others):
            begins = (end_us - INTERVAL_US, *(_end(other) for other in others))
            free = [
                begin
                for begin in begins
                if end_us - INTERVAL_US <= begin < end_us - wait.delay_us - _LATE_US
                and not any(_overlap(other, replace(wait, woken_us=begin)) for other in others)
            ]
            if wait.stage != "completion" or not free:
                continue
            moved_us = min(free) - own.woken_us
            wait = replace(own, woken_us=min(free))
        others.append(wait)
        waits.append(wait)
    return replace(slow_io, mono_us=slow_io.mono_us + moved_us, waits=tuple(waits))


def _end(wait: Wait) -> int:
    return wait.woken_us + wait.delay_us


def _overlap(wait: Wait, other: Wait) -> bool:
    return wait.woken_us < _end(other) and other.woken_us < _end(wait)


def _outlier(rng: Random, ios: FlowIos, group: IoGroup, end_us: int) -> Outlier:
    done_us = end_us - int(rng.random() * INTERVAL_US)
    begun_us = done_us - group.total
    stages, waits = group.stages(), []
    if group.completion is not None:
        woken_us = begun_us + group.queue + (group.hba or 0) + (group.irq or 0)
        delay_us = max(0, group.completion - _WAKING_US)
        thread = COMPLETER
        waits.append(
            Wait(
                stage="completion",
                thread=thread.comm,
                pid=thread.pid,
                priority=120,
                woken_us=woken_us,
                delay_us=delay_us,
                instead=label(HOG),
                ran_us=delay_us,
            )
        )
    resume = _resume(rng, ios)
    if resume:
        stages["resume"] = resume
        waits.append(Wait("resume", *_PROGRAMS[ios.flow.device], 120, done_us, resume))
    return outlier(
        host(),
        ios,
        group,
        begun_us,
        total_us=group.total + resume,
        stages_us=stages,
        sector=8 * int(rng.random() * 2**31),
        bytes=ios.bytes_large if rng.random() < LARGE_SHARE else ios.bytes_each,
        cpu_issue=int(rng.random() * host().cpus),
        cpu_complete=1 + ord(ios.flow.device[-1]) % (host().cpus - 1),
        outstanding_at_issue=int(rng.random() * (2 + ios.count / 200)),
        overtaken_by=int(group.total * ios.count / INTERVAL_US * rng.random()),
        waits=tuple(waits),
    )


def _resume(rng: Random, ios: FlowIos) -> int:
    """Draw one of the I/Os' times until the issuer ran again; 0: nothing waited for them."""
    if not ios.resume:
        return 0
    index, _ = ios.resume.buckets[int(rng.random() * len(ios.resume.buckets))]
    return ios.resume.cap(bucket_bounds(index)[0])


def _times(ios: FlowIos, stage: str, less_us: int = 0) -> list[EqualIos]:
    """Return the times in a stage, each shortened by `less_us`."""
    return [EqualIos(size, max(0, us - less_us)) for size, us in ios.times(stage)]


def _handlers(loads: Iterable[FlowIos]) -> dict[Handler, HandlerRuns]:
    """Return the NVMe devices' own vectors, and the disks' one, which a slow handler shares."""
    disks: list[EqualIos] = []
    drives: dict[str, list[EqualIos]] = {}
    for ios in loads:
        device = ios.flow.device
        if not device.startswith("nvme"):
            disks += ios.times("irq")
        elif ios.groups:
            drives.setdefault(device, []).extend(ios.times("irq"))
    all_runs = {_nvme(device): handled(times) for device, times in drives.items()}
    return all_runs | (_shared(disks) if disks else {})


def _shared(times: list[EqualIos]) -> dict[Handler, HandlerRuns]:
    runs = sum(equal_ios.size for equal_ios in times)
    own = handled([EqualIos(equal_ios.size, max(0, equal_ios.us - SHARED_US)) for equal_ios in times])
    slow = HandlerRuns(histogram([EqualIos(runs, SHARED_US)]), returned={"none": runs})
    return {
        Handler(_SHARED_IRQ, _SLOW): slow,
        Handler(_SHARED_IRQ, _OURS): replace(own, before_us=runs * SHARED_US),
    }


def _softirqs(loads: Iterable[FlowIos]) -> dict[SoftirqCpu, SoftirqRuns]:
    """Return BLOCK on the CPU of each disk, and the background."""
    waits: dict[int, list[EqualIos]] = {}
    for ios in loads:
        times = _times(ios, "softirq", _RUN_US)
        if times:
            waits.setdefault(_number(ios.flow.device) % host().cpus, []).extend(times)
    return {**BACKGROUND_SOFTIRQS, **{SoftirqCpu("BLOCK", cpu): _block(times) for cpu, times in sorted(waits.items())}}


def _block(times: list[EqualIos]) -> SoftirqRuns:
    runs = sum(equal_ios.size for equal_ios in times)
    late = sum(equal_ios.size for equal_ios in times if equal_ios.us >= _LATE_US)
    # A softirq raised in an interrupt runs when that one ends: what waits for the tick was raised elsewhere.
    ran_in, raised_in = (
        {cause: runs - late, **({other_cause: late} if late else {})}
        for cause, other_cause in (("irq_exit", "timer"), ("irq", "other"))
    )
    return SoftirqRuns(histogram(times), histogram([EqualIos(runs, _RUN_US)]), ran_in, raised_in)


def _wakeups(loads: Iterable[FlowIos]) -> tuple[Wakeups, ...]:
    """Return the completion thread, and the programs that wait for their reads and flushes."""
    late: list[EqualIos] = []
    resumed: dict[tuple[str, int], list[Histogram]] = {}
    for ios in loads:
        late += _times(ios, "completion", _WAKING_US)
        if ios.resume:
            resumed.setdefault(_PROGRAMS[ios.flow.device], []).append(ios.resume)
    programs = (
        Wakeups(Thread(pid, comm, "other", 120, kernel=False), merge(parts)) for (comm, pid), parts in resumed.items()
    )
    count, us = sum(equal_ios.size for equal_ios in late), sum(equal_ios.size * equal_ios.us for equal_ios in late)
    completer = (Wakeups(COMPLETER, histogram(late), {label(HOG): count}, {label(HOG): us}),) if late else ()
    return (*completer, *programs)


def _waits(flow: Flow) -> bool:
    """Return whether a program waits in an operation on a file for each I/O of the flow."""
    its = _FILES.get(flow.device)
    return its is not None and flow.op in _FILE_OPS and not (flow.op == "write" and flow.op in its.cached)


def _files(loads: Iterable[FlowIos], outliers: Iterable[Outlier]) -> dict[FileSeries, Histogram]:
    """Return the operations on files: one for each I/O that a program waits for, and those that need no device.

    An operation has the time of its I/O; a slow one also the time until its thread ran again, as its record has it.
    """
    slow: dict[Flow, list[EqualIos]] = {}
    for slow_io in outliers:
        resume = slow_io.stages_us.get("resume", 0)
        moved = (EqualIos(-1, slow_io.total_us - resume + _CALL_US), EqualIos(1, slow_io.total_us + _CALL_US))
        slow.setdefault(Flow(slow_io.device, slow_io.op), []).extend(moved if resume else ())
    histograms: dict[FileSeries, Histogram] = {}
    for ios in loads:
        its, op = _FILES.get(ios.flow.device), _FILE_OPS.get(ios.flow.op)
        if its is None or op is None or not ios.count:
            continue
        series = FileSeries(its.on.device, op, its.on.mount, its.on.kind, DEVICE_BOUND)
        if _waits(ios.flow):
            times = zip(ios.column("size"), (us + _CALL_US for us in ios.totals), strict=True)
            histograms[series] = histogram([*times, *slow.get(ios.flow, ())])
        if many := its.cached.get(op, 0) * ios.count:
            total = sum(weight for weight, _ in _CACHED_US)
            histograms[series._replace(wait=CACHED)] = histogram((many * n // total + 1, us) for n, us in _CACHED_US)
    return histograms


def _operation(slow_io: Outlier) -> FileOperation:
    """Return the operation on a file that waited for a slow I/O."""
    its, op = _FILES[slow_io.device], _FILE_OPS[slow_io.op]
    size = slow_io.bytes if op in ("read", "write") else None
    return FileOperation(
        wall=slow_io.wall,
        mono_us=slow_io.mono_us - _CALL_US // 2,
        op=op,
        total_us=slow_io.total_us + _CALL_US,
        wait=DEVICE_BOUND,
        file_system=its.on,
        path=its.data if op == "read" else its.log,
        pid=slow_io.pid,
        comm=slow_io.comm,
        bytes=size,
        offset=None if size is None else 8192 * (slow_io.sector or 0) % (1 << 30),
        disk=slow_io.device,
        sectors=None if slow_io.sector is None else (slow_io.sector, slow_io.sector + (slow_io.bytes or 0) // 512),
    )


def _nvme(device: str) -> Handler:
    return Handler(_NVME_IRQ + _number(device), f"nvme{_number(device)}q1")


def _number(device: str) -> int:
    return next(at for at, candidate in enumerate(DEVICES) if candidate.name == device)


_LIMITS: Mapping[str, Limit | None] = {d.name: ceiling(d.limits) for d in DEVICES}


def _gauges(rng: Random, times: Mapping[str, DeviceTimes]) -> dict[str, Outstanding]:
    """Draw the I/Os in flight at the window's end by Little's law: time in a stage divided by the window's length."""
    outstanding_ios = {
        d.name: Outstanding(*(poisson(rng, us / INTERVAL_US) for us in times[d.name][2:])) for d in DEVICES if d.timed
    }
    volumes = {
        d.name: Outstanding(sum(outstanding_ios[name].known for name in d.members), None)
        for d in DEVICES
        if not d.timed
    }
    return outstanding_ios | volumes


def _with_stuck(device: str, now: Outstanding, stuck: Iterable[InFlight]) -> Outstanding:
    """Add the two requests; I/Os above the limit wait."""
    if now.in_driver is None or now.queued is None:
        return now
    issued = [in_flight.issued for in_flight in stuck if in_flight.device == device]
    in_driver, queued = now.in_driver + issued.count(True), now.queued + issued.count(False)
    limit = _LIMITS[device]
    most = int(limit.value) if limit else in_driver
    return Outstanding(min(in_driver, most), queued + max(in_driver - most, 0))


def _depths(device: Device, every: Mapping[str, DeviceTimes], stuck: Iterable[InFlight]) -> Depths:
    times, limit = every[device.name], _LIMITS[device.name]
    cap = int(limit.value) if limit else MOST
    service = in_service_shares(times.below_us / INTERVAL_US, cap) if times.below_us else {0: 1.0}
    full = cap if cap <= MOST and max(service) == cap else 0
    waiting = line(times.above_us / INTERVAL_US, service[cap] if full else 1.0) if times.above_us else {0: 1.0}
    issued = [in_flight.issued for in_flight in stuck if in_flight.device == device.name]
    return probe_depths(
        shifted(service, issued.count(True)),
        shifted(waiting, issued.count(False)),
        shifted(after_issue(service, cap), issued.count(True)),
        _outstanding_at_arrival(service, waiting, full) if full else shifted(service, 1),
        times,
        full=full,
    )


def _outstanding_at_arrival(service: Shares, waiting: Shares, cap: int) -> dict[int, float]:
    """Return the shares of I/Os in the driver or, where it has its limit, also in the queue."""
    shares = {depth + 1: share for depth, share in service.items() if depth < cap}
    shares |= {cap + 1 + n: share for n, share in waiting.items() if n}
    shares[cap + 1] = shares.get(cap + 1, 0) + max(1 - sum(shares.values()), 0)
    return shares


def _volume(volume: Device, times: Mapping[str, DeviceTimes]) -> Depths:
    mean = sum_of(times[name] for name in volume.members).all_us / INTERVAL_US
    return Depths(in_driver=apportioned(in_service_shares(mean, MOST), MOMENTS) if mean else {0: MOMENTS}, source=SYSFS)


def _stuck(now_us: int) -> tuple[InFlight, ...]:
    """Return the requests that never complete, with the I/Os of their disk that overtook them."""
    aged: Sequence[tuple[InFlight, int]] = [(in_flight, now_us - in_flight.began_us) for in_flight in _NEVER_COMPLETE]
    return tuple(
        in_flight._replace(overtaken_by=age * _OVERTAKING // 1_000_000)
        for in_flight, age in aged
        if age > _SHOWN_FROM_US
    )


def _sorted_burst(seq: int, begin_us: int) -> tuple[Issue, ...]:
    """Return issues with ascending sectors, then from the start again, as a scheduler sorts random requests."""
    gap_us = INTERVAL_US // (2 * _BURST)
    issues = []
    for i in range(_BURST):
        place = (seq * _BURST + i) % (3 * _BURST // 2)
        sector = place * 7 * _STEP + (i * 2_654_435_761) % _STEP // 8 * 8
        op = "write" if i * 7 % 5 < 2 else "read"  # noqa: PLR2004 - two of five
        wait_us = 2_000 + i * 77_977 % 480_000
        issues.append(Issue(begin_us + i * gap_us, sector, 8192 if i % 16 else 262_144, op, wait_us))
    return tuple(issues)
