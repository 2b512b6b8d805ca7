"""Formatting of a report: quantiles, shares, stamps, lines of 80 columns, I/Os in flight in a few words.

`~` where a bucket is half an octave and more; `≥` where nobody knows how much more it was.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from latmon.model.frame import Missing
from latmon.model.histogram import BITS, MAX_US, Histogram
from latmon.support.units import bound, duration, spelled

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


_ROUGH = 2
"""Parts of an octave: a bucket as wide has no second digit."""


def cell(q: Mapping[str, Any], name: str) -> str:
    """One of its quantiles."""
    value = q[name]
    if name in q.get("or_more", ()):
        return f"≥{duration(value, 2)}"
    if value is not None and value != q["max"] and q.get("octave_parts", 2**BITS) <= _ROUGH:
        return f"~{duration(value, 1, up=True)}"
    return bound(value, q["max"])


def top(q: Mapping[str, Any]) -> str:
    """The maximum, or what is known of it."""
    if "max" in q.get("or_more", ()):
        return f"≥{duration(q['open_from'], 2)}"
    return f"≤{duration(q['max_bound'], 2, up=True)}" if q.get("max_bound") is not None else duration(q["max"])


WIDTH = 79
_WIDE = "WF"
"""East Asian Width (UAX #11): wide and fullwidth take two cells."""
_SECOND = "\0"
"""Stands behind a wide character while lines are broken; clean text has none."""


def wrapped(text: str, indent: str = "") -> list[str]:
    """Lines, those behind the first two cells further in."""
    if text.isascii():
        return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    wide = "".join(one + _SECOND * (unicodedata.east_asian_width(one) in _WIDE) for one in text)
    lines = textwrap.wrap(wide, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    return [line.replace(_SECOND, "") for line in lines]


HELD_US = 1_000_000
"""Younger ones are no news."""
MOST = 4
"""Devices by name; of the rest their number."""


class Held(NamedTuple):
    """What one device has had in flight for HELD_US and longer."""

    device: str
    ios: int
    oldest_us: int
    at_least: bool
    """Of the oldest only a least age is known."""


def held(rows: Iterable[tuple[str, int, int, bool]]) -> list[Held]:
    """Of rows (device, I/Os, age in us, whether that is a least age), the device with the oldest first."""
    found: dict[str, Held] = {}
    for device, ios, age_us, at_least in rows:
        if age_us >= HELD_US:
            had = found.get(device, Held(device, 0, -1, at_least))
            oldest = had if had.oldest_us >= age_us else Held(device, 0, age_us, at_least)
            found[device] = oldest._replace(ios=had.ios + ios)
    return sorted(found.values(), key=lambda one: (-one.oldest_us, one.device))


def not_completed(each: Sequence[Held]) -> str:
    """`loop3: 2 I/Os in flight for 40 s, not completed`; empty where nobody waits."""
    return _listed(each, "in flight for", "the oldest in flight for", ", not completed")


def at_the_end(each: Sequence[Held]) -> str:
    """`loop3: 2 I/Os, the oldest for 40 s`; empty where nobody waits."""
    return _listed(each, "for", "the oldest for", "")


def _listed(each: Sequence[Held], one_for: str, many_for: str, then: str) -> str:
    said = [
        f"{one.device}: {_ios(one.ios)}{one_for if one.ios == 1 else many_for} {_held_age(one)}" for one in each[:MOST]
    ]
    more = [f"{len(each) - MOST:,} more devices"] if len(each) > MOST else []
    return "; ".join([*said, *more]) + then if said else ""


def _ios(n: int) -> str:
    return "1 I/O " if n == 1 else f"{n:,} I/Os, "


def _held_age(one: Held) -> str:
    return ("at least " if one.at_least else "") + spelled(one.oldest_us)
