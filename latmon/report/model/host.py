"""Tables of the whole host in a report: issuers, softirqs, handlers, wake-ups, task queues, values of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from latmon.model.host_context import ContextUnit
from latmon.report.model.latency import Quantiles, SummedQuantiles
from latmon.support.typed_json import MERGED, IfAny, OrAbsent


@dataclass(frozen=True, kw_only=True)
class Issued:
    """I/Os of an issuer."""

    count: int | None
    bytes: int | None
    share: OrAbsent[float] = None
    latency_us: OrAbsent[SummedQuantiles] = None


@dataclass(frozen=True)
class IssuedToDevice:
    """I/Os of an issuer on one device."""

    issued: Annotated[Issued, MERGED]
    ops: Mapping[str, Issued]


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """A cgroup, as the issuer of I/Os."""

    cgroup: str
    name: str
    container: IfAny[str] = ""
    issued: Annotated[Issued, MERGED]
    devices: Mapping[str, IssuedToDevice]


@dataclass(frozen=True)
class ServedCgroup:
    """A cgroup that the device served while another one's I/Os were in flight."""

    cgroup: str
    name: str
    share: float | None


@dataclass(frozen=True)
class Cgroup:
    """A cgroup with I/Os."""

    issuer: Annotated[Issuer, MERGED]
    behind: IfAny[tuple[ServedCgroup, ...]] = ()
    """Cgroups that the device served while its I/Os were in flight."""


@dataclass(frozen=True)
class Process:
    """A process with I/Os."""

    pid: int | None
    comm: str
    issuer: Annotated[Issuer, MERGED]


@dataclass(frozen=True, kw_only=True)
class Softirq:
    """A vector of softirqs over all CPUs."""

    count: int
    delay_us: SummedQuantiles
    run_us: SummedQuantiles
    ran_in: Mapping[str, int]
    raised_in: Mapping[str, int]
    cpus: Mapping[int, int]
    """CPU -> runs."""


@dataclass(frozen=True, kw_only=True)
class InterruptHandler:
    """A handler of hard interrupts."""

    irq: int | None
    handler: str
    device: str | None
    count: int
    run_us: SummedQuantiles
    returned: Mapping[str, int]
    before_us: int
    """Time in earlier handlers of its vector."""
    shared_with: tuple[str, ...]
    caller_irq: int | None
    affinity: str | None
    """CPUs that its vector may interrupt: `0-3,8`."""
    effective_affinity: str | None
    """CPUs of these that the interrupt controller chose."""


@dataclass(frozen=True, kw_only=True)
class WokenThread:
    """A thread that was woken, and how late it ran."""

    thread: str
    pid: int | None
    policy: str
    priority: int
    kernel: bool
    count: int
    delay_us: Quantiles
    instead: Mapping[str, int]
    """Thread -> delays in which it ran longest; in which it ran last, without ran_us."""
    ran_us: IfAny[Mapping[str, int]]
    """Thread -> time that it ran meanwhile."""


@dataclass(frozen=True, kw_only=True)
class TaskQueue:
    """A task queue of illumos or Solaris."""

    name: str
    instance: int
    priority: int
    threads: int
    permanent_loops: bool
    active_max: int
    waiting_max: int
    most: int
    tasks: int
    executed: int
    mean_run_us: float | None


@dataclass(frozen=True)
class HostValue:
    """A value of the host: its mean, and its highest window."""

    unit: ContextUnit
    mean: float
    highest: float


@dataclass(frozen=True)
class NamedReason:
    """What was not measured, and why."""

    name: str
    reason: str
