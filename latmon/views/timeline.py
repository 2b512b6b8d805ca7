"""Time cut into columns: what each device did in each, at heat-map resolution. Knows frames, not how a column is drawn.

A column holds a whole number of frames. Columns are numbered on and on; a map of n slots shows column c in slot c mod n
and overwrites the oldest (a sweep): a new second repaints one column instead of shifting all of them.
Missing time makes columns of its own, so that a hole in the data is drawn as a hole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from latmon.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model import Frame

Counts = dict[int, int]
_MAX_GAP_COLUMNS = 10_000


@dataclass(slots=True)
class Column:
    """One stretch of time: per device the I/Os in each latency bucket, and why time is missing if it is."""

    number: int
    wall: float
    mono_us: int
    """Its end, as `wall` is: of the last frame in it."""
    filled_us: int = 0
    gap: str = ""
    counts: dict[str, Counts] = field(default_factory=dict)


class Timeline:
    """The last `slots` columns of `column_us` each, for one choice of operations."""

    def __init__(self, column_us: int, slots: int, ops: tuple[str, ...], frames: Iterable[Frame] = ()) -> None:
        self.column_us = column_us
        self.slots = slots
        self.ops = frozenset(ops)
        self.columns: deque[Column] = deque(maxlen=max(slots, 1))
        self._end_us: int | None = None
        for frame in frames:
            self.advance(frame)

    def advance(self, frame: Frame) -> None:
        """One frame further: into the open column, or a new one when that is full."""
        if self._end_us is not None:
            if frame.mono_us < self._end_us:
                self.columns.clear()
            else:
                self._skip(frame.mono_us - frame.dt_us - self._end_us, frame)
        self._end_us = frame.mono_us
        last = self.columns[-1] if self.columns else None
        if last is None or last.gap == "missing" or last.filled_us + frame.dt_us / 2 > self.column_us:
            last = self._open(frame.wall, frame.mono_us)
        last.filled_us += frame.dt_us
        last.wall = frame.wall
        last.mono_us = frame.mono_us
        last.gap = last.gap or frame.gap
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in self.ops:
                _add(last.counts.setdefault(series.device, {}), histogram)

    def newest(self) -> int:
        """The number of the open column, -1 before the first frame."""
        return self.columns[-1].number if self.columns else -1

    def by_slot(self) -> list[Column | None]:
        """What each slot shows; None where there was nothing yet."""
        shown: list[Column | None] = [None] * self.slots
        for column in self.columns:
            shown[column.number % self.slots] = column
        return shown

    def _open(self, wall: float, mono_us: int, gap: str = "") -> Column:
        column = Column(self.newest() + 1, wall, mono_us, gap=gap)
        self.columns.append(column)
        return column

    def _skip(self, missing_us: int, frame: Frame) -> None:
        if missing_us < max(self.column_us, frame.dt_us) / 2:
            return
        for _ in range(min(max(1, round(missing_us / self.column_us)), _MAX_GAP_COLUMNS)):
            self._open(frame.wall - frame.dt_us / 1e6, frame.mono_us - frame.dt_us, gap="missing")


def _add(counts: Counts, histogram: Histogram) -> None:
    bits = histogram.bits
    for index, n in histogram.buckets:
        here = index if bits == BITS else bucket_index(bucket_bounds(index, bits)[0])
        counts[here] = counts.get(here, 0) + n
