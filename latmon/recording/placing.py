"""Parts of a capture whose header is lost, put in their places among the others by the stamps of their windows.

Knows a part by its number alone. One flipped bit must not cost what all the other parts hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from latmon.model import Frame
from latmon.recording.course import UNKNOWN
from latmon.recording.reader import Recording

Numbered = tuple[int, Recording]


@dataclass(frozen=True, slots=True)
class _Nameless:
    recording: Recording
    begin_us: int
    wall: float
    near_us: int
    """What follows a part as closely as this is the next one."""
    last_us: int


def is_nameless(recording: Recording) -> bool:
    """Whether its header is lost; that of a repaired copy says that nothing is known."""
    origin = recording.origin
    return recording.headless or (origin.backend, origin.host) == (UNKNOWN, UNKNOWN)


def begin_of(recording: Recording) -> tuple[int, float]:
    """CLOCK_MONOTONIC and wall clock of where it begins."""
    if not is_nameless(recording):
        return recording.origin.start_mono_us, recording.origin.start_wall
    known = _known(recording)
    return (known.begin_us, known.wall) if known else (0, 0.0)


def place(numbered: Iterable[Numbered], nameless: Iterable[Recording]) -> tuple[list[Numbered], list[Recording]]:
    """All that have a place, in their order, and those that have none."""
    placed = sorted(numbered, key=lambda one: one[0])
    found = [(_known(one), one) for one in nameless]
    left = [one for known, one in found if known is None]
    for one in sorted((known for known, _ in found if known is not None), key=lambda one: one.begin_us):
        number = _number(one, placed)
        if number is None:
            left.append(one.recording)
        else:
            placed = sorted([*placed, (number, one.recording)], key=lambda other: other[0])
    return placed, left


def _number(one: _Nameless, placed: list[Numbered]) -> int | None:
    """One that is free, between the parts that end before it and those that begin behind it."""
    at = sum(begin_of(other)[0] <= one.begin_us for _, other in placed)
    before, after = placed[at - 1] if at else None, placed[at] if at < len(placed) else None
    behind_us = None if before is None else one.begin_us - before[1].span()[1]
    ahead_us = None if after is None else begin_of(after[1])[0] - one.last_us
    if any(us is not None and us < -one.near_us // 2 for us in (behind_us, ahead_us)):
        return None  # it overlaps
    follows = behind_us is not None and behind_us <= one.near_us
    precedes = ahead_us is not None and ahead_us <= one.near_us
    if before is not None and after is not None:
        number = before[0] + 1 if follows or not precedes else after[0] - 1
        return number if before[0] < number < after[0] else None
    if before is not None:
        return before[0] + 1 if follows else None
    return after[0] - 1 if after is not None and precedes and after[0] > 1 else None


def _known(recording: Recording) -> _Nameless | None:
    """What its windows tell; None where it has none."""
    first = next((one for one in recording if isinstance(one, Frame)), None)
    if first is None:
        return None
    wall = first.wall - first.dt_us / 1e6
    last_us = max(recording.span()[1], first.mono_us)
    return _Nameless(recording, first.mono_us - first.dt_us, wall, first.dt_us, last_us)
