"""The depths of several intervals as one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from latmon.aggregate.depth_sum import DepthSum, packed
from latmon.model.inflight import Depths


def merge_depths(parts: Iterable[Depths]) -> Depths:
    """Merge intervals of one device; the source is that of most samples, without samples that of the first."""
    all_parts, sums = list(parts), DepthSum()
    for depths in all_parts:
        sums.add(packed(depths))
    merged = sums.depths
    return merged if merged.in_driver or not all_parts else replace(merged, source=all_parts[0].source)
