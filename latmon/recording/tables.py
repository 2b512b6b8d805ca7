"""A table of a window line, whose histograms are a few lists of numbers, back from untrusted JSON.

Every check is one over all numbers at once: there are thousands in a line. RecordingError on nonsense.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar

from latmon.errors import RecordingError
from latmon.histogram import TOP
from latmon.packed import UNKNOWN, Packed, numbers
from latmon.recording import checks
from latmon.recording.checks import Json
from latmon.recording.deep_lines import WIDTH

MAX_SLOTS = 1 << 19
"""Buckets of one table: 900 devices with all their ops and stages have fewer."""
MAX_IN_TABLE = 1 << 52
"""Counts of one table, or its microseconds: 2,000 frames of them can be added up."""
Row = list[Any]

Key = TypeVar("Key")


def rows(line: Json, cells: int) -> list[Row]:
    """What the histograms of a table are about; what a later version adds to a row stands at its end."""
    found = checks.items(line, "rows")
    if not all(isinstance(row, list) and len(row) >= cells for row in found):
        raise RecordingError("'rows' has one that is too short")
    return found


def table(line: Json, keys: Sequence[Key], low: int = 1) -> Packed[Key]:
    """Its histograms, one for each of `keys`; `low`: the least that a count may be."""
    gaps, counts = (_numbers(line, name, MAX_SLOTS) for name in ("b", "n"))
    slots = list(accumulate(gaps))
    if len(set(keys)) != len(keys) or len(keys) > checks.MAX_ITEMS:
        raise RecordingError("a table names one thing twice, or too many")
    if slots and (slots[0] < 0 or min(gaps[1:], default=1) < 1 or slots[-1] >= WIDTH * len(keys)):
        raise RecordingError("'b' has buckets out of order or out of range")
    if len(counts) != len(slots) or min(counts, default=low) < low or sum(counts) > MAX_IN_TABLE:
        raise RecordingError("'n' is not a count for each bucket")
    indices = _low_bytes(slots)
    if max(indices, default=0) > TOP:
        raise RecordingError("'b' has a bucket beyond the last")
    ends = [bisect_left(slots, end) for end in range(WIDTH, WIDTH * len(keys) + 1, WIDTH)]
    sums, maxima = (_each(line, name, len(keys)) for name in ("sum", "max"))
    return Packed(tuple(keys), ends, indices, counts, sums=sums, maxima=maxima)


def _low_bytes(slots: list[int]) -> bytes:
    """Each number modulo WIDTH."""
    whole = numbers(slots)
    return whole.tobytes()[0 if sys.byteorder == "little" else whole.itemsize - 1 :: whole.itemsize]


def _each(line: Json, name: str, rows: int) -> list[int]:
    """A number for each row, or none at all."""
    found = _numbers(line, name, checks.MAX_ITEMS)
    if found and (len(found) != rows or min(found) < UNKNOWN or max(found) > MAX_IN_TABLE):
        raise RecordingError(f"{name!r} is not a number for each row")
    return found


def _numbers(line: Json, name: str, most: int) -> list[int]:
    found = line.get(name, [])
    if not isinstance(found, list) or len(found) > most or not {*map(type, found)} <= {int}:
        raise RecordingError(f"{name!r} is no list of numbers")
    return found
