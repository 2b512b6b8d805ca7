"""Who holds I/Os, in words."""

from latmon.report.formatting import MOST, Held, at_the_end, held, not_completed

S = 1_000_000


def test_a_device_s_rows_are_one_and_the_oldest_is_first():
    rows = [("sda", 1, 3 * S, False), ("loop3", 2, 40 * S, True), ("sda", 4, 50 * S, False), ("sdb", 1, S // 2, False)]
    assert held(rows) == [Held("sda", 5, 50 * S, at_least=False), Held("loop3", 2, 40 * S, at_least=True)]


def test_nobody():
    assert held([("sda", 1, S - 1, False)]) == []
    assert (at_the_end([]), not_completed([])) == ("", "")


def test_sentences():
    one, two = Held("sda", 1, 40 * S, at_least=False), Held("loop3", 2, 65 * S, at_least=True)
    assert not_completed([one]) == "sda: 1 I/O in flight for 40 s, not completed"
    assert at_the_end([two, one]) == "loop3: 2 I/Os, the oldest for at least 1:05 min; sda: 1 I/O for 40 s"


def test_more_devices_than_a_line_has_room_for_are_a_number():
    each = [Held(f"sd{n}", 1, S, at_least=False) for n in range(MOST + 3)]
    assert at_the_end(each).endswith("sd3: 1 I/O for 1 s; 3 more devices")
