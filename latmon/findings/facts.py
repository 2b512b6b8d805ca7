"""The input of rules: sums over the last minute and the blocks it consists of.

Every sum is made when it is first asked for and kept until the facts are gone, so that rules share the work. Owns no
judgment. Times are us, sums over `window`; a device that did nothing gives empty histograms.

A block is 5 s, or a minute where a roll-up stands for its windows. Per-frame work is adding up; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import MappingProxyType

from latmon.aggregate.accumulator import DeepSums, DepthSums
from latmon.aggregate.histogram_sum import Tally
from latmon.aggregate.request_age import Waiting
from latmon.aggregate.rollup import Minute, add_all, add_completed, deep_of
from latmon.analysis.issue_order import LbaOrder, lba_order, together
from latmon.model.frame import (
    OPS,
    Completed,
    Device,
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Origin,
    Outlier,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Traced,
    Wakeups,
)
from latmon.model.histogram import Histogram, merge
from latmon.model.inflight import Aged, Depths
from latmon.model.packed import Flat, Packed

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
    unlisted: tuple[Aged, ...] = ()
    """I/Os in flight at its end that `older` counts and `waiting` doesn't list (Ages.unlisted); empty of a minute."""


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
            ages.unlisted,
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


WINDOW_US = 60_000_000
BLOCK_US = 5_000_000
_MOST = 0.75
"""Of a minute."""
_TRACED = "traced"
"""The table of what the deep probes timed."""


class Facts:
    """`blocks`: those that follow each other without a hole up to now, oldest first; there is at least one."""

    def __init__(
        self, blocks: tuple[Block, ...], origin: Origin, devices: Mapping[str, Device], deep: DeepSums | None = None
    ) -> None:
        """`deep`: the sums of the window's, where somebody keeps them; what is read of them holds as long as they."""
        self.blocks = blocks
        self.origin = origin
        self.devices = devices
        self.window = _window(blocks, origin)
        """The blocks of the last minute; one that is as long by itself."""
        self._running = deep
        self._parts: dict[tuple[str, tuple[str, ...]], list[Histogram]] = {}
        self._made: dict[tuple[str, str, tuple[str, ...]], Histogram] = {}

    @property
    def end_us(self) -> int:
        return self.blocks[-1].end_us

    @property
    def wall(self) -> float:
        return self.blocks[-1].wall

    @property
    def span_us(self) -> int:
        """How long the window is, as far as it was measured."""
        return sum(one.measured_us for one in self.window)

    @property
    def is_sun(self) -> bool:
        """Whether the host runs illumos or Solaris: its drivers, tools and settings have other names."""
        return self.origin.kernel.startswith("SunOS")

    @cached_property
    def busy(self) -> tuple[str, ...]:
        """Devices with an I/O in the window, timed by the always-on probe or by the deep ones."""
        found = {series.device for one in self.window for series in one.histograms}
        found |= {series.device for series in self.traced.histograms}
        return tuple(sorted(found))

    def latency(self, device: str, *ops: str) -> Histogram:
        """To completion, by the always-on probe; of devices that only the deep probes time by those. No op: all."""
        found = self.stage("total", device, *ops)
        return found or self.traced_stage("total", device, *ops)

    def stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """As the always-on probe tells it: hba may include irq, softirq and completion (Origin.measured)."""
        key = (stage, device, ops)
        if key not in self._made:
            self._made[key] = merged((one.histograms for one in self.window), stage, device, ops)
        return self._made[key]

    def traced_stage(self, stage: str, device: str, *ops: str) -> Histogram:
        """Of the requests that deep probes traced; `unaccounted` too."""
        return merged((self.traced.histograms,), stage, device, ops)

    def parts(self, device: str, *ops: str) -> list[Histogram]:
        """As `latency`, one per block of all blocks, oldest first: for what must last."""
        key = (device, ops)
        if key not in self._parts:
            found = [merged((one.histograms,), "total", device, ops) for one in self.blocks]
            if not any(found):
                found = [merged((one.deep.tables.get(_TRACED, {}),), "total", device, ops) for one in self.blocks]
            self._parts[key] = found
        return self._parts[key]

    def completed(self, device: str, *ops: str) -> Completed | None:
        """By the kernel's own count, else as the probe saw them; None where nobody counted."""
        for table in (self._kernel, self._seen):
            found = [table[flow] for op in ops or OPS if (flow := Flow(device, op)) in table]
            if found:
                return reduce(add_completed, found)
        return None

    @cached_property
    def _kernel(self) -> dict[Flow, Completed]:
        return _added(one.kernel for one in self.window)

    @cached_property
    def _seen(self) -> dict[Flow, Completed]:
        return _added(one.seen for one in self.window)

    @cached_property
    def _deep(self) -> DeepSums:
        if self._running is not None:
            return self._running
        sums = DeepSums()
        for one in self.window:
            sums.add(one.deep, one.end_us)
        return sums

    @cached_property
    def traced(self) -> Traced:
        """What the deep probes traced; `one_in` 0 where they don't run."""
        return self._deep.traced

    @cached_property
    def handlers(self) -> Mapping[Handler, HandlerRuns]:
        return self._deep.handlers

    @cached_property
    def softirqs(self) -> Mapping[SoftirqCpu, SoftirqRuns]:
        return self._deep.softirqs

    @cached_property
    def wakeups(self) -> tuple[Wakeups, ...]:
        return self._deep.wakeups

    @cached_property
    def thresholds_us(self) -> Mapping[str, int]:
        return self._deep.thresholds_us

    @cached_property
    def depth_sums(self) -> Mapping[str, DepthSums]:
        """By device, in us."""
        return depths_of(self.window)

    def depths(self, device: str) -> Depths:
        """Moments are ms; empty where nobody looked."""
        found = self.depth_sums.get(device)
        return found.depths if found else Depths()

    def outliers(self, device: str = "") -> tuple[Outlier, ...]:
        """Recorded slow I/Os, not all that were as slow, and none of latmon's own. No device: of all."""
        each = (o for one in self.window for o in one.outliers if not o.own)
        return tuple(o for o in each if not device or o.device == device)

    @cached_property
    def waiting(self) -> tuple[Aged, ...]:
        """I/Os that have not completed, oldest first, none of latmon's own."""
        return tuple(one for one in self.blocks[-1].waiting if one.request is None or not one.request.own)

    @cached_property
    def older(self) -> Mapping[int, int]:
        """Seconds -> I/Os of all devices in flight for longer than that, none of latmon's own."""
        last = self.blocks[-1]
        own = [one.age_us for one in last.waiting if one.request is not None and one.request.own]
        return {age_s: n - sum(us > age_s * 1_000_000 for us in own) for age_s, n in last.older.items()}

    def order(self, device: str) -> LbaOrder | None:
        """Of issue against arrival and LBA; None where no burst was read."""
        found = [one.orders[device] for one in self.window if device in one.orders]
        return together(found) if found else None


def in_window(block: Block, end_us: int, origin: Origin) -> bool:
    """Whether it is one of the last minute's; half a frame early, for clocks wobble."""
    return block.begin_us >= end_us - WINDOW_US - min(origin.interval_us, BLOCK_US) // 2


def _window(blocks: tuple[Block, ...], origin: Origin) -> tuple[Block, ...]:
    """A block that is longer than others (a roll-up) can't be cut: it stays until what follows is most of a minute."""
    end_us = blocks[-1].end_us
    found = tuple(one for one in blocks if in_window(one, end_us, origin)) or blocks[-1:]
    before = blocks[-len(found) - 1 : -len(found)]
    short = end_us - found[0].begin_us < _MOST * WINDOW_US
    return (*before, *found) if short and any(one.end_us - one.begin_us > 2 * BLOCK_US for one in before) else found


def merged(
    tables: Iterable[Mapping[Series, Histogram]], stage: str, device: str, ops: tuple[str, ...] = ()
) -> Histogram:
    """A device's I/Os of all these tables as one; no op: all."""
    every = [Series(device, op, stage) for op in ops or OPS]
    return merge(table[series] for table in tables for series in every if series in table)


def _added(tables: Iterable[Mapping[Flow, Completed]]) -> dict[Flow, Completed]:
    sums: dict[Flow, Completed] = {}
    for table in tables:
        add_all(sums, table.items())
    return sums
