"""The history of a screen: the store of frames, and sums over the selected window.

The live edge has one history; an earlier time has another one, made for that time. The running sums of on-demand values
and depths over a window are computed when they are read. A window of more than a minute loses its oldest entries in
steps of several seconds: `span_us` of a depth sum is its exact length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, Generic, TypeVar

from latmon.aggregate.depth_sum import DepthSum
from latmon.aggregate.history import (
    DepthEntry,
    DepthLog,
    DepthValues,
    EntryLog,
    LogEntry,
    OnDemandLog,
    OnDemandValues,
    Store,
    Window,
    combined,
    packed_of,
    rows_of,
)
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.table_sum import Sum, state_of, traced_of
from latmon.analysis.attribution import Folded, fold
from latmon.analysis.peers import INTERVALS, unlike
from latmon.model.devices import busy_rows
from latmon.model.frame import FILES, OPS, Device, FileOperation, Frame, Outlier, Series, Traced
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import Ages, Issue
from latmon.model.measurements import (
    LATENCIES,
    PATHS,
    SOFTIRQS,
    STAGE_TIMES,
    TRACED_LATENCIES,
    UNFOLLOWED,
)
from latmon.model.packed_frame import FILES_LEFT_OUT, SUMMED, SUPPRESSED, PackedFrame
from latmon.model.table import AnyTable, Row, Table
from latmon.recording.archive import Before, Past, Stamp, TimelineEvent, moments

PATIENCE = 8
"""Steps after which a sum that was not read is dropped."""
_BUSY_US = 10_000_000
"""A device without I/O for so long does nothing now: it is two blocks of the rules."""
_UNTRACED_US = 3_000_000
"""Frames of so much time may be without a traced I/O: a tracer that is restarted is away for a second or two."""
_STEPS = 60
"""Steps in which a window of on-demand values loses its oldest entries: up to a minute of seconds frame by frame."""

K = TypeVar("K")
S = TypeVar("S")
V = TypeVar("V")
T = TypeVar("T")
TAILS = "tails"
"""A group with a part of the traced tables: what is known of slow I/Os, without the histograms of their stages."""
_WANTED: Mapping[str, Mapping[AnyTable, Callable[[Any], bool]]] = {
    TAILS: {TRACED_LATENCIES: lambda series: series.stage == "total"}
}
"""Group -> of a table the rows that it has; those of the others are all."""
PERIODS = 12
"""Parts of a window's length for which a trend has a value."""


def _moved_in(frame: Frame) -> frozenset[str]:
    """Return the devices of which a frame has a completed I/O."""
    devices = {series.device for series in frame.histograms}
    for table in (frame.kernel, frame.seen):
        devices.update(flow.device for flow, done in busy_rows(table).items() if done.count)
    return frozenset(devices)


class RunningSums(ABC, Generic[K, S, V]):
    """Sums by key over the entries of a window; each is begun when it is read, and dropped when it is not for a while.

    It is separate from the window, because values that the window caches refer to it: without a reference cycle a
    window's frames are freed at once, and not by a full garbage collection, which would delay the answer to a key.
    """

    def __init__(self, log: EntryLog[V], step_us: int) -> None:
        """`log`: where the entries are from; `step_us`: those that end in the same step are subtracted together."""
        self.sums: dict[K, S] = {}
        self.unread: dict[K, int] = {}
        self.open: list[LogEntry[V]] = []
        self.closed: deque[Sequence[LogEntry[V]]] = deque()
        """Entries of each step, oldest first."""
        self.merged: deque[LogEntry[V]] = deque()
        """Sums of the steps before those, whose entries the log doesn't keep one by one either."""
        self._combine, self._step_us, self._fine_us = log.combine, step_us, log.fine_us

    @abstractmethod
    def _begin(self, key: K) -> S:
        """Return an empty sum."""

    @abstractmethod
    def _account(self, entry: LogEntry[V], sums: Mapping[K, S], sign: int) -> None:
        """Add the entry to these sums, or with -1 as `sign` subtract it."""

    @property
    def entries(self) -> list[LogEntry[V]]:
        """Return the window's entries, oldest first."""
        return [*self.merged, *chain.from_iterable(self.closed), *self.open]

    def read(self, key: K) -> S:
        """Return the sum of `key`, begun now where it was not read lately."""
        self.unread[key] = 0
        if key not in self.sums:
            sums_by_key = {key: self._begin(key)}
            for entry in self.entries:
                self._account(entry, sums_by_key, 1)
            self.sums |= sums_by_key
        return self.sums[key]

    def keep(self, keys: Iterable[K]) -> Iterator[None]:
        """Sum these keys as if they were read now, one entry with each step."""
        missing = {key: self._begin(key) for key in keys if key not in self.sums}
        for entry in self.entries if missing else ():
            self._account(entry, missing, 1)
            yield
        self.sums |= missing
        self.unread = dict.fromkeys(self.sums, 0)

    def add(self, entry: LogEntry[V]) -> None:
        """Add an entry, and keep it to be subtracted again."""
        if self.sums:
            self._account(entry, self.sums, 1)
        if self.open and not entry.continues(self.open[-1], self._step_us):
            self._close()
        self.open.append(entry)

    def remove(self, begin_us: int) -> None:
        """Subtract the entries of steps that end at `begin_us` or before."""
        if self.open and self.open[-1].mono_us <= begin_us:
            self._close()
        gone: list[LogEntry[V]] = []
        while self.merged and self.merged[0].mono_us <= begin_us:
            gone.append(self.merged.popleft())
        while self.closed and self.closed[0][-1].mono_us <= begin_us:
            gone += self.closed.popleft()
        for entry in gone if self.sums else ():
            self._account(entry, self.sums, -1)

    def save_memory(self, until_us: int) -> None:
        """Merge the entries of each step that is older than what the log keeps one by one.

        It takes 20 ms for ten frames of two traced devices: a new window, whose recent entries the log has anyway,
        waits for it.
        """
        while self.closed and self.closed[0][-1].mono_us <= until_us - self._fine_us:
            parts = self.closed.popleft()
            log_entry = combined(parts, self._combine)
            if len(parts) > 1:
                self._replace_parts(parts, log_entry)
            self.merged.append(log_entry)

    def _replace_parts(self, parts: Sequence[LogEntry[V]], log_entry: LogEntry[V]) -> None:
        """Have `whole` be subtracted from the sums in place of the entries that it consists of."""

    def drop_unread(self) -> None:
        """Count one step, and drop the sums that were not read in PATIENCE steps."""
        for key in list(self.sums):
            self.unread[key] += 1
            if self.unread[key] > PATIENCE:
                del self.sums[key], self.unread[key]

    def _close(self) -> None:
        self.closed.append(self.open)
        self.open = []


class RunningWindow(ABC, Generic[K, S, V]):
    """Running sums over the last `length_us` of a log, up to the frame that ends at `until_us`."""

    def __init__(self, length_us: int, log: EntryLog[V], until_us: int) -> None:
        self.length_us = length_us
        self._log = log
        self._sums = self._new_sums()
        self._until_us = -1
        self.advance(until_us)

    @abstractmethod
    def _new_sums(self) -> RunningSums[K, S, V]:
        """Return sums over nothing."""

    def advance(self, until_us: int) -> None:
        """Move to the frame that ends at `until_us`; entries that end before the window begins leave it."""
        if until_us == self._until_us:
            return
        # another boot, or the log has merged entries of which some are in the sums and some are not
        if until_us < self._until_us or self._until_us < self._log.coarse_until_us:
            self._reset()
        begin_us = until_us - self.length_us
        self._sums.drop_unread()
        for entry in self._log.between(max(self._until_us, begin_us), until_us):
            self._sums.add(entry)
        self._sums.remove(begin_us)
        if self._until_us >= 0:  # the picture of a new window comes first
            self._sums.save_memory(until_us)
        self._until_us = until_us

    def _reset(self) -> None:
        self._sums = self._new_sums()
        self._until_us = -1


def _groups() -> Mapping[str, tuple[AnyTable, ...]]:
    groups: dict[str, tuple[AnyTable, ...]] = {}
    for table in SUMMED:
        groups[table.group] = (*groups.get(table.group, ()), table)
    return {**groups, TAILS: (TRACED_LATENCIES, STAGE_TIMES, UNFOLLOWED, PATHS)}


_GROUPS = _groups()
"""Group -> its tables."""


class _GroupSums(RunningSums[str, Sum, OnDemandValues]):
    """Sums of the groups of on-demand tables that are read."""

    def copy(self) -> _GroupSums:
        other = copy(self)
        other.sums = {group: sums.copy() for group, sums in self.sums.items()}
        other.unread = dict.fromkeys(other.sums, 0)
        other.open, other.closed, other.merged = self.open.copy(), self.closed.copy(), self.merged.copy()
        return other

    def _begin(self, key: str) -> Sum:
        return Sum(_GROUPS[key], wanted=_WANTED.get(key, {}))

    def _account(self, entry: LogEntry[OnDemandValues], sums: Mapping[str, Sum], sign: int) -> None:
        packed = packed_of(entry)
        for account_sum in sums.values():
            (account_sum.add if sign > 0 else account_sum.subtract)(packed, entry.mono_us)

    def _replace_parts(self, parts: Sequence[LogEntry[OnDemandValues]], log_entry: LogEntry[OnDemandValues]) -> None:
        packed_parts, packed_whole = [packed_of(part) for part in parts], packed_of(log_entry)
        for sums in self.sums.values():
            sums.replace_parts(packed_parts, packed_whole)


class OnDemandWindow(RunningWindow[str, Sum, OnDemandValues]):
    """Sums of the on-demand values over the last `length_us` of a log.

    Its properties are computed when they are read, and valid until the window is moved. Tables are summed by group.
    """

    _log: OnDemandLog
    _sums: _GroupSums

    def __init__(self, length_us: int, log: OnDemandLog, until_us: int | None = None) -> None:
        """`until_us`: where the window ends; None: at the end of the log."""
        self._delays: deque[tuple[int, Mapping[str, Histogram]]] = deque()
        self._rows: dict[AnyTable, Mapping[Any, Any]] = {}
        last_us = log.entries[-1].mono_us if log.entries else -1
        super().__init__(length_us, log, last_us if until_us is None else until_us)

    def _new_sums(self) -> _GroupSums:
        return _GroupSums(self._log, max(self.length_us // _STEPS, 1))

    def _reset(self) -> None:
        super()._reset()
        self._delays.clear()

    def advance(self, until_us: int) -> None:
        """Move to the frame that ends at `until_us`."""
        super().advance(until_us)
        self._forget()

    def _forget(self) -> None:
        """Drop what was computed of the sums."""
        self._rows = {}
        for name in _CACHED:
            self.__dict__.pop(name, None)

    def copy(self, log: OnDemandLog) -> OnDemandWindow:
        """Return an independent window with the same sums over a copy of the log."""
        other: OnDemandWindow = copy(self)
        other._forget()
        other._log, other._sums, other._delays = log, self._sums.copy(), self._delays.copy()
        return other

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of tables that are summed now."""
        return tuple(self._sums.sums)

    def keep(self, groups: Iterable[str]) -> Iterator[None]:
        """Sum these groups as if they were read now, an entry with each step."""
        yield from self._sums.keep(groups)

    @cached_property
    def traced(self) -> Traced:
        """Sum of traced requests; `one_in` and `devices` are the latest ones: `one_in` 0 if the tracer doesn't run."""
        always = self._sums.read("always")
        return traced_of(always.latest.traced, self._sums.read(TRACED_LATENCIES.group), always)

    @cached_property
    def tails(self) -> Traced:
        """Sum of traced requests as `traced`, with the histograms of their totals alone."""
        always, tails = self._sums.read("always"), self._sums.read(TAILS)
        return replace(
            state_of(always.latest.traced, always),
            histograms=tails[TRACED_LATENCIES],
            by_total=tails[STAGE_TIMES],
            unfollowed=tails[UNFOLLOWED],
            paths=tails[PATHS],
        )

    @cached_property
    def traced_stages(self) -> frozenset[str]:
        """Names of the stages that the tracer or the always-on probe measured; needs no sum."""
        rows_by_id = {id(rows): rows for entry in self._sums.entries for rows in rows_of(entry.reported)}
        return frozenset(row.stage for rows in rows_by_id.values() for row in rows if isinstance(row, Series))

    @cached_property
    def basic(self) -> Mapping[Series, Histogram]:
        """Stages measured by the always-on probe for all I/Os; `total` is in Window."""
        return self._sums.read(LATENCIES.group)[LATENCIES]

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the sums of a declared table."""
        rows = self._rows.get(table)
        if rows is None:
            rows = self._rows[table] = self._sums.read(table.group)[table]
        return rows

    @property
    def files_left_out(self) -> int:
        return self._sums.read("always").counter(FILES_LEFT_OUT)

    @cached_property
    def file_operations(self) -> tuple[FileOperation, ...]:
        """Slow operations on files, newest last."""
        return self._log.file_operations(self._until_us - self.length_us, self._until_us)

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        """Outliers, newest last; at most the newest 10,000 of the history."""
        return self._log.outliers(self._until_us - self.length_us, self._until_us)

    @property
    def suppressed(self) -> int:
        return self._sums.read("always").counter(SUPPRESSED)

    @property
    def thresholds_us(self) -> Mapping[str, int]:
        """Thresholds in the latest frame."""
        return self._sums.read("always").latest.thresholds_us

    @cached_property
    def delays(self) -> list[tuple[int, Mapping[str, Histogram]]]:
        """Rows of a heat map, oldest first: (a frame's `mono_us`, softirq vector -> raise to entry on all CPUs)."""
        begin = self._until_us - self.length_us
        while self._delays and self._delays[0][0] <= begin:
            self._delays.popleft()
        reported = self._delays[-1][0] if self._delays else begin
        for entry in self._log.between(max(reported, begin), self._until_us):
            self._delays.append((entry.mono_us, _delays(packed_of(entry))))
        return list(self._delays)


_CACHED = tuple(name for name, value in vars(OnDemandWindow).items() if isinstance(value, cached_property))


def _delays(packed: PackedFrame) -> Mapping[str, Histogram]:
    """Return softirq vector -> raise to entry on all CPUs."""
    by_vector: dict[str, list[Histogram]] = {}
    table = packed.tables.get(SOFTIRQS)
    if table is not None:
        delays = table.histograms[SOFTIRQS.place_of("delay")]
        for where, delay in zip(delays.rows, delays.values_in_order(), strict=True):
            by_vector.setdefault(where.vector, []).append(delay)
    return {vector: merge(parts) for vector, parts in by_vector.items()}


class _DeviceDepths(RunningSums[tuple[str, bool], DepthSum, DepthValues]):
    """Depth sums of the devices that are read, by name and whether without the latency by depth."""

    def _begin(self, key: tuple[str, bool]) -> DepthSum:
        return DepthSum(brief=key[1])

    def _account(self, entry: DepthEntry, sums: Mapping[tuple[str, bool], DepthSum], sign: int) -> None:
        for (device, _), depth_sum in sums.items():
            if device in entry.reported:
                (depth_sum.add if sign > 0 else depth_sum.remove)(entry.reported[device], entry.mono_us)


class DepthWindow(RunningWindow[tuple[str, bool], DepthSum, DepthValues]):
    """Sums of the depths over the last `length_us` of a log.

    A window of more than a minute moves in the log's coarse steps, so that its figures don't change every second.
    """

    def __init__(self, length_us: int, log: DepthLog, until_us: int = 0) -> None:
        super().__init__(length_us, log, until_us)

    def _new_sums(self) -> _DeviceDepths:
        return _DeviceDepths(self._log, self._log.coarse_us if self.length_us > self._log.fine_us else 1)

    @property
    def entries(self) -> list[DepthEntry]:
        """Return the entries of all devices, oldest first."""
        return self._sums.entries

    def read(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """Return the device's sum, None where nothing was counted; a `brief` one may lack the latency by depth."""
        depth_sum = self._sums.read((device, brief and (device, False) not in self._sums.sums))
        return depth_sum if depth_sum.span_us else None


class Trends:
    """Greatest latency of each device in each of the last PERIODS parts of a window, for some operations."""

    def __init__(self, period_us: int, ops: tuple[str, ...], frames: Iterable[Frame] = ()) -> None:
        self._period_us = period_us
        self._ops = frozenset(ops)
        self._periods: deque[dict[str, float]] = deque(maxlen=PERIODS)
        self._number = -1
        for frame in frames:
            self.advance(frame)

    def copy(self) -> Trends:
        other = Trends(self._period_us, tuple(self._ops))
        other._periods.extend(period.copy() for period in self._periods)
        other._number = self._number
        return other

    def advance(self, frame: Frame) -> None:
        """Add the next frame; periods without a frame are empty."""
        number = (frame.mono_us - frame.dt_us // 2) // self._period_us
        for _ in range(min(max(number - self._number, 0), PERIODS) if self._periods else 1):
            self._periods.append({})
        self._number = number
        now = self._periods[-1]
        for name, us in _slowest(frame, self._ops):
            if us > now.get(name, -1.0):
                now[name] = us

    def bounds(self) -> tuple[float, float]:
        """Return the lowest and the highest value of all devices, to scale their trends alike."""
        values = [v for period in self._periods for v in period.values()]
        return (min(values), max(values)) if values else (1.0, 1.0)

    def of(self, device: str) -> list[float | None]:
        """Return PERIODS values, oldest first; None where nothing was completed or there was no frame yet."""
        known = [period.get(device) for period in self._periods]
        return [None] * (PERIODS - len(known)) + known


def _slowest(frame: Frame, ops: frozenset[str]) -> Iterable[tuple[str, float]]:
    if frame.histograms:
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops and histogram.buckets:
                us = histogram.max if histogram.max is not None else histogram.max_bound
                yield series.device, us or 0.0
        return
    for flow, done in busy_rows(frame.kernel).items():
        if flow.op in ops and done.count and done.time_us is not None:
            yield flow.device, done.time_us / done.count


def needed_from(at_us: int, window_us: int, interval_us: int, reach_us: int = 0) -> int:
    """Return since when frames are needed to show a window that ends at `at_us`, its comparison of peers included.

    `reach_us`: the time that the map of another size shows.
    """
    part_us = at_us * INTERVALS // window_us * window_us // INTERVALS
    return min(part_us - window_us - 2 * interval_us, at_us - reach_us)


def near(windows: Iterable[Window | None], at_us: int, length_us: int) -> Window | None:
    """Return the window closest to one that ends at `at_us`; None where a new one is cheaper."""
    near: Window | None = None
    closest_us = length_us // 3
    for window in windows:
        if window is not None and window.length_us == length_us and window.last is not None:
            distance_us = abs(window.last.mono_us - at_us)
            if distance_us < closest_us:
                near, closest_us = window, distance_us
    return near


class History:
    """The frames and sums that the screen shows."""

    def __init__(
        self,
        window_us: int,
        ops: tuple[str, ...],
        store: Store | None = None,
        waiting: Waiting | None = None,
        window: Window | None = None,
    ) -> None:
        """`window`: one of the same length that is moved to the end of the store."""
        self.store = store or Store()
        self._compared: tuple[int, dict[str, float]] = (-1, {})
        self._due_us = -1
        self._traced: Stamp | None = None
        self._with_files: Stamp | None = None
        self.why_no_files = ""
        """Why the newest frame has no operations on files although the tracer ran."""
        self._made: dict[Hashable, Any] = {}
        self._moved: dict[int, frozenset[str]] = {}
        """End of each of the last frames -> the devices with an I/O in it."""
        self._on_demand_until_us = 0
        self._waiting = waiting or Waiting()
        self.ages = Ages()
        """I/Os in flight at the end of the window."""
        self.is_partial = False
        """Whether only sums of frames are known, without traced values; of frames in memory without ages and depths."""
        self._coming: Iterator[None] | None = None
        """Sums that are missing after `look`, in steps of some milliseconds."""
        self.is_cut = False
        """Whether the archive has frames before the oldest one here."""
        if window is None:
            window = Window(window_us)
        window.move(self.store.frames)
        self._sum(window, ops)

    @property
    def until_us(self) -> int:
        """Return the end of the window in us; 0 before the first frame."""
        return self.window.last.mono_us if self.window.last else 0

    @property
    def begin_us(self) -> int:
        """Return where the oldest frame of the window begins; 0 before the first frame."""
        frames = self.window.frames
        return frames[0].mono_us - frames[0].dt_us if frames else 0

    @property
    def on_demand(self) -> OnDemandWindow:
        """Return the traced values of the window; they are summed only when they are read."""
        if self._on_demand_until_us != self.until_us:
            self._on_demand_until_us = self.until_us
            self._on_demand.advance(self.until_us)
        return self._on_demand

    @property
    def folded(self) -> list[Folded]:
        """Return the window's outliers with identical neighbours folded; made once per frame."""
        return self.made("folded", lambda: fold(self.on_demand.outliers))

    def made(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return a value derived from the sums, made once per frame. `what` names all that it depends on."""
        if what not in self._made:
            self._made[what] = make()
        cached: T = self._made[what]
        return cached

    @property
    def depth_window(self) -> DepthWindow:
        """Return the depths of the window; they are summed only when they are read."""
        self._depths.advance(self.until_us)
        return self._depths

    def depth_sum(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """Return the sum of a device's depths over the window; None where they are not measured."""
        return self.depth_window.read(device, brief=brief)

    def issues(self, device: str) -> tuple[Issue, ...]:
        """Return the last burst of issues to a device's driver."""
        return self.store.depths.burst(device, self.until_us)

    def _note_traced(self, frame: Frame) -> None:
        """Record when the tracer ran last, and when it followed operations on files."""
        if not frame.traced.one_in:
            return
        self._traced = Stamp(frame.mono_us, frame.wall)
        self.why_no_files = next((missing.reason for missing in frame.traced.absent if missing.name == FILES), "")
        if not self.why_no_files:
            self._with_files = self._traced

    @property
    def any_traced(self) -> bool:
        """Return whether a request was traced in the window; needs no sum."""
        return self._traced is not None and self._traced.mono_us > self.until_us - self.window.length_us

    def untraced_since(self, *, files: bool = False) -> Stamp | None:
        """Return when stages, or operations on files, were traced last; None where they are now, or never were."""
        stamp = self._with_files if files else self._traced
        is_over = stamp is not None and stamp.mono_us < self.until_us - _UNTRACED_US
        return stamp if is_over else None

    @property
    def interval_us(self) -> int:
        origin = self.store.origin
        return origin.interval_us if origin else 1_000_000

    @property
    def origin_us(self) -> int | None:
        """Return the begin of the capture in us; None where it isn't known."""
        origin = self.store.origin
        return origin.start_mono_us if origin and origin.start_mono_us else None

    def moments(self) -> list[TimelineEvent]:
        """Return the events of the window."""
        return self.made("moments", self._moments)

    def _moments(self) -> list[TimelineEvent]:
        timeline_events: list[TimelineEvent] = []
        before: Before | None = None
        for frame in self.window.frames:
            timeline_events += moments(frame, before)
            before = Before(frame.mono_us, frame.wall)
        return timeline_events

    def from_memory(
        self,
        at_us: int,
        window_us: int,
        ops: tuple[str, ...],
        past: Past,
        *,
        window: Window | None = None,
        reach_us: int = 0,
    ) -> History | None:
        """Return the history at the end of an earlier frame from the frames in memory; None where they are too few.

        `window`: as in the constructor; `reach_us`: the time that the map shows, as far as it is in memory.
        """
        frames, after_us = self.store.frames, needed_from(at_us, window_us, self.interval_us)
        if not frames or not len(past.stamps) or frames[-1].mono_us < at_us:
            return None
        if frames[0].mono_us > max(after_us + self.interval_us, past.stamps[0].mono_us):
            return None
        store = self.store.until(min(after_us, at_us - reach_us), at_us, past.known(after_us))
        other = History(window_us, ops, store, window=window and window.copy())
        other.is_partial = True
        if (other._due_us, window_us, ops) == (self._due_us, self.window.length_us, self._ops):
            other._compared = self._compared  # peers are compared at most every tenth second, for 20 ms
        return other if other.window.frames else None

    def append(self, frame: Frame) -> Frame:
        """Add a frame; return it as it is stored."""
        kept = self.recall(frame)
        self.ages = self._waiting.ages
        self.window.advance(kept)
        return kept

    def move(self, window: Window) -> None:
        """Sum the frames that were recalled, by a window of the same length that is moved here."""
        window.move(self.store.frames)
        self.window, self.ages = window, self._waiting.ages
        self._on_demand_until_us = 0

    def recall(self, frame: Frame) -> Frame:
        """Add a frame without the sums of the window; `move` makes them."""
        self.complete()
        if self.store.frames and frame.mono_us < self.store.frames[-1].mono_us:  # another boot
            self._waiting = Waiting()
        self._waiting.add(frame)
        kept = self.store.append(frame)
        self._note_traced(frame)
        self._made = {}
        self.trends.advance(kept)
        self._compare(kept)
        return kept

    def look(self, window_us: int, ops: tuple[str, ...]) -> None:
        """Show another window or other ops; `proceed` sums the traced values of another window."""
        if window_us != self.window.length_us:
            self.complete()
            groups = self.on_demand.groups
            self._sum(self.window.resized(window_us, self.store.frames), ops)
            self._coming, self.is_partial = self.keep_on_demand(groups), True
        elif ops != self._ops:
            self._show(ops)

    @property
    def is_summing(self) -> bool:
        """Return whether `proceed` has something to do."""
        return self._coming is not None

    def proceed(self) -> None:
        """Sum some of what is missing."""
        if self._coming is not None and next(self._coming, self) is self:
            self._coming, self.is_partial, self._made = None, False, {}

    def complete(self) -> None:
        """Sum all that is missing, before the frames change."""
        while self._coming is not None:
            self.proceed()

    def _sum(self, window: Window, ops: tuple[str, ...]) -> None:
        """Sum over a window that was moved to the end of the store."""
        self.window = window
        self._begin_on_demand()
        self._show(ops)

    def _show(self, ops: tuple[str, ...]) -> None:
        """Compute what depends on the ops; sums over the window are of each op."""
        self._ops, self._made = ops, {}
        length_us = self.window.length_us
        frames, period_us = self.frames(), max(length_us // PERIODS, 1)
        recent_us = self.until_us - length_us - 2 * period_us
        self.trends = Trends(period_us, ops, (frame for frame in frames if frame.mono_us > recent_us))
        self._part = -1
        self._compared = (-1, {})
        for shown_frame in frames:
            self._compare(shown_frame)

    def keep_on_demand(self, groups: Iterable[str]) -> Iterator[None]:
        """Sum groups of traced values that will be read again, in steps of some milliseconds."""
        yield from self.on_demand.keep(groups)

    def _begin_on_demand(self, on_demand: OnDemandWindow | None = None) -> None:
        length_us = self.window.length_us
        self._on_demand = on_demand or OnDemandWindow(length_us, self.store.on_demand, self.until_us)
        self._depths = DepthWindow(length_us, self.store.depths, self.until_us)
        self._made = {}
        self._on_demand_until_us = self.until_us

    def fork(self) -> History:
        """Return the present state as a history that doesn't change; this one continues."""
        self.complete()
        frozen, on_demand = copy(self), self._on_demand
        self.store = self.store.copy()
        self.window = self.window.copy()
        self.trends = self.trends.copy()
        self._waiting = self._waiting.copy()
        self._begin_on_demand(on_demand.copy(self.store.on_demand))
        return frozen

    def frames(self) -> list[Frame]:
        """Return all stored frames, oldest first."""
        return list(self.store.frames)

    def devices(self) -> list[Device]:
        """Return the present devices, and the removed ones with I/Os in the window."""
        return self.made("devices", self._present)

    def _present(self) -> list[Device]:
        gone = self.store.removed
        return [d for d in self.store.devices.values() if d.name not in gone or self._remembers(d.name)]

    @property
    def busy(self) -> frozenset[str]:
        """Return the devices with an I/O in flight, or completed in the last seconds; made once per frame."""
        return self.made("busy", self._busy)

    def _busy(self) -> frozenset[str]:
        last = self.window.last
        if last is None:
            return frozenset()
        busy = {name for name, now in busy_rows(last.outstanding).items() if now.known}
        moved: dict[int, frozenset[str]] = {}
        for frame in reversed(self.window.frames):
            if last.mono_us - frame.mono_us >= _BUSY_US:
                break
            devices = self._moved.get(frame.mono_us)
            moved[frame.mono_us] = _moved_in(frame) if devices is None else devices
        self._moved = moved
        return frozenset(busy.union(*moved.values()))

    def _remembers(self, name: str) -> bool:
        return any((c := self.window.completed(name, op)) and c.count for op in OPS)

    def _compare(self, frame: Frame) -> None:
        """Make the comparison of peers due with each completed part of the window."""
        part = frame.mono_us * INTERVALS // self.window.length_us
        if part != self._part:
            self._part, self._due_us = part, frame.mono_us

    @property
    def times_peers(self) -> dict[str, float]:
        """Return device -> how many times slower its tail is than its peers', as of the last part; made on reading."""
        if self.is_summing:
            return {}
        due, length_us = self._due_us, self.window.length_us
        if self._compared[0] != due:
            frames = [frame for frame in self.store.frames if due - length_us < frame.mono_us <= due]
            self._compared = (due, unlike(frames, length_us, self.store.devices, self._ops))
        return self._compared[1]
