"""Running sums of depth histograms.

DepthSum adds and subtracts samples, for windows; DepthTimes adds times, for reports. Their memory does not grow with
the number of intervals: depths above 256 share a bucket (inflight.bucket_end). Depths are in the order in which they
were first seen, which decides between two that are as frequent.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from latmon.aggregate.histogram_sum import Peak
from latmon.model.inflight import SYSFS, Depths, Took, bucket_end

K = TypeVar("K")

_MAX_SUM = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PackedDepths:
    """A Depths, or the sum of several, as arrays of depths and of their counts."""

    in_driver: tuple[array[int], array[int]]
    queued: tuple[array[int], array[int]]
    at_issue: tuple[array[int], array[int]]
    latency: tuple[array[int], array[int], array[int]]
    """Depths, I/Os and us."""
    most: int | None
    corrected: int
    sources: Mapping[str, int]
    """Source -> samples in the driver."""
    span_us: int
    """Sum of the intervals' lengths."""
    quiet: int = 0
    """Samples of the intervals without any request."""


class DepthSum:
    """Running sum of a device's depths in samples; `depths` is valid until the next change."""

    def __init__(self, *, brief: bool = False) -> None:
        self.brief = brief
        """Whether the latency by depth is left out, which is half of the work."""
        self.span_us = 0
        self._in_driver: dict[int, int] = {}
        self._queued: dict[int, int] = {}
        self._at_issue: dict[int, int] = {}
        self._latency: dict[int, Took] = {}
        self._corrected = self._quiet = 0
        self._sources: Counter[str] = Counter()
        self._peak = Peak()

    @property
    def depths(self) -> Depths:
        return Depths(
            in_driver=MappingProxyType(self._in_driver),
            queued=MappingProxyType(self._queued),
            at_issue=MappingProxyType(self._at_issue),
            latency=MappingProxyType(self._latency),
            most=self._peak.maximum(),
            corrected=self._corrected,
            source=self._sources.most_common(1)[0][0] if self._sources else SYSFS,
            quiet_in=self._quiet,
        )

    @property
    def packed(self) -> PackedDepths:
        took = self._latency.values()
        return PackedDepths(
            in_driver=_arrays(self._in_driver),
            queued=_arrays(self._queued),
            at_issue=_arrays(self._at_issue),
            latency=(
                array("q", self._latency.keys()),
                _whole(depth_row.ios for depth_row in took),
                _whole(depth_row.time_us for depth_row in took),
            ),
            most=self._peak.maximum(),
            corrected=self._corrected,
            sources=dict(self._sources),
            span_us=self.span_us,
            quiet=self._quiet,
        )

    def add(self, packed_depths: PackedDepths, stamp: int = 0) -> None:
        """Add depths; `stamp` grows from one to the next."""
        self._count(packed_depths, 1)
        if packed_depths.most is not None:
            self._peak.see(stamp, packed_depths.most, 0)

    def remove(self, packed_depths: PackedDepths, stamp: int = 0) -> None:
        """Subtract the oldest depths, which were added with stamps up to `stamp`, as one or as several."""
        self._count(packed_depths, -1)
        self._peak.forget(stamp)

    def _count(self, packed_depths: PackedDepths, sign: int) -> None:
        self.span_us += sign * packed_depths.span_us
        self._corrected += sign * packed_depths.corrected
        self._quiet += sign * packed_depths.quiet
        for source, moments in packed_depths.sources.items():
            self._sources[source] += sign * moments
            if sign < 0 and not self._sources[source]:
                del self._sources[source]
        _add(self._in_driver, packed_depths.in_driver, sign)
        _add(self._queued, packed_depths.queued, sign)
        _add(self._at_issue, packed_depths.at_issue, sign)
        for depth, ios, time_us in () if self.brief else zip(*packed_depths.latency, strict=True):
            _add_times(self._latency, depth, sign * ios, sign * time_us)


def packed(depths: Depths, span_us: int = 0) -> PackedDepths:
    """Pack a Depths of an interval of `span_us`."""
    ios, times = zip(*depths.latency.values(), strict=True) if depths.latency else ((), ())
    moments = sum(depths.in_driver.values())
    return PackedDepths(
        in_driver=_arrays(depths.in_driver),
        queued=_arrays(depths.queued),
        at_issue=_arrays(depths.at_issue),
        latency=(array("q", depths.latency.keys()), array("q", ios), array("q", times)),
        most=depths.most,
        corrected=depths.corrected,
        sources={depths.source: moments} if moments else {},
        span_us=span_us,
        quiet=depths.quiet,
    )


def _arrays(counts: Mapping[int, int]) -> tuple[array[int], array[int]]:
    return array("q", counts.keys()), _whole(counts.values())


def _whole(counts: Iterable[int]) -> array[int]:
    """Return counts as an array; a recording may contain any number of 63 bits, so sums are limited to that."""
    each = list(counts)
    try:
        return array("q", each)
    except OverflowError:
        return array("q", [min(n, _MAX_SUM) for n in each])


def _add(sums: dict[int, int], counts: tuple[array[int], array[int]], sign: int) -> None:
    for depth, n in zip(*counts, strict=True):
        left = sums.get(depth, 0) + sign * n
        if left:
            sums[depth] = left
        else:
            sums.pop(depth, None)


def _add_times(sums: dict[int, Took], depth: int, ios: int, time_us: int) -> None:
    took = sums.get(depth, Took(0, 0))
    if took.ios + ios:
        sums[depth] = Took(took.ios + ios, took.time_us + time_us)
    else:
        sums.pop(depth, None)


@dataclass
class DepthTimes:
    """Sum of a device's depths in us: each frame counts with its length, whatever its number of samples."""

    in_driver: Counter[int] = field(default_factory=Counter)
    queued: Counter[int] = field(default_factory=Counter)
    at_issue: Counter[int] = field(default_factory=Counter)
    latency: dict[int, Took] = field(default_factory=dict)
    highest: int = 0
    highest_at: float | None = None
    """End (Unix time) of the first frame with so many."""
    corrected: int = 0
    sources: Counter[str] = field(default_factory=Counter)
    quiet_us: int = 0
    """Time of the frames without any request."""
    span_us: int = 0
    """Time of the frames with samples of the depth in the driver."""

    def add(self, depths: Depths, dt_us: int, wall_s: float) -> None:
        """Add a frame's depths; the frame is `dt_us` long and ends at `wall_s` (Unix time)."""
        _spread(self.in_driver, depths.in_driver, dt_us)
        _spread(self.queued, depths.queued, dt_us)
        for depth, n in depths.at_issue.items():
            self.at_issue[bucket_end(depth)] += n
        for depth, took in depths.latency.items():
            _add_times(self.latency, bucket_end(depth), *took)
        if depths.highest > self.highest:
            self.highest, self.highest_at = depths.highest, wall_s
        self.corrected += depths.corrected
        self.sources[depths.source] += dt_us
        self.quiet_us += dt_us if depths.quiet else 0
        self.span_us += dt_us if any(depths.in_driver.values()) else 0

    def add_idle(self, us: int, *, has_queue: bool) -> None:
        """Add a time without I/Os; `has_queue`: the queue is known."""
        self.in_driver[0] += us
        if has_queue:
            self.queued[0] += us
        self.sources[SYSFS] += us
        self.quiet_us += us
        self.span_us += us

    def merge(self, other: DepthTimes) -> None:
        """Add a sum of later frames."""
        _add_counts(self.in_driver, other.in_driver)
        _add_counts(self.queued, other.queued)
        _add_counts(self.at_issue, other.at_issue)
        for depth, took in other.latency.items():
            _add_times(self.latency, depth, *took)
        if other.highest > self.highest:
            self.highest, self.highest_at = other.highest, other.highest_at
        self.corrected += other.corrected
        _add_counts(self.sources, other.sources)
        self.quiet_us += other.quiet_us
        self.span_us += other.span_us

    @property
    def depths(self) -> Depths:
        """The sum as one interval with a sample per ms; the source is that of most of the time."""
        return Depths(
            in_driver=_in_ms(self.in_driver),
            queued=_in_ms(self.queued),
            at_issue=dict(self.at_issue),
            latency=dict(self.latency),
            most=self.highest,
            corrected=self.corrected,
            source=self.sources.most_common(1)[0][0] if self.sources else SYSFS,
            quiet_in=self.quiet_us // 1000,
        )


def _add_counts(sums: Counter[K], counts: Mapping[K, int]) -> None:
    """Add counts; Counter.update takes twice as long for the few of a device."""
    for key, n in counts.items():
        sums[key] += n


def _in_ms(us: Mapping[int, int]) -> dict[int, int]:
    return {depth: ms for depth, n in us.items() if (ms := round(n / 1000))}


def _spread(into: Counter[int], moments: Mapping[int, int], dt_us: int) -> None:
    """Add a frame's length in proportion to its samples."""
    total = sum(moments.values())
    for depth, n in sorted(moments.items()):
        into[bucket_end(depth)] += round(dt_us * n / total) if n else 0
