"""The backend protocol: an async context that yields one Origin and then Frames.

The TUI, the report and the recorder are independent of the backend. Names of backends are in registry.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

from latmon.model.frame import Frame, Origin, Settings

if TYPE_CHECKING:  # each command imports this module
    from latmon.recording.archive import Past


QUIET_S = 180.0
"""A host of a fleet ends what measures there after so long, and three intervals, without a question: an ssh client that
is stopped, or a network that is gone, closes nothing. A start takes up to 120 s until the first question."""
NO = "no: "
"""Begins the reason why nothing measures a stage."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a capture. Durations in microseconds; `devices` are shell globs, empty means all."""

    interval_us: int = 1_000_000
    devices: tuple[str, ...] = ()
    threshold_us: int | None = None
    """Latency above which an I/O is an outlier; None: determined per device."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    stages: str = "auto"
    """One of STAGES_MODES: when the tracer runs."""
    budget_percent: float = 10.0
    """Limit of the tracer's CPU time in percent of one CPU; 0: no limit."""
    max_overhead: float = 0.0
    """Limit of the CPU time of all probes, in percent of one CPU; 0: no limit. Above it the tracer is stopped, and
    without a tracer the capture."""
    invasive: tuple[str, ...] = ()
    """Names of the invasive probes that the user permits in spite of their overhead."""
    by_ssh: bool = False
    """Whether the user is on another host, which has connected to this one."""
    tools: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Variable of a tool -> its path in the config; the variable itself has precedence."""

    @property
    def fixed(self) -> dict[str, int]:
        """Options that readers of the frames need, for Origin.extra."""
        return {} if self.threshold_us is None else {"threshold_us": self.threshold_us}

    @property
    def quiet_s(self) -> float:
        """Time without a word after which what measures on a host of a fleet ends."""
        return QUIET_S + 3 * self.interval_us / 1e6


class Backend(Protocol):
    """A source of frames. `async with` opens it (UnavailableError where it can't run here) and sets `origin`.

    `frames` ends when the source ends: a recording's last line, a probe that could not be restarted. Leaving the
    context ends every process it started within 2 s.
    """

    @property
    def origin(self) -> Origin: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc: object) -> None: ...

    def frames(self) -> AsyncIterator[Frame]: ...


@runtime_checkable
class Finishing(Protocol):
    """A backend that can return the counts since the last frame when a capture is ended."""

    async def finish(self, patience_s: float) -> tuple[Frame, ...]:
        """Return the frame of the unfinished interval, after that of a finished one which the end cut off.

        Empty where neither comes in time. ProbeGoneError if the probe has ended.

        `patience_s`: time to wait for the counts of slower probes; 0: only what is available at once.
        """
        ...


@runtime_checkable
class Lined(Protocol):
    """A backend whose frames came as lines of a recording."""

    @property
    def line(self) -> bytes:
        """Line of the latest frame."""
        ...


@runtime_checkable
class Archived(Protocol):
    """A backend whose source has earlier times."""

    def past(self) -> Past:
        """Return access to any time of the source, once it is open."""
        ...


@runtime_checkable
class Seekable(Archived, Protocol):
    """A backend that plays recordings."""

    @property
    def speed(self) -> float:
        """Factor of the original speed; 0: without waiting."""
        ...

    def hold(self) -> None:
        """Pause until `go_on`; `frames` doesn't end."""
        ...

    def go_on(self, after_us: int) -> None:
        """Continue with the first frame that ends after `after_us`."""
        ...

    async def gone_on(self) -> None:
        """After the end of `frames`, wait for `go_on`; then `frames` may be called again."""
        ...


@runtime_checkable
class Grouped(Archived, Protocol):
    """A live backend whose rows are hosts, or the devices of one host.

    Once other rows are requested, `frames` ends; after `regroup` it may be called again.
    """

    def open_row(self, name: str) -> bool:
        """Request the devices of this host; False where the row is no host."""
        ...

    def close_row(self) -> bool:
        """Request the hosts; False where they are shown."""
        ...

    def host_of(self, name: str) -> str:
        """Return the host of a row as ssh takes it; empty where the row has none."""
        ...

    async def regroup(self) -> None:
        """Read the requested rows, with an `origin` and a `past` of their own."""
        ...


@runtime_checkable
class Configured(Protocol):
    """A backend of a host whose settings can be read again."""

    async def settings(self) -> Settings:
        """Return the current settings in some seconds at most, without those whose reading hangs."""
        ...


@runtime_checkable
class TracesOnDemand(Protocol):
    """A backend that can start its tracer while it runs.

    Neither call waits or fails; the result is in the next frames (`traced.one_in`, `health.notice`).
    """

    def request_tracing(self, devices: tuple[str, ...], *, files: bool = False) -> None:
        """Trace these devices (empty: all) for a while; repeated as long as a screen shows their stages.

        `files`: the screen shows operations on files too.
        """
        ...

    def set_stages(self, mode: str) -> None:
        """Set the mode, one of STAGES_MODES."""
        ...


@dataclass(frozen=True, slots=True)
class HostPart:
    """A frame of one host of a fleet, whose wall clock is this host's."""

    label: str
    origin: Origin
    frame: Frame
    has_own_clock: bool = True
    """Whether monotonic times are those of the host itself; else they are this host's."""


SILENT_INTERVALS, SILENT_S = 1.5, 1.0
"""A backend is silent after so many intervals, and after one and SILENT_S at least: a busy host reads 0.4 s late."""


def allowed_silence_s(interval_us: int) -> float:
    """Return the seconds without a frame from which on frames are missing."""
    return max(SILENT_INTERVALS * interval_us / 1e6, interval_us / 1e6 + SILENT_S)


@runtime_checkable
class OfHosts(Protocol):
    """A backend of several hosts, whose frames are merged, and recorded apart."""

    @property
    def labels(self) -> Sequence[str]:
        """Return the names of all hosts, also of those that were never reached."""
        ...

    @property
    def states(self) -> Sequence[str]:
        """Return for each host that sends no frames its name and why."""
        ...

    def taken_by_host(self) -> Sequence[HostPart]:
        """Return the frames that the hosts have sent since the last call."""
        ...


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """Selection of `latmon trace`: all I/Os of a device, or those of one of `lba`, `file`, `pid` and `cgroup`."""

    device: str
    duration_us: int
    most: int
    """I/Os after which it ends."""
    per_s: int
    """I/Os a second above which it drops some."""
    lba: tuple[int, int] | None = None
    """First and last sector of 512 bytes of the device."""
    file: Path | None = None
    pid: int | None = None
    cgroup: str = ""
    stacks_us: int | None = None
    """Least latency of the I/Os whose kernel stacks at submission are counted; None: no stacks."""
    user_stacks: bool = False
    """Whether these have the user stacks too."""
    tools: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Has the paths of tools as Options has them."""
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


@dataclass(frozen=True, slots=True)
class TraceCost:
    """Cost of tracing to the host while it ran. None: not known."""

    seconds: float
    kernel_ns: int | None
    """Run time of the probes' programs."""
    cpu_ns: int
    """CPU time of the tool and of latmon."""


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """Cost of a probe, or of latmon itself, while it was measured. None: not known."""

    name: str
    seconds: float
    ios: int
    """I/Os that the always-on probe counted meanwhile."""
    cpu_ns: int
    """CPU time of the process: the tool, or latmon."""
    run_ns: int | None = None
    """Run time of its programs, as the kernel counts it."""
    runs: int | None = None
    """How often its programs were called."""
    calls_ns: int = 0
    """Estimated time of those calls, which the kernel does not count as run time."""
    one_in: int = 1
    """Its sample: one I/O in so many is traced, each one is counted."""

    @property
    def ns_per_io(self) -> float | None:
        """Run time of its programs for each I/O; None without I/Os."""
        return None if self.run_ns is None or not self.ios else self.run_ns / self.ios

    def percent(self, ns: int) -> float:
        """Return a time of the measurement in percent of one CPU."""
        return ns / self.seconds / 1e7


@runtime_checkable
class MeasuresCost(Protocol):
    """A backend that can measure what it costs."""

    def set_stages(self, mode: str) -> None: ...

    async def cost(self, frames: AsyncIterator[Frame], seconds: float) -> tuple[ProbeCost, ...]:
        """Measure each probe that runs, and latmon, while frames of this backend are read for so long.

        UnavailableError where the kernel does not count run times, or where a probe ends meanwhile.
        """
        ...


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """I/Os of a trace. Those in the file are the ones that completed less `dropped` and `lost`."""

    traced: int = 0
    """I/Os that match, in the file or not."""
    dropped: int = 0
    """Left out by the limit of I/Os a second."""
    lost: int = 0
    """Events that the tool lost."""
    untimed: Mapping[str, int] = field(default_factory=dict)
    """I/Os that can't be traced, by the reason why they have no times."""
    undecoded: int = 0
    completed: tuple[int, int] = (0, 0)
    """I/Os of the whole device by the kernel's counters: meanwhile, and with those at the begin and the end."""
    merged: int = 0

    @property
    def seen(self) -> int:
        """I/Os that match, with times or without."""
        return self.traced + sum(self.untimed.values())


@dataclass(frozen=True, slots=True)
class StageCoverage:
    """The probes that measure one stage here; a text that begins with NO is why none does."""

    stage: str
    always: str
    """By the always-on probe."""
    traced: Mapping[str, str]
    """By the tracer's scripts, by tier."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The report on this host: the tier ("" for none), why not a better one, stages, the tracer's hooks."""

    tier: str
    why: str
    stages: tuple[StageCoverage, ...] = ()
    hooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Driver -> how its I/Os complete, which decides what stages they have."""
    ages: Mapping[str, str] = field(default_factory=dict)
    """By tier of the tracer's scripts, those that list I/Os in flight; NO and why none does."""
    kept: str = ""
    """What later starts try first, where that is kept and how it is removed; empty where nothing is kept."""
