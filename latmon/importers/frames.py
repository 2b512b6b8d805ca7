"""Conversion of imported values to windows, and of windows to frames on one clock, in latmon's buckets.

A window ends where the text has another time, where other lines are between, where another run begins, or where a
series comes again. Two tables that count the same I/Os (quantize beside lquantize) are one series: the finer one
counts, the other is kept as it is.

A row goes to the bucket that its upper edge decides: a quantile, which is a bucket's upper bound, is then never below
the true one by more than rounding. A power of two of ns is 1.024 times an edge of latmon's, because a us is 1,000 ns
and not 1,024: such a row is taken for the bucket between those edges, and not for the octave above, of which it has
2.4 %. A row without an upper end goes to the last bucket, which means "or more", unless the maximum is known. If a
bucket is wider than latmon's, all of its table gets fewer bits, and the loss is reported in words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.values import (
    IMPOSSIBLE_NS,
    NO_WALL,
    RELATIVE_BELOW,
    UNITS,
    Counts,
    Found,
    ImportedHeader,
    ImportedTable,
    ImportOptions,
    Limits,
    Message,
    Queues,
    Remark,
    SeriesNames,
    TextSpan,
    TimeLine,
    Times,
    Whole,
    add,
    interval_us,
)
from latmon.model.frame import (
    OTHER_PRIORITY,
    SOURCE,
    THREAD_PRIORITY,
    Completed,
    Device,
    DeviceReport,
    Flow,
    Frame,
    Health,
    Limit,
    Mark,
    Origin,
    Outlier,
    Outstanding,
    Series,
    Taskq,
)
from latmon.model.histogram import BITS, MAX_US, Histogram, bucket_bounds, bucket_index, merge
from latmon.model.inflight import PROBE, Depths, bucket_end
from latmon.model.measurements import ABOVE, ERRORS
from latmon.model.measurements.errors import FailedIO
from latmon.support.errors import RecordingError, UsageError
from latmon.support.text import clean

MAX_WINDOWS = 100_000
MAX_SERIES = 4_096
"""Series of one window, and devices of a recording; a window of a recording has 65,536 rows at most."""
MAX_OUTLIERS = 2_000
"""Outliers of one window."""
_NS = 1000
_KIBI = 1024
_REMEMBERED = 4_096
"""Rows with the same edges come in each table of a text."""
_PRINTED = 100_000
"""An edge is printed with an error of less than 1 / _PRINTED."""
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class Placed:
    """Table with its unit and series."""

    table: ImportedTable
    series: Series
    ranges: list[Range]


@dataclass(slots=True)
class ImportedWindow:
    """Values of one frame."""

    wall: float | None = None
    dt_us: int | None = None
    tables: dict[Series, Placed] = field(default_factory=dict)
    aside: list[Placed] = field(default_factory=list)
    """Tables of I/Os that another table counts, too."""
    at_issue: list[Placed] = field(default_factory=list)
    """Tables of depths at issue, which are in `depths`."""
    depths: dict[str, Depths] = field(default_factory=dict)
    times: dict[Series, list[Histogram]] = field(default_factory=dict)
    outliers: list[Outlier] = field(default_factory=list)
    suppressed: int = 0
    lost: int = 0
    """Events that the tool lost."""
    seen: dict[Flow, Completed] = field(default_factory=dict)
    failed: Counter[FailedIO] = field(default_factory=Counter)
    kernel: dict[Flow, Completed] = field(default_factory=dict)
    outstanding: dict[str, Outstanding] = field(default_factory=dict)
    taskqs: tuple[Taskq, ...] | None = None
    whole: Frame | None = None
    notices: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    """Sentences of a log, which become marks."""
    limits: dict[str, tuple[Limit, ...]] = field(default_factory=dict)
    priorities: list[int] = field(default_factory=list)
    """Of threads, by lines that don't name them."""
    run: str = ""

    def __bool__(self) -> bool:
        parts = (self.tables, self.depths, self.times, self.kernel, self.outstanding, self.taskqs, self.whole)
        return bool(self.messages or self.limits or self.failed) or any(bool(part) for part in parts)

    def shares(self, other: ImportedWindow) -> bool:
        """Return whether both have I/Os of one series, or values of the same kind of which a window has one."""
        series = {*self.tables, *self.times} & {*other.tables, *other.times}
        once = (bool(self.taskqs and other.taskqs), bool(self.run and other.run), self.whole or other.whole)
        flows = self.kernel.keys() & other.kernel.keys() or self.seen.keys() & other.seen.keys()
        return bool(
            series or flows or any(once) or self.outstanding.keys() & other.outstanding.keys()
            or self.depths.keys() & other.depths.keys() or self.limits.keys() & other.limits.keys()
        )  # fmt: skip

    def join(self, other: ImportedWindow) -> None:
        """Add the values of another tool in the same interval."""
        self.tables |= other.tables
        self.times |= other.times
        self.seen |= other.seen
        self.failed |= other.failed
        self.kernel |= other.kernel
        self.outstanding |= other.outstanding
        self.depths |= other.depths
        self.limits |= other.limits
        self.priorities += other.priorities
        self.taskqs = self.taskqs if self.taskqs is not None else other.taskqs
        room = MAX_OUTLIERS - len(self.outliers)
        self.outliers += other.outliers[:room]
        self.suppressed += other.suppressed + max(0, len(other.outliers) - room)
        self.aside += other.aside
        self.at_issue += other.at_issue
        self.lost += other.lost
        self.notices += other.notices
        self.messages += other.messages
        self.run = self.run or other.run


@dataclass(slots=True)
class Built:
    """All windows, and the remarks on them."""

    windows: list[ImportedWindow] = field(default_factory=list)
    units: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Unit and its source -> the number of tables."""
    kept: list[dict[str, Any]] = field(default_factory=list)
    kept_rows: int = 0
    not_kept: int = 0
    origin: Origin | None = None
    """Origin in latmon's own lines."""
    measured: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Stage -> the stages that it includes, from latmon's own buckets."""
    reports: dict[str, tuple[DeviceReport, ...]] = field(default_factory=dict)
    """Device -> what other lines of the text report about it."""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    assumed: int = 0
    """Windows with I/Os whose length neither the text nor --interval has."""


def windows(
    found: Iterable[Found],
    options: ImportOptions,
    names: SeriesNames,
    left: Sequence[int] = (),
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Built:
    """Return the windows; UsageError naming --unit for a table without a unit.

    `left`: lines of no format, in order; `sources`: the format that has a device.
    """
    building = _Building(options, names, left)
    building.built.reports = {
        name: (DeviceReport(SOURCE, source, "latmon import"),) for name, source in sources.items()
    }
    for row in found:
        building.add(row)
    building.end()
    _join_waits(building.built)
    _take_lengths(building.built, options)
    building.built.windows = _on_one_axis(building.built.windows, options)
    return building.built


def _take_lengths(built: Built, options: ImportOptions) -> None:
    """Make timed windows as long as the others where no time just before them is their begin; count those left."""
    before: float | None = None
    imported_windows = [imported_window for imported_window in built.windows if imported_window.whole is None]
    usual = None if options.has_interval else interval_us(imported_window.wall for imported_window in imported_windows)
    for window in imported_windows:
        away = None if window.wall is None or before is None else window.wall - before
        before = before if window.wall is None else window.wall
        has_ios = window.tables or window.times or window.kernel or window.seen
        if window.dt_us or not has_ios or (away is not None and 0 < away * 1e6 <= _LONGEST_US):
            continue
        if window.wall is not None and usual is not None and usual <= _LONGEST_US:
            window.dt_us = usual
        else:
            built.assumed += not options.has_interval


_WAITS, _RESUME = "completion", "resume"
_COMPLETES = "comp"
"""In the name of a task queue whose threads complete I/Os, such as qlc_0_comp_thd."""


def _join_waits(built: Built) -> None:
    """Give tables of resume() and a thread's priority the device of the text's I/Os that waited for their completion.

    They name no device themselves. With I/Os of several devices the device of the thread is not known.
    """
    devices = {o.device for imported_window in built.windows for o in imported_window.outliers if _WAITS in o.stages_us}
    if len(devices) != 1:
        return
    (device,) = devices
    for window in built.windows:
        for series, placed in list(window.tables.items()):
            joined = series._replace(device=device)
            if series.stage == _RESUME and placed.table.series is None and joined not in window.tables:
                window.tables[joined] = replace(window.tables.pop(series), series=joined)
                title = clean(placed.table.title, _LONGEST_TITLE)
                where = f"line {placed.table.where.first}: {title}"
                window.notices.append(f"{where} is of threads that resume, taken with the slow completions of {device}")
    priorities = [number for imported_window in built.windows for number in imported_window.priorities]
    if len(priorities) == 1:
        built.reports[device] = (
            *built.reports.get(device, ()),
            DeviceReport(THREAD_PRIORITY, priorities[0], "prio: in the same text"),
            *_other_priority(built.windows, priorities[0]),
        )


def _other_priority(windows: Iterable[ImportedWindow], priority: int) -> list[DeviceReport]:
    """Return the priority of another driver's completion threads in the same text, which the author compares."""
    queues = [queue for window in windows for queue in window.taskqs or () if _COMPLETES in queue.name]
    others = [queue for queue in queues if queue.priority != priority]
    if not others:
        return []
    other = max(others, key=lambda queue: queue.priority)
    return [DeviceReport(OTHER_PRIORITY, other.priority, f"{other.name}, kstat -c taskq in the same text")]


@dataclass(slots=True)
class _Building:
    """Window that is open, and those before it."""

    options: ImportOptions
    names: SeriesNames
    left: Sequence[int]
    built: Built = field(default_factory=Built)
    now: ImportedWindow = field(default_factory=ImportedWindow)
    devices: set[str] = field(default_factory=set)
    last: int = 0
    """The line that the latest thing ended in."""

    def add(self, row: Found) -> None:
        if isinstance(row, ImportedHeader):
            self.built.origin = row.origin
        elif isinstance(row, TimeLine):
            self.close(row.where.wall)
            self.now.run = row.run or self.now.run
        elif isinstance(row, Remark):
            self.now.notices.append(f"line {row.where.first}: {row.text}")
            self.now.lost += row.lost
        else:
            self._add_value(row)

    def end(self) -> None:
        """Close the last window; remarks after it belong to it."""
        self.close()
        if self.built.windows:
            self.built.windows[-1].notices += self.now.notices
            self.built.windows[-1].lost += self.now.lost

    def close(self, following: float | None = None) -> None:
        """Begin the next window; an empty one leaves its remarks to the next."""
        if not self.now:
            self.now = ImportedWindow(following, notices=self.now.notices, run=self.now.run, lost=self.now.lost)
            return
        now, series = self.now, len(self.now.tables) + len(self.now.times)
        self.devices.update(key.device for of in (now.tables, now.times, now.kernel) for key in of)
        if max(series, len(now.kernel), len(now.outstanding), len(self.devices)) > MAX_SERIES:
            raise RecordingError(f"it has more than {MAX_SERIES:,} devices or series; import it in parts")
        if len(self.built.windows) >= MAX_WINDOWS:
            raise RecordingError(f"it has more than {MAX_WINDOWS:,} tables and times; import it in parts")
        self.built.windows.append(self.now)
        self.now = ImportedWindow(following)

    def _add_value(self, row: Found) -> None:
        self._end_at(row)
        if isinstance(row, ImportedTable):
            self._table(row)
        elif isinstance(row, Times):
            _add_times(self.now, row)
        elif isinstance(row, Counts):
            self._counts(row)
        elif isinstance(row, Message):
            self.now.messages.append(row.text)
            self.now.priorities += [] if row.priority is None else [row.priority]
        elif isinstance(row, Limits):
            self.now.limits[self.names.series(row.title).device] = row.limits
        elif isinstance(row, Queues):
            if self.now.taskqs is not None:
                self.close()
            self.now.taskqs = row.taskqs
        elif isinstance(row, Whole):
            self.close()
            self.now.whole = row.frame
            self.built.measured.update(row.measured)
        self.now.wall = row.where.wall if row.where.wall is not None else self.now.wall
        self.now.dt_us = row.where.dt_us or self.now.dt_us

    def _counts(self, counts: Counts) -> None:
        again = counts.depths.keys() & self.now.depths.keys()
        if again or ((self.now.kernel or self.now.outstanding) and (counts.kernel or counts.outstanding)):
            self.close()
        if counts.kernel or counts.outstanding:
            self.now.kernel, self.now.outstanding = dict(counts.kernel), dict(counts.outstanding)
        self.now.depths.update(counts.depths)
        self.built.members.update(counts.members)

    def _end_at(self, row: Found) -> None:
        """End the window before a value of another time, or with other lines before it."""
        wall, first = row.where.wall, row.where.first
        if wall is not None:
            if self.now and wall != self.now.wall:
                self.close()
        elif self.now and bisect_right(self.left, self.last) != bisect_right(self.left, first):
            self.close()
        self.last = max(self.last, row.where.last)

    def _table(self, table: ImportedTable) -> None:
        placed = _placed(table, self.options, self.names, self.built)
        if table.at_issue:
            if placed.series.device in self.now.depths:
                self.close(self.now.wall)
            self.now.depths[placed.series.device] = _depths(table)
            self.now.at_issue.append(placed)
            rows = ", ".join(f"{upper(row)}: {row.count:,}" for row in table.rows if row.count)
            self.now.notices.append(f"line {table.where.first}: outstanding at an issue, I/Os: {rows}{_exactly(table)}")
        elif _again(self.now, placed):
            _aside(self.now, placed)
        else:
            if placed.series in self.now.tables or placed.series in self.now.times:
                self.close(self.now.wall)
            self.now.tables[placed.series] = placed


def _placed(table: ImportedTable, options: ImportOptions, names: SeriesNames, built: Built) -> Placed:
    series = table.series or names.series(table.title)
    if table.at_issue:
        return Placed(table, series, [])
    unit = table.unit or options.unit
    where = table.unit_from if table.unit else "--unit"
    if not unit:
        raise UsageError(
            f"the unit of the table in line {table.where.first} ({table.title or 'without a title'}) "
            "is not in the text: give it with --unit us, ms, ns or s"
        )
    built.units[unit, where] += 1
    return Placed(table, series, ranges(table, unit))


def _depths(table: ImportedTable) -> Depths:
    """Place each row at its highest depth, the row of the maximum at the maximum."""
    counts: dict[int, int] = {}
    most = table.printed.get("max")
    for row in table.rows:
        if row.count > 0:
            depth = max(0, row.high - 1 if row.high is not None else most or row.low or 0)
            depth = depth if most is None else min(depth, max(most, row.low or 0))
            counts[bucket_end(depth)] = counts.get(bucket_end(depth), 0) + row.count
    return Depths(at_issue=counts, most=most, source=PROBE)


def _exactly(table: ImportedTable) -> str:
    """Return what the tool printed beside its rows: `; exactly: min 1, max 29, mean 3`."""
    values = ", ".join(f"{name} {table.printed[name]:,}" for name in ("min", "max", "mean") if name in table.printed)
    return f"; exactly: {values}" if values else ""


def _again(now: ImportedWindow, placed: Placed) -> bool:
    """Return whether these I/Os are in the window already, in other buckets."""
    table = now.tables.get(placed.series)
    return table is not None and table.table.kind != placed.table.kind and table.table.count == placed.table.count


def _aside(now: ImportedWindow, placed: Placed) -> None:
    table = now.tables[placed.series]
    coarse, fine = (table, placed) if len(table.ranges) < len(placed.ranges) else (placed, table)
    now.tables[placed.series] = fine
    now.aside.append(coarse)
    now.notices.append(
        f"line {coarse.table.where.first}: {coarse.table.kind or 'a table'} of the same {fine.table.count:,} I/Os as "
        f"line {fine.table.where.first}, counted once"
    )


def _add_times(now: ImportedWindow, times: Times) -> None:
    for series, histogram in times.histograms.items():
        now.times.setdefault(series, []).append(histogram)
    for flow, done in times.seen.items():
        add(now.seen, flow, done)
    now.failed.update(times.failed)
    room = MAX_OUTLIERS - len(now.outliers)
    now.outliers += times.outliers[:room]
    now.suppressed += max(0, len(times.outliers) - room)


def _on_one_axis(imported_windows: list[ImportedWindow], options: ImportOptions) -> list[ImportedWindow]:
    """Return the windows of several tools in the order of their times, those of one time as one window.

    They stay in the order of the text where one has no date, or where they would overlap. I/Os of one series that come
    twice are of different runs and stay apart.
    """
    walls = [window.wall for window in imported_windows]
    if all(a is not None and b is not None and a < b for a, b in pairwise(walls)) or len(imported_windows) < 2:  # noqa: PLR2004
        return imported_windows
    if any(
        window.wall is None or window.wall < RELATIVE_BELOW or window.whole is not None for window in imported_windows
    ):
        return imported_windows
    lengths = _lengths(imported_windows, options)
    groups: list[list[int]] = []
    for at in sorted(range(len(imported_windows)), key=lambda at: walls[at] or 0.0):
        wall, last = walls[at] or 0.0, groups[-1] if groups else []
        is_same = bool(last) and walls[last[0]] == wall and lengths[last[0]] == lengths[at]
        if is_same and not any(imported_windows[window_index].shares(imported_windows[at]) for window_index in last):
            last.append(at)
        elif last and wall - lengths[at] / 1e6 < (walls[last[0]] or 0.0) - _OVERLAP_S:
            return imported_windows
        else:
            groups.append([at])
    for first, *others in groups:
        imported_windows[first].dt_us = lengths[first]
        for at in others:
            imported_windows[first].join(imported_windows[at])
    return [imported_windows[first] for first, *_ in groups]


def _lengths(imported_windows: list[ImportedWindow], options: ImportOptions) -> list[int]:
    """Return the length of each window: its own, or the time since the window before it in the text."""
    lengths: list[int] = []
    for at, window in enumerate(imported_windows):
        before = imported_windows[at - 1].wall if at else None
        away = None if before is None or window.wall is None else round((window.wall - before) * 1e6)
        passed = away if away is not None and 0 < away <= _LONGEST_US else options.interval_us
        lengths.append(window.dt_us or passed)
    return lengths


_LONGEST_TITLE = 60
_OVERLAP_S = 0.5
"""Times printed without fractions may lie so far apart."""
_SENTENCE = 1000
_LONGEST_US = 60_000_000
"""Between two times: longer ones are holes, not windows."""


def frames(built: Built, options: ImportOptions) -> Iterator[Frame]:
    """Yield frames in order, on one clock that continues where the text has no time.

    What comes before the first time lies just before it: in 1970 it would make a gap of decades.
    """
    start = options.start or 0.0
    wall_before = _before_first(built.windows, options)
    mono = 0
    known: set[str] = set()
    limits = {device: limit for imported_window in built.windows for device, limit in imported_window.limits.items()}
    for seq, window in enumerate(built.windows):
        if window.whole is not None:
            frame = replace(window.whole, seq=seq, health=_health(window, window.whole.health))
            wall_before, mono = frame.wall, frame.mono_us
        else:
            printed = None if window.wall is None else window.wall + (start if window.wall < RELATIVE_BELOW else 0.0)
            away = None if printed is None or wall_before is None else round((printed - wall_before) * 1e6)
            passed = away if away is not None and away > 0 else window.dt_us or options.interval_us
            dt = window.dt_us or (passed if passed <= _LONGEST_US else options.interval_us)
            mono += passed if seq else dt
            wall = printed if printed is not None else (start if wall_before is None else wall_before) + dt / 1e6
            frame, wall_before = _frame(window, seq, (wall, mono, dt), options), wall
        new = sorted({*_devices(frame), *window.limits} - known - {device.name for device in frame.devices})
        known |= {*new, *(device.name for device in frame.devices)}
        added = (_device(name, limits.get(name, ()), built) for name in new)
        yield replace(frame, devices=(*frame.devices, *added))


def _before_first(imported_windows: Sequence[ImportedWindow], options: ImportOptions) -> float | None:
    """Return when windows ahead of the first time of the text begin; None where there are none, or no time."""
    first = next(
        (at for at, window in enumerate(imported_windows) if window.wall is not None or window.whole is not None), 0
    )
    wall = imported_windows[first].wall if imported_windows else None
    if options.start is not None or not first or wall is None or wall < RELATIVE_BELOW:
        return None
    return wall - sum(window.dt_us or options.interval_us for window in imported_windows[: first + 1]) / 1e6


def _frame(window: ImportedWindow, seq: int, when: tuple[float, int, int], options: ImportOptions) -> Frame:
    wall, mono, dt = when
    histograms = {series: _histogram(placed) for series, placed in window.tables.items()}
    for series, parts in window.times.items():
        histograms[series] = merge([*([histograms[series]] if series in histograms else []), *parts])
    outliers = tuple(_placed_outlier(outlier, when, options) for outlier in window.outliers)
    begun = max(0, mono - dt)  # tools that ran side by side have windows that overlap
    return Frame(
        seq=seq,
        wall=wall,
        mono_us=mono,
        dt_us=dt,
        histograms=histograms,
        seen=_seen(window),
        kernel=window.kernel,
        outliers=outliers,
        tables={ABOVE: _above(outliers), ERRORS: dict(window.failed)},
        thresholds_us=_thresholds(outliers, options),
        taskqs=window.taskqs,
        outstanding=window.outstanding,
        depths=window.depths,
        health=replace(_health(window, Health()), suppressed=window.suppressed),
        marks=(
            *((Mark(window.run, begun, max(0.0, wall - dt / 1e6)),) if window.run else ()),
            *(Mark(text, mono, wall) for text in window.messages),
        ),
    )


def _placed_outlier(outlier: Outlier, when: tuple[float, int, int], options: ImportOptions) -> Outlier:
    """Return a slow I/O with its begin on the clocks of its frame, which has these `wall`, `mono_us` and `dt_us`.

    Without a time of its own it began when the frame did.
    """
    wall, mono_us, dt_us = when
    if outlier.wall == NO_WALL:
        begun = wall - dt_us / 1e6
    elif outlier.wall < RELATIVE_BELOW:
        begun = outlier.wall + (options.start or 0.0)
    else:
        begun = outlier.wall
    return replace(outlier, wall=begun, mono_us=max(0, mono_us - dt_us))


def _seen(window: ImportedWindow) -> dict[Flow, Completed]:
    """Return the counts of whole latencies, one for each I/O; bytes are unknown."""
    ios_by_device = {
        Flow(series.device, series.op): Completed(placed.table.count, 0, placed.table.sum_us)
        for series, placed in window.tables.items()
        if series.stage == "total"
    }
    return ios_by_device | window.seen


def _histogram(placed: Placed) -> Histogram:
    table = placed.table
    return histogram(placed.ranges, bits_of(placed.ranges), table.sum_us, table.max_us)


def _above(outliers: Iterable[Outlier]) -> dict[Flow, int]:
    above_counts: dict[Flow, int] = {}
    for outlier in outliers:
        flow = Flow(outlier.device, outlier.op)
        above_counts[flow] = above_counts.get(flow, 0) + 1
    return above_counts


def _thresholds(outliers: Iterable[Outlier], options: ImportOptions) -> dict[str, int]:
    """Return the least listed latency as threshold of a tool that lists slow I/Os only."""
    thresholds: dict[str, int] = {}
    for outlier in outliers:
        thresholds[outlier.device] = min(thresholds.get(outlier.device, options.threshold_us), outlier.total_us)
    return thresholds


def _health(window: ImportedWindow, health: Health) -> Health:
    notice = "; ".join((*([health.notice] if health.notice else []), *window.notices))
    return replace(health, notice=clean(notice, _SENTENCE), lost_events=health.lost_events + window.lost)


def _devices(frame: Frame) -> set[str]:
    flows: tuple[Mapping[Any, Any], ...] = (frame.histograms, frame.seen, frame.kernel)
    return {key.device for flow in flows for key in flow} | {*frame.outstanding, *frame.depths}


def _device(name: str, limits: tuple[Limit, ...], built: Built) -> Device:
    """Return a device of which only the name is known, and its settings if the text has them: sd's are a disk's."""
    kind = "disk" if any(limit.name.startswith("un_") for limit in limits) else "other"
    members, reports = built.members.get(name, ()), built.reports.get(name, ())
    return Device(name, 0, 0, kind=kind, members=members, limits=limits, reports=reports)


@dataclass(frozen=True, slots=True)
class Range:
    """Bucket in microseconds: its first and last value."""

    first: int
    last: int
    count: int
    is_open: bool = False
    is_lowered: bool = False
    """Its edges in the source are 1.024 times these."""

    @property
    def is_endless(self) -> bool:
        """Return whether its upper end is unknown."""
        return self.is_open and self.last == MAX_US

    @property
    def bits(self) -> int:
        """Return the most bits at which a latmon bucket is as wide; a range from 0 on is no measure of that."""
        if self.first == 0 or self.is_open:
            return BITS
        for bits in range(BITS, 0, -1):
            low, high = bucket_bounds(bucket_index(self.last, bits), bits)
            if high - low > self.last - self.first:
                return bits
        return 0

    @property
    def is_exact(self) -> bool:
        """Return whether a bucket of latmon's has the same edges."""
        bits = self.bits
        return not self.is_open and bucket_bounds(bucket_index(self.last, bits), bits) == (self.first, self.last + 1)


def ranges(table: ImportedTable, unit: str) -> list[Range]:
    """Return the rows with counts; `without_negative` and `without_impossible` have removed what is below 0."""
    return [_range(row, UNITS[unit]) for row in table.rows if row.count > 0]


def bits_of(each: Iterable[Range]) -> int:
    """Return the most bits that no range is too coarse for."""
    return min((part.bits for part in each), default=BITS)


def histogram(each: Iterable[Range], bits: int, sum_us: int | None = None, max_us: int | None = None) -> Histogram:
    """Return the histogram with exact counts, and with sum and maximum if the tool printed them."""
    counts: dict[int, int] = {}
    for part in each:
        most = part.last if max_us is None else min(part.last, max(part.first, max_us))
        index = bucket_index(most, bits)
        counts[index] = counts.get(index, 0) + part.count
    return Histogram.of(counts, sum_us, max_us, bits)


def lost(table: ImportedTable, each: list[Range], bits: int) -> str:
    """Return what latmon's scale can't represent, in words; empty if it is all there."""
    sentences = []
    if any(part.is_lowered for part in each):
        sentences.append("powers of two of ns are counted as those of us, 2.4 % below (1,048.576 us as 1,024 us)")
    if any(not part.is_exact and not part.is_endless for part in each):
        sentences.append("edges moved to latmon's: a row is in the bucket of its upper edge (~)")
    if bits < BITS:
        sentences.append(
            "buckets up to twice as wide as their begin (~)" if bits == 0 else f"{2**bits} buckets per octave"
        )
    above = [row for row in table.rows if row.high is None and row.count]
    if above and table.max_us is None:
        sentences.append(f"{above[0].count:,} of {above[0].low:,} or more: how much more is not known")
    endless = [row for row in each if row.is_endless]
    beyond = sum(row.count for row in endless) - sum(row.count for row in above)
    if beyond and table.max_us is None:
        sentences.append(f"{beyond:,} of {endless[0].first:,} us or more: latmon's last edge is at 71 min")
    return "; ".join(sentences)


def without_negative(table: ImportedTable) -> tuple[ImportedTable, list[Remark]]:
    """Take out rows whose count is negative, which is no number of I/Os; remark on them and on depths below 0."""
    remarks, where = [], TextSpan(table.where.first, table.where.first)
    wrong = [row for row in table.rows if row.count < 0]
    if wrong:
        text = ", ".join(f"{label(row)}: {row.count:,}" for row in wrong[:_MAX_NAMED])
        remarks.append(
            Remark(
                where, f"{len(wrong):,} rows with a count below 0 are left out ({text})", len(wrong), is_incomplete=True
            )
        )
    below = sum(row.count for row in table.rows if row.count > 0 and _is_below_0(row))
    if below and table.at_issue:
        remarks.append(Remark(where, f"{below:,} of {table.count:,} values are below 0: they are counted at 0"))
    return replace(table, rows=tuple(row for row in table.rows if row.count >= 0)), remarks


def without_impossible(table: ImportedTable, unit: str) -> tuple[ImportedTable, list[Remark]]:
    """Take out rows of times that no I/O can take, and remark on them. A table without other I/Os has an interval.

    A completion that is before its issue, by a clock of another CPU, is below 0 in a tool with signed times. A tool
    that subtracts unsigned ones counts it at nearly 2^64: at 2^63 ns, 2^53 or 2^54 us, 2^43 or 2^44 ms.
    """
    below = [row for row in table.rows if row.count > 0 and _is_below_0(row)]
    above = [row for row in table.rows if row.count > 0 and (row.low or 0) * UNITS[unit] >= IMPOSSIBLE_NS]
    if not below and not above:
        return table, []
    sentences = [f"{sum(row.count for row in below):,} of {table.count:,} took less than 0 {unit}"] if below else []
    if above:
        count = sum(row.count for row in above)
        sentences.append(f"{count:,} of {table.count:,} took {label(above[0])} {unit} or more")
    text = (
        f"{' and '.join(sentences)}, which is impossible: the tool subtracted a later time from an earlier one; "
        "they are left out"
    )
    impossible = {*below, *above}
    left_out = sum(row.count for row in impossible)
    remark = Remark(TextSpan(table.where.first, table.where.first), text, left_out, is_incomplete=True)
    rows = tuple(row for row in table.rows if row not in impossible)
    return replace(table, rows=rows, sum_us=None, max_us=None), [remark]


def _is_below_0(row: Row) -> bool:
    return row.high is not None and row.high <= 0


def label(row: Row) -> str:
    """Return a row as its tool prints it: `512`, `< 60000`, `>= 600000`."""
    if row.low is None:
        return f"< {row.high}"
    return f">= {row.low}" if row.high is None else str(row.low)


def upper(row: Row) -> str:
    """Return a row by its inclusive upper end, the highest that a depth was."""
    if row.high is None:
        return f"{row.low} or more"
    return str(row.high - 1) if row.low is None or row.high - row.low == 1 else f"<= {row.high - 1}"


def _range(row: Row, unit: int) -> Range:
    low, high = row.low, row.high
    if high is None:
        first = max(0, low or 0) * unit // _NS
        return Range(min(first, MAX_US), MAX_US, row.count, is_open=True)
    low_ns, high_ns = max(0, low or 0) * unit, high * unit
    if high_ns > (MAX_US + 1) * _NS:
        return Range(min(low_ns // _NS, MAX_US), MAX_US, row.count, is_open=True)
    for us_ns in (_NS, _KIBI) if low is not None else ():
        edges = _nominal(low_ns, high_ns, us_ns)
        if edges is not None:
            return Range(edges[0], edges[1] - 1, row.count, is_lowered=us_ns == _KIBI)
    first = low_ns // _NS
    return Range(first, max(first, (high_ns - 1) // _NS), row.count, is_open=low is None)


@lru_cache(_REMEMBERED)
def _nominal(low_ns: int, high_ns: int, us_ns: int) -> tuple[int, int] | None:
    """Return the edges in us of the bucket, or of the octaves, that a row is where a us is `us_ns` ns; None without.

    What begins below 1 us begins at 0. Tools print edges with six digits at least.
    """
    first = 0 if low_ns < us_ns else _edge(low_ns, us_ns)
    end = _edge(high_ns, us_ns)
    if first is None or end is None or first >= end:
        return None
    is_octaves = first & (first - 1) == 0 and end & (end - 1) == 0
    is_bucket = any(bucket_bounds(bucket_index(first, bits), bits) == (first, end) for bits in range(BITS + 1))
    return (first, end) if first == 0 or is_octaves or is_bucket else None


def _edge(ns: int, us_ns: int) -> int | None:
    """Return the edge of latmon's buckets that a time is; None without one."""
    edge = (ns + us_ns // 2) // us_ns
    is_near = abs(ns - edge * us_ns) <= 1 + ns // _PRINTED
    return edge if is_near and bucket_bounds(bucket_index(edge))[0] == edge else None
