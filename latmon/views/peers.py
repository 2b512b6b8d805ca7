"""Which device of a screen's window is unlike its peers, and how many times slower its tail is.

A device's tail is its third slowest I/O. It is unlike when it has more I/Os above the bar than chance gives its share
of all I/Os, and has them in three of the window's six parts; a sick one may well leave a part out. The statistic is
latmon/peers.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from latmon.histogram import Histogram
from latmon.model import Device, Frame
from latmon.peers import RANK, Counts, Measure, above, at_scale, beyond, chance, counts_of, like, octaves, tail_of

INTERVALS = 6
"""A window is looked at in so many parts."""
RUN = 3
"""Parts in which a device must have been above the bar."""
_LONGEST_US = 10_000_000
"""Of a part: in a window of ten minutes a device is found before five of them are over."""
_CHANCE = 5e-4
"""Of a finding in a group of equal devices; slow I/Os that come together are what RUN is for."""

Timed = list[tuple[int, Histogram]]
"""A device's I/Os, each time with the number of the part that they are of."""


def unlike(
    frames: Iterable[Frame], window_us: int, devices: Mapping[str, Device], ops: tuple[str, ...]
) -> dict[str, float]:
    """Device -> how many times slower its tail is than its peers', for those that are unlike them."""
    timed = _timed(frames, min(window_us // INTERVALS, _LONGEST_US), frozenset(ops))
    found: dict[str, float] = {}
    for names in like(devices.values()):
        found.update(_unlike({name: timed[name] for name in names if name in timed}))
    return found


def _unlike(timed: Mapping[str, Timed]) -> dict[str, float]:
    tails = {name: tail_of(_slowest(some)) for name, some in timed.items()}
    return {
        name: 2 ** (one.own - one.middle)
        for name, one in beyond(tails, Measure()).items()
        if _parts_above(timed[name], one.bar) >= RUN and _odd(timed, name, one.bar)
    }


def _odd(timed: Mapping[str, Timed], name: str, bar: float) -> bool:
    """Whether chance can't have given this device so many of the I/Os above the bar."""
    whole = {other: counts_of(one for _, one in some) for other, some in timed.items()}
    share = sum(whole[name].values()) / sum(sum(counts.values()) for counts in whole.values())
    slow = {other: above(counts, bar) for other, counts in whole.items()}
    return chance(slow[name], sum(slow.values()), share) * len(whole) < _CHANCE


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
        left = RANK
        for index, n in reversed(one.buckets):
            here = at_scale(index, one)
            found[here] = found.get(here, 0) + n
            left -= n
            if left <= 0:
                break
    return found


def _parts_above(some: Timed, bar: float) -> int:
    """Parts in which an I/O took longer."""
    return len({part for part, one in some if one and octaves(at_scale(one.buckets[-1][0], one)) > bar})
