"""A recording's outstanding I/O added up, device by device: depths as running sums, ages as they were seen.

Memory grows with the number of devices alone: depths above 256 share a bucket (outstanding.bucket_end).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from latmon.lba_order import LbaOrder, lba_order, together
from latmon.model import Frame
from latmon.outstanding import SYSFS, Depths, Took, bucket_end
from latmon.waiting import Aged, Ages, Waiting

MAX_DEVICES = 10_000
"""With an age of their own."""


@dataclass
class DepthSums:
    """One device's depths in all windows that told them; times in us, each window as long as it was."""

    in_driver: Counter[int] = field(default_factory=Counter)
    queued: Counter[int] = field(default_factory=Counter)
    at_issue: Counter[int] = field(default_factory=Counter)
    latency: dict[int, Took] = field(default_factory=dict)
    highest: int = 0
    highest_at: float | None = None
    """The end (Unix time) of the first window in which so many were seen."""
    corrected: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    quiet_us: int = 0
    """Of the windows in which nothing was seen."""
    span_us: int = 0
    """Of the windows that told the depth in the driver."""

    def add(self, one: Depths, dt_us: int, wall_s: float) -> None:
        _spread(self.in_driver, one.in_driver, dt_us)
        _spread(self.queued, one.queued, dt_us)
        for depth, n in one.at_issue.items():
            self.at_issue[bucket_end(depth)] += n
        for depth, took in one.latency.items():
            had = self.latency.get(bucket_end(depth), Took(0, 0))
            self.latency[bucket_end(depth)] = Took(had.ios + took.ios, had.time_us + took.time_us)
        if one.highest > self.highest:
            self.highest, self.highest_at = one.highest, wall_s
        self.corrected += one.corrected
        self.sources[one.source] += dt_us
        self.quiet_us += dt_us if one.quiet else 0
        self.span_us += dt_us if any(one.in_driver.values()) else 0

    @property
    def depths(self) -> Depths:
        """All of it as one interval, its moments ms as a frame's; the source is the one of most of the time."""
        return Depths(
            _in_ms(self.in_driver),
            _in_ms(self.queued),
            dict(self.at_issue),
            dict(self.latency),
            self.highest,
            self.corrected,
            self.sources.most_common(1)[0][0] if self.sources else SYSFS,
            self.quiet_us // 1000,
        )


class Seen(NamedTuple):
    """What waited, and the end of the window that showed it, by both clocks."""

    row: Aged
    wall_s: float
    mono_us: int


@dataclass
class OutstandingSums:
    """All devices', and what was in flight: now, and the longest that each device ever showed."""

    devices: dict[str, DepthSums] = field(default_factory=dict)
    longest: dict[str, Seen] = field(default_factory=dict)
    """By device, as it was seen last."""
    orders: dict[str, LbaOrder] = field(default_factory=dict)
    """Of the windows of consecutive issues."""
    probed: bool = False
    """Whether a probe told of requests in flight."""
    _waiting: Waiting = field(default_factory=Waiting)

    def add(self, frame: Frame) -> None:
        for name, one in frame.depths.items():
            self.devices.setdefault(name, DepthSums()).add(one, frame.dt_us, frame.wall)
        for name, window in frame.issues.items():
            before = (self.orders[name],) if name in self.orders else ()
            self.orders[name] = together((*before, lba_order(window)))
        self.probed = self.probed or frame.in_flight is not None
        self._waiting.add(frame)
        for row in reversed(self._waiting.ages.oldest):
            had = self.longest.get(row.device)
            room = had is not None or len(self.longest) < MAX_DEVICES
            if room and (had is None or row.age_us >= had.row.age_us):
                self.longest[row.device] = Seen(row, frame.wall, frame.mono_us)

    @property
    def ages(self) -> Ages:
        """What was in flight at the end of the last window."""
        return self._waiting.ages


def _in_ms(us: Mapping[int, int]) -> dict[int, int]:
    return {depth: ms for depth, n in us.items() if (ms := round(n / 1000))}


def _spread(into: Counter[int], moments: Mapping[int, int], dt_us: int) -> None:
    """The window's length in the shares of its moments: windows of many looks weigh no more than those of few."""
    whole = sum(moments.values())
    for depth, n in moments.items():
        into[bucket_end(depth)] += round(dt_us * n / whole) if n else 0
