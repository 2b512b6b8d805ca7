"""The outliers screen: the log, or one of them opened. What is in the log is asked here by keys and drawing alike."""

from __future__ import annotations

from collections.abc import Callable

from latmon.model import Outlier
from latmon.views import outliers
from latmon.views.choice import shown
from latmon.views.lines import Line
from latmon.views.outliers import Listing, listing
from latmon.views.sight import Sight, no_rows, sentence
from latmon.views.waterfall import neighbours, waterfall


def log(sight: Sight) -> Listing:
    """The rows as they are shown: of the filter's devices, the chosen ops, and the region if there is one."""
    choice, deep = sight.choice, sight.history.deep
    region = choice.region
    names = {d.name for d in shown(sight.history.store.devices.values(), choice)}
    names &= {region.device} if region else names
    return listing(
        sight.history.folded,
        order=choice.order,
        above=sum(n for flow, n in deep.above.items() if flow.device in names and flow.op in choice.ops),
        suppressed=deep.suppressed,
        where=_where(sight),
        by_moment=region is not None,
        wanted=_wanted(sight, names),
    )


def position(rows: Listing, one: Outlier | None) -> int:
    """The row of an outlier; of the nearest in time when another one stands for its row by now."""
    at = rows.find(one)
    if one is None or not rows.rows or rows.rows[at].outlier == one:
        return at
    others = [(r.outlier.device != one.device, abs(r.outlier.mono_us - one.mono_us)) for r in rows.rows]
    return others.index(min(others))


def outliers_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The log around its selected row; opened, that row's waterfall."""
    choice = sight.choice
    if sight.origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    rows = log(sight)
    at = position(rows, choice.outlier)
    if choice.opened and (choice.outlier or rows.rows):
        return _opened(sight, rows, at, width, room)
    why = outliers.no_outliers(
        sight.history.deep.thresholds_us,
        length_us=choice.window_us,
        above=rows.above,
        where=rows.where,
        by_moment=rows.by_moment,
    )
    return outliers.outliers(rows, at, width, room, sight.ink, why=why)


def _opened(sight: Sight, rows: Listing, at: int, width: int, room: int) -> list[Line]:
    """The chosen outlier stays open when the window has left it behind."""
    row = rows.rows[at] if rows.rows else None
    one = sight.choice.outlier or rows.rows[at].outlier
    repeats = row.repeats if row is not None and row.outlier == one else 1
    near = neighbours(one, sight.history.deep.outliers)
    return waterfall(
        one, width, room, sight.ink, repeats=repeats, near=near, top=sight.choice.top, recorded=sight.recorded
    )


def _wanted(sight: Sight, names: set[str]) -> Callable[[Outlier], bool]:
    ops, region = frozenset(sight.choice.ops), sight.choice.region

    def wanted(one: Outlier) -> bool:
        return one.device in names and one.op in ops and (region is None or region.holds(one))

    return wanted


def _where(sight: Sight) -> str:
    choice = sight.choice
    if choice.region is not None:
        return choice.region.words
    parts = [f"on {choice.pattern}"] if choice.pattern else []
    return " ".join([*parts, *([choice.op] if choice.op != "all" else [])])
