"""The canvas widget, which renders only changed lines, the Textual screens that use it, and Rich styles by role.

Every text is asserted to be clean here; nothing parses markup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.events import Key, MouseUp, Paste
from textual.geometry import Region
from textual.screen import ModalScreen, Screen
from textual.strip import Strip
from textual.widget import Widget

from latmon.model.frame import Origin
from latmon.model.stages import FACTS
from latmon.support.text import drawable
from latmon.support.theme import BACKGROUNDS, Colour, Theme, ansi_colours, role_colours
from latmon.tui.commands import InputLine, one_line
from latmon.tui.keys import Command, brief_keys, matching, sections
from latmon.views.bars import BOLD, LETTER_ROLES
from latmon.views.heatmap import RAMP, TAIL, WAIT, Ink, solid
from latmon.views.help import brief_cells, pages
from latmon.views.lines import (
    BLANK,
    ODD,
    Line,
    Span,
    around,
    cell,
    fit,
    heading,
    highlighted,
    is_framed,
    panelled,
)
from latmon.views.lines import width as line_width
from latmon.views.screen import Scene, screen_lines
from latmon.views.spotlight import FAINT

DEPTHS = MappingProxyType(
    {
        "none": ColorSystem.STANDARD,
        "8": ColorSystem.STANDARD,
        "16": ColorSystem.STANDARD,
        "256": ColorSystem.EIGHT_BIT,
        "truecolor": ColorSystem.TRUECOLOR,
    }
)
"""Colour depth -> the sequences that Rich sends for it."""
_FULL = ("truecolor", "256")
_STAGES = tuple(one.colour for one in FACTS)
_BRIGHT = 8
"""Number of the first bright colour of ANSI. With 8 colours bold replaces bright, as terminfo has it."""
_PLAIN = {
    "text": Style(),
    "dim": Style(),
    "strong": Style(bold=True),
    "accent": Style(bold=True),
    "bad": Style(bold=True, underline=True),
    "gap": Style(),
    "limit": Style(bold=True),
    "area": Style(),
    "depth": Style(),
    WAIT: Style(bold=True),
    TAIL: Style(bold=True, underline=True),
    "frame": Style(),
    FAINT: Style(dim=True),
    **dict.fromkeys(BACKGROUNDS, Style()),
    ODD: Style(bold=True, reverse=True),
}
_FAR = 1_000_000
_WHEEL = 3
"""Lines by one step of the mouse wheel."""
_HEAD = 2
"""Lines above the commands of the palette."""
_CLOSE_HELP = ("question_mark", "f1")
_GROUP = 7
"""Cells of the group of a command in the palette."""
_KEYS = 11
"""Cells of the keys in the palette."""


@dataclass(frozen=True, slots=True)
class Face:
    """Styles by role, and the heat map's ink."""

    name: str
    styles: Mapping[str, Style]
    ink: Ink
    glyphs: Mapping[int, str] = field(default_factory=dict)
    """Replacements of glyphs that the terminal lacks."""

    def text(self, text: str) -> str:
        """Return a text in the terminal's glyphs."""
        return text.translate(self.glyphs) if self.glyphs else text


def face(theme: Theme, depth: str, glyphs: Mapping[int, str] = MappingProxyType({})) -> Face:
    """Return the styles of a theme for one of DEPTHS; 16 colours and fewer keep the terminal's background.

    `glyphs`: as in Face.
    """
    return replace(_face(theme, depth), glyphs=glyphs)


def _face(theme: Theme, depth: str) -> Face:
    if depth in _FULL and theme.colours:
        styles = _coloured(role_colours(theme, _STAGES), depth)
        return Face(theme.name, MappingProxyType(styles), solid(len(theme.ramp.steps)))
    few = ansi_colours(theme, _STAGES) if depth != "none" else {}
    if not few:
        backs = {"sel": Style(bold=True), "critical": Style(), "warning": Style()}
        return Face(theme.name, MappingProxyType(_PLAIN | _on_backgrounds(_PLAIN, backs)), RAMP)
    only_8 = depth == "8"
    cells = theme.ramp.steps_8 if only_8 else theme.ramp.steps_16
    styles = _PLAIN | {"bad": Style(bold=True)} | dict.fromkeys(LETTER_ROLES, Style(bold=True))
    for role, number in few.items():
        styles[role] = styles.get(role, Style()) + (_of_8(number) if only_8 else Style(color=Color.from_ansi(number)))
    styles[ODD] = styles["bad"] + styles[ODD]
    styles |= {f"heat{number}": Style(color=Color.from_ansi(cell.ansi)) for number, cell in enumerate(cells, 1)}
    numbers = {role: few[role] % _BRIGHT if only_8 else few[role] for role in BACKGROUNDS}
    styles |= _on_backgrounds(styles, {role: Style(bgcolor=Color.from_ansi(n)) for role, n in numbers.items()})
    ink = Ink(glyphs="".join(cell.glyph for cell in cells), halves=False) if cells else RAMP
    return Face(theme.name, MappingProxyType(styles), ink)


def _on_backgrounds(styles: Mapping[str, Style], backs: Mapping[str, Style]) -> dict[str, Style]:
    """Return the styles of texts in a selected row, in the header and in the verdict. `backs`: by role."""
    texts = {role: style for role, style in styles.items() if "/" not in role}
    return {f"{role}/{back}": style + backs[back] for back in backs for role, style in texts.items()}


def _of_8(number: int) -> Style:
    """Return an ANSI colour on a terminal with 8; bright black is black on some, and has the terminal's own instead."""
    if number == _BRIGHT:
        return Style()
    return Style(color=Color.from_ansi(number % _BRIGHT), bold=True if number > _BRIGHT else None)


def _coloured(colours: Mapping[str, Colour], depth: str) -> dict[str, Style]:
    shown = {
        role: Color.from_ansi(colour.xterm) if depth == "256" else Color.parse(colour.rgb)
        for role, colour in colours.items()
    }
    styles = {role: Style(color=colour, bgcolor=shown["background"]) for role, colour in shown.items()}
    for role in BOLD:
        styles[role] += Style(bold=True)
    styles |= _on_backgrounds(styles, {role: Style(bgcolor=shown[role]) for role in BACKGROUNDS})
    styles[ODD] = Style(color=shown["background"], bgcolor=shown["bad"], bold=True)
    cells = [role for role in shown if role.startswith("heat") or role == TAIL]
    for upper, lower in permutations(cells, 2):  # of the two halves of a cell
        styles[f"{upper}/{lower}"] = Style(color=shown[upper], bgcolor=shown[lower])
    return styles


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
        segments = [Segment(self._face.text(drawable(span.text)), styles[span.role]) for span in fitted]
        return WholeStrip(segments, width)

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
    clears_first = True
    """Whether the first Esc clears the search."""

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
        elif event.key == "escape" and self._typed and self.clears_first:
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
        variants = [self._search(*row_parts) for row_parts in ((*hint, *keys, place), (*keys, place), keys)]
        foot = next((line for line in variants if line_width(line) <= width), variants[-1])
        return [*shown, *[()] * (room - len(shown)), foot]


class PaletteScreen(SearchScreen):
    """The command palette: every command by its name. Enter closes it and runs the selected one, Esc closes it."""

    name_of_page = "commands"
    clears_first = False

    def __init__(self, commands: Sequence[Command], run: Callable[[Command], Awaitable[None]], face: Face) -> None:
        super().__init__(face)
        self._commands, self._run_command = commands, run
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
        if key == "enter" and (commands := self._found):
            await self._end_with(commands[min(max(self._moved, 0), len(commands) - 1)])
        return key == "enter" or await super()._pressed(key)

    def _group(self, commands: Sequence[Command], at: int) -> str:
        """Return the group of a command where it is the first of that group on the screen."""
        is_first = at == self._seen.start or commands[at].group != commands[at - 1].group
        return commands[at].group if is_first else ""

    def _page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002  the canvas cuts the lines
        commands = self._found
        at = self._moved = max(0, min(self._moved, len(commands) - 1))
        self._seen = around(len(commands), at, height - _HEAD)
        head = self._search(
            Span("Enter", "accent"),
            Span(" run  ", "dim"),
            Span("Esc", "accent"),
            Span(f" back  {len(commands)} of {len(self._commands)} commands", "dim"),
        )
        rows: list[Line] = [
            (
                Span("▸" if i == at else " ", "accent"),
                Span(cell(self._group(commands, i), _GROUP), "dim"),
                Span(f"{cell(commands[i].keys, _KEYS)} ", "accent"),
                Span(commands[i].text, "strong" if i == at else "text"),
            )
            for i in self._seen
        ]
        rows = [highlighted(row) if i == at else row for i, row in zip(self._seen, rows, strict=True)]
        lines: list[Line] = [head, (), *rows]
        return lines if rows else [*lines, (Span("  no command has these words"),)]
