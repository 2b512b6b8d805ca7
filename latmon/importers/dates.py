"""Numeric dates of a text, month first as formats read them: which number is the day depends on the locale.

The order of dates with slashes is decided once for a text: by a number above 12, else by what else the text shows of
its locale. Dates with points or dashes are of locales that print the day first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from latmon.importers import values
from latmon.importers.values import Remark, TextSpan

MONTHS = 12
FEW_DIGITS = 2
"""Digits of a year without its century."""
CENTURY = 2000
DAY_S = 86_400
HOUR_S = 3600
SEVERAL_DAYS = 3
BEHIND = 40
"""Lines behind the last date in which a number may show the locale."""
STAMP = 80
"""Characters that a time before a line may have."""
DATE = r"(?P<first>\d{1,2})(?P<sign>[/.-])(?P<second>\d{1,2})(?P=sign)(?P<year>\d{4}|\d{2})(?!\d)"
QUICK = re.compile(r"\d([/.-])\d{1,2}\1\d{2}")
"""Pattern that each date matches, as a cheap check."""
DATED = re.compile(
    rf"(?P<header>Linux \S{{1,80}} \([^)]{{1,64}}\)\s+){DATE}"
    rf'|(?P<json>.{{0,100}}?"(?:date|timestamp)": ?"){DATE.replace("P<", "P<j").replace("P=", "P=j")}'
    rf"|(?P<begin>[\[(]?){DATE.replace('P<', 'P<l').replace('P=', 'P=l')}"
    r"(?=[T ,]+(?P<clock>\d{1,2}:\d{2}:\d{2}(?: [AaPp][Mm]\b)?))"
)
"""A date where sysstat and shells print one: in a header of sysstat, in its JSON, and at the begin of a line."""
COMMA = re.compile(r"(?<=\s)\d{1,12},\d{1,3}(?=\s|\Z)")
POINT = re.compile(r"(?<=\s)\d{1,12}\.\d{1,3}(?=\s|\Z)")


class NumericDate(NamedTuple):
    """Date in digits, and where it is."""

    line: int
    span: tuple[int, int]
    first: int
    second: int
    year: int
    sign: str
    has_century: bool
    clock: str
    """The time behind it; empty: there is none."""

    def time(self, *, day_first: bool) -> float | None:
        """Return its midnight by one of the two orders; None if there is no such day."""
        day, month = (self.first, self.second) if day_first else (self.second, self.first)
        try:
            return datetime(self.year, month, day, tzinfo=UTC).timestamp()
        except ValueError:
            return None

    def named(self, *, day_first: bool) -> str:
        """Return it as in ISO 8601."""
        day, month = (self.first, self.second) if day_first else (self.second, self.first)
        return f"{self.year:04}-{month:02}-{day:02}"


def with_months_first(
    lines: Sequence[str], start: float | None, line_begin: Callable[[str], int]
) -> tuple[Sequence[str], list[Remark]]:
    """Return the lines with numeric dates as `07/04/2022`, month first, and remarks on their order.

    `line_begin` returns where a tool's own line begins, behind a time that ts and the like put before it.
    """
    dates = list(numeric_dates(lines, line_begin))
    slashed = [date for date in dates if date.sign == "/"]
    day_first, reason = is_day_first(slashed, lines, start)
    remarks = []
    if slashed and day_first and reason:
        where = TextSpan(slashed[0].line, slashed[0].line)
        remarks.append(Remark(where, f"dates are day/month/year, by {reason}"))
    elif slashed and not reason and (date := ambiguous(slashed)) is not None:
        month, day = date.named(day_first=False), date.named(day_first=True)
        text = f"its date may be {month} or {day}: {month} is taken, --start {day} takes the other one"
        remarks.append(Remark(TextSpan(date.line, date.line), text))
    # other signs are of locales that print the day first
    changed = [date for date in dates if date.sign != "/" or takes_day_first(date, day_first=day_first)]
    if not changed:
        return lines, remarks
    texts = list(lines)
    for date in changed:
        begin, end = date.span
        line = texts[date.line - 1]
        text = f"{date.second:02}/{date.first:02}/{date.year:04}"
        texts[date.line - 1] = f"{line[:begin]}{text}{line[end:]}"
    return texts, remarks


def takes_day_first(date: NumericDate, *, day_first: bool) -> bool:
    """Return whether a date is read with its day first: by its own numbers, else as the others of the text."""
    if date.first > MONTHS:
        return date.second <= MONTHS
    return day_first and date.second <= MONTHS


def numeric_dates(lines: Sequence[str], line_begin: Callable[[str], int]) -> Iterator[NumericDate]:
    """Yield the dates of a text."""
    for number, line in enumerate(lines, 1):
        if QUICK.search(line, 0, values.LONGEST_LINE) is None:
            continue
        match = DATED.match(line, 0, values.LONGEST_LINE) or DATED.match(line, line_begin(line), values.LONGEST_LINE)
        if match is None:
            continue
        prefix = "" if match["header"] is not None else "j" if match["json"] is not None else "l"
        year = match[f"{prefix}year"]
        has_century = len(year) > FEW_DIGITS
        yield NumericDate(
            line=number,
            span=(match.start(f"{prefix}first"), match.end(f"{prefix}year")),
            first=int(match[f"{prefix}first"]),
            second=int(match[f"{prefix}second"]),
            year=int(year) + (0 if has_century else CENTURY),
            sign=match[f"{prefix}sign"],
            has_century=has_century,
            clock=match["clock"] or "",
        )


def is_day_first(dates: Sequence[NumericDate], lines: Sequence[str], start: float | None) -> tuple[bool, str]:
    """Return whether the day comes first in dates with slashes, and why; no reason if the text doesn't show it."""
    by_day = any(date.first > MONTHS for date in dates)
    by_month = any(date.second > MONTHS for date in dates)
    if by_day != by_month:
        return by_day, "a number above 12"
    if by_day or not dates:
        return False, ""
    text = "\n".join(lines[: dates[-1].line + BEHIND])
    if COMMA.search(text) is not None and POINT.search(text) is None:
        return True, "the decimal commas"
    if any(date.has_century and date.clock.upper().endswith("M") for date in dates):
        return False, "AM and PM"  # of the locales that print both, en_US alone
    named_days = {wall - wall % DAY_S for line in lines if (wall := named_date(line)) is not None}
    named_days |= {wall - wall % DAY_S for date in dates if (wall := date_before(lines[date.line - 1])) is not None}
    day_first, reason = by_days(dates, named_days)
    return (day_first, reason) if reason else by_start(dates, start)


def by_days(dates: Sequence[NumericDate], named_days: Collection[float]) -> tuple[bool, str]:
    """Return the order by the days that follow each other, or that other dates of the text name; no reason: neither."""
    named = [first for first in (True, False) if any(date.time(day_first=first) in named_days for date in dates)]
    if len(named) == 1:
        return named[0], "the other dates of the text"
    rising = [first for first in (True, False) if goes_on(dates, day_first=first)]
    if len(rising) == 1:
        return rising[0], "the number that rises from day to day"
    return False, ""


def by_start(dates: Sequence[NumericDate], start: float | None) -> tuple[bool, str]:
    """Return the order by which the first date is nearer to --start; no reason without it."""
    by_day, by_month = dates[0].time(day_first=True), dates[0].time(day_first=False)
    if start is None or by_day is None or by_month is None:
        return False, ""
    return abs(by_day - start) < abs(by_month - start), "--start"


def named_date(line: str) -> float | None:
    """Return the time of a line that is a time whose month has a name, or is ISO 8601."""
    begin = line[:FEW_DIGITS].isdigit() and "/" in line[:5]
    return None if begin or len(line) > values.LONGEST_LINE else values.moment(line)


def date_before(line: str) -> float | None:
    """Return the time before a tool's line, if it has a date in ISO 8601 or with a month's name, and a year."""
    is_numeric = "/" in line[: FEW_DIGITS + 1]
    time = None if is_numeric else values.begins(line[:STAMP].lstrip("[("))
    return None if time is None else time[0]


def goes_on(dates: Sequence[NumericDate], *, day_first: bool) -> bool:
    """Return whether days follow each other by one of the two orders: three of them, or two with times at midnight."""
    for date, later in pairwise(dates):
        is_next = date[2:5] != later[2:5] and date.clock and later.clock
        begin, end = date.time(day_first=day_first), later.time(day_first=day_first)
        if is_next and begin is not None and end is not None:
            passed = end - begin + (values.of_day(later.clock) or 0.0) - (values.of_day(date.clock) or 0.0)
            if 0 < passed <= HOUR_S:
                return True
    days = list(dict.fromkeys(date.time(day_first=day_first) for date in dates))
    read_days = [day for day in days if day is not None]
    if len(read_days) < len(days) or len(read_days) < SEVERAL_DAYS:
        return False
    return all(later - day == DAY_S for day, later in pairwise(read_days))


def ambiguous(dates: Sequence[NumericDate]) -> NumericDate | None:
    """Return the first date that is another day in the other order."""
    for date in dates:
        if date.first != date.second and max(date.first, date.second) <= MONTHS:
            return date
    return None


def sysstat_day(lines: Sequence[str]) -> float | None:
    """Return midnight of the date in the first header of sysstat."""
    for line in lines:
        match = DATED.search(line, 0, values.LONGEST_LINE) if "Linux " in line[: values.LONGEST_LINE] else None
        if match is not None and match["header"] is not None:
            return values.moment(f"{match['first']}/{match['second']}/{match['year']} 00:00:00")
    return None
