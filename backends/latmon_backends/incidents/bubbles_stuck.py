"""The 302 writes that disksort never sends: when they came, what passed them, and how they end.

Two wait for 8 to 9 minutes, 300 for 9 to 10, and all of them are done in the test's last half second.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from latmon.deep_depths import MOST_TOLD
from latmon.model import Frame, Outlier
from latmon.outstanding import AGES_S, InFlight, Issue, StillInFlight
from latmon_backends.incidents import drawing, windows
from latmon_backends.incidents.bubbles_tables import STUCK, WINDOWS
from latmon_backends.incidents.drawing import INTERVAL_US, START_MONO_US, Alike

DISK, OP, BLOCK = "sd1", "write", 8192
BELONGS_TO = ("blockwriter", 8123)
_SECOND = 1_000_000
_FIRST, _LAST = 1 * _SECOND, 9 * _SECOND
"""After the start, when most of them come: the queue is full by then."""
_LATE = (int(60.3 * _SECOND), int(61.2 * _SECOND))
"""The two."""
_BELOW = 2_000_000
"""Sectors: far below all others."""
_DRAIN_US = 470_000
_WORTH_US = 500_000
_HBA_US = 45_000
_MOVING = 120
"""In flight as one of them comes, and ahead of it."""


class Stuck(NamedTuple):
    """One of them."""

    began_us: int
    done_us: int
    sector: int

    @property
    def total_us(self) -> int:
        return self.done_us - self.began_us


def drawn(rng: Random) -> tuple[Stuck, ...]:
    """In the order in which they came; when nothing else comes any more they are done by their places."""
    few, many = STUCK
    came = [_FIRST + int(rng.random() * (_LAST - _FIRST)) for _ in range(many)] + list(_LATE[:few])
    places = sorted((16 * int(rng.random() * _BELOW / 16), us) for us in came)
    end_us = windows.begin_us(WINDOWS)
    gap_us = _DRAIN_US // len(places)
    ending = end_us - gap_us * len(places)
    found = (Stuck(START_MONO_US + us, ending + gap_us * at, sector) for at, (sector, us) in enumerate(places))
    return tuple(sorted(found))


def parts(stuck: Sequence[Stuck], path: str) -> tuple[Alike, ...]:
    """As I/Os of the last window; the disk takes as long for them as for the others."""
    return tuple(Alike(1, one.total_us - _HBA_US, _HBA_US, path=path) for one in stuck)


def issued(stuck: Sequence[Stuck]) -> tuple[Issue, ...]:
    """To the driver, by their places."""
    order = sorted(stuck, key=lambda one: one.sector)
    return tuple(Issue(one.done_us - _HBA_US, one.sector, BLOCK, OP, one.total_us - _HBA_US) for one in order)


def told(rng: Random, frame: Frame, stuck: Sequence[Stuck], done: Sequence[int]) -> Frame:
    """The window with those that still wait, or, where they are done, with their rows; `done`: others, by window."""
    if frame.seq == WINDOWS - 1:
        chosen = sorted(stuck, key=lambda _: rng.random())[: len(frame.outliers)]
        return replace(frame, outliers=tuple(_outlier(one, done) for one in sorted(chosen)))
    began = [one.began_us for one in stuck]
    worth = bisect_left(began, frame.mono_us - _WORTH_US)
    rows = tuple(_in_flight(one, frame, done) for one in stuck[: min(worth, MOST_TOLD)])
    older = {s: bisect_left(began, frame.mono_us - s * _SECOND) for s in AGES_S}
    return replace(frame, in_flight=StillInFlight(rows, older, at_us=frame.mono_us))


def _in_flight(one: Stuck, frame: Frame, done: Sequence[int]) -> InFlight:
    comm, pid = BELONGS_TO
    return InFlight(
        DISK,
        OP,
        one.began_us,
        sector=one.sector,
        bytes=BLOCK,
        pid=pid,
        comm=comm,
        issued=False,
        overtaken_by=_passed(one, frame.mono_us, done),
    )


def _outlier(one: Stuck, done: Sequence[int]) -> Outlier:
    comm, pid = BELONGS_TO
    return Outlier(
        wall=windows.wall_of(one.began_us),
        mono_us=one.began_us,
        device=DISK,
        op=OP,
        total_us=one.total_us,
        stages_us={"queue": one.total_us - _HBA_US, "hba": _HBA_US},
        sector=one.sector,
        bytes=BLOCK,
        pid=pid,
        comm=comm,
        cpu_issue=one.sector // 16 % 4,
        cpu_complete=1,
        outstanding_at_issue=_MOVING,
        overtaken_by=_passed(one, one.done_us, done),
        path="HBA interrupt",
        includes=drawing.included(windows.SOLARIS_ABSENT),
    )


def _passed(one: Stuck, until_us: int, done: Sequence[int]) -> int:
    """Done since it came, less what was ahead of it."""
    return max(0, _done_by(until_us, done) - _done_by(one.began_us, done) - _MOVING)


def _done_by(mono_us: int, done: Sequence[int]) -> int:
    """As if a window's I/Os were done evenly."""
    seq, part = divmod(mono_us - START_MONO_US, INTERVAL_US)
    if seq >= WINDOWS:
        return done[WINDOWS]
    return done[seq] + (done[seq + 1] - done[seq]) * part // INTERVAL_US
