"""How many I/Os a device had outstanding, as bars: a row per number of them, the most at the top, the limit a ceiling.

In the driver by time and as each was issued, how long I/Os took that found so many, and what waited above the driver.
Pure: `facts` is what is said of it, `depths` draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from latmon.outstanding import Depths, Took
from latmon.views import bands
from latmon.views.bands import LABEL, Band
from latmon.views.bars import share_bar
from latmon.views.heatmap import Ink
from latmon.views.lines import Line, Span, cell, fit
from latmon.views.units import duration, part

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
    cut = bands.exact(highest, rows, (limit - 1, limit) if limit is not None and walled else ())
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
            bands.of(one.counts, cut) for one in (shown.in_driver, shown.queued, shown.at_issue)
        )
        self.ios = bands.of({n: took.ios for n, took in shown.latency.items()}, cut)
        self.times = bands.of({n: took.time_us for n, took in shown.latency.items()}, cut)

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
    left = max(width - (LABEL + 2) - (_PERCENT + 1 + _MARK) - beside, 4)
    small = max(min(left // 4, _LARGE), _SMALL)
    return _Columns(left - small * (issue + queued), small * issue, took, small * queued)


def _heads(columns: _Columns, shown: Facts, over: str) -> Line:
    room = columns.driver + _PERCENT + 1 + _MARK
    whole = f"in the driver, {'busy time' if shown.busy else over}"
    name = next((t for t in (whole, "in the driver") if t.split(", ")[-1] and len(t) < room), "driver")
    texts = [cell("I/Os", LABEL + 1, right=True), " ", cell(name, room)]
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
    line: list[Span] = [Span(f" {bands.label(band):>{LABEL}} ", "strong" if is_mode else "dim")]
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
    line = ink.line * min(cells + more - len(text), width - LABEL - 2)
    return (Span(" " * (LABEL + 2)), Span(f"{line[:2]}{text}{line[2:]}", "accent"))
