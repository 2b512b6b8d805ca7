"""queue-depth-misconfigured: a setting limits a device to too few I/Os, or to the wrong ones.

It fires for what the audit of a device's limits finds off (analysis/limits.py): a depth below the driver's own minimum
or too low for a device to order by itself, tagged queueing that is off, requests or a host's can_queue that can't fill
what the drivers take, a low parameter that holds for all of a driver's devices. A default that a kernel chooses for
every such device is never off. Of a device that did no I/O in the last minute nothing is said.
It is a notice, and a warning where I/Os wait above the driver for `queued` of the time, and the driver is at its bound
for `queued` of it too, of `lasting_us` or more: then the setting costs something now. It is left out where
outstanding-ceiling says it with what it costs. The same on more than `devices` devices, be they idle or not, is one
finding of the host, without those of outstanding-ceiling: then one setting is meant for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from latmon.analysis.limits import FEW, Audited, Remark, audit
from latmon.findings.evidence import busy_share, raising
from latmon.findings.facts import Facts
from latmon.findings.finding import NOTICE, WARNING, Fact, Finding, Step, Where
from latmon.findings.rule import Rule, Thresholds
from latmon.model.frame import Device, Limit
from latmon.support.units import part

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
    walled: bool
    """Held at a few, of which outstanding-ceiling tells what it costs."""
    used: bool
    """It did an I/O in the last minute."""

    @property
    def felt(self) -> float:
        return min(self.queued, self.full)

    def costs(self, limits: Thresholds) -> bool:
        """Whether I/Os wait for it now, and not in a first burst alone."""
        return self.span_us >= limits["lasting_us"] and self.felt >= limits["queued"]


def judge(facts: Facts, limits: Thresholds) -> Iterable[Finding]:
    """One per device, and one of the host for what many have in common."""
    depths, busy = {name: facts.depths(name) for name in facts.depth_sums}, frozenset(facts.busy)
    each = [
        found
        for one in audit(facts.devices.values(), depths)
        if (found := _off(facts, one, busy, limits["lasting_us"]))
    ]
    alike: dict[tuple[str, str], list[list[_Off]]] = {}
    for found in each:
        alike.setdefault((found[0].limit.name, found[0].remark.text), []).append(found)
    common: list[list[list[_Off]]] = []
    for some in alike.values():
        told = [one for one in some if one[0].used]
        if len(some) <= limits["devices"]:
            yield from (_finding(one[0].device.name, one, (), limits) for one in told)
        elif told := [one for one in told if not one[0].walled]:
            common.append(sorted(told, key=lambda one: -one[0].felt))
    if common:
        common.sort(key=lambda group: -group[0][0].felt)
        yield _of_host(common, limits)


def _off(facts: Facts, audited: Audited, busy: frozenset[str], lasting_us: float) -> list[_Off]:
    """What is off with a device, its first and gravest first."""
    device, done = facts.devices[audited.device], facts.completed(audited.device)
    depths = facts.depths(device.name)
    bound = None if audited.bound is None else int(audited.bound.value)
    full = 0.0 if bound is None else busy_share(depths.in_driver, bound)
    walled = audited.held_at is not None and audited.held_at <= FEW and facts.span_us >= lasting_us
    used = bool(done and done.count) or device.name in busy
    found = [
        _Off(device, setting.limit, remark, busy_share(depths.queued), full, facts.span_us, walled, used)
        for setting in audited.settings
        for remark in setting.remarks
        if remark.id in _ABOUT and not remark.note
    ]
    return sorted(found, key=lambda one: _ABOUT.index(one.remark.id))


def _of_host(common: list[list[list[_Off]]], limits: Thresholds) -> Finding:
    """Groups of devices with the same off, the one that feels it most first in each, and the worst group first."""
    worst = common[0][0]
    others = [group[0][0] for group in common[1:]]
    names = tuple(sorted({one[0].device.name for group in common for one in group}))
    return _finding("", [*worst, *others], names, limits)


def _finding(device: str, off: list[_Off], names: tuple[str, ...], limits: Thresholds) -> Finding:
    """`off`: all that is off with one device; of the host its worst one's, and what others have."""
    first = off[0]
    costs, name = first.costs(limits), first.device.name
    now = f": I/Os wait for it {part(first.queued)} of the time" if costs else ""
    now = now if device or not costs else f"{now} on {name}"
    short = "is short: " if first.remark.id == "host-limit-shared" else "of "
    more = f"; {len(off) - 1} more settings are off" if len(off) > 2 else "; one more setting is off"  # noqa: PLR2004
    on = "" if device else f"{name}: "
    return Finding(
        ID,
        WARNING if costs else NOTICE,
        device,
        f"{device or _who(names)}: {first.limit.name} {short}{first.remark.text}{now}{more if len(off) > 1 else ''}",
        (
            *(Fact(one.limit.name, one.limit.value, f"{one.limit.name}: {one.remark.text}") for one in off),
            *(() if device else (Fact("devices", len(names), f"on {len(names):,} that are used: {', '.join(names)}"),)),
            Fact(
                "queued",
                round(first.queued, 3),
                f"{on}something waits above the driver {part(first.queued)} of the time",
                "share",
            ),
            Fact(
                "full", round(first.full, 3), f"{on}the driver is at its bound {part(first.full)} of the time", "share"
            ),
        ),
        Where("outstanding", device or name),
        (*raising(first.device, first.limit.name), Step("look at the limits audit on the screen of outstanding I/O")),
        "a load that never sends as many, or an array whose maker asks for this value",
        first.queued if costs else 0.0,
        also=names,
    )


def _who(names: tuple[str, ...]) -> str:
    """The first two of them by name."""
    most = 2
    return ", ".join(names) if len(names) <= most else f"{names[0]}, {names[1]} and {len(names) - most:,} more"


RULE = Rule(
    ID,
    "a setting keeps a device from being given enough I/Os, or the right ones",
    judge,
    explained_by=("outstanding-ceiling",),
)
