"""Bars: stacked stages, shares, and histograms one glyph high. Pure.

`stacked` a bar of stages, `legend` its letters, `share_bar` one share, `profile` a histogram as a sparkline,
`short` a stage's name in seven cells. Stages are keyed by their column names (model/stages.py). A stage has a letter
and a fill, so a bar reads without colour; its colour is the heat map's, ordered as the stages are in time, because
those steps are distinct for every eye.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from latmon.model.frame import STAGES, UNACCOUNTED
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model.stages import COLUMNS, LETTERS, STAGE_OF
from latmon.views.device_table import RAMP_SPARKS, SPARKS
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, runs
from latmon.views.lines import width as line_width
from latmon.views.scale import level

_STAGES = STAGES[:-1]
_FILLS: Mapping[str, str] = MappingProxyType(dict(zip((*_STAGES, UNACCOUNTED), "·:░▒▓█=?", strict=True)))
_SHORT = {"completion": "compl", UNACCOUNTED: "unacc"}
_EIGHTHS = "▏▎▍▌▋▊▉█"


def short(stage: str) -> str:
    """A stage's name in at most seven cells."""
    return _SHORT.get(stage, stage)


def role(stage: str, ink: Ink) -> str:
    """The role of a stage's cells: steps 2 and up of the heat map, evenly; one that says nothing is dim."""
    if stage == UNACCOUNTED:
        return "dim"
    stage = STAGE_OF.get(stage, stage)
    if not ink.coloured:
        return f"stage{_STAGES.index(stage) + 1}" if ink.staged and stage in _STAGES else "text"
    step = 2 + round(_STAGES.index(stage) * (ink.levels - 2) / (len(_STAGES) - 1)) if stage in _STAGES else 0
    return f"heat{step}" if step else "dim"


def apportion(parts: Sequence[float], cells: int) -> list[int]:
    """Whole cells in proportion, exactly `cells` in sum (largest remainder); all 0 when there is nothing."""
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
    """A bar of exactly `cells`: each stage its letter, then its fill. Below half a cell a stage isn't drawn."""
    names = [p for p in COLUMNS if parts.get(p, 0) > 0]
    sizes = apportion([parts[n] for n in names], cells)
    if not any(sizes):
        return (Span(" " * cells),) if cells > 0 else ()
    return tuple(span for name, n in zip(names, sizes, strict=True) if n for span in _segment(name, n, ink))


def legend(stages: Iterable[str], width: int, ink: Ink) -> list[Line]:
    """The letters of the stages that are in sight, in as many lines as they need."""
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


def share_bar(share: float | None, cells: int, ink: Ink, role: str = "text") -> Line:
    """One share as a bar of exactly `cells`; more than nothing is never drawn as nothing."""
    if not share or share <= 0 or cells <= 0:
        return (Span(" " * max(cells, 0)),)
    steps = _EIGHTHS if ink.coloured else "▌█"
    length = max(1, round(min(share, 1.0) * cells * len(steps)))
    whole, rest = divmod(length, len(steps))
    text = "█" * whole + (steps[rest - 1] if rest else "")
    return (Span(f"{text:<{cells}}", role),)


def profile(histogram: Histogram, low_us: int, high_us: int, cells: int, ink: Ink) -> Line:
    """I/Os between two latencies, one glyph per step of the logarithm; a single I/O can be seen."""
    glyphs = SPARKS if ink.coloured else RAMP_SPARKS
    low, high = bucket_index(low_us), bucket_index(high_us)
    columns = [0] * max(cells, 0)
    for index, n in histogram.buckets:
        here = index if histogram.bits == BITS else bucket_index(bucket_bounds(index, histogram.bits)[0])
        at = (here - low) * cells // max(high - low + 1, 1)
        if cells > 0:
            columns[min(max(at, 0), cells - 1)] += n
    steps = len(glyphs) - 1
    top = max(histogram.count, steps)
    return runs((glyphs[level(n, top, steps)], "strong" if n == 1 else "text") for n in columns)


def _segment(name: str, cells: int, ink: Ink) -> Line:
    own = role(name, ink)
    fill = "█" if ink.coloured and name != UNACCOUNTED else _FILLS[STAGE_OF[name]]
    return (Span(LETTERS[name], "strong"), *([Span(fill * (cells - 1), own)] if cells > 1 else []))
