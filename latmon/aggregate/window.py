"""A span of the history with lazily computed sums, for the devices that a screen shows.

A window of more than a minute forgets in the log's stretches: `span_us` of a sum is how much time it really is of.

Stretches are several seconds long and lie still; a line of text that moves each second costs more than it tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from latmon.aggregate.accumulator import DeepSums, DepthSum, traced_of
from latmon.aggregate.history import DeepLog, DepthEntry, DepthLog, TracedEntry, combined
from latmon.model.frame import (
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Outlier,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Traced,
    Wakeups,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.packed import Flat

PATIENCE = 8
"""A sum that nobody read in so many steps is given up."""
_STEPS = 60
"""A window forgets in so many steps: up to a minute of seconds that is frame by frame."""


class DeepWindow:
    """Sums of the deep values over the last `length_us` of a log, up to the frame that ends at `until_us`.

    Read its properties; each is made once per frame and holds until the next one. A group of tables is summed from the
    moment on when one of them is read, and no longer when none was read for a while.
    """

    def __init__(self, length_us: int, log: DeepLog, until_us: int | None = None) -> None:
        self.length_us = length_us
        self._log = log
        self._reset()
        last = log.entries[-1].mono_us if log.entries else -1
        self.advance(last if until_us is None else until_us)

    def _reset(self) -> None:
        self._sums: dict[str, DeepSums] = {}
        self._unread: dict[str, int] = {}
        self._open: list[TracedEntry] = []
        self._taken: deque[TracedEntry] = deque()
        self._delays: deque[tuple[int, Mapping[str, Histogram]]] = deque()
        self._until_us = -1

    def advance(self, until_us: int) -> None:
        """Up to the frame that ends at `until_us`; frames that end before the window begins leave it."""
        if until_us < self._until_us:  # another boot
            self._reset()
        self._give_up()
        begin = until_us - self.length_us
        if self._open and self._open[-1].mono_us <= begin:
            self._close()
        for entry in self._log.between(max(self._until_us, begin), until_us):
            for flat, sums in self._each(entry):
                sums.add(flat, entry.mono_us)
            self._take(entry)
        while self._taken and self._taken[0].mono_us <= begin:
            gone = self._taken.popleft()
            for flat, sums in self._each(gone):
                sums.remove(flat, gone.mono_us)
        self._until_us = until_us
        for name in _CACHED:
            self.__dict__.pop(name, None)

    def copy(self, log: DeepLog) -> DeepWindow:
        """Return another one with the same sums over a copy of the log, which goes on by itself."""
        other = DeepWindow(self.length_us, log, self._until_us)
        other._sums = {group: sums.copy() for group, sums in self._sums.items()}
        other._unread = dict.fromkeys(other._sums, 0)
        other._open, other._taken = self._open.copy(), self._taken.copy()
        return other

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups of tables that are summed now."""
        return tuple(self._sums)

    def keep(self, groups: Iterable[str]) -> Iterator[None]:
        """Sum these groups as if they were read now, an entry with each step."""
        missing = {group: DeepSums(groups=(group,)) for group in groups if group not in self._sums}
        for entry in (*self._taken, *self._open) if missing else ():
            flat = entry.flat
            for sums in missing.values():
                sums.add(flat, entry.mono_us)
            yield
        self._sums |= missing
        self._unread = dict.fromkeys(self._sums, 0)

    def _each(self, entry: TracedEntry) -> Iterator[tuple[Flat, DeepSums]]:
        """An entry and the sums that it is to be added to: it isn't opened where there are none."""
        if self._sums:
            flat = entry.flat
            yield from ((flat, sums) for sums in self._sums.values())

    def _take(self, entry: TracedEntry) -> None:
        """Remember what is to be taken away again, a step at a time."""
        step = max(self.length_us // _STEPS, 1)
        if self._open and entry.mono_us // step != self._open[-1].mono_us // step:
            self._close()
        self._open.append(entry)

    def _close(self) -> None:
        self._taken.append(combined(self._open))
        self._open = []

    def _give_up(self) -> None:
        for group in list(self._sums):
            self._unread[group] += 1
            if self._unread[group] > PATIENCE:
                del self._sums[group]

    def _read(self, group: str) -> DeepSums:
        """The group's sums, begun now where nobody asked for them of late."""
        self._unread[group] = 0
        sums = self._sums.get(group)
        if sums is None:
            sums = self._sums[group] = DeepSums(groups=(group,))
            for entry in (*self._taken, *self._open):
                sums.add(entry.flat, entry.mono_us)
        return sums

    @cached_property
    def traced(self) -> Traced:
        """All that was traced; `one_in` and `devices` as they are now: `one_in` 0 says that the probes don't run."""
        return traced_of(self._read)

    @cached_property
    def basic(self) -> Mapping[Series, Histogram]:
        """The stages that the always-on probe measured, a population of its own; `total` is the window's."""
        return self._read("basic").basic

    @cached_property
    def handlers(self) -> Mapping[Handler, HandlerRuns]:
        return self._read("interrupts").handlers

    @cached_property
    def softirqs(self) -> Mapping[SoftirqCpu, SoftirqRuns]:
        return self._read("interrupts").softirqs

    @cached_property
    def wakeups(self) -> tuple[Wakeups, ...]:
        return self._read("wakeups").wakeups

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        """Newest last; the newest 10,000 of the history at most."""
        return self._log.outliers(self._until_us - self.length_us, self._until_us)

    @cached_property
    def above(self) -> Mapping[Flow, int]:
        """I/Os above the threshold, each of them."""
        return self._read("always").above

    @property
    def suppressed(self) -> int:
        return self._read("always").suppressed

    @property
    def thresholds_us(self) -> Mapping[str, int]:
        """As they are now."""
        return self._read("always").thresholds_us

    @cached_property
    def delays(self) -> list[tuple[int, Mapping[str, Histogram]]]:
        """For a heat map: (a frame's `mono_us`, softirq vector -> raise to entry on all CPUs), oldest first."""
        begin = self._until_us - self.length_us
        while self._delays and self._delays[0][0] <= begin:
            self._delays.popleft()
        told = self._delays[-1][0] if self._delays else begin
        for entry in self._log.between(max(told, begin), self._until_us):
            self._delays.append((entry.mono_us, _delays(entry.flat)))
        return list(self._delays)


_CACHED = tuple(name for name, value in vars(DeepWindow).items() if isinstance(value, cached_property))


def _delays(flat: Flat) -> Mapping[str, Histogram]:
    found: dict[str, list[Histogram]] = {}
    table = flat.tables.get("delay")
    if table is not None:
        for where, one in zip(table.rows, table.values_in_order(), strict=True):
            found.setdefault(where.vector, []).append(one)
    return {vector: merge(parts) for vector, parts in found.items()}


"""A sum that nobody read in so many steps is given up."""


class DepthWindow:
    """Sums over the last `length_us` of a log; it is only brought up to date when it is asked."""

    def __init__(self, length_us: int, log: DepthLog, until_us: int = 0) -> None:
        self.length_us = length_us
        self._log = log
        self._sums: dict[str, DepthSum] = {}
        self._unread: dict[str, int] = {}
        self._until_us = self._begin_us = 0
        self._restart(until_us)

    def advance(self, until_us: int) -> None:
        """Up to the frame that ends at `until_us`."""
        if until_us == self._until_us:
            return
        fine_us = self._log.fine_from_us
        if until_us < self._until_us or fine_us is None or self._until_us < fine_us:
            self._restart(until_us)
            return
        leaving = self._log.final(self._begin_us, until_us - self.length_us)
        if any(one.begin_us < self._begin_us for one in leaving[:1]):
            self._restart(until_us)
            return
        self._give_up()
        come = self._log.between(self._until_us, until_us)
        for name, sums in self._sums.items():
            for one in come:
                if name in one.told:
                    sums.add(one.told[name], one.mono_us)
            for one in leaving:
                if name in one.told:
                    sums.remove(one.told[name], one.mono_us)
        self._until_us = until_us
        self._begin_us = leaving[-1].mono_us if leaving else self._begin_us

    @property
    def entries(self) -> list[DepthEntry]:
        """Of all devices, oldest first."""
        return self._log.between(self._begin_us, self._until_us)

    def read(self, device: str, *, brief: bool = False) -> DepthSum | None:
        """The device's sum, begun now where nobody asked for it of late; None where nobody counted.

        `brief`: the latency by depth may be missing.
        """
        self._unread[device] = 0
        had = self._sums.get(device)
        if had is None or (had.brief and not brief):
            sums = self._sums[device] = DepthSum(brief=brief)
            for one in self.entries:
                if device in one.told:
                    sums.add(one.told[device], one.mono_us)
        found = self._sums[device]
        return found if found.span_us else None

    def _restart(self, until_us: int) -> None:
        """Sum anew: time went back, or the log's entries are no longer those that were added."""
        self._sums, self._unread = {}, {}
        self._until_us = until_us
        self._begin_us = until_us - self.length_us
        some = self._log.between(self._begin_us, until_us)
        if some and some[0].begin_us < self._begin_us:
            self._begin_us = some[0].begin_us

    def _give_up(self) -> None:
        for name in list(self._sums):
            self._unread[name] += 1
            if self._unread[name] > PATIENCE:
                del self._sums[name], self._unread[name]


STRETCHES = 12
"""A window has as many."""


class Trends:
    """The last stretches, for one choice of operations."""

    def __init__(self, stretch_us: int, ops: tuple[str, ...], frames: Iterable[Frame] = ()) -> None:
        self._stretch_us = stretch_us
        self._ops = frozenset(ops)
        self._stretches: deque[dict[str, float]] = deque(maxlen=STRETCHES)
        self._number = -1
        for frame in frames:
            self.advance(frame)

    def copy(self) -> Trends:
        """Return another one with the same values, which goes on by itself."""
        other = Trends(self._stretch_us, tuple(self._ops))
        other._stretches.extend(stretch.copy() for stretch in self._stretches)
        other._number = self._number
        return other

    def advance(self, frame: Frame) -> None:
        """One frame further; stretches without a frame are empty."""
        number = (frame.mono_us - frame.dt_us // 2) // self._stretch_us
        for _ in range(min(max(number - self._number, 0), STRETCHES) if self._stretches else 1):
            self._stretches.append({})
        self._number = number
        now = self._stretches[-1]
        for name, us in _slowest(frame, self._ops):
            now[name] = max(now.get(name, 0.0), us)

    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value of all devices, for one scale."""
        values = [v for stretch in self._stretches for v in stretch.values()]
        return (min(values), max(values)) if values else (1.0, 1.0)

    def of(self, device: str) -> list[float | None]:
        """Return STRETCHES values, oldest first; None where nothing was completed or no frame has come yet."""
        known = [stretch.get(device) for stretch in self._stretches]
        return [None] * (STRETCHES - len(known)) + known


def _slowest(frame: Frame, ops: frozenset[str]) -> Iterable[tuple[str, float]]:
    if frame.histograms:
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops and histogram.max_bound is not None:
                yield series.device, float(histogram.max_bound)
        return
    for flow, done in frame.kernel.items():
        if flow.op in ops and done.count and done.time_us is not None:
            yield flow.device, done.time_us / done.count
