"""IOPS = outstanding / latency, whether the three agree, and what lifting a limit would give."""

import pytest

from latmon.littles_law import Law, law, lift, sentence


def test_the_line_of_a_serialised_device():
    told = sentence(Law(3.0, 3000.0, 1000.0), lift(3, 32, 3000.0))
    assert (
        told
        == "1,000 IOPS = 3 in flight / 3 ms; at 32 in flight up to 10,700 if the time in the driver stayed the same"
    )


def test_the_limit_s_own_rate_is_the_most_that_it_allows():
    found = lift(3, 16, 1000.0)
    assert (found.most, found.iops) == (3000.0, 16_000.0)


@pytest.mark.parametrize(
    ("held", "depth", "driver_us"), [(None, 32, 1.0), (32, 32, 1.0), (3, 32, None), (3, 32, 0.0), (0, 4, 1.0)]
)
def test_nothing_is_promised_where_the_limit_isn_t_what_holds_it(held, depth, driver_us):
    assert lift(held, depth, driver_us) is None


@pytest.mark.parametrize("three", [(None, 1.0, 1.0), (1.0, None, 1.0), (1.0, 1.0, 0.0), (0.0, 1.0, 1.0)])
def test_there_is_no_law_of_two(three):
    assert law(*three) is None


def test_three_that_don_t_agree_are_said_not_to():
    found = law(6.0, 3000.0, 1000.0)
    assert not found.agrees
    assert sentence(found).startswith("1,000 IOPS at 3 ms are 3 in flight by Little's law, and 6 were counted")
    assert law(3.2, 3000.0, 1000.0).agrees


def test_small_and_large_rates_keep_their_digits():
    assert sentence(Law(1.0, 1e6, 1.0)) == "1.00 IOPS = 1 in flight / 1 s"
    assert sentence(Law(128.0, 914.0, 140_031.0)).startswith("140,000 IOPS = 128 in flight / 914 us")
