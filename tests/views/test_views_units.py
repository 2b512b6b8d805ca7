"""Numbers as text: significant digits, honest bounds, widths that don't jump."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.histogram import MAX_US, Histogram
from latmon.support.units import whole
from latmon.views import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"), (0, "0us"), (3, "3us"), (85, "85us"), (999, "999us"), (1000, "1.00ms"), (1238, "1.24ms"),
        (62_100, "62.1ms"), (480_000, "480ms"), (999_999, "1.00s"), (1_238_999, "1.24s"), (59_400_000, "59.4s"),
        (72_000_000, "72.0s"), (119_400_000, "119s"), (119_600_000, "120s"), (596_900_000, "597s"),
        (599_600_000, "10min"), (MAX_US, "72min"), (999 * 60_000_000, "999min"), (61_200_000_000, "17h"),
        (3.4, "3.40us"), (0.304, "0.3us"), (0.02, "<0.1us"),
    ],
)  # fmt: skip
def test_durations_have_three_digits_and_their_unit(us, text):
    assert units.duration(us) == text


@given(st.integers(0, MAX_US))
def test_a_duration_fits_six_cells_and_has_a_unit(us):
    for text in (units.duration(us), units.duration(us, 2, up=True)):
        assert len(text) <= 6
        assert re.fullmatch(r"[0-9.]+(us|ms|s|min)", text)


@given(st.integers(1, MAX_US))
def test_a_bound_is_never_rounded_down(us):
    assert in_us(units.duration(us, 2, up=True)) >= us * (1 - 1e-9)


@given(
    st.lists(st.integers(1, MAX_US), min_size=2, max_size=30), st.sampled_from([0.0, 0.3, 0.5]), st.sampled_from([3, 1])
)
def test_no_quantile_is_shown_above_the_maximum(values, q, bits):
    histogram = Histogram.record(values).coarsen(bits)
    shown, maximum = units.quantile(histogram, q).removeprefix("~"), units.maximum(histogram)
    assert in_us(shown) <= in_us(maximum)


def test_a_bound_just_below_the_maximum_keeps_a_digit_more():
    assert units.bound(1_230, 1_240) == "1.23ms"
    assert units.bound(1_230, 1_300) == units.bound(1_230, None) == "1.3ms"
    assert units.bound(65_200_000, 65_300_000) == "65.2s"
    assert units.bound(185_000_000, 200_000_000) == "190s"


def in_us(text):
    number = text.rstrip("uminsh")
    return round(float(number) * {"us": 1, "ms": 1000, "s": 10**6, "min": 60 * 10**6}[text[len(number) :]])


def test_a_quantile_has_the_digits_of_its_bucket():
    fine = Histogram.record([1100] * 200 + [1200])
    assert units.quantile(fine, 0.5) == "1.2ms"
    assert units.quantile(Histogram.record([1100] * 200), 0.5) == "1.10ms"
    assert units.quantile(fine, 0.999) == "-"
    octave = fine.coarsen(0)
    assert units.quantile(Histogram(octave.buckets, bits=0), 0.5) == "~2.1ms", "an upper bound"
    assert units.quantile(replace(octave, max=2080), 0.5) == "2.08ms", "the maximum, which is below 2.1 ms"


def test_a_maximum_that_is_a_bound_says_so():
    assert units.maximum(Histogram.record([1_238_999])) == "1.24s"
    assert units.maximum(Histogram(Histogram.record([1_238_999]).buckets)) == "≤1.4s"
    assert units.maximum(Histogram()) == "-"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (0.04, "0.0"),
        (0.26, "0.3"),
        (4.12, "4.12"),
        (412, "412"),
        (999.7, "1.00k"),
        (11_200, "11.2k"),
        (2e6, "2.00M"),
    ],
)
def test_rates(value, text):
    assert units.rate(value) == text


@given(st.floats(0, 1e14))
def test_a_rate_fits_five_cells(value):
    assert len(units.rate(value)) <= 5


def test_the_word_all_is_shown_only_for_all():
    assert units.percent(1) == "100%"
    assert units.percent(0.999_999) == "99.99%"
    assert units.percent(0.9997) == "99.97%"


def test_counts_are_whole():
    assert [units.count(n) for n in (3, 24_711, 1_020_000)] == ["3", "24,711", "1.02M"]
    assert [whole(n) for n in (3, 412, 11_200)] == ["3", "412", "11.2k"]
    assert [units.rounded(n) for n in (64, 256, 4096, 1 << 20)] == ["64", "256", "4.1k", "1.0M"]
    assert [units.span(s * 10**6) for s in (15, 60, 120, 256, 600)] == ["15 s", "60 s", "2 min", "4.3 min", "10 min"]


@pytest.mark.parametrize(
    ("least", "most", "text"),
    [(0, 0, ""), (1, 1, ""), (8, 8, "1 in 8"), (1, 8, "1 in 1 to 8, weighed"), (2, 8, "1 in 2 to 8, weighed")],
)
def test_how_many_are_traced(least, most, text):
    assert units.sampled_as(least, most) == text


def test_where_a_total_ends():
    assert (units.until({"hba": 5}), units.until({"resume": 5})) == ("to completion", "to its waiter")
