"""A window over the deep values with running sums, of those alone that somebody asks for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from latmon.deep_flat import Flat
from latmon.deep_log import DeepLog, Entry, combined
from latmon.deep_sums import DeepSums, traced_of
from latmon.histogram import Histogram, merge
from latmon.model import Flow, Handler, HandlerRuns, Outlier, Series, SoftirqCpu, SoftirqRuns, Traced, Wakeups

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
        self._open: list[Entry] = []
        self._taken: deque[Entry] = deque()
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

    def _each(self, entry: Entry) -> Iterator[tuple[Flat, DeepSums]]:
        """An entry and the sums that it is to be added to: it isn't opened where there are none."""
        if self._sums:
            flat = entry.flat
            yield from ((flat, sums) for sums in self._sums.values())

    def _take(self, entry: Entry) -> None:
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
