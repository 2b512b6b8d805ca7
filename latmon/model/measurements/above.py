"""I/Os above the threshold of their device."""

from __future__ import annotations

from latmon.model.frame import Flow
from latmon.model.table import DEVICE, OP, Table, Unit, count

ABOVE = Table(
    "above",
    Flow,
    (DEVICE, OP),
    count("ios", Unit.IOS),
    group="always",
    export_name="above",
    counts_ios=False,
    has_own_decoder=True,  # it counts no flushes of devices whose flushes are not timed
)
"""All of them, also those without a record in a frame's `outliers`. Of devices that only the tracer times (`timed` is
False) only traced I/Os are counted."""
