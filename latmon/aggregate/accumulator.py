"""Sum over frames: the accumulator, the sums that it consists of, and the roll-up of a minute.

Merging is addition, and a frame that was added can be subtracted again, exactly. Facts that can't be added (thread,
handlers that share a vector, sampling rate) are those of the latest frame. What is of the tracer's sample is weighed
by the sampling rate of its frame (SampleRates of model/sample.py). Values that a sum returns are valid until
the next frame is added. Nothing here knows a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from latmon.aggregate.depth_sum import DepthTimes
from latmon.aggregate.table_sum import Sum, traced_of
from latmon.analysis.issue_order import LbaOrder, lba_order, merge_orders
from latmon.model.coverage import Coverage
from latmon.model.devices import busy_rows, idle_devices
from latmon.model.frame import (
    MAX_LIMITS,
    CgroupLimit,
    Completed,
    Counted,
    FileOperation,
    Flow,
    Frame,
    Health,
    Outlier,
    Series,
    Taskq,
    Traced,
)
from latmon.model.histogram import Histogram
from latmon.model.host_context import ContextValue, add_to
from latmon.model.inflight import AgedAt
from latmon.model.measurements import KERNEL, SEEN, TABLES
from latmon.model.packed_frame import (
    COVERAGE,
    FILES_LEFT_OUT,
    OFF,
    SEEN_ALONE,
    SUMMED,
    SUPPRESSED,
    PackedFrame,
    pack,
    pack_table,
    state_of,
)
from latmon.model.table import Row, Table

V = TypeVar("V")
MAX_QUEUES = 1000
"""Queues with a sum of their own: queues are created and destroyed as long as a recording lasts."""
_PARTS = 1_000_000
COUNTERS = ("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_records")
"""Counters of a frame's Health that a sum of frames has, too."""
MAX_OUTLIERS = 1000
"""Outliers kept by one accumulator."""


@dataclass
class CgroupSums:
    """Sums of the I/O under the limits of cgroups, a row per value of a limit; processes are of its latest interval."""

    read_us: int = 0
    """Time in which limits were read."""
    left_out: int = 0
    """Rows of limits beyond MAX_LIMITS."""
    _found: dict[tuple[object, ...], CgroupLimit] = field(default_factory=dict)

    def add(self, reading: Iterable[CgroupLimit] | None, dt_us: int) -> None:
        """Add what was read in an interval of `dt_us`; None where nothing was read."""
        if reading is None:
            return
        self.read_us += dt_us
        for cgroup_limit in reading:
            key = (*cgroup_limit.key, *cgroup_limit.limits)
            earlier_cgroup_limit = self._found.get(key)
            if earlier_cgroup_limit is None and len(self._found) >= MAX_LIMITS:
                self.left_out += 1
                continue
            self._found[key] = cgroup_limit if earlier_cgroup_limit is None else earlier_cgroup_limit.plus(cgroup_limit)

    @property
    def rows(self) -> tuple[CgroupLimit, ...] | None:
        """Return the sums; None where there was no reading."""
        return tuple(self._found.values()) if self.read_us else None


class TaskqSum(NamedTuple):
    """Sum over the readings of one task queue."""

    last: Taskq
    """Latest reading."""
    active: int
    """Maximum of threads that ran a task."""
    waiting: int
    """Maximum of waiting tasks."""
    tasks: int
    executed: int
    time_us: int | None
    """Run time of the executed tasks; None where it isn't known of all of them."""
    span_us: int

    @property
    def mean_us(self) -> float | None:
        """Mean run time of a task."""
        return self.time_us / self.executed if self.time_us is not None and self.executed else None

    @property
    def per_second(self) -> float | None:
        return self.executed * 1e6 / self.span_us if self.span_us else None


@dataclass
class TaskqSums:
    """Sums of all task queues over readings in order."""

    read: bool = False
    """Whether there was a reading."""
    left_out: int = 0
    """Tasks executed by queues beyond MAX_QUEUES, which are not in `rows`."""
    _found: dict[tuple[str, int], TaskqSum] = field(default_factory=dict)

    def add(self, reading: Iterable[Taskq] | None) -> None:
        if reading is None:
            return
        self.read = True
        for taskq in reading:
            key = (taskq.name, taskq.instance)
            taskq_sum = self._found.get(key)
            if taskq_sum is None and len(self._found) >= MAX_QUEUES:
                self.left_out += taskq.executed
            else:
                self._found[key] = _added(taskq_sum, taskq)

    def merge(self, sums: Iterable[TaskqSum] | None) -> None:
        """Add sums of later readings; None: there were none."""
        if sums is None:
            return
        self.read = True
        for taskq_sum in sums:
            key = (taskq_sum.last.name, taskq_sum.last.instance)
            earlier_taskq_sum = self._found.get(key)
            if earlier_taskq_sum is None and len(self._found) >= MAX_QUEUES:
                self.left_out += taskq_sum.executed
            else:
                self._found[key] = taskq_sum if earlier_taskq_sum is None else _both(earlier_taskq_sum, taskq_sum)

    @property
    def in_order(self) -> tuple[TaskqSum, ...]:
        """Sums in the order in which the queues were first read."""
        return tuple(self._found.values())

    @property
    def rows(self) -> tuple[TaskqSum, ...]:
        """Sums by the maximum of waiting tasks, permanent loops last."""
        return tuple(
            sorted(
                self._found.values(),
                key=lambda s: (s.last.loops, -s.waiting, -(s.time_us or 0), -s.executed, s.last.name, s.last.instance),
            )
        )


def summed(readings: Iterable[Iterable[Taskq] | None]) -> tuple[TaskqSum, ...] | None:
    """Return the rows of all readings; None without any."""
    sums = TaskqSums()
    for taskqs in readings:
        sums.add(taskqs)
    return sums.rows if sums.read else None


def _added(taskq_sum: TaskqSum | None, taskq: Taskq) -> TaskqSum:
    now = TaskqSum(taskq, taskq.active, taskq.waiting, taskq.tasks, taskq.executed, _time(taskq), taskq.span_us)
    return now if taskq_sum is None else _both(taskq_sum, now)


def _both(taskq_sum: TaskqSum, now: TaskqSum) -> TaskqSum:
    return TaskqSum(
        now.last,
        max(taskq_sum.active, now.active),
        max(taskq_sum.waiting, now.waiting),
        taskq_sum.tasks + now.tasks,
        taskq_sum.executed + now.executed,
        None if taskq_sum.time_us is None or now.time_us is None else taskq_sum.time_us + now.time_us,
        taskq_sum.span_us + now.span_us,
    )


def _time(taskq: Taskq) -> int | None:
    return taskq.time_us if taskq.executed else 0


@dataclass
class Weighted:
    """A weighted mean, None without values; kept as whole numbers, so the order of addition doesn't matter."""

    sum: int = 0
    """In millionths."""
    weight: int = 0

    def add(self, value: float | None, weight: int) -> None:
        """Add a value; None and values that aren't finite are skipped."""
        if value is not None and isfinite(value) and weight > 0:
            self.sum += round(value * _PARTS) * weight
            self.weight += weight

    def merge(self, other: Weighted) -> None:
        self.sum += other.sum
        self.weight += other.weight

    @property
    def mean(self) -> float | None:
        """Return the mean in the values' unit."""
        return self.sum / self.weight / _PARTS if self.weight else None


class ThresholdRange(NamedTuple):
    """The least and the greatest threshold of a device in us: an automatic one moves with the device's latencies."""

    least_us: int
    most_us: int


def note_thresholds(ranges: dict[str, ThresholdRange], later: Mapping[str, ThresholdRange]) -> None:
    """Widen the ranges by those of later frames."""
    for device, (least_us, most_us) in later.items():
        before = ranges.get(device, ThresholdRange(least_us, most_us))
        ranges[device] = ThresholdRange(min(before.least_us, least_us), max(before.most_us, most_us))


def thresholds_of(frame: Frame) -> dict[str, ThresholdRange]:
    """Return the range of each threshold in one frame."""
    return {device: ThresholdRange(us, us) for device, us in frame.thresholds_us.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """Roll-up of the frames of one minute: `frame` is their sum, the other fields are what a frame can't express.

    `frame` has the gauges and the list of I/Os in flight of the last one.
    """

    frame: Frame
    windows: int
    longest_us: int
    first_dt_us: int
    """Length of the first frame."""
    coverage: Mapping[str, Coverage] = field(default_factory=lambda: MappingProxyType({}))
    gauges: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight at the end of a frame -> us of such frames."""
    depths: Mapping[str, DepthTimes] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[str, LbaOrder] = field(default_factory=lambda: MappingProxyType({}))
    longest: Mapping[str, AgedAt] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> the I/O longest in flight at the end of a frame."""
    taskqs: tuple[TaskqSum, ...] | None = None
    """None where no task queues were read."""
    cpu: Weighted = field(default_factory=Weighted)
    probe_cpu: Weighted = field(default_factory=Weighted)
    probe_ns: Weighted = field(default_factory=Weighted)
    thresholds: Mapping[str, ThresholdRange] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> range of its threshold; `frame` has the last ones."""

    @property
    def packed(self) -> PackedFrame:
        """Return the sums of its frames' tables."""
        packed = pack(self.frame, (table for table in SUMMED if table is not COVERAGE))
        coverage = {COVERAGE: pack_table(COVERAGE, self.coverage)} if self.coverage else {}
        return replace(packed, tables={**packed.tables, **coverage})

    @property
    def mono_us(self) -> int:
        """End of the last frame."""
        return self.frame.mono_us

    @property
    def dt_us(self) -> int:
        """Time from the begin of the first frame to the end of the last one."""
        return self.frame.dt_us

    @property
    def wall(self) -> float:
        return self.frame.wall

    @property
    def histograms(self) -> Mapping[Series, Histogram]:
        return self.frame.histograms

    @property
    def seen(self) -> Mapping[Flow, Completed]:
        return self.frame.seen

    @property
    def kernel(self) -> Mapping[Flow, Completed]:
        return self.frame.kernel


@dataclass(slots=True)
class _IdleSpan:
    """Sum of consecutive frames with the same idle devices."""

    queued: Mapping[str, bool]
    """Device -> whether its queue is known."""
    us: int = 0
    busy_us: Counter[str] = field(default_factory=Counter)
    """Part of `us` in which a device was busy."""


class IdleTime:
    """Time of the frames in which devices were there and idle, which their depths don't include."""

    def __init__(self) -> None:
        self._spans: list[_IdleSpan] = []

    def __bool__(self) -> bool:
        """Return whether there was a frame that leaves out idle devices."""
        return bool(self._spans)

    def add(self, frame: Frame) -> None:
        """Add a frame."""
        queued = idle_devices(frame.depths)
        if queued is None:
            return
        if not self._spans or self._spans[-1].queued is not queued:
            self._spans.append(_IdleSpan(queued))
        span = self._spans[-1]
        span.us += frame.dt_us
        span.busy_us.update(dict.fromkeys(busy_rows(frame.depths), frame.dt_us))

    @property
    def devices(self) -> Iterable[str]:
        """Names of the devices that were idle in a frame, or had an idle row that was hidden."""
        return dict.fromkeys(name for span in self._spans for name in span.queued)

    def filled(self, busy: Mapping[str, DepthTimes], names: Iterable[str]) -> dict[str, DepthTimes]:
        """Return `busy` with the idle time of these devices."""
        depth_times = dict(busy)
        for name in names:
            if idle := self._of(name):
                depth_times[name] = DepthTimes()
                depth_times[name].merge(busy.get(name, DepthTimes()))
                _add_idle(depth_times[name], idle)
        return depth_times

    def add_to(self, sums: DepthTimes, name: str) -> None:
        """Add a device's idle time to its depths."""
        _add_idle(sums, self._of(name))

    def _of(self, name: str) -> list[tuple[int, bool]]:
        """Return the device's idle times in us, each with whether the queue is known."""
        idle_spans = ((span.us - span.busy_us[name], span.queued[name]) for span in self._spans if name in span.queued)
        return [(us, has_queue) for us, has_queue in idle_spans if us]


def _add_idle(sums: DepthTimes, idle: Iterable[tuple[int, bool]]) -> None:
    for us, has_queue in idle:
        sums.add_idle(us, has_queue=has_queue)


class SumReader(Protocol):
    """Sums of declared tables, or what computes them."""

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]: ...


def counted(sums: SumReader, flow: Flow) -> Counted:
    """Return a flow's completions over several frames: the kernel's, without any the probe's, which have no times.

    Those that the probe counted in frames without the kernel's counters, such as the first ones after a start, are
    added: without them rates were 10 % low for 10 s.
    """
    by_kernel: Completed | None = sums[KERNEL].get(flow)
    if by_kernel is not None and by_kernel.count:
        more = sums[SEEN_ALONE].get(flow)
        return Counted(by_kernel if more is None else by_kernel + more, by_kernel)
    by_probe = sums[SEEN].get(flow)
    return Counted(by_kernel, by_kernel) if by_probe is None else Counted(by_probe, by_probe)


class FrameSums(Protocol):
    """Sums of several frames, as of a block of the rules."""

    @property
    def packed(self) -> PackedFrame: ...
    @property
    def depth_sums(self) -> Mapping[str, DepthTimes]: ...
    @property
    def orders(self) -> Mapping[str, LbaOrder]: ...


class Accumulator:
    """Sum of any number of frames and roll-ups, all their values that add up; the oldest 1,000 outliers."""

    def __init__(
        self,
        interval_us: int | None = None,
        *,
        sums_gauges: bool = True,
        bound: Callable[[PackedFrame], PackedFrame] | None = None,
    ) -> None:
        """`interval_us`: upper limit of the time that the gauge of a late frame represents; None: no limit.

        `sums_gauges`: whether `gauges` is needed. `bound` leaves out rows of tables that are to be added.
        """
        self.sums = Sum(bound=bound)
        """The declared tables."""
        self.by_blocks = False
        """Whether `add_block` adds tables, depths and orders of issue; else they are added frame by frame."""
        self._sums_gauges = sums_gauges
        self._interval_us = interval_us
        self.windows = 0
        self.measured_us = 0
        """Sum of the frames' lengths."""
        self.longest_us = 0
        """Length of the longest frame."""
        self.first: Frame | None = None
        self.last: Frame | None = None
        self.gauges: dict[str, Counter[int]] = {}
        """Device -> I/Os in flight at the end of a frame -> us of such frames."""
        self.busy_depths: dict[str, DepthTimes] = {}
        """Depths of the devices that were busy in a frame, without their idle frames."""
        self.idle = IdleTime()
        self.orders: dict[str, LbaOrder] = {}
        self.outliers: list[Outlier] = []
        self.file_operations: list[FileOperation] = []
        self.thresholds_us: dict[str, int] = {}
        """The latest of each device."""
        self.thresholds: dict[str, ThresholdRange] = {}
        """Device -> range of its threshold."""
        self.counters = Counter[str]()
        self.full_tables = Counter[str]()
        """Table of the tracer that had no room -> windows."""
        self.skipped: int | None = None
        """Probe runs that the kernel skipped; None where no frame reports it."""
        self.cgroup_limits = CgroupSums()
        self.host_context: dict[str, ContextValue] = {}
        self.taskqs = TaskqSums()
        self.cpu, self.probe_cpu, self.probe_ns = Weighted(), Weighted(), Weighted()
        self._tracer = Traced()
        self._traced: Traced | None = None

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the sums of a declared table."""
        return self.sums[table]

    def add(self, frame: Frame) -> None:
        """Add a frame."""
        self.first = self.first or frame
        self.windows += 1
        self.longest_us = max(self.longest_us, frame.dt_us)
        self._add_values(frame)
        self._add_gauges(frame)
        self.taskqs.add(frame.taskqs)
        note_thresholds(self.thresholds, thresholds_of(frame))
        health = frame.health
        self.cpu.add(health.self_cpu_percent, frame.dt_us)
        self.probe_cpu.add(health.probe_cpu_percent, frame.dt_us)
        self.probe_ns.add(health.probe_ns_per_io, sum(done.count for done in frame.seen.values()))
        if not self.by_blocks:
            self._add_outstanding(frame)
            self.sums.add(pack(frame))

    def merge(self, minute: Minute) -> None:
        """Add the frames of a roll-up; `first` stays as it is."""
        self.windows += minute.windows
        self.longest_us = max(self.longest_us, minute.longest_us)
        self._add_values(minute.frame)
        for name, gauge in minute.gauges.items():
            self.gauges.setdefault(name, Counter()).update(gauge)
        self.taskqs.merge(minute.taskqs)
        note_thresholds(self.thresholds, minute.thresholds)
        self.cpu.merge(minute.cpu)
        self.probe_cpu.merge(minute.probe_cpu)
        self.probe_ns.merge(minute.probe_ns)
        if not self.by_blocks:
            self._merge_outstanding(minute.depths, minute.orders)
            self.sums.add(minute.packed)

    def add_block(self, block: FrameSums) -> None:
        """Add the tables, depths and orders of issue of frames that are added without them (`by_blocks`)."""
        self._traced = None
        self._merge_outstanding(block.depth_sums, block.orders)
        self.sums.add(block.packed)

    def counted(self, flow: Flow) -> Counted:
        """Return a flow's completions for a rate."""
        return counted(self.sums, flow)

    @property
    def traced(self) -> Traced:
        """Sums over all traced requests; the tracer's state is that of the last frame in which it ran."""
        if self._traced is None:
            self._traced = traced_of(self._tracer, self.sums, self.sums)
        return self._traced

    @property
    def depths(self) -> dict[str, DepthTimes]:
        """Return the depths of all devices over all frames."""
        return self.idle.filled(self.busy_depths, self.idle.devices)

    @property
    def frame(self) -> Frame:
        """Return the sum as one frame from the begin of the first to the end of the last; ValueError without one."""
        if self.first is None or self.last is None:
            raise ValueError("a sum of no frame")
        counters: dict[str, Any] = dict(self.counters)
        sums = self.sums
        frame = Frame(
            self.last.seq,
            self.last.wall,
            self.last.mono_us,
            self.last.mono_us - self.first.mono_us + self.first.dt_us,
            outstanding=self.last.outstanding,
            in_flight=self.last.in_flight,
            outliers=tuple(self.outliers),
            thresholds_us=self.thresholds_us,
            traced=replace(state_of(self._tracer), off=sums.counter(OFF)),
            file_operations=tuple(self.file_operations),
            files_left_out=sums.counter(FILES_LEFT_OUT),
            cgroup_limits=self.cgroup_limits.rows,
            host_context=dict(self.host_context),
            health=Health(
                suppressed=sums.counter(SUPPRESSED),
                skipped=self.skipped,
                full_tables=dict(self.full_tables),
                **counters,
            ),
        )
        return frame.with_tables({table: sums.tables[table] for table in TABLES})

    def _add_values(self, frame: Frame) -> None:
        """Add the values that a roll-up's frame has, too, but its tables."""
        self.last = frame
        self._traced = None
        self.measured_us += frame.dt_us
        for name in COUNTERS:
            self.counters[name] += getattr(frame.health, name)
        self.full_tables.update(frame.health.full_tables)
        if frame.health.skipped is not None:
            self.skipped = (self.skipped or 0) + frame.health.skipped
        self.cgroup_limits.add(frame.cgroup_limits, frame.dt_us)
        add_to(self.host_context, frame.host_context)
        self.thresholds_us.update(frame.thresholds_us)
        if frame.traced.one_in:
            self._tracer = frame.traced
        self._add_outliers(frame.outliers)
        self._add_operations(frame.file_operations)

    def _add_outliers(self, outliers: tuple[Outlier, ...]) -> None:
        self.outliers += outliers[: MAX_OUTLIERS - len(self.outliers)]

    def _add_operations(self, operations: tuple[FileOperation, ...]) -> None:
        self.file_operations += operations[: MAX_OUTLIERS - len(self.file_operations)]

    def _add_gauges(self, frame: Frame) -> None:
        # A gauge is one sample: after a stop it represents an interval, not all of the time without samples.
        limit_us = self._interval_us if frame.late else None
        for name, now in frame.outstanding.items() if self._sums_gauges else ():
            if now.is_known:
                gauge = self.gauges.setdefault(name, Counter())
                gauge[now.known] += frame.dt_us if limit_us is None else min(frame.dt_us, limit_us)

    def _add_outstanding(self, frame: Frame) -> None:
        """Add depths and orders of issue."""
        for name, depths in busy_rows(frame.depths).items():
            self.busy_depths.setdefault(name, DepthTimes()).add(depths, frame.dt_us, frame.wall)
        self.idle.add(frame)
        for name, issues in frame.issues.items():
            self._add_order(name, lba_order(issues))

    def _merge_outstanding(self, depths: Mapping[str, DepthTimes], orders: Mapping[str, LbaOrder]) -> None:
        """Add sums of depths and orders of issue."""
        for name, sums in depths.items():
            self.busy_depths.setdefault(name, DepthTimes()).merge(sums)
        for name, order in orders.items():
            self._add_order(name, order)

    def _add_order(self, name: str, order: LbaOrder) -> None:
        self.orders[name] = merge_orders((self.orders[name], order) if name in self.orders else (order,))
