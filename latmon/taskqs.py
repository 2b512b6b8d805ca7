"""Task queues over several readings, added up: for the screen's window and for a whole recording alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from latmon.model import Taskq

MAX_QUEUES = 1000
"""With a sum of their own: queues are made and destroyed for as long as a recording lasts."""


class Summed(NamedTuple):
    """One task queue over some time."""

    last: Taskq
    """As it was read last."""
    active: int
    """The most threads that ran a task at a reading, as `waiting` the most tasks that waited."""
    waiting: int
    tasks: int
    executed: int
    time_us: int | None
    """None where it isn't known of all that were executed."""
    span_us: int

    @property
    def mean_us(self) -> float | None:
        """Of a task's run."""
        return self.time_us / self.executed if self.time_us is not None and self.executed else None

    @property
    def per_second(self) -> float | None:
        """Tasks executed."""
        return self.executed * 1e6 / self.span_us if self.span_us else None


@dataclass
class TaskqSums:
    """Filled by `add`, one reading after the other."""

    read: bool = False
    """Whether there was a reading at all."""
    left_out: int = 0
    """Executed by queues that are not in `rows`."""
    _found: dict[tuple[str, int], Summed] = field(default_factory=dict)

    def add(self, reading: Iterable[Taskq] | None) -> None:
        if reading is None:
            return
        self.read = True
        for one in reading:
            key = (one.name, one.instance)
            had = self._found.get(key)
            if had is None and len(self._found) >= MAX_QUEUES:
                self.left_out += one.executed
            else:
                self._found[key] = _added(had, one)

    def take(self, sums: Iterable[Summed] | None) -> None:
        """Readings that came later, already added up; None: there were none."""
        if sums is None:
            return
        self.read = True
        for one in sums:
            key = (one.last.name, one.last.instance)
            had = self._found.get(key)
            if had is None and len(self._found) >= MAX_QUEUES:
                self.left_out += one.executed
            else:
                self._found[key] = one if had is None else _both(had, one)

    @property
    def in_order(self) -> tuple[Summed, ...]:
        """As they were first seen."""
        return tuple(self._found.values())

    @property
    def rows(self) -> tuple[Summed, ...]:
        """The queue that had most waiting first, permanent loops last."""
        return tuple(
            sorted(
                self._found.values(),
                key=lambda s: (s.last.loops, -s.waiting, -(s.time_us or 0), -s.executed, s.last.name, s.last.instance),
            )
        )


def summed(readings: Iterable[Iterable[Taskq] | None]) -> tuple[Summed, ...] | None:
    """The rows of all of them; None where there was no reading."""
    sums = TaskqSums()
    for one in readings:
        sums.add(one)
    return sums.rows if sums.read else None


def _added(had: Summed | None, one: Taskq) -> Summed:
    now = Summed(one, one.active, one.waiting, one.tasks, one.executed, _time(one), one.span_us)
    return now if had is None else _both(had, now)


def _both(had: Summed, now: Summed) -> Summed:
    return Summed(
        now.last,
        max(had.active, now.active),
        max(had.waiting, now.waiting),
        had.tasks + now.tasks,
        had.executed + now.executed,
        None if had.time_us is None or now.time_us is None else had.time_us + now.time_us,
        had.span_us + now.span_us,
    )


def _time(one: Taskq) -> int | None:
    return one.time_us if one.executed else 0
