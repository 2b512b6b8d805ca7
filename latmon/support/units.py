"""Numbers, durations, sizes and times as text, and parsed from text. Pure.

Significant digits with the unit attached, never more digits than the number has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from string import ascii_lowercase
from time import localtime, strftime

from latmon.support.errors import UsageError

UNKNOWN = "-"
MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
TIME_UNITS = (("us", 1), ("ms", 1_000), ("s", 1_000_000))
RATE_UNITS = (("", 1), ("k", 10**3), ("M", 10**6), ("G", 10**9), ("T", 10**12))
KILO = 1000
_SECONDS_BELOW = 600
"""From so many seconds on, minutes are short and exact enough; below, `at_least` has seconds too."""
_UNIT = re.compile(r"(?<=\d) (?=(?:us|µs|ms|s|min|h|IOPS|[kMGT]?i?B(?:/s)?)(?![\w/]))")
NO_BREAK = "\u00a0"
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]*)", re.ASCII)
_KIBI = 1024
_DURATIONS = {
    "us": 1,
    "ms": 1_000,
    "": 1_000_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
}
_SIZES = {
    prefix + tail: 1024**power for power, prefix in enumerate(("", "k", "m", "g", "t")) for tail in ("", "b", "ib")
}
LONGEST_THRESHOLD_US = 3_600_000_000
"""Longer latencies than 71 min are counted as one: no number above a longer threshold would be right."""
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,9})?)?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_DAYS = (timedelta(-1), timedelta(0), timedelta(1))
_LAST_S = 253_402_300_800.0
"""The year 10000, the end of Python's calendar."""
EXAMPLES = "13:04:12, 13:04, 2026-01-05 13:04, -5min, +10s"


def duration(us: float | None, digits: int = 3, *, up: bool = False, down: bool = False) -> str:
    """Format microseconds in at most six cells: 85us, 1.24ms, 480ms, 1.24s, 72.0s, 599s, 12min, 17h.

    `digits` are of values below ten minutes; a mean below 1 us has one decimal, at least <0.1us. `up` rounds up, for
    upper bounds, `down` rounds down, for lower ones.
    """
    if us is None:
        return UNKNOWN
    if 0 < us < 1:
        return f"{us:.1f}us" if us >= 0.1 else "<0.1us"  # noqa: PLR2004  one decimal
    for unit, factor in TIME_UNITS:
        is_whole = factor == 1 and float(us).is_integer()
        text = significant(us / factor, digits, up=up, down=down, whole=is_whole)
        if float(text) < (_SECONDS_BELOW if unit == "s" else KILO):
            return text + unit
    to_whole: Callable[[float], int] = round
    if up or down:
        to_whole = math.ceil if up else math.floor
    minutes = to_whole(us / MINUTE_US)
    return f"{minutes}min" if minutes < KILO else f"{to_whole(us / HOUR_US)}h"


def bound(us: float | None, top_us: int | None) -> str:
    """Format an upper bound with two digits, rounded up, but never above the exact maximum."""
    above = us is not None and top_us is not None and (us == top_us or _rounded_up(us) > top_us)
    return duration(us) if above else duration(us, 2, up=True)


def rough(us: float, top_us: int | None) -> str:
    """Format the upper bound of a wide bucket: `~` and two digits; the exact maximum where these would be above it."""
    return duration(top_us) if top_us is not None and _rounded_up(us) > top_us else f"~{duration(us, 2, up=True)}"


def with_unit(us: float | None, digits: int = 3) -> str:
    """Format microseconds for a title: 85us, 1.24ms, 20ms, 1.24s, 72s, 12min; without trailing zeros."""
    return attached(duration(us, digits))


def attached(text: str) -> str:
    """Convert the result of `duration` or `bound` to the form of `with_unit`."""
    return in_words(text).replace(" ", "")


def unbroken(text: str) -> str:
    """Return a text with a no-break space between each number and its unit, for wrapping."""
    return _UNIT.sub(NO_BREAK, text)


def spelled(us: float) -> str:
    """Format microseconds for a sentence, without trailing zeros: 85 us, 1.24 ms, 20 ms, 1.2 s, 72 s, 12 min."""
    return in_words(duration(us))


def in_words(text: str) -> str:
    """Insert a blank before the unit of a result of `duration` or `bound`, and remove trailing zeros: 20 ms."""
    number = text.rstrip(ascii_lowercase)
    unit = text[len(number) :]
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {unit}".rstrip()


def rate(value: float | None) -> str:
    """Format a rate in at most five cells: 412, 11.2k, 0.3."""
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


def speed(bytes_per_s: float) -> str:
    """Format bytes per second for a sentence, in powers of 1000 and without trailing zeros: 820 B/s, 6.12 MB/s."""
    text = rate(bytes_per_s)
    number = text.rstrip("kMGT")
    unit = text[len(number) :]
    number = number.rstrip("0").rstrip(".") if "." in number else number
    return f"{number} {unit}B/s"


def whole(value: int) -> str:
    """Format a count in at most five cells: 3, 412, 11.2k."""
    return str(value) if abs(value) < KILO else rate(value)


def counted(number: int, noun: str) -> str:
    """Format a count with its noun: 1 window, 2,000 windows."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def part(share: float | None) -> str:
    """Format a share in at most four cells: 0%, <1%, 97%, >99%, and 100% only for 1."""
    if share is None:
        return UNKNOWN
    if share <= 0 or share >= 1:
        return f"{share:.0%}"
    return "<1%" if share < 0.005 else ">99%" if share >= 0.995 else f"{share * 100:.0f}%"  # noqa: PLR2004  what rounds away


def significant(value: float, digits: int, *, up: bool = False, down: bool = False, whole: bool = False) -> str:
    """Format a number with `digits` digits and no unit; `up` and `down` round so, `whole` leaves out decimals."""
    if value <= 0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(value))
    if whole:
        decimals = min(decimals, 0)
    factor = 10.0**decimals
    scaled = value * factor
    if up:
        rounded = math.ceil(scaled - 1e-9)
    elif down:
        rounded = math.floor(scaled + 1e-9)
    else:
        rounded = round(scaled)
    result = rounded / factor
    # 9.96 at two digits is 10, not 10.0
    if result >= 10 ** (digits - decimals) and decimals > 0:
        decimals -= 1
    return f"{result:.{max(decimals, 0)}f}"


def _rounded_up(us: float) -> float:
    """Return the value of `duration(us, 2, up=True)` in us."""
    step = 10.0 ** max(math.floor(math.log10(max(us, 1))) - 1, 0)
    if (rounded_up := math.ceil(us / step - 1e-9) * step) >= _SECONDS_BELOW * 1e6:
        step = MINUTE_US if us <= (KILO - 1) * MINUTE_US else HOUR_US
        rounded_up = math.ceil(us / step) * step
    return rounded_up


def duration_us(text: str) -> int:
    """Parse `250ms`, `1s`, `5min`, `1h` or a bare number of seconds to us. Raises ValueError with the expected form."""
    return _scaled(text, _DURATIONS, "a duration such as 250ms, 1s or 5min")


def size_bytes(text: str) -> int:
    """Parse `512M`, `2G`, `100k` (powers of 1024) or bytes without a unit. Raises ValueError with the expected form."""
    return _scaled(text, _SIZES, "a size such as 512M or 2G")


def show_duration(us: int) -> str:
    """Format us in a short form that `duration_us` parses: 1s, 250ms, 1.5s, 5min."""
    for unit in ("h", "min", "s", "ms", "us"):
        if us >= _DURATIONS[unit] and (us % _DURATIONS[unit] == 0 or unit == "s"):
            return f"{us / _DURATIONS[unit]:.12g}{unit}"
    return "0s"


def show_size(count: float) -> str:
    """Format bytes in powers of 1024, as I/Os, limits and memory are made: 812 B, 16 KiB, 12.5 KiB, 1.5 MiB.

    Rates are in powers of 1000 (MB/s), as iostat and makers of drives have them.
    """
    value = float(round(count))
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        text = f"{value:.0f}" if value.is_integer() or value >= 100 else f"{value:.1f}"  # noqa: PLR2004  three digits
        if float(text) < _KIBI or unit == "TiB":
            return f"{text.removesuffix('.0')} {unit}"
        value /= _KIBI
    raise AssertionError("unreachable: TiB ends the loop")


def _scaled(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not {expected}")
    from decimal import Decimal  # noqa: PLC0415 - few commands parse a number

    return int(Decimal(match[1]) * factor)


def wall_of(text: str, now_wall: float) -> float:
    """Parse a time to seconds since 1970; offsets and clock times without a date are relative to `here`."""
    wanted = text.strip()
    if wanted[:1] in ("-", "+"):
        wall = now_wall + (1 if wanted[0] == "+" else -1) * _distance_s(wanted)
        if not 0 <= wall < _LAST_S:
            raise _invalid_time(wanted)
        return wall
    *days, clock = wanted.replace("T", " ").split() or [""]
    match = _CLOCK.fullmatch(clock)
    if match is None or len(days) > 1:
        raise _invalid_time(wanted)
    hour, minute, second = (int(group or 0) for group in match.groups()[:3])
    try:
        at = time(hour, minute, second)
        today = datetime.fromtimestamp(now_wall).date()  # noqa: DTZ006  local time is meant
        dates = [_day(wanted, days[0])] if days else [today + delta for delta in _DAYS]
        # an hour that a clock shows twice is either
        walls = [datetime.combine(day, at.replace(fold=fold)).timestamp() for day in dates for fold in (0, 1)]
    except (ValueError, OverflowError, OSError):
        raise _invalid_time(wanted) from None
    return min(walls, key=lambda wall: abs(wall - now_wall)) + float(match[4] or 0)


def _day(wanted: str, reported: str) -> date:
    match = _DATE.fullmatch(reported)
    if match is None:
        raise _invalid_time(wanted)
    return date(*map(int, match.groups()))


def _distance_s(wanted: str) -> float:
    try:
        return duration_us(wanted[1:].strip()) / 1e6
    except ValueError:
        raise _invalid_time(wanted) from None


def _invalid_time(wanted: str) -> UsageError:
    return UsageError(f"{wanted!r} is no time such as {EXAMPLES}")


def clock(wall: float) -> str:
    """Return the wall-clock time of day; `--:--:--` for an invalid stamp in a recording."""
    try:
        return strftime("%H:%M:%S", localtime(wall))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"


def rfc3339(wall: float, timespec: str = "milliseconds") -> str | None:
    """Format a Unix time as RFC 3339 in UTC; None beyond the calendar."""
    try:
        return datetime.fromtimestamp(wall, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None


_TEENS, _ENDINGS = (11, 12, 13), {1: "st", 2: "nd", 3: "rd"}


def ordinal(number: int) -> str:
    """Return a number's ordinal: 1st, 2nd, 3rd, 4th, 11th, 21st."""
    last = 0 if number % 100 in _TEENS else number % 10
    return f"{number}{_ENDINGS.get(last, 'th')}"
