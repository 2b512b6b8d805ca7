"""Metric families and their three forms: OpenMetrics 1.0, Prometheus' text 0.0.4, and protobuf with native histograms.

A histogram of schema 4 has 16 buckets per octave of seconds (factor 2^(1/16) = 1.044); latmon's have 8 linear parts per
octave of microseconds. A bucket is sent as the one of schema 4 that its upper edge lies in: never two of them as the
same one, so counts can be read back exactly, and a quantile is at most 4.4 % off latmon's own.

Sources: Prometheus' exposition formats, io/prometheus/client/metrics.proto and the specification of native histograms.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from latmon.model.histogram import Histogram, bucket_bounds

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
        yield from _samples(family, edges, count_needs_sum=True)
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


_Edges = tuple[tuple[int, str], ...]
"""Edge in us, text of the label."""


def _edges(bounds_us: Iterable[int]) -> _Edges:
    return tuple((bound, f"{bound / 1e6:.6f}") for bound in bounds_us)


def _samples(family: Family, edges: _Edges, *, count_needs_sum: bool = False) -> Iterator[str]:
    name = family.exposed
    for one in family.samples:
        if not isinstance(one.value, Histogram):
            yield _line(name, one.labels, one.value)
            continue
        yield from _buckets(name, one.labels, one.value, edges)
        if one.value.sum is not None:
            yield _line(f"{name}_sum", one.labels, one.value.sum / 1e6)
        if one.value.sum is not None or not count_needs_sum:  # OpenMetrics has either both or none
            yield _line(f"{name}_count", one.labels, one.value.count)


def _buckets(name: str, labels: Labels, one: Histogram, edges: _Edges) -> Iterator[str]:
    buckets = iter((bucket_bounds(index, one.bits)[1], n) for index, n in one.buckets)
    at, seen = next(buckets, None), 0
    for bound, text in edges:
        while at is not None and at[0] <= bound:
            seen += at[1]
            at = next(buckets, None)
        yield _line(f"{name}_bucket", {**labels, "le": text}, seen)
    yield _line(f"{name}_bucket", {**labels, "le": "+Inf"}, one.count)


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


_KINDS = {COUNTER: (0, 3), GAUGE: (1, 2), HISTOGRAM: (4, 7)}
"""Kind -> value of MetricType, number of the field in Metric."""
_FIXED64, _DELIMITED = 1, 2
"""Wire types; 0 is a varint."""


def _message(family: Family) -> bytes:
    kind, field = _KINDS[family.kind]
    out = bytearray(_text(1, family.exposed) + _text(2, family.help) + _number(3, kind))
    for one in family.samples:
        value = _native(one.value) if isinstance(one.value, Histogram) else _double(1, one.value)
        labels = b"".join(_nested(1, _text(1, name) + _text(2, text)) for name, text in one.labels.items())
        out += _nested(4, labels + _nested(field, value))
    return bytes(out)


def _native(one: Histogram) -> bytes:
    """Encode a histogram: its zero bucket has latencies below 1 us.

    A sum that is not known is 0, which no latencies above the zero bucket have. NaN would be the sum of latencies that
    are NaN, of which Prometheus 3 takes some for beyond all buckets: its quantiles of such a histogram are wrong.
    """
    zero, counts = 0, dict[int, int]()
    for index, n in one.buckets:
        high = bucket_bounds(index, one.bits)[1]
        if high == 1:
            zero = n
        else:
            counts[native_index(high)] = n
    out = _number(1, one.count) + _double(2, 0.0 if one.sum is None else one.sum / 1e6)
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
