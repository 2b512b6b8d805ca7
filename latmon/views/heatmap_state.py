"""The timeline that the heat maps of a screen share, and the scales of each device, kept from picture to picture.

A device's map has the range and the fullest cell of that device; small maps beside each other share theirs. Scales
outlive the timeline, so that a map has the same scales after a resize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import bucket_index
from latmon.views import scale as scales
from latmon.views.heatmap import Ink, MapStyle, rows_of, total_counts
from latmon.views.scale import Extent, LatencyScale
from latmon.views.timeline import Timeline

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


@dataclass(slots=True)
class _Scales:
    """The scales of a device's map. `full` is the count of the last step, for rows of `step` buckets."""

    extent: Extent | None = None
    step: int = 0
    full: int = 0


class HeatmapState:
    """The timeline of the last map, updated with each frame, and the scales of each device."""

    def __init__(self) -> None:
        self.now = NOW
        """Label of the marker of a sweep."""
        self.drawn: DrawnMap | None = None
        self._timeline: Timeline | None = None
        self._scales: dict[tuple[str, ...], _Scales] = {}

    def forget(self) -> None:
        """Drop the timeline, for another panel; keep the scales."""
        self._timeline = None

    def restart(self) -> None:
        """Drop the timeline and the scales, for other frames or other ops."""
        self._timeline = None
        self._scales.clear()

    def ahead(self, ops: tuple[str, ...], *, interval_us: int = 0, origin_us: int | None = None) -> Timeline | None:
        """Return an empty timeline of the present shape, for `take` once it is filled; None where there is none."""
        old = self._timeline
        if old is None:
            return None
        return Timeline(old.column_us, old.slots, ops, interval_us=interval_us, origin_us=origin_us, sweep=old.sweep)

    def take(self, timeline: Timeline) -> None:
        """Use a timeline that was filled elsewhere."""
        self._timeline = timeline

    def advance(self, frame: Frame) -> None:
        """Add a frame, where there is a timeline."""
        if self._timeline is not None:
            self._timeline.advance(frame)

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

    def style(
        self, timeline: Timeline, devices: Sequence[str], size: tuple[int, int], ink: Ink, limit: int | None
    ) -> MapStyle:
        """Return the style of a map of `size` (columns, rows), or of several maps that share it.

        `limit`: the threshold, which is in the range.
        """
        width, rows = size
        found = self._scales.setdefault(tuple(devices), _Scales())
        found.extent = scales.merge(found.extent, _together(timeline, devices))
        span = found.extent or Extent()
        if limit is not None:
            span = Extent(min(span.low, bucket_index(limit)), max(span.high, bucket_index(limit)))
        scale = scales.latency_scale(span, max(rows, 1))
        self.drawn = DrawnMap(timeline, scale)
        style = MapStyle(scale, 1, max(1, width // timeline.slots), ink, limit, self.now)
        cells = (
            max(rows_of(counts, style.cells))
            for column in timeline.columns
            for device in devices
            if (counts := column.counts.get(device))
        )
        before = found.full if found.step == style.cells.step else 0
        found.step, found.full = style.cells.step, scales.last_step(max(cells, default=1), before)
        return replace(style, top=found.full)


def _together(timeline: Timeline, devices: Sequence[str]) -> Extent | None:
    each = [one for device in devices if (one := scales.extent(total_counts(timeline, device)))]
    return Extent(min(one.low for one in each), max(one.high for one in each)) if each else None
