"""How much of a device's time passes above its driver, by stages where they are timed, else by the depths alone.

What rules on queues share: sums of a window or of one block, no judgment. By Little's law the share of the time that
passes above is the share of the outstanding I/Os that wait there, so gauges without any timed I/O tell it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from latmon.findings.block import Block
from latmon.findings.facts import Facts, merged
from latmon.findings.finding import Fact
from latmon.histogram import Histogram
from latmon.littles_law import COUNTED, Found, Times, times
from latmon.littles_law import of as law_of
from latmon.model import OPS, Limit
from latmon.outstanding import Depths, bucket_middle
from latmon.words import part, rate, whole


class Above(NamedTuple):
    """The share of the time above the driver, and how many I/Os, or ms that gauges looked at, it is of."""

    share: float
    of: int
    timed: bool
    """By stages; else by how many I/Os wait and how many the driver has."""

    @property
    def fact(self) -> Fact:
        by = f"{rate(self.of)} timed I/Os" if self.timed else "the depths alone, by Little's law"
        said = f"{part(self.share)} of the I/Os' time passes above the driver: {by}"
        return Fact("waiting", round(self.share, 3), said, "share", self.of)


class MeanSplit(NamedTuple):
    """Mean times of an I/O above the driver and from the driver on, and of how many I/Os."""

    queue_us: float
    driver_us: float
    ios: int


def mean_split(facts: Facts, device: str) -> MeanSplit | None:
    """Return the means of the stages, else those of a kernel that counts both times (Solaris); None without either."""
    driver, queue = facts.stage("hba", device), facts.stage("queue", device)
    if driver.mean is not None and queue.mean is not None:
        return MeanSplit(queue.mean, driver.mean, driver.count)
    done = facts.completed(device)
    if done is None or not done.count or done.time_us is None or done.queue_us is None:
        return None
    return MeanSplit(done.queue_us / done.count, (done.time_us - done.queue_us) / done.count, done.count)


def above_driver(facts: Facts, device: str) -> Above | None:
    """Of the window; None where nobody tells what waits from what the driver has."""
    waits = [facts.stage(stage, device, *COUNTED) for stage in ("queue", "requeue")]
    return _above(waits, facts.stage("total", device, *COUNTED), facts.depths(device))


def above_in(block: Block, device: str) -> Above | None:
    """The same of one block."""
    waits = [merged((block.histograms,), stage, device, COUNTED) for stage in ("queue", "requeue")]
    return _above(waits, merged((block.histograms,), "total", device, COUNTED), depths_in(block, device))


def depths_in(block: Block, device: str) -> Depths:
    """Moments are ms."""
    return block.depths[device].depths if device in block.depths else Depths()


def mean(moments: Mapping[int, int]) -> float:
    """Over all of the time; 0 where nobody looked."""
    ms = sum(moments.values())
    return sum(bucket_middle(depth) * n for depth, n in moments.items()) / ms if ms else 0.0


def many(ios: float) -> str:
    """So many in the mean, in words: 2.9, 41."""
    return f"{ios:.1f}" if ios < 10 else whole(round(ios))  # noqa: PLR2004 - below, a digit behind the point tells


def busy_share(moments: Mapping[int, int], least: int = 1) -> float:
    """Of the time there are so many or more."""
    ms = sum(moments.values())
    return sum(n for depth, n in moments.items() if depth >= least) / ms if ms else 0.0


def mean_bytes(facts: Facts, device: str) -> float:
    """Of an I/O; 0 where nobody counted."""
    done = facts.completed(device)
    return done.bytes / done.count if done and done.count else 0.0


def law(facts: Facts, device: str, bound: Limit | None) -> Found | None:
    """Little's law of a device over the window, and what lifting its ceiling would give."""
    sums = facts.depth_sums.get(device)
    if sums is None:
        return None
    timed = facts.stage("total", device, *COUNTED)
    by_issue = facts.origin.latency_from == "issue"
    done = {op: facts.completed(device, op) for op in OPS}
    whole = times(sums.depths, done, None if by_issue else _times(timed), timed.max_bound)
    driver = timed if by_issue else facts.stage("hba", device, *COUNTED)
    return law_of(
        sums.depths,
        sums.span_us,
        facts.span_us,
        whole=whole,
        driver=_times(driver),
        bound=bound,
        waiting=(one for one in facts.waiting if one.device == device),
        left=facts.blocks[-1].in_flight.get(device, 0),
    )


def _above(waits: list[Histogram], total: Histogram, depths: Depths) -> Above | None:
    if any(waits) and total.sum:
        return Above(min(1.0, sum(one.sum or 0 for one in waits) / total.sum), total.count, True)
    queued, in_driver = mean(depths.queued), mean(depths.in_driver)
    if not queued or not depths.in_driver:
        return None
    return Above(queued / (queued + in_driver), sum(depths.in_driver.values()), False)


def _times(found: Histogram) -> Times | None:
    return Times(found.count, found.mean, found.max_bound) if found and found.mean is not None else None
