"""What is remembered of the deep values, frame by frame and later in stretches. Beside store.py: it is kept otherwise.

A frame's deep values are hundreds of histograms (24 devices x 2 ops x 7 stages): as objects, eleven minutes of them
would be 200 MB. They are arrays of numbers, and behind the last minute ten seconds are one entry, and compressed: sums
lose nothing by that, only where a long window begins is told to a sixtieth of it. Outliers are kept as they are, the
newest 10,000.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from latmon.deep_flat import Counted, Flat, Pressed, flatten
from latmon.deep_sums import DeepSums
from latmon.model import Frame, Outlier

MAX_OUTLIERS = 10_000
"""About 9 MB; a flood at the probes' own rate limit fills them in 100 s."""
FINE_US = 60_000_000
"""So far back every frame is an entry of its own."""
COARSE_US = 10_000_000
_TIDY = 256
"""Frames between two looks at which shared keys are still used."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame's deep values, or those of a stretch that ends at `mono_us`."""

    mono_us: int
    told: Flat | Pressed | Frame
    """A frame where it is soon forgotten again: nobody may ever ask for its tables."""

    @property
    def flat(self) -> Flat:
        if isinstance(self.told, Frame):
            return flatten(self.told)
        return self.told if isinstance(self.told, Flat) else self.told.flat


def combined(parts: Sequence[Entry]) -> Entry:
    """Entries that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    sums = DeepSums()
    for one in parts:
        sums.add(one.flat, one.mono_us)
    return Entry(parts[-1].mono_us, Pressed(sums.flat))


class DeepLog:
    """What the store keeps of deep values; `forget` follows the store's own frames."""

    def __init__(self, max_outliers: int = MAX_OUTLIERS, *, brief: bool = False) -> None:
        self._brief = brief
        self.entries: deque[Entry] = deque()
        self.keys: dict[Any, Any] = {}
        """Rows of tables, and what is in them: one object for all frames that have the same."""
        self._appended = 0
        self._ageing: list[Entry] = []
        self._old: deque[Entry] = deque()
        self._outliers: deque[tuple[int, Outlier]] = deque(maxlen=max_outliers)

    def append(self, frame: Frame) -> None:
        self.entries.append(Entry(frame.mono_us, frame if self._brief else self._shared(flatten(frame))))
        self._outliers.extend((frame.mono_us, one) for one in frame.outliers)
        while self.entries[0].mono_us <= frame.mono_us - FINE_US:
            self._age(self.entries.popleft())
        self._appended += 1
        if self._appended % _TIDY == 0 and not self._brief:
            self.keys = {part: part for one in self.every() for rows in _rows(one.told) for part in (rows, *rows)}

    def copy(self) -> DeepLog:
        """Return another one with the same entries, which goes on by itself."""
        other = DeepLog(brief=self._brief)
        other.entries, other._old, other._outliers = self.entries.copy(), self._old.copy(), self._outliers.copy()
        other._ageing, other.keys, other._appended = self._ageing.copy(), self.keys.copy(), self._appended
        return other

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        while self._outliers and self._outliers[0][0] < before_us:
            self._outliers.popleft()

    def _shared(self, flat: Flat) -> Flat:
        """The same with keys and facts that earlier frames have too."""
        before = self.entries[-1].flat.facts if self.entries else None
        for table in flat.tables.values():
            table.rows = self._known(table.rows)
        counted = {group: Counted(self._known(some.keys), some.counts) for group, some in flat.counted.items()}
        return Flat(flat.tables, counted, flat.facts if before is None or before != flat.facts else before)

    def _known(self, rows: tuple[Any, ...]) -> tuple[Any, ...]:
        found: tuple[Any, ...] | None = self.keys.get(rows)
        if found is None:
            found = tuple(self.keys.setdefault(one, one) for one in rows)
            self.keys[found] = found
        return found

    def every(self) -> list[Entry]:
        """All that is kept, oldest first."""
        return [*self._old, *self._ageing, *self.entries]

    def _age(self, one: Entry) -> None:
        if self._ageing and one.mono_us // COARSE_US != self._ageing[-1].mono_us // COARSE_US:
            self._old.append(combined(self._ageing))
            self._ageing = []
        self._ageing.append(one)

    def clear(self) -> None:
        for one in (self.entries, self._ageing, self._old, self._outliers, self.keys):
            one.clear()

    def outliers(self, after_us: int, until_us: int) -> tuple[Outlier, ...]:
        """Those of the frames that end behind `after_us` and not behind `until_us`, oldest first."""
        return tuple(one for stamp, one in self._outliers if after_us < stamp <= until_us)

    def between(self, after_us: int, until_us: int) -> list[Entry]:
        """Entries that end behind `after_us` and not behind `until_us`."""
        every = self.entries if self.entries and after_us >= self.entries[0].mono_us else self.every()
        return [one for one in every if after_us < one.mono_us <= until_us]


def _rows(told: Flat | Pressed | Frame) -> Iterator[tuple[Any, ...]]:
    if isinstance(told, Pressed):
        yield from told.keys
        return
    if isinstance(told, Frame):
        return
    yield from (table.rows for table in told.tables.values())
    yield from (some.keys for some in told.counted.values())
