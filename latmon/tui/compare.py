"""The compare key: A is the window on the screen, B the time after it.

A live capture gets a mark at the end of A and of B. Its recording can be compared again by
`latmon diff FILE@60s..A FILE@..B`, and the settings in the two marks are those of A and of B.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latmon.diff.blocks import CaptureSpan, period_of
from latmon.diff.comparison import compare
from latmon.diff.device_time import with_marks
from latmon.model.frame import Frame, Mark, Origin, Settings
from latmon.views.screen import Scene
from latmon.views.units import clock

_FEWEST = 6
"""Least frames of a side."""
_LONGEST_US = 600_000_000
"""Longest B: reading more would delay keys."""


@dataclass(slots=True)
class _Side:
    """A period, and the mark that was set when the key was pressed."""

    period: CaptureSpan
    noted: Settings
    """Settings by the header and the marks before its end."""
    behind_us: int | None
    """The mark is in a frame after this time; None: no mark with this side's settings is expected."""
    read: Settings | None = None
    """Settings in that mark."""
    put_us: int = 0
    """Time of the mark, once it is known."""

    def take(self, origin: Origin, frame: Frame) -> None:
        """Look for the mark in a frame."""
        for mark in frame.marks:
            if mark.text == self.period.name:
                self.behind_us, self.put_us = None, mark.mono_us
                self.read = None if mark.changed is None else with_marks(origin.settings, [mark])


class Comparing:
    """The comparison of A and B while the key is used."""

    def __init__(self, scene: Scene, say: Callable[[str], None], mark: Callable[[str], None] | None = None) -> None:
        self._scene, self._say, self._mark = scene, say, mark
        self._a: _Side | None = None
        self._b: _Side | None = None

    def step(self) -> None:
        """Handle the key: set A, set B, or leave the comparison."""
        if self._scene.comparison is not None:
            self._scene.comparison = self._a = self._b = None
        elif self._a is None:
            self._begin()
        else:
            self._end(self._a)

    def arrived(self) -> None:
        """Read the marks, which arrive after their keys, with the settings of their sides."""
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
        a = self._a.period
        self._say(
            f"A is {clock(a.start_wall)} to {clock(a.end_wall)}: change a setting, wait, then press D again for B"
        )

    def _end(self, one: _Side) -> None:
        a = one.period
        frames = self._since(one)
        origin = self._scene.store.origin
        if origin is None or len(frames) < _FEWEST:
            many = f"{len(frames)} window{'s' * (len(frames) != 1)}"
            self._say(f"only {many} since A, and a comparison needs {_FEWEST}: wait, then press D again")
            return
        self._b = self._side("B", origin, frames)
        _settle(one, self._b)
        self._scene.comparison = compare(a, self._b.period)

    def _since(self, one: _Side) -> list[Frame]:
        """Return the frames of B: of a live capture all since A, else those shown; without the frame of A's mark."""
        end_us = one.period.end_us
        shown = list(self._scene.history.window.frames)
        if not shown or shown[-1].mono_us < end_us:
            return shown
        newest_us = self._scene.edge.until_us
        if self._mark is not None and shown[-1].mono_us >= newest_us:
            shown = list(self._scene.archive.frames(max(end_us, newest_us - _LONGEST_US), newest_us)) or shown
        return [each for each in shown if each.mono_us - each.dt_us >= max(end_us, one.put_us)]

    def _side(self, name: str, origin: Origin, frames: list[Frame]) -> _Side:
        made = period_of(name, origin, self._scene.store.devices.values(), frames)
        noted = with_marks(origin.settings, self._noted(made.end_us))
        made.settings = noted
        newest_us = self._scene.edge.until_us
        if self._mark is not None:
            self._mark(name)
        # present settings aren't those of an earlier time
        is_now = self._mark is not None and made.end_us >= newest_us
        return _Side(made, noted, newest_us if is_now else None)

    def _noted(self, until_us: int) -> list[Mark]:
        """Return the marks before a time, also those before the window."""
        moments = tuple(self._scene.archive.moments)
        return [
            Mark(one.text, one.mono_us, one.wall, one.changed)
            for one in moments
            if one.kind == "mark" and one.mono_us <= until_us
        ]


def _settle(a: _Side, b: _Side) -> None:
    """Use for both sides the settings read at the keys, or for both the noted ones.

    A mixture would show a change before A as a difference between A and B.
    """
    pending = a.behind_us is not None or b.behind_us is not None
    known = a.read if b.read is None else b.read
    if a.read is not None and b.read is not None:
        a.period.settings, b.period.settings = a.read, b.read
    elif known is not None or pending:  # settings known for one side only are no difference
        a.period.settings = b.period.settings = a.noted if known is None else known
    else:
        a.period.settings, b.period.settings = a.noted, b.noted
