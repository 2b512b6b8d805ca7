"""queue-depth-misconfigured: a setting keeps a device from being given enough I/Os, or the right ones.

It fires for what the audit of a device's limits finds off (audit_checks.py): a depth below the driver's own minimum or
too low for a device to order by itself, tagged queueing that is off, requests or a host's can_queue that can't fill
what the drivers take, a low parameter that holds for all of a driver's devices. A default that a kernel chooses for
every such device is never off. Of a device that did no I/O in the last minute nothing is said.
It is a notice, and a warning where I/Os wait above the driver for `queued` of the time and the driver is at its bound
for as long: then the setting costs something now. It is left out where outstanding-ceiling says it with what it costs.
The same on more than `devices` devices is one finding of the host: then one setting is meant for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from latmon.audit import Audited, audit
from latmon.audit_checks import Remark
from latmon.findings.above_driver import busy_share
from latmon.findings.facts import Facts
from latmon.findings.finding import NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.raising import raising
from latmon.findings.rule import Rule, Thresholds
from latmon.model import Device, Limit
from latmon.words import part

ID = "queue-depth-misconfigured"
_ABOUT = (
    "depth-below-minimum",
    "depth-low",
    "tagged-queueing-off",
    "requests-below-depth",
    "host-limit-shared",
    "global-setting",
)
"""Remarks of the audit; who sorts, counts or completes is none of this rule's."""


class _Off(NamedTuple):
    """A setting of a device that is off, and how much of the time that is felt."""

    device: Device
    limit: Limit
    remark: Remark
    queued: float
    full: float
    span_us: int
    held: bool
    """At a wall, of which outstanding-ceiling tells what it costs."""

    def costs(self, limits: Thresholds) -> bool:
        """Whether I/Os wait for it now, and not in a first burst alone."""
        return self.span_us >= limits["lasting_us"] and min(self.queued, self.full) >= limits["queued"]


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One per device, or one of the host for what many have in common."""
    depths = {name: facts.depths(name) for name in facts.depth_sums}
    each = [found for one in audit(facts.devices.values(), depths) if (found := _off(facts, one))]
    alike: dict[tuple[str, str], list[list[_Off]]] = {}
    for found in each:
        alike.setdefault((found[0].limit.name, found[0].remark.text), []).append(found)
    for some in alike.values():
        if len(some) > limits["devices"]:
            yield _finding("", some[0], [one[0] for one in some], limits)
        else:
            for found in some:
                yield _finding(found[0].device.name, found, found[:1], limits)


def _off(facts: Facts, audited: Audited) -> list[_Off]:
    """What is off with a device that did something, its first and gravest first."""
    device, done = facts.devices[audited.device], facts.completed(audited.device)
    if not (done and done.count) and audited.device not in facts.busy:
        return []
    depths = facts.depths(device.name)
    bound = None if audited.bound is None else int(audited.bound.value)
    full = 0.0 if bound is None else busy_share(depths.in_driver, bound)
    found = [
        _Off(device, setting.limit, remark, busy_share(depths.queued), full, facts.span_us, audited.held_at is not None)
        for setting in audited.settings
        for remark in setting.remarks
        if remark.id in _ABOUT and not remark.note
    ]
    return sorted(found, key=lambda one: _ABOUT.index(one.remark.id))


def _finding(device: str, off: list[_Off], devices: list[_Off], limits: Thresholds) -> Finding:
    """`off`: all that is off with one of the `devices`, of each of which there is one."""
    first, costing = off[0], [one for one in devices if one.costs(limits) and (device or not one.held)]
    names = [one.device.name for one in devices]
    who = device or f"{names[0]}, {names[1]} and {len(names) - 2} more"
    now = f": I/Os wait for it {part(max(one.queued for one in costing))} of the time" if costing else ""
    short = "is short: " if first.remark.id == "host-limit-shared" else "of "
    more = f"; {len(off) - 1} more settings are off" if len(off) > 2 else "; one more setting is off"  # noqa: PLR2004
    return Finding(
        ID,
        WARNING if costing else NOTICE,
        device,
        f"{who}: {first.limit.name} {short}{first.remark.text}{now}{more if len(off) > 1 else ''}",
        (
            *(Fact(one.limit.name, one.limit.value, f"{one.limit.name}: {one.remark.text}") for one in off),
            *(() if device else (Fact("devices", len(names), f"on {len(names)} devices: {', '.join(names)}"),)),
            Fact(
                "queued",
                round(first.queued, 3),
                f"something waits above the driver {part(first.queued)} of the time",
                "share",
            ),
            Fact("full", round(first.full, 3), f"the driver is at its bound {part(first.full)} of the time", "share"),
        ),
        Where("outstanding", device or names[0]),
        (*raising(first.device, first.limit.name), Step("look at the limits audit on the screen of outstanding I/O")),
        "a load that never sends as many, or an array whose maker asks for this value",
        first.queued if costing else 0.0,
    )


RULE = Rule(
    ID,
    "a setting keeps a device from being given enough I/Os, or the right ones",
    judge,
    explained_by=("outstanding-ceiling",),
)
