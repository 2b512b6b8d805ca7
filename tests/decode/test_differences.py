"""Cumulative maps: each gain is counted once, however lines are lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latmon.decode.tables import Differences
from latmon.manifest import KeyPart, MapSpec

BUCKET = KeyPart("bucket", 0, 8, "bucket")
SPECS = (MapSpec("x_wakeup", "wakeup", key=(KeyPart("thread", 8, 32, "integer"), BUCKET)), MapSpec("x_level", "level"))


def test_a_gain_is_reported_once():
    maps = Differences(SPECS)
    maps.printed("x_wakeup", {1: 5, 2: 1})
    assert maps.gained("x_wakeup") == {1: 5, 2: 1}
    maps.close()
    maps.printed("x_wakeup", {1: 7, 2: 1})
    assert maps.gained("x_wakeup") == {1: 2}
    maps.close()
    assert maps.gained("x_wakeup") == {}


def test_what_was_emptied_is_counted_again():
    maps = Differences(SPECS)
    for printed, gained in (({1: 5}, {1: 5}), ({1: 2}, {1: 2}), ({1: 3}, {1: 1})):
        maps.printed("x_wakeup", printed)
        assert maps.gained("x_wakeup") == gained
        maps.close()


def test_the_latest_is_of_its_interval():
    maps = Differences(SPECS)
    maps.printed("x_level", {1: 900})
    assert (maps.latest("x_level"), maps.latest("x_wakeup")) == ({1: 900}, {})
    maps.close()
    assert maps.latest("x_level") == {}


@pytest.mark.parametrize("row", [{-1: 1}, {2**63: 1}, {1: -1}, {1: 2**63}, {255: 1}])
def test_what_cannot_be_is_counted_as_undecoded(row):
    maps = Differences(SPECS)
    maps.printed("x_wakeup", {**row, 7: 3})
    assert maps.gained("x_wakeup") == {7: 3}
    assert maps.close() == 1
    assert maps.close() == 0


def test_an_unknown_map_is_counted_as_undecoded():
    maps = Differences(SPECS)
    maps.printed("y_wakeup", {1: 1})
    maps.printed("x_level", {255: 1})
    assert (maps.latest("x_level"), maps.close()) == ({255: 1}, 1)


@given(st.lists(st.tuples(st.dictionaries(st.integers(0, 5), st.integers(0, 9)), st.booleans())))
def test_gains_add_up_to_the_last_that_was_printed(ticks):
    maps, now, reported, printed = Differences(SPECS), {}, {}, {}
    for added, is_lost in ticks:
        now = {key: now.get(key, 0) + added.get(key, 0) for key in now.keys() | added.keys()}
        if not is_lost:
            maps.printed("x_wakeup", now)
            printed = now
        for key, n in maps.gained("x_wakeup").items():
            reported[key] = reported.get(key, 0) + n
        maps.close()
    assert reported == {key: n for key, n in printed.items() if n}


@pytest.mark.parametrize("later", [{1: 7}, {1: 5}, {1: 2}, {2: 4}])
def test_after_a_clear_a_map_counts_from_0_even_where_it_counts_more_than_before(later):
    maps = Differences(SPECS)
    maps.printed("x_wakeup", {1: 5})
    maps.cleared("x_wakeup")
    maps.printed("x_wakeup", later)
    total = {1: 5}
    for key, n in later.items():
        total[key] = total.get(key, 0) + n
    assert maps.gained("x_wakeup") == total


def test_what_was_counted_before_a_clear_is_reported_without_a_later_map():
    maps = Differences(SPECS)
    maps.printed("x_wakeup", {1: 5})
    maps.cleared("x_wakeup")
    assert maps.gained("x_wakeup") == {1: 5}
    assert maps.gained("x_wakeup") == {}
