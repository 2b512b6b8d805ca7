"""Histograms of a window, and tables of histograms (docs/RECORDING.md): encoder and decoder.

A check of one number costs as much as its JSON, and a recording has millions: so all numbers of a table are checked at
once. Series and flows that passed are remembered.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby
from operator import sub
from typing import Any, TypeVar

from latmon.model.frame import Flow, Series
from latmon.model.histogram import BITS, MAX_US, TOP, Histogram, bucket_index
from latmon.model.packed import UNKNOWN, Packed, numbers
from latmon.recording import validate
from latmon.recording.json_line import parse
from latmon.recording.validate import Json, Line, RowDecoder, label, labels
from latmon.support.errors import RecordingError
from latmon.support.text import is_clean

MAX_KNOWN = 65_536
"""Series and flows that are remembered, of each."""

TOTAL = "total"
_STAGES = b',"stages":{'
_TOTALS = b'"h":{'
_UNUSUAL = (KeyError, TypeError, ValueError)
"""Errors of rows with something else than known names."""

_series: dict[tuple[str, ...], Series] = {}
_flows: dict[tuple[str, ...], Flow] = {}
"""Labels as in JSON -> clean key; only of keys that passed every check."""
Key = TypeVar("Key")
_Kept = TypeVar("_Kept", dict[tuple[str, ...], Series], dict[tuple[str, ...], Flow])
_TOPS = {bits: bucket_index(MAX_US, bits) for bits in range(BITS + 1)}
_LABELS = 2
_STAGES_ROW = RowDecoder(lambda *cells: cells, ("device", label), ("op", label), ("stages", labels))
WIDTH = 256
"""Bucket numbers that are reserved for a row of a table; a row has fewer buckets."""
_BUCKETS = bytes(range(TOP + 1))
MAX_SLOTS = 1 << 19
"""Buckets of one table: 900 devices with all their ops and stages have fewer."""
MAX_IN_TABLE = 1 << 52
"""Counts of one table, or its microseconds: 2,000 frames of them can be added up."""


def _remember(keys_seen: Collection[Series | Flow]) -> None:
    """Cache keys that passed every check, for the next lines; only clean ones, which are the same in JSON."""
    for key_seen in keys_seen:
        if not all(map(is_clean, key_seen)):
            continue
        if isinstance(key_seen, Series):
            _room(_series)[tuple(key_seen)] = key_seen
        else:
            _room(_flows)[tuple(key_seen)] = key_seen


def _known_series(rows: Sequence[Any]) -> list[Series] | None:
    """Return the series of rows of a device, an op and a list of stages; None if not all passed every check before."""
    try:
        series = [_series[device, op, stage] for device, op, stages in rows for stage in stages]
    except _UNUSUAL:
        return None
    return series if _are((stages for *_, stages in rows), list) else None


def totals_alone(line: bytes) -> bytes:
    """Return a window's line without its table of stages, undecoded; any other line as it is.

    A reader of a minute needs a third of the line. The part that is left out is checked by its own readers.
    """
    begin = line.find(_STAGES)
    return line if begin < 0 else line[:begin] + line[_end_of_table(line, begin) :]


def _end_of_table(line: bytes, begin: int) -> int:
    """Return the end of an object without objects; `begin` where that is not certain.

    Without a backslash no text contains a quote: so one with a brace in it has an odd number of quotes before that.
    """
    end = line.find(b"}", begin) + 1
    return begin if b"\\" in line or line.count(b'"', begin, end) % 2 else end


def slowest_us(line: bytes) -> int:
    """Return the slowest I/O of a window's line in us, by the bound of its bucket where no maximum is known; else 0.

    Nothing else of the line is decoded: a screen needs this number of all windows of a recording.
    """
    begin = line.find(_TOTALS)
    if begin < 0:
        return 0
    begin += len(_TOTALS) - 1
    try:
        packed = read_totals(parse(line[begin : _end_of_table(line, begin)]))
    except RecordingError:
        return 0
    if packed.maxima and UNKNOWN not in packed.maxima:
        return max(packed.maxima)
    return max((histogram.max_bound or 0 for histogram in packed.values()), default=0)


def _are(values: Any, kind: type) -> bool:
    return {*map(type, values)} <= {kind}


def _room(kept: _Kept) -> _Kept:
    """Clear a full cache; keys that come again are cached again."""
    if len(kept) >= MAX_KNOWN:
        kept.clear()
    return kept


def read_totals(line: Json) -> Packed[Series]:
    """Return the totals by device and op, the `h` of a window."""
    return table(line, [_total_of(*flow) for flow in flows_of(line)])


def read_stages(line: Json) -> Packed[Series]:
    """Return the other histograms, the `stages` of a window."""
    stages = series_table(line)
    if any(series.stage == TOTAL for series in stages):
        raise RecordingError("'stages' has a total")
    return stages


def encode_totals(histograms: Mapping[Series, Histogram]) -> Line:
    """Return the totals as `h`; the other histograms are in `stages`."""
    totals = Packed.of({series: latency for series, latency in histograms.items() if series.stage == TOTAL})
    return encode_rows(totals.rows) | encode_table(totals)


def encode_stages(histograms: Mapping[Series, Histogram]) -> Line:
    """Return the histograms other than totals as `stages`; empty without any."""
    stages = Packed.of({series: latency for series, latency in histograms.items() if series.stage != TOTAL})
    return encode_series(stages) if stages else {}


def encode_rows(keys: Iterable[Series | Flow]) -> Line:
    """Return `rows` of device and op."""
    rows = [[key.device, key.op] for key in keys]
    return {"rows": rows} if rows else {}


def encode_series(packed: Packed[Series]) -> Line:
    """Return a table whose rows are a device, an op and the stages of these."""
    rows = [
        [*flow, [row_series.stage for row_series in series]]
        for flow, series in groupby(packed.rows, lambda series: series[:2])
    ]
    return ({"rows": rows} if rows else {}) | encode_table(packed)


def series_table(line: Json, low: int = 1) -> Packed[Series]:
    """Return a table of `encode_series`; `low`: the least that a count may be."""
    rows = validate.items(line.get("rows", []), "rows")
    series = _known_series(rows)
    if series is None:
        read = (_STAGES_ROW.read(row, "rows") for row in rows)
        series = [Series(device, op, stage) for device, op, stages in read for stage in stages]
        _remember(series)
    return table(line, series, low)


def flows_of(line: Json) -> list[Flow]:
    """Return the devices and ops in `rows`."""
    rows = validate.items(line.get("rows", []), "rows")
    try:
        flows = [_flows[device, op] for device, op in rows]
    except _UNUSUAL:
        flows = []
    if len(flows) != len(rows) or not _are(rows, list):
        flows = [flow(row, "rows") for row in rows]
        _remember(flows)
    return flows


@lru_cache(MAX_KNOWN)
def _total_of(device: str, op: str) -> Series:
    return Series(device, op, TOTAL)


def flow(value: Any, key: str) -> Flow:
    """Return a device and an op."""
    label_parts = validate.labels(value, key)
    if len(label_parts) != _LABELS:
        raise RecordingError(f"{key!r} is not a device and an op")
    return Flow(*label_parts)


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
    if slots and ((min(gaps) < 1 and _falls(gaps)) or slots[-1] >= WIDTH * len(keys)):
        raise RecordingError("'b' has buckets out of order or out of range")
    if len(counts) != len(slots) or min(counts, default=low) < low or sum(counts) > MAX_IN_TABLE:
        raise RecordingError("'n' is not a count for each bucket")
    indices = _low_bytes(slots)
    if indices.translate(None, _BUCKETS):
        raise RecordingError("'b' has a bucket beyond the last")
    ends = [bisect_left(slots, end) for end in range(WIDTH, WIDTH * len(keys) + 1, WIDTH)]
    sums, maxima = (each_row(line, name, len(keys)) for name in ("sum", "max"))
    return Packed(tuple(keys), ends, indices, counts, sums=sums, maxima=maxima, scales=_scales(line, ends, indices))


def _falls(gaps: list[int]) -> bool:
    """Return whether buckets are out of order: their first number may be 0, the others are the gaps between them."""
    return gaps[0] < 0 or min(gaps[1:], default=1) < 1


def _scales(line: Json, ends: list[int], indices: bytes) -> bytes:
    """Return each row's bits, or nothing where all have BITS."""
    scale_numbers = _numbers(line, "k", validate.MAX_ITEMS)
    if not scale_numbers:
        return b""
    if len(scale_numbers) != len(ends) or min(scale_numbers) < 0 or max(scale_numbers) > BITS:
        raise RecordingError(f"'k' is not a number up to {BITS} for each row")
    if any(
        end > begin and indices[end - 1] > _TOPS[k]
        for begin, end, k in zip([0, *ends], ends, scale_numbers, strict=False)
    ):
        raise RecordingError("'b' has a bucket beyond the last of its scale")
    return bytes(scale_numbers)


def _low_bytes(slots: list[int]) -> bytes:
    """Return each number modulo WIDTH."""
    array = numbers(slots)
    return array.tobytes()[0 if sys.byteorder == "little" else array.itemsize - 1 :: array.itemsize]


def each_row(line: Json, name: str, rows: int, most: int = MAX_IN_TABLE) -> list[int]:
    """Return a number of up to `most` for each row, or none at all."""
    each_rows = _numbers(line, name, validate.MAX_ITEMS)
    if each_rows and (len(each_rows) != rows or min(each_rows) < UNKNOWN or max(each_rows) > most):
        raise RecordingError(f"{name!r} is not a number for each row")
    return each_rows


def _numbers(line: Json, name: str, most: int) -> list[int]:
    number_list = line.get(name, [])
    if not isinstance(number_list, list) or len(number_list) > most or not {*map(type, number_list)} <= {int}:
        raise RecordingError(f"{name!r} is no list of numbers")
    return number_list
