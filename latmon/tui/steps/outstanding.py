"""Steps on the outstanding screen: which time the bars are of, and what is shown aside of them."""

from __future__ import annotations

from dataclasses import replace

from latmon.views.choice import ASIDES, Choice
from latmon.views.panels.outstanding import ages, audited
from latmon.views.sight import Sight
from latmon.views.still import NAMED_US, STEP


def worth_a_look(sight: Sight) -> str:
    """The device that has held an I/O the longest, else one that is held at a limit; empty where there is none."""
    oldest = next(iter(ages(sight)), None)
    if oldest is not None and oldest.age_us >= NAMED_US:
        return oldest.device
    rows = audited(sight)
    full = [one for one in rows if one.held_at is not None] or [one for one in rows if one.at_limit]
    return full[0].device if full else ""


def busy(sight: Sight, _by: int) -> Choice:
    """All time, or busy time alone."""
    return replace(sight.choice, busy=not sight.choice.busy)


def aside(sight: Sight, by: int) -> Choice:
    """The limits' audit or the issue order, and back."""
    wanted = ASIDES[by]
    return replace(sight.choice, aside="" if sight.choice.aside == wanted else wanted, top=0)


def audit_row(sight: Sight, by: int) -> Choice:
    """Another device in the order of the audit, stopping at the ends."""
    names = [one.device for one in audited(sight)]
    if not names:
        return sight.choice
    at = names.index(sight.choice.selected) if sight.choice.selected in names else 0
    return replace(sight.choice, selected=names[min(max(at + by, 0), len(names) - 1)], top=0)


def through(sight: Sight, by: int) -> Choice:
    """Down the list of what is still in flight, not beyond its end; up to where like ones are one line."""
    return replace(sight.choice, top=min(max(sight.choice.top + by * STEP, 0), len(ages(sight)) + STEP))


STEPS = {"busy": busy, "aside": aside, "audit_row": audit_row, "through": through}
