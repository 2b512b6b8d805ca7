"""Gaps that a recording has no line of."""

from __future__ import annotations

from collections.abc import Iterator

from latmon.aggregate.accumulator import Minute
from latmon.model.frame import Frame
from latmon.recording.codec import Gap


class UnreportedGaps:
    """Gaps without a line: holes between two windows, and windows with a gap of their own."""

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._end: tuple[int, float] | None = None
        """End of the window before by both clocks; None where the gap before the next one has a line."""

    def before(self, item: object) -> Iterator[Gap]:
        """Yield the gaps before this item, which is the next one. A roll-up counts as the windows that it sums up."""
        if isinstance(item, Gap):
            self._end = None
        if not isinstance(item, Frame | Minute):
            return
        frame, first_us = (item, item.dt_us) if isinstance(item, Frame) else (item.frame, item.first_dt_us)
        begin_us, end = frame.mono_us - frame.dt_us, self._end
        self._end = frame.mono_us, frame.wall
        if end is not None and begin_us - end[0] > max(self._interval_us, first_us) / 2:
            yield Gap("windows-missing", (begin_us - end[0]) / 1e6, *end)
        if frame.gap:
            yield Gap(frame.gap, frame.dt_us / 1e6, begin_us, frame.wall - frame.dt_us / 1e6)
