"""Weights of frames of which the tracer traced a sample: the rates of a sum, and a frame with more weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import gcd

from latmon.model.frame import Frame
from latmon.model.measurements import TABLES


class SampleRates:
    """Sampling rates of the frames of a sum, by which their counts are weighed.

    A frame that traces one I/O in 16 counts 16 times as much as one that traces each. Counts are multiples of the
    greatest common divisor of the rates, so that those of a sum with one rate are the traced I/Os themselves.
    """

    def __init__(self) -> None:
        self.frames = Counter[int]()
        """Sampling rate -> frames that have a sample of it."""

    def copy(self) -> SampleRates:
        other = SampleRates()
        other.frames = self.frames.copy()
        return other

    @property
    def one_in(self) -> int:
        """I/Os that each counted one stands for; 0 without a frame that has a sample."""
        return gcd(*self.frames)

    def add(self, frames: Mapping[int, int], sign: int = 1) -> Fraction:
        """Add frames by their rate, or with -1 as `sign` remove them; return the factor of what was summed up."""
        if not frames:
            return Fraction(1)
        before = self.one_in
        for one_in, n in frames.items():
            self.frames[one_in] += sign * n
            if not self.frames[one_in]:
                del self.frames[one_in]
        now = self.one_in
        return Fraction(before, now) if before and now else Fraction(1)


def weighed(frame: Frame, factor: int) -> Frame:
    """Return the frame with `factor` times as much of all that is of the tracer's sample."""
    if factor == 1:
        return frame
    more = replace(frame, traced=replace(frame.traced, off=frame.traced.off * factor))
    return more.with_tables({table: table.scale_rows(frame[table], factor) for table in TABLES})
