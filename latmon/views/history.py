"""The history of a screen: the store of frames, and sums over the selected window.

The live edge has one history; an earlier time has another one, made for that time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

from latmon.aggregate.histogram_sum import DepthSum
from latmon.aggregate.history import Store, Window
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.window import PERIODS, DepthWindow, OnDemandWindow, Trends
from latmon.analysis.attribution import Folded, fold
from latmon.analysis.peers import INTERVALS, unlike
from latmon.model.frame import OPS, Device, Frame
from latmon.model.inflight import Ages, Issue
from latmon.recording.archive import Before, Past, TimelineEvent, moments

T = TypeVar("T")


def needed_from(at_us: int, window_us: int, interval_us: int, reach_us: int = 0) -> int:
    """Return since when frames are needed to show a window that ends at `at_us`, its comparison of peers included.

    `reach_us`: the time that the map of another size shows.
    """
    part_us = at_us * INTERVALS // window_us * window_us // INTERVALS
    return min(part_us - window_us - 2 * interval_us, at_us - reach_us)


def near(windows: Iterable[Window | None], at_us: int, length_us: int) -> Window | None:
    """Return the window closest to one that ends at `at_us`; None where a new one is cheaper."""
    found: Window | None = None
    closest_us = length_us // 3
    for window in windows:
        if window is not None and window.length_us == length_us and window.last is not None:
            distance_us = abs(window.last.mono_us - at_us)
            if distance_us < closest_us:
                found, closest_us = window, distance_us
    return found


class History:
    """The frames and sums that the screen shows."""

    def __init__(
        self,
        window_us: int,
        ops: tuple[str, ...],
        store: Store | None = None,
        waiting: Waiting | None = None,
        window: Window | None = None,
    ) -> None:
        """`window`: one of the same length that is moved to the end of the store."""
        self.store = store or Store()
        self._compared: tuple[int, dict[str, float]] = (-1, {})
        self._due_us = -1
        self._traced_us: int | None = None
        self._made: dict[Hashable, Any] = {}
        self._on_demand_until_us = 0
        self._waiting = waiting or Waiting()
        self.ages = Ages()
        """I/Os in flight at the end of the window."""
        self.is_partial = False
        """Whether only sums of frames are known, without traced values; of frames in memory without ages and depths."""
        self._coming: Iterator[None] | None = None
        """Sums that are missing after `look`, in steps of some milliseconds."""
        self.is_cut = False
        """Whether the archive has frames before the oldest one here."""
        if window is None:
            window = Window(window_us)
        window.move(self.store.frames)
        self._sum(window, ops)

    @property
    def until_us(self) -> int:
        """Return the end of the window in us; 0 before the first frame."""
        return self.window.last.mono_us if self.window.last else 0

    @property
    def begin_us(self) -> int:
        """Return where the oldest frame of the window begins; 0 before the first frame."""
        frames = self.window.frames
        return frames[0].mono_us - frames[0].dt_us if frames else 0

    @property
    def on_demand(self) -> OnDemandWindow:
        """Return the traced values of the window; they are summed only when they are read."""
        if self._on_demand_until_us != self.until_us:
            self._on_demand_until_us = self.until_us
            self._on_demand.advance(self.until_us)
        return self._on_demand

    @property
    def folded(self) -> list[Folded]:
        """Return the window's outliers with identical neighbours folded; made once per frame."""
        return self.made("folded", lambda: fold(self.on_demand.outliers))

    def made(self, what: Hashable, make: Callable[[], T]) -> T:
        """Return a value derived from the sums, made once per frame. `what` names all that it depends on."""
        if what not in self._made:
            self._made[what] = make()
        found: T = self._made[what]
        return found

    @property
    def depth_window(self) -> DepthWindow:
        """Return the depths of the window; they are summed only when they are read."""
        self._depths.advance(self.until_us)
        return self._depths

    def depth_sum(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """Return the sum of a device's depths over the window; None where they are not measured."""
        return self.depth_window.read(device, brief=brief)

    def issues(self, device: str) -> tuple[Issue, ...]:
        """Return the last burst of issues to a device's driver."""
        return self.store.depths.burst(device, self.until_us)

    @property
    def any_traced(self) -> bool:
        """Return whether a request was traced in the window; needs no sum."""
        return self._traced_us is not None and self._traced_us > self.until_us - self.window.length_us

    @property
    def interval_us(self) -> int:
        origin = self.store.origin
        return origin.interval_us if origin else 1_000_000

    @property
    def origin_us(self) -> int | None:
        """Return the begin of the capture in us; None where it isn't known."""
        origin = self.store.origin
        return origin.start_mono_us if origin and origin.start_mono_us else None

    def moments(self) -> list[TimelineEvent]:
        """Return the events of the window."""
        return self.made("moments", self._moments)

    def _moments(self) -> list[TimelineEvent]:
        found: list[TimelineEvent] = []
        before: Before | None = None
        for frame in self.window.frames:
            found += moments(frame, before)
            before = Before(frame.mono_us, frame.wall)
        return found

    def from_memory(
        self,
        at_us: int,
        window_us: int,
        ops: tuple[str, ...],
        past: Past,
        *,
        window: Window | None = None,
        reach_us: int = 0,
    ) -> History | None:
        """Return the history at the end of an earlier frame from the frames in memory; None where they are too few.

        `window`: as in the constructor; `reach_us`: the time that the map shows, as far as it is in memory.
        """
        frames, after_us = self.store.frames, needed_from(at_us, window_us, self.interval_us)
        if not frames or not len(past.stamps) or frames[-1].mono_us < at_us:
            return None
        if frames[0].mono_us > max(after_us + self.interval_us, past.stamps[0].mono_us):
            return None
        store = self.store.until(min(after_us, at_us - reach_us), at_us, past.known(after_us))
        other = History(window_us, ops, store, window=window and window.copy())
        other.is_partial = True
        if (other._due_us, window_us, ops) == (self._due_us, self.window.length_us, self._ops):
            other._compared = self._compared  # peers are compared at most every tenth second, for 20 ms
        return other if other.window.frames else None

    def append(self, frame: Frame) -> Frame:
        """Add a frame; return it as it is stored."""
        kept = self.recall(frame)
        self.ages = self._waiting.ages
        self.window.advance(kept)
        return kept

    def move(self, window: Window) -> None:
        """Sum the frames that were recalled, by a window of the same length that is moved here."""
        window.move(self.store.frames)
        self.window, self.ages = window, self._waiting.ages
        self._on_demand_until_us = 0

    def recall(self, frame: Frame) -> Frame:
        """Add a frame without the sums of the window; `move` makes them."""
        self.complete()
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
        """Show another window or other ops; `proceed` sums the traced values of another window."""
        if window_us != self.window.length_us:
            self.complete()
            groups = self.on_demand.groups
            self._sum(self.window.resized(window_us, self.store.frames), ops)
            self._coming, self.is_partial = self.keep_on_demand(groups), True
        elif ops != self._ops:
            self._show(ops)

    @property
    def is_summing(self) -> bool:
        """Return whether `proceed` has something to do."""
        return self._coming is not None

    def proceed(self) -> None:
        """Sum some of what is missing."""
        if self._coming is not None and next(self._coming, self) is self:
            self._coming, self.is_partial, self._made = None, False, {}

    def complete(self) -> None:
        """Sum all that is missing, before the frames change."""
        while self._coming is not None:
            self.proceed()

    def _sum(self, window: Window, ops: tuple[str, ...]) -> None:
        """Sum over a window that was moved to the end of the store."""
        self.window = window
        self._begin_on_demand()
        self._show(ops)

    def _show(self, ops: tuple[str, ...]) -> None:
        """Compute what depends on the ops; sums over the window are of each op."""
        self._ops, self._made = ops, {}
        length_us = self.window.length_us
        frames, period_us = self.frames(), max(length_us // PERIODS, 1)
        recent_us = self.until_us - length_us - 2 * period_us
        self.trends = Trends(period_us, ops, (one for one in frames if one.mono_us > recent_us))
        self._part = -1
        self._compared = (-1, {})
        for one in frames:
            self._compare(one)

    def keep_on_demand(self, groups: Iterable[str]) -> Iterator[None]:
        """Sum groups of traced values that will be read again, in steps of some milliseconds."""
        yield from self.on_demand.keep(groups)

    def _begin_on_demand(self, on_demand: OnDemandWindow | None = None) -> None:
        length_us = self.window.length_us
        self._on_demand = on_demand or OnDemandWindow(length_us, self.store.on_demand, self.until_us)
        self._depths = DepthWindow(length_us, self.store.depths, self.until_us)
        self._made = {}
        self._on_demand_until_us = self.until_us

    def fork(self) -> History:
        """Return the present state as a history that doesn't change; this one continues."""
        self.complete()
        frozen, on_demand = copy(self), self._on_demand
        self.store = self.store.copy()
        self.window = self.window.copy()
        self.trends = self.trends.copy()
        self._waiting = self._waiting.copy()
        self._begin_on_demand(on_demand.copy(self.store.on_demand))
        return frozen

    def frames(self) -> list[Frame]:
        """Return all stored frames, oldest first."""
        return list(self.store.frames)

    def devices(self) -> list[Device]:
        """Return the present devices, and the removed ones with I/Os in the window."""
        return self.made("devices", self._present)

    def _present(self) -> list[Device]:
        gone = self.store.removed
        return [d for d in self.store.devices.values() if d.name not in gone or self._remembers(d.name)]

    def _remembers(self, name: str) -> bool:
        return any((c := self.window.completed(name, op)) and c.count for op in OPS)

    def _compare(self, frame: Frame) -> None:
        """Make the comparison of peers due with each completed part of the window."""
        part = frame.mono_us * INTERVALS // self.window.length_us
        if part != self._part:
            self._part, self._due_us = part, frame.mono_us

    @property
    def times_peers(self) -> dict[str, float]:
        """Return device -> how many times slower its tail is than its peers', as of the last part; made on reading."""
        if self.is_summing:
            return {}
        due, length_us = self._due_us, self.window.length_us
        if self._compared[0] != due:
            frames = [one for one in self.store.frames if due - length_us < one.mono_us <= due]
            self._compared = (due, unlike(frames, length_us, self.store.devices, self._ops))
        return self._compared[1]
