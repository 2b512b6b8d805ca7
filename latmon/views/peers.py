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

from latmon.histogram import BITS, bucket_bounds, bucket_index
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


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Device -> how many times slower its tail is than its peers', for those that are unlike them."""
    parts = _parts(frames, min(window_us // INTERVALS, _LONGEST_US), frozenset(ops))
    groups: dict[tuple[str, str], list[str]] = {}
    for device in devices.values():
        groups.setdefault((device.kind, device.driver), []).append(device.name)
    found: dict[str, float] = {}
    for names in groups.values():
        found.update(_unlike([{n: part[n] for n in names if n in part} for part in parts]))
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


def _unlike(parts: list[dict[str, Counts]]) -> dict[str, float]:
    whole: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.items():
            _add(whole.setdefault(name, {}), counts)
    tails = {name: tail for name, counts in whole.items() if (tail := _tail(counts)) is not None}
    found: dict[str, float] = {}
    for name, own in tails.items():
        peers = [tail for other, tail in tails.items() if other != name]
        if len(peers) < MIN_PEERS:
            continue
        middle = median(peers)
        bar = middle + max(_MIN_OCTAVES, _SCATTERS * median(abs(tail - middle) for tail in peers))
        if own > bar and sum(_above(part.get(name, {}), bar) > 0 for part in parts) >= RUN and _odd(whole, name, bar):
            found[name] = 2 ** (own - middle)
    return found


def _odd(whole: dict[str, Counts], name: str, bar: float) -> bool:
    """Whether chance can't have given this device so many of the I/Os above the bar."""
    share = sum(whole[name].values()) / sum(sum(counts.values()) for counts in whole.values())
    above = {other: _above(counts, bar) for other, counts in whole.items()}
    return chance(above[name], sum(above.values()), share) * len(whole) < _CHANCE


def _parts(frames: Iterable[Frame], length_us: int, ops: frozenset[str]) -> list[dict[str, Counts]]:
    """The I/Os of each device in each part; parts lie on the clock, so that they don't change as time goes on."""
    parts: dict[int, dict[str, Counts]] = {}
    for frame in frames:
        part = parts.setdefault((frame.mono_us - frame.dt_us // 2) // max(length_us, 1), {})
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops:
                counts = part.setdefault(series.device, {})
                for index, n in histogram.buckets:
                    here = index if histogram.bits == BITS else bucket_index(bucket_bounds(index, histogram.bits)[0])
                    counts[here] = counts.get(here, 0) + n
    return list(parts.values())


def _add(sums: Counts, more: Counts) -> None:
    for index, n in more.items():
        sums[index] = sums.get(index, 0) + n


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
