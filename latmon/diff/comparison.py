"""The comparison of two or more spans, per device, op and stage. Values only.

hypotheses.py owns the hypotheses; verdict.py and output.py put the results into words.

The trend's test is Kendall's S over all orders of the captures, exact up to seven of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from random import Random
from typing import NamedTuple

from latmon.analysis.device_order import by_name
from latmon.diff import blocks, hypotheses, statistics
from latmon.diff.blocks import TRACED, Stretch, plain
from latmon.diff.cause import TRACED_FEWEST, Cause, Extreme, cause, extreme
from latmon.diff.device_time import Difference, burden, differing
from latmon.diff.hypotheses import FEWEST, QUANTILES, QUESTIONS, Asked, Cut, Length, ask, length, own
from latmon.diff.statistics import Found, Ratio, Row, Survival, interval, ratio
from latmon.model.frame import OPS, STAGES, Series
from latmon.model.histogram import Histogram, bucket_bounds, merge

DRIFTS = "it drifts while it is measured; longer captures are needed"
_DRIFT = 0.6
"""Correlation of the longest blocks from which on a question can't be told: they are one block in truth."""
WANDERS = "it varies as much within the captures as between them"
_NEARLY_NONE = 0.05
"""Share of I/Os above a cut that separates A from B: at most so many of one side, and of the other all but so many."""


@dataclass(frozen=True, slots=True)
class Shift:
    """A quantile of A and of B as a report tells them, None where there are too few I/Os; and their ratio."""

    name: str
    a_us: int | None
    b_us: int | None
    ratio: Ratio | None = None
    tops: tuple[int | None, int | None] = (None, None)
    """The exact maxima, where they are known: no quantile is said to be above its own."""


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

    @property
    def is_all(self) -> bool:
        """Whether nearly all I/Os of one side are above the cut, and nearly none of the other's."""
        low, high = sorted((self.share_a, self.share_b))
        return low <= _NEARLY_NONE and high >= 1 - _NEARLY_NONE


@dataclass(frozen=True, slots=True)
class Change:
    """One series in both stretches."""

    series: Series
    a: Histogram
    b: Histogram
    shifts: tuple[Shift, ...]
    body: Moved
    tail: Moved
    seen: hypotheses.Seen
    traced: bool = False
    """Of the traced I/Os; else of all that were timed."""
    includes: tuple[str, ...] = ()
    """Stages whose time this one holds, in A as in B."""
    extreme: Extreme | None = None
    cause: Cause | None = None
    """Of a total that changed."""

    @property
    def where(self) -> str:
        """tail, body, whole (both, the same way), opposed (both, opposite ways), none, or unknown."""
        body, tail = self.body.direction, self.tail.direction
        if body and tail:
            return "whole" if body == tail else "opposed"
        if body or tail:
            return "body" if body else "whole" if self.tail.is_all else "tail"
        return "unknown" if body is None and tail is None else "none"

    @property
    def changed(self) -> bool:
        return self.where not in ("none", "unknown")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything found. `lengths`: by question; without blocks where there were too few windows for a test."""

    a: Stretch
    b: Stretch
    changes: tuple[Change, ...]
    lengths: Mapping[str, Length]
    rows: int
    only_a: tuple[Series, ...]
    only_b: tuple[Series, ...]
    unlike: tuple[tuple[Series, tuple[str, ...], tuple[str, ...]], ...] = ()
    """Stages that include other stages in A than in B, with what they include: they are not compared."""

    @property
    def tested(self) -> bool:
        return _enough(self.a, self.b)

    @property
    def alike(self) -> float:
        """How much neighbouring blocks still resemble each other: above 0.3 the stretches are too short."""
        return max(one.alike for one in self.lengths.values())


def compare(a: Stretch, b: Stretch) -> Comparison:
    """One pass over what is in memory; the same stretches give the same answer."""
    both = sorted(_comparable(a, b), key=_order)
    unlike = tuple((plain(s), a.includes[s], b.includes[s]) for s in both if _is_unlike(s, a, b))
    both = [s for s in both if not _is_unlike(s, a, b)]
    pairs = {s: _pair(a, b, s) for s in both}
    pairs = {s: pair for s, pair in pairs.items() if pair[0] and pair[1]}
    tested = _enough(a, b)
    asked = {s: ask((a, b), s, pair) for s, pair in pairs.items()} if tested else {}
    lengths = {question: length(list(asked.values()), question, a, b) for question in QUESTIONS}
    answers: dict[Series, list[_Answer]] = {}
    for question, how in lengths.items():
        _answer(list(asked.values()), question, how, answers)
    return Comparison(
        a,
        b,
        tuple(
            _led(_change(s, pair, asked.get(s), answers.get(s, []), lengths), a, b, tested=tested)
            for s, pair in pairs.items()
        ),
        lengths,
        sum(len(some) for some in answers.values()),
        _only(a, b),
        _only(b, a),
        unlike,
    )


def _comparable(a: Stretch, b: Stretch) -> list[Series]:
    """Return what both have. Stages are those of the traced I/Os where both traced enough, else the always-on ones."""
    # where the total begins at the issue, the stage in the driver is that very total
    same = {"hba"} if a.origin.latency_from == b.origin.latency_from == "issue" else set()
    both = [s for s in a.series() if s in b.bits and not (s.stage in same and _is_total(s, a, b))]
    followed = {s[:2] for s in both if s.stage == f"{TRACED}total" and _enough_traced(s, a, b)}
    always = {s for s in both if not s.stage.startswith(TRACED)}
    return [
        s
        for s in both
        if s.stage == "total"
        or (s in always and s[:2] not in followed)
        or (s not in always and plain(s).stage != "total" and (s[:2] in followed or plain(s) not in always))
    ]


def _enough_traced(series: Series, *sides: Stretch) -> bool:
    return all(one.total(series, one.bits[series]).count >= TRACED_FEWEST for one in sides)


def _is_unlike(series: Series, a: Stretch, b: Stretch) -> bool:
    return series.stage != "total" and a.includes.get(series) != b.includes.get(series)


def _only(one: Stretch, other: Stretch) -> tuple[Series, ...]:
    known = {plain(s) for s in other.series()}
    return tuple(sorted({plain(s) for s in one.series()} - known, key=_order))


def _led(change: Change, a: Stretch, b: Stretch, *, tested: bool) -> Change:
    """Return the change with what leads its sentence, and with the plain name of its series."""
    series = plain(change.series)
    made = replace(change, series=series, traced=series != change.series, includes=a.includes.get(change.series, ()))
    if series.stage != "total":
        return made
    found = extreme(a, b, series, (change.a, change.b))
    if not (change.changed or not tested):
        return replace(made, extreme=found)
    tail = change.where == "tail"
    low, high = (change.tail.cut_us, None) if tail else (0, found.above_us if found else None)
    moved = change.tail.direction if tail else change.body.direction or change.tail.direction
    slower = None if not moved else int(moved > 0)
    return replace(made, extreme=found, cause=cause(a, b, series, low, high, slower=slower))


def _enough(*sides: Stretch) -> bool:
    return all(len(one.units) >= blocks.UNITS and one.us >= blocks.UNITS_US for one in sides)


def _is_total(series: Series, *sides: Stretch) -> bool:
    """Whether a stage has the same counts as the total in each of them."""
    total = series._replace(stage="total")
    return all(
        total in one.bits and one.total(total, one.bits[total]).buckets == one.total(series, one.bits[series]).buckets
        for one in sides
    )


class _Answer(NamedTuple):
    cut: Cut
    row: Row
    found: Found
    critical: float


def _answer(asked: Sequence[Asked], question: str, how: Length, into: dict[Series, list[_Answer]]) -> None:
    """Of all series at once; each question has its part of the chance of a false alarm (Bonferroni)."""
    if how.alike > _DRIFT or not how.in_a:
        return
    cuts = [(one, cut) for one in asked for cut in one.of(question)]
    rows = [row for one in asked for row in one.rows(how, one.of(question))]
    weighed = statistics.weigh(rows, how.alike, len(QUESTIONS))
    for (one, cut), row, found in zip(cuts, rows, weighed.found, strict=True):
        into.setdefault(one.series, []).append(_Answer(cut, row, found, weighed.critical))


def _pair(a: Stretch, b: Stretch, series: Series) -> tuple[Histogram, Histogram]:
    bits = min(a.bits[series], b.bits[series])
    return a.total(series, bits), b.total(series, bits)


def _change(
    series: Series,
    pair: tuple[Histogram, Histogram],
    asked: Asked | None,
    answers: Sequence[_Answer],
    lengths: Mapping[str, Length],
) -> Change:
    a, b = pair
    ratios = _ratios(asked, pair, lengths) if asked else {}
    tops = (a.max, b.max)
    shifts = [Shift(name, a.quantile(q), b.quantile(q), ratios.get(name), tops) for name, q in QUANTILES.items()]
    shifts.append(Shift("max", a.max_bound, b.max_bound, tops=tops))
    body, tail = (
        _moved([one for one in answers if one.cut.question == q], pair, _why(pair, asked, q, lengths[q]))
        for q in QUESTIONS
    )
    told = [
        hypotheses.Hurdle(
            bucket_bounds(one.cut.bucket, a.bits)[0],
            one.cut.question,
            one.row.least,
            one.found.error,
            one.critical,
            statistics.wandered(one.row),
            sum(one.row.shares) / 2,
            one.row.factor,
            math.sqrt(statistics.least_variance(one.row)),
        )
        for one in answers
    ]
    return Change(series, a, b, tuple(shifts), body, tail, hypotheses.seen(merge([a, b]), told))


def _why(pair: tuple[Histogram, Histogram], asked: Asked | None, question: str, how: Length) -> str:
    """Why a question has no answer, where it has none."""
    if asked is None:
        return "too few windows"
    if how.alike > _DRIFT:
        return DRIFTS
    count = sum(one.count for one in pair)
    need = FEWEST * (4 if question == "body" else 100)
    return f"{count} I/Os" if count < need else "all in one bucket"


def _moved(answers: Sequence[_Answer], pair: tuple[Histogram, Histogram], why: str) -> Moved:
    if not answers:
        return Moved(None, why=why)
    sure = [one for one in answers if one.found.p <= statistics.ALPHA]
    steady = [one for one in sure if abs(one.row.shares[1] - one.row.shares[0]) > statistics.wandered(one.row)]
    if sure and not steady:
        return Moved(None, why=WANDERS)
    best = min(steady or answers, key=lambda one: (one.found.p, -abs(one.found.t)))
    direction = (1 if best.found.t > 0 else -1) if steady else 0
    return Moved(direction, best.found.p, bucket_bounds(best.cut.bucket, pair[0].bits)[0], *best.row.shares)


def _ratios(asked: Asked, pair: tuple[Histogram, Histogram], lengths: Mapping[str, Length]) -> Mapping[str, Ratio]:
    """Of the quantiles that both have."""
    sides = []
    for at, (total, part) in enumerate(zip(pair, (asked.a, asked.b), strict=True)):
        survival, made = Survival(total), {}
        for name, index in own(total):
            how = lengths["body" if name == "p50" else "tail"]
            count = (how.in_a, how.in_b)[at] or min(len(part.sizes), blocks.MOST)
            error = statistics.error_of(
                blocks.join(part.above[index], count), blocks.join(part.sizes, count), how.alike
            )
            made[name] = interval(survival, 1 - QUANTILES[name], error, count - 1)
        sides.append(made)
    return {name: ratio(sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]}


def _order(series: Series) -> tuple[object, ...]:
    """By device, then op; the total before its stages."""
    stages = ("total", *STAGES)
    op = OPS.index(series.op) if series.op in OPS else len(OPS)
    stage = stages.index(series.stage) if series.stage in stages else len(stages)
    return by_name(series.device), op, series.op, stage, series.stage


def devices_of(some: Iterable[Series]) -> list[str]:
    """Each once."""
    return list(dict.fromkeys(one.device for one in some))


COLUMNS = ("MB/s", "IOPS", "p50", "p99", "p99.9", "max")
LEAST = 3
_EXACT = 7
_DRAWN = 4999
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Entry:
    """One capture's row: rates a second, latencies in us, None where there are too few I/Os."""

    name: str
    values: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Trend:
    """A column that only rises or only falls from row to row. `p` is two-sided."""

    column: str
    rises: bool
    p: float

    @property
    def sure(self) -> bool:
        return self.p <= _SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Sweep:
    """`setting`: what the rows are ordered by; empty: the order in which they were given."""

    setting: str
    device: str
    entries: tuple[Entry, ...]
    trends: tuple[Trend, ...]


def sweep(stretches: Sequence[Stretch], device: str = "") -> Sweep:
    """Of one device, or of all."""
    setting, values = swept(stretches)
    order = sorted(range(len(stretches)), key=lambda i: _rank(values[i])) if setting else range(len(stretches))
    entries = tuple(_entry(stretches[i], values[i] if setting else stretches[i].name, device) for i in order)
    return Sweep(setting, device, entries, tuple(t for c in COLUMNS if (t := _trend(c, entries)) is not None))


def devices(stretches: Sequence[Stretch]) -> list[str]:
    """Those that all captures have I/O of."""
    found = [{flow.device for unit in one.units for flow in unit.done} for one in stretches]
    return sorted(set.intersection(*found), key=by_name) if found else []


def swept(stretches: Sequence[Stretch]) -> tuple[str, list[str]]:
    """The one setting that has another value in each of them, and those values; empty where there is none or many."""
    every = [differing(stretches[0], one) for one in stretches[1:]]
    shared = {(one.section, one.name) for one in every[0]} if every else set()
    for some in every[1:]:
        shared &= {(one.section, one.name) for one in some}
    found: dict[tuple[str, str], list[str]] = {}
    for key in sorted(shared):
        first = next(one.a for one in every[0] if (one.section, one.name) == key)
        values = [first, *(_value(some, key) for some in every)]
        if len(set(values)) == len(values) and all(values):
            found[key] = values
    names = {name for _, name in found}
    if len(names) != 1:
        return "", ["" for _ in stretches]
    (section, name), values = next(iter(found.items()))
    return (name if len(found) > 1 else f"{section} {name}"), values


def _value(some: Sequence[Difference], key: tuple[str, str]) -> str:
    return next(one.b for one in some if (one.section, one.name) == key)


def _rank(value: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)


def _entry(stretch: Stretch, name: str, device: str) -> Entry:
    load, total = burden(stretch, device), _latency(stretch, device)
    quantiles = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    values: dict[str, float | None] = {"MB/s": load.mb_per_s, "IOPS": load.iops}
    values |= {column: total.quantile(q) for column, q in quantiles.items()}
    return Entry(name, values | {"max": total.max_bound})


def _latency(stretch: Stretch, device: str) -> Histogram:
    some = [one for one in stretch.series() if one.stage == "total" and device in ("", one.device)]
    bits = min((stretch.bits[one] for one in some), default=0)
    return merge(stretch.total(one, bits) for one in some)


def _trend(column: str, entries: Sequence[Entry]) -> Trend | None:
    values = [one.values[column] for one in entries]
    known = [value for value in values if value is not None]
    if len(known) < LEAST or len(known) < len(values):
        return None
    rises = all(b > a for a, b in pairwise(known))
    falls = all(b < a for a, b in pairwise(known))
    return Trend(column, rises, _chance(known)) if rises or falls else None


def _chance(values: Sequence[float]) -> float:
    """Of an S as far from 0 in any order of the captures."""
    seen = abs(_kendall(values))
    if len(values) <= _EXACT:
        found = [abs(_kendall(some)) >= seen for some in permutations(values)]
        return sum(found) / len(found)
    rng = Random(1)  # noqa: S311  no secret: the same files must give the same answer
    drawn = sum(abs(_kendall(rng.sample(list(values), len(values)))) >= seen for _ in range(_DRAWN))
    return (drawn + 1) / (_DRAWN + 1)


def _kendall(values: Sequence[float]) -> int:
    return sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
