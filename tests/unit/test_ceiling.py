"""The most that a driver can hold at once, from what sysfs says of a device."""

import pytest

from latmon.limits import ceiling, ceilings
from latmon.model import Device, Limit


def told(**values):
    return [Limit(name.replace("hardware_", "hardware "), value, f"at/{name}") for name, value in values.items()]


@pytest.mark.parametrize(
    ("limits", "bound"),
    [
        ({}, None),
        ({"scheduler": "none", "nr_requests": 256}, None),
        ({"scheduler": "none", "nr_requests": 4, "nr_tags": 128}, 4),
        ({"scheduler": "none", "nr_requests": 4, "nr_tags": 128, "hardware_queues": 2}, 8),
        ({"scheduler": "mq-deadline", "nr_requests": 4, "nr_tags": 128}, 128),
        ({"queue_depth": 3, "nr_tags": 128}, 3),
        ({"queue_depth": 64, "nr_tags": 3}, 3),
        ({"nr_tags": 1023, "hardware_queues": 8}, 8184),
        ({"nr_tags": 1023, "hardware_queues": 8, "host_tagset": 1}, 1023),
        ({"can_queue": 32, "nr_hw_queues": 1, "queue_depth": 64}, 32),
        ({"can_queue": 32, "nr_hw_queues": 4}, 128),
        ({"can_queue": 32, "nr_hw_queues": 4, "host_tagset": 1}, 32),
    ],
)
def test_it_is_the_least_of_what_bounds_the_driver(limits, bound):
    found = ceiling(told(**limits))
    assert (found and found.value) == bound


def test_where_it_was_read_is_said():
    limits = [Limit("nr_tags", 1023, "mq/0/nr_tags"), Limit("hardware queues", 8, "mq")]
    assert ceiling(limits) == Limit("nr_tags", 8184, "mq/0/nr_tags x 8 hardware queues")


def test_of_equal_bounds_the_one_that_holds_the_others_is_named():
    assert ceiling(told(queue_depth=3, nr_tags=3, can_queue=3)).source == "at/can_queue"
    assert ceiling(told(queue_depth=3, nr_tags=3)).source == "at/nr_tags"


def test_a_dm_s_limits_are_those_of_its_disks():
    depth = Limit("queue_depth", 3, "device/queue_depth")
    disks = {name: Device(name, 8, at, limits=(depth,)) for at, name in enumerate(("sda", "sdb"))}
    raid = Device("md0", 9, 0, kind="md", members=("sda", "sdb", "gone"), timed=False)
    volume = Device("dm-0", 252, 0, kind="dm", members=("md0",), timed=False)
    known = disks | {"md0": raid, "dm-0": volume}
    assert ceilings(volume, known) == {"sda": depth, "sdb": depth}
    assert ceilings(disks["sda"], known) == {"sda": depth}
    assert ceilings(Device("zram0", 253, 0, timed=False), known) == {"zram0": None}


def test_disks_that_are_made_of_each_other_end_too():
    devices = {name: Device(name, 9, 0, members=("md0", "md1"), timed=False) for name in ("md0", "md1")}
    assert ceilings(devices["md0"], devices) == {"md1": None}
