"""The main screen: one canvas over the whole terminal, filled from the scene. Repaints; decides nothing."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.events import Resize
from textual.screen import Screen

from latmon.tui.face import Face
from latmon.tui.widgets.canvas import Canvas
from latmon.views.lines import Line
from latmon.views.scene import Scene
from latmon.views.whole_screen import screen_lines


class MainScreen(Screen[None]):
    """The scene says what is on each line; the canvas sends what changed."""

    def __init__(self, scene: Scene, face: Face, *, colourless: bool) -> None:
        super().__init__()
        self.scene = scene
        self._canvas = Canvas(face, id="main", colourless=colourless)
        self._foot: Line = ()

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_resize(self, _event: Resize) -> None:
        self.call_after_refresh(self.repaint)

    def repaint(self, foot: Line | None = None, face: Face | None = None) -> None:
        """Draw the scene as it is now."""
        if foot is not None:
            self._foot = foot
        width, height = self._canvas.size
        if width and height:
            self._canvas.show(screen_lines(self.scene, self._foot, width, height), face)
