"""A reader that starts in the middle of a capture still gets every device."""

import pytest

from latmon.model.devices import Inventory, carry, is_volume, of_devices
from latmon.model.frame import Device, Frame
from latmon.model.measurements import HUNG_OPERATIONS
from latmon.model.measurements.hung_operations import HungOperation, HungTime


def frame(seq, devices=(), removed=()):
    return Frame(seq, float(seq), seq * 1_000_000, 1_000_000, devices=devices, removed=removed)


SDA, SDB, SDC = (Device(name, 8, minor) for name, minor in (("sda", 0), ("sdb", 16), ("sdc", 32)))
SDB_RENAMED = Device("sdb", 8, 16, model="new")


def test_the_first_frame_of_a_late_reader_names_every_device():
    inventory = Inventory()
    frames = [frame(1, (SDA, SDB)), frame(2, (SDC,), ("sda",)), frame(3, (SDB_RENAMED,))]
    for current_frame in frames:
        inventory.note(current_frame)
    assert set(inventory.complete(frames[-1]).devices) == {SDB_RENAMED, SDC}
    assert inventory.complete(frames[-1]).seq == 3


def test_a_device_removed_between_samples_is_not_reported_as_new():
    carried = carry((frame(1, (SDA, SDB)),), frame(2, (), ("sda",)))
    assert carried.devices == (SDB,)
    assert carried.removed == ("sda",)


def test_a_device_that_came_back_is_not_removed():
    carried = carry((frame(1, (), ("sda",)), frame(2, (SDA,))), frame(3, (SDC,)))
    assert carried.devices == (SDA, SDC)
    assert carried.removed == ()
    assert carried.seq == 3


@pytest.mark.parametrize(
    ("name", "beside", "expected"),
    [
        ("sda1", ("sda",), True),
        ("sda1", ("sdb",), False),
        ("dm-0", ("sda",), True),
        ("dm-0", ("dm-1", "sr0", "loop3"), False),
        ("md0p1", ("md0",), True),
        ("md0p1", ("sda",), True),
        ("nvme0n1", ("nvme0",), False),
    ],
)
def test_an_imported_name_is_a_volume_beside_the_disk_that_it_is_on(name, beside, expected):
    assert is_volume(Device(name, 0, 0, kind="other"), (name, *beside)) is expected


def test_rows_without_a_device_stay_with_those_of_a_device():
    hung = {HungOperation(device, "/x", "", "server", "cat/7"): HungTime(1, 1) for device in ("sda", "sdb", "")}
    asked = []
    kept = of_devices(frame(1).with_tables({HUNG_OPERATIONS: hung}), lambda name: asked.append(name) or name == "sda")
    assert [row.device for row in kept[HUNG_OPERATIONS]] == ["sda", ""]
    assert "" not in asked
