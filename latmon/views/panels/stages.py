"""The panel of stages: bars of every device, or distributions of one device's stages; operations on files. Pure.

It draws `anatomy.Anatomy` values and computes nothing from frames. Operations on files have a row per file system and
op, with the slow ones, and the I/O below one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import replace
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, by_process, file_rows, nfs_rows, requests_of, total_of, whole_path
from latmon.model import measurements
from latmon.model.devices import thread_sentence
from latmon.model.frame import (
    CACHED,
    DEVICE_BOUND,
    FILE_WAIT_TITLES,
    FILE_WAITS,
    FILES,
    LOST_PATH,
    OWN_IO,
    RUNNING,
    STAGES,
    TRACER_STARTING,
    UNACCOUNTED,
    FileOperation,
    FileSystem,
    Outlier,
)
from latmon.model.histogram import BITS, Histogram, bucket_bounds
from latmon.model.measurements import SOFTIRQS
from latmon.model.measurements.nfs import NfsCalls
from latmon.model.stages import LETTERS, STAGE_OF, WORKER, explained
from latmon.support.text import listed
from latmon.support.units import UNKNOWN, duration, part, rate, spelled, whole, with_unit
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
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import (
    BLANK,
    TIME,
    Field,
    Line,
    Placed,
    Span,
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
    table,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.panels.findings import of_device
from latmon.views.panels.outliers import ORDERS, op_letters, parts_of, wait_lines
from latmon.views.selection import shown
from latmon.views.units import count, maximum, moment, quantile, size, span

_LABEL = 7
_COUNT = 5
_MIN_COLUMN = 8
_FILE_ROWS = 4
"""Rows of a device's file systems above its stages."""
_LEAST = 20
"""Lines from which on a line about them is above the devices' stages."""
_UNLIMITED = "; to trace without a budget, press S until the line above the keys has `stages all`"
_DETAIL = 7
"""Lines of the selected operation below the list, at least."""
_LISTED = 8
"""Lines of slow operations with their titles, before file systems have more than a third of the panel."""
_FOR_BOTH = 14
"""Least lines of file systems and slow operations below each other."""
_NFS_ROWS = 4
"""Rows of calls to NFS servers below these; one in a low panel."""
_REQUESTS = 3
"""Slow requests of the selected operation, at most."""
_WAITS = 2
"""Late wake-ups of the operation's thread below it, at most."""
_LOST = "its path is not known: events of the probe were lost in that interval (I counts them)"
_SLEPT = "it slept without I/O of its own: a lock, or I/O of another thread, such as a journal's or a server's"


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


_NAME = 11
_LETTERED = _NAME + 2
"""Cells of a stage's name with its letter before it."""
_VALUE = TIME
Q2C = "Q2C"
"""Begin of the titles of latencies that include the queue, where those of the overview (D2C) do not."""
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
    one = next((a for a in anatomies if a.device == selected), anatomies[0])
    below = _below(one, width, why, found, headed=True)
    rows = min(len(anatomies) + 1, height // 2)
    if width >= _ROOMY:  # rows that leave the distributions their lines
        rows = min(len(anatomies) + 1, max(height - 1 - _needed(one, _LINES + 1) - len(below), _ROWS))
    if height - rows - 1 >= _MIN_DEVICE:
        table = _table(anatomies, selected, width, rows, ink, title=title)
        named = {stage.column for stage in one.rows} if width >= _ROOMY else set()
        below += _legend(anatomies if named else [one], width, ink, named)
        room = height - rows - 1
        lines = _stages(one, width, room, ink, below)
        lines += _side_by_side(one, width, room - len(lines), ink)
        if len(lines) > room:  # the finding has the cause, and is whole
            rest = _stages(one, width, room, ink, ())[:-1]
            kept = found or cut(below, room // 2)
            lines = [*cut(rest, room - len(kept) - 1, key="Enter: "), BLANK, *kept]
        return [*table, BLANK, *lines]
    below = [*_below(one, width, why, found), *_legend(anatomies, width, ink)]
    least = min(len(anatomies), _MIN_ROWS) + 1
    below = cut([BLANK, *below] if len(below) + least < height else below, max(height - least, 1), key="Enter: ")
    table = _table(anatomies, selected, width, height - len(below), ink, title=title)
    return [fit(line, width) for line in cut([*table, *below], height + (title is not None))]


def _needed(one: Anatomy, each: int) -> int:
    """Return the lines of a device's stages, `each` for a distribution, with titles and a blank line below."""
    return len(one.rows) + (each - 1) * sum(map(_has_lines, one.rows)) + 3


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
    lines = [heads(placed, above=shown.start), *(row(placed, anatomies[i], selected=i == at) for i in shown)]
    if title is not None:
        return [title((shown.start + 1, shown.stop)), *lines]
    if len(shown) < len(anatomies):
        mark = "↑" if shown.start else " "
        head = Span(cell(f"{mark}{len(shown)} of {len(anatomies)}", placed[0][1] + 2), "dim")
        lines[0] = (head, *lines[0][2:])
    return lines


def device(
    one: Anatomy,
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
    below = _below(one, width, why, found, headed=True)
    lines = _stages(one, width, height, ink, below, times=False)
    counts = _side_by_side(one, width, height - len(lines), ink)
    left = height - len(lines) - len(counts)
    if not counts or left >= _MOST_LINES * sum(map(_has_lines, one.rows)):
        lines = _stages(one, width, height - len(counts), ink, below)
    return cut([fit(line, width) for line in (*lines, *counts)], height, top, key="PgDn: ")


def _side_by_side(one: Anatomy, width: int, room: int, ink: Ink) -> list[Line]:
    """Return the I/Os of each stage by octave in `room` lines, below a blank one and a title.

    There are none where the lines are too few.
    """
    measured = [(stage.column, stage.histogram) for stage in one.rows if stage.histogram]
    height = room - 2
    drawn = spread(measured, width, height, ink) if height >= _MIN_SPREAD else []
    name = (Span(" I/Os by time in each stage", "strong"), Span("  bars are logarithmic", "dim"))
    return [BLANK, heading(name, width), *drawn] if drawn else []


def _stages(
    one: Anatomy, width: int, height: int, ink: Ink, below: Sequence[Line], *, times: bool = True
) -> list[Line]:
    """Return headline, titles and the stages of a device, then `below`; all lines, also where they don't fit.

    A measured stage has as many lines as fit, but at most _MOST_LINES and a blank one, and without `times`, which are
    the distributions, one line. Another stage has its reason.
    """
    begins = paragraph(BEGINS, width, "dim") if any(stage.after_limit for stage in one.rows) else []
    below = [
        *begins,
        *(line for stage in one.rows if stage.includes for line in _includes(stage, width)),
        *(line for stage in one.rows if stage.histogram for line in _of_thread(one, stage, width)),
        BLANK,
        *below,
    ]
    measured = [stage for stage in one.rows if stage.histogram]
    fields = _stage_fields(one, ink, roomy=width >= _ROOMY)
    placed = layout([field for field in fields if times or field.title != _TIMES], width)
    reasons, reason = {}, ""
    for stage in one.rows:
        if not stage.histogram:
            reasons[stage.stage] = _unmeasured(stage, placed[0][1], width, reason)
        reason = stage.reason
    many = sum(map(_has_lines, measured))
    room = height - 2 - len(below) - sum(map(len, reasons.values())) - (len(measured) - many)
    each = room // max(many, 1) if times and width >= _ROOMY else 1
    tall = max(min(each if each <= _LINES else each - 1, _MOST_LINES), 1)
    placed, drawn = _with_times(placed, measured, tall, ink)
    lines: list[Line] = [_headline(one, width, times=times), heads(placed)]
    for stage in one.rows:
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
    most = max(max(some) for some in columns.values())
    drawn = {
        name: distribution(some, axis, ink, most=most, tall=tall if name in shown else 1, role=role(name, ink))
        for name, some in columns.items()
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


def _name_cells(anatomies: Sequence[Anatomy]) -> int:
    """Return the cells of the column with the devices' names, as far as the longest one needs them."""
    return min(max(9, *(len(a.device) for a in anatomies)), 16)


def _on_demand_fields(anatomies: Sequence[Anatomy], ink: Ink, *, roomy: bool) -> list[Field[Anatomy]]:
    """Return the columns of a row per device; a bar is followed by two blanks, so that no value touches it."""
    name = _name_cells(anatomies)
    titles, before = _titles(anatomies, roomy=roomy), " " if roomy else ""
    least = max(map(len, titles)) + 1 if roomy else 10

    def bar(number: int) -> Field[Anatomy]:
        def make(one: Anatomy, cells: int) -> Line:
            return (Span(before), *_bar(one, number, cells - len(before), ink))

        rank = 0 if number == _TAIL else 1
        return Field(f"{before}{titles[number]}", least, make, rank=rank, right=False, most=60)

    begins = f"{Q2C} " if any(a.has_queue_apart for a in anatomies) else ""
    value = _VALUE + bool(begins)
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
    if _cut(anatomies) is None and any(one.bands for one in anatomies):
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


def _quantile(one: Anatomy, q: float) -> str:
    return quantile(one.total, q) if one.on_demand else ""


def _basic_fields(anatomies: Sequence[Anatomy], ink: Ink) -> list[Field[Anatomy]]:
    return [
        Field("device", _name_cells(anatomies), lambda a, _: a.device, right=False),
        Field("I/Os", 7, lambda a, _: count(a.total.count), rank=1),
        Field("p50", _VALUE, lambda a, _: quantile(a.total, 0.5)),
        Field("p99", _VALUE, lambda a, _: quantile(a.total, 0.99)),
        Field("max", _VALUE, lambda a, _: maximum(a.total), rank=1),
        Field("all I/Os", 10, lambda a, cells: stacked(a.by_column(a.whole), cells, ink), right=False, most=120),
    ]


_TIMES = "times"
"""Title of the column of distributions, until its width is known."""


def _stage_fields(one: Anatomy, ink: Ink, *, roomy: bool) -> list[Field[StageRow]]:
    """Return the columns of a row per stage; the stage with the largest share is bold in the columns of shares."""
    slowest, longest = (max((v for r in one.rows if (v := of(r))), default=None) for of in (_tail_of, _share_of))
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
    above = f">{spelled(one.tail.low_us)}" if one.tail else ">threshold"
    return [*fields, Field(above, 12, tail, right=False, most=bars)] if one.on_demand else fields


def _tail_of(stage: StageRow) -> float | None:
    return stage.tail


def _share_of(stage: StageRow) -> float | None:
    return stage.share


def _bar(one: Anatomy, number: int, cells: int, ink: Ink) -> Line:
    """Return the bar of a band, or why there is none."""
    if not one.bands:
        why = one.why if one.on_demand else "not traced"
        brief = why if len(why) <= cells else why.partition(":")[0]  # the sentence below has the rest
        return (Span(cell(brief if number == _TAIL else "", cells), "dim"),)
    return (*stacked(one.by_column(one.bands[number].parts), cells - 1, ink), Span(" "))


def _above(one: Anatomy) -> str:
    return whole(one.bands[-1].count) if one.bands else UNKNOWN


def _most(one: Anatomy) -> str:
    return _top(one.by_column(one.tail.parts)) if one.tail else ""


def _top(parts: Parts) -> str:
    name = largest(parts)
    return f"{part(share(parts, name)):>{_PERCENT}} {name}" if name else ""


def _share(stage: StageRow, of: float | None, most: float | None, cells: int, ink: Ink) -> Line:
    bar = share_bar(of, cells - _PERCENT - 1, role(stage.stage, ink))
    return (*bar, Span(f" {part(of):>{_PERCENT}}", "strong" if of and of == most else "text"))


def _headline(one: Anatomy, width: int, *, times: bool = True) -> Line:
    """Return the headline of a device's stages, with the population at the right where both fit.

    `times`: their distributions are below.
    """
    left = (Span(f" {one.device}", "strong"), Span(" stages", "dim"), Span(f"  {one.op_label}"))
    several = ("  time in each stage, logarithmic counts", "  logarithmic counts", "") if times else ("",)
    if not one.on_demand or width < _ROOMY:
        return heading((*left, Span(several[0], "dim")), width)
    right = Span(f"{population(one)} ", "dim")
    room = width - ends(width) - line_width(left) - cell_len(right.text)
    caption = next((c for c in several if len(c) <= room), several[0])
    return heading((*left, Span(caption, "dim")), width, (right,))


def _below(one: Anatomy, width: int, why: str, found: Sequence[Line], *, headed: bool = False) -> list[Line]:
    """Return the device's finding, the sentence on the tail and the population, or the reason for missing traces.

    `headed`: the headline is above, which may have the population; a finding replaces the sentence.
    """
    if not one.on_demand:
        return [*paragraph(one.why or why, width), *found]
    is_wide = headed and width >= _ROOMY
    sentence = [] if found else paragraph(tail_sentence(one), width, "strong")
    is_above = is_wide and population(one) in plain(_headline(one, width))
    counted = [] if is_above else paragraph(population(one), width, "dim")
    after = [line for text in (*one.softirqs, *one.stacks, *one.sizes) for line in paragraph(text, width)]
    return [*paragraph(admission_sentence(one), width, "bad"), *sentence, *found, *after, *counted]


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


def _of_thread(one: Anatomy, stage: StageRow, width: int) -> list[Line]:
    """Return the sentence on the thread of this host whose waits are in the stage hba; nothing where they are apart."""
    if STAGE_OF.get(stage.column) != "hba" or WORKER in one.whole:
        return []
    return paragraph(thread_sentence(one.device, one.driver, stage.column), width, "dim")


def _includes(stage: StageRow, width: int) -> list[Line]:
    return paragraph(explained(stage.stage, stage.includes), width, "dim")


def _legend(anatomies: Sequence[Anatomy], width: int, ink: Ink, named: Collection[str] = ()) -> list[Line]:
    """Return the legend of the letters in bars, without those that are `named` beside their letter."""
    shown = {name for a in anatomies for name, us in a.by_column(a.whole).items() if us > 0}
    return legend(shown.difference(named), width, ink)


_PATH = tuple(one for one in STAGES if one not in ("resume", "total"))


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
        several = [_anatomy(view, s, detailed=s.device.name == chosen) for s in subjects]
        number = len(several)
        titled = view.framed or is_titled(view.selection, room)
        title = (lambda rows: table_title(view.selection, rows, number, width)) if titled else None
        found = of_device(view, chosen, width)
        return device_bars(several, chosen, width, room, view.ink, why=why, found=found, title=title)
    subject = next(s for s in subjects if s.device.name == chosen)
    one = _anatomy(view, subject)
    on_demand = view.history.on_demand
    by_size = size_sentences(
        chosen, view.selection.ops, on_demand[measurements.SIZES], on_demand[measurements.PATTERNS]
    )
    softirqs = softirq_sentences(subject.device, one.paths, on_demand[SOFTIRQS])
    one = replace(one, softirqs=softirqs, sizes=by_size, driver=subject.device.driver)
    found = of_device(view, chosen, width)
    return device(one, width, room, view.ink, why=why, top=view.selection.top, found=found)


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


class _TimedCalls(NamedTuple):
    """Calls of an NFS operation on a mount, with the seconds of the window."""

    op: str
    mount: str
    calls: NfsCalls
    seconds: float


class _TimedRow:
    """A row with the seconds of the window."""

    def __init__(self, of: FileRow, seconds: float) -> None:
        self.of, self.seconds = of, seconds


def _file_share(wait: str) -> Field[_TimedRow]:
    title = FILE_WAIT_TITLES[wait]
    return Field(title, len(title), lambda r, _: UNKNOWN if (of := r.of.share(wait)) is None else part(of), rank=1)


_FIELDS: tuple[Field[_TimedRow], ...] = (
    Field("op", 5, lambda r, _: r.of.op, right=False),
    Field("files on", 14, lambda r, _: r.of.file_system.mount, right=False, most=40),
    Field("type", 6, lambda r, _: r.of.file_system.kind, rank=1, right=False, most=12, role="dim"),
    Field("device", 7, lambda r, _: r.of.file_system.device or UNKNOWN, rank=2, right=False, most=16, role="dim"),
    Field("per s", 5, lambda r, _: rate(r.of.latency.count / r.seconds)),
    Field("p50", TIME, lambda r, _: quantile(r.of.latency, 0.5)),
    Field("p99", TIME, lambda r, _: quantile(r.of.latency, 0.99)),
    Field("p99.9", TIME, lambda r, _: quantile(r.of.latency, 0.999), rank=2),
    Field("max", TIME, lambda r, _: maximum(r.of.latency)),
)
_WAIT_FIELDS = (*_FIELDS, *map(_file_share, FILE_WAITS))
"""Fields where the time is not split."""
_PART_FIELDS = (
    *_FIELDS,
    Field(OWN_IO, 7, lambda r, _: UNKNOWN if (of := r.of.part_share(OWN_IO)) is None else part(of)),
    Field("most else", 15, lambda r, _: _most_else(r.of), right=False),
)


def _most_else(of: FileRow) -> str:
    """Return what else the threads did longest, with its share: `lock 83%`."""
    name = of.longest_wait
    return f"{name} {part(of.part_share(name))}" if name else UNKNOWN


def _process(one: FileOperation, _cells: int = 0) -> str:
    return one.comm if one.pid is None else f"{one.comm}/{one.pid}"


def _path(one: FileOperation) -> str:
    return whole_path(one.file_system.mount, one.path)


def _end_of_path(one: FileOperation, cells: int) -> str:
    path = _path(one)
    return path if len(path) <= cells else f"…{path[len(path) - cells + 1 :]}"


def _waited_title(one: FileOperation) -> str:
    """Return what an operation did longest; where its time is not split, how it waited."""
    return FILE_WAIT_TITLES[one.wait] if one.split is None else next(iter(one.split.parts(one.total_us)), RUNNING)


_OPERATION: tuple[Field[FileOperation], ...] = (
    Field("time", 15, lambda o, _: moment(o.wall), right=False),
    Field("op", 5, lambda o, _: o.op, right=False),
    Field("total", TIME, lambda o, _: duration(o.total_us), role="strong"),
    Field("waited", 9, lambda o, _: _waited_title(o), right=False, most=11),
    Field("process", 12, _process, rank=1, right=False, most=22, role="dim"),
    Field("size", 5, lambda o, _: size(o.bytes), rank=1),
    Field("file", 20, _end_of_path, right=False, most=200),
)


def device_files(view: ViewState, device: str) -> list[FileRow]:
    """Return the rows of file systems on a device, or on one that it is a member of."""
    above = _with_volumes(view, device)
    return [one for one in every_row(view) if one.file_system.device in above]


def _with_volumes(view: ViewState, device: str) -> set[str]:
    """Return a device, and those that it is a member of."""
    return {device, *(name for name, one in view.history.store.devices.items() if device in one.members)}


def _devices(view: ViewState) -> frozenset[str] | None:
    """Return the devices whose file systems are listed: the opened one, those of the filter; None: all."""
    selection = view.selection
    if selection.opened:
        return frozenset(_with_volumes(view, selection.selected))
    if not selection.globs and not selection.pattern.strip():
        return None
    return frozenset(one.name for one in shown(view.history.store.devices.values(), selection))


def every_row(view: ViewState) -> list[FileRow]:
    """Return the rows of all file systems; made once per frame."""
    return view.history.made("files", lambda: _file_rows(view))


def _file_rows(view: ViewState) -> list[FileRow]:
    on_demand = view.history.on_demand
    return file_rows(on_demand[measurements.FILES], on_demand[measurements.FILE_TIMES])


def files_above(view: ViewState, device: str, width: int, room: int) -> list[Line]:
    """Return what is above the stages of a device: its file systems' ops where it is opened, else a line."""
    rows = device_files(view, device)
    if not rows or room < _LEAST:
        return []
    slow = [one for one in view.history.on_demand.file_operations if one.file_system.device == device]
    more = f"  {count(len(slow))} slow: F" if slow else "  F: all"
    if not view.selection.opened:
        worst = sorted(rows, key=lambda one: -(one.latency.sum or 0))[:2]
        texts = [f"{one.op} {one.file_system.mount} p99 {quantile(one.latency, 0.99).strip()}" for one in worst]
        return [heading((Span(" files", "strong"), Span(f" {', '.join(texts)}"), Span(more, "dim")), width)]
    head = heading((Span(" files", "strong"), Span(f"  what programs wait for{more}", "dim")), width)
    kept = sorted(sorted(rows, key=lambda one: -(one.latency.sum or 0))[:_FILE_ROWS], key=rows.index)
    return [head, *_file_table(view, kept, width), BLANK]


def _file_table(view: ViewState, rows: Sequence[FileRow], width: int) -> list[Line]:
    placed = layout(_PART_FIELDS if any(one.parts for one in rows) else _WAIT_FIELDS, width)
    seconds = max(view.history.window.covered_us, 1) / 1e6
    return [fit(line, width) for line in (heads(placed), *(row(placed, _TimedRow(one, seconds)) for one in rows))]


_NFS_FIELDS: tuple[Field[_TimedCalls], ...] = (
    Field("NFS call", 8, lambda r, _: r.op, right=False, most=16),
    Field("on", 14, lambda r, _: r.mount, right=False, most=40),
    Field("per s", 5, lambda r, _: rate(r.calls.calls / r.seconds)),
    Field("mean", TIME, lambda r, _: duration(r.calls.execute_mean_us)),
    Field("round trip", 10, lambda r, _: duration(r.calls.round_trip_mean_us)),
    Field("queue", TIME, lambda r, _: duration(r.calls.queue_mean_us)),
    Field("again", 5, lambda r, _: count(r.calls.retransmissions)),
    Field("time-outs", 9, lambda r, _: count(r.calls.timeouts), rank=1),
    Field("errors", 6, lambda r, _: count(r.calls.errors), rank=2),
)


def _nfs_table(view: ViewState, width: int) -> list[Line]:
    """Return the NFS calls with most of the time; nothing where none ended, and where devices are selected."""
    if _devices(view) is not None:
        return []
    calls = nfs_rows(view.history.on_demand[measurements.NFS_OPERATIONS])[:_NFS_ROWS]
    if not calls:
        return []
    placed = layout(_NFS_FIELDS, width)
    seconds = max(view.history.window.covered_us, 1) / 1e6
    rows = [_TimedCalls(key.op, key.mount, its, seconds) for key, its in calls]
    return [fit(line, width) for line in (heads(placed), *(row(placed, timed) for timed in rows))]


def _most_of(view: ViewState, rows: Sequence[FileRow], width: int, height: int) -> list[Line]:
    """Return the table of file systems in `height` lines: the rows with most of the time, and how many there are."""
    if len(rows) < height:
        return _file_table(view, rows, width)
    most = sorted(rows, key=lambda one: -(one.latency.sum or 0))[: max(height - 2, 1)]
    more, remedy = f" … {len(rows) - len(most)} more rows", ", with less of the time; / filters by device"
    last = (Span(f"{more}{remedy}" if len(more) + len(remedy) <= width else more, "dim"),)
    return [*_file_table(view, [one for one in rows if one in most], width), last]


def operations(view: ViewState) -> Sequence[FileOperation]:
    """Return the slow operations in the selected order: of the listed devices, and of the region's processes."""
    selection, devices = view.selection, _devices(view)
    pids = None if selection.region is None else selection.region.pids

    def those() -> list[FileOperation]:
        some = [
            one
            for one in view.history.on_demand.file_operations[::-1]
            if (pids is None or one.pid in pids) and (devices is None or one.file_system.device in devices)
        ]
        return some if selection.order == ORDERS[0] else sorted(some, key=lambda one: -one.total_us)

    return view.history.made(("file operations", pids, devices, selection.order), those)


def operation_position(some: Sequence[FileOperation], chosen: Hashable | None) -> int:
    """Return the position of the selected operation; the first one where none is selected or it is gone."""
    return next((at for at, one in enumerate(some) if one == chosen), 0)


def slow_requests(view: ViewState, one: FileOperation) -> list[Outlier]:
    """Return the slow requests that an operation issued, the longest first."""
    history = view.history
    return requests_of(one, by_process(history.store.on_demand.outliers(one.mono_us, history.until_us)))


_OWN_AND_ELSE, _WAITS_IN_TIME = "own I/O, what else", "cached, I/O+waits, unknown"


def files_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table of file systems, the list of slow operations, and the I/O of the selected one."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    devices = _devices(view)
    rows = [one for one in every_row(view) if devices is None or one.file_system.device in devices]
    calls = _nfs_table(view, width)
    if not rows and calls:
        return cut([*calls, BLANK, *paragraph(_why_none(view), width)], room)
    if not rows:
        return empty_panel(_why_none(view), width, room)
    if room - len(calls) - 1 < _FOR_BOTH:
        calls = calls[:2]  # the titles, and the call with most of the time
    if not calls or room - len(calls) - 1 < _FOR_BOTH:
        return _files_and_operations(view, rows, devices, width, room)
    return [*_files_and_operations(view, rows, devices, width, room - len(calls) - 1), BLANK, *calls]


def _files_and_operations(
    view: ViewState, rows: Sequence[FileRow], devices: frozenset[str] | None, width: int, room: int
) -> list[Line]:
    """Return the panel without the calls of the NFS client."""
    some = operations(view)
    named = len({one.file_system for one in rows})
    head = heading(
        (
            Span(" files", "strong"),
            Span(f"  {count(named)} file system{'s' * (named != 1)}"),
            Span("  all devices" if devices is None else f"  on {listed(sorted(devices))}", "dim"),
        ),
        width,
        (Span(f" {_OWN_AND_ELSE if any(one.parts for one in rows) else _WAITS_IN_TIME}: shares of the time ", "dim"),),
        (Span(" shares of the time ", "dim"),),
    )
    if not some:
        why = paragraph(_no_operations(view), width)
        return cut([head, *_most_of(view, rows, width, room - len(why) - 2), BLANK, *why], room)
    if room < _FOR_BOTH:
        why = paragraph(f"a larger terminal lists the {count(len(some))} slow operations", width, "dim")
        return cut([head, *_most_of(view, rows, width, room - len(why) - 1), *why], room)
    at = operation_position(some, view.selection.row)
    below = _operation(view, some[at], width)
    detail = max(len(below), _DETAIL)
    free = room - detail - min(len(some) + 1, _LISTED) - 4  # a heading, and blanks between the parts
    top = [head, *_most_of(view, rows, width, max(room // 3 - 1, 2, free))]
    height = max(room - len(top) - detail - 3, 3)
    missing = view.history.on_demand.files_left_out
    counted = f"{_by(view)}  {count(len(some))} {view.selection.order} first" + (
        f", {count(missing)} left out by the rate limit" * bool(missing)
    )
    title = heading((Span(" slow operations", "strong"), Span(counted)), width)
    listing = table(_OPERATION, some, at, (width, height), why="")
    return cut([*top, BLANK, title, *listing, BLANK, *below], room)


def _by(view: ViewState) -> str:
    """Return whose operations are listed; empty for all."""
    region = view.selection.region
    return "" if region is None or region.pids is None else f" {region.words.removeprefix(f'{region.device}, ')}"


def _operation(view: ViewState, one: FileOperation, width: int) -> list[Line]:
    """Return the facts of an operation, and a ribbon per slow request that it issued."""
    its: FileSystem = one.file_system
    where = f"{its.kind} on {its.device}" if its.device else its.kind
    offset = "" if one.offset is None else f", at offset {one.offset:,}"
    done = f"{one.bytes:,} bytes{offset}; " if one.bytes is not None else ""
    lines = paragraph(f"{one.op} of {_path(one)}", width, "strong")
    lines += paragraph(
        f"{done}{where or 'file system not known'}, by {_process(one)}: {spelled(one.total_us)}, {_waited(one)}",
        width,
    )
    lines += _sleep_lines(one, width)
    lines += [line for wait in one.waits[-_WAITS:] for line in wait_lines(one, wait, width)]
    if one.path == LOST_PATH:
        lines += paragraph(_LOST, width, "bad")
    requests = slow_requests(view, one)
    if not requests:
        return [*lines, *(paragraph(_no_request(view, one), width, "dim") if one.disk else [])]
    lines += paragraph(f"its slow I/O on {one.disk}; Enter: the stages of the first", width, "dim")
    shown = requests[:_REQUESTS]
    lines += [_request(each, one, width, view.ink) for each in shown]
    if len(requests) > len(shown):
        lines.append((Span(f" … {len(requests) - len(shown)} more", "dim"),))
    return [*lines, *legend({stage for each in shown for stage in parts_of(each)}, width, view.ink)]


def _sleep_lines(one: FileOperation, width: int) -> list[Line]:
    """Return where the longest sleep without own I/O was, and who had the file's lock as it began."""
    split = one.split
    if split is None or not split.longest_us:
        return []
    held = f"; {split.holder}/{split.holder_thread} had the lock then" if split.holder else ""
    where = f" in {split.functions}" if split.functions else ""
    return paragraph(f"its longest other sleep: {spelled(split.longest_us)}{where}{held}", width, "dim")


def _request(one: Outlier, operation: FileOperation, width: int, ink: Ink) -> Line:
    """Return a request with the time from the operation's begin, and its ribbon of stages."""
    after = f"+{duration(one.mono_us - operation.mono_us).strip()}"
    text = f" {after:>8} {op_letters(one):5} {size(one.bytes):>5} {duration(one.total_us):>{TIME}} "
    return fit((Span(text), *stacked(parts_of(one), max(width - len(text) - 1, 1), ink)), width)


def _waited(one: FileOperation) -> str:
    """Return what the operation waited for, in words."""
    if one.split is not None:
        return ", ".join(f"{name} {spelled(us)}" for name, us in one.split.parts(one.total_us).items())
    if one.wait == CACHED:
        return "cached: it did not sleep and issued no I/O"
    if one.wait == DEVICE_BOUND:
        return f"it issued I/O to {one.disk or 'a device'} and slept, waits for locks and a CPU included"
    return f"unknown: {f'it issued I/O to {one.disk} and did not sleep' if one.disk else _SLEPT}"


def _no_request(view: ViewState, one: FileOperation) -> str:
    limit = view.history.on_demand.thresholds_us.get(one.disk)
    moves = view.origin is None or view.origin.threshold_us is None
    above = "" if not limit else f" above {f'the threshold, now {spelled(limit)}' if moves else spelled(limit)}"
    return (
        f"none of its I/Os on {one.disk} was logged{above}: many short ones, or the rate limit left them out; a lower "
        "--threshold logs more"
    )


def why_no_request(view: ViewState) -> str:
    """Return why the selected operation has no request that Enter opens, and what shows one."""
    some = operations(view)
    if not some:
        return _why_none(view) if view.origin is not None and not every_row(view) else _no_operations(view)
    one = some[operation_position(some, view.selection.row)]
    return (
        _no_request(view, one)
        if one.disk
        else f"Enter opens the I/O of an operation, and this one has none: {_waited(one)}"
    )


def _no_operations(view: ViewState) -> str:
    missing = view.history.on_demand.files_left_out
    left_out = f"; the rate limit left out {count(missing)}" if missing else ""
    return (
        f"no operation on a file{_by(view)} was slow in the last {span(view.selection.window_us)}{left_out}; "
        "+ shows a longer window, a lower --threshold lists more"
    )


def _why_none(view: ViewState) -> str:
    origin, selection = view.origin, view.selection
    assert origin is not None  # noqa: S101  checked by the caller
    begins = view.tracing.startswith(TRACER_STARTING) and not view.recorded
    if view.history.any_traced and not begins:
        lacks = {one.name: one.reason for one in (*view.history.on_demand.traced.absent, *origin.probes_missing)}
        if FILES in lacks:
            unlimited = _UNLIMITED if "budget" in lacks[FILES] and not view.recorded else ""
            return f"operations on files {'were' if view.recorded else 'are'} not traced: {lacks[FILES]}{unlimited}"
        devices = _devices(view)
        where = "" if devices is None else f" on {listed(sorted(devices))}" if devices else " of a device that passes"
        return f"no operation on a file{where} in the last {span(selection.window_us)}"
    return not_traced(
        "operations on files", origin, (FILES,), mode=selection.stages, recorded=view.recorded, state=view.tracing
    )
