"""The outstanding view: a device's gauge against its limit, how often it had how many I/Os, when, and what waits. Pure.

`Device` of facts in, lines out: `outstanding` shares the lines among its parts; the bars are depths.py's, the heat map
depth_map.py's, the age list still.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latmon.model import Limit, Outstanding
from latmon.outstanding import MEANS, PROBE, SYSFS, Depths
from latmon.views.bars import share_bar
from latmon.views.depths import Facts, depths, facts
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, fit, width, wrap
from latmon.views.units import UNKNOWN, count, part, span, whole

_SOURCES = {
    PROBE: "looked at by a probe, weighted by time",
    SYSFS: "sampled from the kernel's gauges, weighted by time",
    MEANS: "means of the intervals, no distribution",
}
_SHORT = {PROBE: "by a probe", SYSFS: "sampled", MEANS: "by means"}
_SECOND_US = 1_000_000
_GAUGE = 20
_MAP_FROM, _MAP_MOST = 6, 18
_BARS_FROM, _BARS_MOST = 6, 12
"""Lines of the bars, where the age list wants them as well."""
_STILL_FROM, _STILL_MANY = 3, 6
"""Lines of the age list with a row, and with as many as a key goes down and the one that says that there are more."""
Draw = Callable[[int, int], list[Line]]
"""(width, height) -> lines, at most so many."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the selected device, over `covered_us`."""

    name: str
    now: Outstanding
    limit: Limit | None
    depths: Depths | None
    covered_us: int
    law: str = ""
    """Little's law as a sentence; empty where one of its three is missing."""
    below: str = ""
    """Of a dm or md the limits of its disks."""
    why: str = ""
    """Why there are no depths."""
    busy: bool = False

    @property
    def bound(self) -> int | None:
        return int(self.limit.value) if self.limit else None

    @property
    def over(self) -> str:
        """Which time it is about."""
        return f"last {span(round(self.covered_us / _SECOND_US) * _SECOND_US)}"

    @property
    def facts(self) -> Facts | None:
        """What the bars show; None where nobody counted."""
        return facts(self.depths, busy=self.busy) if self.depths and self.depths.in_driver else None


def outstanding(
    look: Look, cells: int, height: int, ink: Ink, *, over_time: Draw, still: Draw, waiting: tuple[int, int]
) -> list[Line]:
    """`over_time`, `still`: draw the map and the age list; `waiting`: its lines with its heads, and when folded."""
    head = heads(look, cells, ink)
    left = height - len(head)
    found = look.facts
    if found is None:
        said = [(Span(f"  {text}"),) for text in wrap(look.why, cells - 4)]
        below = still(cells, max(left - len(said) - 1, 0))
        return [*head, *said, *([()] if below else []), *below][:height]
    most = look.depths.highest if look.depths else 0
    ages, chart, map_ = _shares(left, waiting, _rows(found, most, look.bound), _least(found, look.bound))
    lines = [*head, *depths(found, look.bound, cells, chart, ink, most=most, over=look.over), *still(cells, ages)]
    return [*lines, *(over_time(cells, map_) if map_ else [])][:height]


def heads(look: Look, cells: int, ink: Ink) -> list[Line]:
    """The gauge, the distribution in words, Little's law."""
    lines = [_gauge(look, cells, ink)]
    if look.facts is not None:
        lines.append(_told(look, look.facts, cells))
    lines += [(Span(f" {text}", "text"),) for text in wrap(look.law, cells - 2)[:2]]
    return lines


def at_limit(now: Outstanding, limit: int | None) -> bool:
    """Whether the driver has all that it may have."""
    return limit is not None and now.in_driver is not None and now.in_driver >= limit


def _gauge(look: Look, cells: int, ink: Ink) -> Line:
    """Outstanding now, in the driver and above it, against the limit and who says so."""
    now, bound, limit = look.now, look.bound, look.limit
    full = at_limit(now, bound)
    left: Line = (Span(f" {look.name}", "accent"), Span(" outstanding now  ", "dim"))
    queued = "" if now.queued is None else f", {whole(now.queued)} {'queued or finishing' if now.queued else 'queued'}"
    where = "in flight" if now.queued is None else "in the driver"
    driver = UNKNOWN if now.in_driver is None else whole(now.in_driver)
    if bound is None or limit is None:
        return fit(
            (
                *left,
                Span(f"{driver} {where}", "strong"),
                Span(queued),
                Span(f"  {look.below or 'no limit is known'}", "dim"),
            ),
            cells,
        )
    number = Span(f"{driver} of {count(bound)} {where}", "bad" if full else "strong")
    bar = share_bar((now.in_driver or 0) / bound, _GAUGE, ink, "bad" if full else "accent") if bound else ()
    source = Span(f"  limit: {limit.name}", "dim")
    where_from = Span(f" ({limit.source})", "dim")
    brief = (left[0], Span(" "), number, Span(queued))
    several: list[Line] = [
        (*left, number, Span(queued), Span("  ▕"), *bar, Span("▏"), source, where_from),
        (*left, number, Span(queued), source, where_from),
        (*brief, source, where_from),
        (*brief, source),
        brief,
    ]
    return fit(next((one for one in several if width(one) <= cells), several[-1]), cells)


def _told(look: Look, found: Facts, cells: int) -> Line:
    """Mode, maximum, mean and idle share; who counted, over which time."""
    assert look.depths is not None  # noqa: S101  facts are made of them
    mode, mean = found.in_driver.mode, found.in_driver.mean
    words = [f"most {whole(look.depths.highest)}"]
    if mode is not None:
        share = part(found.in_driver.share(mode))
        words.insert(0, f"mode {whole(mode)} ({share} of {'busy time' if found.busy else 'the time'})")
    if mean is not None:
        words.append(f"mean {mean:.3g}")
    words.append(f"idle {part(found.idle)}")
    if look.depths.corrected:
        words.append(f"set right by {count(look.depths.corrected)}")
    text = f" {', '.join(words)}"
    over = look.over
    lacks = "" if look.depths.at_issue else ", no at-issue"
    source = f"  {over}: {_SOURCES.get(look.depths.source, look.depths.source)}{lacks}"
    short = f"  {over}, {_SHORT.get(look.depths.source, look.depths.source)}{lacks}"
    shorter = f"  {_SHORT.get(look.depths.source, '')}{lacks}"
    said = next((one for one in (source, short, shorter) if len(text) + len(one) <= cells), "")
    return fit((Span(text), Span(said, "dim")), cells)


def _rows(found: Facts, most: int, bound: int | None) -> int:
    """Lines that show each number by itself."""
    highest = max(found.highest, most)
    return highest + 2 + (bound is not None and bound <= highest)


def _least(found: Facts, bound: int | None) -> int:
    """Lines without which numbers that were there would share one; in between are empty ones."""
    there = {n for one in (found.in_driver, found.queued) for n in one.counts}
    return min(len(there) + 1 + (bound is not None and bound <= found.highest), _BARS_MOST)


def _shares(left: int, waiting: tuple[int, int], wanted: int, least: int) -> tuple[int, int, int]:
    """Lines of the age list, of the bars and of the heat map: bars first, then the ages, and more of each with room.

    Who waits comes before rows of the bars that would be empty: `least` are those that aren't.
    """
    each, folded = waiting
    ages = 0
    if left >= _BARS_FROM + _STILL_FROM:
        several = min(_STILL_MANY, left - _BARS_FROM) if each == folded else _STILL_FROM
        room = max(several, left // 4, min(left // 2, left - max(least, _BARS_FROM)))
        ages = each if each <= room else min(folded, room)
    waiting_, left = max(ages, min(each, folded)), left - ages
    if left < _BARS_FROM + _MAP_FROM:
        return ages, min(left, wanted), 0
    map_ = min(max(left // 3, _MAP_FROM), _MAP_MOST)
    bars = min(left - map_, wanted)
    left -= bars + map_
    more = min(left, max(waiting_ - ages, 0))
    return ages + more, bars, min(map_ + left - more, 2 * _MAP_MOST)
