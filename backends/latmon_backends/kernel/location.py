"""Reader of the place of a drive: its slot in an enclosure or on the PCI bus, and its path by udev.

The kernel links a disk to its component of a SES enclosure as `enclosure_device:NAME` (drivers/misc/enclosure.c), whose
file `locate` turns a light on. PCI hot-plug slots have the address of what is in them. All of it is kept by the kernel:
no reading asks an enclosure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from latmon.model.frame import DeviceReport
from latmon.support.paths import content
from latmon.support.text import clean

BY_PATH = Path("/dev/disk/by-path")
_MOST_PATHS, _MOST_SLOTS = 8192, 1024
"""Entries that are read of a directory."""
_NAME_MAX = 255
"""Longest name of a file: a path of iSCSI has the target's name, which takes up to 223 characters (RFC 3720, 3.2.6)."""
_ENCLOSURE = "enclosure_device:"


def paths_by_disk(directory: Path = BY_PATH) -> dict[str, str]:
    """Return the name of each whole disk in a directory of udev's links; nothing where udev made none."""
    name_of: dict[str, str] = {}
    try:
        with os.scandir(directory) as entries:
            links = sorted(entry.name for entry in islice(entries, _MOST_PATHS))
    except OSError:
        return name_of
    for name in links:
        try:
            disk = clean(os.readlink(directory / name).rpartition("/")[2])  # noqa: PTH115 - see `paths.content`
        except OSError:
            continue
        name_of.setdefault(disk, clean(name, _NAME_MAX))
    return name_of


def reports(name: str, above: Sequence[str], sys: Path, by_path: Mapping[str, str]) -> Iterator[DeviceReport]:
    """Yield where a device is. `above`: the directories of its hardware, as of `block_devices.directories_above`."""
    if not above:
        return
    yield from _slot(above, sys)
    if name in by_path:
        yield DeviceReport("by_path", by_path[name], "disk/by-path")


def _slot(above: Sequence[str], sys: Path) -> Iterator[DeviceReport]:
    """Yield the slot in an enclosure, else on the PCI bus; nothing where neither is known."""
    for component in _links(above[0]):
        try:
            at = os.path.realpath(f"{above[0]}/{component}", strict=True)
        except OSError:
            continue
        enclosure, slot = at.split("/")[-2:]
        number = clean(content(f"{at}/slot").strip())
        shown = f"{number} ({slot})" if number and number != slot else slot
        source = clean(f"enclosure/{enclosure}/{slot}", 2 * _NAME_MAX)
        yield DeviceReport("slot", clean(f"{shown} of enclosure {enclosure}"), source)
        return
    address_of = {os.path.basename(directory).rpartition(".")[0] for directory in above}  # noqa: PTH119
    slots = sys / "bus/pci/slots"
    for slot in _names(slots):
        address = clean(content(slots / slot / "address").strip())
        if address and address in address_of:
            yield DeviceReport("slot", clean(f"{slot} on the PCI bus"), clean(f"bus/pci/slots/{slot}"))
            return


def _links(directory: str) -> list[str]:
    return [name for name in _names(Path(directory)) if name.startswith(_ENCLOSURE)]


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST_SLOTS))
    except OSError:
        return []
