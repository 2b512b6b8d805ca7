"""Counts of I/Os by bucket, packed for the seconds that a history keeps, and log2 of their median and their p95."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from latmon.aggregate.table_sum import Sum
from latmon.model.frame import Series
from latmon.model.histogram import BITS, bucket_bounds, bucket_index
from latmon.model.measurements import LATENCIES
from latmon.model.packed import Packed, RowSpan
from latmon.model.packed_frame import PackedFrame

FOLLOWED_OPS = ("read", "write", "flush")
"""Ops that are followed: the time of discards and drive commands depends on what each one does."""


def is_followed(key: Series) -> bool:
    """Return whether a series is the whole latency of an op that is followed."""
    return key.stage == "total" and key.op in FOLLOWED_OPS


def latency_sum() -> Sum:
    """Return an empty sum of the series that are followed."""
    return Sum((LATENCIES,), wanted={LATENCIES: is_followed})


def latencies_of(packed: PackedFrame) -> Packed[Series]:
    """Return the latencies of a frame or of a sum; empty where it has none."""
    table = packed.tables.get(LATENCIES)
    if table is None:
        return Packed()
    (latencies,) = table.histograms.values()
    return latencies


class Second(NamedTuple):
    """Counts of a frame, of several short ones or of a minute, by the number of the series.

    Numbers instead of keys, which is 33 bytes per series: 2,048 of them for three minutes are 12 MB.
    """

    end_us: int
    wall: float
    dt_us: int
    numbers: array[int]
    """Numbers of its series, ascending: a look-up is a search in halves."""
    ends: array[int]
    """End of each series' buckets."""
    indices: bytes
    counts: array[int]

    def unit(self, number: int) -> dict[int, int]:
        """Return the counts of a series; empty where it has none."""
        low, high = 0, len(self.numbers)
        while low < high:
            middle = (low + high) // 2
            if self.numbers[middle] < number:
                low = middle + 1
            else:
                high = middle
        if low == len(self.numbers) or self.numbers[low] != number:
            return {}
        begin, end = self.ends[low - 1] if low else 0, self.ends[low]
        return dict(zip(self.indices[begin:end], self.counts[begin:end], strict=True))


def second_of(
    latencies: Packed[Series], number_of: Callable[[Series], int | None], *, end_us: int, wall: float, dt_us: int
) -> Second:
    """Return the counts of the series that are followed; `number_of` is None for others."""
    spans: list[tuple[int, RowSpan]] = []
    begin = 0
    for row, (key, end) in enumerate(zip(latencies.rows, latencies.ends, strict=True)):
        if begin < end and is_followed(key):
            number = number_of(key)
            if number is not None:
                spans.append((number, RowSpan(row, begin, end)))
        begin = end
    spans.sort()
    ends, indices, counts = array("i"), bytearray(), array(latencies.counts.typecode)
    for _, span in spans:
        if latencies.bits(span.row) == BITS:
            indices += latencies.indices[span.begin : span.end]
            counts += latencies.counts[span.begin : span.end]
        else:
            buckets = span_counts(latencies, span)
            indices += bytes(buckets)
            counts.extend(buckets.values())
        ends.append(len(indices))
    numbers = array("q", (number for number, _ in spans))
    return Second(
        end_us=end_us,
        wall=wall,
        dt_us=dt_us,
        numbers=numbers,
        ends=ends,
        indices=bytes(indices),
        counts=counts,
    )


def span_counts(latencies: Packed[Series], span: RowSpan) -> dict[int, int]:
    """Return a row's counts at the full scale."""
    begin, end = span.begin, span.end
    counts = dict(zip(latencies.indices[begin:end], latencies.counts[begin:end], strict=True))
    bits = latencies.bits(span.row)
    return counts if bits == BITS else _at_full_scale(counts, bits)


def counts_of(latencies: Packed[Series], key: Series) -> dict[int, int]:
    """Return the counts of a key at the full scale; empty where it is missing."""
    span = latencies.span(key)
    return {} if span is None else span_counts(latencies, span)


@cache
def bucket_middles() -> tuple[float, ...]:
    """Return log2 of the middle of each bucket in us."""
    bounds = [bucket_bounds(index) for index in range(256)]
    return tuple(math.log2(max((low + high - 1) / 2, 0.5)) for low, high in bounds)


def level_of(counts: Mapping[int, int]) -> float:
    """Return log2 of the median in us."""
    return levels_of(counts, (0.5,))[0]


def levels_of(counts: Mapping[int, int], quantiles: Sequence[float]) -> list[float]:
    """Return log2 of quantiles in us, which are in ascending order."""
    ios, middles = sum(counts.values()), bucket_middles()
    levels: list[float] = []
    passed = 0
    for index in sorted(counts):
        passed += counts[index]
        while len(levels) < len(quantiles) and passed >= ios * quantiles[len(levels)]:
            levels.append(middles[index])
    return levels


def _at_full_scale(counts: Mapping[int, int], bits: int) -> dict[int, int]:
    """Return counts of a coarser scale at the full one: each in the first bucket of its own."""
    full: dict[int, int] = {}
    for index, ios in counts.items():
        fine = bucket_index(bucket_bounds(index, bits)[0])
        full[fine] = full.get(fine, 0) + ios
    return full
