"""One device's depths in less room, and running sums of them: what was added can be taken away again, exactly.

As dictionaries, eleven minutes of 24 devices with depths to 256 could be 600 MB. Knows neither time nor file.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from latmon.outstanding import SYSFS, Depths, Took

_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Packed:
    """A Depths, or the sum of several, as arrays: depths and what belongs to each."""

    in_driver: tuple[array[int], array[int]]
    queued: tuple[array[int], array[int]]
    at_issue: tuple[array[int], array[int]]
    latency: tuple[array[int], array[int], array[int]]
    """Depths, I/Os and us."""
    most: int | None
    corrected: int
    sources: Mapping[str, int]
    """Who counted -> moments in the driver."""
    span_us: int
    """How long the intervals were."""
    quiet: int = 0
    """Moments of those in which nothing was seen."""


class DepthSum:
    """Filled by `add`; `depths` is its own until the next one is added."""

    def __init__(self, *, brief: bool = False) -> None:
        self.brief = brief
        """Without the latency by depth, which is half of the work."""
        self.span_us = 0
        self._in_driver: dict[int, int] = {}
        self._queued: dict[int, int] = {}
        self._at_issue: dict[int, int] = {}
        self._latency: dict[int, Took] = {}
        self._corrected = self._quiet = 0
        self._sources: Counter[str] = Counter()
        self._peaks: deque[tuple[int, int]] = deque()
        """(stamp, most), each less than those before it."""

    @property
    def depths(self) -> Depths:
        return Depths(
            MappingProxyType(self._in_driver),
            MappingProxyType(self._queued),
            MappingProxyType(self._at_issue),
            MappingProxyType(self._latency),
            self._peaks[0][1] if self._peaks else None,
            self._corrected,
            self._sources.most_common(1)[0][0] if self._sources else SYSFS,
            self._quiet,
        )

    @property
    def packed(self) -> Packed:
        took = self._latency.values()
        return Packed(
            _arrays(self._in_driver),
            _arrays(self._queued),
            _arrays(self._at_issue),
            (
                array("q", self._latency.keys()),
                _whole(one.ios for one in took),
                _whole(one.time_us for one in took),
            ),
            self._peaks[0][1] if self._peaks else None,
            self._corrected,
            dict(self._sources),
            self.span_us,
            self._quiet,
        )

    def add(self, one: Packed, stamp: int = 0) -> None:
        """`stamp` grows from one to the next."""
        self._count(one, 1)
        if one.most is not None:
            while self._peaks and self._peaks[-1][1] <= one.most:
                self._peaks.pop()
            self._peaks.append((stamp, one.most))

    def remove(self, one: Packed, stamp: int = 0) -> None:
        """What was added with stamps up to `stamp`, in one or in several; the oldest leave first."""
        self._count(one, -1)
        while self._peaks and self._peaks[0][0] <= stamp:
            self._peaks.popleft()

    def _count(self, one: Packed, sign: int) -> None:
        self.span_us += sign * one.span_us
        self._corrected += sign * one.corrected
        self._quiet += sign * one.quiet
        for source, moments in one.sources.items():
            self._sources[source] += sign * moments
            if not self._sources[source]:
                del self._sources[source]
        _add(self._in_driver, one.in_driver, sign)
        _add(self._queued, one.queued, sign)
        _add(self._at_issue, one.at_issue, sign)
        sums = self._latency
        for depth, ios, time_us in () if self.brief else zip(*one.latency, strict=True):
            had = sums.get(depth)
            left = (had.ios if had else 0) + sign * ios
            if left:
                sums[depth] = Took(left, (had.time_us if had else 0) + sign * time_us)
            else:
                sums.pop(depth, None)


def packed(depths: Depths, span_us: int = 0) -> Packed:
    """A Depths of an interval in less room."""
    ios, times = zip(*depths.latency.values(), strict=True) if depths.latency else ((), ())
    moments = sum(depths.in_driver.values())
    return Packed(
        _arrays(depths.in_driver),
        _arrays(depths.queued),
        _arrays(depths.at_issue),
        (array("q", depths.latency.keys()), array("q", ios), array("q", times)),
        depths.most,
        depths.corrected,
        {depths.source: moments} if moments else {},
        span_us,
        depths.quiet,
    )


def _arrays(counts: Mapping[int, int]) -> tuple[array[int], array[int]]:
    return array("q", counts.keys()), _whole(counts.values())


def _whole(counts: Iterable[int]) -> array[int]:
    """A recording may say of each interval as much as 63 bits hold; the sum is held there."""
    each = list(counts)
    try:
        return array("q", each)
    except OverflowError:
        return array("q", [min(n, _MOST) for n in each])


def _add(sums: dict[int, int], counts: tuple[array[int], array[int]], sign: int) -> None:
    for depth, n in zip(*counts, strict=True):
        left = sums.get(depth, 0) + sign * n
        if left:
            sums[depth] = left
        else:
            sums.pop(depth, None)
