"""How often a backlog is painted. Knows no clock and no screen."""

from __future__ import annotations

_REPAINT_S = 0.1
_SHARE = 4
"""A backlog's pictures take at most one part of so many of the time: a picture is dear on a sick or small host."""


class Pace:
    """Painting is due at once, but ten times a second at most; what comes meanwhile is in the next picture."""

    def __init__(self) -> None:
        self._next = 0.0
        self.coming = False
        """A picture is due later and has been asked for."""

    def due(self, now: float) -> float | None:
        """Seconds until the next picture, 0 for at once; None when one is coming already."""
        if self.coming:
            return None
        wait = max(self._next - now, 0.0)
        self.coming = wait > 0
        return wait

    def painted(self, began: float, ended: float) -> None:
        """A picture was made."""
        self._next = began + max(_REPAINT_S, _SHARE * (ended - began))
        self.coming = False
