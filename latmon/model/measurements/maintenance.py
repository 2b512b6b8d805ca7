"""Maintenance of volumes that the kernel runs beside the I/O of programs."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import DEVICE, TEXT, Table, Unit, count


class Maintenance(NamedTuple):
    """Key of the time in which a volume was checked, rebuilt or rearranged."""

    device: str
    """The md device; each disk of a btrfs file system, which is no device itself."""
    work: str
    """`md check`, `md resync`, `md recover`, `btrfs balance`, ..., with the kernel's word for it."""


MAINTENANCE = Table(
    "maintenance",
    Maintenance,
    (DEVICE, TEXT),
    count("us", Unit.MICROSECONDS),
    group="completions",
    export_name="maintenance",
    counts_ios=False,
    has_own_decoder=True,  # sysfs says so, no probe
)
"""Work that runs, with the time of the intervals at whose end it did; no row: none does, or sysfs has no word of it."""
