"""How many I/Os a device may have in flight, and what else decides it: read from sysfs, each with where it was read.

Names are the kernel's own. Must not judge: what a value means is said elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from latmon.model import Limit
from latmon_backends.sysfs import attribute, names

_QUEUE = (
    "nr_requests",
    "scheduler",
    "wbt_lat_usec",
    "write_cache",
    "rotational",
    "max_sectors_kb",
    "rq_affinity",
    "iostats",
    "nomerges",
)
_SCSI = ("queue_depth", "queue_type", "queue_ramp_up_period")
"""With many drivers a QUEUE FULL lowers queue_depth, and after so many ms without another one it is raised by 1 at a
time (drivers/scsi/scsi_error.c). The depth that it comes back to is not told."""
_HOST = ("can_queue", "cmd_per_lun", "nr_hw_queues", "host_tagset")
_NVME = ("sqsize", "queue_count")
_FOR_ALL = re.compile(r"q(ueue)?_?depth|can_queue|cmd_per_lun|max_queue|queue_size|poll_queues|tag|ncq", re.IGNORECASE)
"""Parameters of a driver that hold for all of its devices: ql2xmaxqdepth, lpfc_lun_queue_depth, io_queue_depth, ..."""


def limits(block: Path, sys: Path) -> tuple[Limit, ...]:
    """Of the block device whose sysfs directory is `block`; a value that isn't there is left out."""
    found = [*_read(block / "queue", _QUEUE, "queue"), *_hardware_queues(block)]
    device = block / "device"
    found += _read(device, _SCSI, "device")
    for above in _above(device):
        if above.name.startswith("host"):
            return (*found, *_read(sys / "class/scsi_host" / above.name, _HOST, above.name))
        if (above / "sqsize").exists():
            return (*found, *_read(above, _NVME, above.name))
    return tuple(found)


def of_module(driver: str, sys: Path) -> tuple[Limit, ...]:
    """What a driver was told for all of its devices, as it is written on the kernel's command line: `lpfc.NAME`."""
    parameters = sys / "module" / driver.replace("-", "_") / "parameters"
    told = (name for name in names(parameters) if _FOR_ALL.search(name)) if driver else ()
    return tuple(
        Limit(f"{driver}.{one.name}", one.value, one.source)
        for one in _read(parameters, tuple(told), f"module {driver}")
    )


def _hardware_queues(block: Path) -> Iterator[Limit]:
    """Tags of one hardware queue, and how many of those there are."""
    queues = [name for name in names(block / "mq") if name.isdecimal()]
    if queues:
        yield from _read(block / "mq" / queues[0], ("nr_tags",), f"mq/{queues[0]}")
        yield Limit("hardware queues", len(queues), "mq")


def _above(device: Path) -> Iterator[Path]:
    try:
        real = device.resolve(strict=True)
    except OSError:
        return
    yield real
    yield from real.parents


def _read(directory: Path, wanted: tuple[str, ...], where: str) -> Iterator[Limit]:
    for name in wanted:
        text = attribute(directory / name)
        if name == "scheduler" and "[" in text:
            text = text.partition("[")[2].partition("]")[0]  # `none [mq-deadline] bfq`
        if text:
            yield Limit(name, int(text) if text.isdecimal() else text, f"{where}/{name}")
