"""blktrace exports: I/Os of a recording as blkparse's text, and as blktrace's binary events for btt and blkparse.

Each I/O whose stages are known has the events Q, G, I, D, R and C of its steps, without I where no insertion is known.
Q has the whole request, also where several bios were merged into it: their own Qs and Ms are not known. Stamps are
exact to the microsecond.

Events of all I/Os are written in the order of their time: a first pass over the recording finds the longest I/O, and
the second one holds back as much time.
"""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from latmon.exporters.registry import ExportOptions, Source
from latmon.model.frame import Device, Frame, Outlier
from latmon.model.measurements.errors import errno_of
from latmon.report.trace import SECTOR, steps

_ACTIONS = {"Q": 1, "G": 4, "R": 6, "D": 7, "C": 8, "I": 12}
"""enum blktrace_act of include/uapi/linux/blktrace_api.h; R is a requeue."""
_CATEGORIES = {"Q": 1 << 4, "G": 1 << 4, "R": 1 << 5, "D": 1 << 6, "C": 1 << 7, "I": 1 << 4}
_READ, _WRITE, _FLUSH, _SYNC, _AHEAD, _META, _DISCARD, _FUA = (1 << at for at in (0, 1, 2, 3, 11, 12, 13, 15))
_OPS = {"read": ("R", _READ), "write": ("W", _WRITE), "discard": ("D", _WRITE | _DISCARD), "flush": ("F", _FLUSH)}
_FLAGS = {"fua": ("F", _FUA), "readahead": ("A", _AHEAD), "sync": ("S", _SYNC), "meta": ("M", _META)}
"""In the order of blk_fill_rwbs."""
_EVENT = struct.Struct("<IIQQIIIIIHH")
"""struct blk_io_trace."""
_MAGIC = 0x65617407
_NAME, _MESSAGE = 1 << 10 << 16, 1 << 10 << 16 | 2
"""BLK_TN_PROCESS and BLK_TN_MESSAGE: the name of a process, and a text, are in the data after the event."""
_SLACK_US = 1_000_000
"""A record may be printed so much later than the frame's tick."""


class BlockEvent(NamedTuple):
    """One event of an I/O, in the order in which they are written."""

    mono_us: int
    order: int
    """The place among the events of the I/O."""
    action: str
    cpu: int
    pid: int
    sector: int
    bytes: int
    rwbs: str
    category: int
    comm: str
    device: tuple[int, int]
    error: int
    """The errno of a completion; 0: it didn't fail."""


def events(outlier: Outlier, number: tuple[int, int]) -> list[BlockEvent]:
    """Return the events of an I/O in their order; none where its issue is not known."""
    step_times = steps(outlier)
    if "D2C" not in step_times:
        return []
    begun, done = outlier.mono_us, outlier.mono_us + step_times["Q2C"] - step_times.get("Q2G", 0)
    issued = done - step_times["D2C"]
    at = [("Q", begun - step_times.get("Q2G", 0)), ("G", begun)]
    if "I2D" in step_times:
        at.append(("I", begun + step_times["G2I"]))
    if requeued := step_times.get("requeue"):
        at += [("D", issued - requeued), ("R", issued)]
    at += [("D", issued), ("C", done)]
    rwbs, category = _kind(outlier)
    cpu_issue, cpu_complete = outlier.cpu_issue or 0, outlier.cpu_complete or 0
    pid = outlier.pid or 0
    error = errno_of(outlier.status)
    return [
        BlockEvent(
            *(
                us,
                order,
                action,
                cpu_complete if action == "C" else cpu_issue,
                0 if action == "C" else pid,
                outlier.sector or 0,
            ),
            *(outlier.bytes or 0, rwbs, category, outlier.comm, number, error if action == "C" else 0),
        )
        for order, (action, us) in enumerate(at)
    ]


def _kind(outlier: Outlier) -> tuple[str, int]:
    letter, category = _OPS.get(outlier.op, ("N", 0))
    rwbs = f"F{letter}" if "preflush" in outlier.flags or outlier.op == "flush" else letter
    category |= _FLUSH if "preflush" in outlier.flags else 0
    for name, (sign, bit) in _FLAGS.items():
        if name in outlier.flags:
            rwbs, category = rwbs + sign, category | bit
    return rwbs, category


def write_text(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write blkparse's default text, a line an event."""
    out.write(f"  0,0    0        0     0.000000000     0  m   N {_message(source)}\n".encode())
    out.writelines(_line(block_event, number, us).encode() for block_event, number, us in _numbered(source))


def _message(source: Source) -> str:
    redacted = ", redacted" if source.redacted else ""
    return f"latmon {source.origin.latmon}, host {source.origin.host}{redacted}"


def _line(block_event: BlockEvent, number: int, us: int) -> str:
    major, minor = block_event.device
    place = f"{block_event.sector} + {block_event.bytes // SECTOR} " if block_event.bytes else ""
    tail = f"[{_unsigned(block_event.error)}]" if block_event.action == "C" else f"[{block_event.comm or 'unknown'}]"
    return (
        f"{major:3},{minor:<3} {block_event.cpu:2} {number:8} "
        f"{us // 1_000_000:5}.{us % 1_000_000:06}000 {block_event.pid:5} "
        f"{block_event.action:>2} {block_event.rwbs:>3} {place}{tail}\n"
    )


def _unsigned(error: int) -> int:
    """Return an errno as blktrace has it: negative, in 16 bits without a sign (struct blk_io_trace)."""
    return -error & 0xFFFF


def write_binary(source: Source, out: BinaryIO, _options: ExportOptions) -> None:
    """Write blktrace's events of all CPUs in one stream: `btt -i FILE`, `blkparse -i - < FILE`."""
    message = _message(source).encode()
    out.write(_EVENT.pack(_MAGIC, 0, 0, 0, 0, _MESSAGE, 0, 0, 0, 0, len(message)) + message)
    named: set[tuple[int, str]] = set()
    for block_event, number, us in _numbered(source):
        device = block_event.device[0] << 20 | block_event.device[1]
        if block_event.pid and (block_event.pid, block_event.comm) not in named:
            named.add((block_event.pid, block_event.comm))
            name = block_event.comm.encode("utf-8", "replace")[:15].ljust(16, b"\0")
            out.write(
                _EVENT.pack(_MAGIC, 0, us * 1000, 0, 0, _NAME, block_event.pid, device, block_event.cpu, 0, len(name))
                + name
            )
        action = _ACTIONS[block_event.action] | (_CATEGORIES[block_event.action] | block_event.category) << 16
        numbers = (
            number,
            us * 1000,
            block_event.sector,
            block_event.bytes,
            action,
            block_event.pid,
            device,
            block_event.cpu,
            _unsigned(block_event.error),
            0,
        )
        out.write(_EVENT.pack(_MAGIC, *numbers))


def _numbered(source: Source) -> Iterator[tuple[BlockEvent, int, int]]:
    """Yield each event with its number on its device's CPU and its time since the earliest one."""
    first = _first_pass(source)
    numbers: Counter[tuple[tuple[int, int], int]] = Counter()
    waiting: list[BlockEvent] = []
    unnumbered: dict[str, tuple[int, int]] = {}
    for item in source.reported():
        if not isinstance(item, Frame):
            continue
        for outlier in item.outliers:
            for event in events(outlier, _number_of(outlier.device, source.devices.get(outlier.device), unnumbered)):
                heapq.heappush(waiting, event)
        until = item.mono_us - first.longest_us - _SLACK_US
        while waiting and waiting[0].mono_us < until:
            yield _number(heapq.heappop(waiting), numbers, first)
    while waiting:
        yield _number(heapq.heappop(waiting), numbers, first)


def _number_of(name: str, device: Device | None, unnumbered: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return a device's number; hidden NVMe paths, which all have 0:0, are 0:1, 0:2, ... in their order."""
    if device is not None and (device.major or device.minor):
        return device.major, device.minor
    return unnumbered.setdefault(name, (0, len(unnumbered) + 1))


@dataclass
class _FirstPass:
    """The earliest event of a recording, and the longest I/O."""

    begin_us: int | None = None
    longest_us: int = 0

    def add(self, outlier: Outlier) -> None:
        us = steps(outlier)["Q2C"]
        begin = outlier.mono_us - (outlier.admission_us or 0)
        self.begin_us = begin if self.begin_us is None else min(self.begin_us, begin)
        self.longest_us = max(self.longest_us, us)


def _first_pass(source: Source) -> _FirstPass:
    first_pass = _FirstPass()
    for item in source.reported():
        for outlier in item.outliers if isinstance(item, Frame) else ():
            first_pass.add(outlier)
    return first_pass


def _number(
    block_event: BlockEvent, numbers: Counter[tuple[tuple[int, int], int]], first: _FirstPass
) -> tuple[BlockEvent, int, int]:
    numbers[block_event.device, block_event.cpu] += 1
    return block_event, numbers[block_event.device, block_event.cpu], block_event.mono_us - (first.begin_us or 0)
