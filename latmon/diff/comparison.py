"""Two stretches compared: per device, op and stage what moved, how surely, and what would have been found.

Owns which questions are asked: of the body (the middle half of the I/Os) and of the tail (the slowest tenth and less).
Values only; verdict.py and text.py make words of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from latmon.diff import blocks, evidence, power
from latmon.diff.evidence import Evidence, Found, Row
from latmon.diff.quantile import Ratio, Survival, interval, ratio
from latmon.diff.stretch import Stretch
from latmon.histogram import Histogram, bucket_bounds, merge
from latmon.model import OPS, STAGES, Series

BODY = (0.25, 0.5, 0.75)
TAIL = (0.9, 0.99, 0.999, 0.9997, 0.9999)
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BODY_WITHIN = (0.15, 0.85)
"""Shares above a cut that ask about the body; smaller ones ask about the tail."""
FEWEST = 20
"""I/Os of both that must lie above a cut, and below it."""
LEAST_MOVE = 1.03
"""What a quantile of the body must have moved by: a quarter of a bucket, less can't be told from its neighbour's."""
_TUNED_BY = 300
"""Rows that decide how long blocks are."""
_LEAST_TAIL = 1.05


class Cut(NamedTuple):
    """A latency, and which question I/Os above it answer: body or tail."""

    bucket: int
    question: str


@dataclass(frozen=True, slots=True)
class Shift:
    """A quantile of A and of B as a report tells them, None where there are too few I/Os; and their ratio."""

    name: str
    a_us: int | None
    b_us: int | None
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A question's answer: `direction` 1 for slower, -1 for faster, 0 for no difference found; None: can't be told."""

    direction: int | None
    p: float | None = None
    cut_us: int = 0
    """Where it shows most."""
    share_a: float = 0.0
    share_b: float = 0.0
    why: str = ""
    """Of None: what is missing."""


@dataclass(frozen=True, slots=True)
class Change:
    """One series in both stretches."""

    series: Series
    a: Histogram
    b: Histogram
    shifts: tuple[Shift, ...]
    body: Moved
    tail: Moved
    seen: power.Seen

    @property
    def where(self) -> str:
        """tail, body, whole (both, the same way), opposed (both, opposite ways), none, or unknown."""
        body, tail = self.body.direction, self.tail.direction
        if body and tail:
            return "whole" if body == tail else "opposed"
        if body or tail:
            return "body" if body else "tail"
        return "unknown" if body is None and tail is None else "none"

    @property
    def changed(self) -> bool:
        return self.where not in ("none", "unknown")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything found. `blocks_a` and `blocks_b` are 0 where there were too few windows for a test."""

    a: Stretch
    b: Stretch
    changes: tuple[Change, ...]
    blocks_a: int
    blocks_b: int
    alike: float
    """How much neighbouring blocks still resemble each other, 0 to 1: above 0.3 the stretches are too short."""
    rows: int
    only_a: tuple[Series, ...]
    only_b: tuple[Series, ...]

    @property
    def tested(self) -> bool:
        return self.blocks_a > 0


def compare(a: Stretch, b: Stretch) -> Comparison:
    """One pass over what is in memory; the same stretches give the same answer."""
    both = sorted((s for s in a.series() if s in b.bits), key=_order)
    pairs = {s: _pair(a, b, s) for s in both}
    pairs = {s: pair for s, pair in pairs.items() if pair[0] and pair[1]}
    tested = min(len(a.units), len(b.units)) >= blocks.LEAST
    cuts = {s: _cuts(*pair) for s, pair in pairs.items()} if tested else {}
    asked = [_ask((a, b), s, cuts[s], pairs[s]) for s in cuts]
    in_a, in_b, alike = _length(asked, a, b)
    rows = [row for one in asked for row in one.rows(in_a, in_b)]
    weighed = (
        evidence.weigh(rows, [alike[cut.question] for one in asked for cut in one.cuts])
        if rows
        else Evidence((), math.inf)
    )
    changes, at = [], 0
    known = {one.series: one for one in asked}
    for series, pair in pairs.items():
        one = known.get(series)
        count = len(one.cuts) if one else 0
        part = zip(one.cuts if one else (), rows[at : at + count], weighed.found[at : at + count], strict=True)
        shown = _ratios(one, pair, (in_a, in_b), alike) if one else None
        changes.append(_change(series, pair, shown, [_Answer(*some) for some in part], weighed.critical))
        at += count
    return Comparison(
        a,
        b,
        tuple(changes),
        in_a if asked else 0,
        in_b if asked else 0,
        max(alike.values()),
        len(rows),
        tuple(sorted((s for s in a.series() if s not in b.bits), key=_order)),
        tuple(sorted((s for s in b.series() if s not in a.bits), key=_order)),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    series: Series
    cuts: tuple[Cut, ...]
    a: blocks.Exceedances
    b: blocks.Exceedances

    def rows(self, in_a: int, in_b: int, only: Sequence[Cut] | None = None) -> list[Row]:
        sizes = blocks.join(self.a.sizes, in_a), blocks.join(self.b.sizes, in_b)
        return [
            Row(blocks.join(self.a.above[cut.bucket], in_a), blocks.join(self.b.above[cut.bucket], in_b), *sizes)
            for cut in (self.cuts if only is None else only)
        ]


def _pair(a: Stretch, b: Stretch, series: Series) -> tuple[Histogram, Histogram]:
    bits = min(a.bits[series], b.bits[series])
    return a.total(series, bits), b.total(series, bits)


def _cuts(a: Histogram, b: Histogram) -> tuple[Cut, ...]:
    """Edges of buckets nearest to the wanted quantiles of both together, each once."""
    # of equal weight, so that a long stretch doesn't decide alone where a short one is looked at
    pooled = merge([a, b])
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


def _ask(sides: Sequence[Stretch], series: Series, cuts: tuple[Cut, ...], totals: Sequence[Histogram]) -> _Asked:
    """Also above the edges beside each stretch's own quantiles, for their intervals."""
    wanted = [cut.bucket for cut in cuts]
    a, b = (
        blocks.exceedances(one, series, total.bits, wanted + [index for _, index in _own(total)])
        for one, total in zip(sides, totals, strict=True)
    )
    return _Asked(series, cuts, a, b)


def _own(total: Histogram) -> list[tuple[str, int]]:
    """The bucket behind the one that holds each quantile: what is slower than the quantile is told."""
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


def _length(asked: Sequence[_Asked], a: Stretch, b: Stretch) -> tuple[int, int, Mapping[str, float]]:
    """How many blocks of each stretch: the most whose neighbours don't resemble each other, in body or tail."""
    by_size = sorted(asked, key=lambda one: -min(sum(one.a.sizes), sum(one.b.sizes)))[:_TUNED_BY]
    tried_a, tried_b = blocks.halvings(len(a.units)), blocks.halvings(len(b.units))
    for number in range(max(len(tried_a), len(tried_b))):
        count = tried_a[min(number, len(tried_a) - 1)], tried_b[min(number, len(tried_b) - 1)]
        found: dict[str, list[float]] = {"body": [], "tail": []}
        for one in by_size:
            some = _some(one.cuts)
            for cut, row in zip(some, one.rows(*count, only=some), strict=True):
                found[cut.question].append(blocks.correlation(*evidence.residuals(row)))
        alike = {question: max(median(some), 0.0) if some else 0.0 for question, some in found.items()}
        if max(alike.values()) <= blocks.ALIKE:
            break
    return *count, alike


def _some(cuts: Sequence[Cut]) -> list[Cut]:
    """One of the body, one of the tail that enough I/Os are above."""
    body = [cut for cut in cuts if cut.question == "body"]
    return body[len(body) // 2 : len(body) // 2 + 1] + [cut for cut in cuts if cut.question == "tail"][1:2]


def _change(
    series: Series,
    pair: tuple[Histogram, Histogram],
    ratios: Mapping[str, Ratio] | None,
    answers: Sequence[_Answer],
    critical: float,
) -> Change:
    """`ratios`: of quantiles; None where nothing was tested."""
    a, b = pair
    known = ratios or {}
    shifts = [Shift(name, a.quantile(q), b.quantile(q), known.get(name)) for name, q in QUANTILES.items()]
    shifts.append(Shift("max", a.max_bound, b.max_bound))
    body, tail = (_moved(answers, pair, question, tested=ratios is not None) for question in ("body", "tail"))
    told = [(bucket_bounds(one.cut.bucket, a.bits)[0], one.cut.question, one.found.error) for one in answers]
    return Change(series, a, b, tuple(shifts), body, tail, power.seen(merge([a, b]), told, critical))


class _Answer(NamedTuple):
    cut: Cut
    row: Row
    found: Found


def _moved(every: Sequence[_Answer], pair: tuple[Histogram, Histogram], question: str, *, tested: bool) -> Moved:
    answers = [one for one in every if one.cut.question == question]
    both = Survival(pair[0]), Survival(pair[1])
    if not answers:
        count = sum(one.count for one in pair)
        need = FEWEST * (4 if question == "body" else 100)
        why = "too few windows" if not tested else f"{count} I/Os" if count < need else "all in one bucket"
        return Moved(None, why=why)
    best = min(answers, key=lambda one: (one.found.p, -abs(one.found.t)))
    share_a, share_b = best.row.shares
    sure = [one for one in answers if one.found.p <= evidence.ALPHA and _matters(one, both)]
    if sure:
        best = min(sure, key=lambda one: (one.found.p, -abs(one.found.t)))
        share_a, share_b = best.row.shares
    direction = (1 if best.found.t > 0 else -1) if sure else 0
    return Moved(direction, best.found.p, bucket_bounds(best.cut.bucket, pair[0].bits)[0], share_a, share_b)


def _matters(one: _Answer, both: tuple[Survival, Survival]) -> bool:
    """Whether it is more than I/Os beside an edge: of so many I/Os everything is significant."""
    share_a, share_b = one.row.shares
    if one.cut.question == "tail":
        low, high = sorted((share_a, share_b))
        return low <= 0 or high / low >= _LEAST_TAIL
    share = (share_a + share_b) / 2
    moved = both[1].latency(share) / both[0].latency(share)
    return moved >= LEAST_MOVE or moved <= 1 / LEAST_MOVE


def _ratios(
    asked: _Asked, pair: tuple[Histogram, Histogram], count: tuple[int, int], alike: Mapping[str, float]
) -> Mapping[str, Ratio]:
    """Of the quantiles that both have."""
    intervals = []
    for total, part, blocked in zip(pair, (asked.a, asked.b), count, strict=True):
        survival, made = Survival(total), {}
        for name, index in _own(total):
            sizes = blocks.join(part.sizes, blocked)
            error = evidence.error_of(
                blocks.join(part.above[index], blocked), sizes, alike["body" if name == "p50" else "tail"]
            )
            made[name] = interval(survival, 1 - QUANTILES[name], error, blocked - 1)
        intervals.append(made)
    return {name: ratio(intervals[0][name], intervals[1][name]) for name in intervals[0] if name in intervals[1]}


def _order(series: Series) -> tuple[str, int, str, int, str]:
    """By device, then op; the total before its stages."""
    stages = ("total", *STAGES)
    op = OPS.index(series.op) if series.op in OPS else len(OPS)
    stage = stages.index(series.stage) if series.stage in stages else len(stages)
    return series.device, op, series.op, stage, series.stage


def devices_of(some: Iterable[Series]) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(one.device for one in some))
