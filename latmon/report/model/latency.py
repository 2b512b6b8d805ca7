"""Latencies of a report: quantiles of a distribution, and where the slowest I/Os spent their time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from latmon.model.histogram import BITS
from latmon.support.typed_json import IfAny, Key, OrAbsent

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}
"""Name -> part of the I/Os that are at most as long."""
RAREST, RAREST_Q = "p99.999", 0.99999
"""A quantile that is absent with fewer than 100,000 I/Os."""


@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Latencies in us. A quantile is the upper bound of its bucket, null with too few I/Os (p99.9 needs 1,000)."""

    count: int
    p50: int | None
    p90: int | None
    p99: int | None
    p99_9: Annotated[int | None, Key("p99.9")]
    p99_99: Annotated[int | None, Key("p99.99")]
    p99_999: Annotated[OrAbsent[int], Key(RAREST)] = None
    """There from 100,000 I/Os on."""
    max: int | None
    """null where the exact maximum is not known."""
    mean: float | None
    """null where a sum is not known."""
    max_bound: OrAbsent[int] = None
    """Upper bound of a maximum that is not known exactly."""
    octave_parts: OrAbsent[int] = None
    """Buckets per octave, where they are fewer than 8."""
    open_from: OrAbsent[int] = None
    """Beginning of the source's last row, which has no upper bound."""
    or_more: IfAny[tuple[str, ...]] = ()
    """The values that lie in that row."""

    def quantile(self, name: str) -> int | None:
        """Return the quantile of that name, as p99.9."""
        value: int | None = getattr(self, name.replace(".", "_"))
        return value

    @property
    def highest_us(self) -> int | None:
        """Return the maximum, or its upper bound; None where neither is known."""
        return self.max_bound if self.max is None else self.max

    @property
    def parts(self) -> int:
        """Return the number of buckets per octave."""
        return 2**BITS if self.octave_parts is None else self.octave_parts


@dataclass(frozen=True, kw_only=True)
class SummedQuantiles(Quantiles):
    """Latencies in us with their sum."""

    sum: int | None
    """us."""


@dataclass(frozen=True, kw_only=True)
class StageQuantiles(SummedQuantiles):
    """Time of I/Os in a stage, in us."""

    includes: tuple[str, ...]
    """Stages that are measured as a part of it."""


@dataclass(frozen=True)
class Tail:
    """Where I/Os from `cut_us` on spent their time."""

    cut_us: int
    count: int
    share: Mapping[str, float]
    """Part of the time of these I/Os by stage, 0 to 1; `unaccounted` is the rest."""
