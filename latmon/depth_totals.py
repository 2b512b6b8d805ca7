"""One device's depths in all windows of a recording that told them, or of one minute of it.

Memory does not grow with their number: depths above 256 share a bucket (outstanding.bucket_end). Depths stand in the
order in which they were first seen, which decides between two that are as frequent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from latmon.outstanding import SYSFS, Depths, Took, bucket_end


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

    def take(self, other: DepthSums) -> None:
        """Windows that came later, already added up."""
        for mine, theirs in ((self.in_driver, other.in_driver), (self.queued, other.queued)):
            mine.update(theirs)
        self.at_issue.update(other.at_issue)
        for depth, took in other.latency.items():
            had = self.latency.get(depth, Took(0, 0))
            self.latency[depth] = Took(had.ios + took.ios, had.time_us + took.time_us)
        if other.highest > self.highest:
            self.highest, self.highest_at = other.highest, other.highest_at
        self.corrected += other.corrected
        self.sources.update(other.sources)
        self.quiet_us += other.quiet_us
        self.span_us += other.span_us

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


def _in_ms(us: Mapping[int, int]) -> dict[int, int]:
    return {depth: ms for depth, n in us.items() if (ms := round(n / 1000))}


def _spread(into: Counter[int], moments: Mapping[int, int], dt_us: int) -> None:
    """The window's length in the shares of its moments: windows of many looks weigh no more than those of few."""
    whole = sum(moments.values())
    for depth, n in sorted(moments.items()):
        into[bucket_end(depth)] += round(dt_us * n / whole) if n else 0
