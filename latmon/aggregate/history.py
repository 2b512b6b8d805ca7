"""History of the last 11 minutes in bounded memory: Store with its frames and two logs, and Window, a sum of frames.

Frames are kept without the stages that no view needs (24 devices x 3 stages x 1 h would be 300 MB) and without
on-demand values and depth histograms, which are in OnDemandLog and DepthLog.

The on-demand values of a frame are hundreds of histograms (24 devices x 2 ops x 7 stages); as objects, eleven minutes
of them would be 200 MB. The log has arrays, and for frames older than a minute compressed sums of ten seconds: sums
of windows stay exact, but the begin of a long window is rounded to a sixtieth of its length. The
newest 10,000 outliers are kept. Depths older than a minute are sums of five seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Generic, TypeVar

from latmon.aggregate.accumulator import COUNTERS, counted
from latmon.aggregate.depth_sum import DepthSum, PackedDepths, packed
from latmon.aggregate.histogram_sum import Peak, maximum_of
from latmon.aggregate.table_sum import Sum
from latmon.model.coverage import total
from latmon.model.devices import WithIdle, busy_rows, idle_devices
from latmon.model.frame import (
    Completed,
    Counted,
    Device,
    FileOperation,
    Flow,
    Frame,
    Health,
    Origin,
    Outlier,
    Series,
    Traced,
)
from latmon.model.histogram import Histogram
from latmon.model.inflight import Depths, InFlight, InFlightList, Issue
from latmon.model.measurements import ERRORS, KERNEL, LATENCIES, SEEN
from latmon.model.packed_frame import (
    COMPLETION_TABLES,
    COVERAGE,
    SUMMED,
    PackedFrame,
    PackedTable,
    Pressed,
    RowCounts,
    pack,
)
from latmon.model.table import AnyTable, Row, Table

MAX_OUTLIERS = 10_000
"""About 9 MB; a flood at the probes' own rate limit fills them in 100 s."""
_TIDY = 256
"""Frames between two removals of shared keys that are no longer used."""
BURSTS = 8
"""Bursts kept of each device: a paused screen shows an older one."""
MAX_BURST = 512
"""Issues kept of a burst; a probe reports fewer, a recording may contain any number."""
_DEVICES = 64

V = TypeVar("V")
OnDemandValues = PackedFrame | Pressed | Frame
"""On-demand values of an entry: a frame only in a brief log, whose tables may never be read."""
_LOGGED: tuple[AnyTable, ...] = (LATENCIES, *(table for table in SUMMED if table not in COMPLETION_TABLES))
"""Tables of a log: of latencies it has the stages, because the store's frames have the totals, and completions."""
_stamp = itemgetter(0)
DepthValues = Mapping[str, PackedDepths]
"""Device -> its depths."""
KEEP_US = 11 * 60 * 1_000_000
"""Time for which frames are kept: the longest window and a little more; 24 devices take about 25 MB."""
MAX_FRAMES = 5_000
_BURST_IOS = 50
"""I/Os of a window that the probe may count more than the kernel without counting any twice: those of a burst between
the readings of the two counters. 15 were seen on a quiet host, so that three times as many are tolerated."""
_ENDS_US = 40_000
"""Time that the kernel's counters may lack at the two ends of a window, as each may be read 20 ms after the probe's:
102 % was seen in one second of 6,000 fdatasyncs, and 99 % in the next."""
_AT_ENDS = 10
"""I/Os that complete between the readings of the two counters at a window's ends: 1 of 6 was seen on an idle host."""
_NONE_SEEN = 3
"""Most I/Os of the kernel that may all be such ones: a probe that misses more than these misses everything."""
_MAX_PAIRS = 1 << 16
_MAX_IN_FLIGHT = 1 << 12
_KEPT_TABLES = (*COMPLETION_TABLES, ERRORS)
"""Tables of the kept frames: the columns of a map read them."""
_WITHOUT_ON_DEMAND: dict[str, Any] = {
    "outliers": (),
    "traced": Traced(),
    "file_operations": (),
    "files_left_out": 0,
    "depths": {},
    "issues": {},
}
_HEALTH_COUNTERS = (*COUNTERS, "dropped_frames", "suppressed")
_health_counts = attrgetter(*_HEALTH_COUNTERS)


@dataclass(frozen=True, slots=True)
class LogEntry(Generic[V]):
    """Values of one frame, or the sum of consecutive frames: from `begin_us` to `mono_us` on CLOCK_MONOTONIC."""

    begin_us: int
    mono_us: int
    reported: V

    def continues(self, last: LogEntry[V], step_us: int) -> bool:
        """Return whether this entry follows `last` without a missing frame and ends in the same step of time."""
        hole = self.begin_us - last.mono_us > (self.mono_us - self.begin_us) / 2
        return not hole and self.mono_us // step_us == last.mono_us // step_us


Combine = Callable[[Sequence[LogEntry[V]]], V]
"""Entries that follow each other -> the sum of their values."""


def combined(parts: Sequence[LogEntry[V]], combine: Combine[V]) -> LogEntry[V]:
    """Merge entries that follow each other into one."""
    return parts[0] if len(parts) == 1 else LogEntry(parts[0].begin_us, parts[-1].mono_us, combine(parts))


class EntryLog(Generic[V]):
    """Entries of the last frames one by one, of older ones as sums of some seconds; `forget` bounds it."""

    fine_us: ClassVar[int]
    """Age up to which every frame is an entry of its own."""
    coarse_us: ClassVar[int]
    """Length of the entries of older frames."""

    def __init__(self, combine: Combine[V]) -> None:
        self.combine = combine
        self.entries: deque[LogEntry[V]] = deque()
        self._ageing: list[LogEntry[V]] = []
        self._old: deque[LogEntry[V]] = deque()

    def forget(self, before_us: int) -> None:
        """Drop entries that end before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()

    def clear(self) -> None:
        for log_entries in (self.entries, self._ageing, self._old):
            log_entries.clear()

    @property
    def coarse_until_us(self) -> int:
        """End of the entries that are sums of several frames; -1 without any."""
        return self._old[-1].mono_us if self._old else -1

    def every(self) -> list[LogEntry[V]]:
        """Return all entries, oldest first."""
        return [*self._old, *self._ageing, *self.entries]

    def between(self, after_us: int, until_us: int) -> list[LogEntry[V]]:
        """Return the entries that end in (after_us, until_us], oldest first; the first may begin earlier."""
        log_entries = self.entries if self.entries and after_us >= self.entries[0].mono_us else self.every()
        return [log_entry for log_entry in log_entries if after_us < log_entry.mono_us <= until_us]

    def _copy_to(self, other: EntryLog[V]) -> None:
        other.entries, other._ageing, other._old = self.entries.copy(), self._ageing.copy(), self._old.copy()

    def _age(self, now_us: int) -> None:
        """Merge entries that are no longer recent."""
        while self.entries and self.entries[0].mono_us <= now_us - self.fine_us:
            log_entry = self.entries.popleft()
            if self._ageing and not log_entry.continues(self._ageing[-1], self.coarse_us):
                self._old.append(combined(self._ageing, self.combine))
                self._ageing = []
            self._ageing.append(log_entry)


for _table in _LOGGED:
    if any(cell.may_be_unknown for cell in _table.value.cells):  # merged entries can't be subtracted exactly then
        raise TypeError(f"{_table.name}: counts that may be unknown need the group {SEEN.group}")


def packed_of(entry: LogEntry[OnDemandValues]) -> PackedFrame:
    """Return an entry's values in the form that can be summed."""
    reported = entry.reported
    if isinstance(reported, Frame):
        return _pack_logged(reported)
    return reported if isinstance(reported, PackedFrame) else reported.packed


def _pack_logged(frame: Frame) -> PackedFrame:
    stages = {series: stage for series, stage in frame.histograms.items() if series.stage != "total"}
    return pack(replace(frame, histograms=stages), _LOGGED)


def _pressed_sum(parts: Sequence[LogEntry[OnDemandValues]]) -> OnDemandValues:
    sums = Sum(_LOGGED)
    for entry in parts:
        sums.add(packed_of(entry), entry.mono_us)
    return Pressed(sums.packed)


def _between(log: deque[tuple[int, V]], after_us: int, until_us: int) -> tuple[V, ...]:
    """Return what has a stamp in (after_us, until_us], oldest first: the log may be ten times as long as a window."""
    entries = list(log)  # a search in a list is quicker than a loop over the few of a window in a deque
    begin = bisect_right(entries, after_us, key=_stamp)
    end = bisect_right(entries, until_us, begin, key=_stamp)
    return tuple([value for _, value in entries[begin:end]])


class OnDemandLog(EntryLog[OnDemandValues]):
    """On-demand values and outliers of the frames of a store."""

    fine_us, coarse_us = 60_000_000, 10_000_000

    def __init__(self, max_outliers: int = MAX_OUTLIERS, *, brief: bool = False) -> None:
        """`brief`: the log is soon dropped as a whole, and needn't save memory."""
        super().__init__(_pressed_sum)
        self._brief = brief
        self.keys: dict[type, dict[Any, Any]] = {}
        """Type of keys -> keys of tables, and rows of keys: one object for all frames with equal ones.

        A thread and a sampling rate of one number are equal tuples.
        """
        self._appended = 0
        self._outliers: deque[tuple[int, Outlier]] = deque(maxlen=max_outliers)
        self._operations: deque[tuple[int, FileOperation]] = deque(maxlen=max_outliers)

    def append(self, frame: Frame) -> None:
        reported = frame if self._brief else self._shared(_pack_logged(frame))
        self.entries.append(LogEntry(frame.mono_us - frame.dt_us, frame.mono_us, reported))
        self._outliers.extend((frame.mono_us, outlier) for outlier in frame.outliers)
        self._operations.extend((frame.mono_us, operation) for operation in frame.file_operations)
        self._age(frame.mono_us)
        self._appended += 1
        if self._appended % _TIDY == 0 and not self._brief:
            self._tidy()

    def _tidy(self) -> None:
        """Forget the keys that no entry has any more."""
        self.keys = {}
        for entry in self.every():
            for rows in rows_of(entry.reported):
                known = self.keys.setdefault(_type_of(rows), {})
                known[rows] = rows
                known.update(zip(rows, rows, strict=True))

    def copy(self) -> OnDemandLog:
        """Return an independent log with the same entries."""
        other = OnDemandLog(brief=self._brief)
        self._copy_to(other)
        other._outliers, other._operations = self._outliers.copy(), self._operations.copy()
        other.keys, other._appended = {kind: known.copy() for kind, known in self.keys.items()}, self._appended
        return other

    def forget(self, before_us: int) -> None:
        """Drop entries and outliers of frames that end before `before_us`."""
        super().forget(before_us)
        for log in (self._outliers, self._operations):
            while log and log[0][0] < before_us:
                log.popleft()

    def clear(self) -> None:
        super().clear()
        self._outliers.clear()
        self._operations.clear()
        self.keys.clear()

    @property
    def cut_us(self) -> int:
        """Return the end of the oldest frame with outliers, where older ones may have been dropped; else 0."""
        return self._outliers[0][0] if len(self._outliers) == self._outliers.maxlen else 0

    def outliers(self, after_us: int, until_us: int) -> tuple[Outlier, ...]:
        """Return the outliers of frames that end in (after_us, until_us], oldest first."""
        return _between(self._outliers, after_us, until_us)

    def file_operations(self, after_us: int, until_us: int) -> tuple[FileOperation, ...]:
        """Return the slow operations on files of frames that end in (after_us, until_us], oldest first."""
        return _between(self._operations, after_us, until_us)

    def _shared(self, packed: PackedFrame) -> PackedFrame:
        """Return equal values whose keys, and state of the tracer, are the objects that earlier frames have."""
        tables = {table: self._with_shared_keys(rows) for table, rows in packed.tables.items()}
        before = self.entries[-1].reported if self.entries else None
        traced, thresholds_us = packed.traced, packed.thresholds_us
        if isinstance(before, PackedFrame):
            traced = before.traced if before.traced == traced else traced
            thresholds_us = before.thresholds_us if before.thresholds_us == thresholds_us else thresholds_us
        return replace(packed, tables=tables, traced=traced, thresholds_us=thresholds_us)

    def _with_shared_keys(self, table: PackedTable) -> PackedTable:
        for histograms in table.histograms.values():
            histograms.rows = self._known(histograms.rows)
        return replace(
            table,
            counts=RowCounts(self._known(table.counts.rows), table.counts.counts),
            named={place: RowCounts(self._known(counts.rows), counts.counts) for place, counts in table.named.items()},
        )

    def _known(self, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        known = self.keys.setdefault(_type_of(rows), {})
        same: tuple[Any, ...] | None = known.get(rows)
        if same is None:
            same = tuple(known.setdefault(key, key) for key in rows)
            known[same] = same
        return same


def _type_of(rows: tuple[Any, ...]) -> type:
    """Return the type of the keys in rows, which have a key each, or a key and a name."""
    if not rows:
        return tuple
    first = rows[0]
    return type(first[0]) if type(first) is tuple else type(first)


def rows_of(reported: OnDemandValues) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of each table of an entry's values."""
    if isinstance(reported, Pressed):
        yield from reported.rows
    elif isinstance(reported, Frame):
        yield tuple(reported.traced.histograms)
    else:
        for table in reported.tables.values():
            yield from table.all_rows


DepthEntry = LogEntry[DepthValues]


class IdleDepths(Mapping[str, PackedDepths]):
    """Depths of an entry of `us` in which none of the devices had an I/O."""

    __slots__ = ("_made", "queued", "us")

    def __init__(self, queued: Mapping[str, bool], us: int) -> None:
        """`queued`: as those of `idle_devices`."""
        self.queued, self.us = queued, us
        self._made: dict[bool, PackedDepths] = {}

    def of(self, us: int) -> IdleDepths:
        """Return those of the same devices in an entry of another length."""
        return IdleDepths(self.queued, us)

    def __getitem__(self, name: str) -> PackedDepths:
        has_queue = self.queued[name]
        if has_queue not in self._made:
            none = {0: self.us // 1000}
            self._made[has_queue] = packed(Depths(none, none if has_queue else {}), self.us)
        return self._made[has_queue]

    def __contains__(self, name: object) -> bool:
        return name in self.queued

    def __iter__(self) -> Iterator[str]:
        return iter(self.queued)

    def __len__(self) -> int:
        return len(self.queued)


def _depth_sums(parts: Sequence[DepthEntry]) -> DepthValues:
    tables = [part.reported.idle for part in parts if isinstance(part.reported, WithIdle)]
    idle = [table for table in tables if isinstance(table, IdleDepths)]
    named = [name for part in parts for name in busy_rows(part.reported)]
    for idle_depths in idle:
        if idle_depths.queued is not idle[-1].queued:  # devices came or went: they were there for a part of the time
            named += (name for name, _ in idle_depths.queued.items() ^ idle[-1].queued.items())
    sums = {name: DepthSum() for name in named}
    for log_entry in parts:
        for name, depth_sum in sums.items():
            if name in log_entry.reported:
                depth_sum.add(log_entry.reported[name], log_entry.mono_us)
    busy = {name: depth_sum.packed for name, depth_sum in sums.items()}
    return WithIdle(busy, idle[-1].of(sum(idle_depths.us for idle_depths in idle))) if idle else busy


class DepthLog(EntryLog[DepthValues]):
    """Depths of the frames of a store, and each device's last bursts of issues."""

    fine_us, coarse_us = 65_000_000, 5_000_000
    """A window of a minute never begins within an entry of several frames."""

    def __init__(self) -> None:
        super().__init__(_depth_sums)
        self._bursts: dict[str, deque[tuple[int, tuple[Issue, ...]]]] = {}

    def append(self, frame: Frame) -> None:
        if frame.depths:
            reported: DepthValues = {
                name: packed(depths, frame.dt_us) for name, depths in busy_rows(frame.depths).items()
            }
            if (queued := idle_devices(frame.depths)) is not None:
                reported = WithIdle(reported, IdleDepths(queued, frame.dt_us))
            self.entries.append(LogEntry(frame.mono_us - frame.dt_us, frame.mono_us, reported))
        self._age(frame.mono_us)
        for name, burst in frame.issues.items():
            if burst and (name in self._bursts or len(self._bursts) < _DEVICES):
                kept = self._bursts.setdefault(name, deque(maxlen=BURSTS))
                kept.append((frame.mono_us, burst[-MAX_BURST:]))

    def copy(self) -> DepthLog:
        """Return an independent log with the same entries."""
        other = DepthLog()
        self._copy_to(other)
        other._bursts = {name: burst.copy() for name, burst in self._bursts.items()}
        return other

    def forget(self, before_us: int) -> None:
        """Drop entries that end before `before_us`, and devices without a later burst."""
        super().forget(before_us)
        self._bursts = {name: burst for name, burst in self._bursts.items() if burst[-1][0] >= before_us}

    def clear(self) -> None:
        super().clear()
        self._bursts.clear()

    def burst(self, device: str, until_us: int) -> tuple[Issue, ...]:
        """Return a device's last issues in a frame that ends at `until_us` or before."""
        return next((issues for us, issues in reversed(self._bursts.get(device, ())) if us <= until_us), ())

    def bursts(self, device: str, after_us: int, until_us: int) -> list[tuple[Issue, ...]]:
        """Return a device's bursts in frames that end in (after_us, until_us], as far as they are kept."""
        return [issues for us, issues in self._bursts.get(device, ()) if after_us < us <= until_us]


class Store:
    """The origin of a capture, its devices now, and its last frames with their on-demand values and depths."""

    def __init__(self, limit: int = MAX_FRAMES, stages: tuple[str, ...] = ("total",), *, brief: bool = False) -> None:
        """`brief`: the store is soon dropped as a whole, and needn't save memory."""
        self._brief = brief
        self.origin: Origin | None = None
        self.frames: deque[Frame] = deque(maxlen=limit)
        self.on_demand = OnDemandLog(brief=brief)
        """On-demand values and outliers, which are removed from the kept frames."""
        self.depths = DepthLog()
        self.devices: dict[str, Device] = {}
        self.arrived = 0
        self._stages = frozenset(stages)
        self._removed_us: dict[str, int] = {}
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        self._in_flight: dict[InFlight, InFlight] = {}

    @property
    def removed(self) -> KeysView[str]:
        """Names of removed devices that kept frames may contain."""
        return self._removed_us.keys()

    def append(self, frame: Frame) -> Frame:
        """Add a frame and return it as it is kept. Time that went backwards (another boot) starts a new history."""
        if self.frames and frame.mono_us < self.frames[-1].mono_us:
            self.frames.clear()
            self.on_demand.clear()
            self.depths.clear()
            self._forget(self._removed_us.copy())
        self._note_devices(frame)
        self.on_demand.append(frame)
        self.depths.append(frame)
        waiting = self._waiting(frame.in_flight)
        tables = {table: rows for table, rows in frame.tables.items() if table in _KEPT_TABLES}
        kept = replace(frame, histograms=self._wanted(frame), in_flight=waiting, tables=tables, **_WITHOUT_ON_DEMAND)
        self.frames.append(kept)
        while self.frames[0].mono_us < frame.mono_us - KEEP_US:
            self.frames.popleft()
        self.on_demand.forget(self.frames[0].mono_us)
        self.depths.forget(self.frames[0].mono_us)
        self._forget(name for name, us in self._removed_us.copy().items() if us < self.frames[0].mono_us)
        self.arrived += 1
        return kept

    def copy(self) -> Store:
        """Return an independent store with the same frames and devices."""
        other = Store(self.frames.maxlen or MAX_FRAMES, tuple(self._stages), brief=self._brief)
        other.origin, other.arrived, other.frames = self.origin, self.arrived, self.frames.copy()
        other.on_demand, other.depths = self.on_demand.copy(), self.depths.copy()
        other.devices, other._removed_us = self.devices.copy(), self._removed_us.copy()
        return other

    def until(self, after_us: int, until_us: int, known: Iterable[Device]) -> Store:
        """Return a store with the frames that end in (after_us, until_us]; `known`: the devices before them.

        It has neither on-demand values nor depths, because older ones have been merged over time.
        """
        other = Store(brief=True)
        other.origin = self.origin
        other.devices = {device.name: device for device in known}
        for frame in self.frames:
            if after_us < frame.mono_us <= until_us:
                other._note_devices(frame)
                other.frames.append(frame)
        return other

    def _note_devices(self, frame: Frame) -> None:
        for device in frame.devices:
            self.devices[device.name] = device
            self._removed_us.pop(device.name, None)
        self._removed_us.update(dict.fromkeys(frame.removed, frame.mono_us))

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            del self._removed_us[name]
            self.devices.pop(name, None)

    def _wanted(self, frame: Frame) -> dict[Series, Histogram]:
        histograms = frame.histograms  # unpacked only where needed
        return {s: self._share(histograms[s]) for s in histograms if s.stage in self._stages}

    def _waiting(self, in_flight: InFlightList | None) -> InFlightList | None:
        """Return what a heat map needs: device, op and begin of each I/O; an I/O is one object in all frames."""
        if in_flight is None or self._brief:
            return in_flight
        if len(self._in_flight) > _MAX_IN_FLIGHT:
            self._in_flight.clear()
        in_flight_ios = (InFlight(io.device, io.op, io.began_us) for io in in_flight.oldest)
        return InFlightList(
            tuple(self._in_flight.setdefault(in_flight_io, in_flight_io) for in_flight_io in in_flight_ios),
            at_us=in_flight.at_us,
        )

    def _share(self, histogram: Histogram) -> Histogram:
        """Return the histogram with (index, count) objects shared with other frames: a third of the memory."""
        if self._brief:
            return histogram
        if len(self._pairs) > _MAX_PAIRS:
            self._pairs.clear()
        pairs = self._pairs
        return replace(histogram, buckets=tuple(pairs.setdefault(p, p) for p in histogram.buckets))


class Window:
    """Running sums over the last `length_us` of the frames that were added."""

    def __init__(self, length_us: int, frames: Iterable[Frame] = ()) -> None:
        self.length_us = length_us
        self.frames: deque[Frame] = deque()
        self._sums = Sum(COMPLETION_TABLES, peaks=False, wanted={LATENCIES: _is_total})
        self._peaks: dict[Series, Peak] = {}
        """Sliding maxima of the series that were read."""
        self._cache: dict[tuple[str, tuple[str, ...]], Histogram] = {}
        self._completed: dict[tuple[str, str], Counted] = {}
        self._covered_us: int | None = None
        self._health: Health | None = None
        self._moved: frozenset[str] | None = None
        for frame in frames:
            self.advance(frame)

    def copy(self) -> Window:
        """Return an independent window with the same sums."""
        other = Window(self.length_us)
        other.frames, other._sums, other._cache = self.frames.copy(), self._sums.copy(), self._cache.copy()
        return other

    @property
    def last(self) -> Frame | None:
        return self.frames[-1] if self.frames else None

    @property
    def covered_us(self) -> int:
        """Sum of the frames' lengths: less than the window's at the start and with gaps."""
        if self._covered_us is None:
            self._covered_us = sum(f.dt_us for f in self.frames)
        return self._covered_us

    def advance(self, frame: Frame) -> None:
        """Add the next frame, and subtract frames that end before the window begins."""
        if self.frames and frame.mono_us < self.frames[-1].mono_us:
            while self.frames:
                self._subtract(self.frames.popleft())
            self._peaks.clear()
        self.frames.append(frame)
        self._sums.add_frame(frame)
        begin = frame.mono_us - self.length_us
        for series, peak in self._peaks.items():
            _see(peak, frame, series)
            peak.forget(begin)
        while self.frames[0].mono_us <= begin:
            self._subtract(self.frames.popleft())
        self._forget()

    def _subtract(self, frame: Frame) -> None:
        self._sums.subtract(pack(frame, COMPLETION_TABLES))

    def _forget(self) -> None:
        """Drop what was made of the frames before."""
        self._cache.clear()
        self._completed.clear()
        self._covered_us = self._moved = self._health = None

    def move(self, frames: Iterable[Frame]) -> None:
        """Move to the end of these frames, forward or back; only frames that enter or leave are added or subtracted."""
        all_frames = list(frames)
        begin = all_frames[-1].mono_us - self.length_us if all_frames else 0
        wanted = {frame.mono_us: frame for frame in all_frames if frame.mono_us > begin}
        frames_by_end = {frame.mono_us: frame for frame in self.frames}
        for us, kept_frame in frames_by_end.items():
            if us not in wanted:
                self._subtract(kept_frame)
        for us, kept_frame in wanted.items():
            if us not in frames_by_end:
                self._sums.add_frame(kept_frame)
        self.frames = deque(wanted.values())
        if self.last is not None and isinstance(self.last.kernel, WithIdle):
            # the frame that was added last is an earlier one where the window moved back
            self._sums.tables[KERNEL].idle = self.last.kernel.idle
        self._peaks.clear()
        self._forget()

    def resized(self, length_us: int, frames: Iterable[Frame]) -> Window:
        """Return a window of another length at the end of these frames, for which this one may be used."""
        window = self if length_us > self.length_us else Window(length_us)
        window.length_us = length_us
        window.move(frames)
        return window

    def latency(self, device: str, ops: tuple[str, ...]) -> Histogram:
        """Return the latency of a device's ops over the window, with the exact maximum where every frame has one."""
        key = (device, ops)
        if key not in self._cache:
            self._cache[key] = self._merged(device, ops)
        return self._cache[key]

    @property
    def moved(self) -> frozenset[str]:
        """Return the devices that have I/Os in the window. A first frame has rows of idle ones too, which count 0."""
        if self._moved is None:
            devices = {series.device for series in self._sums[LATENCIES]}
            for table in (KERNEL, SEEN):
                sums = self._sums.tables[table]
                devices.update(flow.device for flow in sums.busy if sums[flow].count)
            self._moved = frozenset(devices)
        return self._moved

    def completed(self, device: str, op: str) -> Completed | None:
        """Return all completions, as `accumulator.counted`; None if unknown."""
        return self.counted(device, op).every

    def timed(self, device: str, op: str) -> Completed | None:
        """Return the completions that have times, as `accumulator.counted`; None if unknown."""
        return self.counted(device, op).timed

    def counted(self, device: str, op: str) -> Counted:
        """Return `completed` and `timed`; each is read some 10 times for a picture, of thousands of devices."""
        key = device, op
        found_counted = self._completed.get(key)
        if found_counted is None:
            found_counted = self._completed[key] = counted(self._sums, Flow(device, op))
        return found_counted

    def __getitem__(self, table: Table[Row, V]) -> Mapping[Row, V]:
        """Return the sums of one of COMPLETION_TABLES."""
        return self._sums[table]

    def seen(self, device: str, op: str) -> Completed | None:
        return self._sums[SEEN].get(Flow(device, op))

    def busy_us(self, device: str, ops: tuple[str, ...]) -> int:
        """Return the summed time of a device's I/Os in us, as far as their times are known."""
        busy_us = 0
        for op in ops:
            timed = self._sums.histograms(LATENCIES).sums.get(Series(device, op, "total"))
            done = None if timed and timed.sum else self.timed(device, op)
            busy_us += (done.time_us or 0) if done else timed.sum if timed else 0
        return busy_us

    def coverage(self, devices: Mapping[str, Device]) -> float | None:
        """Return the probe's completions over the kernel's, which may be above 1; None if unknown.

        The two are read in turn: a few I/Os at the window's ends are no sign that the probe counts twice, nor, where
        there are hardly any, that it misses some.
        """
        found_coverage = total(self._sums[COVERAGE], devices)
        few = _AT_ENDS if found_coverage.seen else _NONE_SEEN
        if not self._sums[SEEN] or found_coverage.ratio is None or found_coverage.seen < found_coverage.kernel <= few:
            return None
        at_ends = max(_BURST_IOS, found_coverage.kernel * _ENDS_US / max(self.covered_us, 1))
        return (
            found_coverage.ratio
            if found_coverage.seen - found_coverage.kernel > at_ends
            else min(found_coverage.ratio, 1.0)
        )

    def health(self) -> Health:
        """Return the last frame's health with the counters of the whole window."""
        if self._health is None:
            self._health = _summed_health([frame.health for frame in self.frames]) if self.frames else Health()
        return self._health

    def _merged(self, device: str, ops: tuple[str, ...]) -> Histogram:
        table = self._sums.histograms(LATENCIES)
        all_series = [series for op in ops if (series := Series(device, op, "total")) in table]
        return table.merged(all_series, maximum_of([self._peak(series) for series in all_series]))

    def _peak(self, series: Series) -> Peak:
        peak = self._peaks.get(series)
        if peak is None:
            peak = self._peaks[series] = Peak()
            for frame in self.frames:
                _see(peak, frame, series)
        return peak


def _summed_health(healths: Sequence[Health]) -> Health:
    """Return the last one with the counters of all."""
    skipped = [health.skipped for health in healths if health.skipped is not None]
    full_tables = Counter[str]()
    for health in healths:
        if health.full_tables:
            full_tables.update(health.full_tables)
    sums: dict[str, Any] = dict(
        zip(_HEALTH_COUNTERS, map(sum, zip(*map(_health_counts, healths), strict=True)), strict=True)
    )
    return replace(healths[-1], full_tables=full_tables, skipped=sum(skipped) if skipped else None, **sums)


def _is_total(series: Series) -> bool:
    return series.stage == "total"


def _see(peak: Peak, frame: Frame, series: Series) -> None:
    histogram = frame.histograms.get(series)
    if histogram is not None:
        peak.add(frame.mono_us, histogram)
