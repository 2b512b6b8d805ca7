"""A running tour: the current stop, and the window at which the next one begins.

A tour counts windows and uses no clock, so that two casts of it are equal. `Guide` applies it to the scene.
"""

from __future__ import annotations

from collections.abc import Callable

from latmon.findings.tour import Stop, Tour
from latmon.tui.commands import show_at
from latmon.views.lines import Line
from latmon.views.screen import Scene
from latmon.views.selection import Selection
from latmon.views.status import TourBanner

HISTORY = 30
"""Windows that a demo emits at once, before the first picture."""
EVERY = 15
"""Windows that a stop is shown: time to read four lines."""
_OVER = "end"


class Touring:
    """The stops of a tour one by one, then a text on what to try next."""

    def __init__(self, tour: Tour, keys: Line = ()) -> None:
        self.tour, self._keys = tour, keys
        self._at = 0
        self._due = HISTORY + EVERY
        """The window at which the next stop begins."""

    @property
    def stop(self) -> Stop | None:
        """Return the current stop; None after the last."""
        return self.tour.stops[self._at] if self._at < len(self.tour.stops) else None

    @property
    def banner(self) -> TourBanner:
        """Return the text of the current stop."""
        stop, many = self.stop, len(self.tour.stops)
        if stop is None:
            return TourBanner(_OVER, self.tour.title, self.tour.then, self._keys)
        return TourBanner(f"{self._at + 1}/{many}", self.tour.title, stop.text, self._keys)

    def arrived(self, seq: int) -> bool:
        """Record a window; return whether the next stop begins."""
        if seq < self._due or self.stop is None:
            return False
        self._at += 1
        self._due += EVERY
        return True

    def stay(self, seq: int) -> None:
        """Show the current stop for a full time from now on, after a key."""
        self._due = max(self._due, seq + EVERY)

    def go(self, by: int, seq: int) -> None:
        """Go to the next stop or the one before."""
        self._at = min(max(self._at + by, 0), len(self.tour.stops))
        self._due = max(seq, HISTORY) + EVERY


class Guide:
    """A tour on a scene; without a tour it does nothing. `choose` sets the selection."""

    def __init__(self, tour: Tour | None, scene: Scene, choose: Callable[[Selection], None], keys: Line = ()) -> None:
        self._touring = Touring(tour, keys) if tour else None
        self._scene, self._choose = scene, choose

    @property
    def leads(self) -> bool:
        """Return whether a tour is running."""
        return self._touring is not None

    def arrived(self, *, busy: bool) -> None:
        """Show the next stop when it is due; `busy`: a line is typed or the help is open."""
        if busy or self._scene.goal is not None:
            self.stay()
        elif self._touring is not None and self._touring.arrived(self._seq):
            self.show()

    def show(self) -> None:
        """Show the current stop."""
        if self._touring is None:
            return
        self._scene.banner = self._touring.banner
        if self._touring.stop is not None:
            self._choose(show_at(self._scene.view, self._touring.stop.where))

    def stay(self) -> None:
        """Show the current stop for a full time from now on."""
        if self._touring is not None:
            self._touring.stay(self._seq)

    def go(self, by: int) -> None:
        """Go to another stop; 0 ends the tour."""
        if self._touring is not None and by:
            self._touring.go(by, self._seq)
            self.show()
        else:
            self._touring = self._scene.banner = None

    @property
    def _seq(self) -> int:
        """Return the number of the newest window."""
        last = self._scene.edge.window.last
        return last.seq if last is not None else 0
