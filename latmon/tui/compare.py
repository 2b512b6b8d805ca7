"""The compare key: A is what the screen shows, B is what comes after it.

Knows the scene, not a widget. A live capture is marked at both moments, where A and where B end: its recording can be
compared again by `latmon diff FILE@60s..A FILE@..B`, and the
settings that the two marks tell are those of A and of B, whatever had been changed before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latmon.diff.blocks import Stretch, stretch_of
from latmon.diff.comparison import compare
from latmon.diff.device_time import with_marks
from latmon.model.frame import Frame, Mark, Origin, Settings
from latmon.views.screen import Scene
from latmon.views.units import clock

_FEWEST = 6
"""Frames that a side needs to be compared."""
_LONGEST_US = 600_000_000
"""Of what came since A: reading more would hold up the keys."""


@dataclass(slots=True)
class _Side:
    """A stretch, and the mark that was put when the key was pressed."""

    stretch: Stretch
    noted: Settings
    """By the header, and the marks that somebody put before its end."""
    behind_us: int | None
    """The mark comes in a frame behind this one; None: none will, that tells this side's settings."""
    read: Settings | None = None
    """What that mark told."""
    put_us: int = 0
    """When it was put, once that is known."""

    def take(self, origin: Origin, frame: Frame) -> None:
        """Look for the mark in a frame that is behind it."""
        for mark in frame.marks:
            if mark.text == self.stretch.name:
                self.behind_us, self.put_us = None, mark.mono_us
                self.read = None if mark.changed is None else with_marks(origin.settings, [mark])


class Comparing:
    """One side, or both."""

    def __init__(self, scene: Scene, say: Callable[[str], None], mark: Callable[[str], None] | None = None) -> None:
        self._scene, self._say, self._mark = scene, say, mark
        self._a: _Side | None = None
        self._b: _Side | None = None

    def step(self) -> None:
        """The key was pressed: A, B, or back."""
        if self._scene.beside is not None:
            self._scene.beside = self._a = self._b = None
        elif self._a is None:
            self._begin()
        else:
            self._end(self._a)

    def arrived(self) -> None:
        """A mark comes a moment after its key: the settings that it tells are its side's."""
        edge = self._scene.edge.store
        if edge.origin is None:
            return
        for side in (self._a, self._b):
            for frame in reversed(edge.frames):
                if side is None or side.behind_us is None or frame.mono_us <= side.behind_us:
                    break
                side.take(edge.origin, frame)
        if self._a is not None and self._b is not None:
            _settle(self._a, self._b)

    def _begin(self) -> None:
        origin, frames = self._scene.store.origin, list(self._scene.history.window.frames)
        if origin is None or not frames:
            self._say("there is nothing to compare yet")
            return
        self._a = self._side("A", origin, frames)
        a = self._a.stretch
        self._say(f"A is {clock(a.start_wall)} to {clock(a.end_wall)}: change a setting, wait, D again is B")

    def _end(self, one: _Side) -> None:
        a = one.stretch
        frames = self._since(one)
        origin = self._scene.store.origin
        if origin is None or len(frames) < _FEWEST:
            many = f"{len(frames)} window{'s' * (len(frames) != 1)}"
            self._say(f"only {many} since A, a comparison takes {_FEWEST}: wait, then D again")
            return
        self._b = self._side("B", origin, frames)
        _settle(one, self._b)
        self._scene.beside = compare(a, self._b.stretch)

    def _since(self, one: _Side) -> list[Frame]:
        """Of a live capture all that came since, else what is shown; the frame with A's mark is of neither side."""
        end_us = one.stretch.end_us
        shown = list(self._scene.history.window.frames)
        if not shown or shown[-1].mono_us < end_us:
            return shown
        newest_us = self._scene.edge.until_us
        if self._mark is not None and shown[-1].mono_us >= newest_us:
            shown = list(self._scene.archive.frames(max(end_us, newest_us - _LONGEST_US), newest_us)) or shown
        return [each for each in shown if each.mono_us - each.dt_us >= max(end_us, one.put_us)]

    def _side(self, name: str, origin: Origin, frames: list[Frame]) -> _Side:
        made = stretch_of(name, origin, self._scene.store.devices.values(), frames)
        noted = with_marks(origin.settings, self._noted(made.end_us))
        made.settings = noted
        newest_us = self._scene.edge.until_us
        if self._mark is not None:
            self._mark(name)
        # what is set now says nothing of an earlier time
        is_now = self._mark is not None and made.end_us >= newest_us
        return _Side(made, noted, newest_us if is_now else None)

    def _noted(self, until_us: int) -> list[Mark]:
        """What is shown may begin behind them."""
        moments = tuple(self._scene.archive.moments)
        return [
            Mark(one.text, one.mono_us, one.wall, one.changed)
            for one in moments
            if one.kind == "mark" and one.mono_us <= until_us
        ]


def _settle(a: _Side, b: _Side) -> None:
    """Both by what was read at the key, or both by what was noted: else a change before A would lie between the two."""
    pending = a.behind_us is not None or b.behind_us is not None
    known = a.read if b.read is None else b.read
    if a.read is not None and b.read is not None:
        a.stretch.settings, b.stretch.settings = a.read, b.read
    elif known is not None or pending:  # what one side alone tells is no difference, and nothing is one yet
        a.stretch.settings = b.stretch.settings = a.noted if known is None else known
    else:
        a.stretch.settings, b.stretch.settings = a.noted, b.noted
