"""The compare panel: verdicts, differing settings, quantiles and heat strips of A and B.

All strips share one scale, latency across; A is above B. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from latmon.diff import verdict
from latmon.diff.blocks import CaptureSpan
from latmon.diff.cause import FEWEST
from latmon.diff.comparison import Comparison, SeriesChange
from latmon.diff.conditions import differing, unlike
from latmon.diff.output import loads, settings, warnings
from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.views.bars import fine
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import BLANK, Line, Span, cut, fit, heading, paragraph, runs
from latmon.views.scale import level
from latmon.views.units import clock, count

_QUANTILES = ("p50", "p99", "p99.9", "max")
_CELL = 6
_COUNT = 8
_BEFORE = 3
_STRIP_FROM = _BEFORE + _COUNT + len(_QUANTILES) * (_CELL + 1) + 1
_SENTENCES = 6
"""Most lines of verdicts, so that strips have room."""
_SETTINGS = 4
_OCTAVE = 1 << BITS
_LABEL = 7
"""Cells from one label above the strips to the next: 512us and two blanks."""
_LEAVE = (Span("D", "accent"), Span(" leaves ", "dim"))


def panel(comparison: Comparison, selected: str, ink: Ink, width: int, room: int) -> list[Line]:
    """Return the panel in `room` lines; the selected device's strips come first."""
    head = heading(_heads(comparison), width, _LEAVE)
    lines = [head, *_sentences(comparison, width), *_set(comparison, width), BLANK]
    shown = _order(comparison.changes, selected)
    cells = max(width - _STRIP_FROM - 1, 8)
    ends = _ends(shown)
    lines.append(_titles(ends, cells))
    for one in shown:
        if len(lines) + 3 > room:
            break
        lines += _pair(one, comparison, ends, ink, cells)
    left = len(shown) - sum(1 for line in lines if line and line[0].role == "accent")
    if left > 0:
        lines = [*lines[: room - 1], (Span(f" … {left} more: up and down select a device", "dim"),)]
    return [fit(line, width) for line in cut(lines, room)]


def _heads(comparison: Comparison) -> Line:
    return (
        Span(" A ", "strong"),
        Span(f"{_span(comparison.a)}   ", "text"),
        Span("B ", "strong"),
        Span(_span(comparison.b), "text"),
    )


def _span(one: CaptureSpan) -> str:
    name = "" if one.name in ("A", "B") else f"{one.name} "
    return f"{name}{clock(one.start_wall)} to {clock(one.end_wall)}"


def _sentences(comparison: Comparison, width: int) -> Iterable[Line]:
    a, b = comparison.a, comparison.b
    changed = [one for one in comparison.changes if one.changed] if comparison.tested else list(comparison.changes)
    lead = verdict.lead(comparison)
    sentences = [(text, "strong") for text in lead]
    sentences += [(text, "bad") for text in (*loads(unlike(a, b)), *warnings(comparison))]
    sentences += [(verdict.sentence(one, comparison), "strong") for one in changed]
    if not changed:
        same = next((one for one in comparison.changes if one.where == "none"), None)
        other = "other " if lead else ""  # than that of the long I/Os
        text = f"no {other}difference found: {verdict.seen(same)}" if same else "not enough I/Os for a verdict"
        sentences.append((text, "text"))
    return cut([line for text, role in sentences for line in paragraph(text, width, role)], _SENTENCES)


def _set(comparison: Comparison, width: int) -> Iterable[Line]:
    found = settings(differing(comparison.a, comparison.b))
    lines: list[Line] = [(Span(f" set: {one}"[: width - 1], "text"),) for one in found]
    return cut(lines, _SETTINGS) if lines else [(Span(" settings: no difference seen", "dim"),)]


def _order(changes: Sequence[SeriesChange], selected: str) -> list[SeriesChange]:
    """Return the latencies: of the selected device, those that changed, the rest."""
    totals = [one for one in changes if one.series.stage == "total"]
    return sorted(totals, key=lambda one: (one.series.device != selected, not one.changed))


def _ends(changes: Sequence[SeriesChange]) -> tuple[int, int]:
    """Return the octaves from the fastest to the slowest I/O of all strips."""
    sides = [fine(side) for one in changes for side in (one.a, one.b) if side]
    if not sides:
        return 0, _OCTAVE
    low = min(min(one) for one in sides) // _OCTAVE * _OCTAVE
    return low, max((max(max(one) for one in sides) // _OCTAVE + 1) * _OCTAVE, low + _OCTAVE)


def _titles(ends: tuple[int, int], cells: int) -> Line:
    """Return column titles, and powers of two above the strips, equally far apart."""
    text = [" "] * cells
    wide = cells * _OCTAVE / (ends[1] - ends[0])
    for index in range(ends[0], ends[1], _OCTAVE * math.ceil(_LABEL / wide)):
        at = (index - ends[0]) * cells // (ends[1] - ends[0])
        name = nominal(bucket_bounds(index)[0])
        if at + len(name) <= cells:
            text[at : at + len(name)] = name
    names = "".join(f"{name:>{_CELL}} " for name in _QUANTILES)
    return (Span(f"{'':<{_BEFORE}}{'I/Os':>{_COUNT}} {names}", "dim"), Span("".join(text), "dim"))


def _pair(one: SeriesChange, comparison: Comparison, ends: tuple[int, int], ink: Ink, cells: int) -> list[Line]:
    reported = {"whole": "changed", "opposed": "body and tail changed", "none": "no difference found"}
    word = reported.get(one.where, f"{one.where} changed") if comparison.tested else "not tested"
    longer = one.extreme is not None and one.extreme.count[one.extreme.slower] >= FEWEST
    word = "the long I/Os alone differ" if comparison.tested and one.where == "none" and longer else word
    word = "not enough I/Os" if comparison.tested and one.where == "unknown" else word
    head: Line = (
        Span(f" {verdict.subject(one)}  ", "accent"),
        Span(word, "strong" if one.changed else "dim"),
    )
    return [head, *(_side(name, one, (ends, ink, cells)) for name in ("A", "B"))]


def _side(name: str, one: SeriesChange, drawn: tuple[tuple[int, int], Ink, int]) -> Line:
    side, (ends, ink, cells) = one.a if name == "A" else one.b, drawn
    values = [verdict.sides(shift)[name == "B"] for shift in one.shifts]
    total = count(side.count)
    numbers = "".join(f"{text:>{_CELL}} " for text in values)
    return (
        Span(f" {name} ", "dim"),
        Span(f"{total if len(total) <= _COUNT else count(side.count)[:_COUNT]:>{_COUNT}} "),
        Span(numbers),
        *strip(side, ends, ink, cells, max(one.a.count, one.b.count)),
    )


def strip(side: Histogram, ends: tuple[int, int], ink: Ink, cells: int, most: int) -> Line:
    """Return the I/Os by latency as heat-map cells. `most`: the I/Os of the highest step."""
    sums = [0] * cells
    for index, n in fine(side).items():
        sums[min(max((index - ends[0]) * cells // (ends[1] - ends[0]), 0), cells - 1)] += n
    return runs(ink.cell(level(n, most, ink.levels)) if n else (" ", "text") for n in sums)
