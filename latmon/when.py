"""A time as people type it: 13:04:12, 13:04, 2026-01-05 13:04, -5m, +10s. Pure; local time, as on the screen."""

from __future__ import annotations

import re
import time
from datetime import datetime

from latmon.errors import UsageError
from latmon.quantities import duration_us

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?")
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_HALF_DAY_S = 43_200
_DAY_S = 86_400
EXAMPLES = "13:04:12, 13:04, 2026-01-05 13:04, -5m, +10s"


def wall_of(text: str, here: float) -> float:
    """Seconds since 1970; `here`: where the user stands. A clock without a date is the nearest such time."""
    asked = text.strip()
    if asked[:1] in ("-", "+"):
        return here + (1 if asked[0] == "+" else -1) * _distance_s(asked)
    *date, clock = asked.replace("T", " ").split() or [""]
    found = _CLOCK.fullmatch(clock)
    if found is None or len(date) > 1:
        raise _nonsense(asked)
    hour, minute, second = (int(one or 0) for one in found.groups())
    try:
        if not date:
            return _nearest(hour, minute, second, here)
        day = _DATE.fullmatch(date[0])
        if day is None:
            raise _nonsense(asked)
        year, month, number = map(int, day.groups())
        return datetime(year, month, number, hour, minute, second).timestamp()  # noqa: DTZ001  local time is meant
    except (ValueError, OverflowError, OSError):
        raise _nonsense(asked) from None


def _distance_s(asked: str) -> float:
    try:
        return duration_us(asked[1:].strip()) / 1e6
    except ValueError:
        raise _nonsense(asked) from None


def _nearest(hour: int, minute: int, second: int, here: float) -> float:
    now = time.localtime(here)
    same = datetime(now.tm_year, now.tm_mon, now.tm_mday, hour, minute, second).timestamp()  # noqa: DTZ001  as above
    if same - here > _HALF_DAY_S:
        return same - _DAY_S
    return same + _DAY_S if here - same > _HALF_DAY_S else same


def _nonsense(asked: str) -> UsageError:
    return UsageError(f"{asked!r} is no time such as {EXAMPLES}")
