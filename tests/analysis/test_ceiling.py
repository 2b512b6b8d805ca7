"""The most I/Os that a driver can have in flight, from a device's limits in sysfs."""

from dataclasses import replace

import pytest
from depth_sums import merge_depths

from latmon.aggregate.depth_sum import DepthSum, packed
from latmon.analysis.limits import at_limit, ceiling, ceilings, wall
from latmon.model.frame import Device, Limit
from latmon.model.inflight import Depths


def reported(**values):
    return [Limit(name.replace("hardware_", "hardware "), value, f"at/{name}") for name, value in values.items()]


@pytest.mark.parametrize(
    ("limits", "bound"),
    [
        ({}, None),
        ({"scheduler": "none", "nr_requests": 256}, None),
        ({"scheduler": "none", "nr_requests": 4, "nr_tags": 128}, 4),
        ({"scheduler": "none", "nr_requests": 4, "nr_tags": 128, "hardware_queues": 2}, 8),
        ({"scheduler": "mq-deadline", "nr_requests": 4, "nr_tags": 128}, 4),
        ({"scheduler": "mq-deadline", "nr_requests": 4, "nr_tags": 128, "hardware_queues": 8, "host_tagset": 1}, 4),
        ({"scheduler": "mq-deadline", "nr_requests": 256, "nr_tags": 128, "queue_depth": 32}, 32),
        ({"nr_tags": 1023, "hardware_queues": 8, "nvme.poll_queues": 2}, 6 * 1023),
        ({"nr_tags": 1023, "hardware_queues": 2, "nvme.poll_queues": 4}, 1023),
        ({"queue_depth": 3, "nr_tags": 128}, 3),
        ({"queue_depth": 64, "nr_tags": 3}, 3),
        ({"nr_tags": 1023, "hardware_queues": 8}, 8184),
        ({"nr_tags": 1023, "hardware_queues": 8, "host_tagset": 1}, 1023),
        ({"can_queue": 32, "nr_hw_queues": 1, "queue_depth": 64}, 32),
        ({"can_queue": 32, "nr_hw_queues": 4}, 128),
        ({"can_queue": 32, "nr_hw_queues": 4, "host_tagset": 1}, 32),
        ({"un_throttle": 3, "un_saved_throttle": 256, "un_min_throttle": 8}, 3),
        ({"un_throttle": "0x100", "un_saved_throttle": "0x100"}, 256),
        ({"un_throttle": "many", "un_saved_throttle": 256}, None),
    ],
)
def test_it_is_the_least_of_what_bounds_the_driver(limits, bound):
    limit = ceiling(reported(**limits))
    assert (limit and limit.value) == bound


def test_the_source_of_a_limit_is_reported():
    limits = [Limit("nr_tags", 1023, "mq/0/nr_tags"), Limit("hardware queues", 8, "mq")]
    assert ceiling(limits) == Limit("nr_tags", 8184, "mq/0/nr_tags x 8 hardware queues")


def test_a_throttle_of_sd_has_no_file():
    assert ceiling([Limit("un_throttle", 3, "")]) == Limit("un_throttle", 3, "un_throttle (sd)")
    assert ceiling(reported(un_throttle=3)).source == "at/un_throttle"


def test_of_equal_bounds_the_one_that_holds_the_others_is_named():
    assert ceiling(reported(queue_depth=3, nr_tags=3, can_queue=3)).source == "at/can_queue"
    assert ceiling(reported(queue_depth=3, nr_tags=3)).source == "at/nr_tags"


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


@pytest.mark.parametrize(
    ("in_driver", "queued", "held"),
    [
        pytest.param({0: 500, 1: 100, 3: 900}, {0: 600, 13: 900}, 3, id="a wall with a queue above"),
        pytest.param({3: 9990, 4: 10}, {13: 10_000}, 3, id="a gauge that is a moment late"),
        pytest.param({3: 1000}, {0: 1000}, None, id="the application sends no more"),
        pytest.param({3: 1000}, {}, None, id="queue not known"),
        pytest.param({3: 1000}, {0: 800, 5: 200}, None, id="hardly ever a queue"),
        pytest.param(dict.fromkeys(range(1, 17), 100), {3: 1600}, None, id="a slope"),
        pytest.param({2: 600, 9: 400}, {3: 1000}, None, id="often more"),
        pytest.param({0: 1000}, {0: 1000}, None, id="idle"),
        pytest.param({}, {}, None, id="nothing known"),
        pytest.param({0: 59_990, 1: 10}, {0: 59_990, 5: 10}, None, id="10 ms of a minute"),
        pytest.param({0: 990_000, 1: 10_000}, {0: 990_000, 5: 10_000}, None, id="a hundredth of the time"),
        pytest.param({0: 5000, 1: 5000}, {0: 5000, 1: 5000}, None, id="one I/O, in the driver or on its way back"),
        pytest.param({0: 5000, 32: 5000}, {0: 5000, 8: 5000}, None, id="moments that need not coincide"),
        pytest.param({0: 1000, 32: 9000}, {0: 1000, 8: 9000}, 32, id="moments that must"),
        pytest.param({0: 8000, 1: 2000}, {0: 8000, 3: 2000}, 1, id="more wait than the driver ever has"),
    ],
)
def test_a_driver_is_held_where_most_moments_are_at_the_top_and_more_wait(in_driver, queued, held):
    assert wall(Depths(in_driver, queued)) == held


def test_time_without_any_io_has_no_queue_either():
    """A minute of which ten seconds are load: as many are queued as the driver takes (scsi_debug max_queue=3)."""
    load, idle = Depths({0: 20, 3: 980}, {0: 30, 3: 970}), Depths({0: 1000}, {0: 1000})
    assert wall(merge_depths([idle] * 50 + [load] * 10)) == 3
    assert wall(merge_depths([merge_depths([idle] * 50), merge_depths([load] * 10 + [idle])])) == 3
    sums = DepthSum()
    for at, depths in enumerate([idle] * 90 + [load] * 10):
        sums.add(packed(depths), at)
    assert wall(sums.depths) == 3
    for at in range(40):
        sums.remove(packed(idle), at)
    whole_depths = merge_depths([idle] * 50 + [load] * 10)
    assert (wall(sums.depths), sums.depths.quiet) == (3, whole_depths.quiet)
    assert wall(replace(whole_depths, quiet_in=0)) is None, "then it could have been at any other time"
    assert wall(merge_depths([Depths({0: 400, 3: 600}, {0: 400, 3: 600})] * 10)) is None


@pytest.mark.parametrize(
    ("bound", "scheduler", "queued", "full"),
    [
        ("nr_requests", "none", {0: 9000}, True),
        ("nr_requests", "mq-deadline", {0: 9000}, True),
        ("nr_requests", "mq-deadline", {4: 9000}, True),
        ("nr_tags", "none", {0: 9000}, True),
        ("nr_tags", "mq-deadline", {0: 9000}, False),
        ("queue_depth", "none", {0: 9000}, False),
        ("queue_depth", "none", {}, True),
        ("nr_tags", "none", {16: 9000}, False),
    ],
)
def test_who_waits_above_a_limit_is_not_always_counted(bound, scheduler, queued, full):
    assert at_limit(Depths({4: 9000}, queued), Limit(bound, 4, "queue"), scheduler) is full


@pytest.mark.parametrize(("depth", "limited_to", "full"), [(3, 3, False), (4, None, True), (8, None, False)])
def test_neither_statement_is_made_above_nr_requests(depth, limited_to, full):
    """Below it the gauge of queued requests is a proof; a greater depth shows that it is not current."""
    depths, bound = Depths({depth: 9000}, {9: 9000}), Limit("nr_requests", 4, "queue/nr_requests")
    assert (wall(depths, bound), at_limit(depths, bound, "mq-deadline")) == (limited_to, full)


def test_at_a_limit_is_for_most_of_the_busy_time():
    limit = Limit("nr_tags", 4, "mq/0")
    assert not at_limit(Depths({1: 5000, 4: 4000}, {0: 9000}), limit, "none")
    assert not at_limit(Depths({4: 9}, {0: 9}), limit, "none")
    assert not at_limit(Depths({16: 9000}, {0: 9000}), limit, "none"), "it has more than a limit that isn't up to date"
    assert not at_limit(Depths({4: 9000}, {0: 9000}), None, "none")
    assert at_limit(Depths({1024: 9000}, {0: 9000}), Limit("nr_tags", 1023, "mq/0"), "none")
