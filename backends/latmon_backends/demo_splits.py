"""The demo's I/Os, each split into stages that add up to its latency: the story behind every tail.

`sdd` waits for a completion thread that does not get a CPU, `sdb` for a softirq that only the tick runs (4 ms), an NVMe
device completes in the hard interrupt, and the SAS disks' interrupt is shared with a slow handler. Draws no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from latmon.histogram import EMPTY, Histogram
from latmon.model import UNACCOUNTED, Flow
from latmon_backends.demo_host import TICKING, UNLIKE, Drawn
from latmon_backends.synthetic import Mode, Shape, histogram

TICK_US = 4000
SHARED_US = 20
"""What the slow handler on the disks' vector takes before theirs."""
THREAD_FROM_US = 60_000
_TICKS_FROM_US = {"read": 12_000, "write": 4_500}
_LOST = 0.002
_RESUME = Shape((Mode(0.97, 14, 0.5), Mode(0.03, 300, 0.6)))
_WAITED_FOR = ("read", "flush")


PASSED = ("queue", "hba", "irq", "softirq", "completion", UNACCOUNTED)
FIRST = 2
"""Where they begin in a split."""


class Split(NamedTuple):
    """`size` I/Os and where the time of each of them went; None: not passed."""

    size: int
    total: int
    queue: int
    hba: int | None
    irq: int | None
    softirq: int | None
    completion: int | None
    unaccounted: int

    @property
    def path(self) -> str:
        if self.hba is None:
            return ""
        if self.completion is not None:
            return "worker thread"
        return "hard interrupt" if self.softirq is None else "BLOCK softirq"

    def stages(self) -> dict[str, int]:
        """Those that were passed, without what is unaccounted."""
        named = zip(PASSED[:-1], self[FIRST:-1], strict=True)
        return {name: us for name, us in named if us is not None}


@dataclass(frozen=True, slots=True)
class Load:
    """One load's I/Os, split, and how long their issuers took to run again."""

    drawn: Drawn
    splits: tuple[Split, ...]
    resume: Histogram


def load(rng: Random, drawn: Drawn) -> Load:
    """One load of a window, split."""
    splits = tuple(_split(rng, drawn.flow, *met) for met in drawn.met)
    waited = drawn.total.count if drawn.flow.op in _WAITED_FOR else 0
    return Load(drawn, splits, histogram(_RESUME.draw(rng, waited)) if waited else EMPTY)


def _split(rng: Random, flow: Flow, size: int, queue: int, us: int) -> Split:
    if flow.device.startswith("nvme"):
        if flow.device == "nvme1n1" and rng.random() < _LOST:
            return Split(size, queue + us, queue, None, None, None, None, us)
        irq = min(2 + int(rng.random() * 4), us // 4)
        return Split(size, queue + us, queue, us - irq, irq, None, None, 0)
    unknown = int(rng.random() < 0.3)  # noqa: PLR2004 - a microsecond is lost to rounding now and then
    irq = min(SHARED_US + 4 + int(rng.random() * 5), us // 3)
    left = us - irq - unknown
    if flow.device == UNLIKE and us > THREAD_FROM_US:
        hba = 80 + int(rng.random() * 60)
        return Split(size, queue + us, queue, hba, irq, None, left - hba, unknown)
    softirq = min(5 + int(rng.random() * 12), left // 3)
    if flow.device == TICKING and us > _TICKS_FROM_US.get(flow.op, us):
        softirq = (left - 300) // TICK_US * TICK_US - int(rng.random() * 60)
    return Split(size, queue + us, queue, left - softirq, irq, softirq, None, unknown)
