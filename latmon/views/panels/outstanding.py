"""The outstanding panel: the I/Os in flight, the gauge, depth bars, limit and depth map of a device, its asides. Pure.

`DepthView` is what is known of the selected device; `outstanding` distributes the lines among the parts. The depth map
is drawn by views/heatmap.py, the list of I/Os in flight by panels/inflight.py.

Two asides replace the depths of the selected device: the audit of configured limits, and the order in which I/Os were
issued. The audit has a row per device and the selected one's settings below. The issue order is a plot of the last
burst of issues: the order of issue across, the LBA up, overtaken I/Os marked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latmon.aggregate.depth_sum import DepthSum
from latmon.analysis.issue_order import lba_order, overtaken, summary
from latmon.analysis.limits import Advice, Audited, Setting, audit, ceiling, ceilings, elevator
from latmon.analysis.littles_law import COUNTED, mean_waiting, of, times, times_of
from latmon.model.frame import OPS, Frame, Limit, Outstanding
from latmon.model.inflight import MEANS, PROBE, SYSFS, Depths, Issue, Took
from latmon.support.units import UNKNOWN, duration, part, spelled, whole
from latmon.views import heatmap
from latmon.views.bars import share_bar
from latmon.views.context import MEASURING, ViewState, no_rows, not_traced, selected
from latmon.views.device_table import Subject
from latmon.views.heatmap import BAND_LABEL, DepthBand, Ink
from latmon.views.heatmap_state import filled
from latmon.views.history import History
from latmon.views.lines import (
    BLANK,
    DEVICE,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    Target,
    as_wide,
    cell,
    cut,
    empty_panel,
    ends,
    fit,
    heading,
    heads,
    paragraph,
    row,
    runs,
    table,
    width,
    wrap,
)
from latmon.views.panels.findings import finding_of_screen
from latmon.views.panels.inflight import age_list
from latmon.views.units import count, rounded, size, span

LABEL = 7
"""Cells of the LBA labels, the axis included."""
_MIN_ROWS, _MAX_LIST = 4, 8
_LEAST_ROWS = 2
"""Rows of a plot in which an order is visible."""
_ROLES = {"read": "text", "write": "accent", "discard": "strong"}
_LETTERS = {"read": "r", "write": "w", "discard": "d"}
_HALVES = {(True, False): "▀", (False, True): "▄", (True, True): "█"}
_OVERTAKEN: tuple[Field[tuple[Issue, int]], ...] = (
    Field("overtaken by", 12, lambda r, _: whole(r[1]), role="bad"),
    Field("waited", TIME, lambda r, _: duration(r[0].queued_us)),
    Field("op", 8, lambda r, _: r[0].op, right=False),
    Field("size", 5, lambda r, _: size(r[0].bytes)),
    Field("sector", 15, lambda r, _: f"{r[0].sector:,}"),
)
_BOUNDS = frozenset(
    {
        *("queue_depth", "can_queue", "cmd_per_lun", "nr_tags", "hardware queues", "nr_requests", "sqsize"),
        *("queue_count", "un_throttle", "un_saved_throttle", "un_min_throttle"),
    }
)
_LEAST = 4
"""Lines of the table: titles and three devices."""
_TITLES = {"nr_requests": "requests", "queue_type": "tags"}
_MARK = 5
_IDLE = "frame"
"""Role of the bar of the time without an I/O, which is dark: it is no work."""
_LATENCY = (("mean latency by outstanding", 130), ("mean latency", 76), ("latency", 0))
"""Titles of the latency column, each with the least width of the screen for it."""
_INDENT = "  "
"""Before the bars of the queue, since the latency beside them is not about the queue."""
_SOURCES = {
    PROBE: "measured by a probe, weighted by time",
    SYSFS: "sampled from the kernel's gauges, weighted by time",
    MEANS: "means of the intervals, no distribution",
}
_SHORT = {PROBE: "by a probe", SYSFS: "sampled", MEANS: "by means"}
_SECOND_US = 1_000_000
_FINE_ROWS = 8
"""Rows for the numbers in the driver, from which on those above it have one per doubling."""
Draw = Callable[[int, int], list[Line]]
"""(width, height) -> lines, at most `height` of them."""


@dataclass(frozen=True, slots=True)
class IssueMark:
    """Place of an issue in the plot: column `x`, row `y` from the top."""

    x: int
    y: int
    op: str
    overtaken: bool


def order(
    issues: Sequence[Issue], width: int, height: int, ink: Ink, *, by_time: bool = False, scheduler: str | None = None
) -> list[Line]:
    """Return the verdict, the plot and the most overtaken I/Os of a device's burst of issues.

    `by_time`: the time of issue is across, not the order; `scheduler`: the device's, named in the verdict.
    """
    if not issues:
        return cut([fit((Span(" no issues were recorded", "dim"),), width)], height)
    passes = overtaken(issues)
    verdict = paragraph(summary(lba_order(issues), scheduler), width, "strong")
    below = [_axis(issues, width, by_time=by_time), _legend(ink, {issue.op for issue in issues}, any(passes))]
    listed = _most_overtaken(issues, passes)
    room = height - len(verdict) - len(below)
    if room < _LEAST_ROWS:
        larger = paragraph("a larger terminal shows the issues", width, "dim")
        return [fit(line, width) for line in (*cut(verdict, height - len(larger)), *larger)][:height]
    if room - len(listed) < max(_MIN_ROWS, height // 2):
        listed = listed[: max(0, room - max(_MIN_ROWS, height // 2))]
        listed = listed if len(listed) > 1 else []
    grid = max(width - LABEL, 1), max(room - len(listed), 0)
    plot = _plot(issues, passes, grid, ink, by_time=by_time)
    return [fit(line, width) for line in cut([*verdict, *plot, *below, *listed], height)]


def marks(issues: Sequence[Issue], passes: Sequence[int], grid: tuple[int, int], *, by_time: bool) -> list[IssueMark]:
    """Return the place of each issue on a grid of (columns, rows).

    The first and last issue, the lowest and the highest LBA lie on the edges. `passes`: I/Os that overtook each issue.
    """
    low, high = _range(issues)
    across = [issue.mono_us - issues[0].mono_us for issue in issues] if by_time else list(range(len(issues)))
    wide, tall = max(across[-1], 1), max(high - low, 1)
    columns, rows = grid
    return [
        IssueMark(
            min(x * columns // (wide + 1), columns - 1), (high - issue.sector) * (rows - 1) // tall, issue.op, n > 0
        )
        for issue, x, n in zip(issues, across, passes, strict=True)
    ]


def _plot(
    issues: Sequence[Issue], passes: Sequence[int], grid: tuple[int, int], ink: Ink, *, by_time: bool
) -> list[Line]:
    columns, rows = grid
    if not rows:
        return []
    parts = 2 if ink.coloured else 1
    cells: dict[tuple[int, int], list[IssueMark]] = {}
    for mark in marks(issues, passes, (columns, rows * parts), by_time=by_time):
        cells.setdefault((mark.x, mark.y // parts), []).append(mark)
    low, high = _range(issues)
    labels = {0: rounded(high), rows - 1: rounded(low)}
    return [
        (
            Span(f"{labels.get(y, ''):>{LABEL - 1}}│", "dim"),
            *runs(_glyph(cells.get((x, y), ()), parts, ink) for x in range(columns)),
        )
        for y in range(rows)
    ]


def _glyph(issue_marks: Sequence[IssueMark], parts: int, ink: Ink) -> tuple[str, str]:
    """Return (glyph, role) of a cell; an overtaken issue in it determines the role."""
    if not issue_marks:
        return " ", "text"
    issue_mark = next((mark for mark in issue_marks if mark.overtaken), issue_marks[0])
    if not ink.coloured:
        return _letter(issue_mark.op, overtaken=issue_mark.overtaken), "strong" if issue_mark.overtaken else "text"
    halves = {mark.y % parts for mark in issue_marks}
    return _HALVES[0 in halves, 1 in halves], "bad" if issue_mark.overtaken else _ROLES.get(issue_mark.op, "dim")


def _letter(op: str, *, overtaken: bool) -> str:
    letter = _LETTERS.get(op, "o")
    return letter.upper() if overtaken else letter


def _axis(issues: Sequence[Issue], width: int, *, by_time: bool) -> Line:
    low, high = _range(issues)
    took = spelled(issues[-1].mono_us - issues[0].mono_us)
    what = "time of issue" if by_time else "order of issue"
    across = f"{'':{LABEL}}{what}: {whole(len(issues))} in {took} →"
    variants = (f"   up: LBA in sectors, {low:,} to {high:,}", f"   up: LBA, {low:,} to {high:,}", "   up: LBA", "")
    return (Span(across + next((text for text in variants if len(across + text) <= width), ""), "dim"),)


def _legend(ink: Ink, ops: set[str], any_overtaken: bool) -> Line:
    """Return the meaning of the plot's colours or letters."""
    shown = [op for op in (*_ROLES, *sorted(ops - set(_ROLES))) if op in ops]
    spans = [Span(" " * LABEL)]
    for op in shown:
        mark = ("■", _ROLES.get(op, "dim")) if ink.coloured else (_letter(op, overtaken=False), "text")
        spans += [Span(*mark), Span(f" {op}  ", "dim")]
    if any_overtaken:
        mark = ("■", "bad") if ink.coloured else ("".join(_letter(op, overtaken=True) for op in shown), "strong")
        spans += [Span(*mark), Span(" overtaken by later ones", "dim")]
    return tuple(spans)


def _most_overtaken(issues: Sequence[Issue], passes: Sequence[int]) -> list[Line]:
    """Return titles and the most overtaken issues; of equals the one that waited longest comes first."""
    worst = sorted(range(len(issues)), key=lambda at: (-passes[at], -issues[at].queued_us, at))
    placed = as_wide(_OVERTAKEN)
    rows = [row(placed, (issues[at], passes[at])) for at in worst[:_MAX_LIST] if passes[at]]
    return [heads(placed), *rows] if rows else []


def _range(issues: Sequence[Issue]) -> tuple[int, int]:
    return min(issue.sector for issue in issues), max(issue.sector for issue in issues)


_NAME, _LONG_NAME, _VALUE, _SOURCE = 16, 28, 13, 22


def limits_table(
    rows: Sequence[Audited], selected: str, width: int, height: int, *, top: int = 0, why: str = ""
) -> list[Line]:
    """Return a row per device, and the settings of the selected one below, scrolled by `top`.

    `why`: the reason for an empty table.
    """
    title = heading((Span(" limits", "strong"), Span("  as configured, beside what was seen", "dim")), width)
    if not rows:
        return [title, *empty_panel(why, width, height - 1)][:height]
    at = next((i for i, audited in enumerate(rows) if audited.device == selected), 0)
    settings = _settings(rows[at], width)
    devices = min(len(rows) + 1, max(height - 2 - len(settings), _LEAST))
    lines = [
        title,
        *table(_FIELDS, rows, at, (width, devices), why=why, target_of=lambda audited: Target(DEVICE, audited.device)),
    ]
    left = height - len(lines) - 1
    return [fit(line, width) for line in (*lines, BLANK, *cut(settings, left, top, key="PgDn: "))][:height]


def _settings(audited: Audited, width: int) -> list[Line]:
    """Return the remarks on a device, then each of its settings with its remarks."""
    lines: list[Line] = [heading((Span(f" {audited.device} settings", "strong"),), width)]
    for remark in audited.remarks:
        lines += _remark(remark, width, 1)
    cells = max((len(setting.limit.name) for setting in audited.settings), default=0)
    for setting in sorted(audited.settings, key=_rank):
        lines += _setting(setting, width, min(max(cells, _NAME), _LONG_NAME))
    return lines


def _rank(setting: Setting) -> int:
    """Return the sort key: settings that are off first, then bounds of the driver's depth, then notes."""
    least = min((remark.note for remark in setting.remarks), default=2)
    return least if least == 0 else 1 if setting.limit.name in _BOUNDS else 1 + least


def _setting(setting: Setting, width: int, name: int) -> list[Line]:
    """Return a setting with its remarks; `name`: the cells of its name."""
    limit = setting.limit
    value = count(limit.value) if isinstance(limit.value, int) else limit.value
    head = f" {cell(limit.name, name)} {value:<{_VALUE}} {limit.source:<{_SOURCE}} "
    off = any(not remark.note for remark in setting.remarks)
    line: Line = (Span(head, "strong" if off else "text"),)
    if not setting.remarks:
        return [line]
    if len(setting.remarks) == 1 and len(beside := _remark(setting.remarks[0], width - len(head), 0)) == 1:
        return [(*line, *beside[0])]
    return [line, *(part for remark in setting.remarks for part in _remark(remark, width, 3))]


def _remark(remark: Advice, width: int, indent: int) -> list[Line]:
    role, mark = ("dim", "") if remark.note else ("bad", "! ")
    parts = wrap(mark + remark.text, max(width - indent - 1, 10))
    return [(Span(" " * (indent if not i else indent + len(mark))), Span(part, role)) for i, part in enumerate(parts)]


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _value(name: str) -> Field[Audited]:
    def make(audited: Audited, _cells: int) -> str:
        own_limit = next((s.limit.value for s in audited.settings if s.limit.name == name), None)
        return UNKNOWN if own_limit is None else whole(own_limit) if isinstance(own_limit, int) else own_limit

    return Field(_TITLES.get(name, name), max(len(_TITLES.get(name, name)), 5), make, rank=2)


def _off(audited: Audited, cells: int) -> Line:
    notes = sum(remark.note for s in audited.settings for remark in s.remarks)
    if audited.off:
        words = [*dict.fromkeys(remark.id.replace("ceiling", "limit").replace("-", " ") for remark in audited.off)]
        text = f"! {', '.join(words)}"
        return (Span(text if len(text) <= cells else f"! {words[0]} +{len(words) - 1}", "bad"),)
    return (Span(f"{notes} note{'s' * (notes != 1)}" if notes else "nothing off", "dim"),)


_FIELDS: tuple[Field[Audited], ...] = (
    Field("device", 8, lambda one, _: one.device, right=False, most=9),
    Field("limit", 5, lambda one, _: _number(int(one.bound.value)) if one.bound else UNKNOWN),
    Field("setting", 11, lambda one, _: one.bound.name if one.bound else "", rank=1, right=False, role="dim"),
    Field("max", 5, lambda one, _: _number(one.most)),
    Field("usual", 5, lambda one, _: _number(one.usual)),
    Field("queue", 5, lambda one, _: _number(one.queued)),
    Field("limited", 7, lambda one, _: "" if one.limited_to is None else whole(one.limited_to), role="strong"),
    _value("nr_requests"),
    Field("scheduler", 11, lambda one, c: str(_value("scheduler").make(one, c)), rank=2, right=False, role="dim"),
    Field("remarks", 22, _off, right=False, most=60),
)


def audited(view: ViewState) -> tuple[Audited, ...]:
    """Return the limits of the devices that pass the filter: those with a remark first, each in the table's order."""
    history = view.history
    devices = [s.device for s in view.subjects()]
    order = [device.name for device in devices]

    def make() -> tuple[Audited, ...]:
        counted = {d.name: depth_sum.depths for d in devices if (depth_sum := history.depth_sum(d.name, brief=True))}
        waiting = _waiting(history, [name for name, depths in counted.items() if not depths.queued])
        settings = view.origin.settings if view.origin else {}
        rows = audit(devices, counted, waiting=waiting, settings=settings)
        return tuple(sorted(rows, key=lambda audited: (not audited.off, order.index(audited.device))))

    return history.made(("audit", *order), make)


def _waiting(history: History, names: Iterable[str]) -> dict[str, float | None]:
    """Return the mean numbers of I/Os that wait above drivers whose kernel doesn't count them."""
    if not history.any_traced:
        return {}
    window, table = history.window, history.on_demand.traced.histograms
    done = {name: sum(completed.count for op in COUNTED if (completed := window.completed(name, op))) for name in names}
    return {name: mean_waiting(table, name, n, window.covered_us) for name, n in done.items()}


def audit_aside(view: ViewState, subject: Subject, width: int, room: int) -> list[Line]:
    """Return the audit of the limits, with the settings of the selected device."""
    why = "not known here: this source reports no limits of the filter's devices"
    return limits_table(audited(view), subject.device.name, width, room, top=view.selection.top, why=why)


def order_aside(view: ViewState, subject: Subject, width: int, room: int) -> list[Line]:
    """Return the issue order of the selected device's last burst, or the reason why there is none."""
    device, issues = subject.device, view.history.issues(subject.device.name)
    if issues:
        title = heading((Span(f" {device.name}", "strong"), Span(" issue order, the last burst", "dim")), width)
        return [title, *order(issues, width, room - 1, view.ink, scheduler=elevator(device.limits))][:room]
    what = f"issues of {device.name}"
    if not device.timed:
        disks = ", ".join(device.members)
        why = f"{device.name} has no requests: the order is that of its disks: {disks}"
    elif view.tracing == MEASURING and not (view.origin and view.origin.why_untraced("issues")):
        within = "the tracer leaves them out to stay within its budget"
        why = f"{what}: none was recorded since tracing started, or {within}"
    else:
        mode, state = view.selection.stages, view.tracing
        why = not_traced(what, view.origin, ("issues",), mode=mode, recorded=view.recorded, state=state)
    return empty_panel(why, width, room)


_PERCENT, _SMALL, _LARGE = 4, 6, 30
_NARROW, _NARROWEST = 60, 48
"""Widths in cells: below the first the bars of the queue are left out, below the second those at issue as well."""


@dataclass(frozen=True, slots=True)
class DepthShares:
    """One distribution over numbers of I/Os."""

    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def mode(self) -> int | None:
        return max(self.counts, key=lambda n: (self.counts[n], n)) if self.total else None

    @property
    def highest(self) -> int:
        return max((n for n, count in self.counts.items() if count), default=0)

    @property
    def mean(self) -> float | None:
        return sum(n * count for n, count in self.counts.items()) / self.total if self.total else None

    def share(self, n: int) -> float:
        return self.counts.get(n, 0) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class DepthColumns:
    """The distributions that the bars show: over all time, or over busy time only."""

    in_driver: DepthShares
    queued: DepthShares
    at_issue: DepthShares
    latency: Mapping[int, Took]
    busy: bool = False
    idle: float = 0.0
    """Share of all time with no I/O in the driver."""

    @property
    def highest(self) -> int:
        """Return the largest number in any of the distributions, at least 1."""
        return max(self.in_driver.highest, self.queued.highest, self.at_issue.highest, *self.latency, 1)


def depth_columns(depths: Depths, *, busy: bool = False) -> DepthColumns:
    """Return the distributions of a device's depths.

    `busy`: without the time in which the driver had no I/O. The same time is taken from `queued` at 0.
    """
    everything = DepthShares(depths.in_driver)
    driver, queued = dict(depths.in_driver), dict(depths.queued)
    if busy:
        nothing = driver.pop(0, 0)
        queued[0] = max(queued.get(0, 0) - nothing, 0)
    return DepthColumns(
        DepthShares(driver),
        DepthShares({n: count for n, count in queued.items() if count}),
        DepthShares(depths.at_issue),
        depths.latency,
        busy,
        everything.share(0),
    )


def depth_bars(
    shown: DepthColumns, limit: int | None, width: int, height: int, ink: Ink, *, most: int = 0, over: str = ""
) -> list[Line]:
    """Return titles, a row per band of numbers from the highest down, and a line above the limit.

    `most`: the largest number seen in the driver; `over`: the time that is covered, in words.
    """
    highest = max(shown.highest, most)
    walled = limit is not None and limit <= highest
    rows = height - 1 - walled
    if rows < 1:
        return []
    cut = _bands(shown, highest, rows, (limit - 1, limit) if limit is not None and walled else ())
    if cut[0] == DepthBand(0, 0) and shown.busy and not shown.queued.counts.get(0):
        cut = cut[1:] or cut
    columns = _bar_columns(shown, cut, width, most=most, over=over)
    lines: list[Line] = [_at_edge(heads(columns))]
    for i in reversed(range(len(cut))):
        if walled and limit is not None and cut[i].high <= limit < (cut[i + 1].high if i + 1 < len(cut) else limit + 1):
            lines.append(_ceiling(limit, columns, width, ink))
        lines.append(_at_edge(row(columns, i)))
    return [fit(line, width) for line in lines[:height]]


def _bands(shown: DepthColumns, highest: int, rows: int, ends: Sequence[int]) -> list[DepthBand]:
    """Return at most `rows` bands: fine ones up to the largest number in the driver, and above it one per doubling.

    A queue of 90 I/Os above a driver of 3 would else take most of the rows.
    """
    each = max(shown.in_driver.highest, shown.at_issue.highest, *ends, 1)
    above = [DepthBand(each + 1, 2 * each)]
    while above[-1].high < highest:
        above.append(DepthBand(above[-1].high + 1, 2 * above[-1].high))
    if each >= highest or rows - len(above) < min(each + 1, _FINE_ROWS):
        return heatmap.exact(highest, rows, ends)
    above[-1] = DepthBand(above[-1].low, highest)
    return [*heatmap.exact(each, rows - len(above), ends), *above]


def _at_edge(line: Line) -> Line:
    """Return a line of the table without the blank after its last column, which ends at the edge of the screen."""
    *others, last = line
    return tuple(others) if last.text == " " else (*others, last._replace(text=last.text[:-1]))


def _bar_columns(shown: DepthColumns, cut: Sequence[DepthBand], width: int, *, most: int, over: str) -> Placed[int]:
    """Return the columns; a row's value is the number of its band in `cut`."""
    issue = width >= _NARROWEST and shown.at_issue.total > 0
    queued = width >= _NARROW and shown.queued.total > 0
    latency = next(text for text, wide in _LATENCY if width >= wide) if shown.latency else ""
    figure = _PERCENT + 1
    beside = issue * (figure + 2) + (len(latency) + 2 if latency else 0) + queued * (figure + 1 + len(_INDENT))
    left = max(width - (BAND_LABEL + 2) - (figure + _MARK) - beside, 4)
    small = max(min(left // 4, _LARGE), _SMALL)
    driver = left - small * (issue + queued) + figure + _MARK
    fields = [_band_field(shown, cut), _driver_field(shown, cut, driver, most=most, over=over)]
    if issue:
        fields.append(_bar_field("at issue", small + figure, heatmap.of(shown.at_issue.counts, cut), cut))
    if latency:
        fields.append(_latency_field(latency, shown.latency, cut))
    if queued:
        title = next((t for t in ("queued or finishing", "queued") if len(t) <= small + figure), "queue")
        counts = heatmap.of(shown.queued.counts, cut)
        fields.append(_bar_field(_INDENT + title, small + figure + len(_INDENT), counts, cut, _INDENT))
    return as_wide(fields)


def _is_mode(shown: DepthColumns, band: DepthBand) -> bool:
    mode = shown.in_driver.mode
    return mode is not None and band.low <= mode <= band.high


def _band_field(shown: DepthColumns, cut: Sequence[DepthBand]) -> Field[int]:
    def make(i: int, cells: int) -> Line:
        role = "strong" if _is_mode(shown, cut[i]) else "dim"
        return (Span(cell(heatmap.band_label(cut[i]), cells, right=True), role),)

    return Field("I/Os", BAND_LABEL, make)


def _driver_field(shown: DepthColumns, cut: Sequence[DepthBand], width: int, *, most: int, over: str) -> Field[int]:
    """Return the column of the I/Os in the driver, with marks at the mode and at the maximum."""
    counts, highest = heatmap.of(shown.in_driver.counts, cut), max(shown.in_driver.highest, most)
    full_caption = f"in the driver, {'busy time' if shown.busy else over}"
    title = next((t for t in (full_caption, "in the driver") if t.split(", ")[-1] and len(t) < width), "driver")

    def make(i: int, cells: int) -> Line:
        is_mode, is_max = _is_mode(shown, cut[i]), cut[i].low <= highest <= cut[i].high and highest > 0
        mark = " mode" if is_mode else " max" if is_max else ""
        role = _IDLE if not cut[i].high else "accent" if is_mode else "depth"
        bar = _bar(counts, i, cells - _MARK, role)
        return (*bar, Span(f"{mark:<{_MARK}}", "accent" if is_mode else "strong"))

    return Field(title, width, make, right=False)


def _latency_field(title: str, took: Mapping[int, Took], cut: Sequence[DepthBand]) -> Field[int]:
    """Return the column of the mean latency by all I/Os outstanding at the arrival."""
    ios = heatmap.of({n: depth_row.ios for n, depth_row in took.items()}, cut)
    times_us = heatmap.of({n: depth_row.time_us for n, depth_row in took.items()}, cut)
    return Field(title, len(title) + 1, lambda i, _: duration(times_us[i] / ios[i]) if ios[i] else "")


def _bar_field(title: str, width: int, counts: Sequence[int], cut: Sequence[DepthBand], indent: str = "") -> Field[int]:
    def make(i: int, cells: int) -> Line:
        return (Span(indent), *_bar(counts, i, cells - len(indent), "depth" if cut[i].high else _IDLE))

    return Field(title, width, make, right=False)


def _bar(counts: Sequence[int], i: int, cells: int, role: str = "depth") -> Line:
    """Return the share as a number, then as a bar in proportion to the largest; both are blank for 0."""
    n = counts[i]
    figure = part(n / sum(counts)) if n else ""
    return (Span(f"{figure:>{_PERCENT}} "), *share_bar(n / max(*counts, 1), cells - _PERCENT - 1, role))


def _ceiling(limit: int, columns: Placed[int], width: int, ink: Ink) -> Line:
    """Return the line of the limit over the columns of the driver and at issue; it doesn't bound the queue."""
    cells = columns[1][1]
    more = columns[2][1] + 1 if len(columns) > 2 and columns[2][0].title == "at issue" else 0  # noqa: PLR2004  the third
    text = cell(f" limit {limit} ", min(len(str(limit)) + 8, cells))
    line = ink.line * min(cells + more - len(text), width - BAND_LABEL - 2)
    return (Span(" " * (BAND_LABEL + 2)), Span(f"{line[:2]}{text}{line[2:]}", "limit"))


_MAP_FROM, _MAP_MOST = 6, 18
_BARS_FROM, _BARS_MOST = 6, 12
"""Lines of the bars, least and most, where the age list is shown too."""
_AGES_FROM, _AGES_MANY = 3, 6
"""Lines of the age list with one row, and with one page of rows and the line that counts the others."""


@dataclass(frozen=True, slots=True)
class DepthView:
    """Depths and limit of the selected device over `covered_us`."""

    name: str
    now: Outstanding
    limit: Limit | None
    depths: Depths | None
    covered_us: int
    law: str = ""
    """Little's law as a sentence; empty where one of its three terms is missing."""
    below: str = ""
    """The limits of the disks below a dm or md device, as text."""
    why: str = ""
    """The reason why there are no depths."""
    busy: bool = False

    @property
    def bound(self) -> int | None:
        return int(self.limit.value) if self.limit else None

    @property
    def over(self) -> str:
        """Return the covered time in words."""
        return f"last {span(round(self.covered_us / _SECOND_US) * _SECOND_US)}"

    @property
    def columns(self) -> DepthColumns | None:
        """Return the distributions of the bars; None where depths are not measured."""
        return depth_columns(self.depths, busy=self.busy) if self.depths and self.depths.in_driver else None


def outstanding(
    shown: DepthView, cells: int, height: int, ink: Ink, *, over_time: Draw, ages: Draw, age_lines: tuple[int, int]
) -> list[Line]:
    """Return the lines of the panel.

    `over_time`, `ages`: draw the map and the age list; `age_lines`: lines of the age list, and when it is folded.
    """
    head = gauge_lines(shown, cells)
    left = height - len(head)
    depth_columns = shown.columns
    if depth_columns is None:
        text = paragraph(shown.why, cells, margin=2)
        return cut([*ages(cells, max(left - len(text), 0)), *head, *text], height)
    highest = shown.depths.highest if shown.depths else 0
    listed, chart, map_ = _line_shares(
        left, age_lines, _rows(depth_columns, highest, shown.bound), _least(depth_columns, shown.bound)
    )
    bars = depth_bars(depth_columns, shown.bound, cells, chart, ink, most=highest, over=shown.over)
    in_flight = ages(cells, listed)
    map_ += (chart - len(bars) + listed - len(in_flight)) * (map_ > 0)
    lines = [*in_flight, *head, *bars]
    return cut([*lines, *(over_time(cells, map_) if map_ else [])], height)


def gauge_lines(shown: DepthView, cells: int) -> list[Line]:
    """Return the gauge, the distribution in words, and Little's law."""
    lines = [_gauge(shown, cells)]
    if shown.columns is not None:
        lines.append(_in_words(shown, shown.columns, cells))
    lines += [(Span(f" {text}", "text"),) for text in _law_lines(shown.law, cells - 2)]
    return lines


def _law_lines(law: str, cells: int) -> list[str]:
    """Return two lines at most: the whole sentence, else its first part, since a truncated number misleads.

    The place of what was counted is left out where it would take a line of its own.
    """
    whole_law, brief = wrap(law, cells), wrap(law.partition("; at ")[0], cells)
    place = " counted in driver and queue"
    if len(whole_law) > 1 and law.endswith(place) and len(short := wrap(law.removesuffix(place), cells)) == 1:
        return [f"{short[0]} counted" if len(short[0]) + len(" counted") <= cells else short[0]]
    return (whole_law if len(whole_law) <= 2 else brief)[:2]  # noqa: PLR2004 - lines


def at_limit(now: Outstanding, limit: int | None) -> bool:
    """Return whether the driver has as many I/Os as its limit allows."""
    return limit is not None and now.in_driver is not None and now.in_driver >= limit


def _gauge(shown: DepthView, cells: int) -> Line:
    """Return the I/Os outstanding now, in the driver and queued, against the limit and its source."""
    now, bound, limit = shown.now, shown.bound, shown.limit
    full = at_limit(now, bound)
    left: Line = (Span(f" {shown.name}", "strong"), Span(" outstanding now  ", "dim"))
    queued = "" if now.queued is None else f", {whole(now.queued)} {'queued or finishing' if now.queued else 'queued'}"
    where = "in flight" if now.queued is None else "in the driver"
    driver = UNKNOWN if now.in_driver is None else whole(now.in_driver)
    if bound is None or limit is None:
        return heading(
            (
                *left,
                Span(f"{driver} {where}", "strong"),
                Span(queued),
                Span(f"  {shown.below or 'no limit is known'}", "dim"),
            ),
            cells,
        )
    number = Span(f"{driver} of {count(bound)} {where}", "bad" if full else "strong")
    source = Span(f"  limit: {limit.name}", "dim")
    where_from = Span(f" ({limit.source})", "dim")
    brief = (left[0], Span(" "), number, Span(queued))
    gauge_lines: list[Line] = [
        (*left, number, Span(queued), source, where_from),
        (*brief, source, where_from),
        (*brief, source),
        brief,
    ]
    return heading(
        next((spans for spans in gauge_lines if width(spans) + ends(cells) <= cells), gauge_lines[-1]), cells
    )


def _in_words(shown: DepthView, depth_columns: DepthColumns, cells: int) -> Line:
    """Return mode, maximum, mean and idle share, with the source and the covered time."""
    assert shown.depths is not None  # noqa: S101  `found` is made of them
    mode, mean = depth_columns.in_driver.mode, depth_columns.in_driver.mean
    words = [f"max {whole(shown.depths.highest)}"]
    if mode is not None:
        share = part(depth_columns.in_driver.share(mode))
        words.insert(0, f"mode {whole(mode)} ({share} of {'busy time' if depth_columns.busy else 'the time'})")
    if mean is not None:
        words.append(f"mean {mean:.3g}")
    words.append(f"idle {part(depth_columns.idle)}")
    if shown.depths.corrected:
        words.append(f"corrected by {count(shown.depths.corrected)}")
    text = f" {', '.join(words)}"
    over = shown.over
    lacks = "" if shown.depths.at_issue else ", no at-issue"
    source = f"  {over}: {_SOURCES.get(shown.depths.source, shown.depths.source)}{lacks}"
    short = f"  {over}, {_SHORT.get(shown.depths.source, shown.depths.source)}{lacks}"
    shorter = f"  {_SHORT.get(shown.depths.source, '')}{lacks}"
    each = [(f" in driver:{text}", variant) for variant in (source, short, shorter)]
    each += [(f" in driver:{text.replace(' of the time', '')}", shorter), (text, shorter)]
    text, caption = next((variant for variant in each if sum(map(len, variant)) <= cells), (text, ""))
    return fit((Span(text), Span(caption, "dim")), cells)


def _rows(depth_columns: DepthColumns, most: int, bound: int | None) -> int:
    """Return the lines that give each number a row of its own."""
    highest = max(depth_columns.highest, most)
    return highest + 2 + (bound is not None and bound <= highest)


def _least(depth_columns: DepthColumns, bound: int | None) -> int:
    """Return the lines that the numbers which occurred need; the rows between them would be empty."""
    depths_seen = {n for depth_shares in (depth_columns.in_driver, depth_columns.queued) for n in depth_shares.counts}
    return min(len(depths_seen) + 1 + (bound is not None and bound <= depth_columns.highest), _BARS_MOST)


def _line_shares(left: int, age_lines: tuple[int, int], wanted: int, least: int) -> tuple[int, int, int]:
    """Return the lines of the age list, of the bars and of the depth map.

    The bars get their first lines, then the age list, then both get more. I/Os in flight have precedence over empty
    rows of the bars: `least` rows are not empty.
    """
    each, folded = age_lines
    ages = 0
    if left >= _BARS_FROM + _AGES_FROM:
        row_count = min(_AGES_MANY, left - _BARS_FROM) if each == folded else _AGES_FROM
        room = max(row_count, left // 4, min(left // 2, left - max(least, _BARS_FROM)))
        ages = each if each <= room else min(folded, room)
    wanted_ages, left = max(ages, min(each, folded)), left - ages
    if left < _BARS_FROM + _MAP_FROM:
        return ages, min(left, wanted), 0
    map_ = min(max(left // 2, _MAP_FROM), _MAP_MOST)
    bars = min(left - map_, wanted)
    left -= bars + map_
    more = min(left, max(wanted_ages - ages, 0))
    return ages + more, bars, min(map_ + left - more, 2 * _MAP_MOST)


def outstanding_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the finding on I/Os in flight, their list and the depths of the selected device; or an aside."""
    chosen = selected(view.subjects())
    if chosen is None or view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    if view.selection.aside == "audit":
        return audit_aside(view, chosen, width, room)
    if view.selection.aside == "order":
        return order_aside(view, chosen, width, room)
    shown = depth_view(view, chosen)
    ages, age_lines = age_list(view, shown.name)
    finding_lines = finding_of_screen(view, "outstanding", width)
    below = outstanding(
        shown,
        width,
        room - len(finding_lines),
        view.ink,
        over_time=lambda cells, lines: _map(view, shown, cells, lines),
        ages=ages,
        age_lines=age_lines,
    )
    return [*finding_lines, *below]


def depth_view(view: ViewState, subject: Subject) -> DepthView:
    """Return the depths and the limit of a device."""
    history, name = view.history, subject.device.name
    depths = history.depth_sum(name)
    return DepthView(
        name,
        subject.outstanding,
        ceiling(subject.device.limits),
        depths.depths if depths else None,
        depths.span_us if depths else 0,
        law=_law(view, subject, depths) if depths else "",
        below=_below(view, subject),
        why=_not_counted(view, subject),
        busy=view.selection.busy,
    )


def _law(view: ViewState, subject: Subject, depths: DepthSum) -> str:
    """Return Little's law for the ops that depth gauges count, as a sentence.

    A latency that begins at the issue is the time in the driver.
    """
    window, name = subject.window, subject.device.name
    latency = window.latency(name, COUNTED)
    timed = times_of(latency)
    from_issue = view.origin is not None and view.origin.latency_from == "issue"
    done = {op: window.counted(name, op) for op in OPS}
    law_check = of(
        depths.depths,
        depths.span_us,
        window.covered_us,
        whole=times(depths.depths, done, None if from_issue else timed, latency.max_bound),
        driver=timed if from_issue else None,
        bound=ceiling(subject.device.limits),
        waiting=view.history.ages.of(name),
        left=subject.outstanding.known,
    )
    return law_check.sentence if law_check else ""


def _below(view: ViewState, subject: Subject) -> str:
    limits_found = ceilings(subject.device, view.history.store.devices)
    limits = [
        f"{name} {count(int(limit.value))}"
        for name, limit in limits_found.items()
        if limit and name != subject.device.name
    ]
    return f"limits of its disks: {', '.join(limits)}" if limits else ""


def _not_counted(view: ViewState, subject: Subject) -> str:
    device = subject.device
    more = f"; look at {', '.join(device.members)}" if not device.timed and device.members else ""
    if view.recorded:
        return f"how many I/Os {device.name} had outstanding is not in this recording{more}"
    return f"how many I/Os {device.name} had outstanding is not measured here{more}"


def _map(view: ViewState, shown: DepthView, width: int, room: int) -> list[Line]:
    """Return the depth map; it has a timeline of its own."""
    history, sweep, last = view.history, view.depth_map, view.history.window.last
    assert last is not None  # noqa: S101  drawn only once there is a frame
    cells, name = heatmap.room(width), shown.name
    entries = history.depth_window.entries

    def frames(after_us: int = -1) -> Iterator[Frame]:
        log_entries = [log_entry for log_entry in entries if log_entry.mono_us > after_us]
        return (f for f in heatmap.depth_frames(log_entries, name, last, history.interval_us) if f.mono_us > after_us)

    timeline = sweep.slots(
        filled(cells, view.selection.window_us, history.interval_us, sweep=view.selection.sweep),
        heatmap.ops(name),
        frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    for frame in frames(timeline.columns[-1].mono_us) if timeline.columns else ():
        sweep.advance(frame)
    timeline.note(history.moments())
    return heatmap.depth_map(timeline, shown.name, (width, room), view.ink, limit=shown.bound, busy=shown.busy)
