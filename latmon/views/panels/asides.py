"""The asides of the outstanding panel: the audit of configured limits, and the order in which I/Os were issued. Pure.

Both replace the depths of the selected device. The audit has a row per device and the selected one's settings below.
The issue order is a plot of the last burst of issues: the order of issue across, the LBA up, overtaken I/Os marked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from latmon.analysis.issue_order import lba_order, overtaken, summary
from latmon.analysis.limits import Advice, Audited, Setting, audit, elevator
from latmon.analysis.littles_law import COUNTED, mean_waiting
from latmon.model.inflight import Issue
from latmon.support.units import UNKNOWN, duration, spelled, whole
from latmon.views.context import MEASURING, ViewState, not_traced
from latmon.views.device_table import Subject
from latmon.views.heatmap import Ink
from latmon.views.history import History
from latmon.views.lines import (
    BLANK,
    TIME,
    Field,
    Line,
    Span,
    as_wide,
    cell,
    cut,
    empty_panel,
    fit,
    heading,
    heads,
    paragraph,
    row,
    runs,
    table,
    wrap,
)
from latmon.views.units import count, rounded, size

LABEL = 7
"""Cells of the LBA labels, the axis included."""
_MIN_ROWS, _MAX_LIST = 4, 8
_ROLES = {"read": "text", "write": "accent", "discard": "strong"}
_LETTERS = {"read": "r", "write": "w", "discard": "d"}
_HALVES = {(True, False): "▀", (False, True): "▄", (True, True): "█"}


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
    below = [_axis(issues, width, by_time=by_time), _legend(ink, {one.op for one in issues}, any(passes))]
    listed = _most_overtaken(issues, passes)
    room = height - len(verdict) - len(below)
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
    across = [one.mono_us - issues[0].mono_us for one in issues] if by_time else list(range(len(issues)))
    wide, tall = max(across[-1], 1), max(high - low, 1)
    columns, rows = grid
    return [
        IssueMark(min(x * columns // (wide + 1), columns - 1), (high - one.sector) * (rows - 1) // tall, one.op, n > 0)
        for one, x, n in zip(issues, across, passes, strict=True)
    ]


def _plot(
    issues: Sequence[Issue], passes: Sequence[int], grid: tuple[int, int], ink: Ink, *, by_time: bool
) -> list[Line]:
    columns, rows = grid
    if not rows:
        return []
    parts = 2 if ink.coloured else 1
    cells: dict[tuple[int, int], list[IssueMark]] = {}
    for one in marks(issues, passes, (columns, rows * parts), by_time=by_time):
        cells.setdefault((one.x, one.y // parts), []).append(one)
    low, high = _range(issues)
    labels = {0: rounded(high), rows - 1: rounded(low)}
    return [
        (
            Span(f"{labels.get(y, ''):>{LABEL - 1}}│", "dim"),
            *runs(_glyph(cells.get((x, y), ()), parts, ink) for x in range(columns)),
        )
        for y in range(rows)
    ]


def _glyph(some: Sequence[IssueMark], parts: int, ink: Ink) -> tuple[str, str]:
    """Return (glyph, role) of a cell; an overtaken issue in it determines the role."""
    if not some:
        return " ", "text"
    one = next((mark for mark in some if mark.overtaken), some[0])
    if not ink.coloured:
        return _letter(one.op, overtaken=one.overtaken), "strong" if one.overtaken else "text"
    halves = {mark.y % parts for mark in some}
    return _HALVES[0 in halves, 1 in halves], "bad" if one.overtaken else _ROLES.get(one.op, "dim")


def _letter(op: str, *, overtaken: bool) -> str:
    letter = _LETTERS.get(op, "o")
    return letter.upper() if overtaken else letter


def _axis(issues: Sequence[Issue], width: int, *, by_time: bool) -> Line:
    low, high = _range(issues)
    took = spelled(issues[-1].mono_us - issues[0].mono_us)
    what = "time of issue" if by_time else "order of issue"
    across = f"{'':{LABEL}}{what}: {whole(len(issues))} in {took} →"
    several = (f"   up: LBA in sectors, {low:,} to {high:,}", f"   up: LBA, {low:,} to {high:,}", "   up: LBA", "")
    return (Span(across + next((text for text in several if len(across + text) <= width), ""), "dim"),)


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


_OVERTAKEN: tuple[Field[tuple[Issue, int]], ...] = (
    Field("overtaken by", 12, lambda r, _: whole(r[1]), role="bad"),
    Field("waited", TIME, lambda r, _: duration(r[0].queued_us)),
    Field("op", 8, lambda r, _: r[0].op, right=False),
    Field("size", 5, lambda r, _: size(r[0].bytes)),
    Field("sector", 15, lambda r, _: f"{r[0].sector:,}"),
)


def _most_overtaken(issues: Sequence[Issue], passes: Sequence[int]) -> list[Line]:
    """Return titles and the most overtaken issues; of equals the one that waited longest comes first."""
    worst = sorted(range(len(issues)), key=lambda at: (-passes[at], -issues[at].queued_us, at))
    placed = as_wide(_OVERTAKEN)
    rows = [row(placed, (issues[at], passes[at])) for at in worst[:_MAX_LIST] if passes[at]]
    return [heads(placed), *rows] if rows else []


def _range(issues: Sequence[Issue]) -> tuple[int, int]:
    return min(one.sector for one in issues), max(one.sector for one in issues)


_NAME, _LONG_NAME, _VALUE, _SOURCE = 16, 28, 13, 22
_BOUNDS = frozenset(
    {
        *("queue_depth", "can_queue", "cmd_per_lun", "nr_tags", "hardware queues", "nr_requests", "sqsize"),
        *("queue_count", "un_throttle", "un_saved_throttle", "un_min_throttle"),
    }
)
_LEAST = 4
"""Lines of the table: titles and three devices."""


def limits_table(
    rows: Sequence[Audited], selected: str, width: int, height: int, *, top: int = 0, why: str = ""
) -> list[Line]:
    """Return a row per device, and the settings of the selected one below, scrolled by `top`.

    `why`: the reason for an empty table.
    """
    title = heading((Span(" limits", "strong"), Span("  as configured, beside what was seen", "dim")), width)
    if not rows:
        return [title, *empty_panel(why, width, height - 1)][:height]
    at = next((i for i, one in enumerate(rows) if one.device == selected), 0)
    settings = _settings(rows[at], width)
    devices = min(len(rows) + 1, max(height - 2 - len(settings), _LEAST))
    lines = [title, *table(_FIELDS, rows, at, (width, devices), why=why)]
    left = height - len(lines) - 1
    return [fit(line, width) for line in (*lines, BLANK, *cut(settings, left, top, key="PgDn: "))][:height]


def _settings(one: Audited, width: int) -> list[Line]:
    """Return the remarks on a device, then each of its settings with its remarks."""
    lines: list[Line] = [heading((Span(f" {one.device} settings", "strong"),), width)]
    for remark in one.remarks:
        lines += _remark(remark, width, 1)
    cells = max((len(setting.limit.name) for setting in one.settings), default=0)
    for setting in sorted(one.settings, key=_rank):
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
    def make(one: Audited, _cells: int) -> str:
        found = next((s.limit.value for s in one.settings if s.limit.name == name), None)
        return UNKNOWN if found is None else whole(found) if isinstance(found, int) else found

    return Field(_TITLES.get(name, name), max(len(_TITLES.get(name, name)), 5), make, rank=2)


def _off(one: Audited, cells: int) -> Line:
    notes = sum(remark.note for s in one.settings for remark in s.remarks)
    if one.off:
        words = [*dict.fromkeys(remark.id.replace("ceiling", "limit").replace("-", " ") for remark in one.off)]
        text = f"! {', '.join(words)}"
        return (Span(text if len(text) <= cells else f"! {words[0]} +{len(words) - 1}", "bad"),)
    return (Span(f"{notes} note{'s' * (notes != 1)}" if notes else "nothing off", "dim"),)


_TITLES = {"nr_requests": "requests", "queue_type": "tags"}
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
    order = [one.name for one in devices]

    def make() -> tuple[Audited, ...]:
        counted = {d.name: found.depths for d in devices if (found := history.depth_sum(d.name, brief=True))}
        waiting = _waiting(history, [name for name, depths in counted.items() if not depths.queued])
        settings = view.origin.settings if view.origin else {}
        rows = audit(devices, counted, waiting=waiting, settings=settings)
        return tuple(sorted(rows, key=lambda one: (not one.off, order.index(one.device))))

    return history.made(("audit", *order), make)


def _waiting(history: History, names: Iterable[str]) -> dict[str, float | None]:
    """Return the mean numbers of I/Os that wait above drivers whose kernel doesn't count them."""
    if not history.any_traced:
        return {}
    window, table = history.window, history.on_demand.traced.histograms
    done = {name: sum(one.count for op in COUNTED if (one := window.completed(name, op))) for name in names}
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
        why = f"{what}: no window of its issues was recorded yet"
    else:
        mode, state = view.selection.stages, view.tracing
        why = not_traced(what, view.origin, ("issues",), mode=mode, recorded=view.recorded, state=state)
    return empty_panel(why, width, room)
