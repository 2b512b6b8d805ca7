"""Small multiples: one little heat map per device, all on the same two scales, in the table's order. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latmon.views.heatmap import LABEL, MapStyle, body, label, limit, times
from latmon.views.lines import Line, Span, cell, fit, wrap
from latmon.views.table import Subject, of_counted
from latmon.views.timeline import Timeline
from latmon.views.units import maximum, quantile, rounded

MIN_WIDTH = 36
MIN_HEIGHT = 4
MAX_HEIGHT = 20


@dataclass(frozen=True, slots=True)
class Grid:
    """How many tiles of which size fit; a tile is a title and its rows.

    `times`: the time axis stands below each row of tiles where that costs no map a row, else below the last one.
    """

    across: int
    down: int
    tile_width: int
    tile_height: int
    times: str = ""

    @property
    def tiles(self) -> int:
        return self.across * self.down


def grid(width: int, height: int, devices: int, columns: Callable[[int], int]) -> Grid:
    """The tiles that show the most devices, then the most cells; `columns`: how many of a width's cells a map fills."""
    room = max(width - LABEL, 1)
    several = [_grid(across, room, height, devices) for across in range(1, max(room // MIN_WIDTH, 1) + 1)]
    return max(several, key=lambda g: (min(g.tiles, devices), g.tiles * g.tile_height * columns(g.tile_width)))


def _grid(across: int, room: int, height: int, devices: int) -> Grid:
    left = height - 1 if height > MIN_HEIGHT else height
    down = max(1, min(-(-devices // across), left // MIN_HEIGHT))
    tall = min(max(left // down, 2), MAX_HEIGHT)
    times = "" if left == height else "each" if (tall + 1) * down <= height else "last"
    return Grid(across, down, room // across, tall, times)


def page(subjects: list[Subject], selected: str, tiles: int) -> list[Subject]:
    """The page of tiles that the selected device is on."""
    at = next((i for i, s in enumerate(subjects) if s.device.name == selected), 0)
    begin = at // max(tiles, 1) * tiles
    return subjects[begin : begin + tiles]


def tiles(shown: list[Subject], timeline: Timeline, style: MapStyle, where: Grid, why: dict[str, str]) -> list[Line]:
    """All tiles as lines, the latency labels at the left of each row of tiles. `why`: device -> why it is empty."""
    time = _beside(
        Span(f"{limit(style):<{LABEL}}", "accent"), [times(timeline, style)] * where.across, where.tile_width
    )
    lines: list[Line] = []
    for begin in range(0, len(shown), where.across):
        some = shown[begin : begin + where.across]
        lines.append(_beside(Span(" " * LABEL), [_title(one) for one in some], where.tile_width))
        bodies = [_body(one, timeline, style, where.tile_width, why.get(one.device.name, "")) for one in some]
        lines += [
            _beside(label(style, row), [b[style.scale.rows - 1 - row] for b in bodies], where.tile_width)
            for row in reversed(range(style.scale.rows))
        ]
        if where.times == "each" or (where.times == "last" and begin + where.across >= len(shown)):
            lines.append(time)
    return lines


def _beside(first: Span, parts: list[Line], width: int) -> Line:
    return (first, *(span for part in parts for span in fit(part, width)))


def _body(subject: Subject, timeline: Timeline, style: MapStyle, width: int, why: str) -> list[Line]:
    if why:
        words = [Span(text, "dim") for text in wrap(why, width - 2)][: style.scale.rows]
        return [*((word,) for word in words), *[()] * (style.scale.rows - len(words))]
    return body(timeline, subject.device.name, style)


def _title(subject: Subject) -> Line:
    selected = subject.device.name == subject.choice.selected
    histogram = subject.window.latency(subject.device.name, subject.choice.ops)
    iops = of_counted(subject, subject.ios * subject.per_second)
    text = f" p99 {quantile(histogram, 0.99):>4} max {maximum(histogram):>5} "
    more = (
        Span(f"{rounded(round(subject.times_peers))}x", "accent") if subject.times_peers else Span(f"{iops}/s", "dim")
    )
    return (
        Span("▸" if selected else " ", "accent"),
        Span(cell(subject.device.name, 8), "accent" if selected else "strong"),
        Span(text, "dim"),
        more,
    )
