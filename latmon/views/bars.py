"""Bars: stacked stages, shares, and histograms one glyph high. Pure.

Stages are keyed by their column names (model/stages.py). A stage has a letter and a fill, so that a bar can be read
without colours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model.stages import COLUMNS, FACTS_OF, LETTERS, STAGE_OF, UNACCOUNTED, colour_number
from latmon.views.device_table import RAMP_SPARKS, SPARKS
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, runs
from latmon.views.lines import width as line_width
from latmon.views.scale import level

_BAR, _THIN = "▆", "▏"
"""Cell of a bar, which leaves a gap to the row above, and a part that is smaller than a cell."""


def short(stage: str) -> str:
    """Return a stage's name in at most seven cells."""
    facts = FACTS_OF.get(stage)
    return facts.short or stage if facts else stage


def role(stage: str, ink: Ink) -> str:
    """Return the role of a stage's cells."""
    if ink.coloured:
        return f"stage{colour_number(stage)}"
    return "dim" if stage == UNACCOUNTED else "text"


def apportion(parts: Sequence[float], cells: int) -> list[int]:
    """Return whole cells in proportion, exactly `cells` in sum (largest remainder); all 0 when all parts are 0."""
    total = sum(parts)
    if total <= 0:
        return [0] * len(parts)
    wanted = [max(p, 0) * cells / total for p in parts]
    given = [int(w) for w in wanted]
    by_rest = sorted(range(len(parts)), key=lambda i: given[i] - wanted[i])
    for i in by_rest[: cells - sum(given)]:
        given[i] += 1
    return given


def stacked(parts: Mapping[str, float], cells: int, ink: Ink) -> Line:
    """Return a bar of exactly `cells`: each stage its letter, then its fill. A stage below half a cell is left out."""
    names = [p for p in COLUMNS if parts.get(p, 0) > 0]
    sizes = apportion([parts[n] for n in names], cells)
    if not any(sizes):
        return (Span(" " * cells),) if cells > 0 else ()
    return tuple(span for name, n in zip(names, sizes, strict=True) if n for span in _segment(name, n, ink))


def legend(stages: Iterable[str], width: int, ink: Ink) -> list[Line]:
    """Return the letters of the stages that are shown, in as many lines as they need."""
    wanted = set(stages)
    lines: list[Line] = []
    for name in COLUMNS:
        if name in wanted:
            one = (Span(" "), *_segment(name, 2, ink), Span(f" {name} ", "dim"))
            if lines and line_width(lines[-1]) + line_width(one) <= width:
                lines[-1] = (*lines[-1], *one)
            else:
                lines.append(one)
    return lines


def share_bar(share: float | None, cells: int, role: str = "text") -> Line:
    """Return a share as a bar of exactly `cells`; a share above 0 is at least a thin line."""
    if not share or share <= 0 or cells <= 0:
        return (Span(" " * max(cells, 0)),)
    text = _BAR * round(min(share, 1.0) * cells) or _THIN
    return (Span(f"{text:<{cells}}", role),)


def profile(histogram: Histogram, low_us: int, high_us: int, cells: int, ink: Ink, *, role: str = "text") -> Line:
    """Return the I/Os between two latencies, one glyph per logarithmic step; a single I/O is visible."""
    glyphs = SPARKS if ink.coloured else RAMP_SPARKS
    low, high = bucket_index(low_us), bucket_index(high_us)
    columns = [0] * max(cells, 0)
    for index, n in fine(histogram).items():
        at = (index - low) * cells // max(high - low + 1, 1)
        if cells > 0:
            columns[min(max(at, 0), cells - 1)] += n
    steps = len(glyphs) - 1
    top = max(histogram.count, steps)
    return runs((glyphs[level(n, top, steps)], "strong" if n == 1 else role) for n in columns)


def fine(histogram: Histogram) -> dict[int, int]:
    """Return counts by buckets of latmon's resolution, whatever the source's is."""
    if histogram.bits == BITS:
        return dict(histogram.buckets)
    found: dict[int, int] = {}
    for index, n in histogram.buckets:
        here = bucket_index(bucket_bounds(index, histogram.bits)[0])
        found[here] = found.get(here, 0) + n
    return found


def _segment(name: str, cells: int, ink: Ink) -> Line:
    own = role(name, ink)
    fill = _BAR if ink.coloured and name != UNACCOUNTED else FACTS_OF[STAGE_OF[name]].fill
    return (Span(LETTERS[name], "strong"), *([Span(fill * (cells - 1), own)] if cells > 1 else []))
