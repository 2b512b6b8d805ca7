"""What two events of a trace timed, second by second, a window for each: of blkparse and of ftrace alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from latmon.histogram import Histogram
from latmon.imports.found import Times, Where
from latmon.model import Completed, Flow, Outlier, Series

SECOND = 10**9
"""Nanoseconds."""
IN_FLIGHT = 65_536
"""Begins that wait for their end."""


@dataclass(slots=True)
class Second:
    """Of a trace: what ended in it, by lines `first` to `last`."""

    number: int
    first: int
    last: int
    stage: str = "total"
    """What the whole time of each is."""
    values: dict[Series, list[int]] = field(default_factory=lambda: defaultdict(list))
    outliers: list[Outlier] = field(default_factory=list)
    bytes: dict[Flow, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, flow: Flow, one: Outlier, *, slow: bool) -> None:
        """One that ended in it, with its stages; a slow one is listed."""
        for stage, us in {**one.stages_us, self.stage: one.total_us}.items():
            self.values[Series(*flow, stage)].append(us)
        self.bytes[flow] += one.bytes or 0
        if slow:
            self.outliers.append(one)

    def times(self) -> Times:
        """Its window, which ends with the second."""
        totals = {Flow(s.device, s.op): some for s, some in self.values.items() if s.stage == self.stage}
        return Times(
            Where(self.first, self.last, float(self.number + 1), 1_000_000),
            {series: Histogram.record(some) for series, some in self.values.items()},
            tuple(self.outliers),
            {flow: Completed(len(some), self.bytes[flow], sum(some)) for flow, some in totals.items()},
        )
