"""I/Os of one issuer or of one size."""

from __future__ import annotations

from dataclasses import dataclass

from latmon.model.histogram import BITS, EMPTY, Histogram
from latmon.model.table import Unit, Value, record


@dataclass(frozen=True, slots=True)
class IssuedIO:
    """I/Os of one key that completed in an interval. `latency` has those that a probe timed."""

    count: int
    bytes: int
    latency: Histogram = EMPTY


def _impossible(ios: int, _bytes: int, latencies: int) -> str:
    return "has more latencies than I/Os" if latencies > ios else ""


def issued_io(bits: int = BITS) -> Value[IssuedIO]:
    """Return the declaration of IssuedIO with latencies of that scale."""
    return record(IssuedIO, impossible=_impossible, bits=bits, count=Unit.IOS, bytes=Unit.BYTES, latency=Unit.LATENCIES)


ISSUED_IO = issued_io()
