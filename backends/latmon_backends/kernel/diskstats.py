"""/proc/diskstats parsed and differenced, and I/Os outstanding now from sysfs.

Pure: bytes in, values out. Must not know sysfs, device kinds or frames' devices. Times are the kernel's sums of
(completed - queued) per op; bytes are sectors of 512 bytes whatever the device's own sector size.

Owns which of the two counts what on this kernel. Up to 6.9 the column is in-driver too, later it also counts
requests that wait in the block layer, and the difference is the queue. Must not know frames' schedule or identity.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Outstanding
from latmon.support.paths import content
from latmon.support.text import clean

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


_OLD = b"blk_mq_in_flight"
_BESIDE = (b"blk_mq_in_flight_rw", b"blk_mq_in_driver_rw")
"""Their presence proves that a symbol list names the block layer's functions at all."""
_UNUSED_SINCE = (6, 10)
_RELEASE = re.compile(rb"(\d+)\.(\d+)")


def column_has_queued(proc: Path, sys: Path) -> bool:
    """True when this kernel's diskstats column counts queued requests as well as those in the driver.

    `blk_mq_in_flight` counted for the column while it was in-driver only (seen on 6.1). Where it is gone (7.2) the
    column has the queue; from 6.10 to its removal it is there but unused (seen on 6.12), which only the release tells.
    A kernel that got the change as a backport is taken for an old one: its queue stays unknown, nothing is wrong.
    BTF is asked first: kallsyms costs the kernel 0.2 s to print.
    """
    for source, start, end in ((sys / "kernel/btf/vmlinux", b"\0", b"\0"), (proc / "kallsyms", b" ", b"\n")):
        symbols = content(source)
        if start + _OLD + end in symbols:
            return _release(proc) >= _UNUSED_SINCE
        if any(start + name + end in symbols for name in _BESIDE):
            return True
    return False


def _release(proc: Path) -> tuple[int, int]:
    found = _RELEASE.match(content(proc / "sys/kernel/osrelease"))
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def in_driver(block: Path) -> int | None:
    """Requests that the driver holds (reads + writes), from a device's sysfs directory; None when it can't be read."""
    try:
        reads, writes = (block / "inflight").read_bytes().split()
        return int(reads) + int(writes)
    except (OSError, ValueError):
        return None


def outstanding(driver: int | None, column: int, *, has_queued: bool) -> Outstanding:
    """The two numbers told apart. They are read at two moments, so a small negative queue is an empty one."""
    queued = max(0, column - driver) if has_queued and driver is not None else None
    return Outstanding(driver, queued)
