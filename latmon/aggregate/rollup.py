"""One-minute roll-ups: the windows of a minute as one value, sufficient for every sum over a recording.

Only plain minutes have one (see below), so that sums come to the same by it and by its windows.

What began to wait in the minute is known here. Since when others wait is known to who read what is before it, and who
begins to read right before it knows less: so only until when they did is noted. That is exact as long as no probe's
rows and least ages are of the same I/Os. Pure.

Plain is a minute without a gap, a notice, a mark, a device that came, changed or went, a probe that began; with few
outliers; whose histograms all have a maximum, or none has. Of any other the windows are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from types import MappingProxyType
from typing import Any

from latmon.aggregate.accumulator import DeepSums, DepthSums, Summed, TaskqSums
from latmon.aggregate.histogram_sum import Tally
from latmon.aggregate.request_age import MAX_ROWS, MAX_SINCE, Waiting
from latmon.analysis.issue_order import LbaOrder, lba_order, together
from latmon.model.devices import NONE, Coverage, by_device
from latmon.model.frame import Completed, Flow, Frame, Health, Outlier, Series, Traced
from latmon.model.histogram import BITS, Histogram
from latmon.model.inflight import Held, Seen, Settled, StillInFlight
from latmon.model.packed import Flat, Packed, flatten

_PARTS = 1_000_000


@dataclass
class Weighted:
    """A mean whose parts weigh differently; None while it has none. Whole numbers: any order gives the same."""

    sum: int = 0
    """In millionths."""
    weight: int = 0

    def add(self, value: float | None, weight: int) -> None:
        if value is not None and weight > 0:
            self.sum += round(value * _PARTS) * weight
            self.weight += weight

    def take(self, other: Weighted) -> None:
        """Parts that are already added up."""
        self.sum += other.sum
        self.weight += other.weight

    @property
    def mean(self) -> float | None:
        return self.sum / self.weight / _PARTS if self.weight else None


@dataclass(frozen=True, slots=True)
class Minute:
    """`frame` is the sum of its windows as if it were one, without what doesn't add up; the rest stands beside it."""

    frame: Frame
    windows: int
    longest_us: int
    first_dt_us: int
    """How long the first window was."""
    coverage: Mapping[str, Coverage] = field(default_factory=lambda: MappingProxyType({}))
    gauges: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight at the end of a window -> how long such windows were."""
    depths: Mapping[str, DepthSums] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[str, LbaOrder] = field(default_factory=lambda: MappingProxyType({}))
    waiting: Settled = field(default_factory=Settled)
    taskqs: tuple[Summed, ...] | None = None
    """None where none were read."""
    cpu: Weighted = field(default_factory=Weighted)
    probe_cpu: Weighted = field(default_factory=Weighted)
    probe_ns: Weighted = field(default_factory=Weighted)

    @property
    def mono_us(self) -> int:
        """Where its last window ends."""
        return self.frame.mono_us

    @property
    def dt_us(self) -> int:
        """From the begin of its first window to the end of its last one."""
        return self.frame.dt_us

    @property
    def wall(self) -> float:
        return self.frame.wall

    @property
    def histograms(self) -> Mapping[Series, Histogram]:
        return self.frame.histograms

    @property
    def seen(self) -> Mapping[Flow, Completed]:
        return self.frame.seen

    @property
    def kernel(self) -> Mapping[Flow, Completed]:
        return self.frame.kernel


MAX_LONGEST = 1024
"""Devices with an age of their own in one minute."""


class Settling:
    """Filled by `add`, window by window of one minute."""

    def __init__(self) -> None:
        self._first_us: int | None = None
        self._held: dict[str, Held] = {}
        self._longest: dict[str, Seen] = {}
        self._fewest: dict[str, int] = {}
        self._probes: set[int | None] = set()
        self._claims: dict[str, tuple[tuple[int, int], ...]] = {}
        self._exact = True

    def add(self, frame: Frame, waiting: Waiting) -> None:
        """The next window; `waiting` has it already."""
        first_us = self._first_us = self._first_us or frame.mono_us
        still = frame.in_flight
        self._probes.add(None if still is None else still.since_us)
        for name, now in frame.outstanding.items():
            self._fewest[name] = min(self._fewest.get(name, now.known), now.known)
        rows = waiting.ages.oldest
        self._note_held(frame, waiting, first_us)
        self._claims = {
            name: new
            for name, claims in waiting.claims.items()
            if (new := tuple((us, ios) for us, ios in claims if us >= first_us))
        }
        for row in reversed(rows):
            if row.at_least and frame.mono_us - row.age_us < first_us:
                self._exact = self._exact and not _is_followed(row.device, still)
                continue
            had = self._longest.get(row.device)
            if had is None or row.age_us >= had.row.age_us:
                self._longest[row.device] = Seen(row, frame.wall, frame.mono_us)
        if len(rows) >= MAX_ROWS or len(self._longest) > MAX_LONGEST:
            self._exact = False

    def settled(self) -> Settled | None:
        """None where only the windows themselves can say how long what waited."""
        if not self._exact or len(self._probes) != 1:
            return None
        return Settled(self._claims, self._held, self._longest, self._fewest, next(iter(self._probes)))

    def _note_held(self, frame: Frame, waiting: Waiting, first_us: int) -> None:
        for name, claims in waiting.claims.items():
            if len(claims) >= MAX_SINCE:
                self._exact = False
            if any(us < first_us and ios for us, ios in claims):
                followed = _is_followed(name, frame.in_flight)
                had = self._held.get(name)
                self._exact = self._exact and (had is None or had.followed == followed)
                self._held[name] = Held(frame.mono_us, frame.wall, followed)


def _is_followed(device: str, still: StillInFlight | None) -> bool:
    return still is not None and (still.follows(device) or any(one.device == device for one in still.oldest))


MINUTE_US = 60_000_000
MIN_WINDOWS = 3
MAX_OUTLIERS = 1000
"""In a minute that has a sum: they stand in it once more."""
COUNTERS = ("lost_events", "map_full", "unmatched", "stale", "undecoded_lines", "dropped_records")


def minute_of(mono_us: int) -> int:
    """The number of the minute in which a window ends."""
    return (mono_us - 1) // MINUTE_US


class MinuteSums:
    """Filled by `add`, all windows of one minute; `waiting` is the whole recording's, and folds them too."""

    def __init__(self, waiting: Waiting, before_us: int | None) -> None:
        self.plain = before_us is not None
        self.windows = 0
        self._waiting, self._before_us = waiting, before_us
        self._tallies: dict[Series, Tally] = {}
        self._maxima: dict[Series, int] = {}
        self._has_maxima: dict[tuple[str, object], bool] = {}
        """Of each row of each table, whether its histograms tell their maximum."""
        self._seen: dict[Flow, Completed] = {}
        self._kernel: dict[Flow, Completed] = {}
        self._deep = DeepSums()
        self._outliers: list[Outlier] = []
        self._thresholds: dict[str, int] = {}
        self._traced = Traced()
        self._rates: set[int] = set()
        self._counters = Counter[str]()
        self._skipped: int | None = None
        self._coverage: dict[str, Coverage] = {}
        self._gauges: dict[str, Counter[int]] = {}
        self._depths: dict[str, DepthSums] = {}
        self._orders: dict[str, LbaOrder] = {}
        self._settling = Settling()
        self._taskqs = TaskqSums()
        self._cpu, self._probe_cpu, self._probe_ns = Weighted(), Weighted(), Weighted()
        self._first: Frame | None = None
        self._last: Frame | None = None
        self._longest_us = 0

    def spoil(self) -> None:
        """Something stands between these windows."""
        self.plain = False

    def add(self, frame: Frame) -> None:
        self._waiting.add(frame)
        if self.plain:
            self.plain = self._is_plain(frame)
        self._before_us = frame.mono_us
        if not self.plain:
            return
        self.windows += 1
        self._first, self._last = self._first or frame, frame
        self._longest_us = max(self._longest_us, frame.dt_us)
        for series, one in frame.histograms.items():
            self._histogram(series, one)
        add_all(self._seen, frame.seen.items())
        add_all(self._kernel, frame.kernel.items())
        for name, covered in by_device(frame).items():
            self._coverage[name] = self._coverage.get(name, NONE) + covered
        self._in_flight(frame)
        self._health(frame)
        self._taskqs.add(frame.taskqs)
        self._look_deep(frame)

    def minute(self) -> Minute | None:
        """Their sum; None where only the windows themselves can say what they hold."""
        first, last, settled = self._first, self._last, self._settling.settled()
        if not self.plain or first is None or last is None or settled is None or len(self._rates) > 1:
            return None
        if self._taskqs.left_out or self.windows < MIN_WINDOWS:
            return None
        deep = self._deep
        sums = deep.traced
        traced = replace(
            self._traced,
            histograms=deep.raw,
            by_total=sums.by_total,
            unfollowed=sums.unfollowed,
            paths=sums.paths,
            off=sums.off,
        )
        counters: dict[str, Any] = dict(self._counters)
        frame = Frame(
            last.seq,
            last.wall,
            last.mono_us,
            last.mono_us - first.mono_us + first.dt_us,
            {series: tally.histogram(self._maxima.get(series)) for series, tally in self._tallies.items()},
            self._seen,
            self._kernel,
            above=deep.above,
            outliers=tuple(self._outliers),
            thresholds_us=self._thresholds,
            traced=traced,
            handlers=deep.handlers,
            softirqs=deep.softirqs,
            wakeups=deep.wakeups,
            health=replace(Health(suppressed=deep.suppressed, skipped=self._skipped), **counters),
        )
        return Minute(
            frame,
            self.windows,
            self._longest_us,
            first.dt_us,
            self._coverage,
            self._gauges,
            self._depths,
            self._orders,
            settled,
            self._taskqs.in_order if self._taskqs.read else None,
            self._cpu,
            self._probe_cpu,
            self._probe_ns,
        )

    @property
    def flat(self) -> Flat:
        """The deep values' sum, for whoever wants to know whether a Minute says the same."""
        return self._deep.flat

    def _is_plain(self, frame: Frame) -> bool:
        began_us = 0 if frame.in_flight is None else frame.in_flight.since_us
        hole_us = frame.mono_us - frame.dt_us - (self._before_us or 0)
        odd = frame.gap or frame.late or frame.health.notice or frame.devices or frame.removed or frame.marks
        probed = began_us <= frame.mono_us - frame.dt_us
        full = len(self._outliers) + len(frame.outliers) > MAX_OUTLIERS
        return not odd and probed and hole_us <= frame.dt_us // 2 and not full

    def _histogram(self, series: Series, one: Histogram) -> None:
        if one.bits != BITS:
            self.plain = False
        tally = self._tallies.get(series)
        if tally is None:
            tally = self._tallies[series] = Tally()
        if not one:
            return
        tally.add(one, 1)
        self._maximum("h", series, known=one.max is not None)
        if one.max is not None:
            self._maxima[series] = max(self._maxima.get(series, 0), one.max)

    def _maximum(self, table: str, key: object, *, known: bool) -> None:
        if self._has_maxima.setdefault((table, key), known) is not known:
            self.plain = False

    def _in_flight(self, frame: Frame) -> None:
        for name, now in frame.outstanding.items():
            known = [part for part in (now.in_driver, now.queued) if part is not None]
            if known:
                self._gauges.setdefault(name, Counter())[sum(known)] += frame.dt_us
        for name, one in frame.depths.items():
            self._depths.setdefault(name, DepthSums()).add(one, frame.dt_us, frame.wall)
        for name, window in frame.issues.items():
            before = (self._orders[name],) if name in self._orders else ()
            self._orders[name] = together((*before, lba_order(window)))
        self._settling.add(frame, self._waiting)

    def _health(self, frame: Frame) -> None:
        health = frame.health
        for name in COUNTERS:
            self._counters[name] += getattr(health, name)
        if health.skipped is not None:
            self._skipped = (self._skipped or 0) + health.skipped
        self._cpu.add(_told(health.self_cpu_percent), frame.dt_us)
        self._probe_cpu.add(_told(health.probe_cpu_percent), frame.dt_us)
        self._probe_ns.add(_told(health.probe_ns_per_io), sum(done.count for done in frame.seen.values()))

    def _look_deep(self, frame: Frame) -> None:
        self._thresholds.update(frame.thresholds_us)
        self._outliers += frame.outliers
        if frame.traced.one_in:
            self._traced = replace(frame.traced, unfollowed=MappingProxyType({}), paths=MappingProxyType({}))
            self._rates.add(frame.traced.one_in)
        flat = deep_of(frame)
        for name, table in flat.tables.items():
            if name != "by_total":
                self._maxima_of(name, table)
        self._deep.add(flat)

    def _maxima_of(self, name: str, table: Packed[object]) -> None:
        for key, part in table.parts():
            if part.begin < part.end:
                self._maximum(name, key, known=table.known(table.maxima, part.row) is not None)


def _told(value: float | None) -> float | None:
    """As a line tells it."""
    return value if value is not None and isfinite(value) else None


def deep_of(frame: Frame) -> Flat:
    """A frame's deep values alone."""
    return flatten(replace(frame, histograms=MappingProxyType({})))


def add_all(into: dict[Flow, Completed], found: Iterable[tuple[Flow, Completed]]) -> None:
    """Counts to counts; a time that one of them doesn't know is not known."""
    for flow, done in found:
        into[flow] = add_completed(into[flow], done) if flow in into else done


def add_completed(one: Completed, other: Completed) -> Completed:
    """Return the sum; a time that one of them doesn't know is not known."""
    return Completed(
        one.count + other.count,
        one.bytes + other.bytes,
        _plus(one.time_us, other.time_us),
        _plus(one.queue_us, other.queue_us),
    )


def _plus(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other
