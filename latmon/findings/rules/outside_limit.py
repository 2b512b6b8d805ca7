"""outside-limit: a limit that no file of this host has keeps a device at a rate, and more I/Os in flight only wait.

Volumes of clouds have provisioned IOPS and bytes per second with a credit for bursts (EBS, Azure, GCE), hypervisors
throttle disks (blkdeviotune of libvirt), arrays have QoS. All of them let a device complete the same number of I/Os, or
bytes, in each second, so that by Little's law the latency follows the number of I/Os in flight.

A saturated device does that as well: one that serves I/Os one at a time in a constant time can't be told apart. A load
that is paced has a constant rate, too, but its I/Os don't wait for each other. So there are three kinds of evidence:
the depth changed at the same rate (`followed`); the device did more such I/Os before; it is a volume of a hypervisor,
an array or a network, whose hardware is outside of this host in any case. Two of them are a warning; the first one by
itself is a notice that names both causes. AWS's volumes report the time at their limits, which decides.
Where the depth never changes, a device that did twice as much of such I/Os before, each in a third of the time, is a
notice that names both as well.
No finding: a rate that varies as that of a disk does, a device with nothing in flight for a part of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from latmon.aggregate.rates import BlockRate, FrameRate, RateKind, variation
from latmon.analysis.hardware_place import Place, place_of
from latmon.analysis.limits import ceiling
from latmon.findings.evidence import many
from latmon.findings.facts import GROWN_US, Block, Facts
from latmon.findings.rule import (
    DEPTHS,
    NOTICE,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    plain,
    short_text,
)
from latmon.model import measurements
from latmon.model.devices import thread_of
from latmon.model.frame import Device
from latmon.model.inflight import busy_share, mean_depth
from latmon.support.units import part, show_size, speed, spelled

ID = "outside-limit"
_COUNTED = (measurements.KERNEL, measurements.SEEN)
_SAME_LOAD = 0.25
"""Greatest difference of the shares of reads, and of the sizes in parts, between two loads that are compared."""
_SIZES = 0.2
"""Least difference of the mean sizes of two blocks, in parts, at which a rate of I/Os doesn't depend on the size."""
_DEEP, _NEAR = 0.75, 0.75
"""Least part of the greatest depth in an interval with many in flight, and least share of these with the same rate."""
_LESS = 0.2
"""How much lower the rate may be on average, because of intervals with few in flight."""
_LAW = 0.25
"""Greatest difference, in parts, of the depth from rate x latency, and of the latency's growth from the depth's."""
_TIMES_FASTER, _TIMES_SLOWER = 2.0, 3.0
"""Least rate before, and latency now, in multiples, where the depth never changes."""
_DEEPER = 1.25
_EITHER = "the device, or a limit outside of this host,"
_NEWEST = 5
"""Intervals, the newest ones, whose highest rate is compared with those before."""
_CHANGES = 2
"""Changes of the depth at least where no faster time is known: a paced load has one when its device becomes slow."""
_SMALL = 32_768
"""Mean bytes of an I/O up to which a limit is more likely of IOPS, where both rates are constant."""
_ROUND = 0.01
"""Greatest difference, in parts, from a number that limits are set to."""
_SAME = 0.02
"""Greatest difference from the median at which the evidence calls a rate the same."""
_MANTISSAS = (1.0, 1.2, 1.25, 1.5, 1.6, 2.0, 2.3, 2.4, 2.5, 3.0, 3.2, 4.0, 5.0, 6.0, 6.4, 7.5, 8.0, 9.0, 10.0)
"""First digits of limits that providers offer: 3,000 and 16,000 IOPS (gp3), 120, 240, 2,300 and 7,500 (Azure)."""
_UNITS: Mapping[RateKind, tuple[float, ...]] = MappingProxyType({RateKind.IOS: (1.0,), RateKind.BYTES: (1.0, 1.048576)})
_BY_CHANCE: Mapping[RateKind, float] = MappingProxyType(
    {kind: len(units) * (len(_MANTISSAS) - 1) * 2 * _ROUND / math.log(10) for kind, units in _UNITS.items()}
)
"""Share of all rates that are as near to a number that limits are set to: 1.0 and 10.0 are the same first digit."""
COUNTERS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ebs_volume_performance_exceeded_iops": ("the volume", "IOPS"),
        "ebs_volume_performance_exceeded_tp": ("the volume", "bytes per second"),
        "ec2_instance_ebs_performance_exceeded_iops": ("the instance", "IOPS"),
        "ec2_instance_ebs_performance_exceeded_tp": ("the instance", "bytes per second"),
    }
)
"""Counters in us of Amazon's log page 0xD0, by nvme-cli's names (Amazon EBS User Guide, detailed performance
statistics: time in which demand exceeded what is provisioned): whose limit it is, and of what."""


class _Level(NamedTuple):
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


class _Plateau(NamedTuple):
    """A device whose rate was the same in consecutive intervals up to now, while it always had I/Os in flight."""

    device: Device
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
    def lasted_us(self) -> int:
        return sum(frame.span_us for frame in self.frames)

    @property
    def deep(self) -> list[FrameRate]:
        """Return the intervals with nearly as many in flight as the deepest one."""
        least = _DEEP * max(frame.depth for frame in self.frames)
        return [frame for frame in self.frames if frame.depth >= least]

    @property
    def per_s(self) -> float:
        """Return the median of the rate in its unit while many are in flight."""
        return median(self.rates(self.kind))

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
        return _amount(self.per_s, self.kind)

    @property
    def before_per_s(self) -> float:
        """Return the highest rate of such I/Os in the last hour; 0 where none is known."""
        return 0.0 if self.before is None else self.before.per_s(self.kind)

    @property
    def variation(self) -> float:
        return variation(self.rates(self.kind))

    @property
    def stationary(self) -> list[FrameRate]:
        """Return the intervals in which Little's law holds: the load did not change at their ends."""
        law = [(frame, frame.ios * frame.latency_us / 1e6) for frame in self.frames]
        return [frame for frame, by_law in law if abs(by_law / frame.depth - 1) <= _LAW]

    @property
    def levels(self) -> tuple[_Level, _Level] | None:
        """Return the intervals with few and those with many in flight; None where one of both kinds is missing."""
        frames = self.stationary
        low = _level([frame for frame in frames if frame.depth < self.middle])
        high = _level([frame for frame in frames if frame.depth >= self.middle])
        return None if low is None or high is None else (low, high)

    @property
    def middle(self) -> float:
        """Return the depth between few and many."""
        depths = [frame.depth for frame in self.stationary]
        return math.sqrt(min(depths) * max(depths)) if depths else 0.0

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
        return bool(low.size) and abs(high.size / low.size - 1) > _SIZES

    @property
    def changes(self) -> int:
        """Return how often the depth changed between few and many."""
        are_deep = [frame.depth >= self.middle for frame in self.stationary]
        return sum(is_deep != was_deep for was_deep, is_deep in pairwise(are_deep))


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device that is at such a limit. A volume is left to the devices below it."""
    counted = dict.fromkeys(flow.device for table in _COUNTED for flow in facts.window[-1][table])
    for name in sorted(counted):
        device = facts.device(name)
        if any(member in facts.devices for member in device.members):
            continue
        reported = _reported(facts, name, limits)
        frames = _full_frames(facts, name, limits)
        if reported:
            yield _by_counters(facts, device, reported, _plateau(facts, device, frames, limits))
        elif frames and not _is_limited_below(facts, device):
            plateau = _plateau(facts, device, frames, limits)
            if plateau is None:
                continue
            is_varied = _is_varied(frames, limits["deeper"])
            finding = _by_rates(facts, plateau, limits) if is_varied else _by_past(facts, plateau, limits)
            if finding is not None:
                yield finding


def _is_varied(frames: Sequence[FrameRate], times: float) -> bool:
    """Return whether the depth ever changed by `times`: of most devices it does not, and no more is looked at."""
    depths = [frame.depth for frame in frames]
    return len(depths) > 1 and max(depths) >= times * min(depths)


def _full_frames(facts: Facts, name: str, limits: Thresholds) -> list[FrameRate]:
    """Return the last intervals of the window in which a device always had I/Os in flight."""
    frames: list[FrameRate] = []
    for block in reversed(facts.window):
        full = _full(_frames(facts, block, name), limits)
        frames[:0] = full
        if not full or len(full) < len(block.rates.get(name, full)):
            break
    return frames


def _is_limited_below(facts: Facts, device: Device) -> bool:
    """Return whether a cgroup's limit on another device may be the limit: a thread does the I/Os for it there."""
    if not thread_of(device.name, device.driver):
        return False
    rows = (row for block in facts.window for row in block.cgroup_limits or ())
    return any(row.device != device.name for row in rows)


def _reported(facts: Facts, name: str, limits: Thresholds) -> dict[str, int]:
    """Return the counters of its own limits that grew, in us, the greatest first."""
    grown = facts.grown.get(name, {})
    times = {counter: grown[counter] for counter in COUNTERS if grown.get(counter, 0) >= limits["reported_us"]}
    return dict(sorted(times.items(), key=lambda row: -row[1]))


def _plateau(facts: Facts, device: Device, frames: Sequence[FrameRate], limits: Thresholds) -> _Plateau | None:
    """Return the plateau at the end of these intervals; None where the rate varies."""
    plateaus = [_flat(device, kind, frames, limits["variation"]) for kind in RateKind]
    known = [plateau for plateau in plateaus if plateau is not None]
    if not known:
        return None
    longest_us = max(plateau.lasted_us for plateau in known)
    longest = [plateau for plateau in known if plateau.lasted_us == longest_us]
    chosen = longest[-1] if _is_large(longest[0]) else longest[0]
    others = [plateau.per_s for plateau in longest if plateau is not chosen]
    rates = facts.highest.of(device.name, chosen.kind, facts.end_us)
    return chosen._replace(
        before=_before(facts, chosen, rates),
        highest=rates[0] if rates else None,
        other_per_s=others[0] if others else None,
    )


def _is_large(plateau: _Plateau) -> bool:
    """Return whether its I/Os are so large that a limit is more likely of bytes."""
    return sum(plateau.rates(RateKind.BYTES)) > _SMALL * sum(plateau.rates(RateKind.IOS))


def _frames(facts: Facts, block: Block, name: str) -> tuple[FrameRate, ...]:
    """Return a device's rates in each frame of a block, or in all of it where frames and their times aren't known."""
    frames = block.rates.get(name, ())
    if any(frame.latency_us for frame in frames):
        return frames
    rates, depths = block.rate_of(name), block.depths(name)
    if rates is None:
        return ()
    # A latency from the issue on has no time in the queue.
    queued = 0.0 if facts.origin.latency_from == "issue" else mean_depth(depths.queued)
    depth = mean_depth(depths.in_driver) + queued
    busy = busy_share(depths.in_driver)
    return (FrameRate(block.span_us, rates.ios_per_s, rates.bytes_per_s, depth, busy, rates.latency_us),)


def _full(frames: Sequence[FrameRate], limits: Thresholds) -> list[FrameRate]:
    """Return the last of these intervals in which the device always had I/Os in flight."""
    full: list[FrameRate] = []
    for frame in reversed(frames):
        if frame.busy < limits["busy"] or frame.depth < limits["depth"]:
            break
        full.insert(0, frame)
    return full


def _flat(device: Device, kind: RateKind, frames: Sequence[FrameRate], most: float) -> _Plateau | None:
    """Return the longest plateau at the end of these intervals; None where there is none of two or more."""
    # The highest of the last rates is near the limit: what is far above or below it is before the plateau.
    limit = max((frame.per_s(kind) for frame in frames[-_NEWEST:]), default=0.0)
    first = len(frames)
    while first and abs(frames[first - 1].per_s(kind) / limit - 1 if limit else 1.0) <= 1.5 * _LESS:
        first -= 1
    for begin in range(first, len(frames) - 1):
        plateau = _Plateau(device, kind, tuple(frames[begin:]))
        if _is_flat(plateau, most):
            return plateau
    return None


def _is_flat(plateau: _Plateau, most: float) -> bool:
    """Return whether the rate is the same while many are in flight, and hardly less while few are.

    With few in flight a busy host leaves a device without any for moments, so that a limit isn't used up.
    """
    limit = plateau.per_s
    if not limit or plateau.near(most) < _NEAR * len(plateau.deep):
        return False
    ratios = [frame.per_s(plateau.kind) / limit for frame in plateau.frames]
    return sum(ratios) / len(ratios) >= 1 - _LESS and max(ratios) <= 1 + 2 * most


def _before(facts: Facts, plateau: _Plateau, rates: Sequence[BlockRate]) -> BlockRate | None:
    """Return the first of these blocks of the last hour whose I/Os were like those of the plateau."""
    now = facts.window[-1].rate_of(plateau.device.name)
    if now is None or not now.size:
        return None
    return next((rate for rate in rates if _is_like(rate, now, plateau.kind)), None)


def _is_like(before: BlockRate, now: BlockRate, kind: RateKind) -> bool:
    """Return whether two blocks have as many reads, and for a rate of I/Os their size."""
    is_size_like = kind is RateKind.BYTES or abs(before.size / now.size - 1) <= _SAME_LOAD
    return is_size_like and abs(before.reads - now.reads) <= _SAME_LOAD


def _by_rates(facts: Facts, plateau: _Plateau, limits: Thresholds) -> Finding | None:
    """Return the finding that the rates show; None where they show none."""
    levels = plateau.levels
    if levels is None or not plateau.follows(limits["deeper"]) or levels[1].latency_us < limits["slow_us"]:
        return None
    was_faster = plateau.before is not None and _times_faster(plateau) >= limits["faster"]
    place = place_of(plateau.device)
    is_known = not plateau.mixes_sizes and (place is Place.OUTSIDE or (was_faster and place is not Place.LOCAL))
    lasting_us = limits["lasting_us"] if is_known else 2 * limits["lasting_us"]
    if plateau.lasted_us < lasting_us or not (is_known or plateau.changes >= _CHANGES):
        return None
    low, high = levels
    who = "a limit outside of this host" if is_known else _EITHER
    if plateau.mixes_sizes:
        who = "the device, a limit outside of this host, or a program's own pace"
    texts = _Texts(who, _followed(plateau, low, high), "; more only wait")
    return _held(facts, plateau, texts, is_known=is_known, was_faster=was_faster)


def _by_past(facts: Facts, plateau: _Plateau, limits: Thresholds) -> Finding | None:
    """Return the finding of a load whose depth never changes, by what the device did before; None: it shows none."""
    before = plateau.before
    if before is None or plateau.lasted_us < 2 * limits["lasting_us"] or place_of(plateau.device) is Place.LOCAL:
        return None
    is_slow = plateau.mean_us >= max(limits["slow_us"], _TIMES_SLOWER * before.latency_us)
    if not is_slow or _times_faster(plateau) < _TIMES_FASTER:
        return None
    amount = _amount(plateau.before_per_s, plateau.kind)
    done = f"{amount} at {spelled(before.latency_us)}"
    shows = f"an I/O takes {spelled(plateau.mean_us)}, and it did {done} before"
    texts = _Texts(_EITHER, shows, f"; before {amount}")
    return _held(facts, plateau, texts, is_known=False, was_faster=True)


class _Texts(NamedTuple):
    """Parts of a finding's texts: what holds the device, what shows it, and the clause of the short text."""

    who: str
    shows: str
    clause: str


def _held(facts: Facts, plateau: _Plateau, texts: _Texts, *, is_known: bool, was_faster: bool) -> Finding:
    name = plateau.device.name
    by = "a limit outside of here" if is_known else "it, or a limit outside"
    return Finding(
        ID,
        WARNING if is_known else NOTICE,
        name,
        f"{name}: {texts.who} holds it at {plateau.amount} for {spelled(plateau.lasted_us)}: {texts.shows}",
        tuple(_evidence(facts, plateau, was_faster=was_faster)),
        Where("outstanding", name),
        tuple(_steps(plateau.device, plateau, is_known=is_known)),
        _REFUTED,
        _waiting_share(plateau),
        short=short_text(name, f"held at {plateau.amount} by {by}", texts.clause),
    )


def _is_deeper(low: _Level, high: _Level) -> bool:
    """Return whether so many more are in flight at times that a comparison of both says something."""
    return high.depth >= _DEEPER * low.depth


def _followed(plateau: _Plateau, low: _Level, high: _Level) -> str:
    """Return the latencies with few and with many in flight, and the sizes of the I/Os where they differ."""
    few = f"{spelled(low.latency_us)} with {many(low.depth)} in flight"
    more = f"{spelled(high.latency_us)} with {many(high.depth)}"
    if not plateau.mixes_sizes:
        return f"an I/O takes {few} and {more}"
    return f"an I/O of {show_size(low.size)} takes {few}, one of {show_size(high.size)} {more}"


_REFUTED = (
    "a rate that changes with the size, the order or the op of the I/Os: then the device is full; or a program that "
    "issues as many I/Os per second by itself: then they take as long with fewer in flight"
)


def _times_faster(plateau: _Plateau) -> float:
    """Return the highest rate of such I/Os in the last hour as a multiple of the present one."""
    return plateau.before_per_s / plateau.per_s


def _waiting_share(plateau: _Plateau) -> float:
    """Return the part of the I/Os' time that they would not take with the least depth that was seen."""
    known = [plateau.levels[0].latency_us] if plateau.levels else []
    known += [plateau.before.latency_us] if plateau.before else []
    least_us = min(known, default=plateau.mean_us)
    return max(0.0, 1 - least_us / plateau.mean_us)


def _evidence(facts: Facts, plateau: _Plateau, *, was_faster: bool) -> Iterator[Fact]:
    yield from _rate_facts(plateau)
    levels = plateau.levels
    if levels is not None and _is_deeper(*levels):
        yield from _depth_facts(*levels)
    yield from _before_facts(facts, plateau, was_faster=was_faster)
    yield from _exempt_facts(facts, plateau.device)
    if place_of(plateau.device) is Place.OUTSIDE:
        hardware = plateau.device.model or plateau.device.driver
        yield Fact("place", hardware, f"its hardware is not this host's: {hardware}")
    elif thread := thread_of(plateau.device.name, plateau.device.driver):
        yield Fact("place", thread, f"its I/Os are done by {thread} of this host, for what lies below it")


def _before_facts(facts: Facts, plateau: _Plateau, *, was_faster: bool) -> Iterator[Fact]:
    """Yield what is known of higher rates in the last hour."""
    before, highest = plateau.before, plateau.highest
    if was_faster and before is not None:
        ago_us = facts.end_us - before.end_us
        done = _amount(plateau.before_per_s, plateau.kind)
        text = f"{spelled(ago_us)} ago it did {done} of such I/Os, at {spelled(before.latency_us)}"
        yield Fact("before", round(plateau.before_per_s), text, "per_s")
        return
    if highest is None:
        yield Fact("before", 0, "whether it did more before is not known: there are too many devices", "per_s")
        return
    text = "it did not do more of such I/Os in the last hour, as far as that was measured"
    if highest.per_s(plateau.kind) >= plateau.per_s * (1 + _SAME_LOAD):
        done = _amount(highest.per_s(plateau.kind), plateau.kind)
        ago = spelled(facts.end_us - highest.end_us)
        text += f"; {ago} ago it did {done} of {show_size(highest.size)}, {part(highest.reads)} of them reads: "
        text += "another load"
    yield Fact("before", 0, text, "per_s")


def _rate_facts(plateau: _Plateau) -> Iterator[Fact]:
    intervals, kind = len(plateau.deep), plateau.kind
    same = plateau.near(_SAME)
    how = f"in {same:,} of {intervals:,} intervals with many in flight the rate was the same within {_SAME:.0%}"
    yield Fact("rate", round(plateau.per_s, 1), f"{_amount(plateau.per_s, kind)}; {how}", "per_s", intervals)
    number = _round(plateau)
    if number is not None:
        text = f"{_amount(number, kind)}, a usual limit, is within {_ROUND:.0%} of it: a hint, since "
        text += f"{_BY_CHANCE[kind]:.0%} of all rates are as near to such a number"
        yield Fact("round", number, text)
    if plateau.other_per_s is not None:
        other = _amount(plateau.other_per_s, RateKind.BYTES if kind is RateKind.IOS else RateKind.IOS)
        yield Fact(
            "other", round(plateau.other_per_s, 1), f"{other} were constant, too: either may be limited", "per_s"
        )
    sizes = [frame.bytes / frame.ios for frame in plateau.frames]
    if kind is RateKind.IOS and min(sizes) and max(sizes) / min(sizes) >= 1 + _SIZES:
        least, most = show_size(min(sizes)), show_size(max(sizes))
        text = f"the size of an I/O changed from {least} to {most}, and the IOPS did not"
        yield Fact("size", round(max(sizes)), text, "bytes")
    elif kind is RateKind.BYTES and (varied := variation(plateau.rates(RateKind.IOS))) >= 2 * plateau.variation:
        text = f"the IOPS varied by {varied:.1%}, and the bytes per second did not"
        yield Fact("ios_variation", round(varied, 3), text, "share")


def _depth_facts(low: _Level, high: _Level) -> Iterator[Fact]:
    for which, level in (("low", low), ("high", high)):
        text = f"with {many(level.depth)} in flight an I/O takes {spelled(level.latency_us)} on average"
        yield Fact(f"{which}_depth_us", round(level.latency_us), text, "us", level.intervals)
    text = f"Little's law: rate x latency = {many(high.by_law)} in flight, and {many(high.depth)} were counted"
    yield Fact("by_law", round(high.by_law, 1), text, "ios", high.intervals)


def _exempt_facts(facts: Facts, device: Device) -> Iterator[Fact]:
    """Yield what was looked at on this host and is not the cause."""
    if any(block.cgroup_limits is not None for block in facts.window):
        rows = [row for block in facts.window for row in block.cgroup_limits or () if row.device == device.name]
        if not rows:
            yield Fact("cgroups", 0, "no cgroup has a limit on it")
    bound = ceiling(device.limits)
    highest = facts.depths(device.name).highest
    if bound is not None and highest < int(bound.value):
        text = f"its driver allows {int(bound.value):,} in flight ({bound.name}), and had {highest:,} at most"
        yield Fact("driver", highest, text, "ios")


def _by_counters(facts: Facts, device: Device, reported: dict[str, int], plateau: _Plateau | None) -> Finding:
    """Return the finding that the counters of a volume decide."""
    worst, us = next(iter(reported.items()))
    who, unit = COUNTERS[worst]
    is_same = plateau is not None and (plateau.kind is RateKind.IOS) == (unit == "IOPS")
    at = f" ({plateau.amount} now)" if plateau is not None and is_same else ""
    counters = tuple(
        Fact(name, grown_us, f"{name} grew by {spelled(grown_us)} in the readings of {spelled(GROWN_US)}", "us")
        for name, grown_us in reported.items()
    )
    rates = () if plateau is None else tuple(_evidence(facts, plateau, was_faster=_times_faster(plateau) > 1))
    return Finding(
        ID,
        WARNING,
        device.name,
        f"{device.name}: {who} was at its limit of {unit}{at} for {spelled(us)} of {spelled(GROWN_US)}, which it "
        "reports itself",
        (*counters, *rates),
        Where("outstanding", device.name),
        tuple(_steps(device, plateau, is_known=True)),
        "the counters stop growing while the latency stays",
        min(1.0, us / GROWN_US),
        short=short_text(device.name, f"{spelled(us)} of {spelled(GROWN_US)} at the limit of {unit}", f" of {who}"),
    )


def _steps(device: Device, plateau: _Plateau | None, *, is_known: bool) -> Iterator[Step]:
    name = device.name if plain(device.name) else "DEVICE"
    amazon = ("nvme amzn stats /dev/" + name,) if "amazon" in device.model.lower() else ()
    if not is_known:
        yield Step(
            "see whether it is the device: a full one does more with sequential or larger I/Os, a limit does not",
            "a test of its own makes all others wait",
        )
    yield Step(
        "look at the metrics of this volume where it comes from (cloud, hypervisor, array): its limits of IOPS and "
        "bytes, its credit for bursts, and those of the host or instance",
        commands=amazon,
    )
    levels = None if plateau is None else plateau.levels
    if plateau is not None and levels is not None and _is_deeper(*levels):
        low, high = levels
        yield Step(
            f"let programs keep fewer in flight: {many(low.depth)} had the same rate as {many(high.depth)}, and an I/O "
            f"took {spelled(low.latency_us)} instead of {spelled(high.latency_us)}",
            "none for the throughput of all; a program with fewer in flight than another gets less of it",
        )
        if plateau.kind is RateKind.IOS:
            yield Step(
                "issue fewer and larger I/Os where the limit counts I/Os: larger blocks, read-ahead, merged writes",
                "they take more of a limit of bytes per second",
            )
        else:
            yield Step("issue fewer bytes where the limit counts bytes: compression, a cache, smaller blocks")
    yield Step(
        "raise the limit, or spread the load over several volumes",
        "it may cost money, and some providers allow a change only every few hours",
    )


def _level(frames: Sequence[FrameRate]) -> _Level | None:
    ios = sum(frame.ios for frame in frames)
    if not ios:
        return None
    latency_us = sum(frame.latency_us * frame.ios for frame in frames) / ios
    depth = sum(frame.depth for frame in frames) / len(frames)
    size = sum(frame.bytes for frame in frames) / ios
    return _Level(len(frames), depth, latency_us, ios / len(frames), size)


def _round(plateau: _Plateau) -> int | None:
    """Return the number that a limit may have been set to; None where none is near."""
    for unit in _UNITS[plateau.kind]:
        scale = 10.0
        while scale <= plateau.per_s:
            scale *= 10
        for mantissa in _MANTISSAS:
            number = mantissa * scale / 10 * unit
            if abs(plateau.per_s / number - 1) <= _ROUND:
                return round(number)
    return None


def _amount(per_s: float, kind: RateKind) -> str:
    """Return `3,000 IOPS` or `125 MB/s`."""
    if kind is RateKind.BYTES:
        return speed(per_s)
    return f"{per_s:,.0f} IOPS"


RULE = Rule(
    ID,
    "a limit outside of this host keeps a device at a rate, and more I/Os in flight only wait",
    evaluate,
    needs=DEPTHS,
    thresholds={
        "variation": Threshold(0.03, "share", "of the rate it differs by at most, in three of four intervals"),
        "busy": Threshold(0.85, "share", "of the time an I/O is in flight at least"),
        "depth": Threshold(2.0, "ios", "in flight on average in each block at least"),
        "deeper": Threshold(1.5, "times", "as many in flight in one block as in another, at the same rate"),
        "faster": Threshold(1.25, "times", "the rate it did before, in the last hour: a full device does not"),
        "slow_us": Threshold(1_000, "us", "an I/O takes on average in the deepest block at least"),
        "lasting_us": Threshold(9_000_000, "us", "of one rate at least; twice that where it may be the device"),
        "reported_us": Threshold(1_000_000, "us", "at its limit by the volume's own counters in ten minutes, at least"),
    },
    explained_by=(
        "command-timeouts",
        "io-throttled",
        "outstanding-ceiling",
        "queue-depth-misconfigured",
        "bottleneck-above-device",
        "requeue-storm",
        "completion-wakeup",
        "tick-quantum",
    ),
)
