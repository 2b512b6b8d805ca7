"""The device table: columns that fit the width, rows, and the order of rows. Pure.

A column's width never depends on its numbers, so nothing jumps. What isn't known is `-`; why is said by empty.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from latmon.aggregate.history import Window
from latmon.analysis.device_order import Order, Rank, natural, shares
from latmon.analysis.limits import ceiling
from latmon.model.frame import OPS, Device, Outstanding
from latmon.support.units import UNKNOWN, duration, rate, whole
from latmon.views.lines import Line, Span, cell
from latmon.views.selection import Choice
from latmon.views.units import maximum, quantile, rounded

MIX = 6
SPARKS = " ▁▂▃▄▅▆▇█"
RAMP_SPARKS = " .:░░▒▒▓█"
_SECOND = 1e6
_KILO = 1000
_OUT, _OUT_CELLS = "out/lim", 7


@dataclass(frozen=True, slots=True)
class Subject:
    """One device with all that a row is made of."""

    device: Device
    window: Window
    choice: Choice
    times_peers: float | None = None
    gone: bool = False
    trend: str = ""

    @property
    def counts(self) -> dict[str, int]:
        found = {op: self.window.completed(self.device.name, op) for op in self.choice.ops}
        return {op: c.count for op, c in found.items() if c}

    @property
    def is_counted(self) -> bool:
        """Nobody counts the I/Os of what only deep probes tell of: that they are 0 isn't known."""
        name = self.device.name
        return self.device.timed or any(self.window.completed(name, op) for op in self.choice.ops)

    @property
    def ios(self) -> int:
        return sum(self.counts.values())

    @property
    def per_second(self) -> float:
        return _SECOND / max(self.window.covered_us, 1)

    @property
    def bytes_per_second(self) -> float:
        found = (self.window.completed(self.device.name, op) for op in self.choice.ops)
        return sum(c.bytes for c in found if c) * self.per_second

    @property
    def mean_us(self) -> float | None:
        """From the histograms where there are any, else from the kernel's sums."""
        histogram = self.window.latency(self.device.name, self.choice.ops)
        if histogram:
            return histogram.mean
        found = [c for op in self.choice.ops if (c := self.window.completed(self.device.name, op)) and c.count]
        times = [c.time_us for c in found]
        known = [t for t in times if t is not None]
        return sum(known) / sum(c.count for c in found) if found and len(known) == len(times) else None

    @property
    def outstanding(self) -> Outstanding:
        last = self.window.last
        return (last.outstanding.get(self.device.name) if last else None) or Outstanding(None, None)

    @property
    def limit(self) -> int | None:
        """The most I/Os that its driver can hold, where that is known."""
        found = ceiling(self.device.limits)
        return int(found.value) if found else None

    @property
    def at_limit(self) -> bool:
        now, limit = self.outstanding.in_driver, self.limit
        return now is not None and limit is not None and now >= limit


def of_limit(now: int | None, limit: int | None) -> str:
    """3/3, 31/1023, 412/1k: in seven cells; the limit loses digits before the number does."""
    if limit is None or now is None:
        return _number(now)
    most = _thousands(limit)
    several = (f"{now}/{limit}", f"{now}/{most}", f"{rounded(now)}/{most}", f"{_thousands(now)}/{most}")
    return next((text for text in several if len(text) <= _OUT_CELLS), several[-1])


def _thousands(value: int) -> str:
    return str(value) if value < _KILO else f"{value // _KILO}k"


def of_counted(subject: Subject, per_second: float) -> str:
    """A rate of what somebody counts."""
    return rate(per_second) if subject.is_counted else UNKNOWN


def _latency(q: float) -> Callable[[Subject], str]:
    return lambda s: quantile(s.window.latency(s.device.name, s.choice.ops), q)


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else whole(value)


@dataclass(frozen=True, slots=True)
class ColumnOf:
    """A column: its title, its width, how a cell is made, and how early it appears (0 is always)."""

    title: str
    width: int
    make: Callable[[Subject], str]
    rank: int = 0
    right: bool = True
    role: str = "text"
    needs: str = ""
    """`distribution`, `mean only`, or empty for always."""


COLUMNS = (
    ColumnOf("device", 9, lambda s: s.device.name, right=False),
    ColumnOf("label", 14, lambda s: s.device.label, rank=5, right=False, role="dim"),
    ColumnOf("driver", 9, lambda s: s.device.driver or s.device.kind, rank=1, right=False, role="dim"),
    ColumnOf("model", 18, lambda s: s.device.model, rank=4, right=False, role="dim"),
    ColumnOf("mix", MIX, lambda s: mix(s.counts), rank=1, right=False, role="dim"),
    ColumnOf("IOPS", 5, lambda s: of_counted(s, s.ios * s.per_second)),
    ColumnOf("MB/s", 5, lambda s: of_counted(s, s.bytes_per_second / 1e6)),
    ColumnOf("mean", 5, lambda s: duration(s.mean_us), rank=3, role="dim", needs="distribution"),
    ColumnOf("mean", 5, lambda s: duration(s.mean_us), needs="mean only"),
    ColumnOf("p50", 5, _latency(0.5), needs="distribution"),
    ColumnOf("p90", 5, _latency(0.9), rank=2, needs="distribution"),
    ColumnOf("p99", 5, _latency(0.99), needs="distribution"),
    ColumnOf("p99.9", 5, _latency(0.999), needs="distribution"),
    ColumnOf("p99.99", 6, _latency(0.9999), rank=3, needs="distribution"),
    ColumnOf("max", 5, lambda s: maximum(s.window.latency(s.device.name, s.choice.ops)), needs="distribution"),
    ColumnOf(_OUT, _OUT_CELLS, lambda s: of_limit(s.outstanding.in_driver, s.limit)),
    ColumnOf("queue", 5, lambda s: _number(s.outstanding.queued), rank=2),
    ColumnOf("peers", 5, lambda s: "" if s.times_peers is None else f"{rounded(round(s.times_peers))}x", role="accent"),
)
TREND_MIN = 6
TREND_MAX = 60
_MARK = 1


def mix(counts: Mapping[str, int]) -> str:
    """The op mix as letters, in proportion, each op that happened at least one: rrrwwf."""
    total = sum(counts.values())
    present = [op for op in OPS if counts.get(op)]
    if not total:
        return ""
    sizes = {op: max(1, round(counts[op] * MIX / total)) for op in present}
    while sum(sizes.values()) != MIX:
        off = sum(sizes.values()) - MIX
        largest = max(present, key=lambda op: sizes[op] * 1000 + counts[op] / total)
        sizes[largest] -= 1 if off > 0 else -1
    return "".join(op[0] * sizes[op] for op in present)


def fitting(width: int, *, distribution: bool) -> tuple[tuple[ColumnOf, ...], int]:
    """The columns that fit, more the wider it is, and the cells left for the trend."""
    without = "mean only" if distribution else "distribution"
    wanted = [c for c in COLUMNS if c.needs != without]
    for rank in range(max(c.rank for c in wanted), -1, -1):
        some = tuple(c for c in wanted if c.rank <= rank)
        left = width - _MARK - sum(c.width + 1 for c in some)
        if left >= TREND_MIN + (12 if rank else 0):
            return some, min(left, TREND_MAX)
    kept = [c for c in wanted if c.rank == 0]
    while kept and _MARK + sum(c.width + 1 for c in kept) > width:
        kept.pop()
    return tuple(kept), 0


def header(columns: tuple[ColumnOf, ...], trend: int, choice: Choice, some: str = "", *, above: bool = False) -> Line:
    """The titles; the column that rows are sorted by stands out. `some`: said instead of the trend's title.

    `above`: rows are scrolled away there.
    """
    spans = [Span("↑" if above else " ", "accent")]
    for c in columns:
        role = "accent" if c.title == _sorted_column(choice) else "dim"
        spans.append(Span(f"{cell(c.title, c.width, right=c.right)} ", role))
    return (*spans, Span(cell(some or "trend", trend), "dim")) if trend else tuple(spans)


def row(subject: Subject, columns: tuple[ColumnOf, ...], trend: int) -> Line:
    """One device. A device that is gone keeps its row, dim, while the window remembers it."""
    selected = subject.device.name == subject.choice.selected
    spans = [Span("▸" if selected else " ", "accent")]
    for c in columns:
        role = "dim" if subject.gone else "accent" if selected and c.title == "device" else c.role
        if c.title == _OUT and subject.at_limit and not subject.gone:
            role = "bad"
        spans.append(Span(f"{cell(c.make(subject), c.width, right=c.right)} ", role))
    text = "gone" if subject.gone else subject.trend
    return (*spans, Span(cell(text, trend), "dim")) if trend else tuple(spans)


def order(
    subjects: list[Subject],
    sort: str,
    found: frozenset[str] = frozenset(),
    *,
    steady: Order | None = None,
    keep: bool = False,
    in_flight_us: Mapping[str, int] = MappingProxyType({}),
) -> list[Subject]:
    """Return the rows by the order of devices, or by a column and that order among equals.

    `found`: devices that a finding more urgent than a notice names; `steady`: the order that keeps rows in their place;
    `keep`: leave it as it is, since findings or samples are still missing; `in_flight_us`: how long I/Os that have not
    completed have waited.
    """
    ranks = _ranks(subjects, found, in_flight_us)
    place = {name: at for at, name in enumerate((steady or Order()).sort(ranks, keep=keep))}
    keys: dict[str, Callable[[Subject], float | tuple[object, ...]]] = {
        "name": lambda s: (s.gone, not s.ios, natural(s.device.name)),
        "p99": lambda s: -(s.window.latency(s.device.name, s.choice.ops).quantile(0.99) or 0),
        "max": lambda s: -(s.window.latency(s.device.name, s.choice.ops).max_bound or 0),
        "IOPS": lambda s: -s.ios,
        "MB/s": lambda s: -s.bytes_per_second,
        "out": _fullest,
    }
    by_place = sorted(subjects, key=lambda s: place[s.device.name])
    return sorted(by_place, key=keys[sort]) if sort in keys else by_place


def _ranks(subjects: list[Subject], found: frozenset[str], in_flight_us: Mapping[str, int]) -> list[Rank]:
    ios = {s.device.name: s.ios for s in subjects}
    busy = {n: s.window.busy_us(n, s.choice.ops) + in_flight_us.get(n, 0) for s in subjects if (n := s.device.name)}
    share = shares(ios.items(), busy.items())
    return [
        Rank(
            n,
            busy[n],
            share[n],
            s.times_peers or 0.0,
            is_named=n in found,
            is_timed=s.device.timed,
            is_gone=s.gone,
        )
        for s in subjects
        if (n := s.device.name)
    ]


def _fullest(subject: Subject) -> tuple[float, int]:
    """By the share of the limit, as the column is; then, and where no limit is known, by the number."""
    now, limit = subject.outstanding, subject.limit
    share = (now.in_driver or 0) / limit if limit else 0.0
    return -share, -now.known


def sparkline(values: list[float | None], width: int, bounds: tuple[float, float], glyphs: str = SPARKS) -> str:
    """A height per value in the logarithm between the bounds, which all devices share; blank is no I/O."""
    low, high = bounds
    octaves = math.log(max(high, 2 * low, 2) / max(low, 1))
    steps = len(glyphs) - 2
    return "".join(
        glyphs[0] if not v else glyphs[1 + min(steps, max(0, round(steps * math.log(v / max(low, 1)) / octaves)))]
        for v in values[-max(width, 1) :]
    )


def _sorted_column(choice: Choice) -> str:
    return {"unlike": "peers", "name": "device", "out": _OUT}.get(choice.sort, choice.sort)
