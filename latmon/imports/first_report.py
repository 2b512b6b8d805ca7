"""Whether iostat's first report is an average since the boot, which is left out, or an interval (`iostat -y`). Pure.

iostat prints no sign of it. The numbers show it: in an interval each rate is a whole number of I/Os divided by the
interval (401 I/Os in 1.01 s are 397.03 per second), an average over the uptime is not; and without -x a report prints
both kB and kB/s, whose quotient is its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from latmon.imports.found import Asked

Rows = Mapping[str, Mapping[str, float]]
"""Device -> column -> value."""
_RATES = ("r/s", "w/s", "d/s", "f/s", "tps")
_TOTALS = tuple(
    (f"{unit}_{way}", f"{unit}_{way}/s") for unit in ("kB", "MB", "Blk") for way in ("read", "wrtn", "dscd")
)
_MOST_RATES = 64
_JITTER = 0.03
"""An interval is so much shorter or longer than what was asked for."""
_CHANCE = 0.05
"""Below it rates that fit an interval by chance are not believed to."""
_LONGER = 2
"""Times the interval: a report of this length is none of its intervals."""


def kept(reports: Sequence[tuple[float | None, Rows]], solaris: bool, is_y: bool, asked: Asked) -> tuple[bool, str]:
    """Whether the first report of a run is imported, and why, for a person. `reports`: when each was printed."""
    if asked.first_report or is_y:
        keep = asked.first_report != "drop"
        by = "--first-report" if asked.first_report else "the command line in the text (-y)"
        return keep, f"the first report is {'taken for an interval' if keep else 'left out'}, as {by} says"
    if len(reports) == 1:
        unless = "" if solaris else " unless iostat ran with -y"
        return True, f"a single report is an average since the boot{unless}; its rates are taken for the interval"
    if solaris:
        return False, "the first report is of the time since the boot and left out"
    since_boot = _is_since_boot(reports, asked)
    if since_boot is None:
        return False, (
            "its numbers don't show whether the first report is of the time since the boot; it is left out "
            "(--first-report keep imports it: after iostat -y it is an interval)"
        )
    if since_boot:
        return False, "the first report is of the time since the boot, by its numbers, and left out"
    return True, "the first report is of an interval, by its numbers (iostat -y)"


def length_s(rows: Rows) -> float | None:
    """The length of a report that prints amounts and their rates; None of any other or of an idle one."""
    told = [
        (values[total], values[rate])
        for values in rows.values()
        for total, rate in _TOTALS
        if values.get(rate) and values.get(total)
    ]
    total, rate = max(told, default=(0.0, 0.0))
    return total / rate if rate else None


def _is_since_boot(reports: Sequence[tuple[float | None, Rows]], asked: Asked) -> bool | None:
    """None where the numbers fit both."""
    (_, first), *others = reports
    own, lengths = length_s(first), [s for _, rows in others if (s := length_s(rows)) is not None]
    if own is not None and lengths:
        return own > _LONGER * median(lengths)
    interval = _interval_s([wall for wall, _ in reports]) or asked.interval_us / 1e6
    digits = max((_digits(value) for _, rows in reports for one in rows.values() for value in one.values()), default=0)
    if not any(_fits(rates, interval, digits) for _, rows in others if (rates := _rates(rows))):
        return None  # the interval is another one, or the disks are idle
    rates = _rates(first)
    if not _fits(rates, interval, digits):
        return True
    tries = 2 * _JITTER * 100 * interval + 1
    by_chance = min(1.0, 2 * _slack(interval, digits)) ** len(rates) * tries
    return False if by_chance < _CHANCE else None


def _interval_s(walls: Sequence[float | None]) -> float | None:
    passed = [b - a for a, b in pairwise(walls) if a is not None and b is not None and b > a]
    return median(passed) if passed else None


def _rates(rows: Rows) -> list[float]:
    found = (values[name] for values in rows.values() for name in _RATES if values.get(name))
    return [rate for rate, _ in zip(found, range(_MOST_RATES), strict=False)]


def _fits(rates: Iterable[float], interval: float, digits: int) -> bool:
    """Whether some length near the interval, in the hundredths that iostat counts, makes all rates whole numbers."""
    some = list(rates)
    low, high = round((1 - _JITTER) * interval * 100), round((1 + _JITTER) * interval * 100)
    return any(
        all(abs(n - round(n)) <= _slack(cs / 100, digits) for n in (rate * cs / 100 for rate in some))
        for cs in range(max(low, 1), high + 1)
    )


def _slack(interval: float, digits: int) -> float:
    """What a printed rate may be off, in I/Os: half of its last digit, and a tenth for the arithmetic."""
    return 0.55 * interval / 10.0**digits


def _digits(value: float) -> int:
    """Behind the point, as far as they were printed."""
    return len(repr(value).partition(".")[2].rstrip("0")) if value < 1e9 else 0  # noqa: PLR2004 - no exponent below
