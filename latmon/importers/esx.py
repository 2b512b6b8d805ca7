"""Importers of ESX: vscsiStats' histograms, esxtop's batch CSV, and the warnings of slow devices in vmkernel.log.

vscsiStats: a bucket's limit is its upper end, inclusive; latency is in microseconds. Maximum, minimum and mean are
printed exactly and kept as they are. `latency of IOs` is of reads and writes: it is left out where both have histograms
of their own. Lengths, distances and arrivals are no latency and are named.

esxtop: the mean time of a command in the guest's view (GAVG) is that in the kernel (KAVG, with its queue) and that in
the driver and below (DAVG). Adapters, paths and worlds have the I/Os of the devices again and are left out.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import BinaryIO

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.values import (
    UNKNOWN_OP,
    Counts,
    Found,
    ImportedTable,
    ImportOptions,
    Message,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    TimeLine,
    add,
    one_device,
)
from latmon.model.frame import Completed, Flow, Outstanding
from latmon.support.errors import RecordingError
from latmon.support.text import clean
from latmon.support.units import counted

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


def sniff_histograms(head: str) -> bool:
    """Return whether there is a title and a count of frequencies."""
    lines = head.split("\n")
    return any(_TITLE.match(line) for line in lines) and any(_HEAD.fullmatch(o) or _TEXT.fullmatch(o) for o in lines)


def read_histograms(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all histograms of one print as a window."""
    histograms: list[_OpenHistogram] = []
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
            histograms.append(now)
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
    one_device(options, list(dict.fromkeys(open_histogram.disk for open_histogram in histograms)))
    apart = _with_directions(histograms)
    for histogram in histograms:
        yield from _found(histogram, apart, options)


def _with_directions(histograms: Sequence[_OpenHistogram]) -> set[str]:
    """Return disks whose latencies of reads and of writes add up to those of all."""
    counts_by_adapter: dict[str, dict[bool, int]] = {}
    for histogram in histograms:
        if histogram.what == "latency" and histogram.is_whole:
            counts = counts_by_adapter.setdefault(histogram.disk, {True: 0, False: 0})
            counts[histogram.op == UNKNOWN_OP] += sum(row.count for row in histogram.rows)
    return {disk for disk, counts in counts_by_adapter.items() if counts[False] and counts[False] >= counts[True]}


def _row(now: _OpenHistogram, count: int, limit: int, above: bool) -> Row:
    before = now.rows[-1].high if now.rows else None
    if above:
        return Row(limit + 1, None, count)
    low = 0 if before is None and limit >= 0 else before
    return Row(low, limit + 1, count)


def _found(histogram: _OpenHistogram, apart: set[str], options: ImportOptions) -> Iterator[Found]:
    where = TextSpan(histogram.first, histogram.last)
    if not histogram.is_whole:
        why = (
            f"is damaged in line {histogram.damaged}"
            if histogram.damaged
            else "has rows that don't add up to its count"
        )
        yield Remark(where, f"{histogram.title} ({histogram.disk}) {why}: all of it is left out", 1, is_incomplete=True)
        return
    if not histogram.rows or not any(row.count for row in histogram.rows):
        return
    if not histogram.what:
        yield Remark(
            where,
            f"{histogram.title} ({histogram.disk}): no latency, left out",
            sum(row.count for row in histogram.rows),
        )
    elif histogram.what == "latency" and (histogram.op == UNKNOWN_OP) == (histogram.disk in apart):
        yield Remark(where, f"{histogram.title} ({histogram.disk}): its I/Os are in another table, counted once")
    elif histogram.op != UNKNOWN_OP and histogram.what == "outstanding":
        yield Remark(where, f"{histogram.title} ({histogram.disk}): reads and writes together are taken")
    else:
        count = sum(row.count for row in histogram.rows)
        printed = {name: value for name, value in histogram.printed.items() if 0 <= value <= _MOST}
        is_latency = histogram.what == "latency"
        series = options.series(histogram.disk, histogram.op)
        yield ImportedTable(
            where,
            histogram.title,
            "vscsiStats",
            tuple(histogram.rows),
            "us",
            "vscsiStats' own",
            series,
            sum_us=printed["mean"] * count if is_latency and "mean" in printed else None,
            max_us=printed.get("max") if is_latency else None,
            at_issue=not is_latency,
            printed=printed,
        )


ESXTOP_BEGIN = b'"(PDH-CSV'
_ESXTOP = ESXTOP_BEGIN.decode()[1:]
_COUNTER = re.compile(r"\\\\[^\\]{0,100}\\([A-Za-z ]{1,40})\(([^\\]{1,200})\)\\([^\\]{1,60})")
_GROUPS = ("Physical Disk SCSI Device", "Physical Disk NFS Volume", "Virtual Disk")
_LONGEST_LINE = 8 << 20
_KEPT_BYTES = 32 << 20
_RATES = {"read": ("Reads/sec", "MBytes Read/sec", "Read"), "write": ("Writes/sec", "MBytes Written/sec", "Write")}
_READ = re.compile(
    r"Reads/sec|Writes/sec|MBytes Read/sec|MBytes Written/sec|Active Commands|Queued Commands"
    r"|Average (?:(?:Guest|Kernel) )?MilliSec/(?:Read|Write|Command)"
)
"""Counters of a disk that are imported, a third of those that esxtop prints."""
_MB = 1024 * 1024
_NUMBER = re.compile(r"\s*\d{1,15}(?:\.\d{1,9})?\s*")
"""A value that is imported: a counter of a disk is never below 0, and `nan` is no number."""


@dataclass(slots=True)
class _Esxtop:
    """Columns of the latest head: device -> counter -> place in a row."""

    columns: int = 0
    devices: dict[str, dict[str, int]] = field(default_factory=dict)
    before: float | None = None
    """When the sample before was taken."""


def sniff_esxtop(head: str) -> bool:
    """Return whether there is the head of esxtop -b."""
    return _ESXTOP in head


def narrowed(file: BinaryIO, name: str, progress: Callable[[int, int], None]) -> bytes:
    """Return a file of esxtop without the columns that no importer reads: a host has 30,000, and a day's file 1 GB.

    The first column of adapters and paths stays, so that they are named. A row that can't be read stays as it is.
    `progress`: of bytes.
    """
    kept: list[int] = []
    columns, size = 0, 0
    out: list[str] = []
    total = os.fstat(file.fileno()).st_size
    for raw in iter(partial(file.readline, _LONGEST_LINE + 1), b""):
        progress(file.tell(), total)
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        cells = _cells(line) if line.startswith('"') else []
        if _ESXTOP in line[:40]:
            columns, kept = len(cells), _places(cells)
        if cells and len(cells) == columns:
            line = ",".join(f'"{cells[at]}"' for at in kept)
        size += len(line) + 1
        if len(raw) > _LONGEST_LINE:
            raise RecordingError(
                f"{name}: line {len(out) + 1} is longer than {_LONGEST_LINE >> 20} MiB; "
                "print fewer counters (esxtop -c FILE)"
            )
        if size > _KEPT_BYTES:
            raise RecordingError(f"{name}: the columns of disks are larger than 32 MiB; import parts of its rows")
        out.append(line)
    return "\n".join([*out, ""]).encode()


def _places(cells: Sequence[str]) -> list[int]:
    """Return the places of the time, of the disks' counters that are read, and of one of each other kind of disk."""
    kinds: dict[str, int] = {}
    places = [0]
    for at, cell in enumerate(cells):
        match = _COUNTER.fullmatch(cell)
        if match is not None and match[1] in _GROUPS:
            places += [at] if _READ.fullmatch(match[3]) else []
        elif match is not None and match[1].startswith("Physical Disk"):
            kinds.setdefault(match[1], at)
    return sorted({*places, *kinds.values()})


def read_esxtop(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for each sample."""
    now, names = _Esxtop(), ShortNames()
    for at, line in enumerate(lines, 1):
        where = TextSpan(at, at)
        if _ESXTOP in line[:40]:
            now = _esxtop_head(line, names)
            yield Passed(where)
            if line.count("\\Physical Disk") > sum(line.count(f"\\{group_name}(") for group_name in _GROUPS[:-1]):
                yield Remark(where, "columns of adapters, paths and worlds have the same I/Os again: left out")
            one_device(options, list(now.devices))
        elif now.columns and line.startswith('"'):
            yield from _esxtop_row(where, now, line, options)


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration):
        return []


def _esxtop_head(line: str, names: ShortNames) -> _Esxtop:
    cells = _cells(line)
    now = _Esxtop(len(cells))
    for place, cell in enumerate(cells):
        match = _COUNTER.fullmatch(cell)
        if match is None or match[1] not in _GROUPS or not _READ.fullmatch(match[3]):
            continue
        if match[1] != _GROUPS[-1] or ":" in match[2]:
            now.devices.setdefault(names.short(match[2]), {})[match[3]] = place
    return now


def _esxtop_row(where: TextSpan, now: _Esxtop, line: str, options: ImportOptions) -> Iterator[Found]:
    cells = _cells(line)
    wall = values.moment(cells[0]) if cells else None
    passed = None if now.before is None or wall is None else wall - now.before
    if len(cells) != now.columns or wall is None:
        yield Remark(where, "a sample of esxtop can't be read: it is left out", 1, is_incomplete=True)
        return
    if passed == 0:
        yield Remark(where, "a sample of esxtop at the time of the one before: it is left out", 1, is_incomplete=True)
        return
    if passed and passed < 0:
        yield TimeLine(where, f"line {where.first}: another run of esxtop begins, its time falls")
        yield Remark(where, f"the first sample of the run is {options.interval_us / 1e6:g} s long (--interval)")
    seconds = passed if passed and passed > 0 else options.interval_us / 1e6
    now.before = wall
    kernel: dict[Flow, Completed] = {}
    outstanding: dict[str, Outstanding] = {}
    wrong: list[str] = []
    for name, places in now.devices.items():
        numbers = {column: float(cells[at]) if _NUMBER.fullmatch(cells[at]) else None for column, at in places.items()}
        wrong += (f"{name} {column} {cells[places[column]]!r}" for column, value in numbers.items() if value is None)
        device = options.device or name
        for op, done in _esxtop_done(numbers, seconds).items():
            add(kernel, Flow(device, op), done)
        if (active := numbers.get("Active Commands")) is not None:
            queued = numbers.get("Queued Commands", 0.0)
            outstanding[device] = Outstanding(round(active), None if queued is None else round(queued))
    if wrong:
        count = counted(len(wrong), "value")
        yield Remark(
            where,
            clean(f"{count} left out, no number of 0 or more: {', '.join(wrong[:3])}", 300),
            len(wrong),
            is_incomplete=True,
        )
    yield Counts(replace(where, wall=wall, dt_us=round(seconds * 1e6)), kernel, outstanding)


def _esxtop_done(numbers: Mapping[str, float | None], seconds: float) -> dict[str, Completed]:
    """Return the I/Os by op, without an op whose count or bytes can't be read."""
    completions = {}
    for op, (rate, size, word) in _RATES.items():
        a_second, mb = numbers.get(rate, 0.0), numbers.get(size, 0.0)
        if a_second is None or mb is None:
            continue
        count = round(a_second * seconds)
        # a virtual disk has no stage
        guest = _mean(numbers, "Average Guest MilliSec", word)
        guest = numbers.get(f"Average MilliSec/{word}") if guest is None else guest
        inside = _mean(numbers, "Average Kernel MilliSec", word)
        us, queue_us = (None if mean_ms is None else round(mean_ms * 1000 * count) for mean_ms in (guest, inside))
        completions[op] = Completed(count, round(mb * seconds * _MB), us, None if us is None else queue_us)
    return completions


def _mean(numbers: Mapping[str, float | None], name: str, word: str) -> float | None:
    """Return the mean of reads or writes, else that of all commands."""
    return numbers.get(f"{name}/{word}", numbers.get(f"{name}/Command"))


_VMKERNEL = re.compile(
    r"(\S{10,40})\s.{0,200}?\bDevice (\S{1,100}) performance has (deteriorated|improved)\. I/O latency "
    r"(?:increased|reduced) from (average value of )?(\d{1,12}) microseconds to (\d{1,12}) microseconds.{0,40}"
)


def sniff_vmkernel(head: str) -> bool:
    """Return whether there is a sentence of the vmkernel on the latency of a device."""
    return " performance has " in head and any(_VMKERNEL.fullmatch(line[:600]) for line in head.split("\n"))


def is_vmkernel(line: str) -> bool:
    """Return whether a line is such a sentence, which begins with its time."""
    return " performance has " in line[:600] and _VMKERNEL.fullmatch(line[:600]) is not None


def read_vmkernel(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a message for each sentence: its two times are means of periods that it doesn't name, no I/Os."""
    del options
    for at, line in enumerate(lines, 1):
        match = _VMKERNEL.fullmatch(line[:600]) if " performance has " in line[:600] else None
        if match is None:
            continue
        wall = values.moment(match[1])
        means = f"{int(match[5]):,} us{' on average' if match[4] else ''} to {int(match[6]):,} us"
        text = clean(f"vmkernel: {match[2]} has {match[3]}: its latency went from {means}", 200)
        yield Message(TextSpan(at, at, wall), text)
        if wall is None:
            yield Remark(TextSpan(at, at), "a warning of the vmkernel without a time")
