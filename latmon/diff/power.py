"""What a comparison would have found: the smallest effects that these data show in four of five cases. Pure numbers.

A row is found when its difference is beyond the least that matters by `critical` standard errors, and beyond what the
stretches wander by themselves; 0.84 standard errors more make that four of five cases. That share is turned back into
a factor on latencies by the distribution of both stretches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

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
