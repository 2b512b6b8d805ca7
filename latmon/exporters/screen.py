"""Exports of the screen: SVG and plain text at one moment, asciicast over a span. Needs no terminal.

A cast is version 2 by default, which every player since 2017 plays; version 3 needs asciinema 3. It writes the cells
that changed, in xterm's 256 colours. In an SVG every run of text is stretched to its cells, whatever the viewer's font,
and full blocks are rectangles, so that heat maps have no seams.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, BinaryIO

from latmon.exporters.registry import ExportOptions, Source, is_redacted, moment_us
from latmon.findings.facts import WINDOW_US
from latmon.findings.rule import screen_title
from latmon.model.frame import Frame, Origin
from latmon.model.stages import FACTS
from latmon.recording.archive import frames_of
from latmon.recording.codec import Gap
from latmon.support.errors import RecordingError
from latmon.support.text import clean, drawable
from latmon.support.theme import BACKGROUNDS, XTERM, Theme, role_colours
from latmon.views.bars import BOLD
from latmon.views.heatmap import RAMP, Ink, solid
from latmon.views.lines import ODD, PLAIN, UNKNOWN_CELL, Line, Pen, Row, Span, cell_len, cells_of, encode, fit, plain
from latmon.views.lines import width as line_width
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import FOLDS, ScreenOptions, screen_options
from latmon.views.spotlight import FAINT
from latmon.views.units import moment

_LEAD_US = 600_000_000
"""Time before a picture that is read: the longest window of the screen."""
MAX_RATE = 10
_FONT = "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace"
_PARTS = re.compile(r"([▀▁▂▃▄▅▆▇█])\1*| +|[^▀▁▂▃▄▅▆▇█ ]+(?: [^▀▁▂▃▄▅▆▇█ ]+)*")
"""Equal blocks, blanks, and words with single blanks between them."""


def _shown(options: ExportOptions) -> ScreenOptions:
    return options.shown or screen_options()


class Moments:
    """Scene that is fed window by window, with a caption in place of the keys."""

    def __init__(
        self, origin: Origin, options: ScreenOptions, size: tuple[int, int], ink: Ink = RAMP, *, name: str = ""
    ) -> None:
        """`size`: columns and lines; `name`: the source in the caption."""
        self._name, self._size = name, size
        selection = replace(options.selection, sweep=False)  # that is for slow links
        self._scene = Scene(selection, mode=options.mode, ink=ink, findings=options.findings)
        self._scene.findings_state.at_once, self._scene.findings_state.late_us = False, WINDOW_US
        self._scene.store.origin = origin
        self._scene.has_strip = False
        self.last: Frame | None = None

    def append(self, frame: Frame) -> None:
        self._scene.append(frame)
        self.last = frame

    def lines(self) -> list[Line]:
        self._scene.findings_state.finish()
        return captioned(self._scene, self._name, self._size)


def of_source(source: Source, options: ExportOptions, ink: Ink = RAMP) -> Moments:
    """Return the screen of a recording, before its first window."""
    shown = _shown(options)
    shown = replace(shown, selection=replace(shown.selection, globs=source.globs))
    # a recording is named by its host, unless the user names it
    name = "recording" if source.redacted else source.recording.path.name
    return Moments(source.origin, shown, options.size, ink, name=name)


def captioned(scene: Scene, name: str, size: tuple[int, int]) -> list[Line]:
    """Return a screen of (columns, lines) whose last line has the time, the source's name and latmon's version."""
    last, origin = scene.history.window.last, scene.store.origin
    when = moment(last.wall)[:-5] if last else "no window"
    left = (Span(f" {when}  ", "dim"), Span(clean(name, max(size[0] - 30, 8)), "dim"))
    redacted = ", redacted" if origin is not None and is_redacted(origin) else ""
    right = f"latmon {origin.latmon if origin is not None else ''}{redacted} "
    room = size[0] - line_width(left) - len(right)
    caption = (*left, Span(" " * room + right, "dim")) if room > 0 else left
    return [fit(line, size[0]) for line in screen_lines(scene, caption, *size)]


def windows(source: Source, since_us: int) -> Iterator[Frame]:
    """Yield windows from then on and those that its screen shows before; gaps and damage are notes of the next one."""
    reported = source.reported(max(since_us - _LEAD_US, 0))
    shown = (
        shown_window
        for shown_window in reported
        if not isinstance(shown_window, Gap) or shown_window.reason != "windows-missing"
    )
    return frames_of(shown, lambda: source.recording.damage)


def bounds(source: Source, options: ExportOptions, default_us: int) -> tuple[int, int | None]:
    """Return begin and end of the selected span, as CLOCK_MONOTONIC."""
    begin = moment_us(options.at, source.origin) if options.at else default_us
    return begin, None if options.duration_us is None else begin + options.duration_us


_BLACK, _WHITE = "#000000", "#ffffff"


@dataclass(frozen=True, slots=True)
class Palette:
    """Colours by role, as `rgb` and `ansi`; without a colour a role has the text's. `ink` draws the heat maps."""

    background: str
    text: str
    rgb: Mapping[str, str]
    ansi: Mapping[str, int]
    """Empty for a theme without colours: the terminal's own."""
    ink: Ink
    bold: tuple[str, ...] = (*BOLD, ODD)

    @property
    def ansi_background(self) -> int | None:
        return self.ansi.get("background")


def palette(theme: Theme) -> Palette:
    """Return a theme's colours; for one without any, black on white."""
    if not theme.colours:
        return Palette(_WHITE, _BLACK, {"background": _WHITE}, {}, RAMP)
    colours = role_colours(theme, [stage_facts.colour for stage_facts in FACTS])
    rgb = {role: colour.rgb for role, colour in colours.items()}
    ansi = {role: colour.xterm for role, colour in colours.items()}
    return Palette(rgb["background"], rgb["text"], rgb, ansi, solid(len(theme.ramp.steps)))


def write_cast(source: Source, out: BinaryIO, options: ExportOptions) -> None:
    """Write a header, then an event per picture. It begins with the first window of the selected span."""
    colours = palette(_shown(options).theme)
    moments, tape = of_source(source, options, colours.ink), Tape(colours, options.size)
    begin_us, until_us = bounds(source, options, 0)
    zero_us, due_s, pending = -1, 0.0, False
    cast = Cast(out, options.cast_version)
    cast.header(cast_header(source, options, colours))
    at_s = 0.0
    for frame in windows(source, begin_us):
        if until_us is not None and frame.mono_us > until_us and zero_us >= 0:
            break
        moments.append(frame)
        if frame.mono_us < begin_us:
            continue
        if zero_us < 0:
            zero_us = frame.mono_us
            if (
                not options.at and options.duration_us is not None
            ):  # from the begin, which a damaged header doesn't have
                until_us = frame.mono_us - frame.dt_us + options.duration_us
        at_s = (frame.mono_us - zero_us) / 1e6 / options.speed
        pending = at_s < due_s
        if not pending:
            cast.event(at_s, tape.draw(moments.lines()))
            due_s = at_s + 1 / MAX_RATE
    if zero_us < 0:
        raise RecordingError(f"{source.recording.path} contains no window to show")
    if pending:
        cast.event(at_s, tape.draw(moments.lines()))
    cast.event(at_s + 1 / options.speed if options.speed < 1 else at_s + 1, tape.end())


class Cast:
    """An asciicast that is being written."""

    def __init__(self, out: BinaryIO, version: int) -> None:
        self._out, self._version = out, version
        self._reported_s = 0.0

    def header(self, value: Mapping[str, Any]) -> None:
        """Write the first line."""
        self._out.write(cast_line(value))

    def event(self, at_s: float, text: str) -> None:
        """Write the output of a time since the begin; version 3 counts from event to event."""
        stamp = round(at_s if self._version == 2 else at_s - self._reported_s, 6)  # noqa: PLR2004
        self._out.write(cast_line([stamp, "o", text]))
        self._reported_s += stamp


class Tape:
    """Terminal of a cast: its present cells, and the output that changes them."""

    def __init__(self, colours: Palette, size: tuple[int, int], *, truecolour: bool = False) -> None:
        """`truecolour`: as 24 bits, which not every player shows; else of xterm's 256."""
        self._colours, self._size, self._truecolour = colours, size, truecolour
        self._shown: list[Row] = []
        self._pen = PLAIN

    def draw(self, lines: Sequence[Line]) -> str:
        """Return all cells at first, then the cells that differ."""
        width, height = self._size
        fitted = [fit(line, width) for line in (*lines, *((),) * (height - len(lines)))][:height]
        now: list[Row] = [
            [cell for text, role, _ in line for cell in cells_of(text, self.pen(role))] for line in fitted
        ]
        out = [] if self._shown else ["\x1b[?25l\x1b[2J"]
        self._shown = self._shown or [[UNKNOWN_CELL] * width] * height
        for y, (old, new) in enumerate(zip(self._shown, now, strict=True)):
            text, self._pen = encode(y, old, new, self._pen)
            out.append(text)
        self._shown = now
        return "".join(out)

    def end(self) -> str:
        """Return the output that leaves the screen and puts the cursor on the line below it.

        A terminal without such a line scrolls: a prompt that follows is not written over the last line.
        """
        return f"\x1b[0m\x1b[{self._size[1]};1H\x1b[?25h\r\n"

    def pen(self, role: str) -> Pen:
        """Return the style of a role."""
        upper, _, lower = role.partition("/")
        ansi = self._colours.ansi
        is_plain = bool(lower) and not ansi
        is_bold = not {role, upper}.isdisjoint(self._colours.bold) or (is_plain and lower == "sel")
        is_faint = not ansi and role == FAINT
        attributes = frozenset(["1"] * is_bold + ["2"] * is_faint + ["7"] * (is_plain and lower not in BACKGROUNDS))
        if not ansi:
            return Pen(attributes=attributes)
        upper = upper if upper in ansi else "text"
        return Pen(f"38;{self._parameters(upper)}", f"48;{self._parameters(lower or 'background')}", attributes)

    def _parameters(self, role: str) -> str:
        """Return the SGR parameters of a role's colour."""
        if not self._truecolour:
            return f"5;{self._colours.ansi[role]}"
        rgb = self._colours.rgb[role]
        return f"2;{int(rgb[1:3], 16)};{int(rgb[3:5], 16)};{int(rgb[5:7], 16)}"


def cast_header(source: Source, options: ExportOptions, colours: Palette) -> dict[str, Any]:
    """Return the first line of a cast, as JSON."""
    width, height = options.size
    origin = source.origin
    selection = _shown(options).selection
    panel = selection.panel if selection.screen == "overview" else selection.screen
    screen = next((name for name, fold in FOLDS.items() if fold == selection.fold), screen_title(panel))
    title = f"latmon {screen}: {origin.host}{' (redacted)' if source.redacted else ''}"
    header_extra: dict[str, Any] = {"timestamp": int(origin.start_wall), "title": title}
    if options.cast_version == 2:  # noqa: PLR2004
        return {"version": 2, "width": width, "height": height} | header_extra | {"env": {"TERM": "xterm-256color"}}
    theme = {"fg": colours.text, "bg": colours.background, "palette": ":".join(XTERM)}
    return {
        "version": 3,
        "term": {"cols": width, "rows": height, "type": "xterm-256color", "theme": theme},
    } | header_extra


def cast_line(value: object) -> bytes:
    """Return a line of a cast: the header or an event."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"


_WIDE, _HIGH, _BASE = 8.4, 18, 13.5
"""Size of a cell, in the picture's units; the text's base line in it."""
_BLOCKS = {
    "█": (0, _HIGH),
    "▆": (_HIGH // 4, _HIGH - _HIGH // 4),
    "▀": (0, _HIGH // 2),
    "▄": (_HIGH // 2, _HIGH - _HIGH // 2),
    **{
        glyph: (_HIGH - _HIGH * part / 8, _HIGH * part / 8)
        for part, glyph in zip((1, 2, 3, 5, 7), "▁▂▃▅▇", strict=True)
    },
}
"""Block -> its upper edge and its height."""


def write_svg(source: Source, out: BinaryIO, options: ExportOptions) -> None:
    """Write the picture as of `at`, else of the end."""
    colours = palette(_shown(options).theme)
    out.write(svg(screen_at(source, options, colours.ink), options.size, colours))


def write_text(source: Source, out: BinaryIO, options: ExportOptions) -> None:
    """Write the screen as of `at`, else of the end, as lines in UTF-8."""
    out.write(text_of(screen_at(source, options)).encode())


def text_of(lines: Iterable[Line]) -> str:
    """Return a screen as text, without blanks at the ends of its lines."""
    return "".join(drawable(plain(line)).rstrip() + "\n" for line in lines)


def screen_at(source: Source, options: ExportOptions, ink: Ink = RAMP) -> list[Line]:
    """Return a recording's screen as of `at`, else of the end. RecordingError where it has no window."""
    moments = of_source(source, options, ink)
    ends = source.recording.ends()
    at_us, _ = bounds(source, options, ends[-1] if ends else 0)
    for frame in windows(source, at_us):
        if options.at and frame.mono_us > at_us and moments.last is not None:
            break
        moments.append(frame)
    if moments.last is None:
        when = f" at --at {options.at}" if options.at and ends else ""
        raise RecordingError(f"{source.recording.path} contains no window to draw{when}")
    return moments.lines()


def screenshot(scene: Scene, name: str, size: tuple[int, int], theme: Theme) -> bytes:
    """Return an SVG of a scene as it is now, in the theme's colours whatever those of the terminal are."""
    colours, ink = palette(theme), scene.ink
    scene.ink = colours.ink
    try:
        return svg(captioned(scene, name, size), size, colours)
    finally:
        scene.ink = ink


def svg(lines: list[Line], size: tuple[int, int], colours: Palette) -> bytes:
    """Return the SVG of a screen of (columns, lines)."""
    return "\n".join(picture(lines, size, colours)).encode()


def picture(lines: list[Line], size: tuple[int, int], colours: Palette) -> Iterator[str]:
    """Yield the lines of an SVG."""
    width, height = size[0] * _WIDE + 2 * _WIDE, (size[1] + 1) * _HIGH
    box = f'viewBox="0 0 {width:.1f} {height}" width="{width:.1f}" height="{height}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    yield f"<title>{escape(plain(lines[0]).strip(), quote=False) if lines else 'latmon'}</title>"
    yield "<style>"
    yield "rect { shape-rendering: crispEdges }"
    yield f"text {{ font: 14px {_FONT}; white-space: pre; fill: {colours.text} }}"
    yield from (f".{role} {{ fill: {colour} }}" for role, colour in colours.rgb.items())
    yield from (f"text.{role.partition('/')[0]} {{ font-weight: bold }}" for role in colours.bold)
    yield from (f".{role} {{ fill: none }}" for role in BACKGROUNDS if role not in colours.rgb)
    yield "</style>"
    yield f'<rect width="100%" height="100%" rx="6" fill="{colours.background}"/>'
    yield f'<g transform="translate({_WIDE} {_HIGH / 2})">'
    for y, line in enumerate(lines):
        x = 0
        for span in line:
            yield from _span(span, x, y)
            x += cell_len(span.text)
    yield "</g></svg>\n"


def _span(span: Span, x: int, y: int) -> Iterator[str]:
    upper, _, lower = span.role.partition("/")
    if lower:
        size = f'width="{cell_len(span.text) * _WIDE:.1f}" height="{_HIGH}"'
        yield f'<rect class="{lower}" x="{x * _WIDE:.1f}" y="{y * _HIGH}" {size}/>'
    for part in _PARTS.finditer(span.text):
        text = part[0]
        at, cells = x + cell_len(span.text[: part.start()]), cell_len(text)
        left, wide = f"{at * _WIDE:.1f}", f"{cells * _WIDE:.1f}"
        if text.isspace():
            continue
        if text[0] in _BLOCKS:
            top, high = _BLOCKS[text[0]]
            yield f'<rect class="{upper}" x="{left}" y="{y * _HIGH + top}" width="{wide}" height="{high}"/>'
        else:
            where = f'x="{left}" y="{y * _HIGH + _BASE}" textLength="{wide}" lengthAdjust="spacingAndGlyphs"'
            yield f'<text class="{upper}" {where}>{escape(text, quote=False)}</text>'
