"""The scenario of an incident: its frames, origin, devices, and how I/Os are drawn.

Knows no incident, no pace and no file.

I/Os are drawn as groups that took the same way in the same time; every histogram and count of a frame is made of
these, so no two tables of a frame can disagree. Knows no incident.

Shared by the incidents in which every slow I/O of a device is slow for the same reason. Knows no incident.
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
    Health,
    Missing,
    Origin,
    Outlier,
    Outstanding,
    Series,
    Settings,
    Traced,
)
from latmon.model.histogram import Histogram
from latmon.model.inflight import AGES_S, Depths, StillInFlight, bucket_middle
from latmon_backends.demo.synthesis import Group, Shape, bucket, histogram, meet, poisson

WINDOWS = 180
"""Three minutes: enough for a tail of a few I/Os in a million, short enough to be watched to its end."""


@dataclass(frozen=True)
class Scenario:
    """A host with a known illness, or the same host without it. Ends after `windows`; `frames` may go on."""

    purpose: str
    """One sentence, for `latmon demo --list`."""
    origin: Origin
    """`tool` is filled in by whoever plays it: scenario and seed."""
    windows: int
    frames: Callable[[Random], Iterator[Frame]]
    """Nothing but the generator decides: the same seed, the same frames."""
    healthy: str = ""
    """The name of the same host without the illness; empty for that one."""


REASON = "synthetic, from the numbers of a published case: no host is measured"
INTERVAL_US = 1_000_000
START_WALL = 1_767_582_000.0
"""2026-01-05 03:00:00 UTC: fixed, because the wall clock would make two recordings differ."""
START_MONO_US = 86_400_000_000
ABOVE_DRIVER = ("queue", "requeue")
BELOW = ("hba", "irq", "softirq", "completion", UNACCOUNTED)
"""What an always-on probe tells as `hba`: everything from the last issue on."""
_STAGES = ("queue", "requeue", "hba", "irq", "softirq", "completion")


class Alike(NamedTuple):
    """`size` I/Os that took the same way in the same time, in us; None: a stage that they didn't pass."""

    size: int
    queue: int
    hba: int
    irq: int | None = None
    softirq: int | None = None
    completion: int | None = None
    requeue: int | None = None
    unaccounted: int = 0
    path: str = "hard interrupt"

    @property
    def below(self) -> int:
        """From the last issue to completion."""
        return self.hba + (self.irq or 0) + (self.softirq or 0) + (self.completion or 0) + self.unaccounted

    @property
    def total(self) -> int:
        return self.queue + (self.requeue or 0) + self.below

    def stages(self) -> dict[str, int]:
        """Those that were passed, in their order, without what is unaccounted."""
        times = (self.queue, self.requeue, self.hba, self.irq, self.softirq, self.completion)
        return {name: us for name, us in zip(_STAGES, times, strict=True) if us is not None}


class Passed(NamedTuple):
    """I/Os that passed a stage."""

    ios: dict[int, int]
    """By how long they took in it, in us."""
    by_total: dict[int, int]
    """Bucket of the total -> their time in it."""


@dataclass(frozen=True)
class Drawn:
    """The I/Os of one op on one device in one window."""

    flow: Flow
    parts: tuple[Alike, ...]
    bytes_each: int

    @cached_property
    def count(self) -> int:
        return sum(one.size for one in self.parts)

    @cached_property
    def below(self) -> tuple[int, ...]:
        """Of each of the parts."""
        return tuple(one.below for one in self.parts)

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """Of each of the parts."""
        return tuple(one.queue + (one.requeue or 0) + us for one, us in zip(self.parts, self.below, strict=True))

    @cached_property
    def total(self) -> Histogram:
        return histogram(zip(self._column("size"), self.totals, strict=True))

    @cached_property
    def stages(self) -> Mapping[str, Passed]:
        """Those that any passed; `unaccounted` too."""
        sizes, ends = self._column("size"), [bucket(us) for us in self.totals]
        found: dict[str, Passed] = {}
        for stage in (*_STAGES, UNACCOUNTED):
            ios: dict[int, int] = {}
            by_total: dict[int, int] = {}
            for size, us, end in zip(sizes, self._column(stage), ends, strict=True):
                if us is not None:
                    ios[us] = ios.get(us, 0) + size
                    by_total[end] = by_total.get(end, 0) + size * us
            if ios:
                found[stage] = Passed(ios, by_total)
        return found

    def _column(self, name: str) -> tuple[Any, ...]:
        """One field of all parts."""
        return tuple(map(attrgetter(name), self.parts))

    @cached_property
    def always_on(self) -> Mapping[str, Histogram]:
        """By stage, as the always-on probe tells them."""
        below: dict[int, int] = {}
        queue: dict[int, int] = {}
        for part, us, total in zip(self.parts, self.below, self.totals, strict=True):
            below[us] = below.get(us, 0) + part.size
            queue[total - us] = queue.get(total - us, 0) + part.size
        above = histogram((size, us) for us, size in queue.items())
        return {"queue": above, "hba": histogram((size, us) for us, size in below.items()), "total": self.total}

    @cached_property
    def traced(self) -> Mapping[str, Histogram]:
        """By stage, as the deep probes tell them."""
        found = {name: histogram((size, us) for us, size in one.ios.items()) for name, one in self.stages.items()}
        return found | {"total": self.total}

    @cached_property
    def paths(self) -> Mapping[str, int]:
        """I/Os by how they completed."""
        found: dict[str, int] = {}
        for part in self.parts:
            found[part.path] = found.get(part.path, 0) + part.size
        return found

    def on(self, device: str) -> Drawn:
        """The same I/Os on another device; what they add up to is found once, for all of these devices."""
        _ = self.always_on, self.traced, self.paths  # they are copied too
        found = copy(self)
        object.__setattr__(found, "flow", Flow(device, self.flow.op))
        return found

    def summed(self, *stages: str) -> int:
        """Their time in us."""
        return sum(sum(self.stages[stage].by_total.values()) for stage in stages if stage in self.stages)

    def times(self, stage: str) -> list[Group]:
        """Of those that passed it."""
        return [Group(size, us) for us, size in self.stages[stage].ios.items()] if stage in self.stages else []


def origin(
    host: str,
    kernel: str,
    *,
    settings: Mapping[str, Mapping[str, str]],
    hz: int | None = None,
    start_wall: float = START_WALL,
    threshold_us: int | None = None,
) -> Origin:
    """Of a synthetic host, measured as a tier A probe would; the stages below `hba` are the deep probes' alone."""
    traced_alone = ("requeue", "irq", "softirq", "completion", "resume")
    why = "told of the traced requests alone: request stamps don't have it"
    told: Settings = MappingProxyType({name: MappingProxyType(dict(section)) for name, section in settings.items()})
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
        measured=MappingProxyType({"queue": ("requeue",), "hba": ("irq", "softirq", "completion"), "total": ()}),
        absent=tuple(Missing(stage, why) for stage in traced_alone),
        latency_from="queued",
        reason=REASON,
        settings=told,
        extra=MappingProxyType({} if threshold_us is None else {"threshold_us": threshold_us}),
    )


def draw_window(
    of: Origin, seq: int, loads: Iterable[Drawn], devices: tuple[Device, ...], *, absent: tuple[Missing, ...] = ()
) -> Frame:
    """Window `seq` from 0: what was drawn, as the always-on probe, the kernel and the deep probes tell it."""
    every = [one for one in loads if one.parts]
    counts = {one.flow: Completed(one.count, one.count * one.bytes_each, one.total.sum) for one in every}
    return Frame(
        seq=seq,
        wall=of.start_wall + (seq + 1) * of.interval_us / 1e6,
        mono_us=of.start_mono_us + (seq + 1) * of.interval_us,
        dt_us=of.interval_us,
        histograms={Series(*one.flow, stage): found for one in every for stage, found in one.always_on.items()},
        seen=counts,
        kernel=counts,
        traced=_traced(every, absent),
        devices=devices if seq == 0 else (),
        health=Health(probes_attached=1, probes_wanted=1, skipped=0),
    )


def above_threshold(loads: Iterable[Drawn], thresholds_us: Mapping[str, int]) -> dict[Flow, int]:
    """How many I/Os took longer than their device's threshold."""
    found = {}
    for one in loads:
        most = thresholds_us[one.flow.device]
        count = sum(part.size for part, us in zip(one.parts, one.totals, strict=True) if us > most)
        if count:
            found[one.flow] = count
    return found


def _traced(loads: Iterable[Drawn], absent: tuple[Missing, ...]) -> Traced:
    histograms: dict[Series, Histogram] = {}
    by_total: dict[Series, dict[int, int]] = {}
    paths: dict[str, dict[str, int]] = {}
    for one in loads:
        histograms |= {Series(*one.flow, stage): found for stage, found in one.traced.items()}
        by_total |= {Series(*one.flow, stage): passed.by_total for stage, passed in one.stages.items()}
        taken = paths.setdefault(one.flow.device, {})
        for path, size in one.paths.items():
            taken[path] = taken.get(path, 0) + size
    return Traced(histograms, by_total, paths=paths, one_in=1, includes=included(absent), absent=absent)


def included(absent: Iterable[Missing]) -> dict[str, tuple[str, ...]]:
    """Return what hba includes where no stage behind it is traced."""
    behind = ("irq", "softirq", "completion")
    return {"hba": behind} if {*behind} <= {one.name for one in absent} else {}


ROWS = 40
"""Outliers of a window that a rate limit lets through."""
_APART = "sd's own probes don't tell it apart, its time is in D2C (issue to completion)"
SOLARIS_ABSENT = tuple(Missing(stage, _APART) for stage in ("irq", "softirq", "completion"))

WITHOUT = "no numbers of it were published, and none are made up"


@dataclass(frozen=True, slots=True)
class Host:
    """What is the same in all windows."""

    origin: Origin
    devices: tuple[Device, ...]
    thresholds_us: Mapping[str, int]
    programs: Mapping[str, tuple[str, int]]
    """Device -> whose I/Os they are, and its pid."""
    cpus: int = 8
    absent: tuple[Missing, ...] = ()
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By op."""


@dataclass(frozen=True, slots=True)
class Load:
    """Ordinary I/O: so many a second, each stage by itself."""

    flow: Flow
    rate: float
    queue: Shape
    hba: Shape
    bytes_each: int = 8192


def begin_us(seq: int) -> int:
    """CLOCK_MONOTONIC at the beginning of a window."""
    return START_MONO_US + seq * INTERVAL_US


def wall_of(mono_us: int) -> float:
    """Seconds since 1970 at this moment of CLOCK_MONOTONIC."""
    return START_WALL + (mono_us - START_MONO_US) / 1e6


def solaris(host: str, release: str, settings: Settings) -> Origin:
    """Of a host of Solaris, where nothing behind the HBA is told apart."""
    requeue = Missing("requeue", "told of the traced requests alone: sd sends none again here")
    resume = Missing("resume", "no script of these follows the thread that waits")
    tables = (Missing(table, WITHOUT) for table in ("softirqs", "handlers", "wake-ups"))
    made = origin(host, f"SunOS {release}-demo", settings=settings, hz=100)
    return replace(made, absent=(requeue, *SOLARIS_ABSENT, resume), untraced=(*SOLARIS_ABSENT, resume, *tables))


def ordinary(rng: Random, load: Load, path: str) -> Drawn:
    """One second of it; `path`: how its I/Os complete."""
    n = poisson(rng, load.rate)
    met = meet(rng, load.queue.draw(rng, n), load.hba.draw(rng, n))
    return Drawn(load.flow, tuple(Alike(*one, path=path) for one in met), load.bytes_each)


def framed(rng: Random, seq: int, host: Host, drawn: Sequence[Drawn], depths: Mapping[str, Depths]) -> Frame:
    """Window `seq`. What is in flight at its end is what its depths say of one moment."""
    frame = draw_window(host.origin, seq, drawn, host.devices, absent=host.absent)
    above = above_threshold(drawn, host.thresholds_us)
    rows = _outliers(rng, host, drawn, frame.mono_us)
    health = replace(
        frame.health,
        suppressed=sum(above.values()) - len(rows),
        probe_ns_per_io=round(rng.gauss(560, 12), 1),
        probe_cpu_percent=round(rng.gauss(1.1, 0.1), 2),
    )
    return replace(
        frame,
        above=above,
        outliers=rows,
        thresholds_us=host.thresholds_us,
        outstanding={name: _gauge(rng, one) for name, one in depths.items()},
        depths=depths,
        in_flight=StillInFlight((), dict.fromkeys(AGES_S, 0), at_us=frame.mono_us),
        health=health,
    )


def _outliers(rng: Random, host: Host, drawn: Iterable[Drawn], end_us: int) -> tuple[Outlier, ...]:
    """In the order in which they began; all of them, or a drawn lot."""
    found: list[tuple[Drawn, Alike]] = []
    for one in drawn:
        limit = host.thresholds_us[one.flow.device]
        if one.total and (one.total.max or 0) > limit:
            slow = [part for part, us in zip(one.parts, one.totals, strict=True) if us > limit]
            found += [(one, part) for part in slow for _ in range(part.size)]
    told = sorted(found, key=lambda _: rng.random())[:ROWS]
    return tuple(sorted((_row(rng, host, *one, end_us) for one in told), key=lambda row: row.mono_us))


def _row(rng: Random, host: Host, drawn: Drawn, part: Alike, end_us: int) -> Outlier:
    (device, op), total_us = drawn.flow, part.total
    began_us = end_us - int(rng.random() * 0.6 * INTERVAL_US) - total_us
    meanwhile = total_us * drawn.count // INTERVAL_US
    comm, pid = host.programs.get(device, ("", 0))
    return Outlier(
        wall=wall_of(began_us),
        mono_us=began_us,
        device=device,
        op=op,
        total_us=total_us,
        stages_us=part.stages(),
        flags=host.flags.get(op, ()),
        sector=16 * int(rng.random() * 2**27),
        bytes=drawn.bytes_each,
        pid=pid or None,
        comm=comm,
        cpu_issue=int(rng.random() * host.cpus),
        cpu_complete=sum(map(ord, device)) % host.cpus,
        outstanding_at_issue=(drawn.total.sum or 0) // INTERVAL_US,
        overtaken_by=int(meanwhile * rng.random() / 8),
        path=part.path,
        includes=included(host.absent),
    )


def _gauge(rng: Random, depths: Depths) -> Outstanding:
    """As one look at the window's end finds them."""
    return Outstanding(_looked(rng, depths.in_driver), _looked(rng, depths.queued))


def _looked(rng: Random, counts: Mapping[int, int]) -> int:
    left = rng.random() * sum(counts.values())
    for depth, n in counts.items():
        left -= n
        if left < 0:
            return int(bucket_middle(depth))
    return 0
