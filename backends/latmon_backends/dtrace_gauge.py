"""I/Os in flight where no counter of the kernel's tells them: those that began less those that ended.

Both are exact sums since the script's start, from before the first window on. What was in flight when it started isn't
in them: neither its begin nor its end is counted. When starts were dropped for want of room their ends never come, so
from then on nothing is told. Knows no probe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from latmon.framing import Interval
from latmon.model import Frame, Outstanding


class Gauge:
    """By device, of one start of the script.

    `selects`: whose is told; `from_issue`: I/Os begin where the driver has them.
    """

    def __init__(self, selects: Callable[[str], bool] = lambda _: True, *, from_issue: bool = False) -> None:
        self._selects, self._from_issue = selects, from_issue
        self._open: Counter[str] = Counter()
        self._drifts = False

    def take(self, interval: Interval, *, dropped: bool = False) -> None:
        """Each interval, whether a frame comes of it or not. `dropped`: some of its starts or counts were lost."""
        self._drifts |= dropped
        for flow, n in interval.started.items():
            self._open[flow.device] += n
        for flow, n in interval.ended.items():
            # A script that counts no begins tells nothing here; one that does counts a begin before its end.
            if flow.device in self._open:
                self._open[flow.device] -= n

    def fill(self, frame: Frame) -> Frame:
        """The frame, with the gauge of the devices that have none."""
        told = {
            name: Outstanding(max(0, n), None) if self._from_issue else Outstanding(None, max(0, n))
            for name, n in self._open.items()
            if not self._drifts and self._selects(name) and _is_unknown(frame.outstanding.get(name))
        }
        return replace(frame, outstanding={**frame.outstanding, **told}) if told else frame


def _is_unknown(gauge: Outstanding | None) -> bool:
    return gauge is None or (gauge.in_driver is None and gauge.queued is None)
