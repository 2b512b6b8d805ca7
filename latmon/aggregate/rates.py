"""Rates of devices from frame to frame, and the highest ones of the last hour.

A sum over a block hides whether a device completed as many I/Os in each second, and with how many in flight. So a
block keeps the rates of its frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import OPS, Flow, Frame
from latmon.model.inflight import Depths, bucket_middle

KEPT_US = 3600_000_000
"""Time for which the highest rates are remembered."""
_MAX_DEVICES = 4096
_COUNTED = tuple(op for op in OPS if op != "flush")
"""Operations that the gauges of I/Os in flight count (littles_law.py)."""


class FrameRate(NamedTuple):
    """What a device did in a frame: I/Os and bytes per second, and how many of its I/Os were in flight."""

    span_us: int
    ios: float = 0.0
    bytes: float = 0.0
    depth: float = 0.0
    """Mean number of I/Os in flight."""
    busy: float = 0.0
    """Share of the time with any in the driver."""
    latency_us: float = 0.0
    """Mean latency by the kernel's counters, from the block layer on; 0: not known."""


def variation(rates: Iterable[float]) -> float:
    """Return the standard deviation in parts of the mean; infinity where that is 0."""
    values = list(rates)
    total = sum(values)
    if not total:
        return math.inf
    average = total / len(values)
    return math.sqrt(sum((value - average) ** 2 for value in values) / len(values)) / average


class RateSums:
    """Rates of all devices with I/O in the frames of a block."""

    def __init__(self) -> None:
        self._idle: list[FrameRate] = []
        """What a device did that did nothing, in each frame."""
        self._rates: dict[str, list[FrameRate]] = {}

    def add_frame(self, frame: Frame) -> None:
        """Add a frame. The probe's completions have its ticks' times; without a probe the kernel's are used."""
        counts: dict[str, tuple[int, int]] = {}
        for (device, _op), done in (frame.seen or frame.kernel).items():
            ios, size = counts.get(device, (0, 0))
            counts[device] = ios + done.count, size + done.bytes
        per_s = 1e6 / frame.dt_us
        for device, (ios, size) in counts.items():
            depths = frame.depths.get(device, Depths())
            rate = FrameRate(
                frame.dt_us,
                ios * per_s,
                size * per_s,
                mean_depth(depths),
                _busy(depths.in_driver),
                _latency_us(frame, device),
            )
            self._rates.setdefault(device, list(self._idle)).append(rate)
        self._idle.append(FrameRate(frame.dt_us))
        for rates in self._rates.values():
            if len(rates) < len(self._idle):
                rates.append(self._idle[-1])

    @property
    def by_device(self) -> Mapping[str, tuple[FrameRate, ...]]:
        """Return the rates by device, one of each frame."""
        return {device: tuple(rates) for device, rates in self._rates.items()}


def _latency_us(frame: Frame, device: str) -> float:
    ios = time_us = 0
    for op in _COUNTED:
        done = frame.kernel.get(Flow(device, op))
        if done is not None and done.time_us is not None:
            ios, time_us = ios + done.count, time_us + done.time_us
    return time_us / ios if ios else 0.0


def mean_depth(depths: Depths) -> float:
    """Return the mean number of I/Os in the driver and queued, in the samples of an interval."""
    return _mean(depths.in_driver) + _mean(depths.queued)


def _busy(in_driver: Mapping[int, int]) -> float:
    samples = sum(in_driver.values())
    return 1 - in_driver.get(0, 0) / samples if samples else 0.0


def _mean(counts: Mapping[int, int]) -> float:
    samples = sum(counts.values())
    return sum(bucket_middle(depth) * n for depth, n in counts.items()) / samples if samples else 0.0


class BlockRate(NamedTuple):
    """What a device did in one block."""

    end_us: int
    ios_per_s: float
    bytes_per_s: float
    latency_us: float
    """Mean latency."""
    reads: float
    """Share of reads in the I/Os."""

    @property
    def size(self) -> float:
        """Return the mean size of an I/O in bytes."""
        return self.bytes_per_s / self.ios_per_s if self.ios_per_s else 0.0


class HighestRates:
    """The blocks of the last hour in which a device completed most I/Os, and most bytes, per second."""

    def __init__(self) -> None:
        self._by_ios: dict[str, BlockRate] = {}
        self._by_bytes: dict[str, BlockRate] = {}

    def add(self, rates: Iterable[tuple[str, BlockRate]]) -> None:
        """Compare the rates of the next block. Time that went backwards (another boot) starts over."""
        for device, rate in rates:
            _keep(self._by_ios, device, rate, "ios_per_s")
            _keep(self._by_bytes, device, rate, "bytes_per_s")

    def clear(self) -> None:
        """Forget all, for another boot."""
        self._by_ios.clear()
        self._by_bytes.clear()

    @property
    def by_ios(self) -> Mapping[str, BlockRate]:
        return MappingProxyType(self._by_ios)

    @property
    def by_bytes(self) -> Mapping[str, BlockRate]:
        return MappingProxyType(self._by_bytes)


def _keep(highest: dict[str, BlockRate], device: str, rate: BlockRate, kind: str) -> None:
    before = highest.get(device)
    is_old = before is not None and not 0 <= rate.end_us - before.end_us <= KEPT_US
    if before is None and len(highest) >= _MAX_DEVICES:
        return
    if before is None or is_old or getattr(rate, kind) > getattr(before, kind):
        highest[device] = rate
