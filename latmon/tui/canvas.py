"""The canvas widget, which repaints only changed cells, and the Textual screens that use it.

Every text is asserted to be clean here; nothing parses markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.events import Resize
from textual.filter import LineFilter
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from latmon.model.frame import Origin
from latmon.support.text import is_clean
from latmon.tui.keys import sections
from latmon.tui.style import Face
from latmon.views.help import pages
from latmon.views.lines import BLANK, Line, Span, fit
from latmon.views.screen import Scene, screen_lines

_JOIN = 6
"""Changed cells with at most so many unchanged ones between them are one repaint: moving the cursor costs as much."""


class Colourless(LineFilter):
    """A filter that removes every colour code for NO_COLOR; Textual's own filters leave grey or 39;49."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  the interface
        return [Segment(text, _bare(style) if style else None, control) for text, style, control in segments]


class Canvas(Widget):
    """A widget that shows lines."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, face: Face, *, id: str | None = None, colourless: bool = False) -> None:  # noqa: A002  Textual's name
        super().__init__(id=id)
        self._face = face
        self._lines: list[Line] = []
        self._colourless = colourless

    def show(self, lines: Sequence[Line], face: Face | None = None) -> None:
        """Show other lines; only cells that differ are repainted."""
        if face is not None and face is not self._face:
            self._face = face
            self._lines = []
            self.refresh()
        width, height = self.size
        old, new = self._fitted(self._lines, width), self._fitted(lines, width)
        self._lines = list(lines)
        regions = [
            Region(begin, y, end - begin, 1)
            for y in range(min(height, max(len(old), len(new))))
            for begin, end in changes(_at(old, y, width), _at(new, y, width))
        ]
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        line = self._lines[y] if y < len(self._lines) else BLANK
        styles = self._face.styles
        fitted = fit(line, self.size.width)
        assert all(is_clean(span.text) for span in fitted), "a foreign string passed the decoder uncleaned"  # noqa: S101  the drawing gate
        return Strip([Segment(span.text, styles[span.role]) for span in fitted], self.size.width)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return no filter of Textual: the face has the colours of this terminal."""
        return (Colourless(),) if self._colourless else ()

    @staticmethod
    def _fitted(lines: Sequence[Line], width: int) -> list[Line]:
        return [fit(line, width) for line in lines]


def changes(old: Line, new: Line) -> Iterator[tuple[int, int]]:
    """Yield the runs of cells [begin, end) that differ between two lines of one width."""
    if old == new:
        return
    begin = end = -1
    for x, (before, after) in enumerate(zip(_cells(old), _cells(new), strict=False)):
        if before == after:
            continue
        if begin >= 0 and x - end > _JOIN:
            yield begin, end
            begin = -1
        begin = x if begin < 0 else begin
        end = x + 1
    if begin >= 0:
        yield begin, end


@lru_cache(256)
def _cells(line: Line) -> list[tuple[str, str]]:
    """Return (character, role) per cell; a wide character takes two. A line is read as the new one, then as the old."""
    cells: list[tuple[str, str]] = []
    for text, role in line:
        if text.isascii() or cell_len(text) == len(text):
            cells += [(char, role) for char in text]
        else:
            for char in text:
                cells += [(char, role)] * cell_len(char)
    return cells


def _at(lines: list[Line], y: int, width: int) -> Line:
    return lines[y] if y < len(lines) else fit(BLANK, width)


@lru_cache(256)
def _bare(style: Style) -> Style:
    return Style(bold=style.bold, underline=style.underline, reverse=style.reverse)


class MainScreen(Screen[None]):
    """The main screen: the lines of the scene on a canvas."""

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
        """Draw the scene."""
        if foot is not None:
            self._foot = foot
        width, height = self._canvas.size
        if width and height:
            self._canvas.show(screen_lines(self.scene, self._foot, width, height), face)


class HelpScreen(ModalScreen[None]):
    """The help page, which scrolls; ?, q and Esc close it."""

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
