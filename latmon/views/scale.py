"""Scales of a heat map: latency rows, and steps of I/Os per cell. Pure.

Scales have coarse steps. A map that is rescaled for every new maximum can't be compared with the previous picture, and
each rescaling sends the whole screen over ssh.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from latmon.model.histogram import BITS, TOP, Histogram, bucket_bounds, bucket_index

_OCTAVE = 1 << BITS
_LABELS: Mapping[int, int] = MappingProxyType(
    dict(
        zip(
            (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256),
            (1, 1, 3, 2, 3, 2, 3, 2, 3, 4, 6, 8, 16, 32),
            strict=True,
        )
    )
)
"""Buckets of a row, finest first -> octaves from label to label.

Labels are then at powers of 2, 4, 8, 16 ... us in rows that are equally far apart: bucket 8 * k begins at 2 ** (k + 2).
Each step is at most half as large again as the one before it, from 2 to 64: a range fills two thirds of its rows at
least. Steps of 5/8 octave and its multiples would have a label at every factor of 32 only.
"""
_TALL = (32, 24, 20, 16, 12, 10, 6)
"""Rows of an octave, finest first, where rows are smaller than buckets.

A narrow range fills its rows so. Steps in between would need labels between rows.
"""
_FASTEST = 0.001
"""Share of the I/Os that the lowest row counts together, whatever their latency is: the axis begins at p0.1."""
_DEFAULT = (bucket_index(64), bucket_index(16_384))
_LEAST_TOP = 4
_LEAST_RANGE = _OCTAVE
"""Least range of a scale, in buckets: a device whose I/Os all take the same time has rows below it, too."""
_LABELLED = 2
"""Labels that show the scale of an axis; with one it is not known how much a row is."""
_MARGIN_FROM = 6
"""Rows from which on a scale has an empty cell above the slowest I/O."""


@dataclass(frozen=True, slots=True)
class LatencyScale:
    """Row r (from below) counts the buckets [low + r * step / per, low + (r + 1) * step / per).

    `per`: the rows that `step` buckets take together. Where it is greater than 1, a row shows one bucket, and a bucket
    may have several rows, the lowest of which is `row`.
    """

    low: int
    step: int
    rows: int
    per: int = 1

    def row(self, index: int) -> int:
        """Return the row of a bucket; a bucket outside is in the outermost row."""
        return min(max((index - self.low) * self.per // self.step, 0), self.rows - 1)

    def top_row(self, index: int) -> int:
        """Return the highest row of a bucket, of which half may be the next one's."""
        half = (index + 1 - self.low) * self.per * 2 // self.step - 1
        return min(max(half // 2, self.row(index)), self.rows - 1)

    def row_of(self, us: int) -> int:
        """Return the row of a latency, which is in proportion where its bucket has several rows."""
        index = bucket_index(us)
        (low, high), row = bucket_bounds(index), self.row(index)
        return row + (min(us, high - 1) - low) * (self.top_row(index) + 1 - row) // (high - low)

    def reaches(self, us: int) -> bool:
        """Return whether a latency is in the range of the rows."""
        return self.low <= bucket_index(us) <= self.last(self.rows - 1)

    def first(self, row: int) -> int:
        """Return the lowest bucket of a row."""
        return min(self.low - (-row * self.step // self.per), self.last(row))

    def last(self, row: int) -> int:
        """Return the highest bucket of a row."""
        return self.low + ((row + 1) * self.step - 1) // self.per

    def beside(self, index: int, rows: int) -> int:
        """Return the bucket so many rows above the one of a bucket, at most at the edge of the scale."""
        if self.per > self.step:
            return min(max(index + rows, self.low), self.last(self.rows - 1))
        return self.first(min(max(self.row(index) + rows, 0), self.rows - 1))

    def is_labelled(self, row: int) -> bool:
        """Return whether the lower edge of a row has a label; the lowest row has none where it begins at 0."""
        if row * self.step % self.per:
            return False
        edge, apart = self.low + row * self.step // self.per, _LABELS[self.step] if self.per == 1 else 1
        # a scale from 0 us on may have no edges at the usual powers of 2; its labels are at others, equally far apart
        is_usual = (self.low + 2 * _OCTAVE) % self.step == 0 or self.per > 1
        first = 0 if is_usual else math.lcm(self.step, _OCTAVE) // _OCTAVE + 2
        return edge > 0 and edge % _OCTAVE == 0 and (edge // _OCTAVE + 2 - first) % apart == 0

    @property
    def labels(self) -> int:
        """Return the number of rows with a label."""
        return sum(map(self.is_labelled, range(self.rows)))

    def edge_us(self, row: int) -> int:
        """Return the lower edge of a row in us."""
        return bucket_bounds(self.low + row * self.step // self.per)[0]

    @property
    def open_below(self) -> bool:
        """Return whether the lower edge of row 0 is 0."""
        return self.low == 0

    def needed(self, high: int) -> int:
        """Return the rows up to those of bucket `high`, and one above it."""
        return min(self.top_row(high) + 2, self.rows)

    def lowered(self, high: int) -> LatencyScale:
        """Return the scale with the rows that aren't needed above bucket `high` at its lower end, down to 0 us."""
        spare, unit = self.rows - self.needed(high), _unit(self.step, self.per)
        many = min(spare * self.step // (unit * self.per), self.low // unit)
        return replace(self, low=self.low - many * unit)

    @property
    def halves(self) -> LatencyScale:
        """Return the scale of half rows; this one where its rows are single buckets."""
        if self.per > 1:
            return replace(self, rows=self.rows * 2, per=self.per * 2)
        return self if self.step % 2 else LatencyScale(self.low, self.step // 2, self.rows * 2)


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of the data: lowest and highest bucket."""

    low: int = _DEFAULT[0]
    high: int = _DEFAULT[1]


@lru_cache(16)
def _places(scale: LatencyScale) -> tuple[int, ...]:
    return tuple(scale.row(index) for index in range(TOP + 1))


@lru_cache(16)
def _shown(scale: LatencyScale) -> tuple[tuple[int, int], ...]:
    """Return the buckets of each row, above the lowest one: [begin, end)."""
    return tuple((scale.first(row) - scale.low, scale.last(row) + 1 - scale.low) for row in range(scale.rows))


def rows_of(counts: Mapping[int, int], scale: LatencyScale) -> list[int]:
    """Return the I/Os per row, from below; a bucket of several rows counts in each of them."""
    if scale.per > 1:
        each = rows_of(counts, LatencyScale(scale.low, 1, scale.last(scale.rows - 1) + 1 - scale.low))
        return [sum(each[begin:end]) for begin, end in _shown(scale)]
    rows, places = [0] * scale.rows, _places(scale)
    for index, n in counts.items():
        rows[places[index]] += n
    return rows


def extent(counts: Mapping[int, int], highest: int | None = None) -> Extent | None:
    """Return the range of some I/Os by bucket, from p0.1 to the maximum; None without I/O.

    `highest`: the bucket of another I/O, completed earlier or in flight, which is in the range.
    """
    if not counts:
        return None if highest is None else Extent(min(_DEFAULT[0], highest), highest)
    left = int(sum(counts.values()) * _FASTEST)
    low = high = max(counts)
    for index in sorted(counts):
        low = index
        left -= counts[index]
        if left < 0:
            break
    return Extent(low, high if highest is None else max(high, highest))


def with_limit(span: Extent, limit: int) -> Extent:
    """Return the extent with the threshold's bucket, where that is as near as a third of the extent, or an octave."""
    near = max((span.high + 1 - span.low) // 3, _OCTAVE)
    low, high = min(span.low, limit), max(span.high, limit)
    return Extent(low, high) if span.low - low <= near and high - span.high <= near else span


def _unit(step: int, per: int) -> int:
    """Return the buckets by which a scale with this step may begin higher or lower: the least with whole rows."""
    return step // math.gcd(step, per)


def _apart(step: int, per: int) -> int:
    """Return the rows from label to label."""
    return (_LABELS[step] if per == 1 else 1) * _OCTAVE * per // step


def _steps(cells: int) -> tuple[tuple[int, int], ...]:
    """Return (step, per) of scales, finest first, whose lines of `cells` cells have whole buckets or parts of one."""
    tall = ((_OCTAVE, per) for per in _TALL if per * cells >= _OCTAVE)
    return tuple(sorted((*tall, *((step, 1) for step in _LABELS)), key=lambda one: one[0] / one[1]))


_STEPS = tuple(_steps(cells) for cells in range(3))


def latency_scale(span: Extent, rows: int, *, cells: int = 0) -> LatencyScale:
    """Return the finest scale of exactly `rows` rows that covers the extent and a cell above it.

    It has at least one label, and where the next coarser scale is coarser by a quarter at most, two.

    `cells`: those of a row, 2 with half blocks; 0: no bucket has several rows. Spare rows are above the extent.
    """
    spare = max(_LEAST_RANGE - 1 - (span.high - span.low), 0)
    low = max(span.low - spare, 0)
    high = max(span.high, low + _LEAST_RANGE - 1)
    halves = 2 * rows - (2 // max(cells, 1) if rows >= _MARGIN_FROM else 0)
    begins = ((max(low - (low + 2 * _OCTAVE) % _unit(*one), 0), *one) for one in _STEPS[cells] if _apart(*one) <= rows)
    fitting = (
        LatencyScale(begin, step, rows, per)
        for begin, step, per in begins
        if (high + 1 - begin) * per * 2 <= step * halves
    )
    found = next(fitting, LatencyScale(0, 256, rows))
    if found.lowered(high).labels < _LABELLED:
        coarser = next(fitting, found)
        is_near = coarser.step * found.per * 4 <= found.step * coarser.per * 5
        return coarser if is_near and coarser.lowered(high).labels >= _LABELLED else found
    return found


def tail_bucket(histogram: Histogram) -> int | None:
    """Return the first bucket above p99.9, of 100 to 999 I/Os above p99; None of fewer."""
    us = histogram.quantile(0.999)
    us = histogram.quantile(0.99) if us is None else us
    return None if us is None else bucket_index(us if us == histogram.max else us - 1) + 1


def last_step(fullest: int) -> int:
    """Return the count at which the last step begins: 4, 6, 8, 12 ... up to that of the fullest cell."""
    power = 1 << max(fullest, 1).bit_length() - 1
    return max(_LEAST_TOP, power * 3 // 2 if power * 3 // 2 <= fullest else power)


def level(n: int, top: int, levels: int) -> int:
    """Return 0 for no I/O, else an even logarithmic step: 1 from one I/O on, `levels` from `top` on.

    The last step begins at `top`, not a step below it: with six steps most cells of a map would be alike.
    Where few I/Os fill a cell, the steps of single ones are in the middle of the ramp: its first steps are dark.
    """
    if n <= 0 or n >= top:
        return levels if n > 0 else 0
    return min(levels - 1, 1 + math.floor((levels - 1) * math.log(n + 1) / math.log(top + 1) + 1e-9))


@lru_cache(64)
def thresholds(top: int, levels: int) -> tuple[int, ...]:
    """Return the least count of each step: `bisect_right(thresholds(top, levels), n)` is `level(n, top, levels)`."""
    found, n = [], 1
    for step in range(1, levels + 1):
        n = max(n, math.floor((top + 1) ** ((step - 1) / max(levels - 1, 1))) - 1)
        while level(n, top, levels) < step:
            n += 1
        found.append(n)
    return tuple(found)


def begins(top: int, levels: int) -> dict[int, int]:
    """Return step -> the least count that has it, for the steps that any count has."""
    least = thresholds(top, levels)
    return {step: n for step, n in enumerate(least, 1) if step == levels or n < least[step]}
