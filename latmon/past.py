"""What was captured, as what can be looked at again: stamps of its frames, and any span of them. Pure.

archive.py keeps such a past while a capture runs, recorded.py reads one from files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, Protocol

from latmon.model import Device, Frame
from latmon.moments import Moment
from latmon.waiting import Waiting


class Stamp(NamedTuple):
    """The end of a frame, on both clocks."""

    mono_us: int
    wall: float


class Past(Protocol):
    """Anything that was captured and can be looked at again."""

    moments: deque[Moment]

    @property
    def stamps(self) -> Stamps: ...

    def frames(self, after_us: int, until_us: int, *, totals: bool = False) -> Iterator[Frame]:
        """Those that end behind `after_us` and not behind `until_us`, oldest first.

        `totals`: of the always-on probe's histograms those of `total` will do.
        """
        ...

    def known(self, at_us: int) -> tuple[Device, ...]:
        """The devices as they were then."""
        ...

    def waiting(self, at_us: int) -> tuple[int, Waiting] | None:
        """What was waiting at some time then or before, and that time; None where that isn't known."""
        ...


@dataclass
class Stamps:
    """Of all frames that are kept, oldest first."""

    mono_us: list[int] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.mono_us)

    def __getitem__(self, at: int) -> Stamp:
        return Stamp(self.mono_us[at], self.wall[at])

    def add(self, frame: Frame) -> None:
        self.mono_us.append(frame.mono_us)
        self.wall.append(frame.wall)

    def forget(self, many: int) -> None:
        del self.mono_us[:many], self.wall[:many]

    def beside(self, mono_us: int, by: int) -> Stamp:
        """The frame `by` further than the one at `mono_us`, or the last that there is."""
        at = bisect_left(self.mono_us, mono_us) if by >= 0 else bisect_right(self.mono_us, mono_us) - 1
        return self[min(max(at + by, 0), len(self) - 1)]

    def nearest(self, mono_us: int) -> Stamp:
        """The frame that holds this time; where none does, the closest."""
        at = bisect_left(self.mono_us, mono_us)
        if at == 0 or (at < len(self) and self.mono_us[at] - mono_us <= mono_us - self.mono_us[at - 1]):
            return self[min(at, len(self) - 1)]
        return self[at - 1]

    def at_wall(self, wall: float, near_us: int = 0) -> Stamp:
        """The frame that ends closest to that time, by the wall clock as it was set.

        A clock that was set back has shown some times twice: the one closer to `near_us` is meant.
        """

        def off(at: int) -> float:
            return abs(self.wall[at] - wall)

        usual_s = (self.mono_us[-1] - self.mono_us[0]) / 1e6 / max(len(self) - 1, 1)
        passed = (at for at, (one, other) in enumerate(pairwise(self.wall)) if one <= wall <= other)
        shown = [at for at in (min(one, one + 1, key=off) for one in passed) if off(at) <= usual_s]
        if shown:
            return self[min(shown, key=lambda at: abs(self.mono_us[at] - near_us))]
        return self[min(range(len(self)), key=off)]


def completed(frames: Iterable[Frame], known: Iterable[Device]) -> Iterator[Frame]:
    """The same, the first with all devices as they were before it too: readable from there on."""
    first = True
    for frame in frames:
        if first:
            every = {one.name: one for one in (*known, *frame.devices)}
            yield replace(frame, devices=tuple(every.values()))
            first = False
        else:
            yield frame
