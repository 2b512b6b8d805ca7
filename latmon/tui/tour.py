"""Guided tours of the demos: views with explanations, read from YAML files in `tours`, and a running tour.

A step names a view as a finding does. A running tour counts windows and uses no clock, so that two casts of it are
equal. `Guide` applies it to the scene.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from latmon.findings.rule import Where
from latmon.support import strict_yaml
from latmon.support.errors import UsageError
from latmon.support.paths import data_dir
from latmon.tui.commands import show_at
from latmon.views.lines import BLANK, Line
from latmon.views.panels.interrupts import tables
from latmon.views.screen import Scene
from latmon.views.selection import Selection
from latmon.views.status import TourBanner

HISTORY = 90
"""Windows that a demo emits at once, before the first picture."""
EVERY = 15
"""Windows that a stop is shown: time to read four lines."""
WINDOW_S = 1
"""Seconds of a demo's window."""
MAX_TEXT = 320
"""Characters of a step's text: four lines at 80 columns."""
_OVER = "end"
Keys = Callable[[int | None], Line]
"""Makes the keys of a banner from the seconds until the next stop; None after the last."""


class Stop(NamedTuple):
    """One step of a tour: a view and its explanation."""

    where: Where
    text: str
    part: str = ""
    """The table of the interrupts screen that is selected; empty: the first."""
    points: tuple[str, ...] = ()
    """Names of the parts of the screen that the text is about (views/spotlight.py)."""
    keys: str = ""
    """The keys by which a user gets here from the stop before, as `2 Enter`; empty: nothing is to be pressed."""


class Tour(NamedTuple):
    """The steps that explain a demo."""

    title: str
    stops: tuple[Stop, ...]
    then: str = ""
    """The closing text with suggestions for what to try next."""

    @property
    def length_us(self) -> int:
        """Return the time of a demo that its stops and the closing text take, with the history before the first."""
        return (HISTORY + 1 + EVERY * (len(self.stops) + 1)) * WINDOW_S * 1_000_000


def tours() -> tuple[str, ...]:
    """Return the names of the demos with a tour."""
    return tuple(sorted(path.stem for path in data_dir("tours").glob("*.yaml")))


def load_tour(scenario: str) -> Tour:
    """Return the tour of a demo. Raises UsageError if it has none."""
    if scenario not in tours():
        known = ", ".join(tours())
        raise UsageError(f"there is no tour of the demo {scenario!r}; the tours are {known}: latmon demo NAME --tour")
    tree: Any = strict_yaml.load((data_dir("tours") / f"{scenario}.yaml").read_bytes())
    return Tour(tree["title"], tuple(_stop(step) for step in tree["steps"]), tree.get("then") or _then(scenario))


def _then(scenario: str) -> str:
    return (
        f"The tour is over, the demo goes on. Next: `latmon demo {scenario}-healthy`, the same load without the fault. "
        f"What happened, what fixed it, and `latmon diff` of both: docs/incidents/{scenario}.md"
    )


def _stop(step: dict[str, Any]) -> Stop:
    where = {name: step[name] for name in Where._fields if name in step}
    return Stop(Where(**where), step["text"], step.get("part", ""), tuple(step["points"]), step.get("keys", ""))


def without_keys(_next_s: int | None) -> Line:
    """Return no keys, for a cast, which takes none."""
    return BLANK


class Touring:
    """The stops of a tour one by one, then a text on what to try next."""

    def __init__(self, tour: Tour, keys: Keys) -> None:
        self.tour, self._keys = tour, keys
        self._at = 0
        self._seq = HISTORY
        """The newest window."""
        self._due = HISTORY + EVERY
        """The window at which the next stop begins."""
        self.context = ""
        """Context of keys of the current stop's screen, once that is chosen."""

    @property
    def stop(self) -> Stop | None:
        """Return the current stop; None after the last."""
        return self.tour.stops[self._at] if self._at < len(self.tour.stops) else None

    @property
    def banner(self) -> TourBanner:
        """Return the text of the current stop."""
        stop, many = self.stop, len(self.tour.stops)
        if stop is None:
            return TourBanner(_OVER, self.tour.title, self.tour.then, self._keys(None))
        next_s = max(self._due - self._seq, 1) * WINDOW_S
        place, keys = f"{self._at + 1}/{many}", self._keys(next_s)
        return TourBanner(place, self.tour.title, stop.text, keys, stop.points, self.context)

    def arrived(self, seq: int) -> bool:
        """Record a window; return whether the next stop begins."""
        self._seq = max(self._seq, seq)
        if seq < self._due or self.stop is None:
            return False
        self._at += 1
        self._due += EVERY
        return True

    def stay(self, seq: int) -> None:
        """Show the current stop for a full time from now on, after a key."""
        self._seq = max(self._seq, seq)
        self._due = max(self._due, seq + EVERY)

    def go(self, by: int, seq: int) -> None:
        """Go to the next stop or the one before."""
        self._at = min(max(self._at + by, 0), len(self.tour.stops))
        self._seq = max(seq, HISTORY)
        self._due = self._seq + EVERY


class Guide:
    """A tour on a scene; without a tour it does nothing. `choose` sets the selection."""

    def __init__(
        self, tour: Tour | None, scene: Scene, choose: Callable[[Selection], None], keys: Keys = without_keys
    ) -> None:
        self._touring = Touring(tour, keys) if tour else None
        self._scene, self._choose = scene, choose

    @property
    def keys(self) -> str:
        """Return the keys by which a user gets to the current stop; empty for none."""
        stop = self._touring.stop if self._touring is not None else None
        return stop.keys if stop is not None else ""

    @property
    def leads(self) -> bool:
        """Return whether a tour is running."""
        return self._touring is not None

    def arrived(self, *, busy: bool) -> None:
        """Show the next stop when it is due, else how long it takes; `busy`: a line is typed or the help is open."""
        if busy or self._scene.goal is not None:
            self.stay()
        elif self._touring is not None and self._touring.arrived(self._seq):
            self.show()
        elif self._touring is not None and self._scene.banner is not None:
            self._scene.banner = self._touring.banner

    def show(self) -> None:
        """Show the current stop."""
        if self._touring is None:
            return
        if self._touring.stop is not None:
            selection = self._selection_of(self._touring.stop)
            self._touring.context = selection.context
            self._choose(selection)
        self._scene.banner = self._touring.banner

    def _selection_of(self, stop: Stop) -> Selection:
        selection = show_at(self._scene.view, stop.where)
        parts = tables(self._scene.view).parts if stop.part else ()
        return replace(selection, part=parts.index(stop.part) if stop.part in parts else 0, row=None)

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
