"""How many I/Os were in the driver over time, as a heat map: a row per number of them, the device's limit a line. Pure.

`depth_frames` makes frames of the log's entries that a Timeline (or the sweep) can cut into columns, with moments as
the I/Os and numbers of I/Os as the latency; `depth_map` draws one device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from latmon.depth_log import Entry
from latmon.histogram import Histogram, bucket_bounds, bucket_index
from latmon.model import Frame, Series
from latmon.views import bands
from latmon.views.bands import Band
from latmon.views.heatmap import LABEL, TOTALS, Ink, MapStyle, axis, body, rows_of, total_counts
from latmon.views.lines import Line, Span, fit
from latmon.views.scale import LatencyScale
from latmon.views.timeline import Timeline
from latmon.views.units import part, rounded

_MAX_PIECES = 64


@dataclass(frozen=True)
class DepthScale(LatencyScale):
    """Rows are bands of numbers of I/Os, the same as those of the bars where they have as many lines."""

    cut: tuple[Band, ...] = ()

    def row(self, index: int) -> int:
        """Each of some hundred columns asks for the same few."""
        found = self._rows.get(index)
        if found is None:
            found = self._rows[index] = self.row_of(bucket_bounds(index)[0])
        return found

    def row_of(self, us: int) -> int:
        """The row of a number; what is beyond lies in the outermost one."""
        return max(bisect_right(self._lows, us) - 1, 0)

    @cached_property
    def _rows(self) -> dict[int, int]:
        return {}

    @cached_property
    def _lows(self) -> list[int]:
        return [band.low for band in self.cut]


def ops(device: str) -> tuple[str, ...]:
    """What a timeline is of: another device's is another one."""
    return (f"depth of {device}",)


def depth_frames(entries: Iterable[Entry], device: str, last: Frame, interval_us: int) -> Iterator[Frame]:
    """`entries`: oldest first, in pieces of an interval, so that a column holds a whole number of them.

    What a stretch counted lies evenly in it. `last`: a frame that tells the clocks' distance.
    """
    for one in entries:
        length_us = one.mono_us - one.begin_us
        pieces = min(max(round(length_us / max(interval_us, 1)), 1), _MAX_PIECES)
        counts, end_us = _counts(one, device), one.begin_us
        for i in range(pieces):
            part = {index: n * (i + 1) // pieces - n * i // pieces for index, n in counts.items()}
            before_us, end_us = end_us, one.begin_us + length_us * (i + 1) // pieces
            wall = last.wall + (end_us - last.mono_us) / 1e6
            found = Histogram.of({index: n for index, n in part.items() if n})
            series = {Series(device, ops(device)[0], "total"): found} if found else {}
            yield Frame(0, wall, end_us, end_us - before_us, series)


def depth_map(
    timeline: Timeline, device: str, size: tuple[int, int], ink: Ink, *, limit: int | None, busy: bool = False
) -> list[Line]:
    """Title, rows, time axis; at the right a row's share of the time. `busy`: without the time at 0."""
    width, height = size
    sums = total_counts(timeline, device)
    if height < 4 or not sums:  # noqa: PLR2004  a title, two rows and an axis
        return []
    highest = max(*sums, 1)
    scale = depth_scale(bucket_bounds(highest)[1] - 1, height - 2, limit, busy=busy)
    shown = timeline if not busy else _without_idle(timeline, device)
    sums = total_counts(shown, device)
    line = limit if limit is not None and limit <= scale.cut[-1].high else None
    fullest = max((n for c in shown.columns for n in c.counts.get(device, {}).values()), default=1)
    style = MapStyle(scale, max(fullest, 64), max(1, room(width) // timeline.slots), ink, line)
    total = sum(sums.values())
    rows = [
        (_label(scale, row, style), *cells, Span(f"{part(n / total) if n and total else '':>{TOTALS}}", "dim"))
        for row, cells, n in zip(
            reversed(range(scale.rows)), body(shown, device, style), reversed(rows_of(sums, scale)), strict=True
        )
    ]
    said = f"  {ink.line} limit {line}" if line is not None else ""
    title = (Span(" in the driver over time", "strong"), Span(said, "accent"))
    return [fit(line, width) for line in (title, *rows, axis(timeline, style))]


def depth_scale(highest: int, rows: int, limit: int | None, *, busy: bool = False) -> DepthScale:
    """The finest rows up to `highest`, and no more of them than it takes; `busy`: from 1 up."""
    ends = () if limit is None else (limit, limit - 1)
    found = tuple(band for band in bands.exact(highest, rows + busy, ends) if band.high or not busy)
    return DepthScale(0, 1, len(found), cut=found)


def room(width: int) -> int:
    """Cells that the map has for its columns."""
    return max(width - LABEL - TOTALS, 2)


def _counts(entry: Entry, device: str) -> dict[int, int]:
    counts: dict[int, int] = {}
    if device in entry.told:
        for depth, moments in zip(*entry.told[device].in_driver, strict=True):
            index = bucket_index(depth)
            counts[index] = counts.get(index, 0) + moments
    return counts


def _without_idle(timeline: Timeline, device: str) -> Timeline:
    """A copy with the device's columns alone, and none of its moments with nothing in the driver."""
    found = Timeline(timeline.column_us, timeline.slots, ops(device), sweep=timeline.sweep)
    found.begin = timeline.begin
    for one in timeline.columns:
        counts: Mapping[int, int] = one.counts.get(device, {})
        busy = {device: {index: n for index, n in counts.items() if index}}
        found.columns.append(type(one)(one.number, one.wall, one.mono_us, one.filled_us, one.gap, busy, one.moments))
    return found


def _label(scale: DepthScale, row: int, style: MapStyle) -> Span:
    at_limit = row == style.limit_row
    return Span(
        f"{rounded(scale.cut[row].low):>{LABEL - 1}}{'┤' if at_limit else '│'}", "accent" if at_limit else "dim"
    )
