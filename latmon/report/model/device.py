"""A device of a report: its operations with latencies and stages, sizes, the kernel's counters, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from latmon.analysis.limits import Advice
from latmon.model.frame import Limit
from latmon.model.measurements.patterns import Pattern
from latmon.report.model.depth import InFlightAtEnd, IssueOrder, LongestInFlight, Outstanding
from latmon.report.model.latency import Quantiles, StageQuantiles, SummedQuantiles, Tail
from latmon.support.typed_json import MERGED, IfAny, OrAbsent

NOT_PASSED = "n/a: "
"""Prefix of the reason for a stage that is measured but that no request passed."""
NOT_MEASURED = "not measured: "
"""Prefix of the reason for a stage that is not measured where others of the same requests are."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How many I/Os the tracer followed."""

    one_in: int
    """One I/O in so many was traced, at the coarsest."""
    one_in_least: OrAbsent[int] = None
    """At the finest, where it changed."""

    @property
    def finest(self) -> int:
        """Return the sampling at its finest."""
        return self.one_in if self.one_in_least is None else self.one_in_least


@dataclass(frozen=True, kw_only=True)
class TracedTotal:
    """The traced I/Os, to which `stages` refer."""

    sampling: Annotated[Sampling, MERGED]
    latency_us: SummedQuantiles


@dataclass(frozen=True, kw_only=True)
class KernelCounts:
    """What the kernel's own counters have."""

    count: int
    bytes: int
    time_us: OrAbsent[int] = None
    mean_us: OrAbsent[float] = None
    queue_mean_us: OrAbsent[float] = None
    driver_mean_us: OrAbsent[float] = None
    merged: OrAbsent[int] = None
    seen_alone: IfAny[int] = 0
    """The probe's I/Os of windows without these counters."""


@dataclass(frozen=True)
class SizeCount:
    """I/Os up to a size."""

    upto: int | None
    """Bytes; null: larger."""
    count: int
    bytes: int


@dataclass(frozen=True)
class SizeLatency(SizeCount):
    """Latency of I/Os up to a size."""

    latency_us: SummedQuantiles


@dataclass(frozen=True)
class Sizes:
    """I/Os and latencies by size, and where the I/Os lay."""

    histogram: tuple[SizeCount, ...]
    latency: tuple[SizeLatency, ...]
    pattern: OrAbsent[Pattern] = None
    """Number of I/Os of a kind."""


@dataclass(frozen=True, kw_only=True)
class Op:
    """I/Os of one operation on a device."""

    count: int
    untimed: IfAny[int] = 0
    """I/Os that were counted and not timed, failed ones included."""
    failed: OrAbsent[Mapping[str, int]] = None
    """Status -> I/Os that failed with it, which are not timed; empty where none failed, absent where they were not
    counted."""
    bytes: OrAbsent[int] = None
    latency_us: OrAbsent[Quantiles] = None
    """From `latency_from` to the completion."""
    stages: Mapping[str, StageQuantiles]
    stages_absent: Mapping[str, str]
    """Stage -> why it has no number."""
    of: OrAbsent[TracedTotal] = None
    unaccounted: OrAbsent[SummedQuantiles] = None
    """Time of traced I/Os that no stage has."""
    latency_whole_us: OrAbsent[StageQuantiles] = None
    """From submission to completion."""
    admission_us: OrAbsent[StageQuantiles] = None
    """From submission until the request exists."""
    tail: OrAbsent[Tail] = None
    kernel: OrAbsent[KernelCounts] = None
    sizes: OrAbsent[Sizes] = None

    @property
    def failures(self) -> int:
        """Return the number of I/Os that failed, as far as they were counted."""
        return sum(self.failed.values()) if self.failed else 0

    @property
    def traced_us(self) -> SummedQuantiles | None:
        """Return the latency of traced I/Os; None where none was traced."""
        return None if self.of is None else self.of.latency_us


@dataclass(frozen=True, kw_only=True)
class TracedPaths:
    """Traced I/Os by path and by kernel function."""

    paths: IfAny[Mapping[str, int]]
    """How requests completed."""
    unfollowed: IfAny[Mapping[str, int]]
    """Why requests could not be followed."""
    admission_causes: IfAny[Mapping[str, int]]
    """us by cause."""
    completers: IfAny[Mapping[str, int]]
    raisers: IfAny[Mapping[str, Mapping[str, int]]]


@dataclass(frozen=True)
class LimitSetting:
    """A setting that limits I/Os."""

    limit: Annotated[Limit, MERGED]
    remarks: IfAny[tuple[Advice, ...]] = ()


@dataclass(frozen=True)
class LimitDifference:
    """A setting of an imported text that its devices have in different values."""

    name: str
    values: Mapping[str, int | str]
    """Device -> value."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """What the device reports about itself."""

    name: str
    value: int | str
    first: OrAbsent[int | str] = None
    """First value, where it was another."""
    read_until_end: OrAbsent[bool] = None
    """false where it was not read any more at the end."""
    source: str


@dataclass(frozen=True, kw_only=True)
class Device:
    """A device of a report."""

    controller: IfAny[str] = ""
    driver: IfAny[str] = ""
    model: IfAny[str] = ""
    serial: IfAny[str] = ""
    label: IfAny[str] = ""
    members: IfAny[tuple[str, ...]] = ()
    """Devices below it."""
    major: OrAbsent[int] = None
    minor: OrAbsent[int] = None
    kind: OrAbsent[str] = None
    timed: OrAbsent[bool] = None
    """false: its I/Os are timed at other devices."""
    ops: Mapping[str, Op]
    tail: OrAbsent[Tail] = None
    traced: OrAbsent[TracedPaths] = None
    threshold_us: OrAbsent[int] = None
    """The latest."""
    threshold_range_us: OrAbsent[tuple[int, int]] = None
    """The least and the greatest threshold; only where it moved."""
    above: OrAbsent[Mapping[str, int]] = None
    """op -> I/Os above the threshold."""
    active_us: OrAbsent[int] = None
    """Time with any I/O, by the kernel's own counter."""
    active_share: OrAbsent[float] = None
    """The same as part of the time, 0 to 1."""
    outstanding: OrAbsent[Outstanding] = None
    in_flight_count: OrAbsent[int] = None
    """I/Os in flight at the end, of any age, by the kernel's gauges."""
    at_end: Annotated[InFlightAtEnd | None, MERGED] = None
    in_flight_of_unknown_age: IfAny[int] = 0
    in_flight_longest: OrAbsent[LongestInFlight] = None
    outlier_longest_us: OrAbsent[int] = None
    issue_order: OrAbsent[IssueOrder] = None
    limits: OrAbsent[tuple[LimitSetting, ...]] = None
    limits_remarks: IfAny[tuple[Advice, ...]] = ()
    reports: IfAny[tuple[Reported, ...]] = ()
