"""Decoder of recording lines: JSON to values, strings cleaned, numbers within bounds, RecordingError otherwise.

Unknown keys are ignored in a window and kept in a header's `extra`; a newer major version is refused in one sentence.
Knows no file.

Every count and length is bounded, every string clean, every name said once; RecordingError on nonsense.

Every number and length is bounded, every string clean, every depth said once; RecordingError on nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from types import MappingProxyType
from typing import Any

from latmon.model.frame import (
    NO_SETTINGS,
    UNKNOWN_IRQ,
    Completed,
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Health,
    Limit,
    Mark,
    Origin,
    Outlier,
    Outstanding,
    Series,
    Settings,
    SoftirqCpu,
    SoftirqRuns,
    Thread,
    Traced,
    Wait,
    Wakeups,
)
from latmon.model.histogram import MAX_COUNT, MAX_US, Histogram
from latmon.model.inflight import SYSFS, Depths, InFlight, Issue, StillInFlight, Took
from latmon.model.packed import Packed, Sums
from latmon.recording import encode, packed_tables, validate
from latmon.recording.encode import FORMAT, LATE, SCALE, End, Gap, encode_origin
from latmon.recording.packed_tables import Row, rows, table
from latmon.recording.validate import LABELS, Json, flow, histogram, is_known, measured, missing, once, series
from latmon.support.errors import RecordingError

MAX_FEW = 64
"""Stages, flags, reasons or waits of one thing: ours have ten at most."""
MAX_CODES = 256
"""Of a path: what can't be named is told by its code."""
MAX_ONE_IN = 1 << 20
MAX_PID = (1 << 32) - 1
"""What a probe's record may say; the kernel's own PID_MAX_LIMIT is 2^22."""
MAX_CPU = 1 << 16
MAX_IRQ = 1 << 32
_PRIORITY = 1 << 16
_ABOVE = 3
_SERIES_CELLS, _HANDLER_CELLS, _SOFTIRQ_CELLS, _THREAD_CELLS = 3, 6, 4, 6
Counts = Mapping[str, int]
_NONE: Counts = MappingProxyType({})
_EMPTY: Mapping[Any, Any] = MappingProxyType({})


def above(line: Json) -> Mapping[Flow, int]:
    """`above`: [device, op, count]."""
    found = []
    for one in validate.items(line, "above"):
        if not isinstance(one, list) or len(one) < _ABOVE:
            raise RecordingError("'above' is not a device, an op and a count")
        name = Flow(validate.label(one[0], "above"), validate.label(one[1], "above"))
        found.append((name, validate.whole(one[2], "above")))
    return once(found)


def thresholds(line: Json) -> Counts:
    """`thresholds`: device -> us."""
    return _counts(line, "thresholds", validate.MAX_ITEMS)


def outliers(line: Json) -> tuple[Outlier, ...]:
    """`outliers`."""
    return tuple(_outlier(one) for one in validate.objects(line, "outliers"))


def traced(line: Json) -> Traced:
    """`traced`."""
    told = validate.mapping(line, "traced")
    if not told:
        return Traced()
    return Traced(
        histograms=_of_series(validate.mapping(told, "histograms")),
        by_total=Sums(_of_series(validate.mapping(told, "by_total"), low=0)),
        unfollowed=_by_device(told, "unfollowed"),
        paths=_by_device(told, "paths"),
        off=validate.integer(told, "off"),
        one_in=validate.integer(told, "one_in", high=MAX_ONE_IN),
        devices=validate.labels(told, "devices"),
        includes=measured(_few(told, "includes")),
        bio_includes=measured(_few(told, "bio_includes")),
        absent=missing(told, "absent"),
    )


def handlers(line: Json) -> Mapping[Handler, HandlerRuns]:
    """`irqs`."""
    told = validate.mapping(line, "irqs")
    if not told:
        return _EMPTY
    told_rows = rows(told, _HANDLER_CELLS)
    keys = [Handler(validate.whole(r[0], "irq", UNKNOWN_IRQ, MAX_IRQ), validate.label(r[1], "irqs")) for r in told_rows]
    return once(
        [
            (key, HandlerRuns(run, _named(r[5], "returned"), validate.whole(r[2], "before"), *_shared(r)))
            for key, r, run in zip(keys, told_rows, table(told, keys).values_in_order(), strict=True)
        ]
    )


def softirqs(line: Json) -> Mapping[SoftirqCpu, SoftirqRuns]:
    """`softirqs`."""
    told = validate.mapping(line, "softirqs")
    if not told:
        return _EMPTY
    told_rows = rows(told, _SOFTIRQ_CELLS)
    keys = [SoftirqCpu(validate.label(r[0], "vec"), validate.whole(r[1], "cpu", high=MAX_CPU)) for r in told_rows]
    delays, runs = (table(validate.mapping(told, name), keys).values_in_order() for name in ("delay", "run"))
    return once(
        [
            (key, SoftirqRuns(delay, run, _named(r[2], "ran_in"), _named(r[3], "raised_in")))
            for key, r, delay, run in zip(keys, told_rows, delays, runs, strict=True)
        ]
    )


def wakeups(line: Json) -> tuple[Wakeups, ...]:
    """`wakeups`, each thread once."""
    told = validate.mapping(line, "wakeups")
    if not told:
        return ()
    told_rows = rows(told, _THREAD_CELLS)
    threads = [_thread(row) for row in told_rows]
    delays = table(told, [one.pid for one in threads]).values_in_order()
    return tuple(
        Wakeups(thread, delay, _named(row[5], "instead", validate.MAX_ITEMS))
        for thread, row, delay in zip(threads, told_rows, delays, strict=True)
    )


def _of_series(line: Json, low: int = 1) -> Packed[Series]:
    """A table whose rows are a device, an op and the stages of these."""
    keys = []
    for device, op, stages, *_ in rows(line, _SERIES_CELLS):
        name, kind = validate.label(device, "a device"), validate.label(op, "an op")
        keys += [Series(name, kind, stage) for stage in validate.labels({"stages": stages}, "stages")]
    return table(line, keys, low)


def _outlier(line: Json) -> Outlier:
    device, op = flow(line)
    return Outlier(
        wall=validate.wall(line, "t"),
        mono_us=validate.integer(line, "mono"),
        device=device,
        op=op,
        total_us=validate.integer(line, "us"),
        stages_us=_counts(line, "stages_us"),
        unaccounted_us=validate.integer(line, "unaccounted_us"),
        flags=_few_labels(line, "flags"),
        sector=validate.optional_integer(line, "sector"),
        bytes=validate.optional_integer(line, "bytes"),
        pid=validate.optional_integer(line, "pid"),
        comm=validate.label(line.get("comm", ""), "comm"),
        cpu_issue=validate.optional_integer(line, "cpu_issue"),
        cpu_complete=validate.optional_integer(line, "cpu_complete"),
        outstanding_at_issue=validate.optional_integer(line, "outstanding_at_issue"),
        overtaken_by=validate.optional_integer(line, "overtaken_by"),
        path=validate.label(line.get("path", ""), "path"),
        includes=measured(_few(line, "includes")),
        waits=_waits(line),
        own=validate.flag(line, "own"),
    )


def _waits(line: Json) -> tuple[Wait, ...]:
    found = validate.objects(line, "waits")
    if len(found) > MAX_FEW:
        raise RecordingError(f"an outlier waited for {len(found)} threads")
    return tuple(
        Wait(
            stage=validate.label(one.get("stage"), "stage"),
            thread=validate.label(one.get("thread"), "thread"),
            pid=validate.integer(one, "pid", high=MAX_PID),
            priority=_priority(one),
            woken_us=validate.integer(one, "woken_us"),
            delay_us=validate.integer(one, "delay_us"),
            instead=validate.label(one.get("instead", ""), "instead"),
        )
        for one in found
    )


def _shared(row: Row) -> tuple[str, tuple[str, ...]]:
    """Device, and with whom a handler shares its vector."""
    return validate.sentence({"device": row[3]}, "device"), _few_labels({"shared_with": row[4]}, "shared_with")


def _thread(row: Row) -> Thread:
    pid, comm, policy, priority, kernel, *_ = row
    if not isinstance(kernel, bool):
        raise RecordingError("'kernel' is neither true nor false")
    return Thread(
        validate.whole(pid, "pid", high=MAX_PID),
        validate.label(comm, "comm"),
        validate.label(policy, "policy"),
        validate.whole(priority, "priority", low=-_PRIORITY, high=_PRIORITY),
        kernel,
    )


def _priority(line: Json) -> int:
    return validate.integer(line, "priority", low=-_PRIORITY, high=_PRIORITY)


def _by_device(line: Json, key: str) -> Mapping[str, Counts]:
    told = validate.mapping(line, key)
    return once([(validate.label(device, key), _counts(told, device, MAX_CODES)) for device in told])


def _counts(line: Json, key: str, most: int = MAX_FEW) -> Counts:
    return _named(line.get(key, {}), key, most)


def _named(told: Any, key: str, most: int = MAX_FEW) -> Counts:
    if not told and isinstance(told, dict):
        return _NONE
    return once(
        [(validate.label(name, key), validate.whole(n, key)) for name, n in _few({key: told}, key, most).items()]
    )


def _few(line: Json, key: str, most: int = MAX_FEW) -> Json:
    told = validate.mapping(line, key)
    _require_few(told, key, most)
    return told


def _require_few(found: Sized, key: str, most: int) -> None:
    if len(found) > most:
        raise RecordingError(f"{key!r} has {len(found)} entries, and {most} are the most")


def _few_labels(line: Json, key: str) -> tuple[str, ...]:
    found = validate.labels(line, key)
    if len(found) > MAX_FEW:
        raise RecordingError(f"{key!r} has {len(found)} entries, and {MAX_FEW} are the most")
    return found


MAX_DEPTH = 1 << 24
"""The most that a device may be said to have in flight: a hundred times what nr_tags can be."""
MAX_DEPTHS = 4096
"""Different depths of one device in one window: a probe tells fewer than 400, a sampler one per look."""
MAX_IN_FLIGHT = 1024
"""Requests with a row of their own, in one window."""
MAX_AGES = 64
MAX_FOLLOWED = 16_384
"""Devices that a probe follows."""
MAX_ISSUES = 16_384
"""Of one device in one window."""
MAX_OPS = 64
_PAIR, _TRIPLE = 2, 3
_ISSUE = len(Issue._fields)


def depths(line: Json) -> Mapping[str, Depths]:
    """`depths`: device -> how many I/Os it had outstanding."""
    told = validate.mapping(line, "depths")
    return once([(validate.label(device, "depths"), _depths(_object(one, "depths"))) for device, one in told.items()])


def in_flight(line: Json) -> StillInFlight | None:
    """`in_flight`; None where no probe told."""
    if line.get("in_flight") is None:
        return None
    told = validate.mapping(line, "in_flight")
    found = validate.objects(told, "oldest")
    if len(found) > MAX_IN_FLIGHT:
        raise RecordingError(f"'oldest' has {len(found)} entries, and {MAX_IN_FLIGHT} are the most")
    return StillInFlight(
        oldest=tuple(request(one) for one in found),
        older=_pairs(told, "older", MAX_AGES, MAX_COUNT),
        since_us=validate.integer(told, "since"),
        at_us=validate.integer(told, "at") if "at" in told else 0,
        devices=_few_depths(validate.labels(told, "devices"), "devices", MAX_FOLLOWED),
    )


def issues(line: Json) -> Mapping[str, tuple[Issue, ...]]:
    """`issues`: device -> a burst of requests as they went to the driver."""
    told = validate.mapping(line, "issues")
    return once([(validate.label(device, "issues"), _issues(_object(one, "issues"))) for device, one in told.items()])


def _depths(line: Json) -> Depths:
    latency = {depth: Took(ios, time_us) for depth, ios, time_us in _by_depth(line, "l", _TRIPLE)}
    return Depths(
        in_driver=_pairs(line, "d"),
        queued=_pairs(line, "q"),
        at_issue=_pairs(line, "i"),
        latency=MappingProxyType(latency),
        most=validate.whole(line["most"], "most", high=MAX_DEPTH) if line.get("most") is not None else None,
        corrected=validate.integer(line, "corrected"),
        source=validate.label(line.get("by", SYSFS), "by"),
    )


def _pairs(line: Json, key: str, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> Mapping[int, int]:
    return MappingProxyType({row[0]: row[1] for row in _by_depth(line, key, _PAIR, most, high)})


def _by_depth(line: Json, key: str, cells: int, most: int = MAX_DEPTHS, high: int = MAX_DEPTH) -> list[tuple[int, ...]]:
    """Rows that begin with a number of 0 to `high`, in its order, each once."""
    rows = number_rows(line, key, cells, most)
    firsts = [row[0] for row in rows]
    if firsts and (firsts != sorted(set(firsts)) or firsts[-1] > high):
        raise RecordingError(f"{key!r} has depths out of order or out of range")
    return rows


def number_rows(line: Json, key: str, cells: int, most: int) -> list[tuple[int, ...]]:
    """`key`: a flat list of numbers of 0 or more as rows of `cells`."""
    found = line.get(key, [])
    if not isinstance(found, list) or len(found) % cells or len(found) > cells * most:
        raise RecordingError(f"{key!r} is no list of {cells} numbers each, or too long")
    if not {*map(type, found)} <= {int} or (found and not (min(found) >= 0 and max(found) <= MAX_COUNT)):
        raise RecordingError(f"{key!r} has what is no whole number of 0 or more")
    return list(zip(*(found[at::cells] for at in range(cells)), strict=True))


def request(line: Json) -> InFlight:
    """One of `oldest`."""
    device, op = flow(line)
    issued = line.get("issued")
    if issued is not None and not isinstance(issued, bool):
        raise RecordingError("'issued' is neither true nor false")
    return InFlight(
        device=device,
        op=op,
        began_us=validate.integer(line, "began"),
        flags=_few_depths(validate.labels(line, "flags"), "flags"),
        sector=validate.optional_integer(line, "sector"),
        bytes=validate.optional_integer(line, "bytes"),
        pid=validate.optional_integer(line, "pid"),
        comm=validate.label(line.get("comm", ""), "comm"),
        issued=issued,
        overtaken_by=validate.optional_integer(line, "overtaken_by"),
        own=validate.flag(line, "own"),
    )


def _issues(line: Json) -> tuple[Issue, ...]:
    ops = _few_depths(validate.labels(line, "ops"), "ops")
    rows = number_rows(line, "n", _ISSUE, MAX_ISSUES)
    if any(row[3] >= len(ops) for row in rows):
        raise RecordingError("'issues' has an op without a name")
    return tuple(Issue(at, sector, bytes_, ops[op], queued) for at, sector, bytes_, op, queued in rows)


def _few_depths(found: Sequence[str], key: str, most: int = MAX_OPS) -> tuple[str, ...]:
    _require_few(found, key, most)
    return tuple(found)


def _object(value: Any, key: str) -> Json:
    if not isinstance(value, dict):
        raise RecordingError(f"{key!r} has an entry that is no object")
    return value


_OURS = frozenset(encode_origin(Origin("", "", "", ""))) | {"hz", "devices", "untraced", "settings"}
_COUNTERS = (
    *("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_frames", "suppressed"),
    "dropped_records",
)

_HEALTHY = Health()


def decode_origin(line: Json) -> Origin:
    """The `header` line."""
    check_format(line)
    clock = validate.mapping(line, "clock")
    return Origin(
        backend=validate.sentence(line, "backend"),
        host=validate.sentence(line, "host"),
        kernel=validate.sentence(line, "kernel"),
        latmon=validate.sentence(line, "latmon"),
        tool=validate.sentence(line, "tool"),
        tier=validate.sentence(line, "tier"),
        interval_us=validate.integer(line, "window", 1_000_000, low=1),
        start_wall=validate.wall(clock, "wall"),
        start_mono_us=validate.integer(clock, "mono"),
        boot_id=validate.sentence(line, "boot_id"),
        hz=validate.optional_integer(line, "hz"),
        measured=measured(validate.mapping(line, "measured")),
        absent=missing(line, "absent"),
        probes_missing=missing(line, "probes_missing"),
        untraced=missing(line, "untraced"),
        latency_from=validate.sentence(line, "latency_from"),
        reason=validate.sentence(line, "reason"),
        settings=_settings(line, "settings"),
        extra=MappingProxyType(validate.cleaned({k: v for k, v in line.items() if k not in _OURS})),
    )


def decode_devices(line: Json) -> tuple[Device, ...]:
    """The devices of a header or window line."""
    return tuple(_device(one) for one in validate.objects(line, "devices"))


def decode_frame(line: Json, *, booleans: bool = True) -> Frame:
    """The `window` line; `booleans`: whether there may be a true or a false in it, which no number may be."""
    gap = validate.sentence(line, "gap")
    return Frame(
        seq=validate.integer(line, "seq"),
        wall=validate.wall(line, "t"),
        mono_us=validate.integer(line, "mono"),
        dt_us=validate.span(line, "dt"),
        histograms=_histograms(line, booleans=booleans),
        seen=_completed(line, "seen"),
        kernel=_completed(line, "kernel"),
        outstanding=once(
            [(validate.label(name, "outstanding"), _outstanding(now)) for name, now in _entries(line, "outstanding")]
        ),
        devices=decode_devices(line),
        removed=validate.labels(line, "removed"),
        health=_health(validate.mapping(line, "health")),
        marks=tuple(decode_mark(one) for one in validate.objects(line, "marks")),
        gap="" if gap == LATE else gap,
        late=LATE in (gap, validate.sentence(line, "late")),
        above=above(line),
        outliers=outliers(line),
        thresholds_us=thresholds(line),
        traced=traced(line),
        handlers=handlers(line),
        softirqs=softirqs(line),
        wakeups=wakeups(line),
        taskqs=encode.taskqs(line),
        depths=depths(line),
        in_flight=in_flight(line),
        issues=issues(line),
    )


def decode_gap(line: Json) -> Gap:
    """The `gap` line."""
    return Gap(
        validate.sentence(line, "reason"),
        max(0.0, validate.number(line, "s")),
        validate.integer(line, "mono"),
        validate.wall(line, "t"),
    )


def decode_mark(line: Json) -> Mark:
    """The `mark` line."""
    return Mark(
        validate.sentence(line, "text"),
        validate.integer(line, "mono"),
        validate.wall(line, "t"),
        _settings(line, "changed") if "changed" in line else None,
    )


def decode_end(line: Json) -> End:
    """The `end` line."""
    return End(validate.sentence(line, "reason"), validate.integer(line, "windows"))


def check_format(line: Json) -> None:
    """RecordingError unless this header's version and scale are ones that we read."""
    if line.get("type") != "header":
        raise RecordingError("it does not begin with a latmon header")
    version = validate.items(line, "format")
    if len(version) < len(FORMAT) or not all(type(one) is int and 0 <= one < MAX_US for one in version[: len(FORMAT)]):
        raise RecordingError("its header names no format version")
    if version[0] != FORMAT[0]:
        raise RecordingError(
            f"its format is {version[0]}.{version[1]} and this latmon reads {FORMAT[0]}.x: use a newer latmon"
        )
    scale = validate.mapping(line, "scale")
    if any(scale.get(key) != value for key, value in SCALE.items()):
        raise RecordingError("its histograms have a scale that this latmon doesn't know: use a newer latmon")


def _histograms(line: Json, *, booleans: bool) -> Mapping[Series, Histogram]:
    """All at once where they are as ours are, else one by one."""
    at_once = packed_tables.histograms(line, booleans=booleans)
    if at_once is not None:
        return at_once
    found = once([(series(one), histogram(one)) for one in validate.objects(line, "h") if is_known(one)])
    packed_tables.remember(found.keys())
    return found


def _completed(line: Json, key: str) -> Mapping[Flow, Completed]:
    at_once = packed_tables.completed(line, key)
    if at_once is not None:
        return at_once
    found = once([(flow(one), _count(one)) for one in validate.objects(line, key) if is_known(one)])
    packed_tables.remember(found.keys())
    return found


def _count(line: Json) -> Completed:
    return Completed(
        validate.integer(line, "n"),
        validate.integer(line, "bytes"),
        validate.optional_integer(line, "us"),
        validate.optional_integer(line, "queue"),
    )


def _settings(line: Json, key: str) -> Settings:
    """Section -> name -> text; empty where the line has none."""
    sections = validate.mapping(line, key)
    if not sections:
        return NO_SETTINGS
    return MappingProxyType(
        {
            validate.label(section, key): MappingProxyType(
                {validate.label(name, key): validate.sentence(named, name) for name in named}
            )
            for section in sections
            if (named := validate.mapping(sections, section)) is not None
        }
    )


def _outstanding(value: Any) -> Outstanding:
    if not isinstance(value, list) or len(value) < LABELS:
        raise RecordingError("'outstanding' is not a pair")
    in_driver, queued, *_ = value
    if in_driver is not None:
        validate.whole(in_driver, "outstanding")
    if queued is not None:
        validate.whole(queued, "outstanding")
    return Outstanding(in_driver, queued)


def _entries(line: Json, key: str) -> list[tuple[str, Any]]:
    return list(validate.mapping(line, key).items())


def _device(line: Json) -> Device:
    timed = line.get("timed", True)
    if not isinstance(timed, bool):
        raise RecordingError("'timed' is neither true nor false")
    return Device(
        name=validate.label(line.get("name"), "name"),
        major=validate.integer(line, "major"),
        minor=validate.integer(line, "minor"),
        kind=validate.label(line.get("kind", "disk"), "kind"),
        driver=validate.sentence(line, "driver"),
        controller=validate.sentence(line, "controller"),
        model=validate.sentence(line, "model"),
        serial=validate.sentence(line, "serial"),
        members=validate.labels(line, "members"),
        timed=timed,
        label=validate.sentence(line, "label"),
        limits=tuple(_limit(one) for one in validate.items(line, "limits")),
    )


def _limit(value: Any) -> Limit:
    if not isinstance(value, list) or len(value) < len(Limit._fields):
        raise RecordingError("'limits' is not a name, a value and where it was read")
    name, told, source = value[: len(Limit._fields)]
    number = validate.whole(told, "limits") if isinstance(told, int) else validate.label(told, "limits")
    return Limit(validate.label(name, "limits"), number, validate.label(source, "limits"))


def _health(line: Json) -> Health:
    if not line:
        return _HEALTHY
    return Health(
        probes_attached=validate.integer(line, "probes_attached"),
        probes_wanted=validate.integer(line, "probes_wanted"),
        **{key: validate.integer(line, key) for key in _COUNTERS},
        skipped=validate.optional_integer(line, "skipped"),
        self_cpu_percent=validate.optional_number(line, "self_cpu_percent"),
        probe_ns_per_io=validate.optional_number(line, "probe_ns_per_io"),
        probe_cpu_percent=validate.optional_number(line, "probe_cpu_percent"),
        recording=validate.sentence(line, "recording"),
        notice=validate.sentence(line, "notice"),
    )
