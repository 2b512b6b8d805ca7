"""Counters of the kernel that are of a device, not of one op."""

from __future__ import annotations

from dataclasses import dataclass

from latmon.model.table import DEVICE, Table, record_of_counts


@dataclass(frozen=True, slots=True)
class DeviceCounters:
    """What the kernel counted of a device in an interval; None where a source lacks it.

    A further counter is a field here, whose name ends with its unit, and its source.
    """

    active_us: int | None = None
    """Time in which it had any I/O (io_ticks of /proc/diskstats)."""


DEVICE_COUNTERS: Table[str, DeviceCounters] = Table(
    "device_counters",
    str,
    (DEVICE,),
    record_of_counts(DeviceCounters),
    group="completions",
    export_name="device_counter",
    counts_ios=False,
    has_own_decoder=True,  # the kernel counts them, no probe
)
"""Of the devices that did I/O; others counted nothing."""
