"""The outliers view: one line for each I/O above its device's threshold, its stages as a ribbon. Pure.

`listing` chooses and orders them once per frame, `outliers` draws what fits around the selected one, `no_outliers`
says why there is none. Identical neighbours are folded before they come here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from latmon.deep import Folded
from latmon.model import UNACCOUNTED, Outlier
from latmon.stage_names import by_column, called, explained
from latmon.views.bars import legend, short, stacked
from latmon.views.columns import Field, around, heads, layout, row
from latmon.views.heatmap import Ink
from latmon.views.lines import BLANK, Line, Span, cell, fit, wrap
from latmon.views.lines import width as line_width
from latmon.views.units import UNKNOWN, count, duration, moment, part, size, span, spelled, whole

ORDERS = ("newest", "longest")
_LETTERS = {"sync": "S", "fua": "F", "meta": "M", "preflush": "P", "readahead": "A", "background": "B"}
_WORDS = 15
"""Cells that hold an op with its flags in words."""
_SHORT = 15
"""Cells that a share needs with the longest of the stages' names, less one."""
_SORTED = {"newest": "time", "longest": "total"}
_HEAD = 2
"""Lines above the rows."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The rows as they are shown, so that a key finds what the eye saw."""

    rows: tuple[Folded, ...] = ()
    order: str = "newest"
    above: int = 0
    """I/Os above the threshold, counted each."""
    told: int = 0
    """Of these the ones that are in the rows."""
    suppressed: int = 0
    """Left out by the rate limit, of all devices and the whole window."""
    where: str = ""
    """What part of them is asked for: a device, a region of its map; empty for all."""
    by_moment: bool = False
    """It is a region of a map: nobody counts what is above the threshold in it, or was left out of it."""

    @property
    def left_out(self) -> str:
        """What `above` holds and the rows don't: the rate limit's, and what is told later or is no longer kept."""
        if self.by_moment:
            return "the rate limit may have left out some" if self.suppressed else ""
        missing = max(self.above - self.told, 0)
        limited = min(missing, self.suppressed)
        parts = [f"{count(limited)} left out by the rate limit"] if limited else []
        return ", ".join([*parts, *([f"{count(missing - limited)} not told"] if missing > limited else [])])

    def find(self, one: Outlier | None) -> int:
        """The row of an outlier that may have moved; the first row when it is gone."""
        if one is None:
            return 0
        # comparing values whole would take 6 ms for 10,000 rows
        near = (i for i, r in enumerate(self.rows) if r.outlier.mono_us == one.mono_us)
        return next((i for i in near if self.rows[i].outlier == one), 0)


def listing(
    folded: Sequence[Folded],
    *,
    order: str = "newest",
    above: int = 0,
    suppressed: int = 0,
    where: str = "",
    by_moment: bool = False,
    wanted: Callable[[Outlier], bool] | None = None,
) -> Listing:
    """`folded`: oldest first; `wanted`: which of them, `where`: the same in words."""
    some = [f for f in folded if wanted is None or wanted(f.outlier)]
    some = some[::-1] if order == "newest" else sorted(some, key=lambda f: -f.outlier.total_us)
    return Listing(tuple(some), order, above, sum(f.repeats for f in some), suppressed, where, by_moment)


def outliers(shown: Listing, selected: int, width: int, height: int, ink: Ink, *, why: str = "") -> list[Line]:
    """Head, titles, rows, legend; `why` instead of rows where there are none."""
    if not shown.rows:
        return [_head(shown, width), BLANK, *((Span(f"  {text}"),) for text in wrap(why, width - 4))][:height]
    placed = layout(_fields(ink), width)
    at = min(max(selected, 0), len(shown.rows) - 1)
    seen = around(len(shown.rows), at, height)
    letters = [*legend(_stages(shown, seen), width, ink), *_holds(shown, seen, width)]
    letters = letters if len(letters) < height - _HEAD - 2 else []
    some = around(len(shown.rows), at, height - _HEAD - len(letters))
    lines = [_head(shown, width), heads(placed, _SORTED.get(shown.order, ""), above=some.start)]
    lines += [row(placed, shown.rows[i], selected=i == at) for i in some]
    return [fit(line, width) for line in (*lines, *letters)][:height]


def no_outliers(
    thresholds_us: Mapping[str, int], *, length_us: int, above: int = 0, where: str = "", by_moment: bool = False
) -> str:
    """Why the list is empty, where the source looks for outliers at all."""
    over = f"in the last {span(length_us)}"
    if above and by_moment:
        return f"no outlier was told in {where}; {count(above)} I/Os are above the threshold {over}"
    if above:
        return (
            f"{count(above)} I/Os above the threshold {over}, but none of them {'in ' + where if where else 'was told'}"
        )
    if not thresholds_us:
        return "no threshold is known: no device did enough I/O yet, or this source doesn't look for outliers"
    limits = sorted(set(thresholds_us.values()))
    only = f"{where}: " if where else ""
    if len(limits) == 1:
        return f"{only}no I/O above {spelled(limits[0])} {over}"
    return f"{only}no I/O above its device's threshold ({spelled(limits[0])} to {spelled(limits[-1])}) {over}"


def op_letters(one: Outlier) -> str:
    """WSM: the op's letter, then a letter per flag, as the kernel's own traces write them."""
    return letters(one.op, one.flags)


def letters(op: str, flags: Iterable[str]) -> str:
    """The same of any request."""
    return op[:1].upper() + "".join(_LETTERS.get(flag, "") for flag in flags)


OWN = "own: "
"""Before the name of a process of latmon itself, as of its probe tool."""


def issuer(one: Outlier) -> str:
    """Return comm/pid of the process that issued it, as far as that is known, and whether it is latmon's own."""
    own = OWN if one.own else ""
    if one.pid is None:
        return f"{own}{one.comm}" if one.comm else UNKNOWN
    return f"{own}{one.comm}/{one.pid}" if one.comm else f"{own}pid {one.pid}"


def parts_of(one: Outlier) -> dict[str, float]:
    """Return the time of each stage, by its name in a column, and what is unaccounted."""
    found = by_column({stage: float(us) for stage, us in one.stages_us.items() if us > 0}, one.includes)
    return found | ({UNACCOUNTED: float(one.unaccounted_us)} if one.unaccounted_us > 0 else {})


def _head(shown: Listing, width: int) -> Line:
    """How many there were, are told and were left out: in as many words as fit."""
    left = (Span(" outliers", "accent"), Span(f" {shown.where}" if shown.where else ""))
    if not shown.rows and not shown.above:
        return fit((*left, Span("  none", "dim")), width)
    told, above = count(shown.told), count(shown.above)
    rows = f" in {count(len(shown.rows))} row{'s' * (len(shown.rows) != 1)}" if len(shown.rows) != shown.told else ""
    left_out = f", {shown.left_out}" if shown.left_out else ""
    of = f"{told} told" if shown.by_moment else f"{told} of {above}"
    texts = (
        f"  {shown.order} first  {of}{'' if shown.by_moment else ' above the threshold'}{rows}{left_out}",
        f"  {shown.order} first  {of}{rows}{left_out}",
        f"  {of}{left_out}",
        f"  {of}{', maybe more' if left_out and shown.by_moment else left_out.replace(' by the rate limit', '')}",
    )
    room = width - line_width(left)
    text = next((t for t in texts if len(t) <= room), texts[-1])
    return fit((*left, Span(text, "strong" if left_out else "text")), width)


def _stages(shown: Listing, some: range) -> set[str]:
    return {stage for i in some for stage in parts_of(shown.rows[i].outlier)}


def _holds(shown: Listing, some: range, width: int) -> list[Line]:
    """Return a sentence for each interval among the rows' names."""
    held = {
        name: explained(stage, inside)
        for i in some
        for stage, inside in shown.rows[i].outlier.includes.items()
        if (name := called(stage, inside).column) != stage and name in parts_of(shown.rows[i].outlier)
    }
    return [(Span(f" {line}", "dim"),) for text in held.values() for line in wrap(text, width - 2)]


def _fields(ink: Ink) -> list[Field[Folded]]:
    def ribbon(f: Folded, cells: int) -> Line:
        return stacked(parts_of(f.outlier), cells, ink)

    return [
        Field("time", 15, lambda f, _: moment(f.outlier.wall), right=False),
        Field("device", 7, lambda f, _: f.outlier.device, right=False, most=9),
        Field("op", 4, _op, rank=1, right=False, most=_WORDS),
        Field("size", 5, lambda f, _: size(f.outlier.bytes), rank=1),
        Field("total", 5, lambda f, _: duration(f.outlier.total_us)),
        Field("ribbon", 8, ribbon, right=False, most=60),
        Field("most of it", 12, _most, rank=1, right=False, most=16),
        Field("who", 10, _who, rank=1, right=False, most=20, role="dim"),
        Field("path", 14, lambda f, _: f.outlier.path, rank=3, right=False, most=20, role="dim"),
        Field("cpu", 7, lambda f, _: f"{_known(f.outlier.cpu_issue)}>{_known(f.outlier.cpu_complete)}", rank=2),
        Field("out", 4, lambda f, _: _whole(f.outlier.outstanding_at_issue), rank=2),
        Field("passed", 6, lambda f, _: _whole(f.outlier.overtaken_by), rank=2),
        Field("sector", 15, lambda f, _: _thousands(f.outlier.sector), rank=3),
        Field("", 4, lambda f, _: f"x{whole(f.repeats)}" if f.repeats > 1 else "", role="accent"),
    ]


def _op(f: Folded, cells: int) -> str:
    return " ".join((f.outlier.op, *f.outlier.flags)) if cells >= _WORDS else op_letters(f.outlier)


def _who(f: Folded, cells: int) -> str:
    """The name alone where the pid has no room."""
    whole_name = issuer(f.outlier)
    return whole_name if len(whole_name) <= cells else f"{OWN if f.outlier.own else ''}{f.outlier.comm}" or whole_name


def _most(f: Folded, cells: int) -> Line:
    parts = parts_of(f.outlier)
    if not parts:
        return (Span(cell("not traced", cells), "dim"),)
    top = max(parts, key=lambda stage: parts[stage])
    name = top if cells > _SHORT else short(top)
    return (Span(cell(f"{part(parts[top] / sum(parts.values())):>4} {name}", cells)),)


def _known(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _whole(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _thousands(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"
