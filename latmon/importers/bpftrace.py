"""Importers of bpftrace's hist() and lhist(), as text and as JSON. JSON may have text around it.

K, M, G are powers of 1024, as bpftrace means them. A time() line before a table is its time of day. A key that has a
stack is named by its innermost functions.

Before 0.10 the first bucket of hist() is [0, 1], and those of lhist() without an end are (...,0] and [2000,...).
0.17 has no edges above 2^31: [-2147483648, 0] in JSON, and the row [2G, 4G) of a text without a sign of a later
version, are 2^31 or more. Numbers may be quoted.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.source import MAX_JSON
from latmon.importers.values import (
    Clock,
    Found,
    ImportedTable,
    ImportOptions,
    Passed,
    Remark,
    ShortNames,
    TextSpan,
    TimeLine,
)
from latmon.support.text import clean

_NAME = re.compile(r"\s*(@\w{0,64}(?:\[.{0,300}\])?):\s*")
_END = r"(-?\d{1,20})([KMGTPE]?)"
_ROW = re.compile(
    rf"\s*(?:\[{_END}\]|\[{_END}, {_END}(\)|\])|\[{_END}, ?\.\.\.\)|\(\.\.\., ?{_END}[)\]])"
    r"\s+(\d{1,20})\s*(?:\|[@ ]*\|?)?\s*"
)
_STACK = re.compile(r"\s*(@\w{0,64})\[([^\]]{0,300})")
"""Begin of a key that has a stack: its frames are lines of their own, down to the key's end."""
_STACK_END = re.compile(r"(.{0,300}?)\]:\s*(.{0,300})")
_FRAME = re.compile(r"\s+\S.{0,300}")
_MAX_FRAMES = 140
_LONGEST_KEY = 600
_SHOWN_FRAMES = 3
_SCALAR = re.compile(r"\s*(@\w{0,64}(?:\[.{0,300}\])?): (\S.*)")
_ATTACHED = re.compile(r"\s*(?:Attaching|Attached) \d+ probes?(?:\.\.\.)?\s*")
_LOST = re.compile(r"\s*(?:Lost (\d{1,15}) events|WARNING: .*lost.*)\s*", re.IGNORECASE)
_LIMIT = 1 << 31
"""Begin of the last row of hist() before 0.20."""
_UNLIMITED = re.compile(r"\s*(?:Attached \d|\[(?:[4-9]|\d\d+)G, |\[\d+[TPE][,\]])")
"""Line of a later version: its sentence from 0.24 on, or a row above the last one of an earlier version."""
_EDGES = ("[", "(")
"""Begin of a bucket's first edge."""
AGAIN = "another run of bpftrace begins"


@dataclass(slots=True)
class _OpenMap:
    first: int
    last: int
    title: str
    rows: list[Row] = field(default_factory=list)
    torn: int = 0
    """The first line that begins like a row and can't be decoded; 0: none."""


def sniff_text(head: str) -> bool:
    """Return whether there is a map's name with a bucket below it."""
    lines = head.split("\n")
    named = any(_NAME.fullmatch(line) or line.startswith("]:") for line in lines)
    return named and any(_ROW.fullmatch(line) for line in lines)


def read_text(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield every printed map as a table; another run begins where probes are attached again."""
    now: _OpenMap | None = None
    clock = Clock(options.start)
    runs = 0
    is_limited = not any(_UNLIMITED.match(line) for line in lines)
    for at, last, line in _joined(lines, ShortNames()):
        name, row = _NAME.fullmatch(line), _ROW.fullmatch(line) if now else None
        if now and (row or (line.lstrip().startswith(_EDGES) and not values.of_title(line))):
            if row:
                now.rows.append(_row(row))
            else:
                now.torn = now.torn or at
            now.last = last
            continue
        if now and (now.rows or now.torn):
            yield _table(now, is_limited)
            now = None
        if name:
            now = _OpenMap(at, last, clean(name[1], 200))
        elif _ATTACHED.fullmatch(line):
            now, runs = None, runs + 1
            yield TimeLine(TextSpan(at, at), f"line {at}: {AGAIN}") if runs > 1 else Passed(TextSpan(at, at))
        elif line.strip():
            now = None
            yield from _other(TextSpan(at, last), line, clock)
    if now and (now.rows or now.torn):
        yield _table(now, is_limited)


def _joined(lines: Sequence[str], names: ShortNames) -> Iterator[tuple[int, int, str]]:
    """Yield first and last number and text of each line; a key with a stack is one line, with its innermost frames."""
    at = 1
    while at <= len(lines):
        line = lines[at - 1]
        key = _stack_key(lines, at, names) if "@" in line[:_LONGEST_KEY] else None
        last, text = (at, line) if key is None else key
        yield at, last, text
        at = last + 1


def _stack_key(lines: Sequence[str], at: int, names: ShortNames) -> tuple[int, str] | None:
    """Return the last line of a key that begins in this one and has a stack, and all of it as one line."""
    match = _STACK.fullmatch(lines[at - 1][:_LONGEST_KEY])
    if match is None:
        return None
    parts = [match[2]]
    for n in range(at, min(len(lines), at + _MAX_FRAMES)):
        text = lines[n][:_LONGEST_KEY]
        if (end := _STACK_END.fullmatch(text)) is not None:
            parts.append(end[1])
            frames = [part.strip() for part in parts if part.strip() and "," not in part]
            others = [part.strip(" ,") for part in parts if "," in part and part.strip(" ,")]
            # another stack may share the frames that are shown
            shown = names.short("\n".join(frames), " < ".join(frames[:_SHOWN_FRAMES]), _LONGEST_KEY) if frames else ""
            return n + 1, f"{match[1]}[{', '.join(filter(None, (shown, *others)))}]: {end[2]}"
        if text.strip() and not _FRAME.fullmatch(text):
            return None
        parts.append(text)
    return None


def _other(where: TextSpan, line: str, clock: Clock) -> Iterator[Found]:
    wall = clock.wall(line.strip())
    if wall is not None:
        yield TimeLine(replace(where, wall=wall))
    elif (lost := _LOST.fullmatch(line)) is not None:
        yield Remark(where, f"bpftrace lost {lost[1] or 'some'} events", lost=int(lost[1] or 1))
    elif (scalar := _SCALAR.fullmatch(line)) is not None:
        yield Remark(where, f"{clean(scalar[1])}: a single value, no distribution", 1)


def _table(now: _OpenMap, is_limited: bool) -> ImportedTable | Remark:
    """Return a table, or a remark if a row is missing: bpftrace prints all from the lowest to the highest.

    `is_limited`: the row [2G, 4G) is the last one there is.
    """
    hole = _hole(now.rows)
    if now.torn or hole is not None:
        at = now.torn or now.last - len(now.rows) + 1 + (hole or 0)
        text = f"the table {now.title} is damaged in line {at}: all of it is left out"
        return Remark(TextSpan(now.first, now.last), text, 1, is_incomplete=True)
    kind, rows = kind_of(now.rows), now.rows
    if is_limited and kind == "hist" and rows and rows[-1][:2] == (_LIMIT, 2 * _LIMIT):
        rows = [*rows[:-1], rows[-1]._replace(high=None)]
    return ImportedTable(TextSpan(now.first, now.last), now.title, kind, tuple(rows))


def _hole(rows: Sequence[Row]) -> int | None:
    """Return the place of the first row that doesn't begin where the one before it ends; None without one."""
    return next((n for n, (row, other) in enumerate(pairwise(rows), 1) if row.high != other.low), None)


def kind_of(rows: Sequence[Row]) -> str:
    """Return `hist` or `lhist`, judging by the edges."""
    widths = {row.high - row.low for row in rows if row.low is not None and row.high is not None}
    open_top = any(row.high is None for row in rows)
    return "lhist" if open_top or (len(widths) == 1 and len(rows) > 1) else "hist"


def _row(row: re.Match[str]) -> Row:
    g = row.groups()
    count = int(g[11])
    if g[0] is not None:
        value = _edge(g[0], g[1])
        return Row(value, value + 1, count)
    if g[2] is not None:
        return Row(_edge(g[2], g[3]), _edge(g[4], g[5]) + (g[6] == "]"), count)
    if g[7] is not None:
        return Row(_edge(g[7], g[8]), None, count)
    return Row(None, _edge(g[9], g[10]), count)


def _edge(number: str, unit: str) -> int:
    return int(number) * values.POWERS[unit]


def documents(lines: Sequence[str], key: str) -> Iterator[tuple[TextSpan, dict[str, Any] | str]]:
    """Yield each object of a text whose first key is `key`, with its lines; instead of one that can't be read, why."""
    text = "\n".join(lines)
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    end = 0
    for begin in re.finditer(rf'\{{\s*"{re.escape(key)}"', text):
        if begin.start() < end:
            continue
        first = bisect_right(starts, begin.start())
        value, end = _parsed(text, begin.start())
        last = bisect_right(starts, max(begin.start(), end - 1))
        yield TextSpan(first, len(lines) if isinstance(value, str) else last), value
        if isinstance(value, str):
            return  # its end is not known


def _parsed(text: str, start: int) -> tuple[dict[str, Any] | str, int]:
    """Return the object that begins at a place and its end; why it can't be read instead."""
    part = text[start : start + MAX_JSON]
    try:
        value, end = json.JSONDecoder(parse_constant=_refused).raw_decode(part)
    except RecursionError:
        return "its JSON is nested too deeply", start
    except ValueError as error:
        if len(part) == MAX_JSON:
            return f"its JSON is larger than {MAX_JSON >> 20} MiB; import it in parts", start
        if isinstance(error, json.JSONDecodeError):
            line = line_of(text, start + error.pos)
            return f"its JSON can't be read: it is damaged or cut off in line {line} ({error.msg})", start
        return f"its JSON can't be read: {error}", start
    return value, start + end


def line_of(text: str, place: int) -> int:
    """Return the line of a place in a text, from 1."""
    return text.count("\n", 0, place) + 1


def whole(value: Any, most: int = 2**63 - 1) -> int | None:
    """Return an integer from 0 on, also one that was quoted; None for anything else."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= 20:  # noqa: PLR2004
        value = int(value)
    return value if type(value) is int and 0 <= value <= most else None


def real(value: Any) -> float | None:
    """Return a finite number from 0 on; None for anything else."""
    return float(value) if type(value) in (int, float) and 0 <= value < math.inf else None


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


_TITLE = 200
_WRONG = -_LIMIT


def sniff_json(head: str) -> bool:
    """Return whether an object of a line has data and a type of bpftrace's."""
    return any(line.lstrip().startswith('{"type"') and '"data"' in line for line in head.split("\n"))


def read_json(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield every key of every printed map as a table."""
    clock = Clock(options.start)
    runs = 0
    for at, line in enumerate(lines, 1):
        if not line.lstrip().startswith('{"type"'):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        kind, data = (value.get("type"), value.get("data")) if isinstance(value, dict) else (None, None)
        where = TextSpan(at, at)
        yield Passed(where)
        if kind == "attached_probes":
            runs += 1
            if runs > 1:
                yield TimeLine(where, f"line {at}: {AGAIN}")
        else:
            yield from _record(where, kind, data, clock)


def _record(where: TextSpan, kind: Any, data: Any, clock: Clock) -> Iterator[Found]:
    """Yield the values of one line."""
    if kind == "hist" and isinstance(data, dict):
        yield from _tables(where, data)
    elif kind in ("time", "printf") and isinstance(data, str):
        wall = clock.wall(data.strip())
        if wall is not None:
            yield TimeLine(replace(where, wall=wall))
        elif data.strip():
            yield Remark(where, f"printed text, no distribution: {clean(data.strip(), 60)}", 1)
    elif kind == "lost_events":
        yield Remark(where, f"bpftrace lost events: {clean(json.dumps(data), 60)}", lost=_lost(data))
    else:
        yield Remark(where, f"{clean(str(kind), 40)}: no distribution", 1)


def _lost(data: Any) -> int:
    """Return the number of lost events; 1 if it can't be read."""
    number = whole(data.get("events")) if isinstance(data, dict) else whole(data)
    return 1 if number is None else number


def _tables(where: TextSpan, data: Mapping[str, Any]) -> Iterator[Found]:
    for name, value in data.items():
        for key, buckets in value.items() if isinstance(value, dict) else [("", value)]:
            title = clean(f"{name}[{key}]" if key else name, _TITLE)
            rows = [_json_row(bucket) for bucket in buckets] if isinstance(buckets, list) else [None]
            if not rows:
                continue
            if None in rows:
                yield Remark(where, f"{title}: buckets that can't be read", 1, is_incomplete=True)
            else:
                whole_rows = values.half_open([row for row in rows if row is not None])
                if _hole(whole_rows) is not None:
                    yield Remark(where, f"{title}: a bucket is missing, left out", 1, is_incomplete=True)
                else:
                    yield ImportedTable(where, title, kind_of(whole_rows), whole_rows)


def _json_row(bucket: Any) -> Row | None:
    if not isinstance(bucket, dict):
        return None
    count = whole(bucket.get("count"))
    low, high = (_json_edge(bucket.get(name)) for name in ("min", "max"))
    if count is None or (low is None and high is None):
        return None
    if low == _WRONG and high == 0:
        return Row(-_WRONG, None, count)
    return Row(low, high, count)


def _json_edge(value: Any) -> int | None:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 21:  # noqa: PLR2004
        value = int(value)
    return value if type(value) is int and abs(value) < 2**64 else None
