"""JSON objects back into values: every string cleaned, every number within bounds, RecordingError on nonsense.

Unknown keys are ignored in a window and kept in a header's `extra`; a newer major version is refused in one sentence.
Knows no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from latmon.errors import RecordingError
from latmon.histogram import MAX_US, Histogram
from latmon.mark import NO_SETTINGS, Mark, Settings
from latmon.model import Completed, Device, Flow, Frame, Health, Limit, Origin, Outstanding, Series
from latmon.recording import checks, columns, deep_decode, outstanding_decode, taskqs
from latmon.recording.checks import Json
from latmon.recording.lines import FORMAT, LATE, SCALE, End, Gap, encode_origin
from latmon.recording.pieces import LABELS, flow, histogram, is_known, measured, missing, once, series

_OURS = frozenset(encode_origin(Origin("", "", "", ""))) | {"hz", "devices", "untraced", "settings"}
_COUNTERS = (
    *("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_frames", "suppressed"),
    "dropped_records",
)

_HEALTHY = Health()


def decode_origin(line: Json) -> Origin:
    """The `header` line."""
    check_format(line)
    clock = checks.mapping(line, "clock")
    return Origin(
        backend=checks.sentence(line, "backend"),
        host=checks.sentence(line, "host"),
        kernel=checks.sentence(line, "kernel"),
        latmon=checks.sentence(line, "latmon"),
        tool=checks.sentence(line, "tool"),
        tier=checks.sentence(line, "tier"),
        interval_us=checks.integer(line, "window", 1_000_000, low=1),
        start_wall=checks.wall(clock, "wall"),
        start_mono_us=checks.integer(clock, "mono"),
        boot_id=checks.sentence(line, "boot_id"),
        hz=checks.optional_integer(line, "hz"),
        measured=measured(checks.mapping(line, "measured")),
        absent=missing(line, "absent"),
        probes_missing=missing(line, "probes_missing"),
        untraced=missing(line, "untraced"),
        latency_from=checks.sentence(line, "latency_from"),
        reason=checks.sentence(line, "reason"),
        settings=_settings(line, "settings"),
        extra=MappingProxyType(checks.cleaned({k: v for k, v in line.items() if k not in _OURS})),
    )


def decode_devices(line: Json) -> tuple[Device, ...]:
    """The devices of a header or window line."""
    return tuple(_device(one) for one in checks.objects(line, "devices"))


def decode_frame(line: Json, *, booleans: bool = True) -> Frame:
    """The `window` line; `booleans`: whether there may be a true or a false in it, which no number may be."""
    gap = checks.sentence(line, "gap")
    return Frame(
        seq=checks.integer(line, "seq"),
        wall=checks.wall(line, "t"),
        mono_us=checks.integer(line, "mono"),
        dt_us=checks.span(line, "dt"),
        histograms=_histograms(line, booleans=booleans),
        seen=_completed(line, "seen"),
        kernel=_completed(line, "kernel"),
        outstanding=once(
            [(checks.label(name, "outstanding"), _outstanding(now)) for name, now in _entries(line, "outstanding")]
        ),
        devices=decode_devices(line),
        removed=checks.labels(line, "removed"),
        health=_health(checks.mapping(line, "health")),
        marks=tuple(decode_mark(one) for one in checks.objects(line, "marks")),
        gap="" if gap == LATE else gap,
        late=LATE in (gap, checks.sentence(line, "late")),
        above=deep_decode.above(line),
        outliers=deep_decode.outliers(line),
        thresholds_us=deep_decode.thresholds(line),
        traced=deep_decode.traced(line),
        handlers=deep_decode.handlers(line),
        softirqs=deep_decode.softirqs(line),
        wakeups=deep_decode.wakeups(line),
        taskqs=taskqs.taskqs(line),
        depths=outstanding_decode.depths(line),
        in_flight=outstanding_decode.in_flight(line),
        issues=outstanding_decode.issues(line),
    )


def decode_gap(line: Json) -> Gap:
    """The `gap` line."""
    return Gap(
        checks.sentence(line, "reason"),
        max(0.0, checks.number(line, "s")),
        checks.integer(line, "mono"),
        checks.wall(line, "t"),
    )


def decode_mark(line: Json) -> Mark:
    """The `mark` line."""
    return Mark(
        checks.sentence(line, "text"),
        checks.integer(line, "mono"),
        checks.wall(line, "t"),
        _settings(line, "changed") if "changed" in line else None,
    )


def decode_end(line: Json) -> End:
    """The `end` line."""
    return End(checks.sentence(line, "reason"), checks.integer(line, "windows"))


def check_format(line: Json) -> None:
    """RecordingError unless this header's version and scale are ones that we read."""
    if line.get("type") != "header":
        raise RecordingError("it does not begin with a latmon header")
    version = checks.items(line, "format")
    if len(version) < len(FORMAT) or not all(type(one) is int and 0 <= one < MAX_US for one in version[: len(FORMAT)]):
        raise RecordingError("its header names no format version")
    if version[0] != FORMAT[0]:
        raise RecordingError(
            f"its format is {version[0]}.{version[1]} and this latmon reads {FORMAT[0]}.x: use a newer latmon"
        )
    scale = checks.mapping(line, "scale")
    if any(scale.get(key) != value for key, value in SCALE.items()):
        raise RecordingError("its histograms have a scale that this latmon doesn't know: use a newer latmon")


def _histograms(line: Json, *, booleans: bool) -> Mapping[Series, Histogram]:
    """All at once where they are as ours are, else one by one."""
    at_once = columns.histograms(line, booleans=booleans)
    if at_once is not None:
        return at_once
    found = once([(series(one), histogram(one)) for one in checks.objects(line, "h") if is_known(one)])
    columns.remember(found.keys())
    return found


def _completed(line: Json, key: str) -> Mapping[Flow, Completed]:
    at_once = columns.completed(line, key)
    if at_once is not None:
        return at_once
    found = once([(flow(one), _count(one)) for one in checks.objects(line, key) if is_known(one)])
    columns.remember(found.keys())
    return found


def _count(line: Json) -> Completed:
    return Completed(
        checks.integer(line, "n"),
        checks.integer(line, "bytes"),
        checks.optional_integer(line, "us"),
        checks.optional_integer(line, "queue"),
    )


def _settings(line: Json, key: str) -> Settings:
    """Section -> name -> text; empty where the line has none."""
    sections = checks.mapping(line, key)
    if not sections:
        return NO_SETTINGS
    return MappingProxyType(
        {
            checks.label(section, key): MappingProxyType(
                {checks.label(name, key): checks.sentence(named, name) for name in named}
            )
            for section in sections
            if (named := checks.mapping(sections, section)) is not None
        }
    )


def _outstanding(value: Any) -> Outstanding:
    if not isinstance(value, list) or len(value) < LABELS:
        raise RecordingError("'outstanding' is not a pair")
    in_driver, queued, *_ = value
    if in_driver is not None:
        checks.whole(in_driver, "outstanding")
    if queued is not None:
        checks.whole(queued, "outstanding")
    return Outstanding(in_driver, queued)


def _entries(line: Json, key: str) -> list[tuple[str, Any]]:
    return list(checks.mapping(line, key).items())


def _device(line: Json) -> Device:
    timed = line.get("timed", True)
    if not isinstance(timed, bool):
        raise RecordingError("'timed' is neither true nor false")
    return Device(
        name=checks.label(line.get("name"), "name"),
        major=checks.integer(line, "major"),
        minor=checks.integer(line, "minor"),
        kind=checks.label(line.get("kind", "disk"), "kind"),
        driver=checks.sentence(line, "driver"),
        controller=checks.sentence(line, "controller"),
        model=checks.sentence(line, "model"),
        serial=checks.sentence(line, "serial"),
        members=checks.labels(line, "members"),
        timed=timed,
        label=checks.sentence(line, "label"),
        limits=tuple(_limit(one) for one in checks.items(line, "limits")),
    )


def _limit(value: Any) -> Limit:
    if not isinstance(value, list) or len(value) < len(Limit._fields):
        raise RecordingError("'limits' is not a name, a value and where it was read")
    name, told, source = value[: len(Limit._fields)]
    number = checks.whole(told, "limits") if isinstance(told, int) else checks.label(told, "limits")
    return Limit(checks.label(name, "limits"), number, checks.label(source, "limits"))


def _health(line: Json) -> Health:
    if not line:
        return _HEALTHY
    return Health(
        probes_attached=checks.integer(line, "probes_attached"),
        probes_wanted=checks.integer(line, "probes_wanted"),
        **{key: checks.integer(line, key) for key in _COUNTERS},
        skipped=checks.optional_integer(line, "skipped"),
        self_cpu_percent=checks.optional_number(line, "self_cpu_percent"),
        probe_ns_per_io=checks.optional_number(line, "probe_ns_per_io"),
        probe_cpu_percent=checks.optional_number(line, "probe_cpu_percent"),
        recording=checks.sentence(line, "recording"),
        notice=checks.sentence(line, "notice"),
    )
