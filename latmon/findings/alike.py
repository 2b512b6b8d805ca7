"""Like devices compared, one op of each: who is far slower than the others, or slow far more often, and stays so.

Owns the levels at which they are compared and what chance gives. What is made of it is peer_outlier.py's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from latmon.findings.facts import Facts
from latmon.findings.rule import Thresholds
from latmon.peers import RANK, Beyond, Counts, Measure, above, beyond, chance, counts_of, tail_of, time_of


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
