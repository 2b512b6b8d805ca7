"""The comparison of reports, without a recording."""

import compare_recordings
import pytest
from compare_recordings import MISSING, Difference, Wanted, differences

OLD = {"devices": {"sda": {"count": 3, "max": None, "ops": ["read", "write"]}}, "exit code": 0}


@pytest.mark.parametrize(
    ("new", "difference"),
    [
        ({"count": 4, "max": None, "ops": ["read", "write"]}, Difference("kind/devices/sda/count", 3, 4)),
        ({"count": 3.0, "max": None, "ops": ["read", "write"]}, Difference("kind/devices/sda/count", 3, 3.0)),
        ({"count": 3, "ops": ["read", "write"]}, Difference("kind/devices/sda/max", None, MISSING)),
        ({"count": 3, "max": None, "ops": ["read"]}, Difference("kind/devices/sda/ops/1", "write", MISSING)),
        ({"count": 3, "max": None, "ops": {}}, Difference("kind/devices/sda/ops", ["read", "write"], {})),
        (
            {"count": 3, "max": None, "ops": ["read", "write"], "p99": 1},
            Difference("kind/devices/sda/p99", MISSING, 1),
        ),
    ],
)
def test_a_value_that_differs_is_named_with_its_place(new, difference):
    assert list(differences(OLD, OLD, "kind")) == []
    assert list(differences(OLD, {"devices": {"sda": new}, "exit code": 0}, "kind")) == [difference]


def test_a_wanted_difference_is_one_at_its_place_only(monkeypatch):
    wanted = (Wanted("*/devices/*/p99", "it is new", added=True), Wanted("kind/count", "it was wrong"))
    monkeypatch.setattr(compare_recordings, "WANTED", wanted)
    assert Difference("kind/devices/sda/p99", MISSING, 1).reason() == "it is new"
    assert Difference("kind/devices/sda/p99", 2, 1).reason() == ""
    assert Difference("kind/count", 2, 1).reason() == "it was wrong"
    assert Difference("other/count", 2, 1).reason() == ""
