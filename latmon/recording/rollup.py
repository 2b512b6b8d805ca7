"""One-minute roll-ups: the sum of a minute's frames, which replaces them in every sum over a recording, and its line.

Only a plain minute has a roll-up, so that a sum is the same with it and with its frames (MinuteSums). Ages of I/Os in
flight are those that the writer knew; where they are lower bounds, a reader of roll-ups may find them shorter by a
minute than a reader of frames. A roll-up is written only if it reads back equal to the sum of its windows.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from latmon.aggregate.accumulator import (
    MAX_OUTLIERS,
    Accumulator,
    Minute,
    TaskqSum,
    ThresholdRange,
    Weighted,
)
from latmon.aggregate.depth_sum import DepthTimes
from latmon.aggregate.request_age import MAX_ROWS, Waiting, note_longest
from latmon.analysis.issue_order import LbaOrder
from latmon.model.coverage import Coverage
from latmon.model.frame import Frame, Mark, Taskq
from latmon.model.inflight import Aged, AgedAt, Took
from latmon.model.packed_frame import COVERAGE, RATES, PackedFrame
from latmon.recording import codec, validate
from latmon.recording.codec import encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.records import REQUEST, by_name
from latmon.recording.validate import (
    NOTHING,
    OWN,
    Json,
    Line,
    Read,
    RecordCodec,
    RecordField,
    RowDecoder,
    count,
    fields,
    flat,
    listed,
    mapped,
    number_rows,
    within,
)
from latmon.support.errors import RecordingError

MAX_LONGEST = 1024
"""Devices with an age in one roll-up."""


MAX_MARKS = 2000
"""Lines of the kernel's log in one roll-up: twice those that a minute of 60 intervals has."""
MINUTE_US = 60_000_000
MIN_WINDOWS = 3
KIND = "minute"
_THRESHOLDS = "thresholds"
"""Key of the thresholds, in a window's line and in the sums of a minute."""
MAX_DEPTHS = 65_536
"""Different depths of one device in a minute."""
_UNKNOWN = -1
_ORDER_CELLS = tuple(field.name for field in dataclasses.fields(LbaOrder))
T = TypeVar("T")
_SEEN = RecordCodec(
    lambda us, t, mono, n, request: AgedAt(Aged("", us, request is None, n, request), t, mono),
    *fields(count, "us", "mono"),
    RecordField("t", validate.wall, default=0.0),
    RecordField("n", count, default=1),
    RecordField("request", REQUEST.read, default=None),
)


def minute_of(mono_us: int) -> int:
    """Return the number of the minute in which a frame ends."""
    return (mono_us - 1) // MINUTE_US


class MinuteSums:
    """Sum of all frames of one minute, filled by `add`; `waiting` is the whole recording's and gets them, too."""

    def __init__(self, waiting: Waiting, before_us: int | None) -> None:
        self.plain = before_us is not None
        self._waiting, self._before_us = waiting, before_us
        self._sums = Accumulator()
        self._rates: set[int] = set()
        self._probes: set[int | None] = set()
        self._longest: dict[str, AgedAt] = {}
        self.marks: list[Mark] = []
        """The lines of the kernel's log in this minute."""

    def note_mark(self, mark: Mark) -> None:
        """Add a line of the kernel's log; too many of them leave the minute without a roll-up."""
        if len(self.marks) >= MAX_MARKS:
            self.spoil()
        else:
            self.marks.append(mark)

    def spoil(self) -> None:
        """Leave the minute without a roll-up, because something is missing or written between its frames."""
        self.plain = False

    def add(self, frame: Frame) -> None:
        self._waiting.add(frame)
        if self.plain:
            self.plain = self._is_plain(frame)
        self._before_us = frame.mono_us
        if not self.plain:
            return
        self._sums.add(frame)
        self._probes.add(None if frame.in_flight is None else frame.in_flight.since_us)
        note_longest(self._longest, oldest := [*self._waiting.oldest_at(frame)], MAX_LONGEST)
        self.plain = len(oldest) < MAX_ROWS and len(self._longest) < MAX_LONGEST
        if frame.traced.one_in:
            self._rates.add(frame.traced.one_in)

    def minute(self) -> Minute | None:
        """Return the roll-up; None where only the frames themselves give the right sums."""
        sums = self._sums
        if not self.plain or len(self._probes) > 1 or len(self._rates) > 1 or sums.first is None:
            return None
        # each hole is shorter than half a window, but rates are per measured time, for which a roll-up has its length
        frame = sums.frame
        if frame.dt_us - sums.measured_us > sums.longest_us // 2:
            return None
        one_in = sums.sums.one_in
        if one_in and self._rates - {one_in}:
            return None
        uniform = all(table.is_uniform for table in sums.sums.tables.values())
        if sums.taskqs.left_out or sums.cgroup_limits.left_out or sums.windows < MIN_WINDOWS or not uniform:
            return None
        return Minute(
            frame=dataclasses.replace(frame, marks=tuple(self.marks)),
            windows=sums.windows,
            longest_us=sums.longest_us,
            first_dt_us=sums.first.dt_us,
            coverage=sums[COVERAGE],
            gauges=sums.gauges,
            depths=sums.depths,
            orders=sums.orders,
            longest=self._longest,
            taskqs=sums.taskqs.in_order if sums.taskqs.read else None,
            cpu=sums.cpu,
            probe_cpu=sums.probe_cpu,
            probe_ns=sums.probe_ns,
            thresholds=sums.thresholds,
        )

    @property
    def packed(self) -> PackedFrame:
        """Sum of the tables, to compare a roll-up with."""
        return self._sums.sums.packed

    def _is_plain(self, frame: Frame) -> bool:
        began_us = 0 if frame.in_flight is None else frame.in_flight.since_us
        hole_us = frame.mono_us - frame.dt_us - (self._before_us or 0)
        odd = frame.gap or frame.late or frame.health.notice or frame.devices or frame.removed or frame.marks
        probed = began_us <= frame.mono_us - frame.dt_us
        sums = self._sums
        operations = len(sums.file_operations) + len(frame.file_operations)
        full = max(len(sums.outliers) + len(frame.outliers), operations) > MAX_OUTLIERS
        return not odd and probed and hole_us <= frame.dt_us // 2 and not full


_PAIR, _TRIPLE = 2, 3


def roll_up(sums: MinuteSums) -> bytes | None:
    """Return the line of a minute's windows; None if they are no plain minute, or if it would not decode to them."""
    minute = sums.minute()
    if minute is None:
        return None
    try:
        line = to_bytes(encode_minute(minute))
        back = decode_minute(parse(line))
    except (RecordingError, ValueError):  # sums above a line's limits
        return None
    return line if back == minute and _comparable(back.packed) == _comparable(sums.packed) else None


def lacks_threshold_ranges(line: Json) -> bool:
    """Return whether a `minute` line has thresholds without their ranges, as those written before 2026-11-29.

    It has the last threshold of each device only, which is less than a sum over its windows: these are read instead.
    """
    sums = line.get("sums")
    return isinstance(sums, dict) and _THRESHOLDS in line.keys() - sums.keys()


def encode_minute(minute: Minute) -> Line:
    """Return the `minute` line."""
    last = None if minute.taskqs is None else tuple(taskq_sum.last for taskq_sum in minute.taskqs)
    frame = dataclasses.replace(minute.frame, taskqs=last)
    return encode_frame(frame) | {"type": KIND, "sums": _SUMS.encode(minute)}


def decode_minute(line: Json) -> Minute:
    """Return the roll-up of a `minute` line; RecordingError where it is none."""
    if line.get("type") != KIND:
        raise RecordingError("a line is not a roll-up of windows")
    frame = codec.decode_frame(line)
    values = _SUMS.read(line.get("sums", {}), "sums")
    if max(values["longest_us"], values["first_dt_us"]) > frame.dt_us:
        raise RecordingError("'sums' has a window that is longer than all windows together")
    values["taskqs"] = _taskqs(values["taskqs"], frame.taskqs)
    return Minute(frame=dataclasses.replace(frame, taskqs=None), **values)


def _sum_pairs(value: Any, key: str) -> Counter[int]:
    """Return pairs of a number, each once and in the order of the line, and its count."""
    rows = number_rows(value, key, _PAIR, MAX_DEPTHS)
    counts = Counter({row[0]: row[1] for row in rows})
    if len(counts) != len(rows):
        raise RecordingError(f"{key!r} has the same entry twice")
    return counts


def _latency(value: Any, key: str) -> dict[int, Took]:
    return {depth: Took(ios, us) for depth, ios, us in number_rows(value, key, _TRIPLE, MAX_DEPTHS)}


def _pairs(buckets: Mapping[int, int]) -> list[int]:
    return flat(buckets.items())


_DEPTHS = RecordCodec(
    DepthTimes,
    *(
        RecordField(key, _sum_pairs, name, _pairs, default=OWN)
        for key, name in (("d", "in_driver"), ("q", "queued"), ("i", "at_issue"))
    ),
    RecordField(
        "l", _latency, "latency", lambda some: flat((depth, *took) for depth, took in some.items()), default=OWN
    ),
    *fields(count, "highest", "corrected"),
    RecordField("by", lambda value, key: Counter(mapped(count)(value, key)), "sources", dict, default=OWN),
    RecordField("quiet", count, "quiet_us"),
    RecordField("span", count, "span_us"),
    RecordField("at", validate.wall, "highest_at", default=None),
)
"""The depths are in the order in which they were seen."""


def _encode_seen(seen: AgedAt) -> Line:
    """Return a request, or I/Os of which only a least age is known."""
    row = seen.row
    line: Line = {"us": row.age_us, "t": seen.wall_s, "mono": seen.mono_us}
    return line | ({"n": row.count} if row.request is None else {"request": REQUEST.encode(row.request)})


def _longest(value: Any, key: str) -> Mapping[str, AgedAt]:
    longests = {}
    for name, seen in list(mapped(_SEEN.entry)(value, key).items())[:MAX_LONGEST]:
        if seen.row.request is not None and seen.row.request.device != name:
            raise RecordingError(f"{key!r} has a request of another device")
        longests[name] = seen._replace(row=dataclasses.replace(seen.row, device=name))
    return longests


def _row(make: Callable[..., T], *cells: str, unknown: str = "") -> Read:
    """Return a reader of numbers of 0 or more; of the cell `unknown` -1 means that it isn't known."""
    row = RowDecoder(lambda *found: found, *((cell, within(_UNKNOWN if cell == unknown else 0)) for cell in cells))
    at = cells.index(unknown) if unknown else None

    def read(value: Any, key: str) -> T:
        found = list(row.read(value, key))
        if at is not None and found[at] == _UNKNOWN:
            found[at] = None
        return make(*found)

    return read


def _numbers(values: Iterable[int | None]) -> list[int]:
    return [_UNKNOWN if value is None else int(value) for value in values]


def _order(*cells: Any) -> LbaOrder:
    return LbaOrder(**dict(zip(_ORDER_CELLS, (*cells[:-1], bool(cells[-1])), strict=True)))


def _weighted(key: str, name: str) -> RecordField:
    return RecordField(
        key,
        _row(Weighted, "sum", "weight"),
        name,
        lambda weighted: [weighted.sum, weighted.weight] if weighted.weight else None,
        default=OWN,
    )


def _encode_taskqs(taskqs: Iterable[TaskqSum] | None) -> list[list[int]]:
    return [_numbers(taskq_sum[1:]) for taskq_sum in taskqs or ()]


def _taskqs(rows: Sequence[tuple[Any, ...]], last: tuple[Taskq, ...] | None) -> tuple[TaskqSum, ...] | None:
    if last is None and not rows:
        return None
    if last is None or len(rows) != len(last):
        raise RecordingError("'taskqs' has not a row for each queue")
    return tuple(TaskqSum(queue, *row) for queue, row in zip(last, rows, strict=True))


_SUMS = RecordCodec(
    lambda **values: values,
    RecordField("windows", within(1), required=True, always=True),
    RecordField("longest", count, "longest_us", always=True),
    RecordField("first", count, "first_dt_us", always=True),
    RecordField("covered", mapped(_row(Coverage, *Coverage._fields)), "coverage", by_name(list), default=NOTHING),
    RecordField("gauges", mapped(_sum_pairs), write=by_name(_pairs), default=NOTHING),
    RecordField("depths", mapped(_DEPTHS.entry), write=by_name(_DEPTHS.encode), default=NOTHING),
    RecordField(
        "orders",
        mapped(_row(_order, *_ORDER_CELLS, unknown="longest_wait_us")),
        write=by_name(lambda one: _numbers(dataclasses.astuple(one))),
        default=NOTHING,
    ),
    RecordField("waited", _longest, "longest", by_name(_encode_seen), default=NOTHING),
    RecordField(
        "taskqs",
        listed(_row(lambda *cells: cells, *TaskqSum._fields[1:], unknown="time_us")),
        write=_encode_taskqs,
        default=(),
        always=True,
    ),
    _weighted("cpu", "cpu"),
    _weighted("probe_cpu", "probe_cpu"),
    _weighted("probe_ns", "probe_ns"),
    RecordField(
        _THRESHOLDS, mapped(_row(ThresholdRange, *ThresholdRange._fields)), write=by_name(list), default=NOTHING
    ),
)


def _comparable(packed: PackedFrame) -> dict[str, list[Any]]:
    """Return all sums in a form without the order of rows; windows by tracing rate are counted by the minute."""
    comparable: dict[str, list[Any]] = {}
    for table, rows in packed.tables.items():
        if table is not RATES:
            counted = {key: counts for key, counts in rows.counts.by_row.items() if any(n > 0 for n in counts)}
            parts = [dict(rows.histograms), counted, rows.facts]
            parts += [counts.by_row for counts in rows.named.values()]
            if any(parts):
                comparable[table.name] = parts
    return comparable
