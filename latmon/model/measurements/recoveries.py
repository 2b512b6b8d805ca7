"""What the kernel did about commands that a device did not answer: time-outs, aborts, resets."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import DEVICE, Part, Table, Unit, count

TIMED_OUT = "command timed out"
"""The driver's timer ran out before the device had answered."""
POLLED = "interrupt lost"
"""A command timed out which the device had completed, without an interrupt that reached the driver (NVMe)."""
ABORTED = "command aborted"
RESET = "reset"
"""The kernel reset the device, its controller or its link, or connected anew."""
REPORTED_RESET = "reset reported"
"""The device reported that it was reset, by whomever, or had no power (a SCSI unit attention)."""
PATH_FAILED = "path failed"
"""A multipath device no longer uses the path."""
GIVEN_UP = "given up"
"""The kernel took the device offline, or removed it."""
EVENTS = (TIMED_OUT, POLLED, ABORTED, RESET, REPORTED_RESET, PATH_FAILED, GIVEN_UP)


class Recovery(NamedTuple):
    """Key of the events of one kind on a device."""

    device: str
    event: str
    """One of EVENTS."""


RECOVERIES = Table(
    "recoveries",
    Recovery,
    (DEVICE, Part(names=EVENTS)),
    count("events", Unit.EVENTS),
    group="always",
    export_name="recovery",
    help_text="time-outs, aborts, resets and failed paths of a device, by its counter and the kernel's log",
    row_title="a recovery of a device",
    counts_ios=False,
    has_own_decoder=True,  # sysfs and the kernel's log say so, no probe
)
"""Time-outs of SCSI and ATA are counted (iotmo_cnt), all others are lines of the kernel's log that were read."""
