"""A device that completes nothing though I/Os wait that should have been done: for how long, and who holds them.

By the ages of what is in flight where a probe follows it or nothing completed, and by the blocks' completions. Judges
nothing but what counts as an I/O that somebody waits for.
"""

from __future__ import annotations

from typing import NamedTuple

from latmon.ages import Aged
from latmon.findings.facts import Facts
from latmon.findings.rule import Thresholds

OPS = ("read", "write", "flush")
"""A discard may take what it takes, and a command of the drive itself: a format, a self-test."""


class Silent(NamedTuple):
    """For how long nothing was completed, and what is in flight meanwhile."""

    us: int
    ios: int
    all_along: int
    """Of them those that were in flight all of that time."""
    known: bool
    """One of them is known to be such an operation; gauges alone don't tell."""
    above: bool | None
    """All of them held in the block layer, or in the driver and below; None: both, or not known."""


def silent_of(facts: Facts, name: str, limits: Thresholds) -> Silent | None:
    """Where nothing completes though I/Os wait that should."""
    rows = [one for one in facts.waiting if one.device == name and _counts(one, limits)]
    if not rows:
        return None
    least = [one.age_us for one in rows if one.at_least]
    us = max(least) if least else min(_quiet_us(facts, name), rows[0].age_us)
    if us < limits["silent_us"]:
        return None
    issued = {None if one.request is None or one.request.issued is None else one.request.issued for one in rows}
    above = not issued.pop() if issued in ({True}, {False}) else None
    known = any(one.request is not None and one.age_us >= limits["silent_us"] for one in rows)
    all_along = sum(one.count for one in rows if one.age_us >= us)
    return Silent(us, sum(one.count for one in rows), all_along, known, above)


def _counts(one: Aged, limits: Thresholds) -> bool:
    """Not a discard, nor a flush that isn't late."""
    if one.request is None:
        return True
    return one.request.op in OPS and (one.request.op != "flush" or one.age_us >= limits["flush_us"])


def _quiet_us(facts: Facts, name: str) -> int:
    """Since the last block that completed one, by the kernel's count and what was seen."""
    for one in reversed(facts.blocks):
        told = (*one.kernel.items(), *one.seen.items())
        if any(flow.device == name and done.count for flow, done in told):
            return facts.end_us - one.end_us
    return facts.end_us - facts.blocks[0].begin_us
