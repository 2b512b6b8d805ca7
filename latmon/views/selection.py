"""The selection as one frozen value: device, screen, cursor, region. Pure.

Columns are kept by their number and latencies by their buckets, not by where they are drawn: the region stays on its
data while time goes on and the scale changes. `at_newest` is where one begins, `clamped` keeps it on the map, `times`
and `ios` say what is in it, `framed` draws it, `headline` and `words` tell it.

A cursor is a column's number and a bucket, so it stays on its data while time goes on; with a corner held it spans a
region. What is picked is time and latency alone: it outlives the map.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from latmon.model.frame import OPS, Device, Outlier
from latmon.model.histogram import bucket_bounds, bucket_index
from latmon.support.units import duration
from latmon.views.heatmap import LABEL, MapStyle
from latmon.views.lines import Line, Span, runs
from latmon.views.scale import LatencyScale
from latmon.views.timeline import Column, Timeline
from latmon.views.units import clock, count


@dataclass(frozen=True, slots=True)
class Region:
    """Columns `first` to `last` and buckets `low` to `high`, all of them included.

    `open_below` and `open_above`: it reaches the edge of the map, where a row holds what is beyond it as well.
    """

    first: int
    last: int
    low: int
    high: int
    open_below: bool = False
    open_above: bool = False

    def covers(self, index: int) -> bool:
        """Whether a bucket lies in it."""
        return (self.open_below or index >= self.low) and (self.open_above or index <= self.high)


def at_newest(timeline: Timeline, device: str, scale: LatencyScale) -> Region | None:
    """One cell: the slowest I/O of the newest column that has any; None where the map is empty."""
    for column in reversed(timeline.columns):
        counts = column.counts.get(device)
        if counts:
            row = scale.row(max(counts))
            low, high = scale.low + row * scale.step, scale.low + (row + 1) * scale.step - 1
            return Region(column.number, column.number, low, high, row == 0, row == scale.rows - 1)
    return None


def clamped(region: Region, timeline: Timeline) -> Region | None:
    """What is left of it on the map; None when the last of its columns was overwritten."""
    inside = _columns(region, timeline)
    return replace(region, first=inside[0].number, last=inside[-1].number) if inside else None


def times(region: Region, timeline: Timeline) -> tuple[int, int]:
    """(begin, end] on the monotonic clock, in us; both 0 where nothing of it is on the map."""
    inside = _columns(region, timeline)
    return (inside[0].mono_us - inside[0].filled_us, inside[-1].mono_us) if inside else (0, 0)


def ios(region: Region, timeline: Timeline, device: str) -> int:
    """I/Os of the map in it."""
    return sum(
        n
        for column in _columns(region, timeline)
        for index, n in column.counts.get(device, {}).items()
        if region.covers(index)
    )


def words(region: Region, timeline: Timeline) -> str:
    """13:03:50-13:03:58, 65.5m to 1.05s: whose time and latency it is."""
    inside = _columns(region, timeline)
    if not inside:
        return "its time is no longer on the map"
    begin = clock(inside[0].wall - inside[0].filled_us / 1e6)
    return f"{begin}-{clock(inside[-1].wall)}, {_latencies(region)}"


def headline(region: Region, timeline: Timeline, device: str, told: int | None) -> Line:
    """Return what is in it, while it is chosen; `told`: outliers of the log in it, None while they are being read."""
    n = ios(region, timeline, device)
    return (
        Span(f" {device}", "accent"),
        Span(f" region {words(region, timeline)}  "),
        Span(f"{count(n)} I/Os{'' if told is None else f', {count(told)} outliers'}", "strong"),
    )


def framed(
    lines: Sequence[Line], region: Region, timeline: Timeline, style: MapStyle, label: int = LABEL
) -> list[Line]:
    """A map's lines with a frame around the region, just outside of it: what it holds stays readable.

    At an edge of the map the frame is open. `label`: cells before the first column.
    """
    left = clamped(region, timeline)
    if left is None:
        return list(lines)
    highest = style.scale.rows - 1
    top, bottom = highest - style.scale.row(left.high), highest - style.scale.row(left.low)
    marks: dict[int, dict[int, str]] = {}
    for begin, end in _slots(left, timeline):
        west, east = label + begin * style.cell_width - 1, label + (end + 1) * style.cell_width
        for y in range(top, bottom + 1):
            marks.setdefault(y, {}).update({west: "│", east: "│"})
        for y, corners in ((top - 1, "┌┐"), (bottom + 1, "└┘")):
            edge = dict.fromkeys(range(west + 1, east), "─") | {west: corners[0], east: corners[1]}
            marks.setdefault(y, {}).update(edge)
    last = label + timeline.slots * style.cell_width
    return [_marked(line, marks.get(y, {}) if y <= highest else {}, label, last) for y, line in enumerate(lines)]


def _marked(line: Line, marks: dict[int, str], first: int, last: int) -> Line:
    """A line of a map (each character a cell) with marks over it, none on the labels and none behind the map."""
    if not marks:
        return line
    cells = [(char, role) for text, role in line for char in text]
    cells += [(" ", "text")] * (last - len(cells))
    for x, mark in marks.items():
        if first <= x < last:
            cells[x] = (mark, "accent")
    return runs(cells)


def _latencies(region: Region) -> str:
    low, high = duration(bucket_bounds(region.low)[0]), duration(bucket_bounds(region.high)[1])
    if region.open_below:
        return "all latencies" if region.open_above else f"below {high}"
    return f"{low} and more" if region.open_above else f"{low} to {high}"


def _columns(region: Region, timeline: Timeline) -> list[Column]:
    return [c for c in timeline.columns if region.first <= c.number <= region.last]


def _slots(region: Region, timeline: Timeline) -> list[tuple[int, int]]:
    """Return the slots it is drawn in: two runs where a sweep begins anew inside of it."""
    first, last = timeline.slot(region.first), timeline.slot(region.last)
    return [(first, last)] if first <= last else [(first, timeline.slots - 1), (0, last)]


class Point(NamedTuple):
    """A cell: a column, and a bucket inside of its row."""

    column: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the cursor is, and the corner that is held."""

    at: Point
    corner: Point | None = None

    def moved(self, columns: int, rows: int, timeline: Timeline, scale: LatencyScale) -> Cursor:
        """So many cells to the right and up, stopping at the map's edges; a held corner stays."""
        newest = timeline.newest()
        oldest = timeline.columns[0].number if timeline.columns else 0
        column = min(max(self.at.column + columns, oldest), max(newest, oldest))
        row = min(max(scale.row(self.at.bucket) + rows, 0), scale.rows - 1)
        return replace(self, at=Point(column, scale.low + row * scale.step))

    def held(self) -> Cursor:
        """With this corner held; where one is, let go of it."""
        return replace(self, corner=None if self.corner else self.at)

    def region(self, scale: LatencyScale) -> Region:
        """The cells from the held corner to the cursor."""
        other = self.corner or self.at
        first, last = sorted((self.at.column, other.column))
        bottom, top = sorted((scale.row(self.at.bucket), scale.row(other.bucket)))
        low, high = scale.low + bottom * scale.step, scale.low + (top + 1) * scale.step - 1
        return Region(first, last, low, high, open_below=bottom == 0, open_above=top == scale.rows - 1)


@dataclass(frozen=True, slots=True)
class Picked:
    """The I/Os of a device that completed in a time and took so long."""

    device: str
    begin_us: int
    end_us: int
    region: Region
    words: str

    def holds(self, one: Outlier) -> bool:
        """A map counts an I/O when it completes, and by its time until then: the waiter's resume comes later."""
        took = max(one.total_us - one.stages_us.get("resume", 0), 0)
        index, region = bucket_index(took), self.region
        slow = region.open_below or index >= region.low
        quick = region.open_above or index <= region.high
        return one.device == self.device and self.begin_us < one.mono_us + took <= self.end_us and slow and quick


def begun(timeline: Timeline, device: str, scale: LatencyScale) -> Cursor | None:
    """On the slowest I/O of the newest column that has any; None where the map is empty."""
    cell = at_newest(timeline, device, scale)
    return None if cell is None else Cursor(Point(cell.last, cell.low))


def across(band: tuple[int | None, int | None], timeline: Timeline, scale: LatencyScale) -> Cursor | None:
    """Over all of the map's time, from one latency in us to another; None: to the edge. None where it is empty."""
    if not timeline.columns:
        return None
    newest, oldest, (low, high) = timeline.newest(), timeline.columns[0].number, band
    top = scale.low + (scale.rows - 1) * scale.step
    buckets = (scale.low if low is None else bucket_index(low), top if high is None else bucket_index(high))
    bottom, upper = (min(max(one, scale.low), top) for one in buckets)
    return Cursor(Point(newest, max(upper, bottom)), Point(oldest, bottom))


def picked(cursor: Cursor, timeline: Timeline, device: str, scale: LatencyScale) -> Picked:
    """What the cursor spans, to the end of a column that is still being filled."""
    region = cursor.region(scale)
    begin, end = times(region, timeline)
    if region.last >= timeline.newest():
        end += timeline.column_us - timeline.columns[-1].filled_us
    return Picked(device, begin, end, region, f"{words(region, timeline)}, {device}")


def carried(cursor: Cursor, old: Timeline, new: Timeline) -> Cursor | None:
    """The same moments on another timeline; None where it doesn't reach back so far."""
    corner = None if cursor.corner is None else _found(cursor.corner, old, new)
    at = _found(cursor.at, old, new)
    if at is None or (cursor.corner is not None and corner is None):
        return None
    return Cursor(at, corner)


def _found(point: Point, old: Timeline, new: Timeline) -> Point | None:
    end = next((c.mono_us for c in old.columns if c.number == point.column), None)
    if end is None:
        return None
    return next((Point(c.number, point.bucket) for c in new.columns if c.mono_us >= end), None)


WINDOWS_US = tuple(s * 1_000_000 for s in (15, 30, 60, 120, 300, 600))
SORTS = ("unlike", "p99", "max", "IOPS", "MB/s", "out", "name")
OP_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (("all", OPS), *((op, (op,)) for op in OPS))
PANELS = ("overview", "maps", "zoom")
SCREENS = ("overview", "stages", "outstanding", "outliers", "interrupts", "findings")
ASIDES = ("audit", "order")
"""What the outstanding screen shows instead of a device's depths."""
FindingKey = tuple[str, str, int]
"""Rule, device, and when it began: each time that it was found is another line."""
_CLOSER = {"stages": "stage", "outliers": "outlier", "interrupts": "delays"}


@dataclass(frozen=True, slots=True)
class Choice:
    """The state of the screen that a user set; `globs`, `backend` and `sweep` come from the start and never change."""

    screen: str = "overview"
    opened: bool = False
    """The screen's closer look: a device's stages, an outlier's waterfall, a vector's delays."""
    top: int = 0
    """Lines scrolled in a closer look."""
    panel: str = "overview"
    selected: str = ""
    offered: str = ""
    """What a screen opened on by itself: while it is the selected one, the user has selected none."""
    pattern: str = ""
    sort: str = "unlike"
    op: str = "all"
    window_us: int = 60_000_000
    threshold_us: int | None = None
    globs: tuple[str, ...] = ()
    backend: str = "auto"
    """The one that was asked for."""
    sweep: bool = False
    """Heat maps overwrite their oldest column instead of moving to the left."""
    stages: str = "auto"
    """One of STAGES_MODES."""
    order: str = "newest"
    outlier: Outlier | None = None
    """The picked one; the first of the log until the user picks."""
    cursor: Cursor | None = None
    """On the map of the selected device."""
    region: Picked | None = None
    """What the log of outliers is about; None: all."""
    fold: str = ""
    """What the sub-second-offset map in place of the heat map is of: `second`, `tick`; empty: the heat map."""
    part: int = 0
    row: Hashable | None = None
    """The selected table of the interrupts screen, and what its selected row is about."""
    first_cpu: int = 0
    busy: bool = False
    """Depths of busy time alone."""
    aside: str = ""
    """One of ASIDES, on the outstanding screen."""
    finding: FindingKey | None = None
    """The selected one; the first of the list until the user selects."""
    band: tuple[int | None, int | None] | None = None
    """Latencies that are marked on the map of the selected device; None: no bound."""
    back: Choice | None = None
    """Where Esc leads from a finding's evidence."""
    landed: tuple[bool, ...] = ()
    """The depth at which it was shown."""

    @property
    def context(self) -> str:
        """What keys are about: the screen, its closer look, or the cursor on its map.

        `tables`: those parts of the interrupts screen that have no closer look.
        """
        if self.screen == "overview" and self.cursor is not None:
            return "cursor"
        if self.screen == "overview" and self.panel == "zoom":
            return "zoom"
        if self.screen == "outstanding" and self.aside:
            return self.aside
        if self.screen == "interrupts" and not self.opened and self.part:
            return "tables"
        return _CLOSER.get(self.screen, self.screen) if self.opened else self.screen

    @property
    def depth(self) -> tuple[bool, ...]:
        """What Esc goes back from, one by one."""
        return self.opened, bool(self.aside), self.cursor is not None, self.region is not None, self.panel == "zoom"

    @property
    def is_selected(self) -> bool:
        """Whether the user selected the device himself."""
        return self.selected not in ("", self.offered)

    @property
    def ops(self) -> tuple[str, ...]:
        return dict(OP_CHOICES)[self.op]

    @property
    def op_label(self) -> str:
        return "all ops" if self.op == "all" else self.op


def after(options: tuple[str, ...], now: str) -> str:
    """The next of several options, round and round."""
    return options[(options.index(now) + 1) % len(options)]


def window_beside(now_us: int, step: int) -> int:
    """The next longer (step 1) or shorter (-1) window, stopping at the ends."""
    at = min(range(len(WINDOWS_US)), key=lambda i: abs(WINDOWS_US[i] - now_us))
    return WINDOWS_US[min(max(at + step, 0), len(WINDOWS_US) - 1)]


def shown(devices: Iterable[Device], choice: Choice) -> list[Device]:
    """The devices that the command line and the filter let through."""
    return [d for d in devices if _allowed(d, choice.globs) and matches(d, choice.pattern)]


def matches(device: Device, pattern: str) -> bool:
    """A glob when it has a wildcard, else a part of the name, label, driver or model; capitals don't matter."""
    if not pattern:
        return True
    wanted = pattern.lower()
    words = [w.lower() for w in (device.name, device.label, device.driver, device.model) if w]
    if any(c in wanted for c in "*?["):
        return any(fnmatchcase(w, wanted) for w in words)
    return any(wanted in w for w in words)


def _allowed(device: Device, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatchcase(n, g) for g in globs for n in (device.name, device.label) if n)
