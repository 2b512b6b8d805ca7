"""The published tables of a test with disksort and without, and their I/Os spread over its ten minutes, none lost.

A row is the millisecond at which a bucket of DTrace's quantize() begins, and its count. latmon's own buckets are finer
and have other edges: a latency is only taken from those that lie wholly in one row, so that a histogram tells the rows.
Knows no device.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import exp
from random import Random
from types import MappingProxyType

from latmon.histogram import TOP, bucket_bounds
from latmon_backends.demo_outstanding import apportioned
from latmon_backends.synthetic import Group

WINDOWS = 600
SORTED: Mapping[int, int] = MappingProxyType({0: 40, 1: 9, 2: 6, 4: 17, 8: 23, 16: 6, 32: 36, 64: 15_407, 128: 361_660})
"""With disksort, without those that waited for minutes."""
STUCK = (2, 300)
"""Done after 8 to 9 and after 9 to 10 minutes: the row of 524,288 ms."""
UNSORTED: Mapping[int, int] = MappingProxyType(
    {0: 30, 1: 21, 2: 30, 16: 50, 32: 3, 64: 384, 128: 505, 256: 531_169, 512: 11_764}
)
_MANY = 2_000
"""A row of fewer is of the beginning, when the queue isn't full yet."""
_UNEVEN = 0.012
_LEAST_US = 256
"""What a disk's own memory takes."""


def by_window(rng: Random, table: Mapping[int, int], last: float) -> list[dict[int, int]]:
    """Row -> I/Os, of every window; `last`: the share of an ordinary window that the last one has."""
    found: list[dict[int, int]] = [{} for _ in range(WINDOWS)]
    for row, n in table.items():
        if n < _MANY:
            found[0][row] = n
            continue
        shares = {seq: max(0.5, rng.gauss(1, _UNEVEN)) for seq in range(WINDOWS)}
        begun = sum(few for few in table.values() if few < _MANY)
        shares[0] *= max(0.05, 1 - begun * WINDOWS / sum(table.values()))
        shares[WINDOWS - 1] *= last
        for seq, some in apportioned(shares, n).items():
            found[seq][row] = some
    return found


def latencies(rng: Random, rows: Mapping[int, int], mean_us: int, spread_us: int) -> list[Group]:
    """So many I/Os of each row, most of them around the mean."""
    found = []
    for row, n in rows.items():
        inside = _inside(row)
        weights = {low: exp(-((((low + high) / 2 - mean_us) / spread_us) ** 2) / 2) + 1e-6 for low, high in inside}
        width = {low: high - low for low, high in inside}
        found += [Group(some, low + int(rng.random() * width[low])) for low, some in apportioned(weights, n).items()]
    return found


@cache
def _inside(row: int) -> tuple[tuple[int, int], ...]:
    """Bounds of the buckets that lie wholly in a row of milliseconds."""
    low_us, high_us = max(row * 1_000, _LEAST_US), max(2 * row, 1) * 1_000
    bounds = (bucket_bounds(index) for index in range(TOP))
    return tuple((low, high) for low, high in bounds if low_us <= low and high <= high_us)
