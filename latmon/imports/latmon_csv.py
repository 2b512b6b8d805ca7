"""latmon's own buckets, as `export --to csv --buckets` writes them: counts come back exactly, sums and maxima don't.

The edges tell how many buckets an octave has. A row without a device counts nothing: it is a window, a mark or a gap.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from latmon.histogram import BITS, MAX_US, Histogram, bucket_bounds, bucket_index
from latmon.imports import times
from latmon.imports.found import Asked, Found, Passed, Remark, Where, Whole
from latmon.mark import Mark
from latmon.model import Completed, Flow, Frame, Health, Series, Traced
from latmon.text import clean

HEADER = "time,mono_us,dt_us,device,op,stage,low_us,high_us,count"
_CELLS = 9
_TRACED = "traced."
_MARK = "mark: "
_MOST_BITS = 5
_FORMULA = ("'=", "'+", "'-", "'@")
_MAX = 2**63 - 1


class _Cells(NamedTuple):
    """A row."""

    wall: float | None
    mono: int | None
    dt: int | None
    device: str
    op: str
    stage: str
    low: int
    high: int
    number: int


@dataclass(slots=True)
class _Window:
    mono_us: int
    dt_us: int
    wall: float
    first: int
    counts: dict[Series, dict[tuple[int, int], int]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)


def sniff(head: str) -> bool:
    """Its own first line."""
    return any(line.strip() == HEADER for line in head.split("\n")[:20])


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Rows of one mono_us are a window."""
    del asked
    reading = _Reading()
    for at, line in enumerate(lines, 1):
        where = Where(at, at)
        cells = _cells(line) if line.strip() and line.strip() != HEADER else None
        if cells is not None:
            yield from reading.take(where, cells)
        if cells is not None or not line.strip() or line.strip() == HEADER:
            yield Passed(where)
    if reading.now is not None:
        yield _whole(reading.now, len(lines))


@dataclass(slots=True)
class _Reading:
    now: _Window | None = None
    marks: list[Mark] = field(default_factory=list)

    def take(self, where: Where, cells: _Cells) -> Iterator[Found]:
        """One row; the window that it ends."""
        if cells.mono is None or (cells.dt is None and not cells.stage.startswith(_MARK)):
            yield Remark(where, cells.stage or "a row without a time", 1)
        elif not cells.device and cells.stage.startswith(_MARK):
            self.marks.append(Mark(cells.stage.removeprefix(_MARK), cells.mono, cells.wall or 0.0))
        elif not cells.device and cells.stage:
            yield Remark(where, cells.stage)
        else:
            yield from self._window(where, cells, cells.mono)

    def _window(self, where: Where, cells: _Cells, mono: int) -> Iterator[Found]:
        if self.now is None or self.now.mono_us != mono:
            if self.now is not None:
                yield _whole(self.now, where.first - 1)
            self.now = _Window(mono, cells.dt or 0, cells.wall or 0.0, where.first, marks=self.marks)
            self.marks = []
        if cells.device and not _add(self.now, cells):
            yield Remark(where, "a bucket whose edges are none of latmon's", 1)


def _cells(line: str) -> _Cells | None:
    """None for a row that is none of ours."""
    try:
        row = next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration):
        return None
    if len(row) != _CELLS or any(one and not (one.isascii() and one.isdecimal()) for one in (*row[1:3], *row[6:])):
        return None
    numbers = [int(one) if one else None for one in (*row[1:3], *row[6:])]
    if any(one is not None and one > _MAX for one in numbers):
        return None
    device, op, stage = (one[1:] if one.startswith(_FORMULA) else one for one in row[3:6])
    wall = times.moment(row[0])
    mono, dt, low, high, count = numbers
    return _Cells(wall, mono, dt, clean(device, 256), clean(op), clean(stage, 256), low or 0, high or 0, count or 0)


def _add(now: _Window, cells: _Cells) -> bool:
    series, low, high, count = Series(cells.device, cells.op, cells.stage), cells.low, cells.high, cells.number
    if not low < high or not count or not any(_fits(low, high, bits) for bits in range(_MOST_BITS + 1)):
        return False
    counts = now.counts.setdefault(series, {})
    counts[low, high] = counts.get((low, high), 0) + count
    return True


def _fits(low: int, high: int, bits: int) -> bool:
    return low <= MAX_US and bucket_bounds(bucket_index(low, bits), bits) == (low, high)


def _histogram(counts: dict[tuple[int, int], int]) -> Histogram:
    fine = [bits for bits in (BITS, *range(_MOST_BITS + 1)) if all(_fits(*edges, bits) for edges in counts)]
    bits = fine[0] if fine else min(max(b for b in range(_MOST_BITS + 1) if _fits(*edges, b)) for edges in counts)
    return Histogram.of({bucket_index(low, bits): n for (low, _), n in counts.items()}, bits=bits)


def _whole(now: _Window, last: int) -> Whole:
    told = {series: _histogram(counts) for series, counts in now.counts.items()}
    ours = {series: one for series, one in told.items() if not series.stage.startswith(_TRACED)}
    deep = {
        series._replace(stage=series.stage.removeprefix(_TRACED)): one
        for series, one in told.items()
        if series.stage.startswith(_TRACED)
    }
    return Whole(
        Where(now.first, last),
        Frame(
            seq=0,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=now.dt_us,
            histograms=ours,
            seen={Flow(key.device, key.op): Completed(h.count, 0) for key, h in ours.items() if key.stage == "total"},
            traced=Traced(histograms=deep, one_in=1) if deep else Traced(),
            health=Health(),
            marks=tuple(now.marks),
        ),
    )
