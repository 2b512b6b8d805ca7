"""Record lines: what is known is a field, what is torn or can't be is none, and no line raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.tables import Record, record, shifted
from latmon.manifest import RECORDS, TEXTS, RecordSpec
from latmon.support.text import is_clean

SLOW = RecordSpec("slow", ("dev", "op", "rwbs", "sector", "done_ns", "total_us", "pid"), "comm")
BARE = RecordSpec("thread", ("thread", "priority"))
WHOLE = [RecordSpec(kind, fields, TEXTS[kind]) for kind, fields in RECORDS.items()]


def test_a_line_is_its_fields_and_the_rest():
    assert record("slow stages_c 266338304 1 WFS 2048 5000000 9000 4711 my program", SLOW) == Record(
        "slow",
        "stages_c",
        {"dev": 266338304, "op": 1, "sector": 2048, "done_ns": 5000000, "total_us": 9000, "pid": 4711},
        "WFS",
        "my program",
    )


def test_what_is_not_known_is_left_out():
    actual_record = record("slow x 1 0 R -1 5 18446744073709551615 -1 fio", SLOW)
    assert actual_record.fields == {"dev": 1, "op": 0, "done_ns": 5}
    assert (actual_record.get("pid"), actual_record.get("dev"), actual_record.get("colour")) == (None, 1, None)


def test_the_text_may_be_empty_or_have_blanks_at_its_ends():
    assert record("slow x 1 0 R 1 5 7 9 ", SLOW).text == ""
    assert record("slow x 1 0 R 1 5 7 9", SLOW).text == ""
    assert record("slow x 1 0 R 1 5 7 9  a ", SLOW).text == " a "
    assert record("thread x 9 120", BARE) == Record("thread", "x", {"thread": 9, "priority": 120})


def test_foreign_text_is_clean():
    actual_record = record("slow x\x1b 1 0 R 1 5 7 9 \x1b]52;c;x\x07\u202e" + "a" * 100, SLOW)
    assert is_clean(actual_record.text)
    assert is_clean(actual_record.probe)
    assert len(actual_record.text) == 64


@pytest.mark.parametrize(
    "line",
    [
        *("", "slow", "slow x", "slow x 1 0 R 1 5 7", "late x 1 0 R 1 5 7 9 fio", " slow x 1 0 R 1 5 7 9 fio"),
        "slow x 1 0 R 1 5 seven 9 fio",
        "slow x 1 0 R 1 5 -2 9 fio",
        "slow x 1 0 R 1 5 7.5 9 fio",
        "slow x 1 0 R 1 5 \u0667 9 fio",
        "slow x 1 0 R 1 5 1_0 9 fio",
        "slow x 1 0 R 1 5 1099511627777 9 fio",
        "slow x 1 0 R 1 9223372036854775808 7 9 fio",
        "slow x 1 0 R 1 5 7 4294967296 fio",
        "slow x 1 256 R 1 5 7 9 fio",
        "slow x 1 0 r 1 5 7 9 fio",
        "slow x 1 0 11 1 5 7 9 fio",
        "slow x 1 0  R 1 5 7 9 fio",
    ],
)
def test_what_is_torn_or_cannot_be_is_no_record(line):
    assert record(line, SLOW) is None


def test_a_line_without_text_has_no_more_than_its_fields():
    assert record("thread x 9 120 bash", BARE) is None
    assert record("thread x 9 256", BARE) is None


@pytest.mark.parametrize("pointer", ["18446620680463417600", str(18446620680463417600 - 2**64)])
def test_a_pointer_is_one_number_however_it_is_printed(pointer):
    spec = RecordSpec("handler", ("handler", "irq"), "name")
    assert record(f"handler irqs_a {pointer} 11 nvme0q1", spec).get("handler") == 18446620680463417600


def test_stamps_of_another_clock_are_put_back():
    given_record = Record("late", "x", {"thread": 5, "woken_ns": 9_000, "delay_us": 8_000})
    assert shifted(given_record, 4_000).fields == {"thread": 5, "woken_ns": 5_000, "delay_us": 8_000}
    assert shifted(given_record, 0) is given_record


@given(st.sampled_from(WHOLE), st.text())
def test_any_text_is_a_record_or_none(spec, text):
    for line in (text, f"{spec.kind} {text}", f"{spec.kind} x {text}"):
        actual_record = record(line, spec)
        assert actual_record is None or set(actual_record.fields) <= set(spec.fields)


@given(st.sampled_from(WHOLE), st.data())
def test_any_numbers_are_known_sane_or_refused(spec, data):
    numbers = data.draw(st.lists(st.integers(-(2**64), 2**65), min_size=len(spec.fields), max_size=len(spec.fields)))
    actual_record = record(f"{spec.kind} x {' '.join(map(str, numbers))} a b", spec)
    assert actual_record is None or all(0 <= value < 2**64 for value in actual_record.fields.values())
