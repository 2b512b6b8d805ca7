"""Operations on files: rows per file system and op, and the requests that a slow operation issued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from latmon.model.frame import FILE_OPS, FILE_WAITS, FileOperation, FileSeries, FileSystem, Outlier
from latmon.model.histogram import EMPTY, Histogram, merge

Requests = Mapping[tuple[str, int | None], Sequence[Outlier]]
"""Outliers by device and process."""
_SECTOR = 512
_SLACK_US = 1_000
"""Two programs have stamps of two clocks, whose distance is measured from outside."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One op on the files of one file system. `waits`: what its threads waited for -> the operations' times."""

    file_system: FileSystem
    op: str
    latency: Histogram
    waits: Mapping[str, Histogram]

    def share(self, wait: str) -> float | None:
        """Return the part of the operations' time of one kind of wait; None where no time is known."""
        part, whole = self.waits.get(wait, EMPTY), self.latency.sum
        return None if not whole or part.sum is None else part.sum / whole


def file_rows(files: Mapping[FileSeries, Histogram]) -> list[FileRow]:
    """Return a row per file system and op: the file systems by their operations' time, the ops in their order."""
    found: dict[tuple[FileSystem, str], dict[str, Histogram]] = {}
    for one, latency in files.items():
        waits = found.setdefault((FileSystem(one.mount, one.kind, one.device), one.op), {})
        waits[one.wait] = merge((waits[one.wait], latency)) if one.wait in waits else latency
    times_us: dict[FileSystem, int] = {}
    for (its, _), waits in found.items():
        times_us[its] = times_us.get(its, 0) + sum(one.sum or 0 for one in waits.values())
    rows = [
        FileRow(its, op, merge(waits.values()), {wait: waits[wait] for wait in FILE_WAITS if wait in waits})
        for (its, op), waits in found.items()
    ]
    at = {op: number for number, op in enumerate(FILE_OPS)}
    return sorted(rows, key=lambda one: (-times_us[one.file_system], one.file_system, at.get(one.op, len(at))))


def whole_path(mount: str, path: str) -> str:
    """Return the path of a file from the root, as far as it is known."""
    return f"{mount.rstrip('/')}/{path}"


def by_process(outliers: Iterable[Outlier]) -> Requests:
    """Return the outliers for `requests_of`, so that many operations need not look at all of them."""
    found: dict[tuple[str, int | None], list[Outlier]] = {}
    for one in outliers:
        found.setdefault((one.device, one.pid), []).append(one)
    return found


def requests_of(operation: FileOperation, outliers: Requests) -> list[Outlier]:
    """Return the slow requests that the operation's thread issued during it, the longest first.

    They have its process and lie on its device and in its sectors. A request of a thread of the file system's own, such
    as the journal's, is none of them.
    """
    if operation.pid is None or operation.sectors is None:
        return []
    first, end = operation.sectors
    found = [
        one
        for one in outliers.get((operation.disk, operation.pid), ())
        if operation.mono_us - _SLACK_US <= one.mono_us <= operation.until_us and _overlaps(one, first, end)
    ]
    return sorted(found, key=lambda one: -one.total_us)


def _overlaps(one: Outlier, first: int, end: int) -> bool:
    """Return whether a request has one of these sectors; a flush has none, and is the operation's if its process's."""
    if one.sector is None or not one.bytes:
        return True
    return one.sector < end and first < one.sector + one.bytes // _SECTOR
