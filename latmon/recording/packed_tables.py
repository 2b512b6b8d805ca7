"""Histograms and counts of a window, and tables of histograms (docs/RECORDING.md): encoder and decoder.

A check of one number costs as much as its JSON, and a recording has millions: so all numbers of a line are checked at
once. A line that fails is read again one by one, for the message: None from `histograms` or `completed` doesn't mean
damage. Series and bucket orders that passed are remembered.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, chain
from operator import sub
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.model.frame import Completed, Flow, Series
from latmon.model.histogram import BITS, MAX_COUNT, MAX_US, TOP, Histogram, bucket_bounds, bucket_index
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.recording import validate
from latmon.recording.validate import (
    MAX_ITEMS,
    Json,
    Line,
    RecordCodec,
    RecordField,
    count,
    flat,
    label,
    once,
    optional,
)
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

MAX_KNOWN = 65_536
"""Series, flows and orders of buckets that are remembered, of each: with 240 buckets in each order 5 MB."""

_TOTAL = b'"m":"total","l":["'
_SLOWEST = re.compile(
    rb'"m":"total","l":\["[^\]\\]{1,600}\],"n":\d{1,18}(?:,"sum":\d{1,18})?'
    rb'(?:,"max":(\d{1,18})|(?:,"k":(\d))?,"b":\[(?:\d{1,4},\d{1,18},)*(\d{1,4}),\d{1,18}\])'
)
"""A histogram of total latency as latmon writes it: its maximum, else its bits and its highest bucket."""
_UNUSUAL = (KeyError, TypeError, ValueError)
"""Errors of a line that latmon did not write like this: a missing key, a new series, no number or no bucket."""

_series: dict[tuple[str, ...], Series] = {}
_flows: dict[tuple[str, ...], Flow] = {}
"""Labels as in JSON -> clean key; only of keys that passed every check."""
_rising: set[bytes] = set()
"""Bucket numbers, one behind the other, that are in their order and each there once."""


def remember(found: Collection[Series | Flow]) -> None:
    """Cache keys that passed every check, for the next lines; only clean ones, which are the same in JSON."""
    for one in found:
        if not all(map(is_clean, one)):
            continue
        if isinstance(one, Series):
            _room(_series)[tuple(one)] = one
        else:
            _room(_flows)[tuple(one)] = one


def known_series(rows: Sequence[Any]) -> list[Series] | None:
    """Return the series of rows of a device, an op and a list of stages; None if not all passed every check before."""
    try:
        found = [_series[device, op, stage] for device, op, stages in rows for stage in stages]
    except _UNUSUAL:
        return None
    return found if _are((stages for *_, stages in rows), list) else None


def totals_alone(line: bytes) -> bytes:
    """Return a window's line without its histograms of stages, undecoded; any other line as it is.

    A reader of a minute needs a third of the line. The part that is left out is checked by its own readers.
    """
    begin = line.find(b'"h":[{"m":"')
    end = line.find(b"]}]", begin)
    if begin < 0 or end < 0 or b"\\" in line:  # without one no text contains a quote, so that the cut is right
        return line
    begin += len(b'"h":[{')
    reported = line[begin : end + 1]
    every = reported.split(b"},{")
    kept = [one for one in every if one.startswith(_TOTAL)]
    ours = reported.count(b'},{"m":"') == len(every) - 1 and reported.count(b'"],"n":') == len(every)
    if not ours or len(kept) == len(every):
        return line
    between = b"{" + b"},{".join(kept) + b"}" if kept else b""
    return b"".join((line[: begin - 1], between, line[end + 2 :]))


def slowest_us(line: bytes) -> int:
    """Return the slowest I/O of a window's line in us, by the bound of its bucket where no maximum is known; else 0.

    The line isn't decoded: a screen needs this number of all windows of a recording.
    """
    found = _SLOWEST.findall(line)
    known = max((int(most) for most, _, _ in found if most), default=0)
    bounds = (bucket_bounds(min(int(index), TOP), int(bits or BITS))[1] for most, bits, index in found if not most)
    return max(known, max(bounds, default=0))


def histograms(line: Json, *, booleans: bool = True) -> Packed[Series] | None:
    """Return `h` read at once, or None; `booleans`: whether the line may have true or false, which pass as numbers."""
    found = line.get("h")
    try:
        return _histograms(found, booleans=booleans) if type(found) is list and len(found) <= MAX_ITEMS else None
    except _UNUSUAL:
        return None


def _histograms(found: list[Json], *, booleans: bool) -> Packed[Series]:
    labels, flats, reported = ([one[name] for one in found] for name in ("l", "b", "n"))
    _require(_are(labels, list) and _are(flats, list) and _are(reported, int) and not any("k" in one for one in found))
    keys = tuple([_series[*one["l"], one["m"]] for one in found])
    _require(len(set(keys)) == len(keys) and max(map(len, flats), default=0) <= MAX_ITEMS)
    _require(not booleans or _are(chain.from_iterable(flats), int))
    orders = [bytes(flat[::2]) for flat in flats]
    counts = [flat[1::2] for flat in flats]
    indices, every = b"".join(orders), [*chain.from_iterable(counts)]
    packed = numbers(every)
    _require(len(indices) == len(packed) and max(indices, default=0) <= TOP and min(every, default=1) > 0)
    _require(list(map(sum, counts)) == reported and max(reported, default=0) <= MAX_COUNT and _all_rising(orders))
    ends = accumulate(map(len, orders))
    return Packed(keys, ends, indices, packed, sums=_optional(found, "sum"), maxima=_optional(found, "max"))


def completed(found: Any) -> Mapping[Flow, Completed] | None:
    """Return `seen` or `kernel` read at once, or None."""
    try:
        return _completed(found) if type(found) is list and len(found) <= MAX_ITEMS else None
    except _UNUSUAL:
        return None


def _completed(found: list[Json]) -> Mapping[Flow, Completed]:
    labels, counts, sizes = ([one[name] for one in found] for name in ("l", "n", "bytes"))
    times, queues, merged = ([one.get(name) for one in found] for name in ("us", "queue", "merged"))
    every = [*counts, *sizes, *(n for n in (*times, *queues, *merged) if n is not None)]
    _require(_are(labels, list) and _are(every, int))
    _require(min(every, default=0) >= 0 and max(every, default=0) <= MAX_COUNT)
    flows = [_flows[tuple(one)] for one in labels]
    made = dict(zip(flows, map(Completed, counts, sizes, times, queues, merged), strict=True))
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
    """Return a number of 0 or more for each, or UNKNOWN."""
    reported = [one.get(name) for one in found]
    known = [n for n in reported if n is not None]
    _require(_are(known, int) and min(known, default=0) >= 0 and max(known, default=0) <= MAX_COUNT)
    return known if len(known) == len(reported) else [UNKNOWN if n is None else n for n in reported]


def _require(ours: bool) -> None:
    if not ours:
        raise ValueError


Key = TypeVar("Key")
_Kept = TypeVar("_Kept", dict[tuple[str, ...], Series], dict[tuple[str, ...], Flow], set[bytes])


def _room(kept: _Kept) -> _Kept:
    """Clear a full cache; keys that come again are cached again."""
    if len(kept) >= MAX_KNOWN:
        kept.clear()
    return kept


MAX_BITS = 5
"""895 buckets; k = 6 would be beyond 1024."""
_TOPS = {bits: bucket_index(MAX_US, bits) for bits in range(MAX_BITS + 1)}
_LABELS = 2


def decode_histograms(line: Json, *, booleans: bool) -> Mapping[Series, Histogram]:
    """Return the histograms of a window: at once if possible, else one by one."""
    at_once = histograms(line, booleans=booleans)
    if at_once is not None:
        return at_once
    each = validate.objects(line.get("h", []), "h")
    found = once([(Series(*_flow(one), label(one.get("m"), "m")), histogram(one)) for one in each if _is_known(one)])
    remember(found.keys())
    return found


def decode_completed(value: Any, key: str) -> Mapping[Flow, Completed]:
    """Return the counts of `seen` or `kernel`: at once if possible, else one by one."""
    at_once = completed(value)
    if at_once is not None:
        return at_once
    found = once([_COMPLETED.decode(one) for one in validate.objects(value, key) if _is_known(one)])
    remember(found.keys())
    return found


def histogram(line: Json) -> Histogram:
    """Return one histogram: sum and maximum if known, and flat pairs of bucket and count."""
    bits = validate.whole(line.get("k", BITS), "k", high=MAX_BITS)
    pairs = validate.items(line.get("b", []), "b")
    if len(pairs) % 2 or not {*map(type, pairs)} <= {int}:
        raise RecordingError("'b' is not a list of bucket indices and counts")
    indices, counts = pairs[::2], pairs[1::2]
    if indices and (indices[0] < 0 or indices[-1] > _TOPS[bits] or sorted(set(indices)) != indices):
        raise RecordingError("'b' has bucket indices out of order or out of range")
    if counts and (min(counts) < 1 or sum(counts) > MAX_COUNT):
        raise RecordingError("'b' has a count below 1 or above the maximum")
    if validate.whole(line.get("n", sum(counts)), "n") != sum(counts):
        raise RecordingError("'n' is not the sum of the counts in 'b'")
    total, maximum = (optional(count)(line.get(name), name) for name in ("sum", "max"))
    return Histogram(tuple(zip(indices, counts, strict=True)), total, maximum, bits)


def encode_histogram(series: Series, one: Histogram) -> Line:
    """Return an entry of `h`."""
    line: Line = {"m": series.stage, "l": [series.device, series.op], "n": one.count}
    if one.sum is not None:
        line["sum"] = one.sum
    if one.max is not None:
        line["max"] = one.max
    if one.bits != BITS:
        line["k"] = one.bits
    line["b"] = flat(one.buckets)
    return line


def flow(value: Any, key: str) -> Flow:
    """Return a device and an op."""
    found = validate.labels(value, key)
    if len(found) != _LABELS:
        raise RecordingError(f"{key!r} is not a device and an op")
    return Flow(*found)


_COMPLETED = RecordCodec(
    lambda flow, **values: (flow, Completed(**values)),
    RecordField("l", flow, "flow", required=True),
    RecordField("n", count, "count"),
    RecordField("bytes", count),
    RecordField("us", optional(count), "time_us", default=None),
    RecordField("queue", optional(count), "queue_us", default=None),
    RecordField("merged", optional(count), default=None),
)


def encode_completed(counts: Mapping[Flow, Completed]) -> list[Line]:
    """Return `seen` or `kernel`."""
    found = []
    for where, one in counts.items():
        line: Line = {"l": [where.device, where.op], "n": one.count, "bytes": one.bytes}
        if one.time_us is not None:
            line["us"] = one.time_us
        if one.queue_us is not None:
            line["queue"] = one.queue_us
        if one.merged is not None:
            line["merged"] = one.merged
        found.append(line)
    return found


def _flow(line: Json) -> Flow:
    return flow(line.get("l", []), "l")


def _is_known(line: Json) -> bool:
    """Return False for an entry with more labels than ours: a later version's, not to be mixed up with one of ours."""
    found = line.get("l")
    return not (isinstance(found, list) and len(found) > _LABELS)


WIDTH = 256
"""Bucket numbers that are reserved for a row of a table; a row has fewer buckets."""
MAX_SLOTS = 1 << 19
"""Buckets of one table: 900 devices with all their ops and stages have fewer."""
MAX_IN_TABLE = 1 << 52
"""Counts of one table, or its microseconds: 2,000 frames of them can be added up."""


def encode_table(packed: Packed[Any]) -> Line:
    """Return `b` and `n` of a table, `sum` and `max` where one is known, and `k` where a scale isn't that of BITS."""
    slots = [WIDTH * part.row + index for _, part in packed.parts() for index in packed.indices[part.begin : part.end]]
    line: Line = {"b": [*slots[:1], *map(sub, slots[1:], slots)], "n": packed.counts.tolist()} if slots else {}
    for name, values in (("sum", packed.sums), ("max", packed.maxima)):
        if any(value != UNKNOWN for value in values):
            line[name] = values.tolist()
    if packed.scales:
        line["k"] = list(packed.scales)
    return line


def table(line: Json, keys: Sequence[Key], low: int = 1) -> Packed[Key]:
    """Return a table's histograms, one for each of `keys`; `low`: the least that a count may be."""
    gaps, counts = (_numbers(line, name, MAX_SLOTS) for name in ("b", "n"))
    slots = list(accumulate(gaps))
    if len(set(keys)) != len(keys) or len(keys) > validate.MAX_ITEMS:
        raise RecordingError("a table has the same entry twice, or too many entries")
    if slots and (slots[0] < 0 or min(gaps[1:], default=1) < 1 or slots[-1] >= WIDTH * len(keys)):
        raise RecordingError("'b' has buckets out of order or out of range")
    if len(counts) != len(slots) or min(counts, default=low) < low or sum(counts) > MAX_IN_TABLE:
        raise RecordingError("'n' is not a count for each bucket")
    indices = _low_bytes(slots)
    if max(indices, default=0) > TOP:
        raise RecordingError("'b' has a bucket beyond the last")
    ends = [bisect_left(slots, end) for end in range(WIDTH, WIDTH * len(keys) + 1, WIDTH)]
    sums, maxima = (_each(line, name, len(keys)) for name in ("sum", "max"))
    return Packed(tuple(keys), ends, indices, counts, sums=sums, maxima=maxima, scales=_scales(line, ends, indices))


def _scales(line: Json, ends: list[int], indices: bytes) -> bytes:
    """Return each row's bits, or nothing where all have BITS."""
    found = _numbers(line, "k", validate.MAX_ITEMS)
    if not found:
        return b""
    if len(found) != len(ends) or min(found) < 0 or max(found) > BITS:
        raise RecordingError(f"'k' is not a number up to {BITS} for each row")
    if any(end > begin and indices[end - 1] > _TOPS[k] for begin, end, k in zip([0, *ends], ends, found, strict=False)):
        raise RecordingError("'b' has a bucket beyond the last of its scale")
    return bytes(found)


def _low_bytes(slots: list[int]) -> bytes:
    """Return each number modulo WIDTH."""
    whole = numbers(slots)
    return whole.tobytes()[0 if sys.byteorder == "little" else whole.itemsize - 1 :: whole.itemsize]


def _each(line: Json, name: str, rows: int) -> list[int]:
    """Return a number for each row, or none at all."""
    found = _numbers(line, name, validate.MAX_ITEMS)
    if found and (len(found) != rows or min(found) < UNKNOWN or max(found) > MAX_IN_TABLE):
        raise RecordingError(f"{name!r} is not a number for each row")
    return found


def _numbers(line: Json, name: str, most: int) -> list[int]:
    found = line.get(name, [])
    if not isinstance(found, list) or len(found) > most or not {*map(type, found)} <= {int}:
        raise RecordingError(f"{name!r} is no list of numbers")
    return found
