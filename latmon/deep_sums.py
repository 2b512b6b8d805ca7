"""What the deep probes told of several frames, added up.

Merging is addition, and a frame that was added can be taken away again, exactly. Facts that don't add up (who a thread
is, who shares a vector, how many requests are traced) are the latest ones. Knows neither time nor file.

The values that a sum gives are made of it when they are read: they are its own until the next frame is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar

from latmon.deep_flat import GROUPS, Counted, Facts, Flat, Key, flatten
from latmon.histogram import EMPTY, Histogram, bucket_bounds
from latmon.model import Flow, Frame, Handler, HandlerRuns, Series, SoftirqCpu, SoftirqRuns, Thread, Traced, Wakeups
from latmon.packed import UNKNOWN, WIDTH, Packed, Part
from latmon.tally import Peak, Tally

K = TypeVar("K")
V = TypeVar("V")


class TableSum(Mapping[K, Histogram]):
    """The running sum of one table; read as a mapping, whose histograms are made once per frame."""

    def __init__(self) -> None:
        self.tallies: dict[K, Tally] = {}
        self._peaks: dict[K, Peak] = {}
        self._made: dict[K, Histogram] = {}

    def add(self, table: Packed[K], stamp: int) -> None:
        self._made = {}
        for key, part in table.parts():
            if part.begin == part.end:
                continue
            tally = self.tallies.get(key)
            if tally is None:
                tally = self.tallies[key] = Tally()
            counts, base = tally.counts, part.base
            for slot, n in zip(table.slots[part.begin : part.end], table.counts[part.begin : part.end], strict=True):
                index = slot - base
                counts[index] = counts.get(index, 0) + n
            _add_sum(tally, table, part, 1)
            if table.maxima:
                self._peak(key, stamp, table, part)

    def remove(self, table: Packed[K], stamp: int) -> list[K]:
        """The keys that nothing is left of."""
        self._made = {}
        gone = []
        for key, part in table.parts():
            if part.begin == part.end:
                continue
            tally = self.tallies[key]
            counts, base = tally.counts, part.base
            for slot, n in zip(table.slots[part.begin : part.end], table.counts[part.begin : part.end], strict=True):
                index = slot - base
                left = counts[index] - n
                if left:
                    counts[index] = left
                else:
                    del counts[index]
            _add_sum(tally, table, part, -1)
            if not counts:
                del self.tallies[key]
                self._peaks.pop(key, None)
                gone.append(key)
            elif key in self._peaks:
                self._peaks[key].forget(stamp)
        return gone

    def packed(self) -> Packed[K]:
        """The sum as a table of its own."""
        return Packed.of(dict(self.items()))

    def __getitem__(self, key: K) -> Histogram:
        made = self._made.get(key)
        if made is None:
            peak = self._peaks.get(key)
            made = self._made[key] = self.tallies[key].histogram(peak.maximum() if peak else None)
        return made

    def __iter__(self) -> Iterator[K]:
        return iter(self.tallies)

    def __len__(self) -> int:
        return len(self.tallies)

    def _peak(self, key: K, stamp: int, table: Packed[K], part: Part) -> None:
        peak = self._peaks.get(key)
        if peak is None:
            peak = self._peaks[key] = Peak()
        top = table.maxima[part.row]
        if top != UNKNOWN:
            peak.known_one(stamp, top)
        else:
            peak.bound(stamp, bucket_bounds(table.slots[part.end - 1] - part.base)[1] - 1)


class _Buckets(Mapping[K, Mapping[int, int]]):
    """A table's sums per bucket, with nothing made of them."""

    def __init__(self, table: TableSum[K]) -> None:
        self._tallies = table.tallies

    def __getitem__(self, key: K) -> Mapping[int, int]:
        return self._tallies[key].counts

    def __iter__(self) -> Iterator[K]:
        return iter(self._tallies)

    def __len__(self) -> int:
        return len(self._tallies)
