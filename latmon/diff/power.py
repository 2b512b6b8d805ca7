"""What a comparison would have found: the smallest effects that these data show in four of five cases. Pure numbers.

A row is found when its |t| passes the critical value; the effect that it takes is (critical + 0.84) standard errors
of the share above its cut. That share is turned back into a factor on latencies by the distribution of both stretches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from latmon.diff.quantile import Survival
from latmon.histogram import Histogram

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


def seen(pooled: Histogram, cuts: Sequence[tuple[int, str, float, float]]) -> Seen:
    """`cuts`: latency in us, body or tail, the standard error of the shares' difference, and the critical |t|."""
    survival = Survival(pooled)
    needs = [(us, question, (critical + _BEYOND) * error) for us, question, error, critical in cuts]
    body = next(
        (f for f in _FACTORS if any(_gain(survival, us, f) >= need for us, q, need in needs if q == "body")), None
    )
    tail = next(
        (f for f in _FACTORS if any(_gain_of_tail(survival, us, f) >= need for us, q, need in needs if q == "tail")),
        None,
    )
    return Seen(body, tail)


def _gain(survival: Survival, us: int, factor: float) -> float:
    """By how much more I/Os are above a cut when all take longer by a factor."""
    return survival.above(us / factor) - survival.above(us)


def _gain_of_tail(survival: Survival, us: int, factor: float) -> float:
    """The same when only the slowest do."""
    before = min(survival.above(us), TAIL_SHARE)
    return min(survival.above(us / factor), TAIL_SHARE) - before
