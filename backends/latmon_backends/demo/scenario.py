"""Scenarios of synthetic hosts: the I/Os of a window, and the frame that the probes would report of them.

I/Os are drawn as groups with the same path and the same times. Every histogram and count of a frame is computed from
these groups, so no two tables of a frame can disagree. What differs between scenarios is in their own modules.

Latency histograms are made of described distributions: bucket counts, not single I/Os. The only randomness is the
generator passed in, and only its `random` and `gauss` are used, so a seed gives the same numbers on every version of
Python.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import accumulate, pairwise
from operator import attrgetter
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon import __version__
from latmon.manifest import TABLE_ROLES, Manifest, load
from latmon.model.frame import (
    STAGES,
    UNACCOUNTED,
    Completed,
    Device,
    FileSystem,
    Flow,
    Frame,
    Limit,
    Missing,
    Origin,
    Outlier,
    Settings,
    Thread,
    missing_stages,
)
from latmon.model.histogram import BITS, EMPTY, MAX_US, Histogram, bucket_bounds, bucket_index
from latmon.model.measurements.handlers import HandlerRuns
from latmon.model.measurements.softirqs import SoftirqCpu, SoftirqRuns
from latmon.support.paths import data_dir

FEW = 24
"""Up to here single draws cost less than one draw per bucket (about 80 of them)."""
_NORMAL_FROM = 6
"""Expected counts from here on are drawn from the normal distribution."""
_NEGLIGIBLE = 1e-8
bucket = lru_cache(maxsize=1 << 14)(bucket_index)
"""Cached, because a window has thousands of times and most of them recur."""
WINDOWS = 180
"""Three minutes: enough for a tail of a few I/Os in a million, short enough to be watched to its end."""
REASON = "synthetic, from the numbers of a published case: no host is measured"
INTERVAL_US = 1_000_000
START_WALL = 1_767_582_000.0
"""2026-01-05 03:00:00 UTC: fixed, because the wall clock would make two recordings differ."""
START_MONO_US = 86_400_000_000
ROWS = 40
"""Outliers of a window that the rate limit lets through."""
_STAGES = ("queue", "requeue", "hba", "irq", "softirq", "completion")
UNFOLLOWED = "a user's thread, or an interrupt without a handler"
_NONE_THERE = "this system has no D script for that"


class Mode(NamedTuple):
    """One hump of a distribution: log-normal around `median_us`, `spread` is sigma of the logarithm."""

    weight: float
    median_us: float
    spread: float


class EqualIos(NamedTuple):
    """`size` I/Os that took `us` each."""

    size: int
    us: int


@dataclass(frozen=True)
class Shape:
    """A latency distribution as a mixture of modes; weights need not add up to 1."""

    modes: tuple[Mode, ...]
    bits: int = BITS
    """Resolution of the draw: fewer bits give wider buckets, fewer groups and a cheaper window."""

    @cached_property
    def odds(self) -> tuple[tuple[int, float], ...]:
        """(bucket, probability) of every bucket that is not negligible, ascending, adding up to 1."""
        below = [self._below(low) for low, _ in _bounds(self.bits)]
        kept = [(i, b - a) for i, (a, b) in enumerate(pairwise(below)) if b - a > _NEGLIGIBLE]
        total = sum(p for _, p in kept)
        return tuple((i, p / total) for i, p in kept)

    @cached_property
    def cumulated(self) -> tuple[float, ...]:
        return tuple(accumulate(p for _, p in self.odds))

    def _below(self, us: int) -> float:
        if us <= 0:
            return 0.0
        total = sum(m.weight for m in self.modes)
        return sum(m.weight * _normal_below(math.log(us / m.median_us) / m.spread) for m in self.modes) / total

    def draw(self, rng: Random, n: int) -> list[EqualIos]:
        """Draw `n` I/Os as groups, ascending; the I/Os of one bucket all take the same time within its bounds."""
        counts = self._few(rng, n) if n <= FEW else self._many(rng, n)
        random, bounds = rng.random, _bounds(self.bits)
        ranges = ((bounds[index], size) for index, size in counts.items())
        return [EqualIos(size, low + int(random() * (high - low))) for (low, high), size in ranges]

    def _few(self, rng: Random, n: int) -> dict[int, int]:
        last = len(self.odds) - 1
        picks = sorted(min(bisect_right(self.cumulated, rng.random()), last) for _ in range(n))
        counts: dict[int, int] = {}
        for pick in picks:
            bucket = self.odds[pick][0]
            counts[bucket] = counts.get(bucket, 0) + 1
        return counts

    def _many(self, rng: Random, n: int) -> dict[int, int]:
        """Draw bucket by bucket from the remaining I/Os, so the counts add up to `n`."""
        counts: dict[int, int] = {}
        left, mass = n, 1.0
        for bucket, p in self.odds:
            share = p / mass if p < mass else 1.0
            count = _about(rng, left * share, 1 - share)
            if count > 0:
                counts[bucket] = count = min(count, left)
                left -= count
                if not left:
                    return counts
            mass -= p
        counts[self.odds[-1][0]] = counts.get(self.odds[-1][0], 0) + left
        return counts


def binomial(rng: Random, n: int, p: float) -> int:
    """Draw how many of `n` happen at probability `p`: a Poisson approximation where few do, never more than `n`."""
    return min(n, poisson(rng, n * p) if n * p <= _NORMAL_FROM else max(0, _about(rng, n * p, 1 - p)))


def poisson(rng: Random, expected: float) -> int:
    """Draw a Poisson-distributed count."""
    if expected > _NORMAL_FROM:
        return max(0, _about(rng, expected, 1.0))
    count, product, floor = 0, 1.0 - rng.random(), math.exp(-max(0.0, expected))
    while product > floor:
        count += 1
        product *= 1.0 - rng.random()
    return count


def combine_stages(rng: Random, first: Sequence[EqualIos], second: Sequence[EqualIos]) -> list[tuple[int, int, int]]:
    """Combine two stages of the same I/Os at random, as (size, us of the first, us of the second)."""
    lefts, rights = _shuffled(rng, first), list(second)
    times_and_counts: list[tuple[int, int, int]] = []
    i = j = taken_i = taken_j = 0
    while i < len(lefts) and j < len(rights):
        count = min(lefts[i].size - taken_i, rights[j].size - taken_j)
        times_and_counts.append((count, lefts[i].us, rights[j].us))
        taken_i, taken_j = taken_i + count, taken_j + count
        if taken_i == lefts[i].size:
            i, taken_i = i + 1, 0
        if taken_j == rights[j].size:
            j, taken_j = j + 1, 0
    return times_and_counts


def histogram(groups: Iterable[tuple[int, int]]) -> Histogram:
    """Return groups as a histogram with exact sum and maximum."""
    counts: dict[int, int] = {}
    total = most = 0
    for size, us in groups:
        index = bucket(us)
        counts[index] = counts.get(index, 0) + size
        total += size * us
        if us > most:  # noqa: PLR1730  called thousands of times per window, and max() takes four times as long
            most = us
    return Histogram.of(counts, total, most)


@cache
def _bounds(bits: int) -> tuple[tuple[int, int], ...]:
    """Return the bounds of every bucket, and of one more."""
    return tuple(bucket_bounds(index, bits) for index in range(bucket_index(MAX_US, bits) + 2))


def _normal_below(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _about(rng: Random, expected: float, spread: float) -> int:
    """Draw a whole number with that mean: normal with variance expected * spread, or rounded at random if small."""
    if expected > _NORMAL_FROM:
        return round(rng.gauss(expected, math.sqrt(expected * spread)))
    return int(expected + rng.random())


def _shuffled(rng: Random, groups: Sequence[EqualIos]) -> list[EqualIos]:
    """Return the groups in random order; how `Random.shuffle` uses the generator may differ between versions."""
    return [g for _, g in sorted((rng.random(), g) for g in groups)]


@dataclass(frozen=True)
class Scenario:
    """A synthetic host: with a known problem, or the same host without it."""

    purpose: str
    """One sentence, for `latmon demo --list`."""
    host: Callable[[], HostFacts]
    """Reader of the host's manifests, which the list of demos doesn't need."""
    windows: int | None
    """Its length; None: endless. `frames` may yield more."""
    frames: Callable[[Random], Iterator[Frame]]
    """Depends on the generator alone: the same seed gives the same frames."""
    healthy: str = ""
    """The name of the same host without the problem; empty for that one."""

    @property
    def origin(self) -> Origin:
        """Return the host's origin, without `tool`, which the backend sets to scenario and seed."""
        return self.host().origin


@cache
def _manifest(name: str) -> Manifest:
    return load(next(data_dir("probes").glob(f"*/{name}.yaml")))


def scripts(*names: str) -> tuple[Manifest, ...]:
    """Return the scripts of a host by name: the always-on one, then those of the tracer."""
    return tuple(map(_manifest, names))


class IoGroup(NamedTuple):
    """`size` I/Os with the same path and the same times, in us; None: a stage that they didn't pass."""

    size: int
    queue: int
    hba: int | None
    irq: int | None = None
    softirq: int | None = None
    completion: int | None = None
    requeue: int | None = None
    unaccounted: int = 0
    path: str = "hard interrupt"
    """One of the paths of the host's script, or a reason why it could not follow the completion."""

    @property
    def below(self) -> int:
        """Time from the last issue to completion."""
        return (self.hba or 0) + (self.irq or 0) + (self.softirq or 0) + (self.completion or 0) + self.unaccounted

    @property
    def total(self) -> int:
        return self.queue + (self.requeue or 0) + self.below

    def stages(self) -> dict[str, int]:
        """Return the passed stages in their order, without unaccounted time."""
        times = (self.queue, self.requeue, self.hba, self.irq, self.softirq, self.completion)
        return {name: us for name, us in zip(_STAGES, times, strict=True) if us is not None}


@dataclass(frozen=True)
class FlowIos:
    """The I/Os of one op on one device in one window."""

    flow: Flow
    groups: tuple[IoGroup, ...]
    bytes_each: int
    large: int = 0
    """I/Os of `bytes_large` instead of `bytes_each`."""
    bytes_large: int = 0
    missed: int = 0
    """I/Os that only the kernel's counters have."""
    resume: Histogram = EMPTY
    """Time until their issuers ran again."""
    tables: dict[str, Any] = field(init=False, default_factory=dict, compare=False)
    """Counts of the I/Os by script, which script_output.py computes."""
    columns: dict[str, tuple[Any, ...]] = field(init=False, default_factory=dict, compare=False)

    @cached_property
    def count(self) -> int:
        return sum(io_group.size for io_group in self.groups)

    @cached_property
    def below(self) -> tuple[int, ...]:
        """Time below the driver's entry, by group."""
        return tuple(io_group.below for io_group in self.groups)

    @cached_property
    def totals(self) -> tuple[int, ...]:
        return tuple(
            io_group.queue + (io_group.requeue or 0) + us for io_group, us in zip(self.groups, self.below, strict=True)
        )

    @cached_property
    def total(self) -> Histogram:
        return histogram(zip(self.column("size"), self.totals, strict=True))

    @cached_property
    def seen(self) -> Completed:
        """The I/Os that the probe counts."""
        size = (self.count - self.large) * self.bytes_each + self.large * self.bytes_large
        return Completed(self.count, size, self.total.sum)

    @cached_property
    def kernel(self) -> Completed:
        """The I/Os that the kernel counts; those that the probe missed have the mean time."""
        if not self.missed:
            return self.seen
        mean_us = 0 if self.total.mean is None else round(self.total.mean)
        time_us = (self.total.sum or 0) + self.missed * mean_us
        return Completed(self.count + self.missed, self.seen.bytes + self.missed * self.bytes_each, time_us)

    def column(self, name: str) -> tuple[Any, ...]:
        """Return one field of all groups."""
        if name not in self.columns:
            self.columns[name] = tuple(map(attrgetter(name), self.groups))
        return self.columns[name]

    def sum_of(self, stages: Sequence[str]) -> tuple[int | None, ...]:
        """Return each group's time in these stages together; None where it passed none of them."""
        columns = [self.column(stage) for stage in stages if stage in (*_STAGES, UNACCOUNTED)]
        if len(columns) == 1:
            return columns[0]
        if not columns:  # a stage that no demo has
            return (None,) * len(self.groups)
        each = ([us for us in column if us is not None] for column in zip(*columns, strict=True))
        return tuple(sum(column) if column else None for column in each)

    @cached_property
    def paths(self) -> Mapping[str, int]:
        """I/Os by how they completed."""
        paths: dict[str, int] = {}
        for group in self.groups:
            paths[group.path] = paths.get(group.path, 0) + group.size
        return paths

    def on(self, device: str) -> FlowIos:
        """Return the same I/Os on another device, sharing the tables, so that equal devices cost one computation."""
        _ = self.paths, self.kernel  # computed here, the copy has them too
        flow_ios = copy(self)
        object.__setattr__(flow_ios, "flow", Flow(device, self.flow.op))
        return flow_ios

    def times(self, stage: str) -> list[EqualIos]:
        """Return the I/Os that passed the stage, by their time in it."""
        sizes: dict[int, int] = {}
        for size, us in zip(self.column("size"), self.column(stage), strict=True):
            if us is not None:
                sizes[us] = sizes.get(us, 0) + size
        return [EqualIos(size, us) for us, size in sizes.items()]

    def slow(self, threshold_us: int) -> list[IoGroup]:
        """Return the groups that took longer than the threshold."""
        if (self.total.max or 0) <= threshold_us:
            return []
        return [group for group, us in zip(self.groups, self.totals, strict=True) if us > threshold_us]


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Everything about a host that is the same in all windows."""

    origin: Origin
    devices: tuple[Device, ...]
    thresholds_us: Mapping[str, int]
    programs: Mapping[str, tuple[str, int]]
    """Device -> name and pid of the program that issues its I/Os."""
    scripts: tuple[Manifest, ...]
    """The always-on script, then those of the tracer."""
    cpus: int = 8
    threads: tuple[Thread, ...] = ()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By op."""
    cgroups: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> path and container of the cgroup that issues its I/Os, flushes excepted."""
    sequential: Mapping[Flow, float] = field(default_factory=lambda: MappingProxyType({}))
    """Share of the I/Os that begin where another one ended; 0 for other flows."""
    file_systems: tuple[FileSystem, ...] = ()

    @property
    def is_sun(self) -> bool:
        return self.origin.kernel.startswith("SunOS")

    @property
    def release(self) -> tuple[int, ...]:
        """Return the kernel's release, major and minor."""
        return tuple(map(int, re.findall(r"\d+", self.origin.kernel)[:2]))

    def wall_of(self, mono_us: int) -> float:
        """Return CLOCK_MONOTONIC as seconds since 1970."""
        return self.origin.start_wall + (mono_us - self.origin.start_mono_us) / 1e6


@dataclass(frozen=True, slots=True)
class Load:
    """Ordinary I/O of one op on one device: I/Os a second, and independent stages."""

    flow: Flow
    rate: float
    queue: Shape
    hba: Shape
    bytes_each: int = 8192


def sysfs_limits(directory: str, **values: int | str) -> tuple[Limit, ...]:
    """Return limits that a directory of sysfs has, by file name."""
    return tuple(Limit(name, value, f"{directory}/{name}") for name, value in values.items())


def mq_limits(tags: int, queues: int) -> tuple[Limit, ...]:
    """Return the limits of a device's hardware queues."""
    return (*sysfs_limits("mq/0", nr_tags=tags), Limit("hardware queues", queues, "mq"))


def sd_limits(throttle: int, **values: int) -> tuple[Limit, ...]:
    """Return the limits in the state of Solaris's driver sd."""
    known = {"un_throttle": throttle, "un_saved_throttle": throttle, "un_busy_throttle": 0, "un_min_throttle": 8}
    return tuple(Limit(name, value, "sd_limits") for name, value in (known | values).items())


def begin_us(seq: int) -> int:
    """Return CLOCK_MONOTONIC at the beginning of a window."""
    return START_MONO_US + seq * INTERVAL_US


def origin(
    host: str,
    kernel: str,
    probes: Sequence[Manifest],
    *,
    settings: Mapping[str, Mapping[str, str]],
    hz: int | None = None,
    start_wall: float = START_WALL,
    threshold_us: int | None = None,
) -> Origin:
    """Return the origin of a host that these scripts measure."""
    reported: Settings = MappingProxyType({name: MappingProxyType(dict(section)) for name, section in settings.items()})
    always = probes[0]
    return Origin(
        backend="demo",
        host=host,
        kernel=kernel,
        latmon=__version__,
        tier=always.tier,
        interval_us=INTERVAL_US,
        start_wall=start_wall,
        start_mono_us=START_MONO_US,
        hz=hz,
        measured=MappingProxyType({stage: always.includes.get(stage, ()) for stage in always.stages}),
        absent=missing_stages(always.stages, always.absent, always.includes),
        untraced=_untraced(probes[1:]) if always.tool == "dtrace" else (),
        latency_from=always.latency_from,
        counted=always.counted_tables,
        reason=REASON,
        settings=reported,
        extra=MappingProxyType({} if threshold_us is None else {"threshold_us": threshold_us}),
    )


def _untraced(probes: Sequence[Manifest]) -> tuple[Missing, ...]:
    """Return what no script of the tracer measures, as the backend of DTrace reports it."""
    measured = {stage for manifest in probes for stage in manifest.stages}
    measured |= {inner for manifest in probes for stages in manifest.includes.values() for inner in stages}
    printed = {name for manifest in probes for name in (*(spec.role for spec in manifest.maps), *manifest.records)}
    reasons = {stage: why for manifest in probes for stage, why in manifest.absent.items()}
    tables = (
        name for name, role in TABLE_ROLES.items() if not any(known_role.startswith(role) for known_role in printed)
    )
    stages = (stage for stage in STAGES if stage != "total" and stage not in measured)
    return tuple(Missing(name, reasons.get(name, _NONE_THERE)) for name in (*stages, *tables))


def sun(
    host: str,
    version: str,
    *more: str,
    devices: tuple[Device, ...],
    threshold_us: int,
    programs: Mapping[str, tuple[str, int]],
    start_wall: float = START_WALL,
    threads: tuple[Thread, ...] = (),
) -> HostFacts:
    """Return the facts of a host of Solaris or illumos with the scripts for sd, and `more`.

    Its settings are the kernel's version and the variables of sd or ssd, which have their defaults; D scripts have one
    threshold for all devices.
    """
    probes = scripts("sd", "sd_depth", "sd_limits", *more)
    settings = {
        "tool": {"latmon": __version__},
        "kernel": {"system": "SunOS", "release": "5.11", "version": version, "machine": "i86pc"},
        **{
            f"module {sd_driver}": {f"{sd_driver}_max_throttle": "256", f"{sd_driver}_io_time": "60"}
            for sd_driver in _sd_drivers(devices)
        },
    }
    known = origin(host, "SunOS 5.11-demo", probes, settings=settings, start_wall=start_wall, threshold_us=threshold_us)
    thresholds = {device.name: threshold_us for device in devices}
    return HostFacts(known, devices, thresholds, programs, probes, threads=threads)


def _sd_drivers(devices: Iterable[Device]) -> list[str]:
    return sorted({device.driver for device in devices} & {"sd", "ssd"})


def ordinary(rng: Random, load: Load) -> FlowIos:
    """Draw one second of a load."""
    n = poisson(rng, load.rate)
    met = combine_stages(rng, load.queue.draw(rng, n), load.hba.draw(rng, n))
    return FlowIos(load.flow, tuple(IoGroup(*group_of_ios) for group_of_ios in met), load.bytes_each)


def draw_slow(rng: Random, host: HostFacts, loads: Iterable[FlowIos]) -> list[tuple[FlowIos, IoGroup]]:
    """Draw the outliers of a window that the rate limit lets through, one entry per I/O."""
    slow_ios = [
        (flow_ios, group)
        for flow_ios in loads
        for group in flow_ios.slow(host.thresholds_us[flow_ios.flow.device])
        for _ in range(group.size)
    ]
    return sorted(slow_ios, key=lambda _: rng.random())[:ROWS]


def outlier(host: HostFacts, ios: FlowIos, group: IoGroup, began_us: int, **facts: Any) -> Outlier:
    """Return the row of one I/O. `facts`: the fields that are not the same for its group and its host."""
    comm, pid = host.programs.get(ios.flow.device, ("", None))
    known = {
        "wall": host.wall_of(began_us),
        "mono_us": began_us,
        "device": ios.flow.device,
        "op": ios.flow.op,
        "total_us": group.total,
        "stages_us": group.stages(),
        "unaccounted_us": group.unaccounted,
        "flags": host.flags.get(ios.flow.op, ()),
        "bytes": ios.bytes_each,
        "pid": pid,
        "comm": comm,
        "path": group.path,
    }
    return Outlier(**{**known, **facts})


def drawn_outliers(rng: Random, host: HostFacts, loads: Iterable[FlowIos], end_us: int) -> tuple[Outlier, ...]:
    """Draw the outliers of a window that ends at `end_us`, in the order in which they began."""
    outliers = [_drawn_outlier(rng, host, *slow_io, end_us) for slow_io in draw_slow(rng, host, loads)]
    return tuple(sorted(outliers, key=lambda row: row.mono_us))


def _drawn_outlier(rng: Random, host: HostFacts, ios: FlowIos, group: IoGroup, end_us: int) -> Outlier:
    began_us = end_us - int(rng.random() * 0.6 * INTERVAL_US) - group.total
    meanwhile = group.total * ios.count // INTERVAL_US
    return outlier(
        host,
        ios,
        group,
        began_us,
        sector=16 * int(rng.random() * 2**27),
        cpu_issue=int(rng.random() * host.cpus),
        cpu_complete=sum(map(ord, ios.flow.device)) % host.cpus,
        outstanding_at_issue=(ios.total.sum or 0) // INTERVAL_US,
        overtaken_by=int(meanwhile * rng.random() / 8),
    )


def constant_softirq(runs: int, delay_us: int, run_us: int, ran_in: str = "irq_exit") -> SoftirqRuns:
    """Return runs of a softirq with one delay and one run time."""
    delay, run = (histogram([EqualIos(runs, us)]) for us in (delay_us, run_us))
    return SoftirqRuns(delay, run, {ran_in: runs}, {"irq": runs})


BACKGROUND_SOFTIRQS: Mapping[SoftirqCpu, SoftirqRuns] = {
    SoftirqCpu(vector, cpu): constant_softirq(runs, delay, run)
    for vector, runs, delay, run in (("TIMER", 250, 1, 3), ("SCHED", 90, 2, 4), ("RCU", 60, 2, 2))
    for cpu in range(8)
}
"""Softirqs that run on any host: the same in every window, and one object for all of them."""


def handled(times: Sequence[EqualIos]) -> HandlerRuns:
    """Return the runs of an interrupt handler that handled every interrupt."""
    return HandlerRuns(
        histogram(times) if times else EMPTY, returned={"handled": sum(equal_ios.size for equal_ios in times)}
    )
