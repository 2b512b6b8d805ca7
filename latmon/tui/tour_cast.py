"""The asciicast of a tour: its stops one after the other, with the keys by which a user gets to each of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import BinaryIO

from latmon.exporters.registry import ExportOptions, Source
from latmon.exporters.screen import Cast, Tape, cast_header, palette
from latmon.recording.archive import frames_of
from latmon.tui.tour import EVERY, HISTORY, WINDOW_S, Guide, Keys, Tour, without_keys
from latmon.views.lines import BLANK, Line, Span, fit
from latmon.views.screen import Scene, screen_lines
from latmon.views.selection import ScreenOptions


def next_in(next_s: int | None) -> Line:
    """Return the time until the next stop, without keys: a player takes none."""
    return BLANK if next_s is None else (Span(f"next in {next_s} s", "dim"),)


def write_tour(
    source: Source, out: BinaryIO, options: ExportOptions, tour: Tour, shown: ScreenOptions, *, command: str
) -> None:
    """Write a recording of the demo as the tour shows it, from its first stop to its closing text, in truecolour.

    `command`: for the last line. A time is counted down only where it is that of the player.
    """
    colours, size = palette(shown.theme), options.size
    keys: Keys = next_in if options.speed == 1 else without_keys
    scene = Scene(shown.selection, mode=shown.mode, ink=colours.ink, findings=shown.findings)
    scene.opened(source.origin)
    guide, tape = Guide(tour, scene, scene.choose, keys), Tape(colours, size, truecolour=True)
    cast = Cast(out, options.cast_version)
    cast.header(cast_header(source, replace(options, shown=shown), colours) | {"title": command})
    length = EVERY * (len(tour.stops) + 1)
    frames = frames_of(source.recording, lambda: source.recording.damage)
    for number, frame in enumerate(islice(frames, HISTORY + 1 + length), -HISTORY):
        scene.append(frame)
        if number < 0:
            continue
        if number == 0:
            guide.show()
        else:
            guide.arrived(busy=False)
        foot = _foot(command, guide.keys)
        screen_lines(scene, foot, *size)  # the first drawing may change the order
        lines = [fit(line, size[0]) for line in screen_lines(scene, foot, *size)]
        cast.event(number * WINDOW_S / options.speed, tape.draw(lines))
    cast.event(length * WINDOW_S / options.speed + 1, tape.end())


def _foot(command: str, keys: str) -> Line:
    """Return the last line: the command, and the keys of the stop that is shown."""
    pressed = (Span("  keys: ", "dim"), Span(keys, "accent")) if keys else ()
    return (Span(f" {command}", "dim"), *pressed)
