"""Bound of the threads with rows of wake-ups in a report: a long recording may see any number of them."""

from __future__ import annotations

from dataclasses import replace

from latmon.model.measurements import WAKEUPS
from latmon.model.measurements.wakeups import ThreadNumber
from latmon.model.packed_frame import PackedFrame

MAX_THREADS = 10_000


class WakeupBound:
    """Threads whose wake-ups are summed: the first MAX_THREADS; wake-ups of the others are only counted."""

    def __init__(self) -> None:
        self.left_out = 0
        """Wake-ups of other threads."""
        self._threads: set[ThreadNumber] = set()

    def bounded(self, packed: PackedFrame) -> PackedFrame:
        """Return the tables without the wake-ups of new threads beyond the limit."""
        wakeups = packed.tables.get(WAKEUPS)
        if wakeups is None:
            return packed
        delays = wakeups.histograms[WAKEUPS.place_of("delay")]
        room = MAX_THREADS - len(self._threads)
        new = [thread for thread in delays if thread not in self._threads]
        self._threads.update(new[:room])
        if len(new) <= room:
            return packed
        self.left_out += sum(delays[thread].count for thread in new[room:])
        return replace(packed, tables={**packed.tables, WAKEUPS: wakeups.only(self._threads)})
