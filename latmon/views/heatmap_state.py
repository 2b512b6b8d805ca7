"""The timeline that the heat maps of a screen share, kept from picture to picture, and their scales.

A device's map has the range and the fullest cell of that device; small maps beside each other share theirs. Scales
depend on the frames alone: a map has the same ones after any other picture, and after a resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import bucket_index
from latmon.views import axes
from latmon.views.axes import Counts, Extent, LatencyScale, Timeline
from latmon.views.heatmap import Ink, MapStyle

NOW = "now"


class MapShape(NamedTuple):
    """The columns of a map; `cells` is their total width."""

    column_us: int
    slots: int
    cells: int
    sweep: bool = False


_FILLED, _MOST_FRAMES = 0.8, 3
"""Share of the room that a map fills, and the most frames of a column for that."""


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


def filled(room: int, window_us: int, interval_us: int, *, sweep: bool = False) -> MapShape:
    """Return the shape of a map without frames before the window: few frames a column, where that fills the room."""
    map_shapes = [shape(room, window_us, interval_us, sweep=sweep)]
    for frames in range(2, _MOST_FRAMES + 1) if map_shapes[0].column_us == interval_us else ():
        column_us = interval_us * frames
        slots = -(-window_us // column_us) + sweep
        map_shapes.append(MapShape(column_us, slots, slots * max(1, room // slots), sweep))
    fitting = [map_shape for map_shape in map_shapes if map_shape.cells <= room]
    return next(
        (map_shape for map_shape in fitting if map_shape.cells >= _FILLED * room),
        max(fitting, key=lambda map_shape: map_shape.cells),
    )


class DrawnMap(NamedTuple):
    """Timeline and scale of the last big map: the coordinates of a cursor on it."""

    timeline: Timeline
    scale: LatencyScale


class HeatmapState:
    """The timeline of the last map, updated with each frame."""

    def __init__(self) -> None:
        self.now = NOW
        """Label of the marker of a sweep."""
        self.page = 1
        """Number of the small maps on a page."""
        self.drawn: DrawnMap | None = None
        self.has_load = False
        """Whether values of the host were drawn below the last big map."""
        self._timeline: Timeline | None = None
        self._by_op: dict[str, HeatmapState] = {}

    def of_op(self, op: str) -> HeatmapState:
        """Return the state of a map of one op, beside that of all ops; it follows this one's frames."""
        return self._by_op.setdefault(op, HeatmapState())

    @property
    def reach_us(self) -> int:
        """Return the time that the timeline reads; 0 without one."""
        old = self._timeline
        return 0 if old is None else axes.reach_us(old.column_us, old.slots, old.window_us)

    def forget(self) -> None:
        """Drop the timeline, for another panel, other frames or other ops."""
        self._timeline = None
        self._by_op.clear()

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
        for heatmap_state in self._by_op.values():
            heatmap_state.advance(frame)

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
            frame_list = list(frames())
            reach_us = axes.reach_us(wanted.column_us, wanted.slots, window_us)
            begin_us = frame_list[-1].mono_us - reach_us if frame_list else 0
            old = Timeline(
                wanted.column_us,
                wanted.slots,
                ops,
                (frame for frame in frame_list if frame.mono_us > begin_us),
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
        devices: Mapping[str, Counts],
        size: tuple[int, int],
        ink: Ink,
        limit: int | None,
        *,
        spare: int = 0,
    ) -> MapStyle:
        """Return the style of a map of `size` (columns, rows), or of several maps that share it.

        `devices`: name -> I/Os per bucket in the window, at whose p0.1 the range begins; its end is that of the map.
        Ages of I/Os in flight extend the range of a map of its own alone: one that is stuck for minutes would leave
        several maps beside each other without a shape.
        `limit`: the threshold, which is in the range where it is near; `spare`: the most rows that are left out where
        the range doesn't need them. Other such rows are below the range.
        """
        width, rows = size
        alone = len(devices) == 1
        each = [
            extent for device, counts in devices.items() for extent in _extents(timeline, device, counts, alone=alone)
        ]
        span = Extent(min(extent.low for extent in each), max(extent.high for extent in each)) if each else Extent()
        if limit is not None:
            span = axes.with_limit(span, bucket_index(limit))
        scale = axes.latency_scale(span, max(rows, 1), cells=1 + ink.halves)
        scale = replace(scale, rows=max(scale.rows - spare, scale.needed(span.high))).lowered(span.high)
        self.drawn = DrawnMap(timeline, scale)
        cells = scale.halves if ink.halves else scale
        top = _last_step(timeline, devices, cells)
        return MapStyle(scale, top, max(1, width // timeline.slots), ink, limit, self.now, axes.tail_bucket(limit))


_HELD_US, _KEPT_US = 3_000_000, 8_000_000
"""The colours' scale follows a change that lasts for the first time, and forgets what was before the second one."""
_LEAST_HELD, _LEAST_KEPT = 2, 4
"""Columns of the same, where they are long."""


def _last_step(timeline: Timeline, devices: Iterable[str], scale: LatencyScale) -> int:
    """Return the count at which the last step of a map's colours begins: p99 of its cells with I/Os, a round number.

    It depends on the frames alone, so the windows that ended shortly before are looked at again.
    """
    names = tuple(sorted(devices))
    by_column = [column.fullness(names, scale) for column in (*timeline.before, *timeline.columns)]
    drawn = len(timeline.columns)
    cells = axes.Fullness()
    for column_cells in by_column[len(by_column) - drawn :]:
        cells.update(column_cells)
    held = max(_HELD_US // timeline.column_us, _LEAST_HELD)
    kept = max(_KEPT_US // timeline.column_us, _LEAST_KEPT)
    positions = []
    for end in range(len(by_column), max(len(by_column) - held - kept + 1, 0), -1):
        position = axes.p99(cells)
        if position is not None:
            positions.append(position)
        cells.subtract(by_column[end - 1])
        if end > drawn:
            cells.update(by_column[end - 1 - drawn])
    return axes.last_step(axes.steady(positions, held) if positions else 0)


def _extents(timeline: Timeline, device: str, counts: Counts, *, alone: bool) -> Iterator[Extent]:
    """Yield the range of a device's I/Os in the window, and in those that ended shortly before: it shrinks late.

    `alone`: ages of I/Os in flight extend it.
    """
    highest = timeline.highest(device, in_flight=alone)
    ranges = (axes.extent(counts, highest), *map(axes.extent, timeline.earlier(device, counts)))
    return (extent for extent in ranges if extent)
