"""Tables that our scale can't hold exactly, as they were printed, for the header; and in words what is lost of them."""

from __future__ import annotations

from latmon.imports import buckets
from latmon.imports.windows import Built
from latmon.model import Series

MAX_KEPT_ROWS = 8_000
"""Of all tables together."""


def keep(built: Built) -> None:
    """Into `built.kept`, and a notice in the window of each."""
    said: set[tuple[Series, str]] = set()  # once of each series: a day of windows has the same to say
    for seq, window in enumerate(built.windows):
        for placed in (*window.tables.values(), *window.aside, *window.at_issue):
            lost = buckets.lost(placed.table, placed.ranges, buckets.bits_of(placed.ranges)) if placed.ranges else ""
            counted = placed not in window.aside
            if not lost and counted and not placed.table.told:
                continue
            if lost and counted and (placed.series, lost) not in said:
                said.add((placed.series, lost))
                window.notices.append(f"line {placed.table.where.first}: {lost}")
            rows = [[buckets.label(row), row.count] for row in placed.table.rows]
            if built.kept_rows + len(rows) > MAX_KEPT_ROWS:
                built.not_kept += 1
                continue
            built.kept_rows += len(rows)
            built.kept.append(
                {
                    "seq": seq,
                    "line": placed.table.where.first,
                    "title": placed.table.title,
                    "kind": placed.table.kind,
                    "series": list(placed.series),
                    "counted": counted,
                    "rows": rows,
                    **({"told": dict(placed.table.told)} if placed.table.told else {}),
                }
            )


def open_ends(built: Built) -> dict[Series, int]:
    """Series with I/Os in a row without an upper end, and the least that it begins at, in microseconds."""
    found: dict[Series, int] = {}
    for window in built.windows:
        for series, placed in window.tables.items():
            for one in placed.ranges:
                if one.is_endless and placed.table.max_us is None:
                    found[series] = min(found.get(series, one.first), one.first)
    return found
