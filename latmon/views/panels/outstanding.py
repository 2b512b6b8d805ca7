"""The outstanding panel: a device's gauge, depth histogram and limit, the limits audit, I/Os in flight.

`Device` of facts in, lines out: `outstanding` shares the lines among its parts; the heat map is views/heatmap.py's,
the age list panels/inflight.py's.

In the driver by time and as each was issued, how long I/Os took that found so many, and what waited above the driver.
Pure: `facts` is what is said of it, `depths` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latmon.aggregate.accumulator import DepthSum
from latmon.analysis.limits import Audited, Remark, Setting, audit, ceiling, ceilings, elevator
from latmon.analysis.littles_law import COUNTED, of, times, times_of
from latmon.model.frame import OPS, STARTING, Frame, Limit, Outstanding
from latmon.model.inflight import MEANS, PROBE, SYSFS, Aged, Depths, Took
from latmon.support.units import UNKNOWN, duration, part, whole
from latmon.views import empty, heatmap
from latmon.views.bars import share_bar
from latmon.views.columns import Field, table
from latmon.views.context import MEASURING, OFF, Sight, no_rows, selected, sentence
from latmon.views.device_table import Subject
from latmon.views.heatmap import BAND_LABEL, Band, Ink
from latmon.views.heatmap_state import shape
from latmon.views.lines import BLANK, Line, Span, cell, cut, fit, width, wrap
from latmon.views.panels.inflight import folded, still
from latmon.views.panels.issue_order import order
from latmon.views.selection import shown
from latmon.views.units import count, span

_PERCENT, _SMALL, _LARGE = 4, 6, 30
_NARROW, _NARROWEST = 60, 48
"""Below the one the queue's bars go, below the other those of the issues as well."""
_MARK = 5
_LATENCY = (("latency by all outstanding", 130), ("latency by all", 76), ("latency", 0))
"""Its title, and the width from which on there is room for it."""
_GAP = "   "
"""Between a number and bars that aren't about it."""


@dataclass(frozen=True, slots=True)
class Shares:
    """One distribution over numbers of I/Os."""

    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def mode(self) -> int | None:
        return max(self.counts, key=lambda n: (self.counts[n], n)) if self.total else None

    @property
    def highest(self) -> int:
        return max((n for n, count in self.counts.items() if count), default=0)

    @property
    def mean(self) -> float | None:
        return sum(n * count for n, count in self.counts.items()) / self.total if self.total else None

    def share(self, n: int) -> float:
        return self.counts.get(n, 0) / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is drawn: of all time, or of busy time alone."""

    in_driver: Shares
    queued: Shares
    at_issue: Shares
    latency: Mapping[int, Took]
    busy: bool = False
    idle: float = 0.0
    """Share of all time with nothing in the driver."""

    @property
    def highest(self) -> int:
        """The largest number that any of them tells of, at least 1."""
        return max(self.in_driver.highest, self.queued.highest, self.at_issue.highest, *self.latency, 1)


def facts(depths: Depths, *, busy: bool = False) -> Facts:
    """`busy`: without the time in which the driver had nothing; then as little was queued, so that goes as well."""
    everything = Shares(depths.in_driver)
    driver, queued = dict(depths.in_driver), dict(depths.queued)
    if busy:
        nothing = driver.pop(0, 0)
        queued[0] = max(queued.get(0, 0) - nothing, 0)
    return Facts(
        Shares(driver),
        Shares({n: count for n, count in queued.items() if count}),
        Shares(depths.at_issue),
        depths.latency,
        busy,
        everything.share(0),
    )


def depths(
    shown: Facts, limit: int | None, width: int, height: int, ink: Ink, *, most: int = 0, over: str = ""
) -> list[Line]:
    """Titles, rows, the ceiling. `most`: the most that anyone saw in the driver; `over`: which time, in words."""
    highest = max(shown.highest, most)
    walled = limit is not None and limit <= max(highest, most)
    rows = height - 1 - walled
    if rows < 1:
        return []
    cut = heatmap.exact(highest, rows, (limit - 1, limit) if limit is not None and walled else ())
    if cut[0] == Band(0, 0) and shown.busy and not shown.queued.counts.get(0):
        cut = cut[1:] or cut
    columns = _columns(width, shown)
    lines: list[Line] = [_heads(columns, shown, over)]
    sums = _Sums(shown, cut)
    for i in reversed(range(len(cut))):
        if walled and limit is not None and cut[i].high <= limit < (cut[i + 1].high if i + 1 < len(cut) else limit + 1):
            lines.append(_ceiling(limit, columns, width, ink))
        lines.append(_row(sums, i, columns, ink, most))
    return [fit(line, width) for line in lines[:height]]


class _Sums:
    """Every column by band."""

    def __init__(self, shown: Facts, cut: list[Band]) -> None:
        self.shown, self.cut = shown, cut
        self.driver, self.queued, self.issue = (
            heatmap.of(one.counts, cut) for one in (shown.in_driver, shown.queued, shown.at_issue)
        )
        self.ios = heatmap.of({n: took.ios for n, took in shown.latency.items()}, cut)
        self.times = heatmap.of({n: took.time_us for n, took in shown.latency.items()}, cut)

    def latency_us(self, i: int) -> float | None:
        return self.times[i] / self.ios[i] if self.ios[i] else None


@dataclass(frozen=True, slots=True)
class _Columns:
    """Cells of each; 0 where the column isn't there: too narrow for it, or not measured."""

    driver: int
    issue: int
    took: int
    queued: int


def _columns(width: int, shown: Facts) -> _Columns:
    issue = width >= _NARROWEST and shown.at_issue.total > 0
    queued = width >= _NARROW and shown.queued.total > 0
    took = len(next((text for text, wide in _LATENCY if width >= wide), "")) + 2 if shown.latency else 0
    beside = issue * (_PERCENT + 3) + took + queued * (_PERCENT + 1 + len(_GAP))
    left = max(width - (BAND_LABEL + 2) - (_PERCENT + 1 + _MARK) - beside, 4)
    small = max(min(left // 4, _LARGE), _SMALL)
    return _Columns(left - small * (issue + queued), small * issue, took, small * queued)


def _heads(columns: _Columns, shown: Facts, over: str) -> Line:
    room = columns.driver + _PERCENT + 1 + _MARK
    whole = f"in the driver, {'busy time' if shown.busy else over}"
    name = next((t for t in (whole, "in the driver") if t.split(", ")[-1] and len(t) < room), "driver")
    texts = [cell("I/Os", BAND_LABEL + 1, right=True), " ", cell(name, room)]
    if columns.issue:
        texts += [" ", cell("at issue", columns.issue + _PERCENT + 1)]
    texts.append(cell(next((t for t, _ in _LATENCY if len(t) < columns.took), ""), columns.took, right=True))
    if columns.queued:
        room = columns.queued + _PERCENT + 1
        name = next((t for t in ("queued or finishing", "queued") if len(t) <= room), "queue")
        texts += [_GAP, cell(name, room)]
    return (Span("".join(texts), "dim"),)


def _row(sums: _Sums, i: int, columns: _Columns, ink: Ink, most: int) -> Line:
    band, shown = sums.cut[i], sums.shown
    mode, highest = shown.in_driver.mode, max(shown.in_driver.highest, most)
    is_mode = mode is not None and band.low <= mode <= band.high and shown.in_driver.total > 0
    is_most = band.low <= highest <= band.high and highest > 0
    mark = " mode" if is_mode else " most" if is_most else ""
    line: list[Span] = [Span(f" {heatmap.band_label(band):>{BAND_LABEL}} ", "strong" if is_mode else "dim")]
    line += _bar(sums.driver, i, columns.driver, ink, "accent" if is_mode else "text")
    line.append(Span(f"{mark:<{_MARK}}", "accent" if is_mode else "strong"))
    if columns.issue:
        line += [Span(" "), *_bar(sums.issue, i, columns.issue, ink)]
    line.append(Span(cell(_took(sums.latency_us(i)), columns.took, right=True)))
    if columns.queued:
        line += [Span(_GAP), *_bar(sums.queued, i, columns.queued, ink)]
    return tuple(line)


def _bar(counts: list[int], i: int, cells: int, ink: Ink, role: str = "text") -> Line:
    """The share in figures, then as a bar in proportion to the largest; nothing at all is blank."""
    n = counts[i]
    figure = part(n / sum(counts)) if n else ""
    return (Span(f"{figure:>{_PERCENT}} "), *share_bar(n / max(*counts, 1), cells, ink, role))


def _took(us: float | None) -> str:
    return "" if us is None else duration(us)


def _ceiling(limit: int, columns: _Columns, width: int, ink: Ink) -> Line:
    """What bounds the driver, and the issues to it; the queue goes on above."""
    cells = columns.driver + _PERCENT + 1 + _MARK
    more = columns.issue + _PERCENT + 2 if columns.issue else 0
    text = cell(f" limit {limit} ", min(len(str(limit)) + 8, cells))
    line = ink.line * min(cells + more - len(text), width - BAND_LABEL - 2)
    return (Span(" " * (BAND_LABEL + 2)), Span(f"{line[:2]}{text}{line[2:]}", "accent"))


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
    lines += [(Span(f" {text}", "text"),) for text in _law_lines(look.law, cells - 2)]
    return lines


def _law_lines(law: str, cells: int) -> list[str]:
    """Return two lines at most: of a longer sentence its first part, for a part that is cut misleads."""
    whole_law, brief = wrap(law, cells), wrap(law.partition("; at ")[0], cells)
    return (whole_law if len(whole_law) <= 2 else brief)[:2]  # noqa: PLR2004 - lines


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
    each = [(f" in driver:{text}", one) for one in (source, short, shorter)]
    each += [(f" in driver:{text.replace(' of the time', '')}", shorter), (text, shorter)]
    text, said = next((one for one in each if sum(map(len, one)) <= cells), (text, ""))
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


_NAME, _VALUE, _SOURCE = 16, 12, 22
_BOUNDS = frozenset(
    {
        *("queue_depth", "can_queue", "cmd_per_lun", "nr_tags", "hardware queues", "nr_requests", "sqsize"),
        *("queue_count", "un_throttle", "un_saved_throttle", "un_min_throttle"),
    }
)
_LEAST = 4
"""Lines of the table: titles and three devices."""


def limits_table(
    rows: Sequence[Audited], selected: str, width: int, height: int, *, top: int = 0, why: str = ""
) -> list[Line]:
    """Devices at the top, the selected one's settings below; `why`: what no row means."""
    title: Line = (Span(" limits", "accent"), Span("  as configured, beside what was seen", "dim"))
    if not rows:
        return [fit(title, width), BLANK, *((Span(f"  {text}"),) for text in wrap(why, width - 4))][:height]
    at = next((i for i, one in enumerate(rows) if one.device == selected), 0)
    settings = _settings(rows[at], width)
    devices = min(len(rows) + 1, max(height - 2 - len(settings), _LEAST))
    lines = [title, *table(_FIELDS, rows, at, (width, devices), why=why)]
    left = height - len(lines) - 1
    return [fit(line, width) for line in (*lines, BLANK, *cut(settings, left, top))][:height]


def _settings(one: Audited, width: int) -> list[Line]:
    """Of one device: remarks on it as a whole, then each setting with its own."""
    lines: list[Line] = [(Span(f" {one.device} settings", "strong"),)]
    for remark in one.remarks:
        lines += _said(remark, width, 1)
    for setting in sorted(one.settings, key=_rank):
        lines += _setting(setting, width)
    return lines


def _rank(setting: Setting) -> int:
    """What is off first, then what bounds the driver, then notes."""
    said = min((remark.note for remark in setting.remarks), default=2)
    return said if said == 0 else 1 if setting.limit.name in _BOUNDS else 1 + said


def _setting(setting: Setting, width: int) -> list[Line]:
    limit = setting.limit
    value = count(limit.value) if isinstance(limit.value, int) else limit.value
    head = f" {limit.name:<{_NAME}} {value:<{_VALUE}} {limit.source:<{_SOURCE}} "
    off = any(not remark.note for remark in setting.remarks)
    told: Line = (Span(head, "strong" if off else "text"),)
    if not setting.remarks:
        return [told]
    beside = width - len(head) - 1
    if len(setting.remarks) == 1 and len(setting.remarks[0].text) <= beside:
        return [(*told, *_said(setting.remarks[0], width, 0)[0])]
    return [told, *(line for remark in setting.remarks for line in _said(remark, width, 3))]


def _said(remark: Remark, width: int, indent: int) -> list[Line]:
    role, mark = ("dim", "") if remark.note else ("bad", "! ")
    parts = wrap(mark + remark.text, max(width - indent - 1, 10))
    return [(Span(" " * (indent if not i else indent + len(mark))), Span(part, role)) for i, part in enumerate(parts)]


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


def _value(name: str) -> Field[Audited]:
    def make(one: Audited, _cells: int) -> str:
        found = next((s.limit.value for s in one.settings if s.limit.name == name), None)
        return UNKNOWN if found is None else whole(found) if isinstance(found, int) else found

    return Field(_TITLES.get(name, name), max(len(_TITLES.get(name, name)), 5), make, rank=2)


def _off(one: Audited, _cells: int) -> Line:
    notes = sum(remark.note for s in one.settings for remark in s.remarks)
    if one.off:
        return (Span("! " + ", ".join(remark.id for remark in one.off), "bad"),)
    return (Span(f"{notes} note{'s' * (notes != 1)}" if notes else "nothing off", "dim"),)


_TITLES = {"nr_requests": "requests", "queue_type": "tags"}
_FIELDS: tuple[Field[Audited], ...] = (
    Field("device", 8, lambda one, _: one.device, right=False, most=9),
    Field("limit", 5, lambda one, _: _number(int(one.bound.value)) if one.bound else UNKNOWN),
    Field("limit's name", 12, lambda one, _: one.bound.name if one.bound else "", rank=1, right=False, role="dim"),
    Field("most", 5, lambda one, _: _number(one.most)),
    Field("usual", 5, lambda one, _: _number(one.usual)),
    Field("queue", 5, lambda one, _: _number(one.queued)),
    Field("held", 4, lambda one, _: "" if one.held_at is None else whole(one.held_at), role="strong"),
    _value("nr_requests"),
    Field("scheduler", 11, lambda one, c: str(_value("scheduler").make(one, c)), rank=1, right=False, role="dim"),
    Field("off", 11, _off, right=False, most=60),
)


_HEADS = 2


def outstanding_panel(sight: Sight, width: int, room: int) -> list[Line]:
    """The depths of the selected device; aside of them the limits' audit or the issue order."""
    chosen = selected(sight.subjects())
    if chosen is None or sight.origin is None or not sight.history.window.frames:
        return sentence(no_rows(sight), width, room)
    if sight.choice.aside == "audit":
        return _audit(sight, chosen, width, room)
    if sight.choice.aside == "order":
        return _order(sight, chosen, width, room)
    look = look_at(sight, chosen)
    rows, top = ages(sight), sight.choice.top
    why = no_ages(sight)
    return outstanding(
        look,
        width,
        room,
        sight.ink,
        over_time=lambda cells, lines: _map(sight, look, cells, lines),
        still=lambda cells, lines: still(
            sight.history.ages, rows, cells, lines, top=top, why=why, least=lambda name: no_more(sight, name)
        ),
        waiting=_lines(rows if top else folded(rows), rows),
    )


def _lines(some: Sequence[Aged], each: Sequence[Aged]) -> tuple[int, int]:
    """That a list of them takes: each by itself, and as it is shown where there is no room for that."""
    return max(len(each), 1) + _HEADS, max(len(some), 1) + _HEADS


def look_at(sight: Sight, subject: Subject) -> Look:
    """What is known of one device."""
    history, name = sight.history, subject.device.name
    depths = history.depth_sum(name)
    return Look(
        name,
        subject.outstanding,
        ceiling(subject.device.limits),
        depths.depths if depths else None,
        depths.span_us if depths else 0,
        law=_law(sight, subject, depths) if depths else "",
        below=_below(sight, subject),
        why=_not_counted(sight, subject),
        busy=sight.choice.busy,
    )


def ages(sight: Sight) -> tuple[Aged, ...]:
    """What is still in flight, of the devices that the filter lets through."""
    names = {d.name for d in shown(sight.history.store.devices.values(), sight.choice)}
    return tuple(one for one in sight.history.ages.oldest if one.device in names)


def audited(sight: Sight) -> tuple[Audited, ...]:
    """The limits of the filter's devices, worst first as the table of devices has them."""
    history = sight.history
    order = [s.device.name for s in sight.subjects()]
    devices = [s.device for s in sight.subjects()]

    def made() -> tuple[Audited, ...]:
        counted = {d.name: found.depths for d in devices if (found := history.depth_sum(d.name, brief=True))}
        return tuple(sorted(audit(devices, counted), key=lambda one: (not one.off, order.index(one.device))))

    return history.made(("audit", *order), made)


def no_ages(sight: Sight) -> str:
    """What an empty age list means of the filter's devices; never that nobody waits unless that is known."""
    history, last = sight.history, sight.history.window.last
    if last is None or not last.outstanding:
        return "not known: nobody counts what is in flight here"
    names = {d.name for d in shown(history.store.devices.values(), sight.choice)}
    now = {name: one.known for name, one in last.outstanding.items() if name in names}
    count_now, others = sum(now.values()), any(one.device not in names for one in history.ages.oldest)
    elsewhere = "; others than the filter's devices have older ones" if others else ""
    if not count_now:
        whose = "of the filter's devices" if others else "device"
        return f"nothing is in flight on any {whose}{elsewhere}{_uncounted(sight, names)}"
    return f"{count_now} in flight, {_of_no_age(sight, now)}{elsewhere}{_uncounted(sight, names)}"


def _uncounted(sight: Sight, names: Collection[str]) -> str:
    """Name volumes without requests that no probe follows: the kernel counts nothing of what they put aside."""
    devices, known = sight.history.store.devices, sight.history.ages
    bare = [name for name in names if not devices[name].timed and devices[name].kind != "zram"]
    blind = sorted(name for name in bare if not known.is_followed(name))
    if not blind:
        return ""
    return f"; no probe follows {_first(blind)}, and what a suspended volume puts aside is not counted"


def _of_no_age(sight: Sight, now: Mapping[str, int]) -> str:
    """Return why none of these has a row; `now`: I/Os in flight by device."""
    ages = sight.history.ages
    unknown = {name: n for name in now if (n := ages.unknown.get(name, 0))}
    if not unknown:
        return "none of them for 0.5 s"
    followed = sum(n for name, n in unknown.items() if ages.is_followed(name))
    if followed == sum(unknown.values()):
        return f"up to {followed} of them may have begun before the probe; none of the others is older than 0.5 s"
    rest = sum(unknown.values()) - followed
    blind = [name for name in unknown if not ages.is_followed(name)]
    why = _no_probe(sight) if ages.probe is None else f"no probe follows {'it' if len(blind) == 1 else 'them'}"
    least = "A device that completes nothing has a least age"
    return f"{rest} of unknown age on {_first(blind)}: {why}. {least}"


def no_more(sight: Sight, device: str) -> str:
    """Why of I/Os in flight of a device only a least age is known."""
    known = sight.history.ages
    if known.is_followed(device):
        return "began before a probe followed it"
    if known.probe is not None:
        return f"no probe follows {device}"
    if sight.recorded:
        return "no probe followed it"
    return _no_probe(sight)


def _no_probe(sight: Sight) -> str:
    """Return why no probe follows requests."""
    if sight.recorded:
        return "no probe followed requests"
    if sight.tracing.startswith(STARTING):
        return "the probes are starting"
    if sight.tracing == MEASURING:
        return "this source's tracer measures no ages"
    return f"no probe follows requests{': stages are off' if sight.tracing.startswith(OFF) else ' here'}"


def _first(names: Sequence[str]) -> str:
    """The first three by name; of the rest their number."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")  # noqa: PLR2004  three fit


def _law(sight: Sight, subject: Subject, depths: DepthSum) -> str:
    """Of the I/Os that gauges count. A latency that begins at the issue is the time in the driver."""
    window, name = subject.window, subject.device.name
    latency = window.latency(name, COUNTED)
    timed = times_of(latency)
    from_issue = sight.origin is not None and sight.origin.latency_from == "issue"
    done = {op: window.completed(name, op) for op in OPS}
    found = of(
        depths.depths,
        depths.span_us,
        window.covered_us,
        whole=times(depths.depths, done, None if from_issue else timed, latency.max_bound),
        driver=timed if from_issue else None,
        bound=ceiling(subject.device.limits),
        waiting=sight.history.ages.of(name),
        left=subject.outstanding.known,
    )
    return found.sentence if found else ""


def _below(sight: Sight, subject: Subject) -> str:
    found = ceilings(subject.device, sight.history.store.devices)
    told = [f"{name} {count(int(one.value))}" for name, one in found.items() if one and name != subject.device.name]
    return f"limits of its disks: {', '.join(told)}" if told else ""


def _not_counted(sight: Sight, subject: Subject) -> str:
    device = subject.device
    more = f"; look at {', '.join(device.members)}" if not device.timed and device.members else ""
    if sight.recorded:
        return f"how many I/Os {device.name} had outstanding is not in this recording{more}"
    return f"how many I/Os {device.name} had outstanding is not measured here: nobody counted them{more}"


def _map(sight: Sight, look: Look, width: int, room: int) -> list[Line]:
    """Draw the depths over time on a timeline of their own."""
    history, sweep, last = sight.history, sight.depths, sight.history.window.last
    assert last is not None  # noqa: S101  drawn only once there is a frame
    cells, name = heatmap.room(width), look.name
    entries = history.depth_window.entries

    def frames(after_us: int = -1) -> Iterator[Frame]:
        some = [one for one in entries if one.mono_us > after_us]
        return (f for f in heatmap.depth_frames(some, name, last, history.interval_us) if f.mono_us > after_us)

    timeline = sweep.slots(
        shape(cells, sight.choice.window_us, history.interval_us, sweep=sight.choice.sweep),
        heatmap.ops(name),
        frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    for frame in frames(timeline.columns[-1].mono_us) if timeline.columns else ():
        sweep.advance(frame)
    timeline.note(history.moments())
    return heatmap.depth_map(timeline, look.name, (width, room), sight.ink, limit=look.bound, busy=look.busy)


def _audit(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    why = "not known here: this source tells no limits of the filter's devices"
    return limits_table(audited(sight), chosen.device.name, width, room, top=sight.choice.top, why=why)


def _order(sight: Sight, chosen: Subject, width: int, room: int) -> list[Line]:
    """The last burst of issues; without one, why."""
    issues = sight.history.issues(chosen.device.name)
    if not issues and not chosen.device.timed:
        disks = ", ".join(chosen.device.members)
        return sentence(f"{chosen.device.name} has no requests: the order is that of its disks: {disks}", width, room)
    never = sight.origin.why_untraced("issues") if sight.origin else ""
    if not issues and sight.tracing == MEASURING and not never:
        return sentence(f"issues of {chosen.device.name}: no window of its issues was told yet", width, room)
    if not issues:
        why = empty.not_traced(
            f"issues of {chosen.device.name}",
            sight.origin,
            ("issues",),
            mode=sight.choice.stages,
            recorded=sight.recorded,
            state=sight.tracing,
        )
        return sentence(why, width, room)
    title: Line = (Span(f" {chosen.device.name}", "accent"), Span(" issue order, the last burst", "dim"))
    return [title, *order(issues, width, room - 1, sight.ink, scheduler=elevator(chosen.device.limits))][:room]
