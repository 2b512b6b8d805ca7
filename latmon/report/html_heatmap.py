"""A device's latency heat map over the whole capture, as one SVG.

The scales are those of the screen (views.scale), one for all devices of a report. Knows columns, not their source.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from latmon.model.histogram import BITS, bucket_index
from latmon.report import html_charts as axes
from latmon.report.heatmap_columns import Counts, MapColumns
from latmon.report.html_charts import MapFrame, Note
from latmon.report.html_elements import LEVELS, heat, light, number, text
from latmon.views.scale import Extent, LatencyScale, fullest, latency_scale, level

ROWS = 34
MAX_CELLS = 22_000
"""Cells of all maps of a report, each with its words: about two megabytes."""
_HALF = (1 << BITS) // 2


def map_frame(columns: MapColumns, marks: Sequence[Note], gaps: Sequence[Note]) -> MapFrame:
    """The scales that hold all of it; rows become higher, then columns wider, until their cells fit a report."""
    every = [counts for column in columns.columns.values() for counts in column.counts.values() if counts]
    low = min((min(one) for one in every), default=bucket_index(64)) // _HALF * _HALF
    high = (max((max(one) for one in every), default=bucket_index(16_384)) // _HALF + 1) * _HALF - 1
    scale = latency_scale(Extent(low, high), ROWS)
    if _cells(columns, scale) > MAX_CELLS:
        scale = latency_scale(Extent(low, high), ROWS // 2)
    while _cells(columns, scale) > MAX_CELLS and columns.count > 1:
        columns.widen(2)
    full = (fullest(counts) for column in columns.columns.values() for counts in column.counts.values())
    top = 4 ** max(3, math.ceil(math.log(max(full, default=1) or 1, 4)))
    return MapFrame(columns, scale, top, tuple(marks), tuple(gaps))


def _cells(columns: MapColumns, scale: LatencyScale) -> int:
    return sum(
        len({scale.row(index) for index in counts})
        for column in columns.columns.values()
        for counts in column.counts.values()
    )


def heat_map(device: str, frame: MapFrame, threshold_us: int | None, limit: int | None, key: str) -> str:
    """The picture; empty where the device completed nothing that was timed. `key` makes its ids its own."""
    found = frame.columns.of(device)
    if not found:
        return ""
    plot_y = axes.TOP + axes.LANE * min(len(frame.marks), axes.LANES)
    bottom = plot_y + frame.scale.rows * frame.row
    depths = {at: one.depths[device] for at, one in frame.columns.columns.items() if device in one.depths}
    what = "in flight" if device in frame.columns.gauged else "in driver"
    legend_y = bottom + 24 + (axes.STRIP + 12 if depths else 0)
    ios = sum(sum(counts.values()) for counts in found.values())
    label = (
        f"Latency heat map of {device}: {number(ios)} I/Os, time across in {frame.count} columns, "
        f"latency up from {axes.edge(frame.scale, 0)} to {axes.edge(frame.scale, frame.scale.rows)}"
    )
    left, right, rows = axes.LEFT, axes.RIGHT - axes.LEFT, frame.row
    size = f'viewBox="0 0 {axes.WIDTH} {legend_y + 20}" role="img" aria-label="{text(label)}"'
    cells = f"translate({left} {plot_y}) scale({round(right / frame.count, 5)} {rows})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        axes.hatching(key),
        f'<rect class="frame" fill="none" x="{left}" y="{plot_y}" width="{right}" height="{bottom - plot_y}"/>',
        *axes.latency_axis(frame, plot_y, bottom),
        *axes.gaps(frame, plot_y, bottom, key),
        f'<g class="cells" transform="{cells}">',
        *_levels(found, frame),
        "</g>",
        *axes.threshold(frame, threshold_us, bottom),
        *axes.time_axis(frame, plot_y, bottom),
        *axes.marks(frame, bottom),
        *(axes.strip(frame, depths, bottom + 24, limit, what) if depths else ()),
        *axes.legend(frame.top, legend_y),
        "</svg>",
    ]
    return "\n".join(parts)


def _levels(found: dict[int, Counts], frame: MapFrame) -> Iterator[str]:
    """The cells, those of a level together; a single I/O is a cell of its own shape, as on the screen."""
    scale, colours = frame.scale, heat(light())
    drawn: dict[int, list[str]] = {}
    names = [f"{axes.edge(scale, row)} to {axes.edge(scale, row + 1)}" for row in range(scale.rows)]
    width_us = frame.columns.width_us
    for at, counts in sorted(found.items()):
        wide = frame.columns.columns[at].wide
        clock = axes.clock(frame.columns.wall(frame.columns.begin_us + at * width_us))
        rows: dict[int, int] = {}
        for index, n in counts.items():
            rows[scale.row(index)] = rows.get(scale.row(index), 0) + n
        for row, n in rows.items():
            shape = _shape(scale.rows - 1 - row, n, wide)
            cell = f'<path d="M{at} {shape}"><title>{clock} {names[row]}: {n:,}</title></path>'
            drawn.setdefault(level(n, frame.top, LEVELS), []).append(cell)
    for step in sorted(drawn):
        yield f'<g class="h{step}" fill="{colours[step - 1]}">'
        yield from drawn[step]
        yield "</g>"


def _shape(row: int, n: int, wide: int) -> str:
    return f"{row}h{wide}v1h-{wide}z" if n > 1 else f"{row}.15h{wide}v.7h-{wide}z"
