"""Distributions that an import would lose in silence: tables that no format knows, and tables with a damaged row. Pure.

Knows what buckets look like, not which tool printed them: lines of numbers whose first one rises or falls from line to
line, bars, the heads that tools print above them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from latmon.imports import times
from latmon.imports.found import Found, Remark, Table, Where

_LONGEST = 300
"""Characters of a line that is looked at."""
_NUMBER = re.compile(
    r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:\s?(?:[KMGTPE]i?B?|[num\u00b5\u03bc]?s(?:ecs?)?|%|th))?(?![\w.]*\w)"
)
_BETWEEN = re.compile(
    r"(?:[^A-Za-z]|\bto\b|\binf\b|\babs\b|\bor more\b|\bmore\b|\bless\b|\bthan\b|\boverflow\b)*", re.IGNORECASE
)
_BAR = re.compile(r"\d[^|]{0,60}\|[ ]*[@*#\u2580-\u259f]+|\d[^@]{0,60}@{2,}")
_BUCKET = re.compile(r"\s*[\[(]-?\d[\w.]*[KMGTPE]?\s*[,\])]")
_HEAD = re.compile(r"-+ Distribution -+|:\s*count\s+distribution\b|^\s*\"?Histogram:", re.IGNORECASE)
_JSON = re.compile(r'"type":\s*"l?hist"')
_ROWS, _ROWS_PLAIN = 3, 5
"""Lines in a row: of a range or with units, of plain columns of numbers."""
_COLUMNS = 3
"""A table with more plain numbers in a line is some other tool's."""
_BELOW_HEAD = 12
_TORN = 3
"""Lines behind a table in which the rest of it would begin."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A line that may be a bucket."""

    line: int
    edges: tuple[float, ...]
    """Its first two numbers: which of them is the bucket's depends on the tool."""
    is_range: bool
    """It has a unit, a range or a bar: no mere columns of numbers."""


def blocks(lines: Sequence[str], left: Iterable[int]) -> list[tuple[int, int]]:
    """First and last line, from 1, of all that looks like a distribution among the lines that no format took."""
    found: list[tuple[int, int]] = []
    rows: list[_Row] = []
    head, before = 0, 0
    for at in left:
        text = lines[at - 1]
        if any(lines[n - 1].strip() for n in range(max(before + 1, at - _BELOW_HEAD), at)):
            found += _block(rows, head)  # lines of something else are between
            rows, head = [], 0
        before = at
        if _HEAD.search(text[:_LONGEST]) or _JSON.search(text[:_LONGEST]):
            found += _block(rows, head)
            rows, head = [], at
        elif (row := _row(at, text)) is not None:
            rows.append(row)
        else:
            found += _block(rows, head if rows or at - head > _BELOW_HEAD else 0)
            rows, head = [], head if not rows and at - head <= _BELOW_HEAD else 0
    return [*found, *_block(rows, head)]


def torn(lines: Sequence[str], found: Iterable[Found], left: Sequence[int]) -> tuple[list[Found], list[int]]:
    """Replace tables that a damaged row cuts off by a remark; what is behind it is no longer left."""
    unknown, kept, gone = set(left), list[Found](), set[int]()
    for one in found:
        rest = _rest(lines, one.where.last, unknown) if isinstance(one, Table) else []
        if not isinstance(one, Table) or not rest:
            kept.append(one)
            continue
        gone.update(rest)
        where = Where(one.where.first, rest[-1])
        text = f"the table {one.title}".rstrip() + f" is damaged in line {rest[0]}: all of it is left out"
        kept.append(Remark(where, text, 1, is_incomplete=True))
    return kept, [at for at in left if at not in gone]


def _rest(lines: Sequence[str], last: int, unknown: set[int]) -> list[int]:
    """The lines of a table behind its last row that was understood; empty where it ended there."""
    behind = []
    for at in range(last + 1, len(lines) + 1):
        if at not in unknown or not lines[at - 1].strip():
            break
        behind.append(at)
    rows = [at for at in behind if _is_row(lines[at - 1])]
    if not rows or rows[0] > last + _TORN:
        return []
    end = rows[0]
    while end + 1 in behind and _is_row(lines[end]):
        end += 1
    return [at for at in behind if at <= end]


def _block(rows: list[_Row], head: int) -> Iterator[tuple[int, int]]:
    """The block that these rows are; none where they are too few or no buckets."""
    if head:
        yield head, rows[-1].line if rows else head
    elif rows and _are_buckets(rows):
        yield rows[0].line, rows[-1].line


def _are_buckets(rows: list[_Row]) -> bool:
    least = _ROWS if all(row.is_range for row in rows) else _ROWS_PLAIN
    if len(rows) < least:
        return False
    columns = zip(*(row.edges for row in rows), strict=True)
    return any(all(a < b for a, b in pairwise(column)) or all(a > b for a, b in pairwise(column)) for column in columns)


def _row(at: int, text: str) -> _Row | None:
    """None for a line that is no bucket."""
    has_bar = _BAR.search(text[:_LONGEST]) is not None
    shown = text[:_LONGEST].partition("|")[0] if has_bar else text[:_LONGEST]
    if len(text) > _LONGEST or not any(map(str.isdigit, shown)) or times.begins(text) is not None:
        return None
    numbers = _NUMBER.findall(shown)
    if len(numbers) < 2 - has_bar or _BETWEEN.fullmatch(_NUMBER.sub(" ", shown)) is None:
        return None
    is_range = (
        has_bar or any(one[-1].isalpha() or one[-1] == "%" for one in numbers) or not set("[(<>").isdisjoint(shown)
    )
    is_range = is_range or "->" in shown or bool(re.search(r"\d\s*(?:-|\.\.)\s*\d", shown))
    if len(numbers) > _COLUMNS and not is_range:
        return None
    values = [_value(one) for one in numbers[:2]]
    return _Row(at, (values[0], values[-1]), is_range)


def _is_row(text: str) -> bool:
    """One line by itself, as it is behind a table, damaged or not."""
    shown = text[:_LONGEST]
    return bool(_BAR.search(shown) or _BUCKET.match(shown)) or _row(0, text) is not None


_UNITS = {"n": 1e-9, "u": 1e-6, "\u00b5": 1e-6, "\u03bc": 1e-6, "m": 1e-3, "s": 1.0}
_POWERS = {unit: 1024.0**n for n, unit in enumerate("KMGTPE", 1)}


def _value(number: str) -> float:
    """In seconds, or as it is."""
    digits = re.match(r"-?[\d,]+(?:\.\d+)?", number)
    value = float(digits[0].replace(",", "")) if digits else 0.0
    unit = number[len(digits[0]) :].strip()[:1] if digits else ""
    return value * _UNITS.get(unit, _POWERS.get(unit, 1.0))
