"""Latencies of each device and op over the last hour in bounded memory, and their lasting changes to slower ones.

Of each block two numbers are kept per device and op: log2 of its median and of its p95, which rises where a part of
the I/Os becomes slower. A rise that has lasted 20 s is tested on the single frames around it (analysis/level_shift.py),
which are kept for three minutes and give the second of the change.
A change that passed the test is kept, with the latencies and the load before and after it, until the old level is back.
It is thus known after the old level has left the screen. Whether it is a finding is the rule's to decide.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import median
from typing import NamedTuple

from latmon.aggregate.accumulator import Minute
from latmon.analysis.level_shift import LevelShift, Unit, best_split, shift_between, slow_part_between, total_of
from latmon.findings.facts import BLOCK_US, Block
from latmon.findings.latency_counts import (
    FOLLOWED_OPS,
    Second,
    bucket_middles,
    is_followed,
    latencies_of,
    latency_sum,
    levels_of,
    second_of,
    span_counts,
)
from latmon.findings.span_load import SpanLoad, load_of, slim
from latmon.model.devices import busy_rows
from latmon.model.frame import Device, DeviceReport, Frame, Limit, Series
from latmon.model.measurements import LATENCIES
from latmon.model.packed import Packed
from latmon.model.packed_frame import PackedFrame, pack_table
from latmon.support.units import spelled

SIDE_US = 20_000_000
"""Time after a change that its test needs: other activity of a host lasts seconds."""
_BEFORE_US = 15_000_000
"""Time before it, of four blocks at least; with less than SIDE_US it is less sure."""
LONGEST_SIDE_US = 60_000_000
"""Time before and after a change that is compared."""
FINE_US = 180_000_000
"""Age up to which single frames are kept."""
_SECOND_US = 900_000
"""Shorter frames are added up to about a second."""
KEPT_LEVELS = 720
"""Levels kept of each device and op: an hour of blocks, twelve of minutes."""
MAX_SERIES = 2048
"""Devices and ops that are followed; further ones are left out. Each takes 18 kB with its seconds, all 37 MB."""
_MAX_TESTS = 8
"""Tests after one block: of one op of each device, the largest rises first. Each takes about 6 ms."""
_MAX_ENDED = 32
FOR_GOOD_US, FOR_GOOD_MINUTES_US = 300_000_000, 1_800_000_000
"""A change that ended earlier belongs to what is usual: the same again is no lasting change."""
_USUAL_TIMES = 2
"""Longer changes within the hour before that make the next one of the same level a usual one: a load in cycles."""
_MAX_CHANGES = 1000
MATTERS = math.log2(4 / 3)
"""A rise of the median, in octaves, from which on it is tested."""
_TAIL_MATTERS = 1.0
"""A rise of the p95 from which on it is tested: it varies more, and counts from three times on."""
_TAIL = 0.95
_LEAST_LEVELS, _LEAST_MINUTES = 4, 5
"""Levels on each side of a change: blocks, minutes."""
_RECENT = 60
"""Newest levels in which a rise is looked for."""
_IOS_OF_LEVEL = 10
"""I/Os that a level needs; fewer are added to those of the next block."""
_IDENTITY = ("serial", "model", "label", "major", "minor")
"""Fields in which another device of the same name differs. The label of a loop device is its file."""
_PAUSE_US = 10_000_000
"""A pause without I/Os in flight that is as long, around a change, is one of the load: another job may have begun."""
_Timed = Sequence[tuple[float, int]]
"""Levels with the ends of their blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A lasting change of one op of a device to slower I/Os."""

    device: str
    op: str
    mono_us: int
    """End of the last frame before it, on CLOCK_MONOTONIC; `wall`: the same as Unix time."""
    wall: float
    resolution_us: int
    """Length of the frames, or of the minutes, around it, and of a gap between them: it is known to that."""
    shift: LevelShift
    before: SpanLoad | None
    after: SpanLoad | None
    """Load of up to a minute before and after it; None where no whole block is known."""
    as_slow_before: float
    """Share of the hour before it that was as slow, in runs at least as long as a change needs."""
    hour: tuple[float, float]
    """The least and the greatest level in the hour before it: log2 of the median in us, or of a slow part's p95."""
    hour_us: int
    """Time of these levels."""

    @property
    def factor(self) -> float:
        """Return the factor on the p50, or on the slow part's latency where only that became slower."""
        slow = self.shift.slow
        return self.shift.ratio.value if slow is None else slow.us / slow.before_us


class DeviceChange(NamedTuple):
    """A change of a device's setting, or of what it reports about itself."""

    mono_us: int
    device: str
    name: str
    was: str
    now: str
    is_setting: bool
    """Whether it is a setting or a part of the link, which evidence names before all else."""

    @property
    def text(self) -> str:
        """Return the change in words: `read_ahead_kb 128 -> 0`."""
        return f"{self.name} {self.was} -> {self.now}"


class _Rise(NamedTuple):
    """A rise of the newest levels of a series."""

    octaves: float
    begun_us: int
    is_tail: bool
    """Whether it is of the p95, not of the median."""


@dataclass(slots=True)
class _Known:
    """A change with the time in which it was known."""

    key: Series
    change: Change
    from_us: int
    """End of the block after which it passed the test."""
    until_us: int | None = None
    """When it ended; None while it lasts."""


@dataclass(slots=True, kw_only=True)
class _Series:
    """Levels of one op of a device."""

    number: int
    """Place in the seconds: another device of the same name has another one."""
    levels: array[float] = field(default_factory=lambda: array("f"))
    tails: array[float] = field(default_factory=lambda: array("f"))
    ends_us: array[int] = field(default_factory=lambda: array("q"))
    pending: dict[int, int] = field(default_factory=dict)
    """Counts of blocks with too few I/Os for a level."""
    since_us: int = -1
    """Levels before this time are of another level, which ended with a change."""
    changes: list[Change] = field(default_factory=list)
    """Changes that last, oldest first."""
    ended: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_ENDED))
    """Begin and end of lasting changes that ended."""

    def add_level(self, counts: Mapping[int, int], end_us: int) -> None:
        level, tail = levels_of(counts, (0.5, _TAIL))
        self.levels.append(level)
        self.tails.append(tail)
        self.ends_us.append(end_us)
        if len(self.levels) > KEPT_LEVELS + _RECENT:
            del self.levels[:_RECENT]
            del self.tails[:_RECENT]
            del self.ends_us[:_RECENT]

    def of_quantile(self, *, is_tail: bool) -> array[float]:
        """Return the levels of the medians, or of the p95."""
        return self.tails if is_tail else self.levels

    def timed(self, *, is_tail: bool) -> list[tuple[float, int]]:
        """Return the levels of the medians, or of the p95, each with the end of its block."""
        return list(zip(self.of_quantile(is_tail=is_tail), self.ends_us, strict=True))


class LatencyHistory:
    """The levels of all devices and ops, and their lasting changes."""

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque()
        self._blocks: deque[Block] = deque()
        self._series: dict[Series, _Series] = {}
        self._open = latency_sum()
        self._open_us = 0
        self._changes: deque[DeviceChange] = deque(maxlen=_MAX_CHANGES)
        self._known: deque[_Known] = deque(maxlen=_MAX_CHANGES)
        self._numbers = count()
        self._by_minutes = False

    def at(self, mono_us: int) -> LatencyHistory:
        """Return a history with the changes that were known at an earlier time, and no levels."""
        other = LatencyHistory()
        other._changes = self._changes.copy()
        for known in self._known:
            if known.from_us <= mono_us and (known.until_us is None or mono_us < known.until_us):
                series = other._series.setdefault(known.key, _Series(number=next(other._numbers)))
                series.changes.append(known.change)
                series.since_us = known.change.mono_us
                other._known.append(_Known(known.key, known.change, known.from_us))
        return other

    @property
    def changes(self) -> Mapping[str, tuple[Change, ...]]:
        """Return device -> its changes that last, oldest first."""
        by_device: dict[str, list[Change]] = {}
        for series in self._series.values():
            for change in series.changes:
                by_device.setdefault(change.device, []).append(change)
        return {name: tuple(sorted(rows, key=_time_of)) for name, rows in by_device.items()}

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Return the newest blocks, of five minutes, with only what a load is made of."""
        return tuple(self._blocks)

    def device_changes(self, begin_us: int, end_us: int) -> list[DeviceChange]:
        """Return the changes of settings and reports in a time."""
        return [change for change in self._changes if begin_us <= change.mono_us <= end_us]

    def forget(self, device: str) -> None:
        """Drop what is known of a device that was removed: another one may get its name."""
        for key in [key for key in self._series if key.device == device]:
            del self._series[key]

    def note_device(self, before: Device | None, device: Device, mono_us: int) -> None:
        """Compare a device's new row with the one before; another device of the same name starts over.

        Counters are left to `ReportGrowth`, and how far work has come changes in each reading.
        """
        if before is None:
            return
        if any(getattr(before, name) != getattr(device, name) for name in _IDENTITY):
            self.forget(device.name)
            return
        self._note_changes(before.limits, device.limits, device.name, mono_us)
        states = [report for report in device.reports if not report.is_counter and not report.is_progress]
        self._note_changes(before.reports, states, device.name, mono_us)

    def _note_changes(
        self, old_rows: Iterable[Limit | DeviceReport], rows: Iterable[Limit | DeviceReport], device: str, mono_us: int
    ) -> None:
        old = {row.name: row.value for row in old_rows}
        for row in rows:
            if row.name in old and old[row.name] != row.value:
                is_setting = isinstance(row, Limit) or row.name.startswith("link_")
                change = DeviceChange(mono_us, device, row.name, str(old[row.name]), str(row.value), is_setting)
                self._changes.append(change)

    def add_frame(self, frame: Frame) -> None:
        """Keep the latencies of a frame."""
        rows = busy_rows(frame[LATENCIES])
        if not isinstance(rows, Packed):  # to pack a row takes longer than to look it up
            rows = {key: rows[key] for key in rows if is_followed(key) and self._number_of(key) is not None}
        packed = PackedFrame({LATENCIES: pack_table(LATENCIES, rows)} if rows else {})
        dt_us = frame.dt_us
        if dt_us < _SECOND_US or self._open_us:
            if rows:
                self._open.add(packed, frame.mono_us)
            self._open_us += dt_us
            if self._open_us < _SECOND_US:
                return
            packed, dt_us = self._open.packed, self._open_us
            self._open, self._open_us = latency_sum(), 0
        self._add_second(packed, frame.mono_us, frame.wall, dt_us)
        while self._seconds[0].end_us < frame.mono_us - FINE_US:
            self._seconds.popleft()

    def add_minute(self, minute: Minute) -> None:
        """Keep the latencies of a roll-up: changes are known to the minute."""
        if not self._by_minutes:
            self._by_minutes = True
            self._seconds.clear()
        self._add_second(minute.packed, minute.mono_us, minute.wall, minute.dt_us)
        while len(self._seconds) > _RECENT:
            self._seconds.popleft()

    def _add_second(self, packed: PackedFrame, end_us: int, wall: float, dt_us: int) -> None:
        latencies = latencies_of(packed)
        self._seconds.append(second_of(latencies, self._number_of, end_us=end_us, wall=wall, dt_us=dt_us))

    def _number_of(self, key: Series) -> int | None:
        """Return the number of a series, which is followed from now on; None where there are too many."""
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                return None
            series = self._series[key] = _Series(number=next(self._numbers))
        return series.number

    def add_block(self, block: Block) -> None:
        """Add the levels of the newest block, end changes that are over, and test what rose."""
        self._blocks.append(slim(block))
        while len(self._blocks) > _RECENT:
            self._blocks.popleft()
        latencies = latencies_of(block.packed)
        rises: list[tuple[_Rise, Series]] = []
        tested: set[tuple[str, bool]] = set()
        for key, series in self._add_levels(latencies, block.end_us):
            if series.changes:
                self._end_changes(series, block.end_us)
            rises += [(rise, key) for is_tail in (False, True) if (rise := self._rise(series, is_tail=is_tail))]
        for rise, key in sorted(rises, reverse=True):
            what = key.device, rise.is_tail
            if len(tested) < _MAX_TESTS and what not in tested:
                tested.add(what)
                self._test(key, rise)

    def _add_levels(self, latencies: Packed[Series], end_us: int) -> Iterator[tuple[Series, _Series]]:
        """Add a level for each op of a device with enough I/Os, and yield those."""
        for key, span in latencies.parts():
            if span.begin == span.end or not is_followed(key) or self._number_of(key) is None:
                continue
            series = self._series[key]
            counts = span_counts(latencies, span)
            if series.pending:
                for index, ios in series.pending.items():
                    counts[index] = counts.get(index, 0) + ios
            if sum(counts.values()) < _IOS_OF_LEVEL:
                series.pending = counts
                continue
            series.pending = {}
            series.add_level(counts, end_us)
            yield key, series

    @property
    def _least_levels(self) -> int:
        return _LEAST_MINUTES if self._by_minutes else _LEAST_LEVELS

    def _side_us(self, seconds_us: int) -> int:
        return self._least_levels * 60_000_000 if self._by_minutes else seconds_us

    @property
    def _longest_us(self) -> int:
        return _RECENT * 60_000_000 if self._by_minutes else LONGEST_SIDE_US

    def _rise(self, series: _Series, *, is_tail: bool) -> _Rise | None:
        """Return the rise of the newest levels above those before, or None.

        All levels of the newest 20 s must be above the older ones' median.
        """
        least, matters = self._least_levels, _TAIL_MATTERS if is_tail else MATTERS
        ends = series.ends_us[-_RECENT:]
        begin = next((at for at, end_us in enumerate(ends) if end_us > series.since_us), len(ends))
        levels, ends = series.of_quantile(is_tail=is_tail)[-_RECENT:][begin:], ends[begin:]
        if len(levels) < 2 * least:
            return None
        newest = min(levels[-least:])
        # most of all series end here: sorting costs more
        if newest < min(levels) + matters or newest < sorted(levels)[len(levels) // 4] + matters:
            return None
        split = _largest_step(levels, least)
        before, after = levels[:split], levels[split:]
        low = median(before)
        if min(after) < low + matters / 2 or median(after) < low + matters:
            return None
        begun_us = ends[split - 1]
        lasted_us, before_us = ends[-1] - begun_us, begun_us - ends[0] + BLOCK_US
        if lasted_us < self._side_us(SIDE_US) - BLOCK_US // 10 or before_us < self._side_us(_BEFORE_US):
            return None
        return _Rise(median(after) - low, begun_us, is_tail)

    def _test(self, key: Series, rise: _Rise) -> None:
        """Test a rise on single frames, and keep the change if it passes."""
        series, split_us = self._series[key], rise.begun_us
        seconds = [second for second in self._seconds if second.end_us > series.since_us]
        around_us = 2 * self._resolution_us + BLOCK_US
        units = [second.unit(series.number) for second in seconds]
        first = next((at for at, second in enumerate(seconds) if second.end_us > split_us - around_us), 0)
        last = next((at for at, second in enumerate(seconds) if second.end_us > split_us + around_us), len(seconds))
        middle = _middle_of(series.timed(is_tail=rise.is_tail), split_us)
        shares = _slow_shares(units, middle)
        if rise.is_tail:
            later = [share for second, share in zip(seconds, shares, strict=True) if second.end_us > split_us and share]
            shares = _in_parts_of(median(later), shares) if later else shares
        split = first + best_split(shares[first:last])
        if not 0 < split < len(seconds):
            return
        if self._is_after_pause(key.device, seconds, units, split):
            series.since_us = seconds[split - 1].end_us
            return
        at = seconds[split - 1]
        longest_us = self._longest_us
        before = _within(seconds[:split], units[:split], at.end_us - longest_us, at.end_us)
        after = _within(seconds[split:], units[split:], at.end_us, at.end_us + longest_us)
        fewest_units = self._least_levels if self._by_minutes else None
        shift = slow_part_between(before, after, fewest_units=fewest_units)
        if shift is None and not rise.is_tail:
            shift = shift_between(before, after, fewest_units=fewest_units)
            shift = None if shift is None or shift.ratio.value < 2**MATTERS else shift
        if shift is not None:
            self._keep(key, at, shift, seconds[split].end_us - at.end_us)

    def _is_after_pause(self, device: str, seconds: Sequence[Second], units: Sequence[Unit], split: int) -> bool:
        """Return whether the device had nothing to do between the last I/O before a time and the first one after it."""
        last = next((at for at in range(split - 1, -1, -1) if units[at]), 0)
        first = next((at for at in range(split, len(units)) if units[at]), len(units) - 1)
        begin_us, end_us = seconds[last].end_us, seconds[first].end_us - seconds[first].dt_us
        if sum(second.dt_us for second in seconds[last + 1 : first]) < _PAUSE_US:  # a gap is no pause of the load
            return False
        blocks = [block for block in self._blocks if begin_us <= block.begin_us and block.end_us <= end_us]
        return not any(load_of(device, [block]).busy for block in blocks)

    @property
    def _resolution_us(self) -> int:
        return self._seconds[-1].dt_us if self._seconds else 0

    def _keep(self, key: Series, at: Second, shift: LevelShift, next_us: int) -> None:
        """Keep a change; `next_us`: from the end of the last frame before it to that of the first one after it."""
        series = self._series[key]
        timed = series.timed(is_tail=shift.slow is not None)
        middle = _middle_of(timed, at.end_us)
        unusual = _unusual(timed, series.ended, middle)
        hour = [
            (level, end_us)
            for level, end_us in timed
            if end_us <= at.end_us and not any(begin < end_us <= end for begin, end in unusual)
        ]
        levels = [level for level, _ in hour] or [middle]
        change = Change(
            device=key.device,
            op=key.op,
            mono_us=at.end_us,
            wall=at.wall,
            resolution_us=max(at.dt_us, next_us),
            shift=shift,
            before=self._load(key.device, at.end_us - self._longest_us, at.end_us),
            after=self._load(key.device, at.end_us, self._blocks[-1].end_us),
            as_slow_before=_share_in_runs(levels, middle, self._least_levels),
            hour=(min(levels), max(levels)),
            hour_us=at.end_us - hour[0][1] if hour else 0,
        )
        series.changes.append(change)
        series.since_us = at.end_us
        self._known.append(_Known(key, change, self._blocks[-1].end_us))

    def _load(self, device: str, begin_us: int, end_us: int) -> SpanLoad | None:
        """Return the load over the whole blocks of a span."""
        room_us = self._resolution_us // 2
        blocks = [
            block for block in self._blocks if block.begin_us >= begin_us - room_us and block.end_us <= end_us + room_us
        ]
        if not blocks:
            return None
        in_flight = self._in_flight(device, blocks[0].begin_us, blocks[-1].end_us)
        return replace(load_of(device, blocks), in_flight=in_flight)

    def _in_flight(self, device: str, begin_us: int, end_us: int) -> dict[str, float]:
        """Return op -> mean number in flight by Little's law over the seconds of a span."""
        seconds = [second for second in self._seconds if begin_us < second.end_us <= end_us]
        span_us = sum(second.dt_us for second in seconds)
        in_flight: dict[str, float] = {}
        for op in FOLLOWED_OPS:
            series = self._series.get(Series(device, op, "total"))
            if series is not None and span_us:
                latencies = total_of([second.unit(series.number) for second in seconds])
                in_flight[op] = latencies.nearest_sum / span_us
        return in_flight

    def _end_changes(self, series: _Series, now_us: int) -> None:
        """End the changes whose old level is back."""
        for change in reversed(series.changes):
            is_tail = change.shift.slow is not None
            newest = median(series.of_quantile(is_tail=is_tail)[-self._least_levels :])
            quantile = _TAIL if is_tail else 0.5
            before, after = (side.quantile(quantile) or 1 for side in (change.shift.before, change.shift.after))
            rise = math.log2(max(after, 1) / max(before, 1)) if is_tail else math.log2(change.factor)
            if newest >= math.log2(max(before, 1)) + max(MATTERS, rise) / 2:
                continue
            series.changes.remove(change)
            for known in self._known:
                if known.change is change:
                    known.until_us = now_us
            if now_us - change.mono_us >= (FOR_GOOD_MINUTES_US if self._by_minutes else FOR_GOOD_US):
                series.ended.append((change.mono_us, now_us))
            series.since_us = now_us - SIDE_US


def _time_of(change: Change) -> int:
    return change.mono_us


def _unusual(timed: _Timed, ended: Iterable[tuple[int, int]], level: float) -> list[tuple[int, int]]:
    """Return begin and end of the lasting changes that don't belong to what is usual: few of at least that level."""
    unusual = list(ended)
    high = 0
    for begin_us, end_us in unusual:
        levels = [value for value, at_us in timed if begin_us < at_us <= end_us]
        high += bool(levels) and median(levels) >= level
    return [] if high >= _USUAL_TIMES else unusual


def _largest_step(levels: Sequence[float], least: int) -> int:
    """Return the split with the largest difference between the sides' sums of squares: of the likeliest step."""
    total, count = sum(levels), len(levels)
    best, largest = least, -math.inf
    left = sum(levels[:least])
    for split in range(least, count - least + 1):
        difference = (total - left) / (count - split) - left / split
        gain = split * (count - split) * difference * abs(difference)
        if gain > largest:
            best, largest = split, gain
        left += levels[split] if split < count else 0.0
    return best


def _middle_of(timed: _Timed, split_us: int) -> float:
    """Return log2 of the latency in the middle between the levels before and after a time."""
    before = [level for level, end_us in timed if end_us <= split_us][-_RECENT:]
    after = [level for level, end_us in timed if end_us > split_us]
    if not before or not after:
        return (before or after or [0.0])[-1]
    return (median(before) + median(after)) / 2


def _slow_shares(units: Iterable[Unit], level: float) -> list[float | None]:
    """Return the share of the I/Os above a level of each unit; None without I/Os."""
    middles = bucket_middles()
    shares: list[float | None] = []
    for counts in units:
        ios = sum(counts.values())
        slow = sum(n for index, n in counts.items() if middles[index] > level)
        shares.append(slow / ios if ios else None)
    return shares


def _in_parts_of(usual: float, shares: Iterable[float | None]) -> list[float | None]:
    """Return shares in parts of a usual one, 1 at most."""
    return [None if share is None else min(1.0, share / usual) for share in shares]


def _within(seconds: Sequence[Second], units: Sequence[Unit], begin_us: int, end_us: int) -> list[Unit]:
    """Return the units of the seconds that lie in a time."""
    pairs = zip(seconds, units, strict=True)
    return [unit for second, unit in pairs if second.end_us - second.dt_us // 2 > begin_us and second.end_us <= end_us]


def _share_in_runs(levels: Iterable[float], least: float, length: int) -> float:
    """Return the share of the levels that are at least so high, in runs of at least `length`."""
    count = high = run = 0
    for level in levels:
        count += 1
        run = run + 1 if level >= least else 0
        if run == length:
            high += length
        elif run > length:
            high += 1
    return high / count if count else 0.0


def bounds_text(change: Change) -> str:
    """Return the range of the medians, or of the p95, in the hour before a change."""
    low, high = (spelled(round(2**level)) for level in change.hour)
    return low if low == high else f"{low} to {high}"
