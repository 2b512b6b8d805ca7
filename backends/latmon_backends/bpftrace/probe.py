"""One running bpftrace process with one program, and the decoder of its JSON output (`-f json`).

The decoder is sans-I/O and handles the differences of 0.17, 0.23 and 0.27: spacing, blank lines, big integers in
quotes, escapes for bytes above 0x7f, the shapes of empty maps. A line that can't be decoded is an event too: counted,
never raised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latmon.support.text import clean
from latmon_backends.bpftrace.program import BpftraceProgram, reason
from latmon_backends.probe.events import (
    Attached,
    Bucket,
    Event,
    HelperFailed,
    Lost,
    MapPrinted,
    Printed,
    UndecodedLine,
    Value,
    WholeLines,
)
from latmon_backends.probe.launcher import Launcher
from latmon_backends.probe.process import Child, RefusedError, RunningProbe, started

MAX_LINE = 64 * 1024 * 1024
"""A longer line is not bpftrace's: 1,000 histogram keys print 339 KB."""

_MANGLED = re.compile(rb"(\\+)uffffff([89a-fA-F][0-9a-fA-F])")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_SHOWN = 200
_ALIVE_S = 0.25
"""Up to 0.23 the ready line comes before the attaching: a refusal follows it at once."""
_LINE = re.compile(r"^stdin:(\d+):\d+")


class BpftraceDecoder:
    """Decoder of bytes in any portions; whole lines become events."""

    def __init__(self) -> None:
        self._lines = WholeLines(MAX_LINE)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the lines that `data` completes."""
        return [event for line in self._lines.feed(data) for event in _line(line)]

    def close(self) -> list[Event]:
        """Return the events of a last line without its newline."""
        return list(_line(self._lines.close()))


def _line(line: bytes | None) -> Iterator[Event]:
    if line is None:
        yield UndecodedLine(f"a line longer than {MAX_LINE >> 20} MiB")
    elif line.strip():
        yield from _decode(line)


def _decode(line: bytes) -> Iterator[Event]:
    try:
        yield from _events(json.loads(_repair(line)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        yield UndecodedLine(clean(line[:_SHOWN], _SHOWN))


def _repair(line: bytes) -> str:
    r"""Decode a line; bytes above 0x7f are `\uffffffc3` (a signed char), escaped twice in 0.23's keys."""
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
        yield UndecodedLine(clean(str(kind)))


def _table(kind: str, value: Any) -> Mapping[str, Value]:
    """Return the rows of a map; a map of plain integers, as our scripts print each tick, is taken as it is."""
    if kind == "map" and isinstance(value, dict) and {*map(type, value.values())} <= {int}:
        return value
    return dict(_rows(kind, value))


def _rows(kind: str, value: Any) -> Iterator[tuple[str, Value]]:
    """Yield rows by key; a `stats` without keys is a table of fields, a keyed map one of rows."""
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
        # 0.17 counts all values from 2^31 on in this bucket.
        return Bucket(2**31, None, _integer(row["count"]))
    return Bucket(low, high, _integer(row["count"]))


def _integer(number: Any) -> int:
    """Return an integer, which 0.27 quotes where a double is too small for it."""
    if isinstance(number, float):
        raise TypeError(f"not an integer: {number}")
    return int(number)


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError("printf without text")
    return data


class BpftraceProbe(RunningProbe):
    """A started bpftrace program."""

    tool_name = "bpftrace"
    _reason = staticmethod(reason)

    def __init__(self, child: Child, program: BpftraceProgram) -> None:
        super().__init__(child, len(program.hooks))
        self._own = program.attaches
        self._decoder = BpftraceDecoder()
        self._reported: int | None = None

    @classmethod
    async def start(cls, launcher: Launcher, program: BpftraceProgram, *, in_a_hurry: bool = False) -> BpftraceProbe:
        """Start a program. RefusedError when it doesn't run here, UnavailableError when none would.

        `in_a_hurry`: see `started`.
        """
        return await started(launcher.launch(program), lambda child: cls(child, program), in_a_hurry=in_a_hurry)

    @property
    def attached(self) -> int:
        """Hooks that the tool reports as attached; up to 0.23 it reports before it tries, and ends where one fails."""
        return self.wanted if self._reported is None else min(self.wanted, max(0, self._reported - self._own))

    def _decoded(self, portion: bytes) -> Iterable[Event]:
        events = self._decoder.feed(portion) if portion else self._decoder.close()
        for event in events:
            if isinstance(event, Attached):
                self._reported = event.probes
        return events

    async def _refused(self) -> RefusedError:
        matches = (_LINE.match(line) for line in await self._child.complaints())
        return RefusedError(await self.complaint(), next((int(match[1]) for match in matches if match), 0))

    async def _check_attached(self) -> None:
        if await self._child.ends_output_within(_ALIVE_S):
            raise await self._refused()
