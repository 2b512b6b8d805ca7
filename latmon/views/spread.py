"""Histograms side by side, with a row per octave. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.support.units import whole
from latmon.views.bars import role, share_bar
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import Line, Span, cell

_LABEL = 7
_COUNT = 5
_MIN_COLUMN = 8


def spread(parts: Sequence[tuple[str, Histogram]], width: int, height: int, ink: Ink) -> list[Line]:
    """Return histograms side by side: titles, then rows, slowest first.

    An octave has a row, in a higher panel two or four, and in a lower one a row has several octaves.
    """
    fitting = max((width - _LABEL) // _MIN_COLUMN, 1)
    drawn = parts[:fitting]
    used: set[int] = set()
    for _, histogram in drawn:
        used.update(index >> histogram.bits for index, _ in histogram.buckets)
    if not used or height < 2:  # noqa: PLR2004  a title and a row
        return []
    octaves = max(used) - min(used) + 1
    finest = min(histogram.bits for _, histogram in drawn)
    halvings = next((halvings for halvings in (2, 1) if octaves << halvings < height and halvings <= finest), 0)
    step = max(1, math.ceil(octaves / (height - 1)))
    columns = [(name, _by_row(histogram, halvings, step)) for name, histogram in drawn]
    filled = [row for _, ios in columns for row in ios]
    highest_ios = max(max(ios.values(), default=0) for _, ios in columns)
    cells = (width - _LABEL) // len(drawn)
    left_out = f" +{len(parts) - len(drawn)} more" if len(parts) > len(drawn) else ""
    titles = [Span(cell(name, cells), "strong") for name, _ in drawn]
    lines: list[Line] = [(Span(" " * _LABEL), *titles, Span(left_out, "dim"))]
    for row in range(max(filled), min(filled) - 1, -1):
        spans = [Span(f"{_edge(row, halvings, step):>{_LABEL - 1}}│", "dim")]
        for name, ios in columns:
            spans += _cell(name, ios.get(row, 0), highest_ios, cells, ink)
        lines.append(tuple(spans))
    return lines


def _cell(name: str, ios: int, highest_ios: int, cells: int, ink: Ink) -> Line:
    """Return the number of I/Os, and a logarithmic bar, so that one I/O is visible beside a million."""
    if not ios:
        return (Span(" " * cells),)
    number = Span(f"{whole(ios):>{_COUNT}} ", "strong" if ios == 1 else "dim")
    share = math.log(ios + 1) / math.log(highest_ios + 1)
    return (number, *share_bar(share, cells - _COUNT - 2, role(name, ink)), Span(" "))


def _edge(row: int, halvings: int, step: int) -> str:
    """Return the nominal lower edge of a row that begins an octave, for the row from 0 on `<` and its upper edge."""
    if row == 0:
        return f"<{nominal(bucket_bounds(step << BITS >> halvings)[0])}"
    if row % (1 << halvings):
        return ""
    return nominal(bucket_bounds((row >> halvings) * step << BITS)[0])


def _by_row(histogram: Histogram, halvings: int, step: int) -> dict[int, int]:
    """Return the I/Os by row: an octave is halved so many times, or `step` octaves are one row."""
    ios: Counter[int] = Counter()
    for index, count in histogram.buckets:
        ios[(index >> (histogram.bits - halvings)) // step] += count
    return ios
