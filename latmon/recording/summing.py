"""Where a recording read for its sums may hop: the members that a roll-up stands for.

A roll-up counts only where it fits: the heads from the first of its members to its own follow each other, and its
stamps are theirs. Reads no line itself; whether the roll-up can be read is its reader's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from latmon.recording.members import Members, Part

MAX_AHEAD = 1024
"""Members that are looked at for one roll-up: a minute has 60 of them."""


MIN_WINDOW_US = 1000
"""Shorter windows have no roll-up."""


class Stretch(NamedTuple):
    """Members to byte `end - 1`; with `roll_up` the one there stands for those from byte `behind` on."""

    end: int
    behind: int = 0
    roll_up: int = 0
    first_us: int = 0
    fewest: int = 0
    most: int = 0
    """Windows that its members may hold, by their heads."""
    part: Part | None = None
    """The roll-up itself."""


def units(members: Members, begin: int, until_us: int | None) -> Iterator[Part | Stretch]:
    """What is to be read as it is, and what a roll-up stands for, in their order."""
    at = begin
    while at < members.size:
        found = _ahead(members, at, until_us)
        stop = found.behind if found.roll_up else found.end
        for part in members.parts(0, until_us, begin=at, end=stop):
            yield part
            at = part.end
        if at < stop:  # what comes is later than what was asked for
            return
        if found.roll_up and at == stop:
            part = next(members.parts(begin=found.roll_up, end=found.end))
            yield found._replace(part=part)
            at = part.end  # where its head lies about its length that is where the next one begins


def _ahead(members: Members, begin: int, until_us: int | None) -> Stretch:
    """To the next roll-up, or as far as the heads follow each other; at least one member."""
    firsts: dict[int, tuple[int, int, int]] = {}
    last_us, at = 0, begin
    fewest = most = 0
    for _ in range(MAX_AHEAD):
        head = members.head(at)
        if head is None:
            return Stretch(max(at, begin + 1))
        if head.stands_for:
            behind = at - head.stands_for
            first_us, before, most_before = firsts.get(behind, (-1, 0, 0))
            fits = first_us == head.first_us and last_us == head.last_us
            if fits and (until_us is None or last_us <= until_us):
                return Stretch(at + head.length, behind, at, first_us, fewest - before, most - most_before)
            return Stretch(at + head.length)
        if head.first_us <= last_us:  # no minute goes back in time
            firsts.clear()
        firsts[at], last_us = (head.first_us, fewest, most), head.last_us
        span_us = head.last_us - head.first_us
        fewest += 2 if span_us > 0 else 1
        most += 1 + max(span_us, 0) // MIN_WINDOW_US
        at += head.length
    return Stretch(at)
