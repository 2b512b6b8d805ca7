"""The frame, which everything revolves around: an Origin once, then one frozen Frame per interval.

A frame holds raw facts only; quantiles, shares and findings are computed from frames by their readers, so an old
recording profits from a new rule. Times are integer microseconds unless a name says otherwise. Strings are clean.

Settings are texts by name, in sections: `kernel`, `tool`, `module NAME`, `device NAME`, `probe NAME`. Knows neither
where they are read nor where they are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths, Issue, StillInFlight

Settings = Mapping[str, Mapping[str, str]]
"""Section -> name -> value; a value that could not be read is not in it."""
NO_SETTINGS: Settings = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Mark:
    """`mono_us` is CLOCK_MONOTONIC, `wall` seconds since 1970."""

    text: str
    mono_us: int = 0
    wall: float = 0.0
    changed: Settings | None = None
    """Against the origin's settings, empty: they are as they were; None where they were not read. An empty value stands
    for one that is gone."""


OPS = ("read", "write", "flush", "discard", "other")
STAGES = ("queue", "requeue", "hba", "irq", "softirq", "completion", "resume", "total")
TABLES = ("softirqs", "handlers", "wake-ups", "issues")
"""What deep probes tell beside stages, where some are there."""
UNACCOUNTED = "unaccounted"
"""What is left of a traced request's total when its stages are taken away. Never hidden, never a stage."""


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
    queue_us: int | None = None
    """Part of `time_us` before the device had them (Solaris: wsvc_t); None where the source reports no split."""


@dataclass(frozen=True, slots=True)
class Outstanding:
    """I/Os in flight at the end of an interval; None where the kernel doesn't tell them apart."""

    in_driver: int | None
    queued: int | None

    @property
    def known(self) -> int:
        """Both together, as far as they are known."""
        return (self.in_driver or 0) + (self.queued or 0)


class Limit(NamedTuple):
    """A setting that decides how many I/Os a device may have in flight, or how they wait."""

    name: str
    """The kernel's own."""
    value: int | str
    source: str
    """Where in sysfs, from the device's directory or from its host's or controller's on."""


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
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A probe or stage that isn't measured here, and why."""

    name: str
    reason: str


TRACER_STARTING = "the tracer is starting"
STARTING = (TRACER_STARTING, "the deep probes are starting")
"""Begins of the reason why a stage is missing until the tracer runs; the second one is in recordings of 1.0."""


@dataclass(frozen=True, slots=True)
class Traced:
    """What the deep probes saw of the requests that they traced in an interval; empty while they don't run.

    The stages of a traced request are disjoint: they and `unaccounted` add up to its total, to completion. `resume`
    comes after that and is counted by itself. One population: never add it to a frame's `histograms`.
    """

    histograms: Mapping[Series, Histogram] = field(default_factory=lambda: MappingProxyType({}))
    """Per stage, and `unaccounted` and `total`."""
    by_total: Mapping[Series, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Sum in us of a stage's time by the bucket of the total of the requests that it was part of: the share of every
    stage in the I/Os above any cut. Of `total` itself the sum of all, in bucket 0. Nothing of it waits for the interval
    whose histograms have these requests, so sums over intervals are made of it."""
    unfollowed: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> why the path could not be followed -> traced requests; their time is queue and unaccounted."""
    paths: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> how requests completed (hard interrupt, BLOCK softirq, ...) -> traced requests."""
    off: int = 0
    """Followed requests whose stages miss their total by more than 1 us per stage."""
    one_in: int = 0
    """One request in so many is traced; 0: the deep probes don't run."""
    rates: tuple[int, int] = (0, 0)
    """Of a sum of intervals: the least and the largest `one_in` of those that were traced. Counts of a sum are never
    multiplied by a rate."""
    devices: tuple[str, ...] = ()
    """The only devices that are traced; empty: all."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    bio_includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """As `includes`, of devices without requests (dm, md, zram), which are timed by their bios."""
    absent: tuple[Missing, ...] = ()
    """Stages that the tracer can't measure here, and why: `TRACER_STARTING` while it starts."""

    @property
    def sampled(self) -> tuple[int, int]:
        """The least and the largest `one_in` behind these counts."""
        return self.rates if any(self.rates) else (self.one_in, self.one_in)

    def includes_of(self, device: str) -> Mapping[str, tuple[str, ...]]:
        """Only requests have paths."""
        by_request = device in self.paths or device in self.unfollowed
        return self.includes if by_request else self.bio_includes or self.includes


NAMED_FROM = 1 << 22
"""From here on a thread's number is no pid (all of Linux' are below, PID_MAX_LIMIT): it stands for its name, where
that is all that a probe knows of it."""


def pid_of(number: int) -> int | None:
    """A thread's pid by its number; None where it is known by name only."""
    return number if number < NAMED_FROM else None


@dataclass(frozen=True, slots=True)
class Wait:
    """A thread that was woken at `woken_us` (CLOCK_MONOTONIC) and ran `delay_us` later."""

    stage: str
    thread: str
    pid: int
    priority: int
    """The kernel's p->prio: 0-98 real time (49 is FIFO 50), 100-139 nice -20..19."""
    woken_us: int
    delay_us: int
    instead: str = ""
    """The thread that ran last before it on its CPU, as comm (prio N); empty when idle or not known."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """One I/O above its device's threshold. Stages in us; the ones it didn't pass or nobody measured are not in it.

    stages + unaccounted = total, which ends when the waiter runs again where that is known, else at completion.
    A None is "not known". `wall` and `mono_us` are when it began.
    """

    wall: float
    mono_us: int
    device: str
    op: str
    total_us: int
    """With `resume` where that is known. A histogram's `total`, and what makes it an outlier, ends at completion."""
    stages_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unaccounted_us: int = 0
    flags: tuple[str, ...] = ()
    """sync, fua, meta, preflush, readahead, background, in the order of the kernel's bits."""
    sector: int | None = None
    bytes: int | None = None
    pid: int | None = None
    comm: str = ""
    """Who issued it, never who happened to complete it; empty when not known."""
    cpu_issue: int | None = None
    cpu_complete: int | None = None
    outstanding_at_issue: int | None = None
    """Requests of the device in flight when it was issued, itself not counted."""
    overtaken_by: int | None = None
    """Requests of the device that were issued later and completed earlier, or fewer: what completed meanwhile less what
    was in flight at its issue, which is exact unless some of those are still in flight."""
    path: str = ""
    """How it completed: hard interrupt, BLOCK softirq, irq thread, ... or why that could not be followed."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    waits: tuple[Wait, ...] = ()
    """Threads that this I/O waited for: its completion thread, its waiter."""
    own: bool = False
    """Issued by this latmon or its probe tool: no evidence of a finding."""


UNKNOWN_IRQ = -1


class Handler(NamedTuple):
    """One irqaction: an interrupt's number and the name its driver gave."""

    irq: int
    """UNKNOWN_IRQ where the record that names the handler hasn't come yet, or was lost."""
    name: str


@dataclass(frozen=True, slots=True)
class HandlerRuns:
    """A handler's runs in an interval, whatever they returned: the ones that were not its own take time as well."""

    run: Histogram
    returned: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """none (not mine), handled, wake (its thread) -> runs."""
    before_us: int = 0
    """Victim time: how long handlers earlier on the same vector ran before the runs that were this one's own."""
    device: str = ""
    """The controller's PCI address or the block devices behind it; empty when not known."""
    shared_with: tuple[str, ...] = ()
    """The other handlers on the vector, in the order in which the kernel calls them."""


class SoftirqCpu(NamedTuple):
    """A softirq vector on a CPU."""

    vector: str
    cpu: int


@dataclass(frozen=True, slots=True)
class SoftirqRuns:
    """A softirq vector on one CPU in an interval: the wait from the first raise, the runs, and where both were."""

    delay: Histogram
    run: Histogram
    ran_in: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """irq_exit, timer (the exit of the timer's interrupt), ksoftirqd, other -> runs."""
    raised_in: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """irq, softirq, other (a thread, or an interrupt that no tracepoint shows) -> first raises."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread whose wake-ups are timed."""

    pid: int
    """From NAMED_FROM on no pid."""
    comm: str
    policy: str
    """other, fifo, rr, batch, idle, deadline; empty when not known."""
    priority: int
    kernel: bool = True


@dataclass(frozen=True, slots=True)
class Wakeups:
    """Waking -> running of one thread in an interval. `instead`: who ran before it, after delays of 1 ms and more."""

    thread: Thread
    delay: Histogram
    instead: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Taskq:
    """A task queue of a kernel of illumos or Solaris: drivers and ZFS hand their work to its threads.

    Its kstats don't say how long tasks waited. Counts are of the last `span_us`, 0 where nothing was read before.
    """

    name: str
    instance: int
    threads: int
    priority: int
    active: int
    """Threads that run a task."""
    waiting: int
    """Tasks that no thread has begun, or fewer."""
    most: int
    """The most tasks at once that were dispatched and not done, ever."""
    ever: int
    """Tasks that were executed, ever."""
    span_us: int = 0
    tasks: int = 0
    """Dispatched."""
    executed: int = 0
    time_us: int | None = None
    """How long the executed ones ran, waits not in it; None: not known."""

    @property
    def loops(self) -> bool:
        """Tasks run and none has ever ended: threads in permanent loops, of which nothing here is a latency."""
        return self.active > 0 and not self.ever


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
    suppressed: int = 0
    """I/Os above the threshold that the rate limit left out of the outliers."""
    dropped_records: int = 0
    """Records (who was woken late, when a waiter ran) for which there was no room: an outlier tells less, no count is
    wrong."""
    skipped: int | None = None
    """Probe runs that the kernel skipped because programs nested (recursion_misses)."""
    self_cpu_percent: float | None = None
    probe_ns_per_io: float | None = None
    probe_cpu_percent: float | None = None
    """Time in the deep probes' programs, in percent of one CPU (run_time_ns); None while it isn't measured."""
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
    above: Mapping[Flow, int] = field(default_factory=lambda: MappingProxyType({}))
    """I/Os above the threshold, each of them, however few `outliers` tell of; of devices that only the deep probes time
    (`timed` is False), of the I/Os that were traced."""
    outliers: tuple[Outlier, ...] = ()
    """In the order in which they began."""
    thresholds_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What makes an I/O of a device an outlier, where a probe looks for them."""
    traced: Traced = Traced()
    handlers: Mapping[Handler, HandlerRuns] = field(default_factory=lambda: MappingProxyType({}))
    softirqs: Mapping[SoftirqCpu, SoftirqRuns] = field(default_factory=lambda: MappingProxyType({}))
    wakeups: tuple[Wakeups, ...] = ()
    taskqs: tuple[Taskq, ...] | None = None
    """Task queues that were busy, as they were read in this interval; None where none were read."""
    outstanding: Mapping[str, Outstanding] = field(default_factory=lambda: MappingProxyType({}))
    depths: Mapping[str, Depths] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> how many I/Os it had outstanding over the interval; devices that were looked at, busy or not."""
    in_flight: StillInFlight | None = None
    """What has not completed, by a probe that follows requests; None while none does."""
    issues: Mapping[str, tuple[Issue, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> requests as they went to its driver, in that order: a burst of neighbours, not all of an interval."""
    devices: tuple[Device, ...] = ()
    """Devices that are new or changed since the frame before; all of them in the first frame."""
    removed: tuple[str, ...] = ()
    health: Health = Health()
    marks: tuple[Mark, ...] = ()
    """Notes that were put during the interval."""
    gap: str = ""
    """Why something of the interval is missing: probe-restart, suspended, enospc; empty when nothing is."""
    late: bool = False
    """The interval is several ones together: their ticks were read late, or not at all. Its sums are complete."""


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
    untraced: tuple[Missing, ...] = ()
    """Stages and tables (TABLES) that no deep probe of this host tells, whether they run or not, and why."""
    latency_from: str = ""
    """Where `total` begins: `queued` (the request's own stamp) or `issue` (tier C). Empty: not measured."""
    reason: str = ""
    """Why this backend and not a better one; empty when it is the best there is."""
    settings: Settings = field(default_factory=lambda: NO_SETTINGS)
    """What makes captures comparable: kernel, drivers with versions and parameters, queues, probes by their hash."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def traces_stages(self) -> bool:
        """Whether deep probes, where they run, follow I/Os through any stage; a thread that waits is none of them."""
        return not {one for one in STAGES if one not in ("resume", "total")} <= {one.name for one in self.untraced}

    def why_untraced(self, *names: str) -> str:
        """Why none of these can be traced here; empty where one can."""
        reasons = {one.name: one.reason for one in self.untraced}
        return "" if any(one not in reasons for one in names) else next((reasons[one] for one in names), "")

    @property
    def threshold_us(self) -> int | None:
        """The threshold that the user fixed, where the capture says so; an automatic one moves and is no cut."""
        told = self.extra.get("threshold_us")
        return told if type(told) is int and told >= 0 else None


MAX_BYTES = 150_000
"""Of a header's 200 kB."""
LEFT_OUT = "left out"
_EVER_CHANGING = frozenset(("clock", LEFT_OUT))
_ROOM = 100
"""For the section that tells what was left out."""


def capped(settings: Settings, most: int = MAX_BYTES) -> Settings:
    """As many whole sections, in their order, as fit; how many did not is one more section."""
    kept: dict[str, Mapping[str, str]] = {}
    size, left = _ROOM, 0
    for section, named in settings.items():
        needed = _size(section, named)
        if size + needed > most:
            left += 1
            continue
        size += needed
        kept[section] = MappingProxyType(dict(named))
    if left:
        kept[LEFT_OUT] = MappingProxyType({"sections": str(left)})
    return MappingProxyType(kept) if kept else NO_SETTINGS


def changes(before: Settings, now: Settings) -> Settings:
    """What is set differently now. What is not in `now` is no change: it may be another user's to read by now."""
    found: dict[str, Mapping[str, str]] = {}
    for section in before.keys() & now.keys() - _EVER_CHANGING:
        old, new = before[section], now[section]
        if different := {name: value for name, value in new.items() if old.get(name) != value}:
            found[section] = MappingProxyType(different)
    return MappingProxyType(dict(sorted(found.items()))) if found else NO_SETTINGS


def _size(section: str, named: Mapping[str, str]) -> int:
    """As JSON, if every character of a value were escaped as one that isn't ASCII."""
    texts = (section, *named, *named.values())
    return sum(6 + (len(one) if one.isascii() else 6 * len(one)) for one in texts)
