"""Sums of frames for tests: a Sum whose tracer's state is that of the last frame."""

from __future__ import annotations

from collections.abc import Iterable

from latmon.aggregate.table_sum import Sum, traced_of
from latmon.model.frame import Frame, Traced
from latmon.model.packed_frame import SUPPRESSED


class FrameSums(Sum):
    """The sum of all tables of some frames."""

    def __init__(self, frames: Iterable[Frame] = ()) -> None:
        super().__init__()
        for frame in frames:
            self.add_frame(frame)

    @property
    def traced(self) -> Traced:
        return traced_of(self.latest.traced, self, self)

    @property
    def suppressed(self) -> int:
        return self.counter(SUPPRESSED)

    @property
    def thresholds_us(self):
        return self.latest.thresholds_us
