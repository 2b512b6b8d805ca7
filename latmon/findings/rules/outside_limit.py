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

Some limits are of an op: of a volume's writes, not of its reads. Writes that are held while reads pass, each in a third
of the time or less, are a fourth kind of evidence: the device is not full. Writes that pass while reads are held are
none: they end in a cache, and the reads may be of data that no cache has any more.
No finding: a rate that varies as that of a disk does, a device with nothing in flight for a part of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from latmon.aggregate.rates import FrameRate, RateKind, variation
from latmon.analysis.hardware_place import Place, place_of
from latmon.analysis.limits import ceiling
from latmon.findings.evidence import many
from latmon.findings.facts import GROWN_US, Facts
from latmon.findings.plateau import (
    SAME_LOAD,
    SIZES,
    Level,
    PassingOp,
    Plateau,
    Stream,
    full_frames,
    passing_ops,
    plateau_of,
    streams_of,
)
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
from latmon.findings.usual_limits import BY_CHANCE, NEAR, usual_limit
from latmon.model import measurements
from latmon.model.devices import thread_of
from latmon.model.frame import Device
from latmon.model.stages import plural_of_op
from latmon.support.units import part, rate, show_size, spelled

ID = "outside-limit"
_COUNTED = (measurements.KERNEL, measurements.SEEN)
_TIMES_FASTER, _TIMES_SLOWER = 2.0, 3.0
"""Least rate before, and latency now, in multiples, where the depth never changes."""
_DEEPER = 1.25
_CHANGES = 2
"""Changes of the depth at least where no faster time is known: a paced load has one when its device becomes slow."""
_SAME = 0.02
"""Greatest difference from the median at which the evidence calls a rate the same."""
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
_REFUTED = (
    "a rate that changes with the size, the order or the op of the I/Os: then the device is full; or a program that "
    "issues as many I/Os per second by itself: then they take as long with fewer in flight"
)


class _Held(NamedTuple):
    """A plateau that is a finding, with what is known of its cause."""

    plateau: Plateau
    passing: Sequence[PassingOp]
    """Other ops, which are not held; empty where all I/Os are."""
    is_known: bool
    """Whether the limit is outside of this host for certain."""
    shows: str
    clause: str
    """Clause of the short text."""

    @property
    def was_faster(self) -> bool:
        return self.plateau.times_faster >= 1 + SAME_LOAD

    @property
    def who(self) -> str:
        if self.passing:
            limit = f"a limit on {plural_of_op(self.plateau.stream.op)}"
            return (
                f"{limit} outside of this host"
                if self.is_known
                else f"{limit}, outside of this host or the device's own,"
            )
        if self.is_known:
            return "a limit outside of this host"
        if self.plateau.mixes_sizes:
            return "the device, a limit outside of this host, or a program's own pace"
        return "the device, or a limit outside of this host,"

    @property
    def by(self) -> str:
        """Return what holds it in the short text."""
        if self.is_known:
            return "a limit outside of here"
        return "a limit, outside or its own" if self.passing else "it, or a limit outside"

    @property
    def lost_share(self) -> float:
        """Return the part of the time of the device's I/Os that they would not take with the least depth seen."""
        plateau = self.plateau
        known = [plateau.levels[0].latency_us] if plateau.levels else []
        known += [plateau.before.latency_us] if plateau.before else []
        least_us = min(known, default=plateau.mean_us)
        depth = sum(frame.depth for frame in plateau.frames) / len(plateau.frames)
        passing = sum(op.load.in_flight for op in self.passing)
        return max(0.0, 1 - least_us / plateau.mean_us) * depth / (depth + passing)


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield a finding per device that is at such a limit. A volume is left to the devices below it."""
    counted = dict.fromkeys(flow.device for table in _COUNTED for flow in facts.window[-1][table])
    for name in sorted(counted):
        device = facts.device(name)
        if any(member in facts.devices for member in device.members):
            continue
        if reported := _reported(facts, name, limits):
            frames = full_frames(facts, Stream(device), limits)
            yield _by_counters(facts, device, reported, plateau_of(facts, Stream(device), frames, limits))
            continue
        for stream in streams_of(facts, device):
            held = _held(facts, stream, limits)
            if held is not None:
                yield _finding(facts, held)
                break


def _held(facts: Facts, stream: Stream, limits: Thresholds) -> _Held | None:
    """Return the I/Os of a stream as held by a limit; None where nothing shows that."""
    frames = full_frames(facts, stream, limits)
    if not _may_be_held(frames, limits) or _is_limited_below(facts, stream.device):
        return None
    plateau = plateau_of(facts, stream, frames, limits)
    passing = passing_ops(facts, plateau) if plateau is not None and stream.op else []
    if plateau is None or bool(stream.op) != bool(passing):
        return None
    held = _by_rates(plateau, passing, limits) if _is_varied(frames, limits["deeper"]) else None
    if held is None and (stream.op or not _is_varied(frames, limits["deeper"])):
        # writes end in a cache: that they are quick says nothing about reads that no cache has any more
        held = _by_past(plateau, [] if stream.op == "read" else passing, limits)
    return held


def _may_be_held(frames: Sequence[FrameRate], limits: Thresholds) -> bool:
    """Return whether these intervals last long enough with I/Os that are slow enough: most need no further look."""
    lasted_us = sum(frame.span_us for frame in frames)
    return lasted_us >= limits["lasting_us"] and any(frame.latency_us >= limits["slow_us"] for frame in frames)


def _is_varied(frames: Sequence[FrameRate], times: float) -> bool:
    """Return whether the depth ever changed by `times`: of most devices it does not, and no more is looked at."""
    depths = [frame.depth for frame in frames]
    return len(depths) > 1 and max(depths) >= times * min(depths)


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


def _by_rates(plateau: Plateau, passing: Sequence[PassingOp], limits: Thresholds) -> _Held | None:
    """Return what a latency shows that follows the depth; None where it does not."""
    levels = plateau.levels
    if levels is None or not plateau.follows(limits["deeper"]) or levels[1].latency_us < limits["slow_us"]:
        return None
    was_faster = plateau.times_faster >= limits["faster"]
    place = place_of(plateau.device)
    is_known = not plateau.mixes_sizes and (place is Place.OUTSIDE or (was_faster and place is not Place.LOCAL))
    lasting_us = limits["lasting_us"] if is_known else 2 * limits["lasting_us"]
    if plateau.lasted_us < lasting_us or not (is_known or plateau.changes >= _CHANGES) or (passing and not was_faster):
        return None
    return _Held(plateau, passing, is_known, _followed(plateau, *levels), "; more only wait")


def _by_past(plateau: Plateau, passing: Sequence[PassingOp], limits: Thresholds) -> _Held | None:
    """Return what a load whose depth never changes shows by what was done before; None: nothing."""
    before = plateau.before
    if before is None or plateau.lasted_us < 2 * limits["lasting_us"] or place_of(plateau.device) is Place.LOCAL:
        return None
    is_slow = plateau.mean_us >= max(limits["slow_us"], _TIMES_SLOWER * before.latency_us)
    if not is_slow or plateau.times_faster < _TIMES_FASTER:
        return None
    shows = f"{_a(plateau)} takes {spelled(plateau.mean_us)}, and it did {_before_text(plateau)} before"
    clause = f"; {rate(plateau.before_per_s)}/s before" if _counts_op(plateau) else f"; before {plateau.amount_before}"
    return _Held(plateau, passing, is_known=False, shows=shows, clause=clause)


def _counts_op(plateau: Plateau) -> bool:
    return bool(plateau.stream.op) and plateau.kind is RateKind.IOS


def _a(plateau: Plateau) -> str:
    """Return what one of its I/Os is called: `an I/O`, `a write`."""
    return f"a {plateau.stream.op}" if plateau.stream.op else "an I/O"


def _before_text(plateau: Plateau) -> str:
    latency_us = 0.0 if plateau.before is None else plateau.before.latency_us
    return f"{plateau.amount_before} at {spelled(latency_us)}"


def _finding(facts: Facts, held: _Held) -> Finding:
    """Return the finding: a warning where two kinds of evidence agree."""
    plateau = held.plateau
    name = plateau.device.name
    passing = "".join(f"; {plural_of_op(op.op)} take {spelled(op.load.mean_us)} meanwhile" for op in held.passing)
    return Finding(
        id=ID,
        severity=WARNING if held.is_known or held.passing else NOTICE,
        device=name,
        summary=(
            f"{name}: {held.who} holds it at {plateau.amount} for {spelled(plateau.lasted_us)}: {held.shows}{passing}"
        ),
        facts=tuple(_evidence(facts, held)),
        where=Where("outstanding", name),
        steps=tuple(_steps(plateau.device, plateau, is_known=held.is_known)),
        refuted_by=_REFUTED,
        share=held.lost_share,
        short=short_text(name, f"held at {plateau.amount} by {held.by}", held.clause),
    )


def _is_deeper(low: Level, high: Level) -> bool:
    """Return whether so many more are in flight at times that a comparison of both says something."""
    return high.depth >= _DEEPER * low.depth


def _followed(plateau: Plateau, low: Level, high: Level) -> str:
    """Return the latencies with few and with many in flight, and the sizes of the I/Os where they differ."""
    few = f"{spelled(low.latency_us)} with {many(low.depth)} in flight"
    more = f"{spelled(high.latency_us)} with {many(high.depth)}"
    if not plateau.mixes_sizes:
        return f"{_a(plateau)} takes {few} and {more}"
    return f"an I/O of {show_size(low.size)} takes {few}, one of {show_size(high.size)} {more}"


def _evidence(facts: Facts, held: _Held) -> Iterator[Fact]:
    plateau = held.plateau
    yield from _rate_facts(plateau)
    levels = plateau.levels
    if levels is not None and _is_deeper(*levels):
        yield from _depth_facts(plateau, *levels)
    yield from _passing_facts(facts, held)
    yield from _before_facts(facts, plateau, was_faster=held.was_faster)
    yield from _exempt_facts(facts, plateau.device)
    if place_of(plateau.device) is Place.OUTSIDE:
        hardware = plateau.device.model or plateau.device.driver
        yield Fact("place", hardware, f"its hardware is not this host's: {hardware}")
    elif thread := thread_of(plateau.device.name, plateau.device.driver):
        yield Fact("place", thread, f"its I/Os are done by {thread} of this host, for what lies below it")


def _passing_facts(facts: Facts, held: _Held) -> Iterator[Fact]:
    """Yield the ops that are not held, and how many of the device's I/Os in flight are of the one that is."""
    for op in held.passing:
        before = "" if op.before is None else f", {spelled(op.before.mean_us)} before"
        text = f"{rate(op.load.iops)} a second take {spelled(op.load.mean_us)}{before}"
        yield Fact(f"{op.op}_us", round(op.load.mean_us), f"{plural_of_op(op.op)} are not held: {text}", "us")
    plateau, name = held.plateau, held.plateau.device.name
    frame_rates = [frame for block in facts.window for frame in block.rates.get(name, ())][-len(plateau.frames) :]
    if held.passing:
        by_law, counted = (
            sum(frame.depth for frame in frames) / len(frames) for frames in (plateau.frames, frame_rates)
        )
        ops = f"{many(by_law)} {plural_of_op(plateau.stream.op)}"
        text = f"Little's law: rate x latency = {ops} in flight, of {many(counted)} I/Os that were counted"
        yield Fact("by_law", round(by_law, 1), text, "ios", len(frame_rates))


def _before_facts(facts: Facts, plateau: Plateau, *, was_faster: bool) -> Iterator[Fact]:
    """Yield what is known of higher rates in the last hour."""
    before, highest, such = plateau.before, plateau.highest, f"such {plateau.stream.noun}s"
    if was_faster and before is not None:
        text = f"{spelled(facts.end_us - before.end_us)} ago it did {plateau.amount_before} of such I/Os"
        yield Fact("before", round(plateau.before_per_s), f"{text}, at {spelled(before.latency_us)}", "per_s")
        return
    if highest is None:
        yield Fact("before", 0, "whether it did more before is not known: there are too many devices", "per_s")
        return
    text = f"it did not do more of {such} in the last hour, as far as that was measured"
    if highest.per_s(plateau.kind) >= plateau.per_s * (1 + SAME_LOAD):
        done = plateau.stream.amount(highest.per_s(plateau.kind), plateau.kind)
        ago = spelled(facts.end_us - highest.end_us)
        text += f"; {ago} ago it did {done} of {show_size(highest.size)}, {part(highest.reads)} of them reads: "
        text += "another load"
    yield Fact("before", 0, text, "per_s")


def _rate_facts(plateau: Plateau) -> Iterator[Fact]:
    intervals, kind = len(plateau.deep), plateau.kind
    within = plateau.tolerance(_SAME)
    same = plateau.near(within)
    how = f"in {same:,} of {intervals:,} intervals with many in flight the rate was the same within {within:.0%}"
    yield Fact("rate", round(plateau.per_s, 1), f"{plateau.amount}; {how}", "per_s", intervals)
    number = usual_limit(plateau.per_s, kind)
    if number is not None:
        text = f"{plateau.stream.amount(number, kind)}, a usual limit, is within {NEAR:.0%} of it: a hint, since "
        text += f"{BY_CHANCE[kind]:.0%} of all rates are as near to such a number"
        yield Fact("round", number, text)
    if plateau.other_per_s is not None:
        other_kind = RateKind.BYTES if kind is RateKind.IOS else RateKind.IOS
        other = plateau.stream.amount(plateau.other_per_s, other_kind)
        yield Fact(
            "other", round(plateau.other_per_s, 1), f"{other} were constant, too: either may be limited", "per_s"
        )
    sizes = [frame.bytes / frame.ios for frame in plateau.frames]
    if kind is RateKind.IOS and min(sizes) and max(sizes) / min(sizes) >= 1 + SIZES:
        least, size = show_size(min(sizes)), show_size(max(sizes))
        text = f"the size of an I/O changed from {least} to {size}, and the IOPS did not"
        yield Fact("size", round(max(sizes)), text, "bytes")
    elif kind is RateKind.BYTES and (varied := variation(plateau.rates(RateKind.IOS))) >= 2 * plateau.variation:
        text = f"the IOPS varied by {varied:.1%}, and the bytes per second did not"
        yield Fact("ios_variation", round(varied, 3), text, "share")


def _depth_facts(plateau: Plateau, low: Level, high: Level) -> Iterator[Fact]:
    for which, level in (("low", low), ("high", high)):
        text = f"with {many(level.depth)} in flight {_a(plateau)} takes {spelled(level.latency_us)} on average"
        yield Fact(f"{which}_depth_us", round(level.latency_us), text, "us", level.intervals)
    if plateau.stream.op:
        return
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


def _by_counters(facts: Facts, device: Device, reported: dict[str, int], plateau: Plateau | None) -> Finding:
    """Return the finding that the counters of a volume decide."""
    worst, us = next(iter(reported.items()))
    who, unit = COUNTERS[worst]
    is_same = plateau is not None and (plateau.kind is RateKind.IOS) == (unit == "IOPS")
    at = f" ({plateau.amount} now)" if plateau is not None and is_same else ""
    counters = tuple(
        Fact(name, grown_us, f"{name} grew by {spelled(grown_us)} in the readings of {spelled(GROWN_US)}", "us")
        for name, grown_us in reported.items()
    )
    rates = () if plateau is None else tuple(_evidence(facts, _Held(plateau, (), is_known=True, shows="", clause="")))
    return Finding(
        id=ID,
        severity=WARNING,
        device=device.name,
        summary=f"{device.name}: {who} was at its limit of {unit}{at} for {spelled(us)} of {spelled(GROWN_US)}, "
        "which it "
        "reports itself",
        facts=(*counters, *rates),
        where=Where("outstanding", device.name),
        steps=tuple(_steps(device, plateau, is_known=True)),
        refuted_by="the counters stop growing while the latency stays",
        share=min(1.0, us / GROWN_US),
        short=short_text(device.name, f"{spelled(us)} of {spelled(GROWN_US)} at the limit of {unit}", f" of {who}"),
    )


def _steps(device: Device, plateau: Plateau | None, *, is_known: bool) -> Iterator[Step]:
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
