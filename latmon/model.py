"""What flows through latmon, as frozen values: an Origin once, then one Frame per interval.

A frame holds raw facts only; quantiles, shares and findings are computed from frames by their readers, so an old
recording profits from a new rule. Times are integer microseconds unless a name says otherwise. Strings are clean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.histogram import Histogram

OPS = ("read", "write", "flush", "discard", "other")
STAGES = ("queue", "requeue", "hba", "irq", "softirq", "completion", "resume", "total")


class Series(NamedTuple):
    """Which I/Os a histogram is about. `stage` is one of STAGES; `total` is the latency itself."""

    device: str
    op: str
    stage: str


class Flow(NamedTuple):
    """Which I/Os a count is about."""

    device: str
    op: str


@dataclass(frozen=True, slots=True)
class Completed:
    """I/Os completed in an interval. `time_us` is the sum of their times, None where the source doesn't say."""

    count: int
    bytes: int
    time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Outstanding:
    """I/Os in flight at the end of an interval; None where the kernel doesn't tell them apart."""

    in_driver: int | None
    queued: int | None


@dataclass(frozen=True, slots=True)
class Device:
    """A block device as an admin names it. `kind`: disk, dm, md, loop, zram, nvme-path, nvme-head, other.

    `timed` is False where no request passes (bio-based dm, md, zram): its I/O is timed at `members`.
    """

    name: str
    major: int
    minor: int
    kind: str = "disk"
    driver: str = ""
    controller: str = ""
    model: str = ""
    serial: str = ""
    members: tuple[str, ...] = ()
    timed: bool = True
    label: str = ""
    """dm or md name, multipath head: the name people use, beside `name`."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A probe or stage that isn't measured here, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    """How far one interval can be trusted. Counters are of this interval; a None is "not known here", never 0."""

    probes_attached: int = 0
    probes_wanted: int = 0
    lost_events: int = 0
    map_full: int = 0
    unmatched: int = 0
    stale: int = 0
    undecoded_lines: int = 0
    dropped_frames: int = 0
    skipped: int | None = None
    """Probe runs that the kernel skipped because programs nested (recursion_misses)."""
    self_cpu_percent: float | None = None
    probe_ns_per_io: float | None = None
    recording: str = ""
    """File name while recording, or why recording stopped."""
    notice: str = ""
    """One sentence that the user must see: a fallback, a restart, a full disk."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One interval: [mono_us - dt_us, mono_us] on CLOCK_MONOTONIC, ending at wall-clock `wall` (s since 1970)."""

    seq: int
    wall: float
    mono_us: int
    dt_us: int
    histograms: Mapping[Series, Histogram] = field(default_factory=lambda: MappingProxyType({}))
    seen: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    """Completions that the probe saw, timed or not."""
    kernel: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    """Completions by the kernel's own counters (/proc/diskstats)."""
    outstanding: Mapping[str, Outstanding] = field(default_factory=lambda: MappingProxyType({}))
    devices: tuple[Device, ...] = ()
    """Devices that are new or changed since the frame before; all of them in the first frame."""
    removed: tuple[str, ...] = ()
    health: Health = Health()
    gap: str = ""
    """Why the interval is not an ordinary one: reader-late, probe-restart, suspended, enospc; empty when it is."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where frames come from: said once, before the first frame."""

    backend: str
    host: str
    kernel: str
    latmon: str
    tool: str = ""
    tier: str = ""
    interval_us: int = 1_000_000
    start_wall: float = 0.0
    start_mono_us: int = 0
    boot_id: str = ""
    hz: int | None = None
    measured: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> the neighbour stages whose time it includes."""
    absent: tuple[Missing, ...] = ()
    """Stages that are not measured here, and why."""
    probes_missing: tuple[Missing, ...] = ()
    latency_from: str = ""
    """Where `total` begins: `queued` (the request's own stamp) or `issue` (tier C). Empty: not measured."""
    reason: str = ""
    """Why this backend and not a better one; empty when it is the best there is."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
