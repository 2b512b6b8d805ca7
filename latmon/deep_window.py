"""The history of the deep values and a window over it with running sums. Beside store.py, because it is kept otherwise.

A frame's deep values are hundreds of histograms (24 devices x 2 ops x 7 stages): as objects, eleven minutes of them
would be 200 MB. They are packed, and behind the last minute ten seconds are one entry: sums lose nothing by that, only
where a long window begins is told to a sixtieth of it. Outliers are kept as they are, the newest 10,000.
"""

from __future__ import annotations

import zlib
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from latmon.deep_sums import DeepSums, Facts, Flat, Key, flatten, together
from latmon.histogram import Histogram, merge
from latmon.model import (
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

MAX_OUTLIERS = 10_000
"""About 9 MB; a flood at the probes' own rate limit fills them in 100 s."""
FINE_US = 60_000_000
"""So far back every frame is an entry of its own."""
COARSE_US = 10_000_000
_STEPS = 60
"""A window forgets in so many steps: up to a minute of seconds that is frame by frame."""
_UNKNOWN = -1
Keys = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """One frame's deep values in a few kB: the keys are shared with the frames that have the same."""

    mono_us: int
    histograms: Keys
    counts: Keys
    facts: Facts
    numbers: bytes


def pack(flat: Flat, mono_us: int, shared: dict[Keys, Keys], before: Facts | None = None) -> Packed:
    """`shared` holds the key tuples that earlier frames have, `before` is what was true in the last one."""
    facts = before if before is not None and before == flat.facts else flat.facts
    numbers = array("q", flat.counts.values())
    for one in flat.histograms.values():
        numbers.extend((len(one.buckets), _number(one.sum), _number(one.max), one.bits))
        numbers.extend(part for bucket in one.buckets for part in bucket)
    histograms, counts = (shared.setdefault(keys, keys) for keys in (tuple(flat.histograms), tuple(flat.counts)))
    # level 1: half the time of the default for 10 % more bytes
    return Packed(mono_us, histograms, counts, facts, zlib.compress(numbers.tobytes(), 1))


def unpack(packed: Packed) -> Flat:
    """What was packed."""
    numbers = array("q")
    numbers.frombytes(zlib.decompress(packed.numbers))
    at = len(packed.counts)
    counts = dict(zip(packed.counts, numbers[:at].tolist(), strict=True))
    histograms = {}
    for key in packed.histograms:
        length, total, maximum, bits = numbers[at : at + 4]
        end = at + 4 + 2 * length
        flat = numbers[at + 4 : end].tolist()
        buckets = tuple(zip(flat[::2], flat[1::2], strict=True))
        histograms[key] = Histogram(buckets, _known(total), _known(maximum), bits)
        at = end
    return Flat(histograms, counts, packed.facts)


def combined(parts: Sequence[Packed], shared: dict[Keys, Keys]) -> Packed:
    """Entries that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    return pack(together([unpack(one) for one in parts]), parts[-1].mono_us, shared, parts[-1].facts)


class DeepLog:
    """What the store keeps of deep values; `forget` follows the store's own frames."""

    def __init__(self, max_outliers: int = MAX_OUTLIERS) -> None:
        self.entries: deque[Packed] = deque()
        self.keys: dict[Keys, Keys] = {}
        self._ageing: list[Packed] = []
        self._old: deque[Packed] = deque()
        self._outliers: deque[tuple[int, Outlier]] = deque(maxlen=max_outliers)

    def append(self, frame: Frame) -> None:
        before = self.entries[-1].facts if self.entries else None
        self.entries.append(pack(flatten(frame), frame.mono_us, self.keys, before))
        self._outliers.extend((frame.mono_us, one) for one in frame.outliers)
        while self.entries[0].mono_us <= frame.mono_us - FINE_US:
            self._age(self.entries.popleft())

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        while self._outliers and self._outliers[0][0] < before_us:
            self._outliers.popleft()
        if len(self.keys) > 2 * len(self.every()) + 16:
            self.keys = {keys: keys for one in self.every() for keys in (one.histograms, one.counts)}

    def every(self) -> list[Packed]:
        """All that is kept, oldest first."""
        return [*self._old, *self._ageing, *self.entries]

    def _age(self, one: Packed) -> None:
        if self._ageing and one.mono_us // COARSE_US != self._ageing[-1].mono_us // COARSE_US:
            self._old.append(combined(self._ageing, self.keys))
            self._ageing = []
        self._ageing.append(one)

    def clear(self) -> None:
        for one in (self.entries, self._ageing, self._old, self._outliers, self.keys):
            one.clear()

    def outliers(self, after_us: int, until_us: int) -> tuple[Outlier, ...]:
        """Those of the frames that end behind `after_us` and not behind `until_us`, oldest first."""
        return tuple(one for stamp, one in self._outliers if after_us < stamp <= until_us)

    def between(self, after_us: int, until_us: int) -> list[Packed]:
        """Entries that end behind `after_us` and not behind `until_us`."""
        every = self.entries if self.entries and after_us >= self.entries[0].mono_us else self.every()
        return [one for one in every if after_us < one.mono_us <= until_us]


class DeepWindow:
    """Sums of the deep values over the last `length_us` of a log, up to the frame that ends at `until_us`.

    Read its properties; each is made once per frame. Nothing is summed that nobody advanced to.
    """

    def __init__(self, length_us: int, log: DeepLog, until_us: int | None = None) -> None:
        self.length_us = length_us
        self._log = log
        self._reset()
        last = log.entries[-1].mono_us if log.entries else -1
        self.advance(last if until_us is None else until_us)

    def _reset(self) -> None:
        self._sums = DeepSums()
        self._open: list[Packed] = []
        self._taken: deque[Packed] = deque()
        self._delays: deque[tuple[int, Mapping[str, Histogram]]] = deque()
        self._until_us = -1

    def advance(self, until_us: int) -> None:
        """Up to the frame that ends at `until_us`; frames that end before the window begins leave it."""
        if until_us < self._until_us:  # another boot
            self._reset()
        begin = until_us - self.length_us
        if self._open and self._open[-1].mono_us <= begin:
            self._taken.append(combined(self._open, self._log.keys))
            self._open = []
        for packed in self._log.between(max(self._until_us, begin), until_us):
            flat = unpack(packed)
            self._sums.add(flat, packed.mono_us)
            self._delays.append((packed.mono_us, _delays(flat)))
            self._take(packed)
        while self._taken and self._taken[0].mono_us <= begin:
            gone = self._taken.popleft()
            self._sums.remove(unpack(gone), gone.mono_us)
        while self._delays and self._delays[0][0] <= begin:
            self._delays.popleft()
        self._until_us = until_us
        for name in _CACHED:
            self.__dict__.pop(name, None)

    def _take(self, packed: Packed) -> None:
        """Remember what is to be taken away again, a step at a time."""
        step = max(self.length_us // _STEPS, 1)
        if self._open and packed.mono_us // step != self._open[-1].mono_us // step:
            self._taken.append(combined(self._open, self._log.keys))
            self._open = []
        self._open.append(packed)

    @cached_property
    def traced(self) -> Traced:
        """All that was traced; `one_in` and `devices` as they are now: `one_in` 0 says that the probes don't run."""
        return self._sums.traced

    @cached_property
    def basic(self) -> Mapping[Series, Histogram]:
        """The stages that the always-on probe measured, a population of its own; `total` is the window's."""
        return self._sums.basic

    @cached_property
    def handlers(self) -> Mapping[Handler, HandlerRuns]:
        return self._sums.handlers

    @cached_property
    def softirqs(self) -> Mapping[SoftirqCpu, SoftirqRuns]:
        return self._sums.softirqs

    @cached_property
    def wakeups(self) -> tuple[Wakeups, ...]:
        return self._sums.wakeups

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        """Newest last; the newest 10,000 of the history at most."""
        return self._log.outliers(self._until_us - self.length_us, self._until_us)

    @cached_property
    def above(self) -> Mapping[Flow, int]:
        """I/Os above the threshold, each of them."""
        return self._sums.above

    @property
    def suppressed(self) -> int:
        return self._sums.suppressed

    @property
    def thresholds_us(self) -> Mapping[str, int]:
        """As they are now."""
        return self._sums.thresholds_us

    @property
    def delays(self) -> list[tuple[int, Mapping[str, Histogram]]]:
        """For a heat map: (a frame's `mono_us`, softirq vector -> raise to entry on all CPUs), oldest first."""
        return list(self._delays)


_CACHED = tuple(name for name, value in vars(DeepWindow).items() if isinstance(value, cached_property))


def _delays(flat: Flat) -> Mapping[str, Histogram]:
    found: dict[str, list[Histogram]] = {}
    for key, one in flat.histograms.items():
        if key.kind == "delay" and isinstance(key.about, SoftirqCpu):
            found.setdefault(key.about.vector, []).append(one)
    return {vector: merge(parts) for vector, parts in found.items()}


def _number(value: int | None) -> int:
    return _UNKNOWN if value is None else value


def _known(value: int) -> int | None:
    return None if value == _UNKNOWN else value
