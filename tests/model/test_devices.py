"""A reader that starts in the middle of a capture still gets every device."""

from latmon.model.devices import Inventory, carry
from latmon.model.frame import Device, Frame


def frame(seq, devices=(), removed=()):
    return Frame(seq, float(seq), seq * 1_000_000, 1_000_000, devices=devices, removed=removed)


SDA, SDB, SDC = (Device(name, 8, minor) for name, minor in (("sda", 0), ("sdb", 16), ("sdc", 32)))
SDB_RENAMED = Device("sdb", 8, 16, model="new")


def test_the_first_frame_of_a_late_reader_names_every_device():
    inventory = Inventory()
    frames = [frame(1, (SDA, SDB)), frame(2, (SDC,), ("sda",)), frame(3, (SDB_RENAMED,))]
    for one in frames:
        inventory.note(one)
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
