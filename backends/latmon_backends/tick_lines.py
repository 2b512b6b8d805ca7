"""What every reader of a tick protocol shares: a tick's line, the losses on the way, how much is kept.

Knows neither scripts nor windows.
"""

from __future__ import annotations

from dataclasses import dataclass

from latmon_backends.probe_events import Event, HelperFailed, Lost, NoRoom, Undecoded

SLOTS = 4
"""A maximum is kept for each of so many ticks."""
MAX_RECORDS = 10_000
"""Kept for one interval."""
_MAP_FULL = -7
_TICK_WORDS = 4
_TOO_MANY = 2**63
_DIGITS = 19
"""Fewer than a number that the kernel's clock could not reach."""


@dataclass(slots=True)
class Losses:
    """What went wrong in an interval."""

    lost: int = 0
    map_full: int = 0
    undecoded: int = 0
    dropped: int = 0
    """Records of I/Os beyond those that are kept for one interval."""
    unkept: int = 0
    """Records that only tell more of one, beyond those."""

    def note(self, event: Event) -> None:
        """An event that is neither a map nor a line."""
        match event:
            case Lost(events=events) if 0 <= events < _TOO_MANY:
                self.lost += events
            case HelperFailed(code=code):
                self.map_full += code == _MAP_FULL
            case NoRoom(entries=entries) if 0 <= entries < _TOO_MANY:
                self.map_full += entries
            case Lost() | NoRoom() | Undecoded():
                self.undecoded += 1
            case _:
                pass

    def __add__(self, other: Losses) -> Losses:
        return Losses(
            self.lost + other.lost,
            self.map_full + other.map_full,
            self.undecoded + other.undecoded,
            self.dropped + other.dropped,
            self.unkept + other.unkept,
        )


def stamped(words: list[str]) -> tuple[int, int] | None:
    """Number and stamp (ns) of a `tick` or `last` line; None where it is torn."""
    if len(words) != _TICK_WORDS or not all(word.isdecimal() and len(word) < _DIGITS for word in words[2:]):
        return None
    return int(words[2]), int(words[3])
