"""Formatting of a report: quantiles, shares, lines of 80 columns, sentences on I/Os in flight, column tables.

`~` marks a value from a bucket of half an octave or more, `≥` one from a row without an upper bound.

Each column of a table is defined once, and rendered as text here and as HTML by html_elements.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.report.model.latency import Quantiles
from latmon.support.units import NO_BREAK, UNKNOWN, bound, duration, part, rate, rough, spelled, unbroken, whole
from latmon.views.units import count

ROUGH = 2
"""Buckets per octave up to which a value is marked by `~`."""
WIDTH = 79
_WIDE = "WF"
"""East Asian Width (UAX #11): wide and fullwidth take two cells."""
_SECOND = "\0"
"""Placeholder for the second cell of a wide character; clean text has none."""
LONG_US = 1_000_000
"""Least age that is reported."""
MOST = 4
"""Devices by name; the others are counted."""
T = TypeVar("T")


def order(known: tuple[str, ...]) -> Callable[[str], tuple[int, str]]:
    """Return a sort key: known names in their own order, then the others."""
    return lambda name: (known.index(name) if name in known else len(known), name)


def ordered(parts: Mapping[str, T], known: tuple[str, ...]) -> list[tuple[str, T]]:
    """Return the items of `parts`, known names first and in their own order."""
    key = order(known)
    return sorted(parts.items(), key=lambda one: key(one[0]))


def rounded(value: float | None, digits: int) -> float | None:
    """Return the rounded value; None stays None."""
    return None if value is None else round(value, digits)


def per_second(many: float, seconds: float | None) -> str:
    """Return a rate; UNKNOWN where the time was not measured."""
    return rate(many / seconds) if seconds else UNKNOWN


def cell(latency: Quantiles, name: str) -> str:
    """Return a quantile in at most six cells, or seven with `≥`."""
    value = latency.quantile(name)
    if name in latency.or_more:
        return f"≥{duration(value, 2, down=True)}"
    if value is not None and value != latency.max and latency.parts <= ROUGH:
        return rough(value, latency.max)
    return bound(value, latency.max)


def top(latency: Quantiles) -> str:
    """Return the maximum, or its bound."""
    if "max" in latency.or_more:
        return f"≥{duration(latency.open_from, 2, down=True)}"
    if latency.max_bound is not None:
        return f"≤{duration(latency.max_bound, 2, up=True)}"
    return duration(latency.max)


def wrapped(text: str, indent: str = "") -> list[str]:
    """Break the text into lines, not between a number and its unit; those after the first are indented by two more."""
    if not text.isascii():
        text = "".join(one + _SECOND * (unicodedata.east_asian_width(one) in _WIDE) for one in text)
    lines = textwrap.wrap(unbroken(text), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ")
    return [line.replace(NO_BREAK, " ").replace(_SECOND, "") for line in lines]


class DeviceInFlight(NamedTuple):
    """I/Os that one device has had in flight for LONG_US and longer."""

    device: str
    ios: int
    oldest_us: int
    at_least: bool
    """Whether the oldest I/O's age is a least age."""


def in_flight_by_device(rows: Iterable[tuple[str, int, int, bool]]) -> list[DeviceInFlight]:
    """Merge rows (device, I/Os, age in us, whether it is a least age); the device with the oldest I/O is first."""
    found: dict[str, DeviceInFlight] = {}
    for device, ios, age_us, at_least in rows:
        if age_us >= LONG_US:
            had = found.get(device, DeviceInFlight(device, 0, -1, at_least))
            oldest = had if had.oldest_us >= age_us else DeviceInFlight(device, 0, age_us, at_least)
            found[device] = oldest._replace(ios=had.ios + ios)
    return sorted(found.values(), key=lambda one: (-one.oldest_us, one.device))


def not_completed(each: Sequence[DeviceInFlight]) -> str:
    """Return `loop3: 2 I/Os in flight for 40 s, not completed`; empty without devices."""
    return _listed(each, "in flight for", "the oldest in flight for", ", not completed")


def at_the_end(each: Sequence[DeviceInFlight]) -> str:
    """Return `loop3: 2 I/Os, the oldest for 40 s`; empty without devices."""
    return _listed(each, "for", "the oldest for", "")


def _listed(each: Sequence[DeviceInFlight], one_for: str, many_for: str, then: str) -> str:
    sentences = [
        f"{one.device}: {_ios(one.ios)}{one_for if one.ios == 1 else many_for} {_age(one)}" for one in each[:MOST]
    ]
    more = [f"{len(each) - MOST:,} more devices"] if len(each) > MOST else []
    return "; ".join([*sentences, *more]) + then if sentences else ""


def _ios(n: int) -> str:
    return "1 I/O " if n == 1 else f"{n:,} I/Os, "


def _age(one: DeviceInFlight) -> str:
    return ("at least " if one.at_least else "") + spelled(one.oldest_us)


MAX_ROWS = 12
"""Rows of a table in the text report; the JSON report has all."""
REST = -WIDTH
"""Width of a last column that takes the rest of the line, and is wrapped."""
WORDS = ("name", "words", "shares")
"""Formats that are aligned to the left."""
_INDENT = " " * 6
Row = TypeVar("Row")


class Column(NamedTuple, Generic[Row]):
    """Definition of a column: titles, how its value is made of a row, and the value's format."""

    title: str
    format: str
    """A key of FORMATS."""
    value: Callable[[Row], object]
    """A text where a number is expected replaces the rest of the row."""
    width: int = 0
    """Cells in the text report: negative for left-aligned, 0 for a column of the HTML report only."""
    html: str | None = ""
    """Title in the HTML report where it differs; None for a column of the text report only."""


class NamedQuantile(NamedTuple):
    """Value of a column: a quantile of a latency by its name, or `max`."""

    latency: Quantiles
    name: str


class ReportTable(NamedTuple, Generic[Row]):
    """Rows and columns of a table, with its title and notes."""

    title: str
    columns: Sequence[Column[Row]]
    rows: Sequence[Row]
    note: str = ""
    """Explains the titles."""
    more: str = ""
    """Number of rows that the JSON report doesn't have either."""
    first: str = ""
    """Title of the column that heads a row of the HTML report, if it isn't the first one."""
    none: str = ""
    """Line of the text report if there are no rows."""


def quantile(
    latency: Callable[[Row], Quantiles | None], name: str, title: str, width: int = 0, html: str | None = ""
) -> Column[Row]:
    """Return a column with a quantile (or "max") of a latency of the row."""

    def value(row: Row) -> NamedQuantile | None:
        of_row = latency(row)
        return None if of_row is None else NamedQuantile(of_row, name)

    return Column(title, "quantile", value, width, html)


def most_first(counts: Mapping[str, int], limit: int) -> list[tuple[str, float]]:
    """Return the most frequent names with their shares, 0..1."""
    whole = sum(counts.values()) or 1
    return [(name, n / whole) for name, n in sorted(counts.items(), key=lambda item: -item[1])[:limit]]


def _quantile(value: NamedQuantile) -> str:
    return top(value.latency) if value.name == "max" else cell(value.latency, value.name)


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": count,
    "whole": whole,
    "number": str,
    "time": duration,
    "share": part,
    "quantile": _quantile,
    "name": str,
    "words": str,
    "shares": lambda counts: ", ".join(f"{part(share)} {name}" for name, share in most_first(counts, 2)),
}


def text_table(table: ReportTable[Row]) -> list[str]:
    """Return the table's lines with its note below it, and an empty line at the end; nothing without rows."""
    if not table.rows:
        return [table.none, ""] if table.none else []
    shown = [column for column in table.columns if column.width]
    lines = [heads(shown)]
    for row in table.rows[:MAX_ROWS]:
        text = line(shown, row)
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=_INDENT) if len(text) > WIDTH else [text]
    left = len(table.rows) - MAX_ROWS
    lines += [f"  and {left:,} more (--json has them)"] if left > 0 else []
    return [*lines, *wrapped(table.more), *wrapped(table.note), ""]


def heads(columns: Sequence[Column[Row]]) -> str:
    """Return the titles, each in its cells."""
    return "".join(_padded(column.title, column.width) for column in columns)


def line(columns: Sequence[Column[Row]], row: Row) -> str:
    """Return a row's values, each in its cells."""
    text = ""
    for column in columns:
        value = column.value(row)
        if isinstance(value, str) and column.format not in WORDS:
            text += f"  {value}"
            break
        text += _padded(UNKNOWN if value is None else FORMATS[column.format](value), column.width)
    return text.rstrip()


def _padded(text: str, width: int) -> str:
    if width == REST:
        return f"  {text}"
    return f"{text:>{width}}" if width > 0 else f"{text[: -width - 1]:<{-width}}"
