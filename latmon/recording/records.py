"""Field tables of all records in a recording's lines: devices, health, outliers, tables of runs, depths, requests.

Depths are flat lists, because there are many: `d` in the driver, `q` queued, `i` at issue as pairs of depth and count,
`l` as depth, I/Os and their time. Issues are a flat list, too, with a list of the ops that it refers to. The rows of a
table begin with the key of the histogram in that row, see packed_tables.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.analysis.attribution import frequent
from latmon.model.frame import (
    FILE_OPS,
    FILE_WAITS,
    NO_SETTINGS,
    CgroupLimit,
    Device,
    DeviceReport,
    FileOperation,
    FileSplit,
    FileSystem,
    Health,
    Limit,
    Mark,
    Missing,
    Origin,
    Outlier,
    Outstanding,
    Settings,
    Taskq,
    Traced,
    Wait,
)
from latmon.model.histogram import BITS, MAX_COUNT
from latmon.model.host_context import ContextValue, HostContext, interval_value
from latmon.model.inflight import MAX_DEPTH, SYSFS, Depths, InFlight, InFlightList, Issue, Took
from latmon.model.measurements import ADMISSION_CAUSES, COMPLETERS, KERNEL, PATHS, RAISERS, SEEN, UNFOLLOWED
from latmon.model.measurements.traced import MAX_CODES
from latmon.model.packed import Packed, TimesByBucket
from latmon.model.table import MAX_PID
from latmon.recording import validate
from latmon.recording.completions import completed_reader, encode_completed
from latmon.recording.declared_tables import table_fields
from latmon.recording.packed_tables import (
    encode_series,
    encode_stages,
    encode_totals,
    flow,
    read_stages,
    read_totals,
    series_table,
)
from latmon.recording.validate import (
    NOTHING,
    Line,
    RecordCodec,
    RecordField,
    RowDecoder,
    count,
    few_labels,
    fields,
    flag,
    flat,
    label,
    labels,
    listed,
    mapped,
    number_rows,
    of_object,
    once,
    one_of,
    optional,
    text,
    within,
)
from latmon.support.errors import RecordingError

FORMAT = (1, 1)
LATE = "reader-late"
"""The value of a window's key `late`. Earlier releases wrote it into the key `gap`."""
SCALE: dict[str, Any] = {"kind": "loglinear", "k": BITS, "unit": "us"}
MAX_FEW = 64
"""Stages, flags, reasons or waits of one I/O or row: latmon writes at most ten."""
MAX_ONE_IN = 1 << 20
MAX_DEPTHS = 4096
"""Different depths of one device in one window: a probe reports fewer than 400, a sampler one per sample."""
MAX_IN_FLIGHT = 1024
"""Requests with a row of their own, in one window."""
MAX_AGES = 64
MAX_FOLLOWED = 16_384
"""Devices that a probe follows."""
MAX_ISSUES = 16_384
"""Issues of one device in one window."""
MAX_OPS = 64
MAX_QUEUES = 1024
"""Task queues of one reading; latmon reports at most 64."""
_PRIORITY = 1 << 16
_PAIR, _TRIPLE = 2, 3
_ISSUE = len(Issue._fields)
_UNKNOWN = -1
"""A number that isn't known, in rows."""

Key = TypeVar("Key")
_FLOW = RecordField("l", flow, "flow", get=lambda one: [one.device, one.op], required=True)
_FEW_LABELS = few_labels(MAX_FEW)
_COUNTS = mapped(count, MAX_FEW)
_DEVICE_COUNTS = mapped(mapped(count, MAX_CODES))
_INCLUDES = mapped(labels, MAX_FEW)
_OPTIONAL = optional(count)
_SETTINGS = mapped(mapped(text))
_NAME = RecordField("name", label, default="", required=True, always=True)
_REASON = RecordField("reason", text, default="", always=True)
_MONO = RecordField("mono", count, "mono_us", always=True)
_WALL = RecordField("t", validate.wall, "wall", default=0.0, always=True)
MISSING = RecordCodec(Missing, _NAME, _REASON)
_SHARE = optional(validate.share)
_READ_PRIORITY = within(-_PRIORITY, _PRIORITY)
WAIT = RecordCodec(
    Wait,
    RecordField("stage", label, required=True, always=True),
    RecordField("thread", label, required=True, always=True),
    RecordField("pid", within(0, MAX_PID), always=True),
    RecordField("priority", _READ_PRIORITY, always=True),
    *fields(count, "woken_us", "delay_us", always=True),
    RecordField("instead", label, default="", always=True),
    RecordField("ran_us", count, default=0),
    RecordField("cpu", _OPTIONAL, default=None),
    *fields(label, "policy", "instead_policy", default=""),
)
_FILE_SYSTEM = RowDecoder(FileSystem, ("mount", label), ("kind", label), ("device", label))
_FILE_SPLIT = RowDecoder(
    FileSplit,
    *((name, count) for name in ("own_io_us", "cpu_us", "asleep_us", "longest_us")),
    *((name, label) for name in ("wait", "functions", "holder")),
    ("holder_thread", count),
)
_CGROUP_LIMIT = RowDecoder(
    CgroupLimit,
    ("cgroup", label),
    ("device", label),
    ("op", label),
    *((name, optional(within(1))) for name in ("ios_per_s", "bytes_per_s")),
    *((name, count) for name in ("ios", "bytes", "processes")),
    ("names", few_labels(MAX_OPS)),
    ("stalled_us", _OPTIONAL),
    ("root", label),
    ("version", within(1, 2)),
)
_CONTEXT_ROW = RowDecoder(
    lambda name, total, weight, highest=None: (
        name,
        interval_value(total, weight) if highest is None else ContextValue(total, weight, highest),
    ),
    ("name", label),
    ("total", count),
    ("weight", within(1)),
    ("highest", validate.share),
    optional=1,
)
_LOW = {"instance": -1, "time_us": _UNKNOWN}
_TASKQ_CELLS = tuple(field.name for field in dataclasses.fields(Taskq))
_OUTSTANDING = RowDecoder(Outstanding, ("in_driver", _OPTIONAL), ("queued", _OPTIONAL))
_CLOCK = RecordCodec(
    lambda **values: values,
    RecordField("wall", validate.wall, "start_wall", default=0.0, always=True),
    RecordField("mono", count, "start_mono_us", always=True),
)
_DEFAULT_CLOCK = _CLOCK.decode({})
_HEAD = (
    RecordField("seq", count, always=True),
    _WALL,
    _MONO,
    RecordField("dt", validate.span, "dt_us", required=True, always=True),
)
_HISTOGRAMS = (
    RecordField(
        "h", of_object(read_totals), get=attrgetter("histograms"), write=encode_totals, default=Packed(), always=True
    ),
    RecordField("stages", of_object(read_stages), get=attrgetter("histograms"), write=encode_stages, default=Packed()),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Time that is not in the recording, and why. It begins at `mono_us`, the last window's stamp."""

    reason: str
    seconds: float
    mono_us: int = 0
    wall: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """The closing line: a recording without it was killed, or is still being written."""

    reason: str
    windows: int


def _each(write: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    return lambda cells: [write(cell) for cell in cells]


def by_name(write: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], Line]:
    """Return an encoder of mappings whose keys are names."""
    return lambda cells_by_name: {name: write(cell) for name, cell in cells_by_name.items()}


def _readable(counts: Mapping[str, int]) -> dict[str, int]:
    """Return as many counts as a reader takes: tracers that were restarted within a minute can have more stacks."""
    return dict(counts) if len(counts) <= MAX_CODES else frequent(counts, MAX_CODES - 1)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _with_flow(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a constructor that takes device and op as one Flow."""
    return lambda flow, **values: make(device=flow.device, op=flow.op, **values)


_LISTS = by_name(list)


def _missing(key: str, *, always: bool = False) -> RecordField:
    return RecordField(key, listed(MISSING.entry), write=_each(MISSING.encode), default=(), always=always)


def _number_or_label(value: Any, key: str) -> int | str:
    return validate.whole(value, key) if isinstance(value, int) else label(value, key)


_REPORT = RowDecoder(DeviceReport, ("report", label), ("value", _number_or_label), ("source", label))
_LIMIT = RowDecoder(Limit, ("limit", label), ("value", _number_or_label), ("source", label))
DEVICE = RecordCodec(
    Device,
    _NAME,
    *fields(count, "major", "minor", always=True),
    RecordField("kind", label, default="disk"),
    *fields(text, "driver", "controller", "model", "serial", default=""),
    RecordField("members", labels, default=()),
    RecordField("timed", flag, default=True),
    RecordField("label", text, default=""),
    RecordField("limits", listed(_LIMIT.read), default=()),
    RecordField("reports", listed(_REPORT.read), default=()),
    RecordField("untimed", text, default=""),
)

HEALTH = RecordCodec(
    Health,
    *fields(count, "probes_attached", "probes_wanted", "lost_events", "map_full", "unmatched", "stale"),
    *fields(count, "undecoded_lines", "dropped_frames", "suppressed", "dropped_records"),
    RecordField("full_tables", mapped(count), write=dict, default=NOTHING),
    RecordField("skipped", _OPTIONAL, default=None),
    RecordField("self_cpu_percent", _SHARE, write=_finite, default=None),
    RecordField("probe_ns_per_io", _SHARE, write=_finite, default=None),
    RecordField("probe_cpu_percent", _SHARE, write=_finite, default=None),
    *fields(text, "recording", "recording_trouble", "notice", default=""),
)


OUTLIER = RecordCodec(
    _with_flow(Outlier),
    _WALL,
    _MONO,
    _FLOW,
    RecordField("us", count, "total_us", always=True),
    RecordField("stages_us", _COUNTS, write=dict, default=NOTHING),
    RecordField("unaccounted_us", count),
    RecordField("flags", _FEW_LABELS, default=()),
    *fields(_OPTIONAL, "sector", "bytes", "pid", default=None),
    RecordField("comm", label, default=""),
    *fields(_OPTIONAL, "cpu_issue", "cpu_complete", "outstanding_at_issue", "overtaken_by", default=None),
    RecordField("path", label, default=""),
    RecordField("includes", _INCLUDES, write=_LISTS, default=NOTHING),
    RecordField("waits", listed(WAIT.entry, MAX_FEW), write=_each(WAIT.encode), default=()),
    RecordField("own", flag, default=False),
    *fields(_OPTIONAL, "admission_us", "inserted_us", default=None),
    RecordField("dispatch_us", count, default=0),
    RecordField("status", label, default=""),
)


TRACED = RecordCodec(
    Traced,
    RecordField(
        "histograms",
        of_object(series_table),
        write=lambda some: encode_series(Packed.of(some)),
        default=NOTHING,
    ),
    RecordField(
        "by_total",
        of_object(lambda line: TimesByBucket(series_table(line, low=0))),
        write=lambda times: encode_series(TimesByBucket.pack(times)),
        default=NOTHING,
    ),
    *(
        RecordField(key, _DEVICE_COUNTS, write=by_name(_readable), default=NOTHING)
        for key in (UNFOLLOWED.name, PATHS.name, ADMISSION_CAUSES.name, COMPLETERS.name, RAISERS.name)
    ),
    RecordField("off", count),
    RecordField("one_in", within(0, MAX_ONE_IN)),
    RecordField("devices", labels, default=()),
    *(RecordField(key, _INCLUDES, write=_LISTS, default=NOTHING) for key in ("includes", "bio_includes")),
    _missing("absent"),
)

_FILE_OP, _FILE_WAIT = one_of(*FILE_OPS), one_of(*FILE_WAITS)


def _sectors(value: Any, key: str) -> tuple[int, int] | None:
    rows = number_rows(value, key, _PAIR, 1)
    if not rows:
        return None
    ((first, end),) = rows
    if end < first:
        raise RecordingError(f"{key!r} ends at {end}, before it begins")
    return first, end


FILE_OPERATION = RecordCodec(
    FileOperation,
    _WALL,
    _MONO,
    RecordField("op", _FILE_OP, required=True, always=True),
    RecordField("us", count, "total_us", always=True),
    RecordField("wait", _FILE_WAIT, required=True, always=True),
    RecordField("on", _FILE_SYSTEM.read, "file_system", list, required=True, always=True),
    RecordField("path", text, default="", always=True),
    RecordField("pid", _OPTIONAL, default=None),
    RecordField("comm", label, default=""),
    *fields(_OPTIONAL, "bytes", "offset", default=None),
    RecordField("disk", label, default=""),
    RecordField("sectors", _sectors, write=lambda one: None if one is None else [*one], default=None),
    RecordField("waits", listed(WAIT.entry, MAX_FEW), write=_each(WAIT.encode), default=()),
    RecordField("split", _FILE_SPLIT.read, write=lambda split: None if split is None else [*split], default=None),
)


def _encode_cgroup_limits(limits: Iterable[CgroupLimit] | None) -> list[list[Any]] | None:
    return None if limits is None else [[*dataclasses.astuple(cgroup_limit)] for cgroup_limit in limits]


def _encode_context(context: HostContext) -> list[list[Any]]:
    """Return a row per value, with the highest one of sums only."""
    return [
        [
            name,
            context_value.total,
            context_value.weight,
            *([context_value.highest] if context_value.highest != context_value.ratio else []),
        ]
        for name, context_value in context.items()
    ]


def _context(value: Any, key: str) -> HostContext:
    return once([_CONTEXT_ROW.read(context_row, key) for context_row in validate.items(value, key)])


def _taskq(*cells: Any) -> Taskq:
    values = dict(zip(_TASKQ_CELLS, cells, strict=True))
    return Taskq(**values | {"time_us": None if values["time_us"] == _UNKNOWN else values["time_us"]})


_TASKQ = RowDecoder(_taskq, ("name", label), *((name, within(_LOW.get(name, 0))) for name in _TASKQ_CELLS[1:]))


def _encode_taskqs(taskqs: Iterable[Taskq] | None) -> Line | None:
    """Return an object, because a reading without a busy queue is not the same as none."""
    return None if taskqs is None else {"rows": [[_known(n) for n in dataclasses.astuple(taskq)] for taskq in taskqs]}


def _known(value: Any) -> Any:
    return _UNKNOWN if value is None else value


def _taskqs(value: Any, key: str) -> tuple[Taskq, ...]:
    rows = validate.items(validate.mapping(value, key).get("rows", []), key, MAX_QUEUES)
    taskqs = tuple(_TASKQ.read(row, key) for row in rows)
    if len({(taskq.name, taskq.instance) for taskq in taskqs}) != len(taskqs):
        raise RecordingError(f"{key!r} names one queue twice")
    return taskqs


def _by_depth(value: Any, key: str, cells: int, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> list[tuple[int, ...]]:
    """Return rows that begin with a number of 0 to `high`, in its order, each once."""
    rows = number_rows(value, key, cells, most)
    firsts = [row[0] for row in rows]
    if firsts and (firsts != sorted(set(firsts)) or firsts[-1] > high):
        raise RecordingError(f"{key!r} has depths out of order or out of range")
    return rows


def _pairs(value: Any, key: str, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> Mapping[int, int]:
    return MappingProxyType({row[0]: row[1] for row in _by_depth(value, key, _PAIR, most, high)})


def _latency(value: Any, key: str) -> Mapping[int, Took]:
    return MappingProxyType({depth: Took(ios, us) for depth, ios, us in _by_depth(value, key, _TRIPLE)})


def _sorted_pairs(buckets: Mapping[int, int]) -> list[int]:
    return flat(sorted(buckets.items()))


DEPTHS = RecordCodec(
    Depths,
    RecordField("d", _pairs, "in_driver", _sorted_pairs, default=NOTHING),
    RecordField("q", _pairs, "queued", _sorted_pairs, default=NOTHING),
    RecordField("i", _pairs, "at_issue", _sorted_pairs, default=NOTHING),
    RecordField(
        "l",
        _latency,
        "latency",
        lambda some: flat((depth, *took) for depth, took in sorted(some.items())),
        default=NOTHING,
    ),
    RecordField("corrected", count),
    RecordField("by", label, "source", default=SYSFS),
    RecordField("most", optional(within(0, MAX_DEPTH)), default=None),
)
REQUEST = RecordCodec(
    _with_flow(InFlight),
    _FLOW,
    RecordField("began", count, "began_us", always=True),
    RecordField("flags", few_labels(MAX_OPS), default=()),
    *fields(_OPTIONAL, "sector", "bytes", "pid", default=None),
    RecordField("comm", label, default=""),
    RecordField("issued", optional(flag), default=None),
    RecordField("overtaken_by", _OPTIONAL, default=None),
    RecordField("own", flag, default=False),
)
IN_FLIGHT = RecordCodec(
    InFlightList,
    RecordField("since", count, "since_us", always=True),
    RecordField("oldest", listed(REQUEST.entry, MAX_IN_FLIGHT), write=_each(REQUEST.encode), default=()),
    RecordField("at", count, "at_us"),
    RecordField("devices", few_labels(MAX_FOLLOWED), write=list, default=()),
    RecordField(
        "older",
        lambda value, key: _pairs(value, key, MAX_AGES, MAX_COUNT),
        write=_sorted_pairs,
        default=NOTHING,
    ),
)


def _encode_issues(issues: Iterable[Issue]) -> Line:
    each = list(issues)
    ops = list(dict.fromkeys(issue.op for issue in each))
    at: Mapping[str, int] = {op: index for index, op in enumerate(ops)}
    return {
        "ops": ops,
        "n": flat((issue.mono_us, issue.sector, issue.bytes, at[issue.op], issue.queued_us) for issue in each),
    }


def _issues(value: Any, key: str) -> tuple[Issue, ...]:
    if not isinstance(value, dict):
        raise RecordingError(f"{key!r} has an entry that is no object")
    ops = validate.labels(value.get("ops", []), "ops", MAX_OPS)
    rows = number_rows(value.get("n", []), "n", _ISSUE, MAX_ISSUES)
    if any(row[3] >= len(ops) for row in rows):
        raise RecordingError(f"{key!r} has an op without a name")
    return tuple(Issue(at, sector, bytes_, ops[op], queued) for at, sector, bytes_, op, queued in rows)


def _encode_settings(settings: Settings | None) -> Line | None:
    return None if settings is None else {section: dict(named) for section, named in settings.items()}


MARK = RecordCodec(
    Mark,
    RecordField("text", text, default="", always=True),
    _MONO,
    _WALL,
    RecordField("changed", _SETTINGS, write=_encode_settings, default=None),
    RecordField("device", label, default=""),
)
GAP = RecordCodec(
    Gap,
    _REASON,
    RecordField("s", lambda value, key: max(0.0, validate.real(value, key)), "seconds", default=0.0, always=True),
    _MONO,
    _WALL,
)
END = RecordCodec(End, _REASON, RecordField("windows", count, always=True))
NOTES: Mapping[str, RecordCodec[Any]] = MappingProxyType({"gap": GAP, "mark": MARK, "end": END})
"""Records of lines between windows, by the line's type."""


def _origin(clock: Mapping[str, Any], **values: Any) -> Origin:
    del values["scale"]  # checked before anything else
    return Origin(**clock, **values)


HEADER = RecordCodec(
    _origin,
    *fields(text, "latmon", "backend", "tool", "tier", "host", "kernel", "boot_id", default="", always=True),
    RecordField("clock", _CLOCK.read, get=_CLOCK.encode, default=_DEFAULT_CLOCK, always=True),
    RecordField("window", within(1), "interval_us", default=1_000_000, always=True),
    RecordField("scale", lambda value, _: value, get=lambda _: SCALE),
    RecordField("latency_from", text, default="", always=True),
    RecordField("counted", labels, write=list, default=()),
    RecordField("measured", mapped(labels), write=_LISTS, default=NOTHING, always=True),
    _missing("absent", always=True),
    _missing("probes_missing", always=True),
    _REASON,
    _missing("untraced"),
    RecordField("hz", _OPTIONAL, default=None),
    RecordField("settings", _SETTINGS, write=_encode_settings, default=NO_SETTINGS),
)
_VALUES = (
    RecordField("seen", completed_reader(SEEN), write=encode_completed, default=NOTHING),
    RecordField("kernel", completed_reader(KERNEL), write=encode_completed, default=NOTHING),
    RecordField(
        "outstanding",
        mapped(_OUTSTANDING.read),
        write=by_name(lambda now: [now.in_driver, now.queued]),
        default=NOTHING,
    ),
    RecordField("devices", listed(DEVICE.entry), write=_each(DEVICE.encode), default=()),
    RecordField("removed", labels, write=list, default=()),
    RecordField("health", HEALTH.read, write=HEALTH.encode, default=Health()),
    RecordField(
        "marks",
        listed(MARK.entry),
        write=lambda some: [{"type": "mark"} | MARK.encode(one) for one in some],
        default=(),
    ),
    RecordField("gap", text, default=""),
    RecordField("late", text, write=lambda late: LATE if late else "", default=""),
    RecordField("thresholds", mapped(count), "thresholds_us", write=dict, default=NOTHING),
    RecordField("outliers", listed(OUTLIER.entry), write=_each(OUTLIER.encode), default=()),
    RecordField("traced", TRACED.read, write=TRACED.encode, default=Traced()),
    *table_fields(),
    RecordField("file_operations", listed(FILE_OPERATION.entry), write=_each(FILE_OPERATION.encode), default=()),
    RecordField("files_left_out", count),
    RecordField("depths", mapped(DEPTHS.entry), write=by_name(DEPTHS.encode), default=NOTHING),
    RecordField(
        "in_flight",
        optional(IN_FLIGHT.read),
        write=lambda one: None if one is None else IN_FLIGHT.encode(one),
        default=None,
    ),
    RecordField("issues", mapped(_issues), write=by_name(_encode_issues), default=NOTHING),
    RecordField(
        "cgroup_limits",
        optional(listed(_CGROUP_LIMIT.read)),
        write=_encode_cgroup_limits,
        default=None,
    ),
    RecordField("host_context", _context, write=_encode_context, default=NOTHING),
    RecordField("taskqs", optional(_taskqs), write=_encode_taskqs, default=None),
)
WINDOW = RecordCodec[dict[str, Any]](dict, *_HEAD, *_HISTOGRAMS, *_VALUES)
"""Values of a window's line; `h` and `stages` have its histograms, and each declared table has its name."""
