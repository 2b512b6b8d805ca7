"""How often a backlog is painted."""

from latmon.tui.app import RepaintPace


def test_ten_times_a_second_and_one_at_a_time():
    pace = RepaintPace()
    assert pace.due(100.0) == 0
    pace.painted(100.0, 100.001)
    assert 0.05 < pace.due(100.04) < 0.07
    assert pace.due(100.05) is None
    pace.painted(100.1, 100.101)
    assert pace.due(100.3) == 0


def test_a_dear_picture_is_made_less_often():
    pace = RepaintPace()
    pace.painted(100.0, 100.2)
    assert 0.5 < pace.due(100.2) < 0.7
