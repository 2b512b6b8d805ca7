"""The compare panel: the paragraphs of `latmon diff` with heat strips of A and B, or the rows of a sweep.

All strips, and all plots of a sweep, share one scale, latency across; A is above B. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from latmon.diff import output, verdict
from latmon.diff.comparison import COLUMNS, SweepRow, SweepTable, Where
from latmon.diff.hypotheses import FEWEST_EXTREME
from latmon.diff.report import Capture, Change, DiffReport, PairReport, SweepReport
from latmon.findings.rule import WARNING
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.support.units import clock
from latmon.views.axes import level
from latmon.views.bars import fine, share_bar
from latmon.views.heatmap import Ink, nominal
from latmon.views.lines import (
    BLANK,
    DEVICE,
    Line,
    Span,
    Target,
    backed,
    cell,
    cut,
    dimmed,
    fit,
    heading,
    paragraph,
    runs,
    targeted,
    wrap,
)
from latmon.views.lines import width as line_width
from latmon.views.selection import Selection
from latmon.views.units import count

_QUANTILES = ("p50", "p99", "p99.9", "max")
_CELL = 6
_COUNT = 8
_BEFORE = 3
_STRIP_FROM = _BEFORE + _COUNT + len(_QUANTILES) * (_CELL + 1) + 1
_SENTENCES = 10
"""Least lines of sentences, where there are so many; more of them leave strips half of the room."""
_PAIR = 3
"""Lines of the strips of one operation: its name, A, B."""
_STRIPS = 5
"""Least lines below the sentences: the titles of strips, one operation, and the number of the others."""
_LARGER = "a larger terminal shows the latencies too"
_ROLES = {output.LOADS: "bad", output.WARNINGS: "bad", output.SAME: "dim"}
"""Roles of paragraphs; the others are text."""
_NAMED = 3
"""Devices without a difference that a sentence names: the strips have them."""
_UNIMPORTANT = ("settings: ", "findings of both: ")
"""Begins of sentences that say that something did not change."""
_SIGNS = {True: (" !", "accent"), False: (" ●", "limit"), None: (" ○", "dim")}
"""Whether B is worse -> the sign of the verdict; None: it is neither."""
_REST = "PgDn: "
_OCTAVE = 1 << BITS
_LABEL = 7
"""Cells from one label above the strips to the next: 512us and two blanks."""
_KEYS = (Span("N", "accent"), Span(" adds a span  ", "dim"), Span("D", "accent"), Span(" leaves ", "dim"))
_RESULTS: Mapping[Where, str] = {
    "whole": "changed",
    "body": "body changed",
    "tail": "tail changed",
    "opposed": "body and tail changed",
    "none": "no difference found",
    "unknown": "not enough I/Os",
    "untested": "not tested",
}
_BRIEF_KEYS = (Span("N", "accent"), Span(" adds  ", "dim"), *_KEYS[2:])
_VALUE = 9
"""Cells of a column of a sweep."""
_NAME = (7, 22)
"""Least and most cells of the name of a row."""
_FIRST = ("p99", "p50", "IOPS", "max")
"""Columns of a sweep that a narrow panel shows, in this order."""
_BAR = 12
_BESIDE = 36
"""Least cells of a latency axis that is drawn beside the values instead of below them."""
_MARK_ROLES = {"5": "text", "9": "strong", "M": "accent"}


def panel(
    report: DiffReport, selection: Selection, ink: Ink, width: int, room: int, *, devices: Sequence[str] = ()
) -> list[Line]:
    """Return the panel in `room` lines, scrolled as selected; the selected device comes first.

    `devices`: in the order of their rows in the device table, in which those that did not change are.
    """
    if isinstance(report, SweepReport):
        return _sweep_panel(report, selection, width, room)
    return _pair_panel(report, selection, ink, (width, room), devices)


def _pair_panel(
    report: PairReport, selection: Selection, ink: Ink, size: tuple[int, int], devices: Sequence[str]
) -> list[Line]:
    width, room = size
    head = heading(_heads(report.captures, width), width, _KEYS, _BRIEF_KEYS)
    sentences = list(_sentences(report, selection.selected, width))
    height = max(_SENTENCES, room // 2)
    if min(len(sentences), height) + 2 + _STRIPS > room:  # strips have no room
        larger = paragraph(_LARGER, width, "dim")
        shown_text = cut(sentences, max(room - 1 - len(larger), 1), selection.top, key=_REST)
        lines = [head, *shown_text, *larger]
        return [fit(line, width) for line in cut(lines, room)]
    lines = [head, *cut(sentences, height, selection.top, key=_REST), BLANK]
    shown = _order(report, selection.selected, devices)
    if not shown:  # no op of a device has I/Os on both sides
        return [fit(line, width) for line in cut(lines, room)]
    cells = max(width - _STRIP_FROM - 1, 8)
    ends = _ends(shown)
    lines.append(_titles(ends, cells))
    fit_in = len(shown) if len(lines) + _PAIR * len(shown) <= room else max((room - len(lines) - 1) // _PAIR, 0)
    for change in shown[:fit_in]:
        of_device = Target(DEVICE, change.series.device)
        matters = _differs(change) or change.series.device == selection.selected
        lines += [targeted(line, of_device) for line in _pair(change, ends, ink, cells, is_dim=not matters)]
    if left := len(shown) - fit_in:
        lines.append((Span(f" … {left} more: up and down select a device", "dim"),))
    if len(lines) < room:
        lines.append(_colours(ink))
    return [fit(line, width) for line in cut(lines, room)]


def _colours(ink: Ink) -> Line:
    """Return the legend of the strips."""
    cells = runs(ink.cell(step) for step in range(1, ink.levels + 1))
    return (Span(" I/Os in a cell of a strip: 1 ", "dim"), *cells, Span(" all", "dim"))


def _heads(captures: Sequence[Capture], cells: int) -> Line:
    """Return the captures' names and times; a narrow panel has no room for their ends."""
    heads = _named((each.name, f"{clock(each.start_wall)} to {clock(each.end_wall)}  ") for each in captures)
    if line_width(heads) < cells:
        return heads
    return _named((each.name, f"from {clock(each.start_wall)} ") for each in captures)


def _named(times: Iterable[tuple[str, str]]) -> Line:
    return tuple(part for name, text in times for part in (Span(f" {name} ", "strong"), Span(text, "text")))


def _sentences(report: PairReport, device: str, width: int) -> Iterator[Line]:
    """Yield the paragraphs of `latmon diff` but those on its captures and its method; `device` comes first."""
    for title, sentences in output.paragraphs(report, device, named=_NAMED):
        if title in (output.SIDES, output.METHOD):
            continue
        for number, sentence in enumerate(sentences):
            if title == output.USERS and not number:
                yield from _verdict(sentence, output.is_worse(report, device), width)
                continue
            margin = 1 + len(sentence) - len(sentence.lstrip())
            is_unimportant = sentence.startswith(_UNIMPORTANT) and not sentence.endswith(":")
            role = "dim" if is_unimportant else _ROLES.get(title, "text")
            yield from paragraph(sentence, width, role, margin=margin)


def _verdict(sentence: str, is_worse: bool | None, width: int) -> list[Line]:
    """Return the verdict with a sign, tinted where B is worse as the findings below the title are."""
    sign, sign_role = _SIGNS[is_worse]
    first, *more_lines = wrap(sentence, width - len(sign) - 1)
    lines: list[Line] = [(Span(f"{sign} ", sign_role), Span(first, "strong"))]
    lines += [(Span(f"{'':{len(sign) + 1}}{text}", "strong"),) for text in more_lines]
    lines = [fit(line, width) for line in lines]
    return [backed(line, WARNING) for line in lines] if is_worse else lines


def _order(report: PairReport, selected: str, devices: Sequence[str]) -> list[Change]:
    """Return the latencies: of the selected device, then those that changed in the order of `latmon diff`, then others.

    `devices`: in the order of the others.
    """
    places = {name: place for place, name in enumerate(devices)}

    def place(change: Change) -> tuple[bool, bool, int]:
        device = change.series.device
        of_others = 0 if _differs(change) else places.get(device, len(places))
        return device != selected, not _differs(change), of_others

    return sorted(output.ranked(report), key=place)


def _has_longer(change: Change) -> bool:
    """Return whether one side alone has enough long I/Os."""
    extreme = change.extreme
    return extreme is not None and extreme.count[extreme.slower] >= FEWEST_EXTREME


def _ends(changes: Sequence[Change]) -> tuple[int, int]:
    """Return the octaves from the fastest to the slowest I/O of all strips."""
    sides = [side for change in changes for side in (change.a, change.b)]
    return _octaves(index for side in sides for index in fine(side))


def _octaves(indexes: Iterable[int]) -> tuple[int, int]:
    """Return the first and the end bucket of the octaves that hold these buckets."""
    octave_indexes = set(indexes) or {0}
    return min(octave_indexes) // _OCTAVE * _OCTAVE, (max(octave_indexes) // _OCTAVE + 1) * _OCTAVE


def _titles(ends: tuple[int, int], cells: int) -> Line:
    """Return column titles, and the axis above the strips."""
    names = "".join(f"{name:>{_CELL}} " for name in _QUANTILES)
    return (Span(f"{'':<{_BEFORE}}{'I/Os':>{_COUNT}} {names}", "dim"), Span(_axis(ends, cells), "dim"))


def _axis(ends: tuple[int, int], cells: int) -> str:
    """Return powers of two, equally far apart, in `cells`."""
    text = [" "] * cells
    wide = cells * _OCTAVE / (ends[1] - ends[0])
    for index in range(ends[0], ends[1], _OCTAVE * math.ceil(_LABEL / wide)):
        at = (index - ends[0]) * cells // (ends[1] - ends[0])
        name = nominal(bucket_bounds(index)[0])
        if at + len(name) <= cells:
            text[at : at + len(name)] = name
    return "".join(text)


def _differs(change: Change) -> bool:
    return change.changed or _has_longer(change)


def _pair(change: Change, ends: tuple[int, int], ink: Ink, cells: int, *, is_dim: bool) -> list[Line]:
    """Return the name with the result, and the rows of A and B; `is_dim`: these matter less than others."""
    longer_alone = change.where == "none" and _has_longer(change)
    word = "the long I/Os alone differ" if longer_alone else _RESULTS[change.where]
    head: Line = (
        Span(f" {change.subject}  ", "text" if is_dim else "strong"),
        Span(word, "strong" if change.changed else "dim"),
    )
    rows = [_side(name, change, (ends, ink, cells)) for name in ("A", "B")]
    return [head, *(dimmed(row) if is_dim else row for row in rows)]


def _side(name: str, change: Change, drawn: tuple[tuple[int, int], Ink, int]) -> Line:
    side, (ends, ink, cells) = change.a if name == "A" else change.b, drawn
    values = [verdict.sides(shift)[name == "B"] for shift in change.shift_us.values()]
    total = count(side.count)
    numbers = "".join(f"{text:>{_CELL}} " for text in values)
    return (
        Span(f" {name} ", "dim"),
        Span(f"{total if len(total) <= _COUNT else count(side.count)[:_COUNT]:>{_COUNT}} "),
        Span(numbers),
        *strip(side, ends, ink, cells, max(change.count)),
    )


def strip(side: Histogram, ends: tuple[int, int], ink: Ink, cells: int, most: int) -> Line:
    """Return the I/Os by latency as heat-map cells. `most`: the I/Os of the highest step."""
    sums = [0] * cells
    for index, n in fine(side).items():
        sums[min(max((index - ends[0]) * cells // (ends[1] - ends[0]), 0), cells - 1)] += n
    return runs(ink.cell(level(n, most, ink.levels)) if n else (" ", "text") for n in sums)


def _sweep_panel(report: SweepReport, selection: Selection, width: int, room: int) -> list[Line]:
    """Return the panel of a sweep: what changed for the users from row to row, then a table and a plot per device."""
    by = f" sweep of {report.setting} " if report.setting else " sweep: no setting differs in each span "
    begin = min(capture.start_wall for capture in report.captures)
    end = max(capture.end_wall for capture in report.captures)
    times = (Span(by, "strong"), Span(f" {clock(begin)} to {clock(end)}  ", "text"))
    head = heading(times, width, _KEYS, _BRIEF_KEYS)
    lengths = [capture.measured_s for capture in report.captures]
    lines = paragraph(output.for_users(report.users, lengths), width, "strong")
    lines += [line for text in report.warnings for line in paragraph(text, width, "bad")]
    shown = sorted(output.shown_tables(report), key=lambda table: table.device != selection.selected)
    rows = [row for table in shown for row in table.rows]
    ends = _octaves(bucket_index(round(us)) for row in rows for us in output.marked(row).values())
    for number, table in enumerate(shown):
        block = [targeted(line, Target(DEVICE, table.device)) for line in _swept(table, ends, width)]
        if number and len(lines) + len(block) >= room - 1:
            left = len(shown) - number
            lines += [(Span(f" … {left} more: up and down select a device", "dim"),)]
            break
        lines += [BLANK, *block]
    return [fit(line, width) for line in cut([head, *lines], room, selection.top, key=_REST)]


def _swept(table: SweepTable, ends: tuple[int, int], width: int) -> Iterator[Line]:
    """Yield title, rows and trends of one device; the plot is beside the values, or below them where it doesn't fit."""
    names = [_row_name(row, table.setting) for row in table.rows]
    wide = min(max(_NAME[0], *map(len, names)), _NAME[1])
    columns = _fitting(width - wide - 2)
    beside = width - wide - 3 - _VALUE * len(COLUMNS) - _BAR - 3
    cells = beside if beside >= _BESIDE else width - wide - _BAR - 6
    iops = max(row.values.iops or 0 for row in table.rows)
    titles: Line = (Span(f"{'IOPS':<{_BAR}} "), Span(_axis(ends, cells)))
    plots: list[Line] = [
        (*share_bar((row.values.iops or 0) / (iops or 1), _BAR), Span(" "), *_plotted(row, ends, cells))
        for row in table.rows
    ]
    yield (Span(f" {output.sweep_title(table)}", "accent"),)
    head = (Span(f" {'':<{wide}} ", "dim"), Span("".join(f"{column:>{_VALUE}}" for column in columns), "dim"))
    lines: list[Line] = [
        (Span(f" {cell(name, wide)} "), *(Span(f"{_valued(column, row):>{_VALUE}}") for column in columns))
        for name, row in zip(names, table.rows, strict=True)
    ]
    gap = Span("  ")
    if beside >= _BESIDE:
        yield (*head, gap, *(Span(part.text, "dim") for part in titles))
        yield from ((*line, gap, *plot) for line, plot in zip(lines, plots, strict=True))
    else:
        yield head
        yield from lines
        yield (Span(f" {'':<{wide}} "), *(Span(part.text, "dim") for part in titles))
        yield from ((Span(f" {cell(name, wide)} "), *plot) for name, plot in zip(names, plots, strict=True))
    yield (Span(f" {'':<{wide}} "), Span(f"on the axis: {output.MARKED}", "dim"))
    yield from (line for text in output.trends(table) for line in paragraph(text, width))


def _fitting(cells: int) -> list[str]:
    """Return the columns of a sweep that fit into `cells`."""
    fit_in = sorted(COLUMNS, key=(*_FIRST, *COLUMNS).index)[: max(cells // _VALUE, 1)]
    return [name for name in COLUMNS if name in fit_in]


def _valued(column: str, row: SweepRow) -> str:
    return output.sweep_cell(column, row.values[column])


def _row_name(row: SweepRow, setting: str | None) -> str:
    """Return `mq-deadline (B)`, or `B` where the rows are not in the order of a setting."""
    return f"{row.name} ({row.capture})" if setting else row.name


def _plotted(row: SweepRow, ends: tuple[int, int], cells: int) -> Line:
    """Return the times of a row at their places, with a line from the first to the last."""
    places = {_place(us, ends, cells): mark for mark, us in output.marked(row).items()}
    between = range(min(places, default=0), max(places, default=-1))
    return runs(
        (places[at], _MARK_ROLES[places[at]]) if at in places else ("─", "frame") if at in between else (" ", "text")
        for at in range(cells)
    )


def _place(us: float, ends: tuple[int, int], cells: int) -> int:
    return min(max((bucket_index(round(us)) - ends[0]) * cells // (ends[1] - ends[0]), 0), cells - 1)
