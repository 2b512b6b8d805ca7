"""JSON objects back into values: every string cleaned, every number within bounds, RecordingError on nonsense.

Unknown keys are ignored in a window and kept in a header's `extra`; a newer major version is refused in one sentence.
Knows no file.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeVar

from latmon.errors import RecordingError
from latmon.histogram import BITS, MAX_US, Histogram, bucket_index
from latmon.model import Completed, Device, Flow, Frame, Health, Missing, Origin, Outstanding, Series
from latmon.recording import checks
from latmon.recording.checks import Json
from latmon.recording.lines import FORMAT, SCALE, End, Gap, Mark, encode_origin

MAX_BITS = 5
"""895 buckets; k = 6 would be beyond 1024."""
_TOPS = {bits: bucket_index(MAX_US, bits) for bits in range(MAX_BITS + 1)}
_LABELS = 2
_OURS = frozenset(encode_origin(Origin("", "", "", ""))) | {"hz", "devices"}
_COUNTERS = ("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_frames")

Key = TypeVar("Key")
Value = TypeVar("Value")


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
        measured=_measured(checks.mapping(line, "measured")),
        absent=_missing(line, "absent"),
        probes_missing=_missing(line, "probes_missing"),
        latency_from=checks.sentence(line, "latency_from"),
        reason=checks.sentence(line, "reason"),
        extra=MappingProxyType(checks.cleaned({k: v for k, v in line.items() if k not in _OURS})),
    )


def decode_devices(line: Json) -> tuple[Device, ...]:
    """The devices of a header or window line."""
    return tuple(_device(one) for one in checks.objects(line, "devices"))


def decode_frame(line: Json) -> Frame:
    """The `window` line."""
    return Frame(
        seq=checks.integer(line, "seq"),
        wall=checks.wall(line, "t"),
        mono_us=checks.integer(line, "mono"),
        dt_us=checks.integer(line, "dt"),
        histograms=_once([(_series(one), _histogram(one)) for one in checks.objects(line, "h") if _is_known(one)]),
        seen=_completed(line, "seen"),
        kernel=_completed(line, "kernel"),
        outstanding=_once(
            [(checks.label(name, "outstanding"), _outstanding(now)) for name, now in _entries(line, "outstanding")]
        ),
        devices=decode_devices(line),
        removed=checks.labels(line, "removed"),
        health=_health(checks.mapping(line, "health")),
        gap=checks.sentence(line, "gap"),
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
    return Mark(checks.sentence(line, "text"), checks.integer(line, "mono"), checks.wall(line, "t"))


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


def _histogram(line: Json) -> Histogram:
    bits = checks.integer(line, "k", BITS, high=MAX_BITS)
    flat = checks.items(line, "b")
    if len(flat) % 2 or not {*map(type, flat)} <= {int}:
        raise RecordingError("'b' is not a list of bucket indices and counts")
    indices, counts = flat[::2], flat[1::2]
    if indices and (indices[0] < 0 or indices[-1] > _TOPS[bits] or sorted(set(indices)) != indices):
        raise RecordingError("'b' has bucket indices out of order or out of range")
    if counts and (min(counts) < 1 or sum(counts) > checks.MAX_COUNT):
        raise RecordingError("'b' has a count below 1 or beyond all measure")
    if checks.integer(line, "n", sum(counts)) != sum(counts):
        raise RecordingError("'n' is not the sum of the counts in 'b'")
    total, maximum = checks.optional_integer(line, "sum"), checks.optional_integer(line, "max")
    return Histogram(tuple(zip(indices, counts, strict=True)), total, maximum, bits)


def _series(line: Json) -> Series:
    device, op = _flow(line)
    return Series(device, op, checks.label(line.get("m"), "m"))


def _flow(line: Json) -> Flow:
    found = checks.labels(line, "l")
    if len(found) != _LABELS:
        raise RecordingError("'l' is not a device and an op")
    return Flow(*found)


def _is_known(line: Json) -> bool:
    """False for a series with more labels than ours: a later minor version's, not to be mixed up with one of ours."""
    found = line.get("l")
    return not (isinstance(found, list) and len(found) > _LABELS)


def _completed(line: Json, key: str) -> MappingProxyType[Flow, Completed]:
    return _once([(_flow(one), _count(one)) for one in checks.objects(line, key) if _is_known(one)])


def _count(line: Json) -> Completed:
    return Completed(
        checks.integer(line, "n"),
        checks.integer(line, "bytes"),
        checks.optional_integer(line, "us"),
    )


def _outstanding(value: Any) -> Outstanding:
    if not isinstance(value, list) or len(value) < _LABELS:
        raise RecordingError("'outstanding' is not a pair")
    in_driver, queued = (None if one is None else checks.whole(one, "outstanding") for one in value[:_LABELS])
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
    )


def _health(line: Json) -> Health:
    return Health(
        probes_attached=checks.integer(line, "probes_attached"),
        probes_wanted=checks.integer(line, "probes_wanted"),
        **{key: checks.integer(line, key) for key in _COUNTERS},
        skipped=checks.optional_integer(line, "skipped"),
        self_cpu_percent=checks.optional_number(line, "self_cpu_percent"),
        probe_ns_per_io=checks.optional_number(line, "probe_ns_per_io"),
        recording=checks.sentence(line, "recording"),
        notice=checks.sentence(line, "notice"),
    )


def _measured(line: Json) -> MappingProxyType[str, tuple[str, ...]]:
    return _once([(checks.label(stage, "measured"), checks.labels(line, stage)) for stage in line])


def _missing(line: Json, key: str) -> tuple[Missing, ...]:
    found = checks.objects(line, key)
    return tuple(Missing(checks.label(one.get("name"), key), checks.sentence(one, "reason")) for one in found)


def _once(pairs: list[tuple[Key, Value]]) -> MappingProxyType[Key, Value]:
    """A mapping of `pairs`; RecordingError when two are about the same thing, because one of them would vanish."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RecordingError("a window names one thing twice")
    return MappingProxyType(found)
