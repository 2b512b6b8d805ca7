"""Parser of /proc/diskstats, the difference of two readings, and the I/Os outstanding now.

Totals are those since the counters began. Times are the kernel's sums of (completed - queued) per op; bytes are
sectors of 512 bytes whatever the device's own sector size. Up to Linux 6.9 the in-flight column has the I/Os in the
driver, as sysfs; later it also counts requests that wait in the block layer, and the difference is the queue.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from latmon.model.frame import Completed, Outstanding
from latmon.support.paths import content
from latmon.support.text import clean

SECTOR = 512
WORD = 2 * (sys.maxsize + 1)
_MS = 1000
_TIME_WORD = 2**32 * _MS
"""Times are printed as 32 bits of ms on every kernel: they wrap after 49 days of summed I/O time."""
_IN_FLIGHT = 11
_COLUMNS = 14
_DISCARD, _FLUSH = 14, 18  # columns since 4.18 and since 5.5


class DeviceNumber(NamedTuple):
    """A dev_t."""

    major: int
    minor: int


_NONE = Completed(0, 0, 0, merged=0)


@dataclass(frozen=True, slots=True)
class Counters:
    """One line: a device's or partition's totals by op (flush and discard only where the kernel counts them)."""

    name: str
    ops: Mapping[str, Completed]
    in_flight: int = 0
    """Requests in the driver up to about 6.9, queued ones too from then on (see column_has_queued)."""


@dataclass(frozen=True, slots=True)
class Diskstats:
    """One reading; `undecoded` counts the lines that were not understood."""

    counters: Mapping[DeviceNumber, Counters]
    undecoded: int = 0
    lines: Mapping[bytes, tuple[DeviceNumber, Counters]] = field(default_factory=dict, compare=False)
    """The lines that were understood, for the next reading."""


def parse(raw: bytes, before: Diskstats | None = None) -> Diskstats:
    """Parse /proc/diskstats. Columns after the known ones are ignored, missing newer ones are absent ops.

    Lines of idle devices are as they were `before`: their counters are the same objects.
    """
    known = before.lines if before is not None else {}
    lines: dict[bytes, tuple[DeviceNumber, Counters]] = {}
    undecoded = 0
    for line in raw.splitlines():
        try:
            lines[line] = known.get(line) or _line(line.split())
        except (ValueError, IndexError):
            undecoded += bool(line.strip())
    return Diskstats(dict(lines.values()), undecoded, lines)


def _line(columns: list[bytes]) -> tuple[DeviceNumber, Counters]:
    return DeviceNumber(int(columns[0]), int(columns[1])), _counters(columns)


def _counters(columns: list[bytes]) -> Counters:
    numbers = [int(column) for column in columns[3:]]
    ops = {"read": _tally(numbers, 0), "write": _tally(numbers, 4)}
    if len(columns) >= _FLUSH:
        ops["discard"] = _tally(numbers, _DISCARD - 3)
    if len(columns) >= _FLUSH + 2:
        count, time_ms = numbers[_FLUSH - 3 : _FLUSH - 1]
        ops["flush"] = Completed(count, 0, time_ms * _MS, merged=0)
    if len(columns) < _COLUMNS:
        raise ValueError("fewer columns than any supported kernel prints")
    return Counters(clean(columns[2]), ops, numbers[_IN_FLIGHT - 3])


def _tally(numbers: list[int], at: int) -> Completed:
    count, merged, sectors, time_ms = numbers[at : at + 4]
    return Completed(count, sectors * SECTOR, time_ms * _MS, merged=merged)


def difference(before: Counters | None, after: Counters, word: int = WORD) -> dict[str, Completed]:
    """Return the I/Os completed between two readings of one device, by op.

    A device that wasn't there before, has another name or counts backwards has restarted: all of `after` is new.
    `word` is the span of the kernel's unsigned long, over which counts and sectors wrap.
    """
    if before is None or before.name != after.name:
        return dict(after.ops)
    spans = {op: _span(before.ops.get(op, _NONE), tally, word) for op, tally in after.ops.items()}
    known = {op: span for op, span in spans.items() if span is not None}
    return known if len(known) == len(spans) else dict(after.ops)


def _span(before: Completed, after: Completed, word: int) -> Completed | None:
    count = _forward(before.count, after.count, word)
    moved = _forward(before.bytes, after.bytes, word * SECTOR)
    if count is None or moved is None:
        return None
    merged = None if after.merged is None else _forward(before.merged or 0, after.merged, word)
    if after.time_us is None:
        return Completed(count, moved, merged=merged)
    return Completed(count, moved, _forward(before.time_us or 0, after.time_us, _TIME_WORD) or 0, merged=merged)


def _forward(before: int, after: int, wrap: int) -> int | None:
    """Return `after - before`, over at most one wrap; None where that is half the range or more: it went backwards."""
    span = (after - before) % wrap
    return span if span < wrap // 2 else None


_OLD = b"blk_mq_in_flight"
_BESIDE = (b"blk_mq_in_flight_rw", b"blk_mq_in_driver_rw")
"""Functions of the block layer: the symbol list has its functions where it lists one of these."""
_UNUSED_SINCE = (6, 10)
_RELEASE = re.compile(rb"(\d+)\.(\d+)")


def column_has_queued(proc: Path, sys: Path) -> bool:
    """Return whether this kernel's diskstats column counts queued requests as well as those in the driver.

    `blk_mq_in_flight` counted for the column while it was in-driver only (seen on 6.1). Where it is gone (7.2) the
    column has the queue; from 6.10 to its removal it exists but is unused (seen on 6.12), so the release decides.
    A kernel that got the change as a backport is taken for an old one: its queue stays unknown, nothing is wrong.
    BTF is read first: kallsyms costs the kernel 0.2 s to print.
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


def in_driver(inflight: Path) -> int | None:
    """Return the requests in the driver (reads + writes) from a device's file `inflight`; None if unreadable."""
    try:
        reads, writes = content(inflight).split()
        return int(reads) + int(writes)
    except ValueError:
        return None


def outstanding(driver: int | None, column: int, *, has_queued: bool) -> Outstanding:
    """Separate driver and queue. They are read at two moments, so a small negative queue is an empty one."""
    queued = max(0, column - driver) if has_queued and driver is not None else None
    return Outstanding(driver, queued)
