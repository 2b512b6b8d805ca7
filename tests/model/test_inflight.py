"""Depths as values: which ones share a bucket, and what is known of the highest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.inflight import Depths, bucket_end, bucket_middle, coarse_end


@pytest.mark.parametrize(
    ("depth", "end"),
    [
        (0, 0),
        (254, 254),
        (256, 256),
        (257, 288),
        (288, 288),
        (289, 320),
        (512, 512),
        (513, 576),
        (1023, 1024),
        (2046, 2048),
    ],
)
def test_depths_to_256_stay_and_above_it_limits_are_ends(depth, end):
    assert bucket_end(depth) == end


@given(st.integers(0, 1 << 20))
def test_an_end_is_its_own_end_and_no_more_than_an_eighth_above(depth):
    end = bucket_end(depth)
    assert end == depth if depth <= 256 else depth <= end < depth * 9 / 8
    assert bucket_end(end) == end


@given(st.integers(0, 1 << 16))
def test_the_middle_is_the_mean_of_the_depths_that_share_an_end(depth):
    end = bucket_end(depth)
    same = [n for n in range(max(end - end // 8 - 1, 0), end + 1) if bucket_end(n) == end]
    assert bucket_middle(end) == sum(same) / len(same)


@pytest.mark.parametrize(
    ("depths", "highest"),
    [
        (Depths(), 0),
        (Depths({3: 1}, at_issue={4: 1}), 4),
        (Depths({3: 1}, most=9), 9),
        (Depths({1024: 1}, most=1000), 1000),
        (Depths({1024: 1}), 1024),
        (Depths({1024: 1}, most=3), 1024),
    ],
)
def test_the_highest_is_not_rounded_where_it_was_counted(depths, highest):
    assert depths.highest == highest


def test_coarse_ends_are_exact_to_64_and_fewer_above():
    assert [coarse_end(n) for n in (0, 64, 65, 68, 69, 128, 129, 254, 256)] == [0, 64, 68, 68, 72, 128, 136, 256, 256]
    assert [coarse_end(n) for n in (257, 1023, 1 << 16)] == [288, 1024, 1 << 16]
    assert len({coarse_end(n) for n in range(257)}) == 65 + 2 * 16
    assert all(coarse_end(coarse_end(n)) == coarse_end(n) >= n for n in range(5000))
