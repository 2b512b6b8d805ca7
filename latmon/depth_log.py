"""What is remembered of how many I/Os were outstanding, frame by frame and later in stretches. Beside store.py.

As dictionaries, eleven minutes of 24 devices with depths to 256 could be 600 MB: they are arrays of numbers, and behind
the last minute ten seconds are one entry. Of the issues only the last bursts of a device are kept.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from latmon.model import Frame
from latmon.outstanding import Depths, Issue, Took, together

FINE_US = 60_000_000
"""So far back every frame is an entry of its own."""
COARSE_US = 10_000_000
BURSTS = 8
"""Of each device: what is shown may be paused while others come."""
_DEVICES = 64
_EMPTY = Depths()


@dataclass(frozen=True, slots=True)
class Packed:
    """A Depths as arrays: keys and values in turn."""

    in_driver: array[int]
    queued: array[int]
    at_issue: array[int]
    latency: array[int]
    """Depth, I/Os and us in turn."""
    most: int | None
    corrected: int
    source: str

    @property
    def depths(self) -> Depths:
        """The same as it was."""
        told = self.latency
        return Depths(
            _unpaired(self.in_driver),
            _unpaired(self.queued),
            _unpaired(self.at_issue),
            {told[i]: Took(told[i + 1], told[i + 2]) for i in range(0, len(told), 3)},
            self.most,
            self.corrected,
            self.source,
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """The depths of a frame, or those of a stretch that ends at `mono_us`."""

    mono_us: int
    told: Mapping[str, Packed]


class DepthLog:
    """What the store keeps of depths and issues; `forget` follows the store's own frames."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._ageing: list[Entry] = []
        self._old: deque[Entry] = deque()
        self._bursts: dict[str, deque[tuple[int, tuple[Issue, ...]]]] = {}

    def append(self, frame: Frame) -> None:
        """The next frame."""
        if frame.depths:
            self._entries.append(Entry(frame.mono_us, {name: packed(one) for name, one in frame.depths.items()}))
        while self._entries and self._entries[0].mono_us <= frame.mono_us - FINE_US:
            self._age(self._entries.popleft())
        for name, burst in frame.issues.items():
            if burst and (name in self._bursts or len(self._bursts) < _DEVICES):
                self._bursts.setdefault(name, deque(maxlen=BURSTS)).append((frame.mono_us, burst))

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        self._bursts = {name: some for name, some in self._bursts.items() if some[-1][0] >= before_us}

    def clear(self) -> None:
        for one in (self._entries, self._ageing, self._old, self._bursts):
            one.clear()

    def between(self, after_us: int, until_us: int) -> list[Entry]:
        """Entries that end behind `after_us` and not behind `until_us`, oldest first."""
        return [one for one in (*self._old, *self._ageing, *self._entries) if after_us < one.mono_us <= until_us]

    def burst(self, device: str, until_us: int) -> tuple[Issue, ...]:
        """The last issues of a device that were told until then."""
        return next((some for us, some in reversed(self._bursts.get(device, ())) if us <= until_us), ())

    def _age(self, one: Entry) -> None:
        if self._ageing and one.mono_us // COARSE_US != self._ageing[-1].mono_us // COARSE_US:
            self._old.append(_combined(self._ageing))
            self._ageing = []
        self._ageing.append(one)


def packed(depths: Depths) -> Packed:
    """A Depths in less room."""
    return Packed(
        _paired(depths.in_driver),
        _paired(depths.queued),
        _paired(depths.at_issue),
        array("q", [number for depth, took in depths.latency.items() for number in (depth, *took)]),
        depths.most,
        depths.corrected,
        depths.source,
    )


def summed(entries: list[Entry], device: str) -> Depths | None:
    """A device's depths over some entries; None where none tells of it."""
    told = [one.told[device].depths for one in entries if device in one.told]
    return together(told) if told else None


def _combined(parts: list[Entry]) -> Entry:
    names = {name for one in parts for name in one.told}
    return Entry(parts[-1].mono_us, {name: packed(summed(parts, name) or _EMPTY) for name in names})


def _paired(counts: Mapping[int, int]) -> array[int]:
    return array("q", [number for pair in counts.items() for number in pair])


def _unpaired(told: array[int]) -> dict[int, int]:
    return dict(zip(told[::2], told[1::2], strict=True))
