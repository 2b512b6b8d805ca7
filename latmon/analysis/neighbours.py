"""Runs of neighbouring windows joined to blocks, and how alike neighbours are.

Successive windows are correlated, so that a test which takes them for independent finds differences that don't exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T", int, float)
MOST, LEAST = 24, 6
"""Blocks of a span: more don't improve the test, with fewer it has no power."""
UNITS = 20
"""Units of a span, windows or minutes, that a test needs: the correlation of fewer can't be estimated."""
UNITS_US = 20_000_000
"""Length that the units need in all: other activity of a host lasts seconds, however short the windows are."""
ENOUGH = 8
"""Blocks are not joined if fewer would be left."""
MAX_CORRELATION = 0.1
"""Correlation of neighbours, the median of all rows, above which blocks are made longer."""


def join(values: Sequence[T], count: int) -> list[T]:
    """Return the sums over `count` runs of neighbours, as equal in length as possible; `count` <= len(values)."""
    ends = [round(i * len(values) / count) for i in range(count + 1)]
    return [sum(values[a:b]) for a, b in pairwise(ends)]


def correlation(*parts: Sequence[float]) -> float:
    """Return the lag-1 correlation of one or several runs of values, weighted by their variance.

    Corrected for the bias of -(1 + 3r)/n of few values (Kendall 1954); 0 for constants.
    """
    covariance = variance = 0.0
    for values in parts:
        mean = sum(values) / len(values)
        around = [v - mean for v in values]
        variance += sum(v * v for v in around)
        covariance += sum(a * b for a, b in pairwise(around))
    if variance <= 0:
        return 0.0
    size = min(len(values) for values in parts)
    return (covariance / variance + 1 / size) / (1 - 3 / size)


def halvings(units: int) -> list[int]:
    """Return the numbers of blocks to try, the most first."""
    most = min(units, MOST)
    tried = [most]
    while tried[-1] // 2 >= ENOUGH:
        tried.append(tried[-1] // 2)
    if tried[-1] > ENOUGH:
        tried.append(ENOUGH)
    return tried
