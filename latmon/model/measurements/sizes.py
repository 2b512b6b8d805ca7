"""I/Os by their size."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.histogram import MAX_COUNT
from latmon.model.measurements.issued_io import issued_io
from latmon.model.table import DEVICE, OP, Part, Table, always

SIZE_BITS = 2
"""Four buckets per octave for latencies by size, of which there are ten times as many as by device."""
_LARGEST = 20
"""Exponent of the largest size with a class of its own: 1 MiB."""


class SizeClass(NamedTuple):
    """Key of the I/Os of one op on a device with a size above half of `upto` bytes, up to that."""

    device: str
    op: str
    upto: int
    """A power of two; the smallest has all sizes up to it. 0: larger than the largest."""


def _largest_of(exponent: int) -> int:
    return 1 << exponent if exponent <= _LARGEST else 0


_UPTO = Part(highest=MAX_COUNT, is_power_of_two=True, probe_part="size", from_code=_largest_of)
SIZES = Table(
    "sizes",
    SizeClass,
    (DEVICE, OP, _UPTO),
    issued_io(SIZE_BITS),
    group="sizes",
    export_name="size",
    row_title="a size",
    is_sampled=always,
)
"""Completed I/Os of traced devices."""
