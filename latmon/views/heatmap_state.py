"""The timeline and scales that the heat maps of a screen share, kept from picture to picture.

Scales outlive the timeline, so that a map has the same scales after a resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import bucket_index
from latmon.views.heatmap import Ink, MapStyle
from latmon.views.scale import Extent, LatencyScale, extent, latency_scale, merge
from latmon.views.timeline import Timeline

_RESCALE_COLUMNS = 16
NOW = "now"


class MapShape(NamedTuple):
    """The columns of a map; `cells` is their total width."""

    column_us: int
    slots: int
    cells: int
    sweep: bool = False


def shape(room: int, window_us: int, interval_us: int, *, sweep: bool = False) -> MapShape:
    """Return whole frames a column, and as many columns as the window needs and fit in `room` cells.

    One more holds a sweep's marker, or the oldest part of the window while the newest of long columns is being filled.
    """
    room = max(room, 2)
    column_us = interval_us * -(-window_us // (interval_us * (room - 1)))
    slots = min(-(-window_us // column_us) + (sweep or column_us > interval_us), room)
    return MapShape(column_us, slots, slots * max(1, room // slots), sweep)


class DrawnMap(NamedTuple):
    """Timeline and scale of the last big map: the coordinates of a cursor on it."""

    timeline: Timeline
    scale: LatencyScale


class HeatmapState:
    """The timeline of the last map, updated with each frame, and its scales."""

    def __init__(self) -> None:
        self.now = NOW
        """Label of the marker of a sweep."""
        self.drawn: DrawnMap | None = None
        self._timeline: Timeline | None = None
        self._extent: Extent | None = None

    def forget(self) -> None:
        """Drop the timeline, for another panel; keep the scales."""
        self._timeline = None

    def restart(self) -> None:
        """Drop the timeline and the scales, for other frames or other ops."""
        self._timeline = None
        self._extent = None

    def ahead(self, ops: tuple[str, ...], *, interval_us: int = 0, origin_us: int | None = None) -> Timeline | None:
        """Return an empty timeline of the present shape, for `take` once it is filled; None where there is none."""
        old = self._timeline
        if old is None:
            return None
        return Timeline(old.column_us, old.slots, ops, interval_us=interval_us, origin_us=origin_us, sweep=old.sweep)

    def take(self, timeline: Timeline) -> None:
        """Use a timeline that was filled elsewhere."""
        self._timeline = timeline
        self._extent = merge(self._extent, extent(timeline.columns))

    def advance(self, frame: Frame) -> None:
        """Add a frame, where there is a timeline."""
        if self._timeline is not None:
            newest = self._timeline.newest()
            self._timeline.advance(frame)
            self._rescale(self._timeline, turned=self._timeline.newest() != newest)

    def slots(
        self,
        wanted: MapShape,
        ops: tuple[str, ...],
        frames: Callable[[], Iterable[Frame]],
        *,
        interval_us: int = 0,
        origin_us: int | None = None,
    ) -> Timeline:
        """Return the timeline of a shape: the present one, else a new one of all `frames`."""
        old, asked = self._timeline, (wanted.column_us, wanted.slots, wanted.sweep, frozenset(ops))
        if old is None or (old.column_us, old.slots, old.sweep, old.ops) != asked:
            some = list(frames())
            begin_us = some[-1].mono_us - wanted.column_us * (wanted.slots + 1) if some else 0
            old = Timeline(
                wanted.column_us,
                wanted.slots,
                ops,
                (one for one in some if one.mono_us > begin_us),
                interval_us=interval_us,
                origin_us=origin_us,
                sweep=wanted.sweep,
            )
            self.take(old)
        return old

    def style(self, timeline: Timeline, rows: int, width: int, ink: Ink, limit: int | None) -> MapStyle:
        """Return the style of a map of `rows` x `width` cells; its scale includes the threshold."""
        span = self._extent or Extent()
        if limit is not None:
            span = replace(span, low=min(span.low, bucket_index(limit)), high=max(span.high, bucket_index(limit)))
        scale = latency_scale(span, max(rows, 1))
        self.drawn = DrawnMap(timeline, scale)
        return MapStyle(scale, span.top, max(1, width // timeline.slots), ink, limit, self.now)

    def _rescale(self, timeline: Timeline, *, turned: bool) -> None:
        whole = turned and timeline.newest() % _RESCALE_COLUMNS == 0
        now = extent(timeline.columns if whole else [timeline.columns[-1]])
        old = self._extent
        if whole or old is None:
            self._extent = merge(old, now)
        else:
            self._extent = Extent(min(old.low, now.low), max(old.high, now.high), max(old.top, now.top))
