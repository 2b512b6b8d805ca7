"""Comparison of what is measured now with a baseline: recordings of the same hour of another day.

The live side is kept minute by minute, and compared with the minutes of the baseline by the test of a lasting change.
Who reads the recordings is not known here: a BaselineSource has the baseline of an hour, or why there is none.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, Protocol

from latmon.aggregate.table_sum import Sum
from latmon.analysis.level_shift import LevelShift, Unit, shift_between
from latmon.findings.facts import Block
from latmon.findings.latency_history import (
    FOLLOWED_OPS,
    MATTERS,
    counts_of,
    level_of,
)
from latmon.findings.span_load import SpanLoad, load_of, slim
from latmon.model.devices import host_and_device
from latmon.model.frame import Device, Series
from latmon.model.measurements import LATENCIES
from latmon.model.packed import Packed
from latmon.model.packed_frame import PackedFrame

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
    remark: str = ""
    """What is wrong with the recordings, such as damage; empty: nothing."""


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
    """Of the baseline and of now."""


@dataclass(slots=True)
class BaselineComparison:
    """The comparison after the newest minute."""

    source: BaselineSource
    state: Baseline | NoBaseline | None = None
    slower: dict[str, list[SlowerThanBaseline]] = field(default_factory=dict)
    """Device -> its ops that are slower."""
    not_compared: dict[str, str] = field(default_factory=dict)
    """Device -> why it is not compared."""
    compared: set[str] = field(default_factory=set)
    minutes_us: int = 0
    """Time of the live minutes."""
    _blocks: list[Block] = field(default_factory=list)
    _sums: Sum = field(default_factory=lambda: Sum((LATENCIES,)))
    """Latencies of the blocks."""
    _minutes: deque[tuple[Packed[Series], list[Block]]] = field(default_factory=lambda: deque(maxlen=KEPT_MINUTES))
    _due: list[Series] = field(default_factory=list)
    _shifts: dict[Series, SlowerThanBaseline] = field(default_factory=dict)

    def add_block(self, block: Block, devices: Mapping[str, Device]) -> None:
        """Add a block; begin a comparison after each minute, and continue one."""
        state = self.source.at(block.wall)
        if state is not self.state:
            self.state = state
            self._due, self._shifts, self.slower, self.not_compared, self.compared = [], {}, {}, {}, set()
            self._minutes.clear()
            self._blocks, self._sums = [], Sum((LATENCIES,))
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
        table = self._sums.packed.tables.get(LATENCIES)
        latencies: Packed[Series] = Packed()
        if table is not None:
            (latencies,) = table.histograms.values()
        self._minutes.append((latencies, self._blocks))
        self._blocks, self._sums = [], Sum((LATENCIES,))
        self.minutes_us = sum(block.span_us for _, blocks in self._minutes for block in blocks)
        if isinstance(self.state, Baseline) and len(self._minutes) >= FEWEST_MINUTES:
            self._begin(self.state, devices)

    def _begin(self, baseline: Baseline, devices: Mapping[str, Device]) -> None:
        """List the ops to be tested, and the devices that can't be compared."""
        now = {key for latencies, _ in self._minutes for key in latencies.rows if _is_compared(key)}
        self.not_compared, self.compared, due = {}, set(), []
        for device in sorted({key.device for key in now}):
            reason = _why_not(baseline, device, devices)
            if reason:
                self.not_compared[device] = reason
                continue
            self.compared.add(device)
            keys = [key for key in now if key.device == device]
            for key in keys:
                if key not in baseline.minutes:
                    continue
                if self._rise(baseline, key) >= MATTERS:
                    due.append(key)
                else:
                    self._shifts.pop(key, None)
        self._due = due
        self._publish()

    def _rise(self, baseline: Baseline, key: Series) -> float:
        """Return by how many octaves the median of the minutes is above the baseline's."""
        then = [level_of(unit) for unit in baseline.minutes[key] if unit]
        now = [level_of(unit) for latencies, _ in self._minutes if (unit := counts_of(latencies, key))]
        return median(now) - median(then) if now and then else -math.inf

    def _compare(self, key: Series, baseline: Baseline) -> None:
        units = [counts_of(latencies, key) for latencies, _ in self._minutes]
        shift = shift_between(baseline.minutes[key], units, fewest_units=FEWEST_MINUTES)
        if shift is None:
            self._shifts.pop(key, None)
        else:
            blocks = [block for _, part in self._minutes for block in part]
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


def _is_compared(key: Series) -> bool:
    return key.stage == "total" and key.op in FOLLOWED_OPS


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


def names_of(devices: Sequence[str], most: int = 4) -> str:
    """Return some names and how many more there are."""
    more = f" and {len(devices) - most:,} more" if len(devices) > most else ""
    return ", ".join(host_and_device(name)[1] for name in devices[:most]) + more
