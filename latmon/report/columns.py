"""Column tables of the report: each column is defined once, and rendered as text here and as HTML by html_elements.

A row is a row of the JSON report.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from latmon.report.formatting import WIDTH, cell, top, wrapped
from latmon.support.units import UNKNOWN, duration, part, whole
from latmon.views.units import count, mean

MAX_ROWS = 12
"""Rows of a table in the text report; the JSON report has all."""
REST = -WIDTH
"""Width of a last column that takes the rest of the line, and is wrapped."""
WORDS = ("name", "words", "shares")
"""Formats that are aligned to the left."""
_INDENT = " " * 6
_Row = Mapping[str, Any]


class Column(NamedTuple):
    """Definition of a column: titles, how its value is made of a row, and the value's format."""

    title: str
    format: str
    """A key of FORMATS."""
    value: Callable[[_Row], Any]
    """A text where a number is expected replaces the rest of the row."""
    width: int = 0
    """Cells in the text report: negative for left-aligned, 0 for a column of the HTML report only."""
    html: str | None = ""
    """Title in the HTML report where it differs; None for a column of the text report only."""


class ReportTable(NamedTuple):
    """Rows and columns of a table, with its title and notes."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[_Row]
    note: str = ""
    """Explains the titles."""
    more: str = ""
    """Number of rows that the JSON report doesn't have either."""
    first: str = ""
    """Title of the column that heads a row of the HTML report, if it isn't the first one."""
    none: str = ""
    """Line of the text report if there are no rows."""


def key(name: str) -> Callable[[_Row], Any]:
    """Return a function that takes a column's value from that key of the row."""
    return lambda row: row[name]


def quantile(name: str, at: str, title: str, width: int = 0, html: str | None = "") -> Column:
    """Return a column with a quantile (or "max") of the row's Q called `name`."""
    return Column(title, "quantile", lambda row: (row[name], at), width, html)


def most_first(counts: Mapping[str, int], limit: int) -> list[tuple[str, float]]:
    """Return the most frequent names with their shares, 0..1."""
    every = sum(counts.values()) or 1
    return [(name, n / every) for name, n in sorted(counts.items(), key=lambda one: -one[1])[:limit]]


def _quantile(value: tuple[_Row, str]) -> str:
    q, name = value
    return top(q) if name == "max" else cell(q, name)


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "count": count,
    "whole": whole,
    "number": str,
    "time": duration,
    "mean": mean,
    "share": part,
    "quantile": _quantile,
    "name": str,
    "words": str,
    "shares": lambda counts: ", ".join(f"{part(share)} {name}" for name, share in most_first(counts, 2)),
}


def text_table(table: ReportTable) -> list[str]:
    """Return the table's lines with its note below it, and an empty line at the end; nothing without rows."""
    if not table.rows:
        return [table.none, ""] if table.none else []
    shown = [one for one in table.columns if one.width]
    lines = [heads(shown)]
    for row in table.rows[:MAX_ROWS]:
        said = line(shown, row)
        lines += textwrap.wrap(said, WIDTH, subsequent_indent=_INDENT) if len(said) > WIDTH else [said]
    left = len(table.rows) - MAX_ROWS
    lines += [f"  and {left:,} more (--json has them)"] if left > 0 else []
    return [*lines, *wrapped(table.more), *wrapped(table.note), ""]


def heads(columns: Sequence[Column]) -> str:
    """Return the titles, each in its cells."""
    return "".join(_padded(one.title, one.width) for one in columns)


def line(columns: Sequence[Column], row: _Row) -> str:
    """Return a row's values, each in its cells."""
    said = ""
    for one in columns:
        value = one.value(row)
        if isinstance(value, str) and one.format not in WORDS:
            said += f"  {value}"
            break
        said += _padded(UNKNOWN if value is None else FORMATS[one.format](value), one.width)
    return said.rstrip()


def _padded(text: str, width: int) -> str:
    if width == REST:
        return f"  {text}"
    return f"{text:>{width}}" if width > 0 else f"{text[: -width - 1]:<{-width}}"
