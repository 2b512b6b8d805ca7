"""The panel of operations on files: a row per file system and op, the slow ones, and the I/O below them. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from latmon.analysis.attribution import FileRow, by_process, file_rows, requests_of, whole_path
from latmon.model import measurements
from latmon.model.frame import (
    CACHED,
    DEVICE_BOUND,
    FILE_WAIT_TITLES,
    FILE_WAITS,
    FILES,
    LOST_PATH,
    OWN_IO,
    RUNNING,
    TRACER_STARTING,
    FileOperation,
    FileSystem,
    Outlier,
)
from latmon.support.text import listed
from latmon.support.units import UNKNOWN, duration, part, rate, spelled
from latmon.views.bars import legend, stacked
from latmon.views.context import ViewState, no_rows, not_traced
from latmon.views.heatmap import Ink
from latmon.views.lines import (
    BLANK,
    TIME,
    Field,
    Line,
    Span,
    cut,
    empty_panel,
    fit,
    heading,
    heads,
    layout,
    paragraph,
    row,
    table,
)
from latmon.views.panels.nfs import nfs_table
from latmon.views.panels.outliers import ORDERS, op_letters, parts_of, wait_lines
from latmon.views.selection import shown
from latmon.views.units import count, maximum, moment, quantile, size, span

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
_REQUESTS = 3
"""Slow requests of the selected operation, at most."""
_WAITS = 2
"""Late wake-ups of the operation's thread below it, at most."""
_LOST = "its path is not known: events of the probe were lost in that interval (I counts them)"
_SLEPT = "it slept without I/O of its own: a lock, or I/O of another thread, such as a journal's or a server's"
_OWN_AND_ELSE, _WAITS_IN_TIME = "own I/O, what else", "cached, I/O+waits, unknown"


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


def files_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table of file systems, the list of slow operations, and the I/O of the selected one."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    devices = _devices(view)
    rows = [one for one in every_row(view) if devices is None or one.file_system.device in devices]
    calls = nfs_table(view, width) if devices is None else []
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
