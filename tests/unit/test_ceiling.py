"""The most that a driver can hold at once, from what sysfs says of a device."""

import pytest

from latmon.limits import ceiling
from latmon.model import Limit


def told(**values):
    return [Limit(name.replace("hardware_", "hardware "), value, f"at/{name}") for name, value in values.items()]


@pytest.mark.parametrize(
    ("limits", "bound"),
    [
        ({}, None),
        ({"scheduler": "none", "nr_requests": 256}, None),
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
