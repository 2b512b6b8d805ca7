"""Settings: what changed between two readings, and no more than a header holds."""

import json

from latmon.model.frame import capped, changes


def test_what_is_set_differently():
    before = {"kernel": {"hz": "250"}, "device sda": {"scheduler": "none", "nr_requests": "64"}, "clock": {"mono": "1"}}
    now = {"kernel": {"hz": "250"}, "device sda": {"scheduler": "kyber", "nr_requests": "64"}, "clock": {"mono": "2"}}
    assert changes(before, now) == {"device sda": {"scheduler": "kyber"}}


def test_what_is_new_in_a_section_is_a_change_and_a_new_section_is_none():
    assert changes({"device sda": {}}, {"device sda": {"queue_depth": "1"}, "device sdb": {"x": "y"}}) == {
        "device sda": {"queue_depth": "1"}
    }


def test_what_can_t_be_read_any_more_is_no_change():
    assert changes({"kernel": {"preemption": "full"}, "tool": {"a": "b"}}, {"kernel": {}}) == {}


def test_sections_that_don_t_fit_are_counted():
    many = {f"device sd{n}": {f"name{i}": "ü" * 20 for i in range(20)} for n in range(1000)}
    kept = capped(many, 50_000)
    assert len(kept) > 5
    assert int(kept["left out"]["sections"]) == 1000 - (len(kept) - 1)
    assert len(json.dumps({name: dict(section) for name, section in kept.items()})) < 50_000
    assert capped({}) == {}
