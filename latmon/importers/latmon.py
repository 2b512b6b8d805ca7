"""Importers of latmon's own exports: buckets as CSV, lines as JSON Lines.

A bucket's edges determine how many buckets an octave has. A CSV row without a device is a window, a mark or a gap.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from latmon.importers import values
from latmon.importers.values import Found, ImportedHeader, ImportOptions, Passed, Remark, TextSpan, Whole
from latmon.model.frame import STAGES, Completed, Flow, Frame, Health, Mark, Series, Traced
from latmon.model.histogram import BITS, MAX_US, Histogram, bucket_bounds, bucket_index
from latmon.recording import codec
from latmon.recording.json_line import parse
from latmon.recording.records import GAP, MARK
from latmon.support.errors import RecordingError
from latmon.support.text import clean

HEADER = "time,mono_us,dt_us,device,op,stage,low_us,high_us,count"
"""Header of version 0.1; a column `includes` may follow."""
_HEADERS = (HEADER, f"{HEADER},includes")
_TRACED = "traced."
_MARK = "mark: "
_MOST_BITS = 5
_FORMULA = ("'=", "'+", "'-", "'@")
_MAX = 2**63 - 1
_DIGITS = 40
_REMEMBERED = 4096


class _Cells(NamedTuple):
    """Cells of a row."""

    wall: float | None
    mono: int | None
    dt: int | None
    device: str
    op: str
    stage: str
    low: int
    high: int
    number: int
    includes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Window:
    mono_us: int
    dt_us: int
    wall: float
    first: int
    counts: dict[Series, dict[tuple[int, int], int]] = field(default_factory=dict)
    includes: dict[Series, tuple[str, ...]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)


def sniff_csv(head: str) -> bool:
    """Return whether its own first line is there."""
    return any(line.strip() in _HEADERS for line in head.split("\n")[:20])


def read_csv(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the rows of one mono_us as a window."""
    del options
    most = next((line.count(",") for line in lines if line.strip() in _HEADERS), HEADER.count(",")) + 1
    reading, cells_of, begun = _Reading(), _row_reader(most), 1
    for at, line in enumerate(lines, 1):
        reported = line.strip()
        cells = cells_of(line) if reported and reported not in _HEADERS else None
        if cells is not None:
            yield from reading.take(at, cells)
        elif reported and reported not in _HEADERS:
            if begun < at:
                yield Passed(TextSpan(begun, at - 1))
            begun = at + 1
            if reported.count(",") >= most - 1:
                yield Remark(TextSpan(at, at), "a damaged row is left out", 1, is_incomplete=True)
    if begun <= len(lines):
        yield Passed(TextSpan(begun, len(lines)))
    if reading.now is not None:
        yield _whole(reading.now, len(lines))


@dataclass(slots=True)
class _Reading:
    now: _Window | None = None
    marks: list[Mark] = field(default_factory=list)

    def take(self, at: int, cells: _Cells) -> Iterator[Found]:
        """Take one row; yield the window that it ends."""
        if cells.mono is None or (cells.dt is None and not cells.stage.startswith(_MARK)):
            yield Remark(TextSpan(at, at), cells.stage or "a row without a time", 1)
        elif not cells.device and cells.stage.startswith(_MARK):
            self.marks.append(Mark(cells.stage.removeprefix(_MARK), cells.mono, cells.wall or 0.0))
        elif not cells.device and cells.stage:
            yield Remark(TextSpan(at, at), cells.stage)
        else:
            yield from self._window(at, cells, cells.mono)

    def _window(self, at: int, cells: _Cells, mono: int) -> Iterator[Found]:
        if self.now is None or self.now.mono_us != mono:
            if self.now is not None:
                yield _whole(self.now, at - 1)
            self.now = _Window(mono, cells.dt or 0, cells.wall or 0.0, at, marks=self.marks)
            self.marks = []
        if cells.device and not _add(self.now, cells):
            yield Remark(TextSpan(at, at), "a bucket whose edges are none of latmon's", 1, is_incomplete=True)


def _row_reader(most: int) -> Callable[[str], _Cells | None]:
    """Return a reader of lines: their cells, or None for a row that has not `most`. Repeated names are read once."""
    wall_of = lru_cache(_REMEMBERED)(values.moment)
    named = lru_cache(_REMEMBERED)(_named)
    included = lru_cache(_REMEMBERED)(_included)

    def cells_of(line: str) -> _Cells | None:
        row = _split(line)
        if row is None or len(row) != most:
            return None
        numbers = (row[1], row[2], row[6], row[7], row[8])
        together = "".join(numbers)
        if together and not (together.isascii() and together.isdecimal()):
            return None
        if max(map(len, numbers)) > _DIGITS:
            return None
        mono, dt, low, high, count = (int(number) if number else None for number in numbers)
        if max(mono or 0, dt or 0, low or 0, high or 0, count or 0) > _MAX:
            return None
        device, op, stage = named(row[3], 256), named(row[4], 0), named(row[5], 256)
        inside = included(row[9]) if len(row) > len(_Cells._fields) - 1 else ()
        return _Cells(
            wall=wall_of(row[0]),
            mono=mono,
            dt=dt,
            device=device,
            op=op,
            stage=stage,
            low=low or 0,
            high=high or 0,
            number=count or 0,
            includes=inside,
        )

    return cells_of


def _split(line: str) -> list[str] | None:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration):
        return None


def _named(text: str, most: int) -> str:
    shown = text[1:] if text.startswith(_FORMULA) else text
    return clean(shown, most) if most else clean(shown)


def _included(text: str) -> tuple[str, ...]:
    """Return the stages in a cell that latmon knows."""
    return tuple(word for word in text.split(" ") if word in STAGES)


def _add(now: _Window, cells: _Cells) -> bool:
    low, high, count = cells.low, cells.high, cells.number
    if not count or not _fitting(low, high):
        return False
    series = Series(cells.device, cells.op, cells.stage)
    counts = now.counts.get(series)
    if counts is None:
        counts = now.counts[series] = {}
    counts[low, high] = counts.get((low, high), 0) + count
    if cells.includes:
        now.includes[series] = cells.includes
    return True


@lru_cache(_REMEMBERED)
def _fitting(low: int, high: int) -> tuple[int, ...]:
    """Return the bits with which these are the edges of a bucket."""
    if not low < high or low > MAX_US:
        return ()
    return tuple(bits for bits in range(_MOST_BITS + 1) if bucket_bounds(bucket_index(low, bits), bits) == (low, high))


def _histogram(counts: dict[tuple[int, int], int]) -> Histogram:
    common_scales = set.intersection(*(set(_fitting(*edges)) for edges in counts))
    bits = (
        (BITS if BITS in common_scales else min(common_scales))
        if common_scales
        else min(max(_fitting(*edges)) for edges in counts)
    )
    return Histogram.of({bucket_index(low, bits): n for (low, _), n in counts.items()}, bits=bits)


def _whole(now: _Window, last: int) -> Whole:
    reported = {series: _histogram(counts) for series, counts in now.counts.items()}
    ours = {series: histogram for series, histogram in reported.items() if not series.stage.startswith(_TRACED)}
    on_demand = {
        series._replace(stage=series.stage.removeprefix(_TRACED)): histogram
        for series, histogram in reported.items()
        if series.stage.startswith(_TRACED)
    }
    return Whole(
        TextSpan(now.first, last),
        Frame(
            seq=0,
            wall=now.wall,
            mono_us=now.mono_us,
            dt_us=now.dt_us,
            histograms=ours,
            seen={Flow(key.device, key.op): Completed(h.count, 0) for key, h in ours.items() if key.stage == "total"},
            traced=Traced(histograms=on_demand, one_in=1, includes=_includes(now, on_demand=True))
            if on_demand
            else Traced(),
            health=Health(),
            marks=tuple(now.marks),
        ),
        {series.stage: () for series in ours} | _includes(now, on_demand=False),
    )


def _includes(now: _Window, *, on_demand: bool) -> dict[str, tuple[str, ...]]:
    """Return stage -> stages that it includes, of the traced I/Os or of all."""
    return {
        series.stage.removeprefix(_TRACED): inside
        for series, inside in now.includes.items()
        if series.stage.startswith(_TRACED) is on_demand
    }


def sniff_jsonl(head: str) -> bool:
    """Return whether it begins with a header or a window."""
    first = next((line for line in head.split("\n") if line.strip()), "")
    return first.startswith("{") and ('"type":"header"' in first[:100] or '"type":"window"' in first[:100])


def read_jsonl(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the values of lines; a line of no known type stays in the list of unread lines."""
    del options
    marks: list[Mark] = []
    for at, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = TextSpan(at, at)
        try:
            value = parse(line.encode())
            match value.get("type"):
                case "header":
                    yield ImportedHeader(where, codec.decode_origin(value))
                case "window":
                    frame = codec.decode_frame(value)
                    yield Whole(where, replace(frame, marks=(*frame.marks, *marks)))
                    marks = []
                case "mark":
                    marks.append(MARK.decode(value))
                case "gap":
                    yield Remark(where, f"a gap of {GAP.decode(value).seconds:g} s: {value.get('reason')}")
                case "damage":
                    yield Remark(where, f"damaged in the recording: {value.get('text')}", 1)
        except RecordingError as error:
            yield Remark(where, str(error), 1, is_incomplete=True)
        else:
            yield Passed(where)
