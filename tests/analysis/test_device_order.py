"""The order of devices: which one is worth a look first, and that rows keep their place."""

from random import Random

import pytest

from latmon.analysis.peers import Order, Rank, by_name, in_flight_us, natural, shares
from latmon.model.inflight import Aged


def test_unlike_ones_first_then_the_busy_ones_then_by_name():
    ranks = [
        Rank("sda", 90.0),
        Rank("sdc", 1_000.0),
        Rank("sdb", 800.0),
        Rank("sdd", 1.0, unlike=8.0),
        Rank("sde", 1.0, unlike=30.0),
        Rank("sdf", 1.0, finding=0),
    ]
    assert Order().sort(ranks) == ["sdf", "sde", "sdd", "sdb", "sdc", "sda"]


@pytest.mark.parametrize("name", ["loop0", "loop12", "ram3", "zram0", "zd16"])
def test_devices_in_memory_and_on_files_come_last_unless_a_finding_names_them(name):
    assert Order().sort([Rank(name, 1_000.0, 0.9, unlike=9.0), Rank("vda", 1.0, 0.1)]) == ["vda", name]
    assert Order().sort([Rank(name, 1.0, 0.0, finding=0), Rank("vda", 9.0, 0.1)]) == [name, "vda"]


def test_an_idle_disk_is_above_idle_devices_on_files():
    order = Order()
    idle = [Rank("loop0", share=0.0), Rank("vda", share=0.0)]
    assert order.sort(idle) == ["vda", "loop0"]
    assert order.sort([*idle, Rank("vdb", share=0.0), Rank("loop1", share=0.0)], keep=True) == [
        *("vda", "loop0"),
        *("vdb", "loop1"),
    ]


def test_below_one_percent_of_the_hosts_io_comes_last_unless_it_is_unlike_its_peers():
    vda = Rank("vdb", 1.0, 0.5)
    assert Order().sort([Rank("sda", 9.0, 0.009), vda]) == ["vdb", "sda"]
    assert Order().sort([Rank("sda", 9.0, 0.01), vda]) == ["sda", "vdb"]
    assert Order().sort([Rank("sda", 9.0, 0.009, unlike=5.0), vda]) == ["sda", "vdb"]
    assert Order().sort([Rank("sda", 9.0, 0.009, finding=0), vda]) == ["sda", "vdb"]


def test_who_is_gone_comes_last_and_who_is_not_timed_behind_its_disks():
    ranks = [Rank("dm-0", 99.0, is_timed=False), Rank("sdb", 9.0), Rank("sda", 999.0, is_gone=True)]
    assert Order().sort(ranks) == ["sdb", "dm-0", "sda"]


def test_rows_do_not_dance_while_loads_vary():
    rng, order, seen = Random(1), Order(), set()
    means = {f"sd{n}": 1_000.0 * 1.3**n for n in range(12)}
    for _ in range(200):
        ranks = [Rank(name, mean * rng.uniform(0.85, 1.15)) for name, mean in means.items()]
        seen.add(tuple(order.sort(ranks)))
    assert len(seen) <= 3, "the first one, and two devices that began at the edge of a step"
    assert order.sort([Rank(name, 16e6 if name == "sd0" else mean) for name, mean in means.items()])[0] == "sd0"


def test_a_share_at_the_limit_does_not_dance_either():
    order = Order()
    seen = {tuple(order.sort([Rank("a", 9.0, share), Rank("b", 1.0, 0.9)])) for share in (0.009, 0.011, 0.009, 0.015)}
    assert seen == {("b", "a")}
    assert order.sort([Rank("a", 9.0, 0.02), Rank("b", 1.0, 0.9)]) == ["a", "b"]
    assert order.sort([Rank("a", 9.0, 0.011), Rank("b", 1.0, 0.9)]) == ["a", "b"]


def test_a_share_is_by_number_or_by_time():
    actual_shares = shares([("a", 990), ("b", 10)], [("a", 500.0), ("b", 500.0)])
    assert actual_shares == {"a": 0.99, "b": 0.5}
    assert shares([("a", 0)], [("a", 0.0)]) == {"a": 0.0}


def test_what_is_in_flight_is_busy_time_of_the_window():
    assert in_flight_us([Aged("a", 5), Aged("a", 90, count=2), Aged("b", 1)], 60) == {"a": 125, "b": 1}


def test_by_name_is_by_number():
    assert sorted(["sda10", "sda2", "sda"], key=natural) == ["sda", "sda2", "sda10"]


def test_a_list_without_load_has_devices_in_memory_last():
    assert sorted(["loop0", "vda", "nvme10n1", "nvme2n1"], key=by_name) == ["nvme2n1", "nvme10n1", "vda", "loop0"]


def test_findings_come_first_in_their_order_then_the_share_above_the_threshold():
    ranks = [
        Rank("sda", 900.0, unlike=30.0),
        Rank("sdb", 900.0, slow=0.001),
        Rank("sdc", 900.0, slow=0.2),
        Rank("sdd", 1.0, 0.001, finding=1),
        Rank("sde", 1.0, finding=0),
        Rank("sdf", 1.0, finding=0.5),
    ]
    assert Order().sort(ranks) == ["sde", "sdf", "sdd", "sdc", "sdb", "sda"]


def test_the_share_above_the_threshold_moves_no_row_while_it_is_about_the_same():
    order = Order()
    for share in (0.1, 0.12, 0.09, 0.11):
        assert order.sort([Rank("sda", 1.0, slow=0.1), Rank("sdb", 9.0, slow=share)]) == ["sdb", "sda"]
    assert order.sort([Rank("sda", 1.0, slow=0.9), Rank("sdb", 9.0, slow=0.01)]) == ["sda", "sdb"]
