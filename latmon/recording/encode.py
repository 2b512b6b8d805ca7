"""Encoder of recording lines: values to JSON objects. The live feed uses the same lines.

A line's "type" says what it is: header, window, gap, mark, end. Every window stands alone (labels inline, histograms
hold this window only), so a reader may begin at any of them; its outliers are in it, so that a frame is one line. What
is at its default is left out. The way back, with its suspicion, is decode.py's.

Values in, plain JSON values out; what is at its default is left out. The way back is decode.py's.

The histograms of a table are one, because hundreds of objects per line cost their reader more than all else: `rows`
say what each is about, `b` holds their bucket numbers, 256 x row + bucket, each less the one before it, `n` the counts
of these, `sum` and `max` a number per row, -1 where it isn't known.

Values in, plain JSON values out; what is at its default is left out. Depths are flat lists, because there are many:
`d` in the driver, `q` queued, `i` at issue as pairs of depth and count, `l` as depth, I/Os and their time. A burst of
issues is one flat list too, with a table of its ops. The way back is decode.py's.

An object with `rows`, because there may have been a reading and no busy queue. A row is a list of numbers behind its
name, in the order of model.Taskq's fields; what a later version adds to it stands at its end.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import sub
from typing import Any

from latmon.model.frame import (
    Completed,
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Health,
    Mark,
    Missing,
    Origin,
    Outlier,
    Series,
    Settings,
    SoftirqCpu,
    SoftirqRuns,
    Taskq,
    Traced,
    Wait,
    Wakeups,
)
from latmon.model.histogram import BITS, Histogram
from latmon.model.inflight import SYSFS, Depths, InFlight, Issue, StillInFlight
from latmon.model.packed import UNKNOWN, Packed, Sums
from latmon.recording import validate
from latmon.recording.validate import Json
from latmon.support.errors import RecordingError

Line = dict[str, Any]
WIDTH = 256
"""Numbers that a row of a table has for its buckets, which are fewer."""


def encode_deep(frame: Frame) -> Line:
    """The keys of a window line that are about outliers, stages, interrupts and wake-ups."""
    return {
        "above": [[*flow, n] for flow, n in frame.above.items()],
        "thresholds": dict(frame.thresholds_us),
        "outliers": [_outlier(one) for one in frame.outliers],
        "traced": _traced(frame.traced),
        "irqs": _handlers(frame.handlers),
        "softirqs": _softirqs(frame.softirqs),
        "wakeups": _wakeups(frame.wakeups),
    }


def histogram(one: Histogram) -> Line:
    """Sum and maximum where they are known, and flat pairs of bucket and count."""
    line: Line = {}
    if one.sum is not None:
        line["sum"] = one.sum
    if one.max is not None:
        line["max"] = one.max
    if one.bits != BITS:
        line["k"] = one.bits
    line["b"] = _flat(one.buckets)
    return line


def missing(one: Missing) -> dict[str, str]:
    """What is not measured, and why."""
    return {"name": one.name, "reason": one.reason}


def unlike_default(value: Any) -> Line:
    """A dataclass's fields that have a default and differ from it."""
    found = {}
    for one in dataclasses.fields(value):
        now = getattr(value, one.name)
        if one.default is not dataclasses.MISSING:
            if now != one.default:
                found[one.name] = now
        elif one.default_factory is not dataclasses.MISSING and now:
            found[one.name] = now
    return found


def _traced(traced: Traced) -> Line:
    told = unlike_default(traced)
    return told | {
        key: value
        for key, value in (
            ("histograms", _of_series(Packed.of(traced.histograms))),
            ("by_total", _of_series(Sums.of(traced.by_total).packed)),
            ("unfollowed", {device: dict(named) for device, named in traced.unfollowed.items()}),
            ("paths", {device: dict(named) for device, named in traced.paths.items()}),
            ("includes", _includes(traced.includes)),
            ("bio_includes", _includes(traced.bio_includes)),
            ("absent", [missing(one) for one in traced.absent]),
        )
        if value
    }


def _outlier(one: Outlier) -> Line:
    line = {"t": one.wall, "mono": one.mono_us, "l": [one.device, one.op], "us": one.total_us} | unlike_default(one)
    if one.stages_us:
        line["stages_us"] = dict(one.stages_us)
    if one.includes:
        line["includes"] = _includes(one.includes)
    if one.waits:
        line["waits"] = [_wait(wait) for wait in one.waits]
    return line


def _wait(one: Wait) -> Line:
    return dataclasses.asdict(one)


def _handlers(handlers: Mapping[Handler, HandlerRuns]) -> Line:
    rows = [
        [*handler, runs.before_us, runs.device, list(runs.shared_with), dict(runs.returned)]
        for handler, runs in handlers.items()
    ]
    return _told(rows) | _table(Packed.of({handler: runs.run for handler, runs in handlers.items()}))


def _softirqs(softirqs: Mapping[SoftirqCpu, SoftirqRuns]) -> Line:
    if not softirqs:
        return {}
    return {
        "rows": [[*where, dict(runs.ran_in), dict(runs.raised_in)] for where, runs in softirqs.items()],
        "delay": _table(Packed.of({where: runs.delay for where, runs in softirqs.items()})),
        "run": _table(Packed.of({where: runs.run for where, runs in softirqs.items()})),
    }


def _wakeups(wakeups: Iterable[Wakeups]) -> Line:
    rows = [
        [one.thread.pid, one.thread.comm, one.thread.policy, one.thread.priority, one.thread.kernel, dict(one.instead)]
        for one in wakeups
    ]
    return _told(rows) | _table(Packed.of({one.thread.pid: one.delay for one in wakeups}))


def _told(rows: list[Any]) -> Line:
    return {"rows": rows} if rows else {}


def _of_series(packed: Packed[Series]) -> Line:
    """Its rows are a device, an op and the stages of these."""
    rows = [[*flow, [one.stage for one in some]] for flow, some in groupby(packed.rows, lambda series: series[:2])]
    return _told(rows) | _table(packed)


def _table(packed: Packed[Any]) -> Line:
    """`b`, `n`, and `sum` and `max` where one is known."""
    slots = [WIDTH * part.row + index for _, part in packed.parts() for index in packed.indices[part.begin : part.end]]
    line: Line = {"b": [*slots[:1], *map(sub, slots[1:], slots)], "n": packed.counts.tolist()} if slots else {}
    for name, values in (("sum", packed.sums), ("max", packed.maxima)):
        if any(value != UNKNOWN for value in values):
            line[name] = values.tolist()
    return line


def _includes(includes: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {stage: list(others) for stage, others in includes.items()}


def _flat(rows: Iterable[tuple[int, ...]]) -> list[int]:
    return [number for row in rows for number in row]


_REQUIRED = ("device", "op", "began_us")


def encode_outstanding(frame: Frame) -> Line:
    """The keys of a window line that are about depths, requests still in flight and the order of issue."""
    return {
        "depths": {device: _depths(one) for device, one in frame.depths.items()},
        "in_flight": None if frame.in_flight is None else _in_flight(frame.in_flight),
        "issues": {device: _issues(some) for device, some in frame.issues.items()},
    }


def _depths(one: Depths) -> Line:
    line: Line = {
        "d": _flat(sorted(one.in_driver.items())),
        "q": _flat(sorted(one.queued.items())),
        "i": _flat(sorted(one.at_issue.items())),
        "l": _flat((depth, *took) for depth, took in sorted(one.latency.items())),
        "corrected": one.corrected,
        "by": "" if one.source == SYSFS else one.source,
    }
    told = {key: value for key, value in line.items() if value}
    return told if one.most is None else told | {"most": one.most}


def _in_flight(still: StillInFlight) -> Line:
    line: Line = {"since": still.since_us}
    if still.oldest:
        line["oldest"] = [encode_request(one) for one in still.oldest]
    if still.at_us:
        line["at"] = still.at_us
    if still.devices:
        line["devices"] = list(still.devices)
    if still.older:
        line["older"] = _flat(sorted(still.older.items()))
    return line


def encode_request(one: InFlight) -> Line:
    """A request of `in_flight`."""
    line: Line = {"l": [one.device, one.op], "began": one.began_us}
    told = {key: value for key, value in one._asdict().items() if key not in _REQUIRED and (key != "own" or value)}
    # False is told: the request waits in the block layer, and None is "not known"
    return line | {key: value for key, value in told.items() if value is not None and value not in ("", ())}


def _issues(some: Iterable[Issue]) -> Line:
    each = list(some)
    ops = list(dict.fromkeys(one.op for one in each))
    at: Mapping[str, int] = {op: index for index, op in enumerate(ops)}
    return {
        "ops": ops,
        "n": _flat((one.mono_us, one.sector, one.bytes, at[one.op], one.queued_us) for one in each),
    }


MAX_QUEUES = 1024
"""Of one reading; ours tells 64."""
_FIELDS = tuple(one.name for one in dataclasses.fields(Taskq))
_UNKNOWN = -1
"""For `time_us`."""
_LOW = {"instance": -1, "time_us": _UNKNOWN}


def encode_taskqs(frame: Frame) -> dict[str, Any]:
    """The key of a window line, None where nothing was read."""
    return {"taskqs": None if frame.taskqs is None else {"rows": [_row(one) for one in frame.taskqs]}}


def taskqs(line: Json) -> tuple[Taskq, ...] | None:
    """The way back."""
    if line.get("taskqs") is None:
        return None
    rows = validate.items(validate.mapping(line, "taskqs"), "rows")
    if len(rows) > MAX_QUEUES:
        raise RecordingError(f"'taskqs' has {len(rows)} rows, and {MAX_QUEUES} are the most")
    found = tuple(_taskq(row) for row in rows)
    if len({(one.name, one.instance) for one in found}) != len(found):
        raise RecordingError("'taskqs' names one queue twice")
    return found


def _row(one: Taskq) -> list[str | int]:
    values = (getattr(one, name) for name in _FIELDS)
    return [_UNKNOWN if value is None else value for value in values]


def _taskq(row: Any) -> Taskq:
    if not isinstance(row, list) or len(row) < len(_FIELDS):
        raise RecordingError("'taskqs' has a row that is too short")
    name, *told = row[: len(_FIELDS)]
    numbers = {key: validate.whole(n, key, _LOW.get(key, 0)) for key, n in zip(_FIELDS[1:], told, strict=True)}
    time_us = numbers.pop("time_us")
    return Taskq(validate.label(name, "taskqs"), **numbers, time_us=None if time_us == _UNKNOWN else time_us)


FORMAT = (1, 0)
LATE = "reader-late"
"""The value of a window's key `late`. Earlier releases wrote it into the key `gap`."""
SCALE: dict[str, Any] = {"kind": "loglinear", "k": BITS, "unit": "us"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Time that is not in the recording, and why. It begins at `mono_us`, the last window's stamp."""

    reason: str
    seconds: float
    mono_us: int = 0
    wall: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """The closing line: a recording without it was killed, or is still being written."""

    reason: str
    windows: int


def encode_origin(origin: Origin, devices: tuple[Device, ...] = ()) -> dict[str, Any]:
    """The `header` line. `devices` are those known at the start; the first window names them again."""
    line: dict[str, Any] = {
        "type": "header",
        "format": list(FORMAT),
        "latmon": origin.latmon,
        "backend": origin.backend,
        "tool": origin.tool,
        "tier": origin.tier,
        "host": origin.host,
        "kernel": origin.kernel,
        "boot_id": origin.boot_id,
        "clock": {"wall": origin.start_wall, "mono": origin.start_mono_us},
        "window": origin.interval_us,
        "scale": SCALE,
        "latency_from": origin.latency_from,
        "measured": {stage: list(includes) for stage, includes in origin.measured.items()},
        "absent": [missing(one) for one in origin.absent],
        "probes_missing": [missing(one) for one in origin.probes_missing],
        "reason": origin.reason,
    }
    if origin.untraced:
        line["untraced"] = [missing(one) for one in origin.untraced]
    if origin.hz is not None:
        line["hz"] = origin.hz
    if origin.settings:
        line["settings"] = _encode_settings(origin.settings)
    if devices:
        line["devices"] = [_encode_device(one) for one in devices]
    return line | {key: value for key, value in origin.extra.items() if key not in line}


def encode_frame(frame: Frame) -> dict[str, Any]:
    """The `window` line."""
    line: dict[str, Any] = {
        "type": "window",
        "seq": frame.seq,
        "t": frame.wall,
        "mono": frame.mono_us,
        "dt": frame.dt_us,
        "h": [_encode_histogram(series, one) for series, one in frame.histograms.items()],
        "seen": [_encode_completed(flow, done) for flow, done in frame.seen.items()],
        "kernel": [_encode_completed(flow, done) for flow, done in frame.kernel.items()],
        "outstanding": {name: [now.in_driver, now.queued] for name, now in frame.outstanding.items()},
        "devices": [_encode_device(one) for one in frame.devices],
        "removed": list(frame.removed),
        "health": _encode_health(frame.health),
        "marks": [encode_mark(one) for one in frame.marks],
        "gap": frame.gap,
        "late": LATE if frame.late else "",
        **encode_deep(frame),
        **encode_outstanding(frame),
        **encode_taskqs(frame),
    }
    return {key: value for key, value in line.items() if key in _ALWAYS or value}


_ALWAYS = frozenset({"seq", "t", "mono", "dt", "h"})


def encode_gap(gap: Gap) -> dict[str, Any]:
    """The `gap` line."""
    return {"type": "gap", "reason": gap.reason, "s": gap.seconds, "mono": gap.mono_us, "t": gap.wall}


def encode_mark(mark: Mark) -> dict[str, Any]:
    """The `mark` line."""
    line: dict[str, Any] = {"type": "mark", "text": mark.text, "mono": mark.mono_us, "t": mark.wall}
    return line | ({} if mark.changed is None else {"changed": _encode_settings(mark.changed)})


def encode_end(end: End) -> dict[str, Any]:
    """The `end` line."""
    return {"type": "end", "reason": end.reason, "windows": end.windows}


def to_bytes(line: Mapping[str, Any]) -> bytes:
    """One line of a file. Escaped to ASCII: no reader can stumble over it, and a clean name hardly ever is longer."""
    return json.dumps(line, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def _encode_histogram(series: Series, one: Histogram) -> dict[str, Any]:
    return {"m": series.stage, "l": [series.device, series.op], "n": one.count} | histogram(one)


def _encode_settings(settings: Settings) -> dict[str, dict[str, str]]:
    return {section: dict(named) for section, named in settings.items()}


def _encode_completed(flow: Flow, done: Completed) -> dict[str, Any]:
    line: dict[str, Any] = {"l": [flow.device, flow.op], "n": done.count, "bytes": done.bytes}
    times = {"us": done.time_us, "queue": done.queue_us}
    return line | {key: us for key, us in times.items() if us is not None}


def _encode_device(device: Device) -> dict[str, Any]:
    return {"name": device.name, "major": device.major, "minor": device.minor} | unlike_default(device)


def _encode_health(health: Health) -> dict[str, Any]:
    return {k: v for k, v in unlike_default(health).items() if not isinstance(v, float) or math.isfinite(v)}
