"""Units of time joined to blocks, long enough that one tells little of the next, and exceedances counted in each.

Windows that follow each other are alike, so a test that takes them for independent finds differences that aren't there.
Pure numbers: knows no file and no text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from latmon.diff.stretch import Stretch, coarse
from latmon.model import Series

T = TypeVar("T", int, float)
MOST, LEAST = 24, 6
"""Blocks of a stretch: more tell nothing new, with fewer nothing can be told."""
UNITS = 20
"""Units of a stretch, windows or minutes, that a test takes: of fewer nobody knows how they hang together."""
UNITS_US = 20_000_000
"""And how long they must be in all: what else a host does comes and goes in seconds, however short the windows are."""
ENOUGH = 8
"""Blocks are not joined further where fewer would be left."""
ALIKE = 0.1
"""Correlation of neighbours, the median of all rows, from which on blocks are made longer."""


@dataclass(frozen=True, slots=True)
class Exceedances:
    """Of one series in each unit of a stretch: all I/Os, and for each cut those in its bucket and slower."""

    sizes: tuple[int, ...]
    above: Mapping[int, tuple[int, ...]]


def exceedances(stretch: Stretch, series: Series, bits: int, cuts: Sequence[int]) -> Exceedances:
    """Counted once for all cuts."""
    own, wanted = stretch.bits.get(series, bits), sorted(set(cuts))
    sizes: list[int] = []
    above: list[list[int]] = [[] for _ in wanted]
    for unit in stretch.units:
        counts = coarse(unit.counts.get(series, {}), own, bits)
        classes = [0] * (len(wanted) + 1)
        for index, n in counts.items():
            classes[bisect_right(wanted, index)] += n
        left = sum(classes)
        sizes.append(left)
        for number, n in enumerate(classes[:-1]):
            left -= n
            above[number].append(left)
    return Exceedances(tuple(sizes), {cut: tuple(found) for cut, found in zip(wanted, above, strict=True)})


def join(values: Sequence[T], count: int) -> list[T]:
    """Sums of neighbours in `count` runs of as equal a number as can be; `count` is at most their number."""
    ends = [round(i * len(values) / count) for i in range(count + 1)]
    return [sum(values[a:b]) for a, b in pairwise(ends)]


def correlation(*parts: Sequence[float]) -> float:
    """Of neighbours, in one run of values or in several together, where the one that varies most weighs most.

    Freed of the bias of -(1 + 3r)/n that few values have (Kendall 1954); 0 for constants.
    """
    together = variance = 0.0
    for values in parts:
        mean = sum(values) / len(values)
        around = [v - mean for v in values]
        variance += sum(v * v for v in around)
        together += sum(a * b for a, b in pairwise(around))
    if variance <= 0:
        return 0.0
    size = min(len(values) for values in parts)
    return (together / variance + 1 / size) / (1 - 3 / size)


def halvings(units: int) -> list[int]:
    """Numbers of blocks to try, the most first."""
    most = min(units, MOST)
    tried = [most]
    while tried[-1] // 2 >= ENOUGH:
        tried.append(tried[-1] // 2)
    if tried[-1] > ENOUGH:
        tried.append(ENOUGH)
    return tried
