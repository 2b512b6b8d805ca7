"""A view of an earlier time: a history built from the archive, as if frames had ended there. Pure.

`strip` is the whole archive in one line, with the place of that view.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from latmon.aggregate.history import Store, Window
from latmon.model.frame import Frame, Origin
from latmon.model.packed import Packed
from latmon.recording.archive import LETTERS, Past, Stamp, Stamps, TimelineEvent, completed
from latmon.support.units import with_unit
from latmon.views.axes import Timeline
from latmon.views.device_table import SPARKS, sparkline
from latmon.views.heatmap import LABEL, fitting
from latmon.views.heatmap_state import HeatmapState
from latmon.views.history import History, near, needed_from
from latmon.views.lines import Line, Span, runs
from latmon.views.status import Notices

_SLICE = 3
"""Frames that are added to a history between two chances for keys: some 10 ms with 24 devices."""
_MANY = 150
"""From this number of frames on, equal buckets are shared: ten minutes would take 50 MB."""
_MINUTE_US = 60_000_000
_ON_STRIP = ("mark", "finding")
"""Kinds of events with a letter on the strip."""


class PastSelection(NamedTuple):
    """A requested view of an earlier time: end, length and ops of its window.

    `totals`: histograms of stages are not needed; `groups`: groups of traced values that will be read.
    """

    at: Stamp
    window_us: int
    ops: tuple[str, ...]
    totals: bool = False
    groups: tuple[str, ...] = ()


class PastView(NamedTuple):
    """A view of an earlier time; `timeline`: the filled timeline of the maps, where one was drawn before."""

    history: History
    reported: Notices
    timeline: Timeline | None


class PastReader:
    """The reader of earlier times; it keeps the frames of the last view, since the next one needs most of them."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._span = (0, 0)
        self._totals = False
        self._window: Window | None = None
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        self._coming: Iterator[PastView | None] = iter(())
        self.wanted: PastSelection | None = None
        """The view that is being read."""

    def begin(self, past: Past, origin: Origin | None, heatmap: HeatmapState, wanted: PastSelection) -> None:
        """Begin to read a view; cancel the one that is being read."""
        self.wanted, self._coming = wanted, self._read_view(past, origin, heatmap, wanted)

    def proceed(self) -> PastView | None:
        """Read for some milliseconds; return the view when it is complete."""
        past_view: PastView | None = None
        try:
            past_view = next(self._coming)
        finally:
            if past_view is not None or sys.exception() is not None:
                self.wanted = None
        return past_view

    def _read_view(
        self, past: Past, origin: Origin | None, heatmap: HeatmapState, wanted: PastSelection
    ) -> Iterator[PastView | None]:
        """Decode the frames of the window and of the comparison of peers. Yield None while there is more."""
        at_us, window_us = wanted.at.mono_us, wanted.window_us
        begin = needed_from(at_us, window_us, origin.interval_us if origin else 1_000_000, heatmap.reach_us)
        waiting = past.waiting(begin)
        begin = waiting[0] if waiting else begin
        for _ in self._read(past, begin, at_us, totals=wanted.totals):
            yield None
        store, reported = Store(brief=True), Notices()
        store.origin = origin
        history = History(window_us, wanted.ops, store, waiting[1] if waiting else None)
        window = near((self._window,), at_us, window_us)
        frames = [frame for frame in self._frames if begin < frame.mono_us <= at_us]
        for number, frame in enumerate(completed(frames, past.known(begin))):
            reported.add(frame)
            kept = history.recall(frame)
            if window is None and kept.mono_us > at_us - window_us:
                history.window.advance(kept)
            if number % _SLICE == 0:
                yield None
        timeline = heatmap.ahead(wanted.ops, interval_us=history.interval_us, origin_us=history.origin_us)
        if timeline is not None:
            for number, frame in enumerate(history.frames()):
                timeline.advance(frame)
                if number % _SLICE == 0:
                    yield None
        history.move(window or history.window)
        self._window = history.window
        for _ in history.keep_on_demand(wanted.groups):
            yield None
        yield PastView(history, reported, timeline)

    def cancel(self) -> None:
        """Cancel the view that is being read; its frames are kept for the next one."""
        self.wanted, self._coming = None, iter(())

    def forget(self) -> None:
        """Cancel, and release the frames too, once no earlier time is shown. Freeing them takes some 20 ms."""
        self.cancel()
        self._frames, self._span, self._window, self._pairs = [], (0, 0), None, {}

    def _read(self, past: Past, after_us: int, until_us: int, *, totals: bool) -> Iterator[None]:
        """Read the frames that are missing; they are kept even if the view is cancelled."""
        first, last = self._span
        if until_us <= first or after_us >= last or (self._totals and not totals):
            self._frames, self._totals = [], totals
            first = last = after_us
        # frames with stages serve a view without them, not the other way round
        lean = self._totals
        if after_us < first:
            before: list[Frame] = []
            for frame in past.frames(after_us, first, totals=lean):
                before.append(self._plain(frame))
                yield None
            self._frames[:0] = before
            first = after_us
        self._span = first, max(last, first)
        for frame in past.frames(last, until_us, totals=lean) if until_us > last else ():
            self._frames.append(self._plain(frame))
            self._span = first, frame.mono_us
            yield None
        span = until_us - after_us
        self._span = max(first, after_us - span), min(max(last, until_us), until_us + span)
        self._frames = [frame for frame in self._frames if self._span[0] < frame.mono_us <= self._span[1]]

    def _plain(self, frame: Frame) -> Frame:
        """Return a frame whose total histograms are decoded, and which has no others, where stages are not needed."""
        if not self._totals:
            return frame
        histograms = frame.histograms
        all_histograms = histograms.values_in_order() if isinstance(histograms, Packed) else histograms.values()
        histograms_by_series = {
            series: histogram
            for series, histogram in zip(histograms, all_histograms, strict=True)
            if series.stage == "total"
        }
        if len(self._frames) >= _MANY:
            pairs = self._pairs
            histograms_by_series = {
                series: replace(histogram, buckets=tuple(pairs.setdefault(pair, pair) for pair in histogram.buckets))
                for series, histogram in histograms_by_series.items()
            }
        return replace(frame, histograms=histograms_by_series)


def strip(
    past: Past, events: Sequence[TimelineEvent], shown: tuple[int, int], size: tuple[int, int], glyphs: str = SPARKS
) -> Line:
    """Return the whole archive in one line: the slowest I/O of each cell, logarithmic, with letters of events.

    `shown`: begin and end of the window on the screen, which is highlighted, its end as `┃`. `size`: cells of the
    screen and of the map.
    """
    stamps, (width, cells) = past.stamps, size
    first_us, length_us = stamps.mono_us[0], max(stamps.mono_us[-1] - stamps.mono_us[0], 1)
    values = stamps.made(("slowest", cells), lambda: _slowest(stamps, cells))
    known = [us for us in values if us]
    drawn = sparkline([us or None for us in values], cells, (min(known, default=1), max(known, default=1)), glyphs)

    def place(us: int) -> int:
        return min(max((us - first_us) * cells // (length_us + 1), 0), cells - 1)

    begin, end = map(place, shown)
    inside, outside = ("text", "area") if glyphs is SPARKS else ("strong", "dim")
    spots = [(char, inside if begin <= x <= end else outside) for x, char in enumerate(drawn)]
    for event in events:
        if event.kind in _ON_STRIP and first_us <= event.mono_us <= stamps.mono_us[-1]:
            spots[place(event.mono_us)] = (LETTERS[event.kind], "bad")
    spots[end] = ("┃", "accent")
    most = fitting(f" max {with_unit(max(known))}", max(width - LABEL - cells - 1, 0)) if known else ""
    return (Span(f"{_length(length_us):>{LABEL - 1}} ", "dim"), *runs(spots), Span("│", "frame"), Span(most, "dim"))


def _length(us: int) -> str:
    """Return a time in five cells: 90s, 72min, 26h."""
    for unit, name in ((1_000_000, "s"), (_MINUTE_US, "min")):
        if us < 2 * _MINUTE_US * unit // 1_000_000:
            return f"{round(us / unit)}{name}"
    return f"{round(us / (60 * _MINUTE_US))}h"


def _slowest(stamps: Stamps, cells: int) -> list[int]:
    """Return the slowest I/O of the frames in each cell, 0 where none is known."""
    ends, slowest = stamps.mono_us, stamps.slowest_us
    length_us = ends[-1] - ends[0]
    usual_us = length_us / max(len(ends) - 1, 1)
    slowest_by_column = []
    for x in range(cells):
        end_us = ends[0] + length_us * (x + 1) // cells
        low, high = bisect_left(ends, ends[0] + length_us * x // cells), bisect_left(ends, end_us)
        high += high < len(ends) and ends[high] - end_us < usual_us  # the frame that the cell ends in
        slowest_by_column.append(max(slowest[low:high], default=0))
    return slowest_by_column
