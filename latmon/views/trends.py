"""The trend of each device: its slowest I/O (or, without distributions, its mean) per stretch of time. Pure.

Stretches are several seconds long and lie still; a line of text that moves each second costs more than it tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from latmon.model import Frame

STRETCHES = 12
"""A window has as many."""


class Trends:
    """The last stretches, for one choice of operations."""

    def __init__(self, stretch_us: int, ops: tuple[str, ...], frames: Iterable[Frame] = ()) -> None:
        self._stretch_us = stretch_us
        self._ops = frozenset(ops)
        self._stretches: deque[dict[str, float]] = deque(maxlen=STRETCHES)
        self._number = -1
        for frame in frames:
            self.advance(frame)

    def copy(self) -> Trends:
        """Return another one with the same values, which goes on by itself."""
        other = Trends(self._stretch_us, tuple(self._ops))
        other._stretches.extend(stretch.copy() for stretch in self._stretches)
        other._number = self._number
        return other

    def advance(self, frame: Frame) -> None:
        """One frame further; stretches without a frame are empty."""
        number = (frame.mono_us - frame.dt_us // 2) // self._stretch_us
        for _ in range(min(max(number - self._number, 0), STRETCHES) if self._stretches else 1):
            self._stretches.append({})
        self._number = number
        now = self._stretches[-1]
        for name, us in _slowest(frame, self._ops):
            now[name] = max(now.get(name, 0.0), us)

    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of all devices, for one scale."""
        values = [v for stretch in self._stretches for v in stretch.values()]
        return (min(values), max(values)) if values else (1.0, 1.0)

    def of(self, device: str) -> list[float | None]:
        """Return STRETCHES values, oldest first; None where nothing was completed or no frame has come yet."""
        known = [stretch.get(device) for stretch in self._stretches]
        return [None] * (STRETCHES - len(known)) + known


def _slowest(frame: Frame, ops: frozenset[str]) -> Iterable[tuple[str, float]]:
    if frame.histograms:
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops and histogram.max_bound is not None:
                yield series.device, float(histogram.max_bound)
        return
    for flow, done in frame.kernel.items():
        if flow.op in ops and done.count and done.time_us is not None:
            yield flow.device, done.time_us / done.count
