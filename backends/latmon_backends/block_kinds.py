"""What kind of block device a sysfs directory is, what it is made of, and what people call it.

Knows the shapes that dm, md, loop, zram and NVMe multipath have in /sys/block. Must not know diskstats or controllers.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from pathlib import Path

from latmon.files import content
from latmon.text import MAX_CELLS, clean
from latmon_backends.inflight import in_driver
from latmon_backends.sysfs import attribute, link, names

_NVME_PATH = re.compile(r"(nvme\d+)c\d+(n\d+)")
_NVME = re.compile(r"nvme\d+n\d+")
_PARTITION = re.compile(r"(.*\d)p\d+|(\D+)\d+")
_DM_MODELS = {"LVM": "lvm", "CRYPT": "crypt", "mpath": "multipath"}
_SERIAL_PAGE = 4
"""Bytes before the text in SCSI's unit serial number page."""


def directory(block: Path, name: str) -> Path:
    """Where a device is under /sys/block: `cciss/c0d0` is stored as `cciss!c0d0`."""
    return block / name.replace("/", "!")


def kind(path: Path) -> str:
    """One of model.Device's kinds."""
    name = path.name
    if (path / "dm").is_dir():
        return "dm"
    if (path / "md").is_dir():
        return "md"
    for prefix in ("loop", "zram"):
        if name.startswith(prefix):
            return prefix
    if _NVME_PATH.fullmatch(name):
        return "nvme-path"
    if _NVME.fullmatch(name) and not has_requests(path):
        return "nvme-head"
    return "disk" if (path / "device").exists() else "other"


def has_requests(path: Path) -> bool:
    """True where requests pass, which is what is timed; a bio-based device hands its I/O on and has no queue."""
    return (path / "mq").is_dir()


def label(path: Path, of_kind: str) -> str:
    """The name people use beside the kernel's: dm name, a loop's backing file, the multipath head of an NVMe path."""
    if of_kind == "dm":
        return attribute(path / "dm/name")
    if of_kind == "loop":
        return _file_label(content(path / "loop/backing_file").rstrip(b"\n"))
    return head(path.name) if of_kind == "nvme-path" else ""


def head(name: str) -> str:
    """`nvme0n1` of the hidden path `nvme0c1n1`; empty for other names."""
    found = _NVME_PATH.fullmatch(name)
    return "".join(found.groups()) if found else ""


def _file_label(file: bytes) -> str:
    """The path; of a long one its end, which tells one image from the next."""
    return clean(file if len(file) <= MAX_CELLS else b"/".join((b"...", file.rpartition(b"/")[2])))


def members(path: Path, of_kind: str, disks: tuple[str, ...], sys: Path) -> tuple[str, ...]:
    """The whole disks below: of a dm or md their slaves' disks, of an NVMe head its paths."""
    if of_kind == "nvme-head":
        return tuple(name for name in disks if head(name) == path.name)
    below = (name.replace("!", "/") for name in names(path / "slaves"))
    return tuple(dict.fromkeys(whole_disk(sys, name) for name in below))


def whole_disk(sys: Path, name: str) -> str:
    """The disk that a partition is on; a disk's own name otherwise."""
    path = directory(sys / "class/block", name)
    if not (path / "partition").exists():
        return name
    return clean(path.resolve().parent.name.replace("!", "/"))


def disk_by_name(name: str, known: AbstractSet[str]) -> str:
    """The same without sysfs, by how the kernel names partitions: sda1, nvme0n1p1."""
    found = _PARTITION.fullmatch(name)
    disk = next((group for group in found.groups() if group), name) if found else name
    return disk if disk in known else name


def model(path: Path, of_kind: str) -> str:
    """Maker and model; for what has no maker, what it is: raid1, lvm, crypt, multipath."""
    if of_kind == "md":
        return attribute(path / "md/level")
    if of_kind == "dm":
        return _DM_MODELS.get(attribute(path / "dm/uuid").partition("-")[0], "")
    maker = attribute(path / "device/vendor")
    named = attribute(path / "device/model") or attribute(path / "device/name")
    # A bus id (0x1af4) is not a maker's name, and ATA says only how the disk is spoken to.
    return named if not named or not maker or maker == "ATA" or maker.startswith("0x") else f"{maker} {named}"


def serial(path: Path) -> str | None:
    """The unit's serial number, else its world-wide name; None when asking would have to wait for the device.

    All of these are cached by the kernel but virtio's, which is a command to the device: a device that is stuck would
    take the reader with it, so only an idle one is asked.
    """
    page = content(path / "device/vpd_pg80")
    if text := page[_SERIAL_PAGE : _SERIAL_PAGE + int.from_bytes(page[2:4], "big")].strip(b" \0"):
        return clean(text)
    if link(path / "device/subsystem") == "virtio" and in_driver(path):
        return None
    places = ("serial", "device/serial", "wwid", "device/wwid")
    return next((found for place in places if (found := attribute(path / place))), "")
