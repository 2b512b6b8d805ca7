"""Outstanding I/O of a device in a report: depths in four forms by their source, Little's law, I/Os in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from latmon.analysis.littles_law import LawScope, Lift
from latmon.support.typed_json import MERGED, IfAny, OrAbsent

DepthShares = Mapping[int, float]
"""Number of I/Os -> part of the time, 0 to 1."""


@dataclass(frozen=True)
class DriverLimit:
    """Limit of the I/Os in the driver."""

    limit: int
    """In the driver; of a volume the sum of its disks' or paths'."""
    limit_source: str
    limit_of_disks: OrAbsent[Mapping[str, int]] = None
    """Of a volume."""


@dataclass(frozen=True)
class DepthLatency:
    """Latency of I/Os that began at the same depth."""

    count: int
    mean_us: float


@dataclass(frozen=True, kw_only=True)
class LittlesLaw:
    """Little's law for the I/Os of a device."""

    of: LawScope
    """All I/Os, or those in the driver."""
    outstanding: float
    latency_us: float
    iops: float
    stuck: float
    error: float
    stuck_most: float
    unknown_age: int
    by_law: float
    agrees: bool
    lift: OrAbsent[Lift] = None
    """IOPS with a higher limit."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Queue:
    """I/Os above the driver."""

    max: int
    mode: int
    busy_mode: int | None
    mean: float | None
    time_share: DepthShares
    busy_time_share: DepthShares


@dataclass(frozen=True)
class MeanQueue:
    """Mean of the I/Os above the driver: no distribution was measured."""

    mean: float | None
    busy: float
    """Part of the time, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Depths:
    """I/Os between issue and completion, over the time."""

    max: int
    max_at: OrAbsent[str] = None
    mode: int
    busy_mode: int | None
    """Of the time in which there was an I/O."""
    mean: float | None
    bound: Annotated[DriverLimit | None, MERGED]
    held_at: OrAbsent[int] = None
    """The driver held so many while more were queued."""
    at_limit: IfAny[bool] = False
    """It was at its limit."""
    time_share: DepthShares
    busy_time_share: DepthShares
    queued: OrAbsent[Queue] = None
    at_issue: IfAny[Mapping[int, int]]
    """Outstanding I/Os -> I/Os issued then."""
    latency_by_depth: OrAbsent[Mapping[int, DepthLatency]] = None
    littles_law: OrAbsent[LittlesLaw] = None
    corrected: int
    """Requests that the probe missed."""
    source: str
    """probe, sysfs, ..."""


@dataclass(frozen=True, kw_only=True)
class SampledDepths:
    """I/Os between issue and completion at the ends of the windows."""

    windows: OrAbsent[int] = None
    """Number of samples, if they are few."""
    max: int
    mode: int
    bound: Annotated[DriverLimit | None, MERGED]
    time_share: DepthShares


@dataclass(frozen=True, kw_only=True)
class MeanDepths:
    """Mean of the I/Os between issue and completion: no distribution was measured."""

    mean: float | None
    busy: float
    """Part of the time, 0 to 1."""
    bound: Annotated[DriverLimit | None, MERGED]
    queued: OrAbsent[MeanQueue] = None
    littles_law: OrAbsent[LittlesLaw] = None
    source: str
    held_at: OrAbsent[int] = None


@dataclass(frozen=True, kw_only=True)
class DepthsAtIssue:
    """I/Os between issue and completion when others were issued: the time at each depth is unknown."""

    max: int
    bound: Annotated[DriverLimit | None, MERGED]
    at_issue: IfAny[Mapping[int, int]]
    """Outstanding I/Os -> I/Os issued then."""
    source: str


Outstanding = Depths | SampledDepths | MeanDepths | DepthsAtIssue


@dataclass(frozen=True, kw_only=True)
class RequestInFlight:
    """A request that a probe follows."""

    began: str | None
    began_mono_us: int
    op: str
    flags: tuple[str, ...]
    sector: int | None
    bytes: int | None
    pid: int | None
    comm: str | None
    in_driver: bool | None
    overtaken_by: int | None
    """Later I/Os of the device that completed meanwhile."""
    own: IfAny[bool] = False
    """latmon issued it."""


@dataclass(frozen=True)
class InFlight:
    """An I/O in flight, or some with a least age."""

    age_us: int
    at_least: bool
    """The age is a least one."""
    count: int
    """I/Os of this row."""
    request: Annotated[RequestInFlight | None, MERGED] = None


@dataclass(frozen=True)
class InFlightAtEnd:
    """I/Os in flight at the end of a recording where it is known which are."""

    in_flight: tuple[InFlight, ...]
    """I/Os older than 0.5 s in flight at the end, oldest first; absent where it is unknown which are."""
    in_flight_oldest_us: int | None
    """null: none is older than 0.5 s."""


@dataclass(frozen=True)
class LongestInFlight:
    """The I/O that was in flight for longest, and when that was."""

    seen: str | None
    row: Annotated[InFlight, MERGED]


@dataclass(frozen=True, kw_only=True)
class IssueOrder:
    """Order in which requests were issued, by their sectors and by their arrival."""

    count: int
    ascending: float | None
    ascending_by_arrival: float | None
    reordered: int
    most_overtaken: int
    longest_wait_us: int | None
    summary: str
