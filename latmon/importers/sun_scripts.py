"""Importers of Solaris' scripts and debuggers: emlxsoverhead.d, scsi.d, max_sd.d, kstat of task queues, sd's settings.

emlxsoverhead: TOTAL - EMLXS is the device and the SAN. EMLXS = I/O START + from the interrupt's begin to the end of
I/O DONE, so the stages add up but for what was cut below 1 us each. Its I/O INTR begins at the MSI handler, with the
packets before it. scsi.d: the `<-` line alone has everything that is needed. kstat: how long tasks waited is not
recorded; kernel/kstat.py explains the values. Settings of sd and of an HBA's driver are printed by mdb and by the crash
analysis tool (sdump); a structure is known by its address alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from latmon.importers import values
from latmon.importers.values import (
    UNKNOWN_OP,
    Counts,
    Found,
    ImportOptions,
    Limits,
    Message,
    Passed,
    Queues,
    Remark,
    Seconds,
    TextSpan,
    TimeLine,
    Times,
    one_device,
)
from latmon.model.frame import Completed, Limit, Outlier, Series, Taskq
from latmon.model.histogram import Histogram
from latmon.model.inflight import PROBE, Depths
from latmon.support.text import clean

_HEAD = re.compile(r"\s*TIMESTAMP\s+TOTAL\(us\)\s+EMLXS\(us\)")
_ROW = re.compile(r"\s*(\d{4} [A-Z][a-z]{2} [ \d]?\d \d{2}:\d{2}:\d{2})" + r"\s+(\d{1,15})" * 6 + r"\s*")
_LIKE_ROW = re.compile(r"\s*\S+ \S+ {1,2}\S+ \S+:\S+:\S+(?:\s+\S+){6}\s*")
_DEVICE = "emlxs"


def sniff_emlxs(head: str) -> bool:
    """Return whether there is its head, or a row that has lost it."""
    return any(_HEAD.match(line) or _ROW.fullmatch(line) for line in head.split("\n"))


def read_emlxs(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the rows of each second; a head begins another run."""
    rows: list[tuple[int, Outlier]] = []
    for at, line in enumerate(lines, 1):
        if _HEAD.match(line):
            yield from _windows(rows, options)
            yield (
                TimeLine(TextSpan(at, at), f"line {at}: another run of emlxsoverhead begins")
                if rows
                else Passed(TextSpan(at, at))
            )
            rows = []
        elif (row := _ROW.fullmatch(line)) and (one := _outlier(row, options)):
            rows.append((at, one))
        elif _LIKE_ROW.fullmatch(line):
            yield Remark(TextSpan(at, at), "a row can't be read: its I/O is left out", 1, is_incomplete=True)
    yield from _windows(rows, options)


def _windows(rows: list[tuple[int, Outlier]], options: ImportOptions) -> Iterator[Times]:
    for wall, same in groupby(rows, key=lambda pair: pair[1].wall):
        group = list(same)
        for first, last in _periods([at for at, _ in group]):
            yield _second(TextSpan(first, last, wall), [one for at, one in group if first <= at <= last], options)


def _periods(lines: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of adjacent lines."""
    first = last = lines[0]
    for at in lines[1:]:
        if at != last + 1:
            yield first, last
            first = at
        last = at
    yield first, last


def _outlier(row: re.Match[str], options: ImportOptions) -> Outlier | None:
    """Return the I/O of a row; None if its stages are more than their total."""
    wall = values.moment(row[1])
    total, emlxs, start, intr, queue, done = (int(one) for one in row.groups()[1:])
    stages = {"queue": start, "hba": total - emlxs, "irq": intr, "completion": queue + done}
    rest = total - sum(stages.values())
    if wall is None or rest < 0 or emlxs > total:
        return None
    flow = options.flow(_DEVICE, UNKNOWN_OP)
    return Outlier(
        wall=wall,
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        stages_us=stages,
        unaccounted_us=rest,
        path=f"completion: QUEUE {queue} us, I/O DONE {done} us",
    )


def _second(where: TextSpan, group: list[Outlier], options: ImportOptions) -> Times:
    flow = options.flow(_DEVICE, UNKNOWN_OP)
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
"""Words in any command's line, damaged or not."""
_BACK_S = 1
"""DTrace prints the buffers of its CPUs one behind the other, a second of each: stamps of a run fall by less."""
_OPS = {"READ": "read", "WRITE": "write", "SYNC": "flush", "UNMAP": "discard"}


def sniff_scsi(head: str) -> bool:
    """Return whether there are arrows with an opcode and an address."""
    return any(_BEGIN.match(line) and _ADDRESS.search(line) for line in head.split("\n"))


def read_scsi(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the commands that came back in each second."""
    begun: dict[tuple[str, str, str], int] = defaultdict(int)
    seconds = Seconds(options.threshold_us)
    second = 0
    before = 0.0
    for at, line in enumerate(lines, 1):
        start = _BEGIN.match(line)
        if not start or not _ADDRESS.search(line):
            yield from _unread(at, line)
            continue
        stamp = float(start[1] or before)
        if before - stamp > _BACK_S:
            yield from seconds.end()
            yield from _waiting(begun, at - 1)
            yield TimeLine(TextSpan(at, at), f"line {at}: another run of scsi.d begins")
            begun.clear()
        before = stamp
        key = (start[2], *((_ADDRESS.search(line) or [""])[0], (_LBA.search(line) or [""])[0]))
        if start[3] in ("->", "COMMAND"):
            begun[key] += 1
            yield Passed(TextSpan(at, at))
            continue
        begun[key] = max(0, begun[key] - 1)
        one = _returned(start, line, options)
        if one is None:
            yield Remark(TextSpan(at, at), "a command came back without a time in us", 1, is_incomplete=True)
            continue
        second = int(float(start[1])) if start[1] else second
        yield from seconds.add(second, at, at, one)
        if (reason := _REASON.search(line)) and reason[1] != "COMPLETED":
            yield Remark(TextSpan(at, at), clean(f"{one.device}: {reason[1]}"))
    yield from seconds.end()
    yield from _waiting(begun, len(lines))


def _unread(at: int, line: str) -> Iterator[Remark]:
    """Yield a remark if a line that can't be read was a command."""
    if ("->" in line or "<-" in line) and all(word in line for word in _WORDS):
        yield Remark(TextSpan(at, at), "a command can't be read: it is left out", 1, is_incomplete=True)


def _waiting(begun: Mapping[tuple[str, str, str], int], at: int) -> Iterator[Found]:
    if left := sum(begun.values()):
        yield Remark(TextSpan(at, at), f"{left:,} commands had not come back at the end", 0)


def _returned(start: re.Match[str], line: str, options: ImportOptions) -> Outlier | None:
    time, address, lba, length = (of.search(line) for of in (_TIME, _ADDRESS, _LBA, _LENGTH))
    command = _COMMAND.match(line, start.end())
    if time is None or address is None:
        return None
    stamp = float(start[1] or 0)
    total = int(time[1])
    flow = options.flow(clean(f"{start[2]} {address[1]}"), _op(command[1] if command else ""))
    return Outlier(
        wall=max(0.0, stamp - total / 1e6),
        mono_us=0,
        device=flow.device,
        op=flow.op,
        total_us=total,
        stages_us={},
        unaccounted_us=total,
        sector=int(lba[1], 16) if lba else None,
        bytes=int(length[1], 16) * _SECTOR if length else None,
        path=clean(command[1].strip()) if command else "",
    )


def _op(command: str) -> str:
    return next((op for word, op in _OPS.items() if command.startswith(word)), UNKNOWN_OP)


_LINE = re.compile(r"\s*(?:s?sd\d{1,5}\s+\d{1,6}(?:\s+|$))+")
_PAIR = re.compile(r"(s?sd\d{1,5})\s+(\d{1,6})(?!\S)")
_MAX_NAMED = 8


def sniff_max_sd(head: str) -> bool:
    """Return whether there are lines of LUNs and numbers alone."""
    return any(_LINE.fullmatch(line) for line in head.split("\n"))


def read_max_sd(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each pair as a maximum depth; there is neither time nor distribution."""
    every = [name for line in lines if _LINE.fullmatch(line) for name, _ in _PAIR.findall(line)]
    one_device(options, list(dict.fromkeys(every)))
    for at, line in enumerate(lines, 1):
        if not _LINE.fullmatch(line):
            continue
        where = TextSpan(at, at)
        pairs = _PAIR.findall(line)
        depths = {options.device or name: Depths(most=int(most), source=PROBE) for name, most in pairs}
        yield Counts(where, {}, {}, depths)
        text = ", ".join(f"{name} {most}" for name, most in pairs[:_MAX_NAMED])
        yield Remark(where, f"the most commands in the driver, without a time: {text}")


_MODULE = re.compile(r"\s*module:\s+(\S{1,64})\s+instance:\s+(\d{1,10})\s*")
_NAME = re.compile(r"\s*name:\s+(\S.{0,63}?)\s+class:\s+(\S{1,64})\s*")
_VALUE = re.compile(r"\s*([a-z_]{2,32})\s+(-?\d{1,20}(?:\.\d{1,12})?)\s*")
_TASKQ_PAIR = re.compile(r"\s*([\w.-]{1,64}):(\d{1,10}):([^:\t ]{1,64}):([a-z_]{2,32})[\t ]+(\S{1,64})\s*")
_TASKQ_NEEDED = ("tasks", "executed", "maxtasks", "nactive", "priority", "threads")
_MAX = 2**63 - 1
_MOST = 1024


def sniff_taskq(head: str) -> bool:
    """Return whether there is the class taskq, or a statistic that only task queues have."""
    lines = head.split("\n")
    return any((name := _NAME.fullmatch(one)) and name[2] == "taskq" for one in lines) or any(
        (pair := _TASKQ_PAIR.fullmatch(one)) and pair[4] in ("maxtasks", "nactive") for one in lines
    )


def read_taskq(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield all queues of a reading together; a queue that comes again begins the next reading."""
    del options
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
            pass  # its statistics show its class
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
        yield Passed(TextSpan(at, at))
        first, last = (at, at) if len(found) <= 1 and sum(map(len, found.values())) <= 1 else (first or at, at)
    yield from _reading(found, first, last)


def _reading(found: Mapping[tuple[str, int], Mapping[str, str]], first: int, last: int) -> Iterator[Found]:
    whole = {key: one for key, values in found.items() if (one := _taskq(*key, values)) is not None}
    if whole:
        yield Queues(TextSpan(first, last), tuple(whole.values()))
    for name, _ in found.keys() - whole.keys():
        yield Remark(
            TextSpan(first, last), f"task queue {clean(name)}: some of {', '.join(_TASKQ_NEEDED)} is missing", 1
        )


def _taskq(name: str, instance: int, values: Mapping[str, str]) -> Taskq | None:
    """Return a queue; None if a statistic is missing or out of range."""
    numbers = [
        int(values[key]) for key in _TASKQ_NEEDED if values.get(key, "").isdecimal() and int(values[key]) <= _MAX
    ]
    if len(numbers) < len(_TASKQ_NEEDED):
        return None
    tasks, executed, most, active, priority, threads = numbers
    waiting = max(tasks - executed - active, 0)
    return Taskq(clean(name), instance, threads, priority, active, waiting, most, executed)


_SETTING = re.compile(
    r"(?:&nbsp;|\s)*(?:([0-9a-f]{8,16})\s+)?(?:[a-z]\w{2,20}\s+){0,2}(?::\d{1,2}\s+)?"
    r"(un_(?:f_)?\w{3,40}|m_(?:notag|nowide))\s+=\s+(0x[0-9a-f]{1,16}|\d{1,10})\b.{0,200}"
)
_STRUCTURE = re.compile(r".{0,80}\bsdump\s+(0x[0-9a-f]{8,16})\b.{0,200}")
_PRIORITY = re.compile(r"\s*prio: (\d{1,4})\s*")
_MAX_SETTING = 400
_ADAPTER, _DISK = "mpt", "sd"


def sniff_settings(head: str) -> bool:
    """Return whether there is a setting of sd, or the priority of a thread."""
    return any(_setting(line) is not None or _PRIORITY.fullmatch(line) for line in head.split("\n"))


def read_settings(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield the settings of each structure, and priorities as messages.

    Settings of mpt are of an adapter, each group of them of another one, and not of the disk before them.
    """
    del options
    structure = ""
    adapters = 0
    found: list[tuple[int, str, int]] = []
    for at, line in enumerate(lines, 1):
        begins, one = _STRUCTURE.fullmatch(line[:_MAX_SETTING]), _setting(line)
        address = begins[1] if begins else one[0] if one else ""
        if one and not address and one[1].startswith("m_") is not structure.startswith(_ADAPTER):
            adapters += one[1].startswith("m_")
            address = f"{_ADAPTER}{adapters}" if one[1].startswith("m_") else _DISK
        if begins or (address and address != structure):
            yield from _limits(structure, found)
            found = []
        if one is not None:
            found.append((at, *one[1:]))
        elif (priority := _PRIORITY.fullmatch(line)) is not None:
            yield Message(
                TextSpan(at, at), f"line {at}: prio: {priority[1]}, the priority of a thread", int(priority[1])
            )
        if begins or one is not None:
            yield Passed(TextSpan(at, at))
        structure = address or structure
    yield from _limits(structure, found)


def _setting(line: str) -> tuple[str, str, int] | None:
    """Return address, name and value of a setting; the address is empty where the line has none."""
    found = _SETTING.fullmatch(line[:_MAX_SETTING]) if " = " in line[:_MAX_SETTING] else None
    return None if found is None else (found[1] or "", found[2], int(found[3], 0))


def _limits(structure: str, found: Sequence[tuple[int, str, int]]) -> Iterator[Limits]:
    if found:
        sources = {"u": "struct sd_lun", "m": "struct mpt"}
        each = {name: Limit(name, value, sources[name[0]]) for _, name, value in found}
        yield Limits(TextSpan(found[0][0], found[-1][0]), structure or _DISK, tuple(each.values()))
