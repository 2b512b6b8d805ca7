"""Which device is unlike its peers: robust, and only when it stays so over several consecutive intervals.

Per interval the tail of each device is its third slowest I/O: a maximum is an extreme value and would flag noise (a
textbook 1.5 or 2 x IQR rule on maxima was tried by OpenZFS and shipped as 50 x). A device is out when its tail is far
above the median of its peers' tails, measured in the scatter of those tails; it is unlike when it was out three
intervals running, a single quiet one between them forgiven, for rare outliers leave some. Means play no part.
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
"""Parts running that a device must be out."""
MIN_PEERS = 3
_RANK = 3
_MIN_OCTAVES = 2.0
_SCATTERS = 5.0

Tails = dict[str, float]


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Device -> how many times slower its tail is than its peers', for those that are unlike them."""
    parts = _parts(tuple(frames), window_us, frozenset(ops))
    groups: dict[tuple[str, str], list[str]] = {}
    for device in devices.values():
        groups.setdefault((device.kind, device.driver), []).append(device.name)
    found: dict[str, float] = {}
    for names in groups.values():
        found.update(_unlike([outliers({n: tails[n] for n in names if n in tails}) for tails in parts]))
    return found


def outliers(tails: Tails) -> Tails:
    """Octaves above the peers' median, for the devices of one interval that are out."""
    out: Tails = {}
    for name, own in tails.items():
        peers = [v for other, v in tails.items() if other != name]
        if len(peers) < MIN_PEERS:
            continue
        middle = median(peers)
        scatter = median(abs(v - middle) for v in peers)
        if own - middle > max(_MIN_OCTAVES, _SCATTERS * scatter):
            out[name] = own - middle
    return out


def _unlike(parts: list[Tails]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in {n for part in parts for n in part}:
        run: list[float] = []
        quiet = 0
        for part in parts:
            quiet = 0 if name in part else quiet + 1
            run = [*run, part[name]] if name in part else run if quiet <= 1 else []
            if len(run) >= RUN:
                found[name] = 2 ** median(run)
    return found


def _parts(frames: tuple[Frame, ...], window_us: int, ops: frozenset[str]) -> list[Tails]:
    """The tails of each whole part, oldest first; parts lie on the clock, so that they don't change as time goes on."""
    length = max(window_us // INTERVALS, 1)
    sums: dict[int, dict[str, dict[int, int]]] = {}
    for frame in frames:
        part = sums.setdefault((frame.mono_us - frame.dt_us // 2) // length, {})
        for series, histogram in frame.histograms.items():
            if series.stage == "total" and series.op in ops:
                counts = part.setdefault(series.device, {})
                for index, n in histogram.buckets:
                    here = index if histogram.bits == BITS else bucket_index(bucket_bounds(index, histogram.bits)[0])
                    counts[here] = counts.get(here, 0) + n
    last = max(sums, default=0)
    return [
        {name: tail for name, counts in sums[number].items() if (tail := _tail(counts)) is not None}
        for number in sorted(sums)
        if number != last
    ]


def _tail(counts: dict[int, int]) -> float | None:
    """log2 of the third slowest I/O; None for fewer."""
    left = _RANK
    for index in sorted(counts, reverse=True):
        left -= counts[index]
        if left <= 0:
            return math.log2(bucket_bounds(index)[1])
    return None
