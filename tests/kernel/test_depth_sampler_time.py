import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.model.inflight import Depths
from latmon_backends.kernel.depth_sampler import REACH_US, DepthTime, Spent, between


def spent(*readings):
    time = DepthTime()
    for ms, driver, queued in readings:
        time.read(ms * 1000, driver, queued)
    return time.spent()


def test_a_sample_counts_for_the_time_nearest_to_it():
    spent_us = spent((100, 0, 0), (120, 4, 7), (160, 2, 0))
    assert dict(spent_us.in_driver) == {0: 10, 4: 30, 2: 20}
    assert dict(spent_us.queued) == {0: 30, 7: 30}


def test_reading_more_often_while_it_is_busy_weighs_nothing_twice():
    """Busy for 200 ms of a second: read every 100 ms while idle, every 10 ms while busy."""
    idle = [(ms, 0, 0) for ms in (*range(0, 400, 100), *range(700, 1001, 100))]
    spent_us = spent(*sorted([*idle, *((ms, 8, 0) for ms in range(405, 605, 10))]))
    assert sum(spent_us.in_driver.values()) == 1000
    assert spent_us.in_driver[8] == pytest.approx(290, abs=60), "the idle readings on both sides are 100 ms away"
    rare = spent(*((ms, 8 if 400 < ms < 600 else 0, 0) for ms in range(0, 1001, 50)))
    assert rare.in_driver[8] == 150


def test_where_the_queue_is_not_separated_it_is_absent():
    spent_us = spent((0, 3, None), (10, 3, None))
    assert (dict(spent_us.in_driver), dict(spent_us.queued)) == ({3: 10}, {})


def test_nothing_is_known_long_after_a_reading():
    spent_us = spent((0, 1, 0), (60_000, 2, 0))
    assert dict(spent_us.in_driver) == {1: REACH_US // 1000, 2: REACH_US // 1000}


def test_one_that_comes_late_is_left_out():
    assert dict(spent((0, 1, 0), (20, 1, 0), (10, 9, 0), (20, 9, 0)).in_driver) == {1: 20}


def test_the_very_first_reading_is_no_time():
    assert between(Spent(), spent((5, 3, 0)), 1_000_000) is None


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 5)), min_size=2, max_size=50))
def test_no_time_is_lost_or_counted_twice(steps):
    time, now_us = DepthTime(), 0
    for step_us, driver in steps:
        now_us += step_us
        time.read(now_us, driver, 0)
    total = sum(time.spent().in_driver.values())
    first_us = steps[0][0]
    assert total == (now_us - first_us) // 1000
    assert total == sum(time.spent().queued.values())


def test_an_interval_is_a_difference():
    time = DepthTime()
    for ms in range(0, 50, 10):
        time.read(ms * 1000, 1, 0)
    before = time.spent()
    for ms in range(50, 100, 10):
        time.read(ms * 1000, 2, 5)
    assert between(before, time.spent(), 1_000_000) == Depths({1: 5, 2: 45}, {0: 5, 5: 45})


def test_another_device_of_the_same_name_begins_again():
    assert between(spent((0, 1, 0), (900, 1, 0)), spent((500, 1, 0), (510, 1, 0)), 1_000_000) == Depths(
        {1: 10}, {0: 10}
    )


def test_great_depths_are_the_end_of_their_bucket():
    spent_us = spent(*((at, (257, 512, 513)[at // 10], 300) for at in range(30)))
    assert (spent_us.in_driver.keys(), spent_us.queued.keys()) == ({288, 512, 576}, {320})


def test_the_table_is_bounded():
    time = DepthTime()
    for at in range(5000):
        time.read(at * 1000, at, at)
    assert len(time.spent().in_driver) < 256 + 8 * 5


def test_the_depths_of_a_device_that_was_idle_are_no_longer_than_the_interval():
    """Its last sample may be seconds old: that time is in frames before, which had it as idle."""
    passed = DepthTime()
    passed.read(1_000_000, 0, 0)
    before = passed.spent()
    passed.read(4_000_000, 0, 0)
    passed.read(5_000_000, 32, 8)
    depths = between(before, passed.spent(), 1_000_000)
    assert (dict(depths.in_driver), dict(depths.queued)) == ({0: 500, 32: 500}, {0: 500, 8: 500})
