"""The panel of stages: bars of every device, or distributions of one device's stages. Pure.

It draws `anatomy.Anatomy` values and computes nothing from frames. Operations on files have panels/files.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from latmon.analysis.attribution import total_of
from latmon.model import measurements
from latmon.model.devices import thread_sentence
from latmon.model.frame import (
    FILES,
    STAGES,
    UNACCOUNTED,
)
from latmon.model.measurements import SOFTIRQS
from latmon.model.stages import LETTERS, STAGE_OF, WORKER, explained
from latmon.support.units import UNKNOWN, duration, part, spelled, whole, with_unit
from latmon.views.anatomy import (
    ALL_OPS,
    BEGINS,
    Anatomy,
    Parts,
    StageRow,
    admission_sentence,
    anatomy,
    largest,
    share,
    size_sentences,
    softirq_sentences,
    tail_sentence,
)
from latmon.views.bars import TimeAxis, distribution, legend, letter_role, role, share_bar, stacked
from latmon.views.context import ViewState, no_distribution, no_rows, not_traced
from latmon.views.device_table import Subject, is_titled, table_title
from latmon.views.heatmap import Ink
from latmon.views.lines import (
    BLANK,
    DEVICE,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    Target,
    around,
    cell,
    cell_len,
    cut,
    empty_panel,
    ends,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    plain,
    row,
    targeted,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.panels.files import files_above, files_panel
from latmon.views.panels.findings import of_device
from latmon.views.slow_part import of_bucket, slow_in_flight
from latmon.views.spread import spread
from latmon.views.units import count, maximum, quantile

_NAME = 11
_LETTERED = _NAME + 2
"""Cells of a stage's name with its letter before it."""
_VALUE = TIME
WITH_QUEUE = "total"
"""Begin of the titles of latencies that include the queue, where those of the overview begin at the driver."""
_PERCENT = 4
_TAIL = 2
"""Number of the band above the threshold."""
_MIN_SPREAD = 8
_MIN_DEVICE = 14
_MIN_ROWS, _ROWS = 3, 6
"""Least rows of devices with their titles, above the sentences on one and above its distributions."""
_ROOMY = 114
"""Cells from which on a distribution has several lines, and bars have whole titles."""
_LINES, _MOST_LINES = 2, 4
"""Lines of a distribution, without the blank one below it, and the most of them."""
_MATTERS = 0.01
"""Share of the time from which on unaccounted time has a distribution of several lines."""
_OCTAVES = 24
"""Least octaves of the time axis: from 1 us to 17 s, so that it changes rarely."""


Title = Callable[[tuple[int, int]], Line]
"""Makes the line above a table from its first and its last row."""
_TIMES = "times"
"""Title of the column of distributions, until its width is known."""
_PATH = tuple(one for one in STAGES if one not in ("resume", "total"))


def device_bars(
    anatomies: Sequence[Anatomy],
    selected: str,
    width: int,
    height: int,
    ink: Ink,
    *,
    why: str = "",
    found: Sequence[Line] = (),
    title: Title | None = None,
) -> list[Line]:
    """Return a row per device with bars up to p50, up to p99 and above; the selected device below where it fits.

    `why`: the reason for missing traces; `found`: the finding of the selected device; `title`: makes a line above.
    """
    height -= title is not None
    if not anatomies:
        return empty_panel(why, width, height)
    device_anatomy = next((a for a in anatomies if a.device == selected), anatomies[0])
    below = _below(device_anatomy, width, why, found, headed=True)
    rows = min(len(anatomies) + 1, height // 2)
    if width >= _ROOMY:  # rows that leave the distributions their lines
        rows = min(len(anatomies) + 1, max(height - 1 - _needed(device_anatomy, _LINES + 1) - len(below), _ROWS))
    if height - rows - 1 >= _MIN_DEVICE:
        table = _table(anatomies, selected, width, rows, ink, title=title)
        named = {stage.column for stage in device_anatomy.rows} if width >= _ROOMY else set()
        below += _legend(anatomies if named else [device_anatomy], width, ink, named)
        room = height - rows - 1
        lines = _stages(device_anatomy, width, room, ink, below)
        lines += _side_by_side(device_anatomy, width, room - len(lines), ink)
        if len(lines) > room:  # the finding has the cause, and is whole
            lines_below = _stages(device_anatomy, width, room, ink, ())[:-1]
            kept = found or cut(below, room // 2)
            lines = [*cut(lines_below, room - len(kept) - 1, key="Enter: "), BLANK, *kept]
        return [*table, BLANK, *lines]
    below = [*_below(device_anatomy, width, why, found), *_legend(anatomies, width, ink)]
    least = min(len(anatomies), _MIN_ROWS) + 1
    below = cut([BLANK, *below] if len(below) + least < height else below, max(height - least, 1), key="Enter: ")
    table = _table(anatomies, selected, width, height - len(below), ink, title=title)
    return [fit(line, width) for line in cut([*table, *below], height + (title is not None))]


def _needed(device_anatomy: Anatomy, each: int) -> int:
    """Return the lines of a device's stages, `each` for a distribution, with titles and a blank line below."""
    return len(device_anatomy.rows) + (each - 1) * sum(map(_has_lines, device_anatomy.rows)) + 3


def _has_lines(stage: StageRow) -> bool:
    """Return whether a distribution has several lines: that of unaccounted time has none unless it matters."""
    matters = max(stage.share or 0.0, stage.tail or 0.0) >= _MATTERS
    return bool(stage.histogram) and (stage.stage != UNACCOUNTED or matters)


def _table(
    anatomies: Sequence[Anatomy], selected: str, width: int, height: int, ink: Ink, *, title: Title | None
) -> list[Line]:
    """Return column titles and rows in `height` lines, below the title if there is one.

    The title, else the first line, has the range of the rows.
    """
    at = next((i for i, a in enumerate(anatomies) if a.device == selected), 0)
    if any(a.on_demand for a in anatomies):
        placed = layout(_on_demand_fields(anatomies, ink, roomy=width >= _ROOMY), width)
    else:
        placed = layout(_basic_fields(anatomies, ink), width)
    shown = around(len(anatomies), at, max(height - 1, 1))
    lines = [heads(placed, above=shown.start)]
    for i in shown:
        line = fit(row(placed, anatomies[i], selected=i == at), width)
        lines.append(targeted(line, Target(DEVICE, anatomies[i].device)))
    if title is not None:
        return [title((shown.start + 1, shown.stop)), *lines]
    if len(shown) < len(anatomies):
        mark = "↑" if shown.start else " "
        head = Span(cell(f"{mark}{len(shown)} of {len(anatomies)}", placed[0][1] + 2), "dim")
        lines[0] = (head, *lines[0][2:])
    return lines


def device(
    device_anatomy: Anatomy,
    width: int,
    height: int,
    ink: Ink,
    *,
    why: str = "",
    top: int = 0,
    found: Sequence[Line] = (),
) -> list[Line]:
    """Return a row per stage with its shares of all and of slow I/Os, and the distributions below as counts by octave.

    The distributions are in the rows where the counts don't fit, and where both do. `found`: the finding of the device.
    """
    below = _below(device_anatomy, width, why, found, headed=True)
    lines = _stages(device_anatomy, width, height, ink, below, times=False)
    counts = _side_by_side(device_anatomy, width, height - len(lines), ink)
    left = height - len(lines) - len(counts)
    if not counts or left >= _MOST_LINES * sum(map(_has_lines, device_anatomy.rows)):
        lines = _stages(device_anatomy, width, height - len(counts), ink, below)
    return cut([fit(line, width) for line in (*lines, *counts)], height, top, key="PgDn: ")


def _side_by_side(device_anatomy: Anatomy, width: int, room: int, ink: Ink) -> list[Line]:
    """Return the I/Os of each stage by octave in `room` lines, below a blank one and a title.

    There are none where the lines are too few.
    """
    measured = [(stage.column, stage.histogram) for stage in device_anatomy.rows if stage.histogram]
    height = room - 2
    drawn = spread(measured, width, height, ink) if height >= _MIN_SPREAD else []
    name = (Span(" I/Os by time in each stage", "strong"), Span("  bars are logarithmic", "dim"))
    return [BLANK, heading(name, width), *drawn] if drawn else []


def _stages(
    device_anatomy: Anatomy, width: int, height: int, ink: Ink, below: Sequence[Line], *, times: bool = True
) -> list[Line]:
    """Return headline, titles and the stages of a device, then `below`; all lines, also where they don't fit.

    A measured stage has as many lines as fit, but at most _MOST_LINES and a blank one, and without `times`, which are
    the distributions, one line. Another stage has its reason.
    """
    begins = paragraph(BEGINS, width, "dim") if any(stage.after_limit for stage in device_anatomy.rows) else []
    below = [
        *begins,
        *(line for stage in device_anatomy.rows if stage.includes for line in _includes(stage, width)),
        *(
            line
            for stage in device_anatomy.rows
            if stage.histogram
            for line in _of_thread(device_anatomy, stage, width)
        ),
        BLANK,
        *below,
    ]
    measured = [stage for stage in device_anatomy.rows if stage.histogram]
    fields = _stage_fields(device_anatomy, ink, roomy=width >= _ROOMY)
    placed = layout([field for field in fields if times or field.title != _TIMES], width)
    reasons, reason = {}, ""
    for stage in device_anatomy.rows:
        if not stage.histogram:
            reasons[stage.stage] = _unmeasured(stage, placed[0][1], width, reason)
        reason = stage.reason
    many = sum(map(_has_lines, measured))
    room = height - 2 - len(below) - sum(map(len, reasons.values())) - (len(measured) - many)
    each = room // max(many, 1) if times and width >= _ROOMY else 1
    tall = max(min(each if each <= _LINES else each - 1, _MOST_LINES), 1)
    placed, drawn = _with_times(placed, measured, tall, ink)
    lines: list[Line] = [_headline(device_anatomy, width, times=times), heads(placed)]
    for stage in device_anatomy.rows:
        if stage.stage in reasons:
            lines += reasons[stage.stage]
            continue
        lines += [*drawn[stage.stage][:-1], row(placed, stage)]
        lines += [BLANK] if each > tall and _has_lines(stage) and stage is not measured[-1] else []
    return [*lines, *below]


def _with_times(
    placed: Placed[StageRow], measured: Sequence[StageRow], tall: int, ink: Ink
) -> tuple[Placed[StageRow], dict[str, list[Line]]]:
    """Return the columns with that of the distributions filled, and the lines of each stage that are above its row."""
    at = next((i for i, (field, _) in enumerate(placed) if field.title == _TIMES), -1)
    if at < 0 or not measured:
        return placed, {stage.stage: [BLANK] for stage in measured}
    times, cells = placed[at]
    before = 2 + sum(size + 1 for _, size in placed[:at])
    axis = _time_axis(cells - 1, measured)
    title = axis.title.rstrip() or f"1us-{duration(2**axis.octaves, 1)}"
    shown = {stage.stage for stage in measured if tall == 1 or _has_lines(stage)}
    columns = {s.stage: axis.columns(s.histogram) if s.stage in shown else [0.0] * axis.cells for s in measured}
    most = max(max(column) for column in columns.values())
    drawn = {
        name: distribution(column, axis, ink, most=most, tall=tall if name in shown else 1, role=role(name, ink))
        for name, column in columns.items()
    }
    filled = replace(times, title=f" {title}", make=lambda stage, _: (Span(" "), *drawn[stage.stage][-1]))
    above = {name: [(Span(" " * before), *line) for line in lines] for name, lines in drawn.items()}
    return (*placed[:at], (filled, cells), *placed[at + 1 :]), above


def _time_axis(cells: int, measured: Sequence[StageRow]) -> TimeAxis:
    """Return the axis that all stages share; where it has no room for labels it ends at a whole decade."""
    top = max(stage.histogram.max_bound or 1 for stage in measured)
    octaves = max(top.bit_length() + top.bit_length() % 2, _OCTAVES)
    even = TimeAxis.even(cells, octaves)
    return even if even.labels else TimeAxis(cells, math.log2(max(10 ** math.ceil(math.log10(top)), 1000)))


def population(device_anatomy: Anatomy) -> str:
    """Return the population in words: number of traced I/Os, sampling, and the share that could not be followed."""
    if not device_anatomy.on_demand:
        return (
            f"{count(device_anatomy.total.count)} I/Os"
            if device_anatomy.total
            else f"no I/O on {device_anatomy.device}"
        )
    of = f", {device_anatomy.sampled}" if device_anatomy.sampled else ""
    if device_anatomy.tail is not None and device_anatomy.tail.waiting:
        after = f"; above {spelled(device_anatomy.tail.low_us)} with {count(device_anatomy.tail.waiting)} in flight"
    else:
        after = ""
    if device_anatomy.untraced_share is None:
        return f"{count(device_anatomy.total.count)} I/Os traced{of}{after}"
    if not device_anatomy.unfollowed:
        return f"{count(device_anatomy.total.count)} I/Os traced{of}, each followed to its end{after}"
    reasons = ", ".join(
        f"{why} {count(n)}" for why, n in sorted(device_anatomy.unfollowed.items(), key=lambda p: -p[1])
    )
    ops = "" if device_anatomy.op_label == ALL_OPS else f" of {ALL_OPS}"
    lost = f"{part(device_anatomy.untraced_share)}{ops} not followed: {reasons}"
    return f"{count(device_anatomy.total.count)} I/Os traced{of}, {lost}{after}"


def _name_cells(anatomies: Sequence[Anatomy]) -> int:
    """Return the cells of the column with the devices' names, as far as the longest one needs them."""
    return min(max(9, *(len(a.device) for a in anatomies)), 16)


def _on_demand_fields(anatomies: Sequence[Anatomy], ink: Ink, *, roomy: bool) -> list[Field[Anatomy]]:
    """Return the columns of a row per device; a bar is followed by two blanks, so that no value touches it."""
    name = _name_cells(anatomies)
    titles, before = _titles(anatomies, roomy=roomy), " " if roomy else ""
    least = max(map(len, titles)) + 1 if roomy else 10

    def bar(number: int) -> Field[Anatomy]:
        def make(device_anatomy: Anatomy, cells: int) -> Line:
            return (Span(before), *_bar(device_anatomy, number, cells - len(before), ink))

        rank = 0 if number == _TAIL else 1
        return Field(f"{before}{titles[number]}", least, make, rank=rank, right=False, most=60)

    begins = f"{WITH_QUEUE} " if any(a.has_queue_apart for a in anatomies) else ""
    value = max(_VALUE, len(begins) + len("p99"))
    fields = [
        Field("device", name if roomy else 9, lambda a, _: a.device, right=False, most=name),
        Field(f"{begins}p50", value, lambda a, _: _quantile(a, 0.5), rank=1),
        bar(0),
        Field(f"{begins}p99", value, lambda a, _: _quantile(a, 0.99), rank=1),
        bar(1),
        bar(2),
        Field("I/Os", 5, lambda a, _: _above(a), rank=1),
        Field("most of it", 15, lambda a, _: _most(a), rank=1, right=False),
    ]
    if _cut(anatomies) is None and any(device_anatomy.bands for device_anatomy in anatomies):
        fields.insert(5, Field("threshold", 9, lambda a, _: duration(a.bands[-1].low_us) if a.bands else "", rank=2))
    return fields


def _cut(anatomies: Sequence[Anatomy]) -> int | None:
    """Return the threshold that all devices have; None where each has its own."""
    cuts = {a.bands[-1].low_us for a in anatomies if a.bands}
    return cuts.pop() if len(cuts) == 1 else None


def _titles(anatomies: Sequence[Anatomy], *, roomy: bool) -> tuple[str, str, str]:
    """Return the titles of the three bars: `<=p50`, `p50-p99`, `>threshold`, or with the threshold that all have."""
    cut = _cut(anatomies)
    fixed = "threshold" if cut is None else spelled(cut)
    middle = "p99" if all(a.threshold_us is None for a in anatomies) else "threshold" if cut is None else with_unit(cut)
    if not roomy:
        return "<=p50", f"p50-{middle}", f">{fixed}"
    return "I/Os <=p50", f"I/Os p50-{middle}", f"I/Os above {fixed}"


def _quantile(device_anatomy: Anatomy, q: float) -> str:
    return quantile(device_anatomy.total, q) if device_anatomy.on_demand else ""


def _basic_fields(anatomies: Sequence[Anatomy], ink: Ink) -> list[Field[Anatomy]]:
    return [
        Field("device", _name_cells(anatomies), lambda a, _: a.device, right=False),
        Field("I/Os", 7, lambda a, _: count(a.total.count), rank=1),
        Field("p50", _VALUE, lambda a, _: quantile(a.total, 0.5)),
        Field("p99", _VALUE, lambda a, _: quantile(a.total, 0.99)),
        Field("max", _VALUE, lambda a, _: maximum(a.total), rank=1),
        Field("all I/Os", 10, lambda a, cells: stacked(a.by_column(a.whole), cells, ink), right=False, most=120),
    ]


def _stage_fields(device_anatomy: Anatomy, ink: Ink, *, roomy: bool) -> list[Field[StageRow]]:
    """Return the columns of a row per stage; the stage with the largest share is bold in the columns of shares."""
    slowest, longest = (
        max((v for r in device_anatomy.rows if (v := of(r))), default=None) for of in (_tail_of, _share_of)
    )
    main = slowest or longest

    def named(stage: StageRow, cells: int) -> Line:
        is_main = main is not None and main == (stage.tail if slowest else stage.share)
        name = Span(stage.column, "strong" if is_main else "text")
        letter = Span(f"{LETTERS.get(stage.column, ' ')} ", letter_role(stage.column, ink))
        return (letter, name) if cells >= _LETTERED else (name,)

    def all_io(stage: StageRow, cells: int) -> Line:
        return _share(stage, stage.share, longest, cells, ink)

    def tail(stage: StageRow, cells: int) -> Line:
        return _share(stage, stage.tail, slowest, cells, ink)

    bars = 40 if not roomy else 120  # distributions grow before the bars of shares
    fields: list[Field[StageRow]] = [
        Field("stage", _NAME, named, right=False, most=_LETTERED),
        Field("mean", _VALUE, lambda s, _: duration(s.histogram.mean), rank=3, role="dim"),
        Field("p50", _VALUE, lambda s, _: quantile(s.histogram, 0.5)),
        Field("p90", _VALUE, lambda s, _: quantile(s.histogram, 0.9), rank=3),
        Field("p99", _VALUE, lambda s, _: quantile(s.histogram, 0.99)),
        Field("p99.9", _VALUE, lambda s, _: quantile(s.histogram, 0.999), rank=2),
        Field("max", _VALUE, lambda s, _: maximum(s.histogram), rank=1),
        Field("I/Os", 7, lambda s, _: count(s.histogram.count), rank=1),
        Field(_TIMES, 44 if roomy else 10, lambda _s, _: "", rank=1, right=False, most=100 if roomy else 40),
        Field("all I/Os", 12 if roomy else 11, all_io, rank=1, right=False, most=bars),
    ]
    above = f">{spelled(device_anatomy.tail.low_us)}" if device_anatomy.tail else ">threshold"
    return [*fields, Field(above, 12, tail, right=False, most=bars)] if device_anatomy.on_demand else fields


def _tail_of(stage: StageRow) -> float | None:
    return stage.tail


def _share_of(stage: StageRow) -> float | None:
    return stage.share


def _bar(device_anatomy: Anatomy, number: int, cells: int, ink: Ink) -> Line:
    """Return the bar of a band, or why there is none."""
    if not device_anatomy.bands:
        why = device_anatomy.why if device_anatomy.on_demand else "not traced"
        brief = why if len(why) <= cells else why.partition(":")[0]  # the sentence below has the rest
        return (Span(cell(brief if number == _TAIL else "", cells), "dim"),)
    return (*stacked(device_anatomy.by_column(device_anatomy.bands[number].parts), cells - 1, ink), Span(" "))


def _above(device_anatomy: Anatomy) -> str:
    return whole(device_anatomy.bands[-1].ios) if device_anatomy.bands else UNKNOWN


def _most(device_anatomy: Anatomy) -> str:
    return _top(device_anatomy.by_column(device_anatomy.tail.parts)) if device_anatomy.tail else ""


def _top(parts: Parts) -> str:
    name = largest(parts)
    return f"{part(share(parts, name)):>{_PERCENT}} {name}" if name else ""


def _share(stage: StageRow, of: float | None, most: float | None, cells: int, ink: Ink) -> Line:
    bar = share_bar(of, cells - _PERCENT - 1, role(stage.stage, ink))
    return (*bar, Span(f" {part(of):>{_PERCENT}}", "strong" if of and of == most else "text"))


def _headline(device_anatomy: Anatomy, width: int, *, times: bool = True) -> Line:
    """Return the headline of a device's stages, with the population at the right where both fit.

    `times`: their distributions are below.
    """
    left = (Span(f" {device_anatomy.device}", "strong"), Span(" stages", "dim"), Span(f"  {device_anatomy.op_label}"))
    variants = ("  time in each stage, logarithmic counts", "  logarithmic counts", "") if times else ("",)
    if not device_anatomy.on_demand or width < _ROOMY:
        return heading((*left, Span(variants[0], "dim")), width)
    right = Span(f"{population(device_anatomy)} ", "dim")
    room = width - ends(width) - line_width(left) - cell_len(right.text)
    caption = next((c for c in variants if len(c) <= room), variants[0])
    return heading((*left, Span(caption, "dim")), width, (right,))


def _below(
    device_anatomy: Anatomy, width: int, why: str, finding_lines: Sequence[Line], *, headed: bool = False
) -> list[Line]:
    """Return the device's finding, the sentence on the tail and the population, or the reason for missing traces.

    `headed`: the headline is above, which may have the population; a finding replaces the sentence.
    """
    if not device_anatomy.on_demand:
        return [*paragraph(device_anatomy.why or why, width), *finding_lines]
    is_wide = headed and width >= _ROOMY
    sentence = [] if finding_lines else paragraph(tail_sentence(device_anatomy), width, "strong")
    is_above = is_wide and population(device_anatomy) in plain(_headline(device_anatomy, width))
    counted = [] if is_above else paragraph(population(device_anatomy), width, "dim")
    after = [
        line
        for text in (*device_anatomy.softirqs, *device_anatomy.stacks, *device_anatomy.sizes)
        for line in paragraph(text, width)
    ]
    return [*paragraph(admission_sentence(device_anatomy), width, "bad"), *sentence, *finding_lines, *after, *counted]


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
    return [(Span(f" {name:<{cells}} ", "dim"), Span(text, "dim")) for name, text in zip(names, texts, strict=True)]


def _of_thread(device_anatomy: Anatomy, stage: StageRow, width: int) -> list[Line]:
    """Return the sentence on the thread of this host whose waits are in the stage hba; nothing where they are apart."""
    if STAGE_OF.get(stage.column) != "hba" or WORKER in device_anatomy.whole:
        return []
    return paragraph(thread_sentence(device_anatomy.device, device_anatomy.driver, stage.column), width, "dim")


def _includes(stage: StageRow, width: int) -> list[Line]:
    return paragraph(explained(stage.stage, stage.includes), width, "dim")


def _legend(anatomies: Sequence[Anatomy], width: int, ink: Ink, named: Collection[str] = ()) -> list[Line]:
    """Return the legend of the letters in bars, without those that are `named` beside their letter."""
    shown = {name for a in anatomies for name, us in a.by_column(a.whole).items() if us > 0}
    return legend(shown.difference(named), width, ink)


def stages_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return a row per device; for an opened device a row per stage; or the operations on files."""
    if view.selection.aside == FILES:
        return files_panel(view, width, room)
    subjects = view.subjects()
    if not subjects or view.origin is None:
        return empty_panel(no_rows(view), width, room)
    why = not_traced(
        "stages", view.origin, _PATH, mode=view.selection.stages, recorded=view.recorded, state=view.tracing
    )
    if no_distribution(view.origin):
        return empty_panel(why, width, room)  # a table would count its I/Os as 0
    chosen = subjects[0].selection.selected
    above = files_above(view, chosen, width, room)
    return [*above, *_stages_below(view, subjects, width, room - len(above), why=why)]


def _stages_below(view: ViewState, subjects: Sequence[Subject], width: int, room: int, *, why: str) -> list[Line]:
    """Return the panel without what is above the stages."""
    chosen = subjects[0].selection.selected
    if not view.selection.opened:
        anatomies = [_anatomy(view, s, detailed=s.device.name == chosen) for s in subjects]
        number = len(anatomies)
        titled = view.framed or is_titled(view.selection, room)
        title = (lambda rows: table_title(view.selection, rows, number, width)) if titled else None
        finding_lines = of_device(view, chosen, width)
        return device_bars(anatomies, chosen, width, room, view.ink, why=why, found=finding_lines, title=title)
    subject = next(s for s in subjects if s.device.name == chosen)
    device_anatomy = _anatomy(view, subject)
    on_demand = view.history.on_demand
    by_size = size_sentences(
        chosen, view.selection.ops, on_demand[measurements.SIZES], on_demand[measurements.PATTERNS]
    )
    softirqs = softirq_sentences(subject.device, device_anatomy.paths, on_demand[SOFTIRQS])
    device_anatomy = replace(device_anatomy, softirqs=softirqs, sizes=by_size, driver=subject.device.driver)
    finding_lines = of_device(view, chosen, width)
    return device(device_anatomy, width, room, view.ink, why=why, top=view.selection.top, found=finding_lines)


def _anatomy(view: ViewState, subject: Subject, *, detailed: bool = True) -> Anatomy:
    assert view.origin is not None  # noqa: S101  drawn only once there is a row
    origin, selection, name, on_demand = view.origin, view.selection, subject.device.name, view.history.on_demand
    ops, slow = selection.ops, slow_in_flight(view, subject)
    return view.history.made(
        ("anatomy", name, selection.op, selection.threshold_us, detailed),
        lambda: anatomy(
            name,
            ops,
            on_demand.traced,
            origin,
            total=view.history.window.latency(name, ops),
            # read only where nothing is traced, since reading starts a sum
            basic={} if total_of(on_demand.traced, name, ops) else on_demand.basic,
            cut_us=selection.threshold_us,
            op_label=selection.op_label,
            detailed=detailed,
            of_bucket=of_bucket(view, subject),
            outliers=[outlier for outlier in view.outliers_of(name) if outlier.op in ops],
            waiting=slow.ios,
            waited_us=slow.us,
        ),
    )
