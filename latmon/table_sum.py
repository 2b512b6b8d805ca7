"""The running sum of packed histograms over a window: what comes is added, what leaves it is taken away again, exactly.

Knows no frame and no time but the stamps that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from latmon.histogram import Histogram
from latmon.packed import Packed, Part
from latmon.tally import Peak, Running

K = TypeVar("K")


class TableSum(Mapping[K, Histogram]):
    """The running sum of one table; read as a mapping, whose histograms are made once per frame."""

    def __init__(self, wanted: Callable[[K], bool] | None = None, *, peaks: bool = True) -> None:
        self.tallies: dict[K, Running] = {}
        self._wanted = wanted
        self._peaks: dict[K, Peak] | None = {} if peaks else None
        self._made: dict[K, Histogram] = {}

    def copy(self) -> TableSum[K]:
        """Return another one with the same sums, which goes on by itself."""
        other = TableSum(self._wanted, peaks=self._peaks is not None)
        other.tallies = {key: replace(one, counts=one.counts.copy()) for key, one in self.tallies.items()}
        if self._peaks is not None:
            other._peaks = {key: Peak(one.known.copy(), one.bounds.copy()) for key, one in self._peaks.items()}
        return other

    def add(self, table: Packed[K], stamp: int) -> None:
        for key, part in self._parts(table):
            tally = self.tallies.get(key)
            if tally is None:
                tally = self.tallies[key] = Running()
            indices = table.indices[part.begin : part.end]
            tally.add(indices, table.counts[part.begin : part.end], table.known(table.sums, part.row))
            if self._peaks is not None:
                peak = self._peaks.get(key) or self._peaks.setdefault(key, Peak())
                peak.see(stamp, table.known(table.maxima, part.row), indices[-1])

    def remove(self, table: Packed[K], stamp: int) -> list[K]:
        """The keys that nothing is left of."""
        gone = []
        for key, part in self._parts(table):
            tally = self.tallies.get(key)
            if tally is None:  # sums of 0 leave with the first of them
                continue
            span = slice(part.begin, part.end)
            tally.remove(table.indices[span], table.counts[span], table.known(table.sums, part.row))
            if not tally.counts:
                del self.tallies[key]
                gone.append(key)
            if self._peaks is None:
                continue
            if tally.counts:
                self._peaks[key].forget(stamp)
            else:
                del self._peaks[key]
        return gone

    def __getitem__(self, key: K) -> Histogram:
        made = self._made.get(key)
        if made is None:
            peak = self._peaks[key].maximum() if self._peaks is not None else None
            made = self._made[key] = self.tallies[key].histogram(peak)
        return made

    def __iter__(self) -> Iterator[K]:
        return iter(self.tallies)

    def __len__(self) -> int:
        return len(self.tallies)

    def _parts(self, table: Packed[K]) -> Iterator[tuple[K, Part]]:
        """The rows that hold something; what was made of the sum holds no longer."""
        self._made = {}
        wanted = self._wanted
        return ((key, part) for key, part in table.parts() if part.begin < part.end and (wanted is None or wanted(key)))
