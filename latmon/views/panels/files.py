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
    Outlier,
)
from latmon.support.text import listed, path_end
from latmon.support.units import UNKNOWN, duration, part, rate, spelled
from latmon.views.bars import legend, stacked
from latmon.views.context import ViewState, no_rows, not_traced
from latmon.views.heatmap import Ink
from latmon.views.lines import (
    BLANK,
    ROW,
    TIME,
    Field,
    Line,
    Span,
    Target,
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
from latmon.views.panels.outliers import op_letters, parts_of, wait_lines
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

    def __init__(self, files: FileRow, seconds: float) -> None:
        self.files, self.seconds = files, seconds


def _wait_field(wait: str) -> Field[_TimedRow]:
    """Return the column with the share of a wait."""
    title = FILE_WAIT_TITLES[wait]
    return Field(title, len(title), lambda r, _: part(r.files.share(wait)), rank=1)


_FIELDS: tuple[Field[_TimedRow], ...] = (
    Field("op", 5, lambda r, _: r.files.op, right=False),
    Field("files on", 14, lambda r, _: r.files.file_system.mount, right=False, most=40),
    Field("type", 6, lambda r, _: r.files.file_system.kind, rank=1, right=False, most=12, role="dim"),
    Field("device", 7, lambda r, _: r.files.file_system.device or UNKNOWN, rank=2, right=False, most=16, role="dim"),
    Field("per s", 5, lambda r, _: rate(r.files.latency.count / r.seconds)),
    Field("p50", TIME, lambda r, _: quantile(r.files.latency, 0.5)),
    Field("p99", TIME, lambda r, _: quantile(r.files.latency, 0.99)),
    Field("p99.9", TIME, lambda r, _: quantile(r.files.latency, 0.999), rank=2),
    Field("max", TIME, lambda r, _: maximum(r.files.latency)),
)
_WAIT_FIELDS = (*_FIELDS, *map(_wait_field, FILE_WAITS))
"""Fields where the time is not split."""
_PART_FIELDS = (
    *_FIELDS,
    Field(OWN_IO, 7, lambda r, _: part(r.files.part_share(OWN_IO))),
    Field("most else", 15, lambda r, _: _longest_else(r.files), right=False),
)


def _longest_else(files: FileRow) -> str:
    """Return what else the threads did longest, with its share: `lock 83%`."""
    name = files.longest_wait
    return f"{name} {part(files.part_share(name))}" if name else UNKNOWN


def _process(operation: FileOperation, _cells: int = 0) -> str:
    return operation.comm if operation.pid is None else f"{operation.comm}/{operation.pid}"


def _path(operation: FileOperation) -> str:
    return whole_path(operation.file_system.mount, operation.path)


def _waited_title(operation: FileOperation) -> str:
    """Return what an operation did longest; where its time is not split, how it waited."""
    if operation.split is None:
        return FILE_WAIT_TITLES[operation.wait]
    return next(iter(operation.split.parts(operation.total_us)), RUNNING)


_OPERATION: tuple[Field[FileOperation], ...] = (
    Field("time", 15, lambda o, _: moment(o.wall), right=False),
    Field("op", 5, lambda o, _: o.op, right=False),
    Field("total", TIME, lambda o, _: duration(o.total_us), role="strong"),
    Field("waited", 9, lambda o, _: _waited_title(o), right=False, most=11),
    Field("process", 12, _process, rank=1, right=False, most=22, role="dim"),
    Field("size", 5, lambda o, _: size(o.bytes), rank=1),
    Field("file", 20, lambda o, cells: path_end(_path(o), cells), right=False, most=200),
)


def device_files(view: ViewState, device: str) -> list[FileRow]:
    """Return the rows of file systems on a device, or on one that it is a member of."""
    above = _with_volumes(view, device)
    return [files for files in all_rows(view) if files.file_system.device in above]


def _with_volumes(view: ViewState, device: str) -> set[str]:
    """Return a device, and those that it is a member of."""
    return {device, *(name for name, other in view.history.store.devices.items() if device in other.members)}


def _devices(view: ViewState) -> frozenset[str] | None:
    """Return the devices whose file systems are listed: the opened one, those of the filter; None: all."""
    selection = view.selection
    if selection.opened:
        return frozenset(_with_volumes(view, selection.selected))
    if not selection.globs and not selection.pattern.strip():
        return None
    return frozenset(device.name for device in shown(view.history.store.devices.values(), selection))


def all_rows(view: ViewState) -> list[FileRow]:
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
    slow = [operation for operation in view.history.on_demand.file_operations if operation.file_system.device == device]
    more = f"  {count(len(slow))} slow: F" if slow else "  F: all"
    if not view.selection.opened:
        texts = [_brief(files) for files in _longest(rows, 2)]
        return [heading((Span(" files", "strong"), Span(f" {', '.join(texts)}"), Span(more, "dim")), width)]
    head = heading((Span(" files", "strong"), Span(f"  what programs wait for{more}", "dim")), width)
    kept = sorted(_longest(rows, _FILE_ROWS), key=rows.index)
    return [head, *_file_table(view, kept, width), BLANK]


def _longest(rows: Sequence[FileRow], limit: int) -> list[FileRow]:
    """Return the rows with most of the time, at most `limit`."""
    return sorted(rows, key=lambda files: files.latency.sum or 0, reverse=True)[:limit]


def _brief(files: FileRow) -> str:
    return f"{files.op} {files.file_system.mount} p99 {quantile(files.latency, 0.99).strip()}"


def _file_table(view: ViewState, rows: Sequence[FileRow], width: int) -> list[Line]:
    placed = layout(_PART_FIELDS if any(files.parts for files in rows) else _WAIT_FIELDS, width)
    seconds = max(view.history.window.covered_us, 1) / 1e6
    lines = [heads(placed)]
    lines += [row(placed, _TimedRow(files, seconds)) for files in rows]
    return [fit(line, width) for line in lines]


def _rows_within(view: ViewState, rows: Sequence[FileRow], width: int, height: int) -> list[Line]:
    """Return the table of file systems in `height` lines: the rows with most of the time, and how many there are."""
    if len(rows) < height:
        return _file_table(view, rows, width)
    kept = _longest(rows, max(height - 2, 1))
    more, remedy = f" … {len(rows) - len(kept)} more rows", ", with less of the time; / filters by device"
    last = (Span(f"{more}{remedy}" if len(more) + len(remedy) <= width else more, "dim"),)
    return [*_file_table(view, [files for files in rows if files in kept], width), last]


def operations(view: ViewState) -> Sequence[FileOperation]:
    """Return the slow operations in the selected order: of the listed devices, and of the region's processes."""
    selection, devices = view.selection, _devices(view)
    pids = None if selection.region is None else selection.region.pids

    def listed_operations() -> list[FileOperation]:
        newest_first = list(reversed(view.history.on_demand.file_operations))
        if pids is not None:
            newest_first = [operation for operation in newest_first if operation.pid in pids]
        if devices is not None:
            newest_first = [operation for operation in newest_first if operation.file_system.device in devices]
        if selection.order == "newest":
            return newest_first
        return sorted(newest_first, key=lambda operation: -operation.total_us)

    return view.history.made(("file operations", pids, devices, selection.order), listed_operations)


def operation_position(rows: Sequence[FileOperation], chosen: Hashable | None) -> int:
    """Return the position of the selected operation; the first one where none is selected or it is gone."""
    return next((position for position, operation in enumerate(rows) if operation == chosen), 0)


def slow_requests(view: ViewState, operation: FileOperation) -> list[Outlier]:
    """Return the slow requests that an operation issued, the longest first."""
    history = view.history
    return requests_of(operation, by_process(history.store.on_demand.outliers(operation.mono_us, history.until_us)))


def files_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the table of file systems, the list of slow operations, and the I/O of the selected one."""
    if view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    devices = _devices(view)
    rows = [files for files in all_rows(view) if devices is None or files.file_system.device in devices]
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
    slow = operations(view)
    named = len({files.file_system for files in rows})
    shares = _OWN_AND_ELSE if any(files.parts for files in rows) else _WAITS_IN_TIME
    head = heading(
        (
            Span(" files", "strong"),
            Span(f"  {count(named)} file system{'s' * (named != 1)}"),
            Span("  all devices" if devices is None else f"  on {listed(sorted(devices))}", "dim"),
        ),
        width,
        (Span(f" {shares}: shares of the time ", "dim"),),
        (Span(" shares of the time ", "dim"),),
    )
    if not slow:
        why = paragraph(_no_operations(view), width)
        return cut([head, *_rows_within(view, rows, width, room - len(why) - 2), BLANK, *why], room)
    if room < _FOR_BOTH:
        why = paragraph(f"a larger terminal lists the {count(len(slow))} slow operations", width, "dim")
        return cut([head, *_rows_within(view, rows, width, room - len(why) - 1), *why], room)
    position = operation_position(slow, view.selection.row)
    below = _operation(view, slow[position], width)
    detail = max(len(below), _DETAIL)
    free = room - detail - min(len(slow) + 1, _LISTED) - 4  # a heading, and blanks between the parts
    top = [head, *_rows_within(view, rows, width, max(room // 3 - 1, 2, free))]
    height = max(room - len(top) - detail - 3, 3)
    missing = view.history.on_demand.files_left_out
    counted = f"{_by(view)}  {count(len(slow))} {view.selection.order} first"
    if missing:
        counted += f", {count(missing)} left out by the rate limit"
    title = heading((Span(" slow operations", "strong"), Span(counted)), width)
    listing = table(
        _OPERATION, slow, position, (width, height), why="", target_of=lambda operation: Target(ROW, operation)
    )
    return cut([*top, BLANK, title, *listing, BLANK, *below], room)


def _by(view: ViewState) -> str:
    """Return whose operations are listed; empty for all."""
    region = view.selection.region
    return "" if region is None or region.pids is None else f" {region.words.removeprefix(f'{region.device}, ')}"


def _operation(view: ViewState, operation: FileOperation, width: int) -> list[Line]:
    """Return the facts of an operation, and a ribbon per slow request that it issued."""
    file_system = operation.file_system
    where = f"{file_system.kind} on {file_system.device}" if file_system.device else file_system.kind
    offset = "" if operation.offset is None else f", at offset {operation.offset:,}"
    done = f"{operation.bytes:,} bytes{offset}; " if operation.bytes is not None else ""
    lines = paragraph(f"{operation.op} of {_path(operation)}", width, "strong")
    took = f"{spelled(operation.total_us)}, {_waited(operation)}"
    lines += paragraph(f"{done}{where or 'file system not known'}, by {_process(operation)}: {took}", width)
    lines += _sleep_lines(operation, width)
    lines += [line for wait in operation.waits[-_WAITS:] for line in wait_lines(operation, wait, width)]
    if operation.path == LOST_PATH:
        lines += paragraph(_LOST, width, "bad")
    requests = slow_requests(view, operation)
    if not requests:
        return [*lines, *(paragraph(_no_request(view, operation), width, "dim") if operation.disk else [])]
    lines += paragraph(f"its slow I/O on {operation.disk}; Enter: the stages of the first", width, "dim")
    listed_requests = requests[:_REQUESTS]
    lines += [_request(request, operation, width, view.ink) for request in listed_requests]
    if len(requests) > len(listed_requests):
        lines.append((Span(f" … {len(requests) - len(listed_requests)} more", "dim"),))
    return [*lines, *legend({stage for request in listed_requests for stage in parts_of(request)}, width, view.ink)]


def _sleep_lines(operation: FileOperation, width: int) -> list[Line]:
    """Return where the longest sleep without own I/O was, and who had the file's lock as it began."""
    split = operation.split
    if split is None or not split.longest_us:
        return []
    held = f"; {split.holder}/{split.holder_thread} had the lock then" if split.holder else ""
    where = f" in {split.functions}" if split.functions else ""
    return paragraph(f"its longest other sleep: {spelled(split.longest_us)}{where}{held}", width, "dim")


def _request(request: Outlier, operation: FileOperation, width: int, ink: Ink) -> Line:
    """Return a request with the time from the operation's begin, and its ribbon of stages."""
    after = f"+{duration(request.mono_us - operation.mono_us).strip()}"
    text = f" {after:>8} {op_letters(request):5} {size(request.bytes):>5} {duration(request.total_us):>{TIME}} "
    return fit((Span(text), *stacked(parts_of(request), max(width - len(text) - 1, 1), ink)), width)


def _waited(operation: FileOperation) -> str:
    """Return what the operation waited for, in words."""
    if operation.split is not None:
        return ", ".join(f"{name} {spelled(us)}" for name, us in operation.split.parts(operation.total_us).items())
    if operation.wait == CACHED:
        return "cached: it did not sleep and issued no I/O"
    if operation.wait == DEVICE_BOUND:
        return f"it issued I/O to {operation.disk or 'a device'} and slept, waits for locks and a CPU included"
    return f"unknown: {f'it issued I/O to {operation.disk} and did not sleep' if operation.disk else _SLEPT}"


def _no_request(view: ViewState, operation: FileOperation) -> str:
    limit = view.history.on_demand.thresholds_us.get(operation.disk)
    moves = view.origin is None or view.origin.threshold_us is None
    above = "" if not limit else f" above {f'the threshold, now {spelled(limit)}' if moves else spelled(limit)}"
    return (
        f"none of its I/Os on {operation.disk} was logged{above}: many short ones, or the rate limit left them out; "
        "a lower --threshold logs more"
    )


def why_no_request(view: ViewState) -> str:
    """Return why the selected operation has no request that Enter opens, and what shows one."""
    rows = operations(view)
    if not rows:
        return _why_none(view) if view.origin is not None and not all_rows(view) else _no_operations(view)
    operation = rows[operation_position(rows, view.selection.row)]
    if operation.disk:
        return _no_request(view, operation)
    return f"Enter opens the I/O of an operation, and this one has none: {_waited(operation)}"


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
        lacks = {probe.name: probe.reason for probe in (*view.history.on_demand.traced.absent, *origin.probes_missing)}
        if FILES in lacks:
            unlimited = _UNLIMITED if "budget" in lacks[FILES] and not view.recorded else ""
            return f"operations on files {'were' if view.recorded else 'are'} not traced: {lacks[FILES]}{unlimited}"
        devices = _devices(view)
        where = "" if devices is None else f" on {listed(sorted(devices))}" if devices else " of a device that passes"
        return f"no operation on a file{where} in the last {span(selection.window_us)}"
    return not_traced(
        "operations on files", origin, (FILES,), mode=selection.stages, recorded=view.recorded, state=view.tracing
    )
