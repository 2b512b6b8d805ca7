"""The hypotheses tested between two spans, the smallest effects that the data could show, and the cause of a change.

The body is the middle half of the I/Os, the tail the slowest tenth; each is tested by itself. A difference is found if
it exceeds the least that matters by `critical` standard errors, and the differences between parts of each span. With
0.84 standard errors more it is found in four of five cases; the distribution of both spans converts that share into a
factor on latencies.

The cause is the traced stage that explains the change, or very long I/Os of one side only. Both are counts and sums
without a test: the very long I/Os are few, and often of one moment. Pure: makes no text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from types import MappingProxyType
from typing import Annotated, NamedTuple

from latmon.analysis import attribution
from latmon.analysis.cuts import SeriesCuts, series_cuts
from latmon.analysis.statistics import Survival
from latmon.diff import blocks
from latmon.diff.blocks import TRACED, CaptureSpan
from latmon.model.frame import Flow, Series
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.support.typed_json import HIDDEN, Digits

FEWEST_EXTREME = 5
"""Least number of very long I/Os of one side that is reported."""
TIMES = 4
"""Factor to its own p99, to the longest I/O of the other side, or to the number of the other side's."""
TRACED_FEWEST = 100
"""Traced I/Os of each side that a comparison of stages needs."""
_COUNTS_MOST = 0.5
"""Share of the difference that a stage needs to explain it."""
POWER = 0.8
TAIL_SHARE = 0.001
_BEYOND = NormalDist().inv_cdf(POWER)
_FACTORS = (1.01, 1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 16.0)


def cuts_of(sides: Sequence[CaptureSpan], series: Series, totals: Sequence[Histogram]) -> SeriesCuts:
    """Return the series' cuts and counts in both spans."""
    return series_cuts(
        series, totals, lambda side, wanted: blocks.exceedances(sides[side], series, totals[side].bits, wanted)
    )


@dataclass(frozen=True, slots=True)
class Detectable:
    """The smallest changes that the test would have found in four of five cases."""

    all_times: float | None = None
    """Factor on all latencies; null if even the largest that was tried would not have been found."""
    tail_times: float | None = None
    """Factor on the slowest I/Os only; null as `all_times`."""
    tail_share: float = TAIL_SHARE
    """Share of the I/Os that are the slowest ones."""


class DetectionLimit(NamedTuple):
    """Conditions that a row's difference has to meet to be found."""

    us: int
    """Its cut."""
    part: str
    least: float
    """The largest difference of shares that doesn't matter."""
    error: float
    critical: float
    internal: float
    """The difference of shares between parts of one span."""

    share: float
    """Share of both spans' I/Os above the cut."""
    factor: float
    """Factor on the error of the smaller share."""

    counted: float
    """The part of the error that independent I/Os have."""

    def passed(self, gain: float) -> bool:
        """Return whether a gain of the share is found in four of five cases.

        A larger share of slow I/Os has a larger error: in the tail the variance of counting grows with the share, the
        rest with its square. In the body, with shares of about a half, neither does.
        """
        grown, smaller = 1 + gain / self.share, self.factor**2
        counted = min(self.counted, self.error) ** 2
        remainder = self.error**2 - counted
        power = 2 if self.part == "tail" else 1
        error = math.sqrt((counted * (grown + smaller) + remainder * (grown**power + smaller)) / (1 + smaller))
        within = self.internal * (grown if self.part == "tail" else 1.0)
        return gain >= max(self.least + self.critical * error, within) + _BEYOND * error


def seen(pooled: Histogram, limits: Sequence[DetectionLimit]) -> Detectable:
    """Return the smallest factors that at least one row would have found."""
    survival = Survival(pooled)
    body = [limit for limit in limits if limit.part == "body"]
    tail = [limit for limit in limits if limit.part == "tail"]
    return Detectable(
        next((f for f in _FACTORS if any(limit.passed(_gain(survival, limit.us, f)) for limit in body)), None),
        next((f for f in _FACTORS if any(limit.passed(_gain_of_tail(survival, limit.us, f)) for limit in tail)), None),
    )


def _gain(survival: Survival, us: int, factor: float) -> float:
    """Return by how much the share above a cut grows if all I/Os take longer by a factor."""
    return survival.above(us / factor) - survival.above(us)


def _gain_of_tail(survival: Survival, us: int, factor: float) -> float:
    """Return by how much the share above a cut grows if only the slowest I/Os take longer by a factor."""
    before = min(survival.above(us), TAIL_SHARE)
    return min(survival.above(us / factor), TAIL_SHARE) - before


@dataclass(frozen=True, slots=True)
class Extreme:
    """Very long I/Os, which only one side has."""

    above_us: int
    """They take at least this long, in us."""
    count: tuple[int, int]
    """Of A and of B."""
    max_us: tuple[int, int]
    """Latency of the slowest I/O of A and of B, in us."""
    exact: Annotated[bool, HIDDEN] = False
    """Whether `above_us` is the threshold of both captures."""
    stages: Annotated[Mapping[str, float], Digits(6)] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> share of the time of the slower side's traced ones, 0 to 1."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> the stages that its time includes."""

    @property
    def slower(self) -> int:
        """Return 0 if A has them, 1 if B has them."""
        return int(self.count[1] > self.count[0])


@dataclass(frozen=True, slots=True)
class Cause:
    """The stage that explains most of the change of a total."""

    stage: str
    includes: tuple[str, ...]
    """Stages that its time includes."""
    share: Annotated[float, Digits(6)]
    """Of the difference, 0 to 1; of the time of the traced side if only one was traced."""
    us_per_io: Annotated[tuple[float | None, float | None], Digits(1)]
    """Time in us per traced I/O of A and of B; null if that side was not traced."""
    above_us: int = 0
    """These are I/Os that take at least this long, in us."""
    below_us: Annotated[int | None, HIDDEN] = None
    """And less than this; None: no limit."""


def extreme(a: CaptureSpan, b: CaptureSpan, series: Series, totals: tuple[Histogram, Histogram]) -> Extreme | None:
    """Return the very long I/Os that only one side has; None without any."""
    flow, maxima = Flow(series.device, series.op), (totals[0].max_bound or 0, totals[1].max_bound or 0)
    threshold = a.threshold_us(series.device)
    if threshold is not None and threshold == b.threshold_us(series.device):
        counts = (a.above.get(flow, 0), b.above.get(flow, 0))
        if _is_extreme(counts, totals, threshold, 1):
            return _with_stages(Extreme(threshold, counts, maxima, exact=True), a, b, flow)
    slow = int(maxima[1] > maxima[0])
    cut = TIMES * maxima[1 - slow]
    beyond = [(bucket_bounds(index, totals[slow].bits)[0], n) for index, n in totals[slow].buckets]
    beyond = [(low, n) for low, n in beyond if low >= max(cut, 1)]
    count = sum(n for _, n in beyond)
    counts = (0, count) if slow else (count, 0)
    if not beyond or not _is_extreme(counts, totals, beyond[0][0], FEWEST_EXTREME):
        return None
    return _with_stages(Extreme(beyond[0][0], counts, maxima), a, b, flow)


def _is_extreme(counts: tuple[int, int], totals: tuple[Histogram, Histogram], above_us: int, fewest: int) -> bool:
    """Return whether one side has enough of them, far from its own p99, and far more than the other per I/O."""
    slow = int(counts[1] > counts[0])
    usual = totals[slow].quantile(0.99)
    if counts[slow] < fewest or usual is None or above_us < TIMES * usual:
        return False
    expected = counts[slow] / max(totals[slow].count, 1) * totals[1 - slow].count
    return expected >= max(fewest / 2, TIMES * counts[1 - slow])


def _with_stages(extreme: Extreme, a: CaptureSpan, b: CaptureSpan, flow: Flow) -> Extreme:
    times = _times((a, b)[extreme.slower], flow, extreme.above_us, None)
    total = sum(times.values())
    shares = {stage: us / total for stage, us in times.items() if us} if total else {}
    known = (a, b)[extreme.slower].includes
    includes = {stage: inside for stage in shares if (inside := known.get(Series(*flow, TRACED + stage), ()))}
    return Extreme(extreme.above_us, extreme.count, extreme.max_us, extreme.exact, shares, includes)


def cause(
    a: CaptureSpan,
    b: CaptureSpan,
    series: Series,
    low_us: int = 0,
    high_us: int | None = None,
    *,
    slower: int | None = None,
) -> Cause | None:
    """Return the stage that explains how A and B differ in the I/Os of [low_us, high_us); None where none does.

    Where one side alone was traced it is the stage with the most of its time, if that side is the `slower` one.
    """
    flow = Flow(series.device, series.op)
    sides = [_per_io(capture_span, flow, low_us, high_us) for capture_span in (a, b)]
    before, after = sides
    if before is not None and after is not None:
        gaps = {stage: after[stage] - us for stage, us in before.items()}
    else:
        gaps = {} if slower is None else dict(sides[slower] or {})
    total_gap = sum(gaps.values())
    if not total_gap:
        return None
    top = max(sorted(gaps), key=lambda stage: gaps[stage] / total_gap)
    share = min(gaps[top] / total_gap, 1.0)
    if share < _COUNTS_MOST:
        return None
    includes = (b if before is None else a).includes.get(Series(*flow, TRACED + top), ())
    us = (None if before is None else before[top], None if after is None else after[top])
    return Cause(top, includes, share, us, low_us, high_us)


def _per_io(capture_span: CaptureSpan, flow: Flow, low_us: int, high_us: int | None) -> dict[str, float] | None:
    """Return stage -> time per traced I/O below `high_us`; None where too few were traced."""
    total = capture_span.total(Series(*flow, f"{TRACED}total"), BITS)
    last = None if high_us is None else bucket_index(high_us, total.bits)
    count = sum(n for index, n in total.buckets if last is None or index < last)
    if count < TRACED_FEWEST:
        return None
    return {stage: us / count for stage, us in _times(capture_span, flow, low_us, high_us).items()}


def _times(capture_span: CaptureSpan, flow: Flow, low_us: int, high_us: int | None) -> dict[str, int]:
    """Return stage -> time in the traced I/Os whose total lies in the buckets of [low_us, high_us)."""
    first, last = bucket_index(low_us), None if high_us is None else bucket_index(high_us)
    times = {}
    for stage in attribution.PARTS:
        sums = capture_span.by_total.get(Series(*flow, stage), {}) if stage != "resume" else {}
        times[stage] = sum(us for index, us in sums.items() if index >= first and (last is None or index < last))
    return times
