"""Histograms of several stages side by side: latency up in octaves, a bar per stage and octave. Pure.

`spread` draws them; all share both scales, and a single I/O is a number that can't be overlooked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from latmon.histogram import BITS, Histogram, bucket_bounds
from latmon.views.bars import role, share_bar
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, cell
from latmon.views.units import duration, whole

_LABEL = 6
_COUNT = 5
_MIN_COLUMN = 8


def spread(parts: Sequence[tuple[str, Histogram]], width: int, height: int, ink: Ink) -> list[Line]:
    """Titles, then an octave (or several, to fit the height) a row, the slowest first."""
    fitting = max((width - _LABEL) // _MIN_COLUMN, 1)
    some = parts[:fitting]
    rows = [_octaves(h) for _, h in some]
    used = sorted({o for of in rows for o in of})
    if not used or height < 2:  # noqa: PLR2004  a title and a row
        return []
    step = max(1, math.ceil((used[-1] - used[0] + 1) / (height - 1)))
    cells = (width - _LABEL) // len(some)
    most = max(n for of in rows for n in _folded(of, step).values())
    left_out = f" +{len(parts) - len(some)} more" if len(parts) > len(some) else ""
    lines: list[Line] = [
        (Span(" " * _LABEL), *(Span(cell(name, cells), "strong") for name, _ in some), Span(left_out, "dim"))
    ]
    for at in range(used[-1] // step, used[0] // step - 1, -1):
        spans = [Span(f"{_edge(at, step):>{_LABEL - 1}}│", "dim")]
        for (name, _), of in zip(some, rows, strict=True):
            spans += _cell(name, _folded(of, step).get(at, 0), most, cells, ink)
        lines.append(tuple(spans))
    return lines


def _cell(name: str, n: int, most: int, cells: int, ink: Ink) -> Line:
    """The number, then a bar in the logarithm: a million beside one must both be seen."""
    if not n:
        return (Span(" " * cells),)
    number = Span(f"{whole(n):>{_COUNT}} ", "strong" if n == 1 else "dim")
    return (
        number,
        *share_bar(math.log(n + 1) / math.log(most + 1), cells - _COUNT - 2, ink, role(name, ink)),
        Span(" "),
    )


def _edge(at: int, step: int) -> str:
    """The lower edge of a row; the lowest has its upper one, because 0u would look like no time at all."""
    if at == 0:
        return f"<{duration(bucket_bounds(step << BITS)[0])}"
    return duration(bucket_bounds(at * step << BITS)[0])


def _octaves(histogram: Histogram) -> dict[int, int]:
    found: dict[int, int] = {}
    for index, n in histogram.buckets:
        octave = index >> histogram.bits
        found[octave] = found.get(octave, 0) + n
    return found


def _folded(octaves: dict[int, int], step: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for octave, n in octaves.items():
        found[octave // step] = found.get(octave // step, 0) + n
    return found
