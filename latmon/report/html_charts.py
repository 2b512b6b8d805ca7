"""SVG charts of the HTML report: heat maps, histogram, stage bars, depths and their limit. Pure.

Each picture has a role and a label, and text or numbers besides its colours.

A heat map has a whole capture as at most MAX_COLUMNS columns: per device the I/Os in each latency bucket, and depths.
They are filled in the same pass as Totals. Memory is bounded: columns are merged into wider ones when there are too
many of them or too many buckets in them, so no count is dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import UNACCOUNTED, Frame
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model.stages import COLUMNS, LETTERS, drawn_as
from latmon.report.formatting import ordered
from latmon.report.html_elements import LEVELS, number, share, text, time_of
from latmon.report.model.latency import QUANTILES, RAREST, RAREST_Q
from latmon.report.reading import Item
from latmon.support.units import rate, spelled
from latmon.views.axes import (
    Extent,
    Fullness,
    LatencyScale,
    begins,
    fullness,
    last_step,
    latency_scale,
    level,
    p99,
    rows_of,
    tail_bucket,
)

MAX_COLUMNS = 240
MAX_DEVICES = 256
"""Devices with a map: the first that completed an I/O."""
MAX_MAP_CELLS = 400_000
"""Buckets in all columns."""
LEAST_COLUMNS = 12
_ROUND = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)
"""Widths of columns in seconds, or in intervals if these are shorter."""
Counts = dict[int, int]
WIDTH = 960
LEFT, RIGHT = 58, 902
_HIGH = 272
_ROWS = (8, 14)
"""Least and largest height of a row."""
TOP = 4
LANE = 14
LANES = 3
STRIP = 44
_CHAR = 6.8
_NOTE = 44
"""Characters of a mark's note that are on the map."""
_ROUND_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_DAY_S = 86_400
_STAMP = 110
"""Least distance of two labels of the time axis."""
_DECADES = tuple(10**n for n in range(10))
MAP_ROWS = 34
MAX_DRAWN_CELLS = 22_000
"""Cells of all maps of a report, each with a title: about two megabytes."""
_HALF = (1 << BITS) // 2
_TAIL = "#d1242f"
"""Colour above the last quantile, for viewers without style sheets."""
_CHART_HIGH = 120
_BAR = 18
_NAMES = 150
_MAX_BARS = 96
_CHART_CHAR = 7.4
"""Pixels of a bold character, or less."""
_LETTER = 9
"""Pixels below which a part has no letter."""
_PANEL = 150
_SPACE = 46
"""Height of a panel of a sweep, and of the space below it."""


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
        if self._cells > MAX_MAP_CELLS and self.count > LEAST_COLUMNS:
            self.widen(2)

    @property
    def count(self) -> int:
        """Return the number of columns from the first to the last, empty ones included."""
        return max((number + column.wide for number, column in self.columns.items()), default=0)

    def widen(self, factor: int) -> None:
        """Make one column of `factor` neighbours."""
        if factor <= 1:
            return
        self.width_us *= factor
        before, self.columns = self.columns, {}
        for at in sorted(before):
            before[at].wide = max(1, round(before[at].wide / factor))
            into = self.columns.get(at // factor)
            if into is None:
                self.columns[at // factor] = before[at]
            else:
                into.take(before[at])
        self._cells = sum(len(count) for column in self.columns.values() for count in column.counts.values())

    def of(self, device: str) -> dict[int, Counts]:
        """Return the device's columns that have counts."""
        return {number: column.counts[device] for number, column in self.columns.items() if column.counts.get(device)}

    def wall(self, mono_us: int) -> float:
        """Return the Unix time of a monotonic time, by the offset of the two clocks at the begin."""
        return self.begin_wall + (mono_us - self.begin_us) / 1e6

    def _fill(self, column: HeatmapColumn, frame: Frame) -> None:
        timed = {series.device for series in frame.histograms if series.stage == "total"}
        for series, histogram in frame.histograms.items():
            if series.stage == "total":
                self._count(column, series.device, histogram)
        for series, histogram in frame.traced.histograms.items():
            if series.stage == "total" and series.device not in timed:
                self._count(column, series.device, histogram)
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

    def _count(self, column: HeatmapColumn, device: str, histogram: Histogram) -> None:
        if not histogram.buckets or not self._has_room(device):
            return
        counts = column.counts.setdefault(device, {})
        before = len(counts)
        for index, n in _fine(histogram):
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


def _fine(histogram: Histogram) -> Iterable[tuple[int, int]]:
    """Return the buckets at full resolution: each at its lower bound."""
    if histogram.bits == BITS:
        return histogram.buckets
    return ((bucket_index(bucket_bounds(index, histogram.bits)[0]), n) for index, n in histogram.buckets)


def _width(interval_us: int, span_us: int | None) -> int:
    """Return a column's width: one interval, or the least round time that makes few enough columns of the span."""
    interval_us = max(interval_us, 1)
    if span_us is None or span_us <= interval_us * MAX_COLUMNS:
        return interval_us
    unit = min(interval_us, 10**6)
    fitting = (unit * n for n in _ROUND if unit * n * MAX_COLUMNS >= span_us and unit * n % interval_us == 0)
    return next(fitting, interval_us)


class Note(NamedTuple):
    """A moment or a span of time with its label; `us` on the monotonic clock."""

    begin_us: int
    end_us: int
    text: str


@dataclass(frozen=True)
class MapFrame:
    """Columns, scale, marks and gaps that all maps of a report share."""

    columns: MapColumns
    scale: LatencyScale
    colours: Sequence[str]
    """Colours of the levels, few to many I/Os."""
    marks: tuple[Note, ...] = ()
    gaps: tuple[Note, ...] = ()

    @property
    def count(self) -> int:
        return max(self.columns.count, 1)

    @property
    def row(self) -> int:
        """Return the height of a row, bounded so that a map with few rows isn't too low."""
        return min(max(_HIGH // self.scale.rows, _ROWS[0]), _ROWS[1])

    def y(self, us: int, bottom: int) -> float:
        """Return the position of a latency, in proportion between the edges of its bucket."""
        index = bucket_index(us)
        low, high = bucket_bounds(index)
        at = (index + (us - low) / (high - low) - self.scale.low) / self.scale.step
        return round(bottom - min(max(at, 0.0), float(self.scale.rows)) * self.row, 1)

    def x(self, mono_us: int) -> float:
        """Return the position of a time; one outside of the capture is at its edge."""
        share = (mono_us - self.columns.begin_us) / (self.columns.width_us * self.count)
        return round(LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0), 1)


def latency_axis(frame: MapFrame, top: int, bottom: int) -> Iterator[str]:
    """Yield a line for each decade."""
    for us in _DECADES:
        y = frame.y(us, bottom)
        if top < y < bottom - 6:  # a decade within a folded lowest row has no position
            yield f'<path class="grid" stroke="#b0b0b0" d="M{LEFT} {y}H{RIGHT}"/>'
            yield f'<text x="{LEFT - 5}" y="{y + 4}" text-anchor="end">{spelled(us)}</text>'


def threshold(frame: MapFrame, us: int | None, bottom: int) -> Iterator[str]:
    """Yield the threshold's line with its latency."""
    if us is None:
        return
    y = frame.y(us, bottom)
    yield f'<path class="limit" stroke="#116149" fill="none" d="M{LEFT} {y}H{RIGHT}"/>'
    yield f'<text class="bound" x="{RIGHT + 4}" y="{y + 4}">{spelled(us)}</text>'
    yield f'<text class="bound" x="{RIGHT + 4}" y="{y + 16}">threshold</text>'


def time_axis(frame: MapFrame, top: int, bottom: int) -> Iterator[str]:
    """Yield round times of day, in UTC."""
    columns = frame.columns
    seconds = columns.width_us * frame.count / 1e6
    wanted = seconds * _STAMP / (RIGHT - LEFT)
    step_s = next((step for step in _ROUND_S if step >= wanted), math.ceil(wanted / 86_400) * 86_400)
    first = math.ceil(columns.begin_wall / step_s) * step_s if math.isfinite(columns.begin_wall) else 0
    for n in range(int((RIGHT - LEFT) / _STAMP) + 2):
        wall = first + n * step_s
        offset_us = (wall - columns.begin_wall) * 1e6
        if not 0 <= offset_us <= seconds * 1e6:
            continue
        x = frame.x(columns.begin_us + round(offset_us))
        yield f'<path class="grid" stroke="#b0b0b0" d="M{x} {top}V{bottom + 4}"/>'
        anchor = "start" if x < LEFT + 30 else "end" if x > RIGHT - 30 else "middle"
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="{anchor}">{_stamp(wall, step_s)}</text>'
    yield f'<text class="dim" x="{RIGHT + 4}" y="{bottom + 16}">UTC</text>'


def hatching(key: str) -> str:
    """Return the pattern of time that was not measured. Each map has its own: ids belong to the whole page."""
    return (
        f'<defs><pattern id="hatch-{key}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="hatch" stroke="#af0000" d="M0 0v6"/></pattern></defs>'
    )


def gaps(frame: MapFrame, top: int, bottom: int, key: str) -> Iterator[str]:
    """Yield the times that were not measured, each with its reason."""
    for gap in frame.gaps:
        x = frame.x(gap.begin_us)
        width = max(frame.x(gap.end_us) - x, 2)
        yield (
            f'<rect x="{x}" y="{top}" width="{width:.1f}" height="{bottom - top}" fill="url(#hatch-{key})">'
            f"<title>{text(gap.text)}</title></rect>"
        )


def marks(frame: MapFrame, bottom: int) -> Iterator[str]:
    """Yield lines with number and note, in lanes so that notes don't overlap."""
    ends = [float(LEFT)] * LANES
    for at, mark in enumerate(frame.marks, 1):
        x = frame.x(mark.begin_us)
        label = f"{at} {mark.text}"
        shown = label if len(label) <= _NOTE else label[: _NOTE - 1] + "…"
        long = (len(shown) + 2) * _CHAR
        begin = x if x + long <= WIDTH else x - long
        lane = next((n for n, end in enumerate(ends[: len(frame.marks)]) if end <= begin), None)
        y = TOP + 10 + LANE * (lane or 0)
        title = f"<title>mark {text(label)}</title>"
        yield f'<path class="mark" stroke="#000" fill="none" d="M{x} {y}V{bottom}">{title}</path>'
        if lane is None:
            continue
        ends[lane] = begin + long
        anchor = f'x="{x + 3:.1f}"' if begin == x else f'x="{x - 3:.1f}" text-anchor="end"'
        yield f'<text class="lab" {anchor} y="{y}">{text(shown)}</text>'


def strip(frame: MapFrame, depths: dict[int, int], top: int, limit: int | None, what: str) -> Iterator[str]:
    """Yield each column's most I/Os in the driver, below the map, and the limit if it is near."""
    most = max(*depths.values(), 1)
    near = limit if limit is not None and limit <= 4 * most else None
    high = max(most, near or 0)
    width = round((RIGHT - LEFT) / frame.count, 5)
    yield f'<rect class="frame" fill="none" x="{LEFT}" y="{top}" width="{RIGHT - LEFT}" height="{STRIP}"/>'
    scaled = f"translate({LEFT} {top + STRIP}) scale({width} {-STRIP / high:.5f})"
    yield f'<g class="depth" fill="#6a6e7a" transform="{scaled}">'
    wide = {at: column.wide for at, column in frame.columns.columns.items()}
    path = "".join(f"M{at} 0v{depth}h{wide[at]}v-{depth}z" for at, depth in sorted(depths.items()) if depth)
    yield f'<path d="{path}"/></g>' if path else "</g>"
    yield f'<text x="{LEFT - 5}" y="{top + 9}" text-anchor="end">{number(high)}</text>'
    yield f'<text class="dim" x="{LEFT - 5}" y="{top + STRIP - 2}" text-anchor="end">{what}</text>'
    if near is not None:
        y = round(top + STRIP * (1 - near / high), 1)
        yield f'<path class="limit" stroke="#116149" fill="none" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text class="bound" x="{RIGHT + 4}" y="{y + 9}">limit {number(near)}</text>'


class CellColours(NamedTuple):
    """Colours of the cells of one device's map: steps of its counts, and one above a quantile, outside of the ramp.

    The first steps are hardly brighter than the page, so that a single slow I/O must not depend on them.
    """

    top: int
    """Count of the last step."""
    tail_row: int
    """First row that is above the threshold; the number of rows where none is."""
    above: str
    """The threshold; empty where no cell is above it."""


def cell_colours(found: Mapping[int, Counts], scale: LatencyScale, threshold_us: int | None) -> CellColours:
    """Return the colours for a device's columns."""
    highest = max(max(counts) for counts in found.values() if counts)
    first = tail_bucket(threshold_us)
    rows = (row for row in range(scale.rows) if first is not None and scale.first(row) >= first)
    tail_row = next(rows, scale.rows)
    reached = threshold_us is not None and scale.row(highest) >= tail_row
    cells = Fullness()
    for counts in found.values():
        cells.update(fullness(rows_of(counts, scale)))
    return CellColours(
        last_step(p99(cells) or 0), tail_row, spelled(threshold_us) if threshold_us is not None and reached else ""
    )


def legend(frame: MapFrame, colours: CellColours, y: int) -> Iterator[str]:
    """Yield the levels with the least count of each; a map with few I/Os doesn't use every level."""
    yield f'<text class="dim" x="{LEFT}" y="{y + 11}">I/Os in a cell:</text>'
    x = LEFT + 90
    for step, least in begins(colours.top, LEVELS).items():
        colour = frame.colours[step - 1]
        label = f"{least:,}" + ("+" if step == LEVELS else "")
        yield f'<rect class="h{step}" fill="{colour}" x="{x}" y="{y + 2}" width="12" height="10"/>'
        yield f'<text x="{x + 16}" y="{y + 11}">{label}</text>'
        x += 30 + round(len(label) * _CHAR)
    if colours.above:
        yield f'<rect class="tail" fill="{_TAIL}" x="{x + 6}" y="{y + 2}" width="12" height="10"/>'
        yield f'<text x="{x + 22}" y="{y + 11}">above {colours.above}</text>'
        x += 30 + round(len(f"above {colours.above}") * _CHAR)
    yield f'<text class="dim" x="{x + 6}" y="{y + 11}">hatched: not measured</text>'


def edge(scale: LatencyScale, row: int) -> str:
    """Return the lower edge of a row in words."""
    return "0" if row == 0 and scale.open_below else spelled(scale.edge_us(row))


def _when(wall: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(wall, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clock(wall: float) -> str:
    """Return the time of day, UTC."""
    when = _when(wall)
    return f"{when:%H:%M:%S}" if when else "--:--:--"


def _stamp(wall: float, step_s: int) -> str:
    when = _when(wall)
    if when is None:
        return "--:--:--"
    return f"{when:%H:%M:%S}" if step_s < 60 else f"{when:%H:%M}" if step_s < 7200 else f"{when:%m-%d %H:%M}"  # noqa: PLR2004  a minute, two hours


def map_frame(columns: MapColumns, colours: Sequence[str], marks: Sequence[Note], gaps: Sequence[Note]) -> MapFrame:
    """Return scales for all devices; rows become higher, then columns wider, until the cells are few enough."""
    column_counts = [counts for column in columns.columns.values() for counts in column.counts.values() if counts]
    low = min((min(buckets) for buckets in column_counts), default=bucket_index(64)) // _HALF * _HALF
    high = (max((max(buckets) for buckets in column_counts), default=bucket_index(16_384)) // _HALF + 1) * _HALF - 1
    scale = latency_scale(Extent(low, high), MAP_ROWS)
    if _cells(columns, scale) > MAX_DRAWN_CELLS:
        scale = latency_scale(Extent(low, high), MAP_ROWS // 2)
    while _cells(columns, scale) > MAX_DRAWN_CELLS and columns.count > 1:
        columns.widen(2)
    scale = replace(scale, rows=scale.row(high) + 1)
    return MapFrame(columns, scale, colours, tuple(marks), tuple(gaps))


def _cells(columns: MapColumns, scale: LatencyScale) -> int:
    return sum(
        len({scale.row(index) for index in counts})
        for column in columns.columns.values()
        for counts in column.counts.values()
    )


def heat_map(device: str, frame: MapFrame, threshold_us: int | None, limit: int | None, key: str) -> str:
    """Return the picture; empty if the device has no timed I/O. `key` makes its ids unique on the page."""
    columns_of_device = frame.columns.of(device)
    if not columns_of_device:
        return ""
    plot_y = TOP + LANE * min(len(frame.marks), LANES)
    bottom = plot_y + frame.scale.rows * frame.row
    depths = {at: column.depths[device] for at, column in frame.columns.columns.items() if device in column.depths}
    what = "in flight" if device in frame.columns.gauged else "in driver"
    legend_y = bottom + 24 + (STRIP + 12 if depths else 0)
    ios = sum(sum(counts.values()) for counts in columns_of_device.values())
    label = (
        f"Latency heat map of {device}: {number(ios)} I/Os, time across in {frame.count} columns, "
        f"latency up from {edge(frame.scale, 0)} to {edge(frame.scale, frame.scale.rows)}"
    )
    left, right, rows = LEFT, RIGHT - LEFT, frame.row
    size = f'viewBox="0 0 {WIDTH} {legend_y + 20}" role="img" aria-label="{text(label)}"'
    colours = cell_colours(columns_of_device, frame.scale, threshold_us)
    cells = f"translate({left} {plot_y}) scale({round(right / frame.count, 5)} {rows})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        hatching(key),
        f'<rect class="frame" fill="none" x="{left}" y="{plot_y}" width="{right}" height="{bottom - plot_y}"/>',
        *latency_axis(frame, plot_y, bottom),
        *gaps(frame, plot_y, bottom, key),
        f'<g class="cells" transform="{cells}">',
        *_levels(columns_of_device, frame, colours),
        "</g>",
        *threshold(frame, threshold_us, bottom),
        *time_axis(frame, plot_y, bottom),
        *marks(frame, bottom),
        *(strip(frame, depths, bottom + 24, limit, what) if depths else ()),
        *legend(frame, colours, legend_y),
        "</svg>",
    ]
    return "\n".join(parts)


def _levels(columns_of_device: dict[int, Counts], frame: MapFrame, colours: CellColours) -> Iterator[str]:
    scale = frame.scale
    drawn: dict[int, list[str]] = {}
    names = [f"{edge(scale, row)} to {edge(scale, row + 1)}" for row in range(scale.rows)]
    width_us = frame.columns.width_us
    for at, counts in sorted(columns_of_device.items()):
        wide = frame.columns.columns[at].wide
        wall = frame.columns.wall(frame.columns.begin_us + at * width_us)
        at_clock = _stamp(wall, _DAY_S) if width_us * frame.count > _DAY_S * 1_000_000 else clock(wall)
        rows: dict[int, int] = {}
        for index, n in counts.items():
            rows[scale.row(index)] = rows.get(scale.row(index), 0) + n
        for row, n in rows.items():
            shape = f"M{at} {scale.rows - 1 - row}h{wide}v1h-{wide}z"
            cell = f'<path d="{shape}"><title>{at_clock} {names[row]}: {n:,}</title></path>'
            step = LEVELS + 1 if row >= colours.tail_row else level(n, colours.top, LEVELS)
            drawn.setdefault(step, []).append(cell)
    for step in sorted(drawn):
        name, colour = ("tail", _TAIL) if step > LEVELS else (f"h{step}", frame.colours[step - 1])
        yield f'<g class="{name}" fill="{colour}">'
        yield from drawn[step]
        yield "</g>"


def histogram(device: str, histogram: Histogram, beside: Histogram | None = None) -> str:
    """Return I/Os per bucket with the quantiles; on logarithmic axes one slow I/O of millions is visible.

    The axes include those of the picture `beside`, whose buckets are equally wide.
    """
    if not histogram:
        return ""
    all_buckets = [*histogram.buckets, *(beside.buckets if beside else ())]
    first, last = min(index for index, _ in all_buckets), max(index for index, _ in all_buckets) + 1
    spread = max(last - first, 1)
    most = max(n for _, n in all_buckets)
    top, bottom = 40, 40 + _CHART_HIGH
    scale = _CHART_HIGH / max(math.log10(most) + 0.5, 0.5)

    def x(index: float) -> float:
        return round(LEFT + (RIGHT - LEFT) * (index - first) / spread, 1)

    begin = spelled(bucket_bounds(first, histogram.bits)[0])
    label = f"Histogram of {device}: {number(histogram.count)} I/Os from {begin} on"
    parts = [_open(bottom + 22, label)]
    for power in range(int(math.log10(most)) + 1):
        y = round(bottom - scale * (power + 0.5), 1)
        parts.append(f'<path class="grid" stroke="#b0b0b0" d="M{LEFT} {y}H{RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4}" text-anchor="end">{_short(10**power)}</text>')
    parts.append('<g class="bar" fill="#6a6e7a">')
    for index, n in histogram.buckets:
        low, high = bucket_bounds(index, histogram.bits)
        height = round(scale * (math.log10(n) + 0.5), 1)
        parts.append(
            f'<path d="M{x(index)} {bottom}V{round(bottom - height, 1)}H{x(index + 0.9)}V{bottom}z">'
            f"<title>{spelled(low)} to {spelled(high)}: {n:,} I/Os</title></path>"
        )
    parts.append(f'</g><path class="axis" stroke="#b0b0b0" d="M{LEFT} {bottom}H{RIGHT}"/>')
    for us in _DECADES:
        at = bucket_index(us, histogram.bits)
        if first < at < last:
            parts.append(f'<path class="axis" stroke="#b0b0b0" d="M{x(at)} {bottom}v5"/>')
            parts.append(f'<text x="{x(at)}" y="{bottom + 17}" text-anchor="middle">{spelled(us)}</text>')
    return "\n".join([*parts, *_quantiles(histogram, x, top, bottom), "</svg>"])


def _quantiles(histogram: Histogram, x: object, top: int, bottom: int) -> Iterator[str]:
    quantiles = {**QUANTILES, RAREST: RAREST_Q}
    reported = [*((name, histogram.quantile(q)) for name, q in quantiles.items()), ("max", histogram.max)]
    ends = [0.0, 0.0, 0.0]
    for name, us in reported:
        if us is None:
            continue
        # a quantile is its bucket's upper bound: its mark is at the right edge of that bar
        at = x(bucket_index(max(us - 1, 0), histogram.bits) + 1)  # type: ignore[operator]
        label = f"{name} {spelled(us)}"
        lane = next((n for n, end in enumerate(ends) if end <= at), None)
        yield f'<path class="mark" stroke="#000" fill="none" d="M{at} {top - 4}V{bottom}"><title>{label}</title></path>'
        if lane is not None:
            anchor, begin = ("end", at - len(label) * _CHART_CHAR) if at > RIGHT - 90 else ("start", at)
            if anchor == "end" and ends[lane] > begin:
                lane = next((n for n, end in enumerate(ends) if end <= begin), None)
            if lane is not None:
                ends[lane] = begin + (len(label) + 1) * _CHART_CHAR
                shift = -3 if anchor == "end" else 3
                yield f'<text class="lab" x="{at + shift}" y="{10 + 12 * lane}" text-anchor="{anchor}">{label}</text>'


def sweep_chart(
    label: str,
    names: Sequence[str],
    times: Mapping[str, Sequence[float | None]],
    rates: Mapping[str, Sequence[float | None]],
) -> str:
    """Return latencies in us as lines on a logarithmic axis, and below them a panel of bars for each rate.

    One value per name, None where it is not known. Each point and bar has its value as text.
    """
    known = [us for values in times.values() for us in values if us]
    step = (RIGHT - LEFT) / max(len(names), 1)
    panels = (_PANEL + _SPACE if known else 0) + len(rates) * (_PANEL // 2 + _SPACE)
    parts = [_open(panels + 4, label)]
    top = 18
    if known:
        parts += _lines(times, step, (min(known), max(known)), top)
        top += _PANEL + _SPACE
    for name, values in rates.items():
        parts += _bars(name, values, step, top)
        top += _PANEL // 2 + _SPACE
    for at, name in enumerate(names):
        x = LEFT + (at + 0.5) * step
        shown = name if len(name) * _CHAR <= step else name[: max(int(step / _CHAR) - 1, 1)] + "…"
        parts.append(f'<text x="{x:.1f}" y="{top - _SPACE + 16}" text-anchor="middle">{text(shown)}</text>')
    return "\n".join([*parts, "</svg>"])


def _lines(
    times: Mapping[str, Sequence[float | None]], step: float, ends: tuple[float, float], top: int
) -> Iterator[str]:
    low, high = math.log10(ends[0]) - 0.1, math.log10(ends[1]) + 0.1
    bottom = top + _PANEL

    def y(us: float) -> float:
        return round(bottom - (math.log10(us) - low) / (high - low) * _PANEL, 1)

    yield f'<rect class="frame" fill="none" x="{LEFT}" y="{top}" width="{RIGHT - LEFT}" height="{_PANEL}"/>'
    for us in _DECADES:
        if low < math.log10(us) < high:
            yield f'<path class="grid" stroke="#b0b0b0" d="M{LEFT} {y(us)}H{RIGHT}"/>'
            yield f'<text x="{LEFT - 5}" y="{y(us) + 4}" text-anchor="end">{spelled(us)}</text>'
    for rank, (name, values) in enumerate(times.items()):
        below = -4 if rank else 12  # the lowest line has its values below it
        points = [(round(LEFT + (at + 0.5) * step, 1), y(us), us) for at, us in enumerate(values) if us]
        if not points:
            continue
        yield f'<path class="mark" stroke="#000" fill="none" d="M{"L".join(f"{x} {at}" for x, at, _ in points)}"/>'
        yield f'<text class="lab" x="{RIGHT + 4}" y="{points[-1][1] + below}">{text(name)}</text>'
        for x, at, us in points:
            yield f'<circle class="depth" fill="#6a6e7a" cx="{x}" cy="{at}" r="3"/>'
            yield f'<text class="lab" x="{x + 6}" y="{at + below}">{spelled(us)}</text>'


def _bars(name: str, values: Sequence[float | None], step: float, top: int) -> Iterator[str]:
    bottom, most = top + _PANEL // 2, max((value or 0 for value in values), default=0) or 1
    yield f'<path class="axis" stroke="#b0b0b0" d="M{LEFT} {bottom}H{RIGHT}"/>'
    yield f'<text class="lab" x="{RIGHT + 4}" y="{bottom - 4}">{text(name)}</text>'
    for at, value in enumerate(values):
        x, high = LEFT + (at + 0.2) * step, (value or 0) / most * (_PANEL // 2)
        if value is not None:
            yield (
                f'<rect class="bar" fill="#6a6e7a" x="{x:.1f}" y="{bottom - high:.1f}" width="{0.6 * step:.1f}" '
                f'height="{high:.1f}"/>'
            )
        middle = LEFT + (at + 0.5) * step
        yield f'<text x="{middle:.1f}" y="{bottom - high - 4:.1f}" text-anchor="middle">{rate(value)}</text>'


def stage_bars(device: str, rows: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return a stacked bar per row: each stage's share (0..1) of the time, by its column's name."""
    rows = [(name, parts) for name, parts in rows if parts]
    if not rows:
        return ""
    label = "; ".join(
        f"{name}: " + ", ".join(f"{share(v)} {k}" for k, v in ordered(parts, COLUMNS)) for name, parts in rows
    )
    parts = [_open(len(rows) * (_BAR + 8) + 2, f"Stages of {device}. {label.replace('&lt;', 'less than')}")]
    for at, (name, shares) in enumerate(rows):
        y = at * (_BAR + 8) + 2
        parts.append(f'<text x="{_NAMES - 8}" y="{y + 13}" text-anchor="end">{text(name)}</text>')
        parts += _stack(shares, _NAMES, y, RIGHT + 50 - _NAMES, {k: share(v) for k, v in shares.items()})
    return "\n".join([*parts, "</svg>"])


def ribbon(stages_us: Mapping[str, int], unaccounted_us: int, total_us: int) -> str:
    """Return one I/O's way, its stages (by their columns' names) in proportion."""
    parts = {**stages_us, UNACCOUNTED: max(unaccounted_us, 0)}
    total = sum(parts.values())
    if not total or not stages_us:
        return ""
    label = ", ".join(f"{stage} {time_of(us)}" for stage, us in ordered(parts, COLUMNS) if us)
    drawn = _stack({k: v / total for k, v in parts.items()}, 0, 1, WIDTH, {k: time_of(v) for k, v in parts.items()})
    return "\n".join([_open(_BAR + 2, f"{time_of(total_us)}: {label}"), *drawn, "</svg>"])


def swatches(stages: Sequence[str]) -> list[str]:
    """Return each stage's colour and letter, as HTML."""
    return [
        f'<svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" {_ink(stage)}/></svg> '
        f"<b>{LETTERS.get(stage, '')}</b> {text(stage)}"
        for stage in stages
    ]


def depth_bars(device: str, shares: Mapping[int, float], limit: int | None, what: str) -> str:
    """Return a bar per depth, or per few neighbours, by share of time; the limit is a line if it is near."""
    if not shares:
        return ""
    most = max(shares)
    near = limit if limit is not None and limit <= 2 * most + 8 else None
    last = max(most, near or 0)
    step = -(-(last + 1) // _MAX_BARS)
    bars: dict[int, float] = {}
    for depth, part in shares.items():
        bars[depth // step] = bars.get(depth // step, 0.0) + part
    count = last // step + 1
    width = min((RIGHT - LEFT) / count, 40.0)
    top, bottom = 8, 8 + 80
    high = max(bars.values())
    parts = [_open(bottom + 20, f"{device}, {what}: share of time by number of I/Os, at most {number(most)}")]
    parts.append(f'<text x="{LEFT - 5}" y="{top + 9}" text-anchor="end">{share(high)}</text>')
    parts.append('<g class="depth" fill="#6a6e7a">')
    for at, part in sorted(bars.items()):
        height = max(80 * part / high, 1 if part else 0)
        depths = f"{at * step:,}" if step == 1 else f"{at * step:,} to {at * step + step - 1:,}"
        begin = LEFT + at * width
        parts.append(
            f'<path d="M{begin:.1f} {bottom}v-{height:.1f}h{width * 0.85:.1f}v{height:.1f}z">'
            f"<title>{depths} {text(what)}: {share(part)} of the time</title></path>"
        )
    parts.append(f'</g><path class="axis" stroke="#b0b0b0" d="M{LEFT} {bottom}H{RIGHT}"/>')
    bar_step = max(1, math.ceil(count / 24))
    for at in range(0, count, bar_step):
        middle = LEFT + (at + 0.43) * width
        parts.append(f'<text x="{middle:.1f}" y="{bottom + 14}" text-anchor="middle">{_short(at * step)}</text>')
    if near is None and limit is not None:
        far = f"limit {number(limit)} →"
        parts.append(f'<text class="dim" x="{RIGHT}" y="{top + 10}" text-anchor="end">{far}</text>')
    if near is not None:
        end = LEFT + (near / step + 0.93) * width
        parts.append(f'<path class="limit" stroke="#116149" fill="none" d="M{end:.1f} {top}V{bottom}"/>')
        anchor, shift = ("end", -4) if end > RIGHT - 90 else ("start", 4)
        parts.append(
            f'<text class="lab" x="{end + shift:.1f}" y="{top + 10}" text-anchor="{anchor}">limit {number(near)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _stack(shares: Mapping[str, float], x: float, y: int, width: float, labels: Mapping[str, str]) -> Iterator[str]:
    """Yield parts side by side; a part that is wide enough has its letter."""
    for stage, part in ordered(shares, COLUMNS):
        wide = part * width
        if wide <= 0:
            continue
        yield (
            f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}" {_ink(stage)}>'
            f"<title>{text(stage)} {labels[stage]}</title></rect>"
        )
        if wide >= _LETTER:
            middle, letter = f"{x + wide / 2:.1f}", LETTERS.get(stage, "")
            yield f'<text class="lab" x="{middle}" y="{y + 13}" text-anchor="middle">{letter}</text>'
        x += wide


def _ink(stage: str) -> str:
    """Return a stage's colour; unaccounted time has none."""
    if stage == UNACCOUNTED:
        return 'class="left" fill="none" stroke="#6c6c6c"'
    return f'class="part" fill="{drawn_as(stage).colour.rgb}"'


def _open(height: float, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{text(label)}">'
    )


def _short(value: int) -> str:
    for unit, factor in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= factor:
            return f"{value / factor:g}{unit}"
    return str(value)
