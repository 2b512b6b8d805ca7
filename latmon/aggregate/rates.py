"""Rates of devices from frame to frame, and the highest rates of the last hour.

A sum over a block hides whether a device completed as many I/Os in each second, and with how many in flight. So a
block keeps the rates of its frames.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from latmon.model.frame import OPS, Flow, Frame
from latmon.model.inflight import Depths, busy_share, mean_depth

KEPT_US = 3600_000_000
"""Time for which the highest rates are remembered."""
PART_US = 600_000_000
"""Part of that time of which the highest rate is kept: the highest one of all must not hide the others."""
MAX_DEVICES = 4096
"""Devices whose highest rates are kept, for which they take 12 MB."""
_DEEP = 1.0
"""I/Os of a device in flight on average, from which on its ops are kept: of most devices they are not asked for."""
_COUNTED = tuple(op for op in OPS if op != "flush")
"""Operations that the gauges of I/Os in flight count (littles_law.py)."""


class RateKind(Enum):
    """Unit of a rate."""

    IOS = "ios"
    BYTES = "bytes"


class FrameRate(NamedTuple):
    """Rates of a device in a frame: I/Os and bytes per second, and how many of its I/Os were in flight."""

    span_us: int
    ios: float = 0.0
    bytes: float = 0.0
    depth: float = 0.0
    """Mean number of I/Os in flight."""
    busy: float = 0.0
    """Share of the time with any in the driver."""
    latency_us: float = 0.0
    """Mean latency by the kernel's counters, from the block layer on; 0: not known."""

    def per_s(self, kind: RateKind) -> float:
        """Return the rate of a kind."""
        return self.ios if kind is RateKind.IOS else self.bytes


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
        """Rates of an idle device, in each frame."""
        self._rates: dict[str | Flow, list[FrameRate]] = {}
        """Rates by device, and by op where many of a device's I/Os are in flight."""

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
                mean_depth(depths.in_driver) + mean_depth(depths.queued),
                busy_share(depths.in_driver),
                _latency_us(frame, device),
            )
            self._rates.setdefault(device, list(self._idle)).append(rate)
            if rate.depth >= _DEEP:
                self._add_ops(frame, device, rate)
        self._idle.append(FrameRate(frame.dt_us))
        for rates in self._rates.values():
            if len(rates) < len(self._idle):
                rates.append(self._idle[-1])

    def _add_ops(self, frame: Frame, device: str, frame_rate: FrameRate) -> None:
        """Add the rates of a device's ops; how many of each are in flight is by Little's law."""
        for op in _COUNTED:
            flow = Flow(device, op)
            done, timed = (frame.seen or frame.kernel).get(flow), frame.kernel.get(flow)
            if done is None or not done.count or timed is None or not timed.count or timed.time_us is None:
                continue
            per_s, latency_us = 1e6 / frame.dt_us, timed.time_us / timed.count
            ios = done.count * per_s
            depth = ios * latency_us / 1e6
            rate = FrameRate(frame.dt_us, ios, done.bytes * per_s, depth, frame_rate.busy, latency_us)
            self._rates.setdefault(flow, list(self._idle)).append(rate)

    @property
    def by_stream(self) -> Mapping[str | Flow, tuple[FrameRate, ...]]:
        """Return the rates by device, and by op of busy devices, one of each frame."""
        return {stream: tuple(rates) for stream, rates in self._rates.items()}


def _latency_us(frame: Frame, device: str) -> float:
    ios = time_us = 0
    for op in _COUNTED:
        done = frame.kernel.get(Flow(device, op))
        if done is not None and done.time_us is not None:
            ios, time_us = ios + done.count, time_us + done.time_us
    return time_us / ios if ios else 0.0


class BlockRate(NamedTuple):
    """Rates of a device in one block."""

    end_us: int
    ios_per_s: float
    bytes_per_s: float
    latency_us: float
    """Mean latency."""
    reads: float
    """Share of reads in the I/Os."""

    def per_s(self, kind: RateKind) -> float:
        """Return the rate of a kind."""
        return self.ios_per_s if kind is RateKind.IOS else self.bytes_per_s

    @property
    def size(self) -> float:
        """Return the mean size of an I/O in bytes."""
        return self.bytes_per_s / self.ios_per_s if self.ios_per_s else 0.0


class _Part(NamedTuple):
    """The blocks with most I/Os, and with most bytes, per second in a part of the hour."""

    number: int
    by_ios: BlockRate
    by_bytes: BlockRate


class HighestRates:
    """The blocks of the last hour in which a device completed most I/Os, and most bytes, per second."""

    def __init__(self) -> None:
        self._parts: dict[str, deque[_Part]] = {}

    def add(self, rates: Iterable[tuple[str, BlockRate]]) -> None:
        """Compare the rates of the next block. Time that went backwards (another boot) starts over."""
        for device, rate in rates:
            parts = self._parts_of(device, rate.end_us)
            if parts is not None:
                _keep(parts, rate)

    def _parts_of(self, device: str, now_us: int) -> deque[_Part] | None:
        """Return the parts of a device; None where too many others have some of the last hour."""
        parts = self._parts.get(device)
        if parts is None:
            if len(self._parts) >= MAX_DEVICES:
                self._drop_old(now_us)
            if len(self._parts) >= MAX_DEVICES:
                return None
            parts = self._parts[device] = deque()
        return parts

    def _drop_old(self, now_us: int) -> None:
        old = [device for device, parts in self._parts.items() if not _is_kept(parts[-1].by_ios, now_us)]
        for device in old:
            del self._parts[device]

    def forget(self, device: str) -> None:
        """Drop the rates of a device that was removed: another device may get its name."""
        self._parts.pop(device, None)

    def of(self, device: str, kind: RateKind, now_us: int) -> list[BlockRate]:
        """Return the blocks with the highest rate in each part of the hour before a time, the highest one first.

        It is empty where the device was left out, because there are too many.
        """
        rates = [part.by_ios if kind is RateKind.IOS else part.by_bytes for part in self._parts.get(device, ())]
        return sorted((rate for rate in rates if _is_kept(rate, now_us)), key=lambda rate: -rate.per_s(kind))


def _is_kept(rate: BlockRate, now_us: int) -> bool:
    return 0 <= now_us - rate.end_us <= KEPT_US


def _keep(parts: deque[_Part], rate: BlockRate) -> None:
    """Add a block to the parts of its device, and drop those that are older than the time that is remembered."""
    number = rate.end_us // PART_US
    if parts and number < parts[-1].number:
        parts.clear()
    if parts and parts[-1].number == number:
        newest = parts.pop()
        by_ios = rate if rate.ios_per_s > newest.by_ios.ios_per_s else newest.by_ios
        by_bytes = rate if rate.bytes_per_s > newest.by_bytes.bytes_per_s else newest.by_bytes
        parts.append(_Part(number, by_ios, by_bytes))
    else:
        parts.append(_Part(number, rate, rate))
    while number - parts[0].number > KEPT_US // PART_US:
        parts.popleft()
