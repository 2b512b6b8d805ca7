"""The outliers panel: a row per I/O above the threshold, or the waterfall of one I/O. Pure.

`listing` filters and orders the rows once per frame, `outliers` draws those around the selected one. Identical
neighbours are folded before. `waterfall` draws the stages of an I/O in time, to scale and the short ones enlarged; its
numbers are exact and add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from latmon.analysis.attribution import PARTS, Folded
from latmon.model.devices import is_volume, thread_sentence
from latmon.model.frame import OPS, UNACCOUNTED, FileOperation, Outlier, Wait, pid_of
from latmon.model.histogram import bucket_bounds
from latmon.model.inflight import AGES_S, Aged
from latmon.model.measurements import ABOVE
from latmon.model.stages import LETTERS, WORKER, StageSum, called, explained, stage_sum
from latmon.support.units import UNKNOWN, duration, part, show_size, spelled, whole, with_unit
from latmon.views.bars import BAR, THIN, legend, letter_role, role, short, stacked
from latmon.views.context import ViewState, no_rows
from latmon.views.heatmap import Ink
from latmon.views.history import History
from latmon.views.lines import (
    BLANK,
    ORDER,
    ROW,
    TIME,
    Field,
    Line,
    Span,
    Target,
    around,
    cell,
    cut,
    empty_panel,
    ends,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    row,
    targeted,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.panels.findings import beside_nothing, next_steps, of_device
from latmon.views.selection import shown
from latmon.views.units import count, exact, meanwhile, moment, off_total, percent, size, span, span_if_part, until

ORDERS = ("longest", "newest")
_LETTERS = {"sync": "S", "fua": "F", "meta": "M", "preflush": "P", "readahead": "A", "background": "B"}
_WORDS, _ALL_WORDS = 15, 20
"""Cells from which on an op and its flags are words, and the most of them."""
_SHORT = 15
"""Cells up to which stage names are short."""
_SORTED = {"longest": "total", "newest": "time"}
_HEAD = 2
"""Lines above the rows."""
OWN = "own: "
"""Prefix of a process of latmon or its probe tool."""
_LONG = 16
"""Cells of a device's name, at most."""
_NAME = 13
"""Cells of a stage's name with its letter before it."""
_TIME = 13
_PERCENT = 6
_MIN_BAR = 8
_ROOMY = 100
"""Cells from which on the facts are in two columns, and threads that waited have bars."""
_LABEL = 13
_WITH_DETAIL = 13
"""Lines from which on the selected outlier is below a list that leaves them."""
_WITH_FINDING = 30
"""Lines from which on the finding of its device is below an outlier."""
_NEAR = 64
_NEAR_LINES = 6
"""Lines of the neighbours that must fit below the enlarged stages."""
_TICKS = (1, 2, 5, 10)
_LENGTHS = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_TICK_CELLS = 10
_READ = "each part begins where the one above ended"


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows in the order of the screen; keys find rows in the same order."""

    rows: tuple[Folded, ...] = ()
    order: str = "longest"
    above: int = 0
    """Number of I/Os above the threshold."""
    reported: int = 0
    """Number of them in the rows."""
    suppressed: int = 0
    """Number left out by the rate limit, of all devices and the whole window."""
    where: str = ""
    """The filter in words: a device, a region of its map; empty for all."""
    by_moment: bool = False
    """The filter is a region of a map: I/Os above the threshold, or left out, are not counted in it."""
    threshold: str = "the threshold"
    """By which the I/Os are logged, which may be another one than that of the map."""

    @property
    def left_out(self) -> str:
        """Return what is missing in the rows: I/Os left out by the rate limit, and those not in the log."""
        if self.by_moment:
            return "the rate limit may have left out some" if self.suppressed else ""
        missing = max(self.above - self.reported, 0)
        limited = min(missing, self.suppressed)
        parts = [f"{count(limited)} left out by the rate limit"] if limited else []
        return ", ".join([*parts, *([f"{count(missing - limited)} not logged"] if missing > limited else [])])

    def find(self, outlier: Outlier | None) -> int:
        """Return the row of an outlier; the first row when it is gone."""
        if outlier is None:
            return 0
        # comparing values whole would take 6 ms for 10,000 rows
        near = (i for i, r in enumerate(self.rows) if r.outlier.mono_us == outlier.mono_us)
        return next((i for i in near if self.rows[i].outlier == outlier), 0)


def listing(
    folded: Sequence[Folded],
    *,
    order: str = "longest",
    above: int = 0,
    suppressed: int = 0,
    where: str = "",
    by_moment: bool = False,
    wanted: Callable[[Outlier], bool] | None = None,
    threshold: str = "the threshold",
) -> Listing:
    """Return the rows in an order.

    `folded`: oldest first; `wanted`: the filter, `where`: the filter in words; `threshold`: that of the log, in words.
    """
    wanted_rows = [f for f in folded if wanted is None or wanted(f.outlier)]
    wanted_rows.reverse()
    if order != "newest":
        wanted_rows = sorted(wanted_rows, key=lambda f: -f.outlier.total_us)  # of equal ones the newest first
    return Listing(
        rows=tuple(wanted_rows),
        order=order,
        above=above,
        reported=sum(f.repeats for f in wanted_rows),
        suppressed=suppressed,
        where=where,
        by_moment=by_moment,
        threshold=threshold,
    )


def outliers(shown: Listing, selected: int, width: int, height: int, ink: Ink, *, why: str = "") -> list[Line]:
    """Return headline, titles, rows and legend; `why`: the reason for an empty list."""
    if not shown.rows:
        return cut([_head(shown, width), *empty_panel(why, width, height - 1)], height)
    placed = layout(_fields(shown.rows, ink), width)
    at = min(max(selected, 0), len(shown.rows) - 1)
    seen = around(len(shown.rows), at, height)
    listed = [shown.rows[i].outlier for i in seen]
    letters = [*legend(_stages(shown, seen), width, ink), *_included(shown, seen, width)]
    if any(field.title == "op" and cells < _op_words(shown.rows) for field, cells in placed):
        letters += op_legend([(outlier.op, outlier.flags) for outlier in listed], width)
    letters = letters if len(letters) < height - _HEAD - 2 else []
    shown_range = around(len(shown.rows), at, height - _HEAD - len(letters))
    orders = {title: order for order, title in _SORTED.items()}
    titles = heads(placed, _SORTED.get(shown.order, ""), above=shown_range.start, kind=ORDER, orders=orders)
    lines = [_head(shown, width), titles]
    for i in shown_range:
        line = fit(row(placed, shown.rows[i], selected=i == at), width)
        lines.append(targeted(line, Target(ROW, key_of(shown.rows[i].outlier))))
    return [fit(line, width) for line in (*lines, *letters)][:height]


def key_of(outlier: Outlier) -> Hashable:
    """Return what identifies an outlier in a list."""
    return outlier.device, outlier.op, outlier.mono_us, outlier.total_us, outlier.sector


def no_outliers(
    thresholds_us: Mapping[str, int],
    *,
    length_us: int,
    above: int = 0,
    where: str = "",
    by_moment: bool = False,
    waiting: Sequence[Aged] = (),
    moves: bool = False,
) -> str:
    """Return why the list is empty; `waiting`: the I/Os in flight; `moves`: the thresholds are the latest of many."""
    over = f"in the last {span(length_us)}"
    if above and by_moment:
        return f"no outlier was logged in {where}; {count(above)} I/Os are above the threshold {over}"
    if above:
        seen = f"in {where}" if where else "was reported"
        return f"{count(above)} I/Os above the threshold {over}, but none of them {seen}"
    if not thresholds_us:
        return "no threshold is known: no device did enough I/O yet, or this source logs no outliers"
    limits = sorted(set(thresholds_us.values()))
    only = f"{where}: " if where else ""
    now = "now " if moves else ""
    which = f"the threshold ({now}{spelled(limits[0])})" if moves else spelled(limits[0])
    if len(limits) > 1:
        which = f"its device's threshold ({now}{spelled(limits[0])} to {spelled(limits[-1])})"
    return f"{only}no I/O above {which} completed {over}{_older(waiting, limits[-1])}"


def _older(waiting: Sequence[Aged], limit_us: int) -> str:
    """Return `; 300 older than 1 s are in flight, 3 shows them`; empty where none is as old."""
    age_s = next((age for age in AGES_S if age * 1_000_000 >= limit_us), AGES_S[-1])
    older = sum(io.count for io in waiting if io.age_us >= age_s * 1_000_000)
    is_or_are, them = ("is", "it") if older == 1 else ("are", "them")
    words = f"; {count(older)} older than {spelled(age_s * 1_000_000)} {is_or_are} in flight, 3 shows {them}"
    return words if older else ""


def op_letters(outlier: Outlier) -> str:
    """Return the op's letter, then a letter per flag, as in the kernel's traces: WSM."""
    return letters(outlier.op, outlier.flags)


def letters(op: str, flags: Iterable[str]) -> str:
    """Return the letters of an op and its flags."""
    return op[:1].upper() + "".join(_LETTERS.get(flag, "") for flag in flags)


def _op_words(rows: Sequence[Folded]) -> int:
    """Return the cells from which on ops and flags are words."""
    return min(max(len(_in_words(folded)) for folded in rows), _WORDS)


def op_legend(ops: Sequence[tuple[str, Iterable[str]]], width: int) -> list[Line]:
    """Return what the letters of ops and flags mean, of those that are on the screen."""
    flags = {flag for _, of_io in ops for flag in of_io}
    names = [f"{op[:1].upper()} {op}" for op in OPS if op in {name for name, _ in ops}]
    more = [f"{letter} {flag}" for flag, letter in _LETTERS.items() if flag in flags]
    text = f"op: {', '.join(names)}" + (f"; then {', '.join(more)}" if more else "")
    return [fit((Span(f" {text}", "dim"),), width)] if names else []


def issuer(outlier: Outlier) -> str:
    """Return comm/pid of the process that issued it, as far as that is known, and whether it is latmon's own."""
    own = OWN if outlier.own else ""
    if outlier.pid is None:
        return f"{own}{outlier.comm}" if outlier.comm else UNKNOWN
    return f"{own}{outlier.comm}/{outlier.pid}" if outlier.comm else f"{own}pid {outlier.pid}"


def parts_of(outlier: Outlier) -> Mapping[str, float]:
    """Return the time of each stage by its column name, and the unaccounted time."""
    return {name: us for name, us in sum_of(outlier).parts.items() if us > 0}


def _head(shown: Listing, width: int) -> Line:
    """Return the headline: the numbers of I/Os, shown and left out, in as many words as fit."""
    left = (Span(" slow I/Os", "strong"), Span(f" {shown.where}" if shown.where else ""))
    if not shown.rows and not shown.above:
        return heading((*left, Span("  none", "dim")), width)
    reported, above = count(shown.reported), count(shown.above)
    rows = (
        f" in {count(len(shown.rows))} row{'s' * (len(shown.rows) != 1)}" if len(shown.rows) != shown.reported else ""
    )
    left_out = f", {shown.left_out}" if shown.left_out else ""
    of = f"{reported} logged" if shown.by_moment else f"{reported} of {above}"
    texts = (
        f"  {shown.order} first  {of}{'' if shown.by_moment else f' above {shown.threshold}'}{rows}{left_out}",
        f"  {shown.order} first  {of}{rows}{left_out}",
        f"  {of}{left_out}",
        f"  {of}{', maybe more' if left_out and shown.by_moment else left_out.replace(' by the rate limit', '')}",
    )
    room = width - line_width(left) - ends(width)
    text = next((t for t in texts if len(t) <= room), texts[-1])
    return heading((*left, Span(text, "strong" if left_out else "text")), width)


def _stages(shown: Listing, shown_range: range) -> set[str]:
    return {stage for i in shown_range for stage in parts_of(shown.rows[i].outlier)}


def _included(shown: Listing, shown_range: range, width: int) -> list[Line]:
    """Return a sentence for each interval among the rows' names."""
    texts = {
        name: explained(stage, inside)
        for i in shown_range
        for stage, inside in shown.rows[i].outlier.includes.items()
        if (name := called(stage, inside).column) != stage and name in parts_of(shown.rows[i].outlier)
    }
    return [line for text in texts.values() for line in paragraph(text, width, "dim")]


def _fields(rows: Sequence[Folded], ink: Ink) -> list[Field[Folded]]:
    """Return the columns: the device's is as wide as the longest name, and repeats have one where there are some."""
    name = min(max([7, *(len(folded.outlier.device) for folded in rows)]), _LONG)
    taken = min(name - 7, 5)
    """Cells that the issuer loses to a long device name."""
    repeats: Field[Folded] = Field("", 4, lambda f, _: f"x{whole(f.repeats)}" if f.repeats > 1 else "", role="accent")

    any_failed = any(folded.outlier.status for folded in rows)
    slow_part = "part, status" if any_failed else "slow part"
    words = min(max(len(_in_words(folded)) for folded in rows), _ALL_WORDS)
    words_from = _op_words(rows)

    def op(f: Folded, cells: int) -> str:
        return _op_in(f, cells) if cells >= words_from else op_letters(f.outlier)

    def ribbon(f: Folded, cells: int) -> Line:
        return stacked(parts_of(f.outlier), cells, ink)

    return [
        Field("time", 15, lambda f, _: moment(f.outlier.wall), right=False),
        Field("device", 7 + taken, lambda f, _: f.outlier.device, right=False, most=name),
        Field("op", 4, op, rank=1, right=False, most=words),
        Field("size", 5, lambda f, _: size(f.outlier.bytes), rank=1),
        Field("total", TIME, lambda f, _: duration(f.outlier.total_us)),
        Field("stages", 7, ribbon, right=False, most=60),
        Field(slow_part, 12, _most, rank=1, right=False, most=20 if any_failed else 16),
        Field("process", 10 - taken, _issuer_cell, rank=1, right=False, most=20, role="dim"),
        Field("path", 14, lambda f, _: f.outlier.path, rank=3, right=False, most=20, role="dim"),
        Field("CPU issue>done", 14, _cpu_cell, rank=2),
        Field("at issue", 8, lambda f, _: _whole(f.outlier.outstanding_at_issue), rank=3),
        Field("overtaken by", 12, lambda f, _: _whole(f.outlier.overtaken_by), rank=2),
        Field("sector", 15, lambda f, _: _thousands(f.outlier.sector), rank=3),
        *([repeats] if any(folded.repeats > 1 for folded in rows) else []),
    ]


def _in_words(f: Folded) -> str:
    return " ".join((f.outlier.op, *f.outlier.flags))


def _op_in(f: Folded, cells: int) -> str:
    """Return an op with as many of its flags as fit, and the number of the others: `flush sync +1`."""
    words = (f.outlier.op, *f.outlier.flags)
    variants = (" ".join(words[:many]) for many in range(len(words), 0, -1))
    numbered = (text if not left else f"{text} +{left}" for left, text in enumerate(variants))
    return next((text for text in numbered if len(text) <= cells), op_letters(f.outlier))


def _issuer_cell(f: Folded, cells: int) -> str:
    """Return the issuer, without the pid where it has no room."""
    whole_name = issuer(f.outlier)
    return whole_name if len(whole_name) <= cells else f"{OWN if f.outlier.own else ''}{f.outlier.comm}" or whole_name


def _most(f: Folded, cells: int) -> Line:
    """Return the largest stage, in place of it how a failed I/O failed: the bar has its stages."""
    if f.outlier.status:
        return (Span(cell(f.outlier.status, cells), "bad"),)
    parts = parts_of(f.outlier)
    if not parts:
        return (Span(cell("not traced", cells), "dim"),)
    top = max(parts, key=lambda stage: parts[stage])
    name = top if cells > _SHORT else short(top)
    return (Span(cell(f"{part(parts[top] / sum(parts.values())):>4} {name}", cells)),)


def _cpu_cell(f: Folded, _cells: int) -> str:
    issued, completed = f.outlier.cpu_issue, f.outlier.cpu_complete
    if issued is None:
        return UNKNOWN if completed is None else f"done {completed}"
    return f"{issued}>{UNKNOWN if completed is None else completed}"


def _whole(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _thousands(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


_WHO, _WIDE_WHO = 17, 29
"""Cells of a neighbour's device and process, below _ROOMY and from there on."""
_LONGER, _LEAST_FACTOR = 1.25, 4
"""Time of the enlarged section by that of its short stages, and the least factor by which it is enlarged."""
_TWICE, _MOST_OF_IT = 2, 0.5


@dataclass(frozen=True, slots=True)
class Piece:
    """A stage's time within the I/O; `placed` is False for unaccounted time, whose place isn't known."""

    stage: str
    begin_us: int
    us: int
    placed: bool = True


class Section(NamedTuple):
    """A part of an I/O's time, in us since its begin, and the cells that it is drawn in."""

    begin_us: int
    end_us: int
    cells: int

    def at(self, us: int) -> int:
        """Return the cell of a time, at the outermost ones for a time outside."""
        share = (us - self.begin_us) / max(self.end_us - self.begin_us, 1)
        return min(max(round(share * self.cells), 0), self.cells)


def waterfall(
    outlier: Outlier,
    width: int,
    height: int,
    ink: Ink,
    *,
    repeats: int = 1,
    near: Sequence[Outlier] = (),
    unknown: str = "",
    top: int = 0,
    recorded: bool = False,
    p50_us: int | None = None,
) -> list[Line]:
    """Return an I/O's facts, its stages to scale, short ones enlarged, waiting threads, and the outliers around it.

    `repeats`: number of I/Os in the row; `near`: neighbours in time; `unknown`: why some of them may not be known;
    `top`: first line; `recorded`: of a recording; `p50_us`: that of its device.
    """
    above = _headlines(outlier, repeats, width, p50_us)
    beside = _near_lines(outlier, near, width, ink, unknown)
    room = max(height - len(above) - min(len(beside), _NEAR_LINES), 0)
    row_variants = _drawn(outlier, width, ink, recorded=recorded)
    drawn = next((lines for lines in row_variants if len(lines) <= room), row_variants[-1])
    return cut([fit(line, width) for line in (*above, *drawn, *beside)], height, top, key="PgDn: ")


def _drawn(outlier: Outlier, width: int, ink: Ink, *, recorded: bool) -> list[list[Line]]:
    """Return the drawings of the stages, the longest one first."""
    drawn_pieces = pieces(outlier)
    sentences = [(wait.stage, wait_lines(outlier, wait, width)) for wait in outlier.waits]
    if not any(p.stage != UNACCOUNTED for p in drawn_pieces):
        return [
            [
                BLANK,
                *paragraph(_untraced(outlier, recorded=recorded), width),
                *(t for _, lines in sentences for t in lines),
            ]
        ]
    whole_time = Section(0, outlier.total_us, width - _NAME - _TIME - _PERCENT - 5)
    rows = {p.stage: _stage(outlier, p, whole_time, ink) for p in drawn_pieces}
    is_drawn = whole_time.cells >= _MIN_BAR
    ruler = _scaled(whole_time, "waterfall", "to scale", width, note=_READ) if is_drawn else [BLANK]
    total = _sum(outlier, width)
    enlarged = _enlarged(outlier, drawn_pieces, whole_time, width, ink)
    waits = _waiting_threads(outlier, whole_time, width, ink) if width >= _ROOMY else []
    drawn = [line for p in drawn_pieces for line in rows[p.stage]]
    worded = [line for p in drawn_pieces for line in (*rows[p.stage], *_of(p.stage, sentences))]
    remaining_lines = [line for stage, lines in sentences if stage not in rows for line in lines]
    plain: list[Line] = [*ruler, *worded, total, *remaining_lines]
    row_variants = [[*ruler, *drawn, total, *enlarged, *waits]] if waits else []
    return [*row_variants, *([[*plain, *enlarged]] if enlarged else []), plain]


def _of(stage: str, sentences: Sequence[tuple[str, list[Line]]]) -> list[Line]:
    return [line for of, lines in sentences if of == stage for line in lines]


def _enlarged(outlier: Outlier, pieces: Sequence[Piece], whole_time: Section, width: int, ink: Ink) -> list[Line]:
    """Return the short stages on that side of the longest one where they take more time, in a scale of their own."""
    longest = max(pieces, key=lambda p: p.us)
    before, after = longest.begin_us, outlier.total_us - longest.begin_us - longest.us
    length = _length(max(before, after) * _LONGER)
    is_first = before >= after
    shorter = [p for p in pieces if p.us and p is not longest and (p.begin_us < longest.begin_us) == is_first]
    hidden = [p for p in shorter if p.us * whole_time.cells < 2 * outlier.total_us]
    if whole_time.cells < _MIN_BAR or not hidden or length * _LEAST_FACTOR > outlier.total_us:
        return []
    begin_us = 0 if is_first else outlier.total_us - length
    section = Section(begin_us, begin_us + length, whole_time.cells)
    times = outlier.total_us / length
    caption = f"{'first' if is_first else 'last'} {spelled(length)}"
    ruler = _scaled(section, caption, f"{_rounded(times)}x larger", width)
    drawn = [*shorter, longest] if is_first else [longest, *shorter]
    return [*ruler, *(line for p in drawn for line in _stage(outlier, p, section, ink, brief=True))]


def _rounded(times: float) -> str:
    """Return a ratio in two digits: 8,300."""
    return f"{float(f'{times:.2g}'):,.0f}"


def _length(us: float) -> int:
    """Return the least round time of at least so many us."""
    power: int = 10 ** max(math.floor(math.log10(max(us, 1))), 0)
    return math.ceil(next(n for n in _LENGTHS if n * power >= us) * power)


def _scaled(section: Section, caption: str, more: str, width: int, *, note: str = "") -> list[Line]:
    """Return a heading with what a section shows, and its times below it; on a narrow screen both are in one line."""
    name = (Span(f" {caption}", "strong"), Span(f" {more}", "dim"))
    if width < _ROOMY:
        return [BLANK, (*name, *_times_of(section, _NAME + _TIME + 3 - line_width(name)))]
    return [heading(name, width, (Span(f"{note} ", "dim"),) if note else BLANK), _times_of(section, _NAME + _TIME + 3)]


def _times_of(section: Section, before: int) -> Line:
    """Return round times since the begin of a section at their cells, after so many blanks."""
    length = section.end_us - section.begin_us
    least = length * _TICK_CELLS / section.cells
    power = 10 ** max(math.floor(math.log10(max(least, 1))), 0)
    step = next(n * power for n in _TICKS if n * power >= least)
    text = ""
    for us in range(0, length, step):
        x, label = section.at(section.begin_us + us), f"┬{with_unit(us) if us else '0'}"
        if x + len(label) <= section.cells:
            text = f"{text:<{x}}{label}"
    return (Span(" " * before + text, "dim"),)


def _waiting_threads(outlier: Outlier, whole_time: Section, width: int, ink: Ink) -> list[Line]:
    """Return for each thread that was woken a bar of its wait to scale, the thread that had its CPU, and the times."""
    before = _NAME + _TIME + 2
    lines: list[Line] = []
    for wait in outlier.waits:
        lines.append((Span(f"{cell(f' {_thread(wait)}', before)} "), *_wait_bar(outlier, wait, whole_time, ink)))
        had_cpu = _had_cpu(wait)
        lines.append(
            (
                Span(f"{cell(f' {wait.instead}', before)} "),
                Span(had_cpu, "bad"),
                Span(f"{'  ' if had_cpu else ''}{_woken(outlier, wait)}", "dim"),
            )
        )
    return [*_scaled(whole_time, "CPU meanwhile", "to scale", width), *lines] if lines else []


def _had_cpu(wait: Wait) -> str:
    """Return how long the other thread had the CPU, or that it is only known to have run last; empty without one."""
    if not wait.instead:
        return ""
    if not wait.ran_us:
        return "ran last before that"
    return f"had its CPU{span_if_part(wait.ran_us, wait.delay_us) or ' until then'}"


def _wait_bar(outlier: Outlier, wait: Wait, whole_time: Section, ink: Ink) -> Line:
    """Return the time from a wake-up until the thread ran, and from there the rest of its stage."""
    woken_us = wait.woken_us - outlier.mono_us
    ran_us = woken_us + wait.delay_us
    ends = [p.begin_us + p.us for p in pieces(outlier) if p.stage == wait.stage]
    begin, ran = whole_time.at(woken_us), whole_time.at(ran_us)
    begin = min(begin, whole_time.cells - 1)
    wide = max(ran - begin, 1)
    words = " runnable, waits for the CPU "
    inside = f"{words:░^{wide}}" if len(words) + 4 <= wide else "░" * wide
    after = max(whole_time.at(max(ends, default=0)) - begin - wide, 0)
    return (Span(" " * begin), Span(inside, "dim"), Span(_fill(ink) * after, role(wait.stage, ink)))


def neighbours(outlier: Outlier, others: Iterable[Outlier]) -> tuple[Outlier, ...]:
    """Return the host's other outliers in flight at the same time, in the order of their begin; 64 at most.

    Those that share its device, a thread or the CPU of its completion come before others.
    """
    end = outlier.mono_us + outlier.total_us
    outliers = [o for o in others if o != outlier and o.mono_us <= end and o.mono_us + o.total_us >= outlier.mono_us]
    outliers.sort(
        key=lambda o: (not (o.device == outlier.device or _same_thread(outlier, o) or _same_cpu(outlier, o)), o.mono_us)
    )
    return tuple(sorted(outliers[:_NEAR], key=lambda o: o.mono_us))


def _same_thread(outlier: Outlier, other: Outlier) -> bool:
    """Return whether both waited for the same thread."""
    return bool(_threads(outlier) & _threads(other))


def _same_cpu(outlier: Outlier, other: Outlier) -> bool:
    """Return whether both were completed on one CPU, as those of one interrupt are."""
    return outlier.cpu_complete is not None and outlier.cpu_complete == other.cpu_complete


def pieces(outlier: Outlier) -> tuple[Piece, ...]:
    """Return the stages end to end; unaccounted time is put before the waiter's resume, its place isn't known."""
    known = [p for p in PARTS if p not in ("resume", UNACCOUNTED)]
    order = [*known, *(s for s in outlier.stages_us if s not in PARTS), UNACCOUNTED, "resume"]
    times = {**outlier.stages_us, UNACCOUNTED: outlier.unaccounted_us}
    pieces, at = [], 0
    for stage in order:
        if stage in times:
            pieces.append(Piece(stage, at, times[stage], placed=stage != UNACCOUNTED))
            at += times[stage]
    return tuple(pieces)


def sum_of(outlier: Outlier) -> StageSum:
    """Return the sum of an outlier's stages."""
    return stage_sum(outlier.stages_us, outlier.includes, outlier.unaccounted_us, outlier.total_us)


def _headlines(outlier: Outlier, repeats: int, width: int, p50_us: int | None = None) -> list[Line]:
    """Return the facts of an I/O: in two columns with labels where there is room."""
    unknown = "the block layer sends flushes itself" if outlier.op == "flush" else "issuer not known"
    process = unknown if issuer(outlier) == UNKNOWN else issuer(outlier)
    what = [outlier.device, " ".join((outlier.op, *outlier.flags))]
    what += [show_size(outlier.bytes)] if outlier.bytes is not None else []
    many = [f"x{repeats:,}"] if repeats > 1 else []
    total = f"{exact(outlier.total_us)} {until(outlier.stages_us)}"
    times = _times(outlier, p50_us)
    if width >= _ROOMY:
        head = heading((Span("  ".join([f" {moment(outlier.wall)}", *what, *many]), "strong"),), width)
        return [
            head,
            *_two_columns(_facts(outlier, total, times), _others(outlier, process), width),
            *_cause(outlier, width),
        ]
    what += [process, *many]
    failed = [f"failed: {outlier.status}"] if outlier.status else []
    facts = [f"total {total}", *failed, *([times] if times else []), *_cpus(outlier)]
    facts += [f"sector {outlier.sector:,}"] if outlier.sector is not None else []
    facts += (
        [f"{outlier.outstanding_at_issue:,} in flight at issue"] if outlier.outstanding_at_issue is not None else []
    )
    facts += [f"overtaken by {outlier.overtaken_by:,}"] if outlier.overtaken_by is not None else []
    facts += [f"path: {outlier.path}"] if outlier.path else []
    first, *more_lines = _joined([moment(outlier.wall), *what], width + 1 - ends(width))
    spans: list[Line] = [heading((Span(first, "strong"),), width), *((Span(text, "strong"),) for text in more_lines)]
    return spans + [(Span(text),) for text in _joined(facts, width)]


def _two_columns(left: Sequence[LabelledFact], right: Sequence[LabelledFact], width: int) -> list[Line]:
    """Return facts beside each other; the left ones get more than half of the width where the right ones leave it."""
    lefts, rights = (
        [(Span(f" {labelled_fact.label:<{_LABEL}}", "dim"), *labelled_fact.value) for labelled_fact in labelled_facts]
        for labelled_facts in (left, right)
    )
    longest, other = (max((line_width(line) for line in lines), default=0) + 1 for lines in (lefts, rights))
    half = max(width // 2, min(longest, width - other))
    return [(*fit(first, half), *second) for first, second in zip_longest(lefts, rights, fillvalue=())]


class LabelledFact(NamedTuple):
    """A fact of an I/O with its label."""

    label: str
    value: Line


def _facts(outlier: Outlier, total: str, times: str) -> list[LabelledFact]:
    """Return its total, and the facts of its issue and its path."""
    cpu = [f"on CPU {outlier.cpu_issue}"] if outlier.cpu_issue is not None else []
    cpu += [f"{outlier.outstanding_at_issue:,} in flight"] if outlier.outstanding_at_issue is not None else []
    facts = {
        "issued": ", ".join(cpu),
        "place": "" if outlier.sector is None else f"sector {outlier.sector:,}",
        "path": outlier.path,
    }
    more = (Span(f"  {times}", "bad"),) if times else ()
    return [
        LabelledFact("total", (Span(total, "strong"), *more)),
        *(LabelledFact(name, (Span(text),)) for name, text in facts.items() if text),
    ]


def _others(outlier: Outlier, process: str) -> list[LabelledFact]:
    """Return the process, and the facts of its completion."""
    facts = {
        "status": outlier.status and f"failed: {outlier.status}",
        "process": process,
        "completed": "" if outlier.cpu_complete is None else f"on CPU {outlier.cpu_complete}",
        "overtaken by": "" if outlier.overtaken_by is None else f"{outlier.overtaken_by:,} I/Os issued later",
    }
    return [LabelledFact(name, (Span(text),)) for name, text in facts.items() if text]


def _cause(outlier: Outlier, width: int) -> list[Line]:
    """Return the wait of a thread for its CPU that took most of the time."""
    late = next((w for w in outlier.waits if w.instead and w.delay_us * 2 >= outlier.total_us), None)
    if late is None:
        return []
    text = f"{_thread(late)} was woken and ran {exact(late.delay_us)} later, after {late.instead}"
    if late.ran_us:
        ran_text = f"{late.instead} had its CPU{span_if_part(late.ran_us, late.delay_us)}"
        text = f"{_thread(late)} was woken and did not run: {ran_text}"
    first, *more_lines = wrap(text, width - _LABEL - 2)
    return [
        (Span(f" {'cause':<{_LABEL}}", "dim"), Span(first, "strong")),
        *((Span(f" {'':<{_LABEL}}"), Span(text, "strong")) for text in more_lines),
    ]


def _times(outlier: Outlier, p50_us: int | None) -> str:
    """Return by how many times it is longer than the p50 of its device; empty where that is less than twice."""
    times = outlier.total_us / p50_us if p50_us else 0.0
    return f"{_rounded(times)} x the p50 of {outlier.device}" if times >= _TWICE else ""


def _cpus(outlier: Outlier) -> list[str]:
    issued = f"issued on CPU {outlier.cpu_issue}" if outlier.cpu_issue is not None else ""
    done = f"completed on CPU {outlier.cpu_complete}" if outlier.cpu_complete is not None else ""
    return [", ".join(t for t in (issued, done) if t)] if issued or done else []


def _joined(words: Sequence[str], width: int) -> list[str]:
    """Return facts two blanks apart, in as many lines as they need; a fact that fits a line isn't broken."""
    lines: list[str] = []
    for word in words:
        for text in wrap(word, width - 2):
            if lines and len(lines[-1]) + 2 + len(text) <= width - 1:
                lines[-1] += f"  {text}"
            else:
                lines.append(f" {text}")
    return lines


def _stage(outlier: Outlier, piece: Piece, section: Section, ink: Ink, *, brief: bool = False) -> list[Line]:
    """Return a stage with its bar in a section, and what it includes. `brief`: the bar alone, for a second drawing."""
    share = piece.us / outlier.total_us if outlier.total_us else 0.0
    inside = outlier.includes.get(piece.stage, ())
    name, bold = called(piece.stage, inside).column, "strong" if share >= _MOST_OF_IT else ""
    letter = Span(f" {LETTERS.get(name, ' ')} ", letter_role(name, ink))
    left = (
        letter,
        Span(f"{cell(name, _NAME - 2)} ", bold or "text"),
        Span(f"{exact(piece.us):>{_TIME}} ", bold or "text"),
    )
    bar = _bar(piece, section, ink) if section.cells >= _MIN_BAR else ()
    line = (*left, *bar, Span(f" {_percent(share):>{_PERCENT}}", bold or "dim"))
    room = max(section.cells + _TIME + _PERCENT + 2, _MIN_BAR)
    caption = wrap(explained(piece.stage, inside), room) if inside and not brief else []
    if piece.stage == "hba" and WORKER not in outlier.stages_us and share >= _MOST_OF_IT and not brief:
        caption += wrap(thread_sentence(outlier.device, stage=name), room)
    return [line, *((Span(f"{'':{_NAME + 2}}{text}", "dim"),) for text in caption)]


def _percent(share: float) -> str:
    return "0%" if not share else "<0.01%" if share < 5e-5 else percent(share)  # noqa: PLR2004  what rounds away


def _bar(piece: Piece, section: Section, ink: Ink) -> Line:
    """Return the bar of a stage in a section; below half a cell it is a thin line, without time it is blank."""
    begin_us, end_us = max(piece.begin_us, section.begin_us), min(piece.begin_us + piece.us, section.end_us)
    if end_us <= begin_us:
        return (Span(" " * section.cells),)
    begin, end = min(section.at(begin_us), section.cells - 1), section.at(end_us)
    is_wide = end > begin and 2 * (end_us - begin_us) * section.cells >= section.end_us - section.begin_us
    mark = (_fill(ink) if piece.placed else "?") * (end - begin) if is_wide else THIN if ink.coloured else "|"
    if piece.begin_us < section.begin_us:
        mark = f"{'◂' if ink.coloured else '<'}{mark[1:]}"
    if piece.begin_us + piece.us > section.end_us:
        mark = f"{mark[:-1]}{'▸' if ink.coloured else '>'}"
    return (
        Span(" " * begin),
        Span(mark, role(piece.stage, ink)),
        Span(" " * (section.cells - begin - len(mark))),
    )


def _fill(ink: Ink) -> str:
    return BAR if ink.coloured else "█"


def wait_lines(slow_io: Outlier | FileOperation, wait: Wait, width: int) -> list[Line]:
    """Return when a thread was woken, how much later it ran, and which thread had its CPU."""
    instead = meanwhile(wait.instead, wait.ran_us, wait.delay_us)
    line_variants = [
        wrap(f"{_thread(wait)} {_woken(slow_io, wait, brief=brief)}{instead}", width - 4) for brief in (False, True)
    ]
    return [(Span(f"   {t}", "accent"),) for t in min(line_variants, key=len)]


def _woken(slow_io: Outlier | FileOperation, wait: Wait, *, brief: bool = False) -> str:
    """Return when a thread was woken, and when it ran or how much later."""
    woken = slow_io.wall + (wait.woken_us - slow_io.mono_us) / 1e6
    ran = "" if brief else f"{moment(woken + wait.delay_us / 1e6)}, "
    return f"woken {moment(woken)}, ran {ran}{exact(wait.delay_us)} later"


def _thread(wait: Wait) -> str:
    """Return a thread as comm/pid (prio N)."""
    pid = pid_of(wait.pid)
    return f"{wait.thread}{'' if pid is None else f'/{pid}'} (prio {wait.priority})"


def _sum(outlier: Outlier, width: int) -> Line:
    """Return the sum beside the total, and its parts where they fit."""
    sums_by_stage = sum_of(outlier)
    left = (Span(f" {'sum':<{_NAME}} ", "dim"), Span(f"{exact(sums_by_stage.whole):>{_TIME}}", "dim"))
    off = off_total(sums_by_stage.missing)
    if off:
        return (*left, Span(f"  {off}", "bad"))
    parts = " + ".join(f"{piece.us:,}" for piece in pieces(outlier))
    exactly = f"  = total: {parts} = {sums_by_stage.whole:,} us"
    return (*left, Span(exactly if line_width(left) + len(exactly) <= width else "  = total", "dim"))


def _untraced(outlier: Outlier, *, recorded: bool) -> str:
    if outlier.unaccounted_us and outlier.path:
        return f"stages not known: its path could not be followed ({outlier.path})"
    text = "stages were not traced then: the tracer was off, or traced a sample"
    return text if recorded else f"{text}; S or --stages all traces the next ones"


def _near_lines(outlier: Outlier, near: Sequence[Outlier], width: int, ink: Ink, unknown: str) -> list[Line]:
    if not near:
        sentences = ("no other outlier of any device at the same time", unknown)
        return [BLANK, *paragraph("; ".join(text for text in sentences if text), width, "dim")]
    words = _near_words(outlier, near)
    name = (Span(" at the same time", "strong"), Span(f"  {words.replace(' at the same time', '')}", "dim"))
    is_headed = width >= _ROOMY and line_width(name) + ends(width) <= width
    lines = [heading(name, width)] if is_headed else [BLANK, *paragraph(words, width)]
    begin, end = min(o.mono_us for o in (outlier, *near)), max(o.mono_us + o.total_us for o in (outlier, *near))
    names = _WHO if width < _ROOMY else _WIDE_WHO
    left = line_width(_near_name(outlier, "", names))
    room = width - left - 1
    if room < _MIN_BAR:
        return lines + [_near_name(o, _who(outlier, o), names) for o in near]
    lines.append(_near_axis(begin - outlier.mono_us, end - outlier.mono_us, left, room))
    drawn = [("this one", outlier, "text"), *((_who(outlier, o), o, "dim") for o in near)]
    return lines + [
        (*_near_name(o, who, names), *_near_bar(o, (begin, end), room, ink, role)) for who, o, role in drawn
    ]


def _near_words(outlier: Outlier, near: Sequence[Outlier]) -> str:
    """Return how many others there were at the same time, where, and what they share with this one."""
    others = "1 other" if len(near) == 1 else f"{len(near)}{' and more' if len(near) == _NEAR else ''} others"
    near_here, elsewhere = (
        sum(o.device == outlier.device for o in near),
        sorted({o.device for o in near} - {outlier.device}),
    )
    named = elsewhere[0] if len(elsewhere) == 1 else f"{len(elsewhere)} other devices"
    where = f" on {outlier.device}" if not elsewhere else f" on {named}" if not near_here else ""
    parts = [f"{others}{where} at the same time"]
    if elsewhere and near_here:
        parts.append(f"{near_here:,} on {outlier.device} and {len(near) - near_here:,} on {named}")
    threads, cpus = (sum(same(outlier, o) for o in near) for same in (_same_thread, _same_cpu))
    parts += [f"{threads:,} waited for the same thread"] if threads else []
    if cpus and elsewhere:
        parts.append(f"{cpus:,} completed on CPU {outlier.cpu_complete} too")
    return ", ".join(parts)


def _who(outlier: Outlier, other: Outlier) -> str:
    """Return the process of another outlier, after its device where that is another one."""
    return issuer(other) if other.device == outlier.device else f"{other.device} {issuer(other)}"


def _near_axis(from_us: int, to_us: int, left: int, room: int) -> Line:
    """Return the axis of the bars below, in time since this I/O began; `left`: the cells before it."""
    begin, end = f"-{duration(-from_us)}" if from_us else "0", f"+{duration(to_us)}"
    return (Span(f"{' since this one began':<{left}}{begin}{end:>{max(room - len(begin), 0)}}", "dim"),)


def _near_name(other: Outlier, who: str, cells: int) -> Line:
    return (Span(f" {cell(other.op, 5)} {cell(who, cells)} ", "dim"), Span(f"{duration(other.total_us):>{TIME}} "))


def _near_bar(other: Outlier, ends: tuple[int, int], room: int, ink: Ink, role: str) -> Line:
    """Return the bar of an I/O on the axis of all neighbours."""
    scale = room / max(ends[1] - ends[0], 1)
    at = min(int((other.mono_us - ends[0]) * scale), room - 1)
    length = max(1, min(round(other.total_us * scale), room - at))
    fill = "━" if ink.coloured else "-"
    return (Span(" " * at), Span(fill * length, role), Span(" " * (room - at - length)))


def _threads(outlier: Outlier) -> set[int]:
    return {wait.pid for wait in outlier.waits}


def log(view: ViewState) -> Listing:
    """Return the rows as they are shown: of the filter's devices, the selected ops, and the region if there is one."""
    selection, on_demand = view.selection, view.history.on_demand
    region, names = selection.region, _devices(view)
    above = sum(n for flow, n in on_demand[ABOVE].items() if flow.device in names and flow.op in selection.ops)
    suppressed = on_demand.suppressed
    if region is not None:  # of its device; the rate limit is one for all
        is_logged = _wanted(replace(view, selection=replace(selection, region=None)), names)
        logged = sum(folded.repeats for folded in view.history.folded if is_logged(folded.outlier))
        suppressed = 0 if _limit_above(view) else min(suppressed, max(above - logged, 0))
    return listing(
        view.history.folded,
        order=selection.order,
        above=above,
        suppressed=suppressed,
        where=_where(view),
        by_moment=region is not None,
        wanted=_wanted(view, names),
        threshold=_threshold(view),
    )


def _threshold(view: ViewState) -> str:
    """Return the threshold by which I/Os are logged in words; it may be another one than that of the map."""
    logged_us = None if view.origin is None else view.origin.threshold_us
    if logged_us is None:
        return "the automatic threshold"
    return "the threshold" if logged_us == view.selection.threshold_us else with_unit(logged_us)


def _limit_above(view: ViewState) -> int:
    """Return the threshold of the region's device in us where all of the region is below it, else 0."""
    region = view.selection.region
    limit = 0 if region is None else view.history.on_demand.thresholds_us.get(region.device, 0)
    is_below = region is not None and not region.region.open_above and bucket_bounds(region.region.high)[1] <= limit
    return limit if is_below else 0


def _devices(view: ViewState) -> set[str]:
    """Return the devices whose outliers are listed: the region's, else those that pass the filter."""
    region = view.selection.region
    names = {device.name for device in shown(view.history.store.devices.values(), view.selection)}
    return names if region is None else names & {region.device}


def outlier_position(rows: Listing, outlier: Outlier | None) -> int:
    """Return the row of an outlier; where another one represents its row now, the nearest in time."""
    at = rows.find(outlier)
    if outlier is None or not rows.rows or rows.rows[at].outlier == outlier:
        return at
    others = [(r.outlier.device != outlier.device, abs(r.outlier.mono_us - outlier.mono_us)) for r in rows.rows]
    return others.index(min(others))


def outliers_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the log around its selected row, or the waterfall of the opened row."""
    selection = view.selection
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    rows = log(view)
    at = outlier_position(rows, selection.outlier)
    if selection.opened and (selection.outlier or rows.rows):
        return _opened(view, rows, at, width, room)
    names = _devices(view)
    why = no_outliers(
        {name: us for name, us in view.history.on_demand.thresholds_us.items() if name in names},
        length_us=selection.window_us,
        above=rows.above,
        where=rows.where,
        by_moment=rows.by_moment,
        waiting=_waiting(view),
        moves=view.origin.threshold_us is None,
    )
    if limit := _limit_above(view):
        now = "now " if view.origin.threshold_us is None else ""
        why = f"no I/O of {rows.where} is logged: the threshold is {now}{spelled(limit)}"
    if not rows.rows and selection.op != "all":
        others = log(replace(view, selection=replace(selection, op="all"))).rows
        why += f"; {len(others)} of other ops: o" if others else ""
    lines = outliers(rows, at, width, room, view.ink, why=why)
    if not rows.rows:
        return [*lines, *beside_nothing(view, names, width, room - len(lines))]
    left = room - len(lines)
    return [*lines, *_opened(view, rows, at, width, left)] if left >= _WITH_DETAIL else lines


def _waiting(view: ViewState) -> list[Aged]:
    """Return the I/Os in flight with an age, of the listed devices and the selected ops.

    Those of a volume are left out where its disks have some: they are the same ones.
    """
    ops, known = view.selection.ops, view.history.store.devices
    each = (aged for name in _devices(view) for aged in view.history.ages.of(name))
    rows = [aged for aged in each if aged.request is None or aged.request.op in ops]
    busy = {aged.device for aged in rows}
    return [aged for aged in rows if not is_volume(known.get(aged.device), busy)]


def _opened(view: ViewState, rows: Listing, at: int, width: int, room: int) -> list[Line]:
    """Return the waterfall of the opened outlier; it stays open when the window no longer includes it."""
    row = rows.rows[at] if rows.rows else None
    outlier = view.selection.outlier or rows.rows[at].outlier
    repeats = row.repeats if row is not None and row.outlier == outlier else 1
    history = view.history
    # the window may have moved on; an I/O in flight when this one began is logged when it completes
    near = neighbours(outlier, history.store.on_demand.outliers(outlier.mono_us - 1, history.until_us))
    finding_lines = of_device(view, outlier.device, width) if room >= _WITH_FINDING else []
    lines = waterfall(
        outlier,
        width,
        room - len(finding_lines) - (bool(finding_lines) and not view.framed),
        view.ink,
        repeats=repeats,
        near=near,
        unknown=_unknown_neighbours(outlier, history),
        top=view.selection.top,
        recorded=view.recorded,
        p50_us=history.window.latency(outlier.device, OPS).quantile(0.5),
    )
    if not finding_lines:
        return lines
    steps = next_steps(view, outlier.device, width)
    lines = [*lines, *([] if view.framed else [BLANK]), *finding_lines]
    return [*lines, BLANK, *steps] if steps and len(lines) + 1 + len(steps) <= room else lines


def _unknown_neighbours(outlier: Outlier, history: History) -> str:
    """Return why not all outliers at the time of this one are known; empty where they are."""
    first, log = history.store.frames[0], history.store.on_demand
    if outlier.mono_us < max(first.mono_us - first.dt_us, log.cut_us):
        return "older ones are not in memory"
    left_out = history.on_demand.suppressed
    outliers = f"{count(left_out)} outlier{'s' * (left_out != 1)}"
    return f"the rate limit left out {outliers} in this window" if left_out else ""


def _wanted(view: ViewState, names: set[str]) -> Callable[[Outlier], bool]:
    ops, region = frozenset(view.selection.ops), view.selection.region

    def wanted(outlier: Outlier) -> bool:
        return outlier.device in names and outlier.op in ops and (region is None or region.holds(outlier))

    return wanted


def _where(view: ViewState) -> str:
    selection = view.selection
    if selection.region is not None:
        return selection.region.words
    parts = [f"on {selection.pattern}"] if selection.pattern else []
    return " ".join([*parts, *([selection.op] if selection.op != "all" else [])])
