"""Scales that all heat maps of a screen share: latency rows, and steps of I/Os per cell. Pure.

Scales grow at once and shrink late. A map that is rescaled for every new maximum can't be compared with the previous
picture, and each rescaling sends the whole screen over ssh.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from latmon.model.histogram import BITS, bucket_bounds, bucket_index
from latmon.views.timeline import TimeColumn

_OCTAVE = 1 << BITS
_HALF = _OCTAVE // 2
_STEPS = (1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 128, 256)
"""Parts of an octave, then whole octaves: the edges of rows stay powers of two, and the same from run to run."""
_FOLD = 2 * _OCTAVE
"""Buckets below its step that the lowest row may hold, where that halves the other rows; not for coarse rows."""
_DEFAULT = (bucket_index(64), bucket_index(16_384))
_BASE = 4


@dataclass(frozen=True, slots=True)
class LatencyScale:
    """Row r (from below) holds the buckets [low + r * step, low + (r + 1) * step); a folded scale's row 0 all below."""

    low: int
    step: int
    rows: int
    folded: bool = False

    def row(self, index: int) -> int:
        """Return the row of a bucket; a bucket outside is in the outermost row."""
        return min(max((index - self.low) // self.step, 0), self.rows - 1)

    def row_of(self, us: int) -> int:
        return self.row(bucket_index(us))

    def is_octave(self, row: int) -> bool:
        """Return whether a row begins at a power of two: these edges are labelled."""
        return (self.low + row * self.step) % _OCTAVE == 0

    def edge_us(self, row: int) -> int:
        """Return the lower edge of a row in us."""
        return bucket_bounds(self.low + row * self.step)[0]

    @property
    def open_below(self) -> bool:
        """Return whether the lower edge of row 0 is 0."""
        return self.folded or self.low == 0


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of the data so far: lowest and highest bucket, and the fullest cell as a power of four."""

    low: int = _DEFAULT[0]
    high: int = _DEFAULT[1]
    top: int = _BASE**4


def extent(columns: Iterable[TimeColumn]) -> Extent:
    """Return the extent of some columns over all devices, in half octaves; the fullest cell is that of an octave."""
    lows, highs, full = [_DEFAULT[0]], [_DEFAULT[1]], 1
    top = _top(full)
    for column in columns:
        for counts in column.counts.values():
            if counts:
                lows.append(min(counts))
                highs.append(max(counts))
                if sum(counts.values()) > top:  # else no octave is fuller than what the top already allows
                    full = max(full, fullest(counts))
                    top = _top(full)
    return Extent(min(lows) // _HALF * _HALF, (max(highs) // _HALF + 1) * _HALF - 1, top)


def _top(full: int) -> int:
    return int(_BASE ** max(3, math.ceil(math.log(full, _BASE))))


def fullest(counts: dict[int, int]) -> int:
    """Return the count of the fullest octave."""
    cells = [0] * (max(counts, default=0) // _OCTAVE + 1)
    for index, n in counts.items():
        cells[index // _OCTAVE] += n
    return max(cells)


def merge(old: Extent | None, new: Extent) -> Extent:
    """Return the extent to draw: at least the new one; the old one until the new is two octaves (16-fold) smaller."""
    if old is None:
        return new
    keep = 2 * _OCTAVE
    return Extent(
        old.low if old.low <= new.low < old.low + keep else new.low,
        old.high if old.high - keep < new.high <= old.high else new.high,
        old.top if old.top // _BASE**2 < new.top <= old.top else new.top,
    )


def latency_scale(span: Extent, rows: int) -> LatencyScale:
    """Return the finest scale of at most `rows` rows that holds the whole extent.

    The two fastest octaves may share the lowest row, since slow I/Os matter most.
    """
    for step in _STEPS:
        low = span.low // step * step
        if low + step * rows <= span.high:
            low = span.low // min(step, _OCTAVE) * min(step, _OCTAVE)
        if low + step * rows > span.high:
            return LatencyScale(low, step, (span.high - low) // step + 1)
        least = (span.high // step + 1 - rows) * step
        if rows > 1 and step <= _FOLD and least - span.low <= _FOLD:
            return LatencyScale(least, step, rows, folded=True)
    return LatencyScale(0, _STEPS[-1], rows)


def level(n: int, top: int, levels: int) -> int:
    """Return 0 for no I/O, 1 for a single one, then even logarithmic steps up to `levels` at `top`."""
    if n <= 1:
        return max(n, 0)
    return min(levels, 2 + int((levels - 1) * math.log(n) / math.log(top + 1)))
