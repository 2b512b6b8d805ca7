"""Comparison of a device with its peers: robust, distribution-free, and persistent over parts of a window.

A device's tail is its third slowest I/O. The bar is far above the median of the peers' tails, in units of their
scatter: a maximum is an extreme value and would flag noise (OpenZFS tried a textbook 1.5 or 2 x IQR rule on maxima and
shipped it as 50 x). A device is unlike its peers if it has more I/Os above the bar than its share of all I/Os explains
by chance, and has them in three of the window's six parts: a single incident causes many slow I/Os, but the device is
not slow. Means are not used.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from latmon.model.frame import Device, Frame
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index

RANK = 3
"""Rank of the tail among the slowest I/Os: any device may have two outliers."""

Counts = dict[int, int]
"""Bucket -> I/Os."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Distance of the bar from the median: octaves, scatters, and the least number of peers."""

    octaves: float = 2.0
    scatters: float = 5.0
    peers: int = 3


@dataclass(frozen=True, slots=True)
class Beyond:
    """A device whose tail is above the bar; values are log2 of us."""

    own: float
    middle: float
    """Median of its peers' tails."""
    bar: float
    peers: int


def like(devices: Iterable[Device]) -> list[list[str]]:
    """Group the names of devices of the same kind, driver and model."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for one in devices:
        groups.setdefault((one.kind, one.driver, one.model), []).append(one.name)
    return list(groups.values())


def beyond(tails: Mapping[str, float | None], measure: Measure) -> dict[str, Beyond]:
    """Return the devices whose tail is far above their peers'; a tail of None is unknown."""
    known = {name: tail for name, tail in tails.items() if tail is not None}
    peers = len(known) - 1
    if peers < max(measure.peers, 1):
        return {}
    ordered, scattered = sorted(known.values()), dict[float, list[float]]()
    found: dict[str, Beyond] = {}
    for name, own in known.items():
        middle = _median_without(ordered, own)
        if own <= middle + measure.octaves:
            continue
        if middle not in scattered:  # there are three medians at most, no matter which device is left out
            scattered[middle] = sorted(abs(tail - middle) for tail in ordered)
        scatter = _median_without(scattered[middle], abs(own - middle))
        bar = middle + max(measure.octaves, measure.scatters * scatter)
        if own > bar:
            found[name] = Beyond(own, middle, bar, peers)
    return found


def _median_without(ordered: Sequence[float], one: float) -> float:
    """Return the median of a sorted sequence without one of its elements; so thousands of devices are sorted once."""
    at, n = bisect_left(ordered, one), len(ordered) - 1
    low, high = (ordered[k if k < at else k + 1] for k in ((n - 1) // 2, n // 2))
    return (low + high) / 2


def chance(above: int, total: int, share: float) -> float:
    """Return an upper bound of the probability that `above` of `total` belong to a device with this share of all I/Os.

    It is Chernoff's bound of the binomial test: exact if `above` is `total`, and cheap for a million I/Os.
    """
    part = above / total if total else 0.0
    if part <= share:
        return 1.0
    rest = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + rest))


def counts_of(some: Iterable[Histogram]) -> Counts:
    """Add histograms at the scale of BITS."""
    found: Counts = {}
    for one in some:
        fine = one.bits == BITS
        if fine and not found:
            found.update(one.buckets)
            continue
        for index, n in one.buckets:
            here = index if fine else at_scale(index, one)
            found[here] = found.get(here, 0) + n
    return found


def at_scale(index: int, histogram: Histogram) -> int:
    """Return a histogram's bucket at the scale of BITS."""
    return index if histogram.bits == BITS else bucket_index(bucket_bounds(index, histogram.bits)[0])


def tail_of(counts: Counts, rank: int = RANK) -> float | None:
    """Return log2 of the I/O with that rank from the slowest; None with fewer I/Os."""
    left = rank
    for index in sorted(counts, reverse=True):
        left -= counts[index]
        if left <= 0:
            return octaves(index)
    return None


def above(counts: Counts, bar: float) -> int:
    """Return the number of I/Os above the bar."""
    return _above(counts.items(), bar)


def above_in(histogram: Histogram, bar: float) -> int:
    """Return the number of a histogram's I/Os above the bar, at the scale of BITS."""
    return _above(histogram.buckets if histogram.bits == BITS else counts_of((histogram,)).items(), bar)


def _above(counts: Iterable[tuple[int, int]], bar: float) -> int:
    first = bisect_right(_ENDS, bar)
    return sum(n for index, n in counts if index >= first)


def time_of(counts: Counts, bar: float = -1.0) -> float:
    """Return the time of the I/Os above the bar in us, by the middles of their buckets."""
    first = bisect_right(_ENDS, bar)
    return sum(n * sum(bucket_bounds(index)) / 2 for index, n in counts.items() if index >= first)


def octaves(index: int) -> float:
    """Return log2 of the end of a bucket."""
    return _ENDS[index]


def slowest_of(sets: Sequence[Counts]) -> Counts:
    """Return the distribution of the slowest of one I/O of each set, in millionths; empty where a set is empty.

    It is the product of their distribution functions, for independent latencies.
    """
    if not sets or not all(sets):
        return {}
    totals = [sum(one.values()) for one in sets]
    below = [0] * len(sets)
    found: Counts = {}
    reached = 0
    for index in sorted({index for one in sets for index in one}):
        below = [n + one.get(index, 0) for n, one in zip(below, sets, strict=True)]
        now = round(_MILLION * math.prod(n / total for n, total in zip(below, totals, strict=True)))
        if now > reached:
            found[index], reached = now - reached, now
    return found


_MILLION = 1_000_000
_ENDS = tuple(math.log2(bucket_bounds(index)[1]) for index in range(256))
"""log2 of the end of each bucket; more than needed: TOP is 239."""


INTERVALS = 6
"""Parts of a window."""
RUN = 3
"""Parts in which a device must be above the bar."""
_LONGEST_US = 10_000_000
"""Maximal length of a part: in a window of ten minutes a device is found within five."""
_CHANCE = 5e-4
"""Probability of a false finding in a group of equal devices; RUN excludes slow I/Os at one time."""

Timed = list[tuple[int, Histogram]]
"""Number of a part -> histogram of a device's I/Os in it, as pairs."""


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Return device -> ratio of its tail to its peers', for devices that are unlike them."""
    timed = _timed(frames, min(window_us // INTERVALS, _LONGEST_US), frozenset(ops))
    found: dict[str, float] = {}
    for names in like(devices.values()):
        found.update(_unlike({name: timed[name] for name in names if name in timed}))
    return found


def _unlike(timed: Mapping[str, Timed]) -> dict[str, float]:
    tails = {name: tail_of(_slowest(some)) for name, some in timed.items()}
    lasting = {name: one for name, one in beyond(tails, Measure()).items() if _parts_above(timed[name], one.bar) >= RUN}
    odd = _odd(timed, {name: one.bar for name, one in lasting.items()}) if lasting else set()
    return {name: 2 ** (one.own - one.middle) for name, one in lasting.items() if name in odd}


def _odd(timed: Mapping[str, Timed], bars: Mapping[str, float]) -> set[str]:
    """Return those devices of `bars` that have more I/Os above their bar than chance explains."""
    whole = {name: counts_of(one for _, one in some) for name, some in timed.items()}
    totals = {name: sum(counts.values()) for name, counts in whole.items()}
    every = sum(totals.values())
    slow = {bar: {name: above(counts, bar) for name, counts in whole.items()} for bar in set(bars.values())}
    all_slow = {bar: sum(by_name.values()) for bar, by_name in slow.items()}
    return {
        name
        for name, bar in bars.items()
        if chance(slow[bar][name], all_slow[bar], totals[name] / every) * len(whole) < _CHANCE
    }


def _timed(frames: Iterable[Frame], length_us: int, ops: frozenset[str]) -> dict[str, Timed]:
    """Return the I/Os of each device with their part; parts begin at fixed times, so that they don't move."""
    found: dict[str, Timed] = {}
    for frame in frames:
        part = (frame.mono_us - frame.dt_us // 2) // max(length_us, 1)
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops:
                found.setdefault(series.device, []).append((part, histogram))
    return found


def _slowest(some: Timed) -> Counts:
    """Return the slowest I/Os of each part, sufficient for the tail."""
    found: Counts = {}
    for _, one in some:
        left, fine = RANK, one.bits == BITS
        for index, n in reversed(one.buckets):
            here = index if fine else at_scale(index, one)
            found[here] = found.get(here, 0) + n
            left -= n
            if left <= 0:
                break
    return found


def _parts_above(some: Timed, bar: float) -> int:
    """Return the number of parts with an I/O above the bar."""
    return len({part for part, one in some if one and octaves(at_scale(one.buckets[-1][0], one)) > bar})
