"""Sums over frames: traced stages, depth histograms and task queues, with exact subtraction.

Merging is addition, and a frame that was added can be taken away again, exactly. Facts that don't add up (who a thread
is, who shares a vector, how many requests are traced) are the latest ones. Knows neither time nor file.

The values that a sum gives are made of it when they are read: they are its own until the next frame is added.

As dictionaries, eleven minutes of 24 devices with depths to 256 could be 600 MB. Knows neither time nor file.

Memory does not grow with their number: depths above 256 share a bucket (outstanding.bucket_end). Depths stand in the
order in which they were first seen, which decides between two that are as frequent.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from latmon.aggregate.histogram_sum import Running, TableSum
from latmon.model.frame import (
    Flow,
    Frame,
    Handler,
    HandlerRuns,
    Series,
    SoftirqCpu,
    SoftirqRuns,
    Taskq,
    Thread,
    Traced,
    Wakeups,
)
from latmon.model.histogram import EMPTY, Histogram, within
from latmon.model.inflight import SYSFS, Depths, Took, bucket_end
from latmon.model.packed import GROUPS, Counted, Facts, Flat, Key, Packed, flatten, group_of

_SOURCE = {"total": "traced", "stage": "traced"}
"""Sum -> the table of a frame that it adds up, where its name is another."""


Read = Callable[[str], "DeepSums"]
"""Group -> its sums, which are begun when they are first read."""


def traced_of(read: Read) -> Traced:
    """What was traced; of its tables those are read that somebody asks for."""
    return replace(read("totals").followed, histograms=_Traced(read), by_total=_Buckets(read))


class _Traced(Mapping[Series, Histogram]):
    """Totals and stages, each asked for by itself: a screen mostly wants the totals alone.

    Their sums are those of the `by_total` tables where there are any. A map of sums may be printed after some I/Os that
    the map of counts lacks. A frame without counts has no histogram to put that time into, so the frames' own sums lack
    it for good where I/O stops; `by_total` has all of it.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._made: dict[Series, Histogram] = {}

    def __getitem__(self, series: Series) -> Histogram:
        made = self._made.get(series)
        if made is None:
            made = self._made[series] = self._summed(series, self._table(_table_of(series))[series])
        return made

    def __contains__(self, series: object) -> bool:
        return isinstance(series, Series) and series in self._table(_table_of(series))

    def _summed(self, series: Series, one: Histogram) -> Histogram:
        told = self._read("tails").tables["by_total"].tallies.get(series)
        if told is None:
            return one
        us = sum(told.counts.values())
        possible = within(dict(one.buckets), us)
        # A frame whose map of sums was not printed has no sum; a later one may have told all of it.
        return one if one.sum is None and us != possible else replace(one, sum=possible)

    def __iter__(self) -> Iterator[Series]:
        return chain(self._table("total"), self._table("stage"))

    def __len__(self) -> int:
        return len(self._table("total")) + len(self._table("stage"))

    def _table(self, name: str) -> TableSum[Series]:
        return self._read(f"{name}s").tables[name]


class _Buckets(Mapping[Series, Mapping[int, int]]):
    """A table's sums per bucket, with nothing made of them."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __getitem__(self, series: Series) -> Mapping[int, int]:
        return self._tallies[series].counts

    def __iter__(self) -> Iterator[Series]:
        return iter(self._tallies)

    def __len__(self) -> int:
        return len(self._tallies)

    @property
    def _tallies(self) -> dict[Series, Running]:
        return self._read("tails").tables["by_total"].tallies


class DeepSums:
    """Filled by `add`, of some groups or all; the properties make values of the same types as a frame's."""

    def __init__(self, frames: Iterable[Frame] = (), groups: Sequence[str] = tuple(GROUPS)) -> None:
        self._groups = groups
        self.tables = {name: _sum_of(name) for group in groups for name in GROUPS[group]}
        self._counts: dict[Key, int] = {}
        self._threads: dict[int, Thread] = {}
        self._handlers: dict[Handler, tuple[str, tuple[str, ...]]] = {}
        self._facts = Facts()
        for frame in frames:
            self.add(flatten(frame))

    def copy(self) -> DeepSums:
        """Return another one with the same sums, which goes on by itself."""
        other = DeepSums(groups=self._groups)
        other.tables = {name: table.copy() for name, table in self.tables.items()}
        other._counts, other._facts = self._counts.copy(), self._facts
        other._threads, other._handlers = self._threads.copy(), self._handlers.copy()
        return other

    def add(self, flat: Flat, stamp: int = 0) -> None:
        for name, table in self.tables.items():
            if (one := flat.tables.get(_SOURCE.get(name, name))) is not None:
                table.add(one, stamp)
        self._count(flat, 1)
        if "wakeup" in self.tables:
            self._threads.update(flat.facts.threads)
        if "handler" in self.tables:
            self._handlers.update(flat.facts.handlers)
        self._facts = flat.facts

    def remove(self, flat: Flat, stamp: int = 0) -> None:
        """Take away what was added with `stamp`; frames leave in the order in which they came."""
        for name, table in self.tables.items():
            if (one := flat.tables.get(_SOURCE.get(name, name))) is not None:
                for key in table.remove(one, stamp):
                    self._forget(name, key)
        self._count(flat, -1)

    @property
    def flat(self) -> Flat:
        """The sum as if it were one frame's."""
        grouped: dict[str, dict[Key, int]] = {}
        for key, n in self._counts.items():
            grouped.setdefault(group_of(key), {})[key] = n
        tables = {name: table for name, table in self.tables.items() if name not in _SOURCE} | {"traced": self.raw}
        return Flat(
            {name: Packed.of(table) for name, table in tables.items() if table},
            {group: Counted.of(counts.items()) for group, counts in grouped.items()},
            replace(self._facts, threads=dict(self._threads), handlers=dict(self._handlers)),
        )

    @property
    def raw(self) -> dict[Series, Histogram]:
        """Traced totals and stages with the frames' own sums: for a value that is added up again."""
        return {**self.tables["total"], **self.tables["stage"]}

    @property
    def above(self) -> dict[Flow, int]:
        return {key.about: n for key, n in self._counts.items() if isinstance(key.about, Flow) and key.kind == "above"}

    @property
    def suppressed(self) -> int:
        return self._counts.get(Key("suppressed", ""), 0)

    @property
    def thresholds_us(self) -> dict[str, int]:
        return dict(self._facts.thresholds_us)

    @property
    def traced(self) -> Traced:
        """`one_in`, `devices`, `includes` and `absent` are those of the last frame, `rates` of all."""
        return traced_of(lambda _: self)

    @property
    def followed(self) -> Traced:
        """As `traced`, without its histograms."""
        rates = [key.about for key in self._counts if key.kind == "one_in" and isinstance(key.about, int)]
        return replace(
            self._facts.traced,
            rates=(min(rates), max(rates)) if rates else (0, 0),
            unfollowed=self._by_device("unfollowed"),
            paths=self._by_device("path"),
            off=self._counts.get(Key("off", ""), 0),
        )

    @property
    def basic(self) -> Mapping[Series, Histogram]:
        return self.tables["basic"]

    @property
    def handlers(self) -> dict[Handler, HandlerRuns]:
        returned = self._grouped("returned")
        return {
            handler: HandlerRuns(
                run,
                returned.get(handler, {}),
                self._counts.get(Key("before", handler), 0),
                *self._handlers.get(handler, ("", ())),
            )
            for handler, run in self.tables["handler"].items()
        }

    @property
    def softirqs(self) -> dict[SoftirqCpu, SoftirqRuns]:
        delays, runs = self.tables["delay"], self.tables["softirq"]
        ran, raised = self._grouped("ran_in"), self._grouped("raised_in")
        return {
            where: SoftirqRuns(
                delays.get(where, EMPTY), runs.get(where, EMPTY), ran.get(where, {}), raised.get(where, {})
            )
            for where in dict.fromkeys((*delays, *runs))
        }

    @property
    def wakeups(self) -> tuple[Wakeups, ...]:
        instead = self._grouped("instead")
        return tuple(
            Wakeups(self._threads[pid], delay, instead.get(pid, {})) for pid, delay in self.tables["wakeup"].items()
        )

    def _grouped(self, kind: str) -> dict[object, dict[str, int]]:
        found: dict[object, dict[str, int]] = {}
        for key, n in self._counts.items():
            if key.kind == kind:
                found.setdefault(key.about, {})[key.name] = n
        return found

    def _by_device(self, kind: str) -> dict[str, dict[str, int]]:
        return {str(device): named for device, named in self._grouped(kind).items()}

    def _count(self, flat: Flat, sign: int) -> None:
        for some in (flat.counted[group] for group in self._groups if group in flat.counted):
            for key, n in zip(some.keys, some.counts, strict=True):
                left = self._counts.get(key, 0) + sign * n
                if left:
                    self._counts[key] = left
                else:
                    self._counts.pop(key, None)

    def _forget(self, table: str, key: Any) -> None:
        """Whom nothing is told of any more is not remembered."""
        if table == "wakeup":
            self._threads.pop(key, None)
        elif table == "handler":
            self._handlers.pop(key, None)


def _sum_of(table: str) -> TableSum[Any]:
    if table in ("total", "stage"):
        return TableSum(_is_total if table == "total" else lambda series: not _is_total(series))
    return TableSum(peaks=table != "by_total")


def _table_of(series: Series) -> str:
    return "total" if _is_total(series) else "stage"


def _is_total(series: Series) -> bool:
    return series.stage == "total"


_MOST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PackedDepths:
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
    def packed(self) -> PackedDepths:
        took = self._latency.values()
        return PackedDepths(
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

    def add(self, one: PackedDepths, stamp: int = 0) -> None:
        """`stamp` grows from one to the next."""
        self._count(one, 1)
        if one.most is not None:
            while self._peaks and self._peaks[-1][1] <= one.most:
                self._peaks.pop()
            self._peaks.append((stamp, one.most))

    def remove(self, one: PackedDepths, stamp: int = 0) -> None:
        """What was added with stamps up to `stamp`, in one or in several; the oldest leave first."""
        self._count(one, -1)
        while self._peaks and self._peaks[0][0] <= stamp:
            self._peaks.popleft()

    def _count(self, one: PackedDepths, sign: int) -> None:
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


def packed(depths: Depths, span_us: int = 0) -> PackedDepths:
    """A Depths of an interval in less room."""
    ios, times = zip(*depths.latency.values(), strict=True) if depths.latency else ((), ())
    moments = sum(depths.in_driver.values())
    return PackedDepths(
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


MAX_QUEUES = 1000
"""With a sum of their own: queues are made and destroyed for as long as a recording lasts."""


class Summed(NamedTuple):
    """One task queue over some time."""

    last: Taskq
    """As it was read last."""
    active: int
    """The most threads that ran a task at a reading, as `waiting` the most tasks that waited."""
    waiting: int
    tasks: int
    executed: int
    time_us: int | None
    """None where it isn't known of all that were executed."""
    span_us: int

    @property
    def mean_us(self) -> float | None:
        """Of a task's run."""
        return self.time_us / self.executed if self.time_us is not None and self.executed else None

    @property
    def per_second(self) -> float | None:
        """Tasks executed."""
        return self.executed * 1e6 / self.span_us if self.span_us else None


@dataclass
class TaskqSums:
    """Filled by `add`, one reading after the other."""

    read: bool = False
    """Whether there was a reading at all."""
    left_out: int = 0
    """Executed by queues that are not in `rows`."""
    _found: dict[tuple[str, int], Summed] = field(default_factory=dict)

    def add(self, reading: Iterable[Taskq] | None) -> None:
        if reading is None:
            return
        self.read = True
        for one in reading:
            key = (one.name, one.instance)
            had = self._found.get(key)
            if had is None and len(self._found) >= MAX_QUEUES:
                self.left_out += one.executed
            else:
                self._found[key] = _added(had, one)

    def take(self, sums: Iterable[Summed] | None) -> None:
        """Readings that came later, already added up; None: there were none."""
        if sums is None:
            return
        self.read = True
        for one in sums:
            key = (one.last.name, one.last.instance)
            had = self._found.get(key)
            if had is None and len(self._found) >= MAX_QUEUES:
                self.left_out += one.executed
            else:
                self._found[key] = one if had is None else _both(had, one)

    @property
    def in_order(self) -> tuple[Summed, ...]:
        """As they were first seen."""
        return tuple(self._found.values())

    @property
    def rows(self) -> tuple[Summed, ...]:
        """The queue that had most waiting first, permanent loops last."""
        return tuple(
            sorted(
                self._found.values(),
                key=lambda s: (s.last.loops, -s.waiting, -(s.time_us or 0), -s.executed, s.last.name, s.last.instance),
            )
        )


def summed(readings: Iterable[Iterable[Taskq] | None]) -> tuple[Summed, ...] | None:
    """The rows of all of them; None where there was no reading."""
    sums = TaskqSums()
    for one in readings:
        sums.add(one)
    return sums.rows if sums.read else None


def _added(had: Summed | None, one: Taskq) -> Summed:
    now = Summed(one, one.active, one.waiting, one.tasks, one.executed, _time(one), one.span_us)
    return now if had is None else _both(had, now)


def _both(had: Summed, now: Summed) -> Summed:
    return Summed(
        now.last,
        max(had.active, now.active),
        max(had.waiting, now.waiting),
        had.tasks + now.tasks,
        had.executed + now.executed,
        None if had.time_us is None or now.time_us is None else had.time_us + now.time_us,
        had.span_us + now.span_us,
    )


def _time(one: Taskq) -> int | None:
    return one.time_us if one.executed else 0
