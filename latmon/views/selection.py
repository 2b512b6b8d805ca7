"""The selection as one frozen value: screen, device, cursor, region, op, window. Pure.

A cursor and a region are column numbers and latency buckets, not places on the screen, so that they stay on their data
while time passes and the scale changes. A picked region is times and latencies, which outlive the map.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from latmon.findings.rule import DEFAULT, Settings
from latmon.model.frame import OPS, Device, Outlier
from latmon.model.histogram import bucket_bounds, bucket_index
from latmon.model.redaction import Redaction
from latmon.support.theme import AUTO, DEFAULT_THEME, Theme, load_theme
from latmon.support.units import clock, duration
from latmon.views.axes import LatencyScale, TimeColumn, Timeline
from latmon.views.heatmap import LABEL, MapStyle
from latmon.views.lines import Line, Span, runs
from latmon.views.units import count

FOREVER_US = 2**63
"""The end of a region that is not limited in time."""
WINDOWS_US = tuple(s * 1_000_000 for s in (15, 30, 60, 120, 300, 600))
SORT_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "unlike": "worst first",
        "p99": "p99",
        "max": "max",
        "IOPS": "IOPS",
        "MB/s": "MB/s",
        "out": "share of the limit",
        "name": "name",
    }
)
"""Order of the table -> its name in the table's title."""
SORTS = ("unlike", "p99", "max", "IOPS", "MB/s", "out", "name")
OP_CHOICES: tuple[tuple[str, tuple[str, ...]], ...] = (("all", OPS), *((op, (op,)) for op in OPS))
APART = ("read", "write")
"""Ops that are shown apart."""
HOST = "host"
GROUPS = ("", HOST, "controller", "model", "volume")
"""What a row of the overview is: a device, or a group of devices. Only a fleet's have hosts."""
PANELS = ("overview", "maps", "zoom")
SCREENS = ("overview", "stages", "outstanding", "outliers", "interrupts", "findings", "who")
ASIDE_OF: Mapping[str, str] = MappingProxyType({"audit": "outstanding", "order": "outstanding", "files": "stages"})
"""Panel that replaces a screen's own -> that screen."""
ASIDES = tuple(ASIDE_OF)
_WITH_ASIDES = ("outstanding", "stages")
FindingKey = tuple[str, str, int]
"""Rule, device, and begin in us: each episode of a finding has its own row."""
_OPENED = {"stages": "stage", "outliers": "outlier", "interrupts": "delays", "who": "issuer"}
FOLDS = MappingProxyType({"offsets": "second", "ticks": "tick"})
"""Screen of a map of sub-second offsets -> its fold."""


@dataclass(frozen=True, slots=True)
class Region:
    """Columns `first` to `last` and buckets `low` to `high`, all of them included.

    `open_below` and `open_above`: it reaches the edge of the map, whose row includes all latencies beyond.
    """

    first: int
    last: int
    low: int
    high: int
    open_below: bool = False
    open_above: bool = False

    def covers(self, index: int) -> bool:
        """Return whether a bucket lies in the region."""
        return (self.open_below or index >= self.low) and (self.open_above or index <= self.high)


def at_newest(timeline: Timeline, device: str, scale: LatencyScale) -> Region | None:
    """Return the cell of the slowest I/O of the newest column with I/Os; None where the map is empty."""
    for column in reversed(timeline.columns):
        counts = column.counts(device)
        if counts:
            row = scale.row(max(counts))
            return _region((column.number, column.number), (row, row), scale)
    return None


def _region(columns: tuple[int, int], rows: tuple[int, int], scale: LatencyScale) -> Region:
    """Return the region of columns and rows, all of them included."""
    low, high = scale.first(rows[0]), scale.last(rows[1])
    return Region(*columns, low, high, open_below=rows[0] == 0, open_above=high >= scale.last(scale.rows - 1))


def clamped(region: Region, timeline: Timeline) -> Region | None:
    """Return the part of a region that is still on the map; None when its last column was overwritten."""
    inside = _columns(region, timeline)
    return replace(region, first=inside[0].number, last=inside[-1].number) if inside else None


def times(region: Region, timeline: Timeline) -> tuple[int, int]:
    """Return (begin, end] on the monotonic clock, in us; both 0 where no column is on the map."""
    inside = _columns(region, timeline)
    return (inside[0].mono_us - inside[0].filled_us, inside[-1].mono_us) if inside else (0, 0)


def ios(region: Region, timeline: Timeline, device: str) -> int:
    """Return the number of the map's I/Os in a region."""
    return sum(
        n for column in _columns(region, timeline) for index, n in column.counts(device).items() if region.covers(index)
    )


def words(region: Region, timeline: Timeline) -> str:
    """Return a region's time and latency: `13:03:50-13:03:58, 65.5ms to 1.05s`."""
    inside = _columns(region, timeline)
    if not inside:
        return "its time is no longer on the map"
    begin = clock(inside[0].wall - inside[0].filled_us / 1e6)
    return f"{begin}-{clock(inside[-1].wall)}, {_latencies(region)}"


def headline(region: Region, timeline: Timeline, device: str, reported: int | None) -> Line:
    """Return the headline of a region; `reported`: outliers in it, None while they are being read."""
    n = ios(region, timeline, device)
    return (
        Span(f" {device}", "accent"),
        Span(f" region {words(region, timeline)}  "),
        Span(_plural(n, "I/O") + ("" if reported is None else f", {_plural(reported, 'outlier')}"), "strong"),
    )


def _plural(n: int, name: str) -> str:
    return f"{count(n)} {name}{'s' * (n != 1)}"


def framed(
    lines: Sequence[Line], region: Region, timeline: Timeline, style: MapStyle, label: int = LABEL
) -> list[Line]:
    """Return a map's lines with a frame just outside of the region; at an edge of the map the frame is open.

    `label`: cells before the first column.
    """
    left = clamped(region, timeline)
    if left is None:
        return list(lines)
    highest = style.scale.rows - 1
    top, bottom = highest - style.scale.top_row(left.high), highest - style.scale.row(left.low)
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
    """Return a line of a map (each character a cell) with marks over its columns."""
    if not marks:
        return line
    cells = [(char, role) for text, role, _ in line for char in text]
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


def _columns(region: Region, timeline: Timeline) -> list[TimeColumn]:
    return [c for c in timeline.columns if region.first <= c.number <= region.last]


def _slots(region: Region, timeline: Timeline) -> list[tuple[int, int]]:
    """Return the runs of slots of a region: two where a sweep's marker is inside of it."""
    first, last = timeline.slot(region.first), timeline.slot(region.last)
    return [(first, last)] if first <= last else [(first, timeline.slots - 1), (0, last)]


class MapCell(NamedTuple):
    """A cell: a column, and a bucket inside of its row."""

    column: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cursor on a map, and the pinned corner of its region."""

    at: MapCell
    corner: MapCell | None = None

    def moved(self, columns: int, rows: int, timeline: Timeline, scale: LatencyScale) -> Cursor:
        """Return the cursor moved right and up by cells, at most to the window's edges; a pinned corner stays."""
        newest, oldest = timeline.newest(), timeline.first
        column = min(max(self.at.column + columns, oldest), max(newest, oldest))
        return replace(self, at=MapCell(column, scale.beside(self.at.bucket, rows)))

    def pinned(self) -> Cursor:
        """Return the cursor with a corner of the region pinned here; where one is pinned, without it."""
        return replace(self, corner=None if self.corner else self.at)

    def region(self, scale: LatencyScale) -> Region:
        """Return the region from the pinned corner to the cursor."""
        other = self.corner or self.at
        first, last = sorted((self.at.column, other.column))
        bottom, top = sorted((scale.row(self.at.bucket), scale.row(other.bucket)))
        return _region((first, last), (bottom, top), scale)


@dataclass(frozen=True, slots=True)
class Picked:
    """A region by time and latency: the I/Os of a device that completed in it."""

    device: str
    begin_us: int
    end_us: int
    region: Region
    words: str
    op: str = "all"
    """The op of the map; `all` for any."""
    pids: frozenset[int] | None = None
    """The processes that issued them; None: any."""

    def holds(self, outlier: Outlier) -> bool:
        """Return whether an outlier is in the region, by its completion: the waiter's resume is not in the maps."""
        took = max(outlier.total_us - outlier.stages_us.get("resume", 0), 0)
        index, region = bucket_index(took), self.region
        slow = region.open_below or index >= region.low
        quick = region.open_above or index <= region.high
        is_of = (
            outlier.device == self.device
            and self.op in ("all", outlier.op)
            and (self.pids is None or outlier.pid in self.pids)
        )
        return is_of and self.begin_us < outlier.mono_us + took <= self.end_us and slow and quick


def issued_by(pids: frozenset[int], device: str, words: str) -> Picked:
    """Return the filter for all I/Os that processes issued to a device, at any time."""
    region = Region(0, 0, 0, 0, open_below=True, open_above=True)
    return Picked(device, 0, FOREVER_US, region, words, pids=pids)


def begun(timeline: Timeline, device: str, scale: LatencyScale) -> Cursor | None:
    """Return a cursor on the slowest I/O of the newest column with I/Os; None where the map is empty."""
    cell = at_newest(timeline, device, scale)
    return None if cell is None else Cursor(MapCell(cell.last, cell.low))


def across(band: tuple[int | None, int | None], timeline: Timeline, scale: LatencyScale) -> Cursor | None:
    """Return a cursor over the window and a range of latencies in us; None where the map is empty.

    A bound of None is the edge of the map.
    """
    if not timeline.columns:
        return None
    newest, oldest, (low, high) = timeline.newest(), timeline.first, band
    top = scale.first(scale.rows - 1)
    buckets = (scale.low if low is None else bucket_index(low), top if high is None else bucket_index(high))
    bottom, upper = (min(max(bucket, scale.low), top) for bucket in buckets)
    return Cursor(MapCell(newest, max(upper, bottom)), MapCell(oldest, bottom))


def picked(cursor: Cursor, timeline: Timeline, device: str, scale: LatencyScale, op: str = "all") -> Picked:
    """Return the region of a cursor, up to the end of a column that is still being filled; `op`: that of the map."""
    region = cursor.region(scale)
    begin, end = times(region, timeline)
    if region.last >= timeline.newest():
        end += timeline.column_us - timeline.columns[-1].filled_us
    whose = device if op == "all" else f"{device} {op}"
    return Picked(device, begin, end, region, f"{words(region, timeline)}, {whose}", op)


def carried(cursor: Cursor, old: Timeline, new: Timeline) -> Cursor | None:
    """Return a cursor at the same times of another timeline; None where that doesn't reach back so far."""
    corner = None if cursor.corner is None else _found(cursor.corner, old, new)
    at = _found(cursor.at, old, new)
    if at is None or (cursor.corner is not None and corner is None):
        return None
    return Cursor(at, corner)


def _found(point: MapCell, old: Timeline, new: Timeline) -> MapCell | None:
    end = next((c.mono_us for c in old.columns if c.number == point.column), None)
    if end is None:
        return None
    return next((MapCell(c.number, point.bucket) for c in new.columns if c.mono_us >= end), None)


@dataclass(frozen=True, slots=True)
class Selection:
    """The state of the screen that keys change; `globs`, `backend` and `sweep` are set at the start."""

    screen: str = "overview"
    opened: bool = False
    """The selected row is opened: a device's stages, an outlier's waterfall, a vector's delays."""
    top: int = 0
    """Lines scrolled."""
    panel: str = "overview"
    selected: str = ""
    offered: str = ""
    """The device that a screen selected by itself; it doesn't count as selected by the user."""
    details: bool = False
    """The page on the health of the capture replaces the panel."""
    pattern: str = ""
    """Words of the filter; see `matches`."""
    sort: str = "unlike"
    columns: tuple[str, ...] = ()
    """Titles of the device table's columns; empty: as many as fit."""
    op: str = "all"
    group: str = ""
    """One of GROUPS."""
    within: str = ""
    """Name of the group whose devices are shown; empty: a row per group."""
    apart: bool = False
    """Reads and writes of the selected device apart, on the overview."""
    window_us: int = 60_000_000
    threshold_us: int | None = None
    globs: tuple[str, ...] = ()
    backend: str = "auto"
    """The requested one."""
    sweep: bool = False
    """Heat maps overwrite their oldest column instead of moving to the left."""
    stages: str = "auto"
    """One of STAGES_MODES."""
    order: str = "longest"
    outlier: Outlier | None = None
    """The selected one; None: the first of the log."""
    cursor: Cursor | None = None
    """Cursor on the map of the selected device."""
    region: Picked | None = None
    """Filter of the outlier log; None: all."""
    fold: str = ""
    """Map of sub-second offsets in place of the heat map: `second` or `tick`; empty: the heat map."""
    part: int = 0
    row: Hashable | None = None
    """The selected table of the interrupts screen, and the key of its selected row."""
    first_cpu: int = 0
    processes: bool | None = None
    """A row per process instead of one per cgroup, on the screen of who issued the I/Os; None: as `lists_processes`."""
    busy: bool = False
    """Depths of busy time only."""
    aside: str = ""
    """One of ASIDES."""
    finding: FindingKey | None = None
    """The selected one; None: the first of the list."""
    band: tuple[int | None, int | None] | None = None
    """Latencies that are marked on the map of the selected device; None: no bound."""
    load: bool | None = None
    """Values of the host below the map of the selected device; None: where it is large and a value is high."""
    back: Selection | None = None
    """The selection that Esc returns to from a finding's evidence."""
    landed: tuple[bool, ...] = ()
    """The `depth` at which the evidence was shown."""

    @property
    def context(self) -> str:
        """Return the context of keys: the screen, its opened row, or the cursor on its map.

        `tables`: the tables of the interrupts screen whose rows can't be opened.
        """
        if self.details:
            return "details"
        if self.screen == "overview" and self.cursor is not None:
            return "cursor"
        if self.screen == "overview" and self.panel == "zoom":
            return "zoom"
        if self.screen in _WITH_ASIDES and self.aside:
            return self.aside
        if self.screen == "interrupts" and not self.opened and self.part:
            return "tables"
        return _OPENED.get(self.screen, self.screen) if self.opened else self.screen

    @property
    def next_group(self) -> str:
        """Return the one of GROUPS that follows."""
        return after(
            tuple(group_name for group_name in GROUPS if group_name != HOST or self.backend == "fleet"), self.group
        )

    @property
    def lists_groups(self) -> bool:
        """Return whether the overview has a row per group."""
        return bool(self.group) and not self.within and self.screen == "overview" and self.panel == PANELS[0]

    @property
    def depth(self) -> tuple[bool, ...]:
        """Return the steps that Esc goes back, one by one."""
        return self.opened, bool(self.aside), self.cursor is not None, self.region is not None, self.panel == "zoom"

    @property
    def is_selected(self) -> bool:
        """Return whether the user selected the device."""
        return self.selected not in ("", self.offered)

    @property
    def splits(self) -> bool:
        """Return whether reads and writes are shown apart: not with one op alone, nor where something is marked."""
        return self.apart and self.op == "all" and self.cursor is None and self.band is None and not self.fold

    @property
    def ops(self) -> tuple[str, ...]:
        return dict(OP_CHOICES)[self.op]

    @property
    def op_label(self) -> str:
        return "all ops" if self.op == "all" else self.op


@dataclass(frozen=True, slots=True)
class ViewSettings:
    """The part of a selection that options, the config and saved views set, by the config's keys; None: not set."""

    sort: str | None = None
    filter: str | None = None
    window: int | None = None
    """In us."""
    columns: tuple[str, ...] | None = None
    screen: str | None = None
    """One of SCREENS, PANELS or ASIDES."""
    op: str | None = None

    def over(self, base: Selection) -> Selection:
        """Return the selection with these settings; a screen is shown from its first row, with no device opened."""
        values = {
            "sort": self.sort,
            "pattern": self.filter,
            "window_us": self.window,
            "columns": self.columns,
            "op": self.op,
        }
        selection = replace(base, **{name: value for name, value in values.items() if value is not None})  # type: ignore[arg-type]  # each of its own type
        if self.screen is None:
            return selection
        panel = self.screen if self.screen in PANELS else PANELS[0]
        screen = ASIDE_OF.get(self.screen, self.screen if self.screen in SCREENS else SCREENS[0])
        return replace(selection, screen=screen, panel=panel, aside=self.screen if self.screen in ASIDES else "")


@dataclass(frozen=True, slots=True)
class ScreenOptions:
    """Settings of the command line and the config for the TUI, the strip of `--inline` and pictures."""

    selection: Selection = Selection()
    """It is shown first."""
    mode: str = "LIVE"
    """The word in the title: LIVE, DEMO or REPLAY."""
    theme: Theme = field(default_factory=partial(load_theme, DEFAULT_THEME))
    """The colours, those of counts included."""
    ramp: str = AUTO
    """The name of the ramp, which another theme of the same screen gets too."""
    findings: Settings | None = DEFAULT
    """Thresholds of the rules; None: no rule is evaluated."""
    views: Mapping[str, ViewSettings] = field(default_factory=dict)
    """The saved views by name."""
    history_us: int | None = None
    """Length of the history; None: the default."""
    record: Path | None = None
    """The recording that the capture begins with."""
    redaction: Redaction | None = None
    """Foreign names are left out of saved files."""
    bell: bool = False
    """The terminal's bell rings for each new critical finding."""
    takes_mouse: bool = True
    to_worst: bool = False
    """A replay begins with its worst minute."""


def screen_options(screen: str = "overview", theme: str = DEFAULT_THEME, ramp: str = AUTO) -> ScreenOptions:
    """Return the options of a picture of one of SCREENS. Raises ThemeError for an unknown theme or ramp."""
    fold = FOLDS.get(screen, "")
    first = ViewSettings(screen=None if fold else screen).over(Selection(fold=fold))
    return ScreenOptions(first, "REPLAY", load_theme(theme, ramp=ramp), ramp)


def after(options: tuple[str, ...], now: str) -> str:
    """Return the option after `now`; after the last one the first."""
    return options[(options.index(now) + 1) % len(options)]


def window_beside(now_us: int, step: int) -> int:
    """Return the next longer (step 1) or shorter (-1) window in us."""
    at = min(range(len(WINDOWS_US)), key=lambda i: abs(WINDOWS_US[i] - now_us))
    return WINDOWS_US[min(max(at + step, 0), len(WINDOWS_US) - 1)]


def shown(devices: Iterable[Device], selection: Selection) -> list[Device]:
    """Return the devices that pass the command line and the filter."""
    if not selection.globs and not selection.pattern.strip():
        return list(devices)
    return [d for d in devices if _allowed(d, selection.globs) and matches(d, selection.pattern)]


def matches(device: Device, pattern: str) -> bool:
    """Return whether a device matches every word of a filter; one that begins with `!` or `-` must not match.

    A word is a glob, or a part of the device's name, label, driver or model. Case is ignored.
    """
    texts = [w.lower() for w in (device.name, device.label, device.driver, device.model) if w]
    return all(
        _has(texts, word.lstrip("!-")) != word.startswith(("!", "-"))
        for word in pattern.lower().split()
        if word.lstrip("!-")
    )


def _has(texts: Sequence[str], word: str) -> bool:
    if any(c in word for c in "*?["):
        return any(fnmatchcase(text, word) for text in texts)
    return any(word in text for text in texts)


def _allowed(device: Device, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatchcase(n, g) for g in globs for n in (device.name, device.label) if n)
