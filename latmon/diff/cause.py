"""The cause of a change between two spans: the traced stage that explains it, and very long I/Os of one side only.

Both are counts and sums without a test: the very long I/Os are few, and often of one moment. Pure: makes no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.analysis.attribution import PARTS
from latmon.diff.blocks import TRACED, CaptureSpan
from latmon.model.frame import Flow, Series
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index

FEWEST = 5
"""Least number of very long I/Os of one side that is reported."""
TIMES = 4
"""Factor to its own p99, to the longest I/O of the other side, or to the number of the other side's."""
TRACED_FEWEST = 100
"""Traced I/Os of each side that a comparison of stages needs."""
_COUNTS_MOST = 0.5
"""Share of the difference that a stage needs to explain it."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """I/Os of `above_us` and more, of A and of B. `exact`: it is the threshold of both captures."""

    above_us: int
    count: tuple[int, int]
    max_us: tuple[int, int]
    exact: bool = False
    stages: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """Stage -> share of the time of the slower side's traced ones."""
    includes: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Stages that these stages' time includes."""

    @property
    def slower(self) -> int:
        """Return 0 if A has them, 1 if B has them."""
        return int(self.count[1] > self.count[0])


@dataclass(frozen=True, slots=True)
class Cause:
    """The stage with most of a difference. Times are per traced I/O, over I/Os of [low_us, high_us)."""

    stage: str
    includes: tuple[str, ...]
    share: float
    """0..1 of the difference; of the time of the traced side if only one was traced."""
    us: tuple[float | None, float | None]
    """Times of A and of B; None if that side was not traced."""
    low_us: int = 0
    high_us: int | None = None


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
    if not beyond or not _is_extreme(counts, totals, beyond[0][0], FEWEST):
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


def _with_stages(one: Extreme, a: CaptureSpan, b: CaptureSpan, flow: Flow) -> Extreme:
    times = _times((a, b)[one.slower], flow, one.above_us, None)
    whole = sum(times.values())
    shares = {stage: us / whole for stage, us in times.items() if us} if whole else {}
    known = (a, b)[one.slower].includes
    includes = {stage: inside for stage in shares if (inside := known.get(Series(*flow, TRACED + stage), ()))}
    return Extreme(one.above_us, one.count, one.max_us, one.exact, shares, includes)


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
    sides = [_per_io(one, flow, low_us, high_us) for one in (a, b)]
    before, after = sides
    if before is not None and after is not None:
        gaps = {stage: after[stage] - us for stage, us in before.items()}
    else:
        gaps = {} if slower is None else dict(sides[slower] or {})
    whole = sum(gaps.values())
    if not whole:
        return None
    top = max(sorted(gaps), key=lambda stage: gaps[stage] / whole)
    share = min(gaps[top] / whole, 1.0)
    if share < _COUNTS_MOST:
        return None
    includes = (b if before is None else a).includes.get(Series(*flow, TRACED + top), ())
    us = (None if before is None else before[top], None if after is None else after[top])
    return Cause(top, includes, share, us, low_us, high_us)


def _per_io(one: CaptureSpan, flow: Flow, low_us: int, high_us: int | None) -> dict[str, float] | None:
    """Return stage -> time per traced I/O below `high_us`; None where too few were traced."""
    total = one.total(Series(*flow, f"{TRACED}total"), BITS)
    last = None if high_us is None else bucket_index(high_us, total.bits)
    count = sum(n for index, n in total.buckets if last is None or index < last)
    if count < TRACED_FEWEST:
        return None
    return {stage: us / count for stage, us in _times(one, flow, low_us, high_us).items()}


def _times(one: CaptureSpan, flow: Flow, low_us: int, high_us: int | None) -> dict[str, int]:
    """Return stage -> time in the traced I/Os whose total lies in the buckets of [low_us, high_us)."""
    first, last = bucket_index(low_us), None if high_us is None else bucket_index(high_us)
    found = {}
    for stage in PARTS:
        sums = one.by_total.get(Series(*flow, stage), {}) if stage != "resume" else {}
        found[stage] = sum(us for index, us in sums.items() if index >= first and (last is None or index < last))
    return found
