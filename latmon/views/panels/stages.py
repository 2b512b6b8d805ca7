"""The stages panel: every device's stages as bars, or one device with a row per stage. Pure.

It draws `anatomy.Anatomy` values and computes nothing from frames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from latmon.analysis.attribution import total_of
from latmon.model.frame import STAGES
from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.model.stages import LETTERS, explained
from latmon.support.units import duration, part, spelled, whole
from latmon.views.anatomy import ALL_OPS, Anatomy, Parts, StageRow, anatomy, largest, share, tail_sentence
from latmon.views.bars import legend, profile, role, share_bar, stacked
from latmon.views.context import ViewState, no_distribution, no_rows, not_traced
from latmon.views.device_table import Subject, is_titled, table_title
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import (
    BLANK,
    TIME,
    Field,
    Line,
    Span,
    around,
    cell,
    cut,
    empty_panel,
    fit,
    heads,
    layout,
    paragraph,
    row,
    wrap,
)
from latmon.views.units import count, maximum, mean, quantile

_LABEL = 7
_COUNT = 5
_MIN_COLUMN = 8


def spread(parts: Sequence[tuple[str, Histogram]], width: int, height: int, ink: Ink) -> list[Line]:
    """Return histograms side by side: titles, then a row per octave (or several, to fit), slowest first."""
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
    """Return the number, and a logarithmic bar, so that one I/O is visible beside a million."""
    if not n:
        return (Span(" " * cells),)
    number = Span(f"{whole(n):>{_COUNT}} ", "strong" if n == 1 else "dim")
    return (
        number,
        *share_bar(math.log(n + 1) / math.log(most + 1), cells - _COUNT - 2, role(name, ink)),
        Span(" "),
    )


def _edge(at: int, step: int) -> str:
    """Return the nominal lower edge of a row; `<` and the upper edge for the lowest row, which begins at 0."""
    if at == 0:
        return f"<{nominal(bucket_bounds(step << BITS)[0])}"
    return nominal(bucket_bounds(at * step << BITS)[0])


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


_NAME = 11
_LETTERED = _NAME + 2
"""Cells of a stage's name with its letter in bars before it."""
_VALUE = TIME
_PERCENT = 4
_TAIL = 2
"""Number of the band above the threshold."""
_MIN_SPREAD = 8
_MIN_DEVICE = 14
_MIN_ROWS = 3
_MIN_PROFILE_US = 1


def device_bars(
    anatomies: Sequence[Anatomy], selected: str, width: int, height: int, ink: Ink, *, why: str = ""
) -> list[Line]:
    """Return a row per device with bars up to p50, up to p99 and above; the selected device below where it fits.

    `why`: the reason for missing traces.
    """
    if not anatomies:
        return empty_panel(why, width, height)
    one = next((a for a in anatomies if a.device == selected), anatomies[0])
    rows = min(len(anatomies) + 1, height // 2)
    if height - rows - 1 >= _MIN_DEVICE:
        lines = [*_table(anatomies, selected, width, rows, ink), BLANK]
        return [*lines, *device(one, width, height - len(lines), ink, why=why, legended=True)]
    below = [*_below(one, width, "" if one.on_demand else why), *_legend(anatomies, width, ink)]
    least = min(len(anatomies), _MIN_ROWS) + 1
    below = cut([BLANK, *below] if len(below) + least < height else below, max(height - least, 1))
    table = _table(anatomies, selected, width, height - len(below), ink)
    return [fit(line, width) for line in (*table, *below)][:height]


def _table(anatomies: Sequence[Anatomy], selected: str, width: int, height: int, ink: Ink) -> list[Line]:
    at = next((i for i, a in enumerate(anatomies) if a.device == selected), 0)
    on_demand = any(a.on_demand for a in anatomies)
    placed = layout(_on_demand_fields(ink, _slow(anatomies)) if on_demand else _basic_fields(ink), width)
    shown = around(len(anatomies), at, max(height - 1, 1))
    lines = [heads(placed, above=shown.start), *(row(placed, anatomies[i], selected=i == at) for i in shown)]
    if len(shown) < len(anatomies):
        mark = "↑" if shown.start else " "
        head = Span(cell(f"{mark}{len(shown)} of {len(anatomies)}", placed[0][1] + 2), "dim")
        lines[0] = (head, *lines[0][2:])
    return lines


def device(
    one: Anatomy, width: int, height: int, ink: Ink, *, why: str = "", top: int = 0, legended: bool = False
) -> list[Line]:
    """Return a row per stage with shares of all and of slow I/Os; the histograms side by side where they fit.

    `legended`: with the legend of the letters in bars.
    """
    lines: list[Line] = [_headline(one)]
    low, high = _bounds(one.rows)
    placed = layout(_stage_fields(one, low, high, ink), width)
    lines.append(heads(placed))
    reason = ""
    for stage in one.rows:
        lines += [row(placed, stage)] if stage.histogram else _unmeasured(stage, placed[0][1], width, reason)
        reason = stage.reason
    lines += [line for stage in one.rows if stage.includes for line in _includes(stage, width)]
    lines += [BLANK, *_below(one, width, "" if one.on_demand else why)]
    lines += _legend([one], width, ink) if legended else []
    room = height - len(lines) - 2
    if room >= _MIN_SPREAD:
        lines += [BLANK, *_side_by_side(one, width, room, ink)]
    return cut([fit(line, width) for line in lines], height, top)


def _side_by_side(one: Anatomy, width: int, room: int, ink: Ink) -> list[Line]:
    drawn = spread([(r.column, r.histogram) for r in one.rows if r.histogram], width, room, ink)
    return [(Span(" I/Os by time in each stage; bars are logarithmic", "dim"),), *drawn] if drawn else []


def population(one: Anatomy) -> str:
    """Return the population in words: number of traced I/Os, sampling, and the share that could not be followed."""
    if not one.on_demand:
        return f"{count(one.total.count)} I/Os" if one.total else f"no I/O on {one.device}"
    of = f", {one.sampled}" if one.sampled else ""
    if one.untraced_share is None:
        return f"{count(one.total.count)} I/Os traced{of}"
    if not one.unfollowed:
        return f"{count(one.total.count)} I/Os traced{of}, each followed to its end"
    reasons = ", ".join(f"{why} {count(n)}" for why, n in sorted(one.unfollowed.items(), key=lambda p: -p[1]))
    ops = "" if one.op_label == ALL_OPS else f" of {ALL_OPS}"
    return f"{count(one.total.count)} I/Os traced{of}, {part(one.untraced_share)}{ops} not followed: {reasons}"


def _on_demand_fields(ink: Ink, slow: str) -> list[Field[Anatomy]]:
    """Return the columns of a row per device. `slow`: title of the I/Os above the threshold."""

    def bar(number: int) -> Field[Anatomy]:
        title = f"  {('<=p50', 'p50-p99', slow)[number]}"

        def make(one: Anatomy, cells: int) -> Line:
            return _bar(one, number, cells, ink)

        return Field(title, 14, make, rank=0 if number == _TAIL else 1, right=False, most=60)

    return [
        Field("device", 9, lambda a, _: a.device, right=False),
        bar(0),
        bar(1),
        bar(2),
        Field("I/Os", 5, lambda a, _: _above(a), rank=1),
        Field("slow part", 15, lambda a, _: _most(a), rank=1, right=False),
    ]


def _slow(anatomies: Sequence[Anatomy]) -> str:
    """Return the title of the slow I/Os: their threshold where all devices have the same one, `>16.4 ms`."""
    cuts = {a.tail.low_us for a in anatomies if a.tail}
    return f">{spelled(cuts.pop())}" if len(cuts) == 1 else ">threshold"


def _basic_fields(ink: Ink) -> list[Field[Anatomy]]:
    return [
        Field("device", 9, lambda a, _: a.device, right=False),
        Field("I/Os", 7, lambda a, _: count(a.total.count), rank=1),
        Field("p50", _VALUE, lambda a, _: quantile(a.total, 0.5)),
        Field("p99", _VALUE, lambda a, _: quantile(a.total, 0.99)),
        Field("max", _VALUE, lambda a, _: maximum(a.total), rank=1),
        Field("all I/O", 10, lambda a, cells: stacked(a.by_column(a.whole), cells, ink), right=False, most=120),
    ]


def _stage_fields(one: Anatomy, low: int, high: int, ink: Ink) -> list[Field[StageRow]]:
    def all_io(stage: StageRow, cells: int) -> Line:
        return _share(stage.stage, stage.share, cells, ink)

    def tail(stage: StageRow, cells: int) -> Line:
        return _share(stage.stage, stage.tail, cells, ink)

    def times(stage: StageRow, cells: int) -> Line:
        return profile(stage.histogram, low, high, cells, ink, role=role(stage.stage, ink))

    above = f">{spelled(one.tail.low_us)}" if one.tail else ">threshold"
    fields: list[Field[StageRow]] = [
        Field("stage", _NAME, lambda s, cells: _named(s.column, cells), right=False, most=_LETTERED),
        Field("count", 7, lambda s, _: count(s.histogram.count), rank=1),
        Field("mean", _VALUE, lambda s, _: mean(s.histogram.mean), rank=3, role="dim"),
        Field("p50", _VALUE, lambda s, _: quantile(s.histogram, 0.5)),
        Field("p90", _VALUE, lambda s, _: quantile(s.histogram, 0.9), rank=3),
        Field("p99", _VALUE, lambda s, _: quantile(s.histogram, 0.99)),
        Field("p99.9", _VALUE, lambda s, _: quantile(s.histogram, 0.999), rank=2),
        Field("max", _VALUE, lambda s, _: maximum(s.histogram), rank=1),
        Field(_axis(low, high), 10, times, rank=1, right=False, most=40),
        Field("all I/O", 11, all_io, rank=1, right=False, most=40),
    ]
    return [*fields, Field(above, 12, tail, right=False, most=40)] if one.on_demand else fields


def _axis(low: int, high: int) -> str:
    return f"{duration(low, 1)}-{duration(high, 1)}"


def _bounds(rows: Sequence[StageRow]) -> tuple[int, int]:
    """Return the latency range of a device's sparklines: whole decades, so that it rarely changes."""
    tops = [r.histogram.max_bound or 1 for r in rows if r.histogram]
    high = 1000
    while high < max(tops, default=1):
        high *= 10
    return _MIN_PROFILE_US, high


def _bar(one: Anatomy, number: int, cells: int, ink: Ink) -> Line:
    """Return a band's bound and its bar; the bounds are p50, p99 and the threshold."""
    if not one.on_demand:
        return (Span(cell("not traced" if number == _TAIL else "", cells), "dim"),)
    if not one.bands:
        return (Span(cell(one.why if number == _TAIL else "", cells), "dim"),)
    band = one.bands[number]
    value = duration(band.low_us) if number == _TAIL else quantile(one.total, (0.5, 0.99)[number])
    return (Span(f"{value:>{_VALUE}} "), *stacked(one.by_column(band.parts), cells - _VALUE - 1, ink))


def _above(one: Anatomy) -> str:
    return whole(one.bands[-1].count) if one.bands else "-"


def _most(one: Anatomy) -> str:
    return _top(one.by_column(one.tail.parts)) if one.tail else ""


def _top(parts: Parts) -> str:
    name = largest(parts)
    return f"{part(share(parts, name)):>{_PERCENT}} {name}" if name else ""


def _share(stage: str, of: float | None, cells: int, ink: Ink) -> Line:
    bar = share_bar(of, cells - _PERCENT - 1, role(stage, ink))
    return (*bar, Span(f" {part(of):>{_PERCENT}}"))


def _headline(one: Anatomy) -> Line:
    return (Span(f" {one.device}", "accent"), Span(" stages", "dim"), Span(f"  {one.op_label}"))


def _below(one: Anatomy, width: int, why: str) -> list[Line]:
    """Return the sentence on the tail and the population, or the reason for missing traces."""
    if one.on_demand:
        return [*paragraph(tail_sentence(one), width, "strong"), *paragraph(population(one), width, "dim")]
    return paragraph(one.why or why, width)


def _named(column: str, cells: int) -> Line:
    """Return the name of a stage, after its letter where there is room for it."""
    return (Span(f"{LETTERS[column]} ", "strong"), Span(column)) if cells >= _LETTERED else (Span(column),)


def _unmeasured(stage: StageRow, cells: int, width: int, before: str) -> list[Line]:
    """Return the row of a stage without numbers, with the reason; a long one is not repeated after that `before`.

    `cells`: of the column of names.
    """
    room = max(width - cells - 3, 10)
    texts = wrap(stage.reason, room)
    if len(texts) > 1 and stage.reason == before:
        texts = wrap(f"{stage.reason.partition(':')[0]}, for the same reason", room)
    name = stage.stage if cells < _LETTERED else f"{LETTERS.get(stage.stage, ' ')} {stage.stage}"
    names = [name, *[""] * (len(texts) - 1)]
    return [(Span(f" {one:<{cells}} ", "dim"), Span(text, "dim")) for one, text in zip(names, texts, strict=True)]


def _includes(stage: StageRow, width: int) -> list[Line]:
    return paragraph(explained(stage.stage, stage.includes), width, "dim")


def _legend(anatomies: Sequence[Anatomy], width: int, ink: Ink) -> list[Line]:
    return legend({name for a in anatomies for name, us in a.by_column(a.whole).items() if us > 0}, width, ink)


_PATH = tuple(one for one in STAGES if one not in ("resume", "total"))


def stages_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return a row per device; for an opened device a row per stage."""
    subjects = view.subjects()
    if not subjects or view.origin is None:
        return empty_panel(no_rows(view), width, room)
    why = not_traced(
        "stages", view.origin, _PATH, mode=view.selection.stages, recorded=view.recorded, state=view.tracing
    )
    if no_distribution(view.origin):
        return empty_panel(why, width, room)  # a table would count its I/Os as 0
    chosen = subjects[0].selection.selected
    if not view.selection.opened:
        several = [_anatomy(view, s, detailed=s.device.name == chosen) for s in subjects]
        number = len(several)
        above = [table_title(view.selection, (1, number), number)] if is_titled(view.selection, room) else []
        return [*above, *device_bars(several, chosen, width, room - len(above), view.ink, why=why)]
    one = next(s for s in subjects if s.device.name == chosen)
    return device(_anatomy(view, one), width, room, view.ink, why=why, top=view.selection.top)


def _anatomy(view: ViewState, subject: Subject, *, detailed: bool = True) -> Anatomy:
    assert view.origin is not None  # noqa: S101  drawn only once there is a row
    origin, selection, name, on_demand = view.origin, view.selection, subject.device.name, view.history.on_demand
    return view.history.made(
        ("anatomy", name, selection.op, selection.threshold_us, detailed),
        lambda: anatomy(
            name,
            selection.ops,
            on_demand.traced,
            origin,
            total=view.history.window.latency(name, selection.ops),
            # read only where nothing is traced, since reading starts a sum
            basic={} if total_of(on_demand.traced, name, selection.ops) else on_demand.basic,
            cut_us=selection.threshold_us,
            op_label=selection.op_label,
            detailed=detailed,
        ),
    )
