"""Roll-ups held against the windows that they stand for: each is made again, as its writer made it, and compared.

One whose minute is damaged is no damage of its own: readers see that it doesn't fit and read the windows. Knows no line
but the roll-up's.
"""

from __future__ import annotations

from collections.abc import Sequence

from latmon.errors import RecordingError
from latmon.model import Frame
from latmon.recording import checks
from latmon.recording.members import Part, head_of, unpack
from latmon.recording.minutes import decode_minute
from latmon.recording.rolling import Rolling

WRONG = "the roll-up of a minute is not the sum of its windows: reports that trust it would be wrong"


class RollUps:
    """Tell it every part that can be read, in their order; it answers with what is wrong, at which byte."""

    def __init__(self) -> None:
        self._rolling = Rolling()
        self._held: Part | None = None

    def hold(self, roll_up: Part) -> None:
        """The next windows will tell whether its minute is over."""
        self._held = roll_up

    def took(self, part: Part, windows: Sequence[Frame], *, alone: bool) -> int | None:
        """The place of a roll-up before this part that is wrong."""
        held, self._held = self._held, None
        made = self._rolling.due(windows, part.begin if held is None else held.begin)
        self._rolling.took(windows, part.begin, alone=alone)
        return held.begin if held is not None and made and not _same(held, made) else None

    def missed(self) -> None:
        """Something can't be read here."""
        self._held = None
        self._rolling.missed()


def _same(held: Part, made: bytes) -> bool:
    try:
        told = decode_minute(checks.parse(held.text))
    except RecordingError:
        return False
    return head_of(made[:64]) == _measured(held, len(made)) and told == decode_minute(checks.parse(unpack(made)))


def _measured(held: Part, length: int) -> object:
    """Its head as if it were as long as ours: a later version's line may say more."""
    return None if held.head is None else held.head._replace(length=length)
