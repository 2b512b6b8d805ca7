"""Importer of vscsiStats of ESX: its histograms of latency and outstanding I/Os.

A bucket's limit is its upper end, inclusive; latency is in microseconds. Maximum, minimum and mean are printed exactly
and kept as they are. `latency of IOs` is of reads and writes: it is left out where both have histograms of their own.
Lengths, distances and arrivals are no latency and are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from latmon.decode.dtrace_aggregation import Row
from latmon.importers.values import (
    UNKNOWN_OP,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    TextSpan,
    one_device,
)
from latmon.model.frame import Series
from latmon.support.text import clean

_TITLE = re.compile(r'\s*"?Histogram: (.{1,200}?)"?(?:,|\s+for virtual machine\b|$)(.*)')
_VALUE = re.compile(r"\s*(min|max|mean|count)\s*[,:]\s*(-?\d{1,19})\s*(?:\(.*)?")
_HEAD = re.compile(r"\s*Frequency\s*,\s*Histogram Bucket Limit\s*")
_CSV = re.compile(r"\s*(\d{1,19})\s*,\s*(>?)\s*(-?\d{1,19})\s*")
_TEXT = re.compile(r"\s*(\d{1,19})\s+\((<=|>)\s*(-?\d{1,19})\)\s*")
_DISK = re.compile(r"(?:handleID|virtual disk)\D{0,20}(\d{1,12})|\b(scsi\d{1,2}:\d{1,2})")
_FRAME = re.compile(r"\s*[{}]\s*")
_MOST = 2**32
"""No time in us and no number of I/Os is above it."""


@dataclass(slots=True)
class _OpenHistogram:
    first: int
    last: int
    title: str
    disk: str
    printed: dict[str, int] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    damaged: int = 0
    """The first line of it that can't be read."""

    @property
    def is_whole(self) -> bool:
        """Return whether its rows add up to its count; True without a count."""
        count = sum(row.count for row in self.rows)
        return not self.damaged and self.printed.get("count", count) == count

    @property
    def op(self) -> str:
        words = self.title.lower()
        return "read" if "read" in words else "write" if "write" in words else UNKNOWN_OP

    @property
    def what(self) -> str:
        words = self.title.lower()
        return "latency" if "latency" in words else "outstanding" if "outstanding" in words else ""


def sniff(head: str) -> bool:
    """Return whether there is a title and a count of frequencies."""
    lines = head.split("\n")
    return any(_TITLE.match(one) for one in lines) and any(_HEAD.fullmatch(o) or _TEXT.fullmatch(o) for o in lines)


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all histograms of one print as a window."""
    every: list[_OpenHistogram] = []
    now: _OpenHistogram | None = None
    for at, line in enumerate(lines, 1):
        title = _TITLE.match(line)
        if title:
            disk = _DISK.findall(title[2])
            named = [part for pair in disk for part in pair if part]
            now = _OpenHistogram(
                at,
                at,
                clean(title[1], 120),
                clean(next((n for n in named if ":" in n), named[-1] if named else "disk")),
            )
            every.append(now)
        elif now is None:
            continue
        elif value := _VALUE.fullmatch(line):
            now.printed[value[1]] = int(value[2])
        elif (row := _CSV.fullmatch(line)) or (row := _TEXT.fullmatch(line)):
            now.rows.append(_row(now, int(row[1]), int(row[3]), row[2] == ">"))
        elif not (_HEAD.fullmatch(line) or _FRAME.fullmatch(line) or not line.strip()):
            if now.rows and "count" in now.printed and now.is_whole:
                now = None  # other text behind a whole histogram
                continue
            now.damaged = now.damaged or at
        yield Passed(TextSpan(at, at))
        now.last = at
    one_device(options, list(dict.fromkeys(one.disk for one in every)))
    apart = _with_directions(every)
    for one in every:
        yield from _found(one, apart, options)


def _with_directions(every: Sequence[_OpenHistogram]) -> set[str]:
    """Return disks whose latencies of reads and of writes add up to those of all."""
    found: dict[str, dict[bool, int]] = {}
    for one in every:
        if one.what == "latency" and one.is_whole:
            counts = found.setdefault(one.disk, {True: 0, False: 0})
            counts[one.op == UNKNOWN_OP] += sum(row.count for row in one.rows)
    return {disk for disk, counts in found.items() if counts[False] and counts[False] >= counts[True]}


def _row(now: _OpenHistogram, count: int, limit: int, above: bool) -> Row:
    before = now.rows[-1].high if now.rows else None
    if above:
        return Row(limit + 1, None, count)
    low = 0 if before is None and limit >= 0 else before
    return Row(low, limit + 1, count)


def _found(one: _OpenHistogram, apart: set[str], options: ImportOptions) -> Iterator[Found]:
    where = TextSpan(one.first, one.last)
    if not one.is_whole:
        why = f"is damaged in line {one.damaged}" if one.damaged else "has rows that don't add up to its count"
        yield Remark(where, f"{one.title} ({one.disk}) {why}: all of it is left out", 1, is_incomplete=True)
        return
    if not one.rows or not any(row.count for row in one.rows):
        return
    if not one.what:
        yield Remark(where, f"{one.title} ({one.disk}): no latency, left out", sum(row.count for row in one.rows))
    elif one.what == "latency" and (one.op == UNKNOWN_OP) == (one.disk in apart):
        yield Remark(where, f"{one.title} ({one.disk}): its I/Os are in another table, counted once")
    elif one.op != UNKNOWN_OP and one.what == "outstanding":
        yield Remark(where, f"{one.title} ({one.disk}): reads and writes together are taken")
    else:
        count = sum(row.count for row in one.rows)
        printed = {name: value for name, value in one.printed.items() if 0 <= value <= _MOST}
        is_latency = one.what == "latency"
        series = Series(options.device or one.disk, options.op or one.op, options.stage or "total")
        yield ImportedTable(
            where,
            one.title,
            "vscsiStats",
            tuple(one.rows),
            "us",
            "vscsiStats' own",
            series,
            sum_us=printed["mean"] * count if is_latency and "mean" in printed else None,
            max_us=printed.get("max") if is_latency else None,
            at_issue=not is_latency,
            printed=printed,
        )
