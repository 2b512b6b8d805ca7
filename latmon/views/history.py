"""The history of a screen: the store, and sums over the selected window.

Frames come in, sums are read. The live edge is one; a look at an earlier time is another one, made for that time.
Knows no panel, no key and no size.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from latmon.aggregate.accumulator import DepthSum
from latmon.aggregate.history import Store, Window
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.window import STRETCHES, DeepWindow, DepthWindow, Trends
from latmon.analysis.attribution import Folded, fold
from latmon.analysis.peers import INTERVALS, unlike
from latmon.model.frame import OPS, Device, Frame
from latmon.model.inflight import Ages, Issue
from latmon.timetravel.archive import Past
from latmon.timetravel.events import Before, Moment, moments

T = TypeVar("T")


def needed_from(at_us: int, window_us: int, interval_us: int) -> int:
    """Return since when frames are needed to show a window that ends at `at_us`, its comparison of peers included."""
    part_us = at_us * INTERVALS // window_us * window_us // INTERVALS
    return part_us - window_us - 2 * interval_us


class History:
    """The past as far as it is shown."""

    def __init__(
        self, window_us: int, ops: tuple[str, ...], store: Store | None = None, waiting: Waiting | None = None
    ) -> None:
        self.store = store or Store()
        self._compared: tuple[int, dict[str, float]] = (-1, {})
        self._due_us = -1
        self._traced_us: int | None = None
        self._made: dict[Hashable, Any] = {}
        self._deep_until_us = 0
        self._waiting = waiting or Waiting()
        self.ages = Ages()
        """What has not completed at the end of what is shown."""
        self.is_glimpse = False
        """Whether only frames in memory are known, without ages, depths and deep values."""
        self.look(window_us, ops)

    @property
    def until_us(self) -> int:
        """Where what is shown ends."""
        return self.window.last.mono_us if self.window.last else 0

    @property
    def begin_us(self) -> int:
        """Return where the oldest frame of the window begins; 0 before the first frame."""
        frames = self.window.frames
        return frames[0].mono_us - frames[0].dt_us if frames else 0

    @property
    def deep(self) -> DeepWindow:
        """The same window over what the deep probes told; summed up to now only when it is asked for."""
        if self._deep_until_us != self.until_us:
            self._deep_until_us = self.until_us
            self._deep.advance(self.until_us)
        return self._deep

    @property
    def folded(self) -> list[Folded]:
        """The window's outliers, identical neighbours as one; made once per frame."""
        return self.made("folded", lambda: fold(self.deep.outliers))

    def made(self, what: Hashable, make: Callable[[], T]) -> T:
        """What panels and keys make of the sums: made once per frame that is shown. `what` names all it depends on."""
        if what not in self._made:
            self._made[what] = make()
        found: T = self._made[what]
        return found

    @property
    def depth_window(self) -> DepthWindow:
        """How many I/Os devices had outstanding, in the window; summed up to now only when it is asked for."""
        self._depths.advance(self.until_us)
        return self._depths

    def depth_sum(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """The same of one device as one; None where nobody counted."""
        return self.depth_window.read(device, brief=brief)

    def issues(self, device: str) -> tuple[Issue, ...]:
        """The last burst of requests as they went to its driver."""
        return self.store.depths.burst(device, self.until_us)

    @property
    def any_traced(self) -> bool:
        """Whether a request was traced in the window; asks no sum."""
        return self._traced_us is not None and self._traced_us > self.until_us - self.window.length_us

    @property
    def interval_us(self) -> int:
        origin = self.store.origin
        return origin.interval_us if origin else 1_000_000

    @property
    def origin_us(self) -> int | None:
        """Where the capture began."""
        origin = self.store.origin
        return origin.start_mono_us if origin and origin.start_mono_us else None

    def moments(self) -> list[Moment]:
        """What happened beside the I/O in the window."""
        return self.made("moments", self._moments)

    def _moments(self) -> list[Moment]:
        found: list[Moment] = []
        before: Before | None = None
        for frame in self.window.frames:
            found += moments(frame, before)
            before = Before(frame.mono_us, frame.wall)
        return found

    def glimpse(self, at_us: int, window_us: int, ops: tuple[str, ...], past: Past) -> History | None:
        """Return the history at the end of an earlier frame from the frames in memory; None where they are too few."""
        frames, after_us = self.store.frames, needed_from(at_us, window_us, self.interval_us)
        if not frames or not len(past.stamps) or frames[-1].mono_us < at_us:
            return None
        if frames[0].mono_us > max(after_us + self.interval_us, past.stamps[0].mono_us):
            return None
        other = History(window_us, ops, self.store.until(after_us, at_us, past.known(after_us)))
        other.is_glimpse = True
        if (other._due_us, window_us, ops) == (self._due_us, self.window.length_us, self._ops):
            other._compared = self._compared  # peers are compared at most every tenth second, for 20 ms
        return other if other.window.frames else None

    def append(self, frame: Frame) -> Frame:
        """One more frame, kept at once; returned as it is kept."""
        kept = self.recall(frame)
        self.ages = self._waiting.ages
        self.window.advance(kept)
        return kept

    def move(self, window: Window) -> None:
        """What was recalled is all: the sums over it, by a window of the same length that is moved here."""
        window.move(self.store.frames)
        self.window, self.ages = window, self._waiting.ages
        self._deep_until_us = 0

    def recall(self, frame: Frame) -> Frame:
        """As `append`, without the sums of the window; `move` gives them."""
        if self.store.frames and frame.mono_us < self.store.frames[-1].mono_us:  # another boot
            self._waiting = Waiting()
        self._waiting.add(frame)
        kept = self.store.append(frame)
        if frame.traced.one_in:
            self._traced_us = frame.mono_us
        self._made = {}
        self.trends.advance(kept)
        self._compare(kept)
        return kept

    def look(self, window_us: int, ops: tuple[str, ...]) -> None:
        """Sum anew, over another window or other ops."""
        self._ops = ops
        frames, stretch_us = self.frames(), max(window_us // STRETCHES, 1)
        last_us = frames[-1].mono_us if frames else 0
        self.window = Window(window_us, (one for one in frames if one.mono_us > last_us - window_us))
        recent_us = last_us - window_us - 2 * stretch_us
        self.trends = Trends(stretch_us, ops, (one for one in frames if one.mono_us > recent_us))
        self._begin_deep()
        self._part = -1
        self._compared = (-1, {})
        for one in frames:
            self._compare(one)

    def keep_deep(self, groups: Iterable[str]) -> Iterator[None]:
        """Sum groups of deep values that will be read again, in steps of some milliseconds."""
        yield from self.deep.keep(groups)

    def _begin_deep(self, deep: DeepWindow | None = None) -> None:
        length_us = self.window.length_us
        self._deep = deep or DeepWindow(length_us, self.store.deep, self.until_us)
        self._depths = DepthWindow(length_us, self.store.depths, self.until_us)
        self._made = {}
        self._deep_until_us = self.until_us

    def fork(self) -> History:
        """Return what is shown now as a history that stays so; this one goes on by itself."""
        still, deep = copy(self), self._deep
        self.store = self.store.copy()
        self.window = self.window.copy()
        self.trends = self.trends.copy()
        self._waiting = self._waiting.copy()
        self._begin_deep(deep.copy(self.store.deep))
        return still

    def frames(self) -> list[Frame]:
        """All that may be shown, oldest first."""
        return list(self.store.frames)

    def devices(self) -> list[Device]:
        """The devices that are here, and those that are gone but did something in the window."""
        gone = self.store.removed
        return [d for d in self.store.devices.values() if d.name not in gone or self._remembers(d.name)]

    def _remembers(self, name: str) -> bool:
        return any((c := self.window.completed(name, op)) and c.count for op in OPS)

    def _compare(self, frame: Frame) -> None:
        """The device unlike its peers is looked for anew with each part of the window that is over."""
        part = frame.mono_us * INTERVALS // self.window.length_us
        if part != self._part:
            self._part, self._due_us = part, frame.mono_us

    @property
    def times_peers(self) -> dict[str, float]:
        """Device -> how many times slower its tail is than its peers', as of the last part; made when asked for."""
        due, length_us = self._due_us, self.window.length_us
        if self._compared[0] != due:
            frames = [one for one in self.store.frames if due - length_us < one.mono_us <= due]
            self._compared = (due, unlike(frames, length_us, self.store.devices, self._ops))
        return self._compared[1]
