"""Running sums of histograms with exact subtraction, and the sliding maximum, which can't be subtracted.

Of depth histograms DepthSum adds and subtracts samples, for windows; DepthTimes adds times, for reports. Their memory
does not grow with the number of intervals: depths above 256 share a bucket (inflight.bucket_end). Depths are in the
order in which they were first seen, which decides between two that are as frequent.

OnDemandSums has those of on-demand values: traced stages and declared tables. Facts that can't be added (thread,
handlers that share a vector, sampling rate) are those of the latest frame.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, islice, repeat
from types import MappingProxyType
from typing import Any, TypeVar

from latmon.model.frame import Frame, Series, Traced
from latmon.model.histogram import BITS, EMPTY, Histogram, bucket_bounds, bucket_index
from latmon.model.inflight import SYSFS, Depths, Took, bucket_end
from latmon.model.measurements import TABLES
from latmon.model.packed import (
    GROUPS,
    SAMPLED,
    UNKNOWN,
    Flat,
    Key,
    KeyedCounts,
    OnDemandFacts,
    Packed,
    flatten,
    group_of,
    is_sampled_count,
    made_rows,
)
from latmon.model.sample import SampleRates
from latmon.model.table import AnyTable, Row, Table

Pairs = Iterable[tuple[int, int]]
"""(bucket index, count)."""
_MAX_SUM = 2**63 - 1
_WITH_FACTS = {column: table for table in TABLES if table.fact_places for column, _ in table.histogram_columns}
"""Name of a sum of histograms -> the declared table, where its rows have facts."""
_SOURCE = {"total": "traced", "stage": "traced"}
"""Name of a sum -> name of the frame's table that it adds up, where they differ."""


Read = Callable[[str], "OnDemandSums"]
"""Group of tables -> its sums, which may be computed by the call."""


@dataclass(slots=True)
class HistogramSum:
    """Running sum of one series' histograms, without its maximum; at the scale of the coarsest of them."""

    counts: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    sum: int = 0
    unknown_sums: int = 0
    bits: int = BITS

    def add(self, pairs: Pairs, total: int | None, bits: int = BITS) -> None:
        """Add a histogram's buckets and its sum in us."""
        counts = self.counts
        for index, n in pairs if bits == self.bits else self.at_scale(pairs, bits):
            counts[index] += n
        self.sum += total or 0
        self.unknown_sums += total is None

    def remove(self, pairs: Pairs, total: int | None, bits: int = BITS) -> None:
        """Subtract a histogram that was added."""
        counts = self.counts
        for index, n in pairs if bits == self.bits else self.at_scale(pairs, bits):
            left = counts.get(index, 0) - n
            if left:
                counts[index] = left
            else:
                counts.pop(index, None)
        self.sum -= total or 0
        self.unknown_sums -= total is None

    def histogram(self, maximum: int | None = None) -> Histogram:
        """Return the sum, with a maximum that is known from elsewhere."""
        total = None if self.unknown_sums else self.sum
        indices = sorted(self.counts)
        buckets = tuple(zip(indices, map(self.counts.__getitem__, indices), strict=True))
        return Histogram(buckets, total, maximum, self.bits)

    def multiply(self, factor: Fraction) -> None:
        """Multiply counts and sum by a factor that leaves them whole."""
        for index, n in self.counts.items():
            self.counts[index] = int(n * factor)
        self.sum = int(self.sum * factor)

    def at_scale(self, pairs: Pairs, bits: int) -> Pairs:
        """Return the buckets at this sum's scale, which becomes theirs where theirs is coarser."""
        if bits < self.bits:
            coarse = _coarsened(self.counts.items(), self.bits, bits)
            self.counts.clear()
            self.bits = bits
            for index, n in coarse:
                self.counts[index] += n
        return _coarsened(pairs, bits, self.bits)


def _coarsened(pairs: Pairs, bits: int, to: int) -> Pairs:
    return pairs if bits == to else [(bucket_index(bucket_bounds(index, bits)[0], to), n) for index, n in pairs]


@dataclass(slots=True)
class Peak:
    """Greatest value of a sliding window: falling (stamp, value) pairs, as many as the maximum may still become."""

    known: deque[tuple[int, int]] = field(default_factory=deque)
    bounds: deque[tuple[int, int]] = field(default_factory=deque)
    """The highest value that histograms without an exact maximum may have."""

    def add(self, stamp: int, histogram: Histogram) -> None:
        last = histogram.buckets[-1][0] if histogram else 0
        if histogram or histogram.max is not None:
            self.see(stamp, histogram.max, last, histogram.bits)

    def see(self, stamp: int, maximum: int | None, last: int, bits: int = BITS) -> None:
        """Add a maximum in us, or where it isn't known the highest bucket `last`."""
        falling, value = (self.bounds, bucket_bounds(last, bits)[1] - 1) if maximum is None else (self.known, maximum)
        while falling and falling[-1][1] <= value:
            falling.pop()
        # a value that leaves together with a greater one is never the maximum
        if not falling or falling[-1][0] != stamp:
            falling.append((stamp, value))

    def forget(self, until: int) -> None:
        """Drop values with stamps up to `until`."""
        for one in (self.known, self.bounds):
            while one and one[0][0] <= until:
                one.popleft()

    def maximum(self) -> int | None:
        """Return the exact maximum in us; None where a histogram without one may have a greater value."""
        return maximum_of((self,))

    @property
    def is_mixed(self) -> bool:
        """Whether some histograms had an exact maximum and some had none."""
        return bool(self.known and self.bounds)


def maximum_of(peaks: Sequence[Peak]) -> int | None:
    """Return the exact maximum of several peaks in us; None as of `Peak.maximum`."""
    known = max((one.known[0][1] for one in peaks if one.known), default=-1)
    bound = max((one.bounds[0][1] for one in peaks if one.bounds), default=-1)
    return known if known >= max(bound, 0) else None


K = TypeVar("K")
V = TypeVar("V")


TableRow = tuple[K, Pairs, int | None, int | None, int, int]
"""Key, buckets, sum, maximum, highest bucket and scale (bits) of one histogram of a table."""


class TableSum(Mapping[K, Histogram]):
    """Running sum of tables of histograms; a mapping whose histograms are made when they are read."""

    def __init__(self, wanted: Callable[[K], bool] | None = None, *, peaks: bool = True) -> None:
        """`wanted` selects rows; without `peaks` no maximum is kept, and tables may be removed in any order."""
        self.sums: dict[K, HistogramSum] = {}
        self._wanted = wanted
        self._peaks: dict[K, Peak] | None = {} if peaks else None
        self._made: dict[K, Histogram] = {}

    def copy(self) -> TableSum[K]:
        other = TableSum(self._wanted, peaks=self._peaks is not None)
        other.sums = {key: replace(one, counts=one.counts.copy()) for key, one in self.sums.items()}
        if self._peaks is not None:
            other._peaks = {key: Peak(one.known.copy(), one.bounds.copy()) for key, one in self._peaks.items()}
        return other

    def add(self, table: Mapping[K, Histogram], stamp: int = 0) -> None:
        """Add a table; `stamp` grows from one to the next."""
        if isinstance(table, Packed):
            self._add_packed(table, stamp)
            return
        for key, pairs, total, maximum, last, bits in self._rows(table):
            self._row(key, bits).add(pairs, total, bits)
            if self._peaks is not None:
                self._peaks[key].see(stamp, maximum, last, bits)

    def _add_packed(self, table: Packed[K], stamp: int) -> None:
        """Add a table without a call per row: two thirds of the time, and most of that of a report or a check."""
        self._made = {}
        sums, peaks, wanted, begin = self.sums, self._peaks, self._wanted, 0
        pairs = zip(table.indices, table.counts, strict=True)
        for key, end, (total, maximum, bits) in zip(table.rows, table.ends, _known(table), strict=False):
            some = islice(pairs, end - begin)
            if begin == end:
                continue
            begin = end
            if wanted is not None and not wanted(key):
                deque(some, maxlen=0)
                continue
            one = sums.get(key)
            if one is None:
                one = self._row(key, bits)
            counts = one.counts
            if not counts and bits == one.bits:
                counts.update(some)
            else:
                for index, n in some if bits == one.bits else one.at_scale(some, bits):
                    counts[index] += n
            if total < 0:
                one.unknown_sums += 1
            else:
                one.sum += total
            if peaks is not None:
                peaks[key].see(stamp, None if maximum < 0 else maximum, table.indices[end - 1], bits)

    def _row(self, key: K, bits: int) -> HistogramSum:
        """Return the sum of a row; a new one has the scale of its first histogram."""
        one = self.sums.get(key)
        if one is None:
            one = self.sums[key] = HistogramSum(bits=bits)
            if self._peaks is not None:
                self._peaks[key] = Peak()
        return one

    def remove(self, table: Mapping[K, Histogram], stamp: int = 0) -> list[K]:
        """Subtract a table that was added with `stamp`, and return the keys of which nothing is left."""
        gone = []
        for key, pairs, total, _, _, bits in self._rows(table):
            one = self.sums.get(key)
            if one is None:  # sums of 0 leave with the first of them
                continue
            one.remove(pairs, total, bits)
            if not one.counts:
                del self.sums[key]
                gone.append(key)
            if self._peaks is None:
                continue
            if one.counts:
                self._peaks[key].forget(stamp)
            else:
                del self._peaks[key]
        return gone

    def multiply(self, factor: Fraction, wanted: Callable[[K], bool]) -> None:
        """Multiply the counts and sums of the wanted rows by a factor that leaves them whole."""
        self._made = {}
        for key, row in self.sums.items():
            if wanted(key):
                row.multiply(factor)

    def forget(self, keys: Iterable[K]) -> None:
        """Drop rows."""
        self._made = {}
        for key in keys:
            self.sums.pop(key, None)
            if self._peaks is not None:
                self._peaks.pop(key, None)

    @property
    def is_uniform(self) -> bool:
        """Whether of each row all histograms have an exact maximum or none has.

        Their scales may differ: a sum has the coarsest one, in whatever order and groups they are added.
        """
        return not any(peak.is_mixed for peak in (self._peaks or {}).values())

    def __getitem__(self, key: K) -> Histogram:
        made = self._made.get(key)
        if made is None:
            peak = self._peaks[key].maximum() if self._peaks is not None else None
            made = self._made[key] = self.sums[key].histogram(peak)
        return made

    @property
    def packed(self) -> Packed[K]:
        """Return `Packed.of` the sums, in half of the time: without their histograms."""
        if any(one.bits > BITS for one in self.sums.values()):
            return Packed.of(self)
        indices, counts, ends = bytearray(), list[int](), list[int]()
        for one in self.sums.values():
            some = sorted(one.counts)
            indices += bytes(some)
            counts += map(one.counts.__getitem__, some)
            ends.append(len(counts))
        peaks = [None] * len(ends) if self._peaks is None else [self._peaks[key].maximum() for key in self.sums]
        scales = bytes([one.bits for one in self.sums.values()])
        return Packed(
            tuple(self.sums),
            ends,
            bytes(indices),
            counts,
            sums=[UNKNOWN if one.unknown_sums else one.sum for one in self.sums.values()],
            maxima=[UNKNOWN if peak is None else peak for peak in peaks],
            scales=b"" if scales == bytes([BITS]) * len(scales) else scales,
        )

    def merged(self, keys: Iterable[K], maximum: int | None = None) -> Histogram:
        """Return the sum of several rows; `maximum`: known from elsewhere, where no peaks are kept."""
        present = [key for key in keys if key in self.sums]
        if not present:
            return EMPTY
        if self._peaks is not None:
            maximum = maximum_of([self._peaks[key] for key in present])
        first, *others = [self.sums[key] for key in present]
        both = HistogramSum(first.counts.copy(), first.sum, first.unknown_sums, first.bits) if others else first
        for one in others:
            both.add(one.counts.items(), None if one.unknown_sums else one.sum, one.bits)
        return both.histogram(maximum)

    def __contains__(self, key: object) -> bool:
        return key in self.sums

    def __iter__(self) -> Iterator[K]:
        return iter(self.sums)

    def __len__(self) -> int:
        return len(self.sums)

    def _rows(self, table: Mapping[K, Histogram]) -> Iterator[TableRow[K]]:
        """Return the table's rows that are wanted and not empty; they change the sum, so its histograms are dropped."""
        self._made = {}
        if isinstance(table, Packed):
            return _packed_rows(table, self._wanted)
        return _plain_rows(table, self._wanted)


def _packed_rows(table: Packed[K], wanted: Callable[[K], bool] | None) -> Iterator[TableRow[K]]:
    """Yield rows without making their histograms."""
    indices, counts, begin = table.indices, table.counts, 0
    for key, end, (total, maximum, bits) in zip(table.rows, table.ends, _known(table), strict=False):
        if begin < end and (wanted is None or wanted(key)):
            pairs = zip(indices[begin:end], counts[begin:end], strict=True)
            last = indices[end - 1]
            yield key, pairs, None if total < 0 else total, None if maximum < 0 else maximum, last, bits
        begin = end


def _known(table: Packed[Any]) -> Iterator[tuple[int, int, int]]:
    """Return sum, maximum and scale of each row; UNKNOWN where they are not known; endless where none is."""
    unknown = repeat(UNKNOWN)
    return zip(table.sums or unknown, table.maxima or unknown, table.scales or repeat(BITS), strict=False)


def _plain_rows(table: Mapping[K, Histogram], wanted: Callable[[K], bool] | None) -> Iterator[TableRow[K]]:
    for key, one in table.items():
        if one.buckets and (wanted is None or wanted(key)):
            yield key, one.buckets, one.sum, one.max, one.buckets[-1][0], one.bits


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
            MappingProxyType(self._in_driver),
            MappingProxyType(self._queued),
            MappingProxyType(self._at_issue),
            MappingProxyType(self._latency),
            self._peak.maximum(),
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
            self._peak.maximum(),
            self._corrected,
            dict(self._sources),
            self.span_us,
            self._quiet,
        )

    def add(self, one: PackedDepths, stamp: int = 0) -> None:
        """Add depths; `stamp` grows from one to the next."""
        self._count(one, 1)
        if one.most is not None:
            self._peak.see(stamp, one.most, 0)

    def remove(self, one: PackedDepths, stamp: int = 0) -> None:
        """Subtract the oldest depths, which were added with stamps up to `stamp`, as one or as several."""
        self._count(one, -1)
        self._peak.forget(stamp)

    def _count(self, one: PackedDepths, sign: int) -> None:
        self.span_us += sign * one.span_us
        self._corrected += sign * one.corrected
        self._quiet += sign * one.quiet
        for source, moments in one.sources.items():
            self._sources[source] += sign * moments
            if sign < 0 and not self._sources[source]:
                del self._sources[source]
        _add(self._in_driver, one.in_driver, sign)
        _add(self._queued, one.queued, sign)
        _add(self._at_issue, one.at_issue, sign)
        for depth, ios, time_us in () if self.brief else zip(*one.latency, strict=True):
            _add_times(self._latency, depth, sign * ios, sign * time_us)


def packed(depths: Depths, span_us: int = 0) -> PackedDepths:
    """Pack a Depths of an interval of `span_us`."""
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
    had = sums.get(depth, Took(0, 0))
    if had.ios + ios:
        sums[depth] = Took(had.ios + ios, had.time_us + time_us)
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

    def add(self, one: Depths, dt_us: int, wall_s: float) -> None:
        """Add a frame's depths; the frame is `dt_us` long and ends at `wall_s` (Unix time)."""
        _spread(self.in_driver, one.in_driver, dt_us)
        _spread(self.queued, one.queued, dt_us)
        for depth, n in one.at_issue.items():
            self.at_issue[bucket_end(depth)] += n
        for depth, took in one.latency.items():
            _add_times(self.latency, bucket_end(depth), *took)
        if one.highest > self.highest:
            self.highest, self.highest_at = one.highest, wall_s
        self.corrected += one.corrected
        self.sources[one.source] += dt_us
        self.quiet_us += dt_us if one.quiet else 0
        self.span_us += dt_us if any(one.in_driver.values()) else 0

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
        for mine, theirs in ((self.in_driver, other.in_driver), (self.queued, other.queued)):
            mine.update(theirs)
        self.at_issue.update(other.at_issue)
        for depth, took in other.latency.items():
            _add_times(self.latency, depth, *took)
        if other.highest > self.highest:
            self.highest, self.highest_at = other.highest, other.highest_at
        self.corrected += other.corrected
        self.sources.update(other.sources)
        self.quiet_us += other.quiet_us
        self.span_us += other.span_us

    @property
    def depths(self) -> Depths:
        """The sum as one interval with a sample per ms; the source is that of most of the time."""
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
    """Add a frame's length in proportion to its samples."""
    whole = sum(moments.values())
    for depth, n in sorted(moments.items()):
        into[bucket_end(depth)] += round(dt_us * n / whole) if n else 0


def traced_of(read: Read) -> Traced:
    """Return the sum of traced requests, whose tables are computed when they are read."""
    return replace(read("totals").followed, histograms=_Traced(read), by_total=_Buckets(read))


class _Traced(Mapping[Series, Histogram]):
    """Histograms of totals and stages; each table is read separately, because a screen mostly needs the totals alone.

    Times are those of the `by_total` tables where there are any. A tracer may print a map of sums after completions
    that the map of counts lacks. A frame without counts has no histogram for that time, so the sums of histograms lack
    it when I/O stops; `by_total` has all of it.
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
        reported = self._read("tails").tables["by_total"].sums.get(series)
        if reported is None:
            return one
        us = sum(reported.counts.values())
        possible = one.within(us)
        # A frame whose map of sums was not printed has no sum; a later frame may contain all of it.
        return one if one.sum is None and us != possible else replace(one, sum=possible)

    def __iter__(self) -> Iterator[Series]:
        return chain(self._table("total"), self._table("stage"))

    def __len__(self) -> int:
        return len(self._table("total")) + len(self._table("stage"))

    def _table(self, name: str) -> TableSum[Series]:
        return self._read(f"{name}s").tables[name]


class _Buckets(Mapping[Series, Mapping[int, int]]):
    """Sums in us per bucket of the `by_total` table."""

    def __init__(self, read: Read) -> None:
        self._read = read

    def __getitem__(self, series: Series) -> Mapping[int, int]:
        return self._sums[series].counts

    def __iter__(self) -> Iterator[Series]:
        return iter(self._sums)

    def __len__(self) -> int:
        return len(self._sums)

    @property
    def _sums(self) -> dict[Series, HistogramSum]:
        return self._read("tails").tables["by_total"].sums


class OnDemandSums:
    """Running sums of on-demand values, of some groups or all; its properties have the types of a frame's.

    What is of the tracer's sample is weighed by SampleRates.
    """

    def __init__(self, frames: Iterable[Frame] = (), groups: Sequence[str] = tuple(GROUPS)) -> None:
        self._groups = groups
        self.tables = {name: _sum_of(name) for group in groups for name in GROUPS[group]}
        self._counts: dict[Key, int] = {}
        self._of_rows: dict[AnyTable, dict[Any, tuple[Any, ...]]] = {}
        """Has the facts of rows as OnDemandFacts has them."""
        self._facts = OnDemandFacts()
        self._rates = SampleRates()
        for frame in frames:
            self.add(flatten(frame))

    def copy(self) -> OnDemandSums:
        other = OnDemandSums(groups=self._groups)
        other.tables = {name: table.copy() for name, table in self.tables.items()}
        other._counts, other._facts, other._rates = self._counts.copy(), self._facts, self._rates.copy()
        other._of_rows = {table: facts.copy() for table, facts in self._of_rows.items()}
        return other

    def add(self, flat: Flat, stamp: int = 0) -> None:
        """Add a frame's values; `stamp` grows from one to the next."""
        self._multiply(self._rates.count(flat.one_in))
        factor = self._factor(flat)
        for name, table in self.tables.items():
            if (one := _weighed(flat, name, factor)) is not None:
                table.add(one, stamp)
        self._count(flat, factor)
        for declared, facts in flat.facts.of_rows.items():
            if declared.group in self._groups:
                self._of_rows.setdefault(declared, {}).update(facts)
        self._facts = flat.facts

    def remove(self, flat: Flat, stamp: int = 0) -> None:
        """Subtract values that were added with `stamp`, in the order in which they were added."""
        factor = self._factor(flat)
        for name, table in self.tables.items():
            if (one := _weighed(flat, name, factor)) is not None:
                for key in table.remove(one, stamp):
                    self._forget(name, key)
        self._count(flat, factor, -1)
        self._multiply(self._rates.count(flat.one_in, -1))

    @property
    def one_in(self) -> int:
        """I/Os that each counted one of the sample stands for; 0: nothing is of a sample."""
        return self._rates.one_in

    @property
    def flat(self) -> Flat:
        """The sum in the packed form of one frame."""
        grouped: dict[str, dict[Key, int]] = {}
        for key, n in self._counts.items():
            grouped.setdefault(group_of(key), {})[key] = n
        tables = {name: table.packed for name, table in self.tables.items() if name not in _SOURCE and table}
        if traced := self.tables["total"].packed.joined(self.tables["stage"].packed):
            tables["traced"] = traced
        return Flat(
            tables,
            {group: KeyedCounts.of(counts.items()) for group, counts in grouped.items()},
            replace(self._facts, of_rows=self._facts_by_table()),
            self.one_in,
        )

    @property
    def raw(self) -> dict[Series, Histogram]:
        """Histograms of traced totals and stages with the frames' own sums, to be added up again."""
        return {**self.tables["total"], **self.tables["stage"]}

    @property
    def suppressed(self) -> int:
        return self._counts.get(Key("suppressed", ""), 0)

    @property
    def thresholds_us(self) -> dict[str, int]:
        return dict(self._facts.thresholds_us)

    @property
    def traced(self) -> Traced:
        """Sum of traced requests; the tracer's state is that of the last frame, `rates` are those of all frames."""
        return traced_of(lambda _: self)

    @property
    def followed(self) -> Traced:
        """`traced` without its histograms."""
        rates = [key.about for key in self._counts if key.kind == "one_in" and isinstance(key.about, int)]
        return replace(
            self._facts.traced,
            rates=(min(rates), max(rates)) if rates else (0, 0),
            unfollowed=self._by_device("unfollowed"),
            paths=self._by_device("path"),
            off=self._counts.get(Key("off", ""), 0),
            admission_causes=self._by_device("cause"),
            completers=self._by_device("completer"),
            raisers=self._by_device("raiser"),
        )

    @property
    def basic(self) -> Mapping[Series, Histogram]:
        return self.tables["basic"]

    def __getitem__(self, table: Table[Row, V]) -> dict[Row, V]:
        """Return the sums of a declared table."""
        return made_rows(table, self._counts.items(), self.tables, self._of_rows.get(table, {}))

    @property
    def files_left_out(self) -> int:
        return self._counts.get(Key("files_left_out", ""), 0)

    def _facts_by_table(self) -> dict[AnyTable, Mapping[Any, tuple[Any, ...]]]:
        return {table: dict(facts) for table, facts in self._of_rows.items() if facts}

    def _grouped(self, kind: str) -> dict[object, dict[str, int]]:
        found: dict[object, dict[str, int]] = {}
        for key, n in self._counts.items():
            if key.kind == kind:
                found.setdefault(key.about, {})[key.name] = n
        return found

    def _by_device(self, kind: str) -> dict[str, dict[str, int]]:
        return {str(device): named for device, named in self._grouped(kind).items()}

    def _factor(self, flat: Flat) -> int:
        return flat.one_in // self.one_in if flat.one_in else 1

    def _count(self, flat: Flat, factor: int, sign: int = 1) -> None:
        for some in (flat.counted[group] for group in self._groups if group in flat.counted):
            for key, n in zip(some.keys, some.counts, strict=True):
                weight = factor if factor > 1 and is_sampled_count(key) else 1
                left = self._counts.get(key, 0) + sign * n * weight
                if left:
                    self._counts[key] = left
                else:
                    self._counts.pop(key, None)

    def _multiply(self, factor: Fraction) -> None:
        """Multiply what is of the sample by a factor that leaves it whole."""
        if factor == 1:
            return
        for name, table in self.tables.items():
            if (is_sampled := SAMPLED.get(_SOURCE.get(name, name))) is not None:
                table.multiply(factor, is_sampled)
        for key in filter(is_sampled_count, self._counts):
            self._counts[key] = int(self._counts[key] * factor)

    def _forget(self, table: str, key: Any) -> None:
        """Drop the names that belong to a row that was removed."""
        if (declared := _WITH_FACTS.get(table)) is not None and not self._is_timed(declared, key):
            self._of_rows[declared].pop(key, None)

    def _is_timed(self, table: AnyTable, key: Any) -> bool:
        return any(key in self.tables[column] for column, _ in table.histogram_columns)


def _weighed(flat: Flat, name: str, factor: int) -> Packed[Any] | None:
    """Return the table that a sum of this name adds up, with the weight of its sample; None without one."""
    source = _SOURCE.get(name, name)
    table = flat.tables.get(source)
    is_sampled = SAMPLED.get(source)
    if table is None or factor == 1 or is_sampled is None:
        return table
    return table.scaled(factor, is_sampled)


def _sum_of(table: str) -> TableSum[Any]:
    if table in ("total", "stage"):
        return TableSum(_is_total if table == "total" else lambda series: not _is_total(series))
    return TableSum(peaks=table != "by_total")


def _table_of(series: Series) -> str:
    return "total" if _is_total(series) else "stage"


def _is_total(series: Series) -> bool:
    return series.stage == "total"
