"""The ? page: keys, what each number includes here, and what isn't measured and why. Knows the origin, no frames."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from latmon.model import Origin
from latmon.tui.actions import sections
from latmon.tui.face import Face
from latmon.tui.widgets.canvas import Canvas
from latmon.views.help import pages
from latmon.views.lines import Line, Span


class HelpScreen(ModalScreen[None]):
    """Scrolls; ?, q and Esc close it."""

    BINDINGS = [  # noqa: RUF012  Textual's own form
        Binding("escape,question_mark,f1,q,H,enter", "dismiss", "close", priority=True),
        Binding("up,k", "scroll_by(-1)", "up"),
        Binding("down,j", "scroll_by(1)", "down"),
        Binding("pageup,b,left,h", "scroll_by(-10)", "page up"),
        Binding("pagedown,space,right,l", "scroll_by(10)", "page down"),
    ]

    def __init__(self, origin: Origin | None, face: Face, *, colourless: bool) -> None:
        super().__init__()
        self._origin = origin
        self._canvas = Canvas(face, id="help", colourless=colourless)
        self._top = 0

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def action_scroll_by(self, rows: int) -> None:
        self._top += rows
        self._draw()

    def _draw(self) -> None:
        lines = pages(sections(), self._origin, self.size.width)
        room = self.size.height - 1
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        more = f"  {self._top + len(shown)} of {len(lines)} lines" if len(lines) > room else ""
        foot: Line = (
            Span(" ↑ ↓", "accent"),
            Span(" scroll  ", "dim"),
            Span("Esc", "accent"),
            Span(f" back{more}", "dim"),
        )
        self._canvas.show([*shown, *[()] * (room - len(shown)), foot])
