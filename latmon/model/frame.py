"""Frame: the measurements of one interval, the value that all of latmon produces, stores or reads.

- Backends (latmon_backends) and importers produce frames: an Origin once, then one Frame per interval, usually 1 s.
  latmon.decode makes frames of the output of bpftrace and dtrace.
- latmon.recording writes frames to a file and reads them back.
- latmon.aggregate adds frames up: the windows of the screens, roll-ups of a minute, totals of a report.
- latmon.views, latmon.report, latmon.findings, latmon.diff and latmon.exporters read frames and those sums.

A frame contains raw measurements only. Quantiles, shares and findings are computed by its readers, so that a new rule
also works on old recordings. Times are integer microseconds unless a name has another unit. Strings contain no control
characters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from latmon.model.histogram import MAX_US, Histogram
from latmon.model.host_context import NO_CONTEXT, HostContext
from latmon.model.inflight import Depths, InFlightList, Issue
from latmon.model.stages import MEASURED_STAGES
from latmon.model.stages import OPS as OPS  # noqa: PLC0414 - part of the frame's vocabulary
from latmon.model.stages import STAGES as STAGES  # noqa: PLC0414
from latmon.model.stages import UNACCOUNTED as UNACCOUNTED  # noqa: PLC0414
from latmon.model.table import NO_TABLES, Row, Table, Tables, filled
from latmon.support.text import clean

V = TypeVar("V")
_NO_ROWS: Mapping[Any, Any] = MappingProxyType({})

Settings = Mapping[str, Mapping[str, str]]
"""Section (`kernel`, `tool`, `module NAME`, `device NAME`, `probe NAME`) -> name -> value. Values that could not be
read are missing."""
NO_SETTINGS: Settings = MappingProxyType({})
TIME_OUT_COUNTER = "(device/iotmo_cnt)"
"""End of the text of a mark of time-outs: the counter in sysfs."""
KERNEL_LOG = "kernel log"
"""Name in `Origin.untraced` of the lines of the kernel's log about devices."""
_COUNTERS = (
    *("ioerr_cnt", "iotmo_cnt", "aer_", "path_failures", "media_errors", "num_err_log_entries"),
    *("warning_temp_time", "critical_comp_time", "thm_temp", "ebs_volume_performance", "ec2_instance_ebs_performance"),
)
"""Beginnings of the names of counters."""
_PROGRESS = frozenset(("sync_percent", "sync_speed", "self_test_percent", "zfs_scan_percent"))
SWAP = "swap"
"""Report of a disk with a swap area."""
LOG_DEVICE = "log_device"
"""Report of a disk with a file system whose log (XFS) or journal (ext4) is on another disk, which is its value."""
BACKING_DEVICE = "backing_device"
"""Report of a loop device: the disk with the file system that its file is on."""
TRACER_STARTING = "the tracer is starting"
"""Beginning of the reason why a stage is missing until the tracer runs."""
PROBES_STARTING = "the probes that time each I/O are starting"
"""Reason of a source that is shown until they have started."""
NAMED_FROM = 1 << 22
"""Thread numbers from here on are no pids, which Linux keeps below PID_MAX_LIMIT: they represent the names of threads
whose pid a probe doesn't know."""
NEARLY_ALL = 0.95
"""From this share of a wait on a thread counts as having had the CPU for all of it."""
_PRIORITY = re.compile(r" \(prio (\d+)\)$")
MAX_LIMITS = 4000
"""Limits of cgroups in a reading, and with a sum: cgroups are created and destroyed as long as a recording lasts."""
FILE_OPS = ("read", "write", "open", "fsync", "close", "rename", "unlink", "stat")
"""Operations on files, by the numbers that a probe's keys have."""
PATH_OPS = ("rename", "unlink", "stat")
"""Those of FILE_OPS that get a path, not a file that is open: they work in directories."""
RUNNING = "running"
"""The part of such an operation in which its thread ran."""
LOST_PATH = "…"
"""Path of an operation whose events were lost."""
_SERIES_PARTS = 3
"""Device, op, stage."""
MAX_BYTES = 150_000
"""Maximal size of the settings in a recording's header, which has 200 kB."""
LEFT_OUT = "left out"
_EVER_CHANGING = frozenset(("clock", LEFT_OUT))
_ROOM = 100
"""Bytes for the section LEFT_OUT."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A note at a point in time: `mono_us` on CLOCK_MONOTONIC, `wall` in seconds since 1970.

    It is the user's, a line of the kernel's log about a device, or time-outs of a device that the kernel counted.
    """

    text: str
    mono_us: int = 0
    wall: float = 0.0
    changed: Settings | None = None
    """Settings that differ from the origin's, with an empty value where one was removed; None where none were read."""
    device: str = ""
    """The device that a line of the kernel's log is about; empty for a note of the user."""

    @property
    def sentence(self) -> str:
        """Return the text for users, in which the kernel's lines say that they are."""
        return f"kernel, {self.device}: {self.text}" if self.device else self.text

    @property
    def is_counted(self) -> bool:
        """Return whether it is of a counter, and no line of the kernel's log."""
        return self.text.endswith(TIME_OUT_COUNTER)


ISSUERS, PROCESSES, SIZES, FILES = "issuers", "processes", "sizes", "files"
"""Names in `Origin.untraced` of what probes of a host may report in addition to stages."""


class Series(NamedTuple):
    """Key of a latency histogram. `stage` is one of STAGES; `total` is the whole latency."""

    device: str
    op: str
    stage: str


class Flow(NamedTuple):
    """Key of a count of I/Os."""

    device: str
    op: str


@dataclass(frozen=True, slots=True)
class Completed:
    """I/Os completed in an interval; a count that a source may not have is None there.

    `time_us` is the sum of their times. A further count is a field here, whose name ends with its unit, and its source:
    sums, recordings and the fleet have it then.
    """

    count: int
    bytes: int
    time_us: int | None = None
    queue_us: int | None = None
    """Part of `time_us` before the device had them (Solaris: wsvc_t); None where the source reports no split."""
    merged: int | None = None
    """Neighbours that were merged into one of them, and are not counted otherwise; None where the source has none."""

    def __add__(self, other: Completed) -> Completed:
        """Return the sum; a count that is unknown in one of them is unknown."""
        return Completed(*map(_sum_known, _counts_of(self), _counts_of(other)))


class Counted(NamedTuple):
    """Completions of a flow over several frames: all, and those of the frames in which the kernel timed them.

    Both are None where they are not known; the probe's count, which stands for the kernel's, has no times.
    """

    every: Completed | None
    timed: Completed | None


_counts_of = attrgetter(*(field.name for field in fields(Completed)))


def _sum_known(first: int | None, second: int | None) -> Any:
    return None if first is None or second is None else first + second


@dataclass(frozen=True, slots=True)
class Outstanding:
    """I/Os in flight at the end of an interval; None where the kernel has no separate count."""

    in_driver: int | None
    queued: int | None

    @property
    def known(self) -> int:
        return (self.in_driver or 0) + (self.queued or 0)

    @property
    def is_known(self) -> bool:
        """Whether the kernel has any of the counts."""
        return self.in_driver is not None or self.queued is not None


class Limit(NamedTuple):
    """A setting that decides how many I/Os a device may have in flight, or how they wait."""

    name: str
    """Name in the kernel."""
    value: int | str
    source: str
    """Path in sysfs, relative to the directory of the device, its host or its controller."""


class DeviceReport(NamedTuple):
    """A counter of errors or a state that a device, its link or its driver reports, in sysfs or by a tool."""

    name: str
    """The kernel or the tool calls it so; those of the PCIe link have `link_` or `aer_` in front."""
    value: int | str
    """A counter of the kernel's began at boot or when the device was added, that of a health log with the drive."""
    source: str
    """Path in sysfs, or the name of the tool."""

    @property
    def is_counter(self) -> bool:
        """Return whether the value counts events or time, so that its growth is known, and not a state or a gauge."""
        return self.name.startswith(_COUNTERS)

    @property
    def is_progress(self) -> bool:
        """Return whether the value is how far or how fast work of the device is, which changes all the time."""
        return self.name in _PROGRESS


MOUNTED_SYNC, MOUNTED_DIRSYNC = "mounted_sync", "mounted_dirsync"
"""Reports of a disk with a file system whose changes, or those of its directories, are synchronous by an option of its
mount (`sync`, `dirsync`): the value is the mount point."""
READ_ONLY_KIND, READ_ONLY_MOUNT = "read_only_file_system", "read_only_mount"
READ_ONLY_SINCE, READ_ONLY_CAUSE = "read_only_since", "read_only_cause"
"""Reports of a disk with a file system that the kernel made read-only after an error: its type, its mount point; the
time by RFC 3339 and the file system's own word for the error, where they are known."""
THREAD_PRIORITY, OTHER_PRIORITY, SOURCE = "thread_priority", "other_thread_priority", "source"
"""Reports of an imported device: the priority of a thread, in a text about its slow completions, and that of another
driver's completion threads in the same text; its text's format,
and the layer of its tool where that has several."""


def shown_reports(values: Mapping[str, int | str]) -> list[str]:
    """Return the names, of reports by name, that a line has: the best of a link only where it is at less than that."""
    usual = {f"{name}_best": value for name, value in values.items()}
    return [name for name, value in values.items() if usual.get(name) != value]


@dataclass(frozen=True, slots=True)
class Device:
    """A block device as an admin names it. `kind`: disk, dm, md, loop, zram, nvme-path, nvme-head, other.

    A row of many devices is one, too: `kind` host, all devices of a host.

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
    """Name of the dm or md device or of the multipath head, shown in addition to `name`."""
    limits: tuple[Limit, ...] = ()
    reports: tuple[DeviceReport, ...] = ()
    """What it reports about itself: in sysfs as of at most a minute ago, by tools that root runs as of at most ten."""
    untimed: str = ""
    """Reason why no probe of its host counts its I/Os, where other hosts of the fleet have one; empty: not so."""

    def report(self, name: str) -> DeviceReport | None:
        """Return the report of this name; None where it has none."""
        return next((report for report in self.reports if report.name == name), None)

    def reported_value(self, name: str) -> int | str | None:
        """Return the value of the report of this name; None where it has none."""
        report = self.report(name)
        return None if report is None else report.value


@dataclass(frozen=True, slots=True)
class Missing:
    """A probe or stage that isn't measured here, and why."""

    name: str
    reason: str


def missing_stages(
    measured: Collection[str],
    reasons: Mapping[str, str],
    includes: Mapping[str, Collection[str]] = MappingProxyType({}),
    otherwise: str = "this probe doesn't hook it",
) -> tuple[Missing, ...]:
    """Return the stages without a number: those of `reasons`, then each that nothing measures and no stage includes."""
    inside = {inner for stages in includes.values() for inner in stages}
    known = {stage: why for stage, why in reasons.items() if stage not in measured}
    remaining_ones = (
        stage_name
        for stage_name in MEASURED_STAGES
        if stage_name not in measured and stage_name not in known and stage_name not in inside
    )
    return tuple(Missing(stage, why) for stage, why in (known | dict.fromkeys(remaining_ones, otherwise)).items())


@dataclass(frozen=True, slots=True)
class Traced:
    """Requests traced in an interval by the on-demand tracer; empty while it doesn't run.

    The stages of a traced request are disjoint: they and `unaccounted` add up to its total, which ends at completion.
    `resume` comes after that and is counted separately. Traced requests are also in the frame's `histograms`, which
    they must not be added to.
    """

    histograms: Mapping[Series, Histogram] = field(default_factory=lambda: MappingProxyType({}))
    """Per stage, and `unaccounted` and `total`; those of FROM_SUBMISSION have a count of their own."""
    by_total: Mapping[Series, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> bucket of the requests' totals -> sum of the stage's time in us: gives the share of each stage in the
    I/Os above any latency. For `total` itself the sum of all is in bucket 0. The tracer may print this table before the
    histograms of the same requests, so sums over intervals use these times."""
    unfollowed: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> reason why the completion could not be traced -> requests; their time is in queue and unaccounted."""
    paths: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> how requests completed (hard interrupt, BLOCK softirq, ...) -> traced requests."""
    off: int = 0
    """Completely traced requests whose stages differ from their total by more than 1 us per stage."""
    one_in: int = 0
    """Sampling rate: one request in so many is traced; 0: the tracer doesn't run."""
    rates: tuple[int, int] = (0, 0)
    """In a sum of intervals: the smallest and the largest `one_in` while the tracer ran. Each interval counts by its
    `one_in`: the counts of a sum are those of one I/O in the greatest common divisor of them (model/sample.py)."""
    devices: tuple[str, ...] = ()
    """Devices that are traced; empty: all."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> the neighbour stages whose time it includes."""
    bio_includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """`includes` for devices without requests (dm, md, zram), whose bios are timed."""
    absent: tuple[Missing, ...] = ()
    """Stages that the tracer can't measure here, and why: `TRACER_STARTING` while it starts."""
    admission_causes: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> what tasks waited for before their I/Os had a request (wbt, iocost, a tag) -> us."""
    completers: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> kernel functions that completed its requests, `function < caller` -> completions, one in 64."""
    raisers: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Softirq vector -> kernel functions that raised it outside of interrupts and softirqs -> raises. Above 64 per CPU
    and second they are estimated from one in 64."""

    @property
    def sampled(self) -> tuple[int, int]:
        """The smallest and the largest sampling rate of these counts."""
        return self.rates if any(self.rates) else (self.one_in, self.one_in)

    def includes_of(self, device: str) -> Mapping[str, tuple[str, ...]]:
        """Return `includes` or `bio_includes`, depending on whether the device has requests."""
        by_request = device in self.paths or device in self.unfollowed
        return self.includes if by_request else self.bio_includes or self.includes


def pid_of(number: int) -> int | None:
    """Return a thread's pid by its number; None where it is known by name only."""
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
    """The other thread on its CPU, as comm (prio N): it ran longest if `ran_us` is known, else last; or empty."""
    ran_us: int = 0
    """The time that it ran, longer than any other thread; 0: not known, it ran last."""
    cpu: int | None = None
    """The CPU where it ran in the end."""
    policy: str = ""
    """Its scheduling policy, as Thread has it."""
    instead_policy: str = ""
    """That of the other thread."""


def comm_of(thread: str) -> str:
    """Return the name in `comm (prio N)`, which may have such words itself; all of the text without a priority."""
    return _PRIORITY.sub("", thread)


def priority_of(thread: str) -> int:
    """Return the priority in `comm (prio N)`; -1 without one."""
    named = _PRIORITY.search(thread)
    return int(named[1]) if named else -1


@dataclass(frozen=True, slots=True)
class Outlier:
    """One I/O above its device's threshold. `stages_us` has only the stages that it passed and that were measured.

    stages + unaccounted = total, which ends when the waiter runs again where that is known, else at completion.
    None is "not known". `wall` and `mono_us` are when the I/O began.
    """

    wall: float
    mono_us: int
    device: str
    op: str
    total_us: int
    """With `resume` where that is known. A histogram's `total` and the threshold refer to the time to completion."""
    stages_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    unaccounted_us: int = 0
    flags: tuple[str, ...] = ()
    """sync, fua, meta, preflush, readahead, background, in the order of the kernel's bits."""
    sector: int | None = None
    bytes: int | None = None
    pid: int | None = None
    comm: str = ""
    """Name of the process that issued it, not of the one that was interrupted by its completion; empty: not known."""
    cpu_issue: int | None = None
    cpu_complete: int | None = None
    outstanding_at_issue: int | None = None
    """Other requests of the device in flight when it was issued."""
    overtaken_by: int | None = None
    """Requests of the device that were issued later and completed earlier; a lower bound. It is the number of
    completions meanwhile minus the requests in flight at issue, and exact unless some of those are still in flight."""
    path: str = ""
    """How it completed: hard interrupt, BLOCK softirq, irq thread, ..., or the reason why that could not be traced."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    waits: tuple[Wait, ...] = ()
    """Threads whose wake-up this I/O waited for: its completion thread, its waiter."""
    own: bool = False
    """Issued by this latmon or its probe tool: no evidence of a finding."""
    admission_us: int | None = None
    """Time from its first bio's queueing until its request existed, before `mono_us`; known of `latmon trace`'s."""
    inserted_us: int | None = None
    """Time from the request until it was inserted into the scheduler's queue; None: it never was, or not known."""
    dispatch_us: int = 0
    """The part of the stage `worker` before its last issue: the wait of the kernel thread that issued it."""
    status: str = ""
    """With which it failed, as in the table `errors`; empty: it didn't, or not known. No histogram has a failed I/O."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread whose wake-ups are timed."""

    pid: int
    """A number from NAMED_FROM on is no pid."""
    comm: str
    policy: str
    """other, fifo, rr, batch, idle, deadline; empty when not known."""
    priority: int
    kernel: bool = True


IDLE, NOT_KNOWN = "idle", "idle or not known"
"""Among the threads that ran while another one waited."""


@dataclass(frozen=True, slots=True)
class Taskq:
    """A task queue of the illumos or Solaris kernel, to whose threads drivers and ZFS dispatch their work.

    Its kstats don't include how long tasks waited. Counts are those of the last `span_us`, which is 0 at first reading.
    """

    name: str
    instance: int
    threads: int
    priority: int
    active: int
    """Threads that run a task."""
    waiting: int
    """Tasks that no thread has begun; a lower bound."""
    most: int
    """The most unfinished tasks at any time since the queue was created."""
    ever: int
    """Tasks executed since the queue was created."""
    span_us: int = 0
    tasks: int = 0
    """Dispatched."""
    executed: int = 0
    time_us: int | None = None
    """Run time of the executed tasks without waits; None: not known."""

    @property
    def loops(self) -> bool:
        """Whether tasks run and none has ever ended: permanent loops, whose times are no latencies."""
        return self.active > 0 and not self.ever


@dataclass(frozen=True, slots=True)
class CgroupLimit:
    """A limit of blk-throttle on a cgroup's reads or writes of one device, and the I/Os that count towards it.

    Version 2 (io.max) counts I/Os of the cgroup and of those below it when they pass the limit, version 1
    (blkio.throttle.*) those of the cgroup alone when they are submitted, before they wait for the limit.
    """

    cgroup: str
    """Path below `root`, such as `/system.slice/backup.service`."""
    device: str
    op: str
    """read or write; discards count as writes."""
    ios_per_s: int | None
    """None: no limit."""
    bytes_per_s: int | None
    ios: int
    bytes: int
    processes: int = 0
    """Processes in the cgroup and below it: as many as were looked at."""
    names: tuple[str, ...] = ()
    """The most frequent names of the processes."""
    stalled_us: int | None = None
    """Time in which a task of the cgroup waited for I/O (io.pressure, some); None where the kernel doesn't count it."""
    root: str = ""
    """Mount point of the hierarchy."""
    version: int = 2

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return what identifies the limit across intervals."""
        return self.root, self.cgroup, self.device, self.op

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Return the limit's values. I/Os under another one are not added to these."""
        return self.ios_per_s, self.bytes_per_s

    def plus(self, later: CgroupLimit) -> CgroupLimit:
        """Return the sum of two intervals, with the limit and the processes of the later one."""
        return self._with(later, 1)

    def until(self, later: CgroupLimit) -> CgroupLimit:
        """Return the interval between two readings of absolute counters."""
        return self._with(later, -1)

    def _with(self, later: CgroupLimit, sign: int) -> CgroupLimit:
        known = self.stalled_us is not None and later.stalled_us is not None
        stalled_us = (later.stalled_us or 0) + sign * (self.stalled_us or 0) if known else None
        if stalled_us is not None and stalled_us < 0:
            stalled_us = None  # the counter fell
        ios, size = later.ios + sign * self.ios, later.bytes + sign * self.bytes
        return replace(later, ios=ios, bytes=size, stalled_us=stalled_us)


CACHED, DEVICE_BOUND = "cached", "device"
FILE_WAITS = (CACHED, DEVICE_BOUND, "unknown")
"""What a thread waited for in an operation, by the numbers that a probe's keys have. `cached`: it did not sleep and
issued no I/O, so no device kept it waiting; `device`: it issued I/O to a device and slept; `unknown`: neither can be
said. A latency decides none of them."""
FILE_WAIT_TITLES = MappingProxyType({CACHED: CACHED, DEVICE_BOUND: "I/O+waits", "unknown": "unknown"})
"""Title of each of FILE_WAITS: the time of an operation that issued I/O contains its waits for locks and a CPU too."""


OWN_IO, FOR_CPU, LOCK, JOURNAL, OTHER_IO = "own I/O", "CPU", "lock", "journal", "other I/O"
DIRTY_LIMIT, SERVER, MEMORY, FROZEN, ASLEEP = "dirty limit", "server", "memory", "frozen", "asleep"
FILE_PARTS = (OWN_IO, FOR_CPU, LOCK, JOURNAL, OTHER_IO, DIRTY_LIMIT, SERVER, MEMORY, FROZEN, ASLEEP)
"""Parts of the time of operations on files in which their thread was off its CPU; in what is left it ran.

`own I/O`: it slept for I/O and had issued some in this operation; `CPU`: it could run, and another thread did. In the
others it slept without I/O of its own, as its kernel stack names it. `lock`: of a file, a directory, the file system;
`journal`: for a commit, or for room in the log; `other I/O`: that another thread issued, or that a limit holds back;
`dirty limit`: balance_dirty_pages; `server`: of FUSE, NFS, SMB, Ceph, 9P; `memory`: for reclaim; `frozen`: fsfreeze;
`asleep`: for something else."""


class FileSplit(NamedTuple):
    """The time of an operation on a file by what its thread did; in the rest it ran."""

    own_io_us: int
    cpu_us: int
    """It waited for a CPU."""
    asleep_us: int
    """It slept without I/O of its own."""
    longest_us: int = 0
    """The longest of these sleeps."""
    wait: str = ""
    """The part of FILE_PARTS that this sleep is of; empty: it did not sleep so."""
    functions: str = ""
    """The innermost functions of its kernel stack, `function < caller < its caller`."""
    holder: str = ""
    """The thread that had the lock of the file's inode as this sleep began; empty: none, or not known."""
    holder_thread: int = 0

    def parts(self, total_us: int) -> dict[str, int]:
        """Return the parts of an operation of `total_us` that have any time, the longest one first.

        All sleep without own I/O is of the part of the longest such sleep.
        """
        running_us = max(total_us - self.own_io_us - self.cpu_us - self.asleep_us, 0)
        parts = {OWN_IO: self.own_io_us, FOR_CPU: self.cpu_us, RUNNING: running_us}
        if self.asleep_us:
            name = self.wait or ASLEEP
            parts[name] = parts.get(name, 0) + self.asleep_us
        return {name: parts[name] for name in sorted(parts, key=lambda name: -parts[name]) if parts[name]}


class FileSystem(NamedTuple):
    """A mounted file system."""

    mount: str
    """Mount point; `MAJ:MIN`, the number of its device, where latmon's mounts don't have it."""
    kind: str = ""
    """ext4, xfs, nfs4 and so on."""
    device: str = ""
    """The block device that it is on, of a partition the whole disk; empty: none, or not known."""


@dataclass(frozen=True, slots=True)
class FileOperation:
    """A slow operation on a file: the time that a program waited in its system call. `wall`, `mono_us`: its begin."""

    wall: float
    mono_us: int
    op: str
    total_us: int
    wait: str
    file_system: FileSystem
    path: str
    """The last parts of the file's path in its file system, with `…/` in front where there are more; LOST_PATH: not
    known, because the probe's events were lost."""
    pid: int | None = None
    comm: str = ""
    bytes: int | None = None
    """Bytes read or written; None for other operations."""
    offset: int | None = None
    disk: str = ""
    """The device to which the thread issued I/O meanwhile; empty: none."""
    sectors: tuple[int, int] | None = None
    """The first sector of that I/O, and the end of its last one."""
    waits: tuple[Wait, ...] = ()
    """Late wake-ups of the thread by completions of its I/O, the longest ones in the order of time."""
    split: FileSplit | None = None
    """None: not measured."""

    @property
    def until_us(self) -> int:
        """The end, on CLOCK_MONOTONIC."""
        return self.mono_us + self.total_us


@dataclass(frozen=True, slots=True)
class Health:
    """Losses and overhead of the measurement in one interval. None is "not known here", never 0."""

    probes_attached: int = 0
    probes_wanted: int = 0
    lost_events: int = 0
    map_full: int = 0
    unmatched: int = 0
    stale: int = 0
    undecoded_lines: int = 0
    dropped_frames: int = 0
    suppressed: int = 0
    """I/Os above the threshold that are missing in the outliers because of the rate limit."""
    dropped_records: int = 0
    """Records (which thread was woken late, when a waiter ran) for which there was no room: outliers lack details, no
    count is wrong."""
    full_tables: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Table of the tracer that had no room -> windows: what it says of threads, processes or stages is too small. I/Os
    are counted by the always-on probe, whose full tables are in `map_full`."""
    skipped: int | None = None
    """Probe runs that the kernel skipped because programs nested (recursion_misses)."""
    self_cpu_percent: float | None = None
    probe_ns_per_io: float | None = None
    probe_cpu_percent: float | None = None
    """Time in the tracer's programs, in percent of one CPU (run_time_ns); None while it isn't measured."""
    recording: str = ""
    """Name of the file that is recorded to; empty where none is. It may have any character."""
    recording_trouble: str = ""
    """Why nothing is written to that file at the moment, why the last recording stopped, or why it could not begin."""
    notice: str = ""
    """One sentence that the user must see: a fallback, a restart, a full disk."""

    @property
    def records(self) -> bool:
        """Whether a recording is written."""
        return bool(self.recording)

    @property
    def recording_state(self) -> str:
        """Return the file's name and the trouble for a message."""
        return ": ".join(filter(None, (self.recording, self.recording_trouble)))


@dataclass(frozen=True, slots=True)
class Frame:
    """One interval: [mono_us - dt_us, mono_us] on CLOCK_MONOTONIC, ending at wall-clock `wall` (s since 1970)."""

    seq: int
    wall: float
    mono_us: int
    dt_us: int
    histograms: Mapping[Series, Histogram] = field(default_factory=lambda: MappingProxyType({}))
    seen: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    """Completions that the probe counted, timed or not."""
    kernel: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    """Completions by the kernel's own counters (/proc/diskstats)."""
    outliers: tuple[Outlier, ...] = ()
    """Ordered by begin."""
    thresholds_us: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> latency from which on an I/O is an outlier, where a probe records outliers."""
    traced: Traced = Traced()
    taskqs: tuple[Taskq, ...] | None = None
    """Busy task queues; None where none were read in this interval."""
    cgroup_limits: tuple[CgroupLimit, ...] | None = None
    """Limits under which there was I/O; None where limits of cgroups are not read."""
    host_context: HostContext = field(default_factory=lambda: NO_CONTEXT)
    """Without what isn't measured on the host; empty where none is."""
    tables: Tables = field(default_factory=lambda: NO_TABLES)
    """Measurements per key: `frame[TABLE]` returns the rows of one (latmon.model.measurements)."""
    file_operations: tuple[FileOperation, ...] = ()
    """Slow ones, ordered by begin."""
    files_left_out: int = 0
    """Slow operations on files that are missing there because of the rate limit."""
    outstanding: Mapping[str, Outstanding] = field(default_factory=lambda: MappingProxyType({}))
    depths: Mapping[str, Depths] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> histogram of its outstanding I/Os over the interval; all devices that were sampled, busy or not."""
    in_flight: InFlightList | None = None
    """Requests that have not completed, from a probe that follows requests; None without one."""
    issues: Mapping[str, tuple[Issue, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> a burst of consecutive requests in the order of issue, a small part of the interval's."""
    devices: tuple[Device, ...] = ()
    """Devices that are new or changed since the previous frame; all of them in the first frame."""
    removed: tuple[str, ...] = ()
    health: Health = Health()
    marks: tuple[Mark, ...] = ()
    """Notes of the user during the interval."""
    gap: str = ""
    """Reason why a part of the interval is missing: probe-restart, suspended, enospc; empty: nothing is missing."""
    late: bool = False
    """The frame covers several intervals, because ticks were read late or not at all. Its sums are complete."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", filled(self.tables))

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the rows of a table; empty where it was not measured, or nothing was counted."""
        if not table.attribute:
            return self.tables.get(table, _NO_ROWS)
        rows: Mapping[Row, V] = table.attribute_of(self)
        return rows

    def with_tables(self, tables: Tables) -> Frame:
        """Return the frame with these tables in place of its own; others stay."""
        own = {table: rows for table, rows in tables.items() if not table.attribute}
        fields: dict[str, Any] = {"tables": {**self.tables, **own}} if own else {}
        of_tracer: dict[str, Any] = {}
        for table in tables.keys() - own.keys():
            name, _, name_in_traced = table.attribute.partition(".")
            if name_in_traced:
                of_tracer[name_in_traced] = tables[table]
            else:
                fields[name] = tables[table]
        if of_tracer:
            fields["traced"] = replace(self.traced, **of_tracer)
        return replace(self, **fields)


ASSUMED_LENGTH, RUNS = "assumed_length", "runs"
"""Keys of `extra["imported"]`."""
MAX_RUNS, _MAX_RUN = 100, 100
"""Runs of an import, and characters of the name of one."""


def named_series(value: object) -> Series | None:
    """Return a series by the list that a header names it by; None for anything else."""
    if not isinstance(value, list) or len(value) != _SERIES_PARTS or not all(isinstance(part, str) for part in value):
        return None
    return Series(*value)


def open_rows(imported: object) -> dict[Series, int]:
    """Return series -> where the row without an upper edge of its source begins, in us; passes over what is neither.

    `imported`: of a header's `extra`.
    """
    rows: dict[Series, int] = {}
    reported = imported.get("open") if isinstance(imported, Mapping) else None
    for row in reported if isinstance(reported, list) else ():
        if not isinstance(row, Mapping):
            continue
        series, from_us = named_series(row.get("series")), row.get("from_us")
        if series is not None and type(from_us) is int and 0 <= from_us <= MAX_US:
            rows[series] = from_us
    return rows


@dataclass(frozen=True, slots=True)
class Origin:
    """Description of a capture: host, tool and what is measured; sent once, before the first frame."""

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
    """Stages that are not measured on this host, and why."""
    probes_missing: tuple[Missing, ...] = ()
    untraced: tuple[Missing, ...] = ()
    """Stages and tables (TABLE_ROLES of latmon/manifest.py) that no tracer of this host can report, and why."""
    latency_from: str = ""
    """Begin of `total`: `queued` (the time stamp in the request) or `issue` (tier C). Empty: not measured."""
    counted: tuple[str, ...] = ()
    """Declared tables that are counted all the time, by the always-on probe or the kernel: one without rows says that
    there was nothing."""
    reason: str = ""
    """Reason why a better backend was not used; empty when this is the best one."""
    settings: Settings = field(default_factory=lambda: NO_SETTINGS)
    """Settings to compare captures by: kernel, drivers with versions and parameters, queues, probes by their hash."""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_imported(self) -> bool:
        """Return whether another tool counted what is in this recording."""
        return self.backend == "import" or "imported" in self.extra

    @property
    def assumed_length(self) -> str:
        """Return what an import assumed of the length of windows, on which rates depend; empty: nothing."""
        imported = self.extra.get("imported")
        assumed = imported.get(ASSUMED_LENGTH) if isinstance(imported, Mapping) else None
        return assumed if isinstance(assumed, str) else ""

    @property
    def runs(self) -> tuple[str, ...]:
        """Return the parts of an import that are a run each, as `latmon diff FILE@PART` takes them; none of one."""
        imported = self.extra.get("imported")
        runs = imported.get(RUNS) if isinstance(imported, Mapping) else None
        texts = runs[:MAX_RUNS] if isinstance(runs, list | tuple) else ()
        return tuple(clean(part, _MAX_RUN) for part in texts if isinstance(part, str))

    def open_from_us(self, stage: str, device: str, ops: Iterable[str]) -> int | None:
        """Return where the lowest row without an upper edge of an import begins; None without one of these series."""
        rows = open_rows(self.extra.get("imported")) if self.extra else {}
        rates = [rows[series] for op in ops if (series := Series(device, op, stage)) in rows]
        return min(rates, default=None)

    @property
    def traces_stages(self) -> bool:
        """Whether the tracer can measure any stage of an I/O; `resume` doesn't count."""
        return not {stage_name for stage_name in STAGES if stage_name not in ("resume", "total")} <= {
            missing.name for missing in self.untraced
        }

    def why_untraced(self, *names: str) -> str:
        """Return the reason why none of these can be traced here; empty where one can."""
        reasons = {missing.name: missing.reason for missing in self.untraced}
        return "" if any(name not in reasons for name in names) else next((reasons[name] for name in names), "")

    @property
    def threshold_us(self) -> int | None:
        """The outlier threshold that the user set; None where it is automatic, because it changes then."""
        reported = self.extra.get("threshold_us")
        return reported if type(reported) is int and reported >= 0 else None


def capped(settings: Settings, most: int = MAX_BYTES) -> Settings:
    """Return the whole sections that fit into `most` bytes, in order, and the number of the others as one more."""
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
    """Return the settings in `now` with another value than before; a missing one may be unreadable and is no change."""
    changed_sections: dict[str, Mapping[str, str]] = {}
    for section in before.keys() & now.keys() - _EVER_CHANGING:
        old, new = before[section], now[section]
        if different := {name: value for name, value in new.items() if old.get(name) != value}:
            changed_sections[section] = MappingProxyType(different)
    return MappingProxyType(dict(sorted(changed_sections.items()))) if changed_sections else NO_SETTINGS


def _size(section: str, named: Mapping[str, str]) -> int:
    """Return an upper bound of the section's size as JSON in bytes."""
    texts = (section, *named, *named.values())
    return sum(6 + (len(text) if text.isascii() else 6 * len(text)) for text in texts)
