"""Metric families of a live host, and their three forms: OpenMetrics 1.0, Prometheus' text 0.0.4, protobuf.

Protobuf has native histograms. One of schema 4 has 16 buckets per octave of seconds (factor 2^(1/16) = 1.044); latmon's
have 8 linear parts per octave of microseconds. A bucket is sent as the one of schema 4 that its upper edge lies in:
never two of them as the same one, so counts can be read back exactly, and a quantile is at most 4.4 % off latmon's own.

The metrics are sums since the exporter's start, and the state at the end of the last frame. Their labels are devices,
ops, stages and rules: never threads, files or sectors, whose number has no bound.

Sources: Prometheus' exposition formats, io/prometheus/client/metrics.proto and the specification of native histograms.
"""

from __future__ import annotations

import math
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from latmon import __version__
from latmon.aggregate.accumulator import COUNTERS
from latmon.aggregate.table_sum import Sum
from latmon.analysis.limits import ceiling
from latmon.findings.engine import RuleEngine
from latmon.findings.rule import Settings
from latmon.model.coverage import NONE
from latmon.model.frame import Device, Frame, Origin, Series
from latmon.model.histogram import Histogram, bucket_bounds
from latmon.model.measurements import ABOVE, ERRORS, FILE_SYSTEM_ERRORS, KERNEL, LATENCIES, TRACED_LATENCIES
from latmon.model.packed_frame import COVERAGE, PackedFrame, pack_table
from latmon.support.process import own_cost

Labels = Mapping[str, str]
SCHEMA = 4
_PER_OCTAVE = 1 << SCHEMA
_MAX_EMPTY = 2
"""Empty buckets inside of a span: as many as cost less than a span of their own."""
TEXT = "text/plain; version=0.0.4; charset=utf-8"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
BOUNDS_US = tuple(2 ** (2 * step + 7) for step in range(8))
"""Edges of the text form's histograms: 128 us, 512 us, 2 ms, 8 ms, 33 ms, 131 ms, 524 ms, 2.1 s."""
INCLUDES = "A stage's label includes names the stages whose time is in it: hba with completion is issue to completion."
Includes = Callable[[str], Mapping[str, tuple[str, ...]]]
"""Device -> stage -> the stages that it includes."""
_TOTAL = "total"
_MAX_FINDINGS = 100
"""Findings that are shown at the same time, the most urgent ones."""
_Edges = tuple[tuple[int, str], ...]
"""Edge in us, text of the label."""
_KINDS = {COUNTER: (0, 3), GAUGE: (1, 2), HISTOGRAM: (4, 7)}
"""Kind -> value of MetricType, number of the field in Metric."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """A value, or the latencies of a histogram, with its labels."""

    labels: Labels
    value: float | Histogram


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name; `kind` is COUNTER, GAUGE or HISTOGRAM. A counter's name has no `_total` here."""

    name: str
    kind: str
    help: str
    samples: tuple[MetricSample, ...]
    unit: str = ""

    @property
    def exposed(self) -> str:
        """Return the name of the samples."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name


def openmetrics(families: Iterable[Family], bounds_us: Iterable[int]) -> Iterator[str]:
    """Yield the lines of OpenMetrics 1.0; `bounds_us`: as of `prometheus_text`."""
    edges = _edges(bounds_us)
    for family in families:
        yield f"# TYPE {family.name} {family.kind}"
        if family.unit:
            yield f"# UNIT {family.name} {family.unit}"
        yield f"# HELP {family.name} {family.help.translate(_ESCAPES)}"
        yield from _samples(family, edges)
    yield "# EOF"


def prometheus_text(families: Iterable[Family], bounds_us: Iterable[int]) -> Iterator[str]:
    """Yield the lines of Prometheus' text format.

    `bounds_us` are the edges of the histograms in microseconds, each the edge of a bucket. latmon counts whole
    microseconds, rounded down: fewer than 64 of them is below 0.000064 s, so a bound is exact.
    """
    edges = _edges(bounds_us)
    for family in families:
        yield f"# HELP {family.exposed} {family.help.translate(_HELP_ESCAPES)}"
        yield f"# TYPE {family.exposed} {family.kind}"
        yield from _samples(family, edges)


def _edges(bounds_us: Iterable[int]) -> _Edges:
    return tuple((bound, f"{bound / 1e6:.6f}") for bound in bounds_us)


def _samples(family: Family, edges: _Edges) -> Iterator[str]:
    name = family.exposed
    for metric_sample in family.samples:
        if not isinstance(metric_sample.value, Histogram):
            yield _line(name, metric_sample.labels, metric_sample.value)
            continue
        yield from _buckets(name, metric_sample.labels, metric_sample.value, edges)
        # The OpenTelemetry Collector takes a missing sum for 0, and OpenMetrics has none without the other.
        yield _line(f"{name}_sum", metric_sample.labels, metric_sample.value.nearest_sum / 1e6)
        yield _line(f"{name}_count", metric_sample.labels, metric_sample.value.count)


def _buckets(name: str, labels: Labels, histogram: Histogram, edges: _Edges) -> Iterator[str]:
    buckets = iter((bucket_bounds(index, histogram.bits)[1], n) for index, n in histogram.buckets)
    at, seen = next(buckets, None), 0
    for bound, text in edges:
        while at is not None and at[0] <= bound:
            seen += at[1]
            at = next(buckets, None)
        yield _line(f"{name}_bucket", {**labels, "le": text}, seen)
    yield _line(f"{name}_bucket", {**labels, "le": "+Inf"}, histogram.count)


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}" if inside else f"{name} {value}"


@lru_cache(4096)
def native_index(high_us: int) -> int:
    """Return the index of schema 4 of the bucket (2^((i-1)/16), 2^(i/16)] in seconds that contains an edge."""
    return math.ceil(_PER_OCTAVE * math.log2(high_us / 1e6))


def protobuf(families: Iterable[Family]) -> bytes:
    """Return length-delimited MetricFamily messages; histograms are native ones, which have no classic buckets."""
    out = bytearray()
    for family in families:
        message = _message(family)
        out += _varint(len(message)) + message
    return bytes(out)


_FIXED64, _DELIMITED = 1, 2
"""Wire types; 0 is a varint."""


def _message(family: Family) -> bytes:
    kind, field = _KINDS[family.kind]
    out = bytearray(_text(1, family.exposed) + _text(2, family.help) + _number(3, kind))
    for metric_sample in family.samples:
        value = (
            _native(metric_sample.value)
            if isinstance(metric_sample.value, Histogram)
            else _double(1, metric_sample.value)
        )
        labels = b"".join(_nested(1, _text(1, name) + _text(2, text)) for name, text in metric_sample.labels.items())
        out += _nested(4, labels + _nested(field, value))
    return bytes(out)


def _native(histogram: Histogram) -> bytes:
    """Encode a histogram: its zero bucket has latencies below 1 us.

    The format has no sum that is not known: 0 would be a mean of 0. NaN would be the sum of latencies that are NaN, of
    which Prometheus 3 takes some for beyond all buckets: its quantiles of such a histogram are wrong.
    """
    zero, counts = 0, dict[int, int]()
    for index, n in histogram.buckets:
        high = bucket_bounds(index, histogram.bits)[1]
        if high == 1:
            zero = n
        else:
            counts[native_index(high)] = n
    out = _number(1, histogram.count) + _double(2, histogram.nearest_sum / 1e6)
    out += _number(5, _zigzag(SCHEMA)) + _double(6, 1e-6) + _number(7, zero)
    spans, deltas = _spans(counts)
    out += b"".join(_nested(12, _number(1, _zigzag(offset)) + _number(2, length)) for offset, length in spans)
    if not spans:  # without any span it would pass for a classic histogram
        out += _nested(12, _number(1, 0) + _number(2, 0))
    return out + _nested(13, b"".join(_varint(_zigzag(delta)) for delta in deltas))


def _spans(counts: Mapping[int, int]) -> tuple[list[tuple[int, int]], list[int]]:
    """Return runs of buckets as (distance from the end of the one before, length), and the counts' differences."""
    spans: list[tuple[int, int]] = []
    deltas: list[int] = []
    last, end = 0, 0
    for index in sorted(counts):
        gap = index - end
        if spans and gap <= _MAX_EMPTY:
            for _ in range(gap):
                deltas.append(-last)
                last = 0
            spans[-1] = spans[-1][0], spans[-1][1] + gap + 1
        else:
            spans.append((gap, 1))
        deltas.append(counts[index] - last)
        last, end = counts[index], index + 1
    return spans, deltas


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:  # noqa: PLR2004  seven bits per byte
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else ~(value << 1)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def _nested(field: int, message: bytes) -> bytes:
    return _varint(field << 3 | _DELIMITED) + _varint(len(message)) + message


def _text(field: int, text: str) -> bytes:
    return _nested(field, text.encode("utf-8", "backslashreplace"))


def latency(series: Series, histogram: Histogram, includes_of: Includes) -> MetricSample:
    """Return a series of latencies, with a label for the stages that it includes."""
    inside = ",".join(includes_of(series.device).get(series.stage, ()))
    return MetricSample(series._asdict() | ({"includes": inside} if inside else {}), histogram)


def in_flight(last: Frame) -> tuple[MetricSample, ...]:
    """Return the I/Os in flight at the end of a window, in the driver and in the queue, where they are known."""
    return tuple(
        MetricSample({"device": device, "where": where}, n)
        for device, now in sorted(last.outstanding.items())
        for where, n in (("driver", now.in_driver), ("queue", now.queued))
        if n is not None
    )


class HostMetrics:
    """The metrics of one capture. `add` and `families` may be called in different threads."""

    def __init__(self, origin: Origin, settings: Settings, *, stages: bool = False) -> None:
        """Start at 0. `settings` are those of the rules; without `stages` only total latencies are counted."""
        self._origin, self._stages = origin, stages
        self._engine = RuleEngine(origin, (), settings)
        wanted = {} if stages else {LATENCIES: _is_total}
        self._sums = Sum((LATENCIES, KERNEL, COVERAGE, ERRORS, FILE_SYSTEM_ERRORS), peaks=False, wanted=wanted)
        self._traced = Sum((TRACED_LATENCIES,), peaks=False)
        self._outliers = Counter[str]()
        self._counters = Counter[str]()
        self._missing_us = Counter[str]()
        self._measured_us = 0
        self._devices: dict[str, Device] = {}
        self._removed: set[str] = set()
        self._last: Frame | None = None
        self._lock = threading.Lock()

    def add(self, frame: Frame) -> None:
        """Add the next frame, and evaluate the rules when a block ends."""
        with self._lock:
            self._count(frame)
        self._engine.take(frame)

    def _count(self, frame: Frame) -> None:
        if frame.gap:
            self._missing_us[frame.gap] += frame.dt_us
        self._forget(frame)
        self._devices.update((device.name, device) for device in frame.devices)
        self._sums.add_frame(frame)
        if self._stages:
            # A counter can't go back to a coarser sample: each traced I/O counts for all that it stands for.
            weighed = TRACED_LATENCIES.scale_rows(frame[TRACED_LATENCIES], max(frame.traced.one_in, 1))
            self._traced.add(PackedFrame({TRACED_LATENCIES: pack_table(TRACED_LATENCIES, weighed)}))
        for flow, n in frame[ABOVE].items():
            self._outliers[flow.device] += n
        for name in COUNTERS:
            self._counters[name] += getattr(frame.health, name)
        self._measured_us += frame.dt_us
        self._last = frame

    def _forget(self, frame: Frame) -> None:
        """Drop the sums of removed devices: one that gets such a name later begins at 0.

        They are dropped once more when it does: I/Os of the removed device may have been counted after its removal.
        """
        added = {device.name for device in frame.devices}
        for name in frame.removed:
            self._devices.pop(name, None)
        gone = (self._removed & added).union(frame.removed)
        self._removed = (self._removed | gone) - added
        if not gone:
            return
        self._sums.forget(gone)
        self._traced.forget(gone)
        for name in gone:
            self._outliers.pop(name, None)

    def families(self) -> tuple[Family, ...]:
        """Return all metrics as they are now; devices that are gone have none."""
        with self._lock:
            return tuple(family for family in self._all() if family.samples)

    def _all(self) -> Iterator[Family]:
        origin = self._origin
        about = {"version": __version__, "backend": origin.backend, "tool": origin.tool, "tier": origin.tier}
        about |= {"kernel": origin.kernel, "latency_from": origin.latency_from}
        text = "Tool and tier of this host's measurement, and the begin of latencies."
        yield Family("latmon_build_info", GAUGE, text, _one(about, 1))
        text = f"Latency of I/Os by device, op and stage. {INCLUDES}"
        yield self._latencies("latmon_io_latency", text, self._sums[LATENCIES], lambda _: origin.measured)
        text = f"Latency of the traced I/Os, by what they stand for: never add them to the others. {INCLUDES}"
        includes = self._last.traced.includes_of if self._last else lambda _: {}
        yield self._latencies("latmon_traced_latency", text, self._traced[TRACED_LATENCIES], includes)
        yield from self._of_devices()
        yield from self._of_capture()
        yield self._findings()

    def _latencies(self, name: str, text: str, histograms: Mapping[Series, Histogram], includes: Includes) -> Family:
        sorted_series = sorted(series for series in histograms if series.device in self._devices)
        samples = tuple(latency(series, histograms[series], includes) for series in sorted_series)
        return Family(f"{name}_seconds", HISTOGRAM, text, samples, "seconds")

    def _of_devices(self) -> Iterator[Family]:
        if self._last is None:
            return
        about = tuple(
            MetricSample(
                {
                    "device": device.name,
                    "model": device.model,
                    "driver": device.driver,
                    "controller": device.controller,
                },
                1,
            )
            for _, device in sorted(self._devices.items())
        )
        text = "Model, driver and controller of a device: equal models are peers, on all hosts."
        yield Family("latmon_device_info", GAUGE, text, about)
        now = tuple(
            metric_sample for metric_sample in in_flight(self._last) if metric_sample.labels["device"] in self._devices
        )
        yield Family("latmon_outstanding_ios", GAUGE, "I/Os in flight at the end of the last interval.", now)
        bounds = {name: ceiling(device.limits) for name, device in sorted(self._devices.items())}
        limits = tuple(
            MetricSample({"device": name}, int(limit.value)) for name, limit in bounds.items() if limit is not None
        )
        yield Family("latmon_outstanding_limit", GAUGE, "Lowest limit of the I/Os that a driver has at once.", limits)
        compared = sorted(self._last.thresholds_us.keys() & self._devices.keys())
        above = tuple(MetricSample({"device": name}, self._outliers[name]) for name in compared)
        yield Family("latmon_outliers", COUNTER, "I/Os above their device's threshold.", above)
        failed = tuple(
            MetricSample(row._asdict(), ios)
            for row, ios in sorted(self._sums[ERRORS].items())
            if row.device in self._devices
        )
        yield Family("latmon_failed_ios", COUNTER, "I/Os that failed; no latency has them.", failed)
        metric_samples = tuple(
            MetricSample(row._asdict(), events)
            for row, events in sorted(self._sums[FILE_SYSTEM_ERRORS].items())
            if row.device in self._devices
        )
        text = "Errors that file systems found on the device, also in what it returned with success."
        yield Family("latmon_file_system_errors", COUNTER, text, metric_samples)
        kernel = Counter[str]()
        for flow, done in self._sums[KERNEL].items():
            if flow.device in self._devices:
                kernel[flow.device] += done.count
        samples = tuple(MetricSample({"device": name}, n) for name, n in sorted(kernel.items()))
        text = "I/Os completed, by the kernel's own counters."
        yield Family("latmon_kernel_completed_ios", COUNTER, text, samples)
        counted = tuple(
            MetricSample({"device": name}, self._sums[COVERAGE].get(name, NONE).seen) for name in sorted(kernel)
        )
        text = "I/Os completed, by the probe: coverage is its rate over that of the kernel's own counters."
        yield Family("latmon_probe_completed_ios", COUNTER, text, counted)

    def _of_capture(self) -> Iterator[Family]:
        for name in COUNTERS:
            text = f"Total since the start: {name.replace('_', ' ')}."
            yield Family(f"latmon_{name}", COUNTER, text, _one({}, self._counters[name]))
        missing = tuple(MetricSample({"reason": why}, us / 1e6) for why, us in sorted(self._missing_us.items()))
        text = "Time without a complete measurement, by reason."
        yield Family("latmon_missing_seconds", COUNTER, text, missing, "seconds")
        measured = _one({}, self._measured_us / 1e6)
        yield Family("latmon_measured_seconds", COUNTER, "Sum of the intervals' lengths.", measured, "seconds")
        if self._last is not None:
            ended = _one({}, self._last.wall)
            yield Family("latmon_last_interval_end_seconds", GAUGE, "End of the last interval.", ended, "seconds")
        cpu_s, resident = own_cost()
        whose = "of the exporter, its collector and its probe tool; of the exporter alone without Linux's /proc."
        text = f"CPU time {whose}"
        yield Family("latmon_cpu_seconds", COUNTER, text, _one({}, cpu_s), "seconds")
        if resident is not None:
            text = f"Memory {whose}"
            yield Family("latmon_resident_memory_bytes", GAUGE, text, _one({}, resident), "bytes")

    def _findings(self) -> Family:
        findings = self._engine.current[:_MAX_FINDINGS]
        keys = {(finding.id, finding.device): finding.severity for finding in reversed(findings)}
        samples = tuple(
            MetricSample({"rule": rule, "device": device, "severity": severity}, 1)
            for (rule, device), severity in sorted(keys.items())
        )
        return Family("latmon_finding", GAUGE, "1 while a finding holds.", samples)


def _one(labels: Mapping[str, str], value: float) -> tuple[MetricSample, ...]:
    return (MetricSample(labels, value),)


def _is_total(series: Series) -> bool:
    return series.stage == _TOTAL
