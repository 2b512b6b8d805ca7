"""Metric families as text and as protobuf: read back by a decoder and a parser that latmon doesn't use."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from latmon.metrics.families import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    MetricSample,
    native_index,
    openmetrics,
    prometheus_text,
    protobuf,
)
from latmon.model.histogram import TOP, Histogram, bucket_bounds

EDGES_US = {native_index(bucket_bounds(index)[1]): index for index in range(1, TOP + 1)}
EVIL = 'sd"a\\\n\u0394'
LATENCIES = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=60)


def fields(message):
    """Yield (number, value) of a protobuf message: integers, eight bytes, or bytes."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = varint(message, at)
        elif wire == 1:
            value, at = struct.unpack_from("<d", message, at)[0], at + 8
        else:
            assert wire == 2
            size, at = varint(message, at)
            value, at = message[at : at + size], at + size
        yield number, value


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def signed(value):
    return value >> 1 if not value & 1 else -(value >> 1) - 1


def messages(data):
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield list(fields(data[at : at + size]))
        at += size


def buckets(histogram):
    """Index of schema 4 -> count, as the specification of native histograms reads spans and deltas."""
    buckets, index, count = {}, 0, 0
    deltas = b"".join(value for number, value in histogram if number == 13)
    at = 0
    for number, value in histogram:
        if number != 12:
            continue
        span = dict(fields(value))
        index += signed(span.get(1, 0))
        for _ in range(span.get(2, 0)):
            delta, at = varint(deltas, at)
            count += signed(delta)
            buckets[index] = count
            index += 1
    assert at == len(deltas)
    return buckets


def native(latencies):
    family = Family("x_seconds", HISTOGRAM, "help", (MetricSample({"device": EVIL}, Histogram.record(latencies)),))
    ((*_, (_, metric)),) = messages(protobuf([family]))
    return next(list(fields(value)) for number, value in fields(metric) if number == 7)


def test_no_two_buckets_are_sent_as_one():
    assert len(EDGES_US) == TOP


def test_an_edge_is_at_most_one_bucket_of_schema_4_away():
    for index, bucket in EDGES_US.items():
        high_us = bucket_bounds(bucket)[1]
        assert 2 ** (index / 16) * 1e6 / high_us * (1 + 1e-9) >= 1
        assert 2 ** (index / 16) * 1e6 / high_us <= 2 ** (1 / 16)


@given(LATENCIES)
def test_counts_are_read_back_exactly(latencies):
    one = native(latencies)
    by_number = dict(one)
    found = {EDGES_US[index]: n for index, n in buckets(one).items() if n}
    found |= {0: by_number[7]} if by_number[7] else {}
    assert tuple(sorted(found.items())) == Histogram.record(latencies).buckets
    assert by_number[1] == len(latencies)
    assert by_number[2] == pytest.approx(sum(latencies) / 1e6)
    assert signed(by_number[5]) == 4


def test_a_sum_that_is_not_known_is_that_of_the_middles_of_buckets():
    """0 would be a mean of 0, in Prometheus' histogram_avg and in the OpenTelemetry Collector."""
    latencies = [5, 90, 700, 25_000, 25_100]
    measured = Histogram.record(latencies)
    family = Family("x_seconds", HISTOGRAM, "", (MetricSample({}, replace(measured, sum=None)),))
    ((*_, (_, metric)),) = messages(protobuf([family]))
    native_sum = dict(fields(dict(fields(metric))[7]))[2]
    assert native_sum == pytest.approx(sum(latencies) / 1e6, rel=0.07)
    for text in (prometheus_text([family], (128,)), openmetrics([family], (128,))):
        (line,) = [one for one in text if one.startswith("x_seconds_sum")]
        assert float(line.split()[-1]) == pytest.approx(native_sum)


def test_a_histogram_without_spans_is_still_a_native_one():
    assert {number for number, _ in native([0, 0])} >= {7, 12}


@given(LATENCIES)
def test_text_has_counts_below_each_edge(latencies):
    bounds = (128, 2048, 2**21)
    family = Family("x_seconds", HISTOGRAM, "a\\b\nc", (MetricSample({"device": EVIL}, Histogram.record(latencies)),))
    text = "".join(f"{line}\n" for line in prometheus_text([family], bounds))
    (parsed,) = text_string_to_metric_families(text)
    assert parsed.type == "histogram"
    found = {(sample.name, sample.labels.get("le")): sample.value for sample in parsed.samples}
    assert all(sample.labels["device"] == EVIL for sample in parsed.samples)
    for bound in bounds:
        assert found["x_seconds_bucket", f"{bound / 1e6:.6f}"] == sum(us < bound for us in latencies)
    assert found["x_seconds_bucket", "+Inf"] == found["x_seconds_count", None] == len(latencies)


def test_counters_and_gauges():
    families = (
        Family("x_ios", COUNTER, "counted", (MetricSample({"device": "sda"}, 7),)),
        Family("x_now", GAUGE, "now", (MetricSample({}, 0.5),)),
    )
    text = "".join(f"{line}\n" for line in prometheus_text(families, ()))
    assert 'x_ios_total{device="sda"} 7' in text
    actual_messages = list(messages(protobuf(families)))
    assert [(dict(message)[1], dict(message).get(3)) for message in actual_messages] == [
        (b"x_ios_total", 0),
        (b"x_now", 1),
    ]
    assert dict(fields(dict(fields(dict(actual_messages[0])[4]))[3]))[1] == 7
