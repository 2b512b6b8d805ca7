"""Arithmetic of traced I/Os: the steps between blktrace's events, beside latmon's stages, and a map of seeks.

`steps` divides one I/O as btt does; `TraceTable` sums the steps and stages of many; `SeekMap` has their places over
time. Q2C is the sum of the other steps of each I/O: they come from the same stamps.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from latmon.model.frame import UNACCOUNTED, Outlier
from latmon.model.histogram import Histogram, bucket_index
from latmon.model.stages import ADMISSION, FACTS

SECTOR = 512


class BttStep(NamedTuple):
    """A step of btt: its name, what it is, and latmon's stages whose time it has."""

    name: str
    meaning: str
    stages: str


STEPS = (
    BttStep("Q2G", "first bio queued, until its request is allocated", "admission"),
    BttStep("G2I", "request allocated, until it is inserted into the scheduler's queue", "queue"),
    BttStep("I2D", "inserted, until the driver gets it", "queue"),
    BttStep("G2D", "request allocated, until the driver gets it, of I/Os without a known insertion", "queue"),
    BttStep("requeue", "the driver gets it first, until it gets it last (btt: a new D)", "requeue"),
    BttStep("D2C", "the driver gets it, until it is completed", "hba irq softirq completion"),
    BttStep("Q2C", "queued, until it is completed: the sum of the steps above", "admission total"),
)


def steps(one: Outlier) -> dict[str, int]:
    """Return the steps of an I/O in us by their names, those that are known; Q2C always.

    Where Q2G isn't known, Q2C begins with the request.
    """
    total = one.total_us - one.stages_us.get("resume", 0)
    found = {} if one.admission_us is None else {"Q2G": one.admission_us}
    queue = one.stages_us.get("queue")
    if queue is not None:
        requeue = one.stages_us.get("requeue")
        if one.inserted_us is None:
            found["G2D"] = queue
        else:
            # Without a stamp of the hook that of the issue may be the clock of a plug (Linux 6.9), which is early.
            inserted = min(one.inserted_us, queue)
            found |= {"G2I": inserted, "I2D": queue - inserted}
        found |= {} if requeue is None else {"requeue": requeue}
        found["D2C"] = total - queue - (requeue or 0)
    return found | {"Q2C": total + (one.admission_us or 0)}


@dataclass
class TraceTable:
    """Sums of the steps and stages of many I/Os, exact to the microsecond."""

    ios: int = 0
    bytes: int = 0
    ops: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Op -> us of Q2C -> I/Os."""
    of_step: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    of_stage: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    paths: Counter[str] = field(default_factory=Counter)

    def add(self, one: Outlier) -> None:
        self.ios += 1
        self.bytes += one.bytes or 0
        for name, us in steps(one).items():
            self.of_step[name][us] += 1
            if name == "Q2C":
                self.ops[one.op][us] += 1
        for stage, us in one.stages_us.items():
            self.of_stage[stage][us] += 1
        if one.admission_us is not None:
            self.of_stage[ADMISSION][one.admission_us] += 1
        if one.unaccounted_us:
            self.of_stage[UNACCOUNTED][one.unaccounted_us] += 1
        self.paths[one.path] += 1

    def step_rows(self) -> list[tuple[BttStep, Histogram]]:
        """Return the steps that any I/O has, in the order in which it passes them."""
        return [(one, histogram(self.of_step[one.name])) for one in STEPS if self.of_step.get(one.name)]

    def stage_rows(self) -> list[tuple[str, Histogram]]:
        """Return latmon's stages that any I/O has, in the order in which it passes them."""
        return [(one.name, histogram(self.of_stage[one.name])) for one in FACTS if self.of_stage.get(one.name)]

    def op_rows(self) -> list[tuple[str, Histogram]]:
        """Return Q2C by op, the most frequent first."""
        return sorted(
            ((op, histogram(counts)) for op, counts in self.ops.items()), key=lambda row: row[1].count, reverse=True
        )


def histogram(times: Mapping[int, int]) -> Histogram:
    """Return the histogram of times in us -> I/Os, with their exact sum and maximum."""
    counts: Counter[int] = Counter()
    for us, n in times.items():
        counts[bucket_index(us)] += n
    return Histogram.of(counts, sum(us * n for us, n in times.items()), max(times))


class Seeks(NamedTuple):
    """Distances between consecutive issues. `sequential`: those that begin where the one before ends."""

    pairs: int
    sequential: int
    median: int
    """Sectors from the end of one to the begin of the next, forth or back, of those that are not sequential."""


@dataclass
class SeekMap:
    """Places of I/Os over the time of their issue; 20 bytes for each."""

    issued_us: array[int] = field(default_factory=lambda: array("Q"))
    sectors: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("L"))

    def add(self, one: Outlier) -> None:
        """Add an I/O that has a place."""
        if one.sector is None or not one.bytes:
            return
        self.issued_us.append(one.mono_us + one.stages_us.get("queue", 0) + one.stages_us.get("requeue", 0))
        self.sectors.append(one.sector)
        self.lengths.append(-(-one.bytes // SECTOR))

    def seeks(self) -> Seeks:
        """Return the distances in the order of issue."""
        order = sorted(range(len(self.sectors)), key=self.issued_us.__getitem__)
        gaps = [self.sectors[b] - self.sectors[a] - self.lengths[a] for a, b in pairwise(order)]
        far = sorted(abs(gap) for gap in gaps if gap)
        return Seeks(len(gaps), len(gaps) - len(far), far[len(far) // 2] if far else 0)

    @property
    def span_us(self) -> tuple[int, int]:
        """The times of the first and of the last issue. ValueError without any."""
        return min(self.issued_us), max(self.issued_us)

    @property
    def extent(self) -> tuple[int, int]:
        """The first and the last sector. ValueError without any."""
        return min(self.sectors), max(a + n - 1 for a, n in zip(self.sectors, self.lengths, strict=True))

    def grid(self, columns: int, rows: int) -> list[list[int]]:
        """Return I/Os by row, the highest sectors first, and column, the earliest first. ValueError without any."""
        (begin, end), (low, high) = self.span_us, self.extent
        found = [[0] * columns for _ in range(rows)]
        for at, sector in zip(self.issued_us, self.sectors, strict=True):
            column = (at - begin) * columns // (end - begin + 1)
            row = (sector - low) * rows // (high - low + 1)
            found[rows - 1 - row][column] += 1
        return found
