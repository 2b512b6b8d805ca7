"""What the next frame says of the deep process once: notices, and runs of its programs that the kernel left out.

Knows neither the process nor why something is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon_backends.demand import AT_MOST


@dataclass(slots=True)
class News:
    """Filled as things happen, emptied by each frame."""

    _notices: list[str] = field(default_factory=list)
    _skipped: int | None = None
    _left: tuple[str, ...] = ()
    _unfollowed: Mapping[str, str] = field(default_factory=dict)

    def say(self, what: str) -> None:
        self._notices.append(f"stages: {what}")

    def say_left(self, left: tuple[str, ...]) -> None:
        """Devices for which the kernel's filter has no room: once, as long as it has none for them."""
        if fresh := [name for name in left if name not in self._left]:
            self.say(f"{', '.join(fresh)} not traced: the kernel's filter has room for {AT_MOST} devices")
        self._left = left

    def say_unfollowed(self, unfollowed: Mapping[str, str]) -> None:
        """Name devices that can't be followed, by their reason: each once, as long as it is there."""
        fresh = {name: why for name, why in unfollowed.items() if self._unfollowed.get(name) != why}
        for why in dict.fromkeys(fresh.values()):
            self.say(f"{', '.join(name for name in fresh if fresh[name] == why)}: {why}")
        self._unfollowed = dict(unfollowed)

    def add_skipped(self, runs: int | None) -> None:
        """None: not known."""
        if runs is not None:
            self._skipped = runs + (self._skipped or 0)

    def taken(self) -> str:
        said, self._notices = "; ".join(self._notices), []
        return said

    def taken_skipped(self, others: int | None) -> int | None:
        """With those of other programs."""
        told, self._skipped = [one for one in (self._skipped, others) if one is not None], None
        return sum(told) if told else None
