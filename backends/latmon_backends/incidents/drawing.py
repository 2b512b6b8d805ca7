"""What all incidents are made with: an origin, a frame's stamps, and I/Os that add up wherever they are told.

I/Os are drawn as groups that took the same way in the same time; every histogram and count of a frame is made of
these, so no two tables of a frame can disagree. Knows no incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon import __version__
from latmon.histogram import Histogram
from latmon.mark import Settings
from latmon.model import UNACCOUNTED, Completed, Device, Flow, Frame, Health, Missing, Origin, Series, Traced
from latmon_backends.synthetic import Group, bucket, histogram

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


def window(
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


def above(loads: Iterable[Drawn], thresholds_us: Mapping[str, int]) -> dict[Flow, int]:
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
