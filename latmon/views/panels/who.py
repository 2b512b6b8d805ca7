"""The panel of who issued the I/Os: a row per cgroup or per process, or what belongs to one of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from latmon.analysis.attribution import IssuerRow, issuer_rows
from latmon.model import measurements
from latmon.model.devices import HOST_SEPARATOR
from latmon.model.frame import ISSUERS, OPS, PROCESSES, Origin, Outlier
from latmon.model.histogram import Histogram
from latmon.model.measurements.issuers import OTHERS
from latmon.support.units import UNKNOWN, duration, part, rate, whole
from latmon.views.bars import share_bar
from latmon.views.context import MEASURING, ViewState, no_rows, not_traced
from latmon.views.lines import (
    BLANK,
    ROW,
    TIME,
    Field,
    Line,
    Placed,
    Span,
    Target,
    around,
    cell_len,
    dimmed,
    empty_panel,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    row,
    targeted,
)
from latmon.views.lines import table as slow_table
from latmon.views.lines import width as line_width
from latmon.views.panels.findings import beside_nothing, finding_of_screen
from latmon.views.panels.outliers import issuer
from latmon.views.selection import Picked, issued_by, shown
from latmon.views.units import count, maximum, quantile, sampled_as, span

_BAR = 6
_NAME_CELLS, _MOST_NAME, _MOST_ON = 18, 40, 18
_LEAST = 5
"""Lines below the table from which on they have the devices of the selected cgroup."""
_TIMED_TIER = "A"
"""The tier whose scripts time the I/Os of processes and cgroups."""
_NAMED = 4
"""Cgroups in the sentence on those that another one is behind."""
_UNCOUNTED = (
    "none was counted by cgroup: the first counts are not read yet, or this host has none",
    "none was recorded by cgroup",
)
"""Live, and in a recording."""
_OTHERS = "others, or no cgroup"
_ROOMY = 12
"""Lines from which on there is room for what the rows show in a sentence."""
_MATTERS = 0.05
"""Share of the time, the I/Os or the bytes below which a row is dim."""


class _IssuerLine:
    """A row with the seconds of the window, and its name."""

    def __init__(self, of: IssuerRow, name: str, seconds: float) -> None:
        self.of, self.name, self.seconds = of, name, seconds


def _fields(rows: Sequence[_IssuerLine], name: Field[_IssuerLine], *, rates: bool) -> list[Field[_IssuerLine]]:
    """Return the columns of which any row has a value: I/Os, bytes and share of the time, each with a bar, and times.

    `rates`: per second; else sums, since the tracer may have run for a part of the window only.
    """
    most_ios = max((issuer_line.of.ios for issuer_line in rows), default=0)
    most_bytes = max((issuer_line.of.bytes for issuer_line in rows), default=0)
    fields = [name]
    if most_ios:
        fields += [_IOPS if rates else _IOS, _bar(lambda issuer_line: issuer_line.of.ios / most_ios, "area")]
    if most_bytes:
        fields += [_MB_S if rates else _MB, _bar(lambda issuer_line: issuer_line.of.bytes / most_bytes, "area")]
    if any(issuer_line.of.share is not None for issuer_line in rows):
        fields += [_SHARE, _bar(lambda issuer_line: issuer_line.of.share, "text")]
    fields += [field for field, q in _QUANTILES if any(_has(row.of, q) for row in rows)]
    if any(issuer_line.of.latency for issuer_line in rows):
        fields.append(_MAX)
    return fields


def _has(row: IssuerRow, q: float) -> bool:
    """Return whether a quantile of a row is known; 0: its mean."""
    return (row.latency.quantile(q) if q else row.latency.mean) is not None


def _bar(share: Callable[[_IssuerLine], float | None], role: str) -> Field[_IssuerLine]:
    return Field("", _BAR, lambda issuer_line, cells: share_bar(share(issuer_line), cells, role), right=False, most=24)


_IOPS: Field[_IssuerLine] = Field("IOPS", 5, lambda r, _: rate(r.of.ios / r.seconds))
_MB_S: Field[_IssuerLine] = Field("MB/s", 5, lambda r, _: rate(r.of.bytes / r.seconds / 1e6))
_IOS: Field[_IssuerLine] = Field("I/Os", 5, lambda r, _: whole(r.of.ios) if r.of.ios else UNKNOWN)
_MB: Field[_IssuerLine] = Field("MB", 5, lambda r, _: rate(r.of.bytes / 1e6))
_SHARE: Field[_IssuerLine] = Field(
    "share", 5, lambda r, _: UNKNOWN if r.of.share is None else part(r.of.share), role="strong"
)
_MAX: Field[_IssuerLine] = Field("max", TIME, lambda r, _: maximum(r.of.latency))
_QUANTILES: tuple[tuple[Field[_IssuerLine], float], ...] = (
    (Field("mean", TIME, lambda r, _: UNKNOWN if r.of.latency.mean is None else duration(r.of.latency.mean), 3), 0),
    (Field("p50", TIME, lambda r, _: quantile(r.of.latency, 0.5), rank=2), 0.5),
    (Field("p99", TIME, lambda r, _: quantile(r.of.latency, 0.99)), 0.99),
    (Field("p99.9", TIME, lambda r, _: quantile(r.of.latency, 0.999), rank=2), 0.999),
)


def _words(
    title: str, rows: Sequence[_IssuerLine], make: Callable[[_IssuerLine], str], cells: int, most: int, **changed: Any
) -> Field[_IssuerLine]:
    """Return a column of words that grows to its longest one, at most `most` cells, before the bars grow."""
    longest = max((cell_len(make(issuer_line)) for issuer_line in rows), default=0)
    wanted = min(max(longest, cells), most)
    return Field(
        title, cells, lambda issuer_line, _: make(issuer_line), right=False, most=wanted, is_first=True, **changed
    )


def _name_column(title: str, rows: Sequence[_IssuerLine]) -> Field[_IssuerLine]:
    return _words(title, rows, lambda issuer_line: issuer_line.name, _NAME_CELLS, _MOST_NAME)


def _columns(rows: Sequence[_IssuerLine], *, processes: bool) -> list[Field[_IssuerLine]]:
    """Return the columns of cgroups or of processes."""
    fields = _fields(rows, _name_column("process" if processes else "cgroup", rows), rates=not processes)
    if processes and any(issuer_line.of.issuer.name not in ("", OTHERS) for issuer_line in rows):
        fields.append(
            _words("cgroup", rows, lambda issuer_line: issuer_line.of.issuer.name, 12, _MOST_ON, rank=1, role="dim")
        )
    if any(device for issuer_line in rows for device in issuer_line.of.devices):
        fields.append(
            _words(
                "on",
                rows,
                lambda issuer_line: ", ".join(issuer_line.of.devices) or UNKNOWN,
                9,
                _MOST_ON,
                rank=1,
                role="dim",
            )
        )
    return fields


def issuers(view: ViewState) -> Sequence[IssuerRow]:
    """Return the rows as they are shown."""
    return _rows(view, processes=view.lists_processes)


def _rows(view: ViewState, *, processes: bool) -> Sequence[IssuerRow]:
    history, selection = view.history, view.selection
    devices = {device.name for device in shown(history.devices(), selection)}
    if processes and not selection.globs and not selection.pattern:
        devices.add("")  # /proc/PID/io has no device

    def rows() -> list[IssuerRow]:
        line_rows = issuer_rows(
            history.on_demand[measurements.ISSUERS],
            devices,
            selection.ops,
            processes=processes,
            by_pid=True,
            behind=history.on_demand[measurements.BEHIND],
        )
        return [_with_longest(view, row) for row in line_rows] if processes else line_rows

    return history.made(("who", processes, selection.pattern, selection.ops), rows)


def _with_longest(view: ViewState, row: IssuerRow) -> IssuerRow:
    """Return the row of a process with the exact maximum, where its recorded slow I/Os show it."""
    totals: dict[str, list[int]] = {}
    for device in row.devices:
        for outlier in view.outliers_of(device):
            if outlier.pid == row.issuer.pid and outlier.op in view.selection.ops:
                totals.setdefault(device, []).append(outlier.total_us - outlier.stages_us.get("resume", 0))
    if not row.issuer.pid or not totals:
        return row
    longest_us = [us for each in totals.values() for us in each]
    devices = {
        device: replace(each, latency=each.latency.with_longest(totals.get(device, ())))
        for device, each in row.devices.items()
    }
    return replace(row, latency=row.latency.with_longest(longest_us), devices=devices)


def issuer_position(rows: Sequence[IssuerRow], key: Hashable | None) -> int:
    """Return the position of the selected row; the first one where none is selected or it is gone."""
    return next((at for at, issuer_row in enumerate(rows) if issuer_row.key == key), 0)


def issued(view: ViewState) -> Picked | None:
    """Return the filter for the I/Os of the selected row: an opened one's on the selected device; None without a row.

    The I/Os of a cgroup are those of its processes, which are known while they are traced.
    """
    rows, selection = issuers(view), view.selection
    if not rows:
        return None
    issuer_row = rows[issuer_position(rows, selection.row)]
    devices = list(issuer_row.devices)
    device = devices[min(selection.top, len(devices) - 1)] if selection.opened else devices[0]
    its = [issuer_row] if issuer_row.issuer.is_process else _processes_of(view, issuer_row)
    pids = frozenset(each.issuer.pid for each in its if each.issuer.pid)
    return issued_by(pids, device, f"{device}, by {_name(issuer_row)}")


def _processes_of(view: ViewState, issuer_row: IssuerRow) -> list[IssuerRow]:
    """Return the traced processes of a cgroup."""
    return [each for each in _rows(view, processes=True) if each.issuer[2:4] == issuer_row.issuer[2:4]]


def who_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table of cgroups or processes; of an opened one its devices, of a cgroup its processes too."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    issuer_lines, selection = issuers(view), view.selection
    if not issuer_lines and view.origin.kernel.startswith("SunOS") and view.origin.why_untraced(ISSUERS, PROCESSES):
        return _of_slow_ios(view, width, room)
    if not issuer_lines:
        return empty_panel(_why_none(view, view.origin), width, room)
    at = issuer_position(issuer_lines, selection.row)
    if selection.opened and issuer_lines[at].key != selection.row:
        over, what = span(selection.window_us), "process" if view.lists_processes else "cgroup"
        return empty_panel(f"no I/O of this {what} completed in the last {over}; Esc shows all of them", width, room)
    if selection.opened:
        return _opened(view, issuer_lines[at], selection.top, width, room)
    seconds = _seconds(view)
    rows = [_IssuerLine(issuer_row, _name(issuer_row), seconds) for issuer_row in issuer_lines]
    above = [] if room < _ROOMY else finding_of_screen(view, "who", width)
    lines = [*above, _heading(view, issuer_lines, width), *(_claim(issuer_lines, width) if room >= _ROOMY else ())]
    why = _why_untimed(view, view.origin) if not any(issuer_row.latency for issuer_row in issuer_lines) else ""
    lines += paragraph(why, width, "dim") if why else []
    lines += _issuer_table(_columns(rows, processes=view.lists_processes), rows, at, width, room - len(lines))
    below = _opened(view, issuer_lines[at], 0, width, room - len(lines) - 1, selected=False)
    return [*lines, BLANK, *below] if room - len(lines) > _LEAST else lines


def _heading(view: ViewState, rows: Sequence[IssuerRow], width: int) -> Line:
    named = sum(not _is_others(issuer_row) for issuer_row in rows)
    what = "process" if view.lists_processes else "cgroup"
    total = f"  {count(named)} {what}{('es' if view.lists_processes else 's') * (named != 1)}"
    about: tuple[str, ...] = ()
    if any(issuer_row.latency for issuer_row in rows):
        about = (
            "share: of the time of all I/Os, so of those in flight ",
            "share: of the time of all I/Os ",
        )
    if view.lists_processes:
        sample = sampled_as(*view.history.on_demand.traced.sampled)
        of = f", {sample}" if sample else ""
        if any(issuer_row.latency for issuer_row in rows):
            about = (f"counted while traced{of}; share: of the time of these I/Os ", f"counted while traced{of} ")
        elif any(issuer_row.ios for issuer_row in rows):
            about = (f"counted while traced{of} ",)
    return heading(
        (Span(" who", "strong"), Span(f"{total} with I/O"), Span(_only(view), "dim")),
        width,
        *((Span(f" {text}", "dim"),) for text in about),
    )


def _why_untimed(view: ViewState, origin: Origin) -> str:
    """Return why the rows have no times, so that columns are left out."""
    if view.lists_processes:
        rows = _rows(view, processes=True)
        known = "I/Os and bytes" if any(issuer_row.ios for issuer_row in rows) else "bytes by /proc/PID/io"
        return f"{known} of processes only: {_needs(view, origin, 'I/Os of a process')}"
    return f"counted by the kernel, which times no I/O of a cgroup: {_needs(view, origin, 'that')}"


def _needs(view: ViewState, origin: Origin, what: str) -> str:
    """Return what times by cgroup or process need."""
    if origin.tier == _TIMED_TIER:
        return view.tracing or "the tracer times them, and has not run in this window"
    if origin.tool.startswith("bpftrace") or origin.tier:
        return f"to time {what} needs tier A, bpftrace 0.19 or newer"
    return f"nothing here times {what}"


def _seconds(view: ViewState) -> float:
    return max(view.history.window.covered_us, 1) / 1e6


def _table(
    fields: Sequence[Field[_IssuerLine]], rows: Sequence[_IssuerLine], at: int, width: int, room: int
) -> list[Line]:
    placed: Placed[_IssuerLine] = layout(fields, width)
    seen = around(len(rows), at, room - 1)
    lines = [heads(placed, above=seen.start), *(row(placed, rows[i], selected=i == at) for i in seen)]
    return [fit(line, width) for line in lines][: max(room, 0)]


def _issuer_table(
    fields: Sequence[Field[_IssuerLine]], rows: Sequence[_IssuerLine], at: int, width: int, room: int
) -> list[Line]:
    """Return the table of the rows that can be selected."""
    head, *lines = _table(fields, rows, at, width, room) or [BLANK]
    shown_rows = [head]
    issued = _Sums(sum(each.of.ios for each in rows), sum(each.of.bytes for each in rows))
    for i, line in zip(around(len(rows), at, room - 1), lines, strict=False):
        is_dim = i != at and not _matters(rows[i].of, issued)
        shown_rows.append(targeted(dimmed(line) if is_dim else line, Target(ROW, rows[i].of.key)))
    return shown_rows


class _Sums(NamedTuple):
    """The I/Os and bytes of all rows."""

    ios: int
    bytes: int


def _matters(issuer_row: IssuerRow, sums: _Sums) -> bool:
    of_ios, of_bytes = issuer_row.ios / max(sums.ios, 1), issuer_row.bytes / max(sums.bytes, 1)
    return max(issuer_row.share or 0.0, of_ios, of_bytes) >= _MATTERS


def _claim(rows: Sequence[IssuerRow], width: int) -> list[Line]:
    """Return which row has most of the time, else of the bytes, and which one most of the I/Os; nothing for one row."""
    named = [each for each in rows if not _is_others(each)]
    if len(named) < 2:  # noqa: PLR2004  a single one has everything
        return []
    sums = _Sums(sum(each.ios for each in rows), sum(each.bytes for each in rows))
    first = max(named, key=lambda each: each.share or 0.0)
    said = f" has {part(first.share or 0.0)} of the time of I/Os"
    if not first.share:
        first = max(named, key=lambda each: each.bytes)
        if not first.bytes:
            return []
        said = f" moves {part(first.bytes / sums.bytes)} of the bytes"
    issuer_row = max(named, key=lambda each: each.ios)
    other = (
        f"; most I/Os: {_name(issuer_row)}, {part(issuer_row.ios / sums.ios)}"
        if issuer_row is not first and sums.ios
        else ""
    )
    line: Line = (Span(f" {_name(first)}", "strong"), Span(said))
    return [fit((*line, Span(other)) if line_width(line) + cell_len(other) < width else line, width)]


def _opened(
    view: ViewState, issuer_row: IssuerRow, top: int, width: int, room: int, *, selected: bool = True
) -> list[Line]:
    """Return the devices of a cgroup below its path, with its traced processes, or those of a process."""
    name, seconds, of_process = _name(issuer_row), _seconds(view), issuer_row.issuer.is_process
    rows = [_IssuerLine(each, device or "not known", seconds) for device, each in issuer_row.devices.items()]
    path = "" if name == issuer_row.issuer.cgroup or _is_others(issuer_row) else issuer_row.issuer.cgroup
    is_timed = any(each.share is not None for each in issuer_row.devices.values())
    about = (Span("share: of the device's I/O time ", "dim"),) if is_timed else ()
    head = heading((Span(f" {name}", "strong"), Span("  its devices")), width, about)
    text: list[Line] = [(Span(f" cgroup {path}", "dim"),)] if path else []
    at = min(top, len(rows) - 1) if selected else -1
    fields = _fields(rows, _words("device", rows, lambda line: line.name, 12, _MOST_ON), rates=not of_process)
    lines = [head, *(fit(line, width) for line in text), *_table(fields, rows, at, width, room - 1 - len(text))]
    if issuer_row.behind:
        names = {each.issuer.cgroup: _name(each) for each in _rows(view, processes=False)}
        lines += paragraph(_behind(issuer_row, names), width)
    its = [] if of_process else _processes_of(view, issuer_row)
    if not its or room - len(lines) <= _LEAST:
        return lines
    head = heading((Span(f" {name}", "strong"), Span("  its processes, while they are traced")), width)
    rows = [_IssuerLine(each, _name(each), seconds) for each in its]
    fields = _columns(rows, processes=True)
    return [*lines, BLANK, head, *_table(fields, rows, -1, width, room - len(lines) - 2)]


def _behind(issuer_row: IssuerRow, names: Mapping[str, str]) -> str:
    """Return the cgroups that the devices served while its I/Os were in flight, as a sentence."""
    own = {issuer_row.issuer.cgroup: "its own I/Os"}
    shares_behind = [
        (own.get(by) or names.get(by, by), share) for by, share in list(issuer_row.behind.items())[:_NAMED]
    ]
    served = ", ".join(f"{name} for {part(share)}" for name, share in shares_behind)
    return f"while its I/Os were in flight, the device served {served} of the time"


def _name(issuer_row: IssuerRow) -> str:
    issuer = issuer_row.issuer
    if issuer.is_process:
        return f"{issuer.comm or UNKNOWN} {issuer.pid}" if issuer.pid else "other processes"
    if not _is_others(issuer_row):
        return issuer.name
    return f"{issuer_row.issuer.cgroup.removesuffix(OTHERS)}{_OTHERS}"


def _is_others(issuer_row: IssuerRow) -> bool:
    """Return whether it has the I/Os that have no row; a fleet's has its host in front."""
    if issuer_row.issuer.is_process:
        return not issuer_row.issuer.pid
    return OTHERS in (issuer_row.issuer.cgroup, issuer_row.issuer.cgroup.partition(HOST_SEPARATOR)[2])


def _only(view: ViewState) -> str:
    """Return what the rows are limited to; empty where they have all I/Os."""
    selection = view.selection
    words = [f"{selection.op}s" if selection.op in ("read", "write") else selection.op] * (selection.op != "all")
    return "".join(f"  only {word}" for word in words)


def _why_none(view: ViewState, origin: Origin) -> str:
    """Return why the table is empty."""
    if view.lists_processes and not any(
        issuer_here.is_process for issuer_here in view.history.on_demand[measurements.ISSUERS]
    ):
        return _why_no_process(view, origin)
    if why := origin.why_untraced(ISSUERS):
        return f"not measured here: I/Os are not counted by cgroup: {why}"
    over = span(view.selection.window_us)
    if view.selection.op != "all" or view.selection.pattern:
        what = "process" if view.lists_processes else "cgroup"
        return f"no I/O of a {what} in the last {over} passes the filter"
    window = view.history.window
    ios = sum(c.count for d in view.history.devices() for op in OPS if (c := window.completed(d.name, op)))
    kinds = {issuer_here.is_process for issuer_here in view.history.on_demand[measurements.ISSUERS]}
    if ios and view.lists_processes not in kinds:
        known = "; Tab shows those of processes" * (True in kinds)
        needs = "" if origin.tier in ("", _TIMED_TIER) else f"; {_needs(view, origin, 'them')}"
        return f"{count(ios)} I/Os completed in the last {over}, and {_UNCOUNTED[view.recorded]}{known}{needs}"
    return f"no I/O completed in the last {over}"


_NO_SCRIPT = (
    "No D script counts the I/Os of each process or zone on SunOS. The script sd names the process of each slow I/O "
    "(screen 4) once it has completed, vop_files that of each slow operation on a file (F)."
)


class _SlowIssuer(NamedTuple):
    """The slow I/Os of one process."""

    name: str
    times: Histogram
    devices: tuple[str, ...]


def _slow_issuers(view: ViewState) -> list[_SlowIssuer]:
    """Return the processes of the recorded slow I/Os, the one with most of their time first."""
    devices = {device.name for device in shown(view.history.devices(), view.selection)}
    by_process: dict[str, list[Outlier]] = {}
    for outlier in view.history.on_demand.outliers:
        if outlier.device in devices and outlier.op in view.selection.ops and outlier.comm:
            by_process.setdefault(issuer(outlier), []).append(outlier)
    rows = []
    for name, outliers in by_process.items():
        times = Histogram.record(outlier.total_us for outlier in outliers)
        rows.append(_SlowIssuer(name, times, tuple(sorted({outlier.device for outlier in outliers}))))
    return sorted(rows, key=lambda row: (-(row.times.sum or 0), row.name))


def _of_slow_ios(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the processes of slow I/Os, where no script counts the I/Os of each; below them why only those are known.

    Without a slow I/O, the finding is below.
    """
    rows, over = _slow_issuers(view), span(view.selection.window_us)
    title = (
        f"  {count(len(rows))} process{'es' * (len(rows) != 1)} with slow I/Os" if rows else "  no slow I/O completed"
    )
    lines = [heading((Span(" who", "strong"), Span(f"{title} in the last {over}")), width)]
    if rows:
        lines += slow_table(_slow_fields(rows), rows, -1, (width, max(room - len(lines) - _LEAST, 2)), why="")
    lines += [BLANK, *paragraph(_NO_SCRIPT, width, "dim", margin=2)]
    names = [device.name for device in shown(view.history.devices(), view.selection)]
    below = [] if rows else beside_nothing(view, names, width, room - len(lines))
    return [fit(line, width) for line in (*lines, *below)][:room]


def _slow_fields(rows: Sequence[_SlowIssuer]) -> tuple[Field[_SlowIssuer], ...]:
    """Return the columns: the number and the time of slow I/Os, each with a bar, and the longest one."""
    most_ios = max(row.times.count for row in rows)
    most_us = max(row.times.sum or 0 for row in rows)
    return (
        Field("process", _NAME_CELLS, lambda row, _: row.name, right=False, most=_MOST_NAME, is_first=True),
        Field("slow", 5, lambda row, _: whole(row.times.count)),
        Field("", _BAR, lambda row, cells: share_bar(row.times.count / most_ios, cells, "area"), right=False, most=24),
        Field("time", TIME, lambda row, _: duration(row.times.sum)),
        Field(
            "", _BAR, lambda row, cells: share_bar((row.times.sum or 0) / most_us, cells, "area"), right=False, most=24
        ),
        Field("max", TIME, lambda row, _: maximum(row.times)),
        Field("on", 9, lambda row, _: ", ".join(row.devices), rank=1, right=False, most=_MOST_ON, role="dim"),
    )


def _why_no_process(view: ViewState, origin: Origin) -> str:
    """Return why no process is known."""
    if view.tracing == MEASURING and not origin.why_untraced(PROCESSES):
        within = "the tracer leaves them out to stay within its budget"
        return f"I/Os of processes: none has completed since tracing started, or {within}"
    mode, state = view.selection.stages, view.tracing
    return not_traced("I/Os of processes", origin, (PROCESSES,), mode=mode, recorded=view.recorded, state=state)
