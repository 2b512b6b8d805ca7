"""Buckets and quantiles compared with the exact values."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.histogram import (
    BITS,
    EMPTY,
    MAX_COUNT,
    MAX_US,
    TOP,
    Histogram,
    bucket_bounds,
    bucket_index,
    merge,
    part_of,
    sum_bounds,
)

HOUR_US = 3_600_000_000
VALUES = st.integers(0, HOUR_US) | st.integers(0, 5000)
LISTS = st.lists(VALUES, max_size=60)
FILLED = st.lists(VALUES, min_size=1, max_size=60)
RESOLUTIONS = st.integers(0, 5)
LATENCIES = st.lists(VALUES, max_size=40).map(Histogram.record)


@given(VALUES, RESOLUTIONS)
def test_a_value_is_in_its_bucket(us, bits):
    low, high = bucket_bounds(bucket_index(us, bits), bits)
    assert low <= us < high


@given(VALUES)
def test_a_bucket_is_an_eighth_wide_at_most(us):
    low, high = bucket_bounds(bucket_index(us))
    assert high - low == 1 or high - low <= low / 2**BITS


@given(VALUES, VALUES, RESOLUTIONS)
def test_a_slower_io_is_in_no_lower_bucket(one, other, bits):
    assert (one <= other) <= (bucket_index(one, bits) <= bucket_index(other, bits))


@pytest.mark.parametrize("bits", range(6))
def test_buckets_touch_and_none_is_missing(bits):
    bounds = [bucket_bounds(index, bits) for index in range(bucket_index(MAX_US, bits) + 1)]
    assert bounds[0][0] == 0
    assert all(high == low for (_, high), (low, _) in pairwise(bounds))
    assert bounds[-1][1] == MAX_US + 1


@pytest.mark.parametrize(
    ("us", "index"),
    [(0, 0), (1, 1), (7, 7), (8, 8), (15, 15), (16, 16), (17, 16), (18, 17), (1000, 63), (10**6, 143), (HOUR_US, 237)],
)
def test_known_buckets(us, index):
    assert bucket_index(us) == index


def test_powers_of_two_begin_a_bucket_and_their_predecessors_end_one():
    for exponent in range(32):
        us = 2**exponent
        assert bucket_bounds(bucket_index(us))[0] == us
        assert bucket_bounds(bucket_index(us - 1))[1] == us


@pytest.mark.parametrize("us", [MAX_US, MAX_US + 1, 2**33, 2**63])
def test_what_is_too_slow_to_measure_is_in_the_top_bucket(us):
    assert bucket_index(us) == TOP == 239


def test_a_negative_latency_is_an_error():
    with pytest.raises(ValueError, match="negative"):
        bucket_index(-1)


@given(LISTS)
def test_count_sum_and_max_are_exact(values):
    histogram = Histogram.record(values)
    assert histogram.count == len(values)
    if values:
        assert (histogram.sum, histogram.max) == (sum(values), max(values))
        assert histogram.mean == pytest.approx(sum(values) / len(values))
    else:
        assert histogram == EMPTY
        assert (histogram.mean, histogram.max_bound, bool(histogram)) == (None, None, False)


@given(LISTS, LISTS)
def test_merging_is_recording_together(one, other):
    assert merge([Histogram.record(one), Histogram.record(other)]) == Histogram.record(one + other)


@given(LATENCIES, LATENCIES)
def test_merge_is_commutative(one, other):
    assert merge([one, other]) == merge([other, one])


@given(LATENCIES, LATENCIES, LATENCIES)
def test_merge_is_associative(one, two, three):
    assert merge([merge([one, two]), three]) == merge([one, merge([two, three])]) == merge([one, two, three])


@given(LATENCIES)
def test_merging_with_nothing_changes_nothing(one):
    assert merge([one, EMPTY]) == merge([one]) == one
    assert merge([]) == EMPTY


def test_one_unknown_sum_makes_the_merged_one_unknown():
    merged = merge([Histogram.of({3: 1}, 3, 3), Histogram.of({5: 1})])
    assert (merged.sum, merged.max, merged.count) == (None, None, 2)
    assert merged.max_bound == 6


def test_a_known_maximum_above_every_unknown_one_is_the_maximum():
    blind = Histogram.of({bucket_index(900): 4})
    assert merge([blind, Histogram.record([1200])]).max == 1200
    assert merge([Histogram.record([1200]), blind]).max == 1200
    assert merge([blind, Histogram.record([900])]).max is None


@given(LISTS, RESOLUTIONS, RESOLUTIONS)
def test_coarsening_is_recording_coarsely(values, fine, coarse):
    if coarse > fine:
        return
    coarsened = Histogram.record(values, fine).coarsen(coarse)
    assert coarsened.buckets == Histogram.record(values, coarse).buckets
    assert coarsened.count == len(values)


@given(LATENCIES, LATENCIES, RESOLUTIONS)
def test_coarsening_and_merging_may_change_places(one, other, bits):
    if bits > BITS:
        return
    assert merge([one, other]).coarsen(bits).buckets == merge([one.coarsen(bits), other.coarsen(bits)]).buckets


@pytest.mark.parametrize("bits", [-1, 4])
def test_nothing_is_made_finer(bits):
    with pytest.raises(ValueError, match="coarsen"):
        Histogram.record([1]).coarsen(bits)


@given(LISTS, LISTS)
def test_a_difference_is_what_came_since(before, since):
    earlier, now = Histogram.record(before), Histogram.record(before + since)
    later = now.difference(earlier)
    assert later.buckets == Histogram.record(since).buckets
    assert later.max is None
    if before and since:
        assert later.sum == sum(since)


@given(FILLED)
def test_a_source_that_was_reset_is_noticed(values):
    with pytest.raises(ValueError, match="backwards"):
        EMPTY.difference(Histogram.record(values))


@given(FILLED, st.floats(0, 0.9999))
def test_a_quantile_bounds_the_exact_one_from_above(values, q):
    histogram = Histogram.record(values)
    found = histogram.quantile(q)
    rank = max(1, math.ceil(q * len(values)))
    exact = sorted(values)[min(rank, len(values)) - 1]
    if found is None:
        assert len(values) * (1 - q) < 1
    else:
        assert exact <= found <= max(values)
        assert found <= exact + max(1, exact / 2**BITS)


@given(FILLED, RESOLUTIONS)
def test_quantiles_rise(values, bits):
    histogram = Histogram.record(values, bits)
    found = [value for q in (0, 0.25, 0.5, 0.75, 0.9, 0.95) if (value := histogram.quantile(q)) is not None]
    assert found == sorted(found)


@pytest.mark.parametrize(("q", "needed"), [(0.5, 2), (0.9, 10), (0.99, 100), (0.999, 1_000), (0.9999, 10_000)], ids=str)
def test_a_quantile_needs_enough_values(q, needed):
    assert Histogram.of({5: needed - 1}).quantile(q) is None
    assert Histogram.of({5: needed}).quantile(q) is not None


def test_nothing_has_no_quantile():
    assert EMPTY.quantile(0.5) is None


@pytest.mark.parametrize("q", [-0.1, 1.0, 2.0])
def test_a_quantile_lies_below_one(q):
    with pytest.raises(ValueError, match="quantile"):
        Histogram.record([1]).quantile(q)


@given(FILLED)
def test_the_bound_of_the_maximum(values):
    histogram = Histogram.record(values)
    blind = Histogram(histogram.buckets, histogram.sum, None)
    assert histogram.max_bound == max(values)
    assert blind.max_bound is not None
    assert max(values) < blind.max_bound


def test_empty_buckets_are_not_kept():
    assert Histogram.of({3: 0, 2: 1, 1: 4}).buckets == ((1, 4), (2, 1))


def test_a_sum_that_buckets_allow_has_one_rule():
    """The clamp's bucket has no end; a coarse bucket may hold what lies in the rest of its octave."""
    fine = Histogram.record([100, 100, MAX_US])
    low, high = sum_bounds(fine.buckets)
    assert (low, high) == (96 * 2 + bucket_bounds(TOP)[0], 103 * 2 + MAX_COUNT)
    assert sum_bounds(fine.buckets[:1], coarse=True) == (192, 191 * 2)
    assert [fine.within(us) for us in (0, low, high, high + 1)] == [low, low, high, high]
    allowed = [not Histogram(fine.buckets, us).contradiction() for us in (low - 1, low, high, high + 1)]
    assert allowed == [False, True, True, False]


def test_a_part_is_bounded_by_each_whole_and_by_none_that_lacks_its_ios():
    part = Histogram.of({bucket_index(4000): 3}, None)
    first, second = Histogram.record([3990]), Histogram.record([3980])
    assert part.max_bound > 3990
    assert part_of(part, first).max_bound == 3990
    assert part_of(part_of(part, first), second).max_bound == 3980
    assert part_of(part_of(part, second), first).max_bound == 3980
    shorter = Histogram.record([100])
    assert part_of(part, shorter).max_bound == part.max_bound


@pytest.mark.parametrize(
    ("times", "longest"),
    [
        ([1_238_738, 1_200_000, 9], 1_238_738),
        ([1_238_738], None),
        ([], None),
        ([9, 9, 9], None),
        ([1_238_738, 2_000_000], None),
    ],
    ids=["all of the highest bucket", "one of them", "none", "others", "one is in no bucket"],
)
def test_single_times_show_the_maximum_where_all_of_the_highest_bucket_are_known(times, longest):
    """Two values are in the highest bucket, of 1,179,648 to 1,310,720 us."""
    histogram = Histogram.of({bucket_index(9): 5, bucket_index(1_238_738): 2}, 10).with_longest(times)
    assert histogram.max == longest
    assert histogram.max_bound == (longest or 1_310_720)
    assert Histogram.of({9: 1}, 9, 9).with_longest(times).max == 9
    assert Histogram().with_longest(times) == Histogram()
