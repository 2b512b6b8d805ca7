"""The timeline and scales that all heat maps of a screen share.

Scales outlive the timeline: a map that comes back after a resize looks as it did. Knows frames and sizes, no device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import bucket_index
from latmon.views.heatmap import Ink, MapStyle
from latmon.views.scale import Extent, LatencyScale, extent, latency_scale, settle
from latmon.views.timeline import Timeline

_RESCALE_COLUMNS = 16
NOW = "now"


class Shape(NamedTuple):
    """How time is cut for a map: `cells` is what the columns take of its room."""

    column_us: int
    slots: int
    cells: int
    sweep: bool = False


def shape(room: int, window_us: int, interval_us: int, *, sweep: bool = False) -> Shape:
    """Return whole frames a column, and as many columns as the window needs and fit in `room` cells.

    One more holds a sweep's marker, or the oldest part of the window while the newest of long columns is being filled.
    """
    room = max(room, 2)
    column_us = interval_us * -(-window_us // (interval_us * (room - 1)))
    slots = min(-(-window_us // column_us) + (sweep or column_us > interval_us), room)
    return Shape(column_us, slots, slots * max(1, room // slots), sweep)


class Drawn(NamedTuple):
    """What the last big map was drawn with: what a cursor on it counts in."""

    timeline: Timeline
    scale: LatencyScale


class Sweep:
    """The timeline that was last asked for, kept going frame by frame."""

    def __init__(self) -> None:
        self.now = NOW
        """Label of the marker of a sweep."""
        self.drawn: Drawn | None = None
        self._timeline: Timeline | None = None
        self._extent: Extent | None = None

    def forget(self) -> None:
        """Another panel needs another timeline; the scales stay."""
        self._timeline = None

    def restart(self) -> None:
        """Other frames or other ops: the scales are found anew too."""
        self._timeline = None
        self._extent = None

    def ahead(self, ops: tuple[str, ...], *, interval_us: int = 0, origin_us: int | None = None) -> Timeline | None:
        """An empty timeline of the shape of the one at hand, for `take` once it is filled."""
        old = self._timeline
        if old is None:
            return None
        return Timeline(old.column_us, old.slots, ops, interval_us=interval_us, origin_us=origin_us, sweep=old.sweep)

    def take(self, timeline: Timeline) -> None:
        """Filled beforehand, with what will be asked for."""
        self._timeline = timeline
        self._extent = settle(self._extent, extent(timeline.columns))

    def advance(self, frame: Frame) -> None:
        """One frame further, when there is a map to advance."""
        if self._timeline is not None:
            newest = self._timeline.newest()
            self._timeline.advance(frame)
            self._rescale(self._timeline, turned=self._timeline.newest() != newest)

    def slots(
        self,
        wanted: Shape,
        ops: tuple[str, ...],
        frames: Callable[[], Iterable[Frame]],
        *,
        interval_us: int = 0,
        origin_us: int | None = None,
    ) -> Timeline:
        """The timeline of this shape: the one at hand, or a new one of all `frames`; the rest as Timeline has it."""
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
        """How a map of `rows` x `width` cells is drawn, so that the threshold is on it."""
        span = self._extent or Extent()
        if limit is not None:
            span = replace(span, low=min(span.low, bucket_index(limit)), high=max(span.high, bucket_index(limit)))
        scale = latency_scale(span, max(rows, 1))
        self.drawn = Drawn(timeline, scale)
        return MapStyle(scale, span.top, max(1, width // timeline.slots), ink, limit, self.now)

    def _rescale(self, timeline: Timeline, *, turned: bool) -> None:
        whole = turned and timeline.newest() % _RESCALE_COLUMNS == 0
        now = extent(timeline.columns if whole else [timeline.columns[-1]])
        old = self._extent
        if whole or old is None:
            self._extent = settle(old, now)
        else:
            self._extent = Extent(min(old.low, now.low), max(old.high, now.high), max(old.top, now.top))
