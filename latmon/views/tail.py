"""The table's last column: which stage the slow I/Os of a device spend their time in. Pure."""

from __future__ import annotations

from latmon.deep import cut, tail
from latmon.model import Traced
from latmon.stage_names import by_column
from latmon.views.bars import role, share_bar, short
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span
from latmon.views.table import TREND_MIN
from latmon.views.units import part

LEAST = 15
_MOST = 24
_NAME, _PERCENT = 7, 4


def split(room: int) -> tuple[int, int]:
    """(cells of the column, cells left for the trend) of what the other columns leave; the trend goes first."""
    if room < LEAST:
        return 0, room
    left = room - LEAST - 1
    if left < TREND_MIN:
        return room, 0
    more = min((left - TREND_MIN + 1) // 2, _MOST - LEAST)
    return LEAST + more, left - more


def title(cells: int, some: str) -> str:
    """As much as fits; `some`: how many of the rows are shown."""
    return next((t for t in (f"where the tail is  {some}".rstrip(), f"tail  {some}".rstrip()) if len(t) <= cells), "")


def worst(traced: Traced, device: str, ops: tuple[str, ...], threshold_us: int | None) -> tuple[str, float] | None:
    """The stage with most of the time of the I/Os above the cut, and its share; None where it isn't known."""
    limit = cut(traced, device, ops, threshold_us)
    shares = {} if limit is None else by_column(tail(traced, device, ops, limit).share, traced.includes_of(device))
    return max(shares.items(), key=lambda of: of[1]) if shares else None


def tail_cell(found: tuple[str, float] | None, cells: int, ink: Ink) -> Line:
    """A bar, the stage, its share; blank where it isn't known."""
    if found is None:
        return (Span(" " * cells),)
    stage, share = found
    bar = share_bar(share, cells - _NAME - _PERCENT - 2, ink, role(stage, ink))
    return (*bar, Span(f" {short(stage):<{_NAME}}"), Span(f" {part(share):>{_PERCENT}}"))
