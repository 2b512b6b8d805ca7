from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.histogram import bucket_bounds, bucket_index
from latmon_backends.demo.scenario import FEW, EqualIos, Mode, Shape, binomial, combine_stages, histogram, poisson

SHAPE = Shape((Mode(0.99, 100, 0.2), Mode(0.01, 500_000, 0.3)))


@given(st.integers(0, 5_000), st.integers())
def test_a_draw_has_exactly_the_count_asked_for(n, seed):
    groups = SHAPE.draw(Random(seed), n)
    assert sum(g.size for g in groups) == n
    assert all(g.size > 0 for g in groups)


def test_a_draw_looks_like_its_shape():
    rng = Random(1)
    drawn = histogram(SHAPE.draw(rng, 100_000))
    assert drawn.quantile(0.5) == pytest.approx(100, rel=0.13)
    slow = sum(n for bucket, n in drawn.buckets if bucket >= bucket_index(100_000))
    assert slow == pytest.approx(1_000, rel=0.2)


def test_few_and_many_have_the_same_mean():
    rng = Random(2)
    few = [g for _ in range(2_000) for g in SHAPE.draw(rng, FEW)]
    many = SHAPE.draw(rng, 2_000 * FEW)
    assert histogram(few).mean == pytest.approx(histogram(many).mean, rel=0.25)


def test_the_odds_add_up_and_ascend():
    buckets = [bucket for bucket, _ in SHAPE.odds]
    assert buckets == sorted(set(buckets))
    assert sum(p for _, p in SHAPE.odds) == pytest.approx(1)


@given(st.integers(1, 3_000), st.integers())
def test_paired_stages_keep_counts_and_time(n, seed):
    rng = Random(seed)
    first, second = SHAPE.draw(rng, n), SHAPE.draw(rng, n)
    met = combine_stages(rng, first, second)
    assert sum(size for size, _, _ in met) == n
    assert sum(size * (one + other) for size, one, other in met) == sum(g.size * g.us for g in (*first, *second))


def test_a_histogram_of_groups_is_exact():
    drawn = histogram([EqualIos(3, 10), EqualIos(1, 1_000_000), EqualIos(2, 10)])
    assert drawn.count == 6
    assert drawn.sum == 1_000_050
    assert drawn.max == 1_000_000
    assert drawn.buckets[0] == (bucket_index(10), 5)
    low, high = bucket_bounds(drawn.buckets[1][0])
    assert low <= 1_000_000 < high


@given(st.integers(0, 10_000), st.floats(0, 1), st.integers())
def test_a_binomial_draw_stays_within_n(n, p, seed):
    assert 0 <= binomial(Random(seed), n, p) <= n


def test_rare_draws_have_the_right_mean():
    rng = Random(3)
    assert sum(binomial(rng, 1_000, 0.0003) for _ in range(10_000)) == pytest.approx(3_000, rel=0.1)
    assert sum(poisson(rng, 40) for _ in range(1_000)) == pytest.approx(40_000, rel=0.02)
    assert poisson(rng, 0) == 0
