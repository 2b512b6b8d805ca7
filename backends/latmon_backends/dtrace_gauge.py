"""I/Os in flight where no counter of the kernel's tells them: those that began less those that ended.

Both are exact sums of the script's; an end without a begin is none of ours. When starts were dropped for want of room
their ends never come, so from then on nothing is told. Knows no probe.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from latmon.framing import Interval
from latmon.model import Frame, Outstanding


class Gauge:
    """By device, from the first interval on; what was in flight before it isn't known."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()
        self._drifts = False

    def fill(self, frame: Frame, interval: Interval) -> Frame:
        """The frame, with the gauge of the devices that have none."""
        if not interval.started and not self._open:
            return frame
        for flow, n in interval.started.items():
            self._open[flow.device] += n
        for series, histogram in interval.histograms.items():
            if series.stage == "total":
                self._open[series.device] -= histogram.count
        self._drifts |= frame.health.map_full > 0 or bool(frame.gap)
        if self._drifts:
            return frame
        told = {
            name: Outstanding(None, max(0, n))
            for name, n in self._open.items()
            if _is_unknown(frame.outstanding.get(name))
        }
        return replace(frame, outstanding={**frame.outstanding, **told}) if told else frame


def _is_unknown(gauge: Outstanding | None) -> bool:
    return gauge is None or (gauge.in_driver is None and gauge.queued is None)
