"""Numbers that limits of volumes are often set to, near a measured rate: a hint, since many rates are near one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from latmon.aggregate.rates import RateKind

NEAR = 0.01
"""Greatest difference, in parts, from such a number."""
_MANTISSAS = (1.0, 1.2, 1.25, 1.5, 1.6, 2.0, 2.3, 2.4, 2.5, 3.0, 3.2, 4.0, 5.0, 6.0, 6.4, 7.5, 8.0, 9.0, 10.0)
"""First digits of limits that providers offer: 3,000 and 16,000 IOPS (gp3), 120, 240, 2,300 and 7,500 (Azure)."""
_UNITS: Mapping[RateKind, tuple[float, ...]] = MappingProxyType({RateKind.IOS: (1.0,), RateKind.BYTES: (1.0, 1.048576)})
BY_CHANCE: Mapping[RateKind, float] = MappingProxyType(
    {kind: len(units) * (len(_MANTISSAS) - 1) * 2 * NEAR / math.log(10) for kind, units in _UNITS.items()}
)
"""Share of all rates that are as near to a number that limits are set to: 1.0 and 10.0 are the same first digit."""


def usual_limit(per_s: float, kind: RateKind) -> int | None:
    """Return the number that a limit may have been set to; None where none is near."""
    for unit in _UNITS[kind]:
        scale = 10.0
        while scale <= per_s:
            scale *= 10
        for mantissa in _MANTISSAS:
            number = mantissa * scale / 10 * unit
            if abs(per_s / number - 1) <= NEAR:
                return round(number)
    return None
