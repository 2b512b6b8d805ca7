"""Histograms side by side, with a row per octave. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.support.units import whole
from latmon.views.bars import role, share_bar
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import (
    Line,
    Span,
    cell,
)

_LABEL = 7
_COUNT = 5
_MIN_COLUMN = 8


def spread(parts: Sequence[tuple[str, Histogram]], width: int, height: int, ink: Ink) -> list[Line]:
    """Return histograms side by side: titles, then rows, slowest first.

    An octave has a row, in a higher panel two or four, and in a lower one a row has several octaves.
    """
    fitting = max((width - _LABEL) // _MIN_COLUMN, 1)
    some = parts[:fitting]
    used = {index >> h.bits for _, h in some for index, _ in h.buckets}
    if not used or height < 2:  # noqa: PLR2004  a title and a row
        return []
    octaves = max(used) - min(used) + 1
    halvings = next((n for n in (2, 1) if octaves << n < height and all(h.bits >= n for _, h in some)), 0)
    step = max(1, math.ceil(octaves / (height - 1)))
    rows = [_counted(h, halvings, step) for _, h in some]
    cells = (width - _LABEL) // len(some)
    most = max(n for of in rows for n in of.values())
    left_out = f" +{len(parts) - len(some)} more" if len(parts) > len(some) else ""
    lines: list[Line] = [
        (Span(" " * _LABEL), *(Span(cell(name, cells), "strong") for name, _ in some), Span(left_out, "dim"))
    ]
    for at in range(max(max(of) for of in rows if of), min(min(of) for of in rows if of) - 1, -1):
        spans = [Span(f"{_edge(at, halvings, step):>{_LABEL - 1}}│", "dim")]
        for (name, _), of in zip(some, rows, strict=True):
            spans += _cell(name, of.get(at, 0), most, cells, ink)
        lines.append(tuple(spans))
    return lines


def _cell(name: str, n: int, most: int, cells: int, ink: Ink) -> Line:
    """Return the number, and a logarithmic bar, so that one I/O is visible beside a million."""
    if not n:
        return (Span(" " * cells),)
    number = Span(f"{whole(n):>{_COUNT}} ", "strong" if n == 1 else "dim")
    return (
        number,
        *share_bar(math.log(n + 1) / math.log(most + 1), cells - _COUNT - 2, role(name, ink)),
        Span(" "),
    )


def _edge(at: int, halvings: int, step: int) -> str:
    """Return the nominal lower edge of a row that begins an octave, for the row from 0 on `<` and its upper edge."""
    if at == 0:
        return f"<{nominal(bucket_bounds(step << BITS >> halvings)[0])}"
    return "" if at % (1 << halvings) else nominal(bucket_bounds((at >> halvings) * step << BITS)[0])


def _counted(histogram: Histogram, halvings: int, step: int) -> dict[int, int]:
    """Return the I/Os by row: an octave is halved so many times, or `step` octaves are one row."""
    found: dict[int, int] = {}
    for index, n in histogram.buckets:
        at = (index >> (histogram.bits - halvings)) // step
        found[at] = found.get(at, 0) + n
    return found
