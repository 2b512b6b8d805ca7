"""I/Os above a threshold, from the buckets of a histogram. Pure."""

from __future__ import annotations

from typing import NamedTuple

from latmon.model.histogram import Histogram, bucket_bounds, bucket_index


class Slower(NamedTuple):
    """The number of I/Os above a bound in us."""

    ios: int
    bound_us: int
    """The threshold, or where only buckets are known the first bound of a bucket from it on."""


def slower(histogram: Histogram, threshold_us: int, exactly: int | None = None) -> Slower:
    """Return the I/Os above a threshold. `exactly`: their number, where each was counted."""
    if exactly is not None:
        return Slower(exactly, threshold_us)
    low, high = bucket_bounds(bucket_index(threshold_us, histogram.bits), histogram.bits)
    bound_us = low if low == threshold_us else high
    if (histogram.max_bound or 0) < bound_us:
        return Slower(0, bound_us)
    buckets = reversed(histogram.buckets)
    ios = 0
    for index, count in buckets:
        if bucket_bounds(index, histogram.bits)[0] < bound_us:
            break
        ios += count
    return Slower(ios, bound_us)


def time_from(histogram: Histogram, threshold_us: int) -> float:
    """Return the sum of the times from the threshold's bucket on, in us, by the middles of their buckets."""
    first, bits, max_bound = bucket_index(threshold_us, histogram.bits), histogram.bits, histogram.max_bound or 0
    rows_above = ((bucket_bounds(index, bits), count) for index, count in histogram.buckets if index >= first)
    return sum(min((low + high) / 2, max_bound) * count for (low, high), count in rows_above)


def is_above(us: int, threshold_us: int | None) -> bool:
    """Return whether an age has reached the threshold; without a threshold none has, and nothing is an alarm."""
    return threshold_us is not None and us >= threshold_us
