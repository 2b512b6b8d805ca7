"""How often a backlog is painted. Knows no clock and no screen."""

from __future__ import annotations

_REPAINT_S = 0.1


class Pace:
    """Painting is due at once, but ten times a second at most; what comes meanwhile is in the next picture."""

    def __init__(self) -> None:
        self._painted = -_REPAINT_S
        self._coming = False

    def due(self, now: float) -> float | None:
        """Seconds until the next picture, 0 for at once; None when one is coming already."""
        if self._coming:
            return None
        wait = max(self._painted + _REPAINT_S - now, 0.0)
        self._coming = wait > 0
        return wait

    def painted(self, now: float) -> None:
        """A picture was made."""
        self._painted = now
        self._coming = False
