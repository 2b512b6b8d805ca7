"""Comparison of what is measured now with a baseline: recordings of the same hour of another day.

The live side is kept minute by minute, and compared with the minutes of the baseline by the test of a lasting change.
What reads the recordings is not known here: a BaselineSource has the baseline of an hour, or why there is none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Protocol

from latmon.aggregate.table_sum import Sum
from latmon.analysis.level_shift import LevelShift, Unit, shift_between
from latmon.findings.facts import Block
from latmon.findings.latency_counts import counts_of, latencies_of, latency_sum, level_of, span_counts
from latmon.findings.latency_history import MATTERS
from latmon.findings.span_load import SpanLoad, load_of, slim
from latmon.model.devices import host_and_device
from latmon.model.frame import Device, Series
from latmon.model.measurements import LATENCIES
from latmon.model.packed import Packed
from latmon.model.packed_frame import PackedFrame
from latmon.model.stages import plural_of_op
from latmon.support.units import counted

MINUTE_US = 60_000_000
FEWEST_MINUTES = 6
"""Minutes of each side that a comparison needs."""
KEPT_MINUTES = 30
"""Minutes of the live side that are compared."""
_MAX_TESTS = 4
"""Tests after one block: each takes about 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One hour of recordings, by minutes."""

    title: str
    """When it was: `2026-11-28 21:00-22:00`."""
    minutes: Mapping[Series, Sequence[Unit]]
    loads: Mapping[str, SpanLoad]
    """Device -> its load."""
    devices: Mapping[str, Device]
    levels: Mapping[Series, float] = field(default_factory=dict)
    """Median of the minutes' levels."""
    remark: str = ""
    """Damage of the recordings; empty where there is none."""


class NoBaseline(NamedTuple):
    """The reason why there is no baseline for an hour."""

    why: str


class BaselineSource(Protocol):
    """Baselines by time."""

    def at(self, wall: float) -> Baseline | NoBaseline | None:
        """Return the baseline for the hour of a Unix time; None while it is being read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowerThanBaseline:
    """An op of a device that is slower than in the baseline, by the test."""

    op: str
    shift: LevelShift
    before: SpanLoad
    now: SpanLoad
    minutes: tuple[int, int]
    """Number of minutes of the baseline, and of now."""


class _Minute(NamedTuple):
    """Latencies of a live minute, the levels of its series, and its blocks without latencies."""

    latencies: Packed[Series]
    levels: Mapping[Series, float]
    blocks: list[Block]


@dataclass(slots=True, kw_only=True)
class BaselineComparison:
    """The comparison after the newest minute."""

    source: BaselineSource
    state: Baseline | NoBaseline | None = None
    slower: dict[str, list[SlowerThanBaseline]] = field(default_factory=dict)
    """Device -> its ops that are slower."""
    not_compared: dict[str, str] = field(default_factory=dict)
    """Device, or device and op, -> why it is not compared."""
    by_name: set[str] = field(default_factory=set)
    """Devices of which it isn't known whether they are the same: the recordings have no serial of them."""
    compared: set[str] = field(default_factory=set)
    minutes_us: int = 0
    """Time of the live minutes."""
    _blocks: list[Block] = field(default_factory=list)
    _sums: Sum = field(default_factory=latency_sum)
    """Latencies of the blocks."""
    _minutes: deque[_Minute] = field(default_factory=lambda: deque(maxlen=KEPT_MINUTES))
    _due: list[Series] = field(default_factory=list)
    _shifts: dict[Series, SlowerThanBaseline] = field(default_factory=dict)

    def add_block(self, block: Block, devices: Mapping[str, Device]) -> None:
        """Add a block; begin a comparison after each minute, and continue one."""
        state = self.source.at(block.wall)
        if state is not self.state:
            self.state = state
            self._due, self._shifts, self.slower, self.not_compared, self.compared = [], {}, {}, {}, set()
            self._minutes.clear()
            self._blocks, self._sums = [], latency_sum()
        table = block.packed.tables.get(LATENCIES)
        if table is not None:
            self._sums.add(PackedFrame({LATENCIES: table}), block.end_us)
        self._blocks.append(slim(block))
        if sum(part.span_us for part in self._blocks) >= MINUTE_US - MINUTE_US // 20:
            self._end_minute(devices)
        if isinstance(self.state, Baseline):
            for _ in range(min(_MAX_TESTS, len(self._due))):
                self._compare(self._due.pop(), self.state)

    def _end_minute(self, devices: Mapping[str, Device]) -> None:
        latencies = latencies_of(self._sums.packed)
        levels = {
            key: level_of(span_counts(latencies, span)) for key, span in latencies.parts() if span.begin < span.end
        }
        self._minutes.append(_Minute(latencies, levels, self._blocks))
        self._blocks, self._sums = [], latency_sum()
        self.minutes_us = sum(block.span_us for minute in self._minutes for block in minute.blocks)
        if isinstance(self.state, Baseline) and len(self._minutes) >= FEWEST_MINUTES:
            self._begin(self.state, devices)

    def _begin(self, baseline: Baseline, devices: Mapping[str, Device]) -> None:
        """List the ops to be tested, and the devices that can't be compared."""
        by_device: dict[str, dict[Series, list[float]]] = {}
        for minute in self._minutes:
            for key, level in minute.levels.items():
                by_device.setdefault(key.device, {}).setdefault(key, []).append(level)
        self.not_compared, self.compared, self.by_name, self._due = {}, set(), set(), []
        for device in sorted(by_device):
            reason = _why_not(baseline, device, devices)
            if reason:
                self.not_compared[device] = reason
                continue
            self.compared.add(device)
            if _is_by_name(baseline, device, devices):
                self.by_name.add(device)
            for key, levels in by_device[device].items():
                self._begin_op(baseline, key, levels)
        self._publish()

    def _begin_op(self, baseline: Baseline, key: Series, levels: Sequence[float]) -> None:
        """List an op if it rose, or why it is not compared."""
        minutes = sum(map(bool, baseline.minutes.get(key, ())))
        fewest = min(minutes, len(levels))
        if fewest < FEWEST_MINUTES:
            where = "then" if minutes == fewest else "now"
            text = f"only in {counted(fewest, 'minute')} {where}" if fewest else "none in it"
            self.not_compared[f"{key.device} {plural_of_op(key.op)}"] = text
        elif median(levels) - baseline.levels[key] >= MATTERS:
            self._due.append(key)
            return
        self._shifts.pop(key, None)

    def _compare(self, key: Series, baseline: Baseline) -> None:
        units = [counts_of(minute.latencies, key) for minute in self._minutes]
        shift = shift_between(baseline.minutes[key], units, fewest_units=FEWEST_MINUTES)
        if shift is None:
            self._shifts.pop(key, None)
        else:
            blocks = [block for minute in self._minutes for block in minute.blocks]
            minutes = sum(map(bool, baseline.minutes[key])), sum(map(bool, units))
            self._shifts[key] = SlowerThanBaseline(
                op=key.op,
                shift=shift,
                before=baseline.loads[key.device],
                now=load_of(key.device, blocks),
                minutes=minutes,
            )
        self._publish()

    def _publish(self) -> None:
        self.slower = {}
        for key, row in self._shifts.items():
            self.slower.setdefault(key.device, []).append(row)


def levels_of(minutes: Mapping[Series, Sequence[Unit]]) -> dict[Series, float]:
    """Return the median level of each series with I/Os."""
    known = {key: [level_of(unit) for unit in units if unit] for key, units in minutes.items()}
    return {key: median(levels) for key, levels in known.items() if levels}


def _is_by_name(baseline: Baseline, device: str, devices: Mapping[str, Device]) -> bool:
    """Return whether only the recordings lack the serial, as redacted ones do."""
    then, now = baseline.devices.get(device), devices.get(device)
    return now is not None and bool(now.serial) and (then is None or not then.serial)


def _why_not(baseline: Baseline, device: str, devices: Mapping[str, Device]) -> str:
    """Return why a device can't be compared with the baseline; empty where it can."""
    if device not in baseline.loads:
        return "not in it"
    then, now = baseline.devices.get(device), devices.get(device)
    for name in ("serial", "model"):
        values = getattr(then, name, ""), getattr(now, name, "")
        if all(values) and values[0] != values[1]:
            return f"another disk then: {name} {values[0]}, now {values[1]}"
    return ""


def names_of(devices: Sequence[str], limit: int = 4) -> str:
    """Return the first names and how many more there are."""
    more = f" and {len(devices) - limit:,} more" if len(devices) > limit else ""
    return ", ".join(host_and_device(name)[1] for name in devices[:limit]) + more
