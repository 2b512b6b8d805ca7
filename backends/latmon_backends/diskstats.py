"""/proc/diskstats: text to counters per block device, and the difference of two readings.

Pure: bytes in, values out. Must not know sysfs, device kinds or frames' devices. Times are the kernel's sums of
(completed - queued) per op; bytes are sectors of 512 bytes whatever the device's own sector size.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from latmon.text import clean

SECTOR = 512
WORD = 2 * (sys.maxsize + 1)
_TIME_WORD = 2**32
"""Times are printed as 32 bits of ms on every kernel: they wrap after 49 days of summed I/O time."""
_IN_FLIGHT = 11
_COLUMNS = 14
_DISCARD, _FLUSH = 14, 18  # columns since 4.18 and since 5.5


class Number(NamedTuple):
    """A dev_t."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Tally:
    """I/Os completed since the counters began."""

    count: int
    bytes: int
    time_ms: int | None
    """None where nobody keeps it by op, as kstat."""


_NONE = Tally(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Counters:
    """One line: a device's or partition's tallies by op (flush and discard only where the kernel keeps them)."""

    name: str
    ops: Mapping[str, Tally]
    in_flight: int = 0
    """Requests in the driver up to about 6.9, queued ones too from then on (inflight.py decides)."""


@dataclass(frozen=True, slots=True)
class Diskstats:
    """One reading; `undecoded` counts the lines that were not understood."""

    counters: Mapping[Number, Counters]
    undecoded: int = 0


def parse(raw: bytes) -> Diskstats:
    """A reading of /proc/diskstats. Columns after the ones we know are ignored, missing newer ones are absent ops."""
    counters: dict[Number, Counters] = {}
    undecoded = 0
    for line in raw.splitlines():
        columns = line.split()
        try:
            counters[Number(int(columns[0]), int(columns[1]))] = _counters(columns)
        except (ValueError, IndexError):
            undecoded += bool(columns)
    return Diskstats(counters, undecoded)


def _counters(columns: list[bytes]) -> Counters:
    numbers = [int(column) for column in columns[3:]]
    ops = {"read": _tally(numbers, 0), "write": _tally(numbers, 4)}
    if len(columns) >= _FLUSH:
        ops["discard"] = _tally(numbers, _DISCARD - 3)
    if len(columns) >= _FLUSH + 2:
        count, time_ms = numbers[_FLUSH - 3 : _FLUSH - 1]
        ops["flush"] = Tally(count, 0, time_ms)
    if len(columns) < _COLUMNS:
        raise ValueError("fewer columns than any supported kernel prints")
    return Counters(clean(columns[2]), ops, numbers[_IN_FLIGHT - 3])


def _tally(numbers: list[int], at: int) -> Tally:
    count, _merged, sectors, time_ms = numbers[at : at + 4]
    return Tally(count, sectors * SECTOR, time_ms)


def difference(before: Counters | None, after: Counters, word: int = WORD) -> dict[str, Tally]:
    """What completed between two readings of one device, by op.

    A device that wasn't there before, has another name or counts backwards began anew: all of `after` is new.
    `word` is the span of the kernel's unsigned long, over which counts and sectors wrap.
    """
    if before is None or before.name != after.name:
        return dict(after.ops)
    spans = {op: _span(before.ops.get(op, _NONE), tally, word) for op, tally in after.ops.items()}
    known = {op: span for op, span in spans.items() if span is not None}
    return known if len(known) == len(spans) else dict(after.ops)


def _span(before: Tally, after: Tally, word: int) -> Tally | None:
    count = _forward(before.count, after.count, word)
    moved = _forward(before.bytes, after.bytes, word * SECTOR)
    if count is None or moved is None:
        return None
    if after.time_ms is None:
        return Tally(count, moved, None)
    return Tally(count, moved, _forward(before.time_ms or 0, after.time_ms, _TIME_WORD) or 0)


def _forward(before: int, after: int, wrap: int) -> int | None:
    """`after - before`, over at most one wrap; None where that would be half the range or more: it went backwards."""
    span = (after - before) % wrap
    return span if span < wrap // 2 else None
