"""Importer of tables with a row for each I/O: biosnoop, iosnoop, fileslower, ext4slower, runqslower, funcslower.

A table is known by its head: each word is a column whose meaning is declared here, and one is a latency. Names of
processes and files may have blanks; other columns may not. A table in which time falls, or whose head comes again, is
another run. Tools that trace what is slower than a threshold say so in the line above their head.

Oracle's warning of a slow log write is a row without a head.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from latmon.importers import values
from latmon.importers.bcc import Tracer, lost_in, tracer_of
from latmon.importers.values import (
    APPLICATION,
    DISK,
    FILE,
    TRIVIAL,
    WHOLE,
    Clock,
    Found,
    ImportOptions,
    Passed,
    Remark,
    Seconds,
    ShortNames,
    TextSpan,
    TimeLine,
)
from latmon.model.frame import Outlier
from latmon.support.text import clean


class EventColumn(NamedTuple):
    """A column: its meaning and its unit in microseconds or bytes, by its word in a head."""

    role: str
    pattern: str
    unit: float = 1


_INT, _DECIMAL, _WORD, _TEXT = r"-?\d{1,19}", r"-?\d{1,12}(?:\.\d{1,9})?", r"\S{1,80}", r".{0,200}?"
_TIME = EventColumn("clock", r"\d{1,2}:\d{2}:\d{2}(?:\.\d{1,9})?")
_SECONDS = EventColumn("end", _DECIMAL)
_COMM, _PID, _OP = EventColumn("comm", _TEXT), EventColumn("pid", _INT), EventColumn("op", _WORD)
_BYTES, _MS, _US = (
    EventColumn("bytes", r"-?\d{1,19}|LL_MAX"),
    EventColumn("latency", _DECIMAL, 1000),
    EventColumn("latency", _DECIMAL, 1),
)
_FILE, _OTHER = EventColumn("file", _TEXT), EventColumn("", _WORD)
_DEVICE, _SECTOR = EventColumn("device", _WORD), EventColumn("sector", _INT)
_NUMBERS = EventColumn("device", r"\d{1,4},\d{1,7}")
COLUMNS = {
    "TIME(s)": _SECONDS,
    "TIME(ms)": EventColumn("end", _DECIMAL, 1e-3),
    "TIME": _TIME,
    "TIMESTAMP": _TIME,
    "STARTs": EventColumn("", _DECIMAL),
    "ENDs": _SECONDS,
    "ENDTIME_us": EventColumn("end", _INT, 1e-6),
    "ENDTIME_ns": EventColumn("end", _INT, 1e-9),
    "COMM": _COMM,
    "TASK": _COMM,
    "PID": _PID,
    "TID": _PID,
    "DISK": _DEVICE,
    "DEV": _NUMBERS,
    "T": _OP,
    "D": _OP,
    "TYPE": _OP,
    "SECTOR": _SECTOR,
    "BLOCK": _SECTOR,
    "BYTES": _BYTES,
    "P": _OTHER,
    "OFF_KB": EventColumn("", _INT),
    "OFFSET_b": EventColumn("", _INT),
    "QUE(ms)": EventColumn("queue", _DECIMAL, 1000),
    "LAT(ms)": _MS,
    "LATms": _MS,
    "MS": _MS,
    "LAT(us)": _US,
    "LATENCY_us": _US,
    "FILENAME": _FILE,
    "FILE": _FILE,
    "QUERY": _FILE,
    "RVAL": _OTHER,
    "FUNC": EventColumn("device", r"\S.{0,200}?"),
}
"""Word of a head -> what the column has."""
_PREVIOUS = " PREV COMM"
"""The task that had the CPU before, in the last two columns of runqslower -P."""
_LEAST = 4
_QUEUED = "-529"
"""The kernel's EIOCBQUEUED instead of a size: an asynchronous I/O was submitted, and had not completed."""
_LONGEST = 1000
"""Characters of a row or a head."""
_MIN = re.compile(r"Tracing .{1,80} (?:slower|higher) than (\d{1,9}) (ms|us)")
_ORACLE = re.compile(r"\s*(?:Warning: )?log write elapsed time (\d{1,12}) ?ms, size (\d{1,12}) ?KB\s*")
_BACK_S = 1
"""Rows of different CPUs may be printed in another order than they ended."""
_UNITS = {"ms": 1000, "us": 1}
_MOST_US = 2**53


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a table, and a pattern of its rows."""

    columns: tuple[EventColumn, ...]
    row: re.Pattern[str]
    separator: str

    def is_like_row(self, line: str) -> bool:
        """Return whether a line has as many words as a row, and begins like one."""
        words = line.split(self.separator or None)
        if self.columns[0].role in ("end", "clock") and not any(c.isdigit() for c in "".join(words[:1])):
            return False
        numbers = sum(any(c.isdigit() for c in word) for word in words[: len(self.columns) + 2])
        return len(words) >= len(self.columns) - 1 and 2 * numbers >= len(self.columns) - 1


def head_of(line: str) -> Head | None:
    """Return the head that a line is; None for any other line."""
    if len(line) > _LONGEST or not ("LAT" in line or "MS" in line):
        return None
    comma = "," if line.count(",") >= _LEAST else ""
    shown, previous, _ = line.partition(_PREVIOUS)
    names = [word.strip() for word in shown.split(comma or None)]
    if len(names) < _LEAST or not all(name in COLUMNS for name in names):
        return None
    columns = tuple(COLUMNS[word] for word in names)
    roles = [one.role for one in columns]
    if roles.count("latency") != 1 or len({*filter(None, roles)}) < len([*filter(None, roles)]):
        return None
    gap = "," if comma else r"\s+"
    rest = r"(?:\s+.{0,60})?" if previous else ""
    pattern = gap.join(f"({one.pattern})" for one in columns)
    return Head(columns, re.compile(rf"\s*{pattern}{rest}\s*"), comma)


def sniff(head: str) -> bool:
    """Return whether there is the head of such a table, or Oracle's warning."""
    return any(
        head_of(line) is not None or ("elapsed" in line and _ORACLE.fullmatch(line[:_LONGEST]) is not None)
        for line in head.split("\n")
    )


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield a window for the I/Os that ended in each second."""
    reader = _EventReader(options, Clock(options.start))
    for at, line in enumerate(lines, 1):
        yield from reader.line(at, line)
    yield from reader.end()


@dataclass(slots=True)
class _EventReader:
    options: ImportOptions
    clock: Clock
    head: Head | None = None
    tracer: Tracer | None = None
    seconds: Seconds = field(init=False)
    end_s: float | None = None
    """When the latest row ended."""
    wall: float | None = None
    """The latest time between rows, for rows without one."""
    names: ShortNames = field(default_factory=ShortNames)
    has_rows: bool = False
    least_us: int | None = None
    submitted: list[int] = field(default_factory=list)
    """Lines of rows of the table that were printed when their I/O was submitted."""

    def __post_init__(self) -> None:
        self.seconds = Seconds(self.options.threshold_us)

    def line(self, at: int, line: str) -> Iterator[Found]:
        where = TextSpan(at, at)
        oracle = _ORACLE.fullmatch(line[:_LONGEST]) if "elapsed" in line else None
        row = self.head.row.fullmatch(line) if self.head is not None and len(line) <= _LONGEST else None
        if self.head is not None and row is not None:
            yield from self._row(at, self.head, row)
        elif oracle is not None:
            yield from self._oracle(at, oracle)
        elif (head := head_of(line)) is not None:
            yield from self._begin(at, head)
        elif (lost := lost_in(at, line)) is not None:
            yield lost
        elif self.head is not None and self.head.is_like_row(line):
            yield Remark(where, "a row can't be read: its I/O is left out", 1, is_incomplete=True)
        elif not TRIVIAL.match(line):
            self.head = None
            yield from self._other(at, line)

    def end(self) -> Iterator[Found]:
        """Yield the last second of a table, and a remark on rows that have no I/O."""
        yield from self.seconds.end()
        if self.submitted:
            where = TextSpan(self.submitted[0], self.submitted[0])
            text = (
                f"{len(self.submitted):,} rows are of asynchronous I/Os ({_QUEUED} bytes), timed until the submission"
            )
            yield Remark(where, f"{text}: they are left out", len(self.submitted))
            self.submitted = []

    def _begin(self, at: int, head: Head) -> Iterator[Found]:
        yield from self.end()
        stage = self.options.stage_of(self.tracer.stage if self.tracer else WHOLE)
        least = self.options.threshold_us if self.least_us is None else min(self.options.threshold_us, self.least_us)
        # a wait for the CPU is no I/O
        self.seconds = Seconds(least if stage == WHOLE else _MOST_US + 1, stage, self._layer(head))
        self.head, self.end_s = head, None
        where = TextSpan(at, at)
        yield TimeLine(where, f"line {at}: another table begins") if self.has_rows else Passed(where)
        self.has_rows = False

    def _layer(self, head: Head) -> str:
        """Return where the tool of a table measures, by its first sentence, else by its columns."""
        if self.tracer is not None and self.tracer.layer:
            return self.tracer.layer
        return DISK if {_DEVICE, _NUMBERS} & {*head.columns} else FILE if _FILE in head.columns else ""

    def _at(self, layer: str) -> Iterator[Found]:
        """Begin a window of another layer; yield the second of the one before."""
        if self.seconds.layer != layer:
            yield from self.seconds.end()
            self.seconds.layer = layer

    def _other(self, at: int, line: str) -> Iterator[Found]:
        """Take a line that is no row: a time, or the tool's first sentence."""
        wall = self.clock.wall(line.strip().removeprefix("*** "))
        if wall is not None:
            yield from self.seconds.end()
            self.wall = wall
            yield TimeLine(TextSpan(at, at, wall))
            return
        self.tracer = tracer_of(line, self.tracer)
        if line.startswith("Tracing "):
            least = _MIN.match(line)
            self.least_us = None if least is None else int(least[1]) * _UNITS[least[2]]
            yield Passed(TextSpan(at, at))
            if least is not None:
                yield Remark(TextSpan(at, at), f"the table below has only what took longer than {least[1]} {least[2]}")

    def _row(self, at: int, head: Head, row: re.Match[str]) -> Iterator[Found]:
        where = TextSpan(at, at)
        found = {one.role: (text, one.unit) for one, text in zip(head.columns, row.groups(), strict=True) if one.role}
        latency = _us(found["latency"])
        if latency is None:
            yield Remark(where, "a row without a latency: its I/O is left out", 1, is_incomplete=True)
            return
        if found.get("bytes", ("",))[0] == _QUEUED:
            self.submitted.append(at)
            yield Passed(where)
            return
        queue = _us(found["queue"]) if "queue" in found else None
        end = self._end(found)
        if end is not None and self.end_s is not None and self.end_s - end > _BACK_S:
            yield from self.seconds.end()
            yield TimeLine(where, f"line {at}: another run begins, its time falls")
            self.end_s = None
        if end is not None:
            self.end_s = max(end, self.end_s if self.end_s is not None else end)
        self.has_rows = True
        one = self._io(found, latency, queue)
        yield from self._at(self._layer(head))
        yield from self.seconds.add(None if self.end_s is None else int(self.end_s), at, at, one)

    def _end(self, found: dict[str, tuple[str, float]]) -> float | None:
        if "end" in found:
            text, unit = found["end"]
            return max(0.0, float(text) * unit)
        return self.clock.wall(found["clock"][0]) if "clock" in found else self.wall

    def _io(self, found: dict[str, tuple[str, float]], latency: int, queue: int | None) -> Outlier:
        """Return the I/O of a row; the latency of a disk begins at the issue, and a queue comes before it."""
        text = {role: value for role, (value, _) in found.items()}
        size, pid = text.get("bytes", ""), text.get("pid", "")
        sector = text.get("sector", "")
        total = latency + (queue or 0)
        end = self.end_s
        flow = self.options.flow(self._device(text), _op(text.get("op", "")))
        return Outlier(
            wall=max(0.0, end - total / 1e6) if end is not None else 0.0,
            mono_us=0,
            device=flow.device,
            op=flow.op,
            total_us=total,
            stages_us={} if queue is None else {"queue": queue, "hba": latency},
            unaccounted_us=total if queue is None else 0,
            sector=int(sector) if sector.isdecimal() else None,
            bytes=int(size) if size.isdecimal() else None,
            pid=int(pid) if pid.isdecimal() and int(pid) else None,
            comm=clean(text.get("comm", "").strip()),
            path=clean(f"file {text['file']}", 100) if text.get("file", "").strip() else "",
            includes={} if queue is None else {"hba": ("irq", "softirq", "completion")},
        )

    def _device(self, text: dict[str, str]) -> str:
        if "device" in text:
            return self.names.short(text["device"].replace(",", ":"))
        return clean(self.tracer.device if self.tracer else "files" if "file" in text else "table", 64)

    def _oracle(self, at: int, row: re.Match[str]) -> Iterator[Found]:
        us = int(row[1]) * 1000
        self.has_rows = True
        one = Outlier(
            wall=max(0.0, self.wall - us / 1e6) if self.wall else 0.0,
            mono_us=0,
            device=self.options.device or "log writer",
            op="write",
            total_us=us,
            unaccounted_us=us,
            bytes=int(row[2]) * 1024,
            path="log write of Oracle",
        )
        self.end_s = self.wall
        yield from self._at(APPLICATION)
        yield from self.seconds.add(None if self.wall is None else int(self.wall), at, at, one)


def _us(cell: tuple[str, float]) -> int | None:
    """Return a time in us; None for one below 0, which tools print for what they don't know."""
    us = round(float(cell[0]) * cell[1])
    return us if 0 <= us <= _MOST_US else None


def _op(letters: str) -> str:
    """Return the op of the kernel's letters, or of the letter of a file's operation (S is a sync)."""
    return "flush" if letters == "S" else values.op_of(letters)
