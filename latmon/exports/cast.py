"""cast: asciicast, the replayed screen as a terminal would get it, for asciinema and its players.

Version 2 by default: every player since 2017 plays it, version 3 needs asciinema 3. Where a line changed, the cells
that did are written again, in xterm's 256 colours; at most MAX_RATE pictures a second, however fast it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from latmon.errors import RecordingError
from latmon.exports.moments import Moments, bounds, windows
from latmon.exports.palette import XTERM, Palette, palette
from latmon.exports.source import Source
from latmon.exports.wish import Wish
from latmon.theme import load_theme
from latmon.views.lines import Line, cell_len, fit

MAX_RATE = 10
_JOIN = 10
"""Changed cells with fewer unchanged ones between them are written in one go: a move of the cursor costs as much."""
Cells = list[tuple[str, str]]
"""(character, role) of each cell; the second cell of a wide character is empty."""


def write(source: Source, out: BinaryIO, wish: Wish) -> None:
    """Header, then an event per picture. It begins with the first window that was asked for."""
    colours = palette(load_theme(wish.theme))
    shown, tape = Moments(source, wish, colours.ink), Tape(colours, wish.size)
    begin_us, until_us = bounds(source, wish, 0)
    zero_us, due_s, told_s, pending = -1, 0.0, 0.0, False
    out.write(_json(_header(source, wish, colours)))

    def event(at_s: float, text: str) -> None:
        nonlocal told_s
        stamp = at_s if wish.cast_version == 2 else at_s - told_s  # noqa: PLR2004  version 3 counts from event to event
        out.write(_json([round(stamp, 6), "o", text]))
        told_s = told_s + round(stamp, 6) if wish.cast_version != 2 else at_s  # noqa: PLR2004

    at_s = 0.0
    for frame in windows(source, begin_us):
        if until_us is not None and frame.mono_us > until_us and zero_us >= 0:
            break
        shown.append(frame)
        if frame.mono_us < begin_us:
            continue
        if zero_us < 0:
            zero_us = frame.mono_us
            if not wish.at and wish.duration_us is not None:  # from the begin, which a damaged header doesn't tell
                until_us = frame.mono_us - frame.dt_us + wish.duration_us
        at_s = (frame.mono_us - zero_us) / 1e6 / wish.speed
        pending = at_s < due_s
        if not pending:
            event(at_s, tape.draw(shown.lines()))
            due_s = at_s + 1 / MAX_RATE
    if zero_us < 0:
        raise RecordingError(f"{source.recording.path} holds no window to show")
    if pending:
        event(at_s, tape.draw(shown.lines()))
    event(at_s + 1 / wish.speed if wish.speed < 1 else at_s + 1, tape.end())


class Tape:
    """What the terminal shows, and what it must be sent to show something else."""

    def __init__(self, colours: Palette, size: tuple[int, int]) -> None:
        self._colours, self._size = colours, size
        self._shown: list[Cells] = []
        self._styles: dict[str, str] = {}

    def draw(self, lines: Sequence[Line]) -> str:
        """All of it at first, then the cells that differ."""
        width, height = self._size
        now = [cells(fit(line, width)) for line in (*lines, *((),) * (height - len(lines)))][:height]
        text = [] if self._shown else ["\x1b[?25l", self.style("text"), "\x1b[2J"]
        before = self._shown or [[(" ", "text")] * width for _ in range(height)]
        for y, (old, new) in enumerate(zip(before, now, strict=True)):
            for begin, end in changes(old, new):
                text += [f"\x1b[{y + 1};{begin + 1}H", self._run(new[begin:end])]
        self._shown = now
        return "".join(text)

    def end(self) -> str:
        """The screen stays; the cursor comes back below it."""
        return f"\x1b[0m\x1b[{self._size[1]};1H\x1b[?25h"

    def style(self, role: str) -> str:
        """The sequence that sets a role's style, whatever was set before."""
        if role not in self._styles:
            numbers = ["0"] + ["1"] * (role in self._colours.bold)
            if self._colours.ansi:
                numbers += [f"38;5;{self._colours.ansi.get(role, self._colours.ansi['text'])}"]
                numbers += [f"48;5;{self._colours.ansi_background}"]
            self._styles[role] = f"\x1b[{';'.join(numbers)}m"
        return self._styles[role]

    def _run(self, some: Cells) -> str:
        parts, role = [], ""
        for character, now in some:
            if now != role:
                parts.append(self.style(now))
                role = now
            parts.append(character)
        return "".join(parts)


def cells(line: Line) -> Cells:
    """A line cell by cell."""
    found: Cells = []
    for span in line:
        for character in span.text:
            found.append((character, span.role))
            found += [("", span.role)] * (cell_len(character) - 1)
    return found


def changes(old: Cells, new: Cells) -> Iterator[tuple[int, int]]:
    """Runs of cells [begin, end) that differ; a wide character is never cut."""
    begin = end = -1
    for x, (before, after) in enumerate(zip(old, new, strict=False)):
        if before == after:
            continue
        if begin >= 0 and x - end > _JOIN:
            yield begin, end
            begin = -1
        begin = x if begin < 0 else begin
        while begin > 0 and not new[begin][0]:
            begin -= 1
        end = x + 1
        while end < len(new) and not new[end][0]:
            end += 1
    if begin >= 0:
        yield begin, end


def _header(source: Source, wish: Wish, colours: Palette) -> dict[str, Any]:
    width, height = wish.size
    origin = source.origin
    title = f"latmon {wish.screen}: {origin.host}{' (redacted)' if source.redacted else ''}"
    rest: dict[str, Any] = {"timestamp": int(origin.start_wall), "title": title}
    if wish.cast_version == 2:  # noqa: PLR2004
        return {"version": 2, "width": width, "height": height} | rest | {"env": {"TERM": "xterm-256color"}}
    theme = {"fg": colours.text, "bg": colours.background, "palette": ":".join(XTERM)}
    return {"version": 3, "term": {"cols": width, "rows": height, "type": "xterm-256color", "theme": theme}} | rest


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode() + b"\n"
