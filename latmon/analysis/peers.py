"""Comparison of a device with its peers, and the order of devices on every screen and for the tracer. Pure.

The comparison is robust, distribution-free, and persistent over parts of a window. A device's tail is its third slowest
I/O. The bar is far above the median of the peers' tails, in units of their scatter: a maximum is an extreme value and
would flag noise (OpenZFS tried a textbook 1.5 or 2 x IQR rule on maxima and shipped it as 50 x). A device is unlike its
peers if it has more I/Os above the bar than its share of all I/Os explains by chance, and has them in three of the
window's six parts: a single incident causes many slow I/Os, but the device is not slow. Means are not used.

In the order devices with a finding come first, in the order of the findings, then those with the greatest share of
I/Os above the threshold, those that are unlike their peers, those whose I/O takes the most time, then by name. The
share counts in steps of a factor of 4. Time counts in steps of a factor of 4 below the busiest device, and a device
leaves its step only when it is clearly in another one: rows with similar load keep their place while their numbers
change.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from latmon.model.frame import Device, Frame
from latmon.model.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model.inflight import Aged

RANK = 3
"""Rank of the tail among the slowest I/Os: any device may have two outliers."""

Counts = dict[int, int]
"""Bucket -> I/Os."""
LOAD_STEP = 4
"""Times as much time: one step."""
_LEAVES_STEP = 0.75
"""Steps from the middle of a step at which a device leaves it: 0.5 is its edge."""
_IDLE_STEP = 1_000
_SMALL, _SMALL_UNTIL = 0.01, 0.02
"""Share of the host's I/O below which a device comes last, and from which it comes back."""
_MEMORY = re.compile(r"(loop|ram|zram|zd)\d+")
"""Devices on files and in memory, and ZFS volumes, whose I/O is another disk's as well."""
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
    for device in devices:
        groups.setdefault((device.kind, device.driver, device.model), []).append(device.name)
    return list(groups.values())


def beyond(tails: Mapping[str, float | None], measure: Measure) -> dict[str, Beyond]:
    """Return the devices whose tail is far above their peers'; a tail of None is unknown."""
    known = {name: tail for name, tail in tails.items() if tail is not None}
    peers = len(known) - 1
    if peers < max(measure.peers, 1):
        return {}
    ordered, scattered = sorted(known.values()), dict[float, list[float]]()
    ios_beyond: dict[str, Beyond] = {}
    for name, own in known.items():
        middle = median_without(ordered, own)
        if own <= middle + measure.octaves:
            continue
        if middle not in scattered:  # there are three medians at most, no matter which device is left out
            scattered[middle] = sorted(abs(tail - middle) for tail in ordered)
        scatter = median_without(scattered[middle], abs(own - middle))
        bar = middle + max(measure.octaves, measure.scatters * scatter)
        if own > bar:
            ios_beyond[name] = Beyond(own, middle, bar, peers)
    return ios_beyond


def median_without(ordered: Sequence[float], left_out: float) -> float:
    """Return the median of a sorted sequence without one of its elements; so thousands of devices are sorted once."""
    at, n = bisect_left(ordered, left_out), len(ordered) - 1
    low, high = (ordered[k if k < at else k + 1] for k in ((n - 1) // 2, n // 2))
    return (low + high) / 2


def chance(above: int, total: int, share: float) -> float:
    """Return an upper bound of the probability that `above` of `total` belong to a device with this share of all I/Os.

    It is Chernoff's bound of the binomial test: exact if `above` is `total`, and cheap for a million I/Os.
    """
    part = above / total if total else 0.0
    if part <= share:
        return 1.0
    remainder = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + remainder))


def counts_of(histograms: Iterable[Histogram]) -> Counts:
    """Add histograms at the scale of BITS."""
    counts: Counts = {}
    for histogram in histograms:
        fine = histogram.bits == BITS
        if fine and not counts:
            counts.update(histogram.buckets)
            continue
        for index, n in histogram.buckets:
            bucket = index if fine else at_scale(index, histogram)
            counts[bucket] = counts.get(bucket, 0) + n
    return counts


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
    first = bisect_right(_ENDS, bar)
    return sum(n for index, n in counts.items() if index >= first)


def above_in(histogram: Histogram, bar: float) -> int:
    """Return the number of a histogram's I/Os above the bar, at the scale of BITS."""
    if histogram.bits != BITS:
        return above(counts_of((histogram,)), bar)
    first, ios = bisect_right(_ENDS, bar), 0
    for index, n in reversed(histogram.buckets):  # few are above it
        if index < first:
            break
        ios += n
    return ios


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
    totals = [sum(buckets.values()) for buckets in sets]
    below = [0] * len(sets)
    slowest_counts: Counts = {}
    reached = 0
    for index in sorted({index for buckets in sets for index in buckets}):
        below = [n + buckets.get(index, 0) for n, buckets in zip(below, sets, strict=True)]
        now = round(_MILLION * math.prod(n / total for n, total in zip(below, totals, strict=True)))
        if now > reached:
            slowest_counts[index], reached = now - reached, now
    return slowest_counts


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Return device -> ratio of its tail to its peers', for devices that are unlike them."""
    timed = _timed(frames, min(window_us // INTERVALS, _LONGEST_US), frozenset(ops))
    unlike_tails: dict[str, float] = {}
    for names in like(devices.values()):
        unlike_tails.update(_unlike({name: timed[name] for name in names if name in timed}))
    return unlike_tails


def _unlike(timed: Mapping[str, Timed]) -> dict[str, float]:
    tails = {name: tail_of(_slowest(parts)) for name, parts in timed.items()}
    lasting = {
        name: excess
        for name, excess in beyond(tails, Measure()).items()
        if _parts_above(timed[name], excess.bar) >= RUN
    }
    odd = _odd(timed, {name: beyond.bar for name, beyond in lasting.items()}) if lasting else set()
    return {name: 2 ** (beyond.own - beyond.middle) for name, beyond in lasting.items() if name in odd}


def _odd(timed: Mapping[str, Timed], bars: Mapping[str, float]) -> set[str]:
    """Return those devices of `bars` that have more I/Os above their bar than chance explains."""
    totals = {name: sum(histogram.count for _, histogram in parts) for name, parts in timed.items()}
    total = sum(totals.values())
    slow = {bar: {name: _timed_above(parts, bar) for name, parts in timed.items()} for bar in set(bars.values())}
    all_slow = {bar: sum(by_name.values()) for bar, by_name in slow.items()}
    return {
        name
        for name, bar in bars.items()
        if chance(slow[bar][name], all_slow[bar], totals[name] / total) * len(timed) < _CHANCE
    }


def _timed_above(parts: Timed, bar: float) -> int:
    return sum(above_in(histogram, bar) for _, histogram in parts)


def _timed(frames: Iterable[Frame], length_us: int, ops: frozenset[str]) -> dict[str, Timed]:
    """Return the I/Os of each device with their part; parts begin at fixed times, so that they don't move."""
    parts_by_device: dict[str, Timed] = {}
    for frame in frames:
        part = (frame.mono_us - frame.dt_us // 2) // max(length_us, 1)
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops:
                parts_by_device.setdefault(series.device, []).append((part, histogram))
    return parts_by_device


def _slowest(parts: Timed) -> Counts:
    """Return the slowest I/Os of each part, sufficient for the tail."""
    slowest_counts: Counts = {}
    for _, histogram in parts:
        left, fine = RANK, histogram.bits == BITS
        for index, n in reversed(histogram.buckets):
            bucket = index if fine else at_scale(index, histogram)
            slowest_counts[bucket] = slowest_counts.get(bucket, 0) + n
            left -= n
            if left <= 0:
                break
    return slowest_counts


def _parts_above(parts: Timed, bar: float) -> int:
    """Return the number of parts with an I/O above the bar."""
    return len(
        {
            part
            for part, histogram in parts
            if histogram and octaves(at_scale(histogram.buckets[-1][0], histogram)) > bar
        }
    )


class Rank(NamedTuple):  # of thousands of devices in each second: a frozen dataclass takes thrice the time
    """Sort key of one device.

    `busy_us`: the time of its I/Os, completed and in flight; `share`: its share of the host's I/O, 0 to 1; `unlike`:
    how many times slower its tail is than its peers', 0 where it is like them; `finding`: the place of the finding on
    it, None without one; `slow`: the share of its I/Os above the threshold, 0 to 1.
    """

    name: str
    busy_us: float = 0.0
    share: float = 1.0
    unlike: float = 0.0
    finding: float | None = None
    is_timed: bool = True
    is_gone: bool = False
    slow: float = 0.0


class Order:
    """Keeps the step of each device from one call to the next."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}
        self._slow_steps: dict[str, int] = {}
        self._small: set[str] = set()
        self._last: list[str] = []

    def sort(self, ranks: Sequence[Rank], *, keep: bool = False, waits: bool = False) -> list[str]:
        """Return the names in order.

        `keep`: the ranks are incomplete, so the last order is kept, and new devices are appended by name. `waits`: they
        lack the findings, which may move every row a moment later, so that without a last order all are by name.
        """
        if waits or (keep and self._last):
            place = {name: at for at, name in enumerate(self._last)}
            return sorted((rank.name for rank in ranks), key=lambda name: (place.get(name, len(place)), by_name(name)))
        busiest_us = max((rank.busy_us for rank in ranks), default=0.0)
        self._steps = {rank.name: self._step(rank, busiest_us) for rank in ranks if rank.busy_us > 0}
        self._slow_steps = {rank.name: self._slow_step(rank) for rank in ranks if rank.slow > 0}
        self._small = {rank.name for rank in ranks if self._is_small(rank)}
        in_order = sorted(ranks, key=lambda rank: by_name(rank.name))
        self._last = [rank.name for rank in sorted(in_order, key=self._place)]
        return self._last

    def _place(self, rank: Rank) -> tuple[object, ...]:
        """Return the sort key of one device, without its name."""
        name, _, _, unlike, finding, is_timed, is_gone, slow = rank
        on_another, _ = by_name(name)
        is_named = finding is not None
        is_last = on_another or (name in self._small and not unlike and not slow) or is_gone
        step, slow_step = self._steps.get(name, _IDLE_STEP), self._slow_steps.get(name, _IDLE_STEP)
        place = _IDLE_STEP if finding is None else finding
        return is_last and not is_named, is_gone, place, slow_step, -unlike, not is_timed, step, on_another

    def _step(self, rank: Rank, busiest_us: float) -> int:
        if rank.busy_us <= 0:
            return _IDLE_STEP
        below = math.log(busiest_us / rank.busy_us, LOAD_STEP)
        before = self._steps.get(rank.name, _IDLE_STEP)
        return before if abs(below - before) <= _LEAVES_STEP else round(below)

    def _slow_step(self, rank: Rank) -> int:
        below = math.log(1 / rank.slow, LOAD_STEP)
        before = self._slow_steps.get(rank.name, _IDLE_STEP)
        return before if abs(below - before) <= _LEAVES_STEP else round(below)

    def _is_small(self, rank: Rank) -> bool:
        return rank.share < (_SMALL_UNTIL if rank.name in self._small else _SMALL)


def is_on_another(name: str) -> bool:
    """Return whether the device is on a file or in memory, so that its I/O is none or another disk's as well."""
    return bool(_MEMORY.fullmatch(name))


def shares(ios: Iterable[tuple[str, float]], busy_us: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return each device's share of the host's I/O: the greater one of its shares of number and time."""
    shares: dict[str, float] = {}
    for loads in (dict(ios), dict(busy_us)):
        total = sum(loads.values())
        for name, part in loads.items():
            shares[name] = max(shares.get(name, 0.0), part / total if total else 0.0)
    return shares


def in_flight_us(ios: Iterable[Aged], window_us: int) -> dict[str, int]:
    """Return for each device how long its I/Os in flight have waited in the window, together, in us."""
    in_flight_us: dict[str, int] = {}
    for aged in ios:
        in_flight_us[aged.device] = in_flight_us.get(aged.device, 0) + aged.count * min(aged.age_us, window_us)
    return in_flight_us


@lru_cache(1 << 14)
def by_name(name: str) -> tuple[bool, tuple[tuple[int, str], ...]]:
    """Return the sort key of a list without load: natural order, devices on files and in memory last."""
    return is_on_another(name), natural(name)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sort key that puts sda2 before sda10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part)
