"""Pieces that several lines have in common, back from untrusted JSON: histograms, series, flows, reasons.

RecordingError on nonsense, as everywhere; knows no line type.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeVar

from latmon.errors import RecordingError
from latmon.histogram import BITS, MAX_US, Histogram, bucket_index
from latmon.model import Flow, Missing, Series
from latmon.recording import checks
from latmon.recording.checks import Json

MAX_BITS = 5
"""895 buckets; k = 6 would be beyond 1024."""
TOPS = {bits: bucket_index(MAX_US, bits) for bits in range(MAX_BITS + 1)}
LABELS = 2

Key = TypeVar("Key")
Value = TypeVar("Value")


def histogram(line: Json) -> Histogram:
    """Sum, maximum and flat pairs of bucket and count."""
    bits = checks.integer(line, "k", BITS, high=MAX_BITS)
    flat = checks.items(line, "b")
    if len(flat) % 2 or not {*map(type, flat)} <= {int}:
        raise RecordingError("'b' is not a list of bucket indices and counts")
    indices, counts = flat[::2], flat[1::2]
    if indices and (indices[0] < 0 or indices[-1] > TOPS[bits] or sorted(set(indices)) != indices):
        raise RecordingError("'b' has bucket indices out of order or out of range")
    if counts and (min(counts) < 1 or sum(counts) > checks.MAX_COUNT):
        raise RecordingError("'b' has a count below 1 or beyond all measure")
    if checks.integer(line, "n", sum(counts)) != sum(counts):
        raise RecordingError("'n' is not the sum of the counts in 'b'")
    total, maximum = checks.optional_integer(line, "sum"), checks.optional_integer(line, "max")
    return Histogram(tuple(zip(indices, counts, strict=True)), total, maximum, bits)


def series(line: Json) -> Series:
    """`l` and `m`."""
    device, op = flow(line)
    return Series(device, op, checks.label(line.get("m"), "m"))


def flow(line: Json) -> Flow:
    """`l`: a device and an op."""
    found = checks.labels(line, "l")
    if len(found) != LABELS:
        raise RecordingError("'l' is not a device and an op")
    return Flow(*found)


def is_known(line: Json) -> bool:
    """False for a series with more labels than ours: a later minor version's, not to be mixed up with one of ours."""
    found = line.get("l")
    return not (isinstance(found, list) and len(found) > LABELS)


def measured(line: Json) -> MappingProxyType[str, tuple[str, ...]]:
    """Stage -> the stages that it includes."""
    return once([(checks.label(stage, "measured"), checks.labels(line, stage)) for stage in line])


def missing(line: Json, key: str) -> tuple[Missing, ...]:
    """What is not measured, and why."""
    found = checks.objects(line, key)
    return tuple(Missing(checks.label(one.get("name"), key), checks.sentence(one, "reason")) for one in found)


def once(pairs: list[tuple[Key, Value]]) -> MappingProxyType[Key, Value]:
    """A mapping of `pairs`; RecordingError when two are about the same thing, because one of them would vanish."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise RecordingError("a window names one thing twice")
    return MappingProxyType(found)
