"""What a recording's file comes to: from when to when, how much, and its damages, as one value in bounded memory.

Owns the counting; knows neither the file nor the words.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from latmon.checking.passages import Damage, Line
from latmon.mark import Mark
from latmon.model import Frame, Origin
from latmon.recording import Gap
from latmon.recording.minutes import KIND

MAX_DAMAGES = 1000
_MAX_KINDS = 20
_KNOWN = frozenset({"header", KIND})


@dataclass(slots=True)
class Survey:
    """Give it all passages of a file, in their order."""

    origin: Origin
    windows: int = 0
    marks: int = 0
    gaps: int = 0
    gap_seconds: float = 0.0
    late: int = 0
    """Wide windows that were read late."""
    first_wall: float | None = None
    last_wall: float = 0.0
    covered_us: int = 0
    later: Counter[str] = field(default_factory=Counter)
    """Lines of a later version, by their type."""
    damages: list[Damage] = field(default_factory=list)
    damaged: int = 0
    lost_us: int = 0
    unknown_loss: bool = False
    all_mild: bool = True

    @property
    def clean(self) -> bool:
        return not self.damaged

    def add(self, passage: Line | Damage) -> None:
        if isinstance(passage, Damage):
            self._damage(passage)
            return
        item = passage.item
        if isinstance(item, Frame):
            self.windows += 1
            self.covered_us += item.dt_us
            if self.first_wall is None:
                self.first_wall = max(0.0, item.wall - item.dt_us / 1e6)
            self.last_wall = item.wall
            if item.gap:
                self._gap(item.dt_us / 1e6)
            self.late += item.late
        elif isinstance(item, Gap):
            self._gap(item.seconds)
        elif isinstance(item, Mark):
            self.marks += 1
        elif item is None and passage.kind not in _KNOWN:
            known = passage.kind in self.later or len(self.later) < _MAX_KINDS
            self.later[passage.kind if known else ""] += 1

    def _gap(self, seconds: float) -> None:
        self.gaps += 1
        self.gap_seconds += seconds

    def _damage(self, damage: Damage) -> None:
        self.damaged += 1
        self.all_mild = self.all_mild and damage.mild
        self.lost_us += damage.lost_us or 0
        self.unknown_loss = self.unknown_loss or damage.lost_us is None
        if len(self.damages) < MAX_DAMAGES or damage.mild:
            self.damages.append(damage)
