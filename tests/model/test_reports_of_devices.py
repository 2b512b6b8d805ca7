"""Reports of a device by their name."""

from latmon.model.frame import Device, DeviceReport

SLOT, SCAN = DeviceReport("slot", "Slot 4", "enclosure/0:0/Slot 4"), DeviceReport("zfs_scan_percent", 0, "zpool")
DISK = Device("sda", 8, 0, reports=(SLOT, SCAN))


def test_a_report_is_found_by_its_name():
    assert DISK.report("slot") is SLOT
    assert DISK.reported_value("slot") == "Slot 4"
    assert DISK.reported_value("zfs_scan_percent") == 0


def test_a_device_without_the_report_has_none():
    assert DISK.report("slo") is None
    assert DISK.reported_value("slo") is None
