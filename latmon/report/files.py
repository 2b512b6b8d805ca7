"""Operations on files in a report: rows per file system and op, and the longest slow ones with their requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from latmon.analysis.attribution import FileRow, Requests, by_process, file_rows, requests_of, whole_path
from latmon.model.frame import DEVICE_BOUND, FILE_WAIT_TITLES, OWN_IO, FileOperation, FileSplit, Outlier
from latmon.model.histogram import Histogram
from latmon.model.measurements.files import FilePart, FileSeries
from latmon.report.columns import Column, ReportTable, quantile
from latmon.report.formatting import rounded
from latmon.report.latencies import summed
from latmon.report.model.latency import Quantiles
from latmon.report.model.report import Report
from latmon.report.model.request import FileLatency, FileWait, OwnRequest, SlowOperation
from latmon.report.outliers import MAX_SHOWN, Longest, late_wakeup, waits
from latmon.support.text import wrapped
from latmon.support.units import UNKNOWN, part, rfc3339
from latmon.views.units import exact

_MOST_PARTS = 3
"""Parts of an operation's time in a row."""


class FileTables(NamedTuple):
    """Operations on files: latencies by file system, the longest slow ones, and the number of others."""

    rows: tuple[FileLatency, ...] = ()
    operations: tuple[SlowOperation, ...] | None = None
    """None where nothing was traced."""
    left_out: int = 0


def file_tables(
    latencies: Mapping[FileSeries, Histogram],
    times: Mapping[FilePart, int],
    operations: Longest[FileOperation],
    left_out: int,
    outliers: Iterable[Outlier],
) -> FileTables:
    """Return the operations on files.

    `times`: the parts of their time; `left_out`: slow operations without a record; `outliers`: those that are kept,
    for the requests of an operation.
    """
    if not latencies:
        return FileTables()
    kept, requests = operations.kept, by_process(outliers)
    return FileTables(
        tuple(map(_file_latency, file_rows(latencies, times))),
        tuple(_slow_operation(operation, requests) for operation in kept),
        left_out + operations.seen - len(kept),
    )


def _file_latency(row: FileRow) -> FileLatency:
    return FileLatency(
        mount=row.file_system.mount,
        type=row.file_system.kind or None,
        device=row.file_system.device or None,
        op=row.op,
        count=row.latency.count,
        latency_us=summed(row.latency),
        waits={wait: FileWait(waited.count, rounded(row.share(wait), 4)) for wait, waited in row.waits.items()},
        parts_us=row.all_parts if row.parts else {},
    )


def _slow_operation(operation: FileOperation, outliers: Requests) -> SlowOperation:
    return SlowOperation(
        time=rfc3339(operation.wall, "microseconds"),
        mono_us=operation.mono_us,
        op=operation.op,
        total_us=operation.total_us,
        wait=operation.wait,
        mount=operation.file_system.mount,
        type=operation.file_system.kind or None,
        path=operation.path,
        pid=operation.pid,
        comm=operation.comm or None,
        bytes=operation.bytes,
        offset=operation.offset,
        device=operation.disk or None,
        sectors=operation.sectors,
        requests=tuple(
            OwnRequest(request.mono_us, request.op, request.total_us, request.stages_us)
            for request in requests_of(operation, outliers)
        ),
        waits=tuple(map(late_wakeup, operation.waits)),
        split=operation.split,
    )


def _wait_share(row: FileLatency, wait: str) -> float | None:
    return row.waits[wait].share if wait in row.waits else None


def _file_share(wait: str) -> Column[FileLatency]:
    title = FILE_WAIT_TITLES[wait]
    return Column(title, "share", lambda row: _wait_share(row, wait), len(title) + 1)


def _share_of_part(row: FileLatency, name: str) -> float | None:
    whole_us = sum(row.parts_us.values())
    return row.parts_us.get(name, 0) / whole_us if whole_us else None


def _longest_wait(row: FileLatency) -> str:
    """Return the part but own I/O that has most of the time, with its share; UNKNOWN where it is not split."""
    others = {name: us for name, us in row.parts_us.items() if name != OWN_IO and us}
    name = max(others, key=lambda name: others[name], default="")
    return f"{name} {part(_share_of_part(row, name))}" if name else UNKNOWN


def _waited(row: SlowOperation) -> str:
    """Return how an operation waited: `lock 91 ms, own I/O 16 ms`; not split: `I/O+waits on sda`, `cached`."""
    if row.split is not None:
        parts = list(row.split.parts(row.total_us).items())[:_MOST_PARTS]
        return ", ".join(f"{name} {exact(us)}" for name, us in parts)
    title = FILE_WAIT_TITLES[row.wait]
    return f"{title} on {row.device}" if row.wait == DEVICE_BOUND and row.device else title


def _file_latency_us(row: FileLatency) -> Quantiles:
    return row.latency_us


FILES: Sequence[Column[FileLatency]] = (
    Column("op", "name", lambda row: row.op, -6),
    Column("files on", "name", lambda row: row.mount, -20),
    Column("type", "name", lambda row: row.type or UNKNOWN, -6),
    Column("device", "name", lambda row: row.device or UNKNOWN),
    Column("count", "count", lambda row: row.count, 9),
    quantile(_file_latency_us, "p50", "p50", 7),
    quantile(_file_latency_us, "p99", "p99", 7),
    quantile(_file_latency_us, "p99.9", "p99.9"),
    quantile(_file_latency_us, "max", "max", 7),
    Column("own I/O", "share", lambda row: _share_of_part(row, OWN_IO), 8),
    Column("most of the rest", "name", _longest_wait, 18),
    _file_share("cached"),
    _file_share("device"),
    Column("unknown", "share", lambda row: _wait_share(row, "unknown")),
)


def file_table(report: Report) -> ReportTable[FileLatency]:
    """Return the table of operations on files; without rows if they were not traced."""
    note = (
        "Shares of the time: own I/O, the thread slept for I/O and had issued some; most of the rest, what else it did "
        "longest; not split: cached, the thread did not sleep; I/O+waits, it issued I/O and slept, its waits for locks "
        "and for a CPU included; the rest is not known"
    )
    return ReportTable("Files", FILES, report.files, note)


def file_path(row: SlowOperation) -> str:
    """Return the path of an operation's file below its mount point."""
    return whole_path(row.mount, row.path)


def file_process(row: SlowOperation) -> str:
    """Return name and pid of an operation's process."""
    return f"{row.comm or UNKNOWN}/{UNKNOWN if row.pid is None else row.pid}"


def split_text(split: FileSplit) -> str:
    """Return where the longest sleep was, and who had the lock then; empty where it did not sleep."""
    if not split.longest_us:
        return ""
    holder = f", while {split.holder}/{split.holder_thread} had the file's lock" if split.holder else ""
    return f"longest sleep {exact(split.longest_us)} in {split.functions or split.wait}{holder}"


def _file_requests(row: SlowOperation) -> Iterator[str]:
    for request in row.requests[:3]:
        stages = request.stages_us
        longest = max(stages, key=stages.__getitem__, default="")
        most = f", {longest} {exact(stages[longest])}" if longest else ""
        yield f"{request.op} {exact(request.total_us)}{most}"


OPERATIONS: Sequence[Column[SlowOperation]] = (
    Column("began", "words", lambda row: row.time or UNKNOWN),
    Column("op", "name", lambda row: row.op),
    Column("took", "time", lambda row: row.total_us),
    Column("waited", "name", _waited),
    Column("process", "name", file_process),
    Column("bytes", "count", lambda row: row.bytes),
    Column("longest sleep", "words", lambda row: (split_text(row.split) if row.split else "") or UNKNOWN),
    Column("its slow I/O", "words", lambda row: ", ".join(_file_requests(row)) or UNKNOWN),
    Column("its thread", "words", lambda row: "; ".join(waits(row)) or UNKNOWN),
    Column("file", "name", file_path),
)


def operation_table(report: Report) -> ReportTable[SlowOperation]:
    """Return the table of slow operations; without rows if there was none."""
    left = report.file_operations_left_out
    more = f"{left:,} more were left out" if left else ""
    return ReportTable("Slow operations on files", OPERATIONS, report.file_operations or (), "", more)


def files_text(report: Report) -> list[str]:
    """Return the text report's lines on the longest operations; nothing without any."""
    rows = report.file_operations
    if not rows:
        return []
    lines = wrapped(f"slow operations on files: {len(rows):,} listed, {report.file_operations_left_out:,} left out")
    for row in rows[:MAX_SHOWN]:
        about = [row.time or UNKNOWN, f"{row.op} {exact(row.total_us)}", _waited(row), file_process(row)]
        lines += [*wrapped("  ".join(about), "  "), *wrapped(file_path(row), "    ")]
        if row.split is not None and (slept := split_text(row.split)):
            lines += wrapped(slept, "      ")
        lines += [line for each in _file_requests(row) for line in wrapped(f"its I/O: {each}", "      ")]
        lines += [line for each in waits(row) for line in wrapped(each, "      ")]
    return lines
