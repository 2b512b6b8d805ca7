"""Which device is unlike its peers: robust, distribution-free, and only when it stays so over several intervals.

A device's tail is its third slowest I/O: a maximum is an extreme value and would flag noise (a textbook 1.5 or 2 x IQR
rule on maxima was tried by OpenZFS and shipped as 50 x). The bar is far above the median of the peers' tails, measured
in those tails' scatter. A device is unlike when it has more I/Os above the bar than chance gives its share of all I/Os,
and has them in three parts of the window: one bad moment is many slow I/Os but no sick device, and a sick one may well
leave a part out. Means play no part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from latmon.histogram import BITS, Histogram, bucket_bounds, bucket_index
from latmon.model import Device, Frame

INTERVALS = 6
"""A window is looked at in so many parts."""
RUN = 3
"""Parts in which a device must have been above the bar."""
MIN_PEERS = 3
_LONGEST_US = 10_000_000
"""Of a part: in a window of ten minutes a device is found before five of them are over."""
_RANK = 3
_MIN_OCTAVES = 2.0
_SCATTERS = 5.0
_CHANCE = 5e-4
"""Of a finding in a group of equal devices; slow I/Os that come together are what RUN is for."""

Counts = dict[int, int]
"""I/Os per bucket."""
Timed = list[tuple[int, Histogram]]
"""A device's I/Os, each time with the number of the part that they are of."""


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Device -> how many times slower its tail is than its peers', for those that are unlike them."""
    timed = _timed(frames, min(window_us // INTERVALS, _LONGEST_US), frozenset(ops))
    groups: dict[tuple[str, str], list[str]] = {}
    for device in devices.values():
        groups.setdefault((device.kind, device.driver), []).append(device.name)
    found: dict[str, float] = {}
    for names in groups.values():
        found.update(_unlike({name: timed[name] for name in names if name in timed}))
    return found


def chance(above: int, total: int, share: float) -> float:
    """At most how likely it is that `above` of `total` I/Os are of a device that has this share of all.

    Chernoff's bound of the binomial test: exact when all of them are, and as cheap for a million I/Os.
    """
    part = above / total if total else 0.0
    if part <= share:
        return 1.0
    rest = (1 - part) * math.log((1 - part) / (1 - share)) if part < 1 else 0.0
    return math.exp(-total * (part * math.log(part / share) + rest))


def _unlike(timed: Mapping[str, Timed]) -> dict[str, float]:
    tails = {name: tail for name, some in timed.items() if (tail := _tail(_slowest(some))) is not None}
    found: dict[str, float] = {}
    for name, own in tails.items():
        peers = [tail for other, tail in tails.items() if other != name]
        if len(peers) < MIN_PEERS:
            continue
        middle = median(peers)
        bar = middle + max(_MIN_OCTAVES, _SCATTERS * median(abs(tail - middle) for tail in peers))
        if own > bar and _parts_above(timed[name], bar) >= RUN and _odd(timed, name, bar):
            found[name] = 2 ** (own - middle)
    return found


def _odd(timed: Mapping[str, Timed], name: str, bar: float) -> bool:
    """Whether chance can't have given this device so many of the I/Os above the bar."""
    whole = {other: _counts(one for _, one in some) for other, some in timed.items()}
    share = sum(whole[name].values()) / sum(sum(counts.values()) for counts in whole.values())
    above = {other: _above(counts, bar) for other, counts in whole.items()}
    return chance(above[name], sum(above.values()), share) * len(whole) < _CHANCE


def _timed(frames: Iterable[Frame], length_us: int, ops: frozenset[str]) -> dict[str, Timed]:
    """The I/Os of each device with their part; parts lie on the clock, so that they don't change as time goes on."""
    found: dict[str, Timed] = {}
    for frame in frames:
        part = (frame.mono_us - frame.dt_us // 2) // max(length_us, 1)
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops:
                found.setdefault(series.device, []).append((part, histogram))
    return found


def _slowest(some: Timed) -> Counts:
    """The slowest I/Os, among them all that a tail is found by."""
    found: Counts = {}
    for _, one in some:
        left = _RANK
        for index, n in reversed(one.buckets):
            here = _here(index, one)
            found[here] = found.get(here, 0) + n
            left -= n
            if left <= 0:
                break
    return found


def _parts_above(some: Timed, bar: float) -> int:
    """Parts in which an I/O took longer."""
    return len({part for part, one in some if one and _octaves(_here(one.buckets[-1][0], one)) > bar})


def _counts(some: Iterable[Histogram]) -> Counts:
    found: Counts = {}
    for one in some:
        for index, n in one.buckets:
            here = _here(index, one)
            found[here] = found.get(here, 0) + n
    return found


def _here(index: int, histogram: Histogram) -> int:
    """The bucket at our scale."""
    return index if histogram.bits == BITS else bucket_index(bucket_bounds(index, histogram.bits)[0])


def _above(counts: Counts, bar: float) -> int:
    return sum(n for index, n in counts.items() if _octaves(index) > bar)


def _tail(counts: Counts) -> float | None:
    """log2 of the third slowest I/O; None for fewer."""
    left = _RANK
    for index in sorted(counts, reverse=True):
        left -= counts[index]
        if left <= 0:
            return _octaves(index)
    return None


def _octaves(index: int) -> float:
    return math.log2(bucket_bounds(index)[1])
