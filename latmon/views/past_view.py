"""A view of an earlier time: a history built from the archive, as if frames had ended there. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from latmon.aggregate.history import Store, Window
from latmon.model.frame import Frame, Origin
from latmon.model.packed import Packed
from latmon.timetravel.archive import Past, Stamp, completed
from latmon.views.heatmap_state import Sweep
from latmon.views.history import History, needed_from
from latmon.views.status import Told
from latmon.views.timeline import Timeline

_SLICE = 3
"""Frames of which a history is made at once: some 10 ms with 24 devices, and keys have their turn."""
_MANY = 150
"""Frames from which on they share what they have in common: as objects ten minutes would be 50 MB."""


class Look(NamedTuple):
    """What is looked at: the end, the length, the ops; `totals`: no histogram of a stage is needed.

    `groups`: of deep values, which will be read.
    """

    at: Stamp
    window_us: int
    ops: tuple[str, ...]
    totals: bool = False
    groups: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What is found there; `timeline`: that of the maps, filled, where one of its shape was drawn before."""

    history: History
    told: Told
    timeline: Timeline | None


class Glass:
    """Looks back, and keeps what the latest look was made of: the next one is mostly made of the same frames."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._span = (0, 0)
        self._totals = False
        self._window: Window | None = None
        self._pairs: dict[tuple[int, int], tuple[int, int]] = {}
        self._coming: Iterator[Seen | None] = iter(())
        self.look: Look | None = None
        """What is on its way."""

    def set_out(self, past: Past, origin: Origin | None, sweep: Sweep, look: Look) -> None:
        """Begin a look, and give up the one that was on its way."""
        self.look, self._coming = look, self._looks(past, origin, sweep, look)

    def proceed(self) -> Seen | None:
        """A part of what a look takes, some milliseconds; what is seen when it is ready."""
        found: Seen | None = None
        try:
            found = next(self._coming)
        finally:
            if found is not None or sys.exception() is not None:
                self.look = None
        return found

    def _looks(self, past: Past, origin: Origin | None, sweep: Sweep, look: Look) -> Iterator[Seen | None]:
        """Only what the screen needs is decoded, a window and what peers are compared over. None: there is more."""
        at_us, window_us = look.at.mono_us, look.window_us
        begin = needed_from(at_us, window_us, origin.interval_us if origin else 1_000_000)
        waiting = past.waiting(begin)
        begin = waiting[0] if waiting else begin
        for _ in self._read(past, begin, at_us, totals=look.totals):
            yield None
        store, told = Store(brief=True), Told()
        store.origin = origin
        history = History(window_us, look.ops, store, waiting[1] if waiting else None)
        near = self._near(at_us, window_us)
        frames = [one for one in self._frames if begin < one.mono_us <= at_us]
        for number, frame in enumerate(completed(frames, past.known(begin))):
            told.add(frame)
            kept = history.recall(frame)
            if near is None and kept.mono_us > at_us - window_us:
                history.window.advance(kept)
            if number % _SLICE == 0:
                yield None
        timeline = sweep.ahead(look.ops, interval_us=history.interval_us, origin_us=history.origin_us)
        if timeline is not None:
            for number, frame in enumerate(history.frames()):
                timeline.advance(frame)
                if number % _SLICE == 0:
                    yield None
        history.move(near or history.window)
        self._window = history.window
        for _ in history.keep_deep(look.groups):
            yield None
        yield Seen(history, told, timeline)

    def forget(self) -> None:
        """Another past is looked at, or none."""
        self.look, self._coming = None, iter(())
        self._frames, self._span, self._window, self._pairs = [], (0, 0), None, {}

    def _near(self, at_us: int, window_us: int) -> Window | None:
        """The window of the latest look, if it has more in common with the next one than not."""
        window = self._window
        if window is None or window.length_us != window_us or window.last is None:
            return None
        return window if abs(window.last.mono_us - at_us) < window_us // 3 else None

    def _read(self, past: Past, after_us: int, until_us: int, *, totals: bool) -> Iterator[None]:
        """What isn't at hand; what was read is kept, also of a look that is given up."""
        first, last = self._span
        if until_us <= first or after_us >= last or (self._totals and not totals):
            self._frames, self._totals = [], totals
            first = last = after_us
        # decoded with all stages or without: what is wanted now is what will be wanted of them
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
        self._frames = [one for one in self._frames if self._span[0] < one.mono_us <= self._span[1]]

    def _plain(self, frame: Frame) -> Frame:
        """With histograms that are made once; those of stages aren't."""
        if not self._totals:
            return frame
        found = frame.histograms
        every = found.values_in_order() if isinstance(found, Packed) else found.values()
        made = {series: one for series, one in zip(found, every, strict=True) if series.stage == "total"}
        if len(self._frames) >= _MANY:
            pairs = self._pairs
            made = {
                series: replace(one, buckets=tuple(pairs.setdefault(pair, pair) for pair in one.buckets))
                for series, one in made.items()
            }
        return replace(frame, histograms=made)
