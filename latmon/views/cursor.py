"""A cursor on a heat map, and what was picked with it. Pure.

A cursor is a column's number and a bucket, so it stays on its data while time goes on; with a corner held it spans a
region. What is picked is time and latency alone: it outlives the map.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from latmon.histogram import bucket_index
from latmon.model import Outlier
from latmon.views.region import Region, at_newest, times, words
from latmon.views.scale import LatencyScale
from latmon.views.timeline import Timeline


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
