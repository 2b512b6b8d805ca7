"""The canvas widget, which renders only changed lines, and the Textual screens that use it.

Every text is asserted to be clean here; nothing parses markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color
from textual.events import Key, MouseUp, Resize
from textual.filter import LineFilter
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from latmon.model.frame import Origin
from latmon.support.text import is_clean
from latmon.tui.keys import Command, brief_keys, matching, sections
from latmon.tui.prompt import InputLine
from latmon.tui.style import Face
from latmon.views.help import pages
from latmon.views.lines import BLANK, Line, Span, around, cell, fit, heading, highlighted, is_framed, panelled
from latmon.views.screen import Scene, screen_lines

_FAR = 1_000_000
_WHEEL = 3
"""Lines by one step of the mouse wheel."""
_HEAD = 2
"""Lines above the commands of the palette."""
_CLOSE_HELP = ("question_mark", "f1")
_KEYS = 11
"""Cells of the keys in the palette."""


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
        self._fitted: list[Line] = []
        self._width = 0
        """The lines as they are shown, and their width."""
        self._colourless = colourless

    def show(self, lines: Sequence[Line], face: Face | None = None) -> None:
        """Show other lines; only those that differ are rendered, and only their changed cells reach the terminal."""
        if face is not None and face is not self._face:
            self._face = face
            self._fitted = []
            self.refresh()
        width, height = self.size
        new = [fit(line, width) for line in lines[:height]]
        new += [fit(BLANK, width)] * (height - len(new))
        old, self._lines, self._fitted = self._fitted, list(lines), new
        before, self._width = self._width, width
        if len(old) != height or before != width:
            self.refresh()
            return
        changed = [y for y in range(height) if old[y] != new[y]]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_line(self, y: int) -> Strip:
        width, styles = self.size.width, self._face.styles
        if y < len(self._fitted) and width == self._width:
            fitted = self._fitted[y]
        else:  # between a resize and the next picture
            fitted = fit(self._lines[y] if y < len(self._lines) else BLANK, width)
        assert all(is_clean(span.text) for span in fitted), "a foreign string passed the decoder uncleaned"  # noqa: S101  the drawing gate
        return Strip([Segment(self._face.text(span.text), styles[span.role]) for span in fitted], width)

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines that are shown."""
        return self._lines

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return no filter of Textual: the face has the colours of this terminal."""
        return (Colourless(),) if self._colourless else ()


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

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines that are shown."""
        return self._canvas.lines

    def repaint(self, foot: Line | None = None, face: Face | None = None) -> None:
        """Draw the scene."""
        if foot is not None:
            self._foot = foot
        width, height = self._canvas.size
        if width and height:
            self._canvas.show(screen_lines(self.scene, self._foot, width, height), face)


class SearchScreen(ModalScreen[None]):
    """A page of lines over the main screen, searched by typing. Esc clears the search, then closes the page."""

    name_of_page = ""

    def __init__(self, face: Face, *, colourless: bool) -> None:
        super().__init__()
        self._canvas, self._corners = Canvas(face, colourless=colourless), face.ink.corners
        self._typed = ""
        self._moved = 0
        """Lines scrolled, or the number of the selected row."""

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    async def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        room = max(self.size.height - 2, 1)
        by = {"up": -1, "down": 1, "pageup": -room, "pagedown": room, "home": -_FAR, "end": _FAR}.get(event.key)
        if by is not None:
            self._moved += by
        elif event.key == "escape" and self._typed:
            self._typed, self._moved = "", 0
        elif not await self._pressed(event.key):
            self._typed, self._moved = InputLine(self._typed).after(event.key, event.character).text, 0
        self._draw()

    def on_mouse_scroll_up(self) -> None:
        self._moved -= _WHEEL
        self._draw()

    def on_mouse_scroll_down(self) -> None:
        self._moved += _WHEEL
        self._draw()

    async def _pressed(self, key: str) -> bool:
        """Handle a key of the page; return whether it is one."""
        if key == "escape":
            self.dismiss()
        return key == "escape"

    def _draw(self) -> None:
        width, height = self.size
        if not self.is_current or not width or height <= 1:
            return
        if not is_framed(self.size):
            self._canvas.show(self._page(width, height))
            return
        cells = width - 2
        title = heading((Span(f" {self.name_of_page}", "strong"),), cells)
        lines = [title, *self._page(cells, height - 2), heading(BLANK, cells)]
        self._canvas.show(panelled(lines, width, height, self._corners))

    def _page(self, width: int, height: int) -> list[Line]:
        """Return the lines, the typed words among them."""
        raise NotImplementedError

    def _search(self, *more: Span) -> Line:
        return (Span(" search: ", "accent"), Span(self._typed, "strong"), Span("█  "), *more)


class HelpScreen(SearchScreen):
    """The help page, which scrolls; `context`: that of the screen below."""

    name_of_page = "help"

    def __init__(self, context: str, origin: Origin | None, face: Face, *, colourless: bool) -> None:
        super().__init__(face, colourless=colourless)
        self._below, self._origin = context, origin

    async def _pressed(self, key: str) -> bool:
        if key in _CLOSE_HELP and not self._typed:
            self.dismiss()
            return True
        return await super()._pressed(key)

    def _page(self, width: int, height: int) -> list[Line]:
        context, room = self._below, height - 1
        lines = pages(sections(context), self._origin, width, brief=brief_keys(context), wanted=self._typed)
        self._moved = max(0, min(self._moved, len(lines) - room))
        shown = lines[self._moved : self._moved + room]
        more = f"  {self._moved + len(shown)} of {len(lines)} lines" if len(lines) > room else ""
        foot = self._search(
            Span("type to search  ", "dim") if not self._typed else Span(""),
            Span("↑ ↓", "accent"),
            Span(" scroll  ", "dim"),
            Span("Esc", "accent"),
            Span(f" {'clear' if self._typed else 'back'}{more}", "dim"),
        )
        return [*shown, *[()] * (room - len(shown)), foot]


class PaletteScreen(SearchScreen):
    """The command palette: every command by its name. Enter closes it and runs the selected one."""

    name_of_page = "commands"

    def __init__(
        self, some: Sequence[Command], run: Callable[[Command], Awaitable[None]], face: Face, *, colourless: bool
    ) -> None:
        super().__init__(face, colourless=colourless)
        self._commands, self._run_command = some, run
        self._seen = range(0)
        """Numbers of the commands on the screen."""

    async def on_mouse_up(self, event: MouseUp) -> None:
        row = int(event.y) - _HEAD - is_framed(self.size)
        if 0 <= row < len(self._seen):
            await self._end_with(self._found[self._seen[row]])

    async def _end_with(self, command: Command) -> None:
        """Close the palette and run a command before the next key, which may be one of the screen below."""
        self.dismiss()
        await self._run_command(command)

    @property
    def _found(self) -> list[Command]:
        return matching(self._commands, self._typed)

    async def _pressed(self, key: str) -> bool:
        if key == "enter" and (found := self._found):
            await self._end_with(found[min(max(self._moved, 0), len(found) - 1)])
        return key == "enter" or await super()._pressed(key)

    def _page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002  the canvas cuts the lines
        found = self._found
        at = self._moved = max(0, min(self._moved, len(found) - 1))
        self._seen = around(len(found), at, height - _HEAD)
        head = self._search(
            Span("Enter", "accent"),
            Span(" run  ", "dim"),
            Span("Esc", "accent"),
            Span(f" back  {len(found)} of {len(self._commands)} commands", "dim"),
        )
        rows: list[Line] = [
            (
                Span("▸" if i == at else " ", "accent"),
                Span(f"{cell(found[i].keys, _KEYS)} ", "accent"),
                Span(found[i].text, "strong" if i == at else "text"),
            )
            for i in self._seen
        ]
        rows = [highlighted(row) if i == at else row for i, row in zip(self._seen, rows, strict=True)]
        lines: list[Line] = [head, (), *rows]
        return lines if rows else [*lines, (Span("  no command has these words"),)]
