"""More than two stretches: a row each, by the setting that differs, and whether a column goes one way. Values only.

The trend's test is Kendall's S over all orders of the captures, exact up to seven of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from random import Random

from latmon.diff.burden import burden
from latmon.diff.setting import Difference, differing
from latmon.diff.stretch import Stretch
from latmon.histogram import Histogram, merge

COLUMNS = ("MB/s", "IOPS", "p50", "p99", "p99.9", "max")
LEAST = 3
_EXACT = 7
_DRAWN = 4999
_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class Entry:
    """One capture's row: rates a second, latencies in us, None where there are too few I/Os."""

    name: str
    values: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Trend:
    """A column that only rises or only falls from row to row. `p` is two-sided."""

    column: str
    rises: bool
    p: float

    @property
    def sure(self) -> bool:
        return self.p <= _SIGNIFICANT


@dataclass(frozen=True, slots=True)
class Sweep:
    """`setting`: what the rows are ordered by; empty: the order in which they were given."""

    setting: str
    device: str
    entries: tuple[Entry, ...]
    trends: tuple[Trend, ...]


def sweep(stretches: Sequence[Stretch], device: str = "") -> Sweep:
    """Of one device, or of all."""
    setting, values = swept(stretches)
    order = sorted(range(len(stretches)), key=lambda i: _rank(values[i])) if setting else range(len(stretches))
    entries = tuple(_entry(stretches[i], values[i] if setting else stretches[i].name, device) for i in order)
    return Sweep(setting, device, entries, tuple(t for c in COLUMNS if (t := _trend(c, entries)) is not None))


def devices(stretches: Sequence[Stretch]) -> list[str]:
    """Those that all captures have I/O of."""
    found = [{flow.device for unit in one.units for flow in unit.done} for one in stretches]
    return sorted(set.intersection(*found)) if found else []


def swept(stretches: Sequence[Stretch]) -> tuple[str, list[str]]:
    """The one setting that has another value in each of them, and those values; empty where there is none or many."""
    every = [differing(stretches[0], one) for one in stretches[1:]]
    shared = {(one.section, one.name) for one in every[0]} if every else set()
    for some in every[1:]:
        shared &= {(one.section, one.name) for one in some}
    found: dict[tuple[str, str], list[str]] = {}
    for key in sorted(shared):
        first = next(one.a for one in every[0] if (one.section, one.name) == key)
        values = [first, *(_value(some, key) for some in every)]
        if len(set(values)) == len(values) and all(values):
            found[key] = values
    names = {name for _, name in found}
    if len(names) != 1:
        return "", ["" for _ in stretches]
    (section, name), values = next(iter(found.items()))
    return (name if len(found) > 1 else f"{section} {name}"), values


def _value(some: Sequence[Difference], key: tuple[str, str]) -> str:
    return next(one.b for one in some if (one.section, one.name) == key)


def _rank(value: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return (0, number, value) if math.isfinite(number) else (1, 0.0, value)


def _entry(stretch: Stretch, name: str, device: str) -> Entry:
    load, total = burden(stretch, device), _latency(stretch, device)
    quantiles = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
    values: dict[str, float | None] = {"MB/s": load.mb_per_s, "IOPS": load.iops}
    values |= {column: total.quantile(q) for column, q in quantiles.items()}
    return Entry(name, values | {"max": total.max_bound})


def _latency(stretch: Stretch, device: str) -> Histogram:
    some = [one for one in stretch.series() if one.stage == "total" and device in ("", one.device)]
    bits = min((stretch.bits[one] for one in some), default=0)
    return merge(stretch.total(one, bits) for one in some)


def _trend(column: str, entries: Sequence[Entry]) -> Trend | None:
    values = [one.values[column] for one in entries]
    known = [value for value in values if value is not None]
    if len(known) < LEAST or len(known) < len(values):
        return None
    rises = all(b > a for a, b in pairwise(known))
    falls = all(b < a for a, b in pairwise(known))
    return Trend(column, rises, _chance(known)) if rises or falls else None


def _chance(values: Sequence[float]) -> float:
    """Of an S as far from 0 in any order of the captures."""
    seen = abs(_kendall(values))
    if len(values) <= _EXACT:
        found = [abs(_kendall(some)) >= seen for some in permutations(values)]
        return sum(found) / len(found)
    rng = Random(1)  # noqa: S311  no secret: the same files must give the same answer
    drawn = sum(abs(_kendall(rng.sample(list(values), len(values)))) >= seen for _ in range(_DRAWN))
    return (drawn + 1) / (_DRAWN + 1)


def _kendall(values: Sequence[float]) -> int:
    return sum((b > a) - (b < a) for i, a in enumerate(values) for b in values[i + 1 :])
