"""The outstanding panel: the gauge, depth bars, limit and depth map of a device, and the list of I/Os in flight. Pure.

`DepthView` is what is known of the selected device; `outstanding` distributes the lines among the parts. The depth map
is drawn by views/heatmap.py, the list of I/Os in flight by panels/inflight.py. The limits' audit and the issue order,
which replace all of this, are in panels/asides.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from latmon.aggregate.histogram_sum import DepthSum
from latmon.analysis.limits import ceiling, ceilings
from latmon.analysis.littles_law import COUNTED, of, times, times_of
from latmon.model.frame import OPS, Frame, Limit, Outstanding
from latmon.model.inflight import MEANS, PROBE, SYSFS, Depths, Took
from latmon.support.units import UNKNOWN, duration, part, whole
from latmon.views import heatmap
from latmon.views.bars import share_bar
from latmon.views.context import ViewState, no_rows, selected
from latmon.views.device_table import Subject
from latmon.views.heatmap import BAND_LABEL, DepthBand, Ink
from latmon.views.heatmap_state import filled
from latmon.views.lines import (
    Field,
    Line,
    Placed,
    Span,
    as_wide,
    cell,
    empty_panel,
    ends,
    fit,
    heading,
    heads,
    paragraph,
    row,
    width,
    wrap,
)
from latmon.views.panels.asides import audit_aside, order_aside
from latmon.views.panels.inflight import age_list
from latmon.views.units import count, span

_PERCENT, _SMALL, _LARGE = 4, 6, 30
_NARROW, _NARROWEST = 60, 48
"""Widths in cells: below the first the bars of the queue are left out, below the second those at issue as well."""
_MARK = 5
_LATENCY = (("mean latency by outstanding", 130), ("mean latency", 76), ("latency", 0))
"""Titles of the latency column, each with the least width of the screen for it."""
_INDENT = "  "
"""Before the bars of the queue, since the latency beside them is not about the queue."""


@dataclass(frozen=True, slots=True)
class DepthShares:
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
class DepthColumns:
    """The distributions that the bars show: over all time, or over busy time only."""

    in_driver: DepthShares
    queued: DepthShares
    at_issue: DepthShares
    latency: Mapping[int, Took]
    busy: bool = False
    idle: float = 0.0
    """Share of all time with no I/O in the driver."""

    @property
    def highest(self) -> int:
        """Return the largest number in any of the distributions, at least 1."""
        return max(self.in_driver.highest, self.queued.highest, self.at_issue.highest, *self.latency, 1)


def depth_columns(depths: Depths, *, busy: bool = False) -> DepthColumns:
    """Return the distributions of a device's depths.

    `busy`: without the time in which the driver had no I/O. The same time is taken from `queued` at 0.
    """
    everything = DepthShares(depths.in_driver)
    driver, queued = dict(depths.in_driver), dict(depths.queued)
    if busy:
        nothing = driver.pop(0, 0)
        queued[0] = max(queued.get(0, 0) - nothing, 0)
    return DepthColumns(
        DepthShares(driver),
        DepthShares({n: count for n, count in queued.items() if count}),
        DepthShares(depths.at_issue),
        depths.latency,
        busy,
        everything.share(0),
    )


def depth_bars(
    shown: DepthColumns, limit: int | None, width: int, height: int, ink: Ink, *, most: int = 0, over: str = ""
) -> list[Line]:
    """Return titles, a row per band of numbers from the highest down, and a line above the limit.

    `most`: the largest number seen in the driver; `over`: the time that is covered, in words.
    """
    highest = max(shown.highest, most)
    walled = limit is not None and limit <= highest
    rows = height - 1 - walled
    if rows < 1:
        return []
    cut = _bands(shown, highest, rows, (limit - 1, limit) if limit is not None and walled else ())
    if cut[0] == DepthBand(0, 0) and shown.busy and not shown.queued.counts.get(0):
        cut = cut[1:] or cut
    columns = _bar_columns(shown, cut, width, most=most, over=over)
    lines: list[Line] = [_at_edge(heads(columns))]
    for i in reversed(range(len(cut))):
        if walled and limit is not None and cut[i].high <= limit < (cut[i + 1].high if i + 1 < len(cut) else limit + 1):
            lines.append(_ceiling(limit, columns, width, ink))
        lines.append(_at_edge(row(columns, i)))
    return [fit(line, width) for line in lines[:height]]


def _bands(shown: DepthColumns, highest: int, rows: int, ends: Sequence[int]) -> list[DepthBand]:
    """Return at most `rows` bands: fine ones up to the largest number in the driver, and above it one per doubling.

    A queue of 90 I/Os above a driver of 3 would else take most of the rows.
    """
    each = max(shown.in_driver.highest, shown.at_issue.highest, *ends, 1)
    above = [DepthBand(each + 1, 2 * each)]
    while above[-1].high < highest:
        above.append(DepthBand(above[-1].high + 1, 2 * above[-1].high))
    if each >= highest or rows - len(above) < min(each + 1, _FINE_ROWS):
        return heatmap.exact(highest, rows, ends)
    above[-1] = DepthBand(above[-1].low, highest)
    return [*heatmap.exact(each, rows - len(above), ends), *above]


def _at_edge(line: Line) -> Line:
    """Return a line of the table without the blank after its last column, which ends at the edge of the screen."""
    *others, last = line
    return tuple(others) if last.text == " " else (*others, last._replace(text=last.text[:-1]))


def _bar_columns(shown: DepthColumns, cut: Sequence[DepthBand], width: int, *, most: int, over: str) -> Placed[int]:
    """Return the columns; a row's value is the number of its band in `cut`."""
    issue = width >= _NARROWEST and shown.at_issue.total > 0
    queued = width >= _NARROW and shown.queued.total > 0
    latency = next(text for text, wide in _LATENCY if width >= wide) if shown.latency else ""
    figure = _PERCENT + 1
    beside = issue * (figure + 2) + (len(latency) + 2 if latency else 0) + queued * (figure + 1 + len(_INDENT))
    left = max(width - (BAND_LABEL + 2) - (figure + _MARK) - beside, 4)
    small = max(min(left // 4, _LARGE), _SMALL)
    driver = left - small * (issue + queued) + figure + _MARK
    fields = [_band_field(shown, cut), _driver_field(shown, cut, driver, most=most, over=over)]
    if issue:
        fields.append(_bar_field("at issue", small + figure, heatmap.of(shown.at_issue.counts, cut)))
    if latency:
        fields.append(_latency_field(latency, shown.latency, cut))
    if queued:
        title = next((t for t in ("queued or finishing", "queued") if len(t) <= small + figure), "queue")
        counts = heatmap.of(shown.queued.counts, cut)
        fields.append(_bar_field(_INDENT + title, small + figure + len(_INDENT), counts, _INDENT))
    return as_wide(fields)


def _is_mode(shown: DepthColumns, band: DepthBand) -> bool:
    mode = shown.in_driver.mode
    return mode is not None and band.low <= mode <= band.high


def _band_field(shown: DepthColumns, cut: Sequence[DepthBand]) -> Field[int]:
    def make(i: int, cells: int) -> Line:
        role = "strong" if _is_mode(shown, cut[i]) else "dim"
        return (Span(cell(heatmap.band_label(cut[i]), cells, right=True), role),)

    return Field("I/Os", BAND_LABEL, make)


def _driver_field(shown: DepthColumns, cut: Sequence[DepthBand], width: int, *, most: int, over: str) -> Field[int]:
    """Return the column of the I/Os in the driver, with marks at the mode and at the maximum."""
    counts, highest = heatmap.of(shown.in_driver.counts, cut), max(shown.in_driver.highest, most)
    whole = f"in the driver, {'busy time' if shown.busy else over}"
    title = next((t for t in (whole, "in the driver") if t.split(", ")[-1] and len(t) < width), "driver")

    def make(i: int, cells: int) -> Line:
        is_mode, is_max = _is_mode(shown, cut[i]), cut[i].low <= highest <= cut[i].high and highest > 0
        mark = " mode" if is_mode else " max" if is_max else ""
        bar = _bar(counts, i, cells - _MARK, "accent" if is_mode else "depth")
        return (*bar, Span(f"{mark:<{_MARK}}", "accent" if is_mode else "strong"))

    return Field(title, width, make, right=False)


def _latency_field(title: str, took: Mapping[int, Took], cut: Sequence[DepthBand]) -> Field[int]:
    """Return the column of the mean latency by all I/Os outstanding at the arrival."""
    ios = heatmap.of({n: one.ios for n, one in took.items()}, cut)
    times_us = heatmap.of({n: one.time_us for n, one in took.items()}, cut)
    return Field(title, len(title) + 1, lambda i, _: duration(times_us[i] / ios[i]) if ios[i] else "")


def _bar_field(title: str, width: int, counts: Sequence[int], indent: str = "") -> Field[int]:
    def make(i: int, cells: int) -> Line:
        return (Span(indent), *_bar(counts, i, cells - len(indent)))

    return Field(title, width, make, right=False)


def _bar(counts: Sequence[int], i: int, cells: int, role: str = "depth") -> Line:
    """Return the share as a number, then as a bar in proportion to the largest; both are blank for 0."""
    n = counts[i]
    figure = part(n / sum(counts)) if n else ""
    return (Span(f"{figure:>{_PERCENT}} "), *share_bar(n / max(*counts, 1), cells - _PERCENT - 1, role))


def _ceiling(limit: int, columns: Placed[int], width: int, ink: Ink) -> Line:
    """Return the line of the limit over the columns of the driver and at issue; it doesn't bound the queue."""
    cells = columns[1][1]
    more = columns[2][1] + 1 if len(columns) > 2 and columns[2][0].title == "at issue" else 0  # noqa: PLR2004  the third
    text = cell(f" limit {limit} ", min(len(str(limit)) + 8, cells))
    line = ink.line * min(cells + more - len(text), width - BAND_LABEL - 2)
    return (Span(" " * (BAND_LABEL + 2)), Span(f"{line[:2]}{text}{line[2:]}", "limit"))


_SOURCES = {
    PROBE: "measured by a probe, weighted by time",
    SYSFS: "sampled from the kernel's gauges, weighted by time",
    MEANS: "means of the intervals, no distribution",
}
_SHORT = {PROBE: "by a probe", SYSFS: "sampled", MEANS: "by means"}
_SECOND_US = 1_000_000
_GAUGE = 20
_MAP_FROM, _MAP_MOST = 6, 18
_BARS_FROM, _BARS_MOST = 6, 12
"""Lines of the bars, least and most, where the age list is shown too."""
_FINE_ROWS = 8
"""Rows for the numbers in the driver, from which on those above it have one per doubling."""
_AGES_FROM, _AGES_MANY = 3, 6
"""Lines of the age list with one row, and with one page of rows and the line that counts the others."""
Draw = Callable[[int, int], list[Line]]
"""(width, height) -> lines, at most `height` of them."""


@dataclass(frozen=True, slots=True)
class DepthView:
    """Depths and limit of the selected device over `covered_us`."""

    name: str
    now: Outstanding
    limit: Limit | None
    depths: Depths | None
    covered_us: int
    law: str = ""
    """Little's law as a sentence; empty where one of its three terms is missing."""
    below: str = ""
    """The limits of the disks below a dm or md device, as text."""
    why: str = ""
    """The reason why there are no depths."""
    busy: bool = False

    @property
    def bound(self) -> int | None:
        return int(self.limit.value) if self.limit else None

    @property
    def over(self) -> str:
        """Return the covered time in words."""
        return f"last {span(round(self.covered_us / _SECOND_US) * _SECOND_US)}"

    @property
    def columns(self) -> DepthColumns | None:
        """Return the distributions of the bars; None where depths are not measured."""
        return depth_columns(self.depths, busy=self.busy) if self.depths and self.depths.in_driver else None


def outstanding(
    shown: DepthView, cells: int, height: int, ink: Ink, *, over_time: Draw, ages: Draw, age_lines: tuple[int, int]
) -> list[Line]:
    """Return the lines of the panel.

    `over_time`, `ages`: draw the map and the age list; `age_lines`: lines of the age list, and when it is folded.
    """
    head = gauge_lines(shown, cells)
    left = height - len(head)
    found = shown.columns
    if found is None:
        text = paragraph(shown.why, cells, margin=2)
        below = ages(cells, max(left - len(text) - 1, 0))
        return [*head, *text, *([()] if below else []), *below][:height]
    most = shown.depths.highest if shown.depths else 0
    listed, chart, map_ = _line_shares(left, age_lines, _rows(found, most, shown.bound), _least(found, shown.bound))
    bars = depth_bars(found, shown.bound, cells, chart, ink, most=most, over=shown.over)
    map_ += (chart - len(bars)) * (map_ > 0)
    lines = [*head, *bars, *ages(cells, listed)]
    return [*lines, *(over_time(cells, map_) if map_ else [])][:height]


def gauge_lines(shown: DepthView, cells: int) -> list[Line]:
    """Return the gauge, the distribution in words, and Little's law."""
    lines = [_gauge(shown, cells)]
    if shown.columns is not None:
        lines.append(_in_words(shown, shown.columns, cells))
    lines += [(Span(f" {text}", "text"),) for text in _law_lines(shown.law, cells - 2)]
    return lines


def _law_lines(law: str, cells: int) -> list[str]:
    """Return two lines at most: the whole sentence, else its first part, since a truncated number misleads.

    The place of what was counted is left out where it would take a line of its own.
    """
    whole_law, brief = wrap(law, cells), wrap(law.partition("; at ")[0], cells)
    place = " counted in driver and queue"
    if len(whole_law) > 1 and law.endswith(place) and len(short := wrap(law.removesuffix(place), cells)) == 1:
        return [f"{short[0]} counted" if len(short[0]) + len(" counted") <= cells else short[0]]
    return (whole_law if len(whole_law) <= 2 else brief)[:2]  # noqa: PLR2004 - lines


def at_limit(now: Outstanding, limit: int | None) -> bool:
    """Return whether the driver has as many I/Os as its limit allows."""
    return limit is not None and now.in_driver is not None and now.in_driver >= limit


def _gauge(shown: DepthView, cells: int) -> Line:
    """Return the I/Os outstanding now, in the driver and queued, against the limit and its source."""
    now, bound, limit = shown.now, shown.bound, shown.limit
    full = at_limit(now, bound)
    left: Line = (Span(f" {shown.name}", "strong"), Span(" outstanding now  ", "dim"))
    queued = "" if now.queued is None else f", {whole(now.queued)} {'queued or finishing' if now.queued else 'queued'}"
    where = "in flight" if now.queued is None else "in the driver"
    driver = UNKNOWN if now.in_driver is None else whole(now.in_driver)
    if bound is None or limit is None:
        return heading(
            (
                *left,
                Span(f"{driver} {where}", "strong"),
                Span(queued),
                Span(f"  {shown.below or 'no limit is known'}", "dim"),
            ),
            cells,
        )
    number = Span(f"{driver} of {count(bound)} {where}", "bad" if full else "strong")
    bar = share_bar((now.in_driver or 0) / bound, _GAUGE, "bad" if full else "accent") if bound else ()
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
    return heading(next((one for one in several if width(one) + ends(cells) <= cells), several[-1]), cells)


def _in_words(shown: DepthView, found: DepthColumns, cells: int) -> Line:
    """Return mode, maximum, mean and idle share, with the source and the covered time."""
    assert shown.depths is not None  # noqa: S101  `found` is made of them
    mode, mean = found.in_driver.mode, found.in_driver.mean
    words = [f"max {whole(shown.depths.highest)}"]
    if mode is not None:
        share = part(found.in_driver.share(mode))
        words.insert(0, f"mode {whole(mode)} ({share} of {'busy time' if found.busy else 'the time'})")
    if mean is not None:
        words.append(f"mean {mean:.3g}")
    words.append(f"idle {part(found.idle)}")
    if shown.depths.corrected:
        words.append(f"corrected by {count(shown.depths.corrected)}")
    text = f" {', '.join(words)}"
    over = shown.over
    lacks = "" if shown.depths.at_issue else ", no at-issue"
    source = f"  {over}: {_SOURCES.get(shown.depths.source, shown.depths.source)}{lacks}"
    short = f"  {over}, {_SHORT.get(shown.depths.source, shown.depths.source)}{lacks}"
    shorter = f"  {_SHORT.get(shown.depths.source, '')}{lacks}"
    each = [(f" in driver:{text}", one) for one in (source, short, shorter)]
    each += [(f" in driver:{text.replace(' of the time', '')}", shorter), (text, shorter)]
    text, caption = next((one for one in each if sum(map(len, one)) <= cells), (text, ""))
    return fit((Span(text), Span(caption, "dim")), cells)


def _rows(found: DepthColumns, most: int, bound: int | None) -> int:
    """Return the lines that give each number a row of its own."""
    highest = max(found.highest, most)
    return highest + 2 + (bound is not None and bound <= highest)


def _least(found: DepthColumns, bound: int | None) -> int:
    """Return the lines that the numbers which occurred need; the rows between them would be empty."""
    there = {n for one in (found.in_driver, found.queued) for n in one.counts}
    return min(len(there) + 1 + (bound is not None and bound <= found.highest), _BARS_MOST)


def _line_shares(left: int, age_lines: tuple[int, int], wanted: int, least: int) -> tuple[int, int, int]:
    """Return the lines of the age list, of the bars and of the depth map.

    The bars get their first lines, then the age list, then both get more. I/Os in flight have precedence over empty
    rows of the bars: `least` rows are not empty.
    """
    each, folded = age_lines
    ages = 0
    if left >= _BARS_FROM + _AGES_FROM:
        several = min(_AGES_MANY, left - _BARS_FROM) if each == folded else _AGES_FROM
        room = max(several, left // 4, min(left // 2, left - max(least, _BARS_FROM)))
        ages = each if each <= room else min(folded, room)
    wanted_ages, left = max(ages, min(each, folded)), left - ages
    if left < _BARS_FROM + _MAP_FROM:
        return ages, min(left, wanted), 0
    map_ = min(max(left // 2, _MAP_FROM), _MAP_MOST)
    bars = min(left - map_, wanted)
    left -= bars + map_
    more = min(left, max(wanted_ages - ages, 0))
    return ages + more, bars, min(map_ + left - more, 2 * _MAP_MOST)


def outstanding_panel(view: ViewState, width: int, room: int) -> list[Line]:
    """Return the depths of the selected device, or the aside that replaces them."""
    chosen = selected(view.subjects())
    if chosen is None or view.origin is None or not view.history.window.frames:
        return empty_panel(no_rows(view), width, room)
    if view.selection.aside == "audit":
        return audit_aside(view, chosen, width, room)
    if view.selection.aside == "order":
        return order_aside(view, chosen, width, room)
    shown = depth_view(view, chosen)
    ages, age_lines = age_list(view)
    return outstanding(
        shown,
        width,
        room,
        view.ink,
        over_time=lambda cells, lines: _map(view, shown, cells, lines),
        ages=ages,
        age_lines=age_lines,
    )


def depth_view(view: ViewState, subject: Subject) -> DepthView:
    """Return the depths and the limit of a device."""
    history, name = view.history, subject.device.name
    depths = history.depth_sum(name)
    return DepthView(
        name,
        subject.outstanding,
        ceiling(subject.device.limits),
        depths.depths if depths else None,
        depths.span_us if depths else 0,
        law=_law(view, subject, depths) if depths else "",
        below=_below(view, subject),
        why=_not_counted(view, subject),
        busy=view.selection.busy,
    )


def _law(view: ViewState, subject: Subject, depths: DepthSum) -> str:
    """Return Little's law for the ops that depth gauges count, as a sentence.

    A latency that begins at the issue is the time in the driver.
    """
    window, name = subject.window, subject.device.name
    latency = window.latency(name, COUNTED)
    timed = times_of(latency)
    from_issue = view.origin is not None and view.origin.latency_from == "issue"
    done = {op: window.completed(name, op) for op in OPS}
    found = of(
        depths.depths,
        depths.span_us,
        window.covered_us,
        whole=times(depths.depths, done, None if from_issue else timed, latency.max_bound),
        driver=timed if from_issue else None,
        bound=ceiling(subject.device.limits),
        waiting=view.history.ages.of(name),
        left=subject.outstanding.known,
    )
    return found.sentence if found else ""


def _below(view: ViewState, subject: Subject) -> str:
    found = ceilings(subject.device, view.history.store.devices)
    limits = [f"{name} {count(int(one.value))}" for name, one in found.items() if one and name != subject.device.name]
    return f"limits of its disks: {', '.join(limits)}" if limits else ""


def _not_counted(view: ViewState, subject: Subject) -> str:
    device = subject.device
    more = f"; look at {', '.join(device.members)}" if not device.timed and device.members else ""
    if view.recorded:
        return f"how many I/Os {device.name} had outstanding is not in this recording{more}"
    return f"how many I/Os {device.name} had outstanding is not measured here{more}"


def _map(view: ViewState, shown: DepthView, width: int, room: int) -> list[Line]:
    """Return the depth map; it has a timeline of its own."""
    history, sweep, last = view.history, view.depth_map, view.history.window.last
    assert last is not None  # noqa: S101  drawn only once there is a frame
    cells, name = heatmap.room(width), shown.name
    entries = history.depth_window.entries

    def frames(after_us: int = -1) -> Iterator[Frame]:
        some = [one for one in entries if one.mono_us > after_us]
        return (f for f in heatmap.depth_frames(some, name, last, history.interval_us) if f.mono_us > after_us)

    timeline = sweep.slots(
        filled(cells, view.selection.window_us, history.interval_us, sweep=view.selection.sweep),
        heatmap.ops(name),
        frames,
        interval_us=history.interval_us,
        origin_us=history.origin_us,
    )
    for frame in frames(timeline.columns[-1].mono_us) if timeline.columns else ():
        sweep.advance(frame)
    timeline.note(history.moments())
    return heatmap.depth_map(timeline, shown.name, (width, room), view.ink, limit=shown.bound, busy=shown.busy)
