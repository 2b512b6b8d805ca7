"""Numbers as text: significant digits, honest bounds, widths that don't jump."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.histogram import MAX_US, Histogram
from latmon.support.units import whole
from latmon.views import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"), (0, "0u"), (3, "3u"), (85, "85u"), (999, "999u"), (1000, "1.00m"), (1238, "1.24m"),
        (62_100, "62.1m"), (480_000, "480m"), (999_999, "1.00s"), (1_238_999, "1.24s"), (59_400_000, "59.4s"),
        (72_000_000, "1:12"), (MAX_US, "71:35"), (3.4, "3.40u"),
    ],
)  # fmt: skip
def test_durations_have_three_digits_and_their_unit(us, text):
    assert units.duration(us) == text


@given(st.integers(0, MAX_US))
def test_a_duration_fits_five_cells(us):
    assert len(units.duration(us)) <= 5
    assert len(units.duration(us, 2, up=True)) <= 5


@given(st.integers(1, 50_000_000))
def test_a_bound_is_never_rounded_down(us):
    text = units.duration(us, 2, up=True)
    factor = {"u": 1, "m": 1000, "s": 1_000_000}[text[-1]]
    assert float(text[:-1]) * factor >= us * (1 - 1e-9)


@given(
    st.lists(st.integers(1, MAX_US), min_size=2, max_size=30), st.sampled_from([0.0, 0.3, 0.5]), st.sampled_from([3, 1])
)
def test_no_quantile_is_shown_above_the_maximum(values, q, bits):
    one = Histogram.record(values).coarsen(bits)
    shown, most = units.quantile(one, q).removeprefix("~"), units.maximum(one)
    assert in_us(shown) <= in_us(most) or bits == 1


def test_a_bound_just_below_the_maximum_keeps_a_digit_more():
    assert units.bound(1_230, 1_240) == "1.23m"
    assert units.bound(1_230, 1_300) == units.bound(1_230, None) == "1.3m"
    assert units.bound(65_200_000, 65_300_000) == "1:05"


def in_us(text):
    if ":" in text:
        minutes, seconds = text.split(":")
        return (60 * int(minutes) + int(seconds)) * 10**6
    return round(float(text[:-1]) * {"u": 1, "m": 1000, "s": 1_000_000}[text[-1]])


def test_a_quantile_has_the_digits_of_its_bucket():
    fine = Histogram.record([1100] * 200 + [1200])
    assert units.quantile(fine, 0.5) == "1.2m"
    assert units.quantile(Histogram.record([1100] * 200), 0.5) == "1.10m"
    assert units.quantile(fine, 0.999) == "-"
    octave = fine.coarsen(0)
    assert units.quantile(Histogram(octave.buckets, bits=0), 0.5) == "~3m", "an upper bound"


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


def test_all_is_said_only_of_all():
    assert units.percent(1) == "100%"
    assert units.percent(0.999_999) == "99.99%"
    assert units.percent(0.9997) == "99.97%"


def test_counts_are_whole():
    assert [units.count(n) for n in (3, 24_711, 1_020_000)] == ["3", "24,711", "1.02M"]
    assert [whole(n) for n in (3, 412, 11_200)] == ["3", "412", "11.2k"]
    assert [units.rounded(n) for n in (64, 256, 4096, 1 << 20)] == ["64", "256", "4.1k", "1.0M"]
    assert [units.span(s * 10**6) for s in (15, 60, 120, 600)] == ["15 s", "60 s", "2 min", "10 min"]


@pytest.mark.parametrize(
    ("least", "most", "text"), [(0, 0, ""), (1, 1, ""), (8, 8, "1 in 8"), (1, 8, "1 in 1 to 8"), (2, 8, "1 in 2 to 8")]
)
def test_how_many_are_traced(least, most, text):
    assert units.sampled_as(least, most) == text


def test_where_a_total_ends():
    assert (units.until({"hba": 5}), units.until({"resume": 5})) == ("to completion", "to its waiter")
