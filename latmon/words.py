"""Numbers as words that a sentence of the core has as well as a screen: 1.24 ms, 11.2k, 97%. Pure.

Significant digits with the unit attached, never more digits than the number has.
"""

from __future__ import annotations

import math

UNKNOWN = "-"
MINUTE_US = 60_000_000
TIME_UNITS = (("u", 1), ("m", 1_000), ("s", 1_000_000))
RATE_UNITS = (("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12))
KILO = 1000


def duration(us: float | None, digits: int = 3, *, up: bool = False) -> str:
    """Microseconds as 85u, 1.24m, 480m, 1.24s, 1:12; `up` rounds up, for a number that is an upper bound."""
    if us is None:
        return UNKNOWN
    if us >= MINUTE_US - 500_000:
        seconds = math.ceil(us / 1e6) if up else round(us / 1e6)
        return f"{seconds // 60}:{seconds % 60:02}"
    for unit, factor in TIME_UNITS:
        text = significant(us / factor, digits, up=up, whole=factor == 1 and float(us).is_integer())
        if float(text) < KILO or unit == "s":
            return text + unit
    raise AssertionError("unreachable: seconds end the loop")


def bound(us: float | None, top_us: int | None) -> str:
    """An upper bound in the two digits that it has, rounded up, but never above the exact maximum."""
    above = us is not None and top_us is not None and (us == top_us or _rounded_up(us) > top_us)
    return duration(us) if above else duration(us, 2, up=True)


def spelled(us: float) -> str:
    """The same for a sentence, without idle zeros: 85 us, 1.24 ms, 20 ms, 1.2 s, 1:12 min."""
    return in_words(duration(us))


def in_words(text: str) -> str:
    """What `duration` or `bound` made, as a sentence has it."""
    units = {"u": "us", "m": "ms", "s": "s"}
    if text[-1] not in units:
        return f"{text} min"
    number = text[:-1].rstrip("0").rstrip(".") if "." in text else text[:-1]
    return f"{number} {units[text[-1]]}"


def rate(value: float | None) -> str:
    """412, 11.2k, 0.3: at most five cells."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0"
    for unit, factor in RATE_UNITS:
        scaled = value / factor
        text = f"{scaled:.1f}" if scaled < 1 and factor == 1 else significant(scaled, 3)
        if float(text) < KILO or unit == "T":
            return text + unit
    raise AssertionError("unreachable: T ends the loop")


def whole(value: int) -> str:
    """A count in at most five cells: 3, 412, 11.2k."""
    return str(value) if abs(value) < KILO else rate(value)


def part(share: float | None) -> str:
    """A share in at most four cells: 0%, <1%, 97%, >99% and 100% only when it is all."""
    if share is None:
        return UNKNOWN
    if share <= 0 or share >= 1:
        return f"{share:.0%}"
    return "<1%" if share < 0.005 else ">99%" if share >= 0.995 else f"{share * 100:.0f}%"  # noqa: PLR2004  what rounds away


def significant(value: float, digits: int, *, up: bool = False, whole: bool = False) -> str:
    """So many digits and no unit; `up` rounds up, `whole` has none behind the point."""
    if value <= 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(value))
    if whole:
        decimals = min(decimals, 0)
    factor = 10.0**decimals
    scaled = value * factor
    rounded = math.ceil(scaled - 1e-9) if up else round(scaled)
    result = rounded / factor
    # 9.96 at two digits is 10, not 10.0
    if result >= 10 ** (digits - decimals) and decimals > 0:
        decimals -= 1
    return f"{result:.{max(decimals, 0)}f}"


def _rounded_up(us: float) -> float:
    """What `duration(us, 2, up=True)` says, in us."""
    step = 1e6 if us >= MINUTE_US - 500_000 else 10.0 ** max(math.floor(math.log10(max(us, 1))) - 1, 0)
    return math.ceil(us / step - 1e-9) * step
