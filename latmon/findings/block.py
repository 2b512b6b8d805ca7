"""Some seconds of frames as one value, a Block, and how it is made: what rules read is sums of blocks.

A block is 5 s, or a minute where a roll-up stands for its windows. Per-frame work is adding up; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.ages import Aged
from latmon.deep_flat import Flat
from latmon.deep_sums import DeepSums
from latmon.depth_totals import DepthSums
from latmon.histogram import Histogram
from latmon.lba_order import LbaOrder, lba_order, together
from latmon.minute import Minute
from latmon.minute_sums import add_all, deep_of
from latmon.model import Completed, Flow, Frame, Outlier, Series
from latmon.packed import Packed
from latmon.tally import Tally
from latmon.waiting import Waiting

MAX_OUTLIERS = 1000
"""Of a block; more are not kept."""


@dataclass(frozen=True, slots=True)
class Block:
    """Sums over [begin_us, end_us] on CLOCK_MONOTONIC; `wall` is when it ends."""

    begin_us: int
    end_us: int
    wall: float
    measured_us: int
    """The lengths of its frames: less than its own where some are missing."""
    histograms: Mapping[Series, Histogram] = field(default_factory=lambda: MappingProxyType({}))
    """Of the always-on probe."""
    kernel: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    seen: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))
    deep: Flat = field(default_factory=lambda: Flat({}, {}))
    depths: Mapping[str, DepthSums] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[str, LbaOrder] = field(default_factory=lambda: MappingProxyType({}))
    outliers: tuple[Outlier, ...] = ()
    waiting: tuple[Aged, ...] = ()
    """What has not completed at its end, oldest first; of a minute what waited the longest in it."""
    older: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    """Seconds -> I/Os of all devices older than that at its end, all of them; empty of a minute."""
    in_flight: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight at its end, by the gauges; empty of a minute."""


class BlockSums:
    """Filled by `add`, with frames that follow each other."""

    def __init__(self) -> None:
        self._first: Frame | None = None
        self._last: Frame | None = None
        self._measured_us = 0
        self._tallies: dict[Series, Tally] = {}
        self._maxima: dict[Series, int] = {}
        self._unbounded: set[Series] = set()
        """Series of which some frame has no exact maximum."""
        self._kernel: dict[Flow, Completed] = {}
        self._seen: dict[Flow, Completed] = {}
        self._deep = DeepSums()
        self._depths: dict[str, DepthSums] = {}
        self._orders: dict[str, LbaOrder] = {}
        self._outliers: list[Outlier] = []

    @property
    def begin_us(self) -> int | None:
        """None while it is empty."""
        return None if self._first is None else self._first.mono_us - self._first.dt_us

    def add(self, frame: Frame) -> None:
        self._first, self._last = self._first or frame, frame
        self._measured_us += frame.dt_us
        for series, one in frame.histograms.items():
            self._histogram(series, one)
        add_all(self._kernel, frame.kernel.items())
        add_all(self._seen, frame.seen.items())
        self._deep.add(deep_of(frame))
        for name, depths in frame.depths.items():
            self._depths.setdefault(name, DepthSums()).add(depths, frame.dt_us, frame.wall)
        for name, issues in frame.issues.items():
            before = (self._orders[name],) if name in self._orders else ()
            self._orders[name] = together((*before, lba_order(issues)))
        self._outliers += frame.outliers[: MAX_OUTLIERS - len(self._outliers)]

    def block(self, waiting: Waiting) -> Block:
        """Their sum; `waiting` has seen the same frames. There must be one."""
        first, last = self._first, self._last
        if first is None or last is None:
            raise ValueError("a block of no frame")
        ages = waiting.ages
        return Block(
            first.mono_us - first.dt_us,
            last.mono_us,
            last.wall,
            self._measured_us,
            Packed.of({series: self._made(series) for series in self._tallies}),
            self._kernel,
            self._seen,
            self._deep.flat,
            self._depths,
            self._orders,
            tuple(self._outliers),
            ages.oldest,
            ages.older,
            {name: now.known for name, now in last.outstanding.items()},
        )

    def _histogram(self, series: Series, one: Histogram) -> None:
        if not one:
            return
        tally = self._tallies.get(series)
        if tally is None:
            tally = self._tallies[series] = Tally()
        tally.add(one, 1)
        if one.max is None:
            self._unbounded.add(series)
        else:
            self._maxima[series] = max(self._maxima.get(series, 0), one.max)

    def _made(self, series: Series) -> Histogram:
        return self._tallies[series].histogram(None if series in self._unbounded else self._maxima.get(series))


def of_minute(minute: Minute, waiting: Waiting) -> Block:
    """A roll-up's windows; `waiting` goes on to its end."""
    frame = minute.frame
    held = [*waiting.take(minute.waiting, frame.mono_us), *minute.waiting.longest.values()]
    return Block(
        frame.mono_us - frame.dt_us,
        frame.mono_us,
        frame.wall,
        frame.dt_us,
        frame.histograms,
        frame.kernel,
        frame.seen,
        deep_of(frame),
        minute.depths,
        minute.orders,
        frame.outliers[:MAX_OUTLIERS],
        tuple(sorted((one.row for one in held), key=lambda row: (-row.age_us, row.device))),
    )


def depths_of(blocks: tuple[Block, ...]) -> dict[str, DepthSums]:
    """By device, all of them together."""
    found: dict[str, DepthSums] = {}
    for block in blocks:
        for name, sums in block.depths.items():
            found.setdefault(name, DepthSums()).take(sums)
    return found
