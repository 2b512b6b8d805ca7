"""Scales of a heat map: latency rows, and steps of I/Os per cell. Pure.

Scales grow at once and shrink late. A map that is rescaled for every new maximum can't be compared with the previous
picture, and each rescaling sends the whole screen over ssh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from latmon.model.histogram import BITS, TOP, bucket_bounds, bucket_index

_OCTAVE = 1 << BITS
_HALF = _OCTAVE // 2
_LABELS: Mapping[int, int] = MappingProxyType(
    dict(
        zip(
            (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 128, 256),
            (1, 1, 3, 2, 3, 2, 5, 3, 7, 2, 5, 3, 7, 4, 5, 6, 7, 8, 16, 32),
            strict=True,
        )
    )
)
"""Buckets of a row, finest first -> octaves from label to label.

Labels are then at powers of 2, 4, 8, 16 ... us in rows that are equally far apart: bucket 8 * k begins at 2 ** (k + 2).
Each step is at most half as large again as the one before it, from 2 on: a range fills two thirds of its rows at least.
"""
_FASTEST = 0.001
"""Share of the I/Os that the lowest row holds together, whatever their latency is: the axis begins at p0.1."""
_DEFAULT = (bucket_index(64), bucket_index(16_384))
_LEAST_TOP = 4
_LEAST_RANGE = 2 * _OCTAVE
"""Least range of a scale, in buckets: a device whose I/Os all take the same time has rows around it, too."""
_MARGIN_FROM = 4
"""Rows from which on a scale has an empty row above the slowest I/O."""


@dataclass(frozen=True, slots=True)
class LatencyScale:
    """Row r (from below) holds the buckets [low + r * step, low + (r + 1) * step)."""

    low: int
    step: int
    rows: int

    def row(self, index: int) -> int:
        """Return the row of a bucket; a bucket outside is in the outermost row."""
        return min(max((index - self.low) // self.step, 0), self.rows - 1)

    def row_of(self, us: int) -> int:
        return self.row(bucket_index(us))

    def is_labelled(self, row: int) -> bool:
        """Return whether the lower edge of a row has a label; the lowest row has none where it begins at 0."""
        edge, apart = self.low + row * self.step, _LABELS[self.step]
        # a scale from 0 us on may have no edges at the usual powers of 2; its labels are at others, equally far apart
        is_usual = (self.low + 2 * _OCTAVE) % self.step == 0
        first = 0 if is_usual else math.lcm(self.step, _OCTAVE) // _OCTAVE + 2
        return edge > 0 and edge % _OCTAVE == 0 and (edge // _OCTAVE + 2 - first) % apart == 0

    def edge_us(self, row: int) -> int:
        """Return the lower edge of a row in us."""
        return bucket_bounds(self.low + row * self.step)[0]

    @property
    def open_below(self) -> bool:
        """Return whether the lower edge of row 0 is 0."""
        return self.low == 0

    def needed(self, high: int) -> int:
        """Return the rows up to the one of bucket `high`, and one above it."""
        return min(self.row(high) + 2, self.rows)

    @property
    def halves(self) -> LatencyScale:
        """Return the scale of half rows; this one where its rows are single buckets."""
        return self if self.step % 2 else LatencyScale(self.low, self.step // 2, self.rows * 2)


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of the data so far: lowest and highest bucket."""

    low: int = _DEFAULT[0]
    high: int = _DEFAULT[1]


@lru_cache(16)
def _places(scale: LatencyScale) -> tuple[int, ...]:
    return tuple(scale.row(index) for index in range(TOP + 1))


def rows_of(counts: Mapping[int, int], scale: LatencyScale) -> list[int]:
    """Return the I/Os per row, from below."""
    rows, places = [0] * scale.rows, _places(scale)
    for index, n in counts.items():
        rows[places[index]] += n
    return rows


def extent(counts: Mapping[int, int], highest: int | None = None) -> Extent | None:
    """Return the range of some I/Os by bucket, from p0.1 to the maximum; None without I/O.

    `highest`: the bucket of another I/O, completed earlier or in flight, which is in the range.
    """
    if not counts:
        return None if highest is None else Extent(min(_DEFAULT[0], highest), _above(highest))
    left = int(sum(counts.values()) * _FASTEST)
    low = high = max(counts)
    for index in sorted(counts):
        low = index
        left -= counts[index]
        if left < 0:
            break
    return Extent(low // _HALF * _HALF, _above(high if highest is None else max(high, highest)))


def _above(high: int) -> int:
    """Return the last bucket of its half octave: a range does not grow with each new maximum."""
    return (high // _HALF + 1) * _HALF - 1


def merge(old: Extent | None, new: Extent | None) -> Extent | None:
    """Return the extent to draw: at least the new one; the old one until the new is two octaves smaller."""
    if old is None or new is None:
        return new or old
    keep = 2 * _OCTAVE
    return Extent(
        old.low if old.low <= new.low < old.low + keep else new.low,
        old.high if old.high - keep < new.high <= old.high else new.high,
    )


def latency_scale(span: Extent, rows: int) -> LatencyScale:
    """Return the finest scale of exactly `rows` rows that holds the whole extent and one row above it.

    Spare rows are above it.
    """
    spare = max(_LEAST_RANGE - 1 - (span.high - span.low), 0)
    low = max(span.low - spare // 2, 0)
    high = max(span.high, low + _LEAST_RANGE - 1)
    filled = rows - (rows >= _MARGIN_FROM)
    for step in _LABELS:
        begin = max(low - (low + 2 * _OCTAVE) % step, 0)
        if begin + step * filled > high:
            return LatencyScale(begin, step, rows)
    return LatencyScale(0, 256, rows)


def last_step(fullest: int, old: int = 0) -> int:
    """Return the count of the last step: 1, 1.5, 2, 3, 4, 6 ... from the fullest cell on; it shrinks late."""
    if old // 4 < fullest <= old:
        return old
    power = 1 << max(fullest - 1, 1).bit_length() - 1
    return max(_LEAST_TOP, next(n for n in (power, power * 3 // 2, power * 2, power * 4) if n >= fullest))


def level(n: int, top: int, levels: int) -> int:
    """Return 0 for no I/O, else an even logarithmic step, 1 to `levels` from `top` on.

    Where few I/Os fill a cell, the steps of single ones are in the middle of the ramp: its first steps are dark.
    """
    if n <= 0:
        return 0
    return min(levels, max(1, math.ceil(levels * math.log(n + 1) / math.log(top + 1) - 1e-9)))


@lru_cache(64)
def thresholds(top: int, levels: int) -> tuple[int, ...]:
    """Return the least count of each step: `bisect_right(thresholds(top, levels), n)` is `level(n, top, levels)`."""
    found, n = [], 1
    for step in range(1, levels + 1):
        n = max(n, math.floor((top + 1) ** ((step - 1) / levels)) - 1)
        while level(n, top, levels) < step:
            n += 1
        found.append(n)
    return tuple(found)


def begins(top: int, levels: int) -> dict[int, int]:
    """Return step -> the least count that has it, for the steps that any count has."""
    least = thresholds(top, levels)
    return {step: n for step, n in enumerate(least, 1) if step == levels or n < least[step]}
