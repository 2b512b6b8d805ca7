"""I/Os by their size."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.histogram import MAX_COUNT
from latmon.model.measurements.issued_io import issued_io
from latmon.model.table import DEVICE, TEXT, Part, Table, always

SIZE_BITS = 2
"""Four buckets per octave for latencies by size, of which there are ten times as many as by device."""


class SizeClass(NamedTuple):
    """Key of the I/Os of one op on a device with a size above half of `upto` bytes, up to that."""

    device: str
    op: str
    upto: int
    """A power of two; the smallest has all sizes up to it. 0: larger than the largest."""


SIZES = Table(
    "sizes",
    SizeClass,
    (DEVICE, TEXT, Part(highest=MAX_COUNT, is_power_of_two=True)),
    issued_io(SIZE_BITS),
    group="sizes",
    export_name="size",
    row_title="a size",
    is_sampled=always,
)
"""Completed I/Os of traced devices."""
