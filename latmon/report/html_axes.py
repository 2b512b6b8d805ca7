"""What stands around and upon the cells of a heat map: axes, threshold, gaps, marks, depths below it, the legend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from latmon.histogram import bucket_bounds, bucket_index
from latmon.report.html_parts import number, text, time_of
from latmon.report.html_style import LEVELS, heat, light
from latmon.report.map_columns import MapColumns
from latmon.views.scale import LatencyScale
from latmon.views.units import spelled

WIDTH = 960
LEFT, RIGHT = 58, 902
_HIGH = 272
_ROWS = (8, 14)
"""A row is so high at least, and at most."""
TOP = 4
LANE = 14
LANES = 3
STRIP = 44
_CHAR = 6.8
_NOTE = 44
"""Characters of a mark's note that are on the map."""
_ROUND_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
_STAMP = 110
"""Between two stamps of the time axis, at least."""
_DECADES = tuple(10**n for n in range(10))


class Note(NamedTuple):
    """A moment or a stretch of time with its words; `us` on the monotonic clock."""

    begin_us: int
    end_us: int
    said: str


@dataclass(frozen=True)
class MapFrame:
    """What all maps of a report share."""

    columns: MapColumns
    scale: LatencyScale
    top: int
    marks: tuple[Note, ...] = ()
    gaps: tuple[Note, ...] = ()

    @property
    def count(self) -> int:
        return max(self.columns.count, 1)

    @property
    def row(self) -> int:
        """How high a row is: maps of few rows are no strips."""
        return min(max(_HIGH // self.scale.rows, _ROWS[0]), _ROWS[1])

    def y(self, us: int, bottom: int) -> float:
        """Where a latency is, between the edges of its bucket in proportion."""
        index = bucket_index(us)
        low, high = bucket_bounds(index)
        at = (index + (us - low) / (high - low) - self.scale.low) / self.scale.step
        return round(bottom - min(max(at, 0.0), float(self.scale.rows)) * self.row, 1)

    def x(self, mono_us: int) -> float:
        """Where a moment is; outside of the capture at its edge."""
        share = (mono_us - self.columns.begin_us) / (self.columns.width_us * self.count)
        return round(LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0), 1)


def latency_axis(frame: MapFrame, top: int, bottom: int) -> Iterator[str]:
    """Decades, with a line each."""
    for us in _DECADES:
        y = frame.y(us, bottom)
        if top < y < bottom - 6:  # a decade within a lowest row that is folded has no place of its own
            yield f'<path class="grid" stroke="#b0b0b0" d="M{LEFT} {y}H{RIGHT}"/>'
            yield f'<text x="{LEFT - 5}" y="{y + 4}" text-anchor="end">{spelled(us)}</text>'


def threshold(frame: MapFrame, us: int | None, bottom: int) -> Iterator[str]:
    """A line, and which latency it is."""
    if us is None:
        return
    y = frame.y(us, bottom)
    yield f'<path class="limit" stroke="#005faf" fill="none" d="M{LEFT} {y}H{RIGHT}"/>'
    yield f'<text class="acc" x="{RIGHT + 4}" y="{y + 4}">{time_of(us).replace(".000", "")}</text>'
    yield f'<text class="acc" x="{RIGHT + 4}" y="{y + 16}">threshold</text>'


def time_axis(frame: MapFrame, top: int, bottom: int) -> Iterator[str]:
    """Round times of day, in UTC."""
    columns = frame.columns
    seconds = columns.width_us * frame.count / 1e6
    wanted = seconds * _STAMP / (RIGHT - LEFT)
    every = next((one for one in _ROUND_S if one >= wanted), math.ceil(wanted / 86_400) * 86_400)
    first = math.ceil(columns.begin_wall / every) * every if math.isfinite(columns.begin_wall) else 0
    for n in range(int((RIGHT - LEFT) / _STAMP) + 2):
        wall = first + n * every
        offset_us = (wall - columns.begin_wall) * 1e6
        if not 0 <= offset_us <= seconds * 1e6:
            continue
        x = frame.x(columns.begin_us + round(offset_us))
        yield f'<path class="grid" stroke="#b0b0b0" d="M{x} {top}V{bottom + 4}"/>'
        anchor = "start" if x < LEFT + 30 else "end" if x > RIGHT - 30 else "middle"
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="{anchor}">{_stamp(wall, every)}</text>'
    yield f'<text class="dim" x="{RIGHT + 4}" y="{bottom + 16}">UTC</text>'


def hatching(key: str) -> str:
    """What fills time that was not measured; ids are the whole page's, so each map has its own."""
    return (
        f'<defs><pattern id="hatch-{key}" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><path class="hatch" stroke="#af0000" d="M0 0v6"/></pattern></defs>'
    )


def gaps(frame: MapFrame, top: int, bottom: int, key: str) -> Iterator[str]:
    """Time that was not measured, each with its reason."""
    for one in frame.gaps:
        x = frame.x(one.begin_us)
        width = max(frame.x(one.end_us) - x, 2)
        yield (
            f'<rect x="{x}" y="{top}" width="{width:.1f}" height="{bottom - top}" fill="url(#hatch-{key})">'
            f"<title>{text(one.said)}</title></rect>"
        )


def marks(frame: MapFrame, bottom: int) -> Iterator[str]:
    """Lines with number and note, in lanes so that notes don't lie on each other."""
    ends = [float(LEFT)] * LANES
    for at, one in enumerate(frame.marks, 1):
        x = frame.x(one.begin_us)
        said = f"{at} {one.said}"
        shown = said if len(said) <= _NOTE else said[: _NOTE - 1] + "…"
        long = (len(shown) + 2) * _CHAR
        begin = x if x + long <= WIDTH else x - long
        lane = next((n for n, end in enumerate(ends[: len(frame.marks)]) if end <= begin), None)
        y = TOP + 10 + LANE * (lane or 0)
        title = f"<title>mark {text(said)}</title>"
        yield f'<path class="mark" stroke="#000" fill="none" d="M{x} {y}V{bottom}">{title}</path>'
        if lane is None:
            continue
        ends[lane] = begin + long
        anchor = f'x="{x + 3:.1f}"' if begin == x else f'x="{x - 3:.1f}" text-anchor="end"'
        yield f'<text class="lab" {anchor} y="{y}">{text(shown)}</text>'


def strip(frame: MapFrame, depths: dict[int, int], top: int, limit: int | None, what: str) -> Iterator[str]:
    """The most I/Os in the driver of each column, below the map, with the limit where it is near."""
    most = max(*depths.values(), 1)
    near = limit if limit is not None and limit <= 4 * most else None
    high = max(most, near or 0)
    width = round((RIGHT - LEFT) / frame.count, 5)
    yield f'<rect class="frame" fill="none" x="{LEFT}" y="{top}" width="{RIGHT - LEFT}" height="{STRIP}"/>'
    scaled = f"translate({LEFT} {top + STRIP}) scale({width} {-STRIP / high:.5f})"
    yield f'<g class="bar" fill="#6a6e7a" transform="{scaled}">'
    wide = {at: one.wide for at, one in frame.columns.columns.items()}
    path = "".join(f"M{at} 0v{depth}h{wide[at]}v-{depth}z" for at, depth in sorted(depths.items()) if depth)
    yield f'<path d="{path}"/></g>' if path else "</g>"
    yield f'<text x="{LEFT - 5}" y="{top + 9}" text-anchor="end">{number(high)}</text>'
    yield f'<text class="dim" x="{LEFT - 5}" y="{top + STRIP - 2}" text-anchor="end">{what}</text>'
    if near is not None:
        y = round(top + STRIP * (1 - near / high), 1)
        yield f'<path class="limit" stroke="#005faf" fill="none" d="M{LEFT} {y}H{RIGHT}"/>'
        yield f'<text class="acc" x="{RIGHT + 4}" y="{y + 9}">limit {number(near)}</text>'


def legend(top: int, y: int) -> Iterator[str]:
    """What the steps mean, from a single I/O to the fullest cell."""
    begins = [1, *(max(2, math.ceil((top + 1) ** (at / (LEVELS - 1)))) for at in range(LEVELS - 1))]
    yield f'<text class="dim" x="{LEFT}" y="{y + 11}">I/Os in a cell:</text>'
    x = LEFT + 90
    for step, colour in enumerate(heat(light()), 1):
        if begins[step - 1] in begins[step:]:  # of a map with few I/Os not every step is used
            continue
        said = f"{begins[step - 1]:,}" + ("+" if step == LEVELS else "")
        height = 10 if step > 1 else 7
        yield f'<rect class="h{step}" fill="{colour}" x="{x}" y="{y + 12 - height}" width="12" height="{height}"/>'
        yield f'<text x="{x + 16}" y="{y + 11}">{said}</text>'
        x += 30 + round(len(said) * _CHAR)
    yield f'<text class="dim" x="{x + 6}" y="{y + 11}">a single I/O is less high; hatched: not measured</text>'


def edge(scale: LatencyScale, row: int) -> str:
    """The lower edge of a row in words."""
    return "0" if row == 0 and scale.open_below else spelled(scale.edge_us(row))


def _when(wall: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(wall, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def clock(wall: float) -> str:
    """Time of day, UTC."""
    when = _when(wall)
    return f"{when:%H:%M:%S}" if when else "--:--:--"


def _stamp(wall: float, every: int) -> str:
    when = _when(wall)
    if when is None:
        return "--:--:--"
    return f"{when:%H:%M:%S}" if every < 60 else f"{when:%H:%M}" if every < 7200 else f"{when:%m-%d %H:%M}"  # noqa: PLR2004  a minute, two hours
