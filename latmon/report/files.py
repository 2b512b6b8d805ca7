"""Operations on files in a report: rows per file system and op, the longest slow ones with their requests."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latmon.analysis.attribution import Requests, by_process, file_rows, requests_of, whole_path
from latmon.model.frame import FileOperation, FileSeries, Outlier
from latmon.model.histogram import Histogram
from latmon.report.formatting import Column, ReportTable, key, quantile, rounded, summed, wrapped
from latmon.report.outliers import wait_row, waits
from latmon.support.units import UNKNOWN, rate, rfc3339
from latmon.views.units import exact

MAX_ROWS = 1000
MAX_SHOWN = 5
"""Slow operations in the text report."""
_Json = Mapping[str, Any]


class LongestOperations:
    """Longest slow operations of any number of them, in bounded memory."""

    def __init__(self) -> None:
        self.seen = 0
        self._heap: list[tuple[int, int, FileOperation]] = []

    def add(self, one: FileOperation) -> None:
        self.seen += 1
        entry = (one.total_us, -self.seen, one)
        if len(self._heap) < MAX_ROWS:
            heapq.heappush(self._heap, entry)
        else:
            heapq.heappushpop(self._heap, entry)

    def rows(self) -> list[FileOperation]:
        """Return them, the longest first."""
        return [one for _, _, one in sorted(self._heap, reverse=True)]


def files(
    found: Mapping[FileSeries, Histogram],
    operations: LongestOperations,
    left_out: int,
    outliers: Iterable[Outlier],
) -> dict[str, Any]:
    """Return the keys `files`, `file_operations` and what the latter lacks; none where nothing was traced.

    `left_out`: slow operations without a record; `outliers`: those that are kept, for the requests of an operation.
    """
    if not found:
        return {}
    rows = [
        {
            "mount": one.file_system.mount,
            "type": one.file_system.kind or None,
            "device": one.file_system.device or None,
            "op": one.op,
            "count": one.latency.count,
            "latency_us": summed(one.latency),
            "waits": {
                wait: {"count": part.count, "share": rounded(one.share(wait), 4)} for wait, part in one.waits.items()
            },
        }
        for one in file_rows(found)
    ]
    kept, requests = operations.rows(), by_process(outliers)
    missing = left_out + operations.seen - len(kept)
    return {
        "files": rows,
        "file_operations": [_operation(one, requests) for one in kept],
        **({"file_operations_left_out": missing} if missing else {}),
    }


def _operation(one: FileOperation, outliers: Requests) -> dict[str, Any]:
    return {
        "time": rfc3339(one.wall, "microseconds"),
        "mono_us": one.mono_us,
        "op": one.op,
        "total_us": one.total_us,
        "wait": one.wait,
        "mount": one.file_system.mount,
        "type": one.file_system.kind or None,
        "path": one.path,
        "pid": one.pid,
        "comm": one.comm or None,
        "bytes": one.bytes,
        "offset": one.offset,
        "device": one.disk or None,
        "sectors": None if one.sectors is None else list(one.sectors),
        "requests": [
            {"mono_us": each.mono_us, "op": each.op, "total_us": each.total_us, "stages_us": dict(each.stages_us)}
            for each in requests_of(one, outliers)
        ],
        "waits": [wait_row(wait) for wait in one.waits],
    }


def _share(wait: str) -> Column:
    return Column(wait, "share", lambda row: row["waits"].get(wait, {}).get("share"), 7)


FILES = (
    Column("op", "name", key("op"), -6),
    Column("files on", "name", key("mount"), -20),
    Column("type", "name", lambda row: row["type"] or UNKNOWN, -6),
    Column("device", "name", lambda row: row["device"] or UNKNOWN),
    Column("count", "count", key("count"), 9),
    Column("per s", "words", lambda row: rate(row["count"] / row["seconds"])),
    quantile("latency_us", "p50", "p50", 7),
    quantile("latency_us", "p99", "p99", 7),
    quantile("latency_us", "p99.9", "p99.9"),
    quantile("latency_us", "max", "max", 7),
    _share("cached"),
    _share("device"),
    Column("unknown", "share", lambda row: row["waits"].get("unknown", {}).get("share")),
)


def file_table(summary: _Json) -> ReportTable:
    """Return the table of operations on files; without rows if they were not traced."""
    seconds = summary["duration_s"] or 1.0
    note = (
        "cached: the thread did not sleep; device: it issued I/O and slept; the rest is not known. Shares of the time"
    )
    return ReportTable("Files", FILES, [{**one, "seconds": seconds} for one in summary.get("files", [])], note)


def path(row: _Json) -> str:
    """Return the path of an operation's file below its mount point."""
    return whole_path(row["mount"], row["path"])


def process(row: _Json) -> str:
    """Return name and pid of an operation's process."""
    return f"{row['comm'] or UNKNOWN}/{UNKNOWN if row['pid'] is None else row['pid']}"


def _requests(row: _Json) -> Iterator[str]:
    for one in row["requests"][:3]:
        stages = one["stages_us"]
        longest = max(stages, key=stages.__getitem__, default="")
        most = f", {longest} {exact(stages[longest])}" if longest else ""
        yield f"{one['op']} {exact(one['total_us'])}{most}"


OPERATIONS = (
    Column("began", "words", lambda row: row["time"] or UNKNOWN),
    Column("op", "name", key("op")),
    Column("took", "time", key("total_us")),
    Column("waited for", "name", lambda row: row["device"] if row["wait"] == "device" else row["wait"]),
    Column("process", "name", process),
    Column("bytes", "count", key("bytes")),
    Column("its slow I/O", "words", lambda row: ", ".join(_requests(row)) or UNKNOWN),
    Column("its thread", "words", lambda row: "; ".join(waits(row)) or UNKNOWN),
    Column("file", "name", path),
)


def operation_table(summary: _Json) -> ReportTable:
    """Return the table of slow operations; without rows if there was none."""
    left = summary.get("file_operations_left_out", 0)
    more = f"{left:,} more were left out" if left else ""
    return ReportTable("Slow operations on files", OPERATIONS, summary.get("file_operations", []), "", more)


def text(summary: _Json) -> list[str]:
    """Return the text report's lines on the longest operations; nothing without any."""
    every = summary.get("file_operations", [])
    if not every:
        return []
    left = summary.get("file_operations_left_out", 0)
    lines = wrapped(f"slow operations on files: {len(every):,} listed, {left:,} left out")
    for one in every[:MAX_SHOWN]:
        waited = one["device"] if one["wait"] == "device" and one["device"] else one["wait"]
        about = [one["time"] or UNKNOWN, f"{one['op']} {exact(one['total_us'])}", f"waited: {waited}", process(one)]
        lines += [*wrapped("  ".join(about), "  "), *wrapped(path(one), "    ")]
        lines += [line for each in _requests(one) for line in wrapped(f"its I/O: {each}", "      ")]
        lines += [line for each in waits(one) for line in wrapped(each, "      ")]
    return lines
