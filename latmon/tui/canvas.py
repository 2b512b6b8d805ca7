"""The canvas widget, which renders only changed lines, and the Textual screens that use it.

Every text is asserted to be clean here; nothing parses markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from rich.segment import Segment
from textual.app import ComposeResult
from textual.events import Key, MouseUp, Paste
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from latmon.model.frame import Origin
from latmon.support.text import is_clean
from latmon.tui.keys import Command, brief_keys, matching, sections
from latmon.tui.prompt import InputLine, one_line
from latmon.tui.style import Face
from latmon.views.help import brief_cells, pages
from latmon.views.lines import BLANK, Line, Span, around, cell, fit, heading, highlighted, is_framed, panelled, plain
from latmon.views.lines import width as line_width
from latmon.views.screen import Scene, screen_lines

_FAR = 1_000_000
_WHEEL = 3
"""Lines by one step of the mouse wheel."""
_HEAD = 2
"""Lines above the commands of the palette."""
_CLOSE_HELP = ("question_mark", "f1")
_KEYS = 11
"""Cells of the keys in the palette."""


class WholeStrip(Strip):
    """A strip that is not cut; Textual's own refers to itself then, and is not freed before a garbage collection."""

    def divide(self, cuts: Iterable[int]) -> Sequence[Strip]:
        """Return the parts between these cells."""
        ends = list(cuts)
        return [self] if ends == [self.cell_length] else super().divide(ends)


class Canvas(Widget):
    """A widget that shows lines."""

    DEFAULT_CSS = "Canvas { width: 1fr; height: 1fr; }"
    ALLOW_SELECT = False

    def __init__(self, face: Face, draw: Callable[[], None] = lambda: None) -> None:
        """`draw` is called to show the lines of another size."""
        super().__init__()
        self._face, self._draw = face, draw
        self._lines: list[Line] = []
        self._fitted: list[Line] = []
        self._width = 0
        """The lines as they are shown, and their width."""
        self._strips: dict[int, Strip] = {}
        """The rendered lines that have not changed since."""

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
            self._strips.clear()
            self.refresh()
            return
        changed = [y for y in range(height) if old[y] != new[y]]
        for y in changed:
            self._strips.pop(y, None)
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the strips of a region without Textual's styles; after a resize they are of lines for the new size."""
        if (self._width, len(self._fitted)) != self.size:
            self._strips.clear()
            self._draw()
        for y in crop.line_range:
            if y not in self._strips:
                self._strips[y] = self.render_line(y)
        strips = [self._strips[y] for y in crop.line_range]
        return strips if crop.width == self._width else [strip.crop(*crop.column_span) for strip in strips]

    def render_line(self, y: int) -> Strip:
        width, styles = self.size.width, self._face.styles
        if y < len(self._fitted) and width == self._width:
            fitted = self._fitted[y]
        else:  # nothing was drawn for this size
            fitted = fit(self._lines[y] if y < len(self._lines) else BLANK, width)
        assert is_clean(plain(fitted)), "a foreign string passed the decoder uncleaned"  # noqa: S101  the drawing gate
        return WholeStrip([Segment(self._face.text(span.text), styles[span.role]) for span in fitted], width)

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines that are shown."""
        return self._lines


class MainScreen(Screen[None]):
    """The main screen: the lines of the scene on a canvas."""

    def __init__(self, scene: Scene, face: Face, foot: Callable[[int], Line]) -> None:
        """`foot` returns the last line for a width, which a resize changes without another picture."""
        super().__init__()
        self.scene, self._foot = scene, foot
        self._canvas = Canvas(face, self.repaint)

    def compose(self) -> ComposeResult:
        yield self._canvas

    @property
    def lines(self) -> Sequence[Line]:
        """Return the lines that are shown."""
        return self._canvas.lines

    def repaint(self, face: Face | None = None) -> None:
        """Draw the scene."""
        width, height = self._canvas.size
        if width and height:
            self._canvas.show(screen_lines(self.scene, self._foot(width), width, height), face)


class SearchScreen(ModalScreen[None]):
    """A page of lines over the main screen, searched by typing. Esc clears the search, then closes the page."""

    name_of_page = ""

    def __init__(self, face: Face) -> None:
        super().__init__()
        self._canvas, self._corners = Canvas(face, self._draw), face.ink.corners
        self._typed = ""
        self._moved = 0
        """Lines scrolled, or the number of the selected row."""

    def compose(self) -> ComposeResult:
        yield self._canvas

    async def on_key(self, event: Key) -> None:
        event.stop()
        event.prevent_default()
        if not self.is_current:  # a key before this one has closed the page
            self.app.post_message(Key(event.key, event.character))
            return
        room = max(self.size.height - 2, 1)
        by = {"up": -1, "down": 1, "pageup": -room, "pagedown": room, "home": -_FAR, "end": _FAR}.get(event.key)
        if by is not None:
            self._moved += by
        elif event.key == "escape" and self._typed:
            self._typed, self._moved = "", 0
        elif not await self._pressed(event.key):
            self._typed, self._moved = InputLine(self._typed).after(event.key, event.character).text, 0
        self._draw()

    def on_paste(self, event: Paste) -> None:
        event.stop()
        self._typed, self._moved = InputLine(self._typed).after("", one_line(event.text)).text, 0
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
            self._close()
        return key == "escape"

    def _close(self) -> None:
        """Close the page once: keys and clicks may wait for it that came before it was closed."""
        if self.is_current:
            self.dismiss()

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

    def __init__(self, context: str, origin: Origin | None, face: Face) -> None:
        super().__init__(face)
        self._below, self._origin = context, origin

    async def _pressed(self, key: str) -> bool:
        if key in _CLOSE_HELP and not self._typed:
            self._close()
            return True
        return await super()._pressed(key)

    def _page(self, width: int, height: int) -> list[Line]:
        context, room = self._below, height - 1
        visiting = self._origin is not None and self._origin.backend == "prometheus"
        brief = brief_keys(context, brief_cells(width), visiting=visiting)
        lines = pages(sections(context), self._origin, width, brief=brief, wanted=self._typed)
        self._moved = max(0, min(self._moved, len(lines) - room))
        shown = lines[self._moved : self._moved + room]
        more = f"  {self._moved + len(shown)} of {len(lines)} lines" if len(lines) > room else ""
        does = "clear" if self._typed else "back"
        keys = (Span("↑ ↓", "accent"), Span(" scroll  ", "dim"), Span("Esc", "accent"), Span(f" {does}", "dim"))
        hint, place = () if self._typed else (Span("type to search  ", "dim"),), Span(more, "dim")
        several = [self._search(*some) for some in ((*hint, *keys, place), (*keys, place), keys)]
        foot = next((line for line in several if line_width(line) <= width), several[-1])
        return [*shown, *[()] * (room - len(shown)), foot]


class PaletteScreen(SearchScreen):
    """The command palette: every command by its name. Enter closes it and runs the selected one."""

    name_of_page = "commands"

    def __init__(self, some: Sequence[Command], run: Callable[[Command], Awaitable[None]], face: Face) -> None:
        super().__init__(face)
        self._commands, self._run_command = some, run
        self._seen = range(0)
        """Numbers of the commands on the screen."""

    async def on_mouse_up(self, event: MouseUp) -> None:
        row = int(event.y) - _HEAD - is_framed(self.size)
        if self.is_current and 0 <= row < len(self._seen):
            await self._end_with(self._found[self._seen[row]])

    async def _end_with(self, command: Command) -> None:
        """Close the palette and run a command before the next key, which may be one of the screen below."""
        self._close()
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
