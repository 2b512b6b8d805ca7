"""Decoder of bpftrace's JSON output (`-f json`): bytes to events, one per line. Sans-IO.

Holds what 0.17, 0.23 and 0.27 do differently: spacing, blank lines, big integers in quotes, `\uffffffc3` for bytes
above 0x7f, the zero-row shapes. Knows no probe. A line that is not understood is an event too: counted, never raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from latmon.support.text import clean
from latmon_backends.probe.events import (
    Attached,
    Bucket,
    Event,
    HelperFailed,
    Lost,
    MapPrinted,
    Printed,
    Undecoded,
    Value,
)

MAX_LINE = 64 * 1024 * 1024
"""A longer line is not bpftrace's: 1,000 histogram keys print 339 KB."""

_MANGLED = re.compile(rb"(\\+)uffffff([89a-fA-F][0-9a-fA-F])")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_SHOWN = 200


class Decoder:
    """Feed it bytes in any portions; whole lines come out as events."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._overlong = False

    def feed(self, data: bytes) -> list[Event]:
        """Events of the lines that `data` completes."""
        whole, newline, rest = data.rpartition(b"\n")
        events: list[Event] = []
        if newline:
            for line in (bytes(self._rest) + whole).split(b"\n"):
                events.extend(self._line(line))
            self._rest = bytearray()
        self._rest += rest
        if len(self._rest) > MAX_LINE:
            self._rest, self._overlong = bytearray(), True
        return events

    def close(self) -> list[Event]:
        """What an output cut in mid-line leaves."""
        rest, self._rest = bytes(self._rest), bytearray()
        return list(self._line(rest))

    def _line(self, line: bytes) -> Iterator[Event]:
        if self._overlong:
            self._overlong = False
            yield Undecoded(f"a line longer than {MAX_LINE >> 20} MiB")
        elif line.strip():
            yield from _decode(line)


def _decode(line: bytes) -> Iterator[Event]:
    try:
        yield from _events(json.loads(_repair(line)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield Undecoded(clean(line[:_SHOWN], _SHOWN))


def _repair(line: bytes) -> str:
    r"""Bytes above 0x7f come as `\uffffffc3` from every version (a signed char), twice escaped in 0.23's keys."""
    if b"uffffff" in line:
        # An even number of backslashes is escaped twice, an odd one once; what is before the last of them is text.
        line = _MANGLED.sub(lambda m: m[1][: -1 if len(m[1]) % 2 else -2] + bytes([int(m[2], 16)]), line)
    return line.decode("utf-8", "replace")


def _events(tree: Any) -> Iterator[Event]:
    kind, data = tree["type"], tree.get("data")
    if kind == "printf":
        yield Printed(_text(data).removesuffix("\n"))
    elif kind in ("map", "hist", "stats", "tseries"):
        for name, value in data.items():
            yield MapPrinted(name.removeprefix("@"), _table(kind, value))
    elif kind == "attached_probes":
        yield Attached(_integer(data["probes"]))
    elif kind == "lost_events":
        yield Lost(_integer(data["events"]))
    elif kind == "helper_error":
        yield HelperFailed(
            clean(tree.get("helper", "")), _integer(tree.get("retcode", 0)), clean(tree.get("msg", ""), 160)
        )
    elif kind not in ("time", "value", "join", "syscall", "cat"):
        yield Undecoded(clean(str(kind)))


def _table(kind: str, value: Any) -> Mapping[str, Value]:
    """All rows of a map; one of plain integers, which is what our scripts print each tick, is taken as it is."""
    if kind == "map" and isinstance(value, dict) and all(type(row) is int for row in value.values()):
        return value
    return dict(_rows(kind, value))


def _rows(kind: str, value: Any) -> Iterator[tuple[str, Value]]:
    """Keys or none decide the shape, and a `stats` without keys is a table of fields as a keyed map is one of rows."""
    fields = (
        kind == "stats"
        and isinstance(value, dict)
        and value.keys() == {"count", "average", "total"}
        and not any(isinstance(row, dict) for row in value.values())
    )
    if isinstance(value, dict) and not fields:
        for key, row in value.items():
            yield key, _value(row)
    else:
        yield "", _value(value)


def _value(row: Any) -> Value:
    if isinstance(row, list):
        if all(isinstance(b, dict) and "count" in b for b in row):
            return tuple(_bucket(b) for b in row)
        return tuple(_value(part) for part in row)
    if isinstance(row, dict):
        return {name: _integer(number) for name, number in row.items() if name != "interval_start"}
    if isinstance(row, str) and not _INTEGER.fullmatch(row):
        return clean(row, _SHOWN)
    return _integer(row)


def _bucket(row: Mapping[str, Any]) -> Bucket:
    low = _integer(row["min"]) if "min" in row else None
    high = _integer(row["max"]) if "max" in row else None
    if low == -(2**31) and high == 0:
        # 0.17 folds everything from 2^31 up into this one.
        return Bucket(2**31, None, _integer(row["count"]))
    return Bucket(low, high, _integer(row["count"]))


def _integer(number: Any) -> int:
    """0.27 quotes what a double can't hold."""
    if isinstance(number, float):
        raise TypeError(f"not an integer: {number}")
    return int(number)


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError("printf without text")
    return data
