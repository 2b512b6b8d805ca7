"""Rows of a distribution as DTrace prints them, and the bounds of their buckets. Pure.

Knows neither the lines around a table nor its use. Keys are as printed, not yet clean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from operator import lt
from typing import NamedTuple

MAX_ROWS = 1 << 17
"""Rows of one table; lquantize() counts its levels in 16 bits."""

INTEGER = re.compile(r"-?[0-9]{1,20}")
HEADER = re.compile(r"[ \t]*+value[ \t]++-++ Distribution -++[ \t]++count[ \t]*+")
# Possessive: what a hostile line costs is linear. Bars are `@`, or U+2581 to U+258F with `-x encoding=utf8`; negative
# counts have theirs before the `|`. A bar is rounded: only the number after it counts.
_ROW = re.compile(
    r"[ \t]*+(<=? |>= |abs\(\) < )?+(-?[0-9]{1,20})[ \t][ \t@\u2581-\u258f]*+\|"
    r"[ \t@\u2581-\u258f]*+(?<=[ \t])(-?[0-9]{1,20})[ \t]*+"
)
_BARE = re.compile(r"[ \t]*+(<=? |>= |abs\(\) < )?+(-?[0-9]{1,20})[ \t]++(-?[0-9]{1,20})[ \t]*+")
_FARTHEST = 1 << 62
"""The last bucket of quantize(), and its mirror, have all values of 64 bits."""


class Row(NamedTuple):
    """One row of a distribution: low <= value < high; None where it is open or no label names the edge."""

    low: int | None
    high: int | None
    count: int  # type: ignore[assignment] # a tuple's count() is of no use here


@dataclass(frozen=True, slots=True)
class Scalar:
    """One key of a count, sum, minimum or maximum."""

    name: str
    keys: tuple[str, ...]
    value: int
    line: int = field(default=0, compare=False)
    """Line number in the whole output, from 1."""


@dataclass(slots=True)
class PrintedRow:
    """Rows as printed: labels, counts, and the sign before a label by its place (`< `, `<= `, `>= `, `abs() < `)."""

    labels: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    signs: dict[int, str] = field(default_factory=dict)

    def take(self, text: str) -> bool:
        """Add `text` if it is a row; return whether it is."""
        return self._take(_ROW, text)

    def take_bare(self, text: str) -> bool:
        """Add `text` if it is a row without its bar, as in a document that keeps only words; return whether it is."""
        return self._take(_BARE, text)

    def _take(self, row: re.Pattern[str], text: str) -> bool:
        match = row.fullmatch(text) if len(self.counts) < MAX_ROWS else None
        if match is None:
            return False
        sign, label, count = match.groups()
        if sign:
            self.signs[len(self.counts)] = sign
        self.labels.append(int(label))
        self.counts.append(int(count))
        return True


def bounded(printed: PrintedRow) -> tuple[Row, ...] | None:
    """Return the rows with their edges, which are their neighbours' labels; None for labels that don't go together.

    A label is where its bucket begins, seen from 0: below 0 quantize and Oracle's llquantize mirror their buckets
    (`-4` is -7 to -4), lquantize doesn't.
    """
    labels = printed.labels
    if labels and labels[0] >= 0 and not printed.signs and all(map(lt, labels, labels[1:])):
        edges = zip(labels, [*labels[1:], _last_edge(printed)], printed.counts, strict=True)
        return tuple(map(tuple.__new__, repeat(Row), edges))  # in C throughout: twice as fast as calling Row
    kind = kind_of(printed)
    rows: list[Row] = []
    for at in range(len(labels)):
        rows.append(_row(printed, at, rows[-1].high if rows else None, kind))
    fits = all(row.high is not None and row.high == other.low for row, other in pairwise(rows))
    return tuple(rows) if fits and all(_is_a_range(row) for row in rows) else None


def _is_a_range(row: Row) -> bool:
    return row.low is None or row.high is None or row.low < row.high


def _row(printed: PrintedRow, at: int, before: int | None, kind: str) -> Row:
    label, count = printed.labels[at], printed.counts[at]
    match printed.signs.get(at, ""):
        case ">= ":
            edges: tuple[int | None, int | None] = (label, None)
        case "< ":
            edges = None, label
        case "<= ":
            edges = None, label + 1
        case "abs() < ":
            edges = 1 - label, label
        case _ if label < 0 and kind != "lquantize":
            edges = _mirrored_edge(label, kind) if before is None else before, label + 1
        case _:
            edges = label, printed.labels[at + 1] if at + 1 < len(printed.labels) else _last_edge(printed)
    return Row(*edges, count)


def _mirrored_edge(label: int, kind: str) -> int | None:
    return 2 * label + (label != -_FARTHEST) if kind == "quantize" else None


def _last_edge(printed: PrintedRow) -> int | None:
    last = printed.labels[-1]
    begins = len(printed.labels) > 1 and last == _next_power(printed.labels[-2])
    return _next_power(last) if begins and kind_of(printed) == "quantize" else None


def kind_of(printed: PrintedRow) -> str:
    """Return `quantize`, `lquantize` or `llquantize` by the labels; even steps are taken for `lquantize`."""
    signs = set(printed.signs.values())
    if signs & {"abs() < ", "<= "}:
        return "llquantize"
    labels = printed.labels[printed.signs.get(0) == "< " :]
    if len(labels) < 2:  # noqa: PLR2004 - one label has no step
        return ""
    if not signs and _is_power(labels[0]) and all(_next_power(label) == other for label, other in pairwise(labels)):
        return "quantize"
    return "lquantize" if len({other - label for label, other in pairwise(labels)}) == 1 else "llquantize"


def _is_power(label: int) -> bool:
    return abs(label) & (abs(label) - 1) == 0


def _next_power(label: int) -> int:
    """Return the label after this one in a quantize()."""
    if label > 0:
        return 2 * label
    return 1 if label == 0 else -(-label >> 1)
