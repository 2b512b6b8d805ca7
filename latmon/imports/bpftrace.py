"""bpftrace's hist() and lhist() as text. Edges are taken from the line: [512, 1K), [7], (..., 0), [100, ...).

K, M, G are powers of 1024, as bpftrace means them. A time() line before a table is its time of day.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from latmon.dtrace_rows import Row
from latmon.imports import times
from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Table, Where
from latmon.text import clean

_NAME = re.compile(r"\s*(@\w{0,64}(?:\[.{0,300}\])?):\s*")
_END = r"(-?\d{1,20})([KMGTPE]?)"
_ROW = re.compile(
    rf"\s*(?:\[{_END}\]|\[{_END}, {_END}\)|\[{_END}, \.\.\.\)|\(\.\.\., {_END}\))\s+(\d{{1,20}})\s*(?:\|[@ ]*\|?)?\s*"
)
_SCALAR = re.compile(r"\s*(@\w{0,64}(?:\[.{0,300}\])?): (\S.*)")
_ATTACHED = re.compile(r"\s*(?:Attaching|Attached) \d+ probes?(?:\.\.\.)?\s*")
_LOST = re.compile(r"\s*(?:Lost (\d{1,15}) events|WARNING: .*lost.*)\s*", re.IGNORECASE)
AGAIN = "another run of bpftrace begins"
_POWERS: dict[str, int] = {unit: int(1024**n) for n, unit in enumerate(("", "K", "M", "G", "T", "P", "E"))}
_DAY = 86_400.0


@dataclass(slots=True)
class _Open:
    first: int
    last: int
    title: str
    rows: list[Row] = field(default_factory=list)


def sniff(head: str) -> bool:
    """A map's name, and a bucket below it."""
    lines = head.split("\n")
    return any(_NAME.fullmatch(line) for line in lines) and any(_ROW.fullmatch(line) for line in lines)


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Every printed map is a table; another run begins where probes are attached again."""
    now: _Open | None = None
    clock = Clock(asked.start)
    runs = 0
    for at, line in enumerate(lines, 1):
        name, row = _NAME.fullmatch(line), _ROW.fullmatch(line) if now else None
        if row and now:
            now.rows.append(_row(row))
            now.last = at
            continue
        if now and now.rows:
            yield _table(now)
            now = None
        if name:
            now = _Open(at, at, clean(name[1], 200))
        elif _ATTACHED.fullmatch(line):
            now, runs = None, runs + 1
            yield Moment(Where(at, at), f"line {at}: {AGAIN}") if runs > 1 else Passed(Where(at, at))
        elif line.strip():
            now = None
            yield from _other(at, line, clock)
    if now and now.rows:
        yield _table(now)


@dataclass(slots=True)
class Clock:
    """Times of day go on: one that is less than the one before is of the next day."""

    start: float | None
    day: float = 0.0
    before: float = -1.0

    def wall(self, text: str) -> float | None:
        """Of a line that is a time, with or without its date."""
        whole = times.moment(text)
        if whole is not None:
            return whole
        seconds = times.of_day(text)
        if seconds is None:
            return None
        self.day += _DAY if seconds < self.before else 0.0
        self.before = seconds
        midnight = 0.0 if self.start is None else -(self.start % _DAY)
        return max(0.0, self.day + seconds + midnight)


def _other(at: int, line: str, clock: Clock) -> Iterator[Found]:
    wall = clock.wall(line.strip())
    if wall is not None:
        yield Moment(Where(at, at, wall))
    elif (lost := _LOST.fullmatch(line)) is not None:
        yield Remark(Where(at, at), f"bpftrace lost {lost[1] or 'some'} events", lost=int(lost[1] or 1))
    elif (scalar := _SCALAR.fullmatch(line)) is not None:
        yield Remark(Where(at, at), f"{clean(scalar[1])}: a single value, no distribution", 1)


def _table(now: _Open) -> Table | Remark:
    """A table, or a remark where a row is missing: bpftrace prints every bucket from the lowest to the highest."""
    hole = next((n for n, (one, other) in enumerate(pairwise(now.rows), 1) if one.high != other.low), None)
    if hole is not None:
        text = f"the table {now.title} is damaged in line {now.first + hole}: all of it is left out"
        return Remark(Where(now.first, now.last), text, 1, is_incomplete=True)
    return Table(Where(now.first, now.last), now.title, kind_of(now.rows), tuple(now.rows))


def kind_of(rows: Sequence[Row]) -> str:
    """`hist` or `lhist`, as far as edges tell."""
    widths = {row.high - row.low for row in rows if row.low is not None and row.high is not None}
    open_top = any(row.high is None for row in rows)
    return "lhist" if open_top or (len(widths) == 1 and len(rows) > 1) else "hist"


def _row(row: re.Match[str]) -> Row:
    g = row.groups()
    count = int(g[10])
    if g[0] is not None:
        value = _edge(g[0], g[1])
        return Row(value, value + 1, count)
    if g[2] is not None:
        return Row(_edge(g[2], g[3]), _edge(g[4], g[5]), count)
    if g[6] is not None:
        return Row(_edge(g[6], g[7]), None, count)
    return Row(None, _edge(g[8], g[9]), count)


def _edge(number: str, unit: str) -> int:
    return int(number) * _POWERS[unit]
