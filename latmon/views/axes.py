"""The axes of a heat map: columns of time with the I/Os of each device, rows of latency, steps of I/Os per cell. Pure.

A column holds a whole number of frames. Its number depends on the capture's intervals only, so that it holds the same
frames in every view. A map of n slots shows the newest column in its last slot. As a sweep it shows column c in slot
c mod n and overwrites the oldest: a new second then repaints one column. Missing time has columns of its own, so that a
gap in the data is drawn as a gap.

Scales have coarse steps. A map that is rescaled for every new maximum can't be compared with the previous picture, and
each rescaling sends the whole screen over ssh.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import Flow, Frame, Series
from latmon.model.histogram import BITS, TOP, Histogram, bucket_bounds, bucket_index
from latmon.model.host_context import HostContext, added
from latmon.model.inflight import InFlightList
from latmon.model.measurements import ERRORS
from latmon.recording.archive import Before, TimelineEvent, moments

_OCTAVE = 1 << BITS
_LABELS: Mapping[int, int] = MappingProxyType(
    dict(
        zip(
            (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256),
            (1, 1, 3, 2, 3, 2, 3, 2, 3, 4, 6, 8, 16, 32),
            strict=True,
        )
    )
)
"""Buckets of a row, finest first -> octaves from label to label.

Labels are then at powers of 2, 4, 8, 16 ... us in rows that are equally far apart: bucket 8 * k begins at 2 ** (k + 2).
Each step is at most half as large again as the one before it, from 2 to 64: a range fills two thirds of its rows at
least. Steps of 5/8 octave and its multiples would have a label at every factor of 32 only.
"""
_TALL = (32, 24, 20, 16, 12, 10, 6)
"""Rows of an octave, finest first, where rows are smaller than buckets.

A narrow range fills its rows so. Steps in between would need labels between rows.
"""
_FASTEST = 0.001
"""Share of the I/Os that the lowest row counts together, whatever their latency is: the axis begins at p0.1."""
_DEFAULT = (bucket_index(64), bucket_index(16_384))
_ROUND: tuple[int, ...] = tuple(digit * 10**power for power in range(12) for digit in (1, 2, 5))
_LEAST_TOP = 5
_LEAST_RANGE = _OCTAVE
"""Least range of a scale, in buckets: a device whose I/Os all take the same time has rows below it, too."""
_P99 = 0.99
_LABELLED = 2
"""Labels that show the scale of an axis; with one it is not known how much a row is."""
_MARGIN_FROM = 6
"""Rows from which on a scale has an empty cell above the slowest I/O."""
Fullness = Counter[int]
"""Cells with I/Os by the position of their count, rounded down to 1, 2, 5, 10, 20, 50 ..."""
Counts = dict[int, int]
_MAX_GAP_COLUMNS = 10_000


@dataclass(frozen=True, slots=True)
class LatencyScale:
    """Row r (from below) counts the buckets [low + r * step / per, low + (r + 1) * step / per).

    `per`: the rows that `step` buckets take together. Where it is greater than 1, a row shows one bucket, and a bucket
    may have several rows, the lowest of which is `row`.
    """

    low: int
    step: int
    rows: int
    per: int = 1

    def row(self, index: int) -> int:
        """Return the row of a bucket; a bucket outside is in the outermost row."""
        return min(max((index - self.low) * self.per // self.step, 0), self.rows - 1)

    def top_row(self, index: int) -> int:
        """Return the highest row of a bucket, of which half may be the next one's."""
        half = (index + 1 - self.low) * self.per * 2 // self.step - 1
        return min(max(half // 2, self.row(index)), self.rows - 1)

    def row_of(self, us: int) -> int:
        """Return the row of a latency, which is in proportion where its bucket has several rows."""
        index = bucket_index(us)
        (low, high), row = bucket_bounds(index), self.row(index)
        return row + (min(us, high - 1) - low) * (self.top_row(index) + 1 - row) // (high - low)

    def reaches(self, us: int) -> bool:
        """Return whether a latency is in the range of the rows."""
        return self.low <= bucket_index(us) <= self.last(self.rows - 1)

    def first(self, row: int) -> int:
        """Return the lowest bucket of a row."""
        return min(self.low - (-row * self.step // self.per), self.last(row))

    def last(self, row: int) -> int:
        """Return the highest bucket of a row."""
        return self.low + ((row + 1) * self.step - 1) // self.per

    def beside(self, index: int, rows: int) -> int:
        """Return the bucket so many rows above the one of a bucket, at most at the edge of the scale."""
        if self.per > self.step:
            return min(max(index + rows, self.low), self.last(self.rows - 1))
        return self.first(min(max(self.row(index) + rows, 0), self.rows - 1))

    def is_edge(self, row: int) -> bool:
        """Return whether a row begins where a bucket does."""
        return row * self.step % self.per == 0

    def edge(self, row: int) -> int:
        """Return the bucket that the lower edge of a row is in."""
        return self.low + row * self.step // self.per

    def is_labelled(self, row: int) -> bool:
        """Return whether the lower edge of a row has a label; the lowest row has none where it begins at 0."""
        if not self.is_edge(row):
            return False
        edge, apart = self.edge(row), _LABELS[self.step] if self.per == 1 else 1
        # a scale from 0 us on may have no edges at the usual powers of 2; its labels are at others, equally far apart
        is_usual = (self.low + 2 * _OCTAVE) % self.step == 0 or self.per > 1
        first = 0 if is_usual else math.lcm(self.step, _OCTAVE) // _OCTAVE + 2
        return edge > 0 and edge % _OCTAVE == 0 and (edge // _OCTAVE + 2 - first) % apart == 0

    @property
    def labels(self) -> int:
        """Return the number of rows with a label."""
        return sum(map(self.is_labelled, range(self.rows)))

    def edge_us(self, row: int) -> int:
        """Return the lower edge of a row in us."""
        return bucket_bounds(self.edge(row))[0]

    @property
    def open_below(self) -> bool:
        """Return whether the lower edge of row 0 is 0."""
        return self.low == 0

    def needed(self, high: int) -> int:
        """Return the rows up to those of bucket `high`, and one above it."""
        return min(self.top_row(high) + 2, self.rows)

    def lowered(self, high: int) -> LatencyScale:
        """Return the scale with the rows that aren't needed above bucket `high` at its lower end, down to 0 us."""
        spare, unit = self.rows - self.needed(high), _unit(self.step, self.per)
        many = min(spare * self.step // (unit * self.per), self.low // unit)
        return replace(self, low=self.low - many * unit)

    @property
    def halves(self) -> LatencyScale:
        """Return the scale of half rows; this one where its rows are single buckets."""
        if self.per > 1:
            return replace(self, rows=self.rows * 2, per=self.per * 2)
        return self if self.step % 2 else LatencyScale(self.low, self.step // 2, self.rows * 2)


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of the data: lowest and highest bucket."""

    low: int = _DEFAULT[0]
    high: int = _DEFAULT[1]


@lru_cache(16)
def _places(scale: LatencyScale) -> tuple[int, ...]:
    return tuple(scale.row(index) for index in range(TOP + 1))


@lru_cache(16)
def _shown(scale: LatencyScale) -> tuple[tuple[int, int], ...]:
    """Return the buckets of each row, above the lowest one: [begin, end)."""
    return tuple((scale.first(row) - scale.low, scale.last(row) + 1 - scale.low) for row in range(scale.rows))


def rows_of(counts: Mapping[int, int], scale: LatencyScale) -> list[int]:
    """Return the I/Os per row, from below; a bucket of several rows counts in each of them."""
    if scale.per > 1:
        each = rows_of(counts, LatencyScale(scale.low, 1, scale.last(scale.rows - 1) + 1 - scale.low))
        return [sum(each[begin:end]) for begin, end in _shown(scale)]
    rows, places = [0] * scale.rows, _places(scale)
    for index, n in counts.items():
        rows[places[index]] += n
    return rows


def extent(counts: Mapping[int, int], highest: int | None = None) -> Extent | None:
    """Return the range of some I/Os by bucket, from p0.1 to the maximum; None without I/O.

    `highest`: the bucket of another I/O, completed earlier or in flight, which is in the range.
    """
    if not counts:
        return None if highest is None else Extent(min(_DEFAULT[0], highest), highest)
    left = int(sum(counts.values()) * _FASTEST)
    low = high = max(counts)
    for index in sorted(counts):
        low = index
        left -= counts[index]
        if left < 0:
            break
    return Extent(low, high if highest is None else max(high, highest))


def with_limit(span: Extent, limit: int) -> Extent:
    """Return the extent with the threshold's bucket, where that is as near as a third of the extent, or an octave."""
    near = max((span.high + 1 - span.low) // 3, _OCTAVE)
    low, high = min(span.low, limit), max(span.high, limit)
    return Extent(low, high) if span.low - low <= near and high - span.high <= near else span


def _unit(step: int, per: int) -> int:
    """Return the buckets by which a scale with this step may begin higher or lower: the least with whole rows."""
    return step // math.gcd(step, per)


def _apart(step: int, per: int) -> int:
    """Return the rows from label to label."""
    return (_LABELS[step] if per == 1 else 1) * _OCTAVE * per // step


def _steps(cells: int) -> tuple[tuple[int, int], ...]:
    """Return (step, per) of scales, finest first, whose lines of `cells` cells have whole buckets or parts of one."""
    tall = ((_OCTAVE, per) for per in _TALL if per * cells >= _OCTAVE)
    return tuple(sorted((*tall, *((step, 1) for step in _LABELS)), key=lambda tall_step: tall_step[0] / tall_step[1]))


_STEPS = tuple(_steps(cells) for cells in range(3))


def latency_scale(span: Extent, rows: int, *, cells: int = 0) -> LatencyScale:
    """Return the finest scale of exactly `rows` rows that covers the extent and a cell above it.

    It has at least one label, and where the next coarser scale is coarser by a quarter at most, two.

    `cells`: those of a row, 2 with half blocks; 0: no bucket has several rows. Spare rows are above the extent.
    """
    spare = max(_LEAST_RANGE - 1 - (span.high - span.low), 0)
    low = max(span.low - spare, 0)
    high = max(span.high, low + _LEAST_RANGE - 1)
    halves = 2 * rows - (2 // max(cells, 1) if rows >= _MARGIN_FROM else 0)
    begins = (
        (max(low - (low + 2 * _OCTAVE) % _unit(*tall_step), 0), *tall_step)
        for tall_step in _STEPS[cells]
        if _apart(*tall_step) <= rows
    )
    fitting = (
        LatencyScale(begin, step, rows, per)
        for begin, step, per in begins
        if (high + 1 - begin) * per * 2 <= step * halves
    )
    latency_scale = next(fitting, LatencyScale(0, 256, rows))
    if latency_scale.lowered(high).labels < _LABELLED:
        coarser = next(fitting, latency_scale)
        is_near = coarser.step * latency_scale.per * 4 <= latency_scale.step * coarser.per * 5
        return coarser if is_near and coarser.lowered(high).labels >= _LABELLED else latency_scale
    return latency_scale


def tail_bucket(threshold_us: int | None) -> int | None:
    """Return the first bucket all of which is above the threshold; None without a threshold."""
    if threshold_us is None:
        return None
    index = bucket_index(threshold_us)
    return index if bucket_bounds(index)[0] == threshold_us else index + 1


def round_number(count: int) -> int:
    """Return the position, among 1, 2, 5, 10, 20, 50 ..., of the greatest number that is at most `count`."""
    return bisect_right(_ROUND, count) - 1


def last_step(position: int) -> int:
    """Return the count at which the last step of a map's colours begins: the round number at a position."""
    return max(_LEAST_TOP, _ROUND[position])


def fullness(rows: Iterable[int]) -> Fullness:
    """Return how full the cells of a column are."""
    return Counter(round_number(count) for count in rows if count)


def p99(cells: Fullness) -> int | None:
    """Return the position that 99 % of the cells do not exceed, without the fullest one; None without a cell."""
    left = int((cells.total() - 1) * _P99)
    for position in sorted(cells):
        left -= cells[position]
        if left < 0:
            return position
    return None


def steady(positions: Sequence[int], held: int) -> int:
    """Return the position of a scale's end, which changes late. `positions`: of windows, each a column before the last.

    It is the greatest one that lasted `held` columns: shorter peaks and gaps leave it. One that is more than a step off
    is followed at once.
    """
    runs = (positions[at : at + held] for at in range(max(len(positions) - held + 1, 1)))
    lasting = max(min(run) for run in runs)
    return positions[0] if abs(positions[0] - lasting) > 1 else lasting


def level(n: int, top: int, levels: int) -> int:
    """Return 0 for no I/O, else an even logarithmic step: 1 from one I/O on, `levels` from `top` on.

    The last step begins at `top`, not a step below it: with six steps most cells of a map would be alike.
    Where few I/Os fill a cell, the steps of single ones are in the middle of the ramp: its first steps are dark.
    """
    if n <= 0 or n >= top:
        return levels if n > 0 else 0
    return min(levels - 1, 1 + math.floor((levels - 1) * math.log(n + 1) / math.log(top + 1) + 1e-9))


@lru_cache(64)
def thresholds(top: int, levels: int) -> tuple[int, ...]:
    """Return the least count of each step: `bisect_right(thresholds(top, levels), n)` is `level(n, top, levels)`."""
    thresholds_found, n = [], 1
    for step in range(1, levels + 1):
        n = max(n, math.floor((top + 1) ** ((step - 1) / max(levels - 1, 1))) - 1)
        while level(n, top, levels) < step:
            n += 1
        thresholds_found.append(n)
    return tuple(thresholds_found)


def begins(top: int, levels: int) -> dict[int, int]:
    """Return step -> the least count that has it, for the steps that any count has."""
    least = thresholds(top, levels)
    return {step: n for step, n in enumerate(least, 1) if step == levels or n < least[step]}


_LATE, _LEAST_LATE = 6, 10
"""A map's range shrinks so many parts of a window late; columns before a map that are kept at least."""


def _columns_of(window_us: int, column_us: int, slots: int) -> int:
    """Return the columns of a window; 0 us: all of them."""
    return min(-(-window_us // column_us), slots) if window_us else slots


def reach_us(column_us: int, slots: int, window_us: int) -> int:
    """Return the time of which a timeline needs frames."""
    size = _columns_of(window_us, column_us, slots)
    return column_us * (max(slots + _LEAST_LATE, size + size // _LATE) + 1)


class KernelCounts(NamedTuple):
    """I/Os that the kernel counted in `dt_us`, their bytes and the sum of their times; None where it is not known."""

    ios: int
    bytes: int
    time_us: int | None
    dt_us: int

    @property
    def mean_us(self) -> float | None:
        return None if self.time_us is None or not self.ios else self.time_us / self.ios

    def per_second(self, number: int) -> float | None:
        return number / self.dt_us * 1e6 if self.dt_us else None


@dataclass(slots=True)
class TimeColumn:
    """One column: its frames, and the I/Os of a device, which are summed when they are first read.

    With 24 devices most are never read, and the sums of all would be most of the time that a key in the past takes.
    """

    number: int
    wall: float
    mono_us: int
    """End of its last frame, as `wall` is."""
    filled_us: int = 0
    gap: str = ""
    """Why time is missing."""
    moments: list[TimelineEvent] = field(default_factory=list)
    """Events other than I/O."""
    ops: frozenset[str] = frozenset()
    frames: list[Frame] = field(default_factory=list)
    sums: dict[str, Counts] = field(default_factory=dict)
    """Device -> I/Os per latency bucket, of the devices that were read."""
    drawn: dict[str, tuple[object, list[tuple[str, str]]]] = field(default_factory=dict)
    """Device -> style of its map, and the cells that the column has in it, until it gets another frame."""
    _rows: dict[str, tuple[LatencyScale, list[int]]] = field(default_factory=dict)
    _fullness: tuple[tuple[LatencyScale, tuple[str, ...]], Fullness] | None = None
    """(scale, devices), and how full the cells of these devices are together: a map asks for one such sum."""
    _failed: dict[str, Counter[Outcome]] = field(default_factory=dict)
    _waiting: dict[str, set[int]] | None = None
    _context: HostContext | None = None

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        self.frames.append(frame)
        for device, sums in self.sums.items():
            add_frame(sums, frame, device, self.ops)
        self._rows.clear()
        self._failed.clear()
        self.drawn.clear()
        self._fullness = self._waiting = self._context = None

    def counts(self, device: str) -> Counts:
        """Return a device's I/Os per latency bucket; not to be changed."""
        sums = self.sums.get(device)
        if sums is None:
            sums = self.sums[device] = {}
            for frame in self.frames:
                add_frame(sums, frame, device, self.ops)
        return sums

    def rows(self, device: str, scale: LatencyScale) -> Sequence[int]:
        """Return a device's I/Os per row from below, empty without I/O; computed once per scale."""
        row = self._rows.get(device)
        if row is None or row[0] != scale:
            counts = self.counts(device)
            row = self._rows[device] = (scale, rows_of(counts, scale) if counts else [])
        return row[1]

    def fullness(self, devices: tuple[str, ...], scale: LatencyScale) -> Fullness:
        """Return how full the cells of some devices are together, not to be changed; kept for the last such request."""
        wanted = (scale, devices)
        if self._fullness is None or self._fullness[0] != wanted:
            cells = Fullness()
            for device in devices:
                cells.update(fullness(self.rows(device, scale)))
            self._fullness = (wanted, cells)
        return self._fullness[1]

    def waiting(self, device: str) -> Collection[int]:
        """Return buckets of the ages, at the end of the column, of a device's I/Os in flight that a probe follows."""
        if self._waiting is None:
            self._waiting = {}
            in_flight = (self.frames[-1].in_flight if self.frames else None) or InFlightList()
            for io in in_flight.oldest:
                if io.op in self.ops:
                    age_us = max((in_flight.at_us or self.mono_us) - io.began_us, 0)
                    self._waiting.setdefault(io.device, set()).add(bucket_index(age_us))
        return self._waiting.get(device, ())

    def failed(self, device: str) -> Mapping[Outcome, int]:
        """Return a device's failed I/Os."""
        if device not in self._failed:
            failed = self._failed[device] = Counter()
            for frame in self.frames:
                for row, ios in frame[ERRORS].items():
                    if row.device == device and row.op in self.ops:
                        failed[Outcome(row.op, row.status)] += ios
        return self._failed[device]

    def events(self, device: str) -> list[TimelineEvent]:
        """Return the events other than I/O, with one for the device's failed I/Os."""
        if not self.failed(device):
            return self.moments
        ios = (f"{ios:,} {outcome.op} ({outcome.status})" for outcome, ios in self.failed(device).items())
        text = f"failed I/Os of {device}: {', '.join(ios)}"
        return [*self.moments, TimelineEvent("failed", self.mono_us, self.wall, text)]

    def depth(self, device: str) -> int | None:
        """Return the most I/Os in a device's driver at the end of a frame; None where they were not counted."""
        outstanding_rows = (frame.outstanding.get(device) for frame in self.frames)
        return max(
            (n for outstanding in outstanding_rows if outstanding and (n := outstanding.in_driver) is not None),
            default=None,
        )

    def kernel(self, device: str, ops: Iterable[str]) -> KernelCounts:
        """Return what the kernel counted of a device."""
        flows = [Flow(device, op) for op in ops]
        done = [
            completed for frame in self.frames for flow in flows if (completed := frame.kernel.get(flow)) is not None
        ]
        times = [completed.time_us for completed in done if completed.time_us is not None]
        return KernelCounts(
            sum(completed.count for completed in done),
            sum(completed.bytes for completed in done),
            sum(times) if len(times) == len(done) else None,
            sum(frame.dt_us for frame in self.frames),
        )

    @property
    def host_context(self) -> HostContext:
        """Return the sums of the host's values."""
        if self._context is None:
            self._context = added(frame.host_context for frame in self.frames)
        return self._context

    def per_second(self, device: str) -> float | None:
        """Return the device's I/Os per second that were timed or failed; None without a frame."""
        covered_us = sum(frame.dt_us for frame in self.frames)
        ios = sum(self.counts(device).values()) + sum(self.failed(device).values())
        return ios / covered_us * 1e6 if covered_us else None


class Outcome(NamedTuple):
    """How I/Os of one op failed."""

    op: str
    status: str


class Begin(NamedTuple):
    """The begin of a timeline's data, by the wall clock; `is_start`: the capture began then."""

    wall: float = math.nan
    is_start: bool = False


class Timeline:
    """The last `slots` columns of `column_us` each, for one set of ops."""

    def __init__(
        self,
        column_us: int,
        slots: int,
        ops: tuple[str, ...],
        frames: Iterable[Frame] = (),
        *,
        interval_us: int = 0,
        origin_us: int | None = None,
        sweep: bool = False,
        window_us: int = 0,
    ) -> None:
        """`interval_us`: the requested length of a frame; `origin_us`: when the capture began; `sweep`: see above.

        `window_us`: as the attribute.
        """
        self.column_us = column_us
        self._interval_us = interval_us or column_us
        self._origin_us = origin_us
        self._before: Before | None = None
        self.slots = slots
        self.sweep = sweep
        self.ops = frozenset(ops)
        self.columns: deque[TimeColumn] = deque(maxlen=max(slots - sweep, 1))
        """Oldest first, without holes in their numbers; in a sweep one slot has the marker instead."""
        self._size = _columns_of(window_us, column_us, slots)
        late = max(self._size + self._size // _LATE - slots, _LEAST_LATE) + sweep
        self._gone: deque[TimeColumn] = deque(maxlen=late)
        """Columns before those."""
        self.begin = Begin()
        self.window_us = window_us
        """The time up to the newest column that regions may be of; columns before it are only drawn. 0: all columns."""
        self._end_us: int | None = None
        for frame in frames:
            self.advance(frame)

    def advance(self, frame: Frame) -> None:
        """Add a frame to the open column, or to a new one when that is full."""
        if self._end_us is not None:
            if frame.mono_us < self._end_us:
                self.columns.clear()
                self._gone.clear()
                self._before = None
            else:
                self._skip(frame.mono_us - frame.dt_us - self._end_us, frame)
        self._end_us = frame.mono_us
        if not self.columns:
            began_us = frame.mono_us - frame.dt_us
            is_start = self._origin_us is not None and began_us - self._origin_us < self.column_us
            self.begin = Begin(frame.wall - frame.dt_us / 1e6, is_start=is_start)
        last = self.columns[-1] if self.columns else self._first(frame)
        if last.gap == "missing" or last.filled_us + frame.dt_us / 2 > self.column_us:
            last = self._open(frame.wall, frame.mono_us)
        last.filled_us += frame.dt_us
        last.moments += moments(frame, self._before)
        self._before = Before(frame.mono_us, frame.wall)
        last.wall = frame.wall
        last.mono_us = frame.mono_us
        last.gap = last.gap or frame.gap
        last.add(frame)

    def counts(self, device: str) -> Counts:
        """Return a device's I/Os per bucket over all columns."""
        sums: Counts = {}
        for column in self.columns:
            for index, n in column.counts(device).items():
                sums[index] = sums.get(index, 0) + n
        return sums

    def earlier(self, device: str, counts: Counts) -> Iterator[Counts]:
        """Yield a device's I/Os per bucket in windows that ended a column, two columns ... ago, up to a sixth of one.

        `counts`: those of the window that ends now. Windows that began before the first column are left out.
        """
        time_columns, size, now = [*self._gone, *self.columns], self._size, dict(counts)
        for back in range(1, min(size // _LATE, len(time_columns) - size) + 1):
            for index, n in time_columns[-back].counts(device).items():
                now[index] = now.get(index, 0) - n
            for index, n in time_columns[-back - size].counts(device).items():
                now[index] = now.get(index, 0) + n
            yield {index: n for index, n in now.items() if n > 0}

    @property
    def before(self) -> Sequence[TimeColumn]:
        """Return some columns before the first one that is drawn, oldest first."""
        return tuple(self._gone)

    def highest(self, device: str, *, in_flight: bool = True) -> int | None:
        """Return the bucket of the slowest I/O of any column; None where there is none.

        `in_flight`: with the ages of those that have not completed.
        """
        waiting = (column.waiting(device) if in_flight else () for column in self.columns)
        each = zip(self.columns, waiting, strict=True)
        counts = (max((*time_column.counts(device), *ages), default=-1) for time_column, ages in each)
        return max((bucket for bucket in counts if bucket >= 0), default=None)

    def ages(self, device: str) -> set[int]:
        """Return the buckets of the ages of a device's I/Os in flight, of all columns."""
        return {bucket for column in self.columns for bucket in column.waiting(device)}

    @property
    def first(self) -> int:
        """Return the number of the oldest column in the window; 0 before the first frame."""
        end_us = self.columns[-1].mono_us if self.columns else 0
        inside = (c.number for c in self.columns if not self.window_us or c.mono_us > end_us - self.window_us)
        return next(inside, 0)

    def newest(self) -> int:
        """Return the number of the open column, -1 before the first frame."""
        return self.columns[-1].number if self.columns else -1

    def slot(self, number: int) -> int:
        """Return the slot of a column; negative or too large for one that is not shown."""
        return number % self.slots if self.sweep else number - self.newest() + self.slots - 1

    @property
    def last_wall(self) -> float | None:
        """Return when the newest column ends; None before the first frame."""
        return self.columns[-1].wall if self.columns else None

    @property
    def empty(self) -> int:
        """Return how many slots have no column yet."""
        return self.slots - self.sweep - len(self.columns)

    def by_slot(self) -> list[TimeColumn | None]:
        """Return the column of each slot; None where there was nothing yet."""
        shown: list[TimeColumn | None] = [None] * self.slots
        for column in self.columns:
            shown[self.slot(column.number)] = column
        return shown

    def note(self, timeline_events: Iterable[TimelineEvent]) -> None:
        """Add events that are not in frames."""
        begin_us = self.columns[0].mono_us - self.column_us if self.columns else 0
        for timeline_event in timeline_events:
            if timeline_event.mono_us <= begin_us:
                continue
            inside = (c for c in self.columns if c.mono_us >= timeline_event.mono_us > c.mono_us - max(c.filled_us, 1))
            column = next(inside, None)
            if column is not None and timeline_event not in column.moments:
                column.moments.append(timeline_event)

    def _first(self, frame: Frame) -> TimeColumn:
        """Open the column of the first frame, filled as if the frames before it had been added too."""
        begin = frame.mono_us - frame.dt_us if self._origin_us is None else self._origin_us
        place = max(round((frame.mono_us - frame.dt_us - begin) / self._interval_us), 0)
        each = max(round(self.column_us / self._interval_us), 1)
        column = self._open(frame.wall, frame.mono_us, number=place // each)
        column.filled_us = place % each * self._interval_us
        return column

    def _open(self, wall: float, mono_us: int, gap: str = "", number: int | None = None) -> TimeColumn:
        column = TimeColumn(self.newest() + 1 if number is None else number, wall, mono_us, gap=gap, ops=self.ops)
        if len(self.columns) == self.columns.maxlen:
            self._gone.append(self.columns[0])
        self.columns.append(column)
        return column

    def _skip(self, missing_us: int, frame: Frame) -> None:
        if missing_us < max(self.column_us, frame.dt_us) / 2:
            return
        many = max(1, round(missing_us / self.column_us))
        if self._origin_us is not None:
            place = round((frame.mono_us - frame.dt_us - self._origin_us) / self._interval_us)
            many = max(1, place // max(round(self.column_us / self._interval_us), 1) - self.newest() - 1)
        for _ in range(min(many, _MAX_GAP_COLUMNS)):
            self._open(frame.wall - frame.dt_us / 1e6, frame.mono_us - frame.dt_us, gap="missing")


def add_frame(counts: Counts, frame: Frame, device: str, ops: Iterable[str]) -> None:
    """Add the I/Os of a frame by their total latency."""
    for op in ops:
        if histogram := frame.histograms.get(Series(device, op, "total")):
            add_counts(counts, histogram)


def by_bucket(histogram: Histogram) -> Counts:
    """Return a histogram of any resolution as I/Os per bucket."""
    counts: Counts = {}
    add_counts(counts, histogram)
    return counts


def add_counts(counts: Counts, histogram: Histogram) -> None:
    """Add a histogram of any resolution to I/Os per bucket."""
    bits = histogram.bits
    if bits == BITS and not counts:
        counts.update(histogram.buckets)
        return
    previous_get = counts.get
    if bits == BITS:
        for index, n in histogram.buckets:
            counts[index] = previous_get(index, 0) + n
        return
    for index, n in histogram.buckets:
        coarse_bucket = bucket_index(bucket_bounds(index, bits)[0])
        counts[coarse_bucket] = previous_get(coarse_bucket, 0) + n
