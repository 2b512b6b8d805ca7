"""Keys that move in time: what each of the action table's does with the scene, a mark, or a file. Knows no widget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from latmon.views.scene import Scene


class Travel:
    """The user's way through what was captured. `say` puts a sentence on the screen, `ask` begins a typed line."""

    def __init__(self, scene: Scene, say: Callable[[str], None], ask: Callable[[str], None]) -> None:
        self._scene, self._say, self._ask = scene, say, ask

    def hold(self, _by: int) -> None:
        """Pause, or go on."""
        if self._scene.history.paused:
            self._scene.resume()
        else:
            self._scene.pause()

    def step(self, by: int) -> None:
        """So many intervals forward, or back."""

    def oldest(self, _by: int) -> None:
        """To the oldest that is kept."""

    def newest(self, _by: int) -> None:
        """To the newest."""

    def seek(self, _by: int) -> None:
        """To a time that is typed."""
        self._ask("seek")

    def save(self, _by: int) -> None:
        """What is on the screen, as a recording."""

    def note(self, _by: int) -> None:
        """A mark, with a note that is typed."""
        self._ask("note")


TRAVEL: Mapping[str, Callable[[Travel, int], None]] = MappingProxyType(
    {
        "hold": Travel.hold,
        "step": Travel.step,
        "oldest": Travel.oldest,
        "newest": Travel.newest,
        "seek": Travel.seek,
        "save": Travel.save,
        "note": Travel.note,
    },
)
