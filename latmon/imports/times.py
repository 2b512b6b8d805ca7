"""Times as tools print them, as seconds since 1970: DTrace's %Y, date(1), ISO 8601, sysstat's, `date +%s`. Pure.

A time without a zone is taken as UTC: where it was printed is not in it, and differences are what counts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS = {name: n for n, name in enumerate(_NAMES, 1)}
_CLOCK = r"(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?"
_D = re.compile(rf"\s*(\d{{4}})\s+([A-Z][a-z]{{2}})\s+(\d{{1,2}})\s+{_CLOCK}")
_DATE = re.compile(
    rf"\s*[A-Z][a-z]{{2}},?\s+([A-Z][a-z]{{2}})\s+(\d{{1,2}})\s+{_CLOCK}(?:\s+[A-Z]{{2,5}})?\s+(\d{{4}})"
)
_ISO = re.compile(rf"\s*(\d{{4}})-(\d{{2}})-(\d{{2}})[T ]{_CLOCK}(Z|[+-]\d{{2}}:?\d{{2}})?")
_US = re.compile(rf"\s*(\d{{2}})/(\d{{2}})/(\d{{2,4}})\s+{_CLOCK}(?:\s+([AP]M))?")
_EPOCH = re.compile(r"\s*(\d{9,10})(?:\.(\d{1,9}))?")
_TIME = re.compile(rf"\s*{_CLOCK}")
_CENTURY = 100
_NOON = 12


def moment(text: str) -> float | None:
    """The time that the whole line is; None where it is none."""
    found = begins(text)
    return found[0] if found and not text[found[1] :].strip() else None


def begins(text: str) -> tuple[float, int] | None:
    """The time that a line begins with, and where it ends."""
    for pattern, read in _READERS:
        match = pattern.match(text)
        wall = read(match) if match else None
        if match and wall is not None:
            return wall, match.end()
    return None


def of_day(text: str) -> float | None:
    """Seconds since midnight of a line that is a time alone, as bpftrace's time() prints it."""
    match = _TIME.fullmatch(text.rstrip())
    return None if match is None else _seconds(match.groups())


def _seconds(clock: tuple[str | None, ...]) -> float:
    hour, minute, second, part = (one or "0" for one in clock)
    return int(hour) * 3600 + int(minute) * 60 + int(second) + float(f"0.{part}")


def _wall(
    year: int, month: int | None, day: int, clock: tuple[str | None, ...], zone: str | None = None
) -> float | None:
    try:
        date = datetime(year, month or 0, day, tzinfo=UTC)
    except ValueError:
        return None
    wall = date.timestamp() + _seconds(clock)
    if zone and zone != "Z":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        wall -= away if zone[0] == "+" else -away
    return wall if wall >= 0 else None


def _of_d(m: re.Match[str]) -> float | None:
    return _wall(int(m[1]), _MONTHS.get(m[2]), int(m[3]), m.groups()[3:7])


def _of_date(m: re.Match[str]) -> float | None:
    return _wall(int(m[7]), _MONTHS.get(m[1]), int(m[2]), m.groups()[2:6])


def _of_iso(m: re.Match[str]) -> float | None:
    return _wall(int(m[1]), int(m[2]), int(m[3]), m.groups()[3:7], m[8])


def _of_us(m: re.Match[str]) -> float | None:
    year = int(m[3]) + (2000 if int(m[3]) < _CENTURY else 0)
    wall = _wall(year, int(m[1]), int(m[2]), m.groups()[3:7])
    if wall is None or not m[8]:
        return wall
    hour = int(m[4])
    return wall + 3600 * (
        (_NOON if m[8] == "PM" and hour < _NOON else 0) - (_NOON if m[8] == "AM" and hour == _NOON else 0)
    )


def _of_epoch(m: re.Match[str]) -> float | None:
    return int(m[1]) + float(f"0.{m[2] or 0}")


_READERS = ((_D, _of_d), (_DATE, _of_date), (_ISO, _of_iso), (_US, _of_us), (_EPOCH, _of_epoch))
