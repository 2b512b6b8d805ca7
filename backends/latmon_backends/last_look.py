"""The newest list of what is in flight, for a frame in which no probe looked: above all a capture's last one.

A list is kept as long as nothing contradicts it: of a device without a completion since, and with no fewer in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from latmon.model import Frame
from latmon.outstanding import AGES_S, StillInFlight

CARRIED = 2
"""Frames in which it stands for a look of their own; a process that ended or hangs looks no more."""


class LastLook:
    """Follows frames in their order."""

    def __init__(self) -> None:
        self._still: StillInFlight | None = None
        self._carried = 0
        self._gauges: Mapping[str, int] = {}
        self._quiet: frozenset[str] = frozenset()

    def of(self, frame: Frame, told: StillInFlight | None) -> StillInFlight | None:
        """What was told in the frame, else what is left of the list before; its `at_us` says of when it is."""
        gauges, quiet = _gauges(frame), _quiet(frame)
        if told is not None:
            self._still, self._carried = told, 0
        elif frame.gap or self._carried == CARRIED:
            self._still = None
        elif self._still is not None:
            self._still, self._carried = self._left(self._still, gauges, quiet), self._carried + 1
        self._gauges, self._quiet = gauges, quiet
        return self._still

    def _left(self, still: StillInFlight, gauges: Mapping[str, int], quiet: frozenset[str]) -> StillInFlight | None:
        listed = Counter(one.device for one in still.oldest)
        kept = {
            name
            for name, rows in listed.items()
            if name in quiet
            and gauges[name] >= self._gauges.get(name, 0)
            and (name in self._quiet or gauges[name] >= rows)  # after the look, before that frame ended
        }
        if not kept:
            return None
        rows = tuple(one for one in still.oldest if one.device in kept)
        older = {age: sum(still.at_us - one.began_us > age * 1_000_000 for one in rows) for age in AGES_S}
        # Of other devices nothing is known any more.
        return replace(
            still, oldest=rows, older=still.older if kept == listed.keys() else older, devices=(*sorted(kept),)
        )


def _gauges(frame: Frame) -> dict[str, int]:
    return {name: now.known for name, now in frame.outstanding.items() if name not in frame.removed}


def _quiet(frame: Frame) -> frozenset[str]:
    """Devices that are known to have completed nothing in the frame."""
    counted = {flow.device for flow in frame.kernel}
    busy = {flow.device for flow, done in frame.kernel.items() if done.count}
    return frozenset((counted - busy) & _gauges(frame).keys())
