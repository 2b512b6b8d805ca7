"""The input of rules: sums over the last minute and the blocks it consists of.

A block is 5 s (the first two are shorter), or a minute where it is made of a recording's roll-up. Every sum over the
window is computed at its first use and cached, so that rules share the work. Times are us. A device without I/O has
empty histograms. Owns no threshold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import add
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from latmon.aggregate.accumulator import (
    MAX_OUTLIERS,
    Accumulator,
    IdleTime,
    Minute,
    counted,
)
from latmon.aggregate.depth_sum import DepthTimes
from latmon.aggregate.rates import BlockRate, FrameRate, HighestRates
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.table_sum import Sum, rows_of, traced_of
from latmon.analysis.attribution import by_vector
from latmon.analysis.issue_order import LbaOrder, merge_orders
from latmon.analysis.limits import Audited, AuditGroups, audit
from latmon.analysis.littles_law import COUNTED, MeanTimes, kernel_mean_us, mean_waiting
from latmon.findings.rule import Moment
from latmon.model.devices import busy_rows
from latmon.model.frame import (
    OPS,
    CgroupLimit,
    Completed,
    Counted,
    Device,
    FileOperation,
    Flow,
    Mark,
    Origin,
    Outlier,
    Series,
    Traced,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.host_context import NO_CONTEXT, HostContext
from latmon.model.inflight import Aged, Depths
from latmon.model.measurements import KERNEL, LATENCIES, SEEN, SOFTIRQS, TRACED_LATENCIES, WAKEUPS
from latmon.model.measurements.softirqs import SoftirqRuns
from latmon.model.measurements.wakeups import Wakeups, exact_delays
from latmon.model.packed_frame import PackedFrame
from latmon.model.table import Row, Table

if TYPE_CHECKING:  # a history is made of blocks
    from latmon.findings.baseline import BaselineComparison
    from latmon.findings.changed_settings import ChangedSettings
    from latmon.findings.latency_history import LatencyHistory
    from latmon.findings.quiet_times import QuietTimes

T = TypeVar("T")
V = TypeVar("V")
GROWN_US = 600_000_000
"""Time over which counters of errors of a device are compared: they are read once a minute."""
WINDOW_US = 60_000_000
BLOCK_US = 5_000_000
_FIRST_US = (2_000_000, BLOCK_US)
"""Ends of the first two blocks: a problem that exists when a capture begins is reported within 10 s of its start."""
_MOST = 0.75
"""Share of a minute that a window without its preceding roll-up must cover."""
_SO_FAR = 0.3
"""Share of the time that a condition must last, which is enough if it was true since the window began: 3.6 s of 12."""
_MAX_GROWN = 10_000
_MAX_LINES = 1000
"""Devices of which the newest line of the kernel's log is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sums over [begin_us, end_us] on CLOCK_MONOTONIC; `wall` is the Unix time of its end."""

    begin_us: int
    end_us: int
    wall: float
    span_us: int
    """The sum of its frames' lengths: less than its own length where frames are missing."""
    packed: PackedFrame = field(default_factory=PackedFrame)
    """Sums of the declared tables."""
    depth_sums: Mapping[str, DepthTimes] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[str, LbaOrder] = field(default_factory=lambda: MappingProxyType({}))
    outliers: tuple[Outlier, ...] = ()
    file_operations: tuple[FileOperation, ...] = ()
    """Slow operations on files: a sample of them."""
    waiting: tuple[Aged, ...] = ()
    """I/Os in flight at its end, oldest first; for a minute those that waited the longest in it."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds -> count of all devices' I/Os older than that at its end; empty for a minute."""
    in_flight: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight at its end, by the gauges; empty for a minute."""
    unlisted: tuple[Aged, ...] = ()
    """I/Os in flight at its end that `older` counts and `waiting` doesn't list (Ages.unlisted); empty for a minute."""
    cgroup_limits: tuple[CgroupLimit, ...] | None = None
    """Limits under which there was I/O; None where limits of cgroups were not read."""
    limits_us: int = 0
    """The sum of the lengths of its frames in which those were read."""
    host_context: HostContext = field(default_factory=lambda: NO_CONTEXT)
    idle: IdleTime = field(default_factory=IdleTime)
    """Devices that are not in `depths`, because they did nothing."""
    rates: Mapping[str | Flow, tuple[FrameRate, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Rates of its frames by device, and by op of busy devices; empty for a minute, whose frames are not known."""
    _made: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value derived from the block, made once for all the windows that it is in; as `Facts.once`."""
        return _once(self._made, key, make)

    def depths(self, device: str) -> Depths:
        """Return a device's depth histograms in ms; empty where depths were not sampled."""
        if device not in self.depth_sums:
            return Depths()
        return self.once(("depths", device), lambda: self.depth_sums[device].depths)

    def stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """Return a stage by the always-on probe, as `Facts.stage`."""
        return self.once(("stage", stage, device, ops), lambda: merged((self[LATENCIES],), stage, device, ops))

    def traced_stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """Return a stage of the traced requests, as `Facts.traced_stage`."""
        return self.once(("traced", stage, device, ops), lambda: merged((self[TRACED_LATENCIES],), stage, device, ops))

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the rows of a declared table."""
        return self.once(table, lambda: rows_of(self.packed, table))

    def counted(self, flow: Flow) -> Counted:
        """Return the completions for a rate, as `Facts.counted`."""
        return counted(self, flow)

    def rate_of(self, device: str) -> BlockRate | None:
        """Return what a device did per second; None where it did nothing, or its latency isn't known."""
        return self.once(("rate", device), lambda: _rate_of(self, device))


def _rate_of(block: Block, device: str) -> BlockRate | None:
    counts_by_op = {op: block.counted(Flow(device, op)) for op in COUNTED}
    done = {op: counts.every for op, counts in counts_by_op.items() if counts.every is not None}
    ios = sum(completed.count for completed in done.values())
    if not ios or not block.span_us:
        return None
    timed = block.stage("total", device, *COUNTED) or block.traced_stage("total", device, *COUNTED)
    latency_us = timed.mean if timed.mean is not None else kernel_mean_us(counts_by_op.values())
    if latency_us is None:
        return None
    per_s = 1e6 / block.span_us
    size, reads = sum(completed.bytes for completed in done.values()), done["read"].count if "read" in done else 0
    return BlockRate(block.end_us, ios * per_s, size * per_s, latency_us, reads / ios)


def mean_time_of(blocks: Iterable[Block], device: str, op: str) -> MeanTimes | None:
    """Return the I/Os of an op in these blocks and their mean time, by a probe or else by the kernel; None without."""
    ios, time_us = 0, 0
    for block in blocks:
        timed = block.stage("total", device, op) or block.traced_stage("total", device, op)
        done = block.counted(Flow(device, op)).timed
        if timed and timed.sum is not None:
            ios, time_us = ios + timed.count, time_us + timed.sum
        elif done is not None and done.time_us is not None:
            ios, time_us = ios + done.count, time_us + done.time_us
    return MeanTimes(ios, time_us / ios) if ios else None


def rates_of(block: Block) -> Iterator[tuple[str, BlockRate]]:
    """Yield what each device with I/O did per second in a block."""
    for name in dict.fromkeys(flow.device for table in (KERNEL, SEEN) for flow in block[table]):
        rate = block.rate_of(name)
        if rate is not None:
            yield name, rate


def block_of(
    sums: Accumulator, waiting: Waiting, rates: Mapping[str | Flow, tuple[FrameRate, ...]] = MappingProxyType({})
) -> Block:
    """Return the sums of at least one frame as a block; `waiting` and `rates` are of the same frames.

    The block keeps parts of `sums`, which takes no more frames then. Raises ValueError without a frame.
    """
    first, last = sums.first, sums.last
    if first is None or last is None:
        raise ValueError("a block needs at least one frame")
    ages = waiting.ages
    return Block(
        begin_us=first.mono_us - first.dt_us,
        end_us=last.mono_us,
        wall=last.wall,
        span_us=sums.measured_us,
        packed=sums.sums.packed,
        depth_sums=sums.idle.filled(sums.busy_depths, sums.busy_depths),
        orders=sums.orders,
        outliers=tuple(sums.outliers),
        file_operations=tuple(sums.file_operations),
        waiting=ages.oldest,
        older=ages.older,
        in_flight={name: now.known for name, now in busy_rows(last.outstanding).items()},
        unlisted=ages.unlisted,
        cgroup_limits=sums.cgroup_limits.rows,
        limits_us=sums.cgroup_limits.read_us,
        host_context=sums.host_context,
        idle=sums.idle,
        rates=rates,
    )


def of_minute(minute: Minute, waiting: Waiting) -> Block:
    """Return a roll-up of one minute as a block, and advance `waiting` to its end."""
    frame = minute.frame
    waiting.take(frame, minute.gauges)
    longest = (aged.row for aged in minute.longest.values())
    return Block(
        begin_us=frame.mono_us - frame.dt_us,
        end_us=frame.mono_us,
        wall=frame.wall,
        span_us=frame.dt_us,
        packed=minute.packed,
        depth_sums=minute.depths,
        orders=minute.orders,
        outliers=frame.outliers[:MAX_OUTLIERS],
        file_operations=frame.file_operations[:MAX_OUTLIERS],
        waiting=tuple(sorted(longest, key=lambda row: (-row.age_us, row.device))),
        cgroup_limits=frame.cgroup_limits,
        limits_us=0 if frame.cgroup_limits is None else frame.dt_us,
        host_context=frame.host_context,
    )


def block_end(since_us: int) -> int:
    """Return the end of the block at a time, both since the capture began; a time before it is negative."""
    total = (since_us // BLOCK_US + 1) * BLOCK_US
    return next((end for end in _FIRST_US if 0 <= since_us < end), total)


def depths_of(blocks: tuple[Block, ...]) -> dict[str, DepthTimes]:
    """Return the sums of all blocks by device."""
    depths: dict[str, DepthTimes] = {}
    for block in blocks:
        for name, sums in block.depth_sums.items():
            depths.setdefault(name, DepthTimes()).merge(sums)
    for block in blocks:
        for name in depths.keys() - block.depth_sums.keys():
            block.idle.add_to(depths[name], name)
    return depths


class WindowSums:
    """Running sums over consecutive blocks: only those that enter or leave the window are added or subtracted."""

    def __init__(self, window: Iterable[Block] = ()) -> None:
        self.sums = Sum()
        self.moves = 0
        """How often the window has moved."""
        self._blocks: deque[Block] = deque()
        self.move(tuple(window))

    def move(self, window: tuple[Block, ...]) -> None:
        """Subtract the blocks before the window, and add those at its end."""
        self.moves += 1
        while self._blocks and self._blocks[0].end_us < window[0].end_us:
            gone = self._blocks.popleft()
            self.sums.subtract(gone.packed, gone.end_us)
        for block in window:
            if not self._blocks or block.end_us > self._blocks[-1].end_us:
                self.sums.add(block.packed, block.end_us)
                self._blocks.append(block)


class ReportGrowth:
    """Growth of the counters that devices report about themselves, over GROWN_US."""

    def __init__(self) -> None:
        self._grown: deque[tuple[int, str, str, int]] = deque(maxlen=_MAX_GROWN)
        """Time, device, counter, growth."""

    def add(self, before: Device | None, device: Device, mono_us: int) -> None:
        """Compare a device's new row with the one before; another device of the same name starts over."""
        if before is None or (before.serial, before.model) != (device.serial, device.model):
            return
        known = {report.name: report.value for report in before.reports}
        for report in device.reports:
            former_value = known.get(report.name)
            if (
                report.is_counter
                and isinstance(report.value, int)
                and isinstance(former_value, int)
                and report.value > former_value
            ):
                self._grown.append((mono_us, device.name, report.name, report.value - former_value))

    def clear(self) -> None:
        """Forget all, for another boot."""
        self._grown.clear()

    def until(self, mono_us: int) -> dict[str, dict[str, int]]:
        """Return device -> counter -> growth in the GROWN_US before a time."""
        growth_by_device: dict[str, dict[str, int]] = {}
        for at_us, device, name, n in self._grown:
            if mono_us - GROWN_US < at_us <= mono_us:
                of = growth_by_device.setdefault(device, {})
                of[name] = of.get(name, 0) + n
        return growth_by_device


class KernelLines:
    """The newest line of the kernel's log about each device."""

    def __init__(self) -> None:
        self.newest: dict[str, Mark] = {}
        self._removed: dict[str, Device] = {}
        """Removed devices of which there is a line: the log of a dying disk is evidence after its removal, too."""

    def note_removed(self, device: Device) -> None:
        """Keep the line of a removed device, until its name is given to another one."""
        if device.name in self.newest:
            self._removed[device.name] = device

    def note_device(self, device: Device, begin_us: int) -> None:
        """Forget the line of a removed device whose name another one got in the interval from `begin_us` on."""
        removed = self._removed.pop(device.name, None)
        if removed is None or (device.serial and device.serial == removed.serial):
            return
        if self.newest[device.name].mono_us < begin_us:
            del self.newest[device.name]

    def add(self, mark: Mark) -> None:
        """Take the next mark, which may be a note of the user, or of a counter."""
        if mark.device and not mark.is_counted and (mark.device in self.newest or len(self.newest) < _MAX_LINES):
            self.newest[mark.device] = mark


class Facts:
    """Input of rules: consecutive `blocks` without a gap up to now, oldest first and at least one, and sums of them."""

    def __init__(
        self,
        blocks: tuple[Block, ...],
        origin: Origin,
        devices: Mapping[str, Device],
        sums: WindowSums | None = None,
        *,
        off: frozenset[str] = frozenset(),
        groups: AuditGroups | None = None,
        is_newest: bool = False,
        grown: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
        highest: HighestRates | None = None,
        quiet: QuietTimes | None = None,
        changed_settings: ChangedSettings | None = None,
        history: LatencyHistory | None = None,
        comparison: BaselineComparison | None = None,
        log: Mapping[str, Mark] = MappingProxyType({}),
    ) -> None:
        """Take the blocks; running sums and groups of the devices where a caller keeps them.

        `off`: the rules that the config turns off; `is_newest`: these are the newest blocks of a longer window;
        `grown`, `highest`, `quiet`, `changed_settings`, `history`, `comparison`: as the attributes; `log`: the newest
        line of the kernel's log about each device.
        """
        self._log = log
        self._groups = groups
        self.blocks = blocks
        self.origin = origin
        self.devices = devices
        self.grown = grown
        """Device -> counter of its own reports -> growth over GROWN_US, as far as that was measured."""
        self.highest = HighestRates() if highest is None else highest
        """The highest rates of the last hour, as far as that was measured."""
        self.quiet = quiet
        """I/Os before work that runs; None where only a minute is known."""
        self.changed_settings = changed_settings
        """The newest change of each device's settings; None where only a minute is known."""
        self.history = history
        """Latencies of the last hour and their lasting changes; None where only a minute is known."""
        self.comparison = comparison
        """Comparison with recordings of another day; None without --baseline."""
        self.off = off
        """Rules that report nothing, so that no other one may leave a finding to them."""
        self.window = _window(blocks, origin)
        """The blocks of the last minute, or one block that is as long."""
        self.is_newest = is_newest
        if sums is not None:
            sums.move(self.window)
        self._running, self._moves = sums, sums.moves if sums is not None else 0
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a value derived from the facts, made once for all rules. `key` names all else it depends on."""
        return _once(self._made, key, make)

    def newest(self, n: int) -> Facts:
        """Return the facts of the window's newest `n` blocks alone."""
        blocks, origin, devices = self.window[-n:], self.origin, self.devices
        return self.once(
            ("newest", n),
            lambda: Facts(
                blocks,
                origin,
                devices,
                off=self.off,
                groups=self._groups,
                is_newest=True,
                grown=self.grown,
                highest=self.highest,
                quiet=self.quiet,
                changed_settings=self.changed_settings,
                history=self.history,
                comparison=self.comparison,
                log=self._log,
            ),
        )

    @property
    def end_us(self) -> int:
        return self.blocks[-1].end_us

    @property
    def wall(self) -> float:
        return self.blocks[-1].wall

    @property
    def span_us(self) -> int:
        """Return the measured length of the window."""
        return sum(block.span_us for block in self.window)

    @property
    def is_sun(self) -> bool:
        """Return whether the host runs illumos or Solaris: its drivers, tools and settings have other names."""
        return self.origin.kernel.startswith("SunOS")

    @cached_property
    def busy(self) -> tuple[str, ...]:
        """Return the devices with an I/O in the window that the always-on probe timed or the tracer traced."""
        devices = {series.device for series in self._sums[LATENCIES]}
        devices |= {series.device for series in self._sums[TRACED_LATENCIES]}
        return tuple(sorted(devices))

    def has_io(self, device: str) -> bool:
        """Return whether the device is one of `busy`."""
        return device in self._busy

    @cached_property
    def _busy(self) -> frozenset[str]:
        return frozenset(self.busy)

    def latency(self, device: str, *ops: str) -> Histogram:
        """Return the latency to completion by the always-on probe, or by the tracer without it. No op: all ops."""
        histogram = self.stage("total", device, *ops)
        return histogram or self.traced_stage("total", device, *ops)

    def stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """Return a stage by the always-on probe; hba may include irq, softirq and completion (Origin.measured)."""
        return self.once(("stage", stage, device, ops), lambda: self._stage(stage, device, ops or OPS))

    def _stage(self, stage: str, device: str, ops: tuple[str, ...]) -> Histogram:
        """Return the I/Os of a stage; those of a row without an upper edge took at least its lower edge."""
        total = self._sums.histograms(LATENCIES).merged(Series(device, op, stage) for op in ops)
        from_us = self.open_from_us(stage, device, *ops)
        return total if from_us is None else total.with_last_row_from(from_us)

    def open_from_us(self, stage: str, device: str, *ops: str) -> int | None:
        """Return the lower edge of a row without an upper one of an imported stage; None without such a row."""
        return self.origin.open_from_us(stage, device, ops or OPS)

    def traced_stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """Return a stage, `total` or `unaccounted` of the traced requests. No op: all ops."""
        tables = (self.traced.histograms,)
        return self.once(("traced", stage, device, ops), lambda: merged(tables, stage, device, ops))

    def stage_with_longest(self, stage: str, device: str) -> Histogram:
        """Return `traced_stage` with its exact maximum, where the recorded outliers show it."""
        times = (outlier.stages_us[stage] for outlier in self.outliers(device) if stage in outlier.stages_us)
        return self.traced_stage(stage, device).with_longest(times)

    def whole(self, device: str, *ops: str) -> Histogram:
        """Return `latency` over all blocks, which may be longer than the window."""
        is_window = len(self.blocks) == len(self.window)
        return self.latency(device, *ops) if is_window else merge(self.parts(device, *ops))

    def parts(self, device: str, *ops: str) -> list[Histogram]:
        """Return `latency` block by block over all blocks, oldest first."""

        def parts() -> list[Histogram]:
            timed = [block.stage("total", device, *ops) for block in self.blocks]
            return timed if any(timed) else [block.traced_stage("total", device, *ops) for block in self.blocks]

        return self.once(("parts", device, ops), parts)

    def completed(self, device: str, *ops: str) -> Completed | None:
        """Return the completions by the kernel's counters, else by the probe's; None where neither counted."""
        return _completed((self._sums[KERNEL], self._sums[SEEN]), device, ops)

    def counted(self, flow: Flow) -> Counted:
        """Return the completions for a rate over the window, as `accumulator.counted`."""
        return counted(self._sums, flow)

    @property
    def _sums(self) -> Sum:
        """Return the sums of the window: the running ones, until these move on to the next window."""
        running = self._running
        return running.sums if running is not None and running.moves == self._moves else self._own_sums

    @cached_property
    def _own_sums(self) -> Sum:
        return WindowSums(self.window).sums

    @cached_property
    def traced(self) -> Traced:
        """Return the sums of the tracer; `one_in` is 0 where nothing was traced."""
        return traced_of(self._sums.latest.traced, self._sums, self._sums)

    @cached_property
    def traced_devices(self) -> frozenset[str]:
        """Return the devices with traced requests."""
        return frozenset(series.device for series in self.traced.histograms)

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the sums of a declared table."""
        return self.once(table, lambda: self._sums[table])

    @cached_property
    def vectors(self) -> Mapping[str, SoftirqRuns]:
        """Return the softirqs of all CPUs by vector."""
        return by_vector(self[SOFTIRQS])

    @cached_property
    def thresholds_us(self) -> Mapping[str, int]:
        return self._sums.latest.thresholds_us

    def highest_threshold_us(self, device: str) -> int | None:
        """Return the highest threshold that a device had at the end of a block; None where none is known."""
        values = (block.packed.thresholds_us.get(device) for block in self.window)
        return max((us for us in values if us is not None), default=None)

    @cached_property
    def depth_sums(self) -> Mapping[str, DepthTimes]:
        """Return the depth histograms by device; their unit is us."""
        return depths_of(self.window)

    def device(self, name: str) -> Device:
        """Return a device by name; one without driver, limits and numbers where it is not known."""
        return self.devices.get(name) or Device(name, 0, 0)

    def kernel_line(self, device: str) -> Mark | None:
        """Return the newest line of the kernel's log about a device, where it is of the last GROWN_US."""
        line = self._log.get(device)
        return line if line is not None and line.wall > self.wall - GROWN_US / 1e6 else None

    def lasted_us(self, holds: Callable[[Block], bool]) -> int:
        """Return the measured time of the window's blocks for which a condition holds."""
        return sum(block.span_us for block in self.window if holds(block))

    def lasts(self, us: float, least_us: float, span_us: int | None = None) -> bool:
        """Return whether a condition that was true for `us` lasted for `least_us`, or for all of `span_us` (window).

        A capture that begins in the middle of a problem reports it early: what is true in two blocks from its begin on
        is reported after _SO_FAR of `least_us`, as long as it is true. A burst that ends is withdrawn.
        """
        so_far = us >= (self.span_us if span_us is None else span_us)
        return us >= (_SO_FAR * least_us if so_far and len(self.window) > 1 else least_us)

    def depths(self, device: str) -> Depths:
        """Return a device's depth histograms in ms; empty where depths were not sampled."""
        return self._depths.get(device, Depths())

    @cached_property
    def audited(self) -> tuple[Audited, ...]:
        """Return an audit of each device with limits, by name."""
        uncounted = (name for name, depths in self._depths.items() if not depths.queued)
        waiting = {name: mean_waiting_in(self, name) for name in uncounted} if self[TRACED_LATENCIES] else {}
        return audit(
            self.devices.values(), self._depths, waiting=waiting, settings=self.origin.settings, groups=self._groups
        )

    @cached_property
    def _depths(self) -> dict[str, Depths]:
        return {name: sums.depths for name, sums in self.depth_sums.items()}

    def outliers(self, device: str = "") -> tuple[Outlier, ...]:
        """Return the recorded outliers without latmon's own: a sample of the slow I/Os. No device: all devices."""
        return self._outliers_by_device.get(device, ())

    @cached_property
    def _outliers_by_device(self) -> Mapping[str, tuple[Outlier, ...]]:
        """Return the recorded outliers of each device without latmon's own, those of all as the empty name's."""
        all_outliers = tuple(outlier for block in self.window for outlier in block.outliers if not outlier.own)
        by_device: dict[str, list[Outlier]] = {}
        for outlier in all_outliers:
            by_device.setdefault(outlier.device, []).append(outlier)
        return {**{name: tuple(outliers) for name, outliers in by_device.items()}, "": all_outliers}

    def moment(self, mono_us: int) -> Moment:
        """Return a time on CLOCK_MONOTONIC of the window by both clocks."""
        return Moment(mono_us, self.wall - (self.end_us - mono_us) / 1e6)

    @cached_property
    def wakeups(self) -> tuple[Wakeups, ...]:
        """Return the wake-ups of each thread, the longest delay exact where a recorded outlier waited for it."""
        return tuple(exact_delays(self[WAKEUPS].values(), self.outliers()))

    @cached_property
    def file_operations(self) -> tuple[FileOperation, ...]:
        """Slow operations on files that were recorded: a sample of them."""
        return tuple(operation for block in self.window for operation in block.file_operations)

    @cached_property
    def waiting(self) -> tuple[Aged, ...]:
        """Return the I/Os in flight, oldest first, without latmon's own."""
        return tuple(aged for aged in self.blocks[-1].waiting if aged.request is None or not aged.request.own)

    @cached_property
    def older(self) -> Mapping[int, int]:
        """Return seconds -> count of all devices' I/Os in flight for longer than that, without latmon's own."""
        last = self.blocks[-1]
        own = [aged.age_us for aged in last.waiting if aged.request is not None and aged.request.own]
        return {age_s: max(0, n - sum(us > age_s * 1_000_000 for us in own)) for age_s, n in last.older.items()}

    def order(self, device: str) -> LbaOrder | None:
        """Return the order of issue against arrival and LBA; None where no burst was recorded."""
        lba_orders = [block.orders[device] for block in self.window if device in block.orders]
        return merge_orders(lba_orders) if lba_orders else None


def _once(kept_values: dict[Hashable, Any], key: Hashable, make: Callable[[], T]) -> T:
    if key not in kept_values:
        kept_values[key] = make()
    once: T = kept_values[key]
    return once


def mean_waiting_in(part: Facts | Block, device: str) -> float | None:
    """Return the mean number of I/Os that wait above a driver which doesn't count them; None as for `mean_waiting`."""

    def waiting() -> float | None:
        ios = sum(done.count for op in COUNTED if (done := part.counted(Flow(device, op)).every) is not None)
        return mean_waiting(part[TRACED_LATENCIES], device, ios, part.span_us)

    return part.once(("mean waiting", device), waiting)


def _completed(tables: Iterable[Mapping[Flow, Completed]], device: str, ops: tuple[str, ...]) -> Completed | None:
    """Return the completions in the first table that counted the device; None where none did. No op: all ops."""
    for table in tables:
        completions = [table[flow] for op in ops or OPS if (flow := Flow(device, op)) in table]
        if completions:
            return reduce(add, completions)
    return None


def in_window(block: Block, end_us: int, origin: Origin) -> bool:
    """Return whether a block lies in the minute before `end_us`, with half a frame of tolerance for clock jitter."""
    return block.begin_us >= end_us - WINDOW_US - min(origin.interval_us, BLOCK_US) // 2


def _window(blocks: tuple[Block, ...], origin: Origin) -> tuple[Block, ...]:
    """Return the blocks of the last minute.

    A roll-up can't be cut: it stays in the window until the blocks after it cover most of a minute.
    """
    end_us = blocks[-1].end_us
    window_blocks = tuple(block for block in blocks if in_window(block, end_us, origin)) or blocks[-1:]
    before = blocks[-len(window_blocks) - 1 : -len(window_blocks)]
    short = end_us - window_blocks[0].begin_us < _MOST * WINDOW_US
    has_long_block = any(block.end_us - block.begin_us > 2 * BLOCK_US for block in before)
    return (*before, *window_blocks) if short and has_long_block else window_blocks


def merged(
    tables: Iterable[Mapping[Series, Histogram]], stage: str, device: str, ops: tuple[str, ...] = ()
) -> Histogram:
    """Merge a device's histograms of one stage in all tables; no op: all ops."""
    all_series = [Series(device, op, stage) for op in ops or OPS]
    return merge(table[series] for table in tables for series in all_series if series in table)
