"""Who holds I/Os that don't complete, device by device in a few words: a capture's last line, a report's head. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from latmon.views.units import spelled

HELD_US = 1_000_000
"""Younger ones are no news."""
MOST = 4
"""Devices by name; of the rest their number."""


class Held(NamedTuple):
    """What one device has had in flight for HELD_US and longer."""

    device: str
    ios: int
    oldest_us: int
    at_least: bool
    """Of the oldest only a least age is known."""


def held(rows: Iterable[tuple[str, int, int, bool]]) -> list[Held]:
    """Of rows (device, I/Os, age in us, whether that is a least age), the device with the oldest first."""
    found: dict[str, Held] = {}
    for device, ios, age_us, at_least in rows:
        if age_us >= HELD_US:
            had = found.get(device, Held(device, 0, -1, at_least))
            oldest = had if had.oldest_us >= age_us else Held(device, 0, age_us, at_least)
            found[device] = oldest._replace(ios=had.ios + ios)
    return sorted(found.values(), key=lambda one: (-one.oldest_us, one.device))


def not_completed(each: Sequence[Held]) -> str:
    """`loop3: 2 I/Os in flight for 40 s, not completed`; empty where nobody waits."""
    return _listed(each, "in flight for", "the oldest in flight for", ", not completed")


def at_the_end(each: Sequence[Held]) -> str:
    """`loop3: 2 I/Os, the oldest for 40 s`; empty where nobody waits."""
    return _listed(each, "for", "the oldest for", "")


def _listed(each: Sequence[Held], one_for: str, many_for: str, then: str) -> str:
    said = [f"{one.device}: {_ios(one.ios)}{one_for if one.ios == 1 else many_for} {_age(one)}" for one in each[:MOST]]
    more = [f"{len(each) - MOST:,} more devices"] if len(each) > MOST else []
    return "; ".join([*said, *more]) + then if said else ""


def _ios(n: int) -> str:
    return "1 I/O " if n == 1 else f"{n:,} I/Os, "


def _age(one: Held) -> str:
    return ("at least " if one.at_least else "") + spelled(one.oldest_us)
