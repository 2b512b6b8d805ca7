"""The I/Os of an op of a device over blocks: how many, of which size, and how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from latmon.findings.facts import Block, mean_time_of
from latmon.model.frame import Flow


class OpLoad(NamedTuple):
    """I/Os of one op over a time."""

    ios: int
    bytes: int
    us: int
    mean_us: float

    @property
    def bytes_per_s(self) -> float:
        return self.bytes * 1e6 / self.us

    @property
    def iops(self) -> float:
        return self.ios * 1e6 / self.us

    @property
    def size(self) -> float:
        return self.bytes / self.ios

    @property
    def in_flight(self) -> float:
        """Return the mean number of I/Os in flight, by Little's law."""
        return self.ios * self.mean_us / self.us


def op_load(blocks: Sequence[Block], device: str, op: str) -> OpLoad | None:
    """Return the I/Os of an op in these blocks; None where there are none, or their time isn't known."""
    times, us = mean_time_of(blocks, device, op), sum(block.span_us for block in blocks)
    counts = [done for block in blocks if (done := block.counted(Flow(device, op)).every) is not None]
    ios = sum(done.count for done in counts)
    if times is None or not us:
        return None
    return OpLoad(ios or times.ios, sum(done.bytes for done in counts), us, times.mean_us)
