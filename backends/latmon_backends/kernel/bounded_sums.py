"""Sums of a declared table of counts that a reader of the kernel keeps from the beginning of a capture on.

A capture may last for months, and processes and cgroups come and go. So a look adds its largest rows only, and of the
sums those that have not grown for longest are dropped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from latmon.model.table import Table, Tables, filled

_MOST_ROWS, _MOST_SUMS = 16, 256

Row = TypeVar("Row")
V = TypeVar("V")


class BoundedSums(Generic[Row, V]):
    """Sums of rows; `rows` is another mapping after each addition, so that a sample can keep it."""

    def __init__(
        self,
        table: Table[Row, V],
        size: Callable[[V], Any],
        *,
        most_rows: int = _MOST_ROWS,
        most_sums: int = _MOST_SUMS,
    ) -> None:
        """`size`: the sort key of a value; of each addition the greatest `most_rows` are kept, in all `most_sums`."""
        self.table, self._size = table, size
        self._most_rows, self._most_sums = most_rows, most_sums
        self.rows: Mapping[Row, V] = {}

    def add(self, gains: Mapping[Row, V]) -> None:
        """Add what two looks differ by."""
        if not gains:
            return
        sums = dict(self.rows)
        for row in heapq.nlargest(self._most_rows, gains, key=lambda row: self._size(gains[row])):
            before = sums.pop(row, None)  # and is the newest then
            sums[row] = gains[row] if before is None else self.table.value.add(before, gains[row])
        while len(sums) > self._most_sums:
            del sums[next(iter(sums))]
        self.rows = sums


def tables_between(before: Tables, after: Tables) -> Tables:
    """Return the tables that grew between two samples of the sums."""
    gains = {table: rows_between(table, before.get(table, {}), rows) for table, rows in after.items()}
    return filled(gains)


def rows_between(table: Table[Row, V], before: Mapping[Row, V], after: Mapping[Row, V]) -> dict[Row, V]:
    """Return the rows that grew between two samples of the sums, whose cells are counts.

    A row that was dropped and has come back since has less than before: it is left out.
    """
    gains: dict[Row, V] = {}
    if before is after:
        return gains
    value = table.value
    for row, now in after.items():
        was = before.get(row)
        if was is now or was == now:
            continue
        if was is None:
            gains[row] = now
            continue
        counts = [new - old for new, old in zip(value.split(now), value.split(was), strict=True)]
        if min(counts) >= 0 and any(counts):
            gains[row] = value.make(*counts)
    return gains
