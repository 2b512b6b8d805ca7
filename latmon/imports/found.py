"""What a format finds in a text, as values: tables, slow I/Os, times, counts, task queues. Not yet frames.

Everything says which lines it is from, so that what nobody took can be named. Knows no format and no recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from latmon.dtrace_rows import Row
from latmon.histogram import Histogram
from latmon.model import Completed, Flow, Frame, Origin, Outlier, Outstanding, Series, Taskq
from latmon.outstanding import Depths

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Nanoseconds."""


@dataclass(frozen=True, slots=True)
class Where:
    """First and last line, from 1, and when it was, as far as the text tells."""

    first: int
    last: int
    wall: float | None = None
    dt_us: int | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A distribution whose buckets are another tool's."""

    where: Where
    title: str
    """What the text calls it; clean."""
    kind: str
    """hist, lhist, quantize, ..."""
    rows: tuple[Row, ...]
    unit: str = ""
    """One of UNITS; empty where nothing in the text tells it."""
    unit_from: str = ""
    series: Series | None = None
    """Where the format knows; else the title tells."""
    sum_us: int | None = None
    max_us: int | None = None
    at_issue: bool = False
    """Its values are depths, not times: I/Os outstanding when one was issued."""

    told: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """What the tool printed beside the rows (min, max, mean, count), exact."""

    @property
    def count(self) -> int:
        return sum(row.count for row in self.rows if row.count > 0)


@dataclass(frozen=True, slots=True)
class Times:
    """Single I/Os or steps that were timed, or histograms whose buckets are finer than ours."""

    where: Where
    histograms: Mapping[Series, Histogram]
    outliers: tuple[Outlier, ...] = ()
    """`mono_us` and `wall` may be 0: they then began when the window did."""
    seen: Mapping[Flow, Completed] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Counts:
    """What a tool tells of the kernel's own counters in an interval."""

    where: Where
    kernel: Mapping[Flow, Completed]
    outstanding: Mapping[str, Outstanding]
    depths: Mapping[str, Depths] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Queues:
    """Task queues at one moment."""

    where: Where
    taskqs: tuple[Taskq, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A frame as latmon itself wrote it."""

    where: Where
    frame: Frame
    measured: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stage of the always-on probe -> the stages that it includes, where the text says that."""


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a recording of latmon's own."""

    where: Where
    origin: Origin


@dataclass(frozen=True, slots=True)
class Moment:
    """A line that only tells the time of what follows, or that another run begins."""

    where: Where
    run: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What had to be assumed or left out, or a line that names no value: for a person. `count`: values left out."""

    where: Where
    text: str
    count: int = 0
    lost: int = 0
    """Events that the tool itself lost: counts are too low."""
    is_incomplete: bool = False
    """A distribution, or a part of one, that is not in the recording."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Lines that are part of a format and hold nothing to keep: heads, blanks, other columns."""

    where: Where


Found = Table | Times | Counts | Queues | Whole | Head | Moment | Remark | Passed


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said of the text; an empty one is left to the text."""

    unit: str = ""
    device: str = ""
    op: str = ""
    stage: str = ""
    events: tuple[str, str] | None = None
    key: str = ""
    threshold_us: int = 100_000
    interval_us: int = 1_000_000
    start: float | None = None
    host: str = ""
    first_report: str = ""
    """Of iostat: `keep` or `drop`; empty: by what the text shows."""
