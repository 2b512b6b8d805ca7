"""Plateaus: rates that hardly vary from frame to frame, while a device, or an op of it, always has I/Os in flight.

The depth of an op is by Little's law, from its rate and its latency: gauges count the I/Os of all ops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from latmon.aggregate.rates import BlockRate, FrameRate, RateKind, variation
from latmon.findings.facts import Block, Facts
from latmon.findings.latency_history import LatencyHistory
from latmon.findings.op_load import OpLoad, op_load
from latmon.findings.rule import Thresholds
from latmon.model.frame import Device, Flow
from latmon.model.inflight import busy_share, mean_depth
from latmon.model.stages import plural_of_op
from latmon.support.units import speed

OPS = ("read", "write")
SAME_LOAD = 0.25
"""Greatest difference of the shares of reads, and of the sizes in parts, between two loads that are compared."""
SIZES = 0.2
"""Least difference of the mean sizes of two blocks, in parts, at which a rate of I/Os doesn't depend on the size."""
_DEEP, _NEAR = 0.75, 0.75
"""Least part of the greatest depth in an interval with many in flight, and least share of these with the same rate."""
_LESS = 0.2
"""How much lower the rate may be on average, because of intervals with few in flight."""
_LAW = 0.25
"""Greatest difference, in parts, of the depth from rate x latency, and of the latency's growth from the depth's."""
_NEWEST = 5
"""Intervals, the newest ones, whose highest rate is compared with those before."""
_LATE = 3
"""Consecutive intervals with other rates that end a plateau: one that ends late has more, the next one less."""
_ONE_IN = 12
"""Intervals of which one may have a higher rate, after one that ended late."""
_SMALL = 32_768
"""Mean bytes of an I/O up to which a limit is more likely of IOPS, where both rates are constant."""
_PASSES, _FEWEST = 3.0, 10
"""Another op is not held where its I/Os, so many at least, take so many times less."""


class Stream(NamedTuple):
    """All I/Os of a device, or those of an op."""

    device: Device
    op: str = ""
    """Empty for all."""

    @property
    def key(self) -> str | Flow:
        """Return the key of its rates in a block."""
        return Flow(self.device.name, self.op) if self.op else self.device.name

    @property
    def noun(self) -> str:
        return self.op or "I/O"

    def amount(self, per_s: float, kind: RateKind) -> str:
        """Return `3,000 IOPS`, `50 writes/s`, `125 MB/s` or `125 MB/s of writes`."""
        if kind is RateKind.BYTES:
            return f"{speed(per_s)} of {plural_of_op(self.op)}" if self.op else speed(per_s)
        return f"{per_s:,.0f} {plural_of_op(self.op)}/s" if self.op else f"{per_s:,.0f} IOPS"

    def rate_in(self, block: Block) -> BlockRate | None:
        """Return its rates in a block; None where it did nothing, or its latency isn't known."""
        name = self.device.name
        if not self.op:
            return block.rate_of(name)
        load = op_load((block,), name, self.op)
        return None if load is None else BlockRate(block.end_us, load.iops, load.bytes_per_s, load.mean_us, 1.0)


class Level(NamedTuple):
    """Intervals with about as many in flight: how many, the mean depth and the mean latency."""

    intervals: int
    depth: float
    latency_us: float
    ios_per_s: float
    size: float
    """Mean bytes of an I/O."""

    @property
    def by_law(self) -> float:
        """Return how many are in flight by Little's law."""
        return self.ios_per_s * self.latency_us / 1e6


@dataclass(frozen=True)
class Plateau:
    """A rate that was the same in consecutive intervals up to now, while I/Os were always in flight."""

    stream: Stream
    kind: RateKind
    """The rate that was constant."""
    frames: tuple[FrameRate, ...]
    before: BlockRate | None = None
    """The block with the highest rate of such I/Os in the last hour; None where none is known."""
    highest: BlockRate | None = None
    """The block with the highest rate in the last hour, of any I/Os; None where none is known."""
    other_per_s: float | None = None
    """The rate of the other kind, where it was constant as well."""

    @property
    def device(self) -> Device:
        return self.stream.device

    @property
    def lasted_us(self) -> int:
        return sum(frame.span_us for frame in self.frames)

    @cached_property
    def deep(self) -> list[FrameRate]:
        """Return the intervals with nearly as many in flight as the deepest one."""
        least = _DEEP * max(frame.depth for frame in self.frames)
        return [frame for frame in self.frames if frame.depth >= least]

    @cached_property
    def per_s(self) -> float:
        """Return the median of the rate in its unit while many are in flight."""
        return median(self.rates(self.kind))

    def tolerance(self, most: float) -> float:
        """Return the difference from the median, in parts, that counts as none: `most`, or one I/O up to twice that.

        An interval holds one I/O more or less of a constant rate, which is a larger part of a low one.
        """
        if self.kind is not RateKind.IOS or not self.per_s:
            return most
        one_io = len(self.frames) * 1e6 / self.lasted_us / self.per_s
        return max(most, min(1.01 * one_io, 2 * most))

    def near(self, most: float) -> int:
        """Return in how many intervals with many in flight the rate differs by `most` or less from the median."""
        limit = self.per_s
        return sum(abs(rate / limit - 1) <= most for rate in self.rates(self.kind)) if limit else 0

    def rates(self, kind: RateKind) -> list[float]:
        """Return I/Os or bytes per second of each interval in which many are in flight."""
        return [frame.per_s(kind) for frame in self.deep]

    @property
    def amount(self) -> str:
        """Return the measured rate in words."""
        return self.stream.amount(self.per_s, self.kind)

    @property
    def amount_before(self) -> str:
        return self.stream.amount(self.before_per_s, self.kind)

    @property
    def before_per_s(self) -> float:
        """Return the highest rate of such I/Os in the last hour; 0 where none is known."""
        return 0.0 if self.before is None else self.before.per_s(self.kind)

    @property
    def times_faster(self) -> float:
        """Return the highest rate of such I/Os in the last hour as a multiple of the present one."""
        return self.before_per_s / self.per_s

    @property
    def variation(self) -> float:
        return variation(self.rates(self.kind))

    @cached_property
    def stationary(self) -> list[FrameRate]:
        """Return the intervals in which Little's law holds: the load did not change at their ends."""
        law = [(frame, frame.ios * frame.latency_us / 1e6) for frame in self.frames]
        return [frame for frame, by_law in law if abs(by_law / frame.depth - 1) <= _LAW]

    @cached_property
    def levels(self) -> tuple[Level, Level] | None:
        """Return the intervals with few and those with many in flight; None where one of both kinds is missing."""
        frames = self.stationary
        middle = _middle(frames)
        low = _level([frame for frame in frames if frame.depth < middle])
        high = _level([frame for frame in frames if frame.depth >= middle])
        return None if low is None or high is None else (low, high)

    @property
    def mean_us(self) -> float:
        """Return the mean latency of its I/Os."""
        level = _level(self.stationary)
        return 0.0 if level is None else level.latency_us

    def follows(self, times: float) -> bool:
        """Return whether the depth changed by `times` or more, and the latency as much; not where sizes did, too."""
        if self.levels is None:
            return False
        low, high = self.levels
        deeper, slower = high.depth / low.depth, high.latency_us / low.latency_us
        return deeper >= times and (self.mixes_sizes or abs(slower / deeper - 1) <= _LAW)

    @property
    def mixes_sizes(self) -> bool:
        """Return whether I/Os of other sizes come and go, and as many bytes per second are done.

        A program that writes as many bytes per second by itself does that as well, so that less is concluded from it.
        """
        if self.kind is not RateKind.BYTES or self.levels is None:
            return False
        low, high = self.levels
        return bool(low.size) and abs(high.size / low.size - 1) > SIZES

    @property
    def changes(self) -> int:
        """Return how often the depth changed between few and many."""
        frames = self.stationary
        middle = _middle(frames)
        are_deep = [frame.depth >= middle for frame in frames]
        return sum(is_deep != was_deep for was_deep, is_deep in pairwise(are_deep))


class PassingOp(NamedTuple):
    """Another op of the device, which is not held."""

    op: str
    load: OpLoad
    before: OpLoad | None
    """None where there were none."""


def streams_of(facts: Facts, device: Device) -> Iterator[Stream]:
    """Yield the I/Os of each op that a device has in the newest block, then all of them: a limit of one says more."""
    newest = facts.window[-1].rates
    yield from (Stream(device, op) for op in OPS if Flow(device.name, op) in newest)
    yield Stream(device)


def full_frames(facts: Facts, stream: Stream, limits: Thresholds) -> list[FrameRate]:
    """Return the last intervals of the window in which a stream always had I/Os in flight.

    A single interval without is left out: a busy host's frames may end late, and have too few I/Os or too many.
    """
    frames: list[FrameRate] = []
    was_full = True
    for block in reversed(facts.window):
        rates = _frames(facts, block, stream)
        if not rates:
            break
        for frame in reversed(rates):
            is_full = frame.busy >= limits["busy"] and frame.depth >= limits["depth"]
            if not is_full and not was_full:
                return frames
            if is_full:
                frames.insert(0, frame)
            was_full = is_full
    return frames


def plateau_of(facts: Facts, stream: Stream, frames: Sequence[FrameRate], limits: Thresholds) -> Plateau | None:
    """Return the plateau at the end of these intervals; None where the rate varies."""
    plateaus = [_flat(stream, kind, frames, limits["variation"]) for kind in RateKind]
    known = [plateau for plateau in plateaus if plateau is not None]
    if not known:
        return None
    longest_us = max(plateau.lasted_us for plateau in known)
    longest = [plateau for plateau in known if plateau.lasted_us == longest_us]
    chosen = longest[-1] if _is_large(longest[0]) else longest[0]
    others = [plateau.per_s for plateau in longest if plateau is not chosen]
    rates, now = _earlier_rates(facts, chosen), stream.rate_in(facts.window[-1])
    return replace(
        chosen,
        before=next((rate for rate in rates if now is not None and _is_like(rate, now, chosen.kind)), None),
        highest=rates[0] if rates else None,
        other_per_s=others[0] if others else None,
    )


def passing_ops(facts: Facts, plateau: Plateau) -> list[PassingOp]:
    """Return the other ops whose I/Os take far less than those of a plateau meanwhile."""
    name, since_us = plateau.device.name, facts.end_us - plateau.lasted_us
    blocks = [block for block in facts.window if block.end_us > since_us]
    earlier = [block for block in facts.window if block.end_us <= since_us]
    passing: list[PassingOp] = []
    for op in OPS:
        load, before = op_load(blocks, name, op), op_load(earlier, name, op)
        if op == plateau.stream.op or load is None or load.ios < _FEWEST:
            continue
        if _PASSES * load.mean_us <= plateau.mean_us:
            passing.append(PassingOp(op, load, before))
    return passing


def _earlier_rates(facts: Facts, plateau: Plateau) -> list[BlockRate]:
    """Return blocks of the time before, those with the highest rate first.

    Of an op they are those of five minutes, and what its latency was before it changed for good.
    """
    stream, kind = plateau.stream, plateau.kind
    if not stream.op:
        return facts.highest.of(stream.device.name, kind, facts.end_us)
    since_us = facts.end_us - plateau.lasted_us
    history = facts.history or LatencyHistory()
    earlier = [stream.rate_in(block) for block in history.blocks or facts.window if block.end_us <= since_us]
    rates = [rate for rate in earlier if rate is not None]
    for change in history.changes.get(stream.device.name, ()):
        load, latencies = change.before, change.shift.before
        if change.op == stream.op and load is not None and load.iops_of(stream.op):
            per_s, size = load.iops_of(stream.op), load.done[stream.op].bytes / load.done[stream.op].count
            mean_us = latencies.nearest_sum / latencies.count
            rates.append(BlockRate(change.mono_us, per_s, per_s * size, mean_us, 1.0))
    return sorted(rates, key=lambda rate: -rate.per_s(kind))


def _is_like(before: BlockRate, now: BlockRate, kind: RateKind) -> bool:
    """Return whether two blocks have as many reads, and for a rate of I/Os their size."""
    if not now.size:
        return False
    is_size_like = kind is RateKind.BYTES or abs(before.size / now.size - 1) <= SAME_LOAD
    return is_size_like and abs(before.reads - now.reads) <= SAME_LOAD


def _is_large(plateau: Plateau) -> bool:
    """Return whether its I/Os are so large that a limit is more likely of bytes."""
    return sum(plateau.rates(RateKind.BYTES)) > _SMALL * sum(plateau.rates(RateKind.IOS))


def _frames(facts: Facts, block: Block, stream: Stream) -> tuple[FrameRate, ...]:
    """Return a stream's rates in each frame of a block, or in all of it where frames and their times aren't known."""
    frames = block.rates.get(stream.key, ())
    if stream.op or any(frame.latency_us for frame in frames):
        return frames
    name = stream.device.name
    rates, depths = block.rate_of(name), block.depths(name)
    if rates is None:
        return ()
    # A latency from the issue on has no time in the queue.
    queued = 0.0 if facts.origin.latency_from == "issue" else mean_depth(depths.queued)
    depth = mean_depth(depths.in_driver) + queued
    busy = busy_share(depths.in_driver)
    return (FrameRate(block.span_us, rates.ios_per_s, rates.bytes_per_s, depth, busy, rates.latency_us),)


def _flat(stream: Stream, kind: RateKind, frames: Sequence[FrameRate], most: float) -> Plateau | None:
    """Return the longest plateau at the end of these intervals; None where there is none of two or more."""
    # The second highest of the last rates is near the limit: what is far above or below it is before the plateau.
    newest = sorted(frame.per_s(kind) for frame in frames[-_NEWEST:])
    limit = newest[-2] if len(newest) > 1 else 0.0
    near = [bool(limit) and abs(frame.per_s(kind) / limit - 1) <= 1.5 * _LESS for frame in frames]
    first = len(frames)
    while first and any(near[max(0, first - _LATE) : first]):
        first -= 1
    frames = [frame for frame, is_near in zip(frames[first:], near[first:], strict=True) if is_near]
    for begin in range(len(frames) - 1):
        plateau = Plateau(stream, kind, tuple(frames[begin:]))
        if _is_flat(plateau, most):
            return plateau
    return None


def _is_flat(plateau: Plateau, most: float) -> bool:
    """Return whether the rate is the same while many are in flight, and hardly less while few are.

    With few in flight a busy host leaves a device without any for moments, so that a limit isn't used up.
    """
    limit = plateau.per_s
    most = plateau.tolerance(most)
    if not limit or plateau.near(most) < _NEAR * len(plateau.deep):
        return False
    ratios = [frame.per_s(plateau.kind) / limit for frame in plateau.frames]
    highest = sorted(ratios)[-1 - len(ratios) // _ONE_IN]
    return sum(ratios) / len(ratios) >= 1 - _LESS and highest <= 1 + 2 * most


def _middle(frames: Sequence[FrameRate]) -> float:
    """Return the depth between few and many of these intervals; 0 where there are none."""
    depths = [frame.depth for frame in frames]
    return math.sqrt(min(depths) * max(depths)) if depths else 0.0


def _level(frames: Sequence[FrameRate]) -> Level | None:
    ios = sum(frame.ios for frame in frames)
    if not ios:
        return None
    latency_us = sum(frame.latency_us * frame.ios for frame in frames) / ios
    depth = sum(frame.depth for frame in frames) / len(frames)
    size = sum(frame.bytes for frame in frames) / ios
    return Level(len(frames), depth, latency_us, ios / len(frames), size)
