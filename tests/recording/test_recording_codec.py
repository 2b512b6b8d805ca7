"""Values -> lines -> values, and lines that no latmon writes."""

from __future__ import annotations

import contextlib
import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import FRAMES, ORIGIN, ORIGINS, frame

from latmon.model.frame import Health, Origin, Series
from latmon.recording.codec import (
    decode_frame,
    decode_origin,
    encode_frame,
    encode_origin,
    to_bytes,
)
from latmon.recording.json_line import parse
from latmon.recording.records import GAP, MARK
from latmon.recording.validate import MAX_ITEMS
from latmon.support.errors import EXIT_UNREADABLE, RecordingError
from latmon.support.text import is_clean

WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
ESCAPE = "\x1b]52;c;x\x07[/red]"


def table(**changed):
    """A window's table of one stage, with what no latmon writes."""
    return {"stages": {"rows": [["sda", "read", ["hba"]]], "b": [1], "n": [1]} | changed}


def test_the_table_that_others_change_is_read():
    assert list(decode_frame(WINDOW | table()).histograms) == [Series("sda", "read", "hba")]


@given(FRAMES)
def test_a_frame_comes_back_as_it_was(one):
    assert decode_frame(parse(to_bytes(encode_frame(one)))) == one


@given(ORIGINS)
def test_an_origin_comes_back_as_it_was(one):
    assert decode_origin(parse(to_bytes(encode_origin(one)))) == one


def test_what_is_at_its_default_is_not_written():
    line = encode_frame(frame(1, health=Health(lost_events=2)))
    assert line["health"] == {"lost_events": 2}
    assert not {"gap", "removed", "devices"} & set(line)


def test_a_health_figure_that_is_no_number_is_left_out():
    given_frame = frame(0, health=Health(self_cpu_percent=math.nan))
    assert decode_frame(parse(to_bytes(encode_frame(given_frame)))).health == Health()


def test_a_window_reads_as_documented():
    line = encode_frame(frame(0))
    keys = ["type", "seq", "t", "mono", "dt", "h", "stages", "seen", "kernel", "outstanding", "devices"]
    assert list(line) == keys
    assert line["stages"]["rows"] == [["sda", "read", ["hba"]]]
    assert sum(line["stages"]["n"]) == 100
    assert line["kernel"] == {"rows": [["sda", "read"]], "n": [100], "bytes": [409_600], "us": [140_000]}


def test_a_header_says_what_a_stranger_needs():
    line = encode_origin(ORIGIN, frame(0).devices)
    assert line["format"] == [1, 1]
    assert line["scale"] == {"kind": "loglinear", "k": 3, "unit": "us"}
    assert line["measured"]["hba"] == ["irq", "softirq"]
    assert line["devices"][0]["name"] == "sda"


@pytest.mark.parametrize("newer", [{"format": [1, 7]}, {"aperture": 3}, {"format": [1, 1, 4]}])
def test_a_later_minor_version_is_read(newer):
    assert decode_origin(encode_origin(ORIGIN) | newer).host == ORIGIN.host


def test_what_a_later_version_says_of_the_origin_is_kept():
    line = encode_origin(ORIGIN) | {"probes": {"block": "sha256:1"}}
    assert encode_origin(decode_origin(line)) == line


def test_what_a_later_version_says_of_a_window_is_ignored():
    line = encode_frame(frame(0)) | {"temperature": [1, 2]}
    line["h"]["picture"] = "?"
    line["health"] = {"humour": "dry"}
    assert decode_frame(line) == frame(0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": [2, 0]}, "its format is 2.0 and this latmon reads 1.x"),
        (
            {"format": [1, 0]},
            "its format is 1.0, which no release wrote, .*: read it with the checkout that wrote it, or",
        ),
        ({"format": "1.1"}, "list"),
        ({"format": [1]}, "no format version"),
        ({"format": [True, 1]}, "no format version"),
        ({"scale": {"kind": "loglinear", "k": 4, "unit": "us"}}, "scale"),
        ({"scale": {"kind": "loglinear", "k": 3, "unit": "ns"}}, "scale"),
        ({"type": "window"}, "header"),
        ({"window": 0}, "window"),
        ({"clock": [1]}, "clock"),
        ({"clock": {"wall": 1e18}}, "wall"),
        ({"clock": {"wall": -1.0}}, "wall"),
    ],
)
def test_a_header_that_is_not_ours_is_refused_in_a_sentence(changed, says):
    with pytest.raises(RecordingError, match=says) as refusal:
        decode_origin(encode_origin(ORIGIN) | changed)
    assert refusal.value.exit_code == EXIT_UNREADABLE


@pytest.mark.parametrize(
    "changed",
    [
        {"seq": -1},
        {"seq": 1.5},
        {"seq": True},
        {"t": "now"},
        {"t": 10**400},
        {"t": 1e18},
        {"t": -1},
        {"t": 253_402_300_800},
        {"dt": -1},
        {"h": 1},
        {"h": {"rows": [["sda"]]}},
        {"h": {"rows": [["sda", "read", "zoned"]]}},
        {"h": {"rows": ["ab"]}},
        {"h": {"rows": [["sda", "read"]] * 2}},
        {"h": {"rows": [["sda", "read"]], "b": [256], "n": [1]}},
        {"h": {"rows": [["sda", "read"]], "b": [1], "n": [True]}},
        {"h": {}, "stages": []},
        {"h": {}, "stages": {"rows": [["sda", "read", ["total"]]]}},
        {"h": []},
        {"h": {"rows": [["sda", "read"]] * (MAX_ITEMS + 1)}},
        table(b=[10**9]),
        table(b=[-1]),
        table(b=[2, -1], n=[1, 1]),
        table(b=[1, 0], n=[1, 1]),
        table(b=[1, 1], n=[1]),
        table(n=[]),
        table(n=[-1]),
        table(n=[0]),
        table(n=["1"]),
        table(n=[True]),
        table(n=[2**63]),
        table(k=[9]),
        table(sum=[-2]),
        table(sum=[1, 1]),
        table(rows=[["sda", "read", ["hba"]]] * 2),
        table(rows=[["sda", "read", ["hba", "hba"]]]),
        table(rows=[["x" * 2**20, "read", ["hba"]]]),
        table(rows=[["sda", "read", [1]]]),
        table(rows=[["sda", ["hba"]]]),
        table(rows=[["sda", "read", "hba"]]),
        {"seen": 1},
        {"seen": {"rows": [["sda", "read"]], "n": [1]}},
        {"seen": {"rows": [["sda", "read"]], "n": [-1], "bytes": [0]}},
        {"seen": {"rows": [["sda", "read"]] * 2, "n": [1, 1], "bytes": [0, 0]}},
        {"seen": {"rows": [["sda", "read"]], "n": [1], "bytes": [0], "us": [2**63]}},
        {"outstanding": {"sda": [1]}},
        {"outstanding": {"sda": [-1, 0]}},
        {"outstanding": [1]},
        {"devices": [{"name": 7}]},
        {"devices": [{"name": "sda", "timed": 1}]},
        {"removed": "sda"},
        {"health": {"lost_events": None}},
        {"health": {"self_cpu_percent": "much"}},
        {"health": {"self_cpu_percent": 1e308}},
        {"health": {"probe_cpu_percent": -1.0}},
        {"gap": 1},
    ],
)
def test_nonsense_in_a_window_is_refused(changed):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | changed)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":' + b"9" * 10_000 + b"}",
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":"' + b"x" * 9_000_000 + b'"}',
        b"\x00" * 100,
    ],
)
def test_a_line_that_is_no_object_of_ours_is_refused(line):
    with pytest.raises(RecordingError):
        parse(line)


def test_no_string_can_do_anything_but_be_shown():
    line = {
        **WINDOW,
        "h": {"rows": [[ESCAPE, ESCAPE]], "b": [1], "n": [1]},
        "stages": {"rows": [[ESCAPE, ESCAPE, [ESCAPE]]], "b": [1], "n": [1]},
        "seen": {"rows": [[ESCAPE, ESCAPE]], "n": [1], "bytes": [1]},
        "outstanding": {ESCAPE: [1, 1]},
        "devices": [{"name": ESCAPE, "kind": ESCAPE, "model": ESCAPE, "members": [ESCAPE], "label": ESCAPE}],
        "removed": [ESCAPE],
        "health": {"notice": ESCAPE, "recording": ESCAPE},
        "gap": ESCAPE,
    }
    assert all(is_clean(text) for text in _strings(json.loads(json.dumps(encode_frame(decode_frame(line))))))


def test_no_string_of_a_header_can_do_anything_but_be_shown():
    texts = dict.fromkeys(("backend", "host", "kernel", "latmon", "tool", "tier", "boot_id", "reason"), ESCAPE)
    line = encode_origin(ORIGIN) | texts | {"measured": {ESCAPE: [ESCAPE]}, "new": {ESCAPE: [ESCAPE, {"x": ESCAPE}]}}
    line["absent"] = [{"name": ESCAPE, "reason": ESCAPE}]
    assert all(is_clean(text) for text in _strings(encode_origin(decode_origin(line))))


def test_a_long_sentence_is_cut_and_a_name_from_a_cut_one_never_stands_for_another():
    assert len(decode_frame(WINDOW | {"gap": "x" * 10**6}).gap) == 1024
    with pytest.raises(RecordingError, match="1000 characters"):
        decode_frame(WINDOW | {"removed": ["x" * 1000]})


_SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rows", "b", "n", "sum", "x"]), inner),
    max_leaves=6,
)
_KEYS = st.sampled_from([*encode_frame(frame(0, gap="x", removed=("y",))), *encode_origin(ORIGIN), "health", "hz"])


@given(st.dictionaries(_KEYS, _SCRAPS, max_size=4))
def test_any_json_is_a_value_or_one_sentence(scraps):
    for decode, whole in ((decode_frame, encode_frame(frame(0))), (decode_origin, encode_origin(ORIGIN))):
        with contextlib.suppress(RecordingError):
            assert time.localtime(_wall(decode(whole | scraps)))


@given(st.floats() | st.integers())
def test_any_time_that_is_read_can_be_shown(stamp):
    for decode, line in (
        (decode_frame, WINDOW | {"t": stamp}),
        (decode_origin, encode_origin(ORIGIN) | {"clock": {"wall": stamp}}),
        (GAP.decode, {"t": stamp}),
        (MARK.decode, {"t": stamp}),
    ):
        with contextlib.suppress(RecordingError):
            wall = _wall(decode(line))
            assert wall == stamp
            assert time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(wall))


def test_series_are_named_by_device_op_and_stage():
    decoded = decode_frame(WINDOW | table(rows=[["sda", "append", ["zoned"]]]))
    assert list(decoded.histograms) == [Series("sda", "append", "zoned")]


def _wall(value):
    return value.start_wall if isinstance(value, Origin) else value.wall


def _strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def test_a_late_window_of_an_earlier_release_is_no_gap():
    line = encode_frame(frame(1, late=True))
    assert line["late"] == "reader-late"
    assert "gap" not in line
    assert decode_frame(line) == frame(1, late=True)
    before = {key: value for key, value in line.items() if key != "late"} | {"gap": "reader-late"}
    assert decode_frame(before) == frame(1, late=True)
