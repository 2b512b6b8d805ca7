"""A running tour: the current stop, and the window at which the next one begins.

It goes by windows and by no clock: two recordings of the screen show the same. Knows no widget and no key; `Guide`
knows the scene.
"""

from __future__ import annotations

from collections.abc import Callable

from latmon.findings.tour import Stop, Tour
from latmon.tui.commands import view
from latmon.views.lines import Line
from latmon.views.panels.tour import Band
from latmon.views.screen import Scene
from latmon.views.selection import Choice

HISTORY = 30
"""Windows that a demo tells at once, before anything is looked at."""
EVERY = 15
"""Windows that a stop is shown: four lines are read in as many seconds."""
_OVER = "end"


class Touring:
    """The stops of a tour one by one, then what to try next."""

    def __init__(self, tour: Tour, keys: Line = ()) -> None:
        self.tour, self._keys = tour, keys
        self._at = 0
        self._due = HISTORY + EVERY
        """The window at which it goes on."""

    @property
    def stop(self) -> Stop | None:
        """What is to be shown; None behind the last."""
        return self.tour.stops[self._at] if self._at < len(self.tour.stops) else None

    @property
    def band(self) -> Band:
        """What is said now."""
        stop, many = self.stop, len(self.tour.stops)
        if stop is None:
            return Band(_OVER, self.tour.title, self.tour.then, self._keys)
        return Band(f"{self._at + 1}/{many}", self.tour.title, stop.text, self._keys)

    def arrived(self, seq: int) -> bool:
        """A window came; whether it goes on to the next stop."""
        if seq < self._due or self.stop is None:
            return False
        self._at += 1
        self._due += EVERY
        return True

    def stay(self, seq: int) -> None:
        """Somebody looks around here: the next stop comes that much later."""
        self._due = max(self._due, seq + EVERY)

    def go(self, by: int, seq: int) -> None:
        """To the next stop or the one before."""
        self._at = min(max(self._at + by, 0), len(self.tour.stops))
        self._due = max(seq, HISTORY) + EVERY


class Guide:
    """Leads through a scene, stop by stop; without a tour nowhere. `choose` looks at something."""

    def __init__(self, tour: Tour | None, scene: Scene, choose: Callable[[Choice], None], keys: Line = ()) -> None:
        self._touring = Touring(tour, keys) if tour else None
        self._scene, self._choose = scene, choose

    @property
    def leads(self) -> bool:
        """Whether a tour is on its way."""
        return self._touring is not None

    def arrived(self, *, busy: bool) -> None:
        """On to the next stop when its window has come; `busy`: somebody types or reads the help."""
        if busy or self._scene.goal is not None:
            self.stay()
        elif self._touring is not None and self._touring.arrived(self._seq):
            self.show()

    def show(self) -> None:
        """The stop that is on."""
        if self._touring is None:
            return
        self._scene.band = self._touring.band
        if self._touring.stop is not None:
            self._choose(view(self._scene.sight, self._touring.stop.where))

    def stay(self) -> None:
        """Somebody looks around here."""
        if self._touring is not None:
            self._touring.stay(self._seq)

    def go(self, by: int) -> None:
        """To another stop; 0 ends the tour."""
        if self._touring is not None and by:
            self._touring.go(by, self._seq)
            self.show()
        else:
            self._touring = self._scene.band = None

    @property
    def _seq(self) -> int:
        """Of the newest window."""
        last = self._scene.edge.window.last
        return last.seq if last is not None else 0
