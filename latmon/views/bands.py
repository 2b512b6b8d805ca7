"""Numbers of I/Os as rows: one for each where they fit, ranges in octaves or parts of one where they don't. Pure.

`bands` cuts 0 to the highest; nothing is left out, and where a limit ends a band begins. `label` names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from latmon.views.units import rounded

_FINEST, _OCTAVES = 8, 14
LABEL = 7
"""Cells that every name of a band fits in."""


class Band(NamedTuple):
    """The numbers `low` to `high`, both included."""

    low: int
    high: int


def bands(highest: int, rows: int, ends: Iterable[int] = ()) -> list[Band]:
    """From 0 up, at most `rows` of them; `ends`: numbers that are the last of their band, as long as there is room."""
    own = [end for end in ends if 0 <= end < highest]
    octaves = _ends(highest, 1)
    several = [_ends(highest, parts) for parts in (_FINEST, 4, 2)]
    several += [[0, *octaves[1::apart]] for apart in range(1, len(octaves) + 1)]
    for wanted in (own, []):
        for some in (*several, [0], []):
            found = _cut(highest, sorted({*some, *wanted, highest}))
            if len(found) <= rows:
                return found
    return [Band(0, highest)]


def exact(highest: int, rows: int, ends: Iterable[int] = ()) -> list[Band]:
    """A band for each number where they fit, else as `bands`."""
    return [Band(n, n) for n in range(highest + 1)] if highest < rows else bands(highest, rows, ends)


def of(counts: Mapping[int, int], cut: Sequence[Band]) -> list[int]:
    """What each band holds; numbers are never above the last one."""
    found = [0] * len(cut)
    at = 0
    for number in sorted(counts):
        while at < len(cut) - 1 and number > cut[at].high:
            at += 1
        found[at] += counts[number]
    return found


def label(band: Band) -> str:
    """3, 5-6, 257+: in seven cells."""
    if band.low == band.high:
        return str(band.low)
    text = f"{band.low}-{band.high}"
    return text if len(text) <= LABEL else f"{rounded(band.low)}+"


def _ends(highest: int, parts: int) -> list[int]:
    """The last numbers of bands: each number alone to `parts`, then `parts` in each octave."""
    found = list(range(min(parts, highest) + 1))
    for octave in range(_OCTAVES):
        low = parts << octave
        found += [low + low * part // parts for part in range(1, parts + 1)]
    return [end for end in found if end < highest]


def _cut(highest: int, ends: Sequence[int]) -> list[Band]:
    return [Band(before + 1, end) for before, end in zip([-1, *ends], ends, strict=False) if end <= highest]
