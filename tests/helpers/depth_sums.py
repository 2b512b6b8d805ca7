"""The depths of several intervals as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from latmon.aggregate.depth_sum import DepthSum, packed
from latmon.model.inflight import Depths


def merge_depths(parts: Iterable[Depths]) -> Depths:
    """Merge intervals of one device; the source is that of most samples, without samples that of the first."""
    every, sums = list(parts), DepthSum()
    for one in every:
        sums.add(packed(one))
    merged = sums.depths
    return merged if merged.in_driver or not every else replace(merged, source=every[0].source)
