"""Histograms and counts of a line at once: the same values as piece by piece, and nothing that a piece would refuse."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import FRAMES

from latmon.aggregate.histogram_sum import TableSum
from latmon.model.frame import Completed, Flow, Frame, Series
from latmon.model.histogram import TOP, Histogram
from latmon.model.packed import Flat, Packed, Pressed
from latmon.recording import codec, packed_tables, validate
from latmon.recording.codec import encode_frame, to_bytes
from latmon.support.errors import RecordingError

ONE = Frame(
    1,
    1.0,
    2_000_000,
    1_000_000,
    {Series("sda", "read", stage): Histogram.of({1: 2, 7: 1, 40: 3}, 400, 300) for stage in ("total", "hba")},
    seen={Flow("sda", op): Completed(3, 4096, 7) for op in ("read", "write")},
)


def _line() -> dict:
    return json.loads(to_bytes(encode_frame(ONE)))


def _by_piece(line: dict, monkeypatch: pytest.MonkeyPatch) -> Frame | str:
    with monkeypatch.context() as patch:
        patch.setattr(packed_tables, "histograms", lambda *_, **__: None)
        patch.setattr(packed_tables, "completed", lambda *_: None)
        return _decoded(line)


def _decoded(line: dict) -> Frame | str:
    try:
        return codec.decode_frame(line, booleans=validate.may_hold_booleans(json.dumps(line).encode()))
    except RecordingError as error:
        return str(error)


def test_a_line_that_was_seen_before_is_read_at_once():
    codec.decode_frame(_line())
    found = codec.decode_frame(_line())
    assert isinstance(found.histograms, Packed)
    assert found == ONE
    assert found.histograms[Series("sda", "read", "hba")].quantile(0.5) == ONE.histograms[
        Series("sda", "read", "total")
    ].quantile(0.5)


@settings(max_examples=40, deadline=None)
@given(FRAMES)
def test_at_once_is_the_same_as_piece_by_piece(frame):
    line = json.loads(to_bytes(encode_frame(replace(frame, marks=()))))
    first, second = codec.decode_frame(line), codec.decode_frame(line)
    assert first == second


_WRONG = (True, False, None, -1, 0, 1, 1.0, 2**63, 2**70, "1", [], [1], {}, TOP + 1, 255, 256, 16_385)


@pytest.mark.parametrize("wrong", _WRONG, ids=repr)
def test_what_a_piece_refuses_is_refused_at_once(wrong, monkeypatch):
    codec.decode_frame(_line())
    places = [("h", key) for key in ("m", "l", "n", "sum", "max", "b", "k")]
    places += [("seen", key) for key in ("l", "n", "bytes", "us")]
    for part, key in places:
        line = _line()
        line[part][0][key] = wrong
        assert _decoded(line) == _by_piece(line, monkeypatch), (part, key)
    for at in range(6):
        line = _line()
        line["h"][1]["b"][at] = wrong
        assert _decoded(line) == _by_piece(line, monkeypatch), at
        line["h"][1]["b"].insert(at, wrong)
        assert _decoded(line) == _by_piece(line, monkeypatch), at


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-1, 260) | st.booleans() | st.sampled_from((2**62, 2**63 - 1)), max_size=8))
def test_no_list_of_buckets_passes_that_a_piece_refuses(flat):
    codec.decode_frame(_line())
    line = _line()
    line["h"][0]["b"] = flat
    line["h"][0]["n"] = sum(flat[1::2])
    at_once = packed_tables.histograms(line)
    try:
        piece = packed_tables.histogram(line["h"][0])
    except RecordingError:
        assert at_once is None
    else:
        assert at_once is None or at_once[Series("sda", "read", "total")] == piece


@pytest.mark.parametrize("labels", ["ab", ["sda"], ["sda", "read", "more"], {"sda": 1, "read": 2}, [["sda"], "read"]])
def test_labels_that_are_no_two_names(labels, monkeypatch):
    codec.decode_frame(_line())
    for part in ("h", "seen"):
        line = _line()
        line[part][0]["l"] = labels
        assert _decoded(line) == _by_piece(line, monkeypatch)


def test_one_thing_twice_is_refused():
    codec.decode_frame(_line())
    for part in ("h", "seen"):
        line = _line()
        line[part].append(line[part][0])
        assert "twice" in str(_decoded(line))


def test_a_name_that_is_not_clean_is_cleaned_each_time():
    for _ in range(3):
        line = _line()
        line["h"][0]["l"] = ["sd\x1b", "read"]
        found = _decoded(line)
        assert isinstance(found, Frame)
        assert next(iter(found.histograms)).device == "sd\\x1b"


def test_what_is_remembered_is_bounded(monkeypatch):
    monkeypatch.setattr(packed_tables, "MAX_KNOWN", 10)
    for kept in (packed_tables._series, packed_tables._flows, packed_tables._rising):
        kept.clear()
    for number in range(50):
        line = _line()
        line["h"][0]["l"] = [f"sd{number}", "read"]
        line["h"][0]["b"] = [number, 6]
        line["seen"][0]["l"] = [f"sd{number}", "read"]
        for _ in range(2):
            assert isinstance(_decoded(line), Frame)
    assert max(map(len, (packed_tables._series, packed_tables._flows, packed_tables._rising))) <= 11


# Scales


def test_a_table_keeps_the_scale_of_each_row():
    """A DTrace without llquantize() counts by octaves, whose percentiles are ends of octaves."""
    fine = Histogram.of({40: 3}, 400)
    rows = {"a": fine.coarsen(0), "b": fine}
    packed = Packed.of(rows)
    line = json.loads(json.dumps(packed_tables.encode_table(packed)))
    again = [packed, packed_tables.table(line, list(rows)), Pressed(Flat({"t": packed}, {})).flat.tables["t"]]
    assert [dict(one.items()) for one in again] == [rows] * 3
    assert [one["a"].quantile(0.5) for one in again] == [256] * 3
    summed: TableSum[str] = TableSum()
    summed.add(again[1])
    assert summed["a"] == rows["a"]
    assert "k" not in packed_tables.encode_table(Packed.of({"b": fine}))


@pytest.mark.parametrize("scales", [[0], [0, 4], [-1, 3], [0, 3, 3], [0, "3"], [0, 2]])
def test_a_scale_that_no_row_can_have_is_damage(scales):
    with pytest.raises(RecordingError, match=r"'k'|beyond the last of its scale"):
        packed_tables.table({"b": [8, 248 + 130], "n": [1, 1], "k": scales}, ["a", "b"])
