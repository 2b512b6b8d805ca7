"""Rates of devices from frame to frame, and the highest ones of the last hour.

A sum over a block hides whether a device completed as many I/Os in each second, and with how many in flight. So a
block keeps the rates of its frames.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from latmon.model.frame import Frame
from latmon.model.inflight import Depths, bucket_middle

KEPT_US = 3600_000_000
"""Time for which the highest rates are remembered."""
_MAX_DEVICES = 4096


class FrameRate(NamedTuple):
    """What a device did per second in a frame, and how many of its I/Os were in flight in the mean."""

    ios: float
    bytes: float
    depth: float


_IDLE = FrameRate(0.0, 0.0, 0.0)


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
        self._frames = 0
        self._rates: dict[str, list[FrameRate]] = {}

    def add_frame(self, frame: Frame) -> None:
        """Add a frame. The probe's completions have its ticks' times; without a probe the kernel's are used."""
        counts: dict[str, tuple[int, int]] = {}
        for (device, _op), done in (frame.seen or frame.kernel).items():
            ios, size = counts.get(device, (0, 0))
            counts[device] = ios + done.count, size + done.bytes
        per_s = 1e6 / frame.dt_us
        for device, (ios, size) in counts.items():
            depths = frame.depths.get(device)
            depth = 0.0 if depths is None else mean_depth(depths)
            rates = self._rates.setdefault(device, [_IDLE] * self._frames)
            rates.append(FrameRate(ios * per_s, size * per_s, depth))
        self._frames += 1
        for rates in self._rates.values():
            if len(rates) < self._frames:
                rates.append(_IDLE)

    @property
    def by_device(self) -> Mapping[str, tuple[FrameRate, ...]]:
        """Return the rates by device, one of each frame."""
        return {device: tuple(rates) for device, rates in self._rates.items()}


def mean_depth(depths: Depths) -> float:
    """Return the mean number of I/Os in the driver and queued, in the samples of an interval."""
    return _mean(depths.in_driver) + _mean(depths.queued)


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
