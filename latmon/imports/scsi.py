"""scsi.d's lines of Solaris: `->` as a SCSI command goes to its HBA, `<-` as it comes back, with its time.

The `<-` line alone holds all that is needed. A hexadecimal 0x that a word processor made a multiplication sign is read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from latmon.histogram import Histogram
from latmon.imports.found import Asked, Found, Moment, Passed, Remark, Times, Where
from latmon.imports.naming import UNKNOWN_OP
from latmon.model import Completed, Flow, Outlier, Series
from latmon.text import clean

_BEGIN = re.compile(
    r"\s*(?:(\d{1,9}\.\d{1,9})\s+)?([\w./@-]{1,64}):\s*(->|<-|COMMAND|RETURN)\s+0[x\u00d7]?[0-9a-fA-F]*\s+"
)
_COMMAND = re.compile(r"\(?([A-Z][A-Z_ ]{2,40}(?:\(\d{1,2}\))?)\)?")
_ADDRESS = re.compile(r"\baddress\s+([0-9a-fA-F:]{1,24}\b)")
_LBA = re.compile(r"\blba\s+(?:0[x\u00d7])?([0-9a-fA-F]{1,16})\b")
_LENGTH = re.compile(r"\blen\s+(?:0[x\u00d7])?([0-9a-fA-F]{1,12})\b")
_TIME = re.compile(r"\bTime\s+(\d{1,15})us\b")
_REASON = re.compile(r"\breason\s+0[x\u00d7]?[0-9a-fA-F]*\s+\((\w{1,32})\)")
_SECTOR = 512
_NEEDED = 3
_BACK_S = 1
"""DTrace prints the buffers of its CPUs one behind the other, a second of each: stamps of a run fall by less."""
_OPS = {"READ": "read", "WRITE": "write", "SYNC": "flush", "UNMAP": "discard"}


def sniff(head: str) -> bool:
    """Arrows with an opcode and an address."""
    return any(_BEGIN.match(line) and _ADDRESS.search(line) for line in head.split("\n"))


def read(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Commands that came back within one second are a window."""
    begun: dict[tuple[str, str, str], int] = defaultdict(int)
    group: list[tuple[int, Outlier]] = []
    second: int | None = None
    before = 0.0
    for at, line in enumerate(lines, 1):
        start = _BEGIN.match(line)
        if not start or not _ADDRESS.search(line):
            continue
        stamp = float(start[1] or before)
        if before - stamp > _BACK_S:
            if group:
                yield _times(group, second, asked)
            yield from _waiting(begun, at - 1)
            yield Moment(Where(at, at), f"line {at}: another run of scsi.d begins")
            group = []
            begun.clear()
        before = stamp
        key = (start[2], *((_ADDRESS.search(line) or [""])[0], (_LBA.search(line) or [""])[0]))
        if start[3] in ("->", "COMMAND"):
            begun[key] += 1
            yield Passed(Where(at, at))
            continue
        begun[key] = max(0, begun[key] - 1)
        one = _returned(start, line, asked)
        if one is None:
            yield Remark(Where(at, at), "a command came back without a time in us", 1)
            continue
        now = int(float(start[1])) if start[1] else second or 0
        if group and now != second:
            yield _times(group, second, asked)
            group = []
        second = now
        group.append((at, one))
        if (reason := _REASON.search(line)) and reason[1] != "COMPLETED":
            yield Remark(Where(at, at), clean(f"{one.device}: {reason[1]}"))
    if group:
        yield _times(group, second, asked)
    yield from _waiting(begun, len(lines))


def _waiting(begun: Mapping[tuple[str, str, str], int], at: int) -> Iterator[Found]:
    if left := sum(begun.values()):
        yield Remark(Where(at, at), f"{left:,} commands had not come back at the end", 0)


def _returned(start: re.Match[str], line: str, asked: Asked) -> Outlier | None:
    time, address, lba, length = (of.search(line) for of in (_TIME, _ADDRESS, _LBA, _LENGTH))
    command = _COMMAND.match(line, start.end())
    if time is None or address is None:
        return None
    stamp = float(start[1] or 0)
    total = int(time[1])
    return Outlier(
        wall=max(0.0, stamp - total / 1e6),
        mono_us=0,
        device=asked.device or clean(f"{start[2]} {address[1]}"),
        op=asked.op or _op(command[1] if command else ""),
        total_us=total,
        stages_us={},
        unaccounted_us=total,
        sector=int(lba[1], 16) if lba else None,
        bytes=int(length[1], 16) * _SECTOR if length else None,
        path=clean(command[1].strip()) if command else "",
    )


def _op(command: str) -> str:
    return next((op for word, op in _OPS.items() if command.startswith(word)), UNKNOWN_OP)


def _times(group: list[tuple[int, Outlier]], second: int | None, asked: Asked) -> Times:
    by_flow: dict[Flow, list[Outlier]] = defaultdict(list)
    for _, one in group:
        by_flow[Flow(one.device, one.op)].append(one)
    where = Where(group[0][0], group[-1][0], float((second or 0) + 1), 1_000_000)
    return Times(
        where,
        {Series(*flow, "total"): Histogram.record(one.total_us for one in some) for flow, some in by_flow.items()},
        tuple(one for _, one in group if one.total_us >= asked.threshold_us),
        {
            flow: Completed(len(some), sum(one.bytes or 0 for one in some), sum(one.total_us for one in some))
            for flow, some in by_flow.items()
        },
    )
