"""peer-outlier: one of several like devices is persistently far slower than the others.

Like devices are those of one kind, driver and model that do the same op with I/Os about as large (`size`), at least
`peers` beside this one. They are compared at the median, the slowest 10%, 1%, 0.1% and the third slowest. Three I/Os
are the fewest: of few I/Os they are a larger share, which is the one that is named. Fires when a device's is at least
`octaves` doublings beyond the median of its peers', and `scatters` times as far as theirs scatter; or when what is
slow for all (of theirs the slowest 1%, 0.5%, 0.2%, 0.1%) is as much more frequent with it. And that in `run` blocks
or more, so many that chance (`chance`) doesn't give one of equal devices as many.
A single bad moment, a slow moment of all, a mean that is a little higher and a heavy tail that all have are no
finding. Nor is a device that gets far more I/Os than its peers (`hot`): more work is a reason to be slower. Nor one
that has less than `in_flight` of theirs in flight: that has another load. Who is slow for a load like theirs has as
many in flight or more, and completes fewer. A shared handler doesn't explain it away: that says why, this says who.

Owns the levels at which they are compared and what chance gives. What is made of it is peer_outlier.py's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from latmon.analysis.peers import (
    RANK,
    Beyond,
    Counts,
    Measure,
    above,
    beyond,
    chance,
    counts_of,
    like,
    slowest_of,
    tail_of,
    time_of,
)
from latmon.findings.facts import Facts
from latmon.findings.finding import WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.support.units import part, spelled


class Level(NamedTuple):
    """The slowest I/Os, this share of all. `often`: compared by how many take as long as the peers' take there."""

    share: float
    often: bool = False


LEVELS = (
    *(Level(share) for share in (0.5, 0.1, 0.01, 0.001, 0.0)),
    *(Level(share, often=True) for share in (0.01, 0.005, 0.002, 0.001)),
)
"""The first that is unlike is told: who is slower altogether is so at all of them. docs/FINDINGS.md names them."""


@dataclass(frozen=True)
class Drive:
    """One op of one device, in blocks and altogether."""

    parts: tuple[Counts, ...]
    whole: Counts
    ios: int
    size: float | None
    """Bytes of an I/O in the mean; None where nobody counted."""

    def tail(self, share: float) -> float | None:
        """log2 of what its slowest I/Os take at least."""
        return tail_of(self.whole, self.rank(share))

    def rank(self, share: float) -> int:
        """How many I/Os the slowest `share` are; never fewer than RANK, so of few I/Os they are a larger share."""
        return max(RANK, math.ceil(share * self.ios))

    def often(self, bar: float) -> float | None:
        """log2 of the share beyond the bar."""
        slow = above(self.whole, bar)
        return math.log2(slow / self.ios) if slow >= RANK else None

    def blocks_above(self, share: float, bar: float) -> int:
        """Blocks of whose I/Os so many are beyond the bar, and one at least."""
        return sum(above(one, bar) >= max(1.0, share * sum(one.values())) for one in self.parts if one)


@dataclass(frozen=True)
class Odd:
    """A device that is unlike the others of its group."""

    name: str
    op: str
    level: Level
    far: Beyond
    """In log2 of us, or of a share where that is what is compared."""
    bar: float
    """log2 of us: what takes longer is what it is about."""
    drives: Mapping[str, Drive]
    blocks: int

    @property
    def own(self) -> Drive:
        return self.drives[self.name]

    @property
    def peers(self) -> list[Drive]:
        return [one for name, one in self.drives.items() if name != self.name]

    @property
    def share(self) -> float:
        """Of its time, what its I/Os beyond the bar take more than the peers' would in as many I/Os."""
        usual = sum(time_of(one.whole, self.bar) for one in self.peers) / sum(one.ios for one in self.peers)
        return max(0.0, time_of(self.own.whole, self.bar) - usual * self.own.ios) / time_of(self.own.whole)

    @property
    def times_busy(self) -> float:
        """How many times the I/Os that its peers' median has."""
        return self.own.ios / median(one.ios for one in self.peers)

    @property
    def times_in_flight(self) -> float:
        """How many times what its peers' median has in flight: by Little's law that is as the time of all I/Os is."""
        return time_of(self.own.whole) / median(time_of(one.whole) for one in self.peers)


def drives_of(facts: Facts, names: list[str], op: str, limits: Thresholds) -> dict[str, Drive]:
    """Those that did enough of the op to be compared."""
    found: dict[str, Drive] = {}
    for name in names:
        parts = facts.parts(name, op)
        ios = sum(one.count for one in parts)
        if ios >= max(limits["ios"], RANK):
            done = facts.completed(name, op)
            size = done.bytes / done.count if done and done.count else None
            found[name] = Drive(tuple(counts_of((one,)) for one in parts), counts_of(parts), ios, size)
    return found


def alike(drives: Mapping[str, Drive], most: float) -> Iterator[dict[str, Drive]]:
    """Groups of those whose I/Os are about as large, up to `most` times the smallest: the others do other work."""
    group: dict[str, Drive] = {}
    least: float | None = None
    for name, one in sorted(drives.items(), key=lambda pair: (pair[1].size or 0, pair[0])):
        size = one.size or 0
        if group and size > most * (least or 0):
            yield group
            group = {}
        least = least if group else size
        group[name] = one
    if group:
        yield group


def unlike(drives: Mapping[str, Drive], op: str, limits: Thresholds) -> Iterator[Odd]:
    """Each device at most once, at the first level at which it is unlike the others."""
    measure = Measure(limits["octaves"], limits["scatters"], int(limits["peers"]))
    told: set[str] = set()
    kept: dict[tuple[float, float], dict[str, int]] = {}
    if len(drives) <= limits["peers"]:
        return
    for level in LEVELS:
        for name, far, bar in _often(drives, level, measure) if level.often else _slow(drives, level, measure):
            if name in told:
                continue
            share = 2**far.bar if level.often else level.share
            if (share, bar) not in kept:
                kept[share, bar] = {other: one.blocks_above(share, bar) for other, one in drives.items()}
            blocks = _lasting(drives, name, kept[share, bar], limits["chance"])
            if blocks >= max(limits["run"], 1):
                told.add(name)
                yield Odd(name, op, level, far, bar, drives, blocks)


def _slow(drives: Mapping[str, Drive], level: Level, measure: Measure) -> Iterator[tuple[str, Beyond, float]]:
    """Their slowest I/Os take far longer."""
    tails = {name: one.tail(level.share) for name, one in drives.items()}
    for name, far in beyond(tails, measure).items():
        yield name, far, far.bar


def _often(drives: Mapping[str, Drive], level: Level, measure: Measure) -> Iterator[tuple[str, Beyond, float]]:
    """What is slow for all is far more frequent: how a tail is found under one that all have."""
    bar = median(tail for one in drives.values() if (tail := one.tail(level.share)) is not None)
    for name, far in beyond({name: one.often(bar) for name, one in drives.items()}, measure).items():
        usual = drives[name].tail(0.5)
        # else it is a little slower altogether, and beyond a bar that lies close
        if usual is not None and bar >= usual + measure.octaves:
            yield name, far, bar


def _lasting(drives: Mapping[str, Drive], name: str, blocks: Mapping[str, int], least: float) -> int:
    """Blocks in which it was beyond the bar; 0 if one of equal devices may well have as many.

    Blocks are counted and not I/Os: slow ones come together. Who does more I/Os has the chance of more such blocks.
    """
    part = max(1 / len(drives), drives[name].ios / sum(one.ios for one in drives.values()))
    return blocks[name] if chance(blocks[name], sum(blocks.values()), part) * len(drives) < least else 0


OPS = ("read", "write")
"""Flushes and discards take what they take; a device that gets none of them isn't the faster one."""
_NUMBERS = {2: "half of its {op}s take", 10: "one {op} in ten takes"}
_NUMBERS |= {100: "one {op} in a hundred takes", 1000: "one {op} in a thousand takes"}
_DIGITS = 2
"""Of `one read in 120`."""


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """Group by group, a device's worse op."""
    for names in like(one for one in facts.devices.values() if one.timed):
        worst: dict[str, Odd] = {}
        for op in OPS if len(names) > limits["peers"] else ():
            for odd in _unlike(facts, names, op, limits):
                if odd.name not in worst or odd.share > worst[odd.name].share:
                    worst[odd.name] = odd
        for odd in worst.values():
            yield _finding(facts, odd)


def _unlike(facts: Facts, names: list[str], op: str, limits: Thresholds) -> Iterator[Odd]:
    """Without those that have more to do, which is a reason to be slower, or hardly anything."""
    for group in alike(drives_of(facts, names, op, limits), limits["size"]):
        for odd in unlike(group, op, limits):
            if odd.times_busy <= limits["hot"] and odd.times_in_flight >= limits["in_flight"]:
                yield odd


def _sentence(odd: Odd) -> str:
    own, usual = 2**odd.far.own, 2**odd.far.middle
    times = own / usual
    if odd.level.often:
        told = f"{part(own)} of its {odd.op}s take {spelled(round(2**odd.bar))} or longer"
        return f"{told}, {times:.0f} times as many as of its {odd.far.peers} peers'"
    return (
        f"{_slowest(odd)} {spelled(round(own))} or longer, {times:.0f} times what its {odd.far.peers} peers' take "
        f"({spelled(round(usual))})"
    )


def _slowest(odd: Odd) -> str:
    """Name the share of its I/Os that was compared: their rank over all, not the level that was asked for."""
    if not odd.level.share:
        return f"its slowest {odd.op}s take"
    one_in = odd.own.ios / odd.own.rank(odd.level.share)
    step = 10 ** max(0, len(str(int(one_in))) - _DIGITS)
    rounded = round(one_in / step) * step
    return _NUMBERS.get(rounded, f"one {{op}} in {rounded:,} takes").format(op=odd.op)


def _finding(facts: Facts, odd: Odd) -> Finding:
    return Finding(
        "peer-outlier",
        WARNING,
        odd.name,
        f"{odd.name}: {_sentence(odd)}",
        tuple(_evidence(facts, odd)),
        Where("overview", odd.name, odd.op, round(2**odd.bar)),
        _STEPS,
        "its peers show the same tail under the same load, or its slow I/Os are of a load that they don't have",
        odd.share,
    )


def _evidence(facts: Facts, odd: Odd) -> Iterator[Fact]:
    own, peers = odd.own, odd.peers
    n, bar = sum(one.ios for one in peers), spelled(round(2**odd.bar))
    for name, said, value, of in (
        ("tail_us", f"the slowest {odd.op}s at that rank take", odd.far.own, own.ios),
        ("peers_tail_us", "in the median its peers' take", odd.far.middle, n),
    ):
        if not odd.level.often:
            yield Fact(name, round(2**value), f"{said} {spelled(round(2**value))}", "us", of)
    slow, others = above(own.whole, odd.bar), sum(above(one.whole, odd.bar) for one in peers)
    text = f"{slow:,} of its {own.ios:,} {odd.op}s took longer than {bar}, {others:,} of its peers' {n:,}"
    yield Fact("slow_ios", slow, text, "ios", own.ios)
    blocks = f"it was unlike its peers in {odd.blocks:,} of {len(own.parts):,} blocks"
    yield Fact("blocks", odd.blocks, blocks, "", len(own.parts))
    mean, means = time_of(own.whole) / own.ios, median(time_of(one.whole) / one.ios for one in peers)
    text = f"means say less: {spelled(round(mean))} against {spelled(round(means))}"
    yield Fact("mean_us", round(mean), text, "us", own.ios)
    yield from _fan_out(odd)
    yield from _stripe(facts, odd)


def _fan_out(odd: Odd) -> Iterator[Fact]:
    """What one I/O takes that waits for all of them, with this device and without it."""
    every = slowest_of([one.whole for one in odd.drives.values()])
    others = slowest_of([one.whole for one in odd.peers])
    for name, share in (("median", 0.5), ("p99", 0.01)):
        pair = [tail_of(one, max(1, round(share * sum(one.values())))) for one in (every, others)]
        if None in pair:
            continue
        slow, quick = (round(2**one) for one in pair if one is not None)
        if slow == quick:
            continue
        text = f"a stripe over all {len(odd.drives):,} waits for the slowest: its {name} is {spelled(slow)}"
        yield Fact(f"stripe_{name}_us", slow, text, "us", odd.own.ios)
        text = f"a stripe without this one: its {name} is {spelled(quick)}"
        yield Fact(f"stripe_{name}_without_us", quick, text, "us", odd.own.ios)


def _stripe(facts: Facts, odd: Odd) -> Iterator[Fact]:
    """What is built on it and on peers of it."""
    for one in facts.devices.values():
        together = [name for name in odd.drives if name in one.members]
        if odd.name in together and len(together) > 1:
            text = f"{one.name} is built on it and on {len(together) - 1:,} of its peers: it waits for the slowest"
            yield Fact("built_on_it", one.name, text)


_STEPS = (
    Step("see on the stages screen where its slow I/Os spend their time that its peers' don't"),
    Step(
        "compare it with a peer: firmware, link speed and width, errors",
        commands=(
            "smartctl -x /dev/DEVICE",
            "nvme smart-log /dev/DEVICE",
            "lspci -vv",
        ),
    ),
    Step(
        "see which other handlers share its interrupt vector, on the interrupts screen too",
        commands=("cat /proc/interrupts",),
    ),
    Step(
        "if nothing else tells, move it to a peer's slot: the tail goes with the drive or stays with the slot",
        "the drive is away while it is moved; what is built on it runs without its redundancy",
    ),
)

RULE = Rule(
    "peer-outlier",
    "one of several like devices has a far slower tail, and keeps it",
    judge,
    explained_by=(
        "starved-io",
        "completion-wakeup",
        "tick-quantum",
        "softirq-delay",
        "outstanding-ceiling",
        "bottleneck-above-device",
        "requeue-storm",
    ),
)
