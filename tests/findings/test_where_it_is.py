"""Steps that find a drive in its rack: a disk of a hypervisor, a cloud or an array has no light here."""

import pytest
from finding_cases import disk

from latmon.findings.evidence import where_it_is
from latmon.model.frame import DeviceReport

REPORTS = (
    DeviceReport("slot", "4 on the PCI bus", "bus/pci/slots/4"),
    DeviceReport("by_path", "pci-0", "disk/by-path"),
)


@pytest.mark.parametrize(
    ("driver", "model"),
    [("virtio_blk", ""), ("iscsi_tcp", "LIO"), ("ahci", "QEMU HARDDISK"), ("nvme", "Amazon Elastic Block Store")],
)
def test_a_volume_from_outside_has_no_light(driver, model):
    (step,) = where_it_is(disk("vda", driver=driver, model=model, reports=REPORTS))
    assert step.what == "find the volume where it comes from (slot 4 on the PCI bus, by-path/pci-0)"
    assert step.commands == ()


def test_a_local_drive_has_one():
    (step,) = where_it_is(disk("nvme0n1", driver="nvme", model="SSD 990", reports=REPORTS))
    assert step.commands == ("ledctl locate=/dev/nvme0n1",)
