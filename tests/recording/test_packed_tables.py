"""Histograms and counts of a window: what is remembered of their names, their stages, and tables' scales."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from latmon.aggregate.histogram_sum import HistogramSums
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import Histogram, merge
from latmon.model.measurements import LATENCIES
from latmon.model.packed import Packed
from latmon.model.packed_frame import PackedFrame, PackedTable, Pressed
from latmon.recording import codec, packed_tables
from latmon.recording.codec import encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.packed_tables import slowest_us, totals_alone
from latmon.support.errors import RecordingError

STAGES = ("total", "hba")
ONE = Frame(
    1,
    1.0,
    2_000_000,
    1_000_000,
    {Series("sda", "read", stage): Histogram.of({1: 2, 7: 1, 40: 3}, 400, 300) for stage in STAGES},
    seen={Flow("sda", op): Completed(3, 4096, 7) for op in ("read", "write")},
)


def _line() -> dict:
    return json.loads(to_bytes(encode_frame(ONE)))


def test_a_window_has_totals_and_stages():
    frame = codec.decode_frame(_line())
    assert frame == ONE
    total, hba = (frame.histograms[Series("sda", "read", stage)] for stage in STAGES)
    assert total.quantile(0.5) == hba.quantile(0.5)


@pytest.mark.parametrize("known", ["total", "hba", "neither"])
def test_a_sum_that_only_some_rows_have(known):
    rows = {Series("sda", "read", stage): Histogram.of({1: 2}, 2 if stage == known else None) for stage in STAGES}
    frame = Frame(1, 1.0, 2_000_000, 1_000_000, rows)
    assert codec.decode_frame(parse(to_bytes(encode_frame(frame)))) == frame


@pytest.mark.parametrize("device", ["sda", "a}b", '}","stages":{', "\u00e4}"])
def test_totals_alone_are_read_whatever_the_names_are(device):
    rows = {Series(device, "read", stage): Histogram.of({40: 3}, 400, 300) for stage in STAGES}
    line = to_bytes(encode_frame(Frame(1, 1.0, 2_000_000, 1_000_000, rows)))
    histograms = codec.decode_frame(parse(totals_alone(line))).histograms
    assert histograms[Series(device, "read", "total")].max == 300
    assert len(histograms) == (1 if device == "sda" else 2)
    assert slowest_us(line) == (300 if device == "sda" else 0)


def test_a_name_that_is_not_clean_is_cleaned_each_time():
    for _ in range(3):
        line = _line()
        line["h"]["rows"][0] = ["sd\x1b", "read"]
        assert next(iter(codec.decode_frame(line).histograms)).device == "sd\\x1b"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(packed_tables, "MAX_KNOWN", 10)
    for kept in (packed_tables._series, packed_tables._flows):
        kept.clear()
    for number in range(50):
        line = _line()
        line["h"]["rows"][0] = line["seen"]["rows"][0] = [f"sd{number}", "read"]
        line["stages"]["rows"][0][0] = f"sd{number}"
        for _ in range(2):
            assert isinstance(codec.decode_frame(line), Frame)
    assert max(map(len, (packed_tables._series, packed_tables._flows))) <= 11


# Scales


def test_a_table_keeps_the_scale_of_each_row():
    """A DTrace without llquantize() counts by octaves, whose percentiles are ends of octaves."""
    fine = Histogram.of({40: 3}, 400)
    rows = {"a": fine.coarsen(0), "b": fine}
    packed = Packed.of(rows)
    line = json.loads(json.dumps(packed_tables.encode_table(packed)))
    unpressed = Pressed(PackedFrame({LATENCIES: PackedTable({0: packed})})).packed
    again = [
        packed,
        packed_tables.table(line, list(rows)),
        unpressed.tables[LATENCIES].histograms[0],
    ]
    assert [dict(one.items()) for one in again] == [rows] * 3
    assert [one["a"].quantile(0.5) for one in again] == [256] * 3
    summed: HistogramSums[str] = HistogramSums()
    summed.add(again[1])
    assert summed["a"] == rows["a"]
    assert "k" not in packed_tables.encode_table(Packed.of({"b": fine}))


@pytest.mark.parametrize("peaks", [True, False])
@pytest.mark.parametrize("wanted", [None, lambda key: key != "b"])
def test_a_sum_of_packed_tables_is_that_of_their_histograms(peaks, wanted):
    fine, other = Histogram.of({40: 3, 200: 1}, 400, 300), Histogram.of({0: 1, 40: 2}, None, 90)
    tables = [{"a": fine, "b": other}, {"b": fine, "c": Histogram()}, {"c": other, "a": fine.coarsen(0), "b": fine}]
    sums = HistogramSums[str](wanted, peaks=peaks)
    for stamp, table in enumerate(tables):
        sums.add(Packed.of(table), stamp)
    kept = ["a", "b", "c"] if wanted is None else ["a", "c"]
    assert list(sums) == kept
    each = {key: merge([table[key] for table in tables if key in table]) for key in kept}
    assert {key: histogram if peaks else replace(histogram, max=None) for key, histogram in each.items()} == dict(sums)
    assert dict(sums.packed) == dict(sums)
    for stamp, table in enumerate(tables[:2]):
        sums.remove(Packed.of(table), stamp)
    last = {key: histogram for key, histogram in tables[2].items() if key in kept}
    assert {key: histogram.count for key, histogram in sums.items()} == {
        key: histogram.count for key, histogram in last.items()
    }
    assert sums["c"].buckets == other.buckets


@pytest.mark.parametrize("gaps", [[0, 1], [3, 256], [0, 239]])
def test_a_table_may_begin_with_any_bucket(gaps):
    table = packed_tables.table({"b": gaps, "n": [1, 1]}, ["a", "b"])
    assert table.counts.tolist() == [1, 1]


@pytest.mark.parametrize("gaps", [[-1, 2], [0, 0], [3, 0], [3, -1], [0, 512], [240], [1, 240], [True, 1], [1, 2.0]])
def test_buckets_out_of_order_or_beyond_the_last_are_damage(gaps):
    with pytest.raises(RecordingError, match="'b'"):
        packed_tables.table({"b": gaps, "n": [1] * len(gaps)}, ["a", "b"])


@pytest.mark.parametrize("scales", [[0], [0, 4], [-1, 3], [0, 3, 3], [0, "3"], [0, 2]])
def test_a_scale_that_no_row_can_have_is_damage(scales):
    with pytest.raises(RecordingError, match=r"'k'|beyond the last of its scale"):
        packed_tables.table({"b": [8, 248 + 130], "n": [1, 1], "k": scales}, ["a", "b"])
