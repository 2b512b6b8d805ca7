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
from latmon.model.inflight import MAX_DEPTH
from latmon.model.measurements.device_counters import DeviceCounters
from latmon.support.paths import content
from latmon.support.text import clean

SECTOR = 512
WORD = 2 * (sys.maxsize + 1)
MOST_GAINED = 2**42
"""Bound of what a counter gains in an interval: more is a broken counter. It is 4.4 TB, or 50 days of I/O time. A
minute's sum of such values, at 10 frames per second, is still below the 2^52 of a recording's table."""
_MS = 1000
_TIME_WORD = 2**32 * _MS
"""Times are printed as 32 bits of ms on every kernel: they wrap after 49 days of summed I/O time."""
_IN_FLIGHT = 11
_ACTIVE = 12
_COLUMNS = 14
_DISCARD, _FLUSH = 14, 18  # columns since 4.18 and since 5.5
_HIGHEST = 2**64 - 1
"""Highest number of a column: the kernel prints an unsigned long."""
_HIGHEST_PART = 2**32 - 1
"""Highest major and minor."""
_RESTARTED_SHARE = 0.1
_RESTARTED_IOS = 10_000
"""Counters that fell have begun again at 0 where they are at most this share of those before, and so few I/Os. A
counter that fell a little has not: lxcfs adds up cgroups that may go, and then its sums fall by what those had."""
_NONE = Completed(0, 0, 0, merged=0)
_OLD = b"blk_mq_in_flight"
_BESIDE = (b"blk_mq_in_flight_rw", b"blk_mq_in_driver_rw")
"""Functions of the block layer: the symbol list has its functions where it lists one of these."""
_UNUSED_SINCE = (6, 10)
_RELEASE = re.compile(rb"(\d+)\.(\d+)")


class DeviceNumber(NamedTuple):
    """A dev_t."""

    major: int
    minor: int


UNNUMBERED = DeviceNumber(0, 0)
"""Number of all hidden disks: diskstats prints the one of their block device, which they don't have (NVMe paths)."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One line: a device's or partition's totals by op (flush and discard only where the kernel counts them)."""

    name: str
    ops: Mapping[str, Completed]
    in_flight: int | None = 0
    """Requests in the driver up to about 6.9, queued ones too from then on (see column_has_queued); None: not known."""
    number: DeviceNumber = UNNUMBERED
    active_us: int = 0
    """Time in which it had any I/O: the kernel's io_ticks."""


@dataclass(frozen=True, slots=True)
class Diskstats:
    """One reading by device name; `undecoded` counts the lines that were not understood."""

    counters: Mapping[str, Counters]
    undecoded: int = 0
    lines: Mapping[bytes, Counters] = field(default_factory=dict, compare=False)
    """The lines that were understood, for the next reading."""


def parse(raw: bytes, before: Diskstats | None = None) -> Diskstats:
    """Parse /proc/diskstats. Columns after the known ones are ignored, missing newer ones are absent ops.

    Lines of idle devices are as they were `before`: their counters are the same objects.
    """
    known = before.lines if before is not None else {}
    lines: dict[bytes, Counters] = {}
    undecoded = 0
    for line in raw.splitlines():
        try:
            lines[line] = known.get(line) or _counters(line.split())
        except (ValueError, IndexError):
            undecoded += bool(line.strip())
    return Diskstats({line.name: line for line in lines.values()}, undecoded, lines)


def _counters(columns: list[bytes]) -> Counters:
    number = DeviceNumber(int(columns[0]), int(columns[1]))
    numbers = [int(column) for column in columns[3:]]
    in_flight = numbers.pop(_IN_FLIGHT - 3)
    if min(*number, *numbers) < 0 or max(numbers) > _HIGHEST or max(number) > _HIGHEST_PART:
        raise ValueError("a number that no kernel prints")
    numbers.insert(_IN_FLIGHT - 3, in_flight)
    ops = {"read": _tally(numbers, 0), "write": _tally(numbers, 4)}
    if len(columns) >= _FLUSH:
        ops["discard"] = _tally(numbers, _DISCARD - 3)
    if len(columns) >= _FLUSH + 2:
        count, time_ms = numbers[_FLUSH - 3 : _FLUSH - 1]
        ops["flush"] = Completed(count, 0, time_ms * _MS, merged=0)
    if len(columns) < _COLUMNS:
        raise ValueError("fewer columns than any supported kernel prints")
    return Counters(clean(columns[2]), ops, gauge(in_flight), number, numbers[_ACTIVE - 3] * _MS)


def _tally(numbers: list[int], at: int) -> Completed:
    count, merged, sectors, time_ms = numbers[at : at + 4]
    return Completed(count, sectors * SECTOR, time_ms * _MS, merged=merged)


def difference(before: Counters | None, after: Counters, word: int = WORD) -> dict[str, Completed] | None:
    """Return the I/Os completed between two readings of one device, by op; None where they are not known.

    All of `after` is new where there was no device `before`, or one with another name, and where a counter fell and
    all have begun again near 0. Where a counter fell otherwise, or gained more than a device can do, nothing is known.
    `word` is the span of the kernel's unsigned long, over which counts and sectors wrap.
    """
    if before is None or before.name != after.name:
        return _possible(after.ops)
    spans: dict[str, Completed] = {}
    for op, totals in after.ops.items():
        span = _span(before.ops.get(op, _NONE), totals, word)
        if span is None:
            return _possible(after.ops) if _has_restarted(before, after) else None
        spans[op] = span
    return _possible(spans)


def device_difference(before: Counters | None, after: Counters) -> DeviceCounters:
    """Return what was counted of a device between two readings, apart from its ops; what fell is not known."""
    earlier_us = 0 if before is None or before.name != after.name else before.active_us
    span_us = _forward(earlier_us, after.active_us, _TIME_WORD)
    return DeviceCounters(None if span_us is None or span_us > MOST_GAINED else span_us)


def is_near_0(counters: Counters) -> bool:
    """Return whether a device has done so few I/Os that its counters may just have begun."""
    return sum(totals.count for totals in counters.ops.values()) <= _RESTARTED_IOS


def has_restarted(before: int, after: int) -> bool:
    """Return whether a sum that fell has begun again at 0: it is a small part of the one before."""
    return after <= _RESTARTED_SHARE * before


def _has_restarted(before: Counters, after: Counters) -> bool:
    ios = [sum(totals.count for totals in counters.ops.values()) for counters in (before, after)]
    sizes = [sum(totals.bytes for totals in counters.ops.values()) for counters in (before, after)]
    return is_near_0(after) and has_restarted(*ios) and has_restarted(*sizes)


def _possible(ops: Mapping[str, Completed]) -> dict[str, Completed] | None:
    """Return the I/Os of an interval; None where a number is higher than any that a device reaches."""
    for done in ops.values():
        if max(done.count, done.bytes, done.time_us or 0, done.merged or 0) > MOST_GAINED:
            return None
    return dict(ops)


def _span(before: Completed, after: Completed, word: int) -> Completed | None:
    count = _forward(before.count, after.count, word)
    moved = _forward(before.bytes, after.bytes, word * SECTOR)
    if count is None or moved is None:
        return None
    merged = None if after.merged is None else _forward(before.merged or 0, after.merged, word)
    time_us = None if after.time_us is None else _forward(before.time_us or 0, after.time_us, _TIME_WORD)
    return Completed(count, moved, time_us, merged=merged)


def _forward(before: int, after: int, wrap: int) -> int | None:
    """Return `after - before`, over at most one wrap; None where that is half the range or more: it went backwards."""
    span = (after - before) % wrap
    return span if span < wrap // 2 else None


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
    match = _RELEASE.match(content(proc / "sys/kernel/osrelease"))
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def in_driver(inflight: Path) -> int | None:
    """Return the requests in the driver (reads + writes) from a device's file `inflight`; None if not known."""
    try:
        reads, writes = content(inflight).split()
        return gauge(int(reads), int(writes))
    except ValueError:
        return None


def gauge(*numbers: int) -> int | None:
    """Return the sum of numbers of I/Os; None where one went below 0, which the kernel prints as 2^32 less that."""
    return sum(numbers) if min(numbers) >= 0 and sum(numbers) <= MAX_DEPTH else None


def outstanding(driver: int | None, column: int | None, *, has_queued: bool) -> Outstanding:
    """Separate driver and queue. They are read at two moments, so a small negative queue is an empty one."""
    if not has_queued or driver is None or column is None:
        return Outstanding(driver, None)
    return Outstanding(driver, max(0, column - driver))
