"""peer-outlier: one of several like devices is persistently far slower than the others.

Like devices are those of one kind, driver and model that do the same op with I/Os about as large, compared at LEVELS.
Of few I/Os the third slowest is a larger share, which is named. A single bad moment, a slow moment of all, a mean that
is a little higher and a heavy tail that all have are no finding. Nor is a device with far more I/Os than its peers,
which has a reason to be slower, nor one with far fewer in flight, which has another load. A finding on a shared handler
doesn't hide this one: that gives the cause, this one the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from statistics import median
from typing import NamedTuple

from latmon.analysis.peers import (
    RANK,
    Beyond,
    Counts,
    Measure,
    above,
    above_in,
    beyond,
    chance,
    counts_of,
    like,
    median_without,
    octaves,
    slowest_of,
    tail_of,
    time_of,
)
from latmon.findings.evidence import hardware_steps, mean_bytes, where_it_is
from latmon.findings.facts import Facts
from latmon.findings.rule import (
    LATENCIES,
    WARNING,
    Fact,
    Finding,
    Rule,
    Step,
    Threshold,
    Thresholds,
    Where,
    duration_facts,
    short_text,
)
from latmon.model.histogram import Histogram, bucket_bounds, bucket_index
from latmon.support.units import part, spelled

ID = "peer-outlier"
TIMES = "times_peers"
"""Name of the fact with the ratio that its sentences have."""
OPS = ("read", "write")
"""Ops that are compared; the time of flushes and discards depends on the drive, and some devices get none."""
_DIGITS = 2
"""Significant digits of `one read in 120`."""
_LOOK = Step("see on the stages screen where its slow I/Os spend their time that its peers' don't")
_COMPARE = Step(
    "compare it with a peer: firmware, link speed and width, errors",
    commands=(
        "smartctl -x /dev/DEVICE",
        "nvme smart-log /dev/DEVICE",
        "lspci -vv",
    ),
)
_HANDLERS = Step(
    "see which other handlers share its interrupt vector, on the interrupts screen too",
    commands=("cat /proc/interrupts",),
)
_MOVE = Step(
    "move it to a peer's slot, if the cause is still unknown: the tail goes with the drive or stays with the slot",
    "the drive is away while it is moved; what is built on it runs without its redundancy",
)


class Level(NamedTuple):
    """A level of comparison: the slowest `share` of all I/Os; with `often` the frequency of such slow I/Os."""

    share: float
    often: bool = False


LEVELS = (
    *(Level(share) for share in (0.5, 0.1, 0.01, 0.001, 0.0)),
    *(Level(share, often=True) for share in (0.01, 0.005, 0.002, 0.001)),
)
"""Levels in the order of comparison. A finding names the first that differs. docs/FINDINGS.md names them too."""


@dataclass(frozen=True)
class Drive:
    """The latencies of one op of one device, by block and in total."""

    parts: Callable[[], Sequence[Histogram]]
    whole: Counts
    ios: int
    size: float
    """Mean bytes of an I/O; 0 where completions were not counted."""

    def tail(self, share: float) -> float | None:
        """Return log2 of the least time that its slowest `share` of I/Os take; None without I/Os."""
        rank = self.rank(share)
        return next((octaves(index) for index, n in self._slower if n >= rank), None)

    @cached_property
    def time_us(self) -> float:
        """Return the total time of its I/Os."""
        return time_of(self.whole)

    @cached_property
    def _slower(self) -> list[tuple[int, int]]:
        """Return (bucket, I/Os in it and in slower ones), the slowest first."""
        falling = sorted(self.whole, reverse=True)
        return list(zip(falling, accumulate(self.whole[index] for index in falling), strict=True))

    def rank(self, share: float) -> int:
        """Return the number of I/Os in the slowest `share`, at least RANK."""
        return max(RANK, math.ceil(share * self.ios))

    def often(self, bar: float) -> float | None:
        """Return log2 of the share of I/Os above the bar; None for fewer than RANK."""
        slow = above(self.whole, bar)
        return math.log2(slow / self.ios) if slow >= RANK else None

    def blocks_above(self, share: float, bar: float) -> int:
        """Return the number of blocks in which this share of the I/Os, and at least one, is above the bar."""
        parts = (part for part in self.parts() if part)
        return sum(above_in(part, bar) >= max(1.0, share * part.count) for part in parts)


@dataclass(frozen=True)
class DriveGroup:
    """Like devices with similar loads, and sums over them, so that an outlier needs no pass over thousands of peers."""

    drives: Mapping[str, Drive]

    @cached_property
    def ios(self) -> int:
        return sum(drive.ios for drive in self.drives.values())

    @cached_property
    def ordered_ios(self) -> Sequence[int]:
        return sorted(drive.ios for drive in self.drives.values())

    @cached_property
    def ordered_times_us(self) -> Sequence[float]:
        return sorted(drive.time_us for drive in self.drives.values())

    @cached_property
    def counts(self) -> Counts:
        """Return the I/Os of all drives by bucket."""
        total: Counts = {}
        for drive in self.drives.values():
            for index, ios in drive.whole.items():
                total[index] = total.get(index, 0) + ios
        return total

    def counts_without(self, name: str) -> Counts:
        """Return the I/Os of all drives but one by bucket."""
        own = self.drives[name].whole
        return {index: ios - own.get(index, 0) for index, ios in self.counts.items()}


@dataclass(frozen=True)
class OutlierDrive:
    """A device that differs from its peers, the other devices of its group."""

    name: str
    op: str
    level: Level
    far: Beyond
    """The distance from its peers in log2 of us, or of a share where frequencies are compared."""
    bar: float
    """log2 of us; I/Os that take longer are the slow ones."""
    group: DriveGroup
    blocks: int

    @property
    def times(self) -> int:
        """Return the ratio of its latency, or of the frequency of slow I/Os, to its peers'."""
        return round(2 ** (self.far.own - self.far.middle))

    @property
    def own(self) -> Drive:
        return self.group.drives[self.name]

    @property
    def peers(self) -> list[Drive]:
        return [drive for name, drive in self.group.drives.items() if name != self.name]

    @cached_property
    def peers_counts(self) -> Counts:
        return self.group.counts_without(self.name)

    @property
    def peers_ios(self) -> int:
        return self.group.ios - self.own.ios

    @property
    def share(self) -> float:
        """Return the share of its time that its slow I/Os take beyond the peers' slow I/Os in as many I/Os."""
        usual = time_of(self.peers_counts, self.bar) / self.peers_ios
        return max(0.0, time_of(self.own.whole, self.bar) - usual * self.own.ios) / self.own.time_us

    @property
    def times_busy(self) -> float:
        """Return the ratio of its I/Os to its peers' median."""
        return self.own.ios / median_without(self.group.ordered_ios, self.own.ios)

    @property
    def times_in_flight(self) -> float:
        """Return the ratio of its I/Os in flight to its peers' median, by Little's law that of the total times."""
        return self.own.time_us / median_without(self.group.ordered_times_us, self.own.time_us)


def drives_of(facts: Facts, names: list[str], op: str, limits: Thresholds) -> dict[str, Drive]:
    """Return the devices with enough I/Os of the op to be compared."""
    drives: dict[str, Drive] = {}
    every = len(facts.blocks) > len(facts.window)  # some may only have I/Os before the window
    for name in names if every else filter(facts.has_io, names):
        histogram = facts.whole(name, op)
        if histogram.count >= max(limits["ios"], RANK):
            parts = partial(facts.parts, name, op)
            drives[name] = Drive(parts, counts_of((histogram,)), histogram.count, mean_bytes(facts, name, op))
    return drives


def alike(drives: Mapping[str, Drive], most: float) -> Iterator[dict[str, Drive]]:
    """Yield groups of devices with similar loads: mean I/O sizes of up to `most` times the smallest one."""
    group: dict[str, Drive] = {}
    least = 0.0
    for name, drive in sorted(drives.items(), key=lambda pair: (pair[1].size, pair[0])):
        if group and drive.size > most * least:
            yield group
            group = {}
        least = least if group else drive.size
        group[name] = drive
    if group:
        yield group


def unlike(drives: Mapping[str, Drive], op: str, limits: Thresholds) -> Iterator[OutlierDrive]:
    """Yield each device that differs from the others, at the first level at which it does."""
    measure = Measure(limits["octaves"], limits["scatters"], int(limits["peers"]))
    reported: set[str] = set()
    group = DriveGroup(drives)
    kept: dict[tuple[float, float], dict[str, int]] = {}
    if len(drives) <= limits["peers"]:
        return
    for level in LEVELS:
        for name, far, bar in _often(drives, level, measure) if level.often else _slow(drives, level, measure):
            if name in reported:
                continue
            share = 2**far.bar if level.often else level.share
            if (share, bar) not in kept:
                kept[share, bar] = {other: drive.blocks_above(share, bar) for other, drive in drives.items()}
            blocks = _lasting(group, name, kept[share, bar], limits["chance"])
            if blocks >= max(limits["run"], 1):
                reported.add(name)
                yield OutlierDrive(name, op, level, far, bar, group, blocks)


def _slow(drives: Mapping[str, Drive], level: Level, measure: Measure) -> Iterator[tuple[str, Beyond, float]]:
    """Yield devices whose slowest I/Os take far longer, each with its distance and the bar."""
    tails = {name: drive.tail(level.share) for name, drive in drives.items()}
    for name, far in beyond(tails, measure).items():
        yield name, far, far.bar


def _often(drives: Mapping[str, Drive], level: Level, measure: Measure) -> Iterator[tuple[str, Beyond, float]]:
    """Yield devices with far more of the I/Os that are slow for all: a tail below the one that all have."""
    bar = median(tail for drive in drives.values() if (tail := drive.tail(level.share)) is not None)
    for name, far in beyond({name: drive.often(bar) for name, drive in drives.items()}, measure).items():
        usual = drives[name].tail(0.5)
        # a device that is a little slower overall has many I/Os above a bar close to its median
        if usual is not None and bar >= usual + measure.octaves:
            yield name, far, bar


def _lasting(group: DriveGroup, name: str, blocks: Mapping[str, int], least: float) -> int:
    """Return the blocks in which it was above the bar; 0 if chance gives one of equal devices as many.

    Blocks are counted instead of I/Os, because slow I/Os come in clusters. More I/Os raise the chance of such a block.
    """
    drives = group.drives
    part = max(1 / len(drives), drives[name].ios / group.ios)
    return blocks[name] if chance(blocks[name], sum(blocks.values()), part) * len(drives) < least else 0


_NUMBERS = {2: "half of its {op}s take", 10: "one {op} in ten takes"}
_NUMBERS |= {100: "one {op} in a hundred takes", 1000: "one {op} in a thousand takes"}


def evaluate(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Yield one finding per device that differs from its peers: on its worse op."""
    for names in like(device for device in facts.devices.values() if device.timed):
        worst: dict[str, OutlierDrive] = {}
        for op in OPS if len(names) > limits["peers"] else ():
            for drive in _unlike(facts, names, op, limits):
                if drive.name not in worst or drive.share > worst[drive.name].share:
                    worst[drive.name] = drive
        for drive in worst.values():
            yield _finding(facts, drive)


def _unlike(facts: Facts, names: list[str], op: str, limits: Thresholds) -> Iterator[OutlierDrive]:
    """Yield outliers of a group, without devices with far more I/Os or far fewer in flight than their peers."""
    for group in alike(drives_of(facts, names, op, limits), limits["size"]):
        for drive in unlike(group, op, limits):
            if drive.times_busy <= limits["hot"] and drive.times_in_flight >= limits["in_flight"]:
                yield drive


def _sentence(drive: OutlierDrive) -> str:
    own, usual = 2**drive.far.own, 2**drive.far.middle
    if drive.level.often:
        reported = f"{part(own)} of its {drive.op}s take {spelled(round(2**drive.bar))} or longer"
        return f"{reported}, {drive.times:,} times as many as of its {drive.far.peers} peers'"
    least = bucket_bounds(bucket_index(max(round(own) - 1, 0)))[0]  # a tail is the end of its bucket
    return (
        f"{_slowest(drive)} {spelled(least)} or longer, {drive.times:,} times what its {drive.far.peers} peers' take "
        f"({spelled(round(usual))})"
    )


def _short(drive: OutlierDrive) -> str:
    own = 2**drive.far.own
    if drive.level.often:
        slow = f"{part(own)} of its {drive.op}s take {spelled(round(2**drive.bar))} or longer"
        return short_text(drive.name, slow, f", {drive.times:,} times its peers'")
    least = bucket_bounds(bucket_index(max(round(own) - 1, 0)))[0]
    slow = f"its slowest {drive.op}s take {spelled(least)} or longer"
    return short_text(drive.name, slow, f", {drive.times:,} times its peers'")


def _slowest(drive: OutlierDrive) -> str:
    """Return the share of its I/Os that was compared in words: their actual rank, not the level's share."""
    if not drive.level.share:
        return f"its slowest {drive.op}s take"
    one_in = drive.own.ios / drive.own.rank(drive.level.share)
    step = 10 ** max(0, len(str(int(one_in))) - _DIGITS)
    rounded = round(one_in / step) * step
    return _NUMBERS.get(rounded, f"one {{op}} in {rounded:,} takes").format(op=drive.op)


def _finding(facts: Facts, drive: OutlierDrive) -> Finding:
    return Finding(
        id=ID,
        severity=WARNING,
        device=drive.name,
        summary=f"{drive.name}: {_sentence(drive)}",
        facts=tuple(_evidence(facts, drive)),
        where=Where("overview", drive.name, drive.op, round(2**drive.bar)),
        steps=(
            _LOOK,
            *hardware_steps(facts, drive.name, (_COMPARE,)),
            _HANDLERS,
            *hardware_steps(facts, drive.name, (*where_it_is(facts.device(drive.name)), _MOVE)),
        ),
        refuted_by=(
            "its peers show the same tail under the same load, or its slow I/Os are of a load that they don't have"
        ),
        share=drive.share,
        short=_short(drive),
    )


def _evidence(facts: Facts, drive: OutlierDrive) -> Iterator[Fact]:
    own, peers = drive.own, drive.peers
    n, bar = drive.peers_ios, spelled(round(2**drive.bar))
    if not drive.level.often:
        yield from duration_facts(
            ("tail_us", round(2**drive.far.own), f"the slowest {drive.op}s at that rank take {{}}", own.ios),
            ("peers_tail_us", round(2**drive.far.middle), "in the median its peers' take {}", n),
        )
    slow, others = above(own.whole, drive.bar), above(drive.peers_counts, drive.bar)
    text = f"{slow:,} of its {own.ios:,} {drive.op}s took longer than {bar}, {others:,} of its peers' {n:,}"
    yield Fact("slow_ios", slow, text, "ios", own.ios)
    what = "share of such I/Os" if drive.level.often else "tail"
    yield Fact(TIMES, drive.times, f"its {what} is {drive.times:,} times that of its peers")
    text = f"it differed from its peers in {drive.blocks:,} of {len(facts.blocks):,} blocks"
    yield Fact("blocks", drive.blocks, text, "", len(facts.blocks))
    mean, means = own.time_us / own.ios, median(peer.time_us / peer.ios for peer in peers)
    differ = " differ less" if abs(math.log2(mean / means)) < drive.far.own - drive.far.middle else ""
    text = f"the means{differ}: {spelled(round(mean))} against {spelled(round(means))}"
    yield Fact("mean_us", round(mean), text, "us", own.ios)
    yield from _fan_out(drive)
    yield from _stripe(facts, drive)


def _fan_out(drive: OutlierDrive) -> Iterator[Fact]:
    """Yield the times of an I/O that waits for all devices of the group, with this one and without it."""
    slowest_counts = slowest_of([member.whole for member in drive.group.drives.values()])
    others = slowest_of([peer.whole for peer in drive.peers])
    for name, share in (("median", 0.5), ("p99", 0.01)):
        pair = [tail_of(counts, max(1, round(share * sum(counts.values())))) for counts in (slowest_counts, others)]
        if None in pair:
            continue
        slow, quick = (round(2**level) for level in pair if level is not None)
        if slow == quick:
            continue
        text = f"a stripe over all {len(drive.group.drives):,} waits for the slowest: its {name} is {{}}"
        yield from duration_facts(
            (f"stripe_{name}_us", slow, text, drive.own.ios),
            (f"stripe_{name}_without_us", quick, f"a stripe without this one: its {name} is {{}}", drive.own.ios),
        )


def _stripe(facts: Facts, drive: OutlierDrive) -> Iterator[Fact]:
    """Yield the devices that are built on it and on its peers."""
    for volume in facts.devices.values():
        members = [name for name in drive.group.drives if name in volume.members]
        if drive.name in members and len(members) > 1:
            text = f"{volume.name} is built on it and on {len(members) - 1:,} of its peers: it waits for the slowest"
            yield Fact("built_on_it", volume.name, text)


RULE = Rule(
    ID,
    "one of several like devices has a far slower tail, and keeps it",
    evaluate,
    needs=LATENCIES,
    thresholds={
        "octaves": Threshold(2.0, "octaves", "its tail is above its peers' by so many doublings"),
        "scatters": Threshold(5.0, "times", "or by so many times their tails' scatter, if that is more"),
        "peers": Threshold(3, "devices", "like it at least, whose median is compared"),
        "run": Threshold(3, "blocks", "in which it must have been so: one bad moment is no sick device"),
        "ios": Threshold(100, "ios", "of the op at least, of it and of each peer"),
        "hot": Threshold(
            1.5, "times", "as many I/Os as its peers' median: with more it has more to do, and is no finding"
        ),
        "in_flight": Threshold(
            0.5, "times", "what its peers' median has in flight at least: with less it has another load"
        ),
        "chance": Threshold(0.002, "share", "of findings among equal devices, per group and op, that chance gives"),
        "size": Threshold(
            1.15, "times", "as large as the smallest I/Os of its group: else it is a load of another kind"
        ),
    },
    explained_by=(
        "maintenance",
        "swap-thrash",
        "command-timeouts",
        "starved-io",
        "device-pauses",
        "completion-wakeup",
        "tick-quantum",
        "softirq-delay",
        "outstanding-ceiling",
        "bottleneck-above-device",
        "low-io-priority",
        "requeue-storm",
    ),
)
