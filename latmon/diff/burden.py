"""What each stretch had to do: I/Os a second, their mix and size, and whether that differs enough to say first.

Latencies of unlike loads compare unlike things. Values only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from latmon.diff import blocks
from latmon.diff.evidence import error_of_mean
from latmon.diff.stretch import Stretch
from latmon.model import OPS, Flow

_UNLIKE = 1.2
"""Rates or sizes that differ by less are the same load."""
_SURE = 4.0
"""Standard errors, of the blocks, that a difference of rates must have."""
_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Burden:
    """A device's load in one stretch, per second; sizes in bytes."""

    iops: float = 0.0
    mb_per_s: float = 0.0
    reads: float = 0.0
    """Of reads and writes."""
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Unlike:
    """A device whose load differs, and in what: IOPS, mix, size."""

    device: str
    a: Burden
    b: Burden
    what: tuple[str, ...]


def burden(stretch: Stretch, device: str = "") -> Burden:
    """Of one device, or of all."""
    done = [(f.op, *one) for unit in stretch.units for f, one in unit.done.items() if device in ("", f.device)]
    count, size, seconds = sum(n for _, n, _ in done), sum(b for _, _, b in done), stretch.us / 1e6
    by_op = {op: sum(n for o, n, _ in done if o == op) for op in OPS[:2]}
    both = sum(by_op.values())
    if not count or not seconds:
        return Burden()
    return Burden(count / seconds, size / seconds / 1e6, by_op["read"] / both if both else 0.0, size / count)


def unlike(a: Stretch, b: Stretch) -> tuple[Unlike, ...]:
    """Devices that both know and that were used otherwise."""
    found = []
    for device in sorted(_busy(a) & _busy(b)):
        one, other = burden(a, device), burden(b, device)
        what = []
        if _far(one.iops, other.iops) and _sure(a, b, device):
            what.append("IOPS")
        if abs(one.reads - other.reads) > _SHARE:
            what.append("mix")
        if _far(one.size, other.size):
            what.append("size")
        if what:
            found.append(Unlike(device, one, other, tuple(what)))
    return tuple(found)


def _busy(stretch: Stretch) -> set[str]:
    return {flow.device for unit in stretch.units for flow, (count, _) in unit.done.items() if count}


def _far(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return high > 0 and (low <= 0 or high / low > _UNLIKE)


def _sure(a: Stretch, b: Stretch, device: str) -> bool:
    """Whether the rates differ by more than they do within each; with too few units it is taken as said."""
    means, errors = [], []
    for one in (a, b):
        rates = [_rate(unit.done, device) / max(unit.us / 1e6, 1e-9) for unit in one.units]
        count = min(len(rates), blocks.MOST)
        if count < blocks.LEAST:
            return True
        per = [total * count / len(rates) for total in blocks.join(rates, count)]
        means.append(sum(per) / count)
        errors.append(error_of_mean(per))
    return abs(means[0] - means[1]) > _SURE * math.hypot(*errors)


def _rate(done: dict[Flow, tuple[int, int]], device: str) -> int:
    return sum(count for flow, (count, _) in done.items() if flow.device == device)
