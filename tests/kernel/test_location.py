"""Where a drive is: enclosure, PCI slot and udev's path, in a made sysfs."""

import pytest
from fake_host import MPTSAS, NVME, FakeHost

from latmon.model.frame import DeviceReport
from latmon_backends.kernel import location
from latmon_backends.kernel.block_devices import directories_above

COMPONENT = "sys/devices/pci0000:00/0000:00:07.0/host2/target2:0:8/2:0:8:0/enclosure/2:0:8:0"


@pytest.fixture
def host(tmp_path):
    return FakeHost(tmp_path)


def reported(host, name, by_path=None):
    return list(location.reports(name, directories_above(host.sys / "block" / name), host.sys, by_path or {}))


@pytest.mark.parametrize(
    ("component", "number", "shown"),
    [("Slot 05", "5\n", "5 (Slot 05)"), ("5", "5\n", "5"), ("Slot 05", "", "Slot 05")],
)
def test_a_disk_in_an_enclosure_has_its_slot(host, component, number, shown):
    host.mptsas()
    host.write(f"{COMPONENT}/{component}/slot", number)
    host.link(f"sys/{MPTSAS}/enclosure_device:{component}", f"{COMPONENT}/{component}")
    assert reported(host, "sda") == [
        DeviceReport("slot", f"{shown} of enclosure 2:0:8:0", f"enclosure/2:0:8:0/{component}")
    ]


def test_an_nvme_drive_has_its_pci_slot(host):
    host.disk("nvme0n1", (259, 0), NVME)
    host.write("sys/bus/pci/slots/7/address", "0000:00:05\n")
    host.write("sys/bus/pci/slots/8/address", "0000:00:06\n")
    assert reported(host, "nvme0n1") == [DeviceReport("slot", "7 on the PCI bus", "bus/pci/slots/7")]


def test_a_disk_has_its_path_by_udev(host, tmp_path):
    links = tmp_path / "by-path"
    links.mkdir()
    for name, target in (
        ("pci-0000:00:07.0-sas-phy5-lun-0-part1", "../../sda1"),
        ("pci-0000:00:07.0-sas-phy5-lun-0", "../../sda"),
        ("pci-0000:00:07.0-scsi-0:0:0:0", "../../sda"),
    ):
        (links / name).symlink_to(target)
    (links / "no link").write_text("")
    paths = location.paths_by_disk(links)
    assert paths == {"sda": "pci-0000:00:07.0-sas-phy5-lun-0", "sda1": "pci-0000:00:07.0-sas-phy5-lun-0-part1"}
    host.mptsas()
    assert reported(host, "sda", paths) == [DeviceReport("by_path", paths["sda"], "disk/by-path")]


def test_a_long_name_is_whole(host, tmp_path):
    links = tmp_path / "by-path"
    links.mkdir()
    name = f"ip-192.0.2.7:3260-iscsi-iqn.2014-08.com.example:{'db-' * 20}lun-1"
    (links / name).symlink_to("../../sda")
    assert location.paths_by_disk(links) == {"sda": name}
    host.mptsas()
    component = COMPONENT + "/" + "Slot of a long name " * 3 + "5"
    host.write(f"{component}/slot", "5\n")
    host.link(f"sys/{MPTSAS}/enclosure_device:5", component)
    (slot,) = reported(host, "sda")
    assert slot.source == f"enclosure/2:0:8:0/{'Slot of a long name ' * 3}5"


def test_where_nothing_is_known_nothing_is_reported(host, tmp_path):
    host.virtio()
    host.disk("loop0", (7, 0))
    assert reported(host, "vda") == reported(host, "loop0") == []
    assert location.paths_by_disk(tmp_path / "none") == {}
