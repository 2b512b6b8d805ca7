"""What is remembered of how many I/Os were outstanding, frame by frame and later in stretches. Beside store.py.

Behind the last minute five seconds are one entry, to which the frames are added one by one as they grow old. Of the
issues only the last bursts of a device are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from latmon.depth_sums import DepthSum, Packed, packed
from latmon.model import Frame
from latmon.outstanding import Depths, Issue

FINE_US = 65_000_000
"""So far back every frame is an entry of its own: a window of a minute never needs a part of a stretch."""
COARSE_US = 5_000_000
BURSTS = 8
"""Of each device: what is shown may be paused while others come."""
MAX_BURST = 512
"""Issues that are kept of a burst; a probe tells fewer, a recording may say what it likes."""
_DEVICES = 64


@dataclass(frozen=True, slots=True)
class Entry:
    """The depths of a frame, or those of a stretch of them without a hole: from `begin_us` to `mono_us`."""

    begin_us: int
    mono_us: int
    told: Mapping[str, Packed]


class DepthLog:
    """What the store keeps of depths and issues; `forget` follows the store's own frames."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque()
        self._old: deque[Entry] = deque()
        self._open: dict[str, DepthSum] = {}
        """The stretch that is being filled."""
        self._begin_us = self._end_us = 0
        self._bursts: dict[str, deque[tuple[int, tuple[Issue, ...]]]] = {}

    def append(self, frame: Frame) -> None:
        """The next frame."""
        if frame.depths:
            told = {name: packed(one, frame.dt_us) for name, one in frame.depths.items()}
            self._entries.append(Entry(frame.mono_us - frame.dt_us, frame.mono_us, told))
        while self._entries and self._entries[0].mono_us <= frame.mono_us - FINE_US:
            self._age(self._entries.popleft())
        for name, burst in frame.issues.items():
            if burst and (name in self._bursts or len(self._bursts) < _DEVICES):
                kept = self._bursts.setdefault(name, deque(maxlen=BURSTS))
                kept.append((frame.mono_us, burst[-MAX_BURST:]))

    def copy(self) -> DepthLog:
        """Return another one with the same entries, which goes on by itself."""
        other = DepthLog()
        other._entries, other._old = self._entries.copy(), self._old.copy()
        if self._open:
            other._old.append(self._closed())
        other._bursts = {name: some.copy() for name, some in self._bursts.items()}
        return other

    def forget(self, before_us: int) -> None:
        """Drop what ends before `before_us`."""
        while self._old and self._old[0].mono_us < before_us:
            self._old.popleft()
        self._bursts = {name: some for name, some in self._bursts.items() if some[-1][0] >= before_us}

    def clear(self) -> None:
        for one in (self._entries, self._open, self._old, self._bursts):
            one.clear()

    @property
    def fine_from_us(self) -> int | None:
        """Where the frames begin that are still entries of their own; None where there are none."""
        return self._entries[0].begin_us if self._entries else None

    def between(self, after_us: int, until_us: int) -> list[Entry]:
        """Entries that end behind `after_us` and not behind `until_us`, oldest first: the first may begin earlier."""
        filling = (self._closed(),) if self._open else ()
        return [one for one in (*self._old, *filling, *self._entries) if after_us < one.mono_us <= until_us]

    def final(self, after_us: int, until_us: int) -> list[Entry]:
        """The same without the stretch that is still being filled."""
        return [one for one in (*self._old, *self._entries) if after_us < one.mono_us <= until_us]

    def burst(self, device: str, until_us: int) -> tuple[Issue, ...]:
        """The last issues of a device that were told until then."""
        return next((some for us, some in reversed(self._bursts.get(device, ())) if us <= until_us), ())

    def bursts(self, device: str, after_us: int, until_us: int) -> list[tuple[Issue, ...]]:
        """Those of its issues that were told behind `after_us` and not behind `until_us`, as far as they are kept."""
        return [some for us, some in self._bursts.get(device, ()) if after_us < us <= until_us]

    def _age(self, one: Entry) -> None:
        """Into the stretch of its time; where frames are missing another one begins."""
        hole = one.begin_us - self._end_us > (one.mono_us - one.begin_us) / 2
        if self._open and (hole or one.mono_us // COARSE_US != self._end_us // COARSE_US):
            self._old.append(self._closed())
            self._open = {}
        if not self._open:
            self._begin_us = one.begin_us
        self._end_us = one.mono_us
        for name, told in one.told.items():
            self._open.setdefault(name, DepthSum()).add(told, one.mono_us)

    def _closed(self) -> Entry:
        return Entry(self._begin_us, self._end_us, {name: one.packed for name, one in self._open.items()})


def summed(entries: list[Entry], device: str) -> Depths | None:
    """A device's depths over some entries; None where none tells of it."""
    sums = DepthSum()
    told = [one for one in entries if device in one.told]
    for one in told:
        sums.add(one.told[device], one.mono_us)
    return sums.depths if told else None
