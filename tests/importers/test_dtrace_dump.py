"""DTrace's own output, as captured and as pasted into documents, against independent numbers."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.dtrace_aggregation import Row, Scalar
from latmon.importers.dtrace import Distribution, Undecoded, columns, tables
from latmon.support.text import is_clean

GOLDEN = Path(__file__).resolve().parents[1] / "golden/dtrace"
CAPTURES = sorted(GOLDEN.glob("[0-3]*.out"))
ROW = re.compile(r"^\s*(?:<=? |>= |abs\(\) < )?-?\d+ [ @]*\|[ @]*\s(-?\d+)\s*$", re.MULTILINE)


def golden(name):
    (path,) = GOLDEN.glob(f"{name}*" if "." in name else f"{name}.*t")
    return list(tables(path.read_text()))


def distributions(name):
    return [distribution for distribution in golden(name) if isinstance(distribution, Distribution)]


def scalars(name):
    return [(*scalar.keys, scalar.value) for scalar in golden(name) if isinstance(scalar, Scalar)]


def counts(found):
    return {row.low: row.count for row in found.rows if row.count}


def test_no_row_of_a_capture_is_missed():
    for path in CAPTURES:
        text = path.read_text()
        counts = [
            row.count
            for distribution in tables(text)
            if isinstance(distribution, Distribution)
            for row in distribution.rows
        ]
        assert counts == [int(count) for count in ROW.findall(text)], path.stem


def test_there_are_as_many_rows_as_were_captured():
    numbered = [path for path in CAPTURES if path.stem[:2] < "36"]
    assert sum(len(ROW.findall(path.read_text())) for path in numbered) == 987


def test_tables_pasted_without_their_indentation():
    first, second = distributions("pasted_resume")
    assert (first.keys, first.kind) == (("unix`swtch+0x165 resume 4",), "quantize")
    assert (second.keys, second.kind) == (("resume(ms)",), "quantize")
    assert sum(counts(first).values()) == 2342
    assert sum(counts(second).values()) == 15_230
    assert sum(row.count for row in second.rows if row.low >= 64) == 34
    assert second.rows[-2:] == (Row(1024, 2048, 1), Row(2048, 4096, 0))


def test_the_same_ios_in_even_steps_and_in_powers_of_two():
    steps, powers, few, other = distributions("pasted_disksort")
    assert sum(counts(steps).values()) == sum(counts(powers).values()) == 377_506
    assert sum(counts(few).values()) == sum(counts(other).values()) == 543_956
    assert (steps.kind, powers.kind, few.kind, other.kind) == ("lquantize", "quantize", "", "quantize")
    assert {found.keys for found in (steps, powers, few, other)} == {("6597960853440",)}
    assert counts(steps) == {None: 377_204, 480_000: 2, 540_000: 300}
    assert sum(row.count for row in powers.rows if row.low >= 262_144) == 302
    assert powers.rows[-2] == Row(524_288, 1_048_576, 302)


# What the script put in


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("01_quantize_basic", [0, 1, 5, 5, 1000, 1048576]),
        ("02_quantize_neg", [-1, -5, -1000, 0, 7]),
        ("06_lquantize", [-5, 0, 55, 100, 1000]),
        ("08_llquantize", [0, 1, 7, 15, 12345, 99999999, -3, -12345]),
        ("08b_llquantize_pos", [0, 1, 7, 15, 12345, 99999999]),
    ],
)
def test_each_value_is_within_the_edges_of_a_row_that_counted_it(name, values):
    (distribution,) = distributions(name)
    for row in distribution.rows:
        low, high = -(2**64) if row.low is None else row.low, 2**64 if row.high is None else row.high
        assert row.count == sum(low <= value < high for value in values)


def test_the_largest_and_smallest_integers():
    found = {distribution.keys[0]: counts(distribution) for distribution in distributions("03_quantize_extreme")}
    lows = {"min": -(2**63), "max": 2**62, "2^62": 2**62, "neg1": -1, "zero": 0, "one": 1}
    assert found == {name: {low: 1} for name, low in lows.items()}


def test_weights_may_be_large_negative_or_nothing():
    large, mixed, none = distributions("04_quantize_weight")
    assert counts(large) == {64: 123_456_789_017}
    assert counts(mixed) == {64: -5, 128: 7}
    assert none.rows == (Row(-1, 0, 0), Row(0, 1, 0), Row(1, 2, 0))


def test_magnitudes_that_are_too_small_or_large():
    offset, base2, single = distributions("09_llquantize_offset")
    assert offset.kind == "llquantize"
    assert counts(offset) == {-999: 1, 100_000: 1, 10_000_000_000: 1}
    assert Row(-999, 1000, 1) in offset.rows
    assert offset.rows[-1] == Row(10_000_000_000, None, 1)
    assert (counts(base2), counts(single)) == ({64: 1}, {400: 1})
    _, mirrored, below, *_ = distributions("37_key_columns")
    assert Row(-959, -895, 1) in mirrored.rows
    assert counts(below) == {None: 1, -199: 1, -99: 1}
    assert below.rows[0] == Row(None, -9999, 1)


def test_no_data_is_no_error():
    cleared = distributions("15_normalize_trunc_clear")
    assert [counts(distribution) for distribution in cleared] == [{}, {}]


# Keys


def test_scalars_and_their_keys():
    assert scalars("10_scalars") == [(2,), (-7,), (10,), (-3,), (2**63 - 1,), (4,)]
    assert set(scalars("11_scalars_keys")) == {
        *(("a", 1), ("b with space", 1), ("", "W", "-1", 3), ("vda", "R", "4096", 12), ("µ", 1)),
        *(("line2", 1), ("tab\there", 1), ('quote"x\\y', 1)),
    }
    assert ("big", 12345678901234567) in scalars("29_neg_wide")
    assert ("123456789012345", "x", 1) in scalars("29_neg_wide")
    assert scalars("37_key_columns") == [
        *(("é", "vda", "ü", "3", 1), ("3", "2", "1", "s", 1), ("a", "b", "c", -12345678901234567)),
    ]


def test_keys_of_distributions():
    assert {distribution.keys for distribution in distributions("05_quantize_keys")} == {
        *(("vda", "0"), ("vda", "1"), ("sda with space", "5"), ("naïve-µs", "7"), ("", "-1")),
    }
    assert distributions("37_key_columns")[0].keys == ("vda", "é", "2")
    assert distributions("29_neg_wide")[0].keys == ("1", "2", "3")


def test_stacks_are_columns():
    assert scalars("26_ustack_sym")[:2] == [
        ("python3", "0x7f9d53b162ad", 334),
        ("debootstrap", "libc.so.6`read+0xd\n0x55ff9db1a028\n0x55ff9db1a030", 10_577),
    ]
    actual_distributions = distributions("17_stack_key")
    assert {len(distribution.keys[0].split("\n")) for distribution in actual_distributions} == {2}
    assert {distribution.keys[1] for distribution in actual_distributions} == {"k"}
    assert distributions("33_k_mod_sym")[0].keys == ("vmlinux`pv_native_safe_halt+0xb",)


def test_columns_that_can_be_read_in_several_ways_stay_together():
    assert columns(f"  {'123456789012345  x':<50}") == ("123456789012345  x",)
    assert columns("  123456789012345  x") == ("123456789012345  x",)
    assert columns("") == ()
    assert columns(f"  {'':<50}") == ("",)
    assert columns("resume 4") == ("resume 4",)


# Everything else


def test_records_without_text_say_nothing_and_text_is_counted():
    assert golden("20_dynvardrops") == []
    assert not [found for found in golden("01_quantize_basic") if isinstance(found, Undecoded)]
    assert golden("21_fault") == [Undecoded("  0      3                           :ERROR E 1 0 175 1 0")]
    assert len(golden("14_printf")) == 10


def test_a_sentence_that_ends_in_a_number_is_no_value():
    text = (
        "@@T 1795243784560205239\nprio: 97\n1099511627776 18446744073709551615\n1238999          1238914          165\n"
    )
    assert [type(table) for table in tables(text)] == [Undecoded] * 4


AGGHIST = """
             key  ------------- Distribution ------------- count
             vda |@@@@@@@@@@@@@@@@@@@@                     12
               7 |@@@@@@@@@@@@@@@@@@@@                     12
"""
AGGPACK = """
     key     min .-----. max      | count
       1     < 0 : \u2581\u2581\u2581\u2581 \u2581: >= 40    | 32001
       2     < 0 :X_x  : >= 40    | 7
"""


@pytest.mark.parametrize("text", [AGGHIST, AGGPACK, AGGPACK.replace("     key", ""), AGGHIST.strip()])
@pytest.mark.parametrize("after", ["\n", ""])
def test_packed_tables_are_refused_by_name_and_what_follows_is_read(text, after):
    quantize = "value ------------- Distribution ------------- count\n 1 |@@ 3\n"
    refused, *rest = tables(f"{text.rstrip()}\n{after}{quantize}")
    assert isinstance(refused, Undecoded)
    assert refused.text.startswith("a table of agghist or aggpack: ")
    assert [counts(found) for found in rest] == [{1: 3}]


def test_bars_of_utf8_and_hard_blanks():
    text = "value  ------------- Distribution ------------- count\r\n\xa01 |\u2588\u2588\u258f   5\r\n\xa02 |  0\r\n"
    assert list(tables(text)) == [Distribution((), "quantize", (Row(1, 2, 5), Row(2, 4, 0)))]


def test_labels_that_do_not_go_together():
    head = "value  ------------- Distribution ------------- count\n"
    assert list(tables(f"{head}4 | 1\n2 | 1\n")) == [Undecoded("a table of labels that do not go together")]
    assert list(tables(f"{head}prose\n")) == [Undecoded("a table without rows"), Undecoded("prose")]


def test_mutated_captures_never_raise():
    draw = random.Random(5)
    texts = [
        path.read_text()
        for path in sorted(GOLDEN.iterdir())
        if path.suffix != ".err" and 0 < path.stat().st_size < 1500
    ]
    for _ in range(2000):
        data = list(draw.choice(texts))
        for _ in range(3):
            at = int(draw.random() * len(data))
            data[at : at + draw.choice((0, 1, 1, 60))] = draw.choice(
                ("", "x", "\n", " ", "\x1b", "0", "|", "\u2588", "-")
            )
        for table in tables("".join(data)):
            if isinstance(table, Undecoded):
                assert is_clean(table.text)
                assert len(table.text) <= 200


@given(st.text(max_size=300))
def test_any_text(text):
    list(tables(text))


@pytest.mark.parametrize("filler", [" ", "1", "1 ", "  a", " 1", ":", "a:", "\u2588"])
def test_a_hostile_line_costs_little(filler):
    line = filler * (50_000 // len(filler))
    list(tables(f"{line}\n{line}                1\nvalue - Distribution - count\n1 |{line}\n"))
