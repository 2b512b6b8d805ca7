"""kstat's output as values; and nonsense, which is counted and harms nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.support.text import is_clean
from latmon_backends.kernel import kstat
from latmon_backends.kernel.kstat import Id, Kstats, parse_pairs, real, whole


def test_a_line_is_a_kstat_and_one_of_its_statistics():
    reported = parse_pairs(b"sd:2:sd2:nread\t4096\nsd:2:sd2:class\tdisk\nsderr:2:sd2,err:Serial No\tA 1\tb\n")
    assert reported.values == {
        Id("sd", 2, "sd2"): {"nread": "4096", "class": "disk"},
        Id("sderr", 2, "sd2,err"): {"Serial No": "A 1\\tb"},
    }
    assert reported.undecoded == 0


def test_a_name_may_hold_colons():
    assert parse_pairs(b"x:-1:a:b::c:stat\t3\n").values == {Id("x", -1, "a:b::c"): {"stat": "3"}}


@pytest.mark.parametrize(
    "line",
    [
        *(b"sd", b"sd:0:sd0:nread", b"sd:0:sd0\t1", b"sd:x:sd0:nread\t1", b":0:sd0:nread\t1", b"sd:0::nread\t1"),
        *(b"sd:0:sd0:\t1", b"sd:-2:sd0:n\t1", b"sd:99999999999:sd0:n\t1", b"sd:0:" + b"n" * 65 + b":n\t1"),
        *(b"sd:0:sd0:" + b"s" * 65 + b"\t1", b"sd:0:sd0:n\t" + b"1" * 5000, b"sd:1_0:sd0:n\t1"),
    ],
)
def test_a_line_that_is_none_is_counted(line):
    reported = parse_pairs(b"sd:0:sd0:ok\t1\n" + line + b"\n")
    assert (reported.values, reported.undecoded) == ({Id("sd", 0, "sd0"): {"ok": "1"}}, 1)


def test_there_is_a_bound_to_everything(monkeypatch):
    monkeypatch.setattr(kstat, "MAX_KSTATS", 2)
    monkeypatch.setattr(kstat, "MAX_STATISTICS", 2)
    lines = b"".join(b"m:%d:n:%s\t1\n" % (i, s) for i in range(3) for s in (b"a", b"b", b"c", b"a"))
    reported = parse_pairs(lines)
    assert (len(reported.values), {len(values) for values in reported.values.values()}) == (2, {2})
    assert reported.undecoded == 2 + 4
    monkeypatch.setattr(kstat, "MAX_BYTES", 20)
    assert parse_pairs(b"m:0:n:a\t1\n" + b"x" * 50).undecoded == 2


@pytest.mark.parametrize(
    ("text", "number", "decimal"),
    [
        ("12", 12, 12.0),
        ("-3", -3, -3.0),
        ("12.5", None, 12.5),
        ("1.2e-05", None, 1.2e-5),
        ("1_0", None, None),
        ("", None, None),
        (None, None, None),
        ("nan", None, None),
        ("inf", None, None),
        ("0x10", None, None),
        ("9" * 21, None, None),
        ("\N{ARABIC-INDIC DIGIT ONE}", None, None),
        ("1\n", None, None),
    ],
)
def test_a_number_is_one_or_isnt(text, number, decimal):
    assert (whole(text), real(text)) == (number, decimal)


@given(st.binary(max_size=400) | st.text(alphabet="module:instancame \t\n0123:,\x1b[", max_size=300).map(str.encode))
def test_nonsense_is_clean_or_counted(raw):
    reported = parse_pairs(raw)
    assert isinstance(reported, Kstats)
    for id_, values in reported.values.items():
        assert all(is_clean(text) for text in (id_.module, id_.name, *values, *values.values()))


def test_an_attack_on_the_terminal_is_shown_as_what_it_is():
    reported = parse_pairs(b"sd:0:sd\x1b]52;c;x\x07:Model\t\x9b31m\n")
    assert reported.values == {Id("sd", 0, r"sd\x1b]52;c;x\x07"): {"Model": r"\x9b31m"}}
