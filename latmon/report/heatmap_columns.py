"""A whole capture as at most MAX_COLUMNS columns: per device the I/Os in each latency bucket, and depths.

Filled in the same pass as Totals. Memory is bounded: columns are merged into wider ones when there are too many of them
or too many buckets in them, so no count is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Frame
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.report.summary import Item

MAX_COLUMNS = 240
MAX_DEVICES = 256
"""Devices with a map: the first that completed an I/O."""
MAX_CELLS = 400_000
"""Buckets in all columns."""
LEAST_COLUMNS = 12
_ROUND = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
"""Widths of columns in seconds, or in intervals if these are shorter."""
Counts = dict[int, int]


@dataclass(slots=True)
class HeatmapColumn:
    """Counts and depths of all devices in one column of time."""

    wide: int = 1
    """Columns that a long window covers from this one on."""
    counts: dict[str, Counts] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    """Most I/Os in the driver; of a device that is `gauged`, in flight at a window's end."""

    def take(self, other: HeatmapColumn) -> None:
        self.wide = max(self.wide, other.wide)
        for device, counts in other.counts.items():
            mine = self.counts.setdefault(device, {})
            for index, n in counts.items():
                mine[index] = mine.get(index, 0) + n
        for device, depth in other.depths.items():
            self.depths[device] = max(depth, self.depths.get(device, 0))


class MapColumns:
    """Columns of time by number; column c begins at `begin_us + c * width_us` on the monotonic clock."""

    def __init__(self, interval_us: int, span_us: int | None = None) -> None:
        self.width_us = _width(interval_us, span_us)
        self.begin_us = 0
        self.end_us = 0
        self.begin_wall = 0.0
        self.columns: dict[int, HeatmapColumn] = {}
        self.left_out: set[str] = set()
        """Devices beyond MAX_DEVICES."""
        self.gauged: set[str] = set()
        """Devices of which only gauges are known."""
        self._devices: set[str] = set()
        self._cells = 0

    def add(self, item: Item | Minute) -> None:
        """Add the item to the column in which it begins, to half a column. Gaps, marks and the end are ignored."""
        if not isinstance(item, (Frame, Minute)):
            return
        if not self.end_us:
            self.begin_us = item.mono_us - item.dt_us
            self.begin_wall = item.wall - item.dt_us / 1e6
        self.end_us = max(self.end_us, item.mono_us)
        if isinstance(item, Minute):
            self.widen(round(item.dt_us / self.width_us))
        begun_us = item.mono_us - item.dt_us - self.begin_us
        number = max(begun_us + min(item.dt_us, self.width_us) // 2, 0) // self.width_us
        if number >= MAX_COLUMNS:
            factor = max(2, -(-(number + 1) // MAX_COLUMNS))
            self.widen(factor)
            number //= factor
        column = self.columns.setdefault(number, HeatmapColumn())
        column.wide = max(column.wide, min(round(item.dt_us / self.width_us), MAX_COLUMNS - number))
        if isinstance(item, Minute):
            self._fill(column, replace(item.frame, outstanding={}))
            self._fill_depths(column, item)
        else:
            self._fill(column, item)
        if self._cells > MAX_CELLS and self.count > LEAST_COLUMNS:
            self.widen(2)

    @property
    def count(self) -> int:
        """Return the number of columns from the first to the last, empty ones included."""
        return max((number + one.wide for number, one in self.columns.items()), default=0)

    def widen(self, factor: int) -> None:
        """Make one column of `factor` neighbours."""
        if factor <= 1:
            return
        self.width_us *= factor
        before, self.columns = self.columns, {}
        for number in sorted(before):
            before[number].wide = max(1, round(before[number].wide / factor))
            into = self.columns.get(number // factor)
            if into is None:
                self.columns[number // factor] = before[number]
            else:
                into.take(before[number])
        self._cells = sum(len(one) for column in self.columns.values() for one in column.counts.values())

    def of(self, device: str) -> dict[int, Counts]:
        """Return the device's columns that have counts."""
        return {number: one.counts[device] for number, one in self.columns.items() if one.counts.get(device)}

    def wall(self, mono_us: int) -> float:
        """Return the Unix time of a monotonic time, by the offset of the two clocks at the begin."""
        return self.begin_wall + (mono_us - self.begin_us) / 1e6

    def _fill(self, column: HeatmapColumn, frame: Frame) -> None:
        timed = {series.device for series in frame.histograms if series.stage == "total"}
        for series, one in frame.histograms.items():
            if series.stage == "total":
                self._count(column, series.device, one)
        for series, one in frame.traced.histograms.items():
            if series.stage == "total" and series.device not in timed:
                self._count(column, series.device, one)
        for name, depths in frame.depths.items():
            if any(depths.in_driver.values()):
                self._deepest(column, name, depths.highest)
        for name, now in frame.outstanding.items():
            if name not in frame.depths and now.is_known:
                self._gauge(column, name, now.known)

    def _gauge(self, column: HeatmapColumn, name: str, depth: int) -> None:
        self.gauged.add(name)
        self._deepest(column, name, depth)

    def _fill_depths(self, column: HeatmapColumn, minute: Minute) -> None:
        for name, sums in minute.depths.items():
            self._deepest(column, name, sums.highest)
        for name, gauges in minute.gauges.items():
            if name not in minute.depths:
                self._gauge(column, name, max(gauges, default=0))

    def _deepest(self, column: HeatmapColumn, name: str, depth: int) -> None:
        if self._has_room(name):
            column.depths[name] = max(depth, column.depths.get(name, 0))

    def _count(self, column: HeatmapColumn, device: str, one: Histogram) -> None:
        if not one.buckets or not self._has_room(device):
            return
        counts = column.counts.setdefault(device, {})
        before = len(counts)
        for index, n in _fine(one):
            counts[index] = counts.get(index, 0) + n
        self._cells += len(counts) - before

    def _has_room(self, device: str) -> bool:
        if device in self._devices:
            return True
        if len(self._devices) >= MAX_DEVICES:
            if len(self.left_out) < 10 * MAX_DEVICES:
                self.left_out.add(device)
            return False
        self._devices.add(device)
        return True


def _fine(one: Histogram) -> Iterable[tuple[int, int]]:
    """Return the buckets at full resolution: each at its lower bound."""
    if one.bits == BITS:
        return one.buckets
    return ((bucket_index(bucket_bounds(index, one.bits)[0]), n) for index, n in one.buckets)


def _width(interval_us: int, span_us: int | None) -> int:
    """Return a column's width: one interval, or the least round time that makes few enough columns of the span."""
    interval_us = max(interval_us, 1)
    if span_us is None or span_us <= interval_us * MAX_COLUMNS:
        return interval_us
    unit = min(interval_us, 10**6)
    fitting = (unit * n for n in _ROUND if unit * n * MAX_COLUMNS >= span_us and unit * n % interval_us == 0)
    return next(fitting, interval_us)
