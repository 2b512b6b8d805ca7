"""What stands longer than its frame: notices, and what the deep probes do. Fed frame by frame; the clock is theirs."""

from __future__ import annotations

from latmon.model import Frame
from latmon.views.sight import tracing_state

NOTICE_US = 8_000_000
"""A notice stands so long, by the frames' clock."""


class Told:
    """Of one run of frames."""

    def __init__(self) -> None:
        self.tracing = ""
        """What the deep probes do as of the newest frame."""
        self._notices: list[tuple[int, str]] = []

    def copy(self) -> Told:
        """Return another one that says the same, and goes on by itself."""
        other = Told()
        other.tracing, other._notices = self.tracing, self._notices.copy()
        return other

    def add(self, frame: Frame) -> None:
        """The next frame."""
        since, said = frame.mono_us - NOTICE_US, frame.health.notice
        self._notices = [(at, text) for at, text in self._notices if at > since and text != said]
        if said:
            self._notices.append((frame.mono_us, said))
        self.tracing = tracing_state(frame)

    @property
    def notice(self) -> str:
        """All that stand, the newest first."""
        return "; ".join(text for _, text in reversed(self._notices))
