"""Decoder of packed histograms and tables, with one bounds check over all of them.

There are hundreds in a line, thousands of lines in an hour, and a check of one number costs as much as its JSON. A line
that is in any way not as ours are is left to the caller, who goes by each piece and finds words for what is wrong: None
never means damage, and what is returned passed every check that validate.py makes. Owns what is remembered of one line
for the next.

Every check is one over all numbers at once: there are thousands in a line. RecordingError on nonsense.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.model.frame import Completed, Flow, Series
from latmon.model.histogram import MAX_COUNT, TOP
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.recording import validate
from latmon.recording.encode import WIDTH
from latmon.recording.validate import MAX_ITEMS, Json
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

MAX_KNOWN = 16_384
"""Series, flows and orders of buckets that are remembered, of each: with 240 buckets in each order 5 MB."""

_TOTAL = b'"m":"total","l":["'
_ODD = (KeyError, TypeError, ValueError)
"""What a line that is not as ours are comes to: no such key, a series that is new, what is no number or no bucket."""

_series: dict[tuple[str, ...], Series] = {}
_flows: dict[tuple[str, ...], Flow] = {}
"""As they are in JSON -> clean. Only what passed the checks of one piece is in it."""
_rising: set[bytes] = set()
"""Bucket numbers, one behind the other, that are in their order and each there once."""


def remember(found: Collection[Series | Flow]) -> None:
    """Keys that passed every check, for the lines to come; clean ones, which are in JSON as they are here."""
    for one in found:
        if not all(map(is_clean, one)):
            continue
        if isinstance(one, Series):
            _room(_series)[tuple(one)] = one
        else:
            _room(_flows)[tuple(one)] = one


def totals_alone(line: bytes) -> bytes:
    """A window's line as we write it without the histograms of stages, unread; any other line as it is.

    Who looks at a minute wants a third of what is in it. What is left out is checked by who reads it.
    """
    begin = line.find(b'"h":[{"m":"')
    end = line.find(b"]}]", begin)
    if begin < 0 or end < 0 or b"\\" in line:  # without one no text holds a quote, so that what is cut is whole
        return line
    begin += len(b'"h":[{')
    told = line[begin : end + 1]
    every = told.split(b"},{")
    kept = [one for one in every if one.startswith(_TOTAL)]
    ours = told.count(b'},{"m":"') == len(every) - 1 and told.count(b'"],"n":') == len(every)
    if not ours or len(kept) == len(every):
        return line
    between = b"{" + b"},{".join(kept) + b"}" if kept else b""
    return b"".join((line[: begin - 1], between, line[end + 2 :]))


def histograms(line: Json, *, booleans: bool = True) -> Packed[Series] | None:
    """`h`. Without `booleans` there is no true and no false in the whole line; else each number is looked at."""
    found = line.get("h")
    try:
        return _histograms(found, booleans=booleans) if type(found) is list and len(found) <= MAX_ITEMS else None
    except _ODD:
        return None


def _histograms(found: list[Json], *, booleans: bool) -> Packed[Series]:
    labels, flats, told = ([one[name] for one in found] for name in ("l", "b", "n"))
    _require(_are(labels, list) and _are(flats, list) and _are(told, int) and not any("k" in one for one in found))
    keys = tuple([_series[*one["l"], one["m"]] for one in found])
    _require(len(set(keys)) == len(keys) and max(map(len, flats), default=0) <= MAX_ITEMS)
    _require(not booleans or _are(chain.from_iterable(flats), int))
    orders = [bytes(flat[::2]) for flat in flats]
    counts = [flat[1::2] for flat in flats]
    indices, every = b"".join(orders), [*chain.from_iterable(counts)]
    packed = numbers(every)
    _require(len(indices) == len(packed) and max(indices, default=0) <= TOP and min(every, default=1) > 0)
    _require(list(map(sum, counts)) == told and max(told, default=0) <= MAX_COUNT and _all_rising(orders))
    ends = accumulate(map(len, orders))
    return Packed(keys, ends, indices, packed, sums=_optional(found, "sum"), maxima=_optional(found, "max"))


def completed(line: Json, key: str) -> Mapping[Flow, Completed] | None:
    """`seen` or `kernel`."""
    found = line.get(key, [])
    try:
        return _completed(found) if type(found) is list and len(found) <= MAX_ITEMS else None
    except _ODD:
        return None


def _completed(found: list[Json]) -> Mapping[Flow, Completed]:
    labels, counts, sizes = ([one[name] for one in found] for name in ("l", "n", "bytes"))
    times, queues = ([one.get(name) for one in found] for name in ("us", "queue"))
    every = [*counts, *sizes, *(n for n in (*times, *queues) if n is not None)]
    _require(_are(labels, list) and _are(every, int))
    _require(min(every, default=0) >= 0 and max(every, default=0) <= MAX_COUNT)
    flows = [_flows[tuple(one)] for one in labels]
    made = dict(zip(flows, map(Completed, counts, sizes, times, queues), strict=True))
    _require(len(made) == len(found))
    return MappingProxyType(made)


def _are(values: Any, kind: type) -> bool:
    return {*map(type, values)} <= {kind}


def _all_rising(orders: list[bytes]) -> bool:
    new = [one for one in orders if one not in _rising]
    for one in new:
        if sorted({*one}) != [*one]:
            return False
        if len(one) <= TOP + 1:
            _room(_rising).add(one)
    return True


def _optional(found: list[Json], name: str) -> list[int]:
    """A number of 0 or more each, or UNKNOWN."""
    told = [one.get(name) for one in found]
    known = [n for n in told if n is not None]
    _require(_are(known, int) and min(known, default=0) >= 0 and max(known, default=0) <= MAX_COUNT)
    return known if len(known) == len(told) else [UNKNOWN if n is None else n for n in told]


def _require(ours: bool) -> None:
    if not ours:
        raise ValueError


_Kept = TypeVar("_Kept", dict[tuple[str, ...], Series], dict[tuple[str, ...], Flow], set[bytes])


def _room(kept: _Kept) -> _Kept:
    """Forgets all when there is too much: what is met again is remembered again."""
    if len(kept) >= MAX_KNOWN:
        kept.clear()
    return kept


MAX_SLOTS = 1 << 19
"""Buckets of one table: 900 devices with all their ops and stages have fewer."""
MAX_IN_TABLE = 1 << 52
"""Counts of one table, or its microseconds: 2,000 frames of them can be added up."""
Row = list[Any]

Key = TypeVar("Key")


def rows(line: Json, cells: int) -> list[Row]:
    """What the histograms of a table are about; what a later version adds to a row stands at its end."""
    found = validate.items(line, "rows")
    if not all(isinstance(row, list) and len(row) >= cells for row in found):
        raise RecordingError("'rows' has one that is too short")
    return found


def table(line: Json, keys: Sequence[Key], low: int = 1) -> Packed[Key]:
    """Its histograms, one for each of `keys`; `low`: the least that a count may be."""
    gaps, counts = (_numbers(line, name, MAX_SLOTS) for name in ("b", "n"))
    slots = list(accumulate(gaps))
    if len(set(keys)) != len(keys) or len(keys) > validate.MAX_ITEMS:
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
    found = _numbers(line, name, validate.MAX_ITEMS)
    if found and (len(found) != rows or min(found) < UNKNOWN or max(found) > MAX_IN_TABLE):
        raise RecordingError(f"{name!r} is not a number for each row")
    return found


def _numbers(line: Json, name: str, most: int) -> list[int]:
    found = line.get(name, [])
    if not isinstance(found, list) or len(found) > most or not {*map(type, found)} <= {int}:
        raise RecordingError(f"{name!r} is no list of numbers")
    return found
