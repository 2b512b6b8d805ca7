"""The hypotheses tested between two spans, and the smallest effects the data could show.

Of the body, the middle half of the I/Os, and of the tail, the slowest tenth and less. Values only; knows no answer.

A row is found when its difference is beyond the least that matters by `critical` standard errors, and beyond what the
stretches wander by themselves; 0.84 standard errors more make that four of five cases. That share is turned back into
a factor on latencies by the distribution of both stretches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import NamedTuple

from latmon.diff import blocks, statistics
from latmon.diff.blocks import Stretch
from latmon.diff.statistics import Row, Survival
from latmon.model.frame import Series
from latmon.model.histogram import Histogram, bucket_bounds, merge

QUESTIONS = ("body", "tail")
BODY = (0.25, 0.5, 0.75)
TAIL = (0.9, 0.99, 0.999, 0.9997, 0.9999)
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BODY_WITHIN = (0.15, 0.85)
"""Shares above a cut that ask about the body; smaller ones ask about the tail."""
FEWEST = 20
"""I/Os of both that must lie above a cut, and below it."""
BODY_MOVE = 1.125
"""A body that moved by less, or by less than a bucket, did not change."""
TAIL_FACTOR = 1.25
"""A share of slow I/Os that grew by less did not change."""
_TUNED_BY = 300
"""Series that decide how long blocks are."""


class Cut(NamedTuple):
    """A latency, by its bucket, and which question I/Os above it answer: body or tail."""

    bucket: int
    question: str


class Length(NamedTuple):
    """How many blocks of A and of B a question is asked with, and how much neighbours of them resemble each other."""

    in_a: int = 0
    in_b: int = 0
    alike: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """One series with its cuts, and what lies above each in the units of both stretches."""

    series: Series
    cuts: tuple[Cut, ...]
    a: blocks.Exceedances
    b: blocks.Exceedances
    least: Mapping[int, float]
    """By cut: the difference of shares that is none yet."""

    def of(self, question: str) -> list[Cut]:
        return [cut for cut in self.cuts if cut.question == question]

    def rows(self, length: Length, cuts: Sequence[Cut]) -> list[Row]:
        """The cuts' exceedances, by blocks."""
        sizes = blocks.join(self.a.sizes, length.in_a), blocks.join(self.b.sizes, length.in_b)
        return [
            Row(
                blocks.join(self.a.above[cut.bucket], length.in_a),
                blocks.join(self.b.above[cut.bucket], length.in_b),
                *sizes,
                self.least[cut.bucket],
                TAIL_FACTOR if cut.question == "tail" else 1.0,
            )
            for cut in cuts
        ]


def ask(sides: Sequence[Stretch], series: Series, totals: Sequence[Histogram]) -> Asked:
    """Also above the edges beside each stretch's own quantiles, for their intervals."""
    cuts = _cuts(totals)
    wanted = [cut.bucket for cut in cuts]
    a, b = (
        blocks.exceedances(one, series, total.bits, wanted + [index for _, index in own(total)])
        for one, total in zip(sides, totals, strict=True)
    )
    both = [Survival(total) for total in totals]
    return Asked(series, cuts, a, b, {cut.bucket: _least(cut, both, totals[0].bits) for cut in cuts})


def _least(cut: Cut, both: Sequence[Survival], bits: int) -> float:
    """What the faster one's share above the cut would gain if it were slower by the least that matters.

    A bucket is what can be resolved: all I/Os of the one below the cut may lie at its end.
    """
    edge = bucket_bounds(cut.bucket, bits)[0]
    below = min(edge / BODY_MOVE, bucket_bounds(cut.bucket - 1, bits)[0])
    faster = min(both, key=lambda one: one.above(edge))
    share = faster.above(edge)
    moved = faster.above(below) - share
    return max(moved, (TAIL_FACTOR - 1) * share) if cut.question == "tail" else moved


def length(asked: Sequence[Asked], question: str, a: Stretch, b: Stretch) -> Length:
    """How many blocks: the most whose neighbours don't resemble each other more than chance makes them."""
    some = [one for one in asked if one.of(question)]
    some = sorted(some, key=lambda one: -min(sum(one.a.sizes), sum(one.b.sizes)))[:_TUNED_BY]
    tried_a, tried_b = blocks.halvings(len(a.units)), blocks.halvings(len(b.units))
    found = Length()
    for number in range(max(len(tried_a), len(tried_b)) if some else 0):
        in_a, in_b = (tried[min(number, len(tried) - 1)] for tried in (tried_a, tried_b))
        found = Length(in_a, in_b)
        rows = [one.rows(found, [_typical(one.of(question))])[0] for one in some]
        alike = median(blocks.correlation(*statistics.own_residuals(row)) for row in rows)
        # of one series it is known badly, and may be of one cut alone
        found = Length(in_a, in_b, max(alike, 0.0) * len(rows) / (len(rows) + 1))
        if alike <= blocks.ALIKE + 1 / math.sqrt((in_a + in_b) * len(rows)):
            break
    return found


def own(total: Histogram) -> list[tuple[str, int]]:
    """By quantile the bucket behind the one that holds it: what is slower than the quantile is told."""
    found = []
    for name, q in QUANTILES.items():
        if total.quantile(q) is not None:
            left = total.count
            for index, n in total.buckets:
                if left - n <= total.count * (1 - q) + 1e-9:
                    found.append((name, index))
                    break
                left -= n
    return found


def _cuts(totals: Sequence[Histogram]) -> tuple[Cut, ...]:
    """Edges of buckets nearest to the wanted quantiles of both together, each once."""
    pooled = merge(totals)
    count, left = pooled.count, pooled.count
    edges = []
    for index, n in pooled.buckets:
        if left < count:
            edges.append((index, left))
        left -= n
    usable = [(i, n) for i, n in edges if n >= FEWEST and count - n >= FEWEST]
    found: dict[int, Cut] = {}
    for q in (*BODY, *TAIL):
        near = min(usable, key=lambda edge: abs(math.log(edge[1] / (count * (1 - q)))), default=None)
        if near is not None:
            share = near[1] / count
            question = "body" if BODY_WITHIN[0] <= share <= BODY_WITHIN[1] else "tail" if share < BODY_WITHIN[0] else ""
            if question:
                found[near[0]] = Cut(near[0], question)
    return tuple(found.values())


def _typical(cuts: Sequence[Cut]) -> Cut:
    """The middle one of the body; the second of the tail, which enough I/Os are above."""
    return cuts[min(1, len(cuts) - 1)]


POWER = 0.8
TAIL_SHARE = 0.001
_BEYOND = NormalDist().inv_cdf(POWER)
_FACTORS = (1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """Factors; None where even the largest that was tried would have stayed unseen."""

    body: float | None = None
    """On all latencies."""
    tail: float | None = None
    """On the slowest TAIL_SHARE alone."""


class Hurdle(NamedTuple):
    """What a row has to pass."""

    us: int
    """Its cut."""
    question: str
    least: float
    """The difference of shares that is none yet."""
    error: float
    critical: float
    wandered: float
    """The difference of shares that there is within the stretches."""

    share: float
    """Of both together above the cut."""
    factor: float
    """How much the smaller share's error counts."""

    counted: float
    """The part of the error that is counting alone."""

    def passed(self, gain: float) -> bool:
        """Whether so much more is found in four of five cases: more slow I/Os are noisier.

        Of the tail, counting alone makes a variance as large as the share, and whatever makes tails come and go one as
        large as its square. Of the body, shares of about a half, neither does.
        """
        grown, smaller = 1 + gain / self.share, self.factor**2
        counted = min(self.counted, self.error) ** 2
        rest = self.error**2 - counted
        power = 2 if self.question == "tail" else 1
        error = math.sqrt((counted * (grown + smaller) + rest * (grown**power + smaller)) / (1 + smaller))
        within = self.wandered * (grown if self.question == "tail" else 1.0)
        return gain >= max(self.least + self.critical * error, within) + _BEYOND * error


def seen(pooled: Histogram, hurdles: Sequence[Hurdle]) -> Seen:
    """The factors that pass one hurdle at least."""
    survival = Survival(pooled)
    body = [one for one in hurdles if one.question == "body"]
    tail = [one for one in hurdles if one.question == "tail"]
    return Seen(
        next((f for f in _FACTORS if any(one.passed(_gain(survival, one.us, f)) for one in body)), None),
        next((f for f in _FACTORS if any(one.passed(_gain_of_tail(survival, one.us, f)) for one in tail)), None),
    )


def _gain(survival: Survival, us: int, factor: float) -> float:
    """By how much more I/Os are above a cut when all take longer by a factor."""
    return survival.above(us / factor) - survival.above(us)


def _gain_of_tail(survival: Survival, us: int, factor: float) -> float:
    """The same when only the slowest do."""
    before = min(survival.above(us), TAIL_SHARE)
    return min(survival.above(us / factor), TAIL_SHARE) - before
