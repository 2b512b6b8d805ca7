"""The report of a recording: its host, its completeness, its devices and tables, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from latmon.model.coverage import Coverage
from latmon.report.model.device import Device, LimitDifference, Sampling
from latmon.report.model.finding import Findings
from latmon.report.model.host import (
    Cgroup,
    HostValue,
    InterruptHandler,
    NamedReason,
    Process,
    Softirq,
    TaskQueue,
    WokenThread,
)
from latmon.report.model.request import FileLatency, NfsLatency, SlowOperation, SlowRequest
from latmon.support.typed_json import MERGED, IfAny, Key, OrAbsent

SCHEMA: Literal["latmon.report/1"] = "latmon.report/1"


@dataclass(frozen=True)
class Host:
    """The host, and what measured it."""

    name: str
    kernel: str
    latmon: str
    tool: str


@dataclass(frozen=True)
class MissedTime:
    """A span of time that was not measured, or was measured late."""

    start: str | None
    duration_s: float
    reason: str


@dataclass(frozen=True)
class Notice:
    """A notice of the probe."""

    time: str | None
    text: str


@dataclass(frozen=True)
class MarkedTime:
    """A note of the user."""

    time: str | None
    text: str
    changed: Mapping[str, Mapping[str, str]] | None
    """Settings that differ from the beginning; null where they were not read."""


@dataclass(frozen=True, kw_only=True)
class TracedCounts:
    """Requests that the tracer followed, and those that it could not follow."""

    count: int
    sampling: Annotated[Sampling, MERGED]
    unfollowed: Mapping[str, int]
    off: int
    """I/Os whose stages miss their total."""


@dataclass(frozen=True)
class Tracing:
    """Completeness of the tracer."""

    untraced_share: float | None
    traced: TracedCounts


@dataclass(frozen=True)
class InFlightOlder:
    """I/Os in flight at the end by age."""

    one_s: Annotated[int, Key("1 s")]
    ten_s: Annotated[int, Key("10 s")]
    minute: Annotated[int, Key("60 s")]
    at_least: bool

    @property
    def by_age(self) -> Mapping[str, int]:
        """Return the I/Os that are older than each age."""
        return {"1 s": self.one_s, "10 s": self.ten_s, "60 s": self.minute}


@dataclass(frozen=True, kw_only=True)
class Health:
    """How complete the capture is, and what it cost."""

    tier: str | None
    coverage: float | None
    """Completions that the probe saw, of those that the kernel counted."""
    completions: OrAbsent[Coverage] = None
    probes_attached: int
    probes_wanted: int
    probes_missing: tuple[NamedReason, ...]
    lost_events: int
    map_full: int
    unmatched: int
    stale: int
    undecoded_lines: int
    dropped_records: int
    full_tables: IfAny[Mapping[str, int]]
    """Table of the tracer that had no room -> windows; I/O counts and latencies are complete."""
    suppressed: OrAbsent[int] = None
    """Outliers that the rate limit left out."""
    tracing: Annotated[Tracing | None, MERGED] = None
    in_flight_older: OrAbsent[InFlightOlder] = None
    in_flight_of_unknown_age: IfAny[int] = 0
    skipped: int | None
    self_cpu_percent: float | None
    probe_cpu_percent: OrAbsent[float] = None
    """Of the tracer, of one CPU."""
    probe_ns_per_io: float | None

    @property
    def sampling(self) -> Sampling:
        """Return the sample that the tracer took; all I/Os where nothing was traced."""
        return Sampling(one_in=1) if self.tracing is None else self.tracing.traced.sampling


@dataclass(frozen=True)
class CountedSpan:
    """I/Os of a minute, an hour or a day."""

    start: str | None
    count: int


@dataclass(frozen=True)
class CountedTime:
    """I/Os by hour and day, UTC, and the minute with the most of them."""

    worst_minute: CountedSpan | None
    hours: tuple[CountedSpan, ...]
    days: tuple[CountedSpan, ...]


@dataclass(frozen=True, kw_only=True)
class SlowIOs:
    """Completed I/Os at or above the threshold by time."""

    above_us: int | None
    """null where devices have different thresholds, or one moved."""
    above_range_us: OrAbsent[tuple[int, int]] = None
    """The least and the greatest threshold; only where above_us is null."""
    times: Annotated[CountedTime, MERGED]


@dataclass(frozen=True, kw_only=True)
class ServiceLevel:
    """Completed I/Os at or above --slo by time."""

    slo_us: int
    counted_from_us: tuple[int, ...]
    """Edges of the buckets from which they were counted."""
    times: Annotated[CountedTime, MERGED]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Summary of a recording. New keys may come with any release; a key that was not measured is absent.

    Times are RFC 3339 in UTC, null where it is not a time of the calendar.
    """

    schema: Literal["latmon.report/1"] = SCHEMA
    backend: str
    host: Host
    start: str | None
    duration_s: float
    """From the first window's beginning to the last one's end, gaps included."""
    measured_s: float | None
    """Sum of the windows' lengths, without gaps; divide by it for rates; null where an import assumed them."""
    intervals: int
    interval_s: float
    longest_s: float
    gaps: tuple[MissedTime, ...]
    """Time without data."""
    late: IfAny[tuple[MissedTime, ...]] = ()
    """Windows that were read late; they miss nothing."""
    notices: IfAny[tuple[Notice, ...]] = ()
    health: Health
    devices: Mapping[str, Device]
    cgroups: IfAny[tuple[Cgroup, ...]] = ()
    cgroups_left_out: IfAny[int] = 0
    processes: IfAny[tuple[Process, ...]] = ()
    processes_left_out: IfAny[int] = 0
    files: IfAny[tuple[FileLatency, ...]] = ()
    file_operations: OrAbsent[tuple[SlowOperation, ...]] = None
    """Slow operations on files, the longest first."""
    file_operations_left_out: IfAny[int] = 0
    nfs: IfAny[tuple[NfsLatency, ...]] = ()
    """Calls of the NFS client to its servers."""
    softirqs: IfAny[Mapping[str, Softirq]]
    irqs: IfAny[tuple[InterruptHandler, ...]] = ()
    wakeups: IfAny[tuple[WokenThread, ...]] = ()
    wakeups_left_out: IfAny[int] = 0
    taskqs: OrAbsent[tuple[TaskQueue, ...]] = None
    taskqs_left_out: IfAny[int] = 0
    host_context: IfAny[Mapping[str, HostValue]]
    host_context_absent: IfAny[tuple[NamedReason, ...]] = ()
    outliers: OrAbsent[tuple[SlowRequest, ...]] = None
    """The longest I/Os above the threshold."""
    outliers_left_out: IfAny[int] = 0
    slow: OrAbsent[SlowIOs] = None
    slo: OrAbsent[ServiceLevel] = None
    settings: IfAny[Mapping[str, Mapping[str, str]]]
    """Section -> setting -> value, at the beginning."""
    limits_differ: IfAny[tuple[LimitDifference, ...]] = ()
    """Of an imported text: settings that its devices have in different values."""
    marks: IfAny[tuple[MarkedTime, ...]] = ()
    runs: IfAny[tuple[str, ...]] = ()
    """Runs in an imported text, whose I/Os are added up here: parts for `latmon diff FILE@RUN`."""
    latency_from: IfAny[str] = ""
    """Where the total begins: queued or issue."""
    reason: IfAny[str] = ""
    """Why this backend."""
    live: IfAny[bool] = False
    """The recording is still being written."""
    damage: IfAny[tuple[str, ...]] = ()
    evaluated: Annotated[Findings | None, MERGED] = None
