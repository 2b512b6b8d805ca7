"""The decoder against what three bpftrace versions really printed, in any portions, and against anything else."""

import json
import random
from pathlib import Path

import pytest
from hostile import mutated
from hypothesis import given
from hypothesis import strategies as st

from latmon.support.text import is_clean
from latmon_backends.bpftrace import probe as bpftrace_probe
from latmon_backends.bpftrace.probe import BpftraceDecoder
from latmon_backends.probe.events import Attached, Bucket, HelperFailed, Lost, MapPrinted, Printed, UndecodedLine

GOLDEN = Path(__file__).resolve().parents[1] / "golden/bpftrace"
VERSIONS = ("0.17.0", "0.23.2", "0.27.1")
CAPTURES = sorted(path for version in VERSIONS for path in (GOLDEN / version).glob("*.json"))
LINES = sorted({line for path in CAPTURES for line in path.read_bytes().split(b"\n") if len(line) < 2000})
LARGE = st.sampled_from([path for path in CAPTURES if path.stat().st_size > 1000])


def events(data, portion=None):
    decoder = BpftraceDecoder()
    step = portion or len(data) or 1
    events = [event for at in range(0, len(data), step) for event in decoder.feed(data[at : at + step])]
    return events + decoder.close()


def golden(version, name):
    (path,) = (GOLDEN / version).glob(f"{name}_*.json")
    return events(path.read_bytes())


def maps(version, name):
    """The last print of every map of a capture."""
    return {e.name: e.values for e in golden(version, name) if isinstance(e, MapPrinted)}


def one(line):
    (event,) = events(line if isinstance(line, bytes) else json.dumps(line).encode())
    return event


each_version = pytest.mark.parametrize("version", VERSIONS)


# Portions


def test_there_are_captures_of_every_version():
    assert len(CAPTURES) == 3 * 45


def test_a_capture_gives_the_same_events_whole_and_byte_by_byte():
    for path in CAPTURES:
        data = path.read_bytes()
        whole_events = events(data)
        assert events(data, 1) == whole_events, path
        assert not [event for event in whole_events if isinstance(event, UndecodedLine)]
        assert bool(whole_events) == bool(data.strip())


@given(LARGE, st.integers())
def test_a_capture_gives_the_same_events_in_any_portions(path, seed):
    data, decoder, draw, found = path.read_bytes(), BpftraceDecoder(), random.Random(seed), []
    while data:
        size = draw.choice([0, 1, 2, 3, 17, 100, 4096])
        found += decoder.feed(data[:size])
        data = data[size:]
    assert found + decoder.close() == events(path.read_bytes())


def test_blank_lines_are_nothing():
    assert events(b"\n\n \n\r\n") == []
    assert BpftraceDecoder().close() == []


def test_an_output_cut_in_mid_line():
    line = b'{"type": "printf", "data": "tick"}'
    assert events(line) == [Printed("tick")]
    assert events(line[:-3]) == [UndecodedLine('{"type": "printf", "data": "tic')]


# What the versions print


@each_version
def test_attached_probes(version):
    assert golden(version, "15")[0] == Attached(6)


@each_version
def test_histograms_without_keys(version):
    buckets = maps(version, "01")["h"][""]
    assert buckets[:4] == (Bucket(0, 0, 1), Bucket(1, 1, 1), Bucket(2, 3, 2), Bucket(4, 7, 1))
    assert buckets[-1] == Bucket(1048576, 2097151, 1)
    assert sum(bucket.count for bucket in buckets) == 8


@each_version
def test_negative_values_fall_into_the_open_bucket_below(version):
    found = maps(version, "02")
    assert (found["n"][""], found["m"][""]) == ((Bucket(None, -1, 3),), (Bucket(None, -1, 1),))
    assert found["z"][""] == (Bucket(0, 0, 1),)


def test_the_2_31_fault_of_0_17_becomes_an_open_bucket_above():
    found = maps("0.17.0", "02")
    assert found["b"][""] == (Bucket(2**30, 2**31 - 1, 1), Bucket(2**31, None, 2))
    assert found["c"][""] == (Bucket(2**31, None, 3),)


@pytest.mark.parametrize("version", ["0.23.2", "0.27.1"])
def test_large_values_of_later_versions(version):
    found = maps(version, "02")
    assert found["b"][""][1:] == (Bucket(2**31, 2**32 - 1, 1), Bucket(2**32, 2**33 - 1, 1))
    assert found["c"][""][0] == Bucket(2**40, 2**41 - 1, 1)
    assert found["c"][""][-1] == Bucket(2**62, 2**63 - 1, 2)
    assert Bucket(2**53, 2**54 - 1, 0) in found["c"][""]  # bounds that 0.27 quotes


@each_version
def test_linear_histograms(version):
    found = maps(version, "04")
    assert found["l"][""][:3] == (Bucket(None, -1, 1), Bucket(0, 9, 1), Bucket(10, 19, 0))
    assert found["l"][""][-1] == Bucket(100, None, 2)
    assert found["over"][""] == (Bucket(10, None, 1),)
    assert found["sub"]["x"] == (Bucket(3, 3, 1),)


@each_version
def test_histograms_with_keys(version):
    found = maps(version, "03")
    assert found["h"]["vda,0"] == (Bucket(64, 127, 1),)
    assert found["k"] == {"8388608": (Bucket(4, 7, 1),), "-1": (Bucket(4, 7, 1),)}


@pytest.mark.parametrize(
    ("version", "blanks", "escapes"),
    [
        ("0.17.0", "a b, c,5", 'quote"back\\slash\nnl\ttab'),
        ("0.23.2", "a b, c,5", 'quote\\"back\\\\slash\\nnl\\ttab'),
        ("0.27.1", "ab,c,5", 'quote"back\\slash\nnl\ttab'),
    ],
)
def test_keys_are_as_the_version_mangles_them(version, blanks, escapes):
    found = maps(version, "03")
    assert blanks in found["h"]
    assert list(found["s"]) == [escapes]


@each_version
def test_scalars(version):
    assert {name: values[""] for name, values in maps(version, "05").items()} == {
        "a": 3,
        "c": 2,
        "i": 42,
        "mi": 9,
        "mx": 11,
        "neg": -3,
        "s": 12,
        "str": "hello",
        "u": 2**64 - 1,
        "st": {"count": 2, "average": 4, "total": 8},
    }


@each_version
def test_scalars_with_keys(version):
    assert maps(version, "06") == {
        "a": {"q,2": 9},
        "c": {"a": 1, "b": 2},
        "mi": {"x": 1},
        "mx": {"x": 2},
        "p": {"1": 2, "2": 3},
        "s": {"vda,1,R": 5},
        "str": {"k": "v"},
        "st": {"x": {"count": 1, "average": 3, "total": 3}},
    }


@each_version
def test_tuples(version):
    assert maps(version, "07") == {"m": {"k": (4, 5)}, "n": {"": (1, (2, "x"), 3)}, "t": {"": (1, 2, "three")}}


@each_version
def test_integers_that_no_double_holds(version):
    found, large = maps(version, "44"), 2**53 + 1
    assert (found["a"][""], found["s"][""], found["n"][""], found["mi"][""]) == (large, large, -large, -7)
    assert found["st"][""] == {"count": 1, "average": large, "total": large}
    assert MapPrinted("u", found["u"]).integers() == {large: large}
    assert found.get("ma", {"": 2**64 - 1}) == {"": 2**64 - 1}  # 0.17 leaves it out


@each_version
def test_bytes_above_0x7f_are_put_together_again(version):
    found = golden(version, "14")
    assert [event.text for event in found if isinstance(event, Printed)] == ["bad\ufffd", "café"]
    assert maps(version, "14")["x"] == {"café": 1}
    assert maps(version, "14")["y"] == {"bad\ufffd\ufffd": 1}


@each_version
def test_printf_is_exact(version):
    texts = [event.text for event in golden(version, "09") if isinstance(event, Printed)]
    assert texts[:5] == [
        *("plain 1 two", "no newline", 'quote " back \\ tab\tend', "42   |   42|ff|-1|18446744073709551615"),
        "bpftrace 0x1000",
    ]
    assert texts[7:] == ["ab\\x01\\xff", '{"a":1}']


@each_version
def test_lost_events_are_added_up_line_by_line(version):
    lost = [event.events for event in golden(version, "15") if isinstance(event, Lost)]
    assert lost[0] == {"0.17.0": 1872, "0.23.2": 437313, "0.27.1": 84194}[version]
    assert all(lost)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("0.23.2", "Map full; can't update element. Try increasing max_map_keys config"),
        ("0.27.1", "Argument list too long"),
    ],
)
def test_a_full_map(version, message):
    failures = {event for event in golden(version, "29") if isinstance(event, HelperFailed)}
    assert failures == {HelperFailed("map_update_elem", -7, message)}


def test_a_missing_key():
    assert HelperFailed("map_delete_elem", -2, "Can't delete map element because it does not exist.") in golden(
        "0.23.2", "28"
    )


@each_version
def test_zeroed_and_cleared_maps(version):
    found = golden(version, "43")
    assert MapPrinted("z", {"a": 0}) in found
    assert MapPrinted("hz", {"a": ()}) in found
    stats = [event for event in found if isinstance(event, MapPrinted) and event.name == "s"]
    assert stats == (
        [MapPrinted("s", {"": {"count": 0, "average": 0, "total": 0}}), MapPrinted("s", {})]
        if version == "0.27.1"
        else []
    )


def test_booleans_and_time_series():
    assert maps("0.27.1", "35") == {"b": {"true": 1}, "e": {"": (1, 1)}}
    assert maps("0.27.1", "17")["m"] == {"x": ({"value": 54}, {"value": 27}, {"value": 26})}


# Shapes that no capture has


def test_a_stats_map_whose_keys_are_called_as_its_fields():
    row = {"count": 1, "average": 2, "total": 2}
    keyed = {"count": row, "average": row, "total": row}
    assert one({"type": "stats", "data": {"@s": keyed}}) == MapPrinted("s", keyed)
    assert one({"type": "stats", "data": {"@a": {"count": 7}}}) == MapPrinted("a", {"count": 7})


def test_several_maps_in_one_line():
    assert events(b'{"type": "map", "data": {"@a": 1, "@b": {"2": 3}}}') == [
        MapPrinted("a", {"": 1}),
        MapPrinted("b", {"2": 3}),
    ]


def test_integers_of_a_map():
    values = {"-5": 1, "12": 2, "x": 3, "1,2": 4, "": 5, "7": "text", "--5": 6, "²": 7, "9" * 5000: 8}
    assert MapPrinted("m", values).integers() == {-5: 1, 12: 2}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb"\uffffffc3\uffffffa9", "é"),
        (rb"\\uffffffc3\\uffffffa9", "é"),
        (rb"\\\uffffffc3\uffffffa9", "\\é"),
        (rb"x\uffffff80y", "x\ufffdy"),
        (rb"\uffff", "\uffff"),
        (rb"\uffffff7f", "\uffffff7f"),  # no byte: those below 0x80 are printed as they are
        (rb"\u0001\u007f", "\x01\x7f"),
    ],
)
def test_mangled_bytes(raw, text):
    assert one(b'{"type": "printf", "data": "' + raw + b'"}') == Printed(text)


@pytest.mark.parametrize("kind", ["time", "value", "join", "syscall", "cat"])
def test_lines_that_say_nothing_to_us(kind):
    assert events(json.dumps({"type": kind, "data": "06:54"}).encode()) == []


@pytest.mark.parametrize(
    "line",
    [
        *(b"x", b"1", b"null", b"[]", b"{}", b'"type"', b"\xff\xfe", b"\0", b'{"type": "printf"}', b"NaN", b"-"),
        *(b'{"type": "printf", "data": 5}', b'{"type": "map"}', b'{"type": "map", "data": []}'),
        *(b'{"type": "map", "data": {"@x": NaN}}', b'{"type": "map", "data": {"@x": {"1": Infinity}}}'),
        *(b'{"type": "map", "data": {"@x": 1.5}}', b'{"type": "map", "data": {"@x": null}}'),
        *(b'{"type": "hist", "data": {"@x": [{"min": {}, "count": 1}]}}', b'{"type": "lost_events", "data": 3}'),
        *(b'{"type": "attached_probes", "data": {}}', b'{"type": "helper_error", "helper": 1}'),
        *(b'{"type": ["map"], "data": {}}', b'{"type": "something_new", "data": {}}'),
        *(b'{"type": "map", "data": {"@x": ' + b"9" * 5000 + b"}}", b'{"type": "map", "data": {"@x": {"1": 1e3}}}'),
    ],
)
def test_a_line_that_is_not_understood_is_counted(line):
    event = one(line)
    assert isinstance(event, UndecodedLine)
    assert is_clean(event.line)
    assert len(event.line) <= 200


@pytest.mark.parametrize("nest", [b"[", b'{"a":'])
def test_deep_nesting(nest):
    for line in (nest * 100_000, b'{"type": "map", "data": {"@x": ' + nest * 100_000, b'{"type": ' + nest * 100_000):
        assert isinstance(one(line), UndecodedLine)
    on_demand = b'{"type": "map", "data": {"@x": ' + b"[" * 900 + b"1" + b"]" * 900 + b"}}"
    assert len(events(on_demand)) == 1


def test_of_a_key_that_comes_twice_the_last_counts():
    assert one(b'{"type": "map", "data": {"@x": {"1": 1, "1": 2}}}') == MapPrinted("x", {"1": 2})


def test_foreign_text_is_clean():
    assert one({"type": "map", "data": {"@x": {"k": "\x1b[2J\ud800"}}}).values == {"k": "\\x1b[2J\\ud800"}
    failed = one({"type": "helper_error", "helper": "\x1b]52;", "msg": "\x07" * 500, "retcode": -1})
    assert is_clean(failed.helper)
    assert is_clean(failed.message)


def test_a_line_of_64_mib_is_given_up_and_the_next_one_is_read():
    decoder, portion, found = BpftraceDecoder(), b"x" * (4 << 20), []
    for _ in range(17):
        found += decoder.feed(portion)
        assert len(decoder._lines._rest) <= bpftrace_probe.MAX_LINE
    assert found == []
    assert decoder.feed(b'yy\n{"type": "printf", "data": "next"}\n') == [
        UndecodedLine("a line longer than 64 MiB"),
        Printed("next"),
    ]


def test_the_end_of_a_line_that_was_too_long_is_no_line(monkeypatch):
    monkeypatch.setattr(bpftrace_probe, "MAX_LINE", 1 << 20)
    decoder = BpftraceDecoder()
    decoder.feed(b"x" * (1 << 20) + b"x")
    decoder.feed(b'{"type": "printf", "data": "not a line"}')
    assert decoder.close() == [UndecodedLine("a line longer than 1 MiB")]
    assert decoder.close() == []


# Anything


SPLINTERS = (
    *(b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"null", b"true", b"-", b"1e999", b"NaN", b"0x1"),
    *(b"\\uffffffc3", b"\\\\u", b"\\ud800", b"\xc3", b'"type":', b'"data":', b'"min":', b'"count":', b"9" * 30),
    *(b'"type": "hist"', b'"type": "map"', b'"type": "stats"', b'"type": "tseries"', b'"type": "helper_error"'),
)


def decode_mutants(count, seed):
    draw, decoder = random.Random(seed), BpftraceDecoder()
    for _ in range(count):
        line = mutated(draw.choice(LINES), draw, LINES, SPLINTERS)
        for event in decoder.feed(line + b"\n"):
            if isinstance(event, MapPrinted):
                assert all(type(k) is type(v) is int for k, v in event.integers().items())
            elif isinstance(event, UndecodedLine):
                assert is_clean(event.line)


def test_mutated_lines_never_raise():
    decode_mutants(10_000, seed=1)


@pytest.mark.slow
def test_a_million_mutated_lines_never_raise():
    decode_mutants(1_000_000, seed=2)


@given(st.binary(max_size=300), st.integers(1, 20))
def test_any_bytes_in_any_portions(data, portion):
    assert events(data, portion) == events(data)
