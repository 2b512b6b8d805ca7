"""A time as people type it: 13:04:12, 13:04, 2026-01-05 13:04, -5m, +10s. Pure; local time, as on the screen."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta

from latmon.errors import UsageError
from latmon.quantities import duration_us

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d{1,9})?)?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_DAYS = (timedelta(-1), timedelta(0), timedelta(1))
_LAST_S = 253_402_300_800.0
"""The year 10000: no calendar goes further."""
EXAMPLES = "13:04:12, 13:04, 2026-01-05 13:04, -5m, +10s"


def wall_of(text: str, here: float) -> float:
    """Seconds since 1970; `here`: where the user stands. A clock without a date is the nearest such time."""
    asked = text.strip()
    if asked[:1] in ("-", "+"):
        there = here + (1 if asked[0] == "+" else -1) * _distance_s(asked)
        if not 0 <= there < _LAST_S:
            raise _nonsense(asked)
        return there
    *days, clock = asked.replace("T", " ").split() or [""]
    found = _CLOCK.fullmatch(clock)
    if found is None or len(days) > 1:
        raise _nonsense(asked)
    hour, minute, second = (int(one or 0) for one in found.groups()[:3])
    try:
        at = time(hour, minute, second)
        today = datetime.fromtimestamp(here).date()  # noqa: DTZ006  local time is meant
        several = [_day(asked, days[0])] if days else [today + one for one in _DAYS]
        # an hour that a clock shows twice is either
        walls = [datetime.combine(one, at.replace(fold=fold)).timestamp() for one in several for fold in (0, 1)]
    except (ValueError, OverflowError, OSError):
        raise _nonsense(asked) from None
    return min(walls, key=lambda one: abs(one - here)) + float(found[4] or 0)


def _day(asked: str, told: str) -> date:
    found = _DATE.fullmatch(told)
    if found is None:
        raise _nonsense(asked)
    return date(*map(int, found.groups()))


def _distance_s(asked: str) -> float:
    try:
        return duration_us(asked[1:].strip()) / 1e6
    except ValueError:
        raise _nonsense(asked) from None


def _nonsense(asked: str) -> UsageError:
    return UsageError(f"{asked!r} is no time such as {EXAMPLES}")
