"""What waited in a minute's windows, so that their sum and what comes behind it need none of them.

What began to wait in the minute is known here. Since when others wait is known to who read what is before it, and who
begins to read right before it knows less: so only until when they did is noted. That is exact as long as no probe's
rows and least ages are of the same I/Os. Pure.
"""

from __future__ import annotations

from latmon.ages import Held, Seen, Settled
from latmon.model import Frame
from latmon.outstanding import StillInFlight
from latmon.waiting import MAX_ROWS, MAX_SINCE, Waiting

MAX_LONGEST = 1024
"""Devices with an age of their own in one minute."""


class Settling:
    """Filled by `add`, window by window of one minute."""

    def __init__(self) -> None:
        self._first_us: int | None = None
        self._held: dict[str, Held] = {}
        self._longest: dict[str, Seen] = {}
        self._fewest: dict[str, int] = {}
        self._probes: set[int | None] = set()
        self._claims: dict[str, tuple[tuple[int, int], ...]] = {}
        self._exact = True

    def add(self, frame: Frame, waiting: Waiting) -> None:
        """The next window; `waiting` has it already."""
        first_us = self._first_us = self._first_us or frame.mono_us
        still = frame.in_flight
        self._probes.add(None if still is None else still.since_us)
        for name, now in frame.outstanding.items():
            self._fewest[name] = min(self._fewest.get(name, now.known), now.known)
        rows = waiting.ages.oldest
        self._note_held(frame, waiting, first_us)
        self._claims = {
            name: new
            for name, claims in waiting.claims.items()
            if (new := tuple((us, ios) for us, ios in claims if us >= first_us))
        }
        for row in reversed(rows):
            if row.at_least and frame.mono_us - row.age_us < first_us:
                self._exact = self._exact and not _is_followed(row.device, still)
                continue
            had = self._longest.get(row.device)
            if had is None or row.age_us >= had.row.age_us:
                self._longest[row.device] = Seen(row, frame.wall, frame.mono_us)
        if len(rows) >= MAX_ROWS or len(self._longest) > MAX_LONGEST:
            self._exact = False

    def settled(self) -> Settled | None:
        """None where only the windows themselves can say how long what waited."""
        if not self._exact or len(self._probes) != 1:
            return None
        return Settled(self._claims, self._held, self._longest, self._fewest, next(iter(self._probes)))

    def _note_held(self, frame: Frame, waiting: Waiting, first_us: int) -> None:
        for name, claims in waiting.claims.items():
            if len(claims) >= MAX_SINCE:
                self._exact = False
            if any(us < first_us and ios for us, ios in claims):
                followed = _is_followed(name, frame.in_flight)
                had = self._held.get(name)
                self._exact = self._exact and (had is None or had.followed == followed)
                self._held[name] = Held(frame.mono_us, frame.wall, followed)


def _is_followed(device: str, still: StillInFlight | None) -> bool:
    return still is not None and (still.follows(device) or any(one.device == device for one in still.oldest))
