"""The timeline that the heat maps of a screen share, and the scales of each device, kept from picture to picture.

A device's map has the range and the fullest cell of that device; small maps beside each other share theirs. Scales
outlive the timeline, so that a map has the same scales after a resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import bucket_index
from latmon.views import scale as scales
from latmon.views.heatmap import Ink, MapStyle
from latmon.views.scale import Extent, LatencyScale
from latmon.views.timeline import Timeline

NOW = "now"


class MapShape(NamedTuple):
    """The columns of a map; `cells` is their total width."""

    column_us: int
    slots: int
    cells: int
    sweep: bool = False


def shape(room: int, window_us: int, interval_us: int, *, sweep: bool = False, kept_us: int = 0) -> MapShape:
    """Return whole frames a column, and as many columns as the window needs and fit in `room` cells.

    One more holds a sweep's marker, or the oldest part of the window while the newest of long columns is being filled.
    `kept_us`: time of which there are frames; columns before the window fill the rest of the room with it.
    """
    room = max(room, 2)
    more = sweep or window_us > interval_us * room
    column_us = interval_us * -(-window_us // (interval_us * (room - more)))
    slots = min(-(-window_us // column_us) + more, room)
    cell_width = max(1, room // slots)
    slots = max(slots, min(room // cell_width, kept_us // column_us))
    return MapShape(column_us, slots, slots * cell_width, sweep)


class DrawnMap(NamedTuple):
    """Timeline and scale of the last big map: the coordinates of a cursor on it."""

    timeline: Timeline
    scale: LatencyScale


@dataclass(slots=True)
class _Scales:
    """The scales of a device's map. `full` is the count of the last step, for rows of `step` / `per` buckets."""

    extent: Extent | None = None
    step: int = 0
    per: int = 1
    full: int = 0


class HeatmapState:
    """The timeline of the last map, updated with each frame, and the scales of each device."""

    def __init__(self) -> None:
        self.now = NOW
        """Label of the marker of a sweep."""
        self.page = 1
        """Number of the small maps on a page."""
        self.drawn: DrawnMap | None = None
        self._timeline: Timeline | None = None
        self._scales: dict[tuple[str, ...], _Scales] = {}
        self._by_op: dict[str, HeatmapState] = {}

    def of_op(self, op: str) -> HeatmapState:
        """Return the state of a map of one op, beside that of all ops; it follows this one's frames."""
        return self._by_op.setdefault(op, HeatmapState())

    @property
    def reach_us(self) -> int:
        """Return the time that the timeline shows; 0 without one."""
        return 0 if self._timeline is None else self._timeline.column_us * (self._timeline.slots + 1)

    def forget(self) -> None:
        """Drop the timeline, for another panel; keep the scales."""
        self._timeline = None
        self._by_op.clear()

    def restart(self) -> None:
        """Drop the timeline and the scales, for other frames or other ops."""
        self.forget()
        self._scales.clear()

    def ahead(self, ops: tuple[str, ...], *, interval_us: int = 0, origin_us: int | None = None) -> Timeline | None:
        """Return an empty timeline of the present shape, for `take` once it is filled; None where there is none."""
        old = self._timeline
        if old is None:
            return None
        return Timeline(
            old.column_us,
            old.slots,
            ops,
            interval_us=interval_us,
            origin_us=origin_us,
            sweep=old.sweep,
            window_us=old.window_us,
        )

    def take(self, timeline: Timeline) -> None:
        """Use a timeline that was filled elsewhere."""
        self._timeline = timeline
        self._by_op.clear()

    def advance(self, frame: Frame) -> None:
        """Add a frame, where there is a timeline."""
        if self._timeline is not None:
            self._timeline.advance(frame)
        for one in self._by_op.values():
            one.advance(frame)

    def slots(
        self,
        wanted: MapShape,
        ops: tuple[str, ...],
        frames: Callable[[], Iterable[Frame]],
        *,
        interval_us: int = 0,
        origin_us: int | None = None,
        window_us: int = 0,
    ) -> Timeline:
        """Return the timeline of a shape: the present one, else a new one of all `frames`.

        `interval_us`, `origin_us`, `window_us`: as in Timeline.
        """
        old, wanted_key = self._timeline, (wanted.column_us, wanted.slots, wanted.sweep, frozenset(ops))
        if old is None or (old.column_us, old.slots, old.sweep, old.ops) != wanted_key:
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
                window_us=window_us,
            )
            self.take(old)
        return old

    def style(
        self,
        timeline: Timeline,
        devices: Mapping[str, Mapping[int, int]],
        size: tuple[int, int],
        ink: Ink,
        limit: int | None,
        *,
        tail: int | None = None,
        spare: int = 0,
    ) -> MapStyle:
        """Return the style of a map of `size` (columns, rows), or of several maps that share it.

        `devices`: name -> I/Os per bucket in the window, at whose p0.1 the range begins; its end is that of the map.
        `limit`: the threshold, which is in the range where it is near; `tail`: as in MapStyle; `spare`: the most rows
        that are left out where the range doesn't need them. Other such rows are below the range.
        """
        width, rows = size
        found = self._scales.setdefault(tuple(sorted(devices)), _Scales())
        found.extent = scales.merge(found.extent, _common_extent(timeline, devices))
        span = found.extent or Extent()
        if limit is not None:
            span = scales.with_limit(span, bucket_index(limit))
        scale = scales.latency_scale(span, max(rows, 1), cells=1 + ink.halves)
        scale = replace(scale, rows=max(scale.rows - spare, scale.needed(span.high))).lowered(span.high)
        self.drawn = DrawnMap(timeline, scale)
        cells = scale.halves if ink.halves else scale
        made = (column.rows(device, cells) for column in timeline.columns for device in devices)
        fullest = max((max(one) for one in made if one), default=1)
        before = found.full if (found.step, found.per) == (cells.step, cells.per) else 0
        found.step, found.per, found.full = cells.step, cells.per, scales.last_step(fullest, before)
        if tail is not None and cells.per == 1:  # by whole rows: each other style draws every column again
            tail = cells.low + max(-(-(tail - cells.low) // cells.step), 0) * cells.step
        return MapStyle(scale, found.full, max(1, width // timeline.slots), ink, limit, self.now, tail)


def _common_extent(timeline: Timeline, devices: Mapping[str, Mapping[int, int]]) -> Extent | None:
    made = (scales.extent(counts, timeline.highest(device)) for device, counts in devices.items())
    each = [one for one in made if one]
    return Extent(min(one.low for one in each), max(one.high for one in each)) if each else None
