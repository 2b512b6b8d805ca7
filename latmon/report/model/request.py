"""Single requests of a report: outliers, and slow operations on files with their latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon.model.frame import FileSplit
from latmon.report.model.latency import SummedQuantiles
from latmon.support.typed_json import IfAny, OrAbsent


@dataclass(frozen=True, kw_only=True)
class LateWakeup:
    """A thread that was woken and ran late."""

    stage: str
    thread: str
    pid: int | None
    priority: int
    woken_mono_us: int
    delay_us: int
    instead: str | None
    ran_us: int | None


@dataclass(frozen=True, kw_only=True)
class SlowRequest:
    """An I/O above the threshold, with similar neighbours."""

    time: str | None
    mono_us: int
    device: str
    op: str
    flags: tuple[str, ...]
    sector: int | None
    bytes: int | None
    pid: int | None
    comm: str | None
    cpu_issue: int | None
    cpu_complete: int | None
    outstanding_at_issue: int | None
    overtaken_by: int | None
    total_us: int
    stages_us: Mapping[str, int]
    unaccounted_us: int
    repeats: int
    """Similar neighbours in this row."""
    path: str | None
    includes: Mapping[str, tuple[str, ...]]
    waits: tuple[LateWakeup, ...]
    own: IfAny[bool] = False
    """latmon issued it."""
    admission_us: OrAbsent[int] = None
    inserted_us: OrAbsent[int] = None
    status: OrAbsent[str] = None
    """With which it failed; no latency contains it."""


@dataclass(frozen=True)
class FileWait:
    """Operations that waited in the same way."""

    count: int
    share: float | None


@dataclass(frozen=True, kw_only=True)
class FileLatency:
    """Operations on the files of one file system."""

    mount: str
    type: str | None
    device: str | None
    op: str
    count: int
    latency_us: SummedQuantiles
    waits: Mapping[str, FileWait]
    parts_us: IfAny[Mapping[str, int]] = field(default_factory=dict)
    """Parts of the time: `own I/O`, `CPU`, `lock`, ... and `running`; absent where it is not split."""


@dataclass(frozen=True, kw_only=True)
class NfsLatency:
    """Calls of one NFS operation on one mount that ended; times are means of a call, to milliseconds in all."""

    mount: str
    op: str
    calls: int
    retransmissions: int
    """Transmissions after the first one of a call."""
    timeouts: int
    """Major time-outs."""
    errors: int
    """Calls with an error as their result, such as "no such file"."""
    mean_queue_us: float | None
    """Until the last transmission."""
    mean_round_trip_us: float | None
    """From the last transmission to the answer: network and server."""
    mean_us: float | None


@dataclass(frozen=True)
class OwnRequest:
    """An outlier that an operation on a file waited for."""

    mono_us: int
    op: str
    total_us: int
    stages_us: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class SlowOperation:
    """A slow operation on a file."""

    time: str | None
    mono_us: int
    op: str
    total_us: int
    wait: str
    mount: str
    type: str | None
    path: str
    pid: int | None
    comm: str | None
    bytes: int | None
    offset: int | None
    device: str | None
    sectors: tuple[int, int] | None
    requests: tuple[OwnRequest, ...]
    waits: tuple[LateWakeup, ...]
    split: OrAbsent[FileSplit] = None
    """Absent where it was not measured."""
