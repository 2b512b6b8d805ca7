"""A minute's windows as one value: all that a sum over a recording needs of them, and nothing else.

Only plain minutes have one (minute_sums.py says what that is), so that sums come to the same by it and by its windows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.ages import Settled
from latmon.coverage import Coverage
from latmon.depth_totals import DepthSums
from latmon.histogram import Histogram
from latmon.lba_order import LbaOrder
from latmon.model import Completed, Flow, Frame, Series
from latmon.taskqs import Summed

_PARTS = 1_000_000


@dataclass
class Weighted:
    """A mean whose parts weigh differently; None while it has none. Whole numbers: any order gives the same."""

    sum: int = 0
    """In millionths."""
    weight: int = 0

    def add(self, value: float | None, weight: int) -> None:
        if value is not None and weight > 0:
            self.sum += round(value * _PARTS) * weight
            self.weight += weight

    def take(self, other: Weighted) -> None:
        """Parts that are already added up."""
        self.sum += other.sum
        self.weight += other.weight

    @property
    def mean(self) -> float | None:
        return self.sum / self.weight / _PARTS if self.weight else None


@dataclass(frozen=True, slots=True)
class Minute:
    """`frame` is the sum of its windows as if it were one, without what doesn't add up; the rest stands beside it."""

    frame: Frame
    windows: int
    longest_us: int
    first_dt_us: int
    """How long the first window was."""
    coverage: Mapping[str, Coverage] = field(default_factory=lambda: MappingProxyType({}))
    gauges: Mapping[str, Mapping[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Device -> I/Os in flight at the end of a window -> how long such windows were."""
    depths: Mapping[str, DepthSums] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[str, LbaOrder] = field(default_factory=lambda: MappingProxyType({}))
    waiting: Settled = field(default_factory=Settled)
    taskqs: tuple[Summed, ...] | None = None
    """None where none were read."""
    cpu: Weighted = field(default_factory=Weighted)
    probe_cpu: Weighted = field(default_factory=Weighted)
    probe_ns: Weighted = field(default_factory=Weighted)

    @property
    def mono_us(self) -> int:
        """Where its last window ends."""
        return self.frame.mono_us

    @property
    def dt_us(self) -> int:
        """From the begin of its first window to the end of its last one."""
        return self.frame.dt_us

    @property
    def wall(self) -> float:
        return self.frame.wall

    @property
    def histograms(self) -> Mapping[Series, Histogram]:
        return self.frame.histograms

    @property
    def seen(self) -> Mapping[Flow, Completed]:
        return self.frame.seen

    @property
    def kernel(self) -> Mapping[Flow, Completed]:
        return self.frame.kernel
