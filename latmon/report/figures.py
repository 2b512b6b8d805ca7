"""How the report says a number: quantiles, shares, stamps. A quantile that the counts don't carry is null."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from latmon.histogram import BITS, MAX_US, Histogram
from latmon.model import Missing

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}


def quantiles(one: Histogram) -> dict[str, Any]:
    """Q of the schema. Where the maximum isn't exact it is null, and `max_bound` says what it can't be above.

    `octave_parts`: into how many buckets an octave is cut, where these are fewer than latmon's own.
    """
    return {
        "count": one.count,
        **{name: one.quantile(q) for name, q in QUANTILES.items()},
        "max": one.max,
        "mean": rounded(one.mean, 1),
        **({"max_bound": one.max_bound} if one and one.max is None else {}),
        **({"octave_parts": 2**one.bits} if one and one.bits < BITS else {}),
    }


def opened(q: dict[str, Any], from_us: int) -> None:
    """Of imported values `from_us` is the last bound: of those above it nobody knows how much more they are."""
    more = [name for name in QUANTILES if (q[name] or 0) > MAX_US]
    if q.get("max_bound", 0) > MAX_US:
        del q["max_bound"]
        more.append("max")
    q |= dict.fromkeys((name for name in more if name in QUANTILES), from_us)
    q |= {"open_from": from_us, "or_more": more} if more else {}


def summed(one: Histogram) -> dict[str, Any]:
    """Q and the sum."""
    return quantiles(one) | {"sum": one.sum}


def shares(found: Mapping[str, float]) -> dict[str, float]:
    """0..1 to a millionth."""
    return {name: round(share, 6) for name, share in found.items()}


def missing(found: Iterable[Missing]) -> list[dict[str, str]]:
    """What isn't here, and why."""
    return [{"name": one.name, "reason": one.reason} for one in found]


def order(known: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    """A sort key: known names in their own order, then the others."""
    return lambda name: (known.index(name) if name in known else len(known), name)


def rfc3339(wall: float, timespec: str = "milliseconds") -> str | None:
    """UTC; None for a stamp beyond the calendar."""
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


def rounded(value: float | None, digits: int) -> float | None:
    """None stays None."""
    return None if value is None else round(value, digits)
