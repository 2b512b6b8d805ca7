"""The last list of I/Os in flight, for frames in which the tracer printed none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from latmon.model.frame import OPS, Flow, Frame
from latmon.model.inflight import AGES_S, InFlightList

CARRIED = 2
"""Frames that repeat a list; a process that ended or hangs makes no other."""


class LastInFlightList:
    """The last list of I/Os in flight, kept for frames without one of their own.

    A device stays on it as long as nothing contradicts it: no completion since, and no fewer in flight.
    """

    def __init__(self) -> None:
        self._kept_list: InFlightList | None = None
        self._carried = 0
        self._gauges: Mapping[str, int] = {}
        self._quiet: frozenset[str] = frozenset()

    def of(self, frame: Frame, reported: InFlightList | None) -> InFlightList | None:
        """Return the list reported in the frame, else the rest of the list before; `at_us` is its time."""
        in_flight_list = reported or self._kept_list
        names = {request.device for request in in_flight_list.oldest} if in_flight_list is not None else set()
        gauges, quiet = _gauges(frame, names), _quiet(frame, names)
        if reported is not None:
            self._kept_list, self._carried = reported, 0
        elif frame.gap or self._carried == CARRIED:
            self._kept_list = None
        elif self._kept_list is not None:
            self._kept_list, self._carried = self._left(self._kept_list, gauges, quiet), self._carried + 1
        self._gauges, self._quiet = gauges, quiet
        return self._kept_list

    def _left(self, in_flight: InFlightList, gauges: Mapping[str, int], quiet: frozenset[str]) -> InFlightList | None:
        listed = Counter(request.device for request in in_flight.oldest)
        kept = {
            name
            for name, rows in listed.items()
            if name in quiet
            and gauges[name] >= self._gauges.get(name, 0)
            and (name in self._quiet or gauges[name] >= rows)  # completed after the list, before that frame ended
        }
        if not kept:
            return None
        rows = tuple(request for request in in_flight.oldest if request.device in kept)
        older = {age: sum(in_flight.at_us - request.began_us > age * 1_000_000 for request in rows) for age in AGES_S}
        # The rest of the list is unknown now.
        return replace(
            in_flight, oldest=rows, older=in_flight.older if kept == listed.keys() else older, devices=(*sorted(kept),)
        )


def _gauges(frame: Frame, names: Iterable[str]) -> dict[str, int]:
    known = {name: now for name in names if (now := frame.outstanding.get(name)) is not None}
    return {name: now.known for name, now in known.items() if name not in frame.removed}


def _quiet(frame: Frame, names: Iterable[str]) -> frozenset[str]:
    """Return those of the devices that completed nothing in the frame, as far as that is known."""
    done = {name: [completed.count for op in OPS if (completed := frame.kernel.get(Flow(name, op)))] for name in names}
    return frozenset(name for name in _gauges(frame, names) if done[name] and not any(done[name]))
