"""The roll-up line `minute`: encoder and decoder of the sum of a minute's windows.

Its keys are a window's, because a sum of windows is one, and `sums` holds what only a sum has. It stands in a member of
its own behind the windows' members, whose note says how many bytes of them it stands for. It is written only if it
reads back as what the windows come to; without it, or with a damaged one, the windows are read. What a reader of
format 1.0 doesn't know it passes over. Knows neither the file nor when a minute ends.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from latmon.aggregate.accumulator import DepthSums, Summed
from latmon.aggregate.request_age import MAX_SINCE
from latmon.aggregate.rollup import MAX_LONGEST, MIN_WINDOWS, Minute, MinuteSums, Weighted, deep_of
from latmon.analysis.issue_order import LbaOrder
from latmon.model.devices import Coverage
from latmon.model.frame import Completed, Flow, Taskq
from latmon.model.inflight import Aged, Held, Seen, Settled, Took
from latmon.model.packed import Flat
from latmon.recording import decode, validate
from latmon.recording.decode import number_rows, request
from latmon.recording.encode import encode_frame, encode_request, to_bytes
from latmon.recording.validate import Json
from latmon.support.errors import RecordingError

KIND = "minute"
MAX_DEPTHS = 65_536
"""Different depths of one device in a minute."""
NOTHING = Completed(0, 0)
SKEW = 1000
"""I/Os that complete while a probe prints one table behind the other, of those there are in a minute."""
_UNKNOWN = -1
_PAIR, _TRIPLE = 2, 3
_ORDER = len(dataclasses.fields(LbaOrder))
_SUMMED = len(Summed._fields) - 1


def roll_up(sums: MinuteSums) -> bytes | None:
    """The line of a minute's windows; None where they are no plain minute, or its line would say something else."""
    minute = sums.minute()
    if minute is None:
        return None
    try:
        line = to_bytes(encode_minute(minute))
        back = decode_minute(validate.parse(line))
    except (RecordingError, ValueError):  # sums beyond what a line may hold
        return None
    if doubt(minute):
        return None
    return line if back == minute and _counted(deep_of(back.frame)) == _counted(sums.flat) else None


def doubt(minute: Minute) -> str:
    """Why no plain minute's windows come to this; empty where they may."""
    frame = minute.frame
    if frame.gap or frame.late or frame.health.notice or frame.devices or frame.removed:
        return "a roll-up is of no plain minute"
    # between two windows of a plain minute lies half of one at most
    if minute.windows < MIN_WINDOWS or 2 * frame.dt_us > 3 * minute.windows * minute.longest_us:
        return "a roll-up is longer than its windows"
    if not 0 < minute.first_dt_us <= minute.longest_us:
        return "a roll-up's first window is longer than its longest"
    if frame.seen and any(
        one.count > 2 * frame.seen.get(Flow(series.device, series.op), NOTHING).count + SKEW
        for series, one in frame.histograms.items()
        if series.stage == "total"
    ):
        return "a roll-up has more latencies than I/Os"
    return ""


def encode_minute(minute: Minute) -> dict[str, Any]:
    """The `minute` line."""
    settled = minute.waiting
    told: dict[str, Any] = {
        "windows": minute.windows,
        "longest": minute.longest_us,
        "first": minute.first_dt_us,
        "covered": {name: list(one) for name, one in minute.coverage.items()},
        "gauges": {name: _flat(one.items()) for name, one in minute.gauges.items()},
        "depths": {name: _depths(one) for name, one in minute.depths.items()},
        "orders": {name: [_number(n) for n in dataclasses.astuple(one)] for name, one in minute.orders.items()},
        "since": {name: _flat(claims) for name, claims in settled.since.items()},
        "held": {name: [one.until_us, one.wall_s, int(one.followed)] for name, one in settled.held.items()},
        "waited": {name: _encode_seen(one) for name, one in settled.longest.items()},
        "fewest": dict(settled.fewest),
        "taskqs": [[_number(n) for n in one[1:]] for one in minute.taskqs or ()],
        **{name: [one.sum, one.weight] for name, one in _means(minute).items() if one.weight},
    }
    if settled.probed_since is not None:
        told["probed"] = settled.probed_since
    last = None if minute.taskqs is None else tuple(one.last for one in minute.taskqs)
    frame = dataclasses.replace(minute.frame, taskqs=last)
    return encode_frame(frame) | {"type": KIND, "sums": {name: value for name, value in told.items() if value != {}}}


def decode_minute(line: Json) -> Minute:
    """The way back."""
    if line.get("type") != KIND:
        raise RecordingError("a roll-up is no sum of windows")
    frame = decode.decode_frame(line)
    told = validate.mapping(line, "sums")
    windows = validate.integer(told, "windows", low=1)
    first_dt_us = validate.integer(told, "first", high=frame.dt_us)
    return Minute(
        dataclasses.replace(frame, taskqs=None),
        windows,
        validate.integer(told, "longest", high=frame.dt_us),
        first_dt_us,
        {name: Coverage(*_numbers(one, 2)) for name, one in _named(told, "covered")},
        {name: _pairs({"gauges": one}, "gauges") for name, one in _named(told, "gauges")},
        {name: _depth_sums(validate.mapping({"depths": one}, "depths")) for name, one in _named(told, "depths")},
        {name: _order(one) for name, one in _named(told, "orders")},
        Settled(
            {
                name: tuple((us, ios) for us, ios in number_rows({"since": one}, "since", _PAIR, MAX_SINCE))
                for name, one in _named(told, "since")
            },
            {name: _held(one) for name, one in _named(told, "held")},
            {name: _seen(name, one) for name, one in _named(told, "waited")[:MAX_LONGEST]},
            {name: validate.whole(one, "fewest") for name, one in _named(told, "fewest")},
            validate.optional_integer(told, "probed"),
        ),
        _taskqs(told, frame.taskqs),
        *(_weighted(told, name) for name in ("cpu", "probe_cpu", "probe_ns")),
    )


def _means(minute: Minute) -> dict[str, Weighted]:
    return {"cpu": minute.cpu, "probe_cpu": minute.probe_cpu, "probe_ns": minute.probe_ns}


def _depths(one: DepthSums) -> dict[str, Any]:
    """In the order in which the depths were seen."""
    told: dict[str, Any] = {
        "d": _flat(one.in_driver.items()),
        "q": _flat(one.queued.items()),
        "i": _flat(one.at_issue.items()),
        "l": _flat((depth, *took) for depth, took in one.latency.items()),
        "highest": one.highest,
        "corrected": one.corrected,
        "by": dict(one.sources),
        "quiet": one.quiet_us,
        "span": one.span_us,
    }
    if one.highest_at is not None:
        told["at"] = one.highest_at
    return {key: value for key, value in told.items() if value}


def _depth_sums(line: Json) -> DepthSums:
    return DepthSums(
        _counter(line, "d"),
        _counter(line, "q"),
        _counter(line, "i"),
        {depth: Took(ios, us) for depth, ios, us in number_rows(line, "l", _TRIPLE, MAX_DEPTHS)},
        validate.integer(line, "highest"),
        validate.wall(line, "at") if "at" in line else None,
        validate.integer(line, "corrected"),
        Counter({name: validate.whole(one, "by") for name, one in _named(line, "by")}),
        validate.integer(line, "quiet"),
        validate.integer(line, "span"),
    )


def _encode_seen(seen: Seen) -> dict[str, Any]:
    """A request, or I/Os of which only a least age is known."""
    row = seen.row
    told: dict[str, Any] = {"us": row.age_us, "t": seen.wall_s, "mono": seen.mono_us}
    return told | ({"n": row.count} if row.request is None else {"request": encode_request(row.request)})


def _seen(name: str, value: Any) -> Seen:
    line = validate.mapping({"waited": value}, "waited")
    one = request(validate.mapping(line, "request")) if "request" in line else None
    age_us, ios = validate.integer(line, "us"), validate.integer(line, "n", 1)
    if one is not None and one.device != name:
        raise RecordingError("'waited' has a request of another device")
    return Seen(Aged(name, age_us, one is None, ios, one), validate.wall(line, "t"), validate.integer(line, "mono"))


def _held(value: Any) -> Held:
    if not isinstance(value, list) or len(value) < len(Held._fields):
        raise RecordingError("'held' has a row that is too short")
    until_us, wall_s, followed = value[: len(Held._fields)]
    wall = validate.wall({"held": wall_s}, "held")
    return Held(validate.whole(until_us, "held"), wall, bool(validate.whole(followed, "held", high=1)))


def _order(value: Any) -> LbaOrder:
    """Its fields; the one that may be unknown is the eighth, the last is yes or no."""
    found = _numbers(value, _ORDER, _UNKNOWN)
    if min((*found[:7], found[8])) < 0:
        raise RecordingError("'orders' has a count below 0")
    count, pairs, ascending, came, came_ascending, reordered, most, wait_us, passed, is_older = found
    wait = None if wait_us == _UNKNOWN else wait_us
    return LbaOrder(
        count, pairs, ascending, came, came_ascending, reordered, most, wait, passed, longest_is_older=bool(is_older)
    )


def _taskqs(line: Json, last: tuple[Taskq, ...] | None) -> tuple[Summed, ...] | None:
    rows = validate.items(line, "taskqs")
    if last is None and not rows:
        return None
    if last is None or len(rows) != len(last):
        raise RecordingError("'taskqs' has not a row for each queue")
    found = []
    for queue, row in zip(last, rows, strict=True):
        active, waiting, tasks, executed, time_us, span_us = _numbers(row, _SUMMED, _UNKNOWN)
        if min(active, waiting, tasks, executed, span_us) < 0:
            raise RecordingError("'taskqs' has a count below 0")
        found.append(Summed(queue, active, waiting, tasks, executed, None if time_us == _UNKNOWN else time_us, span_us))
    return tuple(found)


def _weighted(line: Json, name: str) -> Weighted:
    return Weighted(*_numbers(line.get(name, [0, 0]), 2))


def _counter(line: Json, key: str) -> Counter[int]:
    return Counter(_pairs(line, key))


def _pairs(line: Json, key: str) -> dict[int, int]:
    """Each number once, in the order in which they are told."""
    rows = number_rows(line, key, _PAIR, MAX_DEPTHS)
    found = {row[0]: row[1] for row in rows}
    if len(found) != len(rows):
        raise RecordingError(f"{key!r} says one thing twice")
    return found


def _named(line: Json, key: str) -> list[tuple[str, Any]]:
    return [(validate.label(name, key), one) for name, one in validate.mapping(line, key).items()]


def _numbers(value: Any, count: int, low: int = 0) -> list[int]:
    if not isinstance(value, list) or len(value) < count:
        raise RecordingError("'sums' has a row that is too short")
    return [validate.whole(one, "sums", low) for one in value[:count]]


def _number(value: int | None) -> int:
    return _UNKNOWN if value is None else int(value)


def _flat(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [number for row in rows for number in row]


def _counted(flat: Flat) -> tuple[Any, ...]:
    """What is summed of deep values, whatever order it stands in; windows at a rate are counted by the minute."""
    counts: Mapping[str, Any] = {
        group: {key: n for key, n in zip(some.keys, some.counts, strict=True) if key.kind != "one_in"}
        for group, some in flat.counted.items()
    }
    told = {group: some for group, some in counts.items() if some}
    return {**flat.tables}, told, flat.facts.threads, flat.facts.handlers
