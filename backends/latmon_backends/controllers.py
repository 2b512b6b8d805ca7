"""Which controller (HBA) and driver a block device hangs on, found by walking its sysfs path up to the PCI function.

The text is what an admin types elsewhere: `host2 mptsas 0000:03:00.0`, `nvme0 nvme 0000:00:04.0`,
`virtio1 virtio_blk 0000:00:02.0`. Must not know block device kinds; a device without hardware has no controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from latmon_backends.sysfs import attribute, link

_HOST = re.compile(r"host\d+")
_NVME = re.compile(r"nvme\d+")
_UNNAMED = ("", "(null)", "<NULL>")


class Controller(NamedTuple):
    """`text` is for people; `driver` is the host adapter's driver, not the disk's (never `sd`)."""

    driver: str = ""
    text: str = ""


def controller(block: Path, sys: Path) -> Controller:
    """The controller of the block device whose sysfs directory is `block`."""
    try:
        device = (block / "device").resolve(strict=True)
    except OSError:
        return Controller()
    above = [device, *_ancestors(device, (sys / "devices").resolve())]
    pci = next((path for path in above if link(path / "subsystem") == "pci"), None)
    node, driver = _adapter(above, sys)
    if not driver and pci is not None:
        driver = link(pci / "driver")
    if not node and pci is None:
        return Controller()
    where = pci.name if pci else _fabric_address(above)
    return Controller(driver, " ".join(part for part in (node, driver, where) if part))


def _ancestors(device: Path, root: Path) -> Iterator[Path]:
    for path in device.parents:
        if path == root or root not in path.parents:
            return
        yield path


def _adapter(above: list[Path], sys: Path) -> tuple[str, str]:
    """(name, driver) of the nearest host adapter, NVMe controller or bus device with a driver of its own."""
    for path in above:
        if _HOST.fullmatch(path.name):
            return path.name, _scsi_driver(path.name, sys)
    for path in above:
        if _NVME.fullmatch(path.name):
            transport = attribute(path / "transport")
            return path.name, "nvme" if transport in ("", "pcie") else f"nvme-{transport}"
        if link(path / "subsystem") == "nvme-subsystem":
            return path.name, "nvme"
    nearest = above[0]
    return nearest.name, link(nearest / "driver")


def _scsi_driver(host: str, sys: Path) -> str:
    named = attribute(sys / "class/scsi_host" / host / "proc_name")
    return "" if named in _UNNAMED else named


def _fabric_address(above: list[Path]) -> str:
    """Where an NVMe over Fabrics controller connects to (`traddr=10.0.0.5,trsvcid=4420`); empty elsewhere."""
    return next((text for path in above[:2] if (text := attribute(path / "address"))), "")
