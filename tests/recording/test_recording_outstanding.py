"""Depths, requests in flight and the order of issue in a window line: there and back, old readers, nonsense."""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import COUNTS, DEVICE_NAMES, NAMES, OP_NAMES, ORIGIN, frame

from latmon.model.frame import Frame
from latmon.model.inflight import PROBE, SYSFS, Depths, InFlight, InFlightList, Issue, Took
from latmon.model.redaction import Redaction
from latmon.recording.codec import decode_frame, encode_frame, to_bytes
from latmon.recording.json_line import parse
from latmon.recording.reader import open_recording
from latmon.recording.records import MAX_DEPTH
from latmon.recording.validate import MAX_SPAN_US
from latmon.recording.writer import Writer
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

GOLDEN = Path(__file__).parents[1] / "golden" / "recording-1.1-outstanding.latmon.jsonl.gz"
WINDOW = {"type": "window", "seq": 0, "t": 1.0, "mono": 1, "dt": 1}
ESCAPE = "\x1b]52;c;x\x07[/red]"
HELD = InFlight("sda", "write", 2_000_000, ("sync",), 81_920, 4096, 4211, "ora_lgwr", issued=False, overtaken_by=0)
BUSY = frame(
    0,
    depths={
        "sda": Depths({0: 2, 1: 30, 3: 900}, {0: 30, 16: 902}, {3: 1915}, {19: Took(1900, 36_100_000)}, 3, 2, PROBE),
        "sdb": Depths({0: 10}),
    },
    in_flight=InFlightList(
        (HELD, InFlight("dm-0", "read", 5_100_000)), {1: 2, 10: 0}, 1_000_000, devices=("sda", "dm-0")
    ),
    issues={"sda": (Issue(5_500_000, 2048, 4096, "read", 12), Issue(5_500_100, 8, 4096, "write", 90_000))},
)
_DEPTH = st.integers(0, MAX_DEPTH)
_MOMENTS = st.dictionaries(_DEPTH, COUNTS, max_size=4)
_OPTIONAL = st.none() | COUNTS
DEPTHS = st.builds(
    Depths,
    _MOMENTS,
    _MOMENTS,
    _MOMENTS,
    st.dictionaries(_DEPTH, st.builds(Took, COUNTS, COUNTS), max_size=4),
    st.none() | _DEPTH,
    COUNTS,
    st.sampled_from((SYSFS, PROBE)),
)
REQUESTS = st.builds(
    InFlight,
    DEVICE_NAMES,
    OP_NAMES,
    COUNTS,
    st.lists(NAMES, max_size=3).map(tuple),
    *[_OPTIONAL] * 3,
    NAMES,
    st.none() | st.booleans(),
    _OPTIONAL,
)
STILL = st.builds(
    InFlightList,
    st.lists(REQUESTS, max_size=3).map(tuple),
    st.dictionaries(COUNTS, COUNTS, max_size=4),
    COUNTS,
    COUNTS,
    st.lists(DEVICE_NAMES, max_size=3).map(tuple),
)
ISSUES = st.lists(st.builds(Issue, COUNTS, COUNTS, COUNTS, OP_NAMES, COUNTS), max_size=5).map(tuple)
FRAMES = st.builds(
    Frame,
    COUNTS,
    st.just(1.0),
    COUNTS,
    st.integers(1, MAX_SPAN_US),
    depths=st.dictionaries(DEVICE_NAMES, DEPTHS, max_size=3),
    in_flight=st.none() | STILL,
    issues=st.dictionaries(DEVICE_NAMES, ISSUES, max_size=3),
)


KEYS = {"depths", "in_flight", "issues"}


def encode_outstanding(given_frame: Frame) -> dict:
    return {key: value for key, value in encode_frame(given_frame).items() if key in KEYS}


def write(path: Path, *, redaction: Redaction | None = None) -> None:
    writer = Writer.create(path, ORIGIN, redaction=redaction)
    writer.append(BUSY)
    writer.close()


@given(FRAMES)
def test_outstanding_io_comes_back_as_it_was(one):
    assert decode_frame(parse(to_bytes(encode_frame(one)))) == one


def test_a_frame_without_it_has_no_line_of_it():
    assert not KEYS & set(encode_frame(frame(0)))


def test_a_probe_that_found_nothing_in_flight_is_not_the_same_as_no_probe():
    reported = decode_frame(parse(to_bytes(encode_frame(frame(0, in_flight=InFlightList())))))
    assert reported.in_flight == InFlightList()
    assert decode_frame(parse(to_bytes(encode_frame(frame(0))))).in_flight is None


def test_it_reads_as_documented():
    line = encode_frame(BUSY)
    assert line["depths"]["sda"] == {
        "d": [0, 2, 1, 30, 3, 900],
        "q": [0, 30, 16, 902],
        "i": [3, 1915],
        "l": [19, 1900, 36_100_000],
        "most": 3,
        "corrected": 2,
        "by": "probe",
    }
    assert line["depths"]["sdb"] == {"d": [0, 10]}
    first, second = line["in_flight"]["oldest"]
    assert (first["l"], first["began"], first["issued"]) == (["sda", "write"], 2_000_000, False)
    assert (first["overtaken_by"], line["in_flight"]["devices"]) == (0, ["sda", "dm-0"])
    assert second == {"l": ["dm-0", "read"], "began": 5_100_000}
    assert line["issues"]["sda"]["ops"] == ["read", "write"]
    assert line["issues"]["sda"]["n"][:5] == [5_500_000, 2048, 4096, 0, 12]


def test_a_request_of_latmons_own_says_so():
    own = replace(BUSY, in_flight=InFlightList((HELD._replace(own=True), HELD)))
    line = encode_frame(own)
    assert [one.get("own") for one in line["in_flight"]["oldest"]] == [True, None]
    assert decode_frame(parse(to_bytes(line))) == own


def test_a_reader_of_the_first_release_sees_the_frame_it_knows():
    line = {key: value for key, value in encode_frame(BUSY).items() if key not in KEYS}
    assert decode_frame(line) == frame(0)


def test_what_a_later_version_adds_is_ignored():
    line = parse(to_bytes(encode_frame(BUSY)))
    line["depths"]["sda"]["mood"] = "bad"
    line["in_flight"]["oldest"][0]["mood"] = [1]
    line["issues"]["sda"]["mood"] = {}
    assert decode_frame(line) == BUSY


def test_the_golden_recording_is_read():
    recording = open_recording(GOLDEN)
    first = BUSY.in_flight
    before = replace(first, oldest=tuple(one._replace(overtaken_by=None) for one in first.oldest), devices=())
    assert next(iter(recording)) == replace(BUSY, in_flight=before)
    assert recording.damage == []


REQUEST = {"l": ["sda", "read"], "began": 1}
ISSUE = {"ops": ["read"], "n": [1, 2, 3, 0, 5]}


@pytest.mark.parametrize(
    "changed",
    [
        {"depths": [1]},
        {"depths": {"sda": [1, 2]}},
        {"depths": {"x" * 1000: {}}},
        {"depths": {"a\x1b": {}, "a\\x1b": {}}},
        {"depths": {"sda": {"d": 1}}},
        {"depths": {"sda": {"d": [1]}}},
        {"depths": {"sda": {"d": [1, -1]}}},
        {"depths": {"sda": {"d": [-1, 1]}}},
        {"depths": {"sda": {"d": [1.0, 1]}}},
        {"depths": {"sda": {"d": [True, 1]}}},
        {"depths": {"sda": {"d": [1, None]}}},
        {"depths": {"sda": {"d": [2, 1, 1, 1]}}},
        {"depths": {"sda": {"d": [2, 1, 2, 1]}}},
        {"depths": {"sda": {"d": [2**40, 1]}}},
        {"depths": {"sda": {"d": [1, 2**70]}}},
        {"depths": {"sda": {"q": [n // 2 for n in range(20_000)]}}},
        {"depths": {"sda": {"l": [1, 2]}}},
        {"depths": {"sda": {"l": [1, 2, "3"]}}},
        {"depths": {"sda": {"most": 2**40}}},
        {"depths": {"sda": {"most": -1}}},
        {"depths": {"sda": {"corrected": -1}}},
        {"depths": {"sda": {"by": 1}}},
        {"in_flight": [1]},
        {"in_flight": {"since": -1}},
        {"in_flight": {"older": {"1": 2}}},
        {"in_flight": {"older": [1]}},
        {"in_flight": {"older": [n // 2 for n in range(1000)]}},
        {"in_flight": {"oldest": [1]}},
        {"in_flight": {"oldest": [{}]}},
        {"in_flight": {"oldest": [REQUEST] * 2000}},
        {"in_flight": {"oldest": [REQUEST | {"began": -1}]}},
        {"in_flight": {"oldest": [REQUEST | {"issued": 1}]}},
        {"in_flight": {"oldest": [REQUEST | {"comm": "x" * 1000}]}},
        {"in_flight": {"oldest": [REQUEST | {"flags": ["sync"] * 100}]}},
        {"in_flight": {"oldest": [REQUEST | {"sector": 1.5}]}},
        {"in_flight": {"since": 1, "oldest": [REQUEST | {"overtaken_by": -1}]}},
        {"in_flight": {"since": 1, "devices": ["sda"] * 20_000}},
        {"in_flight": {"since": 1, "devices": "sda"}},
        {"issues": [1]},
        {"issues": {"sda": [1]}},
        {"issues": {"sda": ISSUE | {"n": [1, 2, 3, 0]}}},
        {"issues": {"sda": ISSUE | {"n": [1, 2, 3, 1, 5]}}},
        {"issues": {"sda": ISSUE | {"n": [1, 2, 3, -1, 5]}}},
        {"issues": {"sda": ISSUE | {"n": [1, 2, 3, 0, 5] * 20_000}}},
        {"issues": {"sda": ISSUE | {"ops": ["read"] * 100}}},
        {"issues": {"sda": ISSUE | {"ops": [1]}}},
    ],
)
def test_nonsense_is_refused(changed):
    with pytest.raises(RecordingError):
        decode_frame(WINDOW | changed)


def test_no_string_can_do_anything_but_be_shown():
    line = {
        **WINDOW,
        "depths": {ESCAPE: {"by": ESCAPE}},
        "in_flight": {"oldest": [{"l": [ESCAPE, ESCAPE], "comm": ESCAPE, "flags": [ESCAPE]}]},
        "issues": {ESCAPE: {"ops": [ESCAPE], "n": [1, 2, 3, 0, 5]}},
    }
    text = json.dumps(encode_frame(decode_frame(line)), ensure_ascii=False)
    assert ESCAPE[1:4] in text
    assert is_clean(text)


_SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["d", "n", "l", "sda"]), inner),
    max_leaves=6,
)


@given(_SCRAPS, st.data())
def test_any_json_is_a_value_or_one_sentence(scrap, data):
    line = json.loads(json.dumps(encode_outstanding(BUSY)))
    first = line["in_flight"]["oldest"][0]
    one = data.draw(st.sampled_from([line, line["depths"]["sda"], line["in_flight"], line["issues"]["sda"], first]))
    one[data.draw(st.sampled_from(list(one)))] = scrap
    with contextlib.suppress(RecordingError):
        decode_frame(WINDOW | line)


def test_redacting_hides_who_waits_and_keeps_what_for(tmp_path):
    write(tmp_path / "r", redaction=Redaction())
    kept = next(iter(open_recording(tmp_path / "r")))
    assert "ora_lgwr" not in str(kept)
    assert "4211" not in str(kept)
    held = kept.in_flight.oldest[0]
    assert (held.began_us, held.flags, held.sector, held.comm) == (2_000_000, ("sync",), 81_920, "redacted")
    assert kept.depths == BUSY.depths


if __name__ == "__main__":
    write(Path(sys.argv[1]))
