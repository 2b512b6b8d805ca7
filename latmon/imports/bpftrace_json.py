"""bpftrace -f json: a JSON object per line. Of the lines, those of type hist are tables.

0.17 has no edges above 2^31 and says [-2147483648, 0] there: that is 2^31 or more. Numbers may be quoted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from latmon.dtrace_rows import Row
from latmon.imports.bpftrace import AGAIN, Clock, kind_of
from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Table, Where
from latmon.imports.json_text import whole
from latmon.text import clean

_TITLE = 200
_WRONG = -(2**31)


def sniff(head: str) -> bool:
    """Its first object has a type that bpftrace has, and data."""
    first = next((line for line in head.split("\n") if line.lstrip().startswith("{")), "")
    return first.lstrip().startswith('{"type"') and '"data"' in first


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Every key of every printed map is a table."""
    clock = Clock(asked.start)
    runs = 0
    for at, line in enumerate(lines, 1):
        if not line.lstrip().startswith("{"):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        kind, data = (value.get("type"), value.get("data")) if isinstance(value, dict) else (None, None)
        where = Where(at, at)
        yield Passed(where)
        if kind == "attached_probes":
            runs += 1
            if runs > 1:
                yield Moment(where, f"line {at}: {AGAIN}")
        else:
            yield from _record(where, kind, data, clock)


def _record(where: Where, kind: Any, data: Any, clock: Clock) -> Iterator[Found]:
    """What one line holds."""
    if kind == "hist" and isinstance(data, dict):
        yield from _tables(where, data)
    elif kind in ("time", "printf") and isinstance(data, str):
        wall = clock.wall(data.strip())
        if wall is not None:
            yield Moment(replace(where, wall=wall))
        elif data.strip():
            yield Remark(where, f"printed text, no distribution: {clean(data.strip(), 60)}", 1)
    elif kind == "lost_events":
        yield Remark(where, f"bpftrace lost events: {clean(json.dumps(data), 60)}", lost=_lost(data))
    else:
        yield Remark(where, f"{clean(str(kind), 40)}: no distribution", 1)


def _lost(data: Any) -> int:
    """How many; 1 where that can't be read."""
    number = whole(data.get("events")) if isinstance(data, dict) else whole(data)
    return 1 if number is None else number


def _tables(where: Where, data: Mapping[str, Any]) -> Iterator[Found]:
    for name, value in data.items():
        for key, buckets in value.items() if isinstance(value, dict) else [("", value)]:
            title = clean(f"{name}[{key}]" if key else name, _TITLE)
            rows = [_row(one) for one in buckets] if isinstance(buckets, list) else [None]
            if not rows:
                continue
            if None in rows:
                yield Remark(where, f"{title}: buckets that can't be read", 1, is_incomplete=True)
            else:
                told = tuple(row for row in rows if row is not None)
                yield Table(where, title, kind_of(told), told)


def _row(bucket: Any) -> Row | None:
    if not isinstance(bucket, dict):
        return None
    count = whole(bucket.get("count"))
    low, high = (_edge(bucket.get(name)) for name in ("min", "max"))
    if count is None or (low is None and high is None):
        return None
    if low == _WRONG and high == 0:
        return Row(-_WRONG, None, count)
    return Row(low, None if high is None else high + 1, count)


def _edge(value: Any) -> int | None:
    if isinstance(value, str) and value.removeprefix("-").isdecimal() and len(value) <= 21:  # noqa: PLR2004
        value = int(value)
    return value if type(value) is int and abs(value) < 2**64 else None
