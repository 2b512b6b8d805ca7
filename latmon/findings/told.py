"""What was found over a whole capture: a finding's episodes as one, the most urgent first.

Pure; knows neither report nor screen.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from latmon.findings.finding import Finding
from latmon.findings.watch import Episode


@dataclass(frozen=True, slots=True)
class Told:
    """One finding on one device, as it was when it was most urgent, and when it was there. Times are Unix times."""

    finding: Finding
    begin_wall: float
    """After the first block in which it was found."""
    end_wall: float
    episodes: int
    times: int
    """Blocks after which it was found."""


def told(episodes: Iterable[Episode]) -> tuple[Told, ...]:
    """By severity, then by the share of time they explain."""
    grouped: dict[tuple[str, str], list[Episode]] = {}
    for one in episodes:
        grouped.setdefault(one.key, []).append(one)
    found = [_together(some) for some in grouped.values()]
    return tuple(sorted(found, key=lambda one: one.finding.rank))


def _together(some: list[Episode]) -> Told:
    return Told(
        max((one.worst for one in some), key=lambda finding: finding.weight),
        min(one.begin_wall for one in some),
        max(one.end_wall for one in some),
        len(some),
        sum(one.times for one in some),
    )
