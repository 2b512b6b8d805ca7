"""Importer of SystemTap's print(@hist_log(x)) and print(@hist_linear(x, start, stop, interval)).

A row of hist_log is named by its first value, and ends where the next power of two begins; 0 has a row of its own, and
rows below 0 mirror those above. A row of hist_linear is one interval wide; `<start` has what is below all of them, and
`>stop` what is at or above stop + interval (runtime/stat-common.c, _stp_stat_add). `~` stands for rows without a count.
The lines above a table, up to three, name it and often its unit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

from latmon.decode.dtrace_aggregation import Row
from latmon.importers import values
from latmon.importers.values import Clock, Found, ImportedTable, ImportOptions, Remark, TextSpan, TimeLine
from latmon.model.frame import Series
from latmon.support.text import clean

HEAD = re.compile(r"(?:\^C)?\s*value \|-{20,} count\s*")
ROW = re.compile(r"\s*([<>]?)(-?\d{1,19}) \|[@* ]*?\s*(\d{1,18})\s*")
ELIDED = re.compile(r"\s*~\s*")
LIKE_ROW = re.compile(r"\s*[<>]?\S{0,20} \|")
ABOVE = 3
CLOCK = re.compile(r"gettimeofday_(ns|us|ms|s)\(\)\s*-")
"""A difference of times in a script of the same text."""
MOST = re.compile(r"min/avg/max: \d{1,18}/\d{1,18}/(\d{1,18})|\bmax: ?(\d{1,18}(?:\.\d{1,6})?) ?(ns|us|ms|s)?(?![\w.])")
NUMBERS = re.compile(r"\b(?:avg|count|cnt|min|max)\b\s*[:=/]")
"""A line of numbers about a table, which is no title."""
HEADING = re.compile(r"\S.{0,100}\((?:[num]?s|[mun]?secs?|(?:micro|milli|nano)?seconds|bytes|[KM]?B|Kbytes)\):?\s*")
"""A line with a unit that stands apart above several tables."""
UNIT = re.compile(r"\s*\(?(?:\bin )?\b(?:[mun]?s|[mun]?secs|(?:micro|milli|nano)?seconds)\b\)?:?\Z", re.IGNORECASE)
NO_TIME = re.compile(r"\b(?:sizes?|bytes|lengths?|iterations|sectors|packets|depths?)\b", re.IGNORECASE)


def sniff(head: str) -> bool:
    """Return whether there is the head of such a table."""
    return any("|---" in line and HEAD.fullmatch(line) for line in head.split("\n"))


def read(lines: Sequence[str], options: ImportOptions) -> Iterator[Found]:
    """Yield each histogram as a table; a time above it is its own."""
    clock = Clock(options.start)
    units = {match[1] for line in lines if (match := CLOCK.search(line[: values.LONGEST_LINE])) is not None}
    script_unit = units.pop() if len(units) == 1 else ""
    heading = ""
    behind = 0
    for at, line in enumerate(lines, 1):
        if at <= behind:
            continue
        if "|---" in line and HEAD.fullmatch(line):
            behind, table = _table(lines, at, script_unit, heading)
            yield replace(table, series=_series(table.title, options)) if isinstance(table, ImportedTable) else table
        elif len(line) < values.LONGEST_LINE and (wall := clock.wall(line.strip())) is not None:
            yield TimeLine(TextSpan(at, at, wall))
        elif HEADING.fullmatch(line):
            heading = line.strip()


def _series(title: str, options: ImportOptions) -> Series:
    """Return the series of a title, which is prose: a word may be its op, and none is a stage."""
    words = title.split()
    ops = [word for word in words if values.op_named(word) != values.UNKNOWN_OP]
    device = " ".join(word for word in words if word not in ops) or title
    return options.series(device, values.op_named(ops[0]) if len(ops) == 1 else values.UNKNOWN_OP)


def _table(lines: Sequence[str], head: int, script_unit: str, heading: str) -> tuple[int, ImportedTable | Remark]:
    """Return the last line of the table whose head is in line `head`, and the table.

    `heading`: the latest line with a unit that stands apart.
    """
    printed: list[tuple[str, int, int]] = []
    elided: set[int] = set()
    last, torn = head, 0
    for at in range(head + 1, len(lines) + 1):
        line = lines[at - 1]
        row = ROW.fullmatch(line)
        if row is not None:
            printed.append((row[1], int(row[2]), int(row[3])))
        elif ELIDED.fullmatch(line):
            elided.add(len(printed))
        elif LIKE_ROW.match(line):
            torn = torn or at
        else:
            break
        last = at
    first, title, unit, most = _above(lines, head)
    where = TextSpan(first, last)
    rows = _rows(printed, elided)
    if torn or rows is None:
        text = f"the table {title} is damaged in line {torn or head + 1}: all of it is left out"
        return last, Remark(where, text, 1, is_incomplete=True)
    count = sum(row.count for row in rows)
    unit = unit or values.of_title(heading)
    if not unit and NO_TIME.search(f"{title} {heading}"):
        return last, Remark(where, f"{title}: no latency, left out", count)
    unit_from = f"the lines above the table in line {head}" if unit else ""
    if not unit and script_unit:
        unit, unit_from = script_unit, f"gettimeofday_{script_unit}() in the text"
    filled = [row for row in rows if row.count]
    is_last = most is not None and bool(filled) and (filled[-1].low or 0) <= most < (filled[-1].high or most + 1)
    max_us = ceil(most * values.UNITS[unit] / 1000) if unit and most is not None and is_last else None
    return last, ImportedTable(where, title, "systemtap", rows, unit, unit_from, max_us=max_us)


def _above(lines: Sequence[str], head: int) -> tuple[int, str, str, float | None]:
    """Return the first line of what names a table, its title and unit, and the exact maximum if that is printed."""
    first, title, unit = head, "", ""
    most: float | None = None
    for at in range(head - 1, max(0, head - 1 - ABOVE), -1):
        line = lines[at - 1].strip()
        if not line or ROW.fullmatch(line) or values.moment(line) is not None:
            break
        bounds = MOST.search(line)
        most = float(bounds[1] or bounds[2]) if bounds is not None else most
        unit = unit or values.of_title(line) or (bounds[3] or "" if bounds is not None else "")
        if not title and NUMBERS.search(line) is None:
            first, title = at, clean(UNIT.sub("", line).strip(" :=") or line, 100)
    return first, title or "a table", unit, most


def _rows(printed: Sequence[tuple[str, int, int]], elided: Collection[int]) -> tuple[Row, ...] | None:
    """Return rows with both edges; None where a row is missing, or the names are those of neither kind of histogram.

    `elided`: places of rows that have others left out before them.
    """
    inner = [(low, count) for sign, low, count in printed if not sign]
    lows = [low for low, _ in inner]
    if len(inner) < 2 or any(later <= low for low, later in pairwise(lows)):  # noqa: PLR2004 - a table prints more
        return None
    is_log = all(abs(low) & (abs(low) - 1) == 0 for low in lows) and len(inner) == len(printed)
    if is_log:
        rows = [_log_row(low, count) for low, count in inner]
    else:
        step = min(later - low for low, later in pairwise(lows))
        rows = [Row(low, low + step, count) for low, count in inner]
    below = len(printed) and printed[0][0] == "<"
    for at, (row, following) in enumerate(pairwise(rows), 1):
        if row.high != following.low and at + below not in elided:
            return None
    if is_log:
        return tuple(rows)
    rows = [*(Row(None, low, count) for sign, low, count in printed if sign == "<"), *rows]
    return (*rows, *(Row(low + step, None, count) for sign, low, count in printed if sign == ">"))


def _log_row(low: int, count: int) -> Row:
    if low < 0:
        return Row(2 * low + 1, low + 1, count)
    return Row(low, 2 * low or 1, count)
