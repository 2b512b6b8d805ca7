"""The bound of a recording's buckets, which a reader's memory and time are in proportion to.

A file of 1 MB can name 60,000 series with 240 buckets each: an hour of gzip is a few repeated bytes. So the distinct
buckets of all series are counted, by the readers, which refuse a recording with too many of them, and by the
writer, which leaves out what would bring its file there.

Few series can't have so many buckets, and are not counted: that of 24 devices with all stages costs nothing. A series
whose buckets are all known costs one pass of bytes.translate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from latmon.model.frame import Frame
from latmon.model.histogram import TOP
from latmon.model.packed import Packed, tables_of
from latmon.model.table import AnyTable
from latmon.support.errors import TooManyError

MAX_BUCKETS = 3 << 17
"""Distinct buckets that a writer counts in a recording: 5,000 disks with reads and writes in 39 buckets each have as
many. A report takes about 200 bytes for each, a diff 300."""
_WIDTH = TOP + 1
"""Most buckets of a series."""
_UNCOUNTED = MAX_BUCKETS // 4
"""Buckets that series can have before they are counted."""
_MOST_READ = MAX_BUCKETS + _UNCOUNTED
"""Buckets that a reader counts: one that begins later than the writer counts some that the writer did not."""

Key = tuple[str, Any]


class BucketBound:
    """The distinct buckets of the frames of a recording so far."""

    def __init__(self) -> None:
        self._seen: dict[Key, bytes] = {}
        """Table and key of a series -> its buckets."""
        self._series: set[Key] = set()
        self.buckets = 0

    def admit(self, frame: Frame) -> None:
        """Count a frame's buckets; TooManyError where they are more than a reader takes."""
        for name, table in self._tables(frame):
            for key, new in self._new_buckets(name, table):
                self._count((name, key), new)
        if self.buckets > _MOST_READ:
            raise TooManyError(
                f"a window brings the buckets of the recording's latencies beyond {_MOST_READ}, more than any host has"
            )

    def fitting(self, frame: Frame) -> tuple[Frame, int]:
        """Return the frame without the series that would bring the recording beyond it, and their number."""
        left_out: dict[str, set[Any]] = {}
        for name, table in self._tables(frame):
            for key, new in self._new_buckets(name, table):
                if self.buckets + len(new) > MAX_BUCKETS:
                    left_out.setdefault(name, set()).add(key)
                else:
                    self._count((name, key), new)
        if not left_out:
            return frame, 0
        return _without(frame, left_out), sum(map(len, left_out.values()))

    def _tables(self, frame: Frame) -> Iterator[tuple[str, Packed[Any]]]:
        """Yield the tables of a frame whose buckets are counted: none as long as its series can't have too many."""
        tables = {"total": Packed.of(frame.histograms), **tables_of(frame)}
        del tables["basic"]  # `total` has them as well
        if len(self._series) * _WIDTH <= _UNCOUNTED:
            self._series.update((name, key) for name, table in tables.items() for key in table.rows)
            if len(self._series) * _WIDTH <= _UNCOUNTED:
                return
        yield from tables.items()

    def _new_buckets(self, name: str, table: Packed[Any]) -> Iterator[tuple[Any, bytes]]:
        """Yield the series that have buckets not seen before, and those."""
        seen = self._seen
        for key, row in table.parts():
            new = table.indices[row.begin : row.end].translate(None, seen.get((name, key), b""))
            if new:
                yield key, new

    def _count(self, series: Key, new: bytes) -> None:
        self._seen[series] = self._seen.get(series, b"") + new
        self.buckets += len(new)


def _without(frame: Frame, left_out: Mapping[str, set[Any]]) -> Frame:
    """Return the frame without these series of its tables."""

    def kept(name: str, rows: Mapping[Any, Any]) -> Mapping[Any, Any]:
        gone = left_out.get(name, set())
        return {key: value for key, value in rows.items() if key not in gone} if gone else rows

    traced = frame.traced
    if "traced" in left_out or "by_total" in left_out:
        by_total = traced.by_total
        traced = replace(traced, histograms=kept("traced", traced.histograms), by_total=kept("by_total", by_total))
    return replace(
        frame,
        histograms=kept("total", frame.histograms),
        traced=traced,
        tables={table: _declared_kept(table, rows, left_out) for table, rows in frame.tables.items()},
    )


def _declared_kept(table: AnyTable, rows: Mapping[Any, Any], left_out: Mapping[str, set[Any]]) -> Mapping[Any, Any]:
    gone = {key for column, _ in table.histogram_columns for key in left_out.get(column, ())}
    return {key: value for key, value in rows.items() if key not in gone}
