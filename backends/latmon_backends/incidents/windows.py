"""A window of a host whose tail has one story: ordinary I/O drawn, outliers' rows, and what is outstanding at its end.

Shared by the incidents in which every slow I/O of a device is slow for the same reason. Knows no incident.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import MappingProxyType

from latmon.mark import Settings
from latmon.model import Device, Flow, Frame, Missing, Origin, Outlier, Outstanding
from latmon.outstanding import AGES_S, Depths, StillInFlight, bucket_middle
from latmon_backends.incidents import drawing
from latmon_backends.incidents.drawing import INTERVAL_US, START_MONO_US, START_WALL, Alike, Drawn
from latmon_backends.synthetic import Shape, meet, poisson

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
    made = drawing.origin(host, f"SunOS {release}-demo", settings=settings, hz=100)
    return replace(made, absent=(requeue, *SOLARIS_ABSENT, resume), untraced=(*SOLARIS_ABSENT, resume, *tables))


def ordinary(rng: Random, load: Load, path: str) -> Drawn:
    """One second of it; `path`: how its I/Os complete."""
    n = poisson(rng, load.rate)
    met = meet(rng, load.queue.draw(rng, n), load.hba.draw(rng, n))
    return Drawn(load.flow, tuple(Alike(*one, path=path) for one in met), load.bytes_each)


def framed(rng: Random, seq: int, host: Host, drawn: Sequence[Drawn], depths: Mapping[str, Depths]) -> Frame:
    """Window `seq`. What is in flight at its end is what its depths say of one moment."""
    frame = drawing.window(host.origin, seq, drawn, host.devices, absent=host.absent)
    above = drawing.above(drawn, host.thresholds_us)
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
        includes=drawing.included(host.absent),
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
