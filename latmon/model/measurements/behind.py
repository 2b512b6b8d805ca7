"""Whom a device served while I/Os of a cgroup were in flight."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.table import CGROUP, DEVICE, Table, Unit, count


class Behind(NamedTuple):
    """Key of the time that sampled I/Os of a cgroup were in flight while the device served another one's.

    A part of an I/O's time belongs to the cgroup whose I/O completes at its end, the last part to its own.
    """

    device: str
    cgroup: str
    """As in Issuer."""
    other: str


BEHIND = Table(
    "behind",
    Behind,
    (DEVICE, CGROUP, CGROUP),
    count("us", Unit.MICROSECONDS),
    group="issuers",
    export_name="behind",
)
"""Time in us of sampled I/Os of traced devices. In an eighth of the time one I/O of a device is watched, whatever the
tracer's sample is."""
