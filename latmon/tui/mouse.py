"""The mouse: what is below a cell of the main screen, found in its lines. Pure.

A click does what keys do, too: it selects a row, opens the selected one, presses a key of the last line, lists the
outliers of a cell of the heat map, and goes to a time on the strip.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from latmon.tui.keys import ACTIONS, Action, works
from latmon.views.context import ViewState, selected
from latmon.views.heatmap import LABEL
from latmon.views.heatmap_state import DrawnMap
from latmon.views.lines import FRAME, Line, plain
from latmon.views.panels.interrupts import tables
from latmon.views.selection import Cursor, MapCell, Selection, picked

_MAP = ("overview", "zoom", "cursor")
_WORD = re.compile(r"[^\s▸,:]+")
_ROWS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "outliers": re.compile(r".\d\d:\d\d:\d\d"),
        "findings": re.compile(r".(!!| !| ·) "),
        "interrupts": re.compile(r". *\S"),
        "tables": re.compile(r". *\S"),
        "who": re.compile(r". *\S"),
    },
)
"""Context with rows that aren't devices -> the begin of a row's first line."""
_TILE = " p99 "
"""Words of the title of a small map."""
_LEFT = tuple("│├╭╰┌└")
"""Left ends of the lines of a frame."""
_TALL = 24
"""Most lines of a small map below its title."""


class Spot(NamedTuple):
    """A cell of the screen: its lines as text, those of panels without their frames, and the cell's coordinates."""

    lines: Sequence[str]
    x: int
    y: int


def place(lines: Sequence[Line], x: int, y: int) -> Spot:
    """Return a cell of the screen."""
    is_inside = y < len(lines) and _is_framed(lines[y])
    return Spot([_unframed(line) for line in lines], x - is_inside, y)


def _is_framed(line: Line) -> bool:
    """Return whether a line is of a panel with a frame: the frame begins and ends it."""
    return len(line) > 1 and line[0].role == line[-1].role == FRAME and line[0].text.startswith(_LEFT)


def _unframed(line: Line) -> str:
    """Return the text of a line inside of its frame; a heading begins with a blank in place of its frame line."""
    text = plain(line)
    text = text[1:-1] if _is_framed(line) else text
    return f" {text[1:]}" if line and line[0].role == FRAME and text.startswith("─") else text


def key_at(foot: Line, x: int, context: str) -> Action | None:
    """Return the action of the key that the last line shows at a cell; None between keys."""
    begin, shown, offset = 0, "", 0
    for text, role in foot:
        if role == "accent":
            shown, offset = text, x - begin
        begin += len(text)
        if begin > x:
            break
    else:
        return None
    if re.fullmatch(r"(\d )+\d", shown):  # a narrow line has the screens as digits only
        shown = shown[offset] if 0 <= offset < len(shown) else ""
    return next((a for a in ACTIONS if a.shown.split()[0] == shown and works(a.name, a.by, context)), None)


def action_of(key: str, context: str) -> Action | None:
    """Return the action of a key in a context."""
    return next((a for a in ACTIONS if key in a.keys.split(",") and works(a.name, a.by, context)), None)


def device_at(there: Spot, view: ViewState) -> str:
    """Return the device that the line names, or the small map around the cell; empty where there is none."""
    names = {one.device.name for one in view.subjects()}
    is_tile = view.selection.context == "overview" and view.selection.panel == "maps"
    for y in range(there.y, max(there.y - _TALL, 0) if is_tile else there.y - 1, -1):
        if is_tile and _TILE not in there.lines[y]:
            continue
        words = [(one.start(), one[0]) for one in _WORD.finditer(there.lines[y])]
        found = [(x, word) for x, word in words if word in names]
        if found:
            return next((word for x, word in reversed(found) if x <= there.x), found[0][1])
    return ""


def rows_from_selected(there: Spot, context: str, headings: Sequence[str] = ()) -> int | None:
    """Return by how many rows the cell is below the selected one; None where it is no row of the same table.

    `headings`: first words of the lines between tables.
    """
    at = next((y for y, line in enumerate(there.lines) if line.startswith("▸")), None)
    row = _ROWS.get(context)
    if at is None or row is None:
        return None
    low, high = sorted((at, there.y))
    between = there.lines[low : high + 1]
    if any(not line.strip() or line.split()[0] in headings for line in between):
        return None
    begins = [y for y in range(low, high + 1) if row.match(there.lines[y])]
    if context != "findings" and len(begins) != len(between):
        return None
    return (len(begins) - 1) * (1 if there.y >= at else -1)


def part_at(there: Spot, view: ViewState) -> int | None:
    """Return the number of the table that the cell is in, on the interrupts screen; None before the first."""
    parts = tables(view).parts
    found = [line.split()[0] for line in there.lines[1 : there.y + 1] if line.strip() and line.split()[0] in parts]
    return parts.index(found[-1]) if found else None


def headings(view: ViewState) -> Sequence[str]:
    """Return the first words of the lines above the tables of the interrupts screen."""
    return tables(view).parts


class Pointed(NamedTuple):
    """A cell of a heat map, and the op of the map: `all` for the map of all ops."""

    cell: MapCell
    op: str = "all"


def map_cell(there: Spot, view: ViewState) -> Pointed | None:
    """Return the cell of a heat map; None outside of its columns, and in a column without data."""
    selection = view.selection
    if selection.context not in _MAP or selection.panel == "maps" or selection.fold:
        return None
    maps = [(op, one.drawn) for op, one in view.maps.items() if one.drawn is not None]
    for (op, drawn), (x, bottom) in zip(maps, _axes(there, [drawn.scale.rows for _, drawn in maps]), strict=False):
        if bottom - drawn.scale.rows <= there.y < bottom:
            cell = _cell_of(there, x, bottom, drawn)
            return None if cell is None else Pointed(cell, op)
    return None


def _axes(there: Spot, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (column, line) of the corner below the latency axis of each map, from above.

    An axis is a column of `│` and `┤` that ends at `└` and is as high as the map's `rows`.
    """
    wanted = iter(rows)
    high = next(wanted, 0)
    for bottom, line in enumerate(there.lines):
        for x in (one.start() for one in re.finditer("└", line)):
            side = [one[x : x + 1] for one in there.lines[:bottom]]
            if next((n for n, char in enumerate(reversed(side)) if char not in ("│", "┤")), len(side)) == high > 0:
                yield x, bottom
                high = next(wanted, 0)
                break


def _cell_of(there: Spot, axis: int, bottom: int, drawn: DrawnMap) -> MapCell | None:
    timeline, scale = drawn
    body = there.lines[bottom - scale.rows : bottom]
    ends = (x for x in range(axis + 2, len(body[0])) if all(line[x : x + 1] == "│" for line in body))
    cells = next(ends, axis + 1) - axis - 1
    if not axis < there.x <= axis + cells:
        return None
    column = timeline.by_slot()[(there.x - axis - 1) * timeline.slots // cells]
    if column is None:
        return None
    return MapCell(column.number, scale.first(bottom - 1 - there.y))


def cursor_at(view: ViewState, corner: MapCell, at: MapCell) -> Selection:
    """Return the selection with a region from one cell to another; the device of the map is selected."""
    chosen = selected(view.subjects())
    name = chosen.device.name if chosen else view.selection.selected
    cursor = Cursor(at, corner if corner != at else None)
    return replace(view.selection, selected=name, cursor=cursor, band=None)


def outliers_of(view: ViewState, there: Pointed) -> Selection:
    """Return the selection with the outliers of a cell of a map of one op."""
    drawn, chosen = view.maps[there.op].drawn, selected(view.subjects())
    if drawn is None or chosen is None:
        return view.selection
    region = picked(Cursor(there.cell), drawn.timeline, chosen.device.name, drawn.scale, there.op)
    return replace(
        view.selection, screen="outliers", selected=chosen.device.name, region=region, outlier=None, opened=False
    )


def share_of_strip(there: Spot) -> float | None:
    """Return the share of the whole time before the cell; None where the line is no strip."""
    line = there.lines[there.y]
    end = line.rfind("│")
    if "┃" not in line or not LABEL <= there.x < end:
        return None
    return (there.x - LABEL + 0.5) / (end - LABEL)
