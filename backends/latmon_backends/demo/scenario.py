"""Scenarios of synthetic hosts: the I/Os of a window, and the frame that the probes would report of them.

I/Os are drawn as groups with the same path and the same times. Every histogram and count of a frame is computed from
these groups, so no two tables of a frame can disagree. What differs between scenarios is in their own modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon import __version__
from latmon.model.frame import (
    UNACCOUNTED,
    Completed,
    Device,
    Flow,
    Frame,
    HandlerRuns,
    Health,
    Limit,
    Missing,
    Origin,
    Outlier,
    Series,
    Settings,
    SoftirqCpu,
    SoftirqRuns,
    Traced,
    missing_stages,
)
from latmon.model.histogram import EMPTY, Histogram
from latmon_backends.demo.synthesis import EqualIos, Shape, bucket, combine_stages, histogram, poisson

WINDOWS = 180
"""Three minutes: enough for a tail of a few I/Os in a million, short enough to be watched to its end."""


@dataclass(frozen=True)
class Scenario:
    """A synthetic host: with a known problem, or the same host without it."""

    purpose: str
    """One sentence, for `latmon demo --list`."""
    origin: Origin
    """Without `tool`, which the backend sets to scenario and seed."""
    windows: int | None
    """Its length; None: endless. `frames` may yield more."""
    frames: Callable[[Random], Iterator[Frame]]
    """Depends on the generator alone: the same seed gives the same frames."""
    healthy: str = ""
    """The name of the same host without the problem; empty for that one."""


REASON = "synthetic, from the numbers of a published case: no host is measured"
INTERVAL_US = 1_000_000
START_WALL = 1_767_582_000.0
"""2026-01-05 03:00:00 UTC: fixed, because the wall clock would make two recordings differ."""
START_MONO_US = 86_400_000_000
BEHIND_HBA = ("irq", "softirq", "completion")
ROWS = 40
"""Outliers of a window that the rate limit lets through."""
WITHOUT = "no numbers were published for it, and none are made up"
_ON_DEMAND = "measured for traced requests only: request stamps don't contain it"
_STAGES = ("queue", "requeue", "hba", *BEHIND_HBA)
_APART = "sd's own probes don't separate it, its time is in D2C (issue to completion)"
_SOLARIS_ABSENT = tuple(Missing(stage, _APART) for stage in BEHIND_HBA)
_UNFOLLOWED = "a user's thread, or an interrupt without a handler"


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
    """Empty: its completion could not be followed."""

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


class StageTimes(NamedTuple):
    """The I/Os that passed one stage."""

    ios: dict[int, int]
    """Time in the stage, in us -> I/Os."""
    by_total: dict[int, int]
    """Bucket of the total -> their time in the stage."""


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

    @cached_property
    def count(self) -> int:
        return sum(one.size for one in self.groups)

    @cached_property
    def below(self) -> tuple[int, ...]:
        """Time below the driver's entry, by group."""
        return tuple(one.below for one in self.groups)

    @cached_property
    def totals(self) -> tuple[int, ...]:
        return tuple(one.queue + (one.requeue or 0) + us for one, us in zip(self.groups, self.below, strict=True))

    @cached_property
    def total(self) -> Histogram:
        return histogram(zip(self._column("size"), self.totals, strict=True))

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

    @cached_property
    def stages(self) -> Mapping[str, StageTimes]:
        """Stages that any I/O passed, and `unaccounted`."""
        sizes, ends = self._column("size"), [bucket(us) for us in self.totals]
        found: dict[str, StageTimes] = {}
        for stage in (*_STAGES, UNACCOUNTED):
            ios: dict[int, int] = {}
            by_total: dict[int, int] = {}
            for size, us, end in zip(sizes, self._column(stage), ends, strict=True):
                if us is not None:
                    ios[us] = ios.get(us, 0) + size
                    by_total[end] = by_total.get(end, 0) + size * us
            if ios:
                found[stage] = StageTimes(ios, by_total)
        return found

    def _column(self, name: str) -> tuple[Any, ...]:
        return tuple(map(attrgetter(name), self.groups))

    @cached_property
    def always_on(self) -> Mapping[str, Histogram]:
        """Histograms by stage, as the always-on probe reports them."""
        below: dict[int, int] = {}
        queue: dict[int, int] = {}
        for group, us, total in zip(self.groups, self.below, self.totals, strict=True):
            below[us] = below.get(us, 0) + group.size
            queue[total - us] = queue.get(total - us, 0) + group.size
        above = histogram((size, us) for us, size in queue.items())
        return {"queue": above, "hba": histogram((size, us) for us, size in below.items()), "total": self.total}

    @cached_property
    def traced(self) -> Mapping[str, Histogram]:
        """Histograms by stage, as the on-demand probes report them."""
        found = {name: histogram((size, us) for us, size in one.ios.items()) for name, one in self.stages.items()}
        return found | {"total": self.total} | ({"resume": self.resume} if self.resume else {})

    @cached_property
    def paths(self) -> Mapping[str, int]:
        """I/Os by how they completed."""
        found: dict[str, int] = {}
        for group in self.groups:
            found[group.path] = found.get(group.path, 0) + group.size
        return found

    def on(self, device: str) -> FlowIos:
        """Return the same I/Os on another device, sharing the tables, so that equal devices cost one computation."""
        _ = self.always_on, self.traced, self.paths, self.kernel  # computed here, the copy has them too
        found = copy(self)
        object.__setattr__(found, "flow", Flow(device, self.flow.op))
        return found

    def times(self, stage: str) -> list[EqualIos]:
        """Return the I/Os that passed the stage, by their time in it."""
        return [EqualIos(size, us) for us, size in self.stages[stage].ios.items()] if stage in self.stages else []

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
    cpus: int = 8
    absent: tuple[Missing, ...] = ()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By op."""

    @property
    def includes(self) -> dict[str, tuple[str, ...]]:
        """Stages that hba includes, where none after it is traced."""
        return {"hba": BEHIND_HBA} if {*BEHIND_HBA} <= {one.name for one in self.absent} else {}

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
    *,
    settings: Mapping[str, Mapping[str, str]],
    hz: int | None = None,
    start_wall: float = START_WALL,
    threshold_us: int | None = None,
) -> Origin:
    """Return the origin of a host with a tier A probe; stages below `hba` are only traced on demand."""
    reported: Settings = MappingProxyType({name: MappingProxyType(dict(section)) for name, section in settings.items()})
    return Origin(
        backend="demo",
        host=host,
        kernel=kernel,
        latmon=__version__,
        tier="A",
        interval_us=INTERVAL_US,
        start_wall=start_wall,
        start_mono_us=START_MONO_US,
        hz=hz,
        measured=MappingProxyType({"queue": ("requeue",), "hba": BEHIND_HBA, "total": ()}),
        absent=missing_stages(("queue", "hba"), dict.fromkeys(("requeue", *BEHIND_HBA, "resume"), _ON_DEMAND)),
        latency_from="queued",
        reason=REASON,
        settings=reported,
        extra=MappingProxyType({} if threshold_us is None else {"threshold_us": threshold_us}),
    )


def solaris(
    host: str,
    settings: Settings,
    devices: tuple[Device, ...],
    thresholds_us: Mapping[str, int],
    programs: Mapping[str, tuple[str, int]],
) -> HostFacts:
    """Return the facts of a Solaris host, where the stages behind the HBA are not separated."""
    requeue = Missing("requeue", "measured for traced requests only: sd sends none again here")
    resume = Missing("resume", "none of these scripts follows the waiting thread")
    tables = (Missing(table, WITHOUT) for table in ("softirqs", "handlers", "wake-ups"))
    made = replace(
        origin(host, f"SunOS {settings['kernel']['release']}-demo", settings=settings, hz=100),
        absent=(requeue, *_SOLARIS_ABSENT, resume),
        untraced=(*_SOLARIS_ABSENT, resume, *tables),
    )
    return HostFacts(made, devices, thresholds_us, programs, absent=_SOLARIS_ABSENT)


def ordinary(rng: Random, load: Load, path: str) -> FlowIos:
    """Draw one second of a load; `path`: how its I/Os complete."""
    n = poisson(rng, load.rate)
    met = combine_stages(rng, load.queue.draw(rng, n), load.hba.draw(rng, n))
    return FlowIos(load.flow, tuple(IoGroup(*one, path=path) for one in met), load.bytes_each)


def window(
    host: HostFacts, seq: int, loads: Iterable[FlowIos], outliers: tuple[Outlier, ...] = (), **tables: Any
) -> Frame:
    """Return window `seq` (from 0) as the probes and the kernel report it. `tables`: further fields of the frame."""
    counted = [one for one in loads if one.kernel.count]
    kernel = {one.flow: one.kernel for one in counted}
    above = {one.flow: sum(g.size for g in one.slow(host.thresholds_us[one.flow.device])) for one in counted}
    mono_us = host.origin.start_mono_us + (seq + 1) * INTERVAL_US
    return Frame(
        seq=seq,
        wall=host.wall_of(mono_us),
        mono_us=mono_us,
        dt_us=INTERVAL_US,
        histograms={Series(*one.flow, stage): h for one in counted if one.groups for stage, h in one.always_on.items()},
        seen={one.flow: one.seen for one in counted},
        kernel=kernel | _volumes(host.devices, kernel),
        traced=_traced([one for one in counted if one.groups], host),
        devices=host.devices if seq == 0 else (),
        above={flow: n for flow, n in above.items() if n},
        outliers=outliers,
        thresholds_us=host.thresholds_us,
        health=Health(
            probes_attached=1,
            probes_wanted=1,
            skipped=sum(one.missed for one in counted),
            suppressed=sum(above.values()) - len(outliers),
        ),
        cgroup_limits=None if host.origin.kernel.startswith("SunOS") else (),
        **tables,
    )


def probe_cost(frame: Frame, ns_per_io: float, cpu_percent: float) -> Frame:
    """Return the frame with the cost of its probes."""
    health = replace(frame.health, probe_ns_per_io=round(ns_per_io, 1), probe_cpu_percent=round(cpu_percent, 2))
    return replace(frame, health=health)


def _volumes(devices: Iterable[Device], kernel: Mapping[Flow, Completed]) -> dict[Flow, Completed]:
    """Return the kernel's counts of volumes: the sum of their members, because each I/O goes to one of them."""
    sums: dict[Flow, Completed] = {}
    for volume in devices:
        for flow, more in kernel.items():
            if flow.device in volume.members:
                whole = Flow(volume.name, flow.op)
                sums[whole] = sums[whole] + more if whole in sums else more
    return sums


def _traced(loads: Iterable[FlowIos], host: HostFacts) -> Traced:
    histograms: dict[Series, Histogram] = {}
    by_total: dict[Series, dict[int, int]] = {}
    paths: dict[str, dict[str, int]] = {}
    unfollowed: dict[str, dict[str, int]] = {}
    for one in loads:
        histograms |= {Series(*one.flow, stage): found for stage, found in one.traced.items()}
        by_total |= {Series(*one.flow, stage): passed.by_total for stage, passed in one.stages.items()}
        for path, size in one.paths.items():
            table = (paths if path else unfollowed).setdefault(one.flow.device, {})
            table[path or _UNFOLLOWED] = table.get(path or _UNFOLLOWED, 0) + size
    reasons = {one.name: one.reason for one in host.absent}
    absent = missing_stages([one for one in (*_STAGES, "resume") if one not in reasons], reasons, host.includes)
    return Traced(histograms, by_total, unfollowed, paths, one_in=1, includes=host.includes, absent=absent)


def draw_slow(rng: Random, host: HostFacts, loads: Iterable[FlowIos]) -> list[tuple[FlowIos, IoGroup]]:
    """Draw the outliers of a window that the rate limit lets through, one entry per I/O."""
    found = [
        (one, group)
        for one in loads
        for group in one.slow(host.thresholds_us[one.flow.device])
        for _ in range(group.size)
    ]
    return sorted(found, key=lambda _: rng.random())[:ROWS]


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
        "includes": host.includes,
    }
    return Outlier(**{**known, **facts})


def drawn_outliers(rng: Random, host: HostFacts, loads: Iterable[FlowIos], end_us: int) -> tuple[Outlier, ...]:
    """Draw the outliers of a window that ends at `end_us`, in the order in which they began."""
    found = [_drawn_outlier(rng, host, *one, end_us) for one in draw_slow(rng, host, loads)]
    return tuple(sorted(found, key=lambda row: row.mono_us))


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


def handled(times: Sequence[EqualIos], device: str = "") -> HandlerRuns:
    """Return the runs of an interrupt handler that handled every interrupt."""
    run = histogram(times) if times else EMPTY
    return HandlerRuns(run, {"handled": sum(one.size for one in times)}, device=device)
