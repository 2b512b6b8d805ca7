"""A region of a heat map: some columns of time by some latencies. Pure; the cursor that spans it is cursor.py's.

Columns are kept by their number and latencies by their buckets, not by where they are drawn: the region stays on its
data while time goes on and the scale changes. `at_newest` is where one begins, `clamped` keeps it on the map, `times`
and `ios` say what is in it, `framed` draws it, `headline` and `words` tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from latmon.histogram import bucket_bounds
from latmon.views.heatmap import LABEL, MapStyle
from latmon.views.lines import Line, Span, runs
from latmon.views.scale import LatencyScale
from latmon.views.timeline import Column, Timeline
from latmon.views.units import clock, count, duration


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
