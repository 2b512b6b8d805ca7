"""The key that compares: what is on the screen is A, then what came since is B beside it, then the screen is as before.

Knows the scene, not a widget. A live capture is marked at both moments, so that its recording can be compared again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from latmon.diff.comparison import Comparison, compare
from latmon.diff.setting import with_marks
from latmon.diff.stretch import Stretch, stretch_of
from latmon.mark import Mark
from latmon.model import Frame
from latmon.views.scene import Scene
from latmon.views.units import clock

_FEWEST = 6
"""Frames that a side needs to be tested; fewer are shown as they are."""


class Comparing:
    """One side, or both."""

    def __init__(self, scene: Scene, say: Callable[[str], None], mark: Callable[[str], None] | None = None) -> None:
        self._scene, self._say, self._mark = scene, say, mark
        self._a: Stretch | None = None

    def step(self) -> None:
        """The key was pressed: A, B, or back."""
        if self._scene.beside is not None:
            self._scene.beside, self._a = None, None
        elif self._a is None:
            self._begin()
        else:
            self._end(self._a)

    def _begin(self) -> None:
        frames = list(self._scene.history.window.frames)
        if not frames:
            self._say("there is nothing to compare yet")
            return
        self._a = self._side("A", frames)
        self._say(
            f"A is {clock(self._a.start_wall)} to {clock(self._a.end_wall)}: change a setting, wait, D again is B"
        )

    def _end(self, a: Stretch) -> None:
        shown = list(self._scene.history.window.frames)
        # the frame in which the setting changed is of neither side
        frames = [one for one in shown if one.mono_us - one.dt_us >= a.end_us] or (
            shown if shown and shown[-1].mono_us < a.end_us else []
        )
        if len(frames) < _FEWEST:
            self._say(f"only {len(frames)} frames since A, a comparison takes {_FEWEST}: wait, then D again")
            return
        b = self._side("B", frames)
        self._scene.beside = compare(a, b)

    def _side(self, name: str, frames: list[Frame]) -> Stretch:
        """Settings are those of the header, and what marks told of since."""
        if self._mark is not None:
            self._mark(name)
        store = self._scene.history.store
        origin = store.origin
        assert origin is not None  # noqa: S101  there are frames
        made = stretch_of(name, origin, store.devices.values(), frames)
        made.settings = with_marks(origin.settings, _marks(store.frames, frames[-1].mono_us))
        return made

    def arrived(self) -> None:
        """The mark of B comes a moment after the key: the settings that it tells belong to B."""
        beside = self._scene.beside
        store = self._scene.edge.store
        if beside is None or store.origin is None or self._mark is None:
            return
        marks = _marks(store.frames, None)
        known = [number for number, one in enumerate(marks) if one.text == beside.b.name]
        if known:
            beside.b.settings = with_marks(store.origin.settings, marks[: known[-1] + 1])


def _marks(frames: Iterable[Frame], until_us: int | None) -> list[Mark]:
    return [mark for one in frames if until_us is None or one.mono_us <= until_us for mark in one.marks]


__all__ = ["Comparing", "Comparison"]
