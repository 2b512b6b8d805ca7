"""Tables of a report: each column is defined once, and rendered as text here and as HTML by html_elements.

`~` marks a value from a bucket of half an octave or more, `≥` one from a row without an upper bound.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from latmon.report.model.latency import Quantiles
from latmon.support.text import WIDTH, wrapped
from latmon.support.units import UNKNOWN, bound, duration, part, rough, whole
from latmon.views.units import count

ROUGH = 2
"""Buckets per octave up to which a value is marked by `~`."""
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


def _quantile(value: NamedQuantile) -> str:
    return top(value.latency) if value.name == "max" else cell(value.latency, value.name)


def most_first(counts: Mapping[str, int], limit: int) -> list[tuple[str, float]]:
    """Return the most frequent names with their shares, 0..1."""
    total = sum(counts.values()) or 1
    return [(name, n / total) for name, n in sorted(counts.items(), key=lambda item: -item[1])[:limit]]


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
    """Return the table's lines with its note below it; nothing without rows."""
    if not table.rows:
        return [table.none] if table.none else []
    shown = [column for column in table.columns if column.width]
    lines = [heads(shown)]
    for row in table.rows[:MAX_ROWS]:
        text = line(shown, row)
        lines += textwrap.wrap(text, WIDTH, subsequent_indent=_INDENT) if len(text) > WIDTH else [text]
    left = len(table.rows) - MAX_ROWS
    lines += [f"  and {left:,} more (--json has them)"] if left > 0 else []
    return [*lines, *wrapped(table.more), *wrapped(table.note)]


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
