"""Place of a device's hardware: of this host, or outside of it (hypervisor, cloud, array, network)."""

from __future__ import annotations

import re
from enum import Enum

from latmon.model.frame import Device

_OUTSIDE_DRIVERS = frozenset(
    (
        *("virtio_blk", "vbd", "xen-blkfront", "storvsc", "hv_storvsc", "vmw_pvscsi", "virtio_scsi", "ibmvscsi"),
        *("iscsi_tcp", "ib_iser", "nvme-tcp", "nvme-rdma", "nvme-fc", "lpfc", "qla2xxx", "rbd", "nbd"),
    )
)
"""Drivers of disks whose hardware is not this host's."""
_LOCAL_DRIVERS = frozenset(
    (
        *("ahci", "ata_piix", "nvme", "mpt2sas", "mpt3sas", "megaraid_sas", "hpsa", "smartpqi", "aacraid", "mpi3mr"),
        *("usb-storage", "uas", "sdhci", "mmcblk"),
    )
)
_OUTSIDE_MODELS = re.compile(
    r"amazon elastic block|persistentdisk|nvme_card-pd|msft virtual|qemu|vbox|vmware", re.IGNORECASE
)


class Place(Enum):
    """Place of hardware."""

    OUTSIDE = "outside"
    LOCAL = "local"
    UNKNOWN = "unknown"


def place_of(device: Device) -> Place:
    """Return where a device's hardware is, as far as its driver and its model say."""
    if device.driver in _OUTSIDE_DRIVERS or _OUTSIDE_MODELS.search(device.model):
        return Place.OUTSIDE
    return Place.LOCAL if device.driver in _LOCAL_DRIVERS else Place.UNKNOWN
