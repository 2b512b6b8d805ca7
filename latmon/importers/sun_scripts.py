"""Importers of published scripts for Solaris: emlxsoverhead.d, scsi.d, max_sd.d, and kstat of task queues.

TOTAL - EMLXS is the device and the SAN. EMLXS = I/O START + from the interrupt's begin to the end of I/O DONE, so the
stages add up but for what was cut below 1 us each. Its I/O INTR begins at the MSI handler, with packets before it.

The `<-` line alone holds all that is needed. A hexadecimal 0x that a word processor made a multiplication sign is read.

What one reading tells is what there is now; how long tasks waited is kept nowhere. Facts as in latmon_backends'
kstat_taskqs, which reads a live system.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from latmon.importers import values
from latmon.importers.values import (
    UNKNOWN_OP,
    Asked,
    Counts,
    Found,
    Moment,
    Passed,
    Queues,
    Remark,
    Times,
    Where,
    one_device,
)
from latmon.model.frame import Completed, Flow, Outlier, Series, Taskq
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, Depths
from latmon.support.text import clean

_HEAD = re.compile(r"\s*TIMESTAMP\s+TOTAL\(us\)\s+EMLXS\(us\)")
_ROW = re.compile(r"\s*(\d{4} [A-Z][a-z]{2} [ \d]?\d \d{2}:\d{2}:\d{2})" + r"\s+(\d{1,15})" * 6 + r"\s*")
_LIKE_ROW = re.compile(r"\s*\S+ \S+ {1,2}\S+ \S+:\S+:\S+(?:\s+\S+){6}\s*")
_DEVICE = "emlxs"


def sniff_emlxs(head: str) -> bool:
    """By its head, or by rows that have lost it."""
    return any(_HEAD.match(line) or _ROW.fullmatch(line) for line in head.split("\n"))


def read_emlxs(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """A row is an I/O, rows of one second are a window; another run begins with a head of its own."""
    rows: list[tuple[int, Outlier]] = []
    for at, line in enumerate(lines, 1):
        if _HEAD.match(line):
            yield from _windows(rows, asked)
            yield (
                Moment(Where(at, at), f"line {at}: another run of emlxsoverhead begins")
                if rows
                else Passed(Where(at, at))
            )
            rows = []
        elif (row := _ROW.fullmatch(line)) and (one := _outlier(row, asked)):
            rows.append((at, one))
        elif _LIKE_ROW.fullmatch(line):
            yield Remark(Where(at, at), "a row can't be read: its I/O is left out", 1, is_incomplete=True)
    yield from _windows(rows, asked)


def _windows(rows: list[tuple[int, Outlier]], asked: Asked) -> Iterator[Times]:
    for wall, same in groupby(rows, key=lambda pair: pair[1].wall):
        group = list(same)
        for first, last in _stretches([at for at, _ in group]):
            yield _second(Where(first, last, wall), [one for at, one in group if first <= at <= last], asked)


def _stretches(lines: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring lines together."""
    first = last = lines[0]
    for at in lines[1:]:
        if at != last + 1:
            yield first, last
            first = at
        last = at
    yield first, last


def _outlier(row: re.Match[str], asked: Asked) -> Outlier | None:
    """None for a row whose stages are more than their total."""
    wall = values.moment(row[1])
    total, emlxs, start, intr, queue, done = (int(one) for one in row.groups()[1:])
    stages = {"queue": start, "hba": total - emlxs, "irq": intr, "completion": queue + done}
    rest = total - sum(stages.values())
    if wall is None or rest < 0 or emlxs > total:
        return None
    return Outlier(
        wall=wall,
        mono_us=0,
        device=asked.device or _DEVICE,
        op=asked.op or UNKNOWN_OP,
        total_us=total,
        stages_us=stages,
        unaccounted_us=rest,
        path=f"completion: QUEUE {queue} us, I/O DONE {done} us",
    )


def _second(where: Where, group: list[Outlier], asked: Asked) -> Times:
    flow = Flow(asked.device or _DEVICE, asked.op or UNKNOWN_OP)
    histograms = {Series(*flow, "total"): Histogram.record(one.total_us for one in group)}
    for stage in group[0].stages_us:
        histograms[Series(*flow, stage)] = Histogram.record(one.stages_us[stage] for one in group)
    total = sum(one.total_us for one in group)
    return Times(where, histograms, tuple(group), {flow: Completed(len(group), 0, total)})


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
_WORDS = ("address ", "lba ")
"""Of any command's line, damaged or not."""
_BACK_S = 1
"""DTrace prints the buffers of its CPUs one behind the other, a second of each: stamps of a run fall by less."""
_OPS = {"READ": "read", "WRITE": "write", "SYNC": "flush", "UNMAP": "discard"}


def sniff_scsi(head: str) -> bool:
    """Arrows with an opcode and an address."""
    return any(_BEGIN.match(line) and _ADDRESS.search(line) for line in head.split("\n"))


def read_scsi(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Commands that came back within one second are a window."""
    begun: dict[tuple[str, str, str], int] = defaultdict(int)
    group: list[tuple[int, Outlier]] = []
    second: int | None = None
    before = 0.0
    for at, line in enumerate(lines, 1):
        start = _BEGIN.match(line)
        if not start or not _ADDRESS.search(line):
            yield from _unread(at, line)
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
            yield Remark(Where(at, at), "a command came back without a time in us", 1, is_incomplete=True)
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


def _unread(at: int, line: str) -> Iterator[Remark]:
    """A remark where a line that is no command was one."""
    if ("->" in line or "<-" in line) and all(word in line for word in _WORDS):
        yield Remark(Where(at, at), "a command can't be read: it is left out", 1, is_incomplete=True)


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


_LINE = re.compile(r"\s*(?:s?sd\d{1,5}\s+\d{1,6}(?:\s+|$))+")
_PAIR = re.compile(r"(s?sd\d{1,5})\s+(\d{1,6})(?!\S)")
_SAID = 8


def sniff_max_sd(head: str) -> bool:
    """Lines that are nothing but LUNs and numbers."""
    return any(_LINE.fullmatch(line) for line in head.split("\n"))


def read_max_sd(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """Each pair is a maximum: no time, no distribution; it is reported as the depth that was reached."""
    every = [name for line in lines if _LINE.fullmatch(line) for name, _ in _PAIR.findall(line)]
    one_device(asked, list(dict.fromkeys(every)))
    for at, line in enumerate(lines, 1):
        if not _LINE.fullmatch(line):
            continue
        where = Where(at, at)
        pairs = _PAIR.findall(line)
        depths = {asked.device or name: Depths(most=int(most), source=PROBE) for name, most in pairs}
        yield Counts(where, {}, {}, depths)
        said = ", ".join(f"{name} {most}" for name, most in pairs[:_SAID])
        yield Remark(where, f"at most so many commands in the driver, no time: {said}")


_MODULE = re.compile(r"\s*module:\s+(\S{1,64})\s+instance:\s+(\d{1,10})\s*")
_NAME = re.compile(r"\s*name:\s+(\S.{0,63}?)\s+class:\s+(\S{1,64})\s*")
_VALUE = re.compile(r"\s*([a-z_]{2,32})\s+(-?\d{1,20}(?:\.\d{1,12})?)\s*")
_TASKQ_PAIR = re.compile(r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):([a-z_]{2,32})[\t ]+(\S{1,64})\s*")
_TASKQ_NEEDED = ("tasks", "executed", "maxtasks", "nactive", "priority", "threads")
_MAX = 2**63 - 1
_MOST = 1024


def sniff_taskq(head: str) -> bool:
    """The class, or a statistic that only task queues have."""
    lines = head.split("\n")
    return any((name := _NAME.fullmatch(one)) and name[2] == "taskq" for one in lines) or any(
        (pair := _TASKQ_PAIR.fullmatch(one)) and pair[4] in ("maxtasks", "nactive") for one in lines
    )


def read_taskq(lines: Sequence[str], asked: Asked) -> Iterator[Found]:
    """All queues of a reading together; one that comes again begins the next."""
    del asked
    found: dict[tuple[str, int], dict[str, str]] = {}
    first = last = 0
    instance, current = 0, None
    for at, line in enumerate(lines, 1):
        module, name, pair = _MODULE.fullmatch(line), _NAME.fullmatch(line), _TASKQ_PAIR.fullmatch(line)
        value = _VALUE.fullmatch(line) if current is not None else None
        if pair and pair[4] != "class":
            key = (pair[3], int(pair[2]))
            if pair[4] in found.get(key, {}) or len(found) >= _MOST:
                yield from _reading(found, first, last)
                found = {}
            found.setdefault(key, {})[pair[4]] = pair[5]
        elif pair:
            pass  # its class is known by what it tells
        elif module:
            instance, current = int(module[2]), None
        elif name and name[2] == "taskq":
            key = (name[1], instance)
            if key in found or len(found) >= _MOST:
                yield from _reading(found, first, last)
                found = {}
            current = found.setdefault(key, {})
        elif value and current is not None:
            current[value[1]] = value[2]
        else:
            current = None
            continue
        yield Passed(Where(at, at))
        first, last = (at, at) if len(found) <= 1 and sum(map(len, found.values())) <= 1 else (first or at, at)
    yield from _reading(found, first, last)


def _reading(found: Mapping[tuple[str, int], Mapping[str, str]], first: int, last: int) -> Iterator[Found]:
    whole = {key: one for key, values in found.items() if (one := _taskq(*key, values)) is not None}
    if whole:
        yield Queues(Where(first, last), tuple(whole.values()))
    for name, _ in found.keys() - whole.keys():
        yield Remark(Where(first, last), f"task queue {clean(name)}: some of {', '.join(_TASKQ_NEEDED)} is missing", 1)


def _taskq(name: str, instance: int, values: Mapping[str, str]) -> Taskq | None:
    """None where a statistic is missing or out of range."""
    numbers = [
        int(values[key]) for key in _TASKQ_NEEDED if values.get(key, "").isdecimal() and int(values[key]) <= _MAX
    ]
    if len(numbers) < len(_TASKQ_NEEDED):
        return None
    tasks, executed, most, active, priority, threads = numbers
    waiting = max(tasks - executed - active, 0)
    return Taskq(clean(name), instance, threads, priority, active, waiting, most, executed)
