"""Numbers as text on a screen, with units and significant digits, and texts that the report shares. Pure."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from latmon.model.frame import NEARLY_ALL
from latmon.model.histogram import Histogram
from latmon.support.text import clean
from latmon.support.units import (
    KILO,
    RATE_UNITS,
    TIME_UNITS,
    UNKNOWN,
    bound,
    clock,
    duration,
    rate,
    rough,
    show_size,
    significant,
)


def quantile(histogram: Histogram, q: float) -> str:
    """Return a quantile with two digits, of a bucket of half an octave or more with `~`; a max is exact.

    UNKNOWN: too few I/Os, or it is in a row of an import that has no upper edge.
    """
    value = histogram.bounded(histogram.quantile(q))
    if value is None:
        return UNKNOWN
    if histogram.bits < 2 and value != histogram.max:  # noqa: PLR2004  a bucket of 50 % and more
        return rough(value, histogram.max)
    return bound(value, histogram.max)


def maximum(histogram: Histogram) -> str:
    """Return the exact maximum, or `≤` and the bound of the highest bucket; UNKNOWN where it has none."""
    if histogram.is_endless:
        return UNKNOWN
    if histogram.max is not None or not histogram:
        return duration(histogram.max if histogram else None)
    return f"≤{duration(histogram.max_bound, 2, up=True)}"


def at_least(us: int) -> str:
    """Return the age of an I/O in flight as a bound of its latency, rounded down: >0.9s, >45s, >599s, >12min, >2h."""
    seconds, minutes = us // 1_000_000, us // 60_000_000
    if seconds < 10:  # noqa: PLR2004  one decimal fits
        return f">{us // 100_000 / 10:.1f}s"
    if minutes < 10:  # noqa: PLR2004  seconds fit
        return f">{seconds}s"
    return f">{minutes}min" if minutes < 100 else f">{minutes // 60}h"  # noqa: PLR2004  six cells


def count(value: int) -> str:
    """Return a count: 24,711, or 1.02M from a million on."""
    return f"{value:,}" if value < 10**6 else rate(value)


def rounded(value: int) -> str:
    """Return a rounded number in at most four cells: 256, 4.1k, 1.0M."""
    for unit, factor in RATE_UNITS:
        text = str(value) if factor == 1 and value < KILO else significant(value / factor, 2)
        if float(text) < KILO:
            return text + unit
    return rate(value)


def percent(share: float) -> str:
    """Return a share as 99.97%; 100% only when it is exact."""
    text = f"{share * 100:.2f}"
    return "99.99%" if text == "100.00" and share < 1 else "100%" if text == "100.00" else f"{text}%"


def exact(us: int) -> str:
    """Return a time to the microsecond, for numbers that add up: 85 us, 18.250 ms, 1.238999 s."""
    sign, remainder = ("-" if us < 0 else ""), abs(us)
    if remainder < TIME_UNITS[1][1]:
        return f"{sign}{remainder} us"
    return f"{sign}{remainder / 1e3:.3f} ms" if remainder < TIME_UNITS[2][1] else f"{sign}{remainder / 1e6:,.6f} s"


def size(value: int | None) -> str:
    """Return bytes as of `show_size` in at most five cells: 512, 4K, 12.5K, 1.5M."""
    if value is None:
        return UNKNOWN
    number, unit = show_size(value).split(" ")
    return number + unit.removesuffix("B").removesuffix("i")


def moment(wall: float) -> str:
    """Return the wall-clock time of day to the microsecond."""
    whole_us = round(wall * 1e6) if math.isfinite(wall) else 0
    time_of_day = clock(whole_us // 10**6) if math.isfinite(wall) else clock(wall)
    return f"{time_of_day}.{whole_us % 10**6:06}"


def zone(wall: float) -> str:
    """Return the short name of the local time zone at a time: CEST; empty for an invalid stamp in a recording."""
    try:
        return clean(time.localtime(wall).tm_zone, 8)
    except (OverflowError, ValueError, OSError):
        return ""


def span(us: int) -> str:
    """Return a window's length: 60 s, 5 min."""
    seconds = us / 1e6
    return f"{round(seconds / 60, 1):g} min" if seconds >= 120 else f"{seconds:g} s"  # noqa: PLR2004  two minutes and more


def sampled_as(least: int, most: int) -> str:
    """Return `1 in 8`, or `1 in 1 to 8, weighed` where it changed; empty where every request was traced.

    Where it changed, counts are those of SampleRates: about as of one in `least`.
    """
    if most <= 1:
        return ""
    return f"1 in {most}" if least == most else f"1 in {least} to {most}, weighed"


def off_total(missing_us: int) -> str:
    """Return `3 us less than the total` for a sum of stages that is not the total; empty where it is."""
    return f"{exact(abs(missing_us))} {'less' if missing_us > 0 else 'more'} than the total" if missing_us else ""


def meanwhile(label: str, ran_us: int | None, delay_us: int) -> str:
    """Return the end of a sentence about a late thread: which other thread had its CPU.

    Without `ran_us` it is only known which thread ran last. That one often has a small part of the delay.
    """
    if not label:
        return ""
    if not ran_us:
        return f", after {label}"
    return f": {label} ran instead{span_if_part(ran_us, delay_us)}"


def span_if_part(ran_us: int, delay_us: int) -> str:
    """Return ` for 30.000 ms` where another thread ran for only a part of the delay; else an empty text."""
    return f" for {exact(ran_us)}" if ran_us < NEARLY_ALL * delay_us else ""


def until(stages: Mapping[str, int]) -> str:
    """Return where an outlier's total ends."""
    return "to its waiter" if "resume" in stages else "to completion"
