"""The slow I/Os of a device as the deep probes traced them: how many, and which part of their time each stage has.

What rules on stages share. Slow is what the device's threshold says; where that tells nothing, what lies behind the
p99. Where no table of totals is there, the outliers that were told one by one stand for it. No judgment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from latmon import deep
from latmon.findings.block import Block
from latmon.findings.facts import Facts
from latmon.histogram import Histogram, bucket_index
from latmon.model import OPS, UNACCOUNTED, Series

_BEYOND = 1 << 16
"""No bucket has so great an index."""


@dataclass(frozen=True, slots=True)
class Slow:
    """I/Os of `cut_us` and more to completion, and their time by stage; `resume` comes after it and isn't in it."""

    device: str
    cut_us: int
    count: int
    us: Mapping[str, int]

    def share(self, stage: str) -> float:
        """Of their time, 0..1."""
        whole = sum(self.us.values())
        return self.us.get(stage, 0) / whole if whole else 0.0

    def mean_us(self, stage: str) -> float:
        """Over all of them, whether they passed it or not."""
        return self.us.get(stage, 0) / self.count if self.count else 0.0


def slow(facts: Facts, device: str) -> Iterator[Slow]:
    """Above the threshold, then behind the p99: those that there are."""
    threshold = facts.thresholds_us.get(device)
    cuts = [deep.cut(facts.traced, device, threshold_us=threshold)] if threshold is not None else []
    cuts.append(deep.cut(facts.traced, device))
    found = [_traced(facts, device, cut) for cut in dict.fromkeys(cuts) if cut is not None]
    yield from (one for one in found if one.count)
    if not any(one.count for one in found) and (told := facts.outliers(device)):
        sums = Counter({UNACCOUNTED: sum(one.unaccounted_us for one in told)})
        for one in told:
            sums.update({stage: us for stage, us in one.stages_us.items() if stage != "resume"})
        yield Slow(device, min(one.total_us for one in told), len(told), sums)


def long_ones(found: Histogram, us: float) -> int:
    """How many of its values are about so long or longer: to a bucket."""
    first = bucket_index(int(us), found.bits)
    return sum(n for index, n in found.buckets if index >= first)


def lasting(facts: Facts, device: str, stage: str, us: float) -> int:
    """In how many blocks an I/O spent so long in a stage: of the last minute, or minutes where a block is as long."""
    return sum(_longest(block, device, stage) >= us for block in facts.blocks)


def time_in(facts: Facts, device: str, stage: str, buckets: range) -> int:
    """Of the traced I/Os whose total lies in these buckets the us in one stage."""
    tables = (facts.traced.by_total.get(Series(device, op, stage), {}) for op in OPS)
    return sum(us for table in tables for index, us in table.items() if index in buckets)


def _traced(facts: Facts, device: str, cut_us: int) -> Slow:
    tail = deep.tail(facts.traced, device, cut_us=cut_us)
    buckets = range(bucket_index(cut_us), _BEYOND)
    sums = {part: time_in(facts, device, part, buckets) for part in deep.PARTS if part != "resume"}
    return Slow(device, cut_us, tail.count, {part: us for part, us in sums.items() if us})


def _longest(block: Block, device: str, stage: str) -> int:
    if (traced := block.deep.tables.get("traced")) is None:
        return 0
    return max((one.max_bound or 0 for op in OPS if (one := traced.get(Series(device, op, stage)))), default=0)
