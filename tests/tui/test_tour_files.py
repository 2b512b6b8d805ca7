"""Guided tours: what is bundled can be read, and fits the smallest screen."""

from random import Random

import pytest

from latmon.support.errors import UsageError
from latmon.tui.tour import MAX_TEXT, load_tour, tours
from latmon_backends.demo.backend import INCIDENTS

SCREENS = {"overview", "stages", "outstanding", "order", "outliers", "interrupts", "findings"}


@pytest.mark.parametrize("name", tours())
def test_five_steps_that_fit(name):
    tour = load_tour(name)
    assert len(tour.stops) == 5
    assert 0 < len(tour.title) <= 60
    for stop in tour.stops:
        assert stop.where.screen in SCREENS
        assert 0 < len(stop.text) <= MAX_TEXT
        assert "\n" not in stop.text
    assert "findings" in {stop.where.screen for stop in tour.stops}


@pytest.mark.parametrize("name", tours())
def test_each_device_is_in_its_scenario(name):
    first = next(iter(INCIDENTS[name].frames(Random(1))))
    assert {stop.where.device for stop in load_tour(name).stops} <= {"", *(one.name for one in first.devices)}


def test_it_ends_with_what_to_try_next():
    assert "latmon demo emulex-healthy" in load_tour("emulex").then
    assert set(tours()) == {name for name in INCIDENTS if INCIDENTS[name].healthy}


def test_the_five():
    assert tours() == ("bubbles", "e810", "emulex", "qumulo", "serialised")


def test_none_for_another_demo():
    with pytest.raises(UsageError, match=r"no tour of the demo 'host'; the tours are bubbles, e810"):
        load_tour("host")
