"""The time axis of a heat map: columns with the I/Os of each device by latency.

A column holds a whole number of frames. Its number depends on the capture's intervals only, so that it holds the same
frames in every view. A map of n slots shows the newest column in its last slot. As a sweep it shows column c in slot
c mod n and overwrites the oldest: a new second then repaints one column. Missing time has columns of its own, so that a
gap in the data is drawn as a gap.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.timetravel.events import Before, TimelineEvent, moments

Counts = dict[int, int]
_MAX_GAP_COLUMNS = 10_000


@dataclass(slots=True)
class TimeColumn:
    """One column: per device the I/Os in each latency bucket; `gap`: why time is missing."""

    number: int
    wall: float
    mono_us: int
    """End of its last frame, as `wall` is."""
    filled_us: int = 0
    gap: str = ""
    counts: dict[str, Counts] = field(default_factory=dict)
    moments: list[TimelineEvent] = field(default_factory=list)
    """Events other than I/O."""


class Begin(NamedTuple):
    """The begin of a timeline's data, by the wall clock; `is_start`: the capture began then."""

    wall: float = math.nan
    is_start: bool = False


class Timeline:
    """The last `slots` columns of `column_us` each, for one set of ops."""

    def __init__(
        self,
        column_us: int,
        slots: int,
        ops: tuple[str, ...],
        frames: Iterable[Frame] = (),
        *,
        interval_us: int = 0,
        origin_us: int | None = None,
        sweep: bool = False,
    ) -> None:
        """`interval_us`: the requested length of a frame; `origin_us`: when the capture began; `sweep`: see above."""
        self.column_us = column_us
        self._interval_us = interval_us or column_us
        self._origin_us = origin_us
        self._before: Before | None = None
        self.slots = slots
        self.sweep = sweep
        self.ops = frozenset(ops)
        self.columns: deque[TimeColumn] = deque(maxlen=max(slots - sweep, 1))
        """Oldest first, without holes in their numbers; in a sweep one slot has the marker instead."""
        self.begin = Begin()
        self._end_us: int | None = None
        for frame in frames:
            self.advance(frame)

    def advance(self, frame: Frame) -> None:
        """Add a frame to the open column, or to a new one when that is full."""
        if self._end_us is not None:
            if frame.mono_us < self._end_us:
                self.columns.clear()
                self._before = None
            else:
                self._skip(frame.mono_us - frame.dt_us - self._end_us, frame)
        self._end_us = frame.mono_us
        if not self.columns:
            began_us = frame.mono_us - frame.dt_us
            is_start = self._origin_us is not None and began_us - self._origin_us < self.column_us
            self.begin = Begin(frame.wall - frame.dt_us / 1e6, is_start=is_start)
        last = self.columns[-1] if self.columns else self._first(frame)
        if last.gap == "missing" or last.filled_us + frame.dt_us / 2 > self.column_us:
            last = self._open(frame.wall, frame.mono_us)
        last.filled_us += frame.dt_us
        last.moments += moments(frame, self._before)
        self._before = Before(frame.mono_us, frame.wall)
        last.wall = frame.wall
        last.mono_us = frame.mono_us
        last.gap = last.gap or frame.gap
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in self.ops:
                _add(last.counts.setdefault(series.device, {}), histogram)

    def newest(self) -> int:
        """Return the number of the open column, -1 before the first frame."""
        return self.columns[-1].number if self.columns else -1

    def slot(self, number: int) -> int:
        """Return the slot of a column; negative or too large for one that is not shown."""
        return number % self.slots if self.sweep else number - self.newest() + self.slots - 1

    @property
    def last_wall(self) -> float | None:
        """Return when the newest column ends; None before the first frame."""
        return self.columns[-1].wall if self.columns else None

    @property
    def empty(self) -> int:
        """Return how many slots have no column yet."""
        return self.slots - self.sweep - len(self.columns)

    def by_slot(self) -> list[TimeColumn | None]:
        """Return the column of each slot; None where there was nothing yet."""
        shown: list[TimeColumn | None] = [None] * self.slots
        for column in self.columns:
            shown[self.slot(column.number)] = column
        return shown

    def note(self, some: Iterable[TimelineEvent]) -> None:
        """Add events that are not in frames."""
        begin_us = self.columns[0].mono_us - self.column_us if self.columns else 0
        for one in some:
            if one.mono_us <= begin_us:
                continue
            inside = (c for c in self.columns if c.mono_us >= one.mono_us > c.mono_us - max(c.filled_us, 1))
            column = next(inside, None)
            if column is not None and one not in column.moments:
                column.moments.append(one)

    def _first(self, frame: Frame) -> TimeColumn:
        """Open the column of the first frame, filled as if the frames before it had been added too."""
        begin = frame.mono_us - frame.dt_us if self._origin_us is None else self._origin_us
        place = max(round((frame.mono_us - frame.dt_us - begin) / self._interval_us), 0)
        each = max(round(self.column_us / self._interval_us), 1)
        column = self._open(frame.wall, frame.mono_us, number=place // each)
        column.filled_us = place % each * self._interval_us
        return column

    def _open(self, wall: float, mono_us: int, gap: str = "", number: int | None = None) -> TimeColumn:
        column = TimeColumn(self.newest() + 1 if number is None else number, wall, mono_us, gap=gap)
        self.columns.append(column)
        return column

    def _skip(self, missing_us: int, frame: Frame) -> None:
        if missing_us < max(self.column_us, frame.dt_us) / 2:
            return
        many = max(1, round(missing_us / self.column_us))
        if self._origin_us is not None:
            place = round((frame.mono_us - frame.dt_us - self._origin_us) / self._interval_us)
            many = max(1, place // max(round(self.column_us / self._interval_us), 1) - self.newest() - 1)
        for _ in range(min(many, _MAX_GAP_COLUMNS)):
            self._open(frame.wall - frame.dt_us / 1e6, frame.mono_us - frame.dt_us, gap="missing")


def _add(counts: Counts, histogram: Histogram) -> None:
    bits = histogram.bits
    if bits == BITS and not counts:
        counts.update(histogram.buckets)
        return
    had = counts.get
    if bits == BITS:
        for index, n in histogram.buckets:
            counts[index] = had(index, 0) + n
        return
    for index, n in histogram.buckets:
        here = bucket_index(bucket_bounds(index, bits)[0])
        counts[here] = had(here, 0) + n
