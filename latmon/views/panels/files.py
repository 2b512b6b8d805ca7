"""The panel of operations on files: a row per file system and op, the slow ones, the I/O below one of them. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from latmon.analysis.attribution import FileRow, by_process, file_rows, requests_of, whole_path
from latmon.model.frame import (
    CACHED,
    DEVICE_BOUND,
    FILE_WAITS,
    FILES,
    STARTING,
    FileOperation,
    FileSystem,
    Outlier,
)
from latmon.support.text import listed
from latmon.support.units import UNKNOWN, duration, part, rate, spelled
from latmon.views.bars import stacked
from latmon.views.context import ViewState, no_rows, not_traced
from latmon.views.heatmap import Ink
from latmon.views.lines import (
    BLANK,
    TIME,
    Field,
    Line,
    Span,
    empty_panel,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    row,
    table,
)
from latmon.views.panels.outliers import ORDERS, op_letters, parts_of, wait_lines
from latmon.views.selection import shown
from latmon.views.units import count, maximum, moment, quantile, size, span

_ROWS = 4
"""Rows of a device's file systems above its stages."""
_LEAST = 20
"""Lines from which on a line about them is above the devices' stages."""
_UNLIMITED = "; S until the last line says `stages all`, which has no budget"
_DETAIL = 7
"""Lines of the selected operation below the list, at least."""
_WAITS = 2
"""Late wake-ups of the operation's thread below it, at most."""
_SLEPT = "it slept without I/O of its own: a lock, or I/O of another thread, such as a journal's or a server's"


class _TimedRow:
    """A row with the seconds of the window."""

    def __init__(self, of: FileRow, seconds: float) -> None:
        self.of, self.seconds = of, seconds


def _share(wait: str) -> Field[_TimedRow]:
    return Field(wait, 7, lambda r, _: UNKNOWN if (of := r.of.share(wait)) is None else part(of), rank=1)


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
    *map(_share, FILE_WAITS),
)


def _process(one: FileOperation, _cells: int = 0) -> str:
    return one.comm if one.pid is None else f"{one.comm}/{one.pid}"


def _path(one: FileOperation) -> str:
    return whole_path(one.file_system.mount, one.path)


def _end_of_path(one: FileOperation, cells: int) -> str:
    path = _path(one)
    return path if len(path) <= cells else f"…{path[len(path) - cells + 1 :]}"


_OPERATION: tuple[Field[FileOperation], ...] = (
    Field("time", 15, lambda o, _: moment(o.wall), right=False),
    Field("op", 5, lambda o, _: o.op, right=False),
    Field("total", TIME, lambda o, _: duration(o.total_us), role="strong"),
    Field("waited", 7, lambda o, _: o.wait, right=False),
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
    return view.history.made("files", lambda: file_rows(view.history.on_demand.files))


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
        return [fit((Span(" files ", "strong"), Span(", ".join(texts)), Span(more, "dim")), width)]
    head = heading((Span(" files", "strong"), Span(f"  what programs wait for{more}", "dim")), width)
    kept = sorted(sorted(rows, key=lambda one: -(one.latency.sum or 0))[:_ROWS], key=rows.index)
    return [head, *_table(view, kept, width), BLANK]


def _table(view: ViewState, rows: Sequence[FileRow], width: int) -> list[Line]:
    placed = layout(_FIELDS, width)
    seconds = max(view.history.window.covered_us, 1) / 1e6
    return [fit(line, width) for line in (heads(placed), *(row(placed, _TimedRow(one, seconds)) for one in rows))]


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


def files_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table of file systems, the list of slow operations, and the I/O of the selected one."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    devices = _devices(view)
    rows = [one for one in every_row(view) if devices is None or one.file_system.device in devices]
    if not rows:
        return empty_panel(_why_none(view), width, room)
    some = operations(view)
    named = len({one.file_system for one in rows})
    head = heading(
        (
            Span(" files", "strong"),
            Span(f"  {count(named)} file system{'s' * (named != 1)}"),
            Span("  all devices" if devices is None else f"  on {listed(sorted(devices))}", "dim"),
        ),
        width,
        (Span(" cached, device, unknown: shares of the time ", "dim"),),
        (Span(" shares of the time ", "dim"),),
    )
    top = [head, *_table(view, rows, width)][: max(room // 3, 3)]
    left = room - len(top) - 1
    if not some:
        return [*top, BLANK, *paragraph(_no_operations(view), width)][:room]
    at = operation_position(some, view.selection.row)
    below = _operation(view, some[at], width)
    height = max(left - max(len(below), _DETAIL) - 2, 3)
    missing = view.history.on_demand.files_left_out
    counted = f"{_by(view)}  {count(len(some))} {view.selection.order} first" + (
        f", {count(missing)} left out by the rate limit" * bool(missing)
    )
    title = heading((Span(" slow operations", "strong"), Span(counted)), width)
    listing = table(_OPERATION, some, at, (width, height), why="")
    return [*top, BLANK, title, *listing, BLANK, *below][:room]


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
    lines += [line for wait in one.waits[-_WAITS:] for line in wait_lines(one, wait, width)]
    requests = slow_requests(view, one)
    if not requests:
        return [*lines, *(paragraph(_no_request(view, one), width, "dim") if one.disk else [])]
    lines += paragraph(f"its slow I/O on {one.disk}; Enter: the stages of the first", width, "dim")
    return [*lines, *(_request(each, one, width, view.ink) for each in requests[:3])]


def _request(one: Outlier, operation: FileOperation, width: int, ink: Ink) -> Line:
    """Return a request with the time from the operation's begin, and its ribbon of stages."""
    after = f"+{duration(one.mono_us - operation.mono_us).strip()}"
    text = f" {after:>8} {op_letters(one):5} {size(one.bytes):>5} {duration(one.total_us):>{TIME}} "
    return fit((Span(text), *stacked(parts_of(one), max(width - len(text) - 1, 1), ink)), width)


def _waited(one: FileOperation) -> str:
    """Return what the operation waited for, in words."""
    if one.wait == CACHED:
        return "cached: it did not sleep and issued no I/O"
    if one.wait == DEVICE_BOUND:
        return f"device: it issued I/O to {one.disk or 'a device'} and slept"
    return f"unknown: {f'it issued I/O to {one.disk} and did not sleep' if one.disk else _SLEPT}"


def _no_request(view: ViewState, one: FileOperation) -> str:
    limit = view.history.on_demand.thresholds_us.get(one.disk)
    above = f" above {spelled(limit)}" if limit else ""
    return f"none of its I/Os on {one.disk} was logged{above}: many short ones, or the rate limit left them out"


def _no_operations(view: ViewState) -> str:
    missing = view.history.on_demand.files_left_out
    left_out = f"; the rate limit left out {count(missing)}" if missing else ""
    return f"no operation on a file{_by(view)} was slow in the last {span(view.selection.window_us)}{left_out}"


def _why_none(view: ViewState) -> str:
    origin, selection = view.origin, view.selection
    assert origin is not None  # noqa: S101  checked by the caller
    begins = view.tracing.startswith(STARTING) and not view.recorded
    if view.history.any_traced and not begins:
        lacks = {one.name: one.reason for one in (*view.history.on_demand.traced.absent, *origin.probes_missing)}
        if FILES in lacks:
            unlimited = _UNLIMITED if "budget" in lacks[FILES] and not view.recorded else ""
            return f"operations on files are not traced: {lacks[FILES]}{unlimited}"
        devices = _devices(view)
        where = "" if devices is None else f" on {listed(sorted(devices))}" if devices else " of a device that passes"
        return f"no operation on a file{where} in the last {span(selection.window_us)}"
    return not_traced(
        "operations on files", origin, (FILES,), mode=selection.stages, recorded=view.recorded, state=view.tracing
    )
